//! Unpacking with AVX-512: scales of a group to floats, a unit of codes to eight vectors of unsigned bytes.
#![allow(unsafe_code)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::layout::{GroupLayout, LANES, Layout, QUAD_BYTES, QUADS, Super};
use super::unpack::{self, ANY, E8M0, PLAIN, Scales, UE4M3};

/// Items 4v..4v + 4, one a 128-bit lane, of the `N` in a plane of `P` bits.
///
/// # Safety
/// Needs AVX-512; the plane must be readable.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn plane<const P: u32, const N: usize>(plane: *const u8, v: usize) -> __m512i {
    let words = N * P as usize / 8;
    // SAFETY: words `4v mod words` and on, of 16 bytes.
    let word = unsafe {
        match words {
            1 => _mm512_broadcast_i32x4(_mm_loadu_si128(plane.cast())),
            2 => _mm512_broadcast_i64x4(_mm256_loadu_si256(plane.cast())),
            _ => _mm512_loadu_si512(plane.add(4 * v % words * LANES).cast()),
        }
    };
    let down = |lane: usize| (P as usize * ((4 * v + lane) / words)) as i64;
    let (a, b, c, d) = (down(0), down(1), down(2), down(3));
    // Shifts are of 64-bit lanes; the mask drops what came from the neighbouring byte.
    let part = _mm512_srlv_epi64(word, _mm512_set_epi64(d, d, c, c, b, b, a, a));
    _mm512_and_si512(part, _mm512_set1_epi8(((1u32 << P) - 1) as u8 as i8))
}

/// Bytes of `N` items (8 or 16) of 16 bytes in bit planes, item after item.
///
/// # Safety
/// Needs AVX-512; the planes must be readable, `out` must have room for `16 · N` bytes on a cache line.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn items<const BITS: u32, const N: usize>(planes: *const u8, out: *mut u8) {
    for v in 0..N / 4 {
        // SAFETY: the caller's promise; planes lie one after the other, widest first.
        unsafe {
            let value = match BITS {
                8 => _mm512_loadu_si512(planes.add(64 * v).cast()),
                4 => plane::<4, N>(planes, v),
                5 => {
                    let high = plane::<1, N>(planes.add(N * LANES / 2), v);
                    _mm512_or_si512(plane::<4, N>(planes, v), _mm512_slli_epi64::<4>(high))
                }
                _ => {
                    let high = plane::<2, N>(planes.add(N * LANES / 2), v);
                    _mm512_or_si512(plane::<4, N>(planes, v), _mm512_slli_epi64::<4>(high))
                }
            };
            _mm512_store_si512(out.add(64 * v).cast(), value);
        }
    }
}

/// Sixteen integers of [`items`], as floats.
///
/// # Safety
/// Needs AVX-512; 16 bytes must be readable.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn integers(bytes: *const u8, offset: __m512i) -> __m512 {
    // SAFETY: the caller's promise.
    let wide = _mm512_cvtepu8_epi32(unsafe { _mm_load_si128(bytes.cast()) });
    _mm512_cvtepi32_ps(_mm512_sub_epi32(wide, offset))
}

/// Sixteen f16 as floats.
///
/// # Safety
/// Needs AVX-512; 32 bytes must be readable.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn halves(at: *const u8) -> __m512 {
    // SAFETY: the caller's promise.
    _mm512_cvtph_ps(unsafe { _mm256_loadu_si256(at.cast()) })
}

/// The scales of the group that a core is at, each made when it is asked for: integer ones of `SC` bits (and mins of `M`) are gathered from their planes when
/// the group begins, and become floats in the registers of the one unit that needs them.
#[repr(C, align(64))]
pub(crate) struct GroupScales<const SC: u32, const M: u32> {
    /// Integer scales and mins, a byte each: `[sub-block][row]`.
    sc: MaybeUninit<[u8; 256]>,
    m: MaybeUninit<[u8; 256]>,
    floats: MaybeUninit<Scales>,
    d: __m512,
    dmin: __m512,
    factor: __m512,
    offset: __m512i,
    /// The group, and where its f16 mins begin.
    group: *const u8,
    at_dmin: usize,
    /// Sub-blocks of one super-scale, as a shift.
    per: u32,
}

