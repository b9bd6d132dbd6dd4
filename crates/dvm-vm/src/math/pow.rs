//! Powers: `2^(y log2 |x|)` with the logarithm in two floats, then the rules for zeros, infinities and signs.

use super::cheap::function;
use super::drive::Binary;
use super::exp::{exp2_sum, limit, poly};
use super::lanes::Lanes;

/// (ln m - u) / u^3 at 0, where u = 2 f / (2 + f) and f = m - 1.
const ATANH: f32 = 0.083_333_33;
/// And the rest of it, over u^2, in u^2.
const ATANH_TAIL: [f32; 3] = [0.012_500_302, 0.002_226_528, 0.000_473_773_2];
/// The bits of sqrt(1/2).
const SQRT_HALF: i32 = 0x3f35_04f3;
const LOG2E: f32 = std::f32::consts::LOG2_E;
/// log2 e - LOG2E.
const LOG2E_LO: f32 = 1.925_963e-8;

/// log2 of a positive normal `x` scaled by 2^-`shift`, as an unevaluated sum (hi, lo).
#[inline(always)]
fn log2_pair<V: Lanes>(x: V, shift: V) -> (V, V) {
    let k =
        V::and_bits(V::sub_bits(x.bits(), V::splat_bits(SQRT_HALF)), V::splat_bits(0xff80_0000_u32 as i32));
    let e = V::bits_to_float(k).mul(V::splat(1.0 / 8_388_608.0)).sub(shift);
    let f = V::from_bits(V::sub_bits(x.bits(), k)).sub(V::splat(1.0));
    // u = 2 f / (2 + f), and what the division left over.
    let d = f.add(V::splat(2.0));
    let d_lo = f.sub(d.sub(V::splat(2.0)));
    let r = V::splat(1.0).div(d);
    let f2 = f.add(f);
    let u = f2.mul(r);
    let u_lo = u.fnma(d_lo, u.fnma(d, f2)).mul(r);
    // t = u v P(v), where every factor has a low part: times a large y, one bit more is one bit more.
    let v = u.mul(u);
    let v_lo = u.fma(u, v.neg()).add(u.add(u).mul(u_lo));
    let tail = poly(v, &ATANH_TAIL);
    let c = V::splat(ATANH);
    let p = v.fma(tail, c);
    let p_lo = v.fma(tail, c.sub(p));
    let w = u.mul(v);
    let w_lo = u.fma(v, w.neg()).add(u.mul(v_lo)).add(u_lo.mul(v));
    let t = w.mul(p);
    let t_lo = w.fma(p, t.neg()).add(w.mul(p_lo)).add(w_lo.mul(p));
    // m's logarithm (s, s_lo), then times log2(e).
    let s = u.add(t);
    let s_lo = t.sub(s.sub(u)).add(t_lo.add(u_lo));
    let h = s.mul(V::splat(LOG2E));
    let l = s.fma(V::splat(LOG2E), h.neg());
    let l = s.fma(V::splat(LOG2E_LO), l);
    let l = s_lo.fma(V::splat(LOG2E), l);
    // Plus e, which is 0 or larger than h.
    let s = e.add(h);
    let l = h.sub(s.sub(e)).add(l);
    let hi = s.add(l);
    (hi, l.sub(hi.sub(s)))
}

#[inline(always)]
fn pow<V: Lanes>(x: V, y: V) -> V {
    let (zero, one, inf) = (V::splat(0.0), V::splat(1.0), V::splat(f32::INFINITY));
    let a = x.abs();
    let small = a.lt(V::splat(f32::MIN_POSITIVE));
    let scaled = V::select(small, a.mul(V::splat(8_388_608.0)), a);
    let (hi, lo) = log2_pair(scaled, V::select(small, V::splat(23.0), zero));
    let p = y.mul(hi);
    // Where the power overflows or vanishes anyway, the low part may be NaN.
    let far = V::not_mask(p.abs().le(V::splat(160.0)));
    let p_lo = V::select(far, zero, y.fma(hi, p.neg()).add(y.mul(lo)));
    let mut z = exp2_sum(limit(p, -160.0, 160.0), p_lo);

    // |x| of 0 and inf.
    let down = y.lt(zero);
    z = V::select(a.eq(zero), V::select(down, inf, zero), z);
    z = V::select(a.eq(inf), V::select(down, zero, inf), z);
    z = V::select(a.eq(one), one, z);
    // Negative x: an odd integer y keeps the sign, another integer drops it, the rest is NaN (0 and inf excepted).
    let integer = y.trunc().eq(y);
    let half = y.mul(V::splat(0.5));
    let odd = V::and_mask(integer, V::not_mask(half.trunc().eq(half)));
    let negative = V::not_mask(V::bits_nonzero(V::and_bits(
        V::xor_bits(x.bits(), V::splat_bits(i32::MIN)),
        V::splat_bits(i32::MIN),
    )));
    z = V::select(V::and_mask(odd, negative), z.neg(), z);
    let finite = V::and_mask(x.lt(zero), a.lt(inf));
    z = V::select(V::and_mask(finite, V::not_mask(integer)), V::splat(f32::NAN), z);
    z = V::select(x.unordered(y), V::splat(f32::NAN), z);
    // x^0 and 1^y are 1 whatever the other is; squares are exact.
    z = V::select(V::or_mask(y.eq(zero), x.eq(one)), one, z);
    V::select(y.eq(V::splat(2.0)), x.mul(x), z)
}

function!(
    /// C99's `pow`. With y = 2 it is exactly `x * x`.
    Pow: Binary, x, y => pow(x, y)
);
