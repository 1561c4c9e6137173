//! AVX-512: one register a vector.

use std::arch::x86_64::*;

use super::Simd;

/// Exists only where the instructions do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// # Safety
    /// The machine has AVX-512 F, BW, VL and DQ.
    #[inline(always)]
    pub(super) unsafe fn new() -> Self {
        Self(())
    }
}

/// One instruction.
macro_rules! one {
    ($f:ident, $($x:expr),+) => {
        // SAFETY: the token proves the instructions.
        unsafe { $f($($x),+) }
    };
}

impl Simd for Avx512 {
    const WIDE: bool = true;
    type F = __m512;
    type I = __m512i;

    #[inline(always)]
    fn splat(self, x: f32) -> __m512 {
        one!(_mm512_set1_ps, x)
    }
    #[inline(always)]
    fn splat_i(self, x: i32) -> __m512i {
        one!(_mm512_set1_epi32, x)
    }
    #[inline(always)]
    unsafe fn load(self, p: *const f32) -> __m512 {
        one!(_mm512_loadu_ps, p)
    }
    #[inline(always)]
    unsafe fn store(self, v: __m512, p: *mut f32) {
        one!(_mm512_storeu_ps, p, v);
    }
    #[inline(always)]
    unsafe fn load_f16(self, p: *const u16) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(p.cast())) }
    }
    #[inline(always)]
    unsafe fn load_i8(self, p: *const i8) -> __m512 {
        // SAFETY: the caller's promise.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(p.cast()))) }
    }
    #[inline(always)]
    unsafe fn store_f16(self, v: __m512, p: *mut u16) {
        // SAFETY: the caller's promise.
        unsafe { _mm256_storeu_si256(p.cast(), _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v)) }
    }

    #[inline(always)]
    fn add(self, a: __m512, b: __m512) -> __m512 {
        one!(_mm512_add_ps, a, b)
    }
    #[inline(always)]
    fn sub(self, a: __m512, b: __m512) -> __m512 {
        one!(_mm512_sub_ps, a, b)
    }
    #[inline(always)]
    fn mul(self, a: __m512, b: __m512) -> __m512 {
        one!(_mm512_mul_ps, a, b)
    }
    #[inline(always)]
    fn div(self, a: __m512, b: __m512) -> __m512 {
        one!(_mm512_div_ps, a, b)
    }
    #[inline(always)]
    fn fma(self, a: __m512, b: __m512, c: __m512) -> __m512 {
        one!(_mm512_fmadd_ps, a, b, c)
    }
    #[inline(always)]
    fn min(self, a: __m512, b: __m512) -> __m512 {
        one!(_mm512_min_ps, a, b)
    }
    #[inline(always)]
    fn max(self, a: __m512, b: __m512) -> __m512 {
        one!(_mm512_max_ps, a, b)
    }
    #[inline(always)]
    fn select_lt(self, a: __m512, b: __m512, x: __m512, y: __m512) -> __m512 {
        // SAFETY: the token proves the instructions (and so below).
        unsafe { _mm512_mask_blend_ps(_mm512_cmp_ps_mask::<_CMP_LT_OQ>(a, b), y, x) }
    }
    #[inline(always)]
    fn swap_pairs(self, a: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_permute_ps::<0b10_11_00_01>(a) }
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
    fn bits(self, a: __m512) -> __m512i {
        one!(_mm512_castps_si512, a)
    }
    #[inline(always)]
    fn from_bits(self, a: __m512i) -> __m512 {
        one!(_mm512_castsi512_ps, a)
    }
    #[inline(always)]
    fn add_i(self, a: __m512i, b: __m512i) -> __m512i {
        one!(_mm512_add_epi32, a, b)
    }
    #[inline(always)]
    fn sub_i(self, a: __m512i, b: __m512i) -> __m512i {
        one!(_mm512_sub_epi32, a, b)
    }
    #[inline(always)]
    fn and_i(self, a: __m512i, b: __m512i) -> __m512i {
        one!(_mm512_and_si512, a, b)
    }
    #[inline(always)]
    fn or_i(self, a: __m512i, b: __m512i) -> __m512i {
        one!(_mm512_or_si512, a, b)
    }
    #[inline(always)]
    fn shl<const N: i32>(self, a: __m512i) -> __m512i {
        // SAFETY: see above. The count is a small constant.
        unsafe { _mm512_sll_epi32(a, _mm_cvtsi32_si128(N)) }
    }
    #[inline(always)]
    fn scale_by_power(self, p: __m512, rounded: __m512) -> __m512 {
        // One instruction that rounds once, as the two products do.
        let n = self.sub(rounded, self.splat(hanzo_quant::math::ROUND));
        one!(_mm512_scalef_ps, p, n)
    }
    #[inline(always)]
    fn half_i(self, a: __m512i) -> __m512i {
        // SAFETY: see above.
        unsafe { _mm512_srai_epi32::<1>(a) }
    }

    #[inline(always)]
    fn load_part(self, x: &[f32], fill: f32) -> __m512 {
        let n = x.len().min(16);
        let mask = ((1u32 << n) - 1) as u16;
        // SAFETY: only the first `n` elements are touched.
        unsafe { _mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask, x.as_ptr()) }
    }
    #[inline(always)]
    fn store_part(self, a: __m512, out: &mut [f32]) {
        let n = out.len().min(16);
        let mask = ((1u32 << n) - 1) as u16;
        // SAFETY: only the first `n` elements are touched.
        unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr(), mask, a) }
    }
    #[inline(always)]
    fn sum(self, a: __m512) -> f32 {
        // The tree of the trait, in registers.
        // SAFETY: see above.
        unsafe {
            let a8 = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a4 = _mm_add_ps(_mm256_castps256_ps128(a8), _mm256_extractf128_ps::<1>(a8));
            let a2 = _mm_add_ps(a4, _mm_movehl_ps(a4, a4));
            _mm_cvtss_f32(_mm_add_ss(a2, _mm_movehdup_ps(a2)))
        }
    }
    #[inline(always)]
    fn max_lane(self, a: __m512) -> f32 {
        // SAFETY: see above.
        unsafe {
            let a8 = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps::<1>(a));
            let a4 = _mm_max_ps(_mm256_castps256_ps128(a8), _mm256_extractf128_ps::<1>(a8));
            let a2 = _mm_max_ps(a4, _mm_movehl_ps(a4, a4));
            _mm_cvtss_f32(_mm_max_ss(a2, _mm_movehdup_ps(a2)))
        }
    }
}
