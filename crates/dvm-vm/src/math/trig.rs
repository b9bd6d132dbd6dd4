//! Sine, cosine, tangent: `x = n pi/2 + r`, a polynomial in `r`, and the quadrant's sign and swap.
//!
//! Up to [`FAR`] the reduction is exact in its first step and rounds once in each of the next two; farther arguments, which
//! models hardly ever have, go lane by lane through f64.

use super::cheap::function;
use super::drive::Unary;
use super::exp::{MAGIC, divide, poly};
use super::lanes::Lanes;

/// Where n stays below 2^17, so that the first product of the reduction is exact.
const FAR: f32 = 200_000.0;
const PI_2: [f32; 3] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8, -1.715_124_5e-15];
/// (sin r - r) / r^3 in r^2.
const SIN: [f32; 4] = [-0.166_666_67, 0.008_333_377, -0.000_198_515_83, 2.814_607_6e-6];
/// (cos r - 1 + r^2 / 2) / r^4 in r^2.
const COS: [f32; 3] = [0.041_666_64, -0.001_388_713, 2.441_208_6e-5];
/// (tan r - r) / r^3 in r^2.
const TAN: [f32; 7] = [
    0.333_333_58,
    0.133_323_7,
    0.054_093_502,
    0.021_107_428,
    0.011_291_342,
    -0.000_490_129_46,
    0.004_662_853,
];

/// The quadrant (in the low bits), `n`, and `x - n pi/2` but for the last two parts of pi/2: exact.
#[inline(always)]
fn reduce<V: Lanes>(x: V) -> (V::Bits, V, V) {
    let t = x.fma_c(std::f32::consts::FRAC_2_PI, MAGIC);
    let n = t.sub(V::splat(MAGIC));
    (t.bits(), n, n.fnma(V::splat(PI_2[0]), x))
}

/// sin(x + shift * pi/2).
#[inline(always)]
fn sine<V: Lanes>(x: V, shift: i32) -> V {
    let (q, n, exact) = reduce(x);
    let r = n.fnma(V::splat(PI_2[2]), n.fnma(V::splat(PI_2[1]), exact));
    let q = V::add_bits(q, V::splat_bits(shift));
    let s = r.mul(r);
    let sin = poly(s, &SIN).fma(s.mul(r), r);
    let cos = poly(s, &COS).fma(s.mul(s), s.fma_c(-0.5, 1.0));
    let odd = V::bits_nonzero(V::and_bits(q, V::splat_bits(1)));
    let sign = V::shl_bits::<30>(V::and_bits(q, V::splat_bits(2)));
    V::from_bits(V::xor_bits(V::select(odd, cos, sin).bits(), sign))
}

#[inline(always)]
fn tangent<V: Lanes>(x: V) -> V {
    let (q, n, exact) = reduce(x);
    // r and its error: the second product in two parts, and the two-sum of the difference.
    let p = n.mul(V::splat(PI_2[1]));
    let p_lo = n.fma(V::splat(PI_2[1]), p.neg());
    let r = exact.sub(p);
    let t = r.sub(exact);
    let e = exact.sub(r.sub(t)).sub(p.add(t));
    let lo = n.fnma(V::splat(PI_2[2]), e.sub(p_lo));
    let s = r.mul(r);
    // The derivative of tan is 1 + tan^2, about 1 + s + 2 s^2 / 3.
    let lo = lo.mul(s.fma(s.fma_c(2.0 / 3.0, 1.0), V::splat(1.0)));
    let rest = poly(s, &TAN).mul(s).fma(r, lo);
    let tan = r.add(rest);
    let tan_lo = rest.sub(tan.sub(r));
    let odd = V::bits_nonzero(V::and_bits(q, V::splat_bits(1)));
    V::select(odd, divide(V::splat(-1.0), tan, tan_lo), tan)
}

/// Keeps the sign of zero, and sends far arguments through f64.
#[inline(always)]
fn repair<V: Lanes>(x: V, y: V, f: fn(f32) -> f32) -> V {
    let far = V::not_mask(x.abs().le(V::splat(FAR)));
    if V::any(far) { V::select(far, x.map(f), y) } else { y }
}

function!(Sin: Unary, x => {
    let y = V::select(x.eq(V::splat(0.0)), x, sine(x, 0));
    repair(x, y, |x| libm::sin(f64::from(x)) as f32)
});
function!(Cos: Unary, x => repair(x, sine(x, 1), |x| libm::cos(f64::from(x)) as f32));
function!(Tan: Unary, x => {
    let y = V::select(x.eq(V::splat(0.0)), x, tangent(x));
    repair(x, y, |x| libm::tan(f64::from(x)) as f32)
});
