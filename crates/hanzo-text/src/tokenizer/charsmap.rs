//! SentencePiece's precompiled normalization table: a double-array trie from input prefixes to replacements.
//!
//! Layout: u32 length of the trie in bytes, the trie (u32 units of the Darts-clone format), then zero-terminated
//! replacement strings that the leaf values point into. A unit holds its label in bits 0–7, "has a leaf" in bit 8, and the
//! offset to its children in bits 10–30, shifted left by 8 if bit 9 is set; a leaf unit has bit 31 set and the value below.

use super::TokenizerError;

/// The table; the empty one replaces nothing.
#[derive(Debug, Default)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

impl Charsmap {
    /// Reads the table.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, TokenizerError> {
        if bytes.is_empty() {
            return Ok(Self::default());
        }
        let damaged = TokenizerError::BadCharsmap;
        let (head, rest) = bytes.split_first_chunk::<4>().ok_or(damaged("shorter than its length field"))?;
        let len = u32::from_le_bytes(*head) as usize;
        let (trie, replacements) =
            rest.split_at_checked(len).ok_or(damaged("the trie is longer than the table"))?;
        let (units, tail) = trie.as_chunks::<4>();
        if !tail.is_empty() {
            return Err(damaged("the trie is not a whole number of units"));
        }
        if replacements.last() != Some(&0) {
            return Err(damaged("the replacements are not terminated"));
        }
        let units = units.iter().map(|u| u32::from_le_bytes(*u)).collect();
        Ok(Self { units, replacements: replacements.to_vec() })
    }

    fn unit(&self, i: u32) -> u32 {
        // Offsets that leave the array, in a damaged table, lead to a unit that matches nothing.
        self.units.get(i as usize).copied().unwrap_or(1 << 31)
    }

    /// Length of the longest prefix of `text` that is in the table, and what replaces it.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        let offset = |unit: u32| (unit >> 10) << ((unit & 1 << 9) >> 6);
        let mut node = offset(*self.units.first()?);
        let mut best = None;
        for (i, &b) in text.iter().enumerate() {
            node ^= u32::from(b);
            let unit = self.unit(node);
            if b == 0 || unit & (1 << 31 | 0xFF) != u32::from(b) {
                break;
            }
            node ^= offset(unit);
            if unit & 1 << 8 != 0 {
                best = Some((i + 1, self.unit(node) & !(1 << 31)));
            }
        }
        let (len, at) = best?;
        let tail = self.replacements.get(at as usize..)?;
        let end = tail.iter().position(|&b| b == 0)?;
        Some((len, tail.get(..end)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_entry() {
        // "a" → "xy": root's children start at 0 ^ …; unit 'a' has a leaf at its offset.
        let mut units = vec![0u32; 256];
        units[0] = 0;
        units[0x61] = 1 << 10 | 1 << 8 | 0x61; // at 0 ^ 'a', offset 1
        units[0x60] = 1 << 31; // at 'a' ^ 1: leaf with value 0
        let mut table = (units.len() as u32 * 4).to_le_bytes().to_vec();
        table.extend(units.iter().flat_map(|u| u.to_le_bytes()));
        table.extend(b"xy\0");
        let map = Charsmap::new(&table).unwrap();
        assert_eq!(map.longest(b"ab"), Some((1, &b"xy"[..])));
        assert_eq!(map.longest(b"b"), None);
        assert_eq!(map.longest(b""), None);
    }

    proptest! {
        #[test]
        fn any_table_is_harmless(table in proptest::collection::vec(any::<u8>(), 0..200), text in ".{0,20}") {
            if let Ok(map) = Charsmap::new(&table)
                && let Some((len, _)) = map.longest(text.as_bytes())
            {
                prop_assert!(len <= text.len());
            }
        }
    }
}
