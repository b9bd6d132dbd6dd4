//! Packing on AVX2: contiguous lines by copies, contiguous steps by 8 x 8 transposes.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::Pack;
use super::pack::{PackElem, pack};

/// An element that is, or widens to, f32.
trait Source: PackElem<f32> {
    unsafe fn load(p: *const Self) -> __m256;
    /// Loads the first `n` (1..=8) elements, reading no other; the rest is 0.
    #[inline(always)]
    unsafe fn load_first(p: *const Self, n: usize) -> __m256 {
        if n == 8 {
            // SAFETY: 8 elements are readable.
            return unsafe { Self::load(p) };
        }
        let mut x = [0f32; 8];
        for (i, x) in x.iter_mut().enumerate().take(n) {
            // SAFETY: i < n.
            *x = unsafe { p.add(i).read() }.widen();
        }
        // SAFETY: 8 elements.
        unsafe { _mm256_loadu_ps(x.as_ptr()) }
    }
}
impl PackElem<f32> for f32 {
    const ZERO: f32 = 0.0;
    #[inline(always)]
    fn widen(self) -> f32 {
        self
    }
}
impl Source for f32 {
    #[inline(always)]
    unsafe fn load(p: *const f32) -> __m256 {
        // SAFETY: the caller promises 8 elements and AVX2.
        unsafe { _mm256_loadu_ps(p) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f32, n: usize) -> __m256 {
        // SAFETY: only the first `n` elements are accessed.
        unsafe { _mm256_maskload_ps(p, crate::math::first_lanes(n)) }
    }
}
impl Source for f16 {
    #[inline(always)]
    unsafe fn load(p: *const f16) -> __m256 {
        // SAFETY: the caller promises 8 elements and AVX2 with F16C.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(p.cast())) }
    }
}
impl Source for bf16 {
    #[inline(always)]
    unsafe fn load(p: *const bf16) -> __m256 {
        // SAFETY: the caller promises 8 elements and AVX2.
        unsafe { super::avx2::widen_bf16(p) }
    }
}

macro_rules! entry {
    ($($name:ident: $source:ty;)*) => { $(
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) unsafe fn $name(dst: *mut u8, src: *const u8, p: &Pack) {
            // SAFETY: the caller's promise.
            unsafe {
                match p.width {
                    6 => widths::<$source, 6>(dst, src, p),
                    16 => widths::<$source, 16>(dst, src, p),
                    _ => pack::<$source, f32>(dst, src, p),
                }
            }
        }
    )* };
}
entry! { pack_f32: f32; pack_f16: f16; pack_bf16: bf16; }

#[inline(always)]
unsafe fn widths<S: Source, const W: usize>(dst: *mut u8, src: *const u8, p: &Pack) {
    let size = size_of::<S>() as isize;
    let mut panel = dst.cast::<f32>();
    let mut first = 0;
    while first < p.lines {
        let lines = W.min(p.lines - first);
        // SAFETY: the caller promises the panels and `lines` x `k` elements behind `src`.
        unsafe {
            let src = src.offset(first as isize * p.line_stride);
            if p.line_stride == size {
                copy_lines::<S, W>(panel, src, lines, p);
            } else if p.k_stride == size {
                transpose::<S, W>(panel, src, lines, p);
            } else {
                pack::<S, f32>(panel.cast(), src, &Pack { lines, ..*p });
            }
        }
        first += W;
        panel = panel.wrapping_add(p.panel_stride);
    }
}

/// Writes `W` lanes (6 or 16) of one step.
#[inline(always)]
unsafe fn store_step<const W: usize>(dst: *mut f32, low: __m256, high: __m256) {
    // SAFETY: the caller promises `W` writable elements.
    unsafe {
        if W == 16 {
            _mm256_storeu_ps(dst, low);
            _mm256_storeu_ps(dst.add(8), high);
        } else {
            _mm_storeu_ps(dst, _mm256_castps256_ps128(low));
            _mm_storel_pd(dst.add(4).cast(), _mm_castps_pd(_mm256_extractf128_ps::<1>(low)));
        }
    }
}

