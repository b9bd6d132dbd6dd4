//! A compiled case as text, stage by stage.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use dvm_bc::{Limits, Pipe, Space, Template, disasm_with};
use dvm_npu::MachineSpec;
use dvm_tile::{FoldRole, Tiling};

use super::{Case, CompiledCase, Snapshot};

pub(super) fn render(case: &Case, spec: &MachineSpec, c: &CompiledCase) -> Result<Snapshot, String> {
    let mut out = format!("; {} on {}, {}\n", case.name, spec.target.name, case.dims);
    out.push_str(
        "; Written by `cargo xtask snapshots --accept`; docs/reviewing-bytecode.md says how to read it.\n",
    );
    stage(&mut out, "graph");
    let _ = write!(out, "{}", c.graph);
    stage(&mut out, "fused kernels");
    let _ = write!(out, "{}", c.plan);
    stage(&mut out, "tiling");
    for t in &c.compiled.tilings {
        tiling(&mut out, t, spec);
    }
    let _ = writeln!(out, "workspace {} bytes", c.compiled.workspace_bytes);
    stage(&mut out, "bytecode");
    let program = &c.compiled.program;
    let text = disasm_with(program, &|at| {
        let t = at.template as usize;
        c.compiled.tilings[t].note(&c.plan.kernels[c.compiled.kernels[t].index()], at.number as usize)
    });
    out.push_str(&text);
    let report = crate::check(program, &Limits::default());
    if let Some(e) = &report.violations {
        return Err(format!("{e}\n{text}"));
    }
    stage(&mut out, "synchronisation");
    if !program.target.async_pipes {
        out.push_str("none: the pipes of this machine run in order\n");
        return Ok(Snapshot { text: out, hazards: report.hazards });
    }
    for t in &program.templates {
        let _ = writeln!(out, "{}: {}", t.name, flags(t));
    }
    let _ = writeln!(out, "{}", report.hazards);
    Ok(Snapshot { text: out, hazards: report.hazards })
}

fn stage(out: &mut String, name: &str) {
    let _ = writeln!(out, "\n== {name}");
}

/// The flags that a template uses, by pair of pipes: `mte2>v 0 1 2, v>mte3 0`, and how often each kind of synchronisation stands in it.
fn flags(t: &Template) -> String {
    let mut used: BTreeMap<(Pipe, Pipe), BTreeSet<u8>> = BTreeMap::new();
    for inst in t.phases.iter().flat_map(|p| &p.sections).flat_map(|s| s.code.iter()).flatten() {
        let Some(pipe) = inst.pipe() else { continue };
        for e in [inst.sync.set, inst.sync.set_back].into_iter().flatten() {
            used.entry((pipe, e.peer)).or_default().insert(e.id);
        }
    }
    if used.is_empty() {
        return "no events".to_string();
    }
    let pairs = used.iter().map(|((from, to), ids)| {
        let ids: Vec<String> = ids.iter().map(u8::to_string).collect();
        format!("{}>{} {}", from.name(), to.name(), ids.join(" "))
    });
    format!("events {}", pairs.collect::<Vec<_>>().join(", "))
}

/// What was decided, and what bound it: the memory that is full, how tiles fall on cores.
fn tiling(out: &mut String, t: &Tiling, spec: &MachineSpec) {
    let _ = writeln!(out, "{t}");
    let cores = u64::from(spec.target.cores);
    let cut =
        |role| t.folds.iter().filter(|f| f.role == role).map(|f| f.count.to_string()).collect::<Vec<_>>();
    let (spread, walked) = (cut(FoldRole::Parallel), cut(FoldRole::Sequential));
    let mut why = vec![match (t.tiles, spread.is_empty()) {
        (0, _) => "nothing is stored".to_string(),
        (1, true) => "one tile".to_string(),
        (tiles, _) => {
            format!("{} tiles on {cores} cores: {} a core", spread.join(" x "), tiles.div_ceil(cores))
        }
    }];
    if !walked.is_empty() {
        why.push(format!("each walks {} pieces in order", walked.join(" x ")));
    }
    if let Some((k, k0)) = t.k.filter(|(_, k0)| *k0 > 0) {
        why.push(match k.div_ceil(u64::from(k0)) {
            1 => "k in one block".to_string(),
            n => format!("k in {n} blocks"),
        });
    }
    for (space, used) in Space::ALL.iter().zip(t.local).filter(|(_, used)| *used > 0) {
        let capacity = spec.target.capacity(*space).max(1);
        why.push(format!("{} {} % full", space.name(), used * 100 / capacity));
    }
    let _ = writeln!(out, "  {}", why.join("; "));
}
