//! One element at a time: rounding, wrapping, and the elementwise functions.
//!
//! Floats are computed in f64 and rounded to their dtype; for f32 and narrower the double rounding of `+ - * / sqrt` is
//! innocuous (53 >= 2*24 + 2). Integers are computed in i128 and wrapped.

use crate::{BinaryOp, DType, Scalar, UnaryOp, dtype::round_to_odd};

/// `x` rounded to nearest even in a float dtype.
pub(super) fn round(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F32 => f64::from(x as f32),
        DType::F16 => half::f16::from_f32(round_to_odd(x)).to_f64(),
        DType::BF16 => half::bf16::from_f32(round_to_odd(x)).to_f64(),
        _ => x,
    }
}

/// An integer rounded to nearest even in a float dtype.
pub(super) fn int_to_float(v: i128, dtype: DType) -> f64 {
    match dtype {
        DType::F64 => v as f64,
        DType::F32 => f64::from(v as f32),
        _ => {
            // To odd in f64 first: 64 bits do not fit its 53.
            let near = v as f64;
            let toward_zero =
                if (near as i128).abs() > v.abs() { near.to_bits() - 1 } else { near.to_bits() };
            round(if near as i128 == v { near } else { f64::from_bits(toward_zero | 1) }, dtype)
        }
    }
}

/// A float truncated and saturated to an integer dtype, NaN as 0; to bool it is "not zero".
pub(super) fn float_to_int(x: f64, dtype: DType) -> i64 {
    if dtype == DType::Bool {
        return i64::from(x != 0.0);
    }
    let (lo, hi) = int_range(dtype);
    // i128 holds every bound, and `as` truncates and saturates with NaN as 0.
    wrap((x as i128).clamp(lo, hi), dtype)
}

/// Least and greatest value of an integer dtype or bool.
pub(super) fn int_range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => (0, 1),
        d if d.is_unsigned() => (0, (1 << bits) - 1),
        _ => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
    }
}

/// The stored form of an integer: wrapped to the dtype; u64 keeps its bits in an i64; bool is "not zero".
pub(super) fn wrap(v: i128, dtype: DType) -> i64 {
    match dtype {
        DType::I8 => i64::from(v as i8),
        DType::U8 => i64::from(v as u8),
        DType::I16 => i64::from(v as i16),
        DType::U16 => i64::from(v as u16),
        DType::I32 => i64::from(v as i32),
        DType::U32 => i64::from(v as u32),
        DType::Bool => i64::from(v != 0),
        _ => v as i64,
    }
}

/// The integer that a stored form means.
pub(super) fn exact(v: i64, dtype: DType) -> i128 {
    if dtype == DType::U64 { i128::from(v as u64) } else { i128::from(v) }
}

/// The larger; NaN if either is, and +0 above -0.
pub(super) fn fmax(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        f64::NAN
    } else if a > b || (a == b && a.is_sign_positive()) {
        a
    } else {
        b
    }
}

/// The smaller; NaN if either is, and -0 below +0.
pub(super) fn fmin(a: f64, b: f64) -> f64 {
    -fmax(-a, -b)
}

/// `1 / (1 + e^-x)`.
pub(super) fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + libm::exp(-x))
}

/// A unary function on floats; `None` where the op is not one or has bool results.
pub(super) fn unary_float(op: UnaryOp) -> Option<fn(f64) -> f64> {
    use UnaryOp as U;
    Some(match op {
        U::Copy => |x| x,
        U::Abs => f64::abs,
        U::Neg => |x| -x,
        U::Sign => |x| {
            if x > 0.0 {
                1.0
            } else if x < 0.0 {
                -1.0
            } else {
                x
            }
        },
        U::Sqrt => f64::sqrt,
        U::Rsqrt => |x| 1.0 / x.sqrt(),
        U::Reciprocal => |x| 1.0 / x,
        U::Exp => libm::exp,
        U::Exp2 => libm::exp2,
        U::Ln => libm::log,
        U::Log2 => libm::log2,
        U::Log1p => libm::log1p,
        U::Expm1 => libm::expm1,
        U::Sin => libm::sin,
        U::Cos => libm::cos,
        U::Tan => libm::tan,
        U::Tanh => libm::tanh,
        U::Erf => libm::erf,
        U::Sigmoid => sigmoid,
        U::Round => f64::round_ties_even,
        U::Floor => f64::floor,
        U::Ceil => f64::ceil,
        U::Trunc => f64::trunc,
        U::Asin => libm::asin,
        U::Acos => libm::acos,
        U::Atan => libm::atan,
        U::Sinh => libm::sinh,
        U::Cosh => libm::cosh,
        U::Asinh => libm::asinh,
        U::Acosh => libm::acosh,
        U::Atanh => libm::atanh,
        U::IsFinite | U::IsNan | U::IsInf | U::Not => return None,
    })
}

