//! Activations and softmax.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, UnaryOp as U};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid};
use crate::value::V;

pub(super) const ROWS: &[OpRow] = &[
    op!("Celu", 12, celu),
    op!("Elu", 6, elu),
    op!("Gelu", 20, gelu),
    op!("HardSigmoid", 6, hard_sigmoid),
    op!("HardSwish", 14, hard_swish),
    op!("Hardmax", 1, hardmax),
    op!("LeakyRelu", 6, leaky_relu),
    op!("LogSoftmax", 1, |c| softmax(c, |axis| Op::LogSoftmax { axis })),
    op!("Mish", 18, mish),
    op!("PRelu", 6, prelu),
    op!("Relu", 1, relu),
    op!("Selu", 6, selu),
    op!("Shrink", 9, shrink),
    op!("Sigmoid", 1, sigmoid),
    op!("Softmax", 1, |c| softmax(c, |axis| Op::Softmax { axis })),
    op!("Softplus", 1, softplus),
    op!("Softsign", 1, softsign),
    op!("SwiGLU", 28, swiglu),
    op!("Swish", 24, swish),
    op!("ThresholdedRelu", 10, thresholded_relu),
    op!("com.microsoft": "BiasGelu", bias_gelu),
    op!("com.microsoft": "FastGelu", fast_gelu),
    op!("com.microsoft": "Gelu", |c| {
        let x = c.input(0)?;
        Ok(vec![c.push(Op::Gelu { tanh: false }, &[x])?])
    }),
    op!("com.microsoft": "QuickGelu", quick_gelu),
];

fn zero(c: &mut Cx<'_, '_>, x: V) -> V {
    c.scalar(c.dtype(x), 0.0)
}

fn relu(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    Ok(vec![c.with(B::Max, x, 0.0)?])
}

fn sigmoid(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    Ok(vec![c.unary(U::Sigmoid, x)?])
}

fn gelu(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let tanh = match c.string("approximate")?.unwrap_or("none") {
        "none" => false,
        "tanh" => true,
        a => return invalid(format!("approximate \"{a}\"")),
    };
    Ok(vec![c.push(Op::Gelu { tanh }, &[x])?])
}

fn fast_gelu(c: &mut Cx<'_, '_>) -> Outs {
    let mut x = c.input(0)?;
    if let Some(bias) = c.opt(1) {
        x = c.add(x, bias)?;
    }
    Ok(vec![c.push(Op::Gelu { tanh: true }, &[x])?])
}

fn bias_gelu(c: &mut Cx<'_, '_>) -> Outs {
    let (x, bias) = (c.input(0)?, c.input(1)?);
    let x = c.add(x, bias)?;
    Ok(vec![c.push(Op::Gelu { tanh: false }, &[x])?])
}

/// x * sigmoid(alpha * x).
fn swish_with(c: &mut Cx<'_, '_>, alpha: f64) -> Outs {
    let x = c.input(0)?;
    if alpha == 1.0 {
        return Ok(vec![c.push(Op::Silu {}, &[x])?]);
    }
    let a = c.with(B::Mul, x, alpha)?;
    let s = c.unary(U::Sigmoid, a)?;
    Ok(vec![c.mul(x, s)?])
}

fn swish(c: &mut Cx<'_, '_>) -> Outs {
    let alpha = c.float_or("alpha", 1.0)?;
    swish_with(c, alpha)
}

fn swiglu(c: &mut Cx<'_, '_>) -> Outs {
    let value = c.input(1)?;
    let gate = swish(c)?[0];
    Ok(vec![c.mul(gate, value)?])
}

fn quick_gelu(c: &mut Cx<'_, '_>) -> Outs {
    let alpha = c.float_or("alpha", 1.702)?;
    swish_with(c, alpha)
}

fn leaky_relu(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let alpha = c.float_or("alpha", 0.01)?;
    let scaled = c.with(B::Mul, x, alpha)?;
    below_zero(c, x, scaled)
}

/// `then` where x < 0, x elsewhere.
fn below_zero(c: &mut Cx<'_, '_>, x: V, then: V) -> Outs {
    let z = zero(c, x);
    let neg = c.binary(B::Lt, x, z)?;
    Ok(vec![c.select(neg, then, x)?])
}

/// The slope broadcasts to the operand.
fn prelu(c: &mut Cx<'_, '_>) -> Outs {
    let (x, slope) = (c.input(0)?, c.input(1)?);
    let scaled = c.mul(slope, x)?;
    below_zero(c, x, scaled)
}

/// `scale * (e^(x / div) - 1)` where x is not above 0.
fn exponential_below(c: &mut Cx<'_, '_>, x: V, div: f64, scale: f64) -> Result<V, Fail> {
    let y = if div == 1.0 { x } else { c.with(B::Div, x, div)? };
    let y = c.unary(U::Expm1, y)?;
    c.with(B::Mul, y, scale)
}

fn elu(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let alpha = c.float_or("alpha", 1.0)?;
    let y = exponential_below(c, x, 1.0, alpha)?;
    below_zero(c, x, y)
}

fn celu(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let alpha = c.float_or("alpha", 1.0)?;
    let y = exponential_below(c, x, alpha, alpha)?;
    below_zero(c, x, y)
}

