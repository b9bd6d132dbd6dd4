//! Answers: intervals, a small prover on top of them, and facts.

use std::collections::HashMap;

use indexmap::IndexSet;
use smallvec::SmallVec;

use super::poly::{self, Poly, Term};
use super::{Answer, Atom, AtomId, Dim, DimTable, Symbol};
use crate::CheckCond;

/// Stands for "no bound"; every value of a dim is far inside.
pub(super) const INF: i128 = 1 << 100;
/// Most polynomials a proof looks at.
const FUEL: u32 = 32;

impl DimTable {
    /// Bounds of a dim over all bindings (inclusive, saturating).
    #[must_use]
    pub fn range(&self, d: Dim) -> (i128, i128) {
        let b = &self.bounds[d.index()];
        (b.lo, b.hi)
    }
    pub(super) fn term_range(&self, t: &Term) -> (i128, i128) {
        let c = i128::from(t.coeff);
        t.factors.iter().fold((c, c), |r, f| mul_range(r, self.atom_range(*f)))
    }
    fn atom_range(&self, id: AtomId) -> (i128, i128) {
        let pair = |a, b| (self.range(a), self.range(b));
        match self.atoms[id.0 as usize] {
            Atom::Sym(s) => {
                self.symbols.get_index(s.index()).map_or((-INF, INF), |(_, f)| (widen(f.lo), widen(f.hi)))
            }
            Atom::FloorDiv(a, b) => {
                let (a, b) = pair(a, b);
                if b.0 < 1 {
                    return (-INF, INF);
                }
                // Monotone in either operand, so the extremes are at corners.
                let corners = [a.0, a.1].map(|x| [b.0, b.1].map(|y| x.div_euclid(y)));
                let all = corners.iter().flatten().copied();
                (all.clone().min().unwrap_or(-INF), all.max().unwrap_or(INF))
            }
            Atom::Min(a, b) => {
                let (x, y) = pair(a, b);
                (x.0.min(y.0), x.1.min(y.1))
            }
            Atom::Max(a, b) => {
                let (x, y) = pair(a, b);
                (x.0.max(y.0), x.1.max(y.1))
            }
            // Either side may be the 1 that gives way, also to a 0.
            Atom::Broadcast(a, b) => {
                let (x, y) = pair(a, b);
                (x.0.min(y.0), x.1.max(y.1))
            }
            Atom::Eq(..) | Atom::Lt(..) => (0, 1),
            Atom::Overflow => (-INF, INF),
        }
    }

    /// `a - b`, not interned.
    pub(super) fn difference(&self, a: Dim, b: Dim) -> Option<Poly> {
        poly::add(self.poly(a), self.poly(b), -1)
    }
    /// Runs a question on dims with the facts substituted and forgets what that interned.
    fn ask<T>(&mut self, a: Dim, b: Dim, question: impl FnOnce(&DimTable, Dim, Dim) -> T) -> T {
        self.without_trace(|t| {
            let (a, b) = (t.rewrite(a), t.rewrite(b));
            question(t, a, b)
        })
    }
    pub(crate) fn without_trace<T>(&mut self, f: impl FnOnce(&mut DimTable) -> T) -> T {
        let mark = self.mark();
        let answer = f(self);
        self.reset(mark);
        answer
    }

