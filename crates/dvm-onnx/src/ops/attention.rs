//! Attention and rotary embeddings, as ONNX and exporters of transformers write them, in terms of products and a softmax.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, PadMode, ReduceOp as R, Scalar, UnaryOp as U};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid, unsupported};
use crate::value::{Nd, V};

pub(super) const ROWS: &[OpRow] = &[
    op!("Attention", 23, attention),
    op!("RotaryEmbedding", 23, rotary),
    op!("com.microsoft": "Attention", packed_attention),
    op!("com.microsoft": "GroupQueryAttention", group_query_attention),
    op!("com.microsoft": "MultiHeadAttention", multi_head_attention),
    op!("com.microsoft": "RotaryEmbedding", rotary_microsoft),
];

/// `[batch, length, heads * size]` to `[batch, heads, length, size]`.
fn split_heads(c: &mut Cx<'_, '_>, x: V, heads: Dim) -> Result<V, Fail> {
    let [batch, length, hidden] = c.shape(x)[..] else {
        return invalid(format!("an operand of rank {}, must be 3", c.rank(x)));
    };
    let size = c.dims().floor_div(hidden, heads);
    let x = c.reshape(x, vec![batch, length, heads, size])?;
    c.transpose(x, vec![0, 2, 1, 3])
}

/// The way back.
fn join_heads(c: &mut Cx<'_, '_>, x: V) -> Result<V, Fail> {
    let x = c.transpose(x, vec![0, 2, 1, 3])?;
    let [batch, length, heads, size] = c.shape(x)[..] else { return invalid("rank of the result") };
    let hidden = c.dims().mul(heads, size);
    c.reshape(x, vec![batch, length, hidden])
}

/// Heads of k or v, each as often as heads of q share it.
fn repeat_heads(c: &mut Cx<'_, '_>, x: V, heads: Dim) -> Result<V, Fail> {
    let [batch, own, length, size] = c.shape(x)[..] else { return invalid("rank of k or v, must be 4") };
    if own == heads {
        return Ok(x);
    }
    let times = match (c.dims().as_const(own), c.dims().as_const(heads)) {
        (Some(a), Some(b)) if a > 0 && b % a == 0 => b / a,
        (Some(a), Some(b)) => return invalid(format!("{b} heads of q for {a} of k")),
        _ => return Err(c.imp.undecided_by(&[own, heads])),
    };
    let times = c.num(times);
    let x = c.reshape(x, vec![batch, own, Dim::ONE, length, size])?;
    let x = c.expand(x, vec![batch, own, times, length, size])?;
    c.reshape(x, vec![batch, heads, length, size])
}

/// What is attended to: a bool and an additive mask, each broadcasting to `[batch, heads, rows, columns]`.
#[derive(Clone, Copy, Default)]
struct Mask {
    allowed: Option<V>,
    bias: Option<V>,
}

impl Mask {
    fn and(&mut self, c: &mut Cx<'_, '_>, more: V) -> Result<(), Fail> {
        self.allowed = Some(match self.allowed {
            Some(a) => c.binary(B::And, a, more)?,
            None => more,
        });
        Ok(())
    }
    fn add(&mut self, c: &mut Cx<'_, '_>, more: V) -> Result<(), Fail> {
        self.bias = Some(match self.bias {
            Some(b) => c.add(b, more)?,
            None => more,
        });
        Ok(())
    }
    /// One additive mask of a dtype.
    fn joined(self, c: &mut Cx<'_, '_>, dtype: DType) -> Result<Option<V>, Fail> {
        let Some(allowed) = self.allowed else { return Ok(self.bias) };
        let never = c.scalar(dtype, f64::NEG_INFINITY);
        let bias = match self.bias {
            Some(b) => b,
            None => c.scalar(dtype, 0.0),
        };
        Ok(Some(c.select(allowed, bias, never)?))
    }
}

