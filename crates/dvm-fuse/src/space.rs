//! The iteration space of a region: its axes, and which of them each value runs along.
//!
//! Starting from the value that spans the whole region, axes spread along the ops: elementwise ops tie equal extents,
//! reductions keep what they do not reduce, transposes permute, reshapes regroup mixed-radix digits (splitting an axis of
//! the space where that is needed). Only where values are *stored* and what is *reduced* depends on the outcome;
//! everything else follows by composing index maps from there.

use dvm_ir::kernel::AxisSet;
use dvm_ir::{Dim, DimTable, Node, NodeId, Op, ValueDef, ValueId};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::affine::{Digits, Map, of_digits, same};
use crate::emit::Fail;
use crate::lower::Prim;
use crate::memory::State;
use crate::regions::Class;
use crate::reshape::{Regroup, align, regroup, wide};

/// Digits of each axis of a value, as far as known.
type Partial = SmallVec<[Option<Digits>; 4]>;

/// Extents that axes have been split into, by order of creation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Splits(FxHashMap<u32, SmallVec<[Dim; 4]>>);

/// Axes of a region and the digits of its values.
pub(crate) struct Space {
    pub(crate) extents: Vec<Dim>,
    /// Creation number and part of each axis, for splitting.
    created: Vec<(u32, u32)>,
    digits: FxHashMap<ValueId, Partial>,
    count: u32,
    /// Axes that must stay whole: the columns of a matmul (a tile of them is what makes it fast), the axis of a running sum
    /// or of an index of an extreme.
    pub(crate) whole: AxisSet,
    /// The product of a left operand that is computed here; its columns are the last axis.
    pub(crate) second: Option<ValueId>,
}

impl Splits {
    /// Splits an axis of a space made with these splits.
    pub(crate) fn split(&mut self, space: &[(u32, u32)], extents: &[Dim], axis: u8, outer: Dim, inner: Dim) {
        let (c, part) = space[axis as usize];
        let whole = (0..space.len()).filter(|&i| space[i].0 == c).map(|i| extents[i]).collect();
        let parts = self.0.entry(c).or_insert(whole);
        parts[part as usize] = outer;
        parts.insert(part as usize + 1, inner);
    }
}

impl Space {
    fn axis(&mut self, splits: &Splits, dim: Dim) -> Digits {
        let parts = splits.0.get(&self.count).cloned().unwrap_or_else(|| SmallVec::from_slice(&[dim]));
        let mut digits = Digits::new();
        for (k, &e) in parts.iter().enumerate() {
            digits.push(self.extents.len() as u8);
            self.extents.push(e);
            self.created.push((self.count, k as u32));
        }
        self.count += 1;
        digits
    }
    /// Whether an axis must not be split; what is no axis of the space may be.
    pub(crate) fn is_whole(&self, axis: u8) -> bool {
        usize::from(axis) < self.extents.len() && self.whole.has(usize::from(axis))
    }
    pub(crate) fn created(&self) -> &[(u32, u32)] {
        &self.created
    }
    fn entry<'a>(digits: &'a mut FxHashMap<ValueId, Partial>, p: &Prim, v: ValueId) -> &'a mut Partial {
        digits
            .entry(v)
            .or_insert_with(|| p.g.shape(v).iter().map(|&d| (d == Dim::ONE).then(Digits::new)).collect())
    }
    /// The digits of every axis of a value.
    pub(crate) fn digits(&self, v: ValueId) -> Option<SmallVec<[Digits; 4]>> {
        self.digits.get(&v)?.iter().cloned().collect()
    }
    /// Whether every axis of a value is known.
    fn is_known(&self, v: ValueId) -> bool {
        self.digits.get(&v).is_some_and(|d| d.iter().all(Option::is_some))
    }
    /// The digits of one axis of a value.
    pub(crate) fn digits_of(&self, v: ValueId, axis: usize) -> Option<&Digits> {
        self.digits.get(&v)?.get(axis)?.as_ref()
    }
    /// The index map that runs through all of a value.
    pub(crate) fn map(&self, t: &mut DimTable, v: ValueId) -> Option<Map> {
        let digits = self.digits(v)?;
        Some(digits.iter().map(|d| of_digits(t, d, &self.extents)).collect())
    }
}