/// A unary function on integers and bool (before wrapping); `None` where there is none.
pub(super) fn unary_int(op: UnaryOp, dtype: DType) -> Option<fn(i128) -> i128> {
    use UnaryOp as U;
    Some(match op {
        U::Copy | U::Round | U::Floor | U::Ceil | U::Trunc => |x| x,
        U::Abs => i128::abs,
        U::Neg => |x| -x,
        U::Sign => i128::signum,
        U::Not if dtype == DType::Bool => |x| 1 - x,
        U::Not => |x| !x,
        _ => return None,
    })
}

/// A binary function on floats; `None` for bitwise ops and comparisons.
pub(super) fn binary_float(op: BinaryOp) -> Option<fn(f64, f64) -> f64> {
    use BinaryOp as B;
    Some(match op {
        B::Add => |a, b| a + b,
        B::Sub => |a, b| a - b,
        B::Mul => |a, b| a * b,
        B::Div => |a, b| a / b,
        B::FloorDiv => floor_div,
        B::Rem => rem,
        B::Fmod => |a, b| a % b,
        B::Pow => libm::pow,
        B::Max => fmax,
        B::Min => fmin,
        _ => return None,
    })
}

/// NumPy's `//`: through the exact `fmod`, so that `1 // 0.1` is 9.
fn floor_div(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let m = a % b;
    let whole = (a - m) / b;
    let q = if m != 0.0 && (b < 0.0) != (m < 0.0) { whole - 1.0 } else { whole };
    if q == 0.0 { 0f64.copysign(a / b) } else { q.round_ties_even() }
}

/// NumPy's `mod`.
fn rem(a: f64, b: f64) -> f64 {
    let m = a % b;
    if m == 0.0 {
        0f64.copysign(b)
    } else if (b < 0.0) != (m < 0.0) {
        m + b
    } else {
        m
    }
}

/// A binary function on integers and bool (before wrapping), `None` for a zero divisor. The outer `None`: comparisons.
pub(super) fn binary_int(op: BinaryOp, dtype: DType) -> Option<impl Fn(i128, i128) -> Option<i128>> {
    use BinaryOp as B;
    let bits = if dtype == DType::Bool { 1 } else { 8 * dtype.size() as i128 };
    (!op.is_comparison()).then_some(move |a: i128, b: i128| {
        let in_width = (0..bits).contains(&b);
        Some(match op {
            B::Add => a + b,
            B::Sub => a - b,
            B::Mul => a.wrapping_mul(b),
            B::Div => a.checked_div(b)?,
            B::FloorDiv => {
                let q = a.checked_div(b)?;
                if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }
            }
            B::Rem => {
                let m = a.checked_rem(b)?;
                if m != 0 && (m < 0) != (b < 0) { m + b } else { m }
            }
            B::Fmod => a.checked_rem(b)?,
            B::Pow => int_pow(a, b),
            B::Max => a.max(b),
            B::Min => a.min(b),
            B::And => a & b,
            B::Or => a | b,
            B::Xor => a ^ b,
            B::Shl => {
                if in_width {
                    a << b
                } else {
                    0
                }
            }
            B::Shr => {
                if in_width {
                    a >> b
                } else {
                    0
                }
            }
            _ => unreachable!("comparisons were excluded"),
        })
    })
}

/// `a^b` modulo 2^128; a negative exponent gives the truncated reciprocal power (0 for a zero base).
fn int_pow(a: i128, b: i128) -> i128 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut e, mut power) = (a, b, 1i128);
    while e > 0 {
        if e & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        e >>= 1;
    }
    power
}

/// `a op b` in a dtype, rounded or wrapped, for an op that is defined for every pair.
pub(crate) fn arithmetic(op: BinaryOp, dtype: DType, a: Scalar, b: Scalar) -> Scalar {
    if let (true, Some(f)) = (dtype.is_float(), binary_float(op)) {
        return Scalar::Float(round(f(a.as_f64(), b.as_f64()), dtype));
    }
    let f = binary_int(op, dtype);
    let value = f.and_then(|f| f(exact(a.as_i64(), dtype), exact(b.as_i64(), dtype)));
    Scalar::Int(wrap(value.unwrap_or(0), dtype))
}

/// A comparison; `None` for other ops.
pub(super) fn compare<T: PartialOrd>(op: BinaryOp) -> Option<fn(&T, &T) -> bool> {
    use BinaryOp as B;
    Some(match op {
        B::Eq => |a, b| a == b,
        B::Ne => |a, b| a != b,
        B::Lt => |a, b| a < b,
        B::Le => |a, b| a <= b,
        B::Gt => |a, b| a > b,
        B::Ge => |a, b| a >= b,
        _ => return None,
    })
}