    /// Remembers from now on the conditions that [`DimTable::wish`] is told.
    pub fn record_wishes(&mut self) {
        self.wishes = Some(IndexSet::new());
    }
    /// Notes a condition whose proof would have changed a decision.
    pub fn wish(&mut self, cond: impl FnOnce(&mut DimTable) -> CheckCond) {
        if let Some(mut wishes) = self.wishes.take() {
            wishes.insert(cond(self));
            self.wishes = Some(wishes);
        }
    }
    /// [`DimTable::wish`] that two dims are equal; what broadcasts is, where its parts are. One and nothing are extents like others:
    /// that some axis has them is no fact to build on.
    pub fn wish_equal(&mut self, a: Dim, b: Dim) {
        if self.wishes.is_none() {
            return;
        }
        let parts = |t: &DimTable, d: Dim| {
            let (mut out, mut stack) = (vec![], vec![d]);
            while let Some(d) = stack.pop() {
                match t.as_atom(d) {
                    Some((_, Atom::Broadcast(a, b))) => stack.extend([a, b]),
                    _ => out.push(d),
                }
            }
            out
        };
        let known = |d: Dim| d == Dim::ONE || d == Dim::ZERO;
        let (left, right) = (parts(self, a), parts(self, b));
        for &x in &left {
            for &y in right.iter().filter(|&&y| y != x && !known(x) && !known(y)) {
                // The younger one second, a number last.
                let key = |d: Dim| (self.as_const(d).is_some(), d);
                let (x, y) = if key(x) <= key(y) { (x, y) } else { (y, x) };
                self.wish(|_| CheckCond::Equal(x, y));
            }
        }
    }
    /// What was wished for since [`DimTable::record_wishes`], each condition once; stops remembering.
    pub fn take_wishes(&mut self) -> Vec<CheckCond> {
        self.wishes.take().into_iter().flatten().collect()
    }
    /// Whether `a == b`.
    pub fn is_equal(&mut self, a: Dim, b: Dim) -> Answer {
        if a == b {
            return Answer::Proven;
        }
        self.ask(a, b, |t, a, b| {
            let Some(d) = t.difference(a, b) else { return Answer::Unknown };
            if d.is_empty() {
                return Answer::Proven;
            }
            let g = poly::content(&d);
            if g != 0 && poly::constant_term(&d) % g != 0 {
                return Answer::Disproven;
            }
            let above = t.proves_at_least(&d, 1);
            let below = || poly::scale(&d, -1).is_some_and(|n| t.proves_at_least(&n, 1));
            if above || below() {
                return Answer::Disproven;
            }
            let zero =
                t.proves_at_least(&d, 0) && poly::scale(&d, -1).is_some_and(|n| t.proves_at_least(&n, 0));
            if zero { Answer::Proven } else { Answer::Unknown }
        })
    }
    /// Whether `a < b`.
    pub fn is_less(&mut self, a: Dim, b: Dim) -> Answer {
        self.ask(a, b, |t, a, b| {
            if t.difference(b, a).is_some_and(|d| t.proves_at_least(&d, 1)) {
                Answer::Proven
            } else if t.difference(a, b).is_some_and(|d| t.proves_at_least(&d, 0)) {
                Answer::Disproven
            } else {
                Answer::Unknown
            }
        })
    }
    pub(super) fn at_most(&mut self, a: Dim, b: Dim) -> bool {
        self.ask(a, b, |t, a, b| t.difference(b, a).is_some_and(|d| t.proves_at_least(&d, 0)))
    }
    /// Whether a constant `c` divides `a`.
    pub fn is_multiple_of(&mut self, a: Dim, c: i64) -> Answer {
        if c == 0 {
            return self.is_equal(a, Dim::ZERO);
        }
        self.without_trace(|t| {
            let c = t.constant(c);
            let a = t.rewrite(a);
            let r = t.rem(a, c);
            t.is_equal(r, Dim::ZERO)
        })
    }

    fn proves_at_least(&self, p: &Poly, least: i64) -> bool {
        match poly::add(p, &poly::constant(least), -1) {
            Some(p) => Prover { table: self, fuel: FUEL }.not_negative(&p),
            None => false,
        }
    }
}

/// Proves that a polynomial is never negative: by its interval, or by replacing one atom by what bounds it.
struct Prover<'a> {
    table: &'a DimTable,
    fuel: u32,
}

