//! Composite ops in terms of primitives.
//!
//! Composites are f32 inside: halves are cast once on the way in and rounded once on the way out. The formulas are the
//! ones the reference evaluator's definitions state.

use dvm_ir::{BinaryOp, DType, Dim, DimTable, Op, PadMode, ReduceOp, Scalar, TensorType, UnaryOp, ValueId};

use crate::builder::Builder;

use BinaryOp::{Add, Div, Mul, Sub};

/// Adds `op` as primitives.
pub(crate) fn lower(b: &mut Builder, op: &Op, inputs: &[ValueId], ty: &TensorType) -> ValueId {
    match op {
        Op::Softmax { axis } => wide(b, inputs, ty, |b, x| {
            // A division a row and a product an element: the sum is at least 1, so its reciprocal is harmless.
            let (e, sum) = exp_sum(b, x[0], *axis);
            let inverse = b.unary(UnaryOp::Reciprocal, sum);
            b.onto(Mul, e, inverse)
        }),
        Op::LogSoftmax { axis } => wide(b, inputs, ty, |b, x| {
            let max = b.reduce(ReduceOp::Max, x[0], &[*axis], true);
            let d = b.onto(Sub, x[0], max);
            let e = b.unary(UnaryOp::Exp, d);
            let sum = b.reduce(ReduceOp::Sum, e, &[*axis], true);
            let ln = b.unary(UnaryOp::Ln, sum);
            b.onto(Sub, d, ln)
        }),
        Op::LayerNorm { axis, eps } => wide(b, inputs, ty, |b, x| {
            let mean = mean(b, x[0], *axis);
            let d = b.onto(Sub, x[0], mean);
            normalise(b, d, d, x, *axis, *eps)
        }),
        Op::RmsNorm { axis, eps } => wide(b, inputs, ty, |b, x| normalise(b, x[0], x[0], x, *axis, *eps)),
        Op::Gelu { tanh } => wide(b, inputs, ty, |b, x| gelu(b, x[0], *tanh)),
        Op::Silu {} => wide(b, inputs, ty, |b, x| {
            let s = b.unary(UnaryOp::Sigmoid, x[0]);
            b.onto(Mul, x[0], s)
        }),
        Op::Reduce { op, axes, keepdims } => reduce(b, *op, inputs, axes, *keepdims, ty),
        Op::Binary(BinaryOp::Pow) => pow(b, inputs, ty),
        Op::Pad { before, after, mode, value } => pad(b, inputs[0], before, after, *mode, *value),
        _ => b.push(op.clone(), inputs, ty.clone()),
    }
}

/// Runs `f` on operands widened to f32 where they are halves, and rounds its result once.
fn wide(
    b: &mut Builder,
    inputs: &[ValueId],
    ty: &TensorType,
    f: impl FnOnce(&mut Builder, &[ValueId]) -> ValueId,
) -> ValueId {
    if !ty.dtype.is_half() {
        return f(b, inputs);
    }
    let wide: Vec<ValueId> = inputs.iter().map(|&x| b.cast(x, DType::F32)).collect();
    let y = f(b, &wide);
    b.cast(y, ty.dtype)
}

/// `exp(x - max)` and its sum along an axis.
fn exp_sum(b: &mut Builder, x: ValueId, axis: usize) -> (ValueId, ValueId) {
    let max = b.reduce(ReduceOp::Max, x, &[axis], true);
    let d = b.onto(Sub, x, max);
    let e = b.unary(UnaryOp::Exp, d);
    let sum = b.reduce(ReduceOp::Sum, e, &[axis], true);
    (e, sum)
}

/// Number of elements of some axes.
fn count(b: &mut Builder, x: ValueId, axes: &[usize]) -> Dim {
    let shape = b.shape(x);
    axes.iter().fold(Dim::ONE, |n, &a| b.g.dims.mul(n, shape[a]))
}

fn mean(b: &mut Builder, x: ValueId, axis: usize) -> ValueId {
    let axes: Vec<usize> = (axis..b.g.shape(x).len()).collect();
    mean_of(b, x, &axes, true)
}

fn mean_of(b: &mut Builder, x: ValueId, axes: &[usize], keepdims: bool) -> ValueId {
    let n = count(b, x, axes);
    let n = b.dim(n, b.dtype(x));
    let sum = b.reduce(ReduceOp::Sum, x, axes, keepdims);
    b.onto(Div, sum, n)
}

/// `d / sqrt(mean(s^2) + eps) * scale [+ bias]`, scale and bias being `params[1..]`.
fn normalise(b: &mut Builder, d: ValueId, s: ValueId, params: &[ValueId], axis: usize, eps: f64) -> ValueId {
    let square = b.onto(Mul, s, s);
    let variance = mean(b, square, axis);
    let shifted = b.with(Add, variance, eps);
    let root = b.unary(UnaryOp::Sqrt, shifted);
    let inverse = b.unary(UnaryOp::Reciprocal, root);
    let y = b.onto(Mul, d, inverse);
    let y = b.onto(Mul, y, params[1]);
    match params.get(2) {
        Some(&bias) => b.onto(Add, y, bias),
        None => y,
    }
}