/// Positions of rows: `start + i`, `[rows, 1]`, or with a start per batch `[batch, 1, rows, 1]`.
fn positions(c: &mut Cx<'_, '_>, start: Dim, per_batch: Option<V>, rows: Dim) -> Result<V, Fail> {
    let i = c.push(Op::Range { start, step: Dim::ONE, len: rows, dtype: DType::I64 }, &[])?;
    let i = c.reshape(i, vec![rows, Dim::ONE])?;
    let Some(offset) = per_batch else { return Ok(i) };
    let offset = c.place(offset, 0, 4)?;
    c.add(i, offset)
}

/// Rows see columns up to their own position, or a window around it.
fn band(
    c: &mut Cx<'_, '_>,
    mask: &mut Mask,
    at: V,
    columns: Dim,
    before: i64,
    after: i64,
) -> Result<(), Fail> {
    let j = c.iota(columns, DType::I64)?;
    if after >= 0 {
        let last = c.with(B::Add, at, after as f64)?;
        let seen = c.binary(B::Le, j, last)?;
        mask.and(c, seen)?;
    }
    if before >= 0 {
        let first = c.with(B::Sub, at, before as f64)?;
        let seen = c.binary(B::Ge, j, first)?;
        mask.and(c, seen)?;
    }
    Ok(())
}

struct Scores {
    scale: f64,
    softcap: f64,
    /// Dtype of the softmax.
    precision: Option<DType>,
    /// Which scores are a result.
    mode: i64,
    /// A row without any column gives zeros rather than NaN.
    guard: bool,
}

/// `softmax(q k^T) v` and the scores asked for.
fn attend(c: &mut Cx<'_, '_>, [q, k, v]: [V; 3], mask: Mask, s: &Scores) -> Result<(V, V), Fail> {
    let dtype = c.dtype(q);
    let heads = c.shape(q)[1];
    let (k, v) = (repeat_heads(c, k, heads)?, repeat_heads(c, v, heads)?);
    let root = s.scale.sqrt();
    let (q, k) = (c.with(B::Mul, q, root)?, c.with(B::Mul, k, root)?);
    let mut x = c.matmul(q, k, false, true)?;
    if s.softcap > 0.0 {
        let y = c.with(B::Div, x, s.softcap)?;
        let y = c.unary(U::Tanh, y)?;
        x = c.with(B::Mul, y, s.softcap)?;
    }
    let mut shown = x;
    let bias = mask.joined(c, dtype)?;
    if let Some(b) = bias {
        x = c.add(x, b)?;
    }
    if s.mode == 2 {
        shown = x;
    }
    let wide = match s.precision {
        Some(p) => c.cast(x, p)?,
        None => x,
    };
    let axis = c.rank(wide) - 1;
    let mut p = c.push(Op::Softmax { axis }, &[wide])?;
    p = c.cast(p, dtype)?;
    if let (true, Some(b)) = (s.guard, bias) {
        let axis = c.rank(b).saturating_sub(1);
        let top = if c.rank(b) == 0 { b } else { c.reduce(R::Max, b, &[axis], true)? };
        let never = c.scalar(dtype, f64::NEG_INFINITY);
        let empty = c.binary(B::Eq, top, never)?;
        let zero = c.scalar(dtype, 0.0);
        p = c.select(empty, zero, p)?;
    }
    if s.mode == 3 {
        shown = p;
    }
    Ok((c.matmul(p, v, false, false)?, shown))
}

