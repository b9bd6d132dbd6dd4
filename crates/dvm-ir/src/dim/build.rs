//! Constructors: every dim is made here, in normal form.

use smallvec::SmallVec;

use super::poly::{self, Poly, Term};
use super::{Answer, Atom, AtomId, Bounds, Dim, DimTable, MAX_DEPTH, Symbol, SymbolFacts};

/// Extrema and broadcasts of more operands than this are nested instead of flattened.
const MAX_LEAVES: usize = 6;

/// Length of the table, to undo what a question interned.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    polys: usize,
    atoms: usize,
}

impl DimTable {
    pub(super) fn mark(&self) -> Mark {
        Mark { polys: self.polys.len(), atoms: self.atoms.len() }
    }
    pub(super) fn reset(&mut self, m: Mark) {
        self.polys.truncate(m.polys);
        self.atoms_before.truncate(m.polys);
        self.bounds.truncate(m.polys);
        self.atoms.truncate(m.atoms);
    }

    pub(super) fn intern(&mut self, p: Poly) -> Dim {
        let before = self.atoms.len() as u32;
        let (i, new) = self.polys.insert_full(p);
        if new {
            self.atoms_before.push(before);
            let bounds = self.bounds_of(&self.polys[i]);
            self.bounds.push(bounds);
        }
        Dim(i as u32)
    }
    pub(super) fn intern_or_overflow(&mut self, p: Option<Poly>) -> Dim {
        let overflow = if self.overflowed { self.atoms.get_index_of(&Atom::Overflow) } else { None };
        let absorbs =
            |p: &Poly| overflow.is_some_and(|o| p.iter().any(|t| t.factors.contains(&AtomId(o as u32))));
        match p {
            Some(p) if !absorbs(&p) => self.intern(p),
            _ => {
                self.overflowed = true;
                self.atom(Atom::Overflow)
            }
        }
    }
    fn atom(&mut self, a: Atom) -> Dim {
        let deep = |d: Dim| self.bounds[d.index()].depth >= MAX_DEPTH || self.overflows(d);
        let a = match a.operands() {
            Some((x, y)) if deep(x) || deep(y) => Atom::Overflow,
            _ => a,
        };
        self.overflowed |= a == Atom::Overflow;
        let (i, _) = self.atoms.insert_full(a);
        self.intern(poly::of_atom(AtomId(i as u32)))
    }
    pub(super) fn poly(&self, d: Dim) -> &Poly {
        &self.polys[d.index()]
    }
    /// The atom, when the dim is exactly one.
    pub(super) fn as_atom(&self, d: Dim) -> Option<(AtomId, Atom)> {
        match self.poly(d).as_slice() {
            [t] if t.coeff == 1 && t.factors.len() == 1 => {
                Some((t.factors[0], self.atoms[t.factors[0].0 as usize]))
            }
            _ => None,
        }
    }

    /// The dim that is one existing atom.
    pub(super) fn atom_dim(&self, id: AtomId) -> Dim {
        let known = self.polys.get_index_of(&poly::of_atom(id));
        Dim(known.expect("an atom is interned with its dim") as u32)
    }

    /// The constant `c`.
    pub fn constant(&mut self, c: i64) -> Dim {
        self.intern(poly::constant(c))
    }
    /// The symbol named `name`, created with range `0..` when it is new. Equal names are the same symbol.
    pub fn symbol(&mut self, name: &str) -> Dim {
        self.symbol_with(name, 0, false)
    }
    /// The symbol named `name` for an integer that may be negative (a run-time value, not an extent).
    pub fn value_symbol(&mut self, name: &str) -> Dim {
        self.symbol_with(name, i64::MIN + 1, true)
    }
    fn symbol_with(&mut self, name: &str, lo: i64, value: bool) -> Dim {
        let facts = SymbolFacts { lo, hi: i64::MAX, value, declared: (lo, i64::MAX) };
        let i = match self.symbols.get_index_of(name) {
            Some(i) => i,
            None => self.symbols.insert_full(name.to_string(), facts).0,
        };
        self.atom(Atom::Sym(Symbol(i as u32)))
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
        match self.as_atom(d) {
            Some((_, Atom::Sym(s))) => Some(s),
            _ => None,
        }
    }
    /// Whether the dim has no value because it, or a part of it, is too large.
    #[must_use]
    pub fn overflows(&self, d: Dim) -> bool {
        matches!(self.as_atom(d), Some((_, Atom::Overflow)))
    }
    /// Whether the dim prints as a sum, and so needs parentheses in a product.
    pub(crate) fn is_sum(&self, d: Dim) -> bool {
        self.poly(d).len() > 1
    }