impl<const SC: u32, const M: u32> GroupScales<SC, M> {
    /// # Safety
    /// Needs AVX-512.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    pub(crate) unsafe fn new(layout: &Layout) -> Self {
        let factor = if let Super::F16 { factor } = layout.super_scale { factor } else { 1.0 };
        GroupScales {
            sc: MaybeUninit::uninit(),
            m: MaybeUninit::uninit(),
            floats: MaybeUninit::uninit(),
            d: _mm512_setzero_ps(),
            dmin: _mm512_setzero_ps(),
            factor: _mm512_set1_ps(factor),
            offset: _mm512_set1_epi32(layout.sc_offset),
            group: std::ptr::null(),
            at_dmin: 0,
            per: (layout.super_elems / layout.sub).trailing_zeros(),
        }
    }

    /// Begins a group.
    ///
    /// # Safety
    /// Needs AVX-512; `group` must be a group of `elems` elements of this layout, laid out as `at` says, and stay readable; the layout's
    /// scales must be what `SC` and `M` say, in sub-blocks of 16 where `SUB16`.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    pub(crate) unsafe fn begin<const SUB16: bool>(
        &mut self,
        layout: &Layout,
        at: &GroupLayout,
        group: *const u8,
        elems: usize,
    ) {
        // SAFETY: offsets are those of the group's layout.
        unsafe {
            if matches!(SC, ANY | E8M0 | UE4M3) {
                scales(layout, at, group, elems, Sink::of(&mut self.floats));
                return;
            }
            (self.group, self.at_dmin) = (group, at.dmin);
            if SC != PLAIN {
                self.d = _mm512_mul_ps(halves(group), self.factor);
                let (sc, m) = (self.sc.as_mut_ptr().cast(), self.m.as_mut_ptr().cast());
                if SUB16 {
                    items::<SC, 16>(group.add(at.sc), sc)
                } else {
                    items::<SC, 8>(group.add(at.sc), sc)
                }
                if M > 0 {
                    self.dmin = halves(group.add(at.dmin));
                    if SUB16 { items::<M, 16>(group.add(at.m), m) } else { items::<M, 8>(group.add(at.m), m) }
                }
            }
        }
    }

    /// Scales of sub-block `j`.
    ///
    /// # Safety
    /// As [`begin`](Self::begin), which must have been called; `j` is a sub-block of the group.
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    pub(crate) unsafe fn scale(&self, j: usize) -> __m512 {
        // SAFETY: initialized by `begin`.
        unsafe {
            match SC {
                ANY | E8M0 | UE4M3 => _mm512_load_ps((&raw const (*self.floats.as_ptr()).scale[j]).cast()),
                PLAIN => _mm512_mul_ps(halves(self.group.add(2 * LANES * (j >> self.per))), self.factor),
                _ => {
                    _mm512_mul_ps(self.d, integers(self.sc.as_ptr().cast::<u8>().add(LANES * j), self.offset))
                }
            }
        }
    }

    /// Mins of sub-block `j`.
    ///
    /// # Safety
    /// As [`scale`](Self::scale).
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    #[inline]
    pub(crate) unsafe fn min(&self, j: usize) -> __m512 {
        // SAFETY: initialized by `begin`.
        unsafe {
            match SC {
                ANY | E8M0 | UE4M3 => _mm512_load_ps((&raw const (*self.floats.as_ptr()).min[j]).cast()),
                PLAIN => halves(self.group.add(self.at_dmin + 2 * LANES * (j >> self.per))),
                _ => {
                    let m = integers(self.m.as_ptr().cast::<u8>().add(LANES * j), _mm512_setzero_si512());
                    _mm512_mul_ps(self.dmin, m)
                }
            }
        }
    }
}

/// Where the scales of a group are written: those of sub-block `j` at `unit · (j / subs) + sub · (j mod subs)`, its mins `min` bytes further.
#[derive(Clone, Copy)]
pub(crate) struct Sink {
    pub(crate) to: *mut u8,
    pub(crate) subs: usize,
    pub(crate) unit: usize,
    pub(crate) sub: usize,
    pub(crate) min: usize,
}

impl Sink {
    /// Into an array.
    pub(crate) fn of(out: &mut MaybeUninit<Scales>) -> Self {
        let row = 4 * LANES;
        Sink {
            to: out.as_mut_ptr().cast(),
            subs: 1,
            unit: row,
            sub: row,
            min: std::mem::offset_of!(Scales, min),
        }
    }

    #[inline(always)]
    fn at(&self, j: usize) -> *mut f32 {
        self.to.wrapping_add(j / self.subs * self.unit + j % self.subs * self.sub).cast()
    }

    #[inline(always)]
    fn min_at(&self, j: usize) -> *mut f32 {
        self.at(j).wrapping_byte_add(self.min)
    }
}

