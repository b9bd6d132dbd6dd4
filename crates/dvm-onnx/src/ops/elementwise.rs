//! Elementwise ops: one operand, two operands with broadcasting, variadic ones, casts and selections.

use dvm_ir::{BinaryOp as B, DType, Dim, Op, Scalar, UnaryOp as U};

use super::{OpRow, op};
use crate::cx::{Cx, Outs};
use crate::error::{Fail, invalid};
use crate::value::{Nd, V};

pub(super) const ROWS: &[OpRow] = &[
    op!("Abs", 1, |c| unary(c, U::Abs)),
    op!("Acos", 7, |c| unary(c, U::Acos)),
    op!("Acosh", 9, |c| unary(c, U::Acosh)),
    op!("Add", 1, |c| binary(c, B::Add)),
    op!("And", 1, |c| binary(c, B::And)),
    op!("Asin", 7, |c| unary(c, U::Asin)),
    op!("Asinh", 9, |c| unary(c, U::Asinh)),
    op!("Atan", 7, |c| unary(c, U::Atan)),
    op!("Atanh", 9, |c| unary(c, U::Atanh)),
    op!("BitShift", 11, bit_shift),
    op!("BitwiseAnd", 18, |c| binary(c, B::And)),
    op!("BitwiseNot", 18, |c| unary(c, U::Not)),
    op!("BitwiseOr", 18, |c| binary(c, B::Or)),
    op!("BitwiseXor", 18, |c| binary(c, B::Xor)),
    op!("Cast", 1, cast, "no 8-bit, 4-bit or 2-bit floats, 4-bit integers or strings"),
    op!("CastLike", 15, cast_like),
    op!("Ceil", 1, |c| unary(c, U::Ceil)),
    op!("Clip", 1, clip),
    op!("Cos", 7, |c| unary(c, U::Cos)),
    op!("Cosh", 9, |c| unary(c, U::Cosh)),
    op!("Div", 1, |c| binary(c, B::Div)),
    op!("Equal", 1, |c| binary(c, B::Eq)),
    op!("Erf", 9, |c| unary(c, U::Erf)),
    op!("Exp", 1, |c| unary(c, U::Exp)),
    op!("Floor", 1, |c| unary(c, U::Floor)),
    op!("Greater", 1, |c| binary(c, B::Gt)),
    op!("GreaterOrEqual", 12, |c| binary(c, B::Ge)),
    op!("IsInf", 10, is_inf),
    op!("IsNaN", 9, |c| unary(c, U::IsNan)),
    op!("Less", 1, |c| binary(c, B::Lt)),
    op!("LessOrEqual", 12, |c| binary(c, B::Le)),
    op!("Log", 1, |c| unary(c, U::Ln)),
    op!("Max", 1, |c| variadic(c, B::Max)),
    op!("Mean", 1, mean),
    op!("Min", 1, |c| variadic(c, B::Min)),
    op!("Mod", 10, modulo),
    op!("Mul", 1, |c| binary(c, B::Mul)),
    op!("Neg", 1, |c| unary(c, U::Neg)),
    op!("Not", 1, |c| unary(c, U::Not)),
    op!("Or", 1, |c| binary(c, B::Or)),
    op!("Pow", 1, pow),
    op!("Reciprocal", 1, |c| unary(c, U::Reciprocal)),
    op!("Round", 11, |c| unary(c, U::Round)),
    op!("Sign", 9, |c| unary(c, U::Sign)),
    op!("Sin", 7, |c| unary(c, U::Sin)),
    op!("Sinh", 9, |c| unary(c, U::Sinh)),
    op!("Sqrt", 1, |c| unary(c, U::Sqrt)),
    op!("Sub", 1, |c| binary(c, B::Sub)),
    op!("Sum", 1, |c| variadic(c, B::Add)),
    op!("Tan", 7, |c| unary(c, U::Tan)),
    op!("Tanh", 1, |c| unary(c, U::Tanh)),
    op!("Where", 9, select),
    op!("Xor", 1, |c| binary(c, B::Xor)),
];

