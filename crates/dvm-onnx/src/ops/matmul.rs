//! Matrix products and contractions.

use dvm_ir::{BinaryOp as B, CheckCond, DType, Dim};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid, unsupported};
use crate::value::V;

pub(super) const ROWS: &[OpRow] = &[
    op!("Einsum", 12, einsum),
    op!("Gemm", 1, gemm),
    op!("MatMul", 1, matmul),
    op!("MatMulInteger", 10, matmul_integer),
    op!("com.microsoft": "FusedMatMul", fused_matmul),
];

fn matmul(c: &mut Cx<'_, '_>) -> Outs {
    let (a, b) = (c.input(0)?, c.input(1)?);
    Ok(vec![c.numpy_matmul(a, b)?])
}

impl Cx<'_, '_> {
    /// `numpy.matmul`: vectors become matrices and lose the extra axis afterwards.
    pub(super) fn numpy_matmul(&mut self, a: V, b: V) -> Result<V, Fail> {
        let (sa, sb) = (self.shape(a), self.shape(b));
        if sa.is_empty() || sb.is_empty() {
            return invalid("an operand has rank 0");
        }
        let (mut x, mut y) = (a, b);
        if sa.len() == 1 {
            x = self.reshape(a, vec![Dim::ONE, sa[0]])?;
        }
        if sb.len() == 1 {
            y = self.reshape(b, vec![sb[0], Dim::ONE])?;
        }
        let out = self.matmul(x, y, false, false)?;
        let mut shape = self.shape(out);
        let rank = shape.len();
        if sb.len() == 1 {
            shape.remove(rank - 1);
        }
        if sa.len() == 1 {
            shape.remove(rank - 2);
        }
        self.reshape(out, shape)
    }
    fn scaled(&mut self, x: V, by: f64) -> Result<V, Fail> {
        if by == 1.0 {
            return Ok(x);
        }
        let dtype = self.dtype(x);
        if dtype.is_float() {
            return self.with(B::Mul, x, by);
        }
        // Integers are scaled as reals.
        let wide = self.cast(x, DType::F64)?;
        let wide = self.with(B::Mul, wide, by)?;
        self.cast(wide, dtype)
    }
}

fn gemm(c: &mut Cx<'_, '_>) -> Outs {
    let (a, b) = (c.input(0)?, c.input(1)?);
    let (alpha, beta) = (c.float_or("alpha", 1.0)?, c.float_or("beta", 1.0)?);
    let (ta, tb) = (c.flag("transA", false)?, c.flag("transB", false)?);
    if c.rank(a) != 2 || c.rank(b) != 2 {
        return invalid(format!("operands of rank {} and {}, must be 2", c.rank(a), c.rank(b)));
    }
    let y = c.matmul(a, b, ta, tb)?;
    let y = c.scaled(y, alpha)?;
    match c.opt(2) {
        Some(bias) if beta != 0.0 => {
            let shape = c.shape(y);
            let bias = c.scaled(bias, beta)?;
            let out = c.add(y, bias)?;
            if c.rank(out) != shape.len() {
                return invalid("the third operand has more axes than the product");
            }
            Ok(vec![out])
        }
        _ => Ok(vec![y]),
    }
}

fn fused_matmul(c: &mut Cx<'_, '_>) -> Outs {
    let (a, b) = (c.input(0)?, c.input(1)?);
    if c.flag("transBatchA", false)? || c.flag("transBatchB", false)? {
        return unsupported("transposed batch axes");
    }
    let (ta, tb) = (c.flag("transA", false)?, c.flag("transB", false)?);
    let y = if c.rank(a) >= 2 && c.rank(b) >= 2 { c.matmul(a, b, ta, tb)? } else { c.numpy_matmul(a, b)? };
    let alpha = c.float_or("alpha", 1.0)?;
    Ok(vec![c.scaled(y, alpha)?])
}

/// Integer operands less their zero points, in i32.
fn matmul_integer(c: &mut Cx<'_, '_>) -> Outs {
    let (a, b) = (c.input(0)?, c.input(1)?);
    let wide = |c: &mut Cx<'_, '_>, x: V, zero: Option<V>, column: bool| {
        let x = c.cast(x, DType::I32)?;
        let Some(z) = zero else { return Ok(x) };
        let mut z = c.cast(z, DType::I32)?;
        if column && c.rank(z) == 1 {
            // One zero point a row.
            let n = c.shape(z)[0];
            z = c.reshape(z, vec![n, Dim::ONE])?;
        }
        c.sub(x, z)
    };
    let (za, zb) = (c.opt(2), c.opt(3));
    let x = wide(c, a, za, true)?;
    let y = wide(c, b, zb, false)?;
    Ok(vec![c.numpy_matmul(x, y)?])
}

