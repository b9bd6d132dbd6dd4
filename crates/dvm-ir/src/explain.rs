//! What a plan is and why, as data: the kernels with their ops and the memory traffic they save, and for each value that goes
//! through memory the rule that demands it and what would have to be known about dims for it to stay in a kernel.
//!
//! Sizes are expressions over the plan's symbols, with values where those are bound.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use crate::kernel::{AxisSet, KOp, Kernel};
use crate::plan::{BufferId, Plan};
use crate::{Bindings, Dim, DimTable, DimValues, Graph};

/// A size: an expression over symbols, and its value where all of them are bound.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// As text, e.g. `4*b*s`.
    pub expr: String,
    /// For the bindings that were given.
    pub value: Option<i64>,
}

impl fmt::Display for Size {
    /// `4*b = 12`, or one of both.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.map(|v| v.to_string()) {
            Some(v) if v != self.expr => write!(f, "{} = {v}", self.expr),
            _ => f.write_str(&self.expr),
        }
    }
}

/// Argument bytes that something moves.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// By the kernel: each address map it loads once, each value it stores once. Where a row does not fit local memory, what is
    /// needed again after a reduction is loaded once more.
    pub fused: Size,
    /// By its ops, were each a kernel of its own.
    pub unfused: Size,
    /// The difference.
    pub saved: Size,
}

/// A kernel at work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallNote {
    /// Number among the plan's calls.
    pub call: u32,
    /// Dependence level.
    pub level: u32,
    /// Id of the kernel; equal kernels are one.
    pub kernel: String,
    /// Name of the kernel.
    pub name: String,
    /// Iteration space, outermost first.
    pub space: Vec<Size>,
    /// Ops of the graph that it computes, with the names of their nodes.
    pub ops: Vec<String>,
    /// Buffers it reads.
    pub reads: Vec<String>,
    /// Buffers it writes.
    pub writes: Vec<String>,
    /// Bytes it moves.
    pub bytes: Traffic,
    /// Most cores it may use, where it was limited.
    pub cores: Option<u32>,
}

/// A value that one kernel stores and another loads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BoundaryNote {
    /// Call that stores it.
    pub from: u32,
    /// Call that loads it.
    pub to: u32,
    /// Its buffer.
    pub buffer: String,
    /// Size of the buffer.
    pub bytes: Size,
    /// The rule that cut.
    pub rule: String,
    /// Conditions on dims, as an assumption may state them, each of which would remove the boundary.
    pub missing: Vec<String>,
}

/// A plan, explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Version of this form.
    pub version: u32,
    /// Name of the graph.
    pub name: String,
    /// Distinct kernels.
    pub kernels: usize,
    /// Calls in order.
    pub calls: Vec<CallNote>,
    /// Calls of each level.
    pub levels: Vec<Vec<u32>>,
    /// What goes through memory, and why.
    pub boundaries: Vec<BoundaryNote>,
    /// Bytes that all calls move.
    pub bytes: Traffic,
}

/// Sizes of a table under bindings.
struct Sizes {
    dims: DimTable,
    /// (fused, unfused) of each kernel.
    kernels: Vec<(Dim, Dim)>,
    values: DimValues,
    /// Dims in terms of what is known of their symbols.
    known: HashMap<Dim, Dim>,
}

impl Sizes {
    fn size(&self, d: Dim) -> Size {
        let d = self.known.get(&d).copied().unwrap_or(d);
        Size { expr: self.dims.display(d).to_string(), value: self.values.get(d) }
    }
    fn traffic(&self, (fused, unfused, saved): (Dim, Dim, Dim)) -> Traffic {
        Traffic { fused: self.size(fused), unfused: self.size(unfused), saved: self.size(saved) }
    }
}

