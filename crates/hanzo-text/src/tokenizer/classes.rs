//! Unicode classes that pre-tokenizers distinguish, as one byte of flags a code point.
//!
//! The general categories come from the `unicode-general-category` crate (Unicode 16); they are folded once, at first
//! use, into a two-stage table of about 20 KiB so that a lookup is two loads.

use std::collections::HashMap;
use std::sync::OnceLock;
use unicode_general_category::{GeneralCategory as Gc, get_general_category};

/// `Lu` and `Lt`.
pub(crate) const UPPER: u8 = 1;
/// `Ll`.
pub(crate) const LOWER: u8 = 2;
/// `Lm` and `Lo`: letters without case.
pub(crate) const CASELESS: u8 = 4;
/// `M`.
pub(crate) const MARK: u8 = 8;
/// `N`.
pub(crate) const NUMBER: u8 = 16;
/// `P`.
pub(crate) const PUNCT: u8 = 32;
/// `S`.
pub(crate) const SYMBOL: u8 = 64;
/// White space (the property, as regex engines' `\s`).
pub(crate) const SPACE: u8 = 128;
/// `L`.
pub(crate) const LETTER: u8 = UPPER | LOWER | CASELESS;

const BLOCK: usize = 128;
/// Everything above is unassigned, private use, or a variation selector (`Mn`) handled in [`Classes::of`].
const LIMIT: u32 = 0x3_2400;

/// The table.
#[derive(Debug)]
pub(crate) struct Classes {
    ascii: [u8; 128],
    index: Vec<u16>,
    blocks: Vec<[u8; BLOCK]>,
}

/// The process-wide table.
pub(crate) fn classes() -> &'static Classes {
    static TABLE: OnceLock<Classes> = OnceLock::new();
    TABLE.get_or_init(Classes::build)
}

impl Classes {
    fn build() -> Self {
        let mut seen: HashMap<[u8; BLOCK], u16> = HashMap::new();
        let mut index = Vec::with_capacity(LIMIT as usize / BLOCK);
        let mut blocks = Vec::new();
        let mut ascii = [0u8; 128];
        for start in (0..LIMIT).step_by(BLOCK) {
            let mut block = [0u8; BLOCK];
            for (i, slot) in block.iter_mut().enumerate() {
                *slot = compute(start + i as u32);
            }
            if start == 0 {
                ascii = block;
            }
            let next = blocks.len() as u16;
            let i = *seen.entry(block).or_insert_with(|| {
                blocks.push(block);
                next
            });
            index.push(i);
        }
        Self { ascii, index, blocks }
    }

    /// Flags of code point `cp`.
    #[inline]
    pub(crate) fn of(&self, cp: u32) -> u8 {
        if let Some(&flags) = self.ascii.get(cp as usize) {
            return flags;
        }
        match self.index.get(cp as usize / BLOCK).and_then(|&b| self.blocks.get(usize::from(b))) {
            Some(block) => block.get(cp as usize % BLOCK).copied().unwrap_or(0),
            None if (0xE_0100..=0xE_01EF).contains(&cp) => MARK,
            None => 0,
        }
    }
}

fn compute(cp: u32) -> u8 {
    let Some(c) = char::from_u32(cp) else { return 0 };
    if c.is_whitespace() {
        return SPACE;
    }
    match get_general_category(c) {
        Gc::UppercaseLetter | Gc::TitlecaseLetter => UPPER,
        Gc::LowercaseLetter => LOWER,
        Gc::ModifierLetter | Gc::OtherLetter => CASELESS,
        Gc::NonspacingMark | Gc::SpacingMark | Gc::EnclosingMark => MARK,
        Gc::DecimalNumber | Gc::LetterNumber | Gc::OtherNumber => NUMBER,
        Gc::ConnectorPunctuation
        | Gc::DashPunctuation
        | Gc::OpenPunctuation
        | Gc::ClosePunctuation
        | Gc::InitialPunctuation
        | Gc::FinalPunctuation
        | Gc::OtherPunctuation => PUNCT,
        Gc::MathSymbol | Gc::CurrencySymbol | Gc::ModifierSymbol | Gc::OtherSymbol => SYMBOL,
        _ => 0,
    }
}

/// Whether `cp` is a decimal digit (`Nd`).
pub(crate) fn is_decimal(cp: u32) -> bool {
    match cp {
        0x30..=0x39 => true,
        0..=0x7F => false,
        _ => char::from_u32(cp).is_some_and(|c| get_general_category(c) == Gc::DecimalNumber),
    }
}

/// Whether `cp` has the script property Han (Unicode 16, `Scripts.txt`).
pub(crate) fn is_han(cp: u32) -> bool {
    matches!(cp,
        0x2E80..=0x2E99 | 0x2E9B..=0x2EF3 | 0x2F00..=0x2FD5 | 0x3005 | 0x3007 | 0x3021..=0x3029
        | 0x3038..=0x303B | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFA6D | 0xFA70..=0xFAD9
        | 0x1_6FE2..=0x1_6FE3 | 0x1_6FF0..=0x1_6FF1 | 0x2_0000..=0x2_A6DF | 0x2_A700..=0x2_B739
        | 0x2_B740..=0x2_B81D | 0x2_B820..=0x2_CEA1 | 0x2_CEB0..=0x2_EBE0 | 0x2_EBF0..=0x2_EE5D
        | 0x2_F800..=0x2_FA1D | 0x3_0000..=0x3_134A | 0x3_1350..=0x3_23AF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_crate_everywhere() {
        let t = classes();
        for cp in 0..=0x10_FFFF {
            assert_eq!(t.of(cp), compute(cp), "U+{cp:04X}");
        }
    }

    #[test]
    fn table_is_small() {
        assert!(classes().blocks.len() * BLOCK < 64 * 1024);
    }

    #[test]
    fn known_characters() {
        let t = classes();
        assert_eq!(t.of('A' as u32), UPPER);
        assert_eq!(t.of('ǅ' as u32), UPPER);
        assert_eq!(t.of('ß' as u32), LOWER);
        assert_eq!(t.of('中' as u32), CASELESS);
        assert_eq!(t.of(0x301), MARK);
        assert_eq!(t.of('½' as u32), NUMBER);
        assert_eq!(t.of('_' as u32), PUNCT);
        assert_eq!(t.of('$' as u32), SYMBOL);
        assert_eq!(t.of(0x85), SPACE);
        assert_eq!(t.of(0x200B), 0);
    }
}