fn unary(c: &mut Cx<'_, '_>, op: U) -> Outs {
    let x = c.input(0)?;
    let dtype = c.dtype(x);
    let nd = c.known(x).and_then(|nd| nd.map(|d| c.known_unary(op, dtype, d)));
    Ok(vec![c.known_or(dtype, &[x], nd, |c| c.unary(op, x))?])
}

fn binary(c: &mut Cx<'_, '_>, op: B) -> Outs {
    let (a, b) = (c.input(0)?, c.input(1)?);
    Ok(vec![c.fold_binary(op, a, b)?])
}

fn variadic(c: &mut Cx<'_, '_>, op: B) -> Outs {
    let all = c.inputs()?;
    let Some((&first, rest)) = all.split_first() else { return invalid("it has no operands") };
    let mut x = first;
    for &y in rest {
        x = c.fold_binary(op, x, y)?;
    }
    Ok(vec![x])
}

fn mean(c: &mut Cx<'_, '_>) -> Outs {
    let n = c.inputs()?.len();
    let sum = variadic(c, B::Add)?[0];
    Ok(vec![c.with(B::Div, sum, n as f64)?])
}

fn bit_shift(c: &mut Cx<'_, '_>) -> Outs {
    match c.string("direction")? {
        Some("LEFT") => binary(c, B::Shl),
        Some("RIGHT") => {
            let (x, y) = (c.input(0)?, c.input(1)?);
            let dtype = c.dtype(x);
            if dtype.is_unsigned() || !dtype.is_int() {
                return binary(c, B::Shr);
            }
            // A signed value shifted out entirely leaves its sign; so does a negative amount.
            let last = c.scalar(dtype, (dtype.size() * 8 - 1) as f64);
            let zero = c.scalar(dtype, 0.0);
            let negative = c.binary(B::Lt, y, zero)?;
            let least = c.binary(B::Min, y, last)?;
            let y = c.select(negative, last, least)?;
            Ok(vec![c.binary(B::Shr, x, y)?])
        }
        other => invalid(format!("direction {other:?}")),
    }
}

fn modulo(c: &mut Cx<'_, '_>) -> Outs {
    let fmod = c.flag("fmod", false)?;
    binary(c, if fmod { B::Fmod } else { B::Rem })
}

/// The result has the dtype of the base; the exponent may have another.
fn pow(c: &mut Cx<'_, '_>) -> Outs {
    let (x, y) = (c.input(0)?, c.input(1)?);
    let (dx, dy) = (c.dtype(x), c.dtype(y));
    if dx == dy {
        return binary(c, B::Pow);
    }
    let wide = match (dx.is_float(), dy.is_float()) {
        (true, _) => dx,
        (false, true) => DType::F64,
        (false, false) if dx.size() >= dy.size() => dx,
        (false, false) => dy,
    };
    let (x, y) = (c.cast(x, wide)?, c.cast(y, wide)?);
    let r = c.binary(B::Pow, x, y)?;
    Ok(vec![c.cast(r, dx)?])
}

fn cast(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let Some(to) = c.dtype_attr("to")? else { return invalid("attribute `to` is missing") };
    Ok(vec![c.fold_cast(x, to)?])
}

fn cast_like(c: &mut Cx<'_, '_>) -> Outs {
    let (x, like) = (c.input(0)?, c.input(1)?);
    let to = c.dtype(like);
    Ok(vec![c.fold_cast(x, to)?])
}

fn clip(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let dtype = c.dtype(x);
    let mut bounds = [c.opt(1), c.opt(2)];
    if c.opset < 11 {
        for (b, name) in bounds.iter_mut().zip(["min", "max"]) {
            *b = c.float(name)?.map(|v| c.scalar(dtype, v));
        }
    }
    Ok(vec![match bounds {
        [None, None] => x,
        [Some(lo), None] => c.fold_binary(B::Max, x, lo)?,
        [None, Some(hi)] => c.fold_binary(B::Min, x, hi)?,
        [Some(lo), Some(hi)] if c.is_all_known(&[x, lo, hi]) => {
            let y = c.fold_binary(B::Max, x, lo)?;
            c.fold_binary(B::Min, y, hi)?
        }
        [Some(lo), Some(hi)] => {
            // One-element bounds of any rank are scalars.
            let (lo, hi) = (c.as_scalar(lo)?, c.as_scalar(hi)?);
            c.push(Op::Clamp {}, &[x, lo, hi])?
        }
    }])
}