fn attention(c: &mut Cx<'_, '_>) -> Outs {
    let (mut q, mut k, mut v) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let flat = c.rank(q) == 3;
    if flat {
        let heads = |c: &Cx<'_, '_>, name: &str| match c.int(name)? {
            Some(n) if n > 0 => Ok(n),
            n => invalid(format!("{name} = {n:?}")),
        };
        let (hq, hk) = (heads(c, "q_num_heads")?, heads(c, "kv_num_heads")?);
        let (hq, hk) = (c.num(hq), c.num(hk));
        (q, k, v) = (split_heads(c, q, hq)?, split_heads(c, k, hk)?, split_heads(c, v, hk)?);
    } else if c.rank(q) != 4 {
        return invalid(format!("rank {}, must be 3 or 4", c.rank(q)));
    }
    let mut past = Dim::ZERO;
    if let (Some(pk), Some(pv)) = (c.opt(4), c.opt(5)) {
        past = c.shape(pk).get(2).copied().unwrap_or(Dim::ZERO);
        k = c.push(Op::Concat { axis: 2 }, &[pk, k])?;
        v = c.push(Op::Concat { axis: 2 }, &[pv, v])?;
    }
    let (rows, columns) = (c.shape(q)[2], c.shape(k)[2]);
    let mut mask = Mask::default();
    if let Some(m) = c.opt(3) {
        let m = widened(c, m, columns)?;
        if c.dtype(m) == DType::Bool { mask.and(c, m)? } else { mask.add(c, m)? }
    }
    let nonpad = match c.opt(6) {
        Some(n) => Some(c.cast(n, DType::I64)?),
        None => None,
    };
    let per_batch = match nonpad {
        Some(n) => {
            let rows = c.imp.of_nd(DType::I64, Nd::scalar(rows));
            Some(c.sub(n, rows)?)
        }
        None => None,
    };
    let causal = c.flag("is_causal", false)?;
    let (left, right) = (c.int_or("left_window_size", -1)?, c.int_or("right_window_size", -1)?);
    if causal || left >= 0 || right >= 0 {
        let at = positions(c, past, per_batch, rows)?;
        let after = match (causal, right) {
            (true, r) if r >= 0 => r.min(0),
            (true, _) => 0,
            (false, r) => r,
        };
        band(c, &mut mask, at, columns, left, after)?;
    }
    if let Some(n) = nonpad {
        let j = c.iota(columns, DType::I64)?;
        let n = c.place(n, 0, 4)?;
        let seen = c.binary(B::Lt, j, n)?;
        mask.and(c, seen)?;
    }
    let scale = match c.float("scale")? {
        Some(s) => s,
        None => default_scale(c, q)?,
    };
    let precision = c.dtype_attr("softmax_precision")?;
    // Causal rows alone always see something.
    let guard = c.opt(3).is_some() || nonpad.is_some() || left >= 0;
    let mode = c.int_or("qk_matmul_output_mode", 0)?;
    let softcap = c.float_or("softcap", 0.0)?;
    let s = Scores { scale, softcap, precision, mode, guard };
    let (mut y, shown) = attend(c, [q, k, v], mask, &s)?;
    if flat {
        y = join_heads(c, y)?;
    }
    Ok(vec![y, k, v, shown])
}

/// A mask whose columns end early hides the others.
fn widened(c: &mut Cx<'_, '_>, m: V, columns: Dim) -> Result<V, Fail> {
    let shape = c.shape(m);
    let Some((&own, _)) = shape.split_last() else { return Ok(m) };
    if own == columns {
        return Ok(m);
    }
    let mut after = vec![Dim::ZERO; shape.len()];
    let lack = c.dims().sub(columns, own);
    if let Some(a) = after.last_mut() {
        *a = lack;
    }
    let value = if c.dtype(m) == DType::Bool { Scalar::Int(0) } else { Scalar::Float(f64::NEG_INFINITY) };
    let before = vec![Dim::ZERO; shape.len()];
    c.push(Op::Pad { before, after, mode: PadMode::Constant, value }, &[m])
}

fn default_scale(c: &mut Cx<'_, '_>, q: V) -> Result<f64, Fail> {
    let size = c.shape(q)[3];
    match c.dims().as_const(size) {
        Some(n) if n > 0 => Ok(1.0 / (n as f64).sqrt()),
        Some(n) => invalid(format!("heads of {n} elements")),
        None => Err(c.imp.undecided_by(&[size])),
    }
}

