//! Symbolic dims: integer expressions over named symbols, interned in a normal form.
//!
//! A dim is a polynomial over atoms (symbols, floor divisions, min, max, broadcasts, comparisons) with sorted terms, so
//! that equality of normal forms is equality of ids. Questions about dims have three-valued answers; an
//! [`Answer::Unknown`] becomes a check when the symbols are bound, never an error at compile time.
//!
//! A [`DimTable`] belongs to one graph (and is inherited by its plan). Binding the symbols evaluates the
//! whole table once, after which reading a dim is an array access.

use indexmap::{IndexMap, IndexSet};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// An interned dim. Equal ids mean provably equal values; see [`DimTable`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dim(u32);

impl Dim {
    /// The constant 0 in every table.
    pub const ZERO: Dim = Dim(0);
    /// The constant 1 in every table.
    pub const ONE: Dim = Dim(1);
    /// Position in [`DimValues`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}
impl std::fmt::Debug for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "d{}", self.0)
    }
}

/// A named unknown, bound when a graph is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Symbol(u32);

impl Symbol {
    /// Position among the table's symbols.
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
struct AtomId(u32);

/// What a polynomial's factors are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Atom {
    Sym(Symbol),
    FloorDiv(Dim, Dim),
    Min(Dim, Dim),
    Max(Dim, Dim),
    /// NumPy broadcasting of two extents: equal, or one of them is 1; anything else is an error at bind.
    Broadcast(Dim, Dim),
    /// 1 when equal, else 0.
    Eq(Dim, Dim),
    /// 1 when less, else 0.
    Lt(Dim, Dim),
    /// A constant did not fit i64. Evaluates to an error.
    Overflow,
}

impl Atom {
    fn operands(self) -> Option<(Dim, Dim)> {
        match self {
            Atom::FloorDiv(a, b)
            | Atom::Min(a, b)
            | Atom::Max(a, b)
            | Atom::Broadcast(a, b)
            | Atom::Eq(a, b)
            | Atom::Lt(a, b) => Some((a, b)),
            Atom::Sym(_) | Atom::Overflow => None,
        }
    }
}

/// Deepest nesting of atoms; anything deeper counts as overflow.
const MAX_DEPTH: u32 = 64;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Bounds {
    lo: i128,
    hi: i128,
    depth: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Term {
    factors: SmallVec<[AtomId; 2]>,
    coeff: i64,
}

type Poly = SmallVec<[Term; 2]>;

/// A three-valued answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// True for every binding.
    Proven,
    /// False for every binding.
    Disproven,
    /// Depends on the binding, or not decidable here.
    Unknown,
}

