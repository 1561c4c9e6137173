//! Text to token ids and back, for every kind of vocabulary that GGUF metadata describes.
//!
//! A [`Tokenizer`] is built from a [`Vocab`], plain data that says what a file says. Four kinds are implemented: ranked
//! merges over bytes (`gpt2`) or characters (`gemma4`), SentencePiece BPE (`llama`), WordPiece (`bert`) and the unigram
//! model (`t5`). Encoding first cuts out special tokens, then hands the text between them to the kind's encoder; the
//! BPE kinds cut it further into pieces (`pretokenize`).
//!
//! Every step takes time linear in the text, but for a logarithm where a single piece is very long. A tokenizer is
//! immutable and can be shared between threads.
//!
//! Tokens are kept as the bytes they stand for, not as files spell them, so decoding is concatenation; cutting the
//! result into valid UTF-8 as it arrives is the matter of [`detokenize`](crate::detokenize).

mod bpe;
mod byte_level;
mod cache;
mod charsmap;
mod classes;
mod error;
#[cfg(feature = "gguf")]
mod gguf;
mod load;
mod merge;
mod pretokenize;
mod special;
mod spm;
mod table;
mod trie;
mod ugm;
mod utf8;
mod vocab;
mod wpm;

pub use error::TokenizerError;
pub use vocab::{MAX_LIST_BYTES, MAX_TOKEN_LEN, MAX_TOKENS, SpecialIds, TokenList, TokenType, Vocab};

use crate::detokenize::{DecodeOptions, StreamDecoder};
use special::{Part, SpecialMatcher};
use std::borrow::Cow;

/// SentencePiece's mark for a space, U+2581.
const SPACE_MARK: &[u8; 3] = b"\xE2\x96\x81";
/// Longest text accepted: offsets have 32 bits, and normalization may triple a text.
const MAX_TEXT: usize = 1 << 30;

/// How a text is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Put BOS, EOS or separators around the text where the vocabulary asks for it.
    pub add_special: bool,
    /// Read control tokens that are spelled out in the text. Leave this off for text that comes from users; added tokens
    /// that are not control tokens are always read.
    pub parse_special: bool,
}

impl Default for EncodeOptions {
    fn default() -> Self {
        Self { add_special: true, parse_special: false }
    }
}

/// The encoder of a kind of vocabulary.
#[derive(Debug)]
enum Encoder {
    Bpe(bpe::Bpe),
    Spm(spm::Spm),
    Wpm(wpm::Wpm),
    Ugm(ugm::Ugm),
}

/// A vocabulary, ready to encode and decode.
#[derive(Debug)]
pub struct Tokenizer {
    /// The bytes that each token stands for.
    tokens: TokenList,
    types: Vec<TokenType>,
    encoder: Encoder,
    matcher: SpecialMatcher,
    special: SpecialIds,
    end_of_generation: Vec<u32>,
    add_bos: bool,
    add_eos: bool,
    add_sep: bool,
    space_prefix: bool,
    warnings: Vec<String>,
}

impl Tokenizer {
    /// Checks a vocabulary and prepares it.
    ///
    /// # Errors
    /// [`TokenizerError`] if the vocabulary contradicts itself or is of an unknown kind. Oddities that have a defined
    /// meaning are accepted and listed by [`warnings`](Self::warnings).
    pub fn new(vocab: Vocab) -> Result<Self, TokenizerError> {
        load::load(vocab)
    }

    /// Encodes a text.
    ///
    /// # Errors
    /// [`TokenizerError::Unencodable`] if the vocabulary cannot express the text, [`TokenizerError::TextTooLong`].
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Result<Vec<u32>, TokenizerError> {
        if text.len() > MAX_TEXT {
            return Err(TokenizerError::TextTooLong { len: text.len(), limit: MAX_TEXT });
        }
        let mut out = Vec::with_capacity(text.len() / 3 + 4);
        if options.add_special && self.add_bos {
            out.extend(self.special.bos);
        }
        let mut scratch = cache::Scratch::for_text(text.len());
        let mut result = Ok(());
        let mut after_special = true;
        self.matcher.split(text, options.parse_special, |part| {
            if result.is_err() {
                return;
            }
            match part {
                Part::Token(id) => {
                    out.push(id);
                    after_special = true;
                }
                Part::Text(text) => {
                    result = match &self.encoder {
                        Encoder::Bpe(bpe) => bpe.encode(&self.tokens, text, &mut scratch, &mut out),
                        Encoder::Spm(spm) => {
                            let prefix = self.space_prefix && after_special;
                            spm.encode(&self.tokens, text, prefix, &mut scratch, &mut out)
                        }
                        Encoder::Wpm(wpm) => {
                            wpm.encode(text, &mut out);
                            Ok(())
                        }
                        Encoder::Ugm(ugm) => {
                            ugm.encode(text, &mut out);
                            Ok(())
                        }
                    };
                    after_special = false;
                }
            }
        });
        result?;
        if options.add_special && self.add_sep {
            out.extend(self.special.sep);
        }
        if options.add_special && self.add_eos {
            out.extend(self.special.eos);
        }
        Ok(out)
    }