/// Rotates pairs of the first `width` elements of each head of `[batch, length, heads, size]` by angles `[.., length, width / 2]`.
fn rotate(
    c: &mut Cx<'_, '_>,
    x: V,
    cos: V,
    sin: V,
    interleaved: bool,
    width: Option<Dim>,
) -> Result<V, Fail> {
    let shape = c.shape(x);
    let width = width.unwrap_or(shape[3]);
    let two = c.num(2);
    let half = c.dims().floor_div(width, two);
    let mut angles = [cos, sin];
    for a in &mut angles {
        // A heads axis before the last.
        let mut wide = c.shape(*a);
        let at = wide.len().saturating_sub(1);
        wide.insert(at, Dim::ONE);
        *a = c.reshape(*a, wide)?;
    }
    let [cos, sin] = angles;
    let turned = c.slice_axis(x, 3, Dim::ZERO, width)?;
    let pairs = [&shape[..3], &if interleaved { [half, two] } else { [two, half] }].concat();
    let split = c.reshape(turned, pairs)?;
    let axis = if interleaved { 4 } else { 3 };
    let part = |c: &mut Cx<'_, '_>, i: i64| {
        let at = c.num(i);
        let p = c.slice_axis(split, axis, at, Dim::ONE)?;
        let flat = [&shape[..3], &[half]].concat();
        c.reshape(p, flat)
    };
    let (a, b) = (part(c, 0)?, part(c, 1)?);
    let (ca, sb, sa, cb) = (c.mul(cos, a)?, c.mul(sin, b)?, c.mul(sin, a)?, c.mul(cos, b)?);
    let (real, imaginary) = (c.sub(ca, sb)?, c.add(sa, cb)?);
    let own = c.shape(real);
    let mut one = own.clone();
    one.insert(axis, Dim::ONE);
    let (real, imaginary) = (c.reshape(real, one.clone())?, c.reshape(imaginary, one)?);
    let y = c.push(Op::Concat { axis }, &[real, imaginary])?;
    let y = c.reshape(y, [&own[..3], &[width]].concat())?;
    if width == shape[3] {
        return Ok(y);
    }
    let rest = c.dims().sub(shape[3], width);
    let kept = c.slice_axis(x, 3, width, rest)?;
    c.push(Op::Concat { axis: 3 }, &[y, kept])
}

/// `[batch, length, hidden]` or `[batch, heads, length, size]` as `[batch, length, heads, size]`.
fn by_position(c: &mut Cx<'_, '_>, x: V, heads: Option<Dim>) -> Result<V, Fail> {
    let shape = c.shape(x);
    match (shape.len(), heads) {
        (4, _) => c.transpose(x, vec![0, 2, 1, 3]),
        (3, Some(h)) => {
            let size = c.dims().floor_div(shape[2], h);
            c.reshape(x, vec![shape[0], shape[1], h, size])
        }
        (3, None) => invalid("num_heads is missing"),
        (r, _) => invalid(format!("rank {r}, must be 3 or 4")),
    }
}

fn rotary(c: &mut Cx<'_, '_>) -> Outs {
    let (x, mut cos, mut sin) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let heads = c.int("num_heads")?.filter(|&n| n > 0).map(|n| c.num(n));
    if let Some(at) = c.opt(3) {
        cos = c.push(Op::Gather { axis: 0 }, &[cos, at])?;
        sin = c.push(Op::Gather { axis: 0 }, &[sin, at])?;
    }
    let shape = c.shape(x);
    let y = by_position(c, x, heads)?;
    let width = c.int("rotary_embedding_dim")?.filter(|&n| n > 0).map(|n| c.num(n));
    let interleaved = c.flag("interleaved", false)?;
    let y = rotate(c, y, cos, sin, interleaved, width)?;
    Ok(vec![if shape.len() == 4 { c.transpose(y, vec![0, 2, 1, 3])? } else { c.reshape(y, shape)? }])
}

