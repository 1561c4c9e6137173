//! Unpacking with AVX2: as the AVX-512 path does, in halves of eight rows.
// Loops over lanes and rows index: iterator chains are not unrolled in functions of another instruction set.
#![allow(unsafe_code, clippy::needless_range_loop)]

use std::arch::x86_64::*;
use std::mem::MaybeUninit;

use super::layout::{GROUP_ELEMS, GroupLayout, LANES, Layout, QUAD_BYTES, QUADS, Super};
use super::unpack::{ANY, E8M0, PLAIN, Scales, UE4M3};

/// Items 2v and 2v + 1, one a 128-bit lane, of the `N` in a plane of `P` bits.
///
/// # Safety
/// Needs AVX2; the plane must be readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn plane<const P: usize, const N: usize>(plane: *const u8, v: usize) -> __m256i {
    let words = N * P / 8;
    // SAFETY: words `2v mod words` and the next, of 16 bytes.
    let (word, down) = unsafe {
        if words == 1 {
            (_mm256_broadcastsi128_si256(_mm_loadu_si128(plane.cast())), [2 * v, 2 * v + 1].map(|i| i * P))
        } else {
            (_mm256_loadu_si256(plane.add(2 * v % words * LANES).cast()), [P * (2 * v / words); 2])
        }
    };
    let [a, b] = down.map(|d| d as i64);
    // Shifts are of 64-bit lanes; the mask drops what came from the neighbouring byte.
    let part = _mm256_srlv_epi64(word, _mm256_set_epi64x(b, b, a, a));
    _mm256_and_si256(part, _mm256_set1_epi8(((1u32 << P) - 1) as u8 as i8))
}

/// Bytes of `N` items (8 or 16) of 16 bytes in bit planes, less `offset`, item after item.
///
/// # Safety
/// Needs AVX2; the planes must be readable, `out` must have room for `16 · N` bytes at a multiple of 32.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn items<const BITS: u32, const N: usize>(planes: *const u8, offset: __m256i, out: *mut u8) {
    for v in 0..N / 2 {
        // SAFETY: the caller's promise; planes lie one after the other, widest first.
        unsafe {
            let rest = planes.add(N * LANES / 2);
            let value = match BITS {
                8 => _mm256_loadu_si256(planes.add(32 * v).cast()),
                4 => plane::<4, N>(planes, v),
                5 => {
                    _mm256_or_si256(plane::<4, N>(planes, v), _mm256_slli_epi64::<4>(plane::<1, N>(rest, v)))
                }
                _ => {
                    _mm256_or_si256(plane::<4, N>(planes, v), _mm256_slli_epi64::<4>(plane::<2, N>(rest, v)))
                }
            };
            _mm256_store_si256(out.add(32 * v).cast(), _mm256_sub_epi8(value, offset));
        }
    }
}

/// Eight integers of [`items`], as floats.
///
/// # Safety
/// Needs AVX2; 8 bytes must be readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn integers(bytes: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(unsafe { _mm_loadl_epi64(bytes.cast()) }))
}

/// Eight f16 as floats.
///
/// # Safety
/// Needs AVX2 and F16C; 16 bytes must be readable.
#[target_feature(enable = "avx2,f16c")]
#[inline]
unsafe fn halves(at: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    _mm256_cvtph_ps(unsafe { _mm_loadu_si128(at.cast()) })
}

/// Eight E8M0 bytes as floats, `2^(e − 128)`: the exponent's bits, and for the two lowest, which are subnormal, what is larger than they.
///
/// # Safety
/// Needs AVX2; 8 bytes must be readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn e8m0(bytes: *const u8) -> __m256 {
    // SAFETY: the caller's promise.
    let e = _mm256_cvtepu8_epi32(unsafe { _mm_loadl_epi64(bytes.cast()) });
    let normal = _mm256_sub_epi32(_mm256_slli_epi32::<23>(e), _mm256_set1_epi32(1 << 23));
    let small = _mm256_add_epi32(_mm256_slli_epi32::<21>(e), _mm256_set1_epi32(1 << 21));
    _mm256_castsi256_ps(_mm256_max_epi32(normal, small))
}