impl Prover<'_> {
    fn not_negative(&mut self, p: &Poly) -> bool {
        let b = self.table.bounds_of(p);
        if b.lo >= 0 {
            return true;
        }
        if b.hi < 0 || self.fuel == 0 {
            return false;
        }
        self.fuel = self.fuel.saturating_sub(1 + p.len() as u32 / 8);
        // The youngest atom first: atoms inside its operands show up when it is gone.
        let mut atoms: Vec<AtomId> = p.iter().flat_map(|t| t.factors.iter().copied()).collect();
        atoms.sort_unstable();
        atoms.dedup();
        atoms.into_iter().rev().any(|a| self.by_replacing(p, a))
    }

    fn by_replacing(&mut self, p: &Poly, id: AtomId) -> bool {
        let atom = self.table.atoms[id.0 as usize];
        let Some((a, b)) = atom.operands() else { return false };
        let Some((c, rest)) = poly::split(p, id) else { return false };
        let sign = self.table.bounds_of(&c);
        let (grows, falls) = (sign.lo >= 0, sign.hi <= 0);
        let (pa, pb) = (self.table.poly(a), self.table.poly(b));
        let with = |x: &Poly| self.table.mul_polys(&c, x).and_then(|y| poly::add(&y, &rest, 1));
        let (wa, wb) = (with(pa), with(pb));
        let mut holds = |p: &Option<Poly>| p.as_ref().is_some_and(|p| self.not_negative(p));
        match atom {
            // The value is one of both; where it counts against us, either bounds it.
            Atom::Min(..) if falls => holds(&wa) || holds(&wb),
            Atom::Max(..) if grows => holds(&wa) || holds(&wb),
            Atom::Min(..) | Atom::Max(..) | Atom::Broadcast(..) => holds(&wa) && holds(&wb),
            Atom::Eq(..) | Atom::Lt(..) => {
                let one = poly::add(&c, &rest, 1);
                holds(&Some(rest.clone())) && holds(&one)
            }
            Atom::FloorDiv(..) => {
                let Some(n) = self.table.as_const(b).filter(|&n| n > 0) else { return false };
                // a - (n - 1) <= n * floor(a / n) <= a.
                let bound = if falls {
                    Some(pa.clone())
                } else if grows {
                    poly::add(pa, &poly::constant(n - 1), -1)
                } else {
                    None
                };
                let scaled = bound.and_then(|x| {
                    let x = self.table.mul_polys(&c, &x)?;
                    poly::add(&x, &poly::scale(&rest, n)?, 1)
                });
                scaled.is_some_and(|p| self.not_negative(&p))
            }
            Atom::Sym(_) | Atom::Overflow => false,
        }
    }
}

/// What a pass over a dim replaces.
#[derive(Clone, Copy)]
enum Replace {
    /// One atom or whole dim by another dim.
    One(Dim, Dim),
    /// Every atom of which an equality is known.
    Facts,
    /// Nothing, but every part is made again.
    Nothing,
}

