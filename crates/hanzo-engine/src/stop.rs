//! Stop strings: where a reply's text ends because the caller said so.
//!
//! A stop string may begin in one token and end in another, so text that could still become one is held back. One
//! Knuth–Morris–Pratt automaton a string, advanced byte by byte: what is emitted depends on the text alone, never on how
//! tokens cut it. The match that ends first wins; of those that end together the longest.

use thiserror::Error;

/// Most stop strings of a request.
pub const MAX_STOP_STRINGS: usize = 64;
/// Most bytes of all stop strings of a request.
pub const MAX_STOP_BYTES: usize = 16 << 10;

/// Stop strings that a request cannot have.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StopError {
    /// An empty string would end every reply before it begins.
    #[error("stop string {index} is empty")]
    Empty {
        /// Which one, from 0.
        index: usize,
    },
    /// Too many strings.
    #[error("{count} stop strings were given; at most {MAX_STOP_STRINGS} are possible")]
    TooMany {
        /// How many.
        count: usize,
    },
    /// Too long strings.
    #[error("the stop strings have {bytes} bytes; at most {MAX_STOP_BYTES} are possible")]
    TooLong {
        /// Bytes of all of them.
        bytes: usize,
    },
}

/// A set of stop strings, checked and prepared.
#[derive(Clone, Debug, Default)]
pub struct StopStrings(Vec<Automaton>);

/// One string with its failure function: `fallback[n]` is the length of the longest proper prefix of the first `n + 1`
/// bytes that is also their suffix.
#[derive(Clone, Debug)]
struct Automaton {
    text: String,
    fallback: Vec<u32>,
}

impl Automaton {
    fn new(text: &str) -> Self {
        let mut automaton = Self { text: text.to_owned(), fallback: Vec::with_capacity(text.len()) };
        let mut matched = 0;
        for (i, &byte) in text.as_bytes().iter().enumerate() {
            matched = if i == 0 { 0 } else { automaton.advance(matched, byte) };
            automaton.fallback.push(matched as u32);
        }
        automaton
    }

    /// Bytes matched after `byte`, where `matched` (less than the whole) were matched before.
    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        loop {
            if self.text.as_bytes().get(matched) == Some(&byte) {
                return matched + 1;
            }
            match matched.checked_sub(1).and_then(|i| self.fallback.get(i)) {
                Some(&shorter) => matched = shorter as usize,
                None => return 0,
            }
        }
    }
}

impl StopStrings {
    /// Checks and prepares stop strings.
    ///
    /// # Errors
    /// [`StopError`] for an empty one, for too many, or for too many bytes.
    pub fn new<S: AsRef<str>>(strings: &[S]) -> Result<Self, StopError> {
        if strings.len() > MAX_STOP_STRINGS {
            return Err(StopError::TooMany { count: strings.len() });
        }
        let bytes = strings.iter().map(|s| s.as_ref().len()).sum();
        if bytes > MAX_STOP_BYTES {
            return Err(StopError::TooLong { bytes });
        }
        if let Some(index) = strings.iter().position(|s| s.as_ref().is_empty()) {
            return Err(StopError::Empty { index });
        }
        Ok(Self(strings.iter().map(|s| Automaton::new(s.as_ref())).collect()))
    }

    /// A scan of one reply.
    #[must_use]
    pub fn scan(&self) -> StopScan {
        StopScan { matched: vec![0; self.0.len()], strings: self.clone(), held: String::new(), stop: None }
    }
}

/// Reads a reply's text piece by piece and lets through what no stop string can claim any more.
#[derive(Clone, Debug)]
pub struct StopScan {
    strings: StopStrings,
    /// Bytes matched of each string.
    matched: Vec<usize>,
    /// Text that may be the beginning of a stop string.
    held: String,
    /// The string that was found.
    stop: Option<usize>,
}