/// A dim has no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DimError {
    /// A symbol has no value.
    #[error("symbol `{symbol}` is not bound")]
    Unbound {
        /// Its name.
        symbol: String,
    },
    /// Arithmetic left the range of i64.
    #[error("`{dim}` overflows")]
    Overflow {
        /// Text of the dim.
        dim: String,
    },
    /// Division by zero.
    #[error("`{dim}` divides by zero")]
    DivByZero {
        /// Text of the dim.
        dim: String,
    },
    /// Extents that do not broadcast.
    #[error("`{dim}`: extents {a} and {b} do not broadcast")]
    Broadcast {
        /// Text of the dim.
        dim: String,
        /// Left extent.
        a: i64,
        /// Right extent.
        b: i64,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SymbolFacts {
    lo: i64,
    hi: i64,
}

/// Values of symbols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bindings(Vec<Option<i64>>);

impl Bindings {
    /// No symbol bound.
    #[must_use]
    pub fn new() -> Bindings {
        Bindings::default()
    }
    /// Binds a symbol; returns the earlier value if it differs.
    pub fn bind(&mut self, s: Symbol, value: i64) -> Result<(), i64> {
        if self.0.len() <= s.index() {
            self.0.resize(s.index() + 1, None);
        }
        match self.0[s.index()] {
            Some(old) if old != value => Err(old),
            _ => {
                self.0[s.index()] = Some(value);
                Ok(())
            }
        }
    }
    /// The value of a symbol.
    #[must_use]
    pub fn get(&self, s: Symbol) -> Option<i64> {
        self.0.get(s.index()).copied().flatten()
    }
    /// Forgets all values, keeping the memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// Raw values in symbol order, e.g. as a cache key.
    #[must_use]
    pub fn values(&self) -> &[Option<i64>] {
        &self.0
    }
}

/// Every dim of a table, evaluated.
#[derive(Clone, Debug, Default)]
pub struct DimValues {
    polys: Vec<i64>,
    atoms: Vec<i64>,
}

/// Marks a dim without a value.
const UNDEF: i64 = i64::MIN;

impl DimValues {
    /// The value of a dim, `None` where evaluation failed ([`DimTable::eval`] says why).
    #[must_use]
    pub fn get(&self, d: Dim) -> Option<i64> {
        self.polys.get(d.index()).copied().filter(|&v| v != UNDEF)
    }
    /// The value of a dim as an extent: negative or undefined is `None`.
    #[must_use]
    pub fn extent(&self, d: Dim) -> Option<u64> {
        self.get(d).and_then(|v| u64::try_from(v).ok())
    }
}

/// Interned dims of one graph with the facts known about its symbols.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DimTable {
    polys: IndexSet<Poly>,
    /// Atoms created before each poly; they are evaluated before it.
    atoms_before: Vec<u32>,
    atoms: IndexSet<Atom>,
    /// Bounds and nesting depth of each poly, kept so that questions cost nothing and deep nesting cannot recurse.
    bounds: Vec<Bounds>,
    symbols: IndexMap<String, SymbolFacts>,
    /// Assumed equalities, each directed from a symbol (or any dim) to its replacement.
    equal: Vec<(Dim, Dim)>,
}

impl Default for DimTable {
    fn default() -> Self {
        DimTable::new()
    }
}

impl DimTable {
    /// A table holding only the constants 0 and 1.
    #[must_use]
    pub fn new() -> DimTable {
        let mut t = DimTable {
            polys: IndexSet::new(),
            atoms_before: vec![],
            atoms: IndexSet::new(),
            bounds: vec![],
            symbols: IndexMap::new(),
            equal: vec![],
        };
        t.constant(0);
        t.constant(1);
        t
    }

    fn intern(&mut self, mut p: Poly) -> Dim {
        p.retain(|t| t.coeff != 0);
        p.sort_by(|a, b| cmp_factors(&a.factors, &b.factors));
        let before = self.atoms.len() as u32;
        let (i, new) = self.polys.insert_full(p);
        if new {
            self.atoms_before.push(before);
            let bounds = self.bounds_of(&self.polys[i]);
            self.bounds.push(bounds);
        }
        Dim(i as u32)
    }
    fn atom(&mut self, a: Atom) -> Dim {
        let deep = |d: Dim| self.bounds[d.index()].depth >= MAX_DEPTH;
        let a = match a.operands() {
            Some((x, y)) if deep(x) || deep(y) => Atom::Overflow,
            _ => a,
        };
        let (i, _) = self.atoms.insert_full(a);
        let factors = SmallVec::from_slice(&[AtomId(i as u32)]);
        self.intern(SmallVec::from_vec(vec![Term { factors, coeff: 1 }]))
    }
    fn overflow(&mut self) -> Dim {
        self.atom(Atom::Overflow)
    }
    fn poly(&self, d: Dim) -> &Poly {
        &self.polys[d.index()]
    }

