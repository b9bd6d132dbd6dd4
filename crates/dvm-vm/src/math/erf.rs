//! The error function: a polynomial near 0, `1 - exp(polynomial)` beyond.

use super::cheap::function;
use super::drive::Unary;
use super::exp::{exp_normal, poly};
use super::lanes::Lanes;

/// Where the two meet.
const BORDER: f32 = 0.8;
/// erf(x) / x - 1 in x^2.
const NEAR: [f32; 6] =
    [0.128_379_17, -0.376_126_08, 0.112_831_615, -0.026_822_181, 0.005_086_709_7, -0.000_654_100_85];
/// ln(erfc(x)) / x + 1.
const FAR: [f32; 6] =
    [-0.128_534_17, -0.635_650_16, -0.105_353_1, 0.022_949_355, -0.003_233_733, 0.000_216_291_64];

function!(Erf: Unary, x => {
    let a = x.abs();
    let near = poly(x.mul(x), &NEAR).fma(a, a);
    // Beyond 4 the result is 1.
    let t = V::splat(4.0).min_raw(a);
    let far = V::splat(1.0).sub(exp_normal(poly(t, &FAR).fma(t, t.neg())));
    // A NaN, which the exponential would spoil, takes the near side.
    let y = V::select(V::splat(BORDER).le(a), far, near);
    let sign = V::and_bits(x.bits(), V::splat_bits(i32::MIN));
    V::from_bits(V::or_bits(y.bits(), sign))
});
