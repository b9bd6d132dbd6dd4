//! Reductions of one contiguous run, and the steps of reductions across rows.
//!
//! The order of a sum is part of the instruction set: within a block, element i belongs to lane i % 64; lanes
//! accumulate in element order from +0 and combine in a fixed tree (stride 32, 16, 8, 4, 2, 1). Block totals are
//! added by [two-sum](two_sum_f32) in index order.

use super::lanes::Lanes;
use crate::Isa;

/// Lanes of a block of a sum along a row.
pub(crate) const LANES: usize = 64;

/// Reduces `n` contiguous elements to one.
pub(crate) type RowFn = unsafe fn(src: *const f32, n: usize) -> f32;
/// Reduces `rows` rows of `n` elements, `pitch` elements apart, to `n` elements.
pub(crate) type RowsFn = unsafe fn(dst: *mut f32, src: *const f32, rows: usize, n: usize, pitch: usize);
/// Adds `n` values to `n` pairs (hi, lo).
pub(crate) type TwoSumFn = unsafe fn(hi: *mut f32, lo: *mut f32, x: *const f32, n: usize);

macro_rules! by_level {
    ($isa:expr, $name:ident $(::<$op:ty>)?) => {
        match $isa.or_portable() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2Fma => avx2::$name $(::<$op>)?,
            _ => portable::$name $(::<$op>)?,
        }
    };
}

/// The sum of one block of at most [`SUM_BLOCK_X`](dvm_bc::layout::SUM_BLOCK_X) elements (0 for none), in the order above.
pub(crate) fn sum_x_f32(isa: Isa) -> RowFn {
    by_level!(isa, sum_x)
}
/// The maximum, NaN if there is one, -inf for none. +0 counts as greater than -0.
pub(crate) fn max_x_f32(isa: Isa) -> RowFn {
    by_level!(isa, extreme_x::<Largest>)
}
/// The minimum, NaN if there is one, +inf for none. -0 counts as less than +0.
pub(crate) fn min_x_f32(isa: Isa) -> RowFn {
    by_level!(isa, extreme_x::<Smallest>)
}
/// Sums of one block of at most [`SUM_BLOCK_Y`](dvm_bc::layout::SUM_BLOCK_Y) rows: each output adds its rows in order, from +0.
pub(crate) fn sum_y_f32(isa: Isa) -> RowsFn {
    by_level!(isa, sum_y)
}
/// `(hi, lo) += x`: Knuth's two-sum of `hi` and `x`, whose error is added to `lo`.
pub(crate) fn two_sum_f32(isa: Isa) -> TwoSumFn {
    by_level!(isa, two_sum)
}

/// One step of [`two_sum_f32`].
#[inline(always)]
pub(crate) fn two_sum_step(hi: f32, lo: f32, x: f32) -> (f32, f32) {
    let s = hi + x;
    let t = s - hi;
    let e = (hi - (s - t)) + (x - t);
    // Infinities and NaN live in `hi` alone.
    (s, if e.is_finite() { lo + e } else { lo })
}

/// A maximum or minimum.
pub(crate) trait Extreme {
    /// The result for no element.
    const NEUTRAL: f32;
    /// The bits of the zero that wins over the other.
    const ZERO: u32;
    /// The better of two, the second where they are unordered.
    fn better<V: Lanes>(a: V, b: V) -> V;
}
pub(crate) struct Largest;
impl Extreme for Largest {
    const NEUTRAL: f32 = f32::NEG_INFINITY;
    const ZERO: u32 = 0;
    #[inline(always)]
    fn better<V: Lanes>(a: V, b: V) -> V {
        a.max_raw(b)
    }
}
pub(crate) struct Smallest;
impl Extreme for Smallest {
    const NEUTRAL: f32 = f32::INFINITY;
    const ZERO: u32 = 1 << 31;
    #[inline(always)]
    fn better<V: Lanes>(a: V, b: V) -> V {
        a.min_raw(b)
    }
}