/// Most hops from a member to a view or recomputed op that ties axes for it.
const MAX_HOPS: usize = 16;

/// Ops of a region and the views and recomputed ops below them, stored or not: what is stored for others while a region
/// grows must not change its axes.
fn scope(p: &Prim, state: &State, members: &[NodeId]) -> Vec<NodeId> {
    let mut seen: FxHashSet<NodeId> = members.iter().copied().collect();
    let mut scope = members.to_vec();
    let mut edge = 0;
    for _ in 0..MAX_HOPS {
        let hop = edge..scope.len();
        edge = scope.len();
        for i in hop {
            for &v in &p.g.nodes[scope[i].index()].inputs {
                if let ValueDef::Node(n) = p.g.value(v).def
                    && (state.class[n.index()] == Class::View || state.cheap[n.index()])
                    && seen.insert(n)
                {
                    scope.push(n);
                }
            }
        }
    }
    scope.sort_unstable();
    scope
}

/// The value whose axes are the axes of the space.
fn anchor(p: &Prim, class: &[Class], members: &[NodeId], roots: &[ValueId]) -> (ValueId, bool) {
    if let Some(n) = members.iter().find(|n| class[n.index()] == Class::MatMul) {
        return (p.g.nodes[n.index()].output, true);
    }
    for &n in members {
        let node = &p.g.nodes[n.index()];
        match class[n.index()] {
            Class::Reduce | Class::ArgReduce | Class::CumSum => return (node.inputs[0], true),
            _ => {}
        }
    }
    let breadth = |v: ValueId| wide(p.g.shape(v)).len();
    let widest = roots.iter().copied().max_by_key(|&v| (breadth(v), v));
    (widest.unwrap_or(p.g.nodes[members[0].index()].output), false)
}

/// Finds the axes of a region.
pub(crate) fn analyse(
    t: &mut DimTable,
    p: &Prim,
    state: &State,
    members: &[NodeId],
    roots: &[ValueId],
    splits: &Splits,
) -> Result<Space, (Fail, Space)> {
    let mut space = Space {
        extents: vec![],
        created: vec![],
        digits: FxHashMap::default(),
        count: 0,
        whole: AxisSet::EMPTY,
        second: None,
    };
    let scope = scope(p, state, members);
    let (anchor, closed) = anchor(p, &state.class, members, roots);
    let cube = members.iter().any(|&n| state.class[n.index()] == Class::MatMul);
    let shape = p.g.shape(anchor);
    let fixed = |i: usize| {
        members.iter().any(|n| match p.g.nodes[n.index()].op {
            Op::MatMul { .. } => i + 1 == shape.len(),
            Op::ArgMax { axis, .. } | Op::ArgMin { axis, .. } | Op::CumSum { axis, .. } => i == axis,
            _ => false,
        })
    };
    let mut partial = Partial::new();
    for (i, &d) in shape.iter().enumerate() {
        let is_mn = cube && i + 2 >= shape.len();
        // A matmul has its last two axes even where they are of extent 1, but then nothing runs along them.
        let digits = if d != Dim::ONE || is_mn { space.axis(splits, d) } else { Digits::new() };
        if fixed(i) {
            space.whole = digits.iter().fold(space.whole, |m, &a| m.or(AxisSet::one(usize::from(a))));
        }
        partial.push(Some(if d == Dim::ONE { Digits::new() } else { digits }));
    }
    space.digits.insert(anchor, partial);
    let mut products = members.iter().filter(|n| state.class[n.index()] == Class::MatMul);
    if let Some(n) = products.nth(1) {
        let v = p.g.nodes[n.index()].output;
        let columns = p.g.shape(v).len() - 1;
        let digits = space.axis(splits, p.g.shape(v)[columns]);
        space.whole = digits.iter().fold(space.whole, |m, &a| m.or(AxisSet::one(usize::from(a))));
        let entry = Space::entry(&mut space.digits, p, v);
        entry[columns].get_or_insert(digits);
        space.second = Some(v);
    }
    for &v in roots {
        Space::entry(&mut space.digits, p, v);
    }
    // The operands of a first reduction may share axes only through the values beside it, so one value after another
    // gets the axes it still lacks.
    let mut wanted = roots.to_vec();
    wanted.sort_by_key(|&v| std::cmp::Reverse(wide(p.g.shape(v)).len()));
    let mut k = 0;
    loop {
        if let Err(fail) = spread(t, p, &scope, &mut space) {
            return Err((fail, space));
        }
        while k < wanted.len() && space.digits(wanted[k]).is_some() {
            k += 1;
        }
        let Some(&v) = wanted.get(k) else { break };
        if closed {
            return Err((Fail::Cut("its values run along other axes".into()), space));
        }
        let shape = p.g.shape(v);
        let mut partial = Space::entry(&mut space.digits, p, v).clone();
        for (i, slot) in partial.iter_mut().enumerate() {
            if slot.is_none() {
                *slot = Some(space.axis(splits, shape[i]));
            }
        }
        space.digits.insert(v, partial);
    }
    let all = space.extents.len();
    let spans = |v: ValueId| space.digits(v).is_some_and(|d| d.iter().map(|x| x.len()).sum::<usize>() >= all);
    if !closed && all > 0 && !roots.iter().any(|&v| spans(v)) {
        return Err((Fail::Cut("no value runs along all axes of both".into()), space));
    }
    Ok(space)
}

