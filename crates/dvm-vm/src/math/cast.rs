//! Conversions between element types, and selection by a mask of bytes.
//!
//! Float to integer truncates and saturates, NaN gives 0; integers wrap into narrower ones; halves round to nearest even.

use dvm_bc::DType;
use half::{bf16, f16};

use super::lanes::Lanes;
use crate::Isa;
use crate::kernels::blocks;

/// `dst[i] = src[i]` converted, for `i < n`. Pointers are aligned to their elements.
pub(crate) type CastFn = unsafe fn(dst: *mut u8, src: *const u8, n: usize);
/// `dst[i] = if cond[i] != 0 { a[i] } else { b[i] }` for `i < n`.
pub(crate) type SelectFn = unsafe fn(dst: *mut f32, cond: *const u8, a: *const f32, b: *const f32, n: usize);

/// A value conversion.
trait Convert<T> {
    fn convert(self) -> T;
}

macro_rules! convert {
    ($($from:ty => $($to:ty),*;)*) => { $($(
        impl Convert<$to> for $from {
            #[inline(always)]
            fn convert(self) -> $to { self as $to }
        }
    )*)* };
}
convert! {
    f32 => f64, u32, i64, u64;
    f64 => f32;
    i8 => f32; u8 => f32; i16 => f32; u16 => f32; i32 => f32, i64; u32 => f32; i64 => f32, i32; u64 => f32;
}
macro_rules! narrow_int {
    ($($to:ty),*) => { $(
        impl Convert<$to> for f32 {
            /// Limited first, then converted without checks: `as` would not vectorise.
            #[inline(always)]
            fn convert(self) -> $to {
                let x = if self.is_nan() { 0.0 } else { self };
                let x = x.max_raw(<$to>::MIN as f32).min_raw(<$to>::MAX as f32);
                // SAFETY: the limits fit an i32.
                (unsafe { x.to_int_unchecked::<i32>() }) as $to
            }
        }
    )* };
}
narrow_int!(i8, u8, i16, u16);
impl Convert<i32> for f32 {
    /// As above; 2^31 itself, which no i32 is, is selected afterwards.
    #[inline(always)]
    fn convert(self) -> i32 {
        let x = if self.is_nan() { 0.0 } else { self };
        let x = x.max_raw(i32::MIN as f32);
        // SAFETY: the greatest f32 below 2^31 fits.
        let y = unsafe { x.min_raw(2_147_483_520.0).to_int_unchecked::<i32>() };
        if x >= 2_147_483_648.0 { i32::MAX } else { y }
    }
}
impl Convert<f32> for f16 {
    #[inline(always)]
    fn convert(self) -> f32 {
        self.to_f32()
    }
}
impl Convert<f16> for f32 {
    #[inline(always)]
    fn convert(self) -> f16 {
        f16::from_f32(self)
    }
}
impl Convert<f32> for bf16 {
    #[inline(always)]
    fn convert(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}
impl Convert<bf16> for f32 {
    /// Round to nearest even by adding just less than half; NaN stays a (quiet) NaN.
    #[inline(always)]
    fn convert(self) -> bf16 {
        let x = self.to_bits();
        let rounded = x.wrapping_add(0x7fff + ((x >> 16) & 1)) >> 16;
        let nan = (x >> 16) | 0x40;
        bf16::from_bits(if self.is_nan() { nan } else { rounded } as u16)
    }
}

#[inline(always)]
unsafe fn each<F: Convert<T> + Copy, T: Copy>(dst: *mut u8, src: *const u8, n: usize) {
    let (dst, src) = (dst.cast::<T>(), src.cast::<F>());
    // SAFETY: the caller promises `n` aligned elements behind each pointer.
    unsafe { blocks(dst, n, |i| (*src.add(i)).convert()) };
}

unsafe fn portable<F: Convert<T> + Copy, T: Copy>(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<F, T>(dst, src, n) }
}

/// The portable loop, vectorised by the compiler for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2<F: Convert<T> + Copy, T: Copy>(dst: *mut u8, src: *const u8, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { each::<F, T>(dst, src, n) }
}

