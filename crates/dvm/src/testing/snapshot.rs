//! A compiled case as text, stage by stage.

use std::fmt::Write as _;

use dvm_bc::{Limits, Space, Verified, disasm_with};
use dvm_npu::MachineSpec;
use dvm_tile::{FoldRole, Tiling};

use super::{Case, CompiledCase};

pub(super) fn render(case: &Case, spec: &MachineSpec, c: &CompiledCase) -> Result<String, String> {
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
    Verified::new(program.clone(), &Limits::default()).map_err(|e| format!("{e}\n{text}"))?;
    Ok(out)
}

fn stage(out: &mut String, name: &str) {
    let _ = writeln!(out, "\n== {name}");
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
