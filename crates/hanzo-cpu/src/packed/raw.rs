//! Where the parts of a raw block lie, found out by probing.
//!
//! A format says what its integers are, by functions that are right and slow. Most formats store codes as *strided planes* (element `i` is
//! some bits of byte `i mod apart` of a chunk), super-scales as f16 fields, and integer scales as bytes or in the 6-bit pairs of the K
//! formats. [`RawBlock::find`] tries these on random blocks against the format's own functions; what agrees is read directly when
//! packing, ten times as fast, and what does not is read by the format's functions. No format is named.
//!
//! Readers with AVX2 stand beside the portable ones: left to itself the compiler picks bytes apart one by one.

#![allow(unsafe_code, clippy::needless_range_loop)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use half::f16;

use super::layout::{GROUP_ELEMS, Layout, Super, UNIT};

/// Element `i` of a block is `bits` bits of one byte: chunks of `apart` bytes hold `apart · 8 / bits` elements, neighbours in
/// neighbouring bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strided {
    at: usize,
    bits: u32,
    apart: usize,
    /// Where each unit's bytes begin, and how far they are shifted: divisions by what only the format knows are too slow to be made for each.
    units: [(u16, u8); GROUP_ELEMS / UNIT],
    read: Read,
}

/// How the bytes of a unit become its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    /// 32 bytes, one an element.
    Bytes,
    /// 16 bytes: their low nibbles, then their high ones.
    Nibbles16,
    /// Twice 8 bytes: their low nibbles, then their high ones.
    Nibbles8,
    /// 8 bytes, each four neighbours of two bits.
    Pairs,
    /// 4 bytes, each eight neighbours of one bit.
    Bits,
    /// Anything else, element by element.
    Scattered,
}

impl Strided {
    fn new(at: usize, bits: u32, apart: usize) -> Self {
        let per = apart * 8 / bits as usize;
        let read = match (apart, bits) {
            (a, _) if a.is_multiple_of(UNIT) => Read::Bytes,
            (16, 4) => Read::Nibbles16,
            (8, 4) => Read::Nibbles8,
            (1, 2) => Read::Pairs,
            (1, 1) => Read::Bits,
            _ => Read::Scattered,
        };
        let mut units = [(0, 0); GROUP_ELEMS / UNIT];
        for (u, unit) in units.iter_mut().enumerate() {
            let first = u * UNIT;
            let within = if read == Read::Bytes { first % apart } else { 0 };
            let start = at + first / per * apart + within;
            *unit = (start as u16, (bits as usize * (first % per / apart)) as u8);
        }
        Strided { at, bits, apart, units, read }
    }

    fn get(&self, block: &[u8], i: usize) -> u8 {
        let per = self.apart * 8 / self.bits as usize;
        let byte = block.get(self.at + i / per * self.apart + i % self.apart).copied().unwrap_or(0);
        byte >> (self.bits as usize * (i % per / self.apart)) & self.mask()
    }

    #[inline(always)]
    fn mask(&self) -> u8 {
        ((1u32 << self.bits) - 1) as u8
    }

    /// Elements `32u..32u + 32`.
    #[inline(always)]
    fn unit(&self, block: &[u8], u: usize) -> [u8; UNIT] {
        let mut out = [0; UNIT];
        let Some(&(start, shift)) = self.units.get(u) else { return out };
        let Some(bytes) = block.get(usize::from(start)..) else { return out };
        match self.read {
            Read::Bytes => {
                if let Some(bytes) = bytes.first_chunk::<UNIT>() {
                    let mask = self.mask();
                    for i in 0..UNIT {
                        out[i] = bytes[i] >> shift & mask;
                    }
                }
            }
            Read::Nibbles16 => {
                if let Some(bytes) = bytes.first_chunk::<16>() {
                    for i in 0..16 {
                        (out[i], out[i + 16]) = (bytes[i] & 15, bytes[i] >> 4);
                    }
                }
            }
            Read::Nibbles8 => {
                if let Some(bytes) = bytes.first_chunk::<16>() {
                    for half in [0, 8] {
                        for i in 0..8 {
                            let b = bytes[half + i];
                            (out[2 * half + i], out[2 * half + 8 + i]) = (b & 15, b >> 4);
                        }
                    }
                }
            }
            Read::Pairs => {
                if let Some(bytes) = bytes.first_chunk::<8>() {
                    for i in 0..UNIT {
                        out[i] = bytes[i / 4] >> (2 * (i % 4)) & 3;
                    }
                }
            }
            Read::Bits => {
                if let Some(bytes) = bytes.first_chunk::<4>() {
                    let word = u32::from_le_bytes(*bytes);
                    for i in 0..UNIT {
                        out[i] = (word >> i & 1) as u8;
                    }
                }
            }
            Read::Scattered => {
                for (i, out) in out.iter_mut().enumerate() {
                    *out = self.get(block, u * UNIT + i);
                }
            }
        }
        out
    }
}