/// Terms over one or two operands at a time: axes that only one operand has and the result lacks are summed first, the
/// rest is one batched matrix product.
fn einsum(c: &mut Cx<'_, '_>) -> Outs {
    let Some(equation) = c.string("equation")? else { return invalid("attribute `equation` is missing") };
    let equation: String = equation.chars().filter(|c| !c.is_whitespace()).collect();
    let operands = c.inputs()?;
    let (left, right) = match equation.split_once("->") {
        Some((l, r)) => (l, Some(r)),
        None => (equation.as_str(), None),
    };
    let terms: Vec<&str> = left.split(',').collect();
    if terms.len() != operands.len() {
        return invalid(format!("{} terms for {} operands", terms.len(), operands.len()));
    }
    let wide = terms
        .iter()
        .zip(&operands)
        .filter(|(t, _)| t.contains("..."))
        .map(|(t, &v)| (c.rank(v) + 3).saturating_sub(t.chars().count()));
    let ellipsis = wide.max().unwrap_or(0);
    let mut labelled = vec![];
    for (t, &v) in terms.iter().zip(&operands) {
        let labels = labels(t, c.rank(v), ellipsis)?;
        if labels.len() != c.rank(v) {
            return invalid(format!("term \"{t}\" has {} indices for rank {}", labels.len(), c.rank(v)));
        }
        labelled.push(diagonal(c, v, labels)?);
    }
    let out = match right {
        Some(r) => {
            let n = if r.contains("...") { ellipsis } else { 0 };
            labels(r, r.chars().count().saturating_sub(3) + n, ellipsis)?
        }
        None => {
            // Indices that occur once, in alphabetical order, after the ellipsis.
            let all: Vec<char> = labelled.iter().flat_map(|(_, l)| l.iter().copied()).collect();
            let mut once: Vec<char> = all
                .iter()
                .copied()
                .filter(|&x| x.is_ascii() && all.iter().filter(|&&y| y == x).count() == 1)
                .collect();
            once.sort_unstable();
            (0..ellipsis).map(ellipsis_label).chain(once).collect()
        }
    };
    let mut rest = labelled.into_iter();
    let Some(mut acc) = rest.next() else { return invalid("it has no operands") };
    let mut pending: Vec<(V, Vec<char>)> = rest.collect();
    while !pending.is_empty() {
        let next = pending.remove(0);
        let later: Vec<char> =
            pending.iter().flat_map(|(_, l)| l.clone()).chain(out.iter().copied()).collect();
        acc = contract(c, acc, next, &later)?;
    }
    let (v, labels) = sum_others(c, acc, &out)?;
    let mut perm = vec![];
    for l in &out {
        match labels.iter().position(|x| x == l) {
            Some(p) => perm.push(p),
            None => return invalid(format!("index {l:?} of the result is in no term")),
        }
    }
    Ok(vec![c.transpose(v, perm)?])
}

/// An index that repeats within a term takes the diagonal: the other elements become 0 and are summed away.
fn diagonal(c: &mut Cx<'_, '_>, mut v: V, mut labels: Vec<char>) -> Result<(V, Vec<char>), Fail> {
    while let Some(i) = (1..labels.len()).find(|&i| labels[..i].contains(&labels[i])) {
        let first = labels.iter().position(|&l| l == labels[i]).unwrap_or(0);
        let shape = c.shape(v);
        c.assume(CheckCond::Equal(shape[first], shape[i]), &format!("extents of index {:?}", labels[i]))?;
        let steps = c.iota(shape[i], DType::I64)?;
        let (a, b) = (c.place_at(steps, first, shape.len())?, c.place_at(steps, i, shape.len())?);
        let on = c.binary(B::Eq, a, b)?;
        let zero = c.scalar(c.dtype(v), 0.0);
        let kept = c.select(on, v, zero)?;
        v = c.reduce(dvm_ir::ReduceOp::Sum, kept, &[i], false)?;
        labels.remove(i);
    }
    Ok((v, labels))
}