    /// `a + b`.
    pub fn add(&mut self, a: Dim, b: Dim) -> Dim {
        let sum = poly::add(self.poly(a), self.poly(b), 1);
        self.intern_or_overflow(sum)
    }
    /// `a - b`.
    pub fn sub(&mut self, a: Dim, b: Dim) -> Dim {
        let sum = poly::add(self.poly(a), self.poly(b), -1);
        self.intern_or_overflow(sum)
    }
    /// `-a`.
    pub fn neg(&mut self, a: Dim) -> Dim {
        self.sub(Dim::ZERO, a)
    }
    /// `a * b`.
    pub fn mul(&mut self, a: Dim, b: Dim) -> Dim {
        if a == Dim::ONE {
            return b;
        }
        if b == Dim::ONE {
            return a;
        }
        let product = self.mul_polys(self.poly(a), self.poly(b));
        self.intern_or_overflow(product)
    }
    pub(super) fn mul_polys(&self, p: &Poly, q: &Poly) -> Option<Poly> {
        // Comparisons are 0 or 1, so their powers are themselves.
        poly::mul(p, q, |a| matches!(self.atoms[a.0 as usize], Atom::Eq(..) | Atom::Lt(..)))
    }
    /// Sum of dims. Unlike repeated [`DimTable::add`] it leaves no partial sums in the table.
    pub fn sum(&mut self, dims: &[Dim]) -> Dim {
        let sum = dims.iter().try_fold(Poly::new(), |s, &d| poly::add(&s, self.poly(d), 1));
        self.intern_or_overflow(sum)
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
        if a == b {
            return Dim::ONE;
        }
        if self.as_const(b).is_some_and(|c| c < 0) {
            let (a, b) = (self.neg(a), self.neg(b));
            // The negation of i64::MIN is no constant and no number.
            return if self.as_const(b).is_some() { self.floor_div(a, b) } else { b };
        }
        let divisor = match self.poly(b).as_slice() {
            [t] => t.clone(),
            _ => return self.atom(Atom::FloorDiv(a, b)),
        };
        // floor(q + r / b) is q + floor(r / b) for every integer q.
        let (quotient, rest) = poly::divide(self.poly(a), &divisor);
        let q = self.intern(quotient);
        if rest.is_empty() {
            return q;
        }
        let tail = match self.as_const(b) {
            Some(c) => self.floor_div_const(rest, c),
            None => {
                let r = self.intern(rest);
                if self.is_less(r, b) == Answer::Proven && self.range(r).0 >= 0 {
                    Dim::ZERO
                } else {
                    self.atom(Atom::FloorDiv(r, b))
                }
            }
        };
        self.add(q, tail)
    }
    /// `floor(rest / c)` for c > 1; every coefficient of `rest` may be anything.
    fn floor_div_const(&mut self, rest: Poly, c: i64) -> Dim {
        // Take the constant's multiple of c out, so that (2*s + 9) / 4 is (2*s + 1) / 4 + 2, then cancel what all terms
        // share with c: (2*s + 1) / 4 is s / 2.
        let k = poly::constant_term(&rest);
        let whole = self.constant(k.div_euclid(c));
        let mut r = rest;
        if r.last().is_some_and(|t| t.factors.is_empty()) {
            r.pop();
        }
        let mut k = k.rem_euclid(c);
        let common = gcd(poly::content(&r), c);
        let mut c = c;
        if common > 1 {
            r.iter_mut().for_each(|t| t.coeff /= common);
            (k, c) = (k / common, c / common);
        }
        if c > 1 && k != 0 {
            r.push(Term { factors: SmallVec::new(), coeff: k });
        }
        let r = self.intern(r);
        if c == 1 {
            return self.add(r, whole);
        }
        if r == Dim::ZERO {
            return whole;
        }
        let (lo, hi) = self.range(r);
        if lo >= 0 && hi < i128::from(c) {
            return whole;
        }
        // floor(floor(x / d) / c) is floor(x / (d*c)).
        if let Some((_, Atom::FloorDiv(x, d))) = self.as_atom(r)
            && let Some(dc) = self.as_const(d).filter(|&d| d > 0).and_then(|d| d.checked_mul(c))
        {
            let dc = self.constant(dc);
            let tail = self.floor_div(x, dc);
            return self.add(tail, whole);
        }
        let c = self.constant(c);
        let tail = self.atom(Atom::FloorDiv(r, c));
        self.add(tail, whole)
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
        let leaf = |x| match x {
            Atom::Min(a, b) => Some((a, b)),
            _ => None,
        };
        self.extremum(a, b, leaf, |t, a, b| t.at_most(a, b), Atom::Min)
    }
    /// The larger.
    pub fn max(&mut self, a: Dim, b: Dim) -> Dim {
        let leaf = |x| match x {
            Atom::Max(a, b) => Some((a, b)),
            _ => None,
        };
        self.extremum(a, b, leaf, |t, a, b| t.at_most(b, a), Atom::Max)
    }
    fn extremum(
        &mut self,
        a: Dim,
        b: Dim,
        operands: impl Fn(Atom) -> Option<(Dim, Dim)>,
        wins: impl Fn(&mut DimTable, Dim, Dim) -> bool,
        make: fn(Dim, Dim) -> Atom,
    ) -> Dim {
        let leaves = self.leaves(a, b, operands);
        let mut kept: SmallVec<[Dim; MAX_LEAVES]> = SmallVec::new();
        for x in leaves {
            if kept.iter().any(|&k| wins(self, k, x)) {
                continue;
            }
            kept.retain(|k| !wins(self, x, *k));
            kept.push(x);
        }
        self.nest(&kept, make)
    }
    /// Operands of a nest of one associative, commutative, idempotent operation, sorted.
    fn leaves(
        &self,
        a: Dim,
        b: Dim,
        operands: impl Fn(Atom) -> Option<(Dim, Dim)>,
    ) -> SmallVec<[Dim; MAX_LEAVES]> {
        let (mut todo, mut out): (SmallVec<[Dim; MAX_LEAVES]>, SmallVec<[Dim; MAX_LEAVES]>) =
            (SmallVec::from_slice(&[a, b]), SmallVec::new());
        while let Some(d) = todo.pop() {
            match self.as_atom(d).and_then(|(_, a)| operands(a)) {
                Some((x, y)) if todo.len() + out.len() + 2 <= MAX_LEAVES => todo.extend([x, y]),
                _ => out.push(d),
            }
        }
        out.sort_unstable();
        out.dedup();
        out
    }
    fn nest(&mut self, leaves: &[Dim], make: fn(Dim, Dim) -> Atom) -> Dim {
        let (first, rest) = leaves.split_first().expect("operands of an operation");
        rest.iter().fold(*first, |a, &b| self.atom(make(a, b)))
    }

