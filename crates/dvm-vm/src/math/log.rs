//! Logarithms: `x = 2^e m` with `m` in 2/3 .. 4/3, and a polynomial in `f = m - 1`.

use super::cheap::function;
use super::drive::Unary;
use super::exp::{LN2, ONE_BITS, poly};
use super::lanes::Lanes;

/// (ln(1 + f) - f + f^2 / 2) / f^3.
const LN: [f32; 8] = [
    0.333_332_15,
    -0.249_998_06,
    0.200_104_27,
    -0.166_801_96,
    0.140_057_34,
    -0.121_874_78,
    0.139_845_94,
    -0.128_800_54,
];
/// The bits of 2/3.
const TWO_THIRDS: i32 = 0x3f2a_aaab;
/// 2^-23: makes a number of the exponent bits.
const EXPONENT: f32 = 1.0 / 8_388_608.0;
const LOG2E: f32 = std::f32::consts::LOG2_E;
/// log2 e - LOG2E.
const LOG2E_LO: f32 = 1.925_963e-8;

/// The exponent bits of `x`, chosen so that what remains is in 2/3 .. 4/3.
#[inline(always)]
fn exponent<V: Lanes>(x: V) -> V::Bits {
    V::and_bits(V::sub_bits(x.bits(), V::splat_bits(TWO_THIRDS)), V::splat_bits(0xff80_0000_u32 as i32))
}

/// ln(1 + f) - f.
#[inline(always)]
fn tail<V: Lanes>(f: V) -> (V, V) {
    let q = poly(f, &LN).horner(f, -0.5);
    (q, f.mul(f))
}

/// Normal positive numbers: `(e, f)`.
#[inline(always)]
fn split<V: Lanes>(x: V) -> (V, V) {
    let k = exponent(x);
    let m = V::from_bits(V::sub_bits(x.bits(), k));
    (V::bits_to_float(k).mul(V::splat(EXPONENT)), m.sub(V::splat(1.0)))
}

/// Splits, evaluates `f`, and repairs the arguments that are not normal and positive.
macro_rules! logarithm {
    ($name:ident, $e:ident, $f:ident => $value:expr) => {
        #[inline(always)]
        fn $name<V: Lanes>(x: V) -> V {
            let normal =
                V::and_mask(V::splat(f32::MIN_POSITIVE).le(x), x.lt(V::splat(f32::INFINITY)));
            if V::worth_checking(V::not_mask(normal)) {
                let small = x.lt(V::splat(f32::MIN_POSITIVE));
                let ($e, $f) = split(V::select(small, x.mul(V::splat(8_388_608.0)), x));
                let $e = V::select(small, $e.sub(V::splat(23.0)), $e);
                let y = $value;
                // The remaining ones: inf and NaN stay, 0 gives -inf, below gives NaN.
                let zero = V::splat(0.0);
                let y = V::select(x.lt(V::splat(f32::INFINITY)), y, x);
                let y = V::select(x.eq(zero), V::splat(f32::NEG_INFINITY), y);
                V::select(x.lt(zero), V::splat(f32::NAN), y)
            } else {
                let ($e, $f) = split(x);
                $value
            }
        }
    };
}

logarithm!(ln, e, f => {
    let (q, s) = tail(f);
    e.fma(V::splat(LN2), q.fma(s, f))
});

logarithm!(log2, e, f => {
    let (q, s) = tail(f);
    // f log2(e) in two parts, because near 1 it is the result.
    let hi = f.mul(V::splat(LOG2E));
    let lo = f.fma(V::splat(LOG2E), hi.neg());
    let lo = f.fma(V::splat(LOG2E_LO), lo);
    let lo = q.mul(s).fma(V::splat(LOG2E), lo);
    e.add(hi.add(lo))
});

#[inline(always)]
fn log1p<V: Lanes>(x: V) -> V {
    let one = V::splat(1.0);
    let u = x.add(one);
    let k = exponent(u);
    let e = V::bits_to_float(k).mul(V::splat(EXPONENT));
    // f = (1 + x) / 2^e - 1 with a single rounding; where x is so large that 1 does not count, from the bits.
    let s = V::from_bits(V::sub_bits(V::splat_bits(ONE_BITS), k));
    let near = x.fma(s, s.sub(one));
    let far = V::from_bits(V::sub_bits(u.bits(), k)).sub(one);
    let f = V::select(x.lt(V::splat(67_108_864.0)), near, far);
    let (q, s) = tail(f);
    let y = e.fma(V::splat(LN2), q.fma(s, f));
    let inside = V::and_mask(V::splat(-1.0).lt(x), x.lt(V::splat(f32::INFINITY)));
    let y = V::select(V::or_mask(V::not_mask(inside), x.eq(V::splat(0.0))), x, y);
    if V::worth_checking(x.le(V::splat(-1.0))) {
        let y = V::select(x.eq(V::splat(-1.0)), V::splat(f32::NEG_INFINITY), y);
        V::select(x.lt(V::splat(-1.0)), V::splat(f32::NAN), y)
    } else {
        y
    }
}

function!(Ln: Unary, x => ln(x));
function!(Log2: Unary, x => log2(x));
function!(Log1p: Unary, x => log1p(x));