fn is_inf(c: &mut Cx<'_, '_>) -> Outs {
    let x = c.input(0)?;
    let (neg, pos) = (c.flag("detect_negative", true)?, c.flag("detect_positive", true)?);
    Ok(vec![match (neg, pos) {
        (true, true) => c.unary(U::IsInf, x)?,
        (false, false) => {
            let shape = c.shape(x);
            c.fill(DType::Bool, Scalar::Int(0), shape)?
        }
        (neg, _) => {
            let limit = c.scalar(c.dtype(x), if neg { f64::NEG_INFINITY } else { f64::INFINITY });
            c.binary(B::Eq, x, limit)?
        }
    }])
}

fn select(c: &mut Cx<'_, '_>) -> Outs {
    let (cond, a, b) = (c.input(0)?, c.input(1)?, c.input(2)?);
    let dtype = c.dtype(a);
    let nd = c.known_select(cond, a, b);
    Ok(vec![c.known_or(dtype, &[cond, a, b], nd, |c| c.select(cond, a, b))?])
}

impl Cx<'_, '_> {
    /// Elements of a value, when shape arithmetic may use them.
    pub(super) fn known(&mut self, v: V) -> Option<Nd> {
        self.imp.is_known(v).then(|| self.imp.nd(v))?
    }
    pub(super) fn is_all_known(&mut self, vs: &[V]) -> bool {
        vs.iter().all(|&v| self.imp.is_known(v))
    }
    pub(super) fn as_scalar(&mut self, v: V) -> Result<V, Fail> {
        if self.rank(v) == 0 { Ok(v) } else { self.reshape(v, vec![]) }
    }

    fn known_unary(&mut self, op: U, dtype: DType, d: Dim) -> Option<Dim> {
        let dims = self.dims();
        match op {
            U::Copy | U::Floor | U::Ceil | U::Round | U::Trunc => Some(d),
            U::Neg if dims.as_const(d) == Some(0) && dtype.is_float() => None,
            U::Neg if dtype.is_unsigned() => None,
            U::Neg => fits(dims.neg(d), dtype, dims),
            U::Abs => {
                let n = dims.neg(d);
                fits(dims.max(d, n), dtype, dims)
            }
            U::Sign => {
                let (pos, neg) = (dims.lt(Dim::ZERO, d), dims.lt(d, Dim::ZERO));
                Some(dims.sub(pos, neg))
            }
            U::Not if dtype == DType::Bool => Some(dims.not(d)),
            _ => None,
        }
    }

    /// A binary op, on known elements where possible.
    pub(crate) fn fold_binary(&mut self, op: B, a: V, b: V) -> Result<V, Fail> {
        let dtype = self.dtype(a);
        let nd = if self.is_all_known(&[a, b]) && dtype == self.dtype(b) {
            self.known_binary(op, dtype, a, b)
        } else {
            None
        };
        let out = if op.is_comparison() { DType::Bool } else { dtype };
        self.known_or(out, &[a, b], nd, |c| c.binary(op, a, b))
    }
    fn known_binary(&mut self, op: B, dtype: DType, a: V, b: V) -> Option<Nd> {
        let (x, y) = (self.known(a)?, self.known(b)?);
        let dims = self.dims();
        x.zip(&y, |p, q| known_binary(op, dtype, p, q, dims))
    }
    pub(crate) fn fold_cast(&mut self, x: V, to: DType) -> Result<V, Fail> {
        let from = self.dtype(x);
        if from == to {
            return Ok(x);
        }
        let nd = self.known(x).and_then(|nd| {
            nd.map(|d| {
                let dims = self.dims();
                match to {
                    DType::Bool => {
                        let zero = dims.eq(d, Dim::ZERO);
                        Some(dims.not(zero))
                    }
                    _ => fits(d, to, dims),
                }
            })
        });
        self.known_or(to, &[x], nd, |c| c.cast(x, to))
    }
    fn known_select(&mut self, cond: V, a: V, b: V) -> Option<Nd> {
        if !self.is_all_known(&[cond, a, b]) {
            return None;
        }
        let (c, x, y) = (self.known(cond)?, self.known(a)?, self.known(b)?);
        let shape = Nd::common(&Nd::common(&c.shape, &x.shape)?, &y.shape)?;
        let (c, x, y) = (c.broadcast(&shape)?, x.broadcast(&shape)?, y.broadcast(&shape)?);
        let dims = self.dims();
        let data = c.data.iter().zip(x.data.iter().zip(&y.data)).map(|(&c, (&x, &y))| dims.select(c, x, y));
        Some(Nd { shape, data: data.collect() })
    }
}

