//! Unpacking with AVX-512: scales of a group to floats, a unit of codes to eight vectors of unsigned bytes.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::layout::{GroupLayout, LANES, Layout, QUAD_BYTES, QUADS, Super, plane_widths};
use super::unpack::{self, Scales};

/// Item `i` of `n` items of 16 bytes in bit planes, as 16 integers.
///
/// # Safety
/// Needs AVX-512; the planes must be readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn item(planes: *const u8, bits: u32, n: usize, i: usize) -> __m512i {
    let mut value = _mm_setzero_si128();
    let (mut base, mut low) = (0, 0);
    for &p in plane_widths(bits) {
        let words = n * p as usize / 8;
        // SAFETY: word `i mod words` of the plane, of 16 bytes.
        let word = unsafe { _mm_loadu_si128(planes.add(base + i % words * LANES).cast()) };
        // Shifts are of 16-bit lanes; the mask drops what came from the neighbouring byte.
        let down = _mm_cvtsi32_si128((p * (i / words) as u32) as i32);
        let part = _mm_and_si128(_mm_srl_epi16(word, down), _mm_set1_epi8(((1u32 << p) - 1) as i8));
        value = _mm_or_si128(value, _mm_sll_epi16(part, _mm_cvtsi32_si128(low)));
        base += words * LANES;
        low += p as i32;
    }
    _mm512_cvtepu8_epi32(value)
}

/// As [`unpack::scales`].
///
/// # Safety
/// Needs AVX-512; `group` must be a group of `elems` elements of this layout, laid out as `at` says.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) unsafe fn scales(
    layout: &Layout,
    at: &GroupLayout,
    group: *const u8,
    elems: usize,
    out: &mut Scales,
) {
    let subs = elems / layout.sub;
    // SAFETY: offsets are those of the group's layout.
    unsafe {
        match layout.super_scale {
            Super::F16 { factor } => {
                let per = layout.super_elems / layout.sub;
                let factor = _mm512_set1_ps(factor);
                for b in 0..elems / layout.super_elems {
                    let half =
                        |from: usize| _mm512_cvtph_ps(_mm256_loadu_si256(group.add(from + 32 * b).cast()));
                    let d = _mm512_mul_ps(half(0), factor);
                    let dmin = if layout.asymmetric { half(at.dmin) } else { d };
                    match (layout.sc_bits, layout.m_bits) {
                        (0, _) => {
                            for j in per * b..per * (b + 1) {
                                _mm512_storeu_ps(out.scale[j].as_mut_ptr(), d);
                                if layout.asymmetric {
                                    _mm512_storeu_ps(out.min[j].as_mut_ptr(), dmin);
                                }
                            }
                        }
                        // The widths that occur, so that every shift is a constant.
                        (4, 0) => integer_scales::<4, 0>(layout, at, group, subs, d, dmin, out),
                        (4, 4) => integer_scales::<4, 4>(layout, at, group, subs, d, dmin, out),
                        (5, 0) => integer_scales::<5, 0>(layout, at, group, subs, d, dmin, out),
                        (6, 0) => integer_scales::<6, 0>(layout, at, group, subs, d, dmin, out),
                        (6, 6) => integer_scales::<6, 6>(layout, at, group, subs, d, dmin, out),
                        (8, 0) => integer_scales::<8, 0>(layout, at, group, subs, d, dmin, out),
                        _ => unpack::scales(layout, std::slice::from_raw_parts(group, at.bytes), elems, out),
                    }
                }
            }
            Super::F32 => {
                for j in 0..subs {
                    let block = j * layout.sub / layout.super_elems;
                    let d = _mm512_loadu_ps(group.add(64 * block).cast());
                    _mm512_storeu_ps(out.scale[j].as_mut_ptr(), d);
                }
            }
            Super::E8M0 => {
                for j in 0..subs {
                    let block = j * layout.sub / layout.super_elems;
                    let e = _mm512_cvtepu8_epi32(_mm_loadu_si128(group.add(16 * block).cast()));
                    // 2^(e − 128) has exponent field e − 1; below 2 it is subnormal.
                    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, _mm512_set1_epi32(1)));
                    let small = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
                    let tiny = _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2));
                    let d = _mm512_mask_blend_epi32(tiny, normal, small);
                    _mm512_storeu_si512(out.scale[j].as_mut_ptr().cast(), d);
                }
            }
            Super::Ue4m3 => {
                for j in 0..subs {
                    let s = _mm512_cvtepu8_epi32(_mm_loadu_si128(group.add(16 * j).cast()));
                    let s = _mm512_and_si512(s, _mm512_set1_epi32(0x7f));
                    // Exponent and mantissa moved into an f32's fields, then scaled by 2^(127 − 7 − 1): exact, subnormals too.
                    let raw = _mm512_castsi512_ps(_mm512_slli_epi32::<20>(s));
                    let scale = _mm512_mul_ps(raw, _mm512_set1_ps(f32::from_bits((127 + 119) << 23)));
                    let valid = _mm512_cmpneq_epi32_mask(s, _mm512_set1_epi32(0x7f));
                    _mm512_storeu_ps(out.scale[j].as_mut_ptr(), _mm512_maskz_mov_ps(valid, scale));
                }
            }
        }
    }
}