impl StopScan {
    /// Takes text; returns what of the text so far is certain and was not returned before. Once a stop string was
    /// found, nothing more comes.
    pub fn push(&mut self, text: &str) -> String {
        if self.stop.is_some() {
            return String::new();
        }
        if self.strings.0.is_empty() {
            return text.to_owned();
        }
        let old = self.held.len();
        self.held.push_str(text);
        for (i, &byte) in text.as_bytes().iter().enumerate() {
            let mut found: Option<usize> = None;
            for (s, (automaton, matched)) in self.strings.0.iter().zip(&mut self.matched).enumerate() {
                *matched = automaton.advance(*matched, byte);
                if *matched == automaton.text.len() {
                    let longest = found.and_then(|f| self.strings.0.get(f)).map_or(0, |a| a.text.len());
                    found = if automaton.text.len() > longest { Some(s) } else { found };
                }
            }
            if let Some(s) = found {
                let len = self.strings.0.get(s).map_or(0, |a| a.text.len());
                self.stop = Some(s);
                // A match of valid UTF-8 in valid UTF-8 begins and ends between characters.
                self.held.truncate((old + i + 1).saturating_sub(len));
                return std::mem::take(&mut self.held);
            }
        }
        let keep = self.matched.iter().max().copied().unwrap_or(0);
        let rest = self.held.split_off(self.held.len().saturating_sub(keep));
        std::mem::replace(&mut self.held, rest)
    }

    /// The text is complete: what was held back was no stop string.
    pub fn finish(&mut self) -> String {
        self.matched.fill(0);
        std::mem::take(&mut self.held)
    }

    /// The stop string that was found.
    #[must_use]
    pub fn stop(&self) -> Option<&str> {
        self.stop.and_then(|s| self.strings.0.get(s)).map(|a| a.text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut scan = StopStrings::new(stops).unwrap().scan();
        let mut out: String = pieces.iter().map(|p| scan.push(p)).collect();
        out.push_str(&scan.finish());
        (out, scan.stop().map(str::to_owned))
    }

    #[test]
    fn a_stop_string_across_pieces_is_not_emitted() {
        assert_eq!(run(&["\nUser:"], &["Hi", "\nUs", "er", ": x"]), ("Hi".into(), Some("\nUser:".into())));
        assert_eq!(run(&["aab"], &["aa", "a", "b", "c"]), ("a".into(), Some("aab".into())));
        assert_eq!(run(&["é!"], &["caf", "é", "! "]), ("caf".into(), Some("é!".into())));
    }

    #[test]
    fn what_only_began_like_one_is_emitted() {
        let mut scan = StopStrings::new(&["###"]).unwrap().scan();
        assert_eq!(scan.push("a##"), "a");
        assert_eq!(scan.push("b#"), "##b");
        assert_eq!(scan.finish(), "#");
        assert_eq!(scan.stop(), None);
    }

    #[test]
    fn the_first_to_end_wins_and_then_the_longest() {
        assert_eq!(run(&["cd", "bcd", "abcdef"], &["abcdef"]), ("a".into(), Some("bcd".into())));
    }

    #[test]
    fn impossible_sets_are_refused() {
        assert_eq!(StopStrings::new(&["a", ""]).unwrap_err(), StopError::Empty { index: 1 });
        assert_eq!(StopStrings::new(&vec!["a"; 1000]).unwrap_err(), StopError::TooMany { count: 1000 });
        let long = "x".repeat(1 << 20);
        assert_eq!(StopStrings::new(&[&long]).unwrap_err(), StopError::TooLong { bytes: 1 << 20 });
    }

    /// The definition: the least end of any match, then the longest match that ends there.
    fn naive(stops: &[String], text: &str) -> (String, Option<String>) {
        for end in (0..=text.len()).filter(|&i| text.is_char_boundary(i)) {
            let ending = stops.iter().filter(|s| text[..end].ends_with(s.as_str()));
            if let Some(s) = ending.max_by_key(|s| s.len()) {
                return (text[..end - s.len()].to_owned(), Some(s.clone()));
            }
        }
        (text.to_owned(), None)
    }

    proptest! {
        #[test]
        fn any_cut_gives_what_the_whole_text_gives(
            text in "[abé]{0,24}",
            stops in proptest::collection::vec("[abé]{1,4}", 0..4),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let chars: Vec<char> = text.chars().collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(chars.len() + 1)).chain([0, chars.len()]).collect();
            cuts.sort_unstable();
            let mut scan = StopStrings::new(&stops).unwrap().scan();
            let mut out = String::new();
            for w in cuts.windows(2) {
                out.push_str(&scan.push(&chars[w[0]..w[1]].iter().collect::<String>()));
            }
            out.push_str(&scan.finish());
            prop_assert_eq!((out, scan.stop().map(str::to_owned)), naive(&stops, &text));
        }
    }
}
