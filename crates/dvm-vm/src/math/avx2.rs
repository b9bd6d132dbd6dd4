//! [`Lanes`] on AVX2 + FMA: eight lanes.

use std::arch::x86_64::*;

use super::lanes::Lanes;

/// Eight f32. Exists only inside kernels compiled with `#[target_feature(enable = "avx2,fma,f16c")]`, which are reached
/// only through tables that checked the machine ([`crate::Isa::or_portable`]).
#[derive(Clone, Copy)]
pub(crate) struct Avx2(pub(crate) __m256);

/// Wraps one intrinsic call.
macro_rules! simd {
    ($e:expr) => {
        // SAFETY: a value of `Avx2` exists, so this code runs inside a kernel that has AVX2, FMA and F16C; the
        // intrinsic touches no memory.
        unsafe { $e }
    };
}

impl Avx2 {
    /// Lanes in a vector.
    pub(crate) const N: usize = 8;

    /// Loads eight elements.
    ///
    /// # Safety
    /// Eight elements are readable at `p`; AVX2 is available.
    #[inline(always)]
    pub(crate) unsafe fn load(p: *const f32) -> Avx2 {
        // SAFETY: the caller's promise; unaligned loads have no alignment requirement.
        unsafe { Avx2(_mm256_loadu_ps(p)) }
    }

    /// Stores eight elements.
    ///
    /// # Safety
    /// Eight elements are writable at `p`; AVX2 is available.
    #[inline(always)]
    pub(crate) unsafe fn store(self, p: *mut f32) {
        // SAFETY: as for `load`.
        unsafe { _mm256_storeu_ps(p, self.0) }
    }

    /// Loads the first `n` (1..=8) elements; the other lanes are 0.
    ///
    /// # Safety
    /// `n` elements are readable at `p`; AVX2 is available.
    #[inline(always)]
    pub(crate) unsafe fn load_first(p: *const f32, n: usize) -> Avx2 {
        // SAFETY: masked-off lanes are not accessed.
        unsafe { Avx2(_mm256_maskload_ps(p, first_lanes(n))) }
    }

    /// Stores the first `n` (1..=8) elements.
    ///
    /// # Safety
    /// `n` elements are writable at `p`; AVX2 is available.
    #[inline(always)]
    pub(crate) unsafe fn store_first(self, p: *mut f32, n: usize) {
        // SAFETY: masked-off lanes are not accessed.
        unsafe { _mm256_maskstore_ps(p, first_lanes(n), self.0) }
    }

    /// A mask as eight bytes of 0 or 1, the first lane lowest.
    #[inline(always)]
    pub(crate) fn mask_bytes(m: __m256) -> u64 {
        simd!({
            let m = _mm256_castps_si256(m);
            let words = _mm_packs_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256::<1>(m));
            let bytes = _mm_packs_epi16(words, words);
            _mm_cvtsi128_si64(_mm_and_si128(bytes, _mm_set1_epi8(1))) as u64
        })
    }
}

