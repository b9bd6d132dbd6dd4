//! Normalisations and dropout (inference).

use dvm_ir::{BinaryOp as B, DType, Dim, Op, PadMode, ReduceOp as R, Scalar, UnaryOp as U};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid, unsupported};
use crate::value::V;

pub(super) const ROWS: &[OpRow] = &[
    op!("BatchNormalization", 7, batch_norm, "inference only"),
    op!("Dropout", 7, dropout, "inference only"),
    op!("GroupNormalization", 18, group_norm),
    op!("InstanceNormalization", 6, instance_norm),
    op!("LRN", 1, lrn),
    op!("LayerNormalization", 17, layer_norm),
    op!("LpNormalization", 1, lp_norm),
    op!("MeanVarianceNormalization", 9, mean_variance_norm),
    op!("RMSNormalization", 23, rms_norm),
    op!("com.microsoft": "LayerNormalization", layer_norm),
    op!("com.microsoft": "SimplifiedLayerNormalization", rms_norm),
    op!("com.microsoft": "SkipLayerNormalization", skip_layer_norm),
    op!("com.microsoft": "SkipSimplifiedLayerNormalization", skip_layer_norm),
];

fn dropout(c: &mut Cx<'_, '_>) -> Outs {
    if let Some(mode) = c.opt(2)
        && c.const_scalar(mode)? != 0
    {
        let zero = c.opt(1).map(|r| c.const_tensor(r)).transpose()?;
        if zero.is_none_or(|t| t.is_empty() || t.get(0).as_f64() != 0.0) {
            return unsupported("training mode");
        }
    }
    let x = c.input(0)?;
    let mut outs = vec![x];
    if c.wants(1) {
        let shape = c.shape(x);
        outs.push(c.fill(DType::Bool, Scalar::Int(1), shape)?);
    }
    Ok(outs)
}

fn batch_norm(c: &mut Cx<'_, '_>) -> Outs {
    if c.flag("training_mode", false)? {
        return unsupported("training mode");
    }
    if c.opset < 9 && c.int_or("spatial", 1)? != 1 {
        return unsupported("spatial = 0");
    }
    let x = c.input(0)?;
    let eps = c.float_or("epsilon", 1e-5)?;
    let (dtype, rank) = (c.dtype(x), c.rank(x));
    // The parameters may be of a wider dtype than x.
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mut params = [x; 4];
    for (i, p) in params.iter_mut().enumerate() {
        let v = c.input(1 + i)?;
        let v = c.place(v, 1.min(rank.saturating_sub(1)), rank)?;
        *p = c.cast(v, wide)?;
    }
    let [scale, bias, mean, var] = params;
    let var = c.with(B::Add, var, eps)?;
    let deviation = c.unary(U::Sqrt, var)?;
    let y = c.cast(x, wide)?;
    let y = c.sub(y, mean)?;
    let y = c.div(y, deviation)?;
    let y = c.mul(y, scale)?;
    let y = c.add(y, bias)?;
    Ok(vec![c.cast(y, dtype)?])
}

/// `(x - mean) / sqrt(var + eps)` over axes, in the given dtype, with the mean and the inverse deviation.
fn standardise(c: &mut Cx<'_, '_>, x: V, axes: &[usize], eps: f64) -> Result<(V, V, V), Fail> {
    let mean = c.reduce(R::Mean, x, axes, true)?;
    let d = c.sub(x, mean)?;
    let sq = c.mul(d, d)?;
    let var = c.reduce(R::Mean, sq, axes, true)?;
    let var = c.with(B::Add, var, eps)?;
    let dev = c.unary(U::Sqrt, var)?;
    let inv = c.unary(U::Reciprocal, dev)?;
    Ok((c.mul(d, inv)?, mean, inv))
}

