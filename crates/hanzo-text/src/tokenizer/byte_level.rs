//! The byte-level alphabet of GPT-2 vocabularies: every byte is written as one printable character.
//!
//! Bytes that are printable in Latin-1 stand for themselves, the other 68 are U+0100 and up in byte order
//! (Radford et al. 2019, `bytes_to_unicode`). We undo the spelling once, when a vocabulary is loaded.

use super::utf8;

/// `TABLE[cp]` is the byte that code point `cp` spells, or `NOT_A_BYTE`.
const TABLE: [u16; 0x144] = build();
const NOT_A_BYTE: u16 = u16::MAX;

const fn printable(b: u16) -> bool {
    matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF)
}

const fn build() -> [u16; 0x144] {
    let mut table = [NOT_A_BYTE; 0x144];
    let mut next = 0x100;
    let mut b = 0u16;
    while b < 256 {
        if printable(b) {
            table[b as usize] = b;
        } else {
            table[next] = b;
            next += 1;
        }
        b += 1;
    }
    table
}

/// Appends the bytes that `spelling` stands for. Returns false, with `out` unchanged, if a character is not of the
/// alphabet.
pub(crate) fn decode(spelling: &[u8], out: &mut Vec<u8>) -> bool {
    let start = out.len();
    let mut pos = 0;
    while let Some((cp, len)) = utf8::decode(spelling, pos) {
        let byte = TABLE.get(cp as usize).copied().unwrap_or(NOT_A_BYTE);
        if byte == NOT_A_BYTE {
            out.truncate(start);
            return false;
        }
        out.push(byte as u8);
        pos += len;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alphabet_is_a_bijection_on_bytes() {
        let mut seen = [false; 256];
        for b in TABLE.iter().filter(|&&b| b != NOT_A_BYTE) {
            assert!(!std::mem::replace(&mut seen[usize::from(*b)], true));
        }
        assert!(seen.iter().all(|&s| s));
    }

    #[test]
    fn known_spellings() {
        let mut out = Vec::new();
        assert!(decode("ĠhelloĊ".as_bytes(), &mut out));
        assert_eq!(out, b" hello\n");
        assert!(!decode("a b".as_bytes(), &mut out));
        assert!(!decode("▁x".as_bytes(), &mut out));
        assert_eq!(out, b" hello\n");
    }
}
