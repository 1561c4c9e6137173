//! The expressions of the DeepSeek models.

use super::super::classes::{Classes, LETTER, MARK, PUNCT, SPACE, SYMBOL};
use super::{line_ends, white_space};

/// ``[!-/:-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+``, the first
/// set being the ASCII punctuation. Without `line_ends_join` the third and fourth alternatives are ` ?[\p{P}\p{S}]+` and
/// `[\r\n]`.
pub(super) fn v3(c: &Classes, text: &[u8], pos: usize, line_ends_join: bool) -> Option<usize> {
    let first = c.at(text, pos)?;
    if first.cp < 0x80
        && first.class & (PUNCT | SYMBOL) != 0
        && text.get(first.next).is_some_and(u8::is_ascii_alphabetic)
    {
        let rest = text.get(first.next..).unwrap_or_default();
        return Some(first.next + rest.iter().take_while(|b| b.is_ascii_alphabetic()).count());
    }
    if first.class & (LETTER | MARK) != 0 {
        return Some(c.run(text, pos, LETTER | MARK));
    }
    let line_end = first.cp == 0x0A || first.cp == 0x0D;
    if !line_end && first.class & (PUNCT | SYMBOL) == 0 && c.class_at(text, first.next) & (LETTER | MARK) != 0
    {
        return Some(c.run(text, first.next, LETTER | MARK));
    }
    let body = if first.cp == 0x20 { first.next } else { pos };
    if c.class_at(text, body) & (PUNCT | SYMBOL) != 0 {
        let end = c.run(text, body, PUNCT | SYMBOL);
        return Some(if line_ends_join { line_ends(text, end, false) } else { end });
    }
    if !line_ends_join && line_end {
        return Some(first.next);
    }
    if first.class & SPACE != 0 { white_space(c, text, pos, line_ends_join) } else { None }
}

/// The letters of DeepSeek-LLM's word expression: letters with case of the Basic Multilingual Plane and a few
/// supplementary alphabets, in the ranges that its tokenizer file lists.
pub(super) fn llm_letter(cp: u32, _: u8) -> bool {
    const RANGES: &[(u32, u32)] = &[
        (0x0041, 0x005A),
        (0x0061, 0x007A),
        (0x00B5, 0x00B5),
        (0x00C0, 0x00D6),
        (0x00D8, 0x00F6),
        (0x00F8, 0x01BA),
        (0x01BC, 0x01BF),
        (0x01C4, 0x0293),
        (0x0295, 0x02AF),
        (0x0370, 0x0373),
        (0x0376, 0x0377),
        (0x037B, 0x037D),
        (0x037F, 0x037F),
        (0x0386, 0x0386),
        (0x0388, 0x038A),
        (0x038C, 0x038C),
        (0x038E, 0x03A1),
        (0x03A3, 0x03F5),
        (0x03F7, 0x0481),
        (0x048A, 0x052F),
        (0x0531, 0x0556),
        (0x10A0, 0x10C5),
        (0x13A0, 0x13F5),
        (0x13F8, 0x13FD),
        (0x1C90, 0x1CBA),
        (0x1CBD, 0x1CBF),
        (0x1D00, 0x1D2B),
        (0x1D6B, 0x1D77),
        (0x1D79, 0x1D9A),
        (0x1E00, 0x1F15),
        (0x1F18, 0x1F1D),
        (0x1F20, 0x1F45),
        (0x1F48, 0x1F4D),
        (0x1F50, 0x1F57),
        (0x1F59, 0x1F59),
        (0x1F5B, 0x1F5B),
        (0x1F5D, 0x1F5D),
        (0x1F5F, 0x1F7D),
        (0x1F80, 0x1FB4),
        (0x1FB6, 0x1FBC),
        (0x1FBE, 0x1FBE),
        (0x1FC2, 0x1FC4),
        (0x1FC6, 0x1FCC),
        (0x1FD0, 0x1FD3),
        (0x1FD6, 0x1FDB),
        (0x1FE0, 0x1FEC),
        (0x1FF2, 0x1FF4),
        (0x1FF6, 0x1FFC),
        (0x2102, 0x2102),
        (0x2107, 0x2107),
        (0x210A, 0x2113),
        (0x2115, 0x2115),
        (0x2119, 0x211D),
        (0x2124, 0x2124),
        (0x2126, 0x2126),
        (0x2128, 0x2128),
        (0x212A, 0x212D),
        (0x212F, 0x2134),
        (0x2139, 0x2139),
        (0x213C, 0x213F),
        (0x2145, 0x2149),
        (0x214E, 0x214E),
        (0x2183, 0x2184),
        (0x2C00, 0x2C7B),
        (0x2C7E, 0x2CE4),
        (0x2CEB, 0x2CEE),
        (0x2CF2, 0x2CF3),
        (0xA640, 0xA66D),
        (0xA680, 0xA69B),
        (0xA722, 0xA76F),
        (0xA771, 0xA787),
        (0xA78B, 0xA78E),
        (0xAB70, 0xABBF),
        (0xFB00, 0xFB06),
        (0xFB13, 0xFB17),
        (0xFF21, 0xFF3A),
        (0xFF41, 0xFF5A),
        (0x1_0400, 0x1_044F),
        (0x1_04B0, 0x1_04D3),
        (0x1_04D8, 0x1_04FB),
        (0x1_0C80, 0x1_0CB2),
        (0x1_0CC0, 0x1_0CF2),
        (0x1_18A0, 0x1_18DF),
        (0x1_E900, 0x1_E943),
    ];
    RANGES
        .binary_search_by(|&(lo, hi)| {
            if cp < lo {
                std::cmp::Ordering::Greater
            } else if cp > hi {
                std::cmp::Ordering::Less
            } else {
                std::cmp::Ordering::Equal
            }
        })
        .is_ok()
}

/// DeepSeek-LLM's punctuation: ASCII, full-width, and the general punctuation of Chinese text.
pub(super) fn llm_punct(cp: u32, _: u8) -> bool {
    matches!(cp,
        0x21..=0x2F | 0x3A..=0x7E | 0xFF01..=0xFF0F | 0xFF1A..=0xFF5E | 0x2018..=0x201F | 0x3000..=0x3002)
}

/// `[一-龥ࠀ-一가-퟿]`: U+0800 up to the end of the Chinese block of Unicode 1.1, and Hangul syllables with the rest of
/// their block.
pub(super) fn llm_east_asian(cp: u32, _: u8) -> bool {
    matches!(cp, 0x0800..=0x9FA5 | 0xAC00..=0xD7FF)
}

/// `[一-龥぀-ゟ゠-ヿ]`: Chinese of Unicode 1.1 and kana.
pub(super) fn v3_chinese_or_kana(cp: u32, _: u8) -> bool {
    matches!(cp, 0x4E00..=0x9FA5 | 0x3040..=0x30FF)
}