/// Spreads known digits along ops until nothing changes.
fn spread(t: &mut DimTable, p: &Prim, scope: &[NodeId], space: &mut Space) -> Result<(), Fail> {
    // Up and down in turn, until neither direction has found anything.
    let (mut quiet, mut up) = (0, true);
    while quiet < 2 {
        let mut changed = false;
        for i in 0..scope.len() {
            let n = scope[if up { scope.len() - 1 - i } else { i }];
            changed |= relate(t, p, &p.g.nodes[n.index()], space)?;
        }
        quiet = if changed { 0 } else { quiet + 1 };
        up = !up;
    }
    Ok(())
}

/// Ties axis `i` of `u` to axis `j` of `v`.
fn tie(p: &Prim, space: &mut Space, (u, i): (ValueId, usize), (v, j): (ValueId, usize)) -> bool {
    let a = Space::entry(&mut space.digits, p, u)[i].clone();
    let b = Space::entry(&mut space.digits, p, v)[j].clone();
    let (to, axis, digits) = match (a, b) {
        (Some(d), None) => (v, j, d),
        (None, Some(d)) => (u, i, d),
        _ => return false,
    };
    // Two axes of one value never run along the same axis of the space.
    let entry = Space::entry(&mut space.digits, p, to);
    if entry.iter().flatten().any(|e| e.iter().any(|x| digits.contains(x))) {
        return false;
    }
    entry[axis] = Some(digits);
    true
}