    /// Decodes ids to text; what is not valid UTF-8 becomes U+FFFD.
    ///
    /// # Errors
    /// [`TokenizerError::UnknownId`].
    pub fn decode(&self, ids: &[u32], options: DecodeOptions) -> Result<String, TokenizerError> {
        let mut decoder = self.stream_decoder(options);
        let mut out = String::new();
        for &id in ids {
            out.push_str(decoder.push(id)?);
        }
        out.push_str(decoder.finish());
        Ok(out)
    }

    /// A decoder that takes ids one by one.
    #[must_use]
    pub fn stream_decoder(&self, options: DecodeOptions) -> StreamDecoder<&Self> {
        StreamDecoder::new(self, options)
    }

    /// The bytes that a token stands for; of a special token, its name.
    #[must_use]
    pub fn token_bytes(&self, id: u32) -> Option<&[u8]> {
        self.tokens.get(id as usize)
    }

    /// The type of a token.
    #[must_use]
    pub fn token_type(&self, id: u32) -> Option<TokenType> {
        self.types.get(id as usize).copied()
    }

    /// The token that stands for exactly this text: a special token of that name, else an ordinary token (`" hello"`).
    #[must_use]
    pub fn token_to_id(&self, text: &str) -> Option<u32> {
        let bytes = text.as_bytes();
        self.matcher.id_of(bytes).or_else(|| match &self.encoder {
            Encoder::Bpe(bpe) => bpe.id_of(&self.tokens, bytes),
            Encoder::Spm(spm) => spm.id_of(&self.tokens, bytes),
            Encoder::Wpm(wpm) => wpm.id_of(bytes),
            Encoder::Ugm(ugm) => ugm.id_of(bytes),
        })
    }

    /// Number of tokens.
    #[must_use]
    pub fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    /// Begin of sequence.
    #[must_use]
    pub fn bos(&self) -> Option<u32> {
        self.special.bos
    }

    /// End of sequence.
    #[must_use]
    pub fn eos(&self) -> Option<u32> {
        self.special.eos
    }

    /// All ids with a fixed role, as the file names them or as their spelling tells.
    #[must_use]
    pub fn special_ids(&self) -> &SpecialIds {
        &self.special
    }

    /// Whether `encode` with `add_special` puts BOS first.
    #[must_use]
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// Whether `encode` with `add_special` puts EOS last.
    #[must_use]
    pub fn adds_eos(&self) -> bool {
        self.add_eos
    }

    /// Whether a token ends a reply: EOS, end of turn, end of message, and what else is known to.
    #[must_use]
    pub fn is_eog(&self, id: u32) -> bool {
        self.end_of_generation.binary_search(&id).is_ok()
    }

    /// All ids for which [`is_eog`](Self::is_eog) holds, ascending.
    #[must_use]
    pub fn eog_ids(&self) -> &[u32] {
        &self.end_of_generation
    }

    /// Whether a token is a control token (or the unknown token), which decoding leaves out unless asked not to.
    #[must_use]
    pub fn is_control(&self, id: u32) -> bool {
        matches!(self.token_type(id), Some(TokenType::Control | TokenType::Unknown))
    }

    /// What was odd about the vocabulary, for a person to read.
    #[must_use]
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Whether encoding puts a space before a text, which decoding then takes away.
    pub(crate) fn has_space_prefix(&self) -> bool {
        self.space_prefix
    }
}

impl AsRef<Self> for Tokenizer {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// The pieces that the pre-tokenizer of that name (a value of `tokenizer.ggml.pre`) cuts a text into, for inspection.
/// Encoding does the same without collecting them.
///
/// # Errors
/// [`TokenizerError::UnknownPreTokenizer`].
pub fn pretokenize<'t>(name: &str, text: &'t str) -> Result<Vec<&'t str>, TokenizerError> {
    let preset =
        pretokenize::preset(name).ok_or_else(|| TokenizerError::UnknownPreTokenizer(name.to_owned()))?;
    let mut pieces = Vec::new();
    pretokenize::Pretokenizer::new(preset.steps)
        .split(text.as_bytes(), &mut |start, end| pieces.extend(text.get(start..end)));
    Ok(pieces)
}

/// Replaces U+2581 by a space.
fn unescape_spaces(text: Cow<'_, [u8]>) -> Cow<'_, [u8]> {
    let find = |mut from: usize| {
        loop {
            let rest = text.get(from..)?;
            from += rest.iter().position(|b| *b == SPACE_MARK[0])?;
            if text.get(from..from + SPACE_MARK.len()) == Some(SPACE_MARK) {
                return Some(from);
            }
            from += 1;
        }
    };
    let Some(mut mark) = find(0) else { return text };
    let mut out = Vec::with_capacity(text.len());
    let mut done = 0;
    loop {
        out.extend_from_slice(text.get(done..mark).unwrap_or_default());
        out.push(b' ');
        done = mark + SPACE_MARK.len();
        match find(done) {
            Some(next) => mark = next,
            None => break,
        }
    }
    out.extend_from_slice(text.get(done..).unwrap_or_default());
    Cow::Owned(out)
}