/// Decides what the fast loops leave open: NaN wins, and which zero it is.
#[inline(always)]
unsafe fn settle<E: Extreme>(best: f32, nan: bool, src: *const f32, n: usize) -> f32 {
    if nan {
        f32::NAN
    } else if best == 0.0 {
        // SAFETY: the caller promises `n` elements.
        let winner = (0..n).any(|i| unsafe { (*src.add(i)).to_bits() } == E::ZERO);
        f32::from_bits(if winner { E::ZERO } else { E::ZERO ^ (1 << 31) })
    } else {
        best
    }
}

mod portable {
    use super::{Extreme, LANES, settle, two_sum_step};

    pub(super) unsafe fn sum_x(src: *const f32, n: usize) -> f32 {
        let mut lanes = [0f32; LANES];
        let mut i = 0;
        while i < n {
            for (j, lane) in lanes.iter_mut().enumerate().take(n - i) {
                // SAFETY: i + j < n, and the caller promises `n` elements.
                *lane += unsafe { *src.add(i + j) };
            }
            i += LANES;
        }
        let mut stride = LANES / 2;
        while stride > 0 {
            for j in 0..stride {
                lanes[j] += lanes[j + stride];
            }
            stride /= 2;
        }
        lanes[0]
    }

    pub(super) unsafe fn extreme_x<E: Extreme>(src: *const f32, n: usize) -> f32 {
        let (mut best, mut nan) = (E::NEUTRAL, false);
        for i in 0..n {
            // SAFETY: i < n, and the caller promises `n` elements.
            let x = unsafe { *src.add(i) };
            best = E::better(x, best);
            nan |= x.is_nan();
        }
        // SAFETY: the same elements.
        unsafe { settle::<E>(best, nan, src, n) }
    }

    pub(super) unsafe fn sum_y(dst: *mut f32, src: *const f32, rows: usize, n: usize, pitch: usize) {
        for j in 0..n {
            let mut acc = 0f32;
            for r in 0..rows {
                // SAFETY: the caller promises `rows` rows of `n` elements, `pitch` apart.
                acc += unsafe { *src.add(r * pitch + j) };
            }
            // SAFETY: j < n, and the caller promises `n` writable elements.
            unsafe { *dst.add(j) = acc };
        }
    }

