//! NaN and infinity in raw weights, found without decoding them: only a block's floats (scales, mins, plain values) can be
//! either, and the layout of a format says where these are.

use crate::Format;

/// Blocks looked at before the first fault is searched for: enough for the compiler to take many at once.
const RUN: usize = 256;

/// A float of a block: where it is, how wide, and the bits of its exponent, which are all ones in NaN and infinity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Float {
    offset: usize,
    bytes: usize,
    exponent: u32,
}

/// Looks for NaN and infinity in blocks of one format.
#[derive(Clone, Debug)]
pub struct FiniteCheck {
    format: &'static Format,
    floats: Vec<Float>,
    /// The format has a super-scale of float kind that is no field of its own (IQ1_M).
    hidden_scale: bool,
}

impl FiniteCheck {
    /// For this format.
    #[must_use]
    pub fn of(format: &'static Format) -> Self {
        let mut floats = Vec::new();
        let mut offset = 0;
        for field in format.layout.split(", ") {
            let ty = field.split_once(": ").map_or("", |(_, ty)| ty);
            let (bytes, exponent) = match ty {
                "f32" => (4, 0x7f80_0000),
                "f16" => (2, 0x7c00),
                "bf16" => (2, 0x7f80),
                _ => {
                    offset += array_bytes(ty);
                    continue;
                }
            };
            floats.push(Float { offset, bytes, exponent });
            offset += bytes;
        }
        debug_assert_eq!(offset, format.bytes, "{}", format.layout);
        let f16_scale =
            format.int.is_some_and(|view| matches!(view.super_scale, crate::SuperScale::F16 { .. }));
        Self { format, hidden_scale: f16_scale && floats.is_empty(), floats }
    }

    /// The first of the blocks that has a NaN or an infinity; a block that is cut short does not count.
    #[must_use]
    pub fn first_fault(&self, blocks: &[u8]) -> Option<usize> {
        let size = self.format.bytes;
        blocks.chunks(RUN * size).enumerate().find_map(|(i, run)| {
            let any = run.chunks_exact(size).fold(false, |any, block| any | self.is_faulty(block));
            let first = || run.chunks_exact(size).position(|block| self.is_faulty(block));
            if any { Some(i * RUN + first()?) } else { None }
        })
    }

    /// How many of the blocks have one.
    #[must_use]
    pub fn count(&self, blocks: &[u8]) -> usize {
        blocks.chunks_exact(self.format.bytes).filter(|block| self.is_faulty(block)).count()
    }

    #[inline(always)]
    fn is_faulty(&self, block: &[u8]) -> bool {
        let float = self.floats.iter().any(|float| {
            let bits = match (float.bytes, block.get(float.offset..)) {
                (2, Some(rest)) => rest.first_chunk().map_or(0, |&b| u32::from(u16::from_le_bytes(b))),
                (_, Some(rest)) => rest.first_chunk().map_or(0, |&b| u32::from_le_bytes(b)),
                (_, None) => 0,
            };
            bits & float.exponent == float.exponent
        });
        float
            || (self.hidden_scale
                && self.format.int.is_some_and(|view| !(view.sub_scale)(block, 0).d.is_finite()))
    }
}

/// Bytes of a field that is no float: `u8`, `[u8; N]`.
fn array_bytes(ty: &str) -> usize {
    ty.strip_prefix("[u8; ").and_then(|n| n.strip_suffix(']')?.parse().ok()).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{QuantType, decode_row};

    /// Against the decoded values, for every format: random blocks, blocks of ones, and blocks in which one float is
    /// infinite or NaN.
    #[test]
    fn faults_are_those_of_the_decoded_values() {
        let mut state = 1u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        };
        for &ty in QuantType::ALL {
            let check = FiniteCheck::of(ty.format());
            let mut seen = [0; 2];
            for i in 0..2000 {
                let mut block: Vec<u8> = (0..ty.block_bytes()).map(|_| random()).collect();
                match i {
                    0 => block.fill(0xff),
                    1 => block.fill(0),
                    _ => {}
                }
                let mut values = vec![0.0; ty.block_elems()];
                decode_row(ty, &block, &mut values).unwrap();
                let found = check.first_fault(&block).is_some();
                seen[usize::from(found)] += 1;
                // An infinite scale times 0 is NaN, a NaN min spoils everything: a fault always shows, but for floats that
                // the decode does not read (sums of Q8_1).
                let decoded = values.iter().any(|v| !v.is_finite());
                let unread = found && matches!(ty, QuantType::Q8_1);
                // A finite scale of 8 exponent bits may be too large for its product with a code.
                let overflow = decoded && matches!(ty, QuantType::Q8_K | QuantType::MXFP4);
                assert!(found == decoded || unread || overflow, "{ty} {i}: {found}, decoded {decoded}");
            }
            // Exponents stand for themselves in MXFP4, and NVFP4 reads its NaN as 0: neither can be NaN.
            let never = matches!(ty, QuantType::MXFP4 | QuantType::NVFP4);
            assert!(seen[0] > 100 && (never || seen[1] > 0), "{ty}: {seen:?}");
        }
    }

    #[test]
    fn the_first_of_many_blocks_is_found() {
        let check = FiniteCheck::of(QuantType::Q8_0.format());
        let mut blocks = vec![0u8; 34 * 1000];
        assert_eq!((check.first_fault(&blocks), check.count(&blocks)), (None, 0));
        for block in [999, 700, 701] {
            blocks[34 * block + 1] = 0x7c;
        }
        assert_eq!((check.first_fault(&blocks), check.count(&blocks)), (Some(700), 3));
        assert_eq!(check.first_fault(&blocks[..34 * 701 - 1]), None);
    }
}
