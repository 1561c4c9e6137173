//! The word-shaped expressions: GPT-2, the cl100k family and the o200k family.

use super::super::classes::{CASELESS, Classes, LETTER, LOWER, MARK, NUMBER, SPACE, UPPER, is_han};
use super::{At, line_ends, white_space};

/// `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
pub(super) fn gpt2(c: &Classes, text: &[u8], pos: usize) -> Option<usize> {
    let first = c.at(text, pos)?;
    if first.cp == 0x27
        && let Some(end) = contraction(text, pos, false)
    {
        return Some(end);
    }
    let (body, a) = after_space(c, text, pos, first);
    if a.class & LETTER != 0 {
        Some(c.run(text, a.next, LETTER))
    } else if a.class & NUMBER != 0 {
        Some(c.run(text, a.next, NUMBER))
    } else if a.class & SPACE == 0 {
        Some(c.run_without(text, body, SPACE | LETTER | NUMBER))
    } else {
        white_space(c, text, pos, false)
    }
}

/// The character after an optional space, with its position; the space itself if only white space or nothing follows.
#[inline]
fn after_space(c: &Classes, text: &[u8], pos: usize, first: At) -> (usize, At) {
    match c.at(text, first.next) {
        Some(a) if first.cp == 0x20 && a.class & SPACE == 0 => (first.next, a),
        _ => (pos, first),
    }
}

/// End of an English contraction suffix at the apostrophe at `pos`.
#[inline]
fn contraction(text: &[u8], pos: usize, any_case: bool) -> Option<usize> {
    if text.get(pos) != Some(&b'\'') {
        return None;
    }
    let letter = |i: usize| {
        let b = text.get(pos + i).copied().unwrap_or(0);
        if any_case { b.to_ascii_lowercase() } else { b }
    };
    match (letter(1), letter(2)) {
        (b's' | b't' | b'm' | b'd', _) => Some(pos + 2),
        (b'r' | b'v', b'e') | (b'l', b'l') => Some(pos + 3),
        // U+017F, the long s, folds to s.
        (0xC5, 0xBF) if any_case => Some(pos + 3),
        _ => None,
    }
}

/// What sticks to the end of a run of punctuation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    None,
    /// `[\r\n]*`
    LineEnds,
    /// `[\r\n/]*`
    LineEndsAndSlashes,
    /// `[\r\n/]?`
    OneLineEndOrSlash,
}

impl Tail {
    #[inline]
    fn extend(self, text: &[u8], pos: usize) -> usize {
        match self {
            Self::None => pos,
            Self::LineEnds => line_ends(text, pos, false),
            Self::LineEndsAndSlashes => line_ends(text, pos, true),
            Self::OneLineEndOrSlash => line_ends(text, pos, true).min(pos + 1),
        }
    }
}

/// `CONTRACTION|[^\r\n\p{L}\p{N}]?LETTERS+|\p{N}{1,max_digits}| ?[^\sLETTERS\p{N}]+TAIL|\s*[\r\n]+|\s+(?!\S)|\s+`
#[derive(Debug, Clone, Copy)]
pub(crate) struct Word {
    /// Whether `(?i:'s|'t|'re|'ve|'m|'ll|'d)` is the first alternative.
    pub(crate) contractions: bool,
    /// Flags that make up a word.
    pub(crate) letters: u8,
    /// Whether words continue over single spaces, `(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+`.
    pub(crate) phrases: bool,
    /// Longest group of digits.
    pub(crate) max_digits: u32,
    /// What follows punctuation.
    pub(crate) tail: Tail,
    /// Whether the last two alternatives are `\s{512}(?!\S)|\s{256}(?!\S)|…|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}`.
    pub(crate) spaces_in_powers_of_two: bool,
}

impl Word {
    /// The Llama 3 expression, from which the others differ in a field or two.
    pub(crate) const LLAMA3: Self = Self {
        contractions: true,
        letters: LETTER,
        phrases: false,
        max_digits: 3,
        tail: Tail::LineEnds,
        spaces_in_powers_of_two: false,
    };