/// Sixteen UE4M3 bytes as f16, `2^-8` of their value: exponent and mantissa are moved to where f16 has them, and so are subnormals. Top
/// bits are ignored, 0x7f is 0.
///
/// # Safety
/// Needs AVX2; 16 bytes must be readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn ue4m3(bytes: *const u8) -> __m256i {
    let top = _mm256_set1_epi16(0x7f);
    // SAFETY: the caller's promise.
    let s = _mm256_and_si256(_mm256_cvtepu8_epi16(unsafe { _mm_loadu_si128(bytes.cast()) }), top);
    _mm256_slli_epi16::<7>(_mm256_andnot_si256(_mm256_cmpeq_epi16(s, top), s))
}

/// Halves of eight of [`ue4m3`], as floats. By way of f16, because products with subnormal floats are slow.
#[target_feature(enable = "avx2,f16c")]
#[inline]
fn ue4m3_half(s: __m128i) -> __m256 {
    _mm256_mul_ps(_mm256_cvtph_ps(s), _mm256_set1_ps(128.0))
}

/// Integer scales and mins, a byte each, signed: `[sub-block][row]`; or both together what [`ue4m3`] makes of scales. Those of eight bits have an offset of 128, mins at most seven bits.
#[repr(C, align(64))]
struct Bytes {
    sc: [u8; 256],
    m: [u8; 256],
}

/// The scales of the group that a core is at, each made when it is asked for, as [`super::avx512::GroupScales`] does in vectors of 16.
pub(crate) struct GroupScales<const SC: u32, const M: u32> {
    bytes: MaybeUninit<Bytes>,
    floats: MaybeUninit<Scales>,
    d: [__m256; 2],
    dmin: [__m256; 2],
    factor: __m256,
    offset: __m256i,
    /// The group, and where its f16 mins begin.
    group: *const u8,
    at_dmin: usize,
    /// Sub-blocks of one super-scale, as a shift.
    per: u32,
}

impl<const SC: u32, const M: u32> GroupScales<SC, M> {
    /// # Safety
    /// Needs AVX2.
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    pub(crate) unsafe fn new(layout: &Layout) -> Self {
        let factor = if let Super::F16 { factor } = layout.super_scale { factor } else { 1.0 };
        GroupScales {
            bytes: MaybeUninit::uninit(),
            floats: MaybeUninit::uninit(),
            d: [_mm256_setzero_ps(); 2],
            dmin: [_mm256_setzero_ps(); 2],
            factor: _mm256_set1_ps(factor),
            offset: _mm256_set1_epi8(layout.sc_offset as i8),
            group: std::ptr::null(),
            at_dmin: 0,
            per: (layout.super_elems / layout.sub).trailing_zeros(),
        }
    }

