//! A plan cut into groups of levels, each a plan of its own, so that one runs while the next is encoded.
//!
//! A cut has a price: a kernel that is called on both sides is encoded twice, and what crosses it needs memory of its own. So a
//! plan is cut where few kernels are on both sides, and not at all where it has few kernels.

use std::sync::Arc;

use dvm_ir::plan::{BufferKind, Call, CoreLimit, KernelId, Level, Split};
use dvm_ir::{Dim, DimValues, Plan};

use crate::Error;

/// Fewest kernels and levels of a plan that is cut.
const KERNELS: usize = 6;
const LEVELS: usize = 12;
/// Into how many groups of new kernels a plan is cut at most; a last group repeats kernels.
const PARTS: usize = 4;

/// A run of levels as a plan. Its inputs are numbered: those of the whole, then the outputs of the whole that earlier groups have
/// stored, then what lies between groups. Its outputs are those of the whole, then what lies between groups.
pub(crate) struct Group {
    pub(crate) plan: Arc<Plan>,
}

/// A plan as groups in order.
pub(crate) struct Groups {
    pub(crate) list: Vec<Group>,
    /// Length and bytes per element of what lies between groups.
    between: Vec<(Dim, usize)>,
}

impl Groups {
    /// The groups of a plan; `None` where it is better left whole.
    pub(crate) fn of(plan: &Plan) -> Option<Groups> {
        let cuts = cuts(plan)?;
        let mut g = Groups { list: vec![], between: vec![] };
        let uses = Uses::of(plan, &cuts);
        // Number among what lies between groups.
        let mut number = vec![None; plan.buffers.len()];
        for (b, u) in uses.list.iter().enumerate() {
            if matches!(plan.buffers[b].kind, BufferKind::Temp) && u.written != u.last && u.last.is_some() {
                number[b] = Some(g.between.len() as u32);
                g.between.push((plan.buffers[b].len, plan.buffers[b].dtype.size()));
            }
        }
        let bounds: Vec<usize> = std::iter::once(0).chain(cuts).chain([plan.levels.len()]).collect();
        for (i, w) in bounds.windows(2).enumerate() {
            g.list.push(Group { plan: Arc::new(part(plan, i, w[0]..w[1], &uses, &number)) });
        }
        Some(g)
    }
    /// Bytes of what lies between groups, for these dims.
    pub(crate) fn between(&self, values: &DimValues) -> Result<Vec<usize>, Error> {
        let bytes = |&(len, size): &(Dim, usize)| {
            let n = values.get(len).and_then(|n| usize::try_from(n).ok());
            n.and_then(|n| n.checked_mul(size)).ok_or_else(|| Error::Bind("a buffer has no length".into()))
        };
        self.between.iter().map(bytes).collect()
    }
}

/// By which groups a buffer is used.
#[derive(Clone, Copy, Default)]
struct Use {
    /// Group that stores it.
    written: Option<usize>,
    /// Last group that has it.
    last: Option<usize>,
}

struct Uses {
    list: Vec<Use>,
    /// Some buffer is stored by several groups.
    torn: bool,
}

impl Uses {
    fn of(plan: &Plan, cuts: &[usize]) -> Uses {
        let mut uses = Uses { list: vec![Use::default(); plan.buffers.len()], torn: false };
        for (l, level) in plan.levels.iter().enumerate() {
            let group = cuts.partition_point(|&c| c <= l);
            for call in level.calls.iter().map(|&c| &plan.calls[c as usize]) {
                let kernel = &plan.kernels[call.kernel.index()];
                for (b, operand) in call.args.iter().zip(&kernel.operands) {
                    let u = &mut uses.list[b.index()];
                    u.last = Some(group);
                    if operand.write {
                        uses.torn |= u.written.is_some_and(|w| w != group);
                        u.written = Some(group);
                    }
                }
            }
        }
        uses
    }
}