/// The value, unless it is a constant out of the dtype's range: those wrap or round, which only the tensor op does.
fn fits(d: Dim, dtype: DType, dims: &dvm_ir::DimTable) -> Option<Dim> {
    let Some(c) = dims.as_const(d) else { return Some(d) };
    let s = if dtype.is_float() { Scalar::Float(c as f64) } else { Scalar::Int(c) };
    let back = Scalar::from_bits(s.to_bits(dtype), dtype);
    (back.as_f64() == c as f64 && (dtype.is_float() || back.as_i64() == c)).then_some(d)
}

fn known_binary(op: B, dtype: DType, a: Dim, b: Dim, dims: &mut dvm_ir::DimTable) -> Option<Dim> {
    let float = dtype.is_float();
    let r = match op {
        B::Add => dims.add(a, b),
        B::Sub => dims.sub(a, b),
        // A float product of 0 may be -0, which a dim cannot say.
        B::Mul if float && (a == Dim::ZERO || b == Dim::ZERO) => return None,
        B::Mul => dims.mul(a, b),
        B::Max => dims.max(a, b),
        B::Min => dims.min(a, b),
        B::Div if float => match (dims.as_const(a), dims.as_const(b)) {
            (Some(x), Some(y)) if y != 0 && x % y == 0 && x != 0 => dims.constant(x / y),
            _ => return None,
        },
        B::Div => trunc_div(a, b, dims)?,
        B::FloorDiv if !float => dims.floor_div(a, b),
        B::Rem if !float && dims.as_const(b) != Some(0) => dims.rem(a, b),
        B::Eq => dims.eq(a, b),
        B::Ne => {
            let e = dims.eq(a, b);
            dims.not(e)
        }
        B::Lt => dims.lt(a, b),
        B::Gt => dims.lt(b, a),
        B::Le => {
            let g = dims.lt(b, a);
            dims.not(g)
        }
        B::Ge => {
            let l = dims.lt(a, b);
            dims.not(l)
        }
        B::And if dtype == DType::Bool => dims.mul(a, b),
        B::Or if dtype == DType::Bool => dims.max(a, b),
        B::Xor if dtype == DType::Bool => {
            let e = dims.eq(a, b);
            dims.not(e)
        }
        _ => return None,
    };
    // Unsigned differences wrap.
    if dtype.is_unsigned() && dims.range(r).0 < 0 {
        return None;
    }
    // A product or sum of constants that left the range.
    if dims.as_const(a).is_some() && dims.as_const(b).is_some() && dims.as_const(r).is_none() {
        return None;
    }
    fits(r, if op.is_comparison() { DType::Bool } else { dtype }, dims)
}

/// Division of integers toward zero.
fn trunc_div(a: Dim, b: Dim, dims: &mut dvm_ir::DimTable) -> Option<Dim> {
    if let (Some(x), Some(y)) = (dims.as_const(a), dims.as_const(b)) {
        return x.checked_div(y).map(|q| dims.constant(q));
    }
    if dims.range(b).0 < 0 {
        return None;
    }
    let floor = dims.floor_div(a, b);
    if dims.range(a).0 >= 0 {
        return Some(floor);
    }
    let n = dims.neg(a);
    let up = dims.floor_div(n, b);
    let up = dims.neg(up);
    let negative = dims.lt(a, Dim::ZERO);
    Some(dims.select(negative, up, floor))
}