fn ellipsis_label(i: usize) -> char {
    char::from_u32(0x2460 + i as u32).unwrap_or('\u{2460}')
}

/// Index letters of a term, with the ellipsis written out (right-aligned).
fn labels(term: &str, rank: usize, ellipsis: usize) -> Result<Vec<char>, Fail> {
    let mut out = vec![];
    let (before, after) = match term.split_once("...") {
        Some((b, a)) => (b, Some(a)),
        None => (term, None),
    };
    out.extend(before.chars());
    if let Some(after) = after {
        let own = rank.saturating_sub(before.chars().count() + after.chars().count()).min(ellipsis);
        out.extend((ellipsis - own..ellipsis).map(ellipsis_label));
        out.extend(after.chars());
    }
    match out.iter().find(|l| !l.is_ascii_alphabetic() && l.is_ascii()) {
        Some(l) => invalid(format!("index {l:?} in term \"{term}\"")),
        None => Ok(out),
    }
}

/// Sums the axes that nobody needs any more.
fn sum_others(
    c: &mut Cx<'_, '_>,
    (v, labels): (V, Vec<char>),
    keep: &[char],
) -> Result<(V, Vec<char>), Fail> {
    let axes: Vec<usize> = (0..labels.len()).filter(|&i| !keep.contains(&labels[i])).collect();
    if axes.is_empty() {
        return Ok((v, labels));
    }
    let kept = labels.iter().copied().filter(|l| keep.contains(l)).collect();
    Ok((c.reduce(dvm_ir::ReduceOp::Sum, v, &axes, false)?, kept))
}

fn contract(
    c: &mut Cx<'_, '_>,
    a: (V, Vec<char>),
    b: (V, Vec<char>),
    later: &[char],
) -> Result<(V, Vec<char>), Fail> {
    let keep_a: Vec<char> = later.iter().chain(&b.1).copied().collect();
    let keep_b: Vec<char> = later.iter().chain(&a.1).copied().collect();
    let (a, la) = sum_others(c, a, &keep_a)?;
    let (b, lb) = sum_others(c, b, &keep_b)?;
    let both = |l: &char| la.contains(l) && lb.contains(l);
    let batch: Vec<char> = la.iter().copied().filter(|l| both(l) && later.contains(l)).collect();
    let inner: Vec<char> = la.iter().copied().filter(|l| both(l) && !later.contains(l)).collect();
    let rows: Vec<char> = la.iter().copied().filter(|l| !lb.contains(l)).collect();
    let cols: Vec<char> = lb.iter().copied().filter(|l| !la.contains(l)).collect();
    let result: Vec<char> = [&batch[..], &rows, &cols].concat();
    let order = |labels: &[char], want: &[&[char]]| -> Vec<usize> {
        want.concat().iter().filter_map(|l| labels.iter().position(|x| x == l)).collect()
    };
    let x = c.transpose(a, order(&la, &[&batch, &rows, &inner]))?;
    let y = c.transpose(b, order(&lb, &[&batch, &inner, &cols]))?;
    let (sx, sy) = (c.shape(x), c.shape(y));
    let n = batch.len();
    let (row_dims, col_dims) = (sx[n..n + rows.len()].to_vec(), sy[n + inner.len()..].to_vec());
    if inner.is_empty() {
        // An outer product.
        let mut wide = sx.clone();
        wide.extend(vec![Dim::ONE; cols.len()]);
        let x = c.reshape(x, wide)?;
        let mut mid = sy[..n].to_vec();
        mid.extend(vec![Dim::ONE; rows.len()]);
        mid.extend(&col_dims);
        let y = c.reshape(y, mid)?;
        return Ok((c.mul(x, y)?, result));
    }
    let dims = c.dims();
    let (m, k1) = (dims.product(&row_dims), dims.product(&sx[n + rows.len()..]));
    let (k2, w) = (dims.product(&sy[n..n + inner.len()]), dims.product(&col_dims));
    let x = c.reshape(x, [&sx[..n], &[m, k1]].concat())?;
    let y = c.reshape(y, [&sy[..n], &[k2, w]].concat())?;
    let z = c.matmul(x, y, false, false)?;
    let shape = [&c.shape(z)[..n], &row_dims, &col_dims].concat();
    Ok((c.reshape(z, shape)?, result))
}