/// Codes as one or two strided planes.
#[derive(Clone, Copy, Debug)]
pub(super) struct RawCodes {
    low: Strided,
    high: Option<Strided>,
    xor: u8,
}

impl RawCodes {
    /// Stored codes `32u..32u + 32` of a block.
    #[inline(always)]
    pub(super) fn unit(&self, block: &[u8], u: usize) -> [u8; UNIT] {
        let mut q = self.low.unit(block, u);
        if let Some(high) = self.high {
            let part = high.unit(block, u);
            for i in 0..UNIT {
                q[i] |= part[i] << self.low.bits;
            }
        }
        for i in 0..UNIT {
            q[i] ^= self.xor;
        }
        q
    }
}

#[cfg(target_arch = "x86_64")]
impl Strided {
    /// As [`unit`](Self::unit), in a register.
    ///
    /// # Safety
    /// Needs AVX2.
    #[target_feature(enable = "avx2")]
    #[inline]
    unsafe fn unit_avx2(&self, block: &[u8], u: usize) -> __m256i {
        let Some(&(start, shift)) = self.units.get(u) else { return _mm256_setzero_si256() };
        let Some(bytes) = block.get(usize::from(start)..) else { return _mm256_setzero_si256() };
        let nibble = _mm_set1_epi8(15);
        // SAFETY: reads what the chunks have.
        unsafe {
            match self.read {
                Read::Bytes => {
                    if let Some(bytes) = bytes.first_chunk::<UNIT>() {
                        let bytes = _mm256_loadu_si256(bytes.as_ptr().cast());
                        let down = _mm256_srl_epi16(bytes, _mm_cvtsi32_si128(shift.into()));
                        return _mm256_and_si256(down, _mm256_set1_epi8(self.mask() as i8));
                    }
                }
                Read::Nibbles16 | Read::Nibbles8 => {
                    if let Some(bytes) = bytes.first_chunk::<16>() {
                        let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
                        let low = _mm_and_si128(bytes, nibble);
                        let high = _mm_and_si128(_mm_srli_epi16::<4>(bytes), nibble);
                        return if self.read == Read::Nibbles16 {
                            _mm256_set_m128i(high, low)
                        } else {
                            _mm256_set_m128i(_mm_unpackhi_epi64(low, high), _mm_unpacklo_epi64(low, high))
                        };
                    }
                }
                Read::Pairs => {
                    if let Some(bytes) = bytes.first_chunk::<8>() {
                        let b = _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.as_ptr().cast()));
                        // Two bits of the byte to the bottom of each byte of its lane.
                        let b = _mm256_or_si256(b, _mm256_slli_epi32::<6>(b));
                        let b = _mm256_or_si256(b, _mm256_slli_epi32::<12>(b));
                        return _mm256_and_si256(b, _mm256_set1_epi8(3));
                    }
                }
                Read::Bits => {
                    if let Some(bytes) = bytes.first_chunk::<4>() {
                        let word = _mm256_set1_epi32(i32::from_le_bytes(*bytes));
                        let each = _mm256_shuffle_epi8(
                            word,
                            _mm256_set_epi64x(
                                0x0303_0303_0303_0303,
                                0x0202_0202_0202_0202,
                                0x0101_0101_0101_0101,
                                0,
                            ),
                        );
                        let bit = _mm256_set1_epi64x(0x8040_2010_0804_0201u64 as i64);
                        let set = _mm256_cmpeq_epi8(_mm256_and_si256(each, bit), bit);
                        return _mm256_and_si256(set, _mm256_set1_epi8(1));
                    }
                }
                Read::Scattered => {}
            }
            _mm256_loadu_si256(self.unit(block, u).as_ptr().cast())
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl RawCodes {
    /// As [`unit`](Self::unit), in a register.
    ///
    /// # Safety
    /// Needs AVX2.
    #[target_feature(enable = "avx2")]
    #[inline]
    pub(super) unsafe fn unit_avx2(&self, block: &[u8], u: usize) -> __m256i {
        // SAFETY: passed through.
        unsafe {
            let mut q = self.low.unit_avx2(block, u);
            if let Some(high) = self.high {
                let part = high.unit_avx2(block, u);
                let up = _mm_cvtsi32_si128(self.low.bits as i32);
                q = _mm256_or_si256(q, _mm256_sll_epi16(part, up));
            }
            _mm256_xor_si256(q, _mm256_set1_epi8(self.xor as i8))
        }
    }
}

/// Where integer scales lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum RawScales {
    /// Byte `at + j`, xor a constant.
    Bytes { at: usize, xor: u8 },
    /// Eight 6-bit pairs in twelve bytes.
    SixBitPairs { at: usize },
    /// Scales in the low nibbles of bytes `at + j`, mins in the high ones.
    NibblePairs { at: usize },
}

