//! Products on AVX2 + FMA: a 6 x 16 microkernel (6 x 8 for f64), and one that streams several panels at once where there
//! are too few rows to hide the latency of a multiply-add.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::Mmad;
use super::generic::{self, MulAdd};

/// Rows of the microkernel: 12 accumulators, 2 vectors of the right operand, 1 broadcast of the left one.
const ROWS: usize = 6;
/// Steps between two visits of an accumulator: a panel of this depth stays in L1 while the rows pass by.
const DEPTH: usize = 384;
/// Rows up to which a product runs down its panels one by one.
const FEW: usize = 4 * ROWS;
/// How many steps ahead the right operand is prefetched: far enough for L3, and not a page ahead, which would evict
/// what is in use.
const AHEAD: usize = 44;

/// A combination of element types. A microkernel block is two vectors wide.
trait Cube {
    /// Left operand and accumulator.
    type A: Copy;
    /// Right operand.
    type B: Copy;
    type V: Copy;
    /// Lanes of a vector.
    const L: usize;
    unsafe fn zero() -> Self::V;
    unsafe fn broadcast(p: *const Self::A) -> Self::V;
    unsafe fn load_b(p: *const Self::B) -> Self::V;
    unsafe fn fma(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    unsafe fn load(p: *const Self::A) -> Self::V;
    unsafe fn store(p: *mut Self::A, v: Self::V);
    /// As `load` for the first `n` (0..=L) lanes.
    unsafe fn load_first(p: *const Self::A, n: usize) -> Self::V;
    /// As `store` for the first `n` (0..=L) lanes.
    unsafe fn store_first(p: *mut Self::A, v: Self::V, n: usize);
}

struct Single;
struct Half;
struct Brain;
struct Double;

macro_rules! f32_cube {
    ($name:ident, $b:ty, $p:ident => $load:expr) => {
        impl Cube for $name {
            type A = f32;
            type B = $b;
            type V = __m256;
            const L: usize = 8;
            #[inline(always)]
            unsafe fn zero() -> __m256 {
                // SAFETY: called inside AVX2 kernels only, as everything below.
                unsafe { _mm256_setzero_ps() }
            }
            #[inline(always)]
            unsafe fn broadcast(p: *const f32) -> __m256 {
                // SAFETY: the caller promises the element.
                unsafe { _mm256_broadcast_ss(&*p) }
            }
            #[inline(always)]
            unsafe fn load_b($p: *const $b) -> __m256 {
                // SAFETY: the caller promises 8 elements.
                unsafe { $load }
            }
            #[inline(always)]
            unsafe fn fma(a: __m256, b: __m256, c: __m256) -> __m256 {
                // SAFETY: no memory is touched.
                unsafe { _mm256_fmadd_ps(a, b, c) }
            }
            #[inline(always)]
            unsafe fn load(p: *const f32) -> __m256 {
                // SAFETY: the caller promises 8 elements.
                unsafe { _mm256_loadu_ps(p) }
            }
            #[inline(always)]
            unsafe fn store(p: *mut f32, v: __m256) {
                // SAFETY: the caller promises 8 elements.
                unsafe { _mm256_storeu_ps(p, v) }
            }
            #[inline(always)]
            unsafe fn load_first(p: *const f32, n: usize) -> __m256 {
                // SAFETY: only the first `n` elements are accessed.
                unsafe { _mm256_maskload_ps(p, crate::math::first_lanes(n)) }
            }
            #[inline(always)]
            unsafe fn store_first(p: *mut f32, v: __m256, n: usize) {
                // SAFETY: only the first `n` elements are accessed.
                unsafe { _mm256_maskstore_ps(p, crate::math::first_lanes(n), v) }
            }
        }
    };
}
f32_cube!(Single, f32, p => _mm256_loadu_ps(p));
f32_cube!(Half, f16, p => _mm256_cvtph_ps(_mm_loadu_si128(p.cast())));
f32_cube!(Brain, bf16, p => widen_bf16(p));

/// Eight bf16 as f32.
#[inline(always)]
pub(super) unsafe fn widen_bf16(p: *const bf16) -> __m256 {
    // SAFETY: the caller promises 8 elements and AVX2.
    unsafe {
        let words = _mm256_cvtepu16_epi32(_mm_loadu_si128(p.cast()));
        _mm256_castsi256_ps(_mm256_slli_epi32::<16>(words))
    }
}

impl Cube for Double {
    type A = f64;
    type B = f64;
    type V = __m256d;
    const L: usize = 4;
    #[inline(always)]
    unsafe fn zero() -> __m256d {
        // SAFETY: called inside AVX2 kernels only, as everything below.
        unsafe { _mm256_setzero_pd() }
    }
    #[inline(always)]
    unsafe fn broadcast(p: *const f64) -> __m256d {
        // SAFETY: the caller promises the element.
        unsafe { _mm256_broadcast_sd(&*p) }
    }
    #[inline(always)]
    unsafe fn load_b(p: *const f64) -> __m256d {
        // SAFETY: the caller promises 4 elements.
        unsafe { _mm256_loadu_pd(p) }
    }
    #[inline(always)]
    unsafe fn fma(a: __m256d, b: __m256d, c: __m256d) -> __m256d {
        // SAFETY: no memory is touched.
        unsafe { _mm256_fmadd_pd(a, b, c) }
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> __m256d {
        // SAFETY: the caller promises 4 elements.
        unsafe { _mm256_loadu_pd(p) }
    }
    #[inline(always)]
    unsafe fn store(p: *mut f64, v: __m256d) {
        // SAFETY: the caller promises 4 elements.
        unsafe { _mm256_storeu_pd(p, v) }
    }
    #[inline(always)]
    unsafe fn load_first(p: *const f64, n: usize) -> __m256d {
        // SAFETY: only the first `n` elements are accessed.
        unsafe { _mm256_maskload_pd(p, first_doubles(n)) }
    }
    #[inline(always)]
    unsafe fn store_first(p: *mut f64, v: __m256d, n: usize) {
        // SAFETY: only the first `n` elements are accessed.
        unsafe { _mm256_maskstore_pd(p, first_doubles(n), v) }
    }
}

#[inline(always)]
unsafe fn first_doubles(n: usize) -> __m256i {
    // SAFETY: called inside AVX2 kernels only; no memory is touched.
    unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
}

/// Operands of one microkernel call, positioned at its block. Strides in elements.
struct Block<C: Cube> {
    acc: *mut C::A,
    pitch: usize,
    a: *const C::A,
    line_stride: isize,
    k_stride: isize,
    b: *const C::B,
    panel_stride: usize,
    k: usize,
    /// Columns to store, at most those of the panels.
    cols: usize,
    accumulate: bool,
}

/// `M` rows by `P` panels of `V` vectors.
#[inline(always)]
unsafe fn kernel<C: Cube, const M: usize, const P: usize, const V: usize>(t: &Block<C>) {
    // SAFETY: the caller promises M rows of `k` left elements, P panels of `k` steps of V vectors, and M rows of
    // `cols` accumulators.
    unsafe {
        let mut c = [[[C::zero(); V]; P]; M];
        let full = t.cols == P * V * C::L;
        if t.accumulate {
            for (i, c) in c.iter_mut().enumerate() {
                for (p, c) in c.iter_mut().enumerate() {
                    for (v, c) in c.iter_mut().enumerate() {
                        let at = (p * V + v) * C::L;
                        let from = t.acc.add(i * t.pitch + at);
                        *c = if full {
                            C::load(from)
                        } else {
                            C::load_first(from, t.cols.saturating_sub(at).min(C::L))
                        };
                    }
                }
            }
        }
        // Two row pointers keep every address to base + index * {0, 1, 2}.
        let (mut low, mut high) = (t.a, t.a.wrapping_offset(3 * t.line_stride));
        let mut b = t.b;
        let mut left = t.k;
        macro_rules! step {
            () => {
                let row = |i: usize| {
                    if i < 3 {
                        low.offset(i as isize * t.line_stride)
                    } else {
                        high.offset((i as isize - 3) * t.line_stride)
                    }
                };
                if P > 1 {
                    // Few rows: keep their broadcasts, and each vector of the right operand for a moment.
                    let mut x = [C::zero(); M];
                    for (i, x) in x.iter_mut().enumerate() {
                        *x = C::broadcast(row(i));
                    }
                    for p in 0..P {
                        for v in 0..V {
                            let w = C::load_b(b.add(p * t.panel_stride + v * C::L));
                            for (c, x) in c.iter_mut().zip(x) {
                                c[p][v] = C::fma(x, w, c[p][v]);
                            }
                        }
                    }
                } else {
                    let mut w = [C::zero(); V];
                    for (v, w) in w.iter_mut().enumerate() {
                        *w = C::load_b(b.add(v * C::L));
                    }
                    for (i, c) in c.iter_mut().enumerate() {
                        let x = C::broadcast(row(i));
                        for (c, w) in c[0].iter_mut().zip(w) {
                            *c = C::fma(x, w, *c);
                        }
                    }
                    _mm_prefetch::<_MM_HINT_T0>(b.wrapping_add(AHEAD * 2 * C::L).cast());
                }
                low = low.wrapping_offset(t.k_stride);
                high = high.wrapping_offset(t.k_stride);
                b = b.wrapping_add(2 * C::L);
            };
        }
        while left >= 4 {
            step!();
            step!();
            step!();
            step!();
            left -= 4;
        }
        while left > 0 {
            step!();
            left -= 1;
        }
        for (i, c) in c.iter().enumerate() {
            for (p, c) in c.iter().enumerate() {
                for (v, c) in c.iter().enumerate() {
                    let at = (p * V + v) * C::L;
                    let to = t.acc.wrapping_add(i * t.pitch + at);
                    if full {
                        C::store(to, *c);
                    } else {
                        C::store_first(to, *c, t.cols.saturating_sub(at).min(C::L));
                    }
                }
            }
        }
    }
}

/// One block of at most [`ROWS`] rows and one panel.
#[inline(always)]
unsafe fn rows_kernel<C: Cube>(rows: usize, t: &Block<C>) {
    macro_rules! by_rows {
        ($v:literal) => {
            // SAFETY: the caller's promise, `rows` being the kernel's.
            unsafe {
                match rows {
                    1 => kernel::<C, 1, 1, $v>(t),
                    2 => kernel::<C, 2, 1, $v>(t),
                    3 => kernel::<C, 3, 1, $v>(t),
                    4 => kernel::<C, 4, 1, $v>(t),
                    5 => kernel::<C, 5, 1, $v>(t),
                    _ => kernel::<C, 6, 1, $v>(t),
                }
            }
        };
    }
    if t.cols <= C::L { by_rows!(1) } else { by_rows!(2) }
}

#[inline(always)]
unsafe fn drive<C: Cube>(p: &Mmad)
where
    C::A: MulAdd<C::B>,
{
    let width = 2 * C::L;
    if p.right.width != width {
        // SAFETY: the caller's promise.
        return unsafe { generic::blocks::<C::A, C::B>(p) };
    }
    // Few rows: run down each panel, whose steps follow each other in memory. Many: keep a slab of the left operand in L2
    // while the panels pass.
    let steps = |k0: usize| DEPTH.min(p.k - k0);
    if p.m <= FEW {
        let mut j = 0;
        while j < p.n {
            let mut k0 = 0;
            let cols = loop {
                // SAFETY: column j and the steps exist.
                let cols = unsafe { columns::<C>(p, j, k0, steps(k0)) };
                k0 += steps(k0);
                if k0 >= p.k {
                    break cols;
                }
            };
            j += cols;
        }
    } else {
        let mut k0 = 0;
        loop {
            let mut j = 0;
            while j < p.n {
                // SAFETY: column j and the steps exist.
                j += unsafe { columns::<C>(p, j, k0, steps(k0)) };
            }
            k0 += steps(k0);
            if k0 >= p.k {
                break;
            }
        }
    }
}

/// Steps `k0 .. k0 + k` of the columns from `j` on; how many columns that was.
#[target_feature(enable = "avx2,fma,f16c")]
#[inline(never)]
unsafe fn columns<C: Cube>(p: &Mmad, j: usize, k0: usize, k: usize) -> usize
where
    C::A: MulAdd<C::B>,
{
    let width = 2 * C::L;
    let (acc, a, b) = (p.acc.cast::<C::A>(), p.left.ptr.cast::<C::A>(), p.right.ptr.cast::<C::B>());
    let panels = match p.m {
        1 if p.n - j >= 4 * width => 4,
        2 if p.n - j >= 2 * width => 2,
        _ => 1,
    };
    // SAFETY: column j lies in an existing panel, row i in an existing row; blocks end inside both.
    unsafe {
        let mut t = Block::<C> {
            acc: acc.add(j),
            pitch: p.pitch,
            a: a.wrapping_offset(k0 as isize * p.left.k_stride),
            line_stride: p.left.line_stride,
            k_stride: p.left.k_stride,
            b: b.add(j / width * p.right.panel_stride + k0 * width),
            panel_stride: p.right.panel_stride,
            k,
            cols: (panels * width).min(p.n - j),
            accumulate: p.accumulate || k0 > 0,
        };
        match panels {
            4 => kernel::<C, 1, 4, 2>(&t),
            2 => kernel::<C, 2, 2, 2>(&t),
            _ => {
                let mut i = 0;
                while i < p.m {
                    let in_panel = i % p.left.width;
                    let rows = share((p.left.width - in_panel).min(p.m - i));
                    let at = (i / p.left.width) as isize * p.left.panel_stride
                        + in_panel as isize * p.left.line_stride;
                    t.a = a.wrapping_offset(at + k0 as isize * p.left.k_stride);
                    t.acc = acc.add(i * p.pitch + j);
                    rows_kernel::<C>(rows, &t);
                    i += rows;
                }
            }
        }
    }
    panels * width
}

/// Rows to take next when `left` are left: at most [`ROWS`], in nearly equal blocks.
#[inline(always)]
fn share(left: usize) -> usize {
    if left >= 2 * ROWS { ROWS } else { left.div_ceil(left.div_ceil(ROWS)) }
}

macro_rules! entry {
    ($($name:ident: $cube:ty;)*) => { $(
        #[target_feature(enable = "avx2,fma,f16c")]
        pub(super) unsafe fn $name(p: &Mmad) {
            // SAFETY: the caller's promise.
            unsafe { drive::<$cube>(p) }
        }
    )* };
}
entry! { mmad_f32: Single; mmad_f16: Half; mmad_bf16: Brain; mmad_f64: Double; }

/// Integer products: the portable loops, vectorised by the compiler.
#[target_feature(enable = "avx2,fma,f16c")]
pub(super) unsafe fn mmad_int<T: MulAdd<T>>(p: &Mmad) {
    // SAFETY: the caller's promise.
    unsafe { generic::blocks::<T, T>(p) }
}