    /// The constant `c`.
    pub fn constant(&mut self, c: i64) -> Dim {
        self.intern(SmallVec::from_vec(vec![Term { factors: SmallVec::new(), coeff: c }]))
    }
    /// The symbol named `name`, created with range `0..` when it is new. Equal names are the same symbol.
    pub fn symbol(&mut self, name: &str) -> Dim {
        let (i, _) = match self.symbols.get_index_of(name) {
            Some(i) => (i, None::<SymbolFacts>),
            None => self.symbols.insert_full(name.to_string(), SymbolFacts { lo: 0, hi: i64::MAX }),
        };
        self.atom(Atom::Sym(Symbol(i as u32)))
    }
    /// The symbol named `name` for an integer that may be negative (a run-time value, not an extent).
    pub fn value_symbol(&mut self, name: &str) -> Dim {
        let new = !self.symbols.contains_key(name);
        let d = self.symbol(name);
        if new {
            self.symbols[name].lo = i64::MIN + 1;
            self.bounds[d.index()] = self.bounds_of(&self.polys[d.index()]);
        }
        d
    }
    /// Names of the symbols, in order of creation.
    pub fn symbols(&self) -> impl Iterator<Item = (Symbol, &str)> {
        self.symbols.keys().enumerate().map(|(i, n)| (Symbol(i as u32), n.as_str()))
    }
    /// The symbol with this name.
    #[must_use]
    pub fn find_symbol(&self, name: &str) -> Option<Symbol> {
        self.symbols.get_index_of(name).map(|i| Symbol(i as u32))
    }
    /// A symbol's name.
    #[must_use]
    pub fn symbol_name(&self, s: Symbol) -> &str {
        self.symbols.get_index(s.index()).map_or("?", |(n, _)| n.as_str())
    }
    /// Number of dims in the table.
    #[must_use]
    pub fn len(&self) -> usize {
        self.polys.len()
    }
    /// Never true: 0 and 1 are always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.polys.is_empty()
    }

    /// Whether the dim prints as a sum, and so needs parentheses in a product.
    pub(crate) fn is_sum(&self, d: Dim) -> bool {
        self.poly(d).len() > 1
    }
    /// The value of a constant dim.
    #[must_use]
    pub fn as_const(&self, d: Dim) -> Option<i64> {
        match self.poly(d).as_slice() {
            [] => Some(0),
            [t] if t.factors.is_empty() => Some(t.coeff),
            _ => None,
        }
    }
    /// The symbol, when the dim is exactly one symbol.
    #[must_use]
    pub fn as_symbol(&self, d: Dim) -> Option<Symbol> {
        match self.poly(d).as_slice() {
            [t] if t.coeff == 1 && t.factors.len() == 1 => match self.atoms[t.factors[0].0 as usize] {
                Atom::Sym(s) => Some(s),
                _ => None,
            },
            _ => None,
        }
    }

    /// `a + b`.
    pub fn add(&mut self, a: Dim, b: Dim) -> Dim {
        self.combine(a, b, 1)
    }
    /// `a - b`.
    pub fn sub(&mut self, a: Dim, b: Dim) -> Dim {
        self.combine(a, b, -1)
    }
    /// `-a`.
    pub fn neg(&mut self, a: Dim) -> Dim {
        self.combine(Dim::ZERO, a, -1)
    }
    fn combine(&mut self, a: Dim, b: Dim, sign: i64) -> Dim {
        let mut p = self.poly(a).clone();
        let q = self.poly(b).clone();
        for t in q {
            let Some(c) = t.coeff.checked_mul(sign) else { return self.overflow() };
            if !accumulate(&mut p, &t.factors, c) {
                return self.overflow();
            }
        }
        self.intern(p)
    }
    /// `a * b`.
    pub fn mul(&mut self, a: Dim, b: Dim) -> Dim {
        if a == Dim::ONE {
            return b;
        }
        if b == Dim::ONE {
            return a;
        }
        let (p, q) = (self.poly(a).clone(), self.poly(b).clone());
        // A hostile graph could multiply sums into exponentially many terms.
        if p.len() * q.len() > 256 {
            return self.overflow();
        }
        let mut r = Poly::new();
        for x in &p {
            for y in &q {
                let Some(c) = x.coeff.checked_mul(y.coeff) else { return self.overflow() };
                let mut f = x.factors.clone();
                f.extend_from_slice(&y.factors);
                f.sort_unstable();
                if f.len() > 32 {
                    return self.overflow();
                }
                // Comparisons are 0 or 1, so their powers are themselves.
                f.dedup_by(|s, t| s == t && matches!(self.atoms[s.0 as usize], Atom::Eq(..) | Atom::Lt(..)));
                if !accumulate(&mut r, &f, c) {
                    return self.overflow();
                }
            }
        }
        self.intern(r)
    }
    /// Product of dims.
    pub fn product(&mut self, dims: &[Dim]) -> Dim {
        dims.iter().fold(Dim::ONE, |p, &d| self.mul(p, d))
    }
    /// `floor(a / b)`; terms that `b` divides exactly are taken out. A symbolic `b` that divides every term cancels, even
    /// where it may be 0 (so `b*s*12 / (b*s)` is 12 for an empty batch too).
    pub fn floor_div(&mut self, a: Dim, b: Dim) -> Dim {
        if b == Dim::ONE || a == Dim::ZERO {
            return a;
        }
        let divisor = match self.poly(b).as_slice() {
            [t] => t.clone(),
            _ if a == b => return Dim::ONE,
            _ => return self.atom(Atom::FloorDiv(a, b)),
        };
        let (mut quotient, mut rest) = (Poly::new(), Poly::new());
        for t in self.poly(a).clone() {
            match divide_term(&t, &divisor) {
                Some(q) => quotient.push(q),
                None => rest.push(t),
            }
        }
        let (q, r) = (self.intern(quotient), self.intern(rest));
        if r == Dim::ZERO {
            return q;
        }
        if let (Some(c), Some(r)) = (self.as_const(b).filter(|&c| c > 0), self.as_const(r)) {
            let tail = self.constant(r.div_euclid(c));
            return self.add(q, tail);
        }
        if let Some(c) = self.as_const(b).filter(|&c| c > 0) {
            // Move the constant's multiple of c out, so that (2*s + 9) / 4 is (2*s + 1) / 4 + 2.
            let whole =
                self.poly(r).iter().find(|t| t.factors.is_empty()).map_or(0, |t| t.coeff.div_euclid(c));
            let (w, wc) = (self.constant(whole), self.constant(whole.saturating_mul(c)));
            let (q, r) = (self.add(q, w), self.sub(r, wc));
            let (lo, hi) = self.range(r);
            if lo >= 0 && hi < i128::from(c) {
                return q;
            }
            let tail = self.atom(Atom::FloorDiv(r, b));
            return self.add(q, tail);
        }
        // With an unknown sign of b only the whole expression is safe.
        self.atom(Atom::FloorDiv(a, b))
    }
    /// `ceil(a / b)`.
    pub fn ceil_div(&mut self, a: Dim, b: Dim) -> Dim {
        let n = self.neg(a);
        let q = self.floor_div(n, b);
        self.neg(q)
    }
    /// `a - b * floor(a / b)`.
    pub fn rem(&mut self, a: Dim, b: Dim) -> Dim {
        let q = self.floor_div(a, b);
        let p = self.mul(q, b);
        self.sub(a, p)
    }
    /// The smaller.
    pub fn min(&mut self, a: Dim, b: Dim) -> Dim {
        let d = self.sub(a, b);
        let (lo, hi) = self.range(d);
        if hi <= 0 {
            a
        } else if lo >= 0 {
            b
        } else {
            self.atom(Atom::Min(a.min(b), a.max(b)))
        }
    }
    /// The larger.
    pub fn max(&mut self, a: Dim, b: Dim) -> Dim {
        let d = self.sub(a, b);
        let (lo, hi) = self.range(d);
        if hi <= 0 {
            b
        } else if lo >= 0 {
            a
        } else {
            self.atom(Atom::Max(a.min(b), a.max(b)))
        }
    }
    /// The extent two axes broadcast to. A constant other than 1 wins over an unknown (which must then be 1 or equal, to be
    /// checked at bind). `None` when the extents provably do not broadcast.
    pub fn broadcast(&mut self, a: Dim, b: Dim) -> Option<Dim> {
        if a == b || b == Dim::ONE {
            return Some(a);
        }
        if a == Dim::ONE {
            return Some(b);
        }
        if self.is_equal(a, b) == Answer::Proven {
            return Some(a);
        }
        match (self.as_const(a), self.as_const(b)) {
            (Some(_), Some(_)) => None,
            (Some(_), None) => Some(a),
            (None, Some(_)) => Some(b),
            (None, None) => Some(self.atom(Atom::Broadcast(a.min(b), a.max(b)))),
        }
    }
    /// 1 when equal, else 0.
    pub fn eq(&mut self, a: Dim, b: Dim) -> Dim {
        match self.is_equal(a, b) {
            Answer::Proven => Dim::ONE,
            Answer::Disproven => Dim::ZERO,
            Answer::Unknown => self.atom(Atom::Eq(a.min(b), a.max(b))),
        }
    }
    /// 1 when `a < b`, else 0.
    pub fn lt(&mut self, a: Dim, b: Dim) -> Dim {
        match self.is_less(a, b) {
            Answer::Proven => Dim::ONE,
            Answer::Disproven => Dim::ZERO,
            Answer::Unknown => self.atom(Atom::Lt(a, b)),
        }
    }
    /// `1 - c` for a dim that is 0 or 1.
    pub fn not(&mut self, c: Dim) -> Dim {
        self.sub(Dim::ONE, c)
    }
    /// `a` where `c` is 1, `b` where it is 0.
    pub fn select(&mut self, c: Dim, a: Dim, b: Dim) -> Dim {
        if a == b {
            return a;
        }
        let n = self.not(c);
        let (x, y) = (self.mul(c, a), self.mul(n, b));
        self.add(x, y)
    }

    /// Assumes two dims equal from now on.
    pub fn assume_equal(&mut self, a: Dim, b: Dim) {
        let (a, b) = (self.rewrite(a), self.rewrite(b));
        if a == b {
            return;
        }
        // Replace a symbol where there is one; it can be substituted everywhere.
        if self.as_symbol(a).is_some() {
            self.equal.push((a, b));
        } else {
            self.equal.push((b, a));
        }
    }
    /// Narrows the range of a symbol to `lo..=hi`.
    pub fn assume_range(&mut self, s: Symbol, lo: i64, hi: i64) {
        if let Some((_, f)) = self.symbols.get_index_mut(s.index()) {
            f.lo = f.lo.max(lo);
            f.hi = f.hi.min(hi);
        }
        for i in 0..self.polys.len() {
            self.bounds[i] = self.bounds_of(&self.polys[i]);
        }
    }
    /// The dim with assumed equalities substituted.
    pub fn rewrite(&mut self, d: Dim) -> Dim {
        let rules = self.equal.clone();
        rules.iter().fold(d, |d, &(from, to)| self.replace(d, from, to))
    }
    /// `d` with every occurrence of `from` replaced by `to`; `from` is a symbol or a whole dim.
    pub fn replace(&mut self, d: Dim, from: Dim, to: Dim) -> Dim {
        if d == from {
            return to;
        }
        if self.as_const(d).is_some() {
            return d;
        }
        let mut sum = Dim::ZERO;
        for t in self.poly(d).clone() {
            let mut p = self.constant(t.coeff);
            for f in &t.factors {
                let a = self.replace_atom(*f, from, to);
                p = self.mul(p, a);
            }
            sum = self.add(sum, p);
        }
        sum
    }
    fn replace_atom(&mut self, id: AtomId, from: Dim, to: Dim) -> Dim {
        let atom = self.atoms[id.0 as usize];
        let whole = self.atom(atom);
        if whole == from {
            return to;
        }
        let Some((a, b)) = atom.operands() else { return whole };
        let (x, y) = (self.replace(a, from, to), self.replace(b, from, to));
        if (x, y) == (a, b) {
            return whole;
        }
        match atom {
            Atom::FloorDiv(..) => self.floor_div(x, y),
            Atom::Min(..) => self.min(x, y),
            Atom::Max(..) => self.max(x, y),
            Atom::Broadcast(..) => self.broadcast(x, y).unwrap_or(whole),
            Atom::Eq(..) => self.eq(x, y),
            Atom::Lt(..) => self.lt(x, y),
            Atom::Sym(_) | Atom::Overflow => whole,
        }
    }

    /// Whether `a == b`.
    pub fn is_equal(&mut self, a: Dim, b: Dim) -> Answer {
        if a == b {
            return Answer::Proven;
        }
        let (a, b) = if self.equal.is_empty() { (a, b) } else { (self.rewrite(a), self.rewrite(b)) };
        let d = self.sub(a, b);
        match self.range(d) {
            (0, 0) => Answer::Proven,
            (lo, hi) if lo > 0 || hi < 0 => Answer::Disproven,
            _ => Answer::Unknown,
        }
    }
    /// Whether `a < b`.
    pub fn is_less(&mut self, a: Dim, b: Dim) -> Answer {
        let (a, b) = if self.equal.is_empty() { (a, b) } else { (self.rewrite(a), self.rewrite(b)) };
        let d = self.sub(a, b);
        match self.range(d) {
            (_, hi) if hi < 0 => Answer::Proven,
            (lo, _) if lo >= 0 => Answer::Disproven,
            _ => Answer::Unknown,
        }
    }
    /// Whether a constant `c` divides `a`.
    pub fn is_multiple_of(&mut self, a: Dim, c: i64) -> Answer {
        if c == 0 {
            return self.is_equal(a, Dim::ZERO);
        }
        let c = self.constant(c);
        let r = self.rem(a, c);
        self.is_equal(r, Dim::ZERO)
    }

    /// Bounds of a dim over all bindings (inclusive, saturating).
    #[must_use]
    pub fn range(&self, d: Dim) -> (i128, i128) {
        let b = &self.bounds[d.index()];
        (b.lo, b.hi)
    }
    fn bounds_of(&self, p: &Poly) -> Bounds {
        let mut sum = Bounds { lo: 0, hi: 0, depth: 0 };
        for t in p {
            let mut r = (i128::from(t.coeff), i128::from(t.coeff));
            for f in &t.factors {
                r = mul_range(r, self.atom_range(*f));
                if let Some((a, b)) = self.atoms[f.0 as usize].operands() {
                    let depth = self.bounds[a.index()].depth.max(self.bounds[b.index()].depth) + 1;
                    sum.depth = sum.depth.max(depth);
                }
            }
            sum.lo = clamp(sum.lo + r.0);
            sum.hi = clamp(sum.hi + r.1);
        }
        sum
    }
    fn atom_range(&self, id: AtomId) -> (i128, i128) {
        match self.atoms[id.0 as usize] {
            Atom::Sym(s) => {
                self.symbols.get_index(s.index()).map_or((-INF, INF), |(_, f)| (widen(f.lo), widen(f.hi)))
            }
            Atom::FloorDiv(a, b) => {
                let ((alo, ahi), (blo, _)) = (self.range(a), self.range(b));
                if blo >= 1 {
                    // |a / b| never exceeds |a|; the sign is that of a.
                    (if alo >= 0 { 0 } else { alo }, if ahi < 0 { -1 } else { ahi / blo })
                } else {
                    (-INF, INF)
                }
            }
            Atom::Min(a, b) => {
                let (x, y) = (self.range(a), self.range(b));
                (x.0.min(y.0), x.1.min(y.1))
            }
            Atom::Max(a, b) => {
                let (x, y) = (self.range(a), self.range(b));
                (x.0.max(y.0), x.1.max(y.1))
            }
            // Either side may be the 1 that gives way, also to a 0.
            Atom::Broadcast(a, b) => {
                let (x, y) = (self.range(a), self.range(b));
                (x.0.min(y.0), x.1.max(y.1))
            }
            Atom::Eq(..) | Atom::Lt(..) => (0, 1),
            Atom::Overflow => (-INF, INF),
        }
    }

    /// Evaluates every dim of the table into `out`, reusing its memory.
    pub fn eval_all(&self, bindings: &Bindings, out: &mut DimValues) {
        out.polys.clear();
        out.atoms.clear();
        for (p, &before) in self.polys.iter().zip(&self.atoms_before) {
            while out.atoms.len() < before as usize {
                let a = &self.atoms[out.atoms.len()];
                let v = eval_atom(a, |s| bindings.get(s), |d| out.polys.get(d.index()).copied());
                out.atoms.push(v.unwrap_or(UNDEF));
            }
            let v = eval_poly(p, |a| out.atoms.get(a.0 as usize).copied().filter(|&v| v != UNDEF));
            out.polys.push(v.unwrap_or(UNDEF));
        }
    }
    /// The value of one dim, or why it has none.
    ///
    /// # Errors
    /// An unbound symbol, overflow, division by zero, or extents that do not broadcast.
    pub fn eval(&self, d: Dim, bindings: &Bindings) -> Result<i64, DimError> {
        let mut all = DimValues::default();
        self.eval_all(bindings, &mut all);
        all.get(d).ok_or_else(|| self.why_undefined(d, &all))
    }
    /// Why a dim has no value among these.
    #[must_use]
    pub fn why_undefined(&self, d: Dim, all: &DimValues) -> DimError {
        for f in self.poly(d).iter().flat_map(|t| &t.factors) {
            if all.atoms.get(f.0 as usize).is_some_and(|&v| v != UNDEF) {
                continue;
            }
            let atom = self.atoms[f.0 as usize];
            if let Atom::Sym(s) = atom {
                return DimError::Unbound { symbol: self.symbol_name(s).to_string() };
            }
            let Some((a, b)) = atom.operands() else { continue };
            if let Some(x) = [a, b].into_iter().find(|&x| all.get(x).is_none()) {
                return self.why_undefined(x, all);
            }
            let dim = self.display(d).to_string();
            return match (atom, all.get(a), all.get(b)) {
                (Atom::Broadcast(..), Some(a), Some(b)) => DimError::Broadcast { dim, a, b },
                (Atom::FloorDiv(..), _, Some(0)) => DimError::DivByZero { dim },
                _ => DimError::Overflow { dim },
            };
        }
        DimError::Overflow { dim: self.display(d).to_string() }
    }

    /// The dim as text, e.g. `2*s + 1`, `floordiv(b, 4)`.
    #[must_use]
    pub fn display(&self, d: Dim) -> DisplayDim<'_> {
        DisplayDim { table: self, dim: d }
    }
}

