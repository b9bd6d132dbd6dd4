//! Conditions on dims: decided while a graph is built where possible, else made when symbols are bound.

use std::fmt;

use crate::dim::DisplayDim;
use crate::{Answer, Dim, DimTable, DimValues, TensorType};

/// A fact that must hold when the symbols are bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What must hold.
    pub cond: CheckCond,
    /// Who asks, e.g. `add "/enc/add": axis 1 of "x" and "y"`.
    pub what: String,
}

/// The condition of a [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckCond {
    /// Equal.
    Equal(Dim, Dim),
    /// Equal, or the first is 1.
    EqualOrOne(Dim, Dim),
    /// Equal, or either is 1.
    Broadcast(Dim, Dim),
    /// First at most second.
    AtMost(Dim, Dim),
}

impl CheckCond {
    /// The two dims.
    #[must_use]
    pub const fn dims(self) -> [Dim; 2] {
        match self {
            CheckCond::Equal(a, b)
            | CheckCond::EqualOrOne(a, b)
            | CheckCond::Broadcast(a, b)
            | CheckCond::AtMost(a, b) => [a, b],
        }
    }
    /// The same condition on other dims.
    #[must_use]
    pub fn map(self, mut f: impl FnMut(Dim) -> Dim) -> CheckCond {
        match self {
            CheckCond::Equal(a, b) => CheckCond::Equal(f(a), f(b)),
            CheckCond::EqualOrOne(a, b) => CheckCond::EqualOrOne(f(a), f(b)),
            CheckCond::Broadcast(a, b) => CheckCond::Broadcast(f(a), f(b)),
            CheckCond::AtMost(a, b) => CheckCond::AtMost(f(a), f(b)),
        }
    }
    /// Whether it holds for these values; `None` when a dim has no value ([`DimTable::eval`] says why).
    #[must_use]
    pub fn holds(self, values: &DimValues) -> Option<bool> {
        let [a, b] = self.dims();
        let (a, b) = (values.get(a)?, values.get(b)?);
        Some(match self {
            CheckCond::Equal(..) => a == b,
            CheckCond::EqualOrOne(..) => a == b || a == 1,
            CheckCond::Broadcast(..) => a == b || a == 1 || b == 1,
            CheckCond::AtMost(..) => a <= b,
        })
    }
}

impl DimTable {
    /// Whether a condition holds for every binding, for none, or depends on it.
    pub fn decide(&mut self, cond: CheckCond) -> Answer {
        let mut any = |pairs: &[(Dim, Dim)]| {
            let answers: Vec<Answer> = pairs.iter().map(|&(a, b)| self.is_equal(a, b)).collect();
            if answers.contains(&Answer::Proven) {
                Answer::Proven
            } else if answers.contains(&Answer::Unknown) {
                Answer::Unknown
            } else {
                Answer::Disproven
            }
        };
        match cond {
            CheckCond::Equal(a, b) => any(&[(a, b)]),
            CheckCond::EqualOrOne(a, b) => any(&[(a, b), (a, Dim::ONE)]),
            CheckCond::Broadcast(a, b) => any(&[(a, b), (a, Dim::ONE), (b, Dim::ONE)]),
            CheckCond::AtMost(a, b) => match self.is_less(b, a) {
                Answer::Proven => Answer::Disproven,
                Answer::Disproven => Answer::Proven,
                Answer::Unknown => Answer::Unknown,
            },
        }
    }
    /// Whether one of the checks is this condition, written in terms of what is known by now.
    pub(crate) fn is_checked(&mut self, cond: CheckCond, checks: &[Check]) -> bool {
        if checks.iter().any(|c| c.cond == cond) {
            return true;
        }
        if !self.has_facts() {
            return false;
        }
        // Asking twice does no harm, searching long does: only recent checks that share a symbol.
        let kind = std::mem::discriminant(&cond);
        let near = |t: &DimTable, c: CheckCond| {
            std::mem::discriminant(&c) == kind
                && c.dims().iter().any(|&x| cond.dims().iter().any(|&y| t.share_symbols(x, y)))
        };
        let alike: Vec<CheckCond> =
            checks.iter().rev().map(|c| c.cond).filter(|&c| near(self, c)).take(16).collect();
        self.without_trace(|t| {
            let cond = cond.map(|d| t.simplify(d));
            alike.into_iter().any(|c| c.map(|d| t.simplify(d)) == cond)
        })
    }
    /// Relies on a condition from now on; somebody else must check it when symbols are bound ([`crate::Graph::assume`] does
    /// both).
    pub fn assume(&mut self, cond: CheckCond) {
        match cond {
            CheckCond::Equal(a, b) => self.assume_equal(a, b),
            CheckCond::AtMost(a, b) => self.assume_at_most(a, b),
            CheckCond::EqualOrOne(..) | CheckCond::Broadcast(..) => {}
        }
    }

    /// A condition as text, e.g. `s == 4`, `s in (1, t)`.
    #[must_use]
    pub fn display_cond(&self, cond: CheckCond) -> DisplayCond<'_> {
        DisplayCond { table: self, cond }
    }
    /// A type as text, e.g. `f32[b, 4]`.
    #[must_use]
    pub fn display_type<'a>(&'a self, ty: &'a TensorType) -> DisplayType<'a> {
        DisplayType { table: self, ty }
    }
    /// A shape as text, e.g. `[b, 4]`.
    #[must_use]
    pub fn display_shape<'a>(&'a self, shape: &'a [Dim]) -> DisplayShape<'a> {
        DisplayShape { table: self, shape }
    }
}

/// See [`DimTable::display_cond`].
#[derive(Clone, Copy)]
pub struct DisplayCond<'a> {
    table: &'a DimTable,
    cond: CheckCond,
}
impl fmt::Display for DisplayCond<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b]: [DisplayDim<'_>; 2] = self.cond.dims().map(|d| self.table.display(d));
        match self.cond {
            CheckCond::Equal(..) => write!(f, "{a} == {b}"),
            CheckCond::EqualOrOne(..) => write!(f, "{a} in (1, {b})"),
            CheckCond::Broadcast(..) => write!(f, "{a} ~ {b}"),
            CheckCond::AtMost(..) => write!(f, "{a} <= {b}"),
        }
    }
}

/// See [`DimTable::display_type`].
#[derive(Clone, Copy)]
pub struct DisplayType<'a> {
    table: &'a DimTable,
    ty: &'a TensorType,
}
impl fmt::Display for DisplayType<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.ty.dtype, self.table.display_shape(&self.ty.shape))
    }
}

/// See [`DimTable::display_shape`].
#[derive(Clone, Copy)]
pub struct DisplayShape<'a> {
    table: &'a DimTable,
    shape: &'a [Dim],
}
impl fmt::Display for DisplayShape<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, &d) in self.shape.iter().enumerate() {
            write!(f, "{}{}", if i > 0 { ", " } else { "" }, self.table.display(d))?;
        }
        f.write_str("]")
    }
}
