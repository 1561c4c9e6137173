//! Unpacking with AVX2: as the AVX-512 path does, in halves of eight rows.
// Loops over lanes and rows index: iterator chains are not unrolled in functions of another instruction set.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::arch::x86_64::*;

use super::layout::{GroupLayout, LANES, Layout, QUAD_BYTES, QUADS, Super};
use super::unpack::Scales;

/// Item `i` of the `N` in a plane of `P` bits.
///
/// # Safety
/// Needs AVX2; the plane must be readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn plane<const P: usize, const N: usize>(plane: *const u8, i: usize) -> __m128i {
    let words = N * P / 8;
    // SAFETY: word `i mod words` of the plane, of 16 bytes.
    let word = unsafe { _mm_loadu_si128(plane.add(i % words * LANES).cast()) };
    // Shifts are of 16-bit lanes; the mask drops what came from the neighbouring byte.
    let part = _mm_srl_epi16(word, _mm_cvtsi32_si128((P * (i / words)) as i32));
    _mm_and_si128(part, _mm_set1_epi8(((1u32 << P) - 1) as u8 as i8))
}

/// Item `i` of `N` items of 16 bytes in bit planes, of 4, 5, 6 or 8 bits.
///
/// # Safety
/// Needs AVX2; the planes must be readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn item<const BITS: u32, const N: usize>(planes: *const u8, i: usize) -> __m128i {
    // SAFETY: passed through; planes lie one after the other, widest first.
    unsafe {
        let rest = planes.add(N * LANES / 2);
        match BITS {
            8 => _mm_loadu_si128(planes.add(i * LANES).cast()),
            4 => plane::<4, N>(planes, i),
            5 => _mm_or_si128(plane::<4, N>(planes, i), _mm_slli_epi16::<4>(plane::<1, N>(rest, i))),
            _ => _mm_or_si128(plane::<4, N>(planes, i), _mm_slli_epi16::<4>(plane::<2, N>(rest, i))),
        }
    }
}

/// Scales (and mins) of formats with integer scales: one `d` over the whole group.
///
/// # Safety
/// As [`scales`], for a layout with these widths and number of sub-blocks.
#[target_feature(enable = "avx2,f16c")]
#[inline]
unsafe fn integer_scales<const SC: u32, const M: u32, const SUBS: usize>(
    layout: &Layout,
    at: &GroupLayout,
    group: *const u8,
    factor: f32,
    out: &mut Scales,
) {
    let offset = _mm256_set1_epi32(layout.sc_offset);
    // SAFETY: offsets are those of the group's layout.
    unsafe {
        let [mut d, mut dmin] = [[_mm256_setzero_ps(); 2]; 2];
        for h in 0..2 {
            let wide = _mm256_cvtph_ps(_mm_loadu_si128(group.add(16 * h).cast()));
            d[h] = _mm256_mul_ps(wide, _mm256_set1_ps(factor));
            if M > 0 {
                dmin[h] = _mm256_cvtph_ps(_mm_loadu_si128(group.add(at.dmin + 16 * h).cast()));
            }
        }
        for j in 0..SUBS {
            let sc = item::<SC, SUBS>(group.add(at.sc), j);
            for h in 0..2 {
                let sc = _mm256_cvtepi32_ps(_mm256_sub_epi32(widen(sc, h), offset));
                _mm256_store_ps(out.scale[j].as_mut_ptr().add(8 * h), _mm256_mul_ps(d[h], sc));
            }
            if M > 0 {
                let m = item::<M, SUBS>(group.add(at.m), j);
                for h in 0..2 {
                    let m = _mm256_cvtepi32_ps(widen(m, h));
                    _mm256_store_ps(out.min[j].as_mut_ptr().add(8 * h), _mm256_mul_ps(dmin[h], m));
                }
            }
        }
    }
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
    // SAFETY: offsets are those of the group's layout.
    unsafe {
        if let Super::F16 { factor } = layout.super_scale {
            // The widths that occur.
            match (layout.sc_bits, layout.m_bits, subs) {
                (0, 0, _) => {}
                (4, 0, 8) => return integer_scales::<4, 0, 8>(layout, at, group, factor, out),
                (4, 0, 16) => return integer_scales::<4, 0, 16>(layout, at, group, factor, out),
                (4, 4, 16) => return integer_scales::<4, 4, 16>(layout, at, group, factor, out),
                (5, 0, 8) => return integer_scales::<5, 0, 8>(layout, at, group, factor, out),
                (5, 0, 16) => return integer_scales::<5, 0, 16>(layout, at, group, factor, out),
                (6, 0, 8) => return integer_scales::<6, 0, 8>(layout, at, group, factor, out),
                (6, 0, 16) => return integer_scales::<6, 0, 16>(layout, at, group, factor, out),
                (6, 6, 8) => return integer_scales::<6, 6, 8>(layout, at, group, factor, out),
                (8, 0, 16) => return integer_scales::<8, 0, 16>(layout, at, group, factor, out),
                _ => {
                    let group = std::slice::from_raw_parts(group, at.bytes);
                    return super::unpack::scales(layout, group, elems, out);
                }
            }
        }
        for j in 0..subs {
            let block = j * layout.sub / layout.super_elems;
            for h in 0..2 {
                let index = LANES * block + 8 * h;
                let d = match layout.super_scale {
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
                _mm256_storeu_ps(out.scale[j].as_mut_ptr().add(8 * h), d);
                if layout.asymmetric {
                    let min = _mm256_cvtph_ps(_mm_loadu_si128(group.add(at.dmin + 2 * index).cast()));
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