/// Levels before which to cut.
fn cuts(plan: &Plan) -> Option<Vec<usize>> {
    // Those that only parts of calls use are not counted.
    let mut called = vec![false; plan.kernels.len()];
    plan.calls.iter().for_each(|c| called[c.kernel.index()] = true);
    let total = called.iter().filter(|&&c| c).count();
    if plan.stacked || total < KERNELS || plan.levels.len() < LEVELS {
        return None;
    }
    // Kernels seen before each level, and those that are used from it on.
    let mut seen = vec![false; called.len()];
    let mut before = vec![0usize];
    for level in &plan.levels {
        let mut n = before[before.len() - 1];
        for &c in &level.calls {
            n += usize::from(!std::mem::replace(&mut seen[plan.calls[c as usize].kernel.index()], true));
        }
        before.push(n);
    }
    let mut used = vec![false; called.len()];
    let mut after = vec![0usize; plan.levels.len() + 1];
    for (l, level) in plan.levels.iter().enumerate().rev() {
        let mut n = after[l + 1];
        for &c in &level.calls {
            n += usize::from(!std::mem::replace(&mut used[plan.calls[c as usize].kernel.index()], true));
        }
        after[l] = n;
    }
    let share = total.div_ceil(PARTS);
    let (mut cuts, mut from) = (vec![], 0);
    for l in 1..plan.levels.len() {
        let again = before[l] + after[l] - total;
        // Of all that is encoded twice, no more than a third of the whole.
        if before[l] - before[from] >= share && before[l] < total && again <= total / 3 {
            let mut tried = cuts.clone();
            tried.push(l);
            if !Uses::of(plan, &tried).torn {
                (cuts, from) = (tried, l);
            }
            if cuts.len() + 1 == PARTS {
                break;
            }
        }
    }
    (!cuts.is_empty()).then_some(cuts)
}

/// The levels of a group as a plan.
fn part(
    plan: &Plan,
    group: usize,
    levels: std::ops::Range<usize>,
    uses: &Uses,
    number: &[Option<u32>],
) -> Plan {
    let (inputs, outputs) = (plan.inputs.len() as u32, plan.outputs.len() as u32);
    let mut out = Plan {
        name: format!("{}.{group}", plan.name),
        dims: plan.dims.clone(),
        constants: plan.constants.clone(),
        buffers: plan.buffers.clone(),
        ..Plan::default()
    };
    for (b, buffer) in out.buffers.iter_mut().enumerate() {
        let u = uses.list[b];
        let here = u.written == Some(group);
        // Buffers that no call of the group uses take no argument, unless they are outputs.
        buffer.kind = match (&buffer.kind, number[b]) {
            (BufferKind::Output(o), _) if here => BufferKind::Output(*o),
            (BufferKind::Output(o), _) if u.written.is_some_and(|w| w < group) => {
                BufferKind::Input(inputs + o)
            }
            (BufferKind::Output(_), _) => BufferKind::Temp,
            (BufferKind::Temp, Some(n)) if here => BufferKind::Output(outputs + n),
            (BufferKind::Temp, Some(n)) if u.written.is_some_and(|w| w < group) => {
                BufferKind::Input(inputs + outputs + n)
            }
            (kind, _) => kind.clone(),
        };
    }
    let here = plan.limits.iter().filter(|l| levels.contains(&(l.level as usize)));
    out.limits = here.map(|l| CoreLimit { level: l.level - levels.start as u32, ..*l }).collect();
    let mut kernels = vec![None; plan.kernels.len()];
    let mut taken = vec![];
    let mut take = |call: &Call| {
        let kernel = *kernels[call.kernel.index()].get_or_insert_with(|| {
            taken.push(plan.kernels[call.kernel.index()].clone());
            KernelId::new(taken.len() - 1)
        });
        Call { kernel, args: call.args.clone(), nodes: call.nodes.clone() }
    };
    for level in &plan.levels[levels] {
        let mut calls = Vec::with_capacity(level.calls.len());
        for &c in &level.calls {
            let call = out.calls.len() as u32;
            calls.push(call);
            out.calls.push(take(&plan.calls[c as usize]));
            // Memory between parts is of no other call.
            if let Some(split) = plan.split_of(c) {
                out.splits.push(Split { call, parts: split.parts.iter().map(&mut take).collect() });
            }
        }
        out.levels.push(Level { calls });
    }
    out.kernels = taken;
    out
}