/// As ONNX's, with positions before the caches: one a token, or the first one.
fn rotary_microsoft(c: &mut Cx<'_, '_>) -> Outs {
    let (x, at, cos, sin) = (c.input(0)?, c.input(1)?, c.input(2)?, c.input(3)?);
    let shape = c.shape(x);
    let width = c.int("rotary_embedding_dim")?.filter(|&n| n > 0);
    let two = c.num(2);
    let turned = match width {
        Some(n) => c.num(n),
        None => {
            let half = c.shape(cos)[1];
            c.dims().mul(half, two)
        }
    };
    let heads = match c.int("num_heads")?.filter(|&n| n > 0) {
        Some(n) => Some(c.num(n)),
        None if shape.len() == 3 => Some(c.dims().floor_div(shape[2], turned)),
        None => None,
    };
    let y = by_position(c, x, heads)?;
    let length = c.shape(y)[1];
    let at = c.cast(at, DType::I64)?;
    let at = if c.rank(at) == 1 {
        let steps = c.iota(length, DType::I64)?;
        c.add(steps, at)?
    } else {
        at
    };
    let (cos, sin) =
        (c.push(Op::Gather { axis: 0 }, &[cos, at])?, c.push(Op::Gather { axis: 0 }, &[sin, at])?);
    let interleaved = c.flag("interleaved", false)?;
    let y = rotate(c, y, cos, sin, interleaved, Some(turned))?;
    Ok(vec![if shape.len() == 4 { c.transpose(y, vec![0, 2, 1, 3])? } else { c.reshape(y, shape)? }])
}

fn heads_attr(c: &mut Cx<'_, '_>, name: &str) -> Result<Dim, Fail> {
    match c.int(name)? {
        Some(n) if n > 0 => Ok(c.num(n)),
        n => invalid(format!("{name} = {n:?}")),
    }
}

/// A mask of 0 and 1 by column, `[batch, columns]`, as what is added to scores.
fn padding(c: &mut Cx<'_, '_>, mask: &mut Mask, m: V, dtype: DType) -> Result<(), Fail> {
    if c.rank(m) != 2 {
        return unsupported(format!("a mask of rank {}", c.rank(m)));
    }
    let shape = c.shape(m);
    let m = c.cast(m, DType::Bool)?;
    let m = c.reshape(m, vec![shape[0], Dim::ONE, Dim::ONE, shape[1]])?;
    let (keep, hide) = (c.scalar(dtype, 0.0), c.float_or("mask_filter_value", -10000.0)?);
    let hide = c.scalar(dtype, hide);
    let bias = c.select(m, keep, hide)?;
    mask.add(c, bias)
}

fn scores(c: &mut Cx<'_, '_>, q: V) -> Result<Scores, Fail> {
    let scale = match c.float("scale")?.filter(|&s| s != 0.0) {
        Some(s) => s,
        None => default_scale(c, q)?,
    };
    let softcap = c.float_or("softcap", 0.0)?;
    Ok(Scores { scale, softcap, precision: None, mode: 0, guard: false })
}