    pub(super) unsafe fn two_sum(hi: *mut f32, lo: *mut f32, x: *const f32, n: usize) {
        for i in 0..n {
            // SAFETY: i < n, and the caller promises `n` elements behind each pointer.
            unsafe { (*hi.add(i), *lo.add(i)) = two_sum_step(*hi.add(i), *lo.add(i), *x.add(i)) };
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use std::arch::x86_64::*;

    use super::super::avx2::{Avx2, first_lanes};
    use super::super::lanes::Lanes;
    use super::{Extreme, LANES, settle, two_sum_step};

    const N: usize = Avx2::N;

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn sum_x(src: *const f32, n: usize) -> f32 {
        let mut acc = [Avx2::splat(0.0); LANES / N];
        let mut i = 0;
        while i + LANES <= n {
            for (k, a) in acc.iter_mut().enumerate() {
                // SAFETY: i + 64 <= n, and the caller promises `n` elements.
                *a = a.add(unsafe { Avx2::load(src.add(i + k * N)) });
            }
            i += LANES;
        }
        // Lanes without an element add +0, which leaves every sum that started from +0 as it is.
        for (k, a) in acc.iter_mut().enumerate() {
            let at = i + k * N;
            if at < n {
                // SAFETY: only elements before `n` are accessed.
                *a = a.add(unsafe { Avx2::load_first(src.add(at), (n - at).min(N)) });
            }
        }
        let [a, b, c, d, e, f, g, h] = acc;
        let (a, b, c, d) = (a.add(e), b.add(f), c.add(g), d.add(h));
        let s = a.add(c).add(b.add(d)).0;
        let s = _mm_add_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps::<1>(s));
        let s = _mm_add_ps(s, _mm_movehl_ps(s, s));
        _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)))
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn extreme_x<E: Extreme>(src: *const f32, n: usize) -> f32 {
        let neutral = Avx2::splat(E::NEUTRAL);
        let mut acc = [neutral; 4];
        let mut nan = neutral.unordered(neutral);
        let mut i = 0;
        while i + 4 * N <= n {
            // SAFETY: i + 32 <= n, and the caller promises `n` elements.
            let x: [Avx2; 4] = unsafe {
                [
                    Avx2::load(src.add(i)),
                    Avx2::load(src.add(i + N)),
                    Avx2::load(src.add(i + 2 * N)),
                    Avx2::load(src.add(i + 3 * N)),
                ]
            };
            acc = [
                E::better(x[0], acc[0]),
                E::better(x[1], acc[1]),
                E::better(x[2], acc[2]),
                E::better(x[3], acc[3]),
            ];
            let pairs = Avx2::or_mask(x[0].unordered(x[1]), x[2].unordered(x[3]));
            nan = Avx2::or_mask(nan, pairs);
            i += 4 * N;
        }
        while i < n {
            let left = (n - i).min(N);
            // SAFETY: only elements before `n` are accessed.
            let x = unsafe { Avx2::load_first(src.add(i), left) };
            // SAFETY: this function has AVX2.
            let mask = unsafe { _mm256_castsi256_ps(first_lanes(left)) };
            let x = Avx2::select(mask, x, neutral);
            acc[0] = E::better(x, acc[0]);
            nan = Avx2::or_mask(nan, x.unordered(x));
            i += N;
        }
        let best = E::better(E::better(acc[0], acc[1]), E::better(acc[2], acc[3]));
        // SAFETY: both are 32 bytes of plain floats.
        let lanes: [f32; 8] = unsafe { std::mem::transmute(best.0) };
        let best = lanes.into_iter().fold(E::NEUTRAL, |b, x| E::better(x, b));
        // SAFETY: the same elements.
        unsafe { settle::<E>(best, Avx2::any(nan), src, n) }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn sum_y(dst: *mut f32, src: *const f32, rows: usize, n: usize, pitch: usize) {
        let mut j = 0;
        while j + 4 * N <= n {
            let mut acc = [Avx2::splat(0.0); 4];
            for r in 0..rows {
                for (k, a) in acc.iter_mut().enumerate() {
                    // SAFETY: j + 32 <= n, and the caller promises `rows` rows of `n` elements, `pitch` apart.
                    *a = a.add(unsafe { Avx2::load(src.add(r * pitch + j + k * N)) });
                }
            }
            for (k, a) in acc.into_iter().enumerate() {
                // SAFETY: j + 32 <= n writable elements.
                unsafe { a.store(dst.add(j + k * N)) };
            }
            j += 4 * N;
        }
        while j < n {
            let left = (n - j).min(N);
            let mut acc = Avx2::splat(0.0);
            for r in 0..rows {
                // SAFETY: only elements before `n` of each row are accessed.
                acc = acc.add(unsafe { Avx2::load_first(src.add(r * pitch + j), left) });
            }
            // SAFETY: only elements before `n` are written.
            unsafe { acc.store_first(dst.add(j), left) };
            j += N;
        }
    }

    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn two_sum(hi: *mut f32, lo: *mut f32, x: *const f32, n: usize) {
        // Exact additions in a fixed order: the compiler may vectorise, never reassociate.
        for i in 0..n {
            // SAFETY: i < n, and the caller promises `n` elements behind each pointer.
            unsafe { (*hi.add(i), *lo.add(i)) = two_sum_step(*hi.add(i), *lo.add(i), *x.add(i)) };
        }
    }
}