/// As [`unpack::scales`].
///
/// # Safety
/// Needs AVX-512; `group` must be a group of `elems` elements of this layout, laid out as `at` says; the sink must have room for its
/// scales (and mins) at whole cache lines.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub(crate) unsafe fn scales(layout: &Layout, at: &GroupLayout, group: *const u8, elems: usize, out: Sink) {
    let subs = elems / layout.sub;
    // SAFETY: offsets are those of the group's layout.
    unsafe {
        match layout.super_scale {
            Super::F16 { factor } => {
                let factor = _mm512_set1_ps(factor);
                match (layout.sc_bits, layout.m_bits, subs) {
                    (0, _, _) => {
                        let per = layout.super_elems / layout.sub;
                        for b in 0..elems / layout.super_elems {
                            let d = _mm512_mul_ps(halves(group.add(2 * LANES * b)), factor);
                            for j in per * b..per * (b + 1) {
                                _mm512_store_ps(out.at(j), d);
                                if layout.asymmetric {
                                    _mm512_store_ps(
                                        out.min_at(j),
                                        halves(group.add(at.dmin + 2 * LANES * b)),
                                    );
                                }
                            }
                        }
                    }
                    // The widths that occur.
                    (4, 0, 8) => integer_scales::<4, 0, 8>(layout, at, group, factor, out),
                    (4, 0, 16) => integer_scales::<4, 0, 16>(layout, at, group, factor, out),
                    (4, 4, 16) => integer_scales::<4, 4, 16>(layout, at, group, factor, out),
                    (5, 0, 8) => integer_scales::<5, 0, 8>(layout, at, group, factor, out),
                    (5, 0, 16) => integer_scales::<5, 0, 16>(layout, at, group, factor, out),
                    (6, 0, 8) => integer_scales::<6, 0, 8>(layout, at, group, factor, out),
                    (6, 0, 16) => integer_scales::<6, 0, 16>(layout, at, group, factor, out),
                    (6, 6, 8) => integer_scales::<6, 6, 8>(layout, at, group, factor, out),
                    (8, 0, 16) => integer_scales::<8, 0, 16>(layout, at, group, factor, out),
                    _ => {
                        let mut s = Scales::default();
                        unpack::scales(layout, std::slice::from_raw_parts(group, at.bytes), elems, &mut s);
                        for j in 0..subs {
                            _mm512_store_ps(out.at(j), _mm512_load_ps(s.scale[j].as_ptr()));
                            if layout.asymmetric {
                                _mm512_store_ps(out.min_at(j), _mm512_load_ps(s.min[j].as_ptr()));
                            }
                        }
                    }
                }
            }
            Super::F32 => {
                for j in 0..subs {
                    let block = j * layout.sub / layout.super_elems;
                    _mm512_store_ps(out.at(j), _mm512_loadu_ps(group.add(64 * block).cast()));
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
                    _mm512_store_si512(out.at(j).cast(), d);
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
                    _mm512_store_ps(out.at(j), _mm512_maskz_mov_ps(valid, scale));
                }
            }
        }
    }
}

/// Scales (and mins) of formats with integer scales: one `d` over the whole group.
///
/// # Safety
/// As [`scales`], for a layout with these widths and number of sub-blocks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
#[inline]
unsafe fn integer_scales<const SC: u32, const M: u32, const SUBS: usize>(
    layout: &Layout,
    at: &GroupLayout,
    group: *const u8,
    factor: __m512,
    out: Sink,
) {
    #[repr(C, align(64))]
    struct Bytes([u8; 256]);
    let mut bytes = MaybeUninit::<[Bytes; 2]>::uninit();
    let [sc, m] = [0, 256].map(|at| bytes.as_mut_ptr().cast::<u8>().wrapping_add(at));
    let offset = _mm512_set1_epi32(layout.sc_offset);
    // SAFETY: offsets are those of the group's layout.
    unsafe {
        let d = _mm512_mul_ps(halves(group), factor);
        items::<SC, SUBS>(group.add(at.sc), sc);
        for j in 0..SUBS {
            _mm512_store_ps(out.at(j), _mm512_mul_ps(d, integers(sc.add(LANES * j), offset)));
        }
        if M > 0 {
            let dmin = halves(group.add(at.dmin));
            items::<M, SUBS>(group.add(at.m), m);
            for j in 0..SUBS {
                let m = integers(m.add(LANES * j), _mm512_setzero_si512());
                _mm512_store_ps(out.min_at(j), _mm512_mul_ps(dmin, m));
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
    use crate::packed::unpack::check_scales;

    #[test]
    fn scales_are_those_of_the_portable_path() {
        if Isa::Avx512.is_available() {
            check_scales(|layout, at, group, k, out| {
                let mut got = MaybeUninit::new(Scales::default());
                // SAFETY: the machine has it; one whole group; initialized.
                *out = unsafe {
                    scales(layout, at, group.as_ptr(), k, Sink::of(&mut got));
                    got.assume_init()
                };
            });
        }
    }
}