    #[inline]
    pub(super) fn match_at(&self, c: &Classes, text: &[u8], pos: usize) -> Option<usize> {
        let first = c.at(text, pos)?;
        if self.contractions
            && first.cp == 0x27
            && let Some(end) = contraction(text, pos, true)
        {
            return Some(end);
        }
        if first.class & self.letters != 0 {
            return Some(self.word(c, text, pos));
        }
        let line_end = first.cp == 0x0A || first.cp == 0x0D;
        if first.class & (LETTER | NUMBER) == 0
            && !line_end
            && c.class_at(text, first.next) & self.letters != 0
        {
            return Some(self.word(c, text, first.next));
        }
        if first.class & NUMBER != 0 {
            return Some(c.run_max(text, pos, NUMBER, self.max_digits));
        }
        let words = SPACE | LETTER | NUMBER | self.letters;
        let (body, a) = after_space(c, text, pos, first);
        if a.class & words == 0 {
            return Some(self.tail.extend(text, c.run_without(text, body, words)));
        }
        white_space(c, text, pos, true)
    }

    /// End of the word whose first letter is at `pos`.
    #[inline]
    fn word(&self, c: &Classes, text: &[u8], pos: usize) -> usize {
        let mut end = c.run(text, pos, self.letters);
        if self.phrases {
            // The first character must be a letter; marks only follow, a space only between letters.
            end = c.run(text, c.run(text, pos, LETTER), LETTER | MARK);
            while text.get(end) == Some(&b' ') && c.class_at(text, end + 1) & LETTER != 0 {
                end = c.run(text, end + 1, LETTER | MARK);
            }
        }
        end
    }

    /// The form with `spaces_in_powers_of_two`: a run of white space without a line end is cut as a whole, since looking
    /// for a line end anew after every 512 characters would take quadratic time.
    pub(super) fn split_powers_of_two(&self, c: &Classes, text: &[u8], emit: &mut dyn FnMut(usize, usize)) {
        let mut pos = 0;
        while pos < text.len() {
            let mut end = pos;
            let (mut n, mut line_end) = (0usize, false);
            while let Some(a) = c.at(text, end).filter(|a| a.class & SPACE != 0) {
                n += 1;
                line_end |= a.cp == 0x0A || a.cp == 0x0D;
                end = a.next;
            }
            let at_end = usize::from(end >= text.len());
            // The last character of a run may still belong to the word after it.
            if n + at_end < 2 || line_end {
                let end = self.match_at(c, text, pos).filter(|&e| e > pos).unwrap_or(text.len());
                emit(pos, end);
                pos = end;
                continue;
            }
            while n + at_end > 1 {
                let k = [512, 256, 128, 64, 32, 16, 8, 4, 2, 1].into_iter().find(|&k| k < n + at_end);
                let taken = k.unwrap_or(1);
                let end = c.run_max(text, pos, SPACE, taken as u32);
                emit(pos, end);
                pos = end;
                n -= taken;
            }
        }
    }
}

/// The o200k expression:
/// `[^\r\n\p{L}\p{N}]?U*L+SUFFIX?|[^\r\n\p{L}\p{N}]?U+L*SUFFIX?|\p{N}{1,max_digits}| ?[^\s\p{L}\p{N}]+TAIL|\s*[\r\n]+|\s+(?!\S)|\s+`
/// with `U = [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]` and `L = [\p{Ll}\p{Lm}\p{Lo}\p{M}]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cased {
    /// Whether `(?i:'s|'t|'re|'ve|'m|'ll|'d)` may follow a word.
    pub(crate) contractions: bool,
    /// Whether Han characters are excluded from words and form runs of their own.
    pub(crate) han_apart: bool,
    /// Longest group of digits.
    pub(crate) max_digits: u32,
    /// What follows punctuation.
    pub(crate) tail: Tail,
}

impl Cased {
    /// The expression of GPT-4o.
    pub(crate) const O200K: Self =
        Self { contractions: true, han_apart: false, max_digits: 3, tail: Tail::LineEndsAndSlashes };

