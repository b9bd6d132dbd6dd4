//! Where values live: which are in memory, and how a chain of views addresses the memory under it.

use dvm_ir::{Dim, DimTable, Op, ValueDef, ValueId};
use smallvec::SmallVec;

use crate::affine::{add, broadcast, dense, mul};
use crate::lower::Prim;
use crate::regions::Class;
use crate::{affine::Affine, reshape};

/// A value as a strided view of a buffer.
#[derive(Clone, Debug)]
pub(crate) struct Loc {
    /// The value whose dense buffer it is.
    pub(crate) owner: ValueId,
    /// The stored value that is read; its producers must have run.
    pub(crate) source: ValueId,
    pub(crate) offset: Dim,
    pub(crate) strides: SmallVec<[Dim; 4]>,
}

/// What is under a chain of views.
#[derive(Debug)]
pub(crate) enum Found {
    /// Memory, and the view is strided there.
    Memory(Loc),
    /// Memory, but the view has no strides there.
    Unstrided,
    /// A value that is computed where it is needed.
    Computed(ValueId),
}

/// What is decided so far about each node.
#[derive(Clone, Debug)]
pub(crate) struct State {
    pub(crate) class: Vec<Class>,
    /// Nodes that are recomputed by whoever can compute from their operands, even if they are stored for others. Their region
    /// is of those others alone.
    pub(crate) cheap: Vec<bool>,
    /// The region that computes a node's value and can store it.
    pub(crate) region: Vec<Option<u32>>,
}

impl State {
    /// Whether a value is or will be in memory for nodes outside its region.
    pub(crate) fn in_memory(&self, p: &Prim, v: ValueId) -> bool {
        match p.g.value(v).def {
            ValueDef::Input(_) | ValueDef::Const(_) | ValueDef::Control(..) => true,
            ValueDef::Node(n) => self.class[n.index()] == Class::Concat || self.region[n.index()].is_some(),
        }
    }
    /// Whether whoever computes from a value loads it (rather than recompute it).
    pub(crate) fn is_loaded(&self, p: &Prim, v: ValueId) -> bool {
        let cheap = matches!(p.g.value(v).def, ValueDef::Node(n) if self.cheap[n.index()]);
        !cheap && self.in_memory(p, v)
    }
    /// The nearest value under the views over `v` (or `v` itself) that is not a view or is stored.
    pub(crate) fn base(&self, p: &Prim, v: ValueId) -> ValueId {
        let mut v = v;
        while let Some(n) = p.g.def_node(v) {
            if !n.op.is_view() || self.in_memory(p, v) {
                break;
            }
            v = n.inputs[0];
        }
        v
    }
}

/// Where a stored value is: in its own buffer, or within the buffer of the concatenation it belongs to.
pub(crate) fn place(t: &mut DimTable, p: &Prim, v: ValueId) -> Loc {
    let mut steps: SmallVec<[(usize, Dim); 2]> = SmallVec::new();
    let mut owner = v;
    while let Some((concat, axis, start)) = p.placed[owner.index()] {
        steps.push((axis, start));
        owner = concat;
    }
    let strides = dense(t, p.g.shape(owner));
    let mut offset = Dim::ZERO;
    for (axis, start) in steps {
        let step = mul(t, start, strides[axis]);
        offset = add(t, offset, step);
    }
    Loc { owner, source: v, offset, strides }
}

/// Resolves the views over `v`; `computed` says which values are computed here although they may be stored.
pub(crate) fn locate(
    t: &mut DimTable,
    p: &Prim,
    state: &State,
    v: ValueId,
    computed: impl Fn(ValueId) -> bool,
) -> Found {
    let mut chain: SmallVec<[ValueId; 4]> = SmallVec::new();
    let mut base = v;
    loop {
        if computed(base) {
            return Found::Computed(base);
        }
        if state.in_memory(p, base) {
            break;
        }
        match p.g.def_node(base) {
            Some(n) if n.op.is_view() => {
                chain.push(base);
                base = n.inputs[0];
            }
            _ => return Found::Computed(base),
        }
    }
    let mut loc = place(t, p, base);
    for &view in chain.iter().rev() {
        let node = p.g.def_node(view).expect("views are nodes");
        let (from, to) = (p.g.shape(node.inputs[0]), p.g.shape(view));
        match view_of(t, loc, &node.op, from, to) {
            Some(l) => loc = l,
            None => return Found::Unstrided,
        }
    }
    Found::Memory(loc)
}

/// A view of something in memory, when it has strides there.
pub(crate) fn view_of(t: &mut DimTable, loc: Loc, op: &Op, from: &[Dim], to: &[Dim]) -> Option<Loc> {
    let (offset, strides) = through(t, op, from, to, &loc.strides)?;
    let offset = add(t, loc.offset, offset);
    Some(Loc { offset, strides, ..loc })
}

/// Offset and strides of a view in the memory of its operand.
fn through(
    t: &mut DimTable,
    op: &Op,
    from: &[Dim],
    to: &[Dim],
    strides: &[Dim],
) -> Option<(Dim, SmallVec<[Dim; 4]>)> {
    let mut offset = Dim::ZERO;
    let strides = match op {
        Op::Transpose { perm } => perm.iter().map(|&p| strides[p]).collect(),
        Op::Reshape { .. } => reshape::strided(t, from, strides, to)?,
        Op::Expand { .. } => {
            let lead = to.len() - from.len();
            let mut out = SmallVec::from_elem(Dim::ZERO, lead);
            for i in 0..from.len() {
                let e = broadcast(t, &Affine::axis(0), from[i], to[lead + i]);
                let keep = e.terms.first().map_or(Dim::ZERO, |x| x.1);
                out.push(mul(t, strides[i], keep));
            }
            out
        }
        Op::Slice { start, step, .. } => {
            let mut out = SmallVec::new();
            for i in 0..from.len() {
                let first = mul(t, start[i], strides[i]);
                offset = add(t, offset, first);
                let step = t.constant(step[i]);
                out.push(mul(t, strides[i], step));
            }
            out
        }
        Op::Window { axis, stride, dilation, .. } => {
            let (s, d) = (t.constant(*stride), t.constant(*dilation));
            let mut out: SmallVec<[Dim; 4]> = SmallVec::from_slice(strides);
            out[*axis] = mul(t, strides[*axis], s);
            out.insert(axis + 1, mul(t, strides[*axis], d));
            out
        }
        _ => return None,
    };
    Some((offset, strides))
}