fn layer_norm_of(c: &mut Cx<'_, '_>, x: V, scale: V, bias: Option<V>, eps: f64) -> Outs {
    let axis = c.axis(c.int_or("axis", -1)?, c.rank(x))?;
    let mut operands = vec![x, scale];
    operands.extend(bias);
    let y = c.push(Op::LayerNorm { axis, eps }, &operands)?;
    let mut outs = vec![y];
    if c.wants(1) || c.wants(2) {
        let wide = if c.dtype(x) == DType::F64 { x } else { c.cast(x, DType::F32)? };
        let axes: Vec<usize> = (axis..c.rank(x)).collect();
        let (_, mean, inv) = standardise(c, wide, &axes, eps)?;
        outs.extend([mean, inv]);
    }
    Ok(outs)
}

fn layer_norm(c: &mut Cx<'_, '_>) -> Outs {
    let (x, scale, bias) = (c.input(0)?, c.input(1)?, c.opt(2));
    let eps = c.float_or("epsilon", 1e-5)?;
    layer_norm_of(c, x, scale, bias, eps)
}

fn rms_norm(c: &mut Cx<'_, '_>) -> Outs {
    let (x, scale) = (c.input(0)?, c.input(1)?);
    let axis = c.axis(c.int_or("axis", -1)?, c.rank(x))?;
    let eps = c.float_or("epsilon", 1e-5)?;
    Ok(vec![c.push(Op::RmsNorm { axis, eps }, &[x, scale])?])
}

/// Normalises `x + skip [+ bias]`; the fourth result is that sum.
fn skip_layer_norm(c: &mut Cx<'_, '_>) -> Outs {
    let simple = c.node.op_type.as_deref() == Some("SkipSimplifiedLayerNormalization");
    let (x, skip, scale) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let (beta, bias) = if simple { (None, c.opt(3)) } else { (c.opt(3), c.opt(4)) };
    let eps = c.float_or("epsilon", if simple { 1e-5 } else { 1e-12 })?;
    if c.wants(1) || c.wants(2) {
        return unsupported("the mean or the deviation as a result");
    }
    let mut sum = c.add(x, skip)?;
    if let Some(b) = bias {
        sum = c.add(sum, b)?;
    }
    let axis = c.axis(-1, c.rank(sum))?;
    let y = if simple {
        c.push(Op::RmsNorm { axis, eps }, &[sum, scale])?
    } else {
        let mut operands = vec![sum, scale];
        operands.extend(beta);
        c.push(Op::LayerNorm { axis, eps }, &operands)?
    };
    Ok(vec![y, sum, sum, sum])
}

fn spatial_axes(rank: usize) -> Vec<usize> {
    (2..rank).collect()
}

fn instance_norm(c: &mut Cx<'_, '_>) -> Outs {
    let (x, scale, bias) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let (dtype, rank) = (c.dtype(x), c.rank(x));
    if rank < 3 {
        return invalid(format!("rank {rank}, must be 3 or more"));
    }
    let eps = c.float_or("epsilon", 1e-5)?;
    let wide = wider(c, x)?;
    let (y, _, _) = standardise(c, wide, &spatial_axes(rank), eps)?;
    Ok(vec![affine(c, y, scale, bias, rank, dtype)?])
}

fn wider(c: &mut Cx<'_, '_>, x: V) -> Result<V, Fail> {
    if c.dtype(x).is_half() { c.cast(x, DType::F32) } else { Ok(x) }
}

/// `y * scale + bias` by channel.
fn affine(c: &mut Cx<'_, '_>, y: V, scale: V, bias: V, rank: usize, dtype: DType) -> Result<V, Fail> {
    let wide = c.dtype(y);
    let s = c.place(scale, 1, rank)?;
    let s = c.cast(s, wide)?;
    let b = c.place(bias, 1, rank)?;
    let b = c.cast(b, wide)?;
    let y = c.mul(y, s)?;
    let y = c.add(y, b)?;
    c.cast(y, dtype)
}

