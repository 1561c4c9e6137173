//! AVX2 with FMA and F16C: two registers a vector.

use std::arch::x86_64::*;

use super::Simd;

/// Exists only where the instructions do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// # Safety
    /// The machine has AVX2, FMA and F16C.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct F(__m256, __m256);
#[derive(Clone, Copy, Debug)]
pub(crate) struct I(__m256i, __m256i);

/// One instruction on both halves.
macro_rules! both {
    ($out:ident, $f:ident, $($x:expr),+) => {
        // SAFETY: the token proves the instructions.
        unsafe { $out($f($($x.0),+), $f($($x.1),+)) }
    };
}

impl Simd for Avx2 {
    const WIDE: bool = false;
    type F = F;
    type I = I;

    #[inline(always)]
    fn splat(self, x: f32) -> F {
        // SAFETY: the token proves the instructions (and so below).
        let v = unsafe { _mm256_set1_ps(x) };
        F(v, v)
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> I {
        // SAFETY: see above.
        let v = unsafe { _mm256_set1_epi32(x) };
        I(v, v)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> F {
        // SAFETY: the caller's promise.
        unsafe { F(_mm256_loadu_ps(p), _mm256_loadu_ps(p.add(8))) }
    }
    #[inline(always)]
    unsafe fn store(self, v: F, p: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe {
            _mm256_storeu_ps(p, v.0);
            _mm256_storeu_ps(p.add(8), v.1);
        }
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> F {
        // SAFETY: the caller's promise.
        unsafe {
            F(_mm256_cvtph_ps(_mm_loadu_si128(p.cast())), _mm256_cvtph_ps(_mm_loadu_si128(p.add(8).cast())))
        }
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> F {
        // SAFETY: the caller's promise.
        unsafe {
            let lo = _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.cast()));
            let hi = _mm256_cvtepi8_epi32(_mm_loadl_epi64(p.add(8).cast()));
            F(_mm256_cvtepi32_ps(lo), _mm256_cvtepi32_ps(hi))
        }
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: F, p: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe {
            _mm_storeu_si128(p.cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.0));
            _mm_storeu_si128(p.add(8).cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v.1));
        }
    }

    #[inline(always)]
    fn add(self, a: F, b: F) -> F {
        both!(F, _mm256_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(self, a: F, b: F) -> F {
        both!(F, _mm256_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(self, a: F, b: F) -> F {
        both!(F, _mm256_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(self, a: F, b: F) -> F {
        both!(F, _mm256_div_ps, a, b)
    }
    #[inline(always)]
    fn fma(self, a: F, b: F, c: F) -> F {
        both!(F, _mm256_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    fn min(self, a: F, b: F) -> F {
        both!(F, _mm256_min_ps, a, b)
    }
    #[inline(always)]
    fn max(self, a: F, b: F) -> F {
        both!(F, _mm256_max_ps, a, b)
    }
    #[inline(always)]
    fn select_lt(self, a: F, b: F, x: F, y: F) -> F {
        // SAFETY: see above.
        unsafe {
            let lo = _mm256_cmp_ps::<_CMP_LT_OQ>(a.0, b.0);
            let hi = _mm256_cmp_ps::<_CMP_LT_OQ>(a.1, b.1);
            F(_mm256_blendv_ps(y.0, x.0, lo), _mm256_blendv_ps(y.1, x.1, hi))
        }
    }
    #[inline(always)]
    fn swap_pairs(self, a: F) -> F {
        // SAFETY: see above.
        unsafe { F(_mm256_permute_ps::<0b10_11_00_01>(a.0), _mm256_permute_ps::<0b10_11_00_01>(a.1)) }
    }

    #[inline(always)]
    fn prefetch_far(self, p: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(p.cast()) }
    }
    #[inline(always)]
    fn prefetch(self, p: *const u8) {
        // SAFETY: a prefetch never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(p.cast()) }
    }

    #[inline(always)]
    fn bits(self, a: F) -> I {
        both!(I, _mm256_castps_si256, a)
    }
    #[inline(always)]
    fn from_bits(self, a: I) -> F {
        both!(F, _mm256_castsi256_ps, a)
    }
    #[inline(always)]
    fn add_i(self, a: I, b: I) -> I {
        both!(I, _mm256_add_epi32, a, b)
    }
    #[inline(always)]
    fn sub_i(self, a: I, b: I) -> I {
        both!(I, _mm256_sub_epi32, a, b)
    }
    #[inline(always)]
    fn and_i(self, a: I, b: I) -> I {
        both!(I, _mm256_and_si256, a, b)
    }
    #[inline(always)]
    fn or_i(self, a: I, b: I) -> I {
        both!(I, _mm256_or_si256, a, b)
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: I) -> I {
        // SAFETY: see above.
        unsafe { I(_mm256_slli_epi32::<N>(a.0), _mm256_slli_epi32::<N>(a.1)) }
    }
    #[inline(always)]
    fn half_i(self, a: I) -> I {
        // SAFETY: see above.
        unsafe { I(_mm256_srai_epi32::<1>(a.0), _mm256_srai_epi32::<1>(a.1)) }
    }
}
