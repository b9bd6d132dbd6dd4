//! Elementwise ops on arrays, with NumPy broadcasting.

use super::{
    Fault,
    array::{Array, Data, broadcast_shapes, unravel},
    scalar,
};
use crate::{BinaryOp, DType, UnaryOp};

pub(super) fn unary(op: UnaryOp, x: &Array) -> Result<Array, Fault> {
    let (dtype, shape) = (x.dtype, x.shape.clone());
    let undefined = || Fault::DType { dtype };
    if op.is_test() {
        let test: fn(f64) -> bool = match op {
            UnaryOp::IsFinite => f64::is_finite,
            UnaryOp::IsNan => f64::is_nan,
            _ => f64::is_infinite,
        };
        let bits = match &x.data {
            Data::Float(v) => v.iter().map(|&x| i64::from(test(x))).collect(),
            Data::Int(v) => vec![i64::from(op == UnaryOp::IsFinite); v.len()],
        };
        return Ok(Array::from_int(DType::Bool, shape, bits));
    }
    Ok(match &x.data {
        Data::Float(v) => {
            let f = scalar::unary_float(op).ok_or_else(undefined)?;
            Array::from_f64(dtype, shape, v.iter().map(|&x| f(x)).collect())
        }
        Data::Int(v) => {
            let f = scalar::unary_int(op, dtype).ok_or_else(undefined)?;
            let g = |&x: &i64| scalar::wrap(f(scalar::exact(x, dtype)), dtype);
            Array::from_int(dtype, shape, v.iter().map(g).collect())
        }
    })
}

/// Two arrays of one dtype, expanded to a common shape.
fn aligned(a: &Array, b: &Array) -> Result<(Array, Array), Fault> {
    if a.dtype != b.dtype {
        return Err(Fault::DTypes { a: a.dtype, b: b.dtype });
    }
    let shape = broadcast_shapes(&a.shape, &b.shape)?;
    Ok((a.expand(&shape)?, b.expand(&shape)?))
}

pub(super) fn binary(op: BinaryOp, a: &Array, b: &Array) -> Result<Array, Fault> {
    let (a, b) = aligned(a, b)?;
    let (dtype, shape) = (a.dtype, a.shape.clone());
    let undefined = || Fault::DType { dtype };
    match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => {
            let pairs = x.iter().zip(y);
            if let Some(test) = scalar::compare::<f64>(op) {
                let bits = pairs.map(|(a, b)| i64::from(test(a, b))).collect();
                return Ok(Array::from_int(DType::Bool, shape, bits));
            }
            let f = scalar::binary_float(op).ok_or_else(undefined)?;
            Ok(Array::from_f64(dtype, shape, pairs.map(|(&a, &b)| f(a, b)).collect()))
        }
        (Data::Int(x), Data::Int(y)) => {
            let pairs = x.iter().zip(y).map(|(&a, &b)| (scalar::exact(a, dtype), scalar::exact(b, dtype)));
            if let Some(test) = scalar::compare::<i128>(op) {
                let bits = pairs.map(|(a, b)| i64::from(test(&a, &b))).collect();
                return Ok(Array::from_int(DType::Bool, shape, bits));
            }
            let f = scalar::binary_int(op, dtype).ok_or_else(undefined)?;
            let one = |(at, (a, b)): (usize, (i128, i128))| match f(a, b) {
                Some(v) => Ok(scalar::wrap(v, dtype)),
                None => Err(Fault::DivByZero { index: unravel(at, &shape), dividend: a }),
            };
            let data = pairs.enumerate().map(one).collect::<Result<_, _>>()?;
            Ok(Array::from_int(dtype, shape, data))
        }
        _ => Err(undefined()),
    }
}

/// `a*b + c` in one rounding (for halves: in the f64 fused product-sum, then rounded).
pub(super) fn fma(a: &Array, b: &Array, c: &Array) -> Result<Array, Fault> {
    let (a, b) = aligned(a, b)?;
    let (a, c) = aligned(&a, c)?;
    let b = b.expand(&a.shape)?;
    let f: fn(f64, f64, f64) -> f64 = match a.dtype {
        // The f64 sum would round twice.
        DType::F32 => |a, b, c| f64::from((a as f32).mul_add(b as f32, c as f32)),
        _ => f64::mul_add,
    };
    let (x, y, z) = (a.floats()?, b.floats()?, c.floats()?);
    let data = x.iter().zip(y).zip(z).map(|((&a, &b), &c)| f(a, b, c)).collect();
    Ok(Array::from_f64(a.dtype, a.shape.clone(), data))
}

pub(super) fn select(cond: &Array, a: &Array, b: &Array) -> Result<Array, Fault> {
    let (a, b) = aligned(a, b)?;
    let shape = broadcast_shapes(&cond.shape, &a.shape)?;
    let (cond, a, b) = (cond.expand(&shape)?, a.expand(&shape)?, b.expand(&shape)?);
    if cond.dtype != DType::Bool {
        return Err(Fault::DType { dtype: cond.dtype });
    }
    fn pick<T: Copy>(cond: &[i64], a: &[T], b: &[T]) -> Vec<T> {
        cond.iter().zip(a.iter().zip(b)).map(|(&c, (&a, &b))| if c != 0 { a } else { b }).collect()
    }
    let data = match (&a.data, &b.data) {
        (Data::Float(x), Data::Float(y)) => Data::Float(pick(cond.ints()?, x, y)),
        (Data::Int(x), Data::Int(y)) => Data::Int(pick(cond.ints()?, x, y)),
        _ => return Err(Fault::DTypes { a: a.dtype, b: b.dtype }),
    };
    Ok(Array { dtype: a.dtype, shape, data })
}

pub(super) fn clamp(x: &Array, lo: &Array, hi: &Array) -> Result<Array, Fault> {
    binary(BinaryOp::Min, &binary(BinaryOp::Max, x, lo)?, hi)
}

pub(super) fn cast(x: &Array, to: DType) -> Array {
    let shape = x.shape.clone();
    match &x.data {
        Data::Float(v) if to.is_float() => Array::from_f64(to, shape, v.clone()),
        Data::Float(v) => {
            Array::from_int(to, shape, v.iter().map(|&x| scalar::float_to_int(x, to)).collect())
        }
        Data::Int(v) => {
            let exact = v.iter().map(|&i| scalar::exact(i, x.dtype));
            if to.is_float() {
                let data = Data::Float(exact.map(|i| scalar::int_to_float(i, to)).collect());
                Array { dtype: to, shape, data }
            } else {
                Array::from_int(to, shape, exact.map(|i| scalar::wrap(i, to)).collect())
            }
        }
    }
}