fn group_norm(c: &mut Cx<'_, '_>) -> Outs {
    let (x, scale, bias) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let (dtype, shape) = (c.dtype(x), c.shape(x));
    let Some(groups) = c.int("num_groups")?.filter(|&g| g > 0) else {
        return invalid("attribute `num_groups`");
    };
    if shape.len() < 2 {
        return invalid(format!("rank {}, must be 2 or more", shape.len()));
    }
    let eps = c.float_or("epsilon", 1e-5)?;
    let g = c.num(groups);
    let per = c.dims().floor_div(shape[1], g);
    let split = [&[shape[0], g, per], &shape[2..]].concat();
    let wide = wider(c, x)?;
    let y = c.reshape(wide, split.clone())?;
    let (y, _, _) = standardise(c, y, &(2..split.len()).collect::<Vec<_>>(), eps)?;
    if c.opset < 21 {
        // One scale and bias a group.
        let y = affine(c, y, scale, bias, split.len(), dtype)?;
        return Ok(vec![c.reshape(y, shape)?]);
    }
    let rank = shape.len();
    let y = c.reshape(y, shape)?;
    Ok(vec![affine(c, y, scale, bias, rank, dtype)?])
}

/// Where the norm is 0 the result is 0.
fn lp_norm(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let axis = c.axis(c.int_or("axis", -1)?, c.rank(x))?;
    let op = match c.int_or("p", 2)? {
        1 => R::L1,
        2 => R::L2,
        p => return invalid(format!("p = {p}")),
    };
    let norm = c.reduce(op, x, &[axis], true)?;
    let zero = c.scalar(c.dtype(x), 0.0);
    let none = c.binary(B::Eq, norm, zero)?;
    let y = c.div(x, norm)?;
    Ok(vec![c.select(none, zero, y)?])
}

fn mean_variance_norm(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let axes = c.ints("axes")?.unwrap_or_else(|| vec![0, 2, 3]);
    let axes = c.axes(&axes, c.rank(x))?;
    let dtype = c.dtype(x);
    let wide = wider(c, x)?;
    // The variance of the centred values; 1e-9 keeps constants finite.
    let mean = c.reduce(R::Mean, wide, &axes, true)?;
    let d = c.sub(wide, mean)?;
    let sq = c.mul(d, d)?;
    let var = c.reduce(R::Mean, sq, &axes, true)?;
    let dev = c.unary(U::Sqrt, var)?;
    let dev = c.with(B::Add, dev, 1e-9)?;
    let y = c.div(d, dev)?;
    Ok(vec![c.cast(y, dtype)?])
}

/// `x / (bias + alpha / size * sum of squares over neighbouring channels) ^ beta`.
fn lrn(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let shape = c.shape(x);
    if shape.len() < 2 {
        return invalid(format!("rank {}, must be 2 or more", shape.len()));
    }
    let Some(size) = c.int("size")?.filter(|s| (1..=1 << 20).contains(s)) else {
        return invalid("attribute `size`");
    };
    let (alpha, beta, bias) =
        (c.float_or("alpha", 1e-4)?, c.float_or("beta", 0.75)?, c.float_or("bias", 1.0)?);
    let dtype = c.dtype(x);
    let wide = wider(c, x)?;
    let sq = c.mul(wide, wide)?;
    let (mut before, mut after) = (vec![Dim::ZERO; shape.len()], vec![Dim::ZERO; shape.len()]);
    (before[1], after[1]) = (c.num((size - 1) / 2), c.num(size / 2));
    let pad = Op::Pad { before, after, mode: PadMode::Constant, value: Scalar::Float(0.0) };
    let sq = c.push(pad, &[sq])?;
    let window = Op::Window { axis: 1, count: shape[1], size: c.num(size), stride: 1, dilation: 1 };
    let sq = c.push(window, &[sq])?;
    let sum = c.reduce(R::Sum, sq, &[2], false)?;
    let d = c.with(B::Mul, sum, alpha / size as f64)?;
    let d = c.with(B::Add, d, bias)?;
    let d = c.with(B::Pow, d, beta)?;
    let y = c.div(wide, d)?;
    Ok(vec![c.cast(y, dtype)?])
}
