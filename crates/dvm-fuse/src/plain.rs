//! Joins that need no trial.
//!
//! Whether a node fits a region is decided by building the kernel, which is right for whatever there is and slow. Most regions are
//! *plain*: elementwise ops over one shape, reductions over one set of its axes that keep their rank, and elementwise ops on
//! what those leave, all computed from one another and from what lies in memory as it is. Another such node joins them
//! whatever the dims are, and counting shows that no limit is near. Builds with debug assertions make the trial all the
//! same and compare.

use dvm_ir::{Dim, NodeId, Op, ValueDef, ValueId};
use smallvec::SmallVec;

use crate::FuseLimits;
use crate::lower::Prim;
use crate::memory::State;
use crate::regions::Class;

/// What a plain region is made of.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    /// A value of the shape that its ops run over.
    full: ValueId,
    /// Its reduced axes, and a value of the shape that is left.
    reduced: Option<(SmallVec<[usize; 4]>, ValueId)>,
    /// What it loads.
    loads: SmallVec<[ValueId; 8]>,
    /// Its members, and how many of them and of what is recomputed run along all axes.
    members: usize,
    wide: usize,
    /// Ops that are recomputed in it.
    inlined: usize,
    /// Constants in it.
    consts: usize,
}

/// What a new node would add to a region.
struct Adding<'a> {
    p: &'a Prim,
    state: &'a State,
    /// The region it would be in.
    region: Option<u32>,
    plain: Plain,
    /// Axes of the node that its operands vary along, by position from the last.
    covered: u64,
    /// Loads of the region without the node.
    known: usize,
    /// An operand runs along all axes that the node does, and the region knows which they are.
    tied: bool,
}

/// Most levels of recomputed ops below an operand.
const MAX_DEPTH: usize = 4;

impl Plain {
    /// The region with a node in it, if both are plain and no limit is near; `region` is its number and what it was, `None`
    /// for a node alone.
    pub(crate) fn with(
        p: &Prim,
        state: &State,
        limits: &FuseLimits,
        region: Option<(u32, &Plain)>,
        n: NodeId,
    ) -> Option<Plain> {
        let node = &p.g.nodes[n.index()];
        let reduced = match (state.class[n.index()], &node.op) {
            (Class::Elementwise, _) if !state.cheap[n.index()] => None,
            (Class::Reduce, Op::Reduce { axes, keepdims: true, .. }) => Some(axes),
            _ => return None,
        };
        let over = if reduced.is_some() { node.inputs[0] } else { node.output };
        let plain = match region {
            Some((_, plain)) => plain.clone(),
            None => Plain {
                full: over,
                reduced: None,
                loads: SmallVec::new(),
                members: 0,
                wide: 0,
                inlined: 0,
                consts: 0,
            },
        };
        let shape = p.g.shape(over);
        if shape.contains(&Dim::ZERO) || shape.len() > 24 {
            return None;
        }
        let (known, tied) = (plain.loads.len(), region.is_none());
        let mut a = Adding { p, state, region: region.map(|r| r.0), plain, covered: 0, known, tied };
        if let Some(axes) = reduced {
            if shape != p.g.shape(a.plain.full) {
                return None;
            }
            match &a.plain.reduced {
                Some((mine, _)) if mine[..] != axes[..] => return None,
                Some(_) => {}
                None => a.plain.reduced = Some((SmallVec::from_slice(axes), node.output)),
            }
        } else if !a.plain.has_shape(p, shape) {
            return None;
        }
        for &v in &node.inputs {
            a.operand(v, shape, 0)?;
        }
        let needed = (0..shape.len()).filter(|&i| shape[shape.len() - 1 - i] != Dim::ONE);
        let needed = needed.fold(0u64, |m, i| m | 1 << i);
        let fits = needed & !a.covered == 0 && a.tied;
        let mut plain = a.plain;
        plain.members += 1;
        plain.wide += usize::from(plain.is_wide(p, p.g.shape(node.output)));
        (fits && plain.is_within(p, limits)).then_some(plain)
    }
    /// Two plain regions as one, if that is plain.
    pub(crate) fn merged(
        p: &Prim,
        limits: &FuseLimits,
        (a, members): (&Plain, &[NodeId]),
        b: &Plain,
    ) -> Option<Plain> {
        let shape = |v: ValueId| p.g.shape(v);
        // A reduced value alone would not say which axis was reduced.
        if shape(a.full) != shape(b.full) || b.reduced.is_some() {
            return None;
        }
        let is_member =
            |v: ValueId| matches!(p.g.value(v).def, ValueDef::Node(n) if members.binary_search(&n).is_ok());
        let mut plain = Plain {
            full: a.full,
            reduced: a.reduced.clone(),
            loads: a.loads.iter().copied().filter(|&v| !is_member(v)).collect(),
            members: a.members + b.members,
            wide: a.wide + b.wide,
            inlined: a.inlined + b.inlined,
            consts: a.consts + b.consts,
        };
        for &v in b.loads.iter().filter(|&&v| !is_member(v)) {
            plain.load(v);
        }
        plain.is_within(p, limits).then_some(plain)
    }
    fn load(&mut self, v: ValueId) {
        if !self.loads.contains(&v) {
            self.loads.push(v);
        }
    }
    /// Whether its values of this shape run along its axes in order.
    fn has_shape(&self, p: &Prim, shape: &[Dim]) -> bool {
        shape == p.g.shape(self.full) || self.reduced.as_ref().is_some_and(|r| shape == p.g.shape(r.1))
    }
    /// Whether a kernel of it keeps all limits, even if every value were alive to the end.
    fn is_within(&self, p: &Prim, limits: &FuseLimits) -> bool {
        let loads = self.loads.iter().filter(|&&v| self.is_wide(p, p.g.shape(v))).count();
        // Constants are as large as everything else where there are no axes.
        let consts = if p.g.shape(self.full).iter().all(|&d| d == Dim::ONE) { self.consts } else { 0 };
        self.members <= limits.ops
            && self.wide + loads + consts <= limits.live
            && self.members + self.loads.len() <= limits.operands
            && self.members + self.inlined + self.loads.len() + self.consts <= 2 * limits.ops
    }
    /// Whether a value of this shape may run along as many axes as the region has.
    fn is_wide(&self, p: &Prim, shape: &[Dim]) -> bool {
        let axes = |s: &[Dim]| s.iter().filter(|&&d| d != Dim::ONE).count();
        axes(shape) >= axes(p.g.shape(self.full))
    }
}