fn selu(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let alpha = c.float_or("alpha", 1.673_263_192_176_818_8)?;
    let gamma = c.float_or("gamma", 1.050_700_902_938_842_8)?;
    let y = exponential_below(c, x, 1.0, alpha)?;
    let r = below_zero(c, x, y)?[0];
    Ok(vec![c.with(B::Mul, r, gamma)?])
}

fn clamp(c: &mut Cx<'_, '_>, x: V, lo: f64, hi: f64) -> Result<V, Fail> {
    let (lo, hi) = (c.scalar(c.dtype(x), lo), c.scalar(c.dtype(x), hi));
    c.push(Op::Clamp {}, &[x, lo, hi])
}

fn hard(c: &mut Cx<'_, '_>, x: V, alpha: f64, beta: f64) -> Result<V, Fail> {
    let y = c.with(B::Mul, x, alpha)?;
    let y = c.with(B::Add, y, beta)?;
    clamp(c, y, 0.0, 1.0)
}

fn hard_sigmoid(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let (alpha, beta) = (c.float_or("alpha", 0.2)?, c.float_or("beta", 0.5)?);
    Ok(vec![hard(c, x, alpha, beta)?])
}

fn hard_swish(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let y = hard(c, x, 1.0 / 6.0, 0.5)?;
    Ok(vec![c.mul(x, y)?])
}

/// ln(1 + e^x) without overflow: max(x, 0) + ln(1 + e^-|x|).
fn softplus_of(c: &mut Cx<'_, '_>, x: V) -> Result<V, Fail> {
    let a = c.unary(U::Abs, x)?;
    let n = c.unary(U::Neg, a)?;
    let e = c.unary(U::Exp, n)?;
    let l = c.unary(U::Log1p, e)?;
    let m = c.with(B::Max, x, 0.0)?;
    c.add(m, l)
}

fn softplus(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    Ok(vec![softplus_of(c, x)?])
}

fn mish(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let s = softplus_of(c, x)?;
    let t = c.unary(U::Tanh, s)?;
    Ok(vec![c.mul(x, t)?])
}

fn softsign(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let a = c.unary(U::Abs, x)?;
    let d = c.with(B::Add, a, 1.0)?;
    Ok(vec![c.div(x, d)?])
}

fn thresholded_relu(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let alpha = c.float_or("alpha", 1.0)?;
    let limit = c.scalar(c.dtype(x), alpha);
    let above = c.binary(B::Gt, x, limit)?;
    let z = zero(c, x);
    Ok(vec![c.select(above, x, z)?])
}

fn shrink(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let dtype = c.dtype(x);
    let (bias, lambd) = (c.float_or("bias", 0.0)?, c.float_or("lambd", 0.5)?);
    let wide = if dtype.is_float() { x } else { c.cast(x, DType::F64)? };
    let (low, high) = (c.scalar(c.dtype(wide), -lambd), c.scalar(c.dtype(wide), lambd));
    let (below, above) = (c.binary(B::Lt, wide, low)?, c.binary(B::Gt, wide, high)?);
    let (up, down) = (c.with(B::Add, wide, bias)?, c.with(B::Sub, wide, bias)?);
    let z = zero(c, wide);
    let y = c.select(above, down, z)?;
    let y = c.select(below, up, y)?;
    Ok(vec![c.cast(y, dtype)?])
}

/// Before operator set 13 all axes from `axis` on count as one.
fn softmax(c: &mut Cx<'_, '_>, op: fn(usize) -> Op) -> Outs {
    let x = c.input(0)?;
    over_axis(c, x, |c, x, axis| c.push(op(axis), &[x]))
}

fn over_axis(c: &mut Cx<'_, '_>, x: V, f: impl FnOnce(&mut Cx<'_, '_>, V, usize) -> Result<V, Fail>) -> Outs {
    let shape = c.shape(x);
    if shape.is_empty() {
        let y = c.reshape(x, vec![Dim::ONE])?;
        let y = f(c, y, 0)?;
        return Ok(vec![c.reshape(y, vec![])?]);
    }
    let old = c.opset < 13;
    let axis = match c.int_or("axis", if old { 1 } else { -1 })? {
        // The old default is one past the only axis of a vector.
        1 if old && shape.len() == 1 => 0,
        a => c.axis(a, shape.len())?,
    };
    if !old || axis + 1 == shape.len() {
        return Ok(vec![f(c, x, axis)?]);
    }
    let (rows, cols) = (c.dims().product(&shape[..axis]), c.dims().product(&shape[axis..]));
    let y = c.reshape(x, vec![rows, cols])?;
    let y = f(c, y, 1)?;
    Ok(vec![c.reshape(y, shape)?])
}

/// 1 at the first largest element along the axis, 0 elsewhere.
fn hardmax(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    over_axis(c, x, |c, x, axis| {
        let shape = c.shape(x);
        let best = c.push(Op::ArgMax { axis, keepdims: true, last: false }, &[x])?;
        let i = c.iota(shape[axis], DType::I64)?;
        let mut at = vec![Dim::ONE; shape.len() - axis];
        at[0] = shape[axis];
        let i = c.reshape(i, at)?;
        let hit = c.binary(B::Eq, best, i)?;
        let dtype = c.dtype(x);
        c.cast(hit, dtype)
    })
}