/// A conversion worth a kernel of its own: between f32 and everything, f64 excepted only in one direction, and between
/// i32 and i64. `None` for other pairs.
pub(crate) fn cast(from: DType, to: DType, isa: Isa) -> Option<CastFn> {
    macro_rules! pick {
        ($f:ty, $t:ty) => {
            match isa.or_portable() {
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2Fma => avx2::<$f, $t> as CastFn,
                _ => portable::<$f, $t> as CastFn,
            }
        };
    }
    #[cfg(target_arch = "x86_64")]
    if isa.or_portable() == Isa::Avx2Fma {
        match (from, to) {
            (DType::F16, DType::F32) => return Some(f16c::widen),
            (DType::F32, DType::F16) => return Some(f16c::narrow),
            _ => {}
        }
    }
    Some(match (from, to) {
        (DType::F32, DType::F64) => pick!(f32, f64),
        (DType::F32, DType::F16) => pick!(f32, f16),
        (DType::F32, DType::BF16) => pick!(f32, bf16),
        (DType::F32, DType::I8) => pick!(f32, i8),
        (DType::F32, DType::U8) => pick!(f32, u8),
        (DType::F32, DType::I16) => pick!(f32, i16),
        (DType::F32, DType::U16) => pick!(f32, u16),
        (DType::F32, DType::I32) => pick!(f32, i32),
        (DType::F32, DType::U32) => pick!(f32, u32),
        (DType::F32, DType::I64) => pick!(f32, i64),
        (DType::F32, DType::U64) => pick!(f32, u64),
        (DType::F64, DType::F32) => pick!(f64, f32),
        (DType::F16, DType::F32) => pick!(f16, f32),
        (DType::BF16, DType::F32) => pick!(bf16, f32),
        (DType::I8, DType::F32) => pick!(i8, f32),
        (DType::U8 | DType::Bool, DType::F32) => pick!(u8, f32),
        (DType::I16, DType::F32) => pick!(i16, f32),
        (DType::U16, DType::F32) => pick!(u16, f32),
        (DType::I32, DType::F32) => pick!(i32, f32),
        (DType::U32, DType::F32) => pick!(u32, f32),
        (DType::I64, DType::F32) => pick!(i64, f32),
        (DType::U64, DType::F32) => pick!(u64, f32),
        (DType::I32, DType::I64) => pick!(i32, i64),
        (DType::I64, DType::I32) => pick!(i64, i32),
        _ => return None,
    })
}

#[inline(always)]
unsafe fn select_each(dst: *mut f32, cond: *const u8, a: *const f32, b: *const f32, n: usize) {
    // SAFETY: the caller promises `n` elements behind each pointer. Both sides are read, so that this is a blend.
    unsafe {
        blocks(dst, n, |i| {
            let (x, y) = (*a.add(i), *b.add(i));
            if *cond.add(i) != 0 { x } else { y }
        });
    }
}

unsafe fn select_portable(dst: *mut f32, cond: *const u8, a: *const f32, b: *const f32, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { select_each(dst, cond, a, b, n) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn select_avx2(dst: *mut f32, cond: *const u8, a: *const f32, b: *const f32, n: usize) {
    use std::arch::x86_64::*;
    let mut i = 0;
    while i + 8 <= n {
        // SAFETY: i + 8 <= n, and the caller promises `n` elements behind each pointer.
        unsafe {
            let c = _mm256_cvtepu8_epi32(_mm_loadl_epi64(cond.add(i).cast()));
            let unset = _mm256_castsi256_ps(_mm256_cmpeq_epi32(c, _mm256_setzero_si256()));
            let (x, y) = (_mm256_loadu_ps(a.add(i)), _mm256_loadu_ps(b.add(i)));
            _mm256_storeu_ps(dst.add(i), _mm256_blendv_ps(x, y, unset));
        }
        i += 8;
    }
    // SAFETY: the rest of the same elements.
    unsafe { select_each(dst.add(i), cond.add(i), a.add(i), b.add(i), n - i) };
}

/// Selection of f32 by bytes.
pub(crate) fn select_f32(isa: Isa) -> SelectFn {
    match isa.or_portable() {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2Fma => select_avx2,
        _ => select_portable,
    }
}

#[cfg(target_arch = "x86_64")]
mod f16c {
    use std::arch::x86_64::*;

    use half::f16;

    /// f16 to f32.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn widen(dst: *mut u8, src: *const u8, n: usize) {
        let (dst, src) = (dst.cast::<f32>(), src.cast::<f16>());
        let mut i = 0;
        while i + 8 <= n {
            // SAFETY: i + 8 <= n, and the caller promises `n` elements behind each pointer.
            unsafe { _mm256_storeu_ps(dst.add(i), _mm256_cvtph_ps(_mm_loadu_si128(src.add(i).cast()))) };
            i += 8;
        }
        while i < n {
            // SAFETY: i < n.
            unsafe { *dst.add(i) = (*src.add(i)).to_f32_const() };
            i += 1;
        }
    }

    /// f32 to f16.
    #[target_feature(enable = "avx2,fma,f16c")]
    pub(super) unsafe fn narrow(dst: *mut u8, src: *const u8, n: usize) {
        let (dst, src) = (dst.cast::<f16>(), src.cast::<f32>());
        let mut i = 0;
        while i + 8 <= n {
            // SAFETY: i + 8 <= n, and the caller promises `n` elements behind each pointer.
            unsafe {
                let h = _mm256_cvtps_ph::<{ _MM_FROUND_TO_NEAREST_INT }>(_mm256_loadu_ps(src.add(i)));
                _mm_storeu_si128(dst.add(i).cast(), h);
            }
            i += 8;
        }
        while i < n {
            // SAFETY: i < n.
            unsafe { *dst.add(i) = f16::from_f32_const(*src.add(i)) };
            i += 1;
        }
    }
}
