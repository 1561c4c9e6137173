//! Bit planes and transpositions with AVX2: compilers make single moves of them.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

/// As [`super::planes`].
///
/// # Safety
/// Needs AVX2.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn planes<const BITS: usize>(q: __m256i, words: &mut [u32; BITS]) {
    let out = words.as_mut_ptr();
    let (mut base, mut low) = (0, 0);
    // SAFETY: writes `BITS` words.
    unsafe {
        if BITS == 8 {
            _mm256_storeu_si256(out.cast(), q);
            return;
        }
        if BITS & 4 != 0 {
            let nibbles = _mm256_and_si256(q, _mm256_set1_epi8(15));
            let (a, b) = (_mm256_castsi256_si128(nibbles), _mm256_extracti128_si256::<1>(nibbles));
            _mm_storeu_si128(out.cast(), _mm_or_si128(a, _mm_slli_epi16::<4>(b)));
            (base, low) = (4, 4);
        }
        if BITS & 2 != 0 {
            let part = _mm256_srl_epi16(q, _mm_cvtsi32_si128(low));
            let part = _mm256_and_si256(part, _mm256_set1_epi8(3));
            let part = _mm256_sllv_epi64(part, _mm256_set_epi64x(6, 4, 2, 0));
            let half = _mm_or_si128(_mm256_castsi256_si128(part), _mm256_extracti128_si256::<1>(part));
            _mm_storel_epi64(out.add(base).cast(), _mm_or_si128(half, _mm_unpackhi_epi64(half, half)));
            (base, low) = (base + 2, low + 2);
        }
        if BITS & 1 != 0 {
            let part = _mm256_srl_epi16(q, _mm_cvtsi32_si128(low));
            let part = _mm256_and_si256(part, _mm256_set1_epi8(1));
            let part = _mm256_sllv_epi32(part, _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0));
            let half = _mm_or_si128(_mm256_castsi256_si128(part), _mm256_extracti128_si256::<1>(part));
            let half = _mm_or_si128(half, _mm_unpackhi_epi64(half, half));
            let one = _mm_or_si128(half, _mm_srli_epi64::<32>(half));
            out.add(base).write(_mm_cvtsi128_si32(one) as u32);
        }
    }
}

/// `out[i][j] = block[j][i]`.
///
/// # Safety
/// Needs AVX2.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn transpose(block: &[[u32; 8]; 8]) -> [[u32; 8]; 8] {
    let mut r = [_mm256_setzero_si256(); 8];
    let mut t = r;
    let mut out = [[0u32; 8]; 8];
    // SAFETY: rows of 32 bytes.
    unsafe {
        for i in 0..8 {
            r[i] = _mm256_loadu_si256(block[i].as_ptr().cast());
        }
        for i in 0..4 {
            t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
            t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
        }
        for i in [0, 4] {
            r[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
            r[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
            r[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
            r[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
        }
        for i in 0..4 {
            let low = _mm256_permute2x128_si256::<0x20>(r[i], r[i + 4]);
            let high = _mm256_permute2x128_si256::<0x31>(r[i], r[i + 4]);
            _mm256_storeu_si256(out[i].as_mut_ptr().cast(), low);
            _mm256_storeu_si256(out[i + 4].as_mut_ptr().cast(), high);
        }
    }
    out
}

/// `out[i][j] = rows[j][i]`.
///
/// # Safety
/// Needs AVX2.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) unsafe fn transpose_bytes(rows: &[[u8; 16]; 16]) -> [[u8; 16]; 16] {
    let mut r = [_mm_setzero_si128(); 16];
    let mut out = [[0u8; 16]; 16];
    // SAFETY: rows of 16 bytes.
    unsafe {
        for i in 0..16 {
            r[i] = _mm_loadu_si128(rows[i].as_ptr().cast());
        }
        // Four perfect shuffles of the rows' bytes: each interleaves row i with row i + 8.
        for _ in 0..4 {
            let old = r;
            for i in 0..8 {
                r[2 * i] = _mm_unpacklo_epi8(old[i], old[i + 8]);
                r[2 * i + 1] = _mm_unpackhi_epi8(old[i], old[i + 8]);
            }
        }
        for i in 0..16 {
            _mm_storeu_si128(out[i].as_mut_ptr().cast(), r[i]);
        }
    }
    out
}
