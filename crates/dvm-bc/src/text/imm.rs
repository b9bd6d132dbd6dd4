//! Immediates as text: readable and exact. A float prints as the shortest decimal that reads back to its bits in its own
//! dtype; what has no such decimal (a NaN other than the usual one) prints as bits, `0x7fc00001`.

use crate::DType;

/// Fraction and exponent bits of a float dtype.
const fn format(dtype: DType) -> Option<(u32, u32)> {
    match dtype {
        DType::F64 => Some((52, 11)),
        DType::F32 => Some((23, 8)),
        DType::BF16 => Some((7, 8)),
        DType::F16 => Some((10, 5)),
        _ => None,
    }
}

/// The value of a float's bits; every one fits f64.
fn to_f64(bits: u64, (fraction, exponent): (u32, u32)) -> f64 {
    let sign = if bits >> (fraction + exponent) & 1 == 0 { 1.0 } else { -1.0 };
    let (m, e) = (bits & ((1 << fraction) - 1), bits >> fraction & ((1 << exponent) - 1));
    let bias = (1i64 << (exponent - 1)) - 1;
    let scale =
        |m: u64, e: i64| m as f64 * 2f64.powi(e.max(-1022) as i32) * 2f64.powi((e - e.max(-1022)) as i32);
    sign * match e {
        0 => scale(m, 1 - bias - i64::from(fraction)),
        e if e == (1 << exponent) - 1 => {
            if m == 0 {
                f64::INFINITY
            } else {
                f64::NAN
            }
        }
        e => scale(m | 1 << fraction, e as i64 - bias - i64::from(fraction)),
    }
}

/// The bits of the nearest float, ties to even.
fn from_f64(v: f64, (fraction, exponent): (u32, u32)) -> u64 {
    let sign = u64::from(v.is_sign_negative()) << (fraction + exponent);
    let infinity = ((1u64 << exponent) - 1) << fraction;
    if v.is_nan() {
        return sign | infinity | 1 << (fraction - 1);
    }
    let bits = v.abs().to_bits();
    let bias = (1i64 << (exponent - 1)) - 1;
    let e = (bits >> 52) as i64 - 1023;
    if v.is_infinite() || e > bias {
        return sign | infinity;
    }
    if fraction == 52 {
        return v.to_bits();
    }
    // Mantissa with its hidden bit, shifted to where the format keeps it; deeper for its subnormals.
    let mantissa = bits & ((1 << 52) - 1) | if bits >> 52 == 0 { 0 } else { 1 << 52 };
    let below = (1 - bias - e).max(0);
    let shift = (52 - i64::from(fraction) + below).min(63) as u32;
    let (kept, lost, half) = (mantissa >> shift, mantissa & ((1 << shift) - 1), 1u64 << (shift - 1));
    let rounded = kept + u64::from(lost > half || (lost == half && kept & 1 == 1));
    let exponent_bits = if below > 0 { 0 } else { ((e + bias - 1) as u64) << fraction };
    // A carry out of the mantissa moves into the exponent, and from the largest finite value into infinity.
    sign | (exponent_bits + rounded)
}

/// Appends the immediate `bits` of `dtype`.
pub(super) fn print(bits: u64, dtype: DType, out: &mut String) {
    use std::fmt::Write;
    let width = 8 * dtype.size();
    let raw = |out: &mut String| {
        let _ = write!(out, "0x{bits:x}");
    };
    if width < 64 && bits >> width != 0 {
        return raw(out);
    }
    if let Some(f) = format(dtype) {
        let v = to_f64(bits, f);
        let text = match dtype {
            _ if v.is_nan() => "nan".to_owned(),
            DType::F64 => format!("{v:?}"),
            DType::F32 => format!("{:?}", v as f32),
            // The fewest digits that give the bits back; five always do.
            _ if v.is_finite() => (0..8)
                .map(|digits| format!("{v:.digits$e}"))
                .find(|s| s.parse().is_ok_and(|v| from_f64(v, f) == bits))
                .and_then(|s| s.parse::<f64>().ok())
                .map_or_else(String::new, |v| format!("{v:?}")),
            _ => format!("{v:?}"),
        };
        return if parse(&text, dtype) == Some(bits) { out.push_str(&text) } else { raw(out) };
    }
    let signed = ((bits << (64 - width)) as i64) >> (64 - width);
    let _ = match dtype {
        DType::Bool if bits <= 1 => write!(out, "{}", bits == 1),
        DType::Bool => write!(out, "0x{bits:x}"),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => write!(out, "{signed}"),
        _ => write!(out, "{bits}"),
    };
}

