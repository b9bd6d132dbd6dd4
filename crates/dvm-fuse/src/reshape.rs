//! Reshapes: which axes of two shapes with the same elements correspond, and how an index moves between them.

use std::ops::Range;

use dvm_ir::{Dim, DimTable};
use smallvec::SmallVec;

use crate::affine::{Affine, Digits, Map, exact_div, mul, of_digits, same, to_digits};

/// Positions of the axes that are not provably of extent 1.
pub(crate) fn wide(shape: &[Dim]) -> SmallVec<[usize; 6]> {
    (0..shape.len()).filter(|&i| shape[i] != Dim::ONE).collect()
}

/// Runs of `us` and `vs` with provably equal products, as short as can be proved. What cannot be proved ends in the last
/// run; the graph checks its element count when dims are bound.
pub(crate) fn align(t: &mut DimTable, us: &[Dim], vs: &[Dim]) -> Vec<(Range<usize>, Range<usize>)> {
    let mut runs: Vec<(Range<usize>, Range<usize>)> = vec![];
    let (mut i, mut j) = (0, 0);
    while i < us.len() && j < vs.len() {
        let start = (i, j);
        let (mut pu, mut pv) = (us[i], vs[j]);
        (i, j) = (i + 1, j + 1);
        while !same(t, pu, pv) {
            let grow_u = i < us.len() && (exact_div(t, pv, pu).is_some() || j == vs.len());
            if grow_u || (i < us.len() && exact_div(t, pu, pv).is_none()) {
                pu = mul(t, pu, us[i]);
                i += 1;
            } else if j < vs.len() {
                pv = mul(t, pv, vs[j]);
                j += 1;
            } else {
                break;
            }
        }
        runs.push((start.0..i, start.1..j));
    }
    if i < us.len() || j < vs.len() {
        match runs.last_mut() {
            Some(r) => (r.0.end, r.1.end) = (us.len(), vs.len()),
            None => runs.push((0..us.len(), 0..vs.len())),
        }
    }
    runs
}

/// Why digits could not be regrouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Regroup {
    /// It works once this axis of the space is split into an outer and an inner axis.
    Split { axis: u8, outer: Dim, inner: Dim },
    /// The extents are not related in a provable way.
    Unrelated,
}

/// Distributes digits over axes of extents `dims` with the same product.
pub(crate) fn regroup(
    t: &mut DimTable,
    digits: &[u8],
    extents: &[Dim],
    dims: &[Dim],
) -> Result<SmallVec<[Digits; 4]>, Regroup> {
    let mut rest = digits.iter().copied().filter(|&d| extents[d as usize] != Dim::ONE).peekable();
    let mut out = SmallVec::new();
    for &dim in dims {
        let mut group = Digits::new();
        let mut left = dim;
        while left != Dim::ONE {
            let Some(&axis) = rest.peek() else { return Err(Regroup::Unrelated) };
            let x = extents[axis as usize];
            if same(t, x, left) {
                left = Dim::ONE;
            } else if let Some(q) = exact_div(t, left, x) {
                left = q;
            } else if let Some(inner) = exact_div(t, x, left) {
                return Err(Regroup::Split { axis, outer: left, inner });
            } else {
                return Err(Regroup::Unrelated);
            }
            group.push(axis);
            rest.next();
        }
        out.push(group);
    }
    if rest.next().is_some() { Err(Regroup::Unrelated) } else { Ok(out) }
}

/// The map of `u` where `v = reshape(u)` has the map `map`.
pub(crate) fn pull(
    t: &mut DimTable,
    map: &[Affine],
    us: &[Dim],
    vs: &[Dim],
    extents: &[Dim],
) -> Result<Map, Regroup> {
    let mut out: Map = SmallVec::from_elem(Affine::zero(), us.len());
    if us.contains(&Dim::ZERO) || vs.contains(&Dim::ZERO) {
        return Ok(out);
    }
    let (ui, vi) = (wide(us), wide(vs));
    let ud: SmallVec<[Dim; 6]> = ui.iter().map(|&i| us[i]).collect();
    let vd: SmallVec<[Dim; 6]> = vi.iter().map(|&i| vs[i]).collect();
    for (ur, vr) in align(t, &ud, &vd) {
        if ur.len() == 1 {
            let (mut e, mut stride) = (Affine::zero(), Dim::ONE);
            for k in vr.rev() {
                let term = map[vi[k]].scaled(t, stride);
                e = e.plus(t, &term);
                stride = mul(t, stride, vd[k]);
            }
            out[ui[ur.start]] = e;
            continue;
        }
        let mut digits = Digits::new();
        for k in vr {
            let d = to_digits(t, &map[vi[k]], vd[k], extents).ok_or(Regroup::Unrelated)?;
            digits.extend_from_slice(&d);
        }
        let groups = regroup(t, &digits, extents, &ud[ur.clone()])?;
        for (k, g) in ur.zip(groups) {
            out[ui[k]] = of_digits(t, &g, extents);
        }
    }
    Ok(out)
}

