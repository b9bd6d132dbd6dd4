//! The exponential family: exp, exp2, expm1, and the functions built on them.
//!
//! `x = n ln 2 + r` with `|r| <= ln 2 / 2`, a polynomial in `r`, and `2^n` put into the exponent. Coefficients are
//! minimax fits, rounded one after the other from the lowest power with the rest fitted again.

use super::cheap::function;
use super::drive::Unary;
use super::lanes::Lanes;

/// Added to a number below 2^22, leaves its nearest integer in the low mantissa bits.
pub(super) const MAGIC: f32 = 12_582_912.0;
pub(super) const LN2: f32 = std::f32::consts::LN_2;
/// ln 2 - LN2.
const LN2_LO: f32 = -1.904_654_2e-9;
const LOG2E: f32 = std::f32::consts::LOG2_E;
/// The bits of 1.0: added to an exponent `n << 23`, they make 2^n.
pub(super) const ONE_BITS: i32 = 0x3f80_0000;

/// (e^r - 1 - r) / r^2, for exp.
const EXP: [f32; 5] = [0.499_999_97, 0.166_665_45, 0.041_667_446, 0.008_366_447, 0.001_386_984_5];
/// (e^r - 1 - r) / r^2, for expm1, where the error counts relative to r.
const EXPM1: [f32; 6] = [0.5, 0.166_666_66, 0.041_666_493, 0.008_333_543, 0.001_393_238_1, 0.000_197_644_14];
/// (2^r - 1) / r.
const EXP2: [f32; 6] = [LN2, 0.240_226_48, 0.055_503_596, 0.009_618_506, 0.001_339_102_5, 0.000_153_267_81];

/// A polynomial by Horner's rule, lowest coefficient first.
#[inline(always)]
pub(super) fn poly<V: Lanes, const N: usize>(x: V, c: &[f32; N]) -> V {
    let mut y = V::splat(c[N - 1]);
    for k in (0..N - 1).rev() {
        y = y.horner(x, c[k]);
    }
    y
}

/// `x` limited to `lo ..= hi`; NaN stays.
#[inline(always)]
pub(super) fn limit<V: Lanes>(x: V, lo: f32, hi: f32) -> V {
    V::splat(hi).min_raw(V::splat(lo).max_raw(x))
}

/// `(t, r)`: the low bits of `t` are `n`, and `x = n ln 2 + r`.
#[inline(always)]
fn reduce<V: Lanes>(x: V) -> (V, V) {
    let t = x.fma_c(LOG2E, MAGIC);
    let n = t.sub(V::splat(MAGIC));
    (t, n.fnma(V::splat(LN2_LO), n.fnma(V::splat(LN2), x)))
}

/// `p * 2^n` where the low bits of `t` are `n` and the result is normal.
#[inline(always)]
fn scale<V: Lanes>(p: V, t: V) -> V {
    V::from_bits(V::add_bits(p.bits(), V::shl_bits::<23>(t.bits())))
}

/// `p * 2^n`, rounded once, for `p` about 1 and `n` in -252..=254: in two steps, each a normal power of two.
#[inline(always)]
fn scale_any<V: Lanes>(p: V, t: V) -> V {
    let n = V::sub_bits(t.bits(), V::splat_bits(MAGIC.to_bits() as i32));
    let half = V::sra_bits::<1>(n);
    let rest = V::sub_bits(n, half);
    let power = |n: V::Bits| V::from_bits(V::add_bits(V::shl_bits::<23>(n), V::splat_bits(ONE_BITS)));
    p.mul(power(half)).mul(power(rest))
}

#[inline(always)]
fn exp_poly<V: Lanes>(r: V) -> V {
    poly(r, &EXP).fma(r.mul(r), r).add(V::splat(1.0))
}

/// e^x for `|x| <= 87`, where the result is normal.
#[inline(always)]
pub(super) fn exp_normal<V: Lanes>(x: V) -> V {
    let (t, r) = reduce(x);
    scale(exp_poly(r), t)
}

/// e^x.
#[inline(always)]
pub(super) fn exp<V: Lanes>(x: V) -> V {
    if V::worth_checking(V::not_mask(x.abs().le(V::splat(87.0)))) {
        let (t, r) = reduce(limit(x, -104.0, 89.0));
        scale_any(exp_poly(r), t)
    } else {
        exp_normal(x)
    }
}

/// 2^x * 2^y for small `y`; `x` in -160..=160.
#[inline(always)]
pub(super) fn exp2_sum<V: Lanes>(x: V, y: V) -> V {
    let t = x.add(V::splat(MAGIC));
    let r = x.sub(t.sub(V::splat(MAGIC))).add(y);
    scale_any(poly(r, &EXP2).horner(r, 1.0), t)
}

/// 2^x.
#[inline(always)]
pub(super) fn exp2<V: Lanes>(x: V) -> V {
    if V::worth_checking(V::not_mask(x.abs().le(V::splat(125.0)))) {
        exp2_sum(limit(x, -151.0, 129.0), V::splat(0.0))
    } else {
        let t = x.add(V::splat(MAGIC));
        let r = x.sub(t.sub(V::splat(MAGIC)));
        scale(poly(r, &EXP2).horner(r, 1.0), t)
    }
}

/// e^x - 1 for `x` in -20..=89, but 0 for tiny ones.
#[inline(always)]
fn expm1_limited<V: Lanes>(x: V) -> V {
    let (t, r) = reduce(x);
    let p = poly(r, &EXPM1).fma(r.mul(r), r);
    // Half of 2^n, so that overflow happens in the last doubling only.
    let half = V::from_bits(V::add_bits(V::shl_bits::<23>(t.bits()), V::splat_bits(ONE_BITS - (1 << 23))));
    let y = p.fma(half, half.sub(V::splat(0.5)));
    y.add(y)
}

#[inline(always)]
fn expm1<V: Lanes>(x: V) -> V {
    let tiny = x.abs().lt(V::splat(1e-8));
    V::select(tiny, x, expm1_limited(limit(x, -20.0, 89.0)))
}

/// `n / (d + d_lo)` for a small `d_lo`: one division, and its remainder folded in.
#[inline(always)]
pub(super) fn divide<V: Lanes>(n: V, d: V, d_lo: V) -> V {
    let r = V::splat(1.0).div(d);
    let q = n.mul(r);
    q.fnma(d_lo, q.fnma(d, n)).fma(r, q)
}

#[inline(always)]
fn tanh<V: Lanes>(x: V) -> V {
    let a = x.abs();
    let e = expm1_limited(limit(a.add(a), 0.0, 20.0));
    let two = V::splat(2.0);
    let d = e.add(two);
    // What the sum lost: exact up to e = 2, and beyond it does not count.
    let d_lo = e.sub(d.sub(two));
    let y = divide(e, d, d_lo).copysign(x);
    V::select(a.lt(V::splat(1e-8)), x, y)
}

/// 1 / (1 + e^-x), through e^-|x| so that nothing overflows and small results keep their precision.
#[inline(always)]
fn sigmoid<V: Lanes>(x: V) -> V {
    let one = V::splat(1.0);
    let e = exp(x.abs().neg());
    let d = e.add(one);
    let d_lo = e.sub(d.sub(one));
    divide(V::select(x.lt(V::splat(0.0)), e, one), d, d_lo)
}

function!(Exp: Unary, x => exp(x));
function!(Exp2: Unary, x => exp2(x));
function!(Expm1: Unary, x => expm1(x));
function!(Tanh: Unary, x => tanh(x));
function!(Sigmoid: Unary, x => sigmoid(x));
