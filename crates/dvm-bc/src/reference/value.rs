//! Scalars: what the bits of an element mean, and how results become bits again.

use crate::DType;

/// The value of an element. f16 and bf16 are widened to f32, exactly; integers and bools are exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value {
    F32(f32),
    F64(f64),
    Int(i128),
}

impl Value {
    /// The value of an element given by its bits, zero-extended.
    pub(super) fn of(dtype: DType, bits: u64) -> Value {
        match dtype {
            DType::F32 => Value::F32(f32::from_bits(bits as u32)),
            DType::F64 => Value::F64(f64::from_bits(bits)),
            DType::F16 => Value::F32(f16_to_f32(bits as u16)),
            DType::BF16 => Value::F32(f32::from_bits((bits as u16 as u32) << 16)),
            DType::I8 => Value::Int((bits as i8).into()),
            DType::U8 => Value::Int((bits as u8).into()),
            DType::I16 => Value::Int((bits as i16).into()),
            DType::U16 => Value::Int((bits as u16).into()),
            DType::I32 => Value::Int((bits as i32).into()),
            DType::U32 => Value::Int((bits as u32).into()),
            DType::I64 => Value::Int((bits as i64).into()),
            DType::U64 => Value::Int(bits.into()),
            DType::Bool => Value::Int((bits as u8 != 0).into()),
        }
    }

    /// The bits of a result of `dtype`: halves round once, integers wrap, bool is `!= 0`.
    pub(super) fn bits(self, dtype: DType) -> u64 {
        match (dtype, self) {
            (DType::F32, Value::F32(x)) => x.to_bits().into(),
            (DType::F64, Value::F64(x)) => x.to_bits(),
            (DType::F16, Value::F32(x)) => half_bits(x.into(), F16),
            (DType::BF16, Value::F32(x)) => half_bits(x.into(), BF16),
            (DType::Bool, v) => v.truth().into(),
            (d, Value::Int(v)) if !d.is_float() => v as u64 & (u64::MAX >> (64 - 8 * d.size())),
            // Not the kind of the dtype: a conversion.
            (d, v) => v.convert(d).bits(d),
        }
    }

    /// Conversion: float to integer truncates and saturates, NaN gives 0; integers wrap; to float rounds to nearest even.
    pub(super) fn convert(self, to: DType) -> Value {
        match to {
            DType::F32 => Value::F32(match self {
                Value::F32(x) => x,
                Value::F64(x) => x as f32,
                Value::Int(v) => v as f32,
            }),
            DType::F64 => Value::F64(match self {
                Value::F32(x) => x.into(),
                Value::F64(x) => x,
                Value::Int(v) => v as f64,
            }),
            DType::F16 | DType::BF16 => {
                let format = if to == DType::F16 { F16 } else { BF16 };
                Value::of(to, half_bits(self.to_f64_odd(), format))
            }
            DType::Bool => Value::Int(self.truth().into()),
            _ => Value::Int(match self {
                Value::F32(x) => saturate(x.into(), to),
                Value::F64(x) => saturate(x, to),
                Value::Int(v) => v,
            }),
        }
    }

    /// In f64; an integer that is not exact there keeps a set last bit, so that another rounding is the only one.
    fn to_f64_odd(self) -> f64 {
        match self {
            Value::F32(x) => x.into(),
            Value::F64(x) => x,
            Value::Int(v) => {
                let near = v as f64;
                let back = near as i128;
                if back == v {
                    return near;
                }
                let toward_zero =
                    if back.unsigned_abs() > v.unsigned_abs() { near.to_bits() - 1 } else { near.to_bits() };
                f64::from_bits(toward_zero | 1)
            }
        }
    }

    pub(super) fn truth(self) -> bool {
        match self {
            Value::F32(x) => x != 0.0,
            Value::F64(x) => x != 0.0,
            Value::Int(v) => v != 0,
        }
    }

    pub(super) fn is_nan(self) -> bool {
        match self {
            Value::F32(x) => x.is_nan(),
            Value::F64(x) => x.is_nan(),
            Value::Int(_) => false,
        }
    }

    /// For reports of traps: wraps.
    pub(super) fn as_i64(self) -> i64 {
        match self {
            Value::F32(x) => x as i64,
            Value::F64(x) => x as i64,
            Value::Int(v) => v as i64,
        }
    }

    /// Number `v` as an element of the dtype computes with it.
    pub(super) fn number(dtype: DType, v: i32) -> Value {
        match dtype {
            DType::F64 => Value::F64(v.into()),
            d if d.is_float() => Value::F32(v as f32),
            _ => Value::Int(v.into()),
        }
    }

    /// The identity of `max`.
    pub(super) fn lowest(dtype: DType) -> Value {
        match dtype {
            DType::F64 => Value::F64(f64::NEG_INFINITY),
            d if d.is_float() => Value::F32(f32::NEG_INFINITY),
            d => Value::Int(int_range(d).0),
        }
    }