/// A mask of the first `n` lanes.
///
/// # Safety
/// AVX2 is available.
#[inline(always)]
pub(crate) unsafe fn first_lanes(n: usize) -> __m256i {
    // SAFETY: the caller's promise; no memory is touched.
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

impl Lanes for Avx2 {
    type Mask = __m256;
    type Bits = __m256i;

    #[inline(always)]
    fn splat(x: f32) -> Avx2 {
        simd!(Avx2(_mm256_set1_ps(x)))
    }
    #[inline(always)]
    fn add(self, b: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_add_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn sub(self, b: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_sub_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn mul(self, b: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_mul_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn div(self, b: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_div_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn fma(self, b: Avx2, c: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_fmadd_ps(self.0, b.0, c.0)))
    }
    #[inline(always)]
    fn fnma(self, b: Avx2, c: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_fnmadd_ps(self.0, b.0, c.0)))
    }
    #[inline(always)]
    fn sqrt(self) -> Avx2 {
        simd!(Avx2(_mm256_sqrt_ps(self.0)))
    }
    #[inline(always)]
    fn max_raw(self, b: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_max_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn min_raw(self, b: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_min_ps(self.0, b.0)))
    }
    #[inline(always)]
    fn round(self) -> Avx2 {
        simd!(Avx2(_mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self.0)))
    }
    #[inline(always)]
    fn floor(self) -> Avx2 {
        simd!(Avx2(_mm256_round_ps::<{ _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC }>(self.0)))
    }
    #[inline(always)]
    fn ceil(self) -> Avx2 {
        simd!(Avx2(_mm256_round_ps::<{ _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC }>(self.0)))
    }
    #[inline(always)]
    fn trunc(self) -> Avx2 {
        simd!(Avx2(_mm256_round_ps::<{ _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC }>(self.0)))
    }
    #[inline(always)]
    fn lt(self, b: Avx2) -> __m256 {
        simd!(_mm256_cmp_ps::<_CMP_LT_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn le(self, b: Avx2) -> __m256 {
        simd!(_mm256_cmp_ps::<_CMP_LE_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn eq(self, b: Avx2) -> __m256 {
        simd!(_mm256_cmp_ps::<_CMP_EQ_OQ>(self.0, b.0))
    }
    #[inline(always)]
    fn unordered(self, b: Avx2) -> __m256 {
        simd!(_mm256_cmp_ps::<_CMP_UNORD_Q>(self.0, b.0))
    }
    #[inline(always)]
    fn and_mask(a: __m256, b: __m256) -> __m256 {
        simd!(_mm256_and_ps(a, b))
    }
    #[inline(always)]
    fn or_mask(a: __m256, b: __m256) -> __m256 {
        simd!(_mm256_or_ps(a, b))
    }
    #[inline(always)]
    fn not_mask(a: __m256) -> __m256 {
        simd!(_mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1))))
    }
    #[inline(always)]
    fn select(m: __m256, a: Avx2, b: Avx2) -> Avx2 {
        simd!(Avx2(_mm256_blendv_ps(b.0, a.0, m)))
    }
    #[inline(always)]
    fn any(m: __m256) -> bool {
        simd!(_mm256_movemask_ps(m) != 0)
    }
    #[inline(always)]
    fn worth_checking(m: __m256) -> bool {
        simd!(_mm256_movemask_ps(m) != 0)
    }
    #[inline(always)]
    fn bits(self) -> __m256i {
        simd!(_mm256_castps_si256(self.0))
    }
    #[inline(always)]
    fn from_bits(b: __m256i) -> Avx2 {
        simd!(Avx2(_mm256_castsi256_ps(b)))
    }
    #[inline(always)]
    fn splat_bits(b: i32) -> __m256i {
        simd!(_mm256_set1_epi32(b))
    }
    #[inline(always)]
    fn add_bits(a: __m256i, b: __m256i) -> __m256i {
        simd!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn sub_bits(a: __m256i, b: __m256i) -> __m256i {
        simd!(_mm256_sub_epi32(a, b))
    }
    #[inline(always)]
    fn and_bits(a: __m256i, b: __m256i) -> __m256i {
        simd!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or_bits(a: __m256i, b: __m256i) -> __m256i {
        simd!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn xor_bits(a: __m256i, b: __m256i) -> __m256i {
        simd!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn shl_bits<const K: i32>(a: __m256i) -> __m256i {
        simd!(_mm256_slli_epi32::<K>(a))
    }
    #[inline(always)]
    fn sra_bits<const K: i32>(a: __m256i) -> __m256i {
        simd!(_mm256_srai_epi32::<K>(a))
    }
    #[inline(always)]
    fn bits_to_float(a: __m256i) -> Avx2 {
        simd!(Avx2(_mm256_cvtepi32_ps(a)))
    }
    #[inline(always)]
    fn bits_nonzero(a: __m256i) -> __m256 {
        simd!(_mm256_castsi256_ps(_mm256_xor_si256(
            _mm256_cmpeq_epi32(a, _mm256_setzero_si256()),
            _mm256_set1_epi32(-1)
        )))
    }
    #[inline(always)]
    fn map(self, f: fn(f32) -> f32) -> Avx2 {
        // SAFETY: both are 32 bytes of plain floats.
        let x: [f32; 8] = unsafe { std::mem::transmute(self.0) };
        let y = x.map(f);
        // SAFETY: as above.
        Avx2(unsafe { std::mem::transmute::<[f32; 8], __m256>(y) })
    }
    #[inline(always)]
    fn map2(self, b: Avx2, f: fn(f32, f32) -> f32) -> Avx2 {
        // SAFETY: both are 32 bytes of plain floats.
        let [x, y]: [[f32; 8]; 2] = unsafe { std::mem::transmute([self.0, b.0]) };
        let z: [f32; 8] = std::array::from_fn(|i| f(x[i], y[i]));
        // SAFETY: as above.
        Avx2(unsafe { std::mem::transmute::<[f32; 8], __m256>(z) })
    }
}