fn relate(t: &mut DimTable, p: &Prim, node: &Node, space: &mut Space) -> Result<bool, Fail> {
    let out = node.output;
    let to = p.g.shape(out);
    let mut changed = false;
    let right_aligned = |t: &mut DimTable, space: &mut Space, u: ValueId| {
        let from = p.g.shape(u);
        if from.is_empty() || (space.is_known(u) && space.is_known(out)) {
            return false;
        }
        let lead = to.len() - from.len();
        let mut changed = false;
        for i in 0..from.len() {
            if from[i] != Dim::ONE && same(t, from[i], to[lead + i]) {
                changed |= tie(p, space, (u, i), (out, lead + i));
            }
        }
        changed
    };
    match &node.op {
        op if op.is_elementwise() => {
            for &u in &node.inputs {
                changed |= right_aligned(t, space, u);
            }
        }
        Op::Expand { .. } => changed |= right_aligned(t, space, node.inputs[0]),
        Op::Transpose { perm } => {
            for (j, &i) in perm.iter().enumerate() {
                changed |= tie(p, space, (node.inputs[0], i), (out, j));
            }
        }
        Op::Slice { start, len, step } => {
            let u = node.inputs[0];
            for i in 0..to.len() {
                if start[i] == Dim::ZERO && step[i] == 1 && same(t, len[i], p.g.shape(u)[i]) {
                    changed |= tie(p, space, (u, i), (out, i));
                }
            }
        }
        Op::Window { axis, .. } => {
            let u = node.inputs[0];
            for i in (0..p.g.shape(u).len()).filter(|i| i != axis) {
                changed |= tie(p, space, (u, i), (out, if i > *axis { i + 1 } else { i }));
            }
        }
        Op::Reduce { axes, keepdims, .. } => changed |= reduce(p, space, node, axes, *keepdims),
        Op::ArgMax { axis, keepdims, .. } | Op::ArgMin { axis, keepdims, .. } => {
            changed |= reduce(p, space, node, &[*axis], *keepdims);
        }
        Op::CumSum { .. } => {
            for i in 0..to.len() {
                changed |= tie(p, space, (node.inputs[0], i), (out, i));
            }
        }
        Op::Gather { axis } => {
            for i in 0..p.g.shape(node.inputs[1]).len() {
                changed |= tie(p, space, (node.inputs[1], i), (out, axis + i));
            }
        }
        Op::GatherElements { .. } => {
            for i in 0..to.len() {
                changed |= tie(p, space, (node.inputs[1], i), (out, i));
            }
        }
        // What is summed is tied by what lies between the two products.
        Op::MatMul { .. } if space.second == Some(out) => {
            let a = node.inputs[0];
            let from = p.g.shape(a);
            let lead = to.len().saturating_sub(from.len());
            for i in 0..from.len() - 1 {
                if from[i] != Dim::ONE && same(t, from[i], to[lead + i]) {
                    changed |= tie(p, space, (a, i), (out, lead + i));
                }
            }
        }
        Op::Reshape { .. } => {
            changed |= reshaped(t, p, space, node.inputs[0], out)?;
            changed |= reshaped(t, p, space, out, node.inputs[0])?;
        }
        _ => {}
    }
    Ok(changed)
}

fn reduce(p: &Prim, space: &mut Space, node: &Node, axes: &[usize], keepdims: bool) -> bool {
    let (mut j, mut changed) = (0, false);
    for i in 0..p.g.shape(node.inputs[0]).len() {
        if !axes.contains(&i) {
            changed |= tie(p, space, (node.inputs[0], i), (node.output, j));
            j += 1;
        } else if keepdims {
            j += 1;
        }
    }
    changed
}

/// Spreads digits from `u` to `v`, which have the same elements in row-major order.
fn reshaped(t: &mut DimTable, p: &Prim, space: &mut Space, u: ValueId, v: ValueId) -> Result<bool, Fail> {
    let (us, vs) = (p.g.shape(u), p.g.shape(v));
    let (ui, vi) = (wide(us), wide(vs));
    let known = |space: &Space, i: usize| space.digits_of(u, i).is_some();
    if !ui.iter().any(|&i| known(space, i)) || vi.iter().all(|&j| space.digits_of(v, j).is_some()) {
        return Ok(false);
    }
    let ud: SmallVec<[Dim; 6]> = ui.iter().map(|&i| us[i]).collect();
    let vd: SmallVec<[Dim; 6]> = vi.iter().map(|&i| vs[i]).collect();
    let mut changed = false;
    for (ur, vr) in align(t, &ud, &vd) {
        if !ui[ur.clone()].iter().all(|&i| known(space, i))
            || vi[vr.clone()].iter().any(|&j| space.digits_of(v, j).is_some())
        {
            continue;
        }
        let digits: Digits =
            ui[ur].iter().flat_map(|&i| space.digits_of(u, i).cloned().unwrap_or_default()).collect();
        match regroup(t, &digits, &space.extents, &vd[vr.clone()]) {
            Ok(groups) => {
                let entry = Space::entry(&mut space.digits, p, v);
                for (k, g) in vr.zip(groups) {
                    entry[vi[k]] = Some(g);
                    changed = true;
                }
            }
            Err(Regroup::Split { axis, .. }) if space.is_whole(axis) => {}
            Err(Regroup::Split { axis, outer, inner }) => return Err(Fail::Split { axis, outer, inner }),
            Err(Regroup::Unrelated) => {}
        }
    }
    Ok(changed)
}