    /// The identity of `min`.
    pub(super) fn highest(dtype: DType) -> Value {
        match dtype {
            DType::F64 => Value::F64(f64::INFINITY),
            d if d.is_float() => Value::F32(f32::INFINITY),
            d => Value::Int(int_range(d).1),
        }
    }
}

/// Least and largest value of an integer dtype or bool.
pub(super) fn int_range(dtype: DType) -> (i128, i128) {
    let bits = 8 * dtype.size();
    match dtype {
        DType::Bool => (0, 1),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        _ => (0, (1 << bits) - 1),
    }
}

fn saturate(x: f64, to: DType) -> i128 {
    let (least, most) = int_range(to);
    // `as` truncates, saturates at the ends of i128, and gives 0 for NaN.
    (x as i128).clamp(least, most)
}

/// A 16-bit float: bits of the fraction, and the exponent of the least normal number.
#[derive(Clone, Copy)]
struct Half {
    fraction: u32,
    least: i32,
}

const F16: Half = Half { fraction: 10, least: -14 };
const BF16: Half = Half { fraction: 7, least: -126 };

fn f16_to_f32(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (u32::from(bits >> 15) << 31, bits >> 10 & 31, u32::from(bits & 0x3ff));
    let magnitude = match exponent {
        0 => fraction as f32 * 2f32.powi(-24),
        31 => f32::from_bits(0x7f80_0000 | fraction << 13),
        e => f32::from_bits((u32::from(e) + 112) << 23 | fraction << 13),
    };
    f32::from_bits(magnitude.to_bits() | sign)
}

/// `x` rounded to nearest even.
fn half_bits(x: f64, format: Half) -> u64 {
    let sign = u64::from(x.is_sign_negative()) << 15;
    let infinity = (1u64 << 15) - (1 << format.fraction);
    if x.is_nan() {
        return sign | infinity | 1 << (format.fraction - 1);
    }
    if x == 0.0 {
        return sign;
    }
    // In units of the last place at x's exponent; those below the least normal number share its spacing.
    let exponent = ((x.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(format.least);
    let unit = exponent - format.fraction as i32;
    // Exact: scaling by a power of two, of a number that is far from the ends of f64's range or becomes infinite.
    let units = if exponent > 1000 { f64::INFINITY } else { x.abs() * 2f64.powi(-unit) };
    let units = units.round_ties_even();
    if units.is_infinite() {
        return sign | infinity;
    }
    // The exponent's field counts from the least normal; a fraction that rounds up carries into it.
    let base = ((exponent - format.least) as u64) << format.fraction;
    sign | (base + units as u64).min(infinity)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_survives() {
        for dtype in [DType::F16, DType::BF16] {
            for bits in 0..=u64::from(u16::MAX) {
                let v = Value::of(dtype, bits);
                if v.is_nan() {
                    assert!(Value::of(dtype, v.bits(dtype)).is_nan());
                } else {
                    assert_eq!(v.bits(dtype), bits, "{dtype} {v:?}");
                }
            }
        }
    }

    #[test]
    fn conversions() {
        use Value::{F32, F64, Int};
        for (value, to, bits) in [
            (F32(65519.0), DType::F16, 0x7bff),
            (F32(65520.0), DType::F16, 0x7c00),
            (F32(-1e30), DType::F16, 0xfc00),
            (F64(2f64.powi(-25)), DType::F16, 0),
            (F64(2f64.powi(-25) * 1.001), DType::F16, 1),
            (F64(-0.0), DType::F16, 0x8000),
            (F64(1.0 + 2f64.powi(-11) + 2f64.powi(-40)), DType::F16, 0x3c01),
            (F32(1.0 + 1.0 / 256.0), DType::BF16, 0x3f80),
            (F32(f32::MAX), DType::BF16, 0x7f80),
            (F64(1e300), DType::BF16, 0x7f80),
            (F32(f32::from_bits(1)), DType::BF16, 0),
            (Int((1 << 62) + (1 << 54) + 1), DType::BF16, 0x5e81),
            (Int(-(1 << 62) - (1 << 54)), DType::BF16, 0xde80),
            (F32(300.0), DType::U8, 255),
            (F32(-1.5), DType::U8, 0),
            (F32(-1.9), DType::I8, 0xff),
            (F32(f32::NAN), DType::I32, 0),
            (F64(1e30), DType::I64, i64::MAX as u64),
            (Int(-1), DType::U16, 0xffff),
            (Int(256), DType::Bool, 1),
            (Int(256), DType::U8, 0),
            (F32(f32::NAN), DType::Bool, 1),
            (Int(i128::from(u64::MAX)), DType::F32, 0x5f80_0000),
        ] {
            assert_eq!(value.convert(to).bits(to), bits, "{value:?} to {to}");
        }
    }
}