/// Lines are contiguous: each step is a copy.
#[inline(always)]
unsafe fn copy_lines<S: Source, const W: usize>(panel: *mut f32, src: *const u8, lines: usize, p: &Pack) {
    // SAFETY: the caller promises a panel of `W * k` elements and `k` steps of `lines` elements.
    unsafe {
        for kk in 0..p.k {
            let step = src.offset(kk as isize * p.k_stride).cast::<S>();
            let to = panel.add(kk * W);
            if lines == 16 {
                store_step::<W>(to, S::load(step), S::load(step.add(8)));
            } else {
                let low = S::load_first(step, lines.min(8));
                let high =
                    if lines > 8 { S::load_first(step.add(8), lines - 8) } else { _mm256_setzero_ps() };
                store_step::<W>(to, low, high);
            }
        }
    }
}

/// Steps are contiguous: blocks of 8 steps by 8 lines are transposed.
#[inline(always)]
unsafe fn transpose<S: Source, const W: usize>(panel: *mut f32, src: *const u8, lines: usize, p: &Pack) {
    // SAFETY: the caller promises a panel of `W * k` elements and `lines` lines of `k` elements.
    unsafe {
        let mut kk = 0;
        while kk < p.k {
            let steps = 8.min(p.k - kk);
            let mut half = [[_mm256_setzero_ps(); 8]; 2];
            for (h, rows) in half.iter_mut().enumerate().take(W.div_ceil(8)) {
                let mine = lines.saturating_sub(8 * h).min(8);
                for (i, row) in rows.iter_mut().enumerate() {
                    if i < mine {
                        let line = src.offset((8 * h + i) as isize * p.line_stride).cast::<S>();
                        *row = if steps == 8 {
                            S::load(line.add(kk))
                        } else {
                            S::load_first(line.add(kk), steps)
                        };
                    }
                }
                *rows = transpose8(*rows);
            }
            for (s, (low, high)) in half[0].iter().zip(half[1]).enumerate().take(steps) {
                store_step::<W>(panel.add((kk + s) * W), *low, high);
            }
            kk += 8;
        }
    }
}

/// Transposes 8 x 8 lanes.
#[inline(always)]
unsafe fn transpose8(r: [__m256; 8]) -> [__m256; 8] {
    // SAFETY: the caller has AVX2; no memory is touched.
    unsafe {
        let t = [
            _mm256_unpacklo_ps(r[0], r[1]),
            _mm256_unpackhi_ps(r[0], r[1]),
            _mm256_unpacklo_ps(r[2], r[3]),
            _mm256_unpackhi_ps(r[2], r[3]),
            _mm256_unpacklo_ps(r[4], r[5]),
            _mm256_unpackhi_ps(r[4], r[5]),
            _mm256_unpacklo_ps(r[6], r[7]),
            _mm256_unpackhi_ps(r[6], r[7]),
        ];
        let u = [
            _mm256_shuffle_ps::<0x44>(t[0], t[2]),
            _mm256_shuffle_ps::<0xee>(t[0], t[2]),
            _mm256_shuffle_ps::<0x44>(t[1], t[3]),
            _mm256_shuffle_ps::<0xee>(t[1], t[3]),
            _mm256_shuffle_ps::<0x44>(t[4], t[6]),
            _mm256_shuffle_ps::<0xee>(t[4], t[6]),
            _mm256_shuffle_ps::<0x44>(t[5], t[7]),
            _mm256_shuffle_ps::<0xee>(t[5], t[7]),
        ];
        [
            _mm256_permute2f128_ps::<0x20>(u[0], u[4]),
            _mm256_permute2f128_ps::<0x20>(u[1], u[5]),
            _mm256_permute2f128_ps::<0x20>(u[2], u[6]),
            _mm256_permute2f128_ps::<0x20>(u[3], u[7]),
            _mm256_permute2f128_ps::<0x31>(u[0], u[4]),
            _mm256_permute2f128_ps::<0x31>(u[1], u[5]),
            _mm256_permute2f128_ps::<0x31>(u[2], u[6]),
            _mm256_permute2f128_ps::<0x31>(u[3], u[7]),
        ]
    }
}