impl DimTable {
    /// Assumes two dims equal from now on.
    pub fn assume_equal(&mut self, a: Dim, b: Dim) {
        let (a, b) = (self.rewrite(a), self.rewrite(b));
        let Some(d) = self.difference(a, b) else { return };
        let g = poly::content(&d);
        if g == 0 || poly::constant_term(&d) % g != 0 {
            return;
        }
        // Solve for an atom that stands alone: a symbol where there is one (the youngest, so that the graph's first
        // symbols stay), else the youngest other atom.
        let alone = d.iter().filter(|t| t.factors.len() == 1 && t.coeff.checked_abs() == Some(g));
        let key = |t: &&Term| (matches!(self.atoms[t.factors[0].0 as usize], Atom::Sym(_)), t.factors[0]);
        let candidates = alone.filter(|t| {
            let f = t.factors[0];
            !matches!(self.atoms[f.0 as usize], Atom::Overflow) && self.occurs_once(&d, f)
        });
        let Some(t) = candidates.max_by_key(key).cloned() else { return self.assume_divides(&d) };
        let mut rest: Poly = d.iter().filter(|u| **u != t).cloned().collect();
        rest.iter_mut().for_each(|u| u.coeff /= g);
        let Some(to) = (if t.coeff > 0 { poly::scale(&rest, -1) } else { Some(rest) }) else { return };
        let to = self.intern(to);
        self.substitute(t.factors[0], to);
    }
    /// Relies on `a == n * floordiv(a, n)`, which is what `n` divides `a` comes to: a symbol that stands alone in `a` is
    /// replaced by what that makes it. The symbol is still in the division, where replacing it again changes nothing.
    fn assume_divides(&mut self, d: &Poly) {
        for quotient in d.iter().filter(|t| t.factors.len() == 1) {
            let Atom::FloorDiv(a, n) = self.atoms[quotient.factors[0].0 as usize] else { continue };
            let whole = self.intern(SmallVec::from_iter([Term { coeff: 1, ..quotient.clone() }]));
            let whole = self.mul(whole, n);
            let Some(claim) = self.difference(a, whole) else { continue };
            if *d != claim && poly::scale(&claim, -1).as_ref() != Some(d) {
                continue;
            }
            let inside = self.poly(a).clone();
            let alone = |t: &&Term| {
                matches!(t.factors[..], [f] if matches!(self.atoms[f.0 as usize], Atom::Sym(_)) && self.occurs_once(&inside, f))
                    && t.coeff.checked_abs() == Some(1)
            };
            let Some(s) = inside.iter().rfind(alone).cloned() else { continue };
            let rest: Poly = inside.into_iter().filter(|t| *t != s).collect();
            let rest = self.intern(rest);
            let to = if s.coeff > 0 { self.sub(whole, rest) } else { self.sub(rest, whole) };
            return self.substitute(s.factors[0], to);
        }
    }
    /// Replaces an atom from now on.
    fn substitute(&mut self, id: AtomId, to: Dim) {
        let from = self.intern(poly::of_atom(id));
        // Replacements stay free of replaced atoms, so that one pass rewrites a dim.
        let olds: Vec<(AtomId, Dim)> = self.equal.iter().map(|(&i, &d)| (i, d)).collect();
        for (i, d) in olds {
            let d = self.replace(d, from, to);
            self.equal.insert(i, d);
        }
        self.facts_symbols |= self.bounds[from.index()].symbols;
        self.equal.insert(id, to);
        self.assumed = true;
        // The smaller of two is at most each, so what it equals is too: without this, `min(n, 1) <= n` would be lost with the `min`.
        match self.atoms[id.0 as usize] {
            Atom::Min(x, y) => [x, y].into_iter().for_each(|x| self.assume_at_most(to, x)),
            Atom::Max(x, y) => [x, y].into_iter().for_each(|x| self.assume_at_most(x, to)),
            _ => {}
        }
        // A quotient that is known bounds what is divided, so that what was proved from its definition stays proved.
        if let Atom::FloorDiv(x, n) = self.atoms[id.0 as usize]
            && let Some(k) = self.as_const(n).filter(|&k| k > 0)
        {
            let least = self.mul(n, to);
            let slack = self.constant(k - 1);
            let most = self.add(least, slack);
            self.assume_at_most(least, x);
            self.assume_at_most(x, most);
        }
        // What is known of one symbol is known of the other.
        if let (Some(s), Some(r)) = (self.as_symbol(from), self.as_symbol(to)) {
            let f = self.symbols[s.index()].clone();
            self.narrow(r, f.lo, f.hi);
        }
    }
    /// Whether an atom has one term of `p` and is in no other's operands.
    fn occurs_once(&self, p: &Poly, id: AtomId) -> bool {
        let mine = self.bounds_of(&poly::of_atom(id)).symbols;
        let others = p.iter().filter(|t| t.factors.as_slice() != [id]);
        // Symbols are told apart modulo 64; a false alarm only loses the fact.
        others.clone().all(|t| !t.factors.contains(&id))
            && others.flat_map(|t| &t.factors).all(|f| self.bounds_of(&poly::of_atom(*f)).symbols & mine == 0)
    }
    /// Assumes `a <= b` from now on, where that bounds one symbol.
    pub fn assume_at_most(&mut self, a: Dim, b: Dim) {
        let (a, b) = (self.rewrite(a), self.rewrite(b));
        let Some(d) = self.difference(b, a) else { return };
        let k = poly::constant_term(&d);
        let [t] = d.iter().filter(|t| !t.factors.is_empty()).collect::<Vec<_>>()[..] else { return };
        let [f] = t.factors[..] else { return };
        let Atom::Sym(s) = self.atoms[f.0 as usize] else { return };
        // coeff * s + k >= 0.
        let (c, k) = (i128::from(t.coeff), i128::from(k));
        if c > 0 {
            let lo = -(k.div_euclid(c));
            self.narrow(s, i64::try_from(lo).unwrap_or(i64::MIN + 1), i64::MAX);
        } else {
            let hi = k.div_euclid(-c);
            self.narrow(s, i64::MIN + 1, i64::try_from(hi).unwrap_or(i64::MAX));
        }
    }
    /// Declares that a symbol is in `lo..=hi` (which binding checks). A range that would be empty changes nothing.
    pub fn assume_range(&mut self, s: Symbol, lo: i64, hi: i64) {
        if let Some((_, f)) = self.symbols.get_index_mut(s.index()) {
            let (lo, hi) = (f.declared.0.max(lo), f.declared.1.min(hi));
            if lo <= hi {
                f.declared = (lo, hi);
            }
        }
        self.narrow(s, lo, hi);
    }
    fn narrow(&mut self, s: Symbol, lo: i64, hi: i64) {
        let Some((_, f)) = self.symbols.get_index_mut(s.index()) else { return };
        let (lo, hi) = (f.lo.max(lo), f.hi.min(hi));
        if lo > hi || (lo, hi) == (f.lo, f.hi) {
            return;
        }
        (f.lo, f.hi) = (lo, hi);
        self.assumed = true;
        for i in 0..self.polys.len() {
            self.bounds[i] = self.bounds_of(&self.polys[i]);
        }
    }

