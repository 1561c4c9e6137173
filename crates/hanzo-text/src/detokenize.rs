//! From token ids to text, one id at a time, without ever showing half a character.
//!
//! Tokens are byte strings and may end inside a UTF-8 sequence. [`Utf8Stream`] holds such an ending back until it is
//! complete; what can never become valid is shown as U+FFFD, exactly where decoding everything at once would show it.
//! [`StreamDecoder`] adds what concerns tokens: control tokens are left out, and the space that the vocabulary put before
//! the text is taken away.

use crate::tokenizer::{Tokenizer, TokenizerError};

/// How ids are decoded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DecodeOptions {
    /// Show control tokens by their names instead of leaving them out.
    pub render_special: bool,
    /// Keep the first space of vocabularies that put one before every text: set this when the ids continue a text, as a
    /// model's reply continues its prompt.
    pub keep_leading_space: bool,
}

/// Bytes in, valid UTF-8 out.
#[derive(Debug, Default)]
pub struct Utf8Stream {
    /// An incomplete sequence, at most three bytes.
    pending: Vec<u8>,
    out: String,
}

impl Utf8Stream {
    /// Takes bytes; returns the text that they complete.
    pub fn push(&mut self, bytes: &[u8]) -> &str {
        self.out.clear();
        self.append(bytes);
        &self.out
    }

    /// Ends the stream; an incomplete sequence becomes U+FFFD. The stream can be used anew.
    pub fn finish(&mut self) -> &str {
        self.out.clear();
        if !self.pending.is_empty() {
            self.pending.clear();
            self.out.push(char::REPLACEMENT_CHARACTER);
        }
        &self.out
    }

    /// Whether an incomplete sequence is held back.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn append(&mut self, bytes: &[u8]) {
        let joined;
        let bytes = if self.pending.is_empty() {
            bytes
        } else {
            self.pending.extend_from_slice(bytes);
            joined = std::mem::take(&mut self.pending);
            &joined[..]
        };
        let mut chunks = bytes.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            self.out.push_str(chunk.valid());
            let invalid = chunk.invalid();
            if chunks.peek().is_none() && is_incomplete(invalid) {
                self.pending.extend_from_slice(invalid);
            } else if !invalid.is_empty() {
                self.out.push(char::REPLACEMENT_CHARACTER);
            }
        }
    }
}

/// Whether further bytes could make this valid.
fn is_incomplete(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
}

/// Token ids in, text out. `T` is a tokenizer, borrowed or shared (`&Tokenizer`, `Arc<Tokenizer>`).
#[derive(Debug)]
pub struct StreamDecoder<T> {
    tokenizer: T,
    options: DecodeOptions,
    utf8: Utf8Stream,
    /// Still before the first byte of text.
    at_start: bool,
}

impl<T: AsRef<Tokenizer>> StreamDecoder<T> {
    /// A decoder at the start of a text.
    pub fn new(tokenizer: T, options: DecodeOptions) -> Self {
        Self { tokenizer, options, utf8: Utf8Stream::default(), at_start: true }
    }

    /// Takes an id; returns the text that it completes, which may be empty.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`]; the decoder is unchanged then.
    pub fn push(&mut self, id: u32) -> Result<&str, TokenizerError> {
        let tokenizer = self.tokenizer.as_ref();
        let mut bytes = tokenizer
            .token_bytes(id)
            .ok_or(TokenizerError::UnknownId { id, n_tokens: tokenizer.vocab_size() })?;
        if tokenizer.is_control(id) {
            if !self.options.render_special {
                bytes = &[];
            }
        } else if self.at_start && !bytes.is_empty() {
            self.at_start = false;
            if tokenizer.has_space_prefix() && !self.options.keep_leading_space {
                bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            }
        }
        Ok(self.utf8.push(bytes))
    }

    /// Ends the text; an incomplete character becomes U+FFFD.
    pub fn finish(&mut self) -> &str {
        self.at_start = true;
        self.utf8.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn holds_back_what_is_incomplete() {
        let mut s = Utf8Stream::default();
        assert_eq!(s.push(b"a\xF0\x9F"), "a");
        assert!(s.is_pending());
        assert_eq!(s.push(b"\xA6"), "");
        assert_eq!(s.push(b"\x99b"), "🦙b");
        assert_eq!(s.push(b"\xE4"), "");
        assert_eq!(s.push(b"x"), "\u{FFFD}x");
        assert_eq!(s.push(b"\xC3"), "");
        assert_eq!(s.finish(), "\u{FFFD}");
        assert_eq!(s.finish(), "");
        assert_eq!(s.push(b"\xA9"), "\u{FFFD}");
    }

    proptest! {
        #[test]
        fn any_cut_gives_the_whole(
            text in ".{0,20}",
            noise in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let mut bytes = text.into_bytes();
            for (at, b) in noise {
                bytes.insert(at.index(bytes.len() + 1), b);
            }
            let mut cuts: Vec<usize> = cuts.iter().map(|c| c.index(bytes.len() + 1)).chain([0, bytes.len()]).collect();
            cuts.sort_unstable();
            let mut s = Utf8Stream::default();
            let mut out = String::new();
            for w in cuts.windows(2) {
                out.push_str(s.push(&bytes[w[0]..w[1]]));
            }
            out.push_str(s.finish());
            prop_assert_eq!(out, String::from_utf8_lossy(&bytes));
        }
    }
}
