//! Polynomials over atoms: sorted terms, sorted factors, no zero coefficients. `None` means overflow of a coefficient or
//! of the size limits, which a hostile graph could otherwise use to multiply sums into exponentially many terms.

use smallvec::SmallVec;

use super::AtomId;

/// Most terms of a dim.
const MAX_TERMS: usize = 1024;
/// Most factors of a term.
const MAX_FACTORS: usize = 32;

pub(super) type Factors = SmallVec<[AtomId; 2]>;
pub(super) type Poly = SmallVec<[Term; 2]>;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Term {
    pub(super) factors: Factors,
    pub(super) coeff: i64,
}

/// Constants sort last, so that dims read as `2*s + 1`.
fn cmp_factors(a: &[AtomId], b: &[AtomId]) -> std::cmp::Ordering {
    a.is_empty().cmp(&b.is_empty()).then_with(|| a.cmp(b))
}

pub(super) fn constant(c: i64) -> Poly {
    if c == 0 { Poly::new() } else { SmallVec::from_iter([Term { factors: Factors::new(), coeff: c }]) }
}

pub(super) fn of_atom(a: AtomId) -> Poly {
    SmallVec::from_iter([Term { factors: SmallVec::from_slice(&[a]), coeff: 1 }])
}

/// The constant term.
pub(super) fn constant_term(p: &Poly) -> i64 {
    p.last().filter(|t| t.factors.is_empty()).map_or(0, |t| t.coeff)
}

/// `p + sign * q`.
pub(super) fn add(p: &Poly, q: &Poly, sign: i64) -> Option<Poly> {
    let mut out = Poly::with_capacity(p.len() + q.len());
    let (mut i, mut j) = (0, 0);
    while i < p.len() || j < q.len() {
        let order = match (p.get(i), q.get(j)) {
            (Some(a), Some(b)) => cmp_factors(&a.factors, &b.factors),
            (Some(_), None) => std::cmp::Ordering::Less,
            _ => std::cmp::Ordering::Greater,
        };
        let mut coeff = 0i64;
        let factors = if order.is_le() { &p[i].factors } else { &q[j].factors };
        if order.is_le() {
            coeff = p[i].coeff;
            i += 1;
        }
        if order.is_ge() {
            coeff = coeff.checked_add(q[j].coeff.checked_mul(sign)?)?;
            j += 1;
        }
        if coeff != 0 {
            out.push(Term { factors: factors.clone(), coeff });
        }
    }
    (out.len() <= MAX_TERMS).then_some(out)
}

/// `p * q`; powers of atoms for which `idempotent` holds are those atoms.
pub(super) fn mul(p: &Poly, q: &Poly, idempotent: impl Fn(AtomId) -> bool) -> Option<Poly> {
    if p.len() * q.len() > MAX_TERMS {
        return None;
    }
    let mut terms: Vec<Term> = Vec::with_capacity(p.len() * q.len());
    for x in p {
        for y in q {
            let mut factors = x.factors.clone();
            factors.extend_from_slice(&y.factors);
            factors.sort_unstable();
            factors.dedup_by(|s, t| s == t && idempotent(*s));
            if factors.len() > MAX_FACTORS {
                return None;
            }
            terms.push(Term { factors, coeff: x.coeff.checked_mul(y.coeff)? });
        }
    }
    terms.sort_by(|a, b| cmp_factors(&a.factors, &b.factors));
    let mut out = Poly::with_capacity(terms.len());
    for t in terms {
        match out.last_mut() {
            Some(last) if last.factors == t.factors => last.coeff = last.coeff.checked_add(t.coeff)?,
            _ => out.push(t),
        }
    }
    out.retain(|t| t.coeff != 0);
    Some(out)
}

pub(super) fn scale(p: &Poly, by: i64) -> Option<Poly> {
    if by == 0 {
        return Some(Poly::new());
    }
    p.iter().map(|t| Some(Term { factors: t.factors.clone(), coeff: t.coeff.checked_mul(by)? })).collect()
}

/// Greatest common divisor of the coefficients of all terms but the constant; 0 for a constant.
pub(super) fn content(p: &Poly) -> i64 {
    let g = p.iter().filter(|t| !t.factors.is_empty()).fold(0, |g, t| gcd(g, t.coeff.unsigned_abs()));
    i64::try_from(g).unwrap_or(1)
}

fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// `(q, r)` with `p = by * q + r`, where r has the terms that the monomial `by` does not divide exactly.
pub(super) fn divide(p: &Poly, by: &Term) -> (Poly, Poly) {
    let (mut quotient, mut rest) = (Poly::new(), Poly::new());
    for t in p {
        match divide_term(t, by) {
            Some(q) => quotient.push(q),
            None => rest.push(t.clone()),
        }
    }
    // Dividing every term by one monomial keeps equal terms apart, but not their order.
    quotient.sort_by(|a, b| cmp_factors(&a.factors, &b.factors));
    (quotient, rest)
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

/// `(c, r)` with `p = c * atom + r` and neither holding the atom; `None` where it has a power.
pub(super) fn split(p: &Poly, atom: AtomId) -> Option<(Poly, Poly)> {
    let (mut with, mut without) = (Poly::new(), Poly::new());
    for t in p {
        match t.factors.iter().filter(|&&f| f == atom).count() {
            0 => without.push(t.clone()),
            1 => {
                let factors = t.factors.iter().copied().filter(|&f| f != atom).collect();
                with.push(Term { factors, coeff: t.coeff });
            }
            _ => return None,
        }
    }
    with.sort_by(|a, b| cmp_factors(&a.factors, &b.factors));
    Some((with, without))
}