/// See [`DimTable::display`].
#[derive(Clone, Copy)]
pub struct DisplayDim<'a> {
    table: &'a DimTable,
    dim: Dim,
}

impl std::fmt::Display for DisplayDim<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let poly = self.table.poly(self.dim);
        if poly.is_empty() {
            return f.write_str("0");
        }
        for (i, t) in poly.iter().enumerate() {
            let c = if i == 0 { i128::from(t.coeff) } else { i128::from(t.coeff).abs() };
            if i > 0 {
                f.write_str(if t.coeff < 0 { " - " } else { " + " })?;
            }
            match (c, t.factors.is_empty()) {
                (_, true) => write!(f, "{c}")?,
                (1, false) => {}
                (-1, false) => f.write_str("-")?,
                _ => write!(f, "{c}*")?,
            }
            for (j, a) in t.factors.iter().enumerate() {
                if j > 0 {
                    f.write_str("*")?;
                }
                let show = |d| self.table.display(d);
                match self.table.atoms[a.0 as usize] {
                    Atom::Sym(s) => write_symbol(f, self.table.symbol_name(s))?,
                    Atom::FloorDiv(a, b) => write!(f, "floordiv({}, {})", show(a), show(b))?,
                    Atom::Min(a, b) => write!(f, "min({}, {})", show(a), show(b))?,
                    Atom::Max(a, b) => write!(f, "max({}, {})", show(a), show(b))?,
                    Atom::Broadcast(a, b) => write!(f, "broadcast({}, {})", show(a), show(b))?,
                    Atom::Eq(a, b) => write!(f, "eq({}, {})", show(a), show(b))?,
                    Atom::Lt(a, b) => write!(f, "lt({}, {})", show(a), show(b))?,
                    Atom::Overflow => f.write_str("overflow()")?,
                }
            }
        }
        Ok(())
    }
}