impl Plan {
    /// What the plan is and why. `graph` is the one it was made of; sizes have values where `bindings` tell them.
    #[must_use]
    pub fn explain(&self, graph: &Graph, bindings: &Bindings) -> Explanation {
        let mut dims = self.dims.clone();
        let kernels: Vec<(Dim, Dim)> = self.kernels.iter().map(|k| traffic(&mut dims, k)).collect();
        let saved: Vec<Dim> = kernels.iter().map(|&(f, u)| dims.sub(u, f)).collect();
        let mut total = [Dim::ZERO; 3];
        for c in &self.calls {
            let k = c.kernel.index();
            for (t, d) in total.iter_mut().zip([kernels[k].0, kernels[k].1, saved[k]]) {
                *t = dims.add(*t, d);
            }
        }
        let bytes: Vec<Dim> = self
            .buffers
            .iter()
            .map(|b| {
                let size = dims.constant(b.dtype.size() as i64);
                dims.mul(b.len, size)
            })
            .collect();
        let shown = self.kernels.iter().flat_map(|k| &k.axes).chain(&bytes).chain(&saved).chain(&total);
        let shown: Vec<Dim> = shown.copied().chain(kernels.iter().flat_map(|&(f, u)| [f, u])).collect();
        let known = shown.into_iter().map(|d| (d, dims.rewrite(d))).collect();
        let mut s = Sizes { dims, kernels, values: DimValues::default(), known };
        s.dims.eval_all(bindings, &mut s.values);
        let name = |b: &BufferId| self.buffers[b.index()].name.clone();
        let mut level_of = vec![0u32; self.calls.len()];
        for (l, level) in self.levels.iter().enumerate() {
            level.calls.iter().for_each(|&c| level_of[c as usize] = l as u32);
        }
        let cores = |c: u32| {
            let level = level_of[c as usize];
            let at = self.levels.get(level as usize)?.calls.iter().position(|&x| x == c)? as u32;
            let within =
                |l: &&crate::plan::CoreLimit| l.level == level && (l.first..l.first + l.calls).contains(&at);
            self.limits.iter().find(within).map(|l| l.cores)
        };
        let calls = self.calls.iter().enumerate().map(|(i, c)| {
            let k = &self.kernels[c.kernel.index()];
            let named = |write: bool| {
                let mine = c.args.iter().zip(&k.operands).filter(|(_, o)| o.write == write);
                mine.map(|(b, _)| name(b)).collect()
            };
            let (fused, unfused) = s.kernels[c.kernel.index()];
            CallNote {
                call: i as u32,
                level: level_of[i],
                kernel: c.kernel.to_string(),
                name: k.name.clone(),
                space: k.axes.iter().map(|&d| s.size(d)).collect(),
                ops: c.nodes.iter().map(|&n| graph.node_text(n)).collect(),
                reads: named(false),
                writes: named(true),
                bytes: s.traffic((fused, unfused, saved[c.kernel.index()])),
                cores: cores(i as u32),
            }
        });
        let boundaries = self.boundaries.iter().map(|b| BoundaryNote {
            from: b.from,
            to: b.to,
            buffer: name(&b.buffer),
            bytes: s.size(bytes[b.buffer.index()]),
            rule: b.reason.clone(),
            missing: b.missing.iter().map(|&c| self.dims.say_cond(c)).collect(),
        });
        Explanation {
            version: 2,
            name: self.name.clone(),
            kernels: self.kernels.len(),
            calls: calls.collect(),
            levels: self.levels.iter().map(|l| l.calls.clone()).collect(),
            boundaries: boundaries.collect(),
            bytes: s.traffic((total[0], total[1], total[2])),
        }
    }
}

impl Graph {
    /// The op of a node and its name, where it has one.
    #[must_use]
    pub fn node_text(&self, n: crate::NodeId) -> String {
        let Some(node) = self.nodes.get(n.index()) else { return n.to_string() };
        match node.name.as_deref().filter(|n| !n.is_empty()) {
            Some(name) => format!("{} {name}", node.op.mnemonic()),
            None => node.op.mnemonic().to_string(),
        }
    }
}

