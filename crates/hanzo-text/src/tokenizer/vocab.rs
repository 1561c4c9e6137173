//! The vocabulary as plain data: what a file says, before anything is derived from it.
//!
//! Nothing here is checked; [`Tokenizer::new`](super::Tokenizer::new) does that. Strings are kept in one arena
//! ([`TokenList`]) because a vocabulary of 262 144 separate `Vec`s costs more to allocate than to use.

use super::TokenizerError;

/// Longest token accepted, in bytes. Real vocabularies stay below 1 KiB.
pub const MAX_TOKEN_LEN: usize = 64 * 1024;
/// Most tokens accepted.
pub const MAX_TOKENS: usize = 1 << 24;
/// Most bytes accepted over all strings of one list.
pub const MAX_LIST_BYTES: usize = 1 << 30;

/// A list of byte strings in one allocation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenList {
    bytes: Vec<u8>,
    ends: Vec<u32>,
}

impl TokenList {
    /// An empty list.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty list with room for `n` strings.
    #[must_use]
    pub fn with_capacity(n: usize) -> Self {
        let n = n.min(MAX_TOKENS);
        Self { bytes: Vec::with_capacity(n.saturating_mul(8)), ends: Vec::with_capacity(n) }
    }

    /// Appends a string.
    ///
    /// # Errors
    /// [`TokenizerError::TokenTooLong`] and [`TokenizerError::TooLarge`] keep one list within fixed bounds.
    pub fn push(&mut self, s: &[u8]) -> Result<(), TokenizerError> {
        let id = self.ends.len();
        if s.len() > MAX_TOKEN_LEN {
            return Err(TokenizerError::TokenTooLong { id, len: s.len(), limit: MAX_TOKEN_LEN });
        }
        if id >= MAX_TOKENS {
            return Err(TokenizerError::TooLarge {
                what: "number of strings",
                found: id + 1,
                limit: MAX_TOKENS,
            });
        }
        let total = self.bytes.len() + s.len();
        if total > MAX_LIST_BYTES {
            return Err(TokenizerError::TooLarge {
                what: "bytes of strings",
                found: total,
                limit: MAX_LIST_BYTES,
            });
        }
        self.bytes.extend_from_slice(s);
        // The bound above keeps the total below 2^32.
        self.ends.push(total as u32);
        Ok(())
    }

    /// Collects strings.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn from_strings<'a>(strings: impl IntoIterator<Item = &'a [u8]>) -> Result<Self, TokenizerError> {
        let iter = strings.into_iter();
        let mut list = Self::with_capacity(iter.size_hint().0);
        for s in iter {
            list.push(s)?;
        }
        Ok(list)
    }

    /// Number of strings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there is no string.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// String `i`, if there is one.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let end = *self.ends.get(i)? as usize;
        let start = if i == 0 { 0 } else { *self.ends.get(i - 1)? as usize };
        self.bytes.get(start..end)
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        let mut start = 0usize;
        self.ends.iter().map(move |&end| {
            let s = self.bytes.get(start..end as usize).unwrap_or_default();
            start = end as usize;
            s
        })
    }
}

/// The role of a token, as GGUF's `tokenizer.ggml.token_type` numbers them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenType {
    /// Ordinary piece of text.
    Normal,
    /// Stands for what the vocabulary cannot express.
    Unknown,
    /// Never part of a user's text: BOS, end of turn, …
    Control,
    /// Added by hand; matched before anything else.
    UserDefined,
    /// Reserved; never produced from text.
    Unused,
    /// A single byte, written `<0xHH>`.
    Byte,
}

impl TokenType {
    /// The type with GGUF's number `n`; numbers outside 1 to 6 count as unused.
    #[must_use]
    pub fn from_gguf(n: i32) -> Self {
        match n {
            1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            6 => Self::Byte,
            _ => Self::Unused,
        }
    }
}

/// Ids with a fixed role, where the vocabulary names them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpecialIds {
    /// Begin of sequence (`[CLS]` of BERT vocabularies).
    pub bos: Option<u32>,
    /// End of sequence.
    pub eos: Option<u32>,
    /// End of turn.
    pub eot: Option<u32>,
    /// End of message.
    pub eom: Option<u32>,
    /// Unknown.
    pub unk: Option<u32>,
    /// Separator.
    pub sep: Option<u32>,
    /// Padding.
    pub pad: Option<u32>,
    /// Mask.
    pub mask: Option<u32>,
    /// Fill-in-the-middle: text before the hole.
    pub fim_pre: Option<u32>,
    /// Fill-in-the-middle: text after the hole.
    pub fim_suf: Option<u32>,
    /// Fill-in-the-middle: start of the answer.
    pub fim_mid: Option<u32>,
    /// Fill-in-the-middle: padding.
    pub fim_pad: Option<u32>,
    /// Fill-in-the-middle: repository name.
    pub fim_rep: Option<u32>,
    /// Fill-in-the-middle: file separator.
    pub fim_sep: Option<u32>,
}

/// Everything a file says about its tokenizer. Fields left `None` take the default of the kind of vocabulary.
#[derive(Debug, Clone, Default)]
pub struct Vocab {
    /// Kind of vocabulary: `gpt2`, `gemma4`, `llama`, `bert` or `t5`.
    pub model: String,
    /// Name of the pre-tokenizer (BPE kinds only).
    pub pre: Option<String>,
    /// `general.name`; a few models' token attributes depend on it, since the container has no key for them.
    pub model_name: Option<String>,
    /// Spelling of every token, `[n_tokens]`.
    pub tokens: TokenList,
    /// Scores `[n_tokens]`, or empty.
    pub scores: Vec<f32>,
    /// Types `[n_tokens]`, or empty (all normal).
    pub token_types: Vec<TokenType>,
    /// Merges in order of rank, each two spellings separated by a space.
    pub merges: TokenList,
    /// Ids with a fixed role.
    pub special: SpecialIds,
    /// Whether BOS is put before a text.
    pub add_bos: Option<bool>,
    /// Whether EOS is put after a text.
    pub add_eos: Option<bool>,
    /// Whether a separator is put after a text (BERT kinds).
    pub add_sep: Option<bool>,
    /// Whether a space is put before a text (SPM and UGM kinds).
    pub add_space_prefix: Option<bool>,
    /// Whether runs of spaces shrink to one (UGM kinds).
    pub remove_extra_whitespaces: Option<bool>,
    /// Whether text is lower-cased (BERT kinds; default yes).
    pub lowercase: Option<bool>,
    /// Whether accents are removed (BERT kinds; default as `lowercase`).
    pub strip_accents: Option<bool>,
    /// Whether text is brought to Unicode normalization form C first (BPE kinds). GGUF has no key for it and engines that
    /// read GGUF do not do it, so `from_gguf` leaves it off, although Qwen's and GPT-NeoX's own tokenizers do.
    pub nfc: bool,
    /// SentencePiece's compiled normalization table (UGM kinds), or empty.
    pub precompiled_charsmap: Vec<u8>,
}