/// Plain identifiers print bare, everything else quoted.
fn write_symbol(f: &mut std::fmt::Formatter<'_>, name: &str) -> std::fmt::Result {
    let plain = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    let reserved = ["floordiv", "min", "max", "broadcast", "eq", "lt", "overflow"].contains(&name);
    if plain && !reserved { f.write_str(name) } else { write!(f, "{name:?}") }
}

/// Constants sort last so that dims read as `2*s + 1`.
fn cmp_factors(a: &[AtomId], b: &[AtomId]) -> std::cmp::Ordering {
    a.is_empty().cmp(&b.is_empty()).then_with(|| a.cmp(b))
}

/// Adds a term; false on overflow.
fn accumulate(p: &mut Poly, factors: &[AtomId], coeff: i64) -> bool {
    if let Some(t) = p.iter_mut().find(|t| t.factors.as_slice() == factors) {
        let Some(c) = t.coeff.checked_add(coeff) else { return false };
        t.coeff = c;
    } else {
        p.push(Term { factors: SmallVec::from_slice(factors), coeff });
    }
    true
}

fn divide_term(t: &Term, by: &Term) -> Option<Term> {
    if by.coeff == 0 || t.coeff.checked_rem(by.coeff)? != 0 {
        return None;
    }
    let mut factors = t.factors.clone();
    for f in &by.factors {
        let i = factors.iter().position(|g| g == f)?;
        factors.remove(i);
    }
    Some(Term { factors, coeff: t.coeff.checked_div(by.coeff)? })
}

