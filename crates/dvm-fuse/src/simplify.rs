//! Identities that hold for every value bit for bit (NaN, infinities and signed zeros included).

use dvm_ir::{BinaryOp, DType, Dim, Op, Scalar, Tensor, TensorType, UnaryOp, ValueId};

use crate::builder::Builder;

/// An existing (or simpler, newly pushed) value equal to `op(inputs)`.
pub(crate) fn simplify(b: &mut Builder, op: &Op, inputs: &[ValueId], ty: &TensorType) -> Option<ValueId> {
    match op {
        Op::Unary(u) => unary(b, *u, inputs[0]),
        Op::Binary(o) => binary(b, *o, inputs, ty),
        Op::Cast { to } => cast(b, inputs[0], *to),
        Op::Dims { values, scalar, dtype } => constant_dims(b, values, *scalar, *dtype),
        Op::Reduce { axes, .. } if axes.is_empty() => Some(inputs[0]),
        Op::Concat { .. } if inputs.len() == 1 => Some(inputs[0]),
        Op::Fma {} | Op::Select {} | Op::Clamp {} => None,
        _ if op.is_view() => view(b, op, inputs[0], ty),
        _ => None,
    }
}

fn unary(b: &mut Builder, op: UnaryOp, x: ValueId) -> Option<ValueId> {
    match (op, b.def(x)) {
        (UnaryOp::Copy, _) => Some(x),
        (UnaryOp::Neg, Some((Op::Unary(UnaryOp::Neg), from)))
        | (UnaryOp::Not, Some((Op::Unary(UnaryOp::Not), from))) => Some(from[0]),
        (UnaryOp::Abs, Some((Op::Unary(UnaryOp::Abs), _))) => Some(x),
        (UnaryOp::Round | UnaryOp::Floor | UnaryOp::Ceil | UnaryOp::Trunc, _) if !b.dtype(x).is_float() => {
            Some(x)
        }
        _ => None,
    }
}

fn binary(b: &mut Builder, op: BinaryOp, inputs: &[ValueId], ty: &TensorType) -> Option<ValueId> {
    let (x, y) = (inputs[0], inputs[1]);
    let keeps = |b: &Builder, v: ValueId| b.g.value(v).ty == *ty;
    let is = |s: Scalar, c: f64| match s {
        Scalar::Float(f) => f.to_bits() == c.to_bits(),
        Scalar::Int(i) => i as f64 == c,
    };
    if let Some(s) = b.splat(y).filter(|_| keeps(b, x)) {
        match op {
            BinaryOp::Mul | BinaryOp::Div if is(s, 1.0) => return Some(x),
            BinaryOp::Sub if is(s, 0.0) => return Some(x),
            // x + 0.0 turns -0.0 into 0.0; x + -0.0 is exact.
            BinaryOp::Add if is(s, if ty.dtype.is_float() { -0.0 } else { 0.0 }) => return Some(x),
            BinaryOp::Div => {
                if let Scalar::Float(f) = s
                    && let Some(inverse) = exact_inverse(f, ty.dtype)
                {
                    let c = b.scalar(ty.dtype, inverse);
                    return Some(b.binary(BinaryOp::Mul, x, c, &ty.shape));
                }
            }
            _ => {}
        }
    }
    if let Some(s) = b.splat(x).filter(|_| keeps(b, y)) {
        match op {
            BinaryOp::Mul if is(s, 1.0) => return Some(y),
            BinaryOp::Add if is(s, if ty.dtype.is_float() { -0.0 } else { 0.0 }) => return Some(y),
            _ => {}
        }
    }
    None
}

/// `1 / c` when multiplying by it gives the bits of dividing by `c`: powers of two whose inverse is normal.
fn exact_inverse(c: f64, dtype: DType) -> Option<f64> {
    let bits = c.to_bits();
    let exponent = (bits >> 52 & 0x7ff) as i64 - 1023;
    let reach = match dtype {
        DType::F32 | DType::BF16 => 125,
        DType::F64 => 1021,
        DType::F16 => 13,
        _ => return None,
    };
    (bits & ((1 << 52) - 1) == 0 && exponent.abs() <= reach && c != 1.0).then_some(1.0 / c)
}

fn cast(b: &mut Builder, x: ValueId, to: DType) -> Option<ValueId> {
    let dtype = b.dtype(x);
    if dtype == to {
        return Some(x);
    }
    if let Some((Op::Cast { .. }, from)) = b.def(x) {
        let from = from[0];
        if widens(b.dtype(from), dtype) {
            return Some(b.cast(from, to));
        }
    }
    None
}

/// Whether every value of `a` is exactly representable in `to`, so that a later cast may skip it.
fn widens(a: DType, to: DType) -> bool {
    use DType::{BF16, Bool, F16, F32, F64};
    match (a, to) {
        (Bool, _) | (F16 | BF16, F32 | F64) | (F32, F64) => true,
        (a, F64) if a.is_int() => a.size() <= 4,
        (a, F32) if a.is_int() => a.size() <= 2,
        (a, to) if a.is_int() && to.is_int() => {
            a.size() < to.size() && (a.is_unsigned() || !to.is_unsigned())
        }
        _ => false,
    }
}

fn constant_dims(b: &mut Builder, values: &[Dim], scalar: bool, dtype: DType) -> Option<ValueId> {
    let consts: Vec<i64> = values.iter().map(|&d| b.g.dims.as_const(d)).collect::<Option<_>>()?;
    let shape: &[usize] = if scalar { &[] } else { &[consts.len()] };
    let mut t = Tensor::zeros(dtype, shape).ok()?;
    for (i, &c) in consts.iter().enumerate() {
        t.set(i, Scalar::Int(c));
    }
    Some(b.constant(None, t))
}

fn view(b: &mut Builder, op: &Op, x: ValueId, ty: &TensorType) -> Option<ValueId> {
    let inner = b.def(x).map(|(op, from)| (op.clone(), from[0..from.len().min(1)].to_vec()));
    match op {
        // Equal shapes make these identities; for the others an equal shape says nothing.
        Op::Reshape { .. } | Op::Expand { .. } if b.g.value(x).ty == *ty => Some(x),
        Op::Reshape { .. } => match inner {
            Some((Op::Reshape { .. }, from)) => Some(b.reshape(from[0], &ty.shape)),
            _ => None,
        },
        Op::Transpose { perm } => match inner {
            _ if perm.iter().enumerate().all(|(i, &p)| i == p) => Some(x),
            Some((Op::Transpose { perm: first }, from)) => {
                let perm = perm.iter().map(|&p| first[p]).collect();
                Some(b.push(Op::Transpose { perm }, &from, ty.clone()))
            }
            _ => None,
        },
        Op::Slice { start, len, step } => {
            let whole =
                (0..len.len()).all(|i| start[i] == Dim::ZERO && step[i] == 1 && len[i] == b.g.shape(x)[i]);
            whole.then_some(x)
        }
        _ => None,
    }
}