/// Projections and attention in one.
fn packed_attention(c: &mut Cx<'_, '_>) -> Outs {
    let (x, w) = (c.input(0)?, c.input(1)?);
    let heads = heads_attr(c, "num_heads")?;
    let mut y = c.matmul(x, w, false, false)?;
    if let Some(b) = c.opt(2) {
        y = c.add(y, b)?;
    }
    let sizes = c.ints("qkv_hidden_sizes")?;
    let whole = c.shape(y)[2];
    let mut parts = vec![];
    let mut start = Dim::ZERO;
    for i in 0..3 {
        let n = match &sizes {
            Some(s) if s.len() == 3 => c.num(s[i]),
            Some(s) => return invalid(format!("qkv_hidden_sizes {s:?}")),
            None => {
                let three = c.num(3);
                c.dims().floor_div(whole, three)
            }
        };
        let part = c.slice_axis(y, 2, start, n)?;
        parts.push(split_heads(c, part, heads)?);
        start = c.dims().add(start, n);
    }
    let [q, mut k, mut v] = [parts[0], parts[1], parts[2]];
    let mut past = Dim::ZERO;
    if let Some(p) = c.opt(4) {
        let shape = c.shape(p);
        if shape.len() != 5 {
            return invalid(format!("a past of rank {}", shape.len()));
        }
        past = shape[3];
        let part = |c: &mut Cx<'_, '_>, i: i64| {
            let at = c.num(i);
            let one = c.slice_axis(p, 0, at, Dim::ONE)?;
            c.reshape(one, shape[1..].to_vec())
        };
        let (pk, pv) = (part(c, 0)?, part(c, 1)?);
        k = c.push(Op::Concat { axis: 2 }, &[pk, k])?;
        v = c.push(Op::Concat { axis: 2 }, &[pv, v])?;
    }
    let mut mask = Mask::default();
    if let Some(m) = c.opt(3) {
        padding(c, &mut mask, m, c.dtype(q))?;
    }
    if let Some(b) = c.opt(5) {
        mask.add(c, b)?;
    }
    if c.flag("unidirectional", false)? {
        let (rows, columns) = (c.shape(q)[2], c.shape(k)[2]);
        let at = positions(c, past, None, rows)?;
        band(c, &mut mask, at, columns, -1, 0)?;
    }
    let s = scores(c, q)?;
    let (y, _) = attend(c, [q, k, v], mask, &s)?;
    let mut outs = vec![join_heads(c, y)?];
    if c.wants(1) {
        let lead = |c: &mut Cx<'_, '_>, x: V| {
            let shape = [&[Dim::ONE], &c.shape(x)[..]].concat();
            c.reshape(x, shape)
        };
        let (k, v) = (lead(c, k)?, lead(c, v)?);
        outs.push(c.push(Op::Concat { axis: 0 }, &[k, v])?);
    }
    Ok(outs)
}

fn multi_head_attention(c: &mut Cx<'_, '_>) -> Outs {
    let heads = heads_attr(c, "num_heads")?;
    let (Some(mut q), Some(k), Some(v)) = (c.opt(0), c.opt(1), c.opt(2)) else {
        return unsupported("packed query, key and value");
    };
    if c.rank(q) != 3 {
        return unsupported(format!("a query of rank {}", c.rank(q)));
    }
    let (mut k, mut v) = (k, v);
    if let Some(bias) = c.opt(3) {
        let mut start = Dim::ZERO;
        for x in [&mut q, &mut k, &mut v] {
            let n = c.shape(*x)[c.rank(*x) - 1];
            let part = c.slice_axis(bias, 0, start, n)?;
            start = c.dims().add(start, n);
            if c.rank(*x) != 3 {
                return unsupported("a bias for keys that are split already");
            }
            *x = c.add(*x, part)?;
        }
    }
    q = split_heads(c, q, heads)?;
    for x in [&mut k, &mut v] {
        if c.rank(*x) == 3 {
            *x = split_heads(c, *x, heads)?;
        }
    }
    let mut past = Dim::ZERO;
    if let (Some(pk), Some(pv)) = (c.opt(6), c.opt(7)) {
        past = c.shape(pk).get(2).copied().unwrap_or(Dim::ZERO);
        k = c.push(Op::Concat { axis: 2 }, &[pk, k])?;
        v = c.push(Op::Concat { axis: 2 }, &[pv, v])?;
    }
    let mut mask = Mask::default();
    if let Some(m) = c.opt(4) {
        padding(c, &mut mask, m, c.dtype(q))?;
    }
    if let Some(b) = c.opt(5) {
        mask.add(c, b)?;
    }
    if c.flag("unidirectional", false)? {
        let (rows, columns) = (c.shape(q)[2], c.shape(k)[2]);
        let at = positions(c, past, None, rows)?;
        band(c, &mut mask, at, columns, -1, 0)?;
    }
    let s = scores(c, q)?;
    let (y, _) = attend(c, [q, k, v], mask, &s)?;
    Ok(vec![join_heads(c, y)?, k, v])
}

