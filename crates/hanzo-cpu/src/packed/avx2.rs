//! Unpacking with AVX2: as the AVX-512 path does, in halves of eight rows.
#![allow(unsafe_code)]

use std::arch::x86_64::*;

use super::layout::{GroupLayout, LANES, Layout, QUAD_BYTES, QUADS, Super, plane_widths};
use super::unpack::Scales;

/// Item `i` of `n` items of 16 bytes in bit planes.
///
/// # Safety
/// Needs AVX2; the planes must be readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn item(planes: *const u8, bits: u32, n: usize, i: usize) -> __m128i {
    let mut value = _mm_setzero_si128();
    let (mut base, mut low) = (0, 0);
    for &p in plane_widths(bits) {
        let words = n * p as usize / 8;
        // SAFETY: word `i mod words` of the plane, of 16 bytes.
        let word = unsafe { _mm_loadu_si128(planes.add(base + i % words * LANES).cast()) };
        let down = _mm_cvtsi32_si128((p * (i / words) as u32) as i32);
        let part = _mm_and_si128(_mm_srl_epi16(word, down), _mm_set1_epi8(((1u32 << p) - 1) as i8));
        value = _mm_or_si128(value, _mm_sll_epi16(part, _mm_cvtsi32_si128(low)));
        base += words * LANES;
        low += p as i32;
    }
    value
}

/// Bytes 8h..8h + 8, as integers.
#[target_feature(enable = "avx2")]
#[inline]
fn widen(bytes: __m128i, h: usize) -> __m256i {
    _mm256_cvtepu8_epi32(if h == 0 { bytes } else { _mm_srli_si128::<8>(bytes) })
}

/// As [`super::unpack::scales`].
///
/// # Safety
/// Needs AVX2 and F16C; `group` must be a group of `elems` elements of this layout, laid out as `at` says.
#[target_feature(enable = "avx2,f16c")]
pub(crate) unsafe fn scales(
    layout: &Layout,
    at: &GroupLayout,
    group: *const u8,
    elems: usize,
    out: &mut Scales,
) {
    let subs = elems / layout.sub;
    let sc_offset = _mm256_set1_epi32(layout.sc_offset);
    // SAFETY: offsets are those of the group's layout.
    unsafe {
        for j in 0..subs {
            let block = j * layout.sub / layout.super_elems;
            let sc = if layout.sc_bits > 0 {
                item(group.add(at.sc), layout.sc_bits, subs, j)
            } else {
                _mm_setzero_si128()
            };
            let m = if layout.m_bits > 0 {
                item(group.add(at.m), layout.m_bits, subs, j)
            } else {
                _mm_setzero_si128()
            };
            for h in 0..2 {
                let index = LANES * block + 8 * h;
                let mut d = match layout.super_scale {
                    Super::F16 { factor } => {
                        let d = _mm256_cvtph_ps(_mm_loadu_si128(group.add(2 * index).cast()));
                        _mm256_mul_ps(d, _mm256_set1_ps(factor))
                    }
                    Super::F32 => _mm256_loadu_ps(group.add(4 * index).cast()),
                    Super::E8M0 => {
                        let e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(group.add(index).cast()));
                        let normal = _mm256_slli_epi32::<23>(_mm256_sub_epi32(e, _mm256_set1_epi32(1)));
                        let small = _mm256_sllv_epi32(_mm256_set1_epi32(0x0020_0000), e);
                        let tiny = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
                        _mm256_castsi256_ps(_mm256_blendv_epi8(normal, small, tiny))
                    }
                    Super::Ue4m3 => {
                        let s = _mm256_cvtepu8_epi32(_mm_loadl_epi64(group.add(index).cast()));
                        let top = _mm256_set1_epi32(0x7f);
                        let s = _mm256_and_si256(s, top);
                        let raw = _mm256_castsi256_ps(_mm256_slli_epi32::<20>(s));
                        let scale = _mm256_mul_ps(raw, _mm256_set1_ps(f32::from_bits((127 + 119) << 23)));
                        _mm256_andnot_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(s, top)), scale)
                    }
                };
                if layout.sc_bits > 0 {
                    let sc = _mm256_sub_epi32(widen(sc, h), sc_offset);
                    d = _mm256_mul_ps(d, _mm256_cvtepi32_ps(sc));
                }
                _mm256_storeu_ps(out.scale[j].as_mut_ptr().add(8 * h), d);
                if layout.asymmetric {
                    let mut min = _mm256_cvtph_ps(_mm_loadu_si128(group.add(at.dmin + 2 * index).cast()));
                    if layout.m_bits > 0 {
                        min = _mm256_mul_ps(min, _mm256_cvtepi32_ps(widen(m, h)));
                    }
                    _mm256_storeu_ps(out.min[j].as_mut_ptr().add(8 * h), min);
                }
            }
        }
    }
}

/// The eight quads of rows 8h..8h + 8 of a unit; `planes` points 32h bytes into it.
///
/// # Safety
/// Needs AVX2; the unit must be readable.
#[target_feature(enable = "avx2")]
#[inline]
pub(crate) unsafe fn unit<const BITS: u32, const TABLE: bool>(
    planes: *const u8,
    table: __m256i,
) -> [__m256i; QUADS] {
    let mut quads = [_mm256_setzero_si256(); QUADS];
    // SAFETY: reads 32 bytes of each of `BITS` words.
    unsafe {
        let (n4, n2) = (4 * (BITS >> 2 & 1) as usize, 2 * (BITS >> 1 & 1) as usize);
        if BITS == 8 {
            for (i, quad) in quads.iter_mut().enumerate() {
                *quad = _mm256_loadu_si256(planes.add(QUAD_BYTES * i).cast());
            }
        }
        if BITS & 4 != 0 {
            let low = _mm256_set1_epi8(15);
            for i in 0..4 {
                let w = _mm256_loadu_si256(planes.add(QUAD_BYTES * i).cast());
                quads[i] = _mm256_and_si256(w, low);
                quads[i + 4] = _mm256_and_si256(_mm256_srli_epi16::<4>(w), low);
            }
        }
        if BITS & 2 != 0 {
            for i in 0..2 {
                let w = _mm256_loadu_si256(planes.add(QUAD_BYTES * (n4 + i)).cast());
                let parts = if n4 > 0 {
                    [_mm256_slli_epi16::<4>(w), _mm256_slli_epi16::<2>(w), w, _mm256_srli_epi16::<2>(w)]
                } else {
                    [w, _mm256_srli_epi16::<2>(w), _mm256_srli_epi16::<4>(w), _mm256_srli_epi16::<6>(w)]
                };
                let mask = _mm256_set1_epi8(if n4 > 0 { 0x30 } else { 3 });
                for (s, part) in parts.into_iter().enumerate() {
                    quads[i + 2 * s] = _mm256_or_si256(quads[i + 2 * s], _mm256_and_si256(part, mask));
                }
            }
        }
        if BITS & 1 != 0 {
            let w = _mm256_loadu_si256(planes.add(QUAD_BYTES * (n4 + n2)).cast());
            let value = _mm256_set1_epi8(match BITS {
                1 => 1,
                3 => 4,
                _ => 16,
            });
            for (i, quad) in quads.iter_mut().enumerate() {
                let tested = _mm256_set1_epi8((1u32 << i) as i8);
                let set = _mm256_cmpeq_epi8(_mm256_and_si256(w, tested), tested);
                *quad = _mm256_or_si256(*quad, _mm256_and_si256(set, value));
            }
        }
        if TABLE {
            for quad in &mut quads {
                *quad = _mm256_shuffle_epi8(table, *quad);
            }
        }
    }
    quads
}
