//! Where the parts of a raw block lie, found out by probing.
//!
//! A format says what its integers are, by functions that are right and slow. Most formats store codes as *strided planes* (element `i` is
//! some bits of byte `i mod apart` of a chunk), super-scales as f16 fields, and integer scales as bytes or in the 6-bit pairs of the K
//! formats. [`RawBlock::find`] tries these on random blocks against the format's own functions; what agrees is read directly when
//! packing, ten times as fast, and what does not is read by the format's functions. No format is named.
//!
//! The readers are loops without closures: a closure is compiled for the baseline instruction set and would not be inlined into the packer's
//! AVX2 copy.

use half::f16;

use super::layout::{Layout, Super, UNIT};

/// Element `i` of a block is `bits` bits of one byte: chunks of `apart` bytes hold `apart · 8 / bits` elements, neighbours in
/// neighbouring bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strided {
    at: usize,
    bits: u32,
    apart: usize,
}

impl Strided {
    #[inline(always)]
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
        let (first, mask) = (u * UNIT, self.mask());
        if self.apart.is_multiple_of(UNIT) {
            let per = self.apart * 8 / self.bits as usize;
            let shift = self.bits as usize * (first % per / self.apart);
            let start = self.at + first / per * self.apart + first % self.apart;
            if let Some(bytes) = block.get(start..).and_then(|b| b.first_chunk::<UNIT>()) {
                let mut out = [0; UNIT];
                for (out, b) in out.iter_mut().zip(bytes) {
                    *out = b >> shift & mask;
                }
                return out;
            }
        } else if self.apart == 16 && self.bits == 4 {
            let start = self.at + first / 2;
            if let Some(bytes) = block.get(start..).and_then(|b| b.first_chunk::<16>()) {
                let mut out = [0; UNIT];
                for (i, b) in bytes.iter().enumerate() {
                    (out[i], out[i + 16]) = (b & 15, b >> 4);
                }
                return out;
            }
        }
        let mut out = [0; UNIT];
        for (i, out) in out.iter_mut().enumerate() {
            *out = self.get(block, first + i);
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
            for (q, part) in q.iter_mut().zip(part) {
                *q |= part << self.low.bits;
            }
        }
        for q in &mut q {
            *q ^= self.xor;
        }
        q
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
                    for (sc, b) in sc.iter_mut().zip(bytes) {
                        *sc = b ^ xor;
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
                    for (i, b) in bytes.iter().enumerate() {
                        (sc[i], m[i]) = (b & 15, b >> 4);
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
                (0..(bytes + 1).saturating_sub(need)).map(move |at| Strided { at, bits, apart })
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