/// Causal, with a cache that is as long as what came before, and keys that several heads share.
fn group_query_attention(c: &mut Cx<'_, '_>) -> Outs {
    let (hq, hk) = (heads_attr(c, "num_heads")?, heads_attr(c, "kv_num_heads")?);
    let (mut q, mut k, mut v) = match (c.input(0)?, c.opt(1), c.opt(2)) {
        (q, Some(k), Some(v)) => (q, k, v),
        (all, _, _) => {
            // Heads of q, k and v side by side.
            let shape = c.shape(all);
            let [_, _, hidden] = shape[..] else { return invalid("the query's rank, must be 3") };
            let two = c.num(2);
            let dims = c.dims();
            let both = dims.mul(hk, two);
            let heads = dims.add(hq, both);
            let size = dims.floor_div(hidden, heads);
            let (nq, nk) = (dims.mul(hq, size), dims.mul(hk, size));
            let end = dims.add(nq, nk);
            (
                c.slice_axis(all, 2, Dim::ZERO, nq)?,
                c.slice_axis(all, 2, nq, nk)?,
                c.slice_axis(all, 2, end, nk)?,
            )
        }
    };
    let past = match c.opt(3) {
        Some(p) => c.shape(p).get(2).copied().unwrap_or(Dim::ZERO),
        None => Dim::ZERO,
    };
    (q, k, v) = (split_heads(c, q, hq)?, split_heads(c, k, hk)?, split_heads(c, v, hk)?);
    let rows = c.shape(q)[2];
    if c.flag("do_rotary", false)? {
        let (cos, sin) = (c.input(7)?, c.input(8)?);
        let at = c.push(Op::Range { start: past, step: Dim::ONE, len: rows, dtype: DType::I64 }, &[])?;
        let (cos, sin) =
            (c.push(Op::Gather { axis: 0 }, &[cos, at])?, c.push(Op::Gather { axis: 0 }, &[sin, at])?);
        let interleaved = c.flag("rotary_interleaved", false)?;
        let two = c.num(2);
        for x in [&mut q, &mut k] {
            let half = c.shape(cos)[1];
            let width = c.dims().mul(half, two);
            let y = c.transpose(*x, vec![0, 2, 1, 3])?;
            let y = rotate(c, y, cos, sin, interleaved, Some(width))?;
            *x = c.transpose(y, vec![0, 2, 1, 3])?;
        }
    }
    if let (Some(pk), Some(pv)) = (c.opt(3), c.opt(4)) {
        k = c.push(Op::Concat { axis: 2 }, &[pk, k])?;
        v = c.push(Op::Concat { axis: 2 }, &[pv, v])?;
    }
    let columns = c.shape(k)[2];
    let mut mask = Mask::default();
    let at = positions(c, past, None, rows)?;
    let window = c.int_or("local_window_size", -1)?;
    band(c, &mut mask, at, columns, if window > 0 { window - 1 } else { -1 }, 0)?;
    if let Some(lengths) = c.opt(5) {
        // The last position of each batch.
        let last = c.cast(lengths, DType::I64)?;
        let n = c.shape(k)[0];
        let last = c.reshape(last, vec![n, Dim::ONE, Dim::ONE, Dim::ONE])?;
        let j = c.iota(columns, DType::I64)?;
        let seen = c.binary(B::Le, j, last)?;
        mask.and(c, seen)?;
    }
    let s = scores(c, q)?;
    let (y, _) = attend(c, [q, k, v], mask, &s)?;
    Ok(vec![join_heads(c, y)?, k, v])
}
