//! Index maps: each axis of a value as an affine function of the axes of an iteration space.
//!
//! Fusion pulls values through views by composing these maps, so a transpose, slice, window or broadcast costs nothing
//! and a late broadcast (an extent that is 1 only at run time) is a stride that becomes 0 when dims are bound.

use dvm_ir::{Answer, CheckCond, Dim, DimTable};
use smallvec::SmallVec;

/// `offset + sum(index(axis) * stride)`, terms sorted by axis, no stride provably 0.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Affine {
    pub(crate) offset: Dim,
    pub(crate) terms: SmallVec<[(u8, Dim); 3]>,
}

/// One expression per axis of a value.
pub(crate) type Map = SmallVec<[Affine; 4]>;

/// Axes of the space that make up one axis of a value, outermost first: a mixed-radix number.
pub(crate) type Digits = SmallVec<[u8; 2]>;

impl Affine {
    pub(crate) fn zero() -> Affine {
        Affine { offset: Dim::ZERO, terms: SmallVec::new() }
    }
    pub(crate) fn axis(axis: u8) -> Affine {
        Affine { offset: Dim::ZERO, terms: SmallVec::from_slice(&[(axis, Dim::ONE)]) }
    }
    pub(crate) fn scaled(&self, t: &mut DimTable, by: Dim) -> Affine {
        if by == Dim::ONE {
            return self.clone();
        }
        if by == Dim::ZERO {
            return Affine::zero();
        }
        let terms =
            self.terms.iter().map(|&(a, s)| (a, mul(t, s, by))).filter(|x| x.1 != Dim::ZERO).collect();
        Affine { offset: mul(t, self.offset, by), terms }
    }
    pub(crate) fn plus(&self, t: &mut DimTable, o: &Affine) -> Affine {
        let mut r = self.clone();
        r.offset = add(t, r.offset, o.offset);
        for &(a, s) in &o.terms {
            match r.terms.binary_search_by_key(&a, |x| x.0) {
                Ok(i) => {
                    let sum = t.add(r.terms[i].1, s);
                    if sum == Dim::ZERO {
                        r.terms.remove(i);
                    } else {
                        r.terms[i].1 = sum;
                    }
                }
                Err(i) => r.terms.insert(i, (a, s)),
            }
        }
        r
    }
    pub(crate) fn shifted(mut self, t: &mut DimTable, by: Dim) -> Affine {
        self.offset = add(t, self.offset, by);
        self
    }
}

/// `a * b` that does not touch the table in the usual cases.
pub(crate) fn mul(t: &mut DimTable, a: Dim, b: Dim) -> Dim {
    match (a, b) {
        (Dim::ZERO, _) | (_, Dim::ZERO) => Dim::ZERO,
        (Dim::ONE, x) | (x, Dim::ONE) => x,
        _ => t.mul(a, b),
    }
}

/// `a + b` that does not touch the table in the usual cases.
pub(crate) fn add(t: &mut DimTable, a: Dim, b: Dim) -> Dim {
    match (a, b) {
        (Dim::ZERO, x) | (x, Dim::ZERO) => x,
        _ => t.add(a, b),
    }
}

/// Whether two dims are provably equal.
pub(crate) fn same(t: &mut DimTable, a: Dim, b: Dim) -> bool {
    if a == b {
        return true;
    }
    if let (Some(_), Some(_)) = (t.as_const(a), t.as_const(b)) {
        return false;
    }
    let answer = t.is_equal(a, b);
    if answer == Answer::Unknown {
        t.wish_equal(a, b);
    }
    answer == Answer::Proven
}

/// `a / b` when `b` provably divides `a` and neither is 0.
pub(crate) fn exact_div(t: &mut DimTable, a: Dim, b: Dim) -> Option<Dim> {
    if b == Dim::ONE {
        return Some(a);
    }
    if a == Dim::ZERO || b == Dim::ZERO || a == Dim::ONE {
        return None;
    }
    let exact = |t: &mut DimTable, a: Dim, b: Dim| {
        let q = t.floor_div(a, b);
        (q != Dim::ZERO && t.mul(q, b) == a).then_some(q)
    };
    if let Some(q) = exact(t, a, b) {
        return Some(q);
    }
    let (known_a, known_b) = (t.rewrite(a), t.rewrite(b));
    if (known_a, known_b) != (a, b)
        && let Some(q) = exact(t, known_a, known_b)
    {
        return Some(q);
    }
    if t.as_const(a).is_none() && t.as_const(b).is_some() {
        t.wish(|t| {
            let rest = t.rem(a, b);
            CheckCond::Equal(rest, Dim::ZERO)
        });
    }
    None
}

/// The index of an operand axis of extent `d` where the result axis of extent `to` has index `e`.
pub(crate) fn broadcast(t: &mut DimTable, e: &Affine, d: Dim, to: Dim) -> Affine {
    if d == Dim::ONE {
        return Affine::zero();
    }
    if d == to || same(t, d, to) {
        return e.clone();
    }
    let one = t.eq(d, Dim::ONE);
    let keep = t.not(one);
    e.scaled(t, keep)
}

/// The map of an operand of shape `shape`, right-aligned in a result of shape `to`.
pub(crate) fn broadcast_map(t: &mut DimTable, map: &[Affine], shape: &[Dim], to: &[Dim]) -> Map {
    let lead = to.len() - shape.len();
    (0..shape.len()).map(|i| broadcast(t, &map[lead + i], shape[i], to[lead + i])).collect()
}

/// Strides of a dense row-major tensor. A tensor without elements gets the strides it would have with extents of 1, so
/// that its axes stay distinct.
pub(crate) fn dense(t: &mut DimTable, shape: &[Dim]) -> SmallVec<[Dim; 4]> {
    let mut strides: SmallVec<[Dim; 4]> = SmallVec::from_elem(Dim::ONE, shape.len());
    for i in (1..shape.len()).rev() {
        strides[i - 1] = if shape[i] == Dim::ZERO { strides[i] } else { mul(t, strides[i], shape[i]) };
    }
    strides
}

/// The expression of a mixed-radix number.
pub(crate) fn of_digits(t: &mut DimTable, digits: &[u8], extents: &[Dim]) -> Affine {
    let mut r = Affine::zero();
    let mut stride = Dim::ONE;
    for &d in digits.iter().rev() {
        let term = Affine::axis(d).scaled(t, stride);
        r = r.plus(t, &term);
        stride = mul(t, stride, extents[d as usize]);
    }
    r
}

/// The digits of an expression that runs through exactly `0..dim`, if it is one.
pub(crate) fn to_digits(t: &mut DimTable, e: &Affine, dim: Dim, extents: &[Dim]) -> Option<Digits> {
    if e.offset != Dim::ZERO {
        return None;
    }
    let mut rest = e.terms.clone();
    let (mut digits, mut stride) = (Digits::new(), Dim::ONE);
    while !rest.is_empty() {
        let i = rest.iter().position(|x| x.1 == stride)?;
        let (axis, _) = rest.remove(i);
        digits.insert(0, axis);
        stride = mul(t, stride, *extents.get(axis as usize)?);
    }
    same(t, stride, dim).then_some(digits)
}