    /// Begins a group.
    ///
    /// # Safety
    /// Needs AVX2 and F16C; `group` must be a group of `elems` elements of this layout, laid out as `at` says, and stay readable; the
    /// layout's scales must be what `SC` and `M` say, in sub-blocks of 16 where `SUB16`.
    #[target_feature(enable = "avx2,f16c")]
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
            if SC == ANY {
                scales(layout, at, group, elems, self.floats.as_mut_ptr());
                return;
            }
            (self.group, self.at_dmin) = (group, at.dmin);
            if SC == UE4M3 {
                let to = self.bytes.as_mut_ptr().cast::<__m256i>();
                for j in 0..elems / 16 {
                    _mm256_store_si256(to.add(j), ue4m3(group.add(LANES * j)));
                }
            } else if SC != PLAIN && SC != E8M0 {
                self.d = [0, 16].map(|h| _mm256_mul_ps(halves(group.add(h)), self.factor));
                let to = self.bytes.as_mut_ptr();
                let (sc, m) = ((&raw mut (*to).sc).cast(), (&raw mut (*to).m).cast());
                if SUB16 {
                    items::<SC, 16>(group.add(at.sc), self.offset, sc)
                } else {
                    items::<SC, 8>(group.add(at.sc), self.offset, sc)
                }
                if M > 0 {
                    self.dmin = [0, 16].map(|h| halves(group.add(at.dmin + h)));
                    let none = _mm256_setzero_si256();
                    if SUB16 {
                        items::<M, 16>(group.add(at.m), none, m)
                    } else {
                        items::<M, 8>(group.add(at.m), none, m)
                    }
                }
            }
        }
    }

    /// Scales of rows 8h..8h + 8 of sub-block `j`.
    ///
    /// # Safety
    /// As [`begin`](Self::begin), which must have been called; `j` is a sub-block of the group.
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    pub(crate) unsafe fn scale(&self, j: usize, h: usize) -> __m256 {
        let at = LANES * j + 8 * h;
        // SAFETY: initialized by `begin`.
        unsafe {
            match SC {
                ANY => _mm256_load_ps((&raw const (*self.floats.as_ptr()).scale).cast::<f32>().add(at)),
                PLAIN => {
                    let at = 2 * LANES * (j >> self.per) + 16 * h;
                    _mm256_mul_ps(halves(self.group.add(at)), self.factor)
                }
                E8M0 => e8m0(self.group.add(LANES * (j >> self.per) + 8 * h)),
                UE4M3 => ue4m3_half(_mm_load_si128(self.bytes.as_ptr().cast::<u8>().add(2 * at).cast())),
                _ => _mm256_mul_ps(
                    self.d[h],
                    integers((&raw const (*self.bytes.as_ptr()).sc).cast::<u8>().add(at)),
                ),
            }
        }
    }

    /// Mins of rows 8h..8h + 8 of sub-block `j`.
    ///
    /// # Safety
    /// As [`scale`](Self::scale).
    #[target_feature(enable = "avx2,f16c")]
    #[inline]
    pub(crate) unsafe fn min(&self, j: usize, h: usize) -> __m256 {
        let at = LANES * j + 8 * h;
        // SAFETY: initialized by `begin`.
        unsafe {
            match SC {
                ANY => _mm256_load_ps((&raw const (*self.floats.as_ptr()).min).cast::<f32>().add(at)),
                PLAIN => halves(self.group.add(self.at_dmin + 2 * LANES * (j >> self.per) + 16 * h)),
                _ => _mm256_mul_ps(
                    self.dmin[h],
                    integers((&raw const (*self.bytes.as_ptr()).m).cast::<u8>().add(at)),
                ),
            }
        }
    }
}

/// Scales (and mins) of formats with integer scales: one `d` over the whole group.
///
/// # Safety
/// As [`scales`], for a layout with these widths, of sub-blocks of 16 where `SUB16`.
#[target_feature(enable = "avx2,f16c")]
#[inline]
unsafe fn integer_scales<const SC: u32, const M: u32, const SUB16: bool>(
    layout: &Layout,
    at: &GroupLayout,
    group: *const u8,
    out: *mut Scales,
) {
    // SAFETY: passed through; as many floats as sub-blocks.
    unsafe {
        let mut s = GroupScales::<SC, M>::new(layout);
        s.begin::<SUB16>(layout, at, group, GROUP_ELEMS);
        let (scale, min) = ((&raw mut (*out).scale).cast::<f32>(), (&raw mut (*out).min).cast::<f32>());
        for j in 0..if SUB16 { 16 } else { 8 } {
            for h in 0..2 {
                _mm256_store_ps(scale.add(LANES * j + 8 * h), s.scale(j, h));
                if M > 0 {
                    _mm256_store_ps(min.add(LANES * j + 8 * h), s.min(j, h));
                }
            }
        }
    }
}