/// The bits of an immediate of `dtype`; `None` where the text is none.
pub(super) fn parse(text: &str, dtype: DType) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    let width = 8 * dtype.size();
    if let Some(f) = format(dtype) {
        return match dtype {
            // Rounded once, from the text.
            DType::F32 => text.parse::<f32>().ok().map(|v| canonical(u64::from(v.to_bits()), f)),
            _ => text.parse::<f64>().ok().map(|v| canonical(from_f64(v, f), f)),
        };
    }
    match dtype {
        DType::Bool => match text {
            "true" => Some(1),
            "false" => Some(0),
            _ => None,
        },
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => {
            let v = text.parse::<i64>().ok()?;
            let fits = v >> (width - 1) == 0 || v >> (width - 1) == -1;
            fits.then_some(v as u64 & (u64::MAX >> (64 - width)))
        }
        _ => text.parse::<u64>().ok().filter(|v| width == 64 || v >> width == 0),
    }
}

/// One NaN: quiet and positive, whatever the platform's parser makes.
fn canonical(bits: u64, f: (u32, u32)) -> u64 {
    if to_f64(bits, f).is_nan() { from_f64(f64::NAN.abs(), f) } else { bits }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn immediates_read_well() {
        let f = |v: f32| u64::from(v.to_bits());
        for (bits, dtype, text) in [
            (f(0.0), DType::F32, "0.0"),
            (f(-0.0), DType::F32, "-0.0"),
            (f(0.1), DType::F32, "0.1"),
            (f(2.5e-5), DType::F32, "2.5e-5"),
            (f(f32::MAX), DType::F32, "3.4028235e38"),
            (1, DType::F32, "1e-45"),
            (f(f32::INFINITY), DType::F32, "inf"),
            (f(f32::NEG_INFINITY), DType::F32, "-inf"),
            (0x7fc0_0000, DType::F32, "nan"),
            (0xffc0_0000, DType::F32, "0xffc00000"),
            (0x7fc0_0001, DType::F32, "0x7fc00001"),
            (0x1_0000_0000, DType::F32, "0x100000000"),
            (0.1f64.to_bits(), DType::F64, "0.1"),
            (1, DType::F64, "5e-324"),
            (0x3f80, DType::BF16, "1.0"),
            (0x3dcd, DType::BF16, "0.1"),
            (0x7f7f, DType::BF16, "3.39e38"),
            (1, DType::BF16, "9e-41"),
            (0x3c00, DType::F16, "1.0"),
            (0x2e66, DType::F16, "0.1"),
            (0x7bff, DType::F16, "65500.0"),
            (1, DType::F16, "6e-8"),
            (0xfc00, DType::F16, "-inf"),
            (0x7e00, DType::F16, "nan"),
            (0xff, DType::I8, "-1"),
            (0xff, DType::U8, "255"),
            (u64::MAX, DType::I64, "-1"),
            (u64::MAX, DType::U64, "18446744073709551615"),
            (1, DType::Bool, "true"),
            (2, DType::Bool, "0x2"),
        ] {
            let mut out = String::new();
            print(bits, dtype, &mut out);
            assert_eq!(out, text, "{dtype} 0x{bits:x}");
            assert_eq!(parse(&out, dtype), Some(bits), "{dtype} {text}");
        }
        for (text, dtype) in [
            ("256", DType::U8),
            ("-129", DType::I8),
            ("1.5", DType::I32),
            ("yes", DType::Bool),
            ("1e", DType::F32),
            ("0xg", DType::F32),
        ] {
            assert_eq!(parse(text, dtype), None, "{dtype} {text}");
        }
    }

    #[test]
    fn halves_round_trip() {
        for dtype in [DType::F16, DType::BF16] {
            for bits in 0..=0xffff {
                let mut out = String::new();
                print(bits, dtype, &mut out);
                assert_eq!(parse(&out, dtype), Some(bits), "{dtype} 0x{bits:x} {out}");
                let nan = to_f64(bits, format(dtype).expect("a float")).is_nan();
                assert!(nan || !out.starts_with("0x"), "{dtype} 0x{bits:x} {out}");
            }
        }
    }
}