const INF: i128 = 1 << 100;

fn widen(v: i64) -> i128 {
    match v {
        i64::MAX => INF,
        v if v <= i64::MIN + 1 => -INF,
        v => i128::from(v),
    }
}
fn clamp(v: i128) -> i128 {
    v.clamp(-INF, INF)
}
fn mul_range(a: (i128, i128), b: (i128, i128)) -> (i128, i128) {
    let p = [a.0, a.1].map(|x| {
        [b.0, b.1].map(|y| x.checked_mul(y).map_or(if (x < 0) == (y < 0) { INF } else { -INF }, clamp))
    });
    let all = [p[0][0], p[0][1], p[1][0], p[1][1]];
    (all.iter().copied().min().unwrap_or(-INF), all.iter().copied().max().unwrap_or(INF))
}

fn eval_poly(p: &Poly, atom: impl Fn(AtomId) -> Option<i64>) -> Option<i64> {
    let mut sum = 0i64;
    for t in p {
        let mut v = t.coeff;
        for f in &t.factors {
            v = v.checked_mul(atom(*f)?)?;
        }
        sum = sum.checked_add(v)?;
    }
    Some(sum).filter(|&v| v != UNDEF)
}

fn eval_atom(a: &Atom, sym: impl Fn(Symbol) -> Option<i64>, dim: impl Fn(Dim) -> Option<i64>) -> Option<i64> {
    let get = |d| dim(d).filter(|&v| v != UNDEF);
    Some(match *a {
        Atom::Sym(s) => sym(s)?,
        Atom::FloorDiv(a, b) => {
            let (a, b) = (get(a)?, get(b)?);
            let q = a.checked_div(b)?;
            if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
        }
        Atom::Min(a, b) => get(a)?.min(get(b)?),
        Atom::Max(a, b) => get(a)?.max(get(b)?),
        Atom::Broadcast(a, b) => match (get(a)?, get(b)?) {
            (a, b) if a == b || b == 1 => a,
            (1, b) => b,
            _ => return None,
        },
        Atom::Eq(a, b) => i64::from(get(a)? == get(b)?),
        Atom::Lt(a, b) => i64::from(get(a)? < get(b)?),
        Atom::Overflow => return None,
    })
}

#[cfg(test)]
#[path = "dim_tests.rs"]
mod tests;
