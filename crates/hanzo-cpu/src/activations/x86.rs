//! Quantization with AVX2: 32 values in four registers. The AVX-512 path uses it too: the work is a fraction of a per cent.

use std::arch::x86_64::*;

use hanzo_quant::canonical::{GROUP, TINY};

use super::GROUP_FLOATS;

/// As the portable path, bit for bit: the maximum is taken over the magnitudes' bit patterns, products are rounded to nearest even
/// by `vcvtps2dq`, sums are exact.
///
/// # Safety
/// Needs AVX2; the pointers must be valid for writes.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn quantize(
    x: &[f32; GROUP],
    codes: *mut [i8; GROUP],
    floats: *mut [f32; GROUP_FLOATS],
    sums: *mut [i16; 2],
) {
    // SAFETY: reads stay inside `x`, writes inside what the caller vouches for.
    unsafe {
        // Written out: closures are compiled without this function's instruction set.
        let p = x.as_ptr();
        let v = [
            _mm256_loadu_ps(p),
            _mm256_loadu_ps(p.add(8)),
            _mm256_loadu_ps(p.add(16)),
            _mm256_loadu_ps(p.add(24)),
        ];
        let magnitude = _mm256_set1_epi32(0x7fff_ffff);
        let mut bits = [magnitude; 4];
        for (bits, v) in bits.iter_mut().zip(v) {
            *bits = _mm256_and_si256(_mm256_castps_si256(v), magnitude);
        }
        let m = _mm256_max_epu32(_mm256_max_epu32(bits[0], bits[1]), _mm256_max_epu32(bits[2], bits[3]));
        let m = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256::<1>(m));
        let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0b01_00_11_10>(m));
        let m = _mm_max_epu32(m, _mm_shuffle_epi32::<0b10_11_00_01>(m));
        let amax = f32::from_bits(_mm_cvtsi128_si32(m) as u32);
        if !amax.is_finite() || amax < TINY {
            let d = if amax.is_finite() { 0.0 } else { f32::NAN };
            *codes = [0; GROUP];
            *sums = [0; 2];
            *floats = [d, 0.0, 0.0, 0.0];
            return;
        }
        let inv = _mm256_set1_ps(127.0 / amax);
        let d = amax / 127.0;
        let mut q = bits;
        for (q, v) in q.iter_mut().zip(v) {
            *q = _mm256_cvtps_epi32(_mm256_mul_ps(v, inv));
        }
        let (lo, hi) = (half(q[0], q[1]), half(q[2], q[3]));
        let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi16(lo, hi));
        _mm256_storeu_si256(codes.cast(), bytes);
        let (a, b) = (sum(lo), sum(hi));
        *sums = [a as i16, b as i16];
        *floats = [d, (a + b) as f32, a as f32, b as f32];
    }
}

/// 16 integers of 16 bits. Packing works within 128-bit halves: the permutation restores the order.
#[inline]
#[target_feature(enable = "avx2")]
fn half(a: __m256i, b: __m256i) -> __m256i {
    _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_packs_epi32(a, b))
}

/// The sum of 16 integers of 16 bits.
#[inline]
#[target_feature(enable = "avx2")]
fn sum(half: __m256i) -> i32 {
    let s = _mm256_madd_epi16(half, _mm256_set1_epi16(1));
    let s = _mm_add_epi32(_mm256_castsi256_si128(s), _mm256_extracti128_si256::<1>(s));
    let s = _mm_add_epi32(s, _mm_shuffle_epi32::<0b01_00_11_10>(s));
    let s = _mm_add_epi32(s, _mm_shuffle_epi32::<0b10_11_00_01>(s));
    _mm_cvtsi128_si32(s)
}
