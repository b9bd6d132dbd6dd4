//! Linear quantisation.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, ReduceOp as R, UnaryOp as U};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid, unsupported};
use crate::value::V;

pub(super) const ROWS: &[OpRow] = &[
    op!("DequantizeLinear", 10, dequantize, "8-, 16- and 32-bit integers"),
    op!("DynamicQuantizeLinear", 11, dynamic_quantize),
    op!("QLinearConv", 10, quantized_conv),
    op!("QLinearMatMul", 10, quantized_matmul),
    op!("QuantizeLinear", 10, quantize, "8- and 16-bit integers"),
];

/// Scale or zero point, laid out so that it broadcasts to x: one value, one an axis, or one a block.
fn per_axis(c: &mut Cx<'_, '_>, x: V, p: V) -> Result<V, Fail> {
    let (rank, own) = (c.rank(x), c.rank(p));
    let block = c.int_or("block_size", 0)?;
    let axis = c.int_or("axis", 1)?;
    if block > 0 {
        let axis = c.axis(axis, rank)?;
        if own != rank {
            return invalid(format!("a blocked scale of rank {own} for rank {rank}"));
        }
        let shape = c.shape(p);
        let b = c.num(block);
        let mut split = shape.clone();
        split.insert(axis + 1, Dim::ONE);
        let mut wide = shape.clone();
        wide.insert(axis + 1, b);
        let p = c.reshape(p, split)?;
        let p = c.expand(p, wide)?;
        let mut joined = shape;
        joined[axis] = c.dims().mul(joined[axis], b);
        let p = c.reshape(p, joined)?;
        // The last block may be partial.
        let extent = c.shape(x)[axis];
        return c.slice_axis(p, axis, Dim::ZERO, extent);
    }
    match own {
        0 => Ok(p),
        1 if c.shape(p)[0] == Dim::ONE => c.reshape(p, vec![]),
        1 => {
            let axis = c.axis(axis, rank)?;
            c.place(p, axis, rank)
        }
        _ => invalid(format!("a scale of rank {own}")),
    }
}

fn dequantize(c: &mut Cx<'_, '_>) -> Outs {
    let (x, scale) = (c.input(0)?, c.input(1)?);
    let out = c.dtype_attr("output_dtype")?.unwrap_or(c.dtype(scale));
    let s = per_axis(c, x, scale)?;
    let s = c.cast(s, DType::F32)?;
    let mut y = c.cast(x, DType::I32)?;
    if let Some(z) = c.opt(2) {
        let z = per_axis(c, x, z)?;
        let z = c.cast(z, DType::I32)?;
        y = c.sub(y, z)?;
    }
    let y = c.cast(y, DType::F32)?;
    let y = c.mul(y, s)?;
    Ok(vec![c.cast(y, out)?])
}

fn limits(dtype: DType) -> Option<(f64, f64)> {
    Some(match dtype {
        DType::U8 => (0.0, 255.0),
        DType::I8 => (-128.0, 127.0),
        DType::U16 => (0.0, 65535.0),
        DType::I16 => (-32768.0, 32767.0),
        _ => return None,
    })
}

fn quantize(c: &mut Cx<'_, '_>) -> Outs {
    let (x, scale) = (c.input(0)?, c.input(1)?);
    let zero = c.opt(2);
    let to = match (zero, c.dtype_attr("output_dtype")?) {
        (Some(z), _) => c.dtype(z),
        (None, Some(d)) => d,
        (None, None) => DType::U8,
    };
    let Some((lo, hi)) = limits(to) else { return unsupported(format!("quantisation to {to}")) };
    let s = per_axis(c, x, scale)?;
    let s = c.cast(s, DType::F32)?;
    let y = c.cast(x, DType::F32)?;
    let y = c.div(y, s)?;
    let mut y = c.unary(U::Round, y)?;
    if let Some(z) = zero {
        let z = per_axis(c, x, z)?;
        let z = c.cast(z, DType::F32)?;
        y = c.add(y, z)?;
    }
    let (lo, hi) = (c.scalar(DType::F32, lo), c.scalar(DType::F32, hi));
    let y = c.push(Op::Clamp {}, &[y, lo, hi])?;
    Ok(vec![c.cast(y, to)?])
}