    #[inline]
    pub(super) fn match_at(&self, c: &Classes, text: &[u8], pos: usize) -> Option<usize> {
        let first = c.at(text, pos)?;
        if self.han_apart && is_han(first.cp) {
            let mut end = first.next;
            while let Some(a) = c.at(text, end).filter(|a| is_han(a.cp)) {
                end = a.next;
            }
            return Some(end);
        }
        let may_lead = first.class & (LETTER | NUMBER) == 0 && first.cp != 0x0A && first.cp != 0x0D;
        let word = may_lead
            .then(|| self.ends_lower(c, text, first.next))
            .flatten()
            .or_else(|| self.ends_lower(c, text, pos))
            .or_else(|| may_lead.then(|| self.starts_upper(c, text, first.next)).flatten())
            .or_else(|| self.starts_upper(c, text, pos));
        if let Some(end) = word {
            let suffix = self.contractions.then(|| contraction(text, end, true)).flatten();
            return Some(suffix.unwrap_or(end));
        }
        if first.class & NUMBER != 0 {
            return Some(c.run_max(text, pos, NUMBER, self.max_digits));
        }
        let words = SPACE | LETTER | NUMBER;
        let (body, a) = after_space(c, text, pos, first);
        if a.class & words == 0 {
            return Some(self.tail.extend(text, c.run_without(text, body, words)));
        }
        white_space(c, text, pos, true)
    }

    /// The next character if it may be in a word and has a flag of `mask`.
    #[inline]
    fn letter(&self, c: &Classes, text: &[u8], pos: usize, mask: u8) -> Option<At> {
        c.at(text, pos).filter(|a| a.class & mask != 0 && !(self.han_apart && is_han(a.cp)))
    }

    /// `U*L+` from `pos`. U and L overlap in what has no case, so after the run of U the match goes on if a character of
    /// L follows, and otherwise steps back to end with the last caseless character of the run.
    fn ends_lower(&self, c: &Classes, text: &[u8], mut pos: usize) -> Option<usize> {
        let mut after_caseless = None;
        while let Some(a) = self.letter(c, text, pos, UPPER | CASELESS | MARK) {
            pos = a.next;
            if a.class & (CASELESS | MARK) != 0 {
                after_caseless = Some(pos);
            }
        }
        let mut end = pos;
        while let Some(a) = self.letter(c, text, end, LOWER | CASELESS | MARK) {
            end = a.next;
        }
        if end > pos { Some(end) } else { after_caseless }
    }

    /// `U+L*` from `pos`.
    fn starts_upper(&self, c: &Classes, text: &[u8], pos: usize) -> Option<usize> {
        let mut end = pos;
        while let Some(a) = self.letter(c, text, end, UPPER | CASELESS | MARK) {
            end = a.next;
        }
        if end == pos {
            return None;
        }
        while let Some(a) = self.letter(c, text, end, LOWER | CASELESS | MARK) {
            end = a.next;
        }
        Some(end)
    }
}

/// Where SentencePiece-like vocabularies, which merge over the whole text, can be cut without changing the result:
/// before a space that no token has after the byte that precedes it.
#[derive(Debug, Clone)]
pub(crate) struct Cuts {
    /// `joins[b]`: some token holds byte `b` followed by a space.
    joins: Box<[bool; 256]>,
}

impl Cuts {
    /// Collects what the tokens join.
    pub(crate) fn new<'a>(tokens: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut joins = Box::new([false; 256]);
        for token in tokens {
            for pair in token.windows(2) {
                if let [b, b' '] = pair
                    && let Some(slot) = joins.get_mut(usize::from(*b))
                {
                    *slot = true;
                }
            }
        }
        // A run of spaces is never cut: it belongs to the word after it.
        if let Some(slot) = joins.get_mut(usize::from(b' ')) {
            *slot = true;
        }
        Self { joins }
    }

    /// End of the piece that starts at `pos`.
    pub(super) fn end(&self, text: &[u8], pos: usize) -> usize {
        let rest = text.get(pos..).unwrap_or_default();
        let cut = rest.windows(2).position(
            |w| matches!(w, [b, b' '] if !self.joins.get(usize::from(*b)).copied().unwrap_or(true)),
        );
        cut.map_or(text.len(), |i| pos + i + 1)
    }
}