fn gelu(b: &mut Builder, x: ValueId, tanh: bool) -> ValueId {
    let phi = if tanh {
        let x2 = b.onto(Mul, x, x);
        let x3 = b.onto(Mul, x2, x);
        let c = b.with(Mul, x3, 0.044_715);
        let inner = b.onto(Add, x, c);
        let scaled = b.with(Mul, inner, (2.0 / std::f64::consts::PI).sqrt());
        b.unary(UnaryOp::Tanh, scaled)
    } else {
        let scaled = b.with(Mul, x, std::f64::consts::FRAC_1_SQRT_2);
        b.unary(UnaryOp::Erf, scaled)
    };
    let one = b.with(Add, phi, 1.0);
    let half = b.with(Mul, x, 0.5);
    b.onto(Mul, half, one)
}

fn reduce(
    b: &mut Builder,
    op: ReduceOp,
    inputs: &[ValueId],
    axes: &[usize],
    keepdims: bool,
    ty: &TensorType,
) -> ValueId {
    let square = |b: &mut Builder, x| {
        let s = b.onto(Mul, x, x);
        b.reduce(ReduceOp::Sum, s, axes, keepdims)
    };
    match op {
        ReduceOp::Mean => wide(b, inputs, ty, |b, x| mean_of(b, x[0], axes, keepdims)),
        ReduceOp::Prod if ty.dtype.is_half() => {
            wide(b, inputs, ty, |b, x| b.reduce(ReduceOp::Prod, x[0], axes, keepdims))
        }
        ReduceOp::L1 => wide(b, inputs, ty, |b, x| {
            let a = b.unary(UnaryOp::Abs, x[0]);
            b.reduce(ReduceOp::Sum, a, axes, keepdims)
        }),
        ReduceOp::L2 => wide(b, inputs, ty, |b, x| {
            let s = square(b, x[0]);
            root_of(b, s)
        }),
        ReduceOp::SumSquare => wide(b, inputs, ty, |b, x| square(b, x[0])),
        ReduceOp::LogSum => wide(b, inputs, ty, |b, x| {
            let s = b.reduce(ReduceOp::Sum, x[0], axes, keepdims);
            log_of(b, s)
        }),
        ReduceOp::LogSumExp => wide(b, inputs, ty, |b, x| log_sum_exp(b, x[0], axes, keepdims)),
        _ => b.reduce(op, inputs[0], axes, keepdims),
    }
}

/// Runs a float function on a value that may be an integer.
fn as_float(b: &mut Builder, x: ValueId, f: impl FnOnce(&mut Builder, ValueId) -> ValueId) -> ValueId {
    let dtype = b.dtype(x);
    if dtype.is_float() {
        return f(b, x);
    }
    let wide = b.cast(x, DType::F64);
    let y = f(b, wide);
    b.cast(y, dtype)
}
fn root_of(b: &mut Builder, x: ValueId) -> ValueId {
    as_float(b, x, |b, x| b.unary(UnaryOp::Sqrt, x))
}
fn log_of(b: &mut Builder, x: ValueId) -> ValueId {
    as_float(b, x, |b, x| b.unary(UnaryOp::Ln, x))
}

/// The maximum is taken out unless it is infinite, where taking it out would give NaN.
fn log_sum_exp(b: &mut Builder, x: ValueId, axes: &[usize], keepdims: bool) -> ValueId {
    as_float(b, x, |b, x| {
        let max = b.reduce(ReduceOp::Max, x, axes, true);
        let finite = b.unary(UnaryOp::IsFinite, max);
        let zero = b.scalar(b.dtype(x), 0.0);
        let ty = b.ty(max);
        let shift = b.push(Op::Select {}, &[finite, max, zero], ty);
        let d = b.onto(Sub, x, shift);
        let e = b.unary(UnaryOp::Exp, d);
        let sum = b.reduce(ReduceOp::Sum, e, axes, true);
        let ln = b.unary(UnaryOp::Ln, sum);
        let y = b.onto(Add, ln, shift);
        if keepdims {
            return y;
        }
        let shape: Vec<Dim> =
            b.shape(y).into_iter().enumerate().filter(|(i, _)| !axes.contains(i)).map(|x| x.1).collect();
        b.reshape(y, &shape)
    })
}

/// Largest constant exponent that becomes multiplications: the error grows with it.
const MAX_EXPONENT: i64 = 32;