/// Bytes that a kernel moves, and that its ops would move were each a kernel of its own.
fn traffic(t: &mut DimTable, k: &Kernel) -> (Dim, Dim) {
    let over = |t: &mut DimTable, mask: AxisSet, size: usize| {
        let size = t.constant(size as i64);
        let axes = (0..k.axes.len()).filter(|&a| mask.has(a)).map(|a| k.axes[a]);
        axes.fold(size, |n, d| t.mul(n, d))
    };
    let moved = |strides: &[Dim]| {
        let moves =
            |m: AxisSet, (a, &s): (usize, &Dim)| if s == Dim::ZERO { m } else { m.or(AxisSet::one(a)) };
        strides.iter().enumerate().fold(AxisSet::EMPTY, moves)
    };
    let (mut fused, mut unfused) = (Dim::ZERO, Dim::ZERO);
    for inst in &k.body {
        let result = over(t, inst.mask, inst.dtype.size());
        let mut ops = Dim::ZERO;
        match &inst.op {
            KOp::Const(_) | KOp::DimConst(_) | KOp::Iota { .. } | KOp::Unary(crate::UnaryOp::Copy, _) => {
                continue;
            }
            KOp::Load { .. } => {
                fused = t.add(fused, result);
                continue;
            }
            KOp::Gather { .. } => {
                fused = t.add(fused, result);
                ops = t.add(ops, result);
            }
            KOp::MatMul { a, a_access, b, b_access, k: depth, .. } => {
                for (o, access) in [(*a, a_access), (*b, b_access)] {
                    let size = k.operands.get(o as usize).map_or(1, |o| o.dtype.size());
                    let n = over(t, moved(&access.strides), size);
                    let n = t.mul(n, *depth);
                    fused = t.add(fused, n);
                    ops = t.add(ops, n);
                }
            }
            KOp::Contract { b, b_access, .. } => {
                let size = k.operands.get(*b as usize).map_or(1, |o| o.dtype.size());
                let n = over(t, moved(&b_access.strides), size);
                fused = t.add(fused, n);
                ops = t.add(ops, n);
            }
            _ => {}
        }
        let values = inst.op.values();
        for (i, v) in values.iter().enumerate() {
            let from = &k.body[v.index()];
            if values[..i].contains(v)
                || matches!(from.op, KOp::Const(_) | KOp::DimConst(_) | KOp::Iota { .. })
            {
                continue;
            }
            let n = over(t, from.mask, from.dtype.size());
            ops = t.add(ops, n);
        }
        ops = t.add(ops, result);
        unfused = t.add(unfused, ops);
    }
    for s in &k.stores {
        let value = &k.body[s.value.index()];
        let n = over(t, moved(&s.access.strides), value.dtype.size());
        fused = t.add(fused, n);
        // What no op computes is copied.
        if let KOp::Load { .. } | KOp::Unary(crate::UnaryOp::Copy, _) = value.op {
            let both = over(t, value.mask, value.dtype.size());
            let both = t.add(both, n);
            unfused = t.add(unfused, both);
        } else if let KOp::Const(_) | KOp::DimConst(_) | KOp::Iota { .. } = value.op {
            unfused = t.add(unfused, n);
        }
    }
    (fused, unfused)
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} calls of {} distinct kernels in {} levels",
            self.name,
            self.calls.len(),
            self.kernels,
            self.levels.len()
        )?;
        writeln!(
            f,
            "bytes moved: {}\n  unfused: {}\n  saved:   {}\n",
            self.bytes.fused, self.bytes.unfused, self.bytes.saved
        )?;
        for c in self.levels.iter().flatten().filter_map(|&c| self.calls.get(c as usize)) {
            let space: Vec<String> = c.space.iter().map(ToString::to_string).collect();
            let cores = c.cores.map_or_else(String::new, |n| format!(", at most {n} cores"));
            writeln!(
                f,
                "call {:<4} level {:<4} {} {} [{}]{cores}",
                c.call,
                c.level,
                c.kernel,
                c.name,
                space.join(", ")
            )?;
            let ops = if c.ops.is_empty() { "write in place".into() } else { c.ops.join(", ") };
            writeln!(f, "    ops    {ops}")?;
            writeln!(f, "    reads  {}\n    writes {}", c.reads.join(", "), c.writes.join(", "))?;
            writeln!(f, "    bytes  {}; saved {}", c.bytes.fused, c.bytes.saved)?;
            for b in self.boundaries.iter().filter(|b| b.from == c.call) {
                writeln!(f, "    cut    {} -> call {}: {}", b.buffer, b.to, b.rule)?;
                if !b.missing.is_empty() {
                    writeln!(f, "           cannot prove {}", b.missing.join(", nor "))?;
                }
            }
        }
        Ok(())
    }
}
