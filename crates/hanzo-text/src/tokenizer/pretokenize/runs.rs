//! Expressions that are a run of one set of characters, and the few that are neither that nor words.

use super::super::classes::{Classes, MARK, NUMBER, PUNCT, SPACE, is_decimal};
use super::super::utf8;

/// Whether a code point with these class flags is in a set.
pub(crate) type Set = fn(u32, u8) -> bool;

/// What may precede a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lead {
    /// Nothing.
    None,
    /// ` ?`
    Space,
    /// `\s?`
    WhiteSpace,
}

/// `LEAD?SET{1,max}`
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    /// What may precede it.
    pub(crate) lead: Lead,
    /// The characters.
    pub(crate) set: Set,
    /// Most characters of the set.
    pub(crate) max: u32,
}

impl Run {
    /// `SET+`
    pub(crate) const fn of(set: Set) -> Self {
        Self { lead: Lead::None, set, max: u32::MAX }
    }

    /// `\p{N}{1,max}`
    pub(crate) const fn numbers(max: u32) -> Self {
        Self { lead: Lead::None, set: |_, class| class & NUMBER != 0, max }
    }

    pub(super) fn match_at(&self, c: &Classes, text: &[u8], pos: usize) -> Option<usize> {
        let first = c.at(text, pos)?;
        let led = match self.lead {
            Lead::None => false,
            Lead::Space => first.cp == 0x20,
            Lead::WhiteSpace => first.class & SPACE != 0,
        };
        let starts = if led { [Some(first.next), Some(pos)] } else { [Some(pos), None] };
        starts.into_iter().flatten().find_map(|start| {
            let mut end = start;
            for _ in 0..self.max {
                match c.at(text, end) {
                    Some(a) if (self.set)(a.cp, a.class) => end = a.next,
                    _ => break,
                }
            }
            (end > start).then_some(end)
        })
    }
}

/// Runs of digits cut into groups of three counted from the right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Digits {
    /// Runs of `\p{N}`: the first group has what is left over.
    Numbers,
    /// `\d{1,3}(?=(?:\d{3})*\b)`: as above, for decimal digits, unless a word character follows the run.
    UnlessInWord,
    /// `(?=(\d{3})+(?!\d))`: cuts of no width, so that the first group stays with what precedes it.
    Cuts,
}

impl Digits {
    pub(super) fn split(self, c: &Classes, text: &[u8], emit: &mut dyn FnMut(usize, usize)) {
        let mut gap = 0; // start of what has not been emitted
        let mut pos = 0;
        while let Some(first) = c.at(text, pos) {
            if !self.is_digit(first.cp, first.class) {
                pos = first.next;
                continue;
            }
            let mut end = pos;
            let mut n = 0usize;
            while let Some(a) = c.at(text, end).filter(|a| self.is_digit(a.cp, a.class)) {
                end = a.next;
                n += 1;
            }
            if self == Self::UnlessInWord && c.at(text, end).is_some_and(|a| is_word(a.cp, a.class)) {
                pos = end;
                continue;
            }
            if self != Self::Cuts && gap < pos {
                emit(gap, pos);
                gap = pos;
            }
            while n > 0 {
                // For `Cuts`, `n` at a multiple of three is where a cut lies.
                if self == Self::Cuts && n.is_multiple_of(3) && gap < pos {
                    emit(gap, pos);
                    gap = pos;
                }
                let group = if n.is_multiple_of(3) { 3 } else { n % 3 };
                for _ in 0..group {
                    pos += utf8::len_at(text, pos);
                }
                n -= group;
                if self != Self::Cuts {
                    emit(gap, pos);
                    gap = pos;
                }
            }
        }
        if gap < text.len() {
            emit(gap, text.len());
        }
    }

    fn is_digit(self, cp: u32, class: u8) -> bool {
        class & NUMBER != 0 && (self == Self::Numbers || is_decimal(cp))
    }
}

/// `\w` as Oniguruma has it: what is alphabetic, marks, decimal digits, connector punctuation, and Latin-1's superscript
/// digits and fractions.
fn is_word(cp: u32, class: u8) -> bool {
    class & MARK != 0
        || char::from_u32(cp).is_some_and(char::is_alphabetic)
        || class & NUMBER != 0 && (is_decimal(cp) || cp < 0x100)
        || matches!(cp, 0x5F | 0x203F | 0x2040 | 0x2054 | 0xFE33 | 0xFE34 | 0xFE4D..=0xFE4F | 0xFF3F)
}

/// `[0-9][0-9][0-9]`
pub(super) fn three_digits(text: &[u8], pos: usize) -> Option<usize> {
    text.get(pos..pos + 3)?.iter().all(u8::is_ascii_digit).then_some(pos + 3)
}

