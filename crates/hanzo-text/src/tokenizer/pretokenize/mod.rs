//! Pre-tokenization: cutting text into the pieces inside which merges happen.
//!
//! Model files name a regular expression, or a sequence of them, through `tokenizer.ggml.pre`. The expressions fall into
//! a few families that differ in parameters; each family is a hand-written scanner that looks at every character a
//! bounded number of times, so hostile text cannot make it backtrack. A [`Pretokenizer`] is a sequence of [`Step`]s,
//! each applied to the pieces that the one before it made, which is what chained `Split(…, Isolated)` steps mean: matches
//! become pieces, and so does the text between matches.
//!
//! The names are resolved in [`presets`]; the families are in [`words`] (GPT-2 and its cl100k and o200k successors),
//! [`deepseek`] and [`runs`] (everything that is a run of one set of characters).

mod deepseek;
mod presets;
mod runs;
mod words;

pub(crate) use presets::{Preset, preset};
pub(crate) use words::Cuts;

use super::classes::{Classes, SPACE, classes};
use super::utf8;
use runs::{Digits, Run};
use words::{Cased, Word};

/// One splitting rule.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// GPT-2's expression.
    Gpt2,
    /// The cl100k family (`[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|…`).
    Word(Word),
    /// The o200k family, which also cuts at a change of case.
    Cased(Cased),
    /// The main expression of DeepSeek-V3.
    DeepSeek3 {
        /// Whether line ends stick to the punctuation before them, and to each other.
        line_ends_join: bool,
    },
    /// A run of characters of one set, optionally with white space before it.
    Run(Run),
    /// Runs of digits in groups of three counted from the right.
    Digits(Digits),
    /// `[0-9][0-9][0-9]`.
    ThreeDigits,
    /// White space at the very end (`\s+$`).
    TrailingSpace,
    /// `[^\n]+|[\n]+`.
    Lines,
    /// Chameleon's sentinel tokens, image tokens, and spaces in twos and fours.
    Chameleon,
    /// Before a space, where no token continues over it.
    Spaces(Cuts),
}

impl Step {
    /// End of the match that starts exactly at `pos`, if there is one.
    #[inline]
    fn match_at(&self, c: &Classes, text: &[u8], pos: usize) -> Option<usize> {
        match self {
            Self::Gpt2 => words::gpt2(c, text, pos),
            Self::Word(w) => w.match_at(c, text, pos),
            Self::Cased(w) => w.match_at(c, text, pos),
            Self::DeepSeek3 { line_ends_join } => deepseek::v3(c, text, pos, *line_ends_join),
            Self::Run(r) => r.match_at(c, text, pos),
            Self::ThreeDigits => runs::three_digits(text, pos),
            Self::Lines => runs::line(text, pos),
            Self::Chameleon => runs::chameleon(text, pos),
            Self::Spaces(cuts) => Some(cuts.end(text, pos)),
            // These know the whole piece and do not come here.
            Self::TrailingSpace | Self::Digits(_) => None,
        }
    }

    /// Calls `emit` with the byte ranges of the pieces of `text`, in order, covering it.
    fn split(&self, c: &Classes, text: &[u8], emit: &mut dyn FnMut(usize, usize)) {
        match self {
            Self::Digits(d) => return d.split(c, text, emit),
            Self::TrailingSpace => return runs::trailing_space(c, text, emit),
            Self::Word(w) if w.spaces_in_powers_of_two => return w.split_powers_of_two(c, text, emit),
            _ => {}
        }
        let mut pos = 0;
        while pos < text.len() {
            let end = match self.match_at(c, text, pos) {
                Some(end) if end > pos => end,
                _ => self.gap_end(c, text, pos),
            };
            emit(pos, end);
            pos = end;
        }
    }

    /// Where the next match starts, given that none starts at `pos`.
    fn gap_end(&self, c: &Classes, text: &[u8], mut pos: usize) -> usize {
        loop {
            pos += utf8::len_at(text, pos);
            if pos >= text.len() || self.match_at(c, text, pos).is_some_and(|end| end > pos) {
                return pos.min(text.len());
            }
        }
    }
}