fn dynamic_quantize(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let axes: Vec<usize> = (0..c.rank(x)).collect();
    let max = c.reduce(R::Max, x, &axes, false)?;
    let min = c.reduce(R::Min, x, &axes, false)?;
    let (max, min) = (c.with(B::Max, max, 0.0)?, c.with(B::Min, min, 0.0)?);
    let span = c.sub(max, min)?;
    let scale = c.with(B::Div, span, 255.0)?;
    let low = c.unary(U::Neg, min)?;
    let zero = c.div(low, scale)?;
    let zero = c.unary(U::Round, zero)?;
    let (lo, hi) = (c.scalar(DType::F32, 0.0), c.scalar(DType::F32, 255.0));
    let zero = c.push(Op::Clamp {}, &[zero, lo, hi])?;
    let y = c.div(x, scale)?;
    let y = c.unary(U::Round, y)?;
    let y = c.add(y, zero)?;
    let y = c.push(Op::Clamp {}, &[y, lo, hi])?;
    Ok(vec![c.cast(y, DType::U8)?, scale, c.cast(zero, DType::U8)?])
}

/// An i32 result as a quantised one: times `factor`, rounded, shifted by the zero point, saturated.
fn requantise(c: &mut Cx<'_, '_>, y: V, factor: V, zero: V) -> Result<V, Fail> {
    let to = c.dtype(zero);
    let Some((lo, hi)) = limits(to) else { return unsupported(format!("quantisation to {to}")) };
    let y = c.cast(y, DType::F32)?;
    let y = c.mul(y, factor)?;
    let y = c.unary(U::Round, y)?;
    let z = one_or_vector(c, zero)?;
    let z = c.cast(z, DType::F32)?;
    let y = c.add(y, z)?;
    let (lo, hi) = (c.scalar(DType::F32, lo), c.scalar(DType::F32, hi));
    let y = c.push(Op::Clamp {}, &[y, lo, hi])?;
    c.cast(y, to)
}

/// A vector of one element as a scalar.
fn one_or_vector(c: &mut Cx<'_, '_>, v: V) -> Result<V, Fail> {
    if c.shape(v) == [Dim::ONE] { c.reshape(v, vec![]) } else { Ok(v) }
}

fn quantized_matmul(c: &mut Cx<'_, '_>) -> Outs {
    let all = c.inputs()?;
    let [a, sa, za, b, sb, zb, sy, zy] = all[..] else {
        return invalid(format!("{} operands, must be 8", all.len()));
    };
    let rows = c.rank(a).saturating_sub(2);
    let (x, w) = (c.less_zero(a, Some(za), Some(rows))?, c.less_zero(b, Some(zb), None)?);
    let y = c.numpy_matmul(x, w)?;
    let mut scales = [sa, sb, sy];
    for (i, s) in scales.iter_mut().enumerate() {
        *s = one_or_vector(c, *s)?;
        *s = c.cast(*s, DType::F32)?;
        if i == 0 && c.rank(*s) == 1 {
            // One scale a row.
            let n = c.shape(*s)[0];
            *s = c.reshape(*s, vec![n, Dim::ONE])?;
        }
    }
    let both = c.mul(scales[0], scales[1])?;
    let factor = c.div(both, scales[2])?;
    Ok(vec![requantise(c, y, factor, zy)?])
}

fn quantized_conv(c: &mut Cx<'_, '_>) -> Outs {
    let bias = c.opt(8);
    let mut all = vec![];
    for i in 0..8 {
        all.push(c.input(i)?);
    }
    let [x, sx, zx, w, sw, zw, sy, zy] = all[..] else { return invalid("8 operands are needed") };
    let (a, b) = (c.less_zero(x, Some(zx), None)?, c.less_zero(w, Some(zw), Some(0))?);
    let y = c.convolution(a, b, bias)?;
    let rank = c.rank(y);
    let mut scales = [sx, sw, sy];
    for s in &mut scales {
        *s = one_or_vector(c, *s)?;
        *s = c.cast(*s, DType::F32)?;
    }
    if c.rank(scales[1]) == 1 {
        scales[1] = c.place(scales[1], 1, rank)?;
    }
    let both = c.mul(scales[0], scales[1])?;
    let factor = c.div(both, scales[2])?;
    Ok(vec![requantise(c, y, factor, zy)?])
}