/// What is known of a format's raw block. `None` is read by the format's functions.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RawBlock {
    pub(super) codes: Option<RawCodes>,
    /// Offset of the super-scale's bytes, which are kept as they are.
    pub(super) d: Option<usize>,
    /// Offset of the f16 min, and whether it is stored negated.
    pub(super) dmin: Option<(usize, bool)>,
    pub(super) scales: Option<RawScales>,
}

const PROBES: usize = 6;

impl RawBlock {
    pub(super) fn find(layout: &Layout) -> Self {
        let (format, view) = (layout.format, layout.view);
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut byte = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        };
        // Exponents of f16 fields are kept off their top, where not-a-number would equal nothing.
        let probes: Vec<Vec<u8>> =
            (0..PROBES).map(|_| (0..format.bytes).map(|_| byte() & 0xbf).collect()).collect();
        let mut full: Vec<Vec<u8>> =
            (0..PROBES).map(|_| (0..format.bytes).map(|_| byte()).collect()).collect();
        full.extend(probes.iter().cloned());
        let codes: Vec<Vec<u8>> = full
            .iter()
            .map(|block| {
                let mut codes = vec![0i8; format.elems];
                (view.read_codes)(block, &mut codes);
                codes.iter().map(|&c| (i32::from(c) + layout.offset) as u8).collect()
            })
            .collect();
        let offsets = |len: usize| 0..(format.bytes + 1).saturating_sub(len);
        let subs = format.elems / layout.sub;

        let d = match layout.super_scale {
            Super::F16 { factor } => offsets(2).find(|&at| {
                probes.iter().all(|b| {
                    f16::from_le_bytes([b[at], b[at + 1]]).to_f32() * factor == (view.sub_scale)(b, 0).d
                })
            }),
            _ => None,
        };
        let dmin = if layout.asymmetric {
            [false, true].into_iter().find_map(|negated| {
                let sign = if negated { -1.0 } else { 1.0 };
                let at = offsets(2).find(|&at| {
                    probes.iter().all(|b| {
                        sign * f16::from_le_bytes([b[at], b[at + 1]]).to_f32() == (view.sub_scale)(b, 0).dmin
                    })
                })?;
                Some((at, negated))
            })
        } else {
            None
        };
        let scales = candidates(layout).find(|s| {
            full.iter().all(|b| {
                let (mut sc, mut m) = ([0; 16], [0; 16]);
                s.read(b, &mut sc, &mut m);
                (0..subs).all(|j| {
                    let want = (view.sub_scale)(b, j);
                    i32::from(sc[j]) == i32::from(want.sc) + layout.sc_offset
                        && (layout.m_bits == 0 || m[j] == want.m)
                })
            })
        });
        RawBlock { codes: find_codes(layout, &full, &codes), d, dmin, scales }
    }
}

/// Placements of integer scales that fit the format's widths.
fn candidates(layout: &Layout) -> impl Iterator<Item = RawScales> {
    let (bytes, subs) = (layout.format.bytes, layout.format.elems / layout.sub);
    let widths = (layout.sc_bits, layout.m_bits);
    (0..bytes).flat_map(move |at| {
        let fits = |len: usize| at + len <= bytes;
        [
            (widths == (8, 0) && fits(subs)).then_some(RawScales::Bytes { at, xor: 0 }),
            (widths == (8, 0) && fits(subs)).then_some(RawScales::Bytes { at, xor: 0x80 }),
            (widths == (6, 6) && subs == 8 && fits(12)).then_some(RawScales::SixBitPairs { at }),
            (widths == (4, 4) && subs == 16 && fits(16)).then_some(RawScales::NibblePairs { at }),
        ]
        .into_iter()
        .flatten()
    })
}