    /// The extent two axes broadcast to. An extent that is provably not 1 wins over an unknown (which must then be 1 or
    /// equal, to be checked at bind). `None` when the extents provably do not broadcast.
    pub fn broadcast(&mut self, a: Dim, b: Dim) -> Option<Dim> {
        if a == b || b == Dim::ONE {
            return Some(a);
        }
        if a == Dim::ONE {
            return Some(b);
        }
        let equal = self.is_equal(a, b);
        let one = [a, b].map(|d| self.is_equal(d, Dim::ONE));
        match (equal, one) {
            (Answer::Proven, _) if self.as_const(b).is_some() => Some(b),
            (Answer::Proven, _) | (_, [_, Answer::Proven]) => Some(a),
            (_, [Answer::Proven, _]) => Some(b),
            (Answer::Disproven, [Answer::Disproven, Answer::Disproven]) => None,
            (_, [Answer::Disproven, Answer::Disproven]) if self.as_const(b).is_some() => Some(b),
            (_, [Answer::Disproven, _]) => Some(a),
            (_, [_, Answer::Disproven]) => Some(b),
            _ => {
                let leaves = self.leaves(a, b, |x| match x {
                    Atom::Broadcast(a, b) => Some((a, b)),
                    _ => None,
                });
                Some(self.nest(&leaves, Atom::Broadcast))
            }
        }
    }