/// As [`super::unpack::scales`].
///
/// # Safety
/// Needs AVX2 and F16C; `group` must be a group of `elems` elements of this layout, laid out as `at` says; `out` must be valid.
#[target_feature(enable = "avx2,f16c")]
pub(crate) unsafe fn scales(
    layout: &Layout,
    at: &GroupLayout,
    group: *const u8,
    elems: usize,
    out: *mut Scales,
) {
    let subs = elems / layout.sub;
    // SAFETY: offsets are those of the group's layout.
    unsafe {
        if let Super::F16 { .. } = layout.super_scale {
            // The widths that occur.
            match (layout.sc_bits, layout.m_bits, subs) {
                (0, 0, _) => {}
                (4, 0, 8) => return integer_scales::<4, 0, false>(layout, at, group, out),
                (4, 0, 16) => return integer_scales::<4, 0, true>(layout, at, group, out),
                (4, 4, 16) => return integer_scales::<4, 4, true>(layout, at, group, out),
                (5, 0, 8) => return integer_scales::<5, 0, false>(layout, at, group, out),
                (5, 0, 16) => return integer_scales::<5, 0, true>(layout, at, group, out),
                (6, 0, 8) => return integer_scales::<6, 0, false>(layout, at, group, out),
                (6, 0, 16) => return integer_scales::<6, 0, true>(layout, at, group, out),
                (6, 6, 8) => return integer_scales::<6, 6, false>(layout, at, group, out),
                (8, 0, 16) => return integer_scales::<8, 0, true>(layout, at, group, out),
                _ => {
                    let group = std::slice::from_raw_parts(group, at.bytes);
                    return super::unpack::scales(layout, group, elems, &mut *out);
                }
            }
        }
        let at_dmin = at.dmin;
        for j in 0..subs {
            let block = j * layout.sub / layout.super_elems;
            for h in 0..2 {
                let index = LANES * block + 8 * h;
                let d = match layout.super_scale {
                    Super::F16 { factor } => {
                        _mm256_mul_ps(halves(group.add(2 * index)), _mm256_set1_ps(factor))
                    }
                    Super::F32 => _mm256_loadu_ps(group.add(4 * index).cast()),
                    Super::E8M0 => e8m0(group.add(index)),
                    Super::Ue4m3 => {
                        let s = ue4m3(group.add(LANES * block));
                        ue4m3_half(if h == 0 {
                            _mm256_castsi256_si128(s)
                        } else {
                            _mm256_extracti128_si256::<1>(s)
                        })
                    }
                };
                let at = LANES * j + 8 * h;
                _mm256_store_ps((&raw mut (*out).scale).cast::<f32>().add(at), d);
                if layout.asymmetric {
                    let min = halves(group.add(at_dmin + 2 * index));
                    _mm256_store_ps((&raw mut (*out).min).cast::<f32>().add(at), min);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;
    use crate::packed::unpack::check_scales;

    #[test]
    fn scales_are_those_of_the_portable_path() {
        if Isa::Avx2.is_available() {
            // SAFETY: the machine has it; one whole group.
            check_scales(|layout, at, group, k, out| unsafe { scales(layout, at, group.as_ptr(), k, out) });
        }
    }

    /// Every byte there is, as a scale of whole and of short groups, read as the cores read them.
    #[test]
    fn scales_of_a_byte_are_exact() {
        fn check<const SC: u32, const SUB16: bool>(name: &str) {
            let format = hanzo_quant::QuantType::from_name(name).unwrap().format();
            let layout = Layout::new(format).unwrap();
            let mut seen = [false; 256];
            for (elems, first) in [(GROUP_ELEMS, 0), (GROUP_ELEMS, 128), (64, 0), (64, 224)] {
                let at = layout.group(elems);
                let subs = elems / layout.sub;
                let mut group = vec![0u8; at.bytes];
                for (i, byte) in group.iter_mut().take(subs * LANES).enumerate() {
                    *byte = (first + i) as u8;
                    seen[usize::from(*byte)] = true;
                }
                let mut want = Scales::default();
                crate::packed::unpack::scales(&layout, &group, elems, &mut want);
                let mut got = Scales::default();
                // SAFETY: the machine has AVX2; one whole group of this format.
                unsafe {
                    scales(&layout, &at, group.as_ptr(), elems, &mut got);
                    for (got, want) in got.scale.iter().zip(&want.scale).take(subs) {
                        assert_eq!(got.map(f32::to_bits), want.map(f32::to_bits), "{name}");
                    }
                    let mut s = GroupScales::<SC, 0>::new(&layout);
                    s.begin::<SUB16>(&layout, &at, group.as_ptr(), elems);
                    for (j, want) in want.scale.iter().take(subs).enumerate() {
                        let mut got = [0.0f32; LANES];
                        _mm256_storeu_ps(got.as_mut_ptr(), s.scale(j, 0));
                        _mm256_storeu_ps(got.as_mut_ptr().add(8), s.scale(j, 1));
                        assert_eq!(got.map(f32::to_bits), want.map(f32::to_bits), "{name}, sub-block {j}");
                    }
                }
            }
            assert_eq!(seen, [true; 256], "{name}");
        }
        if Isa::Avx2.is_available() {
            check::<E8M0, false>("MXFP4");
            check::<UE4M3, true>("NVFP4");
        }
    }
}