fn pow(b: &mut Builder, inputs: &[ValueId], ty: &TensorType) -> ValueId {
    let general = |b: &mut Builder| b.push(Op::Binary(BinaryOp::Pow), inputs, ty.clone());
    let Some(exponent) = b.splat(inputs[1]) else { return general(b) };
    if b.g.shape(inputs[0]) != ty.shape.as_slice() {
        return general(b);
    }
    let e = exponent.as_f64();
    let n = e as i64;
    let whole = n as f64 == e && n.abs() <= MAX_EXPONENT;
    if n == 0 && whole {
        return b.fill(Scalar::Float(1.0), ty.dtype, &ty.shape);
    }
    if ty.dtype.is_float() && e == 0.5 {
        return b.unary(UnaryOp::Sqrt, inputs[0]);
    }
    if !whole || (n < 0 && !ty.dtype.is_float()) {
        return general(b);
    }
    wide(b, &inputs[..1], ty, |b, x| {
        let p = power(b, x[0], n.unsigned_abs());
        if n < 0 { b.unary(UnaryOp::Reciprocal, p) } else { p }
    })
}

/// `x^n`, n >= 1, by squaring from the top bit: floor(log2 n) + ones(n) - 1 multiplications.
fn power(b: &mut Builder, x: ValueId, n: u64) -> ValueId {
    let mut p = x;
    for bit in (0..n.ilog2()).rev() {
        p = b.onto(Mul, p, p);
        if n >> bit & 1 == 1 {
            p = b.onto(Mul, p, x);
        }
    }
    p
}

/// Padding as concatenation: every piece is then stored straight into its place.
fn pad(b: &mut Builder, x: ValueId, before: &[Dim], after: &[Dim], mode: PadMode, value: Scalar) -> ValueId {
    let mut y = x;
    for axis in 0..before.len() {
        y = pad_axis(b, y, axis, before[axis], after[axis], mode, value);
    }
    y
}

fn pad_axis(
    b: &mut Builder,
    x: ValueId,
    axis: usize,
    before: Dim,
    after: Dim,
    mode: PadMode,
    value: Scalar,
) -> ValueId {
    // A negative amount crops, at worst into the padding of the other side, which still takes its elements from the whole
    // operand.
    let (crop_before, added_before) = split_sign(b, before);
    let (crop_after, added_after) = split_sign(b, after);
    let n = b.shape(x)[axis];
    let t = &mut b.g.dims;
    let whole = t.add(n, before);
    let whole = t.add(whole, after);
    let cropped = t.add(crop_before, crop_after);
    let excess = t.sub(cropped, n);
    let excess = t.max(excess, Dim::ZERO);
    let kept = t.sub(n, cropped);
    let kept = t.add(kept, excess);
    let less = |t: &mut DimTable, d: Dim| {
        let d = t.sub(d, excess);
        t.max(d, Dim::ZERO)
    };
    let (before, after) = (less(t, added_before), less(t, added_after));
    let skipped = t.sub(added_after, after);
    let middle = b.slice_axis(x, axis, crop_before, kept, 1);
    let mut pieces = vec![];
    let last = b.g.dims.sub(n, Dim::ONE);
    for (len, is_before) in [(before, true), (after, false)] {
        if !is_before {
            pieces.push(middle);
        }
        if len == Dim::ZERO {
            continue;
        }
        let mut shape = b.shape(x);
        shape[axis] = len;
        pieces.push(match mode {
            PadMode::Constant => {
                let dtype = b.dtype(x);
                b.fill(value, dtype, &shape)
            }
            PadMode::Edge => {
                let at = if is_before { Dim::ZERO } else { last };
                let edge = b.slice_axis(x, axis, at, Dim::ONE, 1);
                b.expand(edge, &shape)
            }
            PadMode::Reflect => {
                let t = &mut b.g.dims;
                let start = if is_before {
                    added_before
                } else {
                    let start = t.sub(last, Dim::ONE);
                    t.sub(start, skipped)
                };
                b.slice_axis(x, axis, start, len, -1)
            }
            PadMode::Wrap => {
                let start = if is_before { b.g.dims.sub(n, added_before) } else { skipped };
                b.slice_axis(x, axis, start, len, 1)
            }
        });
    }
    if pieces.len() == 1 {
        return pieces[0];
    }
    // The sum of the pieces, written as the source graph writes it: their case distinctions would multiply from axis to axis.
    let mut shape = b.shape(x);
    shape[axis] = whole;
    let ty = TensorType { dtype: b.dtype(x), shape };
    b.push(Op::Concat { axis }, &pieces, ty)
}

/// The amount to crop and the amount to add.
fn split_sign(b: &mut Builder, amount: Dim) -> (Dim, Dim) {
    let t = &mut b.g.dims;
    let negative = t.neg(amount);
    (t.max(negative, Dim::ZERO), t.max(amount, Dim::ZERO))
}