/// Scales (and mins) of formats with integer scales: one `d` over the whole group.
///
/// # Safety
/// As [`scales`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn integer_scales<const SC: u32, const M: u32>(
    layout: &Layout,
    at: &GroupLayout,
    group: *const u8,
    subs: usize,
    d: __m512,
    dmin: __m512,
    out: &mut Scales,
) {
    let offset = _mm512_set1_epi32(layout.sc_offset);
    // SAFETY: offsets are those of the group's layout.
    unsafe {
        // The count is spelled out for the two cases, again for constant shifts.
        if subs == 8 {
            for j in 0..8 {
                let sc = _mm512_sub_epi32(item(group.add(at.sc), SC, 8, j), offset);
                _mm512_storeu_ps(out.scale[j].as_mut_ptr(), _mm512_mul_ps(d, _mm512_cvtepi32_ps(sc)));
                if M > 0 {
                    let m = _mm512_cvtepi32_ps(item(group.add(at.m), M, 8, j));
                    _mm512_storeu_ps(out.min[j].as_mut_ptr(), _mm512_mul_ps(dmin, m));
                }
            }
        } else {
            for j in 0..16 {
                let sc = _mm512_sub_epi32(item(group.add(at.sc), SC, 16, j), offset);
                _mm512_storeu_ps(out.scale[j].as_mut_ptr(), _mm512_mul_ps(d, _mm512_cvtepi32_ps(sc)));
                if M > 0 {
                    let m = _mm512_cvtepi32_ps(item(group.add(at.m), M, 16, j));
                    _mm512_storeu_ps(out.min[j].as_mut_ptr(), _mm512_mul_ps(dmin, m));
                }
            }
        }
    }
}

/// The eight quads of a unit, unsigned codes.
///
/// # Safety
/// Needs AVX-512; `64 · BITS` bytes must be readable at `planes`.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
pub(crate) unsafe fn unit<const BITS: u32, const TABLE: bool>(
    planes: *const u8,
    table: __m512i,
) -> [__m512i; QUADS] {
    let mut quads = [_mm512_setzero_si512(); QUADS];
    // SAFETY: reads `BITS` vectors.
    unsafe {
        let (n4, n2) = (4 * (BITS >> 2 & 1) as usize, 2 * (BITS >> 1 & 1) as usize);
        if BITS == 8 {
            for (i, quad) in quads.iter_mut().enumerate() {
                *quad = _mm512_loadu_si512(planes.add(QUAD_BYTES * i).cast());
            }
        }
        if BITS & 4 != 0 {
            let low = _mm512_set1_epi8(15);
            for i in 0..4 {
                let w = _mm512_loadu_si512(planes.add(QUAD_BYTES * i).cast());
                quads[i] = _mm512_and_si512(w, low);
                quads[i + 4] = _mm512_and_si512(_mm512_srli_epi16::<4>(w), low);
            }
        }
        if BITS & 2 != 0 {
            for i in 0..2 {
                let w = _mm512_loadu_si512(planes.add(QUAD_BYTES * (n4 + i)).cast());
                // Two bits to the place above the nibble (or to the bottom).
                let parts = if n4 > 0 {
                    [_mm512_slli_epi16::<4>(w), _mm512_slli_epi16::<2>(w), w, _mm512_srli_epi16::<2>(w)]
                } else {
                    [w, _mm512_srli_epi16::<2>(w), _mm512_srli_epi16::<4>(w), _mm512_srli_epi16::<6>(w)]
                };
                let mask = _mm512_set1_epi8(if n4 > 0 { 0x30 } else { 3 });
                for (s, part) in parts.into_iter().enumerate() {
                    let q = &mut quads[i + 2 * s];
                    // q | (part & mask)
                    *q = _mm512_ternarylogic_epi64::<0xf8>(*q, part, mask);
                }
            }
        }
        if BITS & 1 != 0 {
            let w = _mm512_loadu_si512(planes.add(QUAD_BYTES * (n4 + n2)).cast());
            let bit = match BITS {
                1 => 1,
                3 => 4,
                _ => 16,
            };
            let one = _mm512_set1_epi8(1);
            let value = _mm512_set1_epi8(bit);
            for (i, q) in quads.iter_mut().enumerate() {
                let tested = _mm512_set1_epi8((1u32 << i) as i8);
                if BITS == 1 {
                    *q = _mm512_maskz_mov_epi8(_mm512_test_epi8_mask(w, tested), one);
                } else {
                    *q = _mm512_mask_add_epi8(*q, _mm512_test_epi8_mask(w, tested), *q, value);
                }
            }
        }
        if TABLE {
            for quad in &mut quads {
                *quad = _mm512_shuffle_epi8(table, *quad);
            }
        }
    }
    quads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::numeric::{Random, weights};
    use crate::packed::{Kind, PackedMatrix};
    use crate::pool::Pool;
    use hanzo_quant::QuantType;

    #[test]
    fn scales_are_those_of_the_portable_path() {
        if !Isa::Avx512.is_available() {
            return;
        }
        let pool = Pool::new(1).unwrap();
        let mut rng = Random(1);
        for &ty in QuantType::ALL {
            let format = ty.format();
            for k in [format.elems.max(32), 256] {
                let raw = weights(format, 16 * k, &mut rng);
                let w = PackedMatrix::pack(format, 16, k, &raw[..], &pool, None).unwrap();
                let Kind::Int(layout) = w.kind() else { continue };
                let at = layout.group(k);
                // SAFETY: one whole group.
                let group = unsafe { std::slice::from_raw_parts(w.tile(0, 0), at.bytes) };
                let (mut got, mut want) = (Scales::default(), Scales::default());
                unpack::scales(layout, group, k, &mut want);
                // SAFETY: the machine has it; one whole group.
                unsafe { scales(layout, &at, group.as_ptr(), k, &mut got) };
                assert_eq!((got.scale, got.min), (want.scale, want.min), "{ty} {k}");
            }
        }
    }
}