impl Adding<'_> {
    /// Takes an operand of an op over `shape` in; `None` where it is not plain.
    fn operand(&mut self, v: ValueId, shape: &[Dim], depth: usize) -> Option<()> {
        let (p, state) = (self.p, self.state);
        if p.splat[v.index()].is_some() {
            self.plain.consts += 1;
            return Some(());
        }
        let own = p.g.shape(v);
        if own.contains(&Dim::ZERO) || own.len() > shape.len() {
            return None;
        }
        if let ValueDef::Node(m) = p.g.value(v).def {
            let node = &p.g.nodes[m.index()];
            if state.region[m.index()].is_some() && state.region[m.index()] == self.region {
                if state.cheap[m.index()] || !self.plain.has_shape(p, own) {
                    return None;
                }
                self.tied |= own == shape;
                self.cover(own, shape);
                return Some(());
            }
            if !state.is_loaded(p, v) {
                if let Op::Fill { .. } = node.op {
                    self.plain.consts += 1;
                    return Some(());
                }
                self.plain.inlined += 1;
                self.plain.wide += usize::from(self.plain.is_wide(p, own));
                if depth == MAX_DEPTH
                    || state.class[m.index()] != Class::Inline
                    || !node.op.is_elementwise()
                    || own != shape
                {
                    return None;
                }
                return node.inputs.iter().try_for_each(|&x| self.operand(x, shape, depth + 1));
            }
            // Views that are stored still say how their axes are related to others.
            if state.class[m.index()] == Class::View || state.cheap[m.index()] {
                return None;
            }
        }
        self.tied |= own == shape && self.plain.loads[..self.known].contains(&v);
        self.plain.load(v);
        self.cover(own, shape);
        Some(())
    }
    /// Notes the axes that a value of shape `own` certainly varies along.
    fn cover(&mut self, own: &[Dim], shape: &[Dim]) {
        for (i, (a, b)) in own.iter().rev().zip(shape.iter().rev()).enumerate() {
            if a == b && *a != Dim::ONE {
                self.covered |= 1 << i;
            }
        }
    }
}