/// Strides of `v = reshape(u)` in the memory of `u`, when it is a strided view there.
pub(crate) fn strided(
    t: &mut DimTable,
    us: &[Dim],
    strides: &[Dim],
    vs: &[Dim],
) -> Option<SmallVec<[Dim; 4]>> {
    let mut out: SmallVec<[Dim; 4]> = SmallVec::from_elem(Dim::ZERO, vs.len());
    let (ui, vi) = (wide(us), wide(vs));
    let ud: SmallVec<[Dim; 6]> = ui.iter().map(|&i| us[i]).collect();
    let su: SmallVec<[Dim; 6]> = ui.iter().map(|&i| strides[i]).collect();
    let vd: SmallVec<[Dim; 6]> = vi.iter().map(|&i| vs[i]).collect();
    // One dense run needs no correspondence of axes at all.
    let runs =
        if merged(t, &ud, &su).is_some() { vec![(0..ud.len(), 0..vd.len())] } else { align(t, &ud, &vd) };
    for (ur, vr) in runs {
        let mut stride = if ur.is_empty() { Dim::ZERO } else { merged(t, &ud[ur.clone()], &su[ur])? };
        for k in vr.rev() {
            out[vi[k]] = stride;
            stride = mul(t, stride, vd[k]);
        }
    }
    Some(out)
}

/// The stride of the one axis that these axes are together.
fn merged(t: &mut DimTable, dims: &[Dim], strides: &[Dim]) -> Option<Dim> {
    for i in 1..dims.len() {
        if mul(t, strides[i], dims[i]) != strides[i - 1] {
            return None;
        }
    }
    strides.last().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dims from text: products of `b`, `s` and numbers.
    fn dims(t: &mut DimTable, s: &str) -> Vec<Dim> {
        let one = |t: &mut DimTable, w: &str| {
            w.split('*').fold(Dim::ONE, |p, f| {
                let f = match f.parse() {
                    Ok(n) => t.constant(n),
                    Err(_) => t.symbol(f),
                };
                t.mul(p, f)
            })
        };
        s.split_whitespace().map(|w| one(t, w)).collect()
    }

    #[test]
    fn runs_are_as_short_as_provable() {
        for (us, vs, want) in [
            ("b s 32", "b s 4 8", "0..1=0..1 1..2=1..2 2..3=2..4"),
            ("b s 4 8", "b*s 32", "0..2=0..1 2..4=1..2"),
            ("4 6", "6 4", "0..2=0..2"),
            ("b 12", "b*3 4", "0..2=0..2"),
            ("s", "b 4", "0..1=0..2"),
            ("b 2 s", "2*b s", "0..2=0..1 2..3=1..2"),
        ] {
            let mut t = DimTable::new();
            let (u, v) = (dims(&mut t, us), dims(&mut t, vs));
            let runs: Vec<String> =
                align(&mut t, &u, &v).iter().map(|(a, b)| format!("{a:?}={b:?}")).collect();
            assert_eq!(runs.join(" "), want, "{us} -> {vs}");
        }
    }

    #[test]
    fn strides_of_reshaped_views() {
        for (us, strides, vs, want) in [
            ("b s 32", "32*s 32 1", "b s 4 8", Some("32*s 32 8 1")),
            ("b s 32", "32*s 32 1", "b*s 32", Some("32 1")),
            ("b 4 s 8", "32*s 8 32 1", "b 4 s 8", Some("32*s 8 32 1")),
            ("b s 4 8", "32*s 8 8*s 1", "b s 32", None),
            ("s 6", "1 s", "s 2 3", Some("1 3*s s")),
            ("4 6", "1 4", "6 4", None),
            ("b 1 s", "s 7 1", "b*s", Some("1")),
        ] {
            let mut t = DimTable::new();
            let (u, st, v) = (dims(&mut t, us), dims(&mut t, strides), dims(&mut t, vs));
            let got = strided(&mut t, &u, &st, &v).map(|s| s.to_vec());
            assert_eq!(got, want.map(|w| dims(&mut t, w)), "{us} at {strides} -> {vs}");
        }
    }

    #[test]
    fn digits_regroup_or_say_what_to_split() {
        let (outer, inner) = (4, 8);
        for (extents, to, want) in [
            ("b s 4 8", "b s 32", Ok(vec![vec![0], vec![1], vec![2, 3]])),
            ("b 32", "b 4 8", Err(Some(1))),
            ("4 6", "6 4", Err(None)),
            ("b s", "b 1 s", Ok(vec![vec![0], vec![], vec![1]])),
        ] {
            let mut t = DimTable::new();
            let (e, d) = (dims(&mut t, extents), dims(&mut t, to));
            let digits: Digits = (0..e.len() as u8).collect();
            let got =
                regroup(&mut t, &digits, &e, &d).map(|g| g.iter().map(|x| x.to_vec()).collect::<Vec<_>>());
            let split = |axis| Regroup::Split { axis, outer: t.constant(outer), inner: t.constant(inner) };
            assert_eq!(got, want.map_err(|a| a.map_or(Regroup::Unrelated, split)), "{extents} -> {to}");
        }
    }
}