impl RawScales {
    /// Unsigned scales and mins of a block.
    #[inline(always)]
    pub(super) fn read(&self, block: &[u8], sc: &mut [u8; 16], m: &mut [u8; 16]) {
        let word = |at: usize| {
            block.get(at..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| u32::from_le_bytes(*b))
        };
        match *self {
            RawScales::Bytes { at, xor } => {
                if let Some(bytes) = block.get(at..).and_then(|b| b.first_chunk::<16>()) {
                    for i in 0..16 {
                        sc[i] = bytes[i] ^ xor;
                    }
                }
            }
            RawScales::SixBitPairs { at } => {
                let (a, b, c) = (word(at), word(at + 4), word(at + 8));
                let (six, four, two) = (0x3f3f_3f3f, 0x0f0f_0f0f, 0x3030_3030);
                sc[..4].copy_from_slice(&(a & six).to_le_bytes());
                m[..4].copy_from_slice(&(b & six).to_le_bytes());
                sc[4..8].copy_from_slice(&(c & four | a >> 2 & two).to_le_bytes());
                m[4..8].copy_from_slice(&(c >> 4 & four | b >> 2 & two).to_le_bytes());
            }
            RawScales::NibblePairs { at } => {
                if let Some(bytes) = block.get(at..).and_then(|b| b.first_chunk::<16>()) {
                    for i in 0..16 {
                        (sc[i], m[i]) = (bytes[i] & 15, bytes[i] >> 4);
                    }
                }
            }
        }
    }
}

fn find_codes(layout: &Layout, blocks: &[Vec<u8>], codes: &[Vec<u8>]) -> Option<RawCodes> {
    let widths: &[u32] = match (layout.bits, layout.table) {
        (8, None) => &[8],
        (4, _) => &[4],
        (2, _) => &[2],
        (1, _) => &[1],
        (6, None) => &[4, 2],
        (5, None) => &[4, 1],
        (3, None) => &[2, 1],
        _ => return None,
    };
    let (bytes, elems) = (layout.format.bytes, layout.format.elems);
    // A plane is right where its bits agree for all elements of all probes.
    let find = |bits: u32, low: u32, xor: u8| {
        let aparts: &[usize] = if bits == 8 { &[32] } else { &[32, 16, 64, 8, 1] };
        let need = elems * bits as usize / 8;
        aparts
            .iter()
            .flat_map(|&apart| {
                (0..(bytes + 1).saturating_sub(need)).map(move |at| Strided::new(at, bits, apart))
            })
            .find(|s| {
                let whole = elems.is_multiple_of(s.apart * 8 / bits as usize);
                whole
                    && blocks.iter().zip(codes).all(|(block, codes)| {
                        codes.iter().enumerate().all(|(i, &u)| {
                            let part = s.get(block, i) ^ (xor >> low & s.mask());
                            layout
                                .table
                                .map_or(part == u >> low & s.mask(), |t| t[usize::from(part & 15)] == u)
                        })
                    })
            })
    };
    [0, 1u8 << (layout.bits - 1)].into_iter().find_map(|xor| {
        let low = find(*widths.first()?, 0, xor)?;
        let high = match widths.get(1) {
            Some(&bits) => Some(find(bits, low.bits, xor)?),
            None => None,
        };
        Some(RawCodes { low, high, xor })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use hanzo_quant::QuantType;

    /// Speed must not be lost silently: these read all parts directly.
    #[test]
    fn common_formats_are_recognized() {
        for ty in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL"] {
            let layout = Layout::new(QuantType::from_name(ty).unwrap().format()).unwrap();
            let raw = RawBlock::find(&layout);
            assert!(raw.codes.is_some(), "{ty}: {raw:?}");
            assert!(raw.d.is_some(), "{ty}: {raw:?}");
            assert_eq!(raw.dmin.is_some(), layout.asymmetric, "{ty}: {raw:?}");
            assert_eq!(raw.scales.is_some(), layout.sc_bits > 0, "{ty}: {raw:?}");
        }
        for ty in ["IQ4_XS", "Q3_K", "MXFP4", "NVFP4", "TQ2_0"] {
            let layout = Layout::new(QuantType::from_name(ty).unwrap().format()).unwrap();
            assert!(RawBlock::find(&layout).codes.is_some(), "{ty}");
        }
    }
}