    /// 1 when equal, else 0.
    pub fn eq(&mut self, a: Dim, b: Dim) -> Dim {
        match self.is_equal(a, b) {
            Answer::Proven => Dim::ONE,
            Answer::Disproven => Dim::ZERO,
            Answer::Unknown => {
                let sides = self.difference(a, b).and_then(|mut d| {
                    let g = poly::content(&d);
                    if g > 1 {
                        d.iter_mut().for_each(|t| t.coeff /= g);
                    }
                    if d.first().is_some_and(|t| t.coeff < 0) { poly::scale(&d, -1) } else { Some(d) }
                });
                let (a, b) = self.sides(sides, a, b);
                self.atom(Atom::Eq(a, b))
            }
        }
    }
    /// 1 when `a < b`, else 0.
    pub fn lt(&mut self, a: Dim, b: Dim) -> Dim {
        match self.is_less(a, b) {
            Answer::Proven => Dim::ONE,
            Answer::Disproven => Dim::ZERO,
            Answer::Unknown => {
                // g*x + k > 0 is x + 1 + floor((k - 1) / g) > 0.
                let d = self.difference(b, a).and_then(|mut d| {
                    let (g, k) = (poly::content(&d), poly::constant_term(&d));
                    if g > 1 {
                        d.retain(|t| !t.factors.is_empty());
                        d.iter_mut().for_each(|t| t.coeff /= g);
                        let k = poly::constant(1 + k.checked_sub(1)?.div_euclid(g));
                        return poly::add(&d, &k, 1);
                    }
                    Some(d)
                });
                let (b, a) = self.sides(d, b, a);
                self.atom(Atom::Lt(a, b))
            }
        }
    }
    /// Positive and (negated) negative terms of a difference; `a` and `b` themselves where it overflowed.
    fn sides(&mut self, d: Option<Poly>, a: Dim, b: Dim) -> (Dim, Dim) {
        let Some(d) = d else { return (a, b) };
        let (pos, neg): (Vec<Term>, Vec<Term>) = d.into_iter().partition(|t| t.coeff > 0);
        match poly::scale(&Poly::from_vec(neg), -1) {
            Some(neg) => (self.intern(Poly::from_vec(pos)), self.intern(neg)),
            None => (a, b),
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

    pub(super) fn bounds_of(&self, p: &Poly) -> Bounds {
        let mut sum = Bounds { lo: 0, hi: 0, depth: 0, symbols: 0 };
        for t in p {
            let (lo, hi) = self.term_range(t);
            for f in &t.factors {
                let atom = self.atoms[f.0 as usize];
                if let Atom::Sym(s) = atom {
                    sum.symbols |= s.bit();
                } else if let Some((a, b)) = atom.operands() {
                    let (a, b) = (self.bounds[a.index()], self.bounds[b.index()]);
                    sum.depth = sum.depth.max(a.depth.max(b.depth) + 1);
                    sum.symbols |= a.symbols | b.symbols;
                }
            }
            sum.lo = super::range::clamp(sum.lo + lo);
            sum.hi = super::range::clamp(sum.hi + hi);
        }
        sum
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}