    /// The dim with assumed equalities substituted.
    pub fn rewrite(&mut self, d: Dim) -> Dim {
        // Substitution builds dims, which asks questions; those are about parts that are rewritten already.
        if self.rewriting || self.bounds[d.index()].symbols & self.facts_symbols == 0 {
            return d;
        }
        self.rewriting = true;
        let d = self.replace_memo(d, Replace::Facts, &mut HashMap::new());
        self.rewriting = false;
        d
    }
    /// The dim built anew under all that is known by now; dims made before a fact was known do not use it.
    pub(crate) fn simplify(&mut self, d: Dim) -> Dim {
        let d = self.rewrite(d);
        // Deep nests are rare, and a rebuild asks questions at every level.
        if self.bounds[d.index()].depth > 8 {
            return d;
        }
        self.replace_memo(d, Replace::Nothing, &mut HashMap::new())
    }
    /// Whether anything is known beyond what was declared.
    pub(crate) fn has_facts(&self) -> bool {
        self.assumed
    }
    /// Whether two dims may depend on one symbol.
    pub(crate) fn share_symbols(&self, a: Dim, b: Dim) -> bool {
        self.bounds[a.index()].symbols & self.bounds[b.index()].symbols != 0
    }
    /// `d` with every occurrence of `from` replaced by `to`; `from` is a symbol, another atom or a whole dim.
    pub fn replace(&mut self, d: Dim, from: Dim, to: Dim) -> Dim {
        self.replace_memo(d, Replace::One(from, to), &mut HashMap::new())
    }
    fn replace_memo(&mut self, d: Dim, what: Replace, done: &mut HashMap<Dim, Dim>) -> Dim {
        let here = self.bounds[d.index()].symbols;
        let untouched = match what {
            Replace::One(from, to) if d == from => return to,
            Replace::One(from, _) => {
                let needed = self.bounds[from.index()].symbols;
                here & needed != needed
            }
            Replace::Facts => here & self.facts_symbols == 0,
            Replace::Nothing => false,
        };
        if untouched || self.as_const(d).is_some() {
            return d;
        }
        if let Some(&r) = done.get(&d) {
            return r;
        }
        let mut sum = Dim::ZERO;
        for t in self.poly(d).clone() {
            let mut p = self.constant(t.coeff);
            for f in &t.factors {
                let a = self.replace_atom(*f, what, done);
                p = self.mul(p, a);
            }
            sum = self.add(sum, p);
        }
        done.insert(d, sum);
        sum
    }
    fn replace_atom(&mut self, id: AtomId, what: Replace, done: &mut HashMap<Dim, Dim>) -> Dim {
        let atom = self.atoms[id.0 as usize];
        let whole = self.intern(poly::of_atom(id));
        match what {
            Replace::One(from, to) if whole == from => return to,
            Replace::Facts => {
                if let Some(&to) = self.equal.get(&id) {
                    return to;
                }
            }
            _ => {}
        }
        let Some((a, b)) = atom.operands() else { return whole };
        let (x, y) = (self.replace_memo(a, what, done), self.replace_memo(b, what, done));
        if (x, y) == (a, b) && !matches!(what, Replace::Nothing) {
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
}

impl DimTable {
    /// A dim of another table as a dim of this one; symbols are matched by name. `None` when this table lacks one of them.
    pub fn import(&mut self, other: &DimTable, d: Dim) -> Option<Dim> {
        self.import_as(other, d, &HashMap::new())
    }
    /// As [`DimTable::import`], with dims of this table in place of some symbols.
    pub fn import_as(&mut self, other: &DimTable, d: Dim, symbols: &HashMap<Symbol, Dim>) -> Option<Dim> {
        self.import_memo(other, d, symbols, &mut HashMap::new())
    }
    fn import_memo(
        &mut self,
        other: &DimTable,
        d: Dim,
        symbols: &HashMap<Symbol, Dim>,
        done: &mut HashMap<Dim, Dim>,
    ) -> Option<Dim> {
        if let Some(&r) = done.get(&d) {
            return Some(r);
        }
        let mut sum = Dim::ZERO;
        for t in other.poly(d) {
            let mut p = self.constant(t.coeff);
            for f in &t.factors {
                let atom = *other.atoms.get_index(f.0 as usize)?;
                let a = match atom.operands() {
                    Some((a, b)) => {
                        let x = self.import_memo(other, a, symbols, done)?;
                        let y = self.import_memo(other, b, symbols, done)?;
                        match atom {
                            Atom::FloorDiv(..) => self.floor_div(x, y),
                            Atom::Min(..) => self.min(x, y),
                            Atom::Max(..) => self.max(x, y),
                            Atom::Broadcast(..) => self.broadcast(x, y)?,
                            Atom::Eq(..) => self.eq(x, y),
                            Atom::Lt(..) => self.lt(x, y),
                            Atom::Sym(_) | Atom::Overflow => return None,
                        }
                    }
                    None => match atom {
                        Atom::Sym(s) if symbols.contains_key(&s) => symbols[&s],
                        Atom::Sym(s) => {
                            let name = other.symbol_name(s);
                            self.find_symbol(name)?;
                            self.symbol(name)
                        }
                        _ => return None,
                    },
                };
                p = self.mul(p, a);
            }
            sum = self.add(sum, p);
        }
        done.insert(d, sum);
        Some(sum)
    }
    /// The condition as a user would say it: `s % 4 == 0` for `s == 4*floordiv(s, 4)`.
    #[must_use]
    pub fn say_cond(&self, cond: CheckCond) -> String {
        let divides = |a: Dim, b: Dim| {
            let d = self.difference(a, b)?;
            d.iter().filter(|t| t.factors.len() == 1).find_map(|t| {
                let Atom::FloorDiv(a, n) = self.atoms[t.factors[0].0 as usize] else { return None };
                let c = self.as_const(n)?;
                let claim = poly::add(self.poly(a), &poly::scale(&poly::of_atom(t.factors[0]), c)?, -1)?;
                let same = d == claim || poly::scale(&claim, -1).as_ref() == Some(&d);
                let text = self.display(a).to_string();
                let text = if self.is_sum(a) { format!("({text})") } else { text };
                same.then(|| format!("{text} % {c} == 0"))
            })
        };
        match cond {
            CheckCond::Equal(a, b) => divides(a, b),
            _ => None,
        }
        .unwrap_or_else(|| self.display_cond(cond).to_string())
    }
    /// The symbols that dims depend on, each once.
    #[must_use]
    pub fn symbols_in(&self, dims: impl IntoIterator<Item = Dim>) -> Vec<Symbol> {
        let mut seen = vec![false; self.len()];
        let mut out = vec![false; self.symbols.len()];
        let mut todo: Vec<Dim> = dims.into_iter().collect();
        while let Some(d) = todo.pop() {
            if std::mem::replace(&mut seen[d.index()], true) {
                continue;
            }
            for f in self.poly(d).iter().flat_map(|t| &t.factors) {
                match self.atoms[f.0 as usize] {
                    Atom::Sym(s) => out[s.index()] = true,
                    atom => todo.extend(atom.operands().into_iter().flat_map(|(a, b)| [a, b])),
                }
            }
        }
        (0..out.len()).filter(|&i| out[i]).map(|i| Symbol(i as u32)).collect()
    }
}

fn widen(v: i64) -> i128 {
    match v {
        i64::MAX => INF,
        v if v <= i64::MIN + 1 => -INF,
        v => i128::from(v),
    }
}
pub(super) fn clamp(v: i128) -> i128 {
    v.clamp(-INF, INF)
}
fn mul_range(a: (i128, i128), b: (i128, i128)) -> (i128, i128) {
    let p = [a.0, a.1].map(|x| {
        [b.0, b.1].map(|y| x.checked_mul(y).map_or(if (x < 0) == (y < 0) { INF } else { -INF }, clamp))
    });
    let all = [p[0][0], p[0][1], p[1][0], p[1][1]];
    (all.iter().copied().min().unwrap_or(-INF), all.iter().copied().max().unwrap_or(INF))
}