/// `[^\n]+|[\n]+`
pub(super) fn line(text: &[u8], pos: usize) -> Option<usize> {
    let rest = text.get(pos..)?;
    let is_line_feed = *rest.first()? == b'\n';
    Some(pos + rest.iter().take_while(|&&b| (b == b'\n') == is_line_feed).count())
}

/// `\s+$`
pub(super) fn trailing_space(c: &Classes, text: &[u8], emit: &mut dyn FnMut(usize, usize)) {
    let mut start = text.len();
    let mut pos = 0;
    while let Some(a) = c.at(text, pos) {
        if a.class & SPACE == 0 {
            start = text.len();
        } else if start == text.len() {
            start = pos;
        }
        pos = a.next;
    }
    for (s, e) in [(0, start), (start, text.len())] {
        if s < e {
            emit(s, e);
        }
    }
}

/// `<sentinel:[0-9]+>`, `IMGIMG[A-I]{1,4}Z`, and `[\t\n]| {4}| {2}`, tried in that order.
pub(super) fn chameleon(text: &[u8], pos: usize) -> Option<usize> {
    let rest = text.get(pos..)?;
    let take = |s: &[u8], f: fn(&u8) -> bool, max: usize| s.iter().take(max).take_while(|b| f(b)).count();
    if let Some(tail) = rest.strip_prefix(b"<sentinel:") {
        // The number is bounded so that a long run of digits after many prefixes stays linear.
        let n = take(tail, u8::is_ascii_digit, 32);
        if n > 0 && tail.get(n) == Some(&b'>') {
            return Some(pos + 10 + n + 1);
        }
    }
    if let Some(tail) = rest.strip_prefix(b"IMGIMG") {
        let n = take(tail, |b| (b'A'..=b'I').contains(b), 4);
        if n > 0 && tail.get(n) == Some(&b'Z') {
            return Some(pos + 6 + n + 1);
        }
    }
    match rest {
        [b'\t' | b'\n', ..] => Some(pos + 1),
        [b' ', b' ', b' ', b' ', ..] => Some(pos + 4),
        [b' ', b' ', ..] => Some(pos + 2),
        _ => None,
    }
}

/// ``[\p{P}\$\+<=>\^~\|`]``, Falcon's punctuation.
pub(super) fn falcon_punct(cp: u32, class: u8) -> bool {
    default_punct(cp, class) || cp == 0x60
}

/// `[\p{P}\$\+<=>\^~\|]`
pub(super) fn default_punct(cp: u32, class: u8) -> bool {
    class & PUNCT != 0 || matches!(cp, 0x24 | 0x2B | 0x3C..=0x3E | 0x5E | 0x7E | 0x7C)
}

/// `[\p{P}!-/:-@\[-`{-~]`
pub(super) fn any_punct(cp: u32, class: u8) -> bool {
    class & PUNCT != 0 || cp < 0x80 && (cp as u8).is_ascii_punctuation()
}

/// `[^(\s|.,!?…。，、।۔،)]`, the words of BLOOM; `(`, `|` and `)` are in the set literally.
pub(super) fn bloom_word(cp: u32, class: u8) -> bool {
    class & SPACE == 0
        && !matches!(
            cp,
            0x28 | 0x29
                | 0x7C
                | 0x2E
                | 0x2C
                | 0x21
                | 0x3F
                | 0x2026
                | 0x3002
                | 0xFF0C
                | 0x3001
                | 0x0964
                | 0x06D4
                | 0x060C
        )
}

/// Hangul syllables and compatibility letters.
pub(super) fn youtu_hangul(cp: u32, _: u8) -> bool {
    matches!(cp, 0xAC00..=0xD7A3 | 0x3131..=0x318E)
}

/// `[！…“”‘’—：；，、-〿︰-﹏]`
pub(super) fn youtu_punct(cp: u32, _: u8) -> bool {
    matches!(cp,
        0xFF01 | 0x2026 | 0x201C | 0x201D | 0x2018 | 0x2019 | 0x2014 | 0xFF1A | 0xFF1B | 0xFF0C
        | 0x3001..=0x303F | 0xFE30..=0xFE4F)
}

/// Bopomofo.
pub(super) fn youtu_bopomofo(cp: u32, _: u8) -> bool {
    matches!(cp, 0x3105..=0x312F)
}

/// The scripts that AFMoE keeps apart.
pub(super) fn afmoe_east_asian(cp: u32, _: u8) -> bool {
    matches!(cp,
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0xF900..=0xFAFF | 0x3040..=0x309F | 0x30A0..=0x30FF
        | 0xFF65..=0xFF9F | 0x2F00..=0x2FDF | 0x0E40..=0x0E7F | 0x0E80..=0x0EFF | 0x1780..=0x17FF
        | 0x1000..=0x109F | 0xAA60..=0xAA7F | 0xA9E0..=0xA9FF | 0xAC00..=0xD7AF | 0x1100..=0x11FF)
}