/// A sequence of steps.
#[derive(Debug, Clone)]
pub(crate) struct Pretokenizer {
    steps: Vec<Step>,
    classes: &'static Classes,
}

impl Pretokenizer {
    /// The sequence `steps`.
    pub(crate) fn new(steps: Vec<Step>) -> Self {
        Self { steps, classes: classes() }
    }

    /// Calls `emit` with the byte ranges of the pieces of `text`, in order, covering it.
    pub(crate) fn split(&self, text: &[u8], emit: &mut dyn FnMut(usize, usize)) {
        apply(&self.steps, self.classes, text, 0, emit);
    }
}

/// Recursion is over the steps, of which there are at most six.
fn apply(steps: &[Step], c: &Classes, text: &[u8], base: usize, emit: &mut dyn FnMut(usize, usize)) {
    match steps {
        [] if text.is_empty() => {}
        [] => emit(base, base + text.len()),
        [last] => last.split(c, text, &mut |s, e| emit(base + s, base + e)),
        [first, rest @ ..] => first.split(c, text, &mut |s, e| {
            apply(rest, c, text.get(s..e).unwrap_or_default(), base + s, emit);
        }),
    }
}

/// What the scanners read at a position.
#[derive(Debug, Clone, Copy)]
pub(crate) struct At {
    /// Code point.
    cp: u32,
    /// Its class flags.
    class: u8,
    /// Where the next one starts.
    next: usize,
}

impl Classes {
    /// The character at `pos`, `None` at the end.
    #[inline]
    fn at(&self, text: &[u8], pos: usize) -> Option<At> {
        let (cp, len) = utf8::decode(text, pos)?;
        Some(At { cp, class: self.of(cp), next: pos + len })
    }

    /// Class flags at `pos`, none at the end.
    #[inline]
    fn class_at(&self, text: &[u8], pos: usize) -> u8 {
        self.at(text, pos).map_or(0, |a| a.class)
    }

    /// End of the run of characters from `pos` that have a flag of `mask`.
    #[inline]
    fn run(&self, text: &[u8], mut pos: usize, mask: u8) -> usize {
        while let Some(a) = self.at(text, pos) {
            if a.class & mask == 0 {
                break;
            }
            pos = a.next;
        }
        pos
    }

    /// End of the run of characters from `pos` that have no flag of `mask`.
    #[inline]
    fn run_without(&self, text: &[u8], mut pos: usize, mask: u8) -> usize {
        while let Some(a) = self.at(text, pos) {
            if a.class & mask != 0 {
                break;
            }
            pos = a.next;
        }
        pos
    }

    /// As [`run`](Self::run), over at most `max` characters.
    #[inline]
    fn run_max(&self, text: &[u8], mut pos: usize, mask: u8, max: u32) -> usize {
        for _ in 0..max {
            match self.at(text, pos) {
                Some(a) if a.class & mask != 0 => pos = a.next,
                _ => break,
            }
        }
        pos
    }
}

/// `\s*[\r\n]+|\s+(?!\S)|\s+` (the first alternative only with `line_ends`): up to the last line end of the run; else
/// the run, less its last character if something follows and more than one is there.
fn white_space(c: &Classes, text: &[u8], start: usize, line_ends: bool) -> Option<usize> {
    let mut pos = start;
    let mut last = start;
    let mut after_line_end = None;
    while let Some(a) = c.at(text, pos).filter(|a| a.class & SPACE != 0) {
        last = pos;
        pos = a.next;
        if a.cp == 0x0A || a.cp == 0x0D {
            after_line_end = Some(pos);
        }
    }
    match after_line_end {
        Some(end) if line_ends => Some(end),
        _ if pos == start => None,
        _ if pos >= text.len() || last == start => Some(pos),
        _ => Some(last),
    }
}

/// End of the run of line ends (and `/` if `slash`) from `pos`.
fn line_ends(text: &[u8], mut pos: usize, slash: bool) -> usize {
    while text.get(pos).is_some_and(|&b| b == b'\n' || b == b'\r' || slash && b == b'/') {
        pos += 1;
    }
    pos
}

#[cfg(test)]
mod tests;
