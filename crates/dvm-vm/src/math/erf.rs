//! The error function: a polynomial near 0, `1 - exp(polynomial)` beyond.

use super::cheap::function;
use super::drive::Unary;
use super::exp::{exp_normal, poly};
use super::lanes::Lanes;

/// erf(x) / x - 1 in x^2.
const NEAR: [f32; 7] = [
    0.128_379_17,
    -0.376_126_3,
    0.112_836_26,
    -0.026_855_74,
    0.005_192_460_5,
    -0.000_805_080_4,
    8.002_775e-5,
];
/// ln(erfc(x)) / x + 1.
const FAR: [f32; 7] = [
    -0.128_648_49,
    -0.635_151_3,
    -0.106_236_845,
    0.023_762_02,
    -0.003_642_429_6,
    0.000_322_794_05,
    -1.123_003_4e-5,
];

function!(Erf: Unary, x => {
    let a = x.abs();
    let near = poly(x.mul(x), &NEAR).fma(x, x);
    // Beyond 4 the result is 1.
    let t = V::splat(4.0).min_raw(a);
    let far = V::splat(1.0).sub(exp_normal(poly(t, &FAR).fma(t, t.neg()))).copysign(x);
    // A NaN, which the exponential would spoil, takes the near side.
    V::select(V::splat(0.93).le(a), far, near)
});
