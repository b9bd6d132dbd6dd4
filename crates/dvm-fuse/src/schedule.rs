//! From regions to a plan: final kernels, buffers, levels, and the reasons of the boundaries.

use dvm_ir::plan::{
    Boundary, Buffer, BufferId, BufferKind, Call, KernelId, Level, PlanInput, PlanOutput, Split,
};
use dvm_ir::{DimTable, Graph, Kernel, NodeId, Op, Plan, ValueDef, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::FuseError;
use crate::emit::{Built, Cx, Fail, build};
use crate::lower::Prim;
use crate::regions::{Class, Regions};

/// A region's kernel and the stored values of its members.
struct Done {
    region: usize,
    built: Built,
    roots: Vec<ValueId>,
    /// The kernels that do the same one after the other, where it can be split.
    parts: Vec<Built>,
}

/// Makes the plan of a graph's regions.
pub(crate) fn schedule(p: &Prim, mut t: DimTable, r: &Regions) -> Result<Plan, FuseError> {
    let done = kernels(p, &mut t, r)?;
    let mut s = Scheduler {
        p,
        plan: Plan { name: p.g.name.clone(), checks: p.g.checks.clone(), ..Plan::default() },
        buffers: FxHashMap::default(),
        names: FxHashSet::default(),
        kernels: FxHashMap::default(),
    };
    s.inputs(&mut t);
    for d in &done {
        let call = s.make_call(p, &mut t, &d.built);
        s.plan.calls.push(call);
    }
    for (i, d) in done.iter().enumerate().filter(|(_, d)| !d.parts.is_empty()) {
        let parts = d.parts.iter().map(|built| s.make_call(p, &mut t, built)).collect();
        s.plan.splits.push(Split { call: i as u32, parts });
    }
    s.outputs(&mut t);
    levels(&mut s, r, &done);
    s.plan.dims = t;
    Ok(s.plan)
}

/// Builds the final kernels, consumers first so that only what is read is stored; returned in dependence order.
fn kernels(p: &Prim, t: &mut DimTable, r: &Regions) -> Result<Vec<Done>, FuseError> {
    let mut order: Vec<usize> = (0..r.all.len()).filter(|&i| !r.all[i].members.is_empty()).collect();
    // What a region depends on has strictly fewer regions before it. Forced regions may be read by older ones.
    order.sort_by_key(|&i| (r.all[i].before.count(), !r.all[i].forced, r.all[i].members[0]));
    let mut needed = vec![false; p.g.values.len()];
    for o in &p.g.outputs {
        need(p, r, o.value, &mut needed);
    }
    let mut done = vec![];
    for &i in order.iter().rev() {
        let members = &r.all[i].members;
        let output = |n: &NodeId| p.g.nodes[n.index()].output;
        let roots: Vec<ValueId> = members.iter().map(output).filter(|v| needed[v.index()]).collect();
        if roots.is_empty() {
            continue;
        }
        let cx = &mut Cx { p, t, state: &r.state };
        let failed = |fail: Fail| FuseError::Region {
            nodes: members.iter().flat_map(|n| p.origin[n.index()].iter().copied()).collect(),
            reason: fail.to_string(),
        };
        let built = build(cx, members, &roots).map_err(failed)?;
        let mut parts = vec![];
        if let Some([first, rows]) = &r.all[i].parts {
            let last: Vec<NodeId> =
                members.iter().filter(|&n| !first.contains(n) && !rows.contains(n)).copied().collect();
            let mut stored = roots.clone();
            for part in [&last, rows, first] {
                let own = |v: &ValueId| matches!(p.g.value(*v).def, ValueDef::Node(n) if part.contains(&n));
                let roots: Vec<ValueId> = stored.iter().copied().filter(own).collect();
                let built = build(cx, part, &roots).map_err(failed)?;
                stored
                    .extend(built.reads.iter().filter(|v| !stored.contains(v)).copied().collect::<Vec<_>>());
                parts.push(built);
            }
            parts.reverse();
        }
        for &v in &built.reads {
            need(p, r, v, &mut needed);
        }
        done.push(Done { region: i, built, roots, parts });
    }
    done.reverse();
    Ok(done)
}

/// Marks a value as needed in memory; the pieces of a concatenation are needed with it.
fn need(p: &Prim, r: &Regions, v: ValueId, needed: &mut [bool]) {
    let mut stack = vec![v];
    while let Some(v) = stack.pop() {
        if std::mem::replace(&mut needed[v.index()], true) {
            continue;
        }
        if let ValueDef::Node(n) = p.g.value(v).def
            && r.state.class[n.index()] == Class::Concat
        {
            stack.extend_from_slice(&p.g.nodes[n.index()].inputs);
        }
    }
}

struct Scheduler<'a> {
    p: &'a Prim,
    plan: Plan,
    buffers: FxHashMap<ValueId, BufferId>,
    names: FxHashSet<String>,
    kernels: FxHashMap<Kernel, KernelId>,
}

