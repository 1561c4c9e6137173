//! What can be wrong with a vocabulary or with a text for it. Each case names the token, key or byte and the limit.

/// Why a vocabulary is unusable or a text cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerError {
    /// `tokenizer.ggml.model` names a kind of vocabulary that is not implemented.
    #[error("tokenizer model {0:?} is not supported (supported: gpt2, gemma4, llama, bert, t5)")]
    UnknownModel(String),
    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not implemented; guessing would tokenize wrongly.
    #[error(
        "pre-tokenizer {0:?} is not known; set tokenizer.ggml.pre to a known name (\"default\" if in doubt)"
    )]
    UnknownPreTokenizer(String),
    /// The vocabulary holds no token at all.
    #[error("the vocabulary has no tokens")]
    NoTokens,
    /// More tokens, or more bytes of tokens, than is sane.
    #[error("the vocabulary is too large: {what} is {found}, the limit is {limit}")]
    TooLarge {
        /// The quantity that exceeds its limit.
        what: &'static str,
        /// Its value.
        found: usize,
        /// The limit.
        limit: usize,
    },
    /// A single token is longer than any real one.
    #[error("token {id} has {len} bytes, the limit is {limit}")]
    TokenTooLong {
        /// Token id.
        id: usize,
        /// Its length in bytes.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// An array that runs parallel to the tokens has another length.
    #[error("{what} has {found} entries for {expected} tokens")]
    LengthMismatch {
        /// The array.
        what: &'static str,
        /// Its length.
        found: usize,
        /// Number of tokens.
        expected: usize,
    },
    /// A special id does not exist in the vocabulary.
    #[error("{what} is {id}, but the vocabulary has {n_tokens} tokens")]
    SpecialOutOfRange {
        /// Which special id.
        what: &'static str,
        /// Its value.
        id: u32,
        /// Number of tokens.
        n_tokens: usize,
    },
    /// A score is NaN, so pieces cannot be ordered by it.
    #[error("the score of token {id} is not a number")]
    BadScore {
        /// Token id.
        id: usize,
    },
    /// A token of type "byte" is not of the form `<0xHH>`.
    #[error("token {id} has type byte, but {text:?} is not of the form <0xHH>")]
    BadByteToken {
        /// Token id.
        id: usize,
        /// Its text, cut to a printable length.
        text: String,
    },
    /// A byte-level BPE vocabulary without merges.
    #[error("a BPE vocabulary needs merges, none are given")]
    MissingMerges,
    /// A merge is not two pieces separated by one space.
    #[error("merge {index} is not two pieces separated by a space")]
    BadMerge {
        /// Position in the list of merges.
        index: usize,
    },
    /// A vocabulary of a kind that needs an unknown token has none.
    #[error("the vocabulary needs an unknown token, none is given")]
    MissingUnknown,
    /// The normalization table of a unigram vocabulary is damaged.
    #[error("the precompiled character map is damaged: {0}")]
    BadCharsmap(&'static str),
    /// The special tokens cannot be compiled into one matcher.
    #[error("the special tokens cannot be matched: {0}")]
    SpecialMatcher(String),
    /// A metadata key is absent or has the wrong type; the message names it.
    #[error("tokenizer metadata: {0}")]
    Metadata(String),
    /// The text holds a byte for which the vocabulary has neither a token nor an unknown token.
    #[error("byte 0x{byte:02X} of {text:?} has no token, and the vocabulary has no unknown token")]
    Unencodable {
        /// The byte.
        byte: u8,
        /// The character that it is part of.
        text: String,
    },
    /// The text is longer than the tokenizer's 32-bit offsets reach.
    #[error("the text has {len} bytes, the limit is {limit}")]
    TextTooLong {
        /// Length of the text.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// A token id that the vocabulary does not have.
    #[error("token id {id} is not in the vocabulary of {n_tokens} tokens")]
    UnknownId {
        /// The id.
        id: u32,
        /// Number of tokens.
        n_tokens: usize,
    },
}