impl Scheduler<'_> {
    fn buffer(&mut self, t: &mut DimTable, v: ValueId) -> BufferId {
        if let Some(&b) = self.buffers.get(&v) {
            return b;
        }
        let value = self.p.g.value(v);
        let position = |g: &Graph| g.outputs.iter().position(|o| o.value == v);
        let (kind, name) = match value.def {
            ValueDef::Input(i) => (BufferKind::Input(i), value.name.clone()),
            ValueDef::Const(c) => {
                self.plan.constants.push(self.p.g.constants[c.index()].clone());
                (BufferKind::Const(self.plan.constants.len() as u32 - 1), value.name.clone())
            }
            ValueDef::Node(_) | ValueDef::Control(..) => match position(&self.p.g) {
                Some(o) => (BufferKind::Output(o as u32), Some(self.p.g.outputs[o].name.clone())),
                None => (BufferKind::Temp, value.name.clone()),
            },
        };
        let base = name.unwrap_or_else(|| v.to_string());
        let mut name = base.clone();
        let mut n = 1;
        while !self.names.insert(name.clone()) {
            n += 1;
            name = format!("{base}.{n}");
        }
        let len = t.product(&value.ty.shape);
        self.plan.buffers.push(Buffer { name, dtype: value.ty.dtype, len, kind });
        let id = BufferId::new(self.plan.buffers.len() - 1);
        self.buffers.insert(v, id);
        id
    }
    fn inputs(&mut self, t: &mut DimTable) {
        for input in &self.p.g.inputs {
            let ty = self.p.g.value(input.value).ty.clone();
            let buffer = self.buffer(t, input.value);
            self.plan.inputs.push(PlanInput {
                input: input.clone(),
                dtype: ty.dtype,
                shape: ty.shape,
                buffer,
            });
        }
    }
    fn outputs(&mut self, t: &mut DimTable) {
        for o in &self.p.g.outputs {
            let ty = self.p.g.value(o.value).ty.clone();
            let buffer = self.buffer(t, o.value);
            self.plan.outputs.push(PlanOutput {
                name: o.name.clone(),
                dtype: ty.dtype,
                shape: ty.shape,
                buffer,
            });
        }
    }
    fn make_call(&mut self, p: &Prim, t: &mut DimTable, built: &Built) -> Call {
        let args = built.owners.iter().map(|&v| self.buffer(t, v)).collect();
        let next = KernelId::new(self.plan.kernels.len());
        let kernel = *self.kernels.entry(built.kernel.clone()).or_insert(next);
        if kernel == next {
            self.plan.kernels.push(built.kernel.clone());
        }
        let mut nodes: Vec<NodeId> = built
            .nodes
            .iter()
            .flat_map(|n| &p.origin[n.index()])
            .copied()
            .filter(|n| n.0 != u32::MAX)
            .collect();
        nodes.sort_unstable();
        nodes.dedup();
        Call { kernel, args, nodes }
    }
}

/// Levels by longest path, and a boundary for every stored value that is read back.
fn levels(s: &mut Scheduler, r: &Regions, done: &[Done]) {
    let (plan, p) = (&mut s.plan, s.p);
    let mut writer: FxHashMap<ValueId, u32> = FxHashMap::default();
    for (i, d) in done.iter().enumerate() {
        for &v in &d.roots {
            writer.insert(v, i as u32);
        }
    }
    let mut level = vec![0usize; done.len()];
    for (i, d) in done.iter().enumerate() {
        for &v in &d.built.reads {
            let mut stack = vec![v];
            while let Some(v) = stack.pop() {
                if let Some(&from) = writer.get(&v) {
                    level[i] = level[i].max(level[from as usize] + 1);
                    plan.boundaries.push(Boundary {
                        from,
                        to: i as u32,
                        buffer: s.buffers[&owner(p, v)],
                        reason: reason(p, r, d, v),
                        missing: vec![],
                    });
                } else if let ValueDef::Node(n) = p.g.value(v).def {
                    stack.extend_from_slice(&p.g.nodes[n.index()].inputs);
                }
            }
        }
    }
    for (i, &l) in level.iter().enumerate() {
        if plan.levels.len() <= l {
            plan.levels.resize(l + 1, Level::default());
        }
        plan.levels[l].calls.push(i as u32);
    }
}

/// The value whose buffer holds a stored value.
fn owner(p: &Prim, v: ValueId) -> ValueId {
    let mut owner = v;
    while let Some((concat, ..)) = p.placed[owner.index()] {
        owner = concat;
    }
    owner
}

fn reason(p: &Prim, r: &Regions, d: &Done, v: ValueId) -> String {
    let members = &r.all[d.region].members;
    if let Some(why) = members.iter().find_map(|&m| r.cuts.get(&(m, v))) {
        return why.clone();
    }
    if p.placed[v.index()].is_some() {
        return "pieces of a concatenation are stored in place".into();
    }
    for m in members {
        match p.g.nodes[m.index()].op {
            Op::MatMul { .. } => return "a matmul needs its operands in memory".into(),
            Op::Gather { .. } | Op::GatherElements { .. } => return "a gather reads from memory".into(),
            _ => {}
        }
    }
    "its producers make several kernels".into()
}
