//! WordPiece as BERT uses it (Devlin et al. 2019): text is cleaned, lower-cased and cut into words; each word is covered
//! greedily by the longest tokens, or becomes one unknown token.
//!
//! GGUF spells a piece that begins a word with a space mark and a continuation plainly (the reverse of BERT's `##`).

use super::TokenizerError;
use super::trie::Trie;
use super::vocab::{TokenList, TokenType};
use unicode_general_category::{GeneralCategory as Gc, get_general_category};
use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::is_combining_mark;

/// Words of more characters are unknown, as in the reference tokenizer.
const MAX_WORD_CHARS: usize = 100;

/// A WordPiece vocabulary, ready to encode.
#[derive(Debug)]
pub(crate) struct Wpm {
    trie: Trie,
    unk: u32,
    lowercase: bool,
    strip_accents: bool,
}

impl Wpm {
    /// Prepares `tokens`. `unk` stands for words that cannot be covered.
    pub(crate) fn new(
        tokens: &TokenList,
        types: &[TokenType],
        unk: u32,
        lowercase: bool,
        strip_accents: bool,
    ) -> Result<Self, TokenizerError> {
        let is_text = |ty: &TokenType| !matches!(ty, TokenType::Control | TokenType::Unknown);
        let ids = (0u32..).zip(types).filter(|(_, ty)| is_text(ty)).map(|(id, _)| id);
        Ok(Self { trie: Trie::new(tokens, ids)?, unk, lowercase, strip_accents })
    }

    /// Id of the token with exactly these bytes.
    pub(crate) fn id_of(&self, bytes: &[u8]) -> Option<u32> {
        self.trie.get(bytes)
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        if self.strip_accents {
            self.words(text.nfd().filter(|&c| !is_nonspacing(c)), out);
        } else {
            self.words(text.chars(), out);
        }
    }

    fn words(&self, chars: impl Iterator<Item = char>, out: &mut Vec<u32>) {
        let mut word = String::from(" ");
        let mut n_chars = 0;
        let mut flush = |word: &mut String, n_chars: &mut usize| {
            if *n_chars > 0 {
                self.word(word.as_bytes(), *n_chars, out);
                word.truncate(1);
                *n_chars = 0;
            }
        };
        for c in chars {
            if is_dropped(c) {
                // Control characters vanish without separating words.
            } else if c.is_whitespace() {
                flush(&mut word, &mut n_chars);
            } else if is_chinese(c) || is_punctuation(c) {
                flush(&mut word, &mut n_chars);
                word.push(c);
                n_chars = 1;
                flush(&mut word, &mut n_chars);
            } else if n_chars > MAX_WORD_CHARS {
                // The word is already unknown; its rest need not be kept.
            } else if self.lowercase {
                for l in c.to_lowercase() {
                    word.push(l);
                    n_chars += 1;
                }
            } else {
                word.push(c);
                n_chars += 1;
            }
        }
        flush(&mut word, &mut n_chars);
    }

    /// Covers one word, given with its leading space.
    fn word(&self, word: &[u8], n_chars: usize, out: &mut Vec<u32>) {
        let from = out.len();
        let mut pos = 0;
        while pos < word.len() && n_chars <= MAX_WORD_CHARS {
            let mut longest = None;
            self.trie.prefixes(word.get(pos..).unwrap_or_default(), |len, id| longest = Some((len, id)));
            let Some((len, id)) = longest else { break };
            out.push(id);
            pos += len;
        }
        if pos < word.len() {
            out.truncate(from);
            out.push(self.unk);
        }
    }
}

fn is_nonspacing(c: char) -> bool {
    is_combining_mark(c) && get_general_category(c) == Gc::NonspacingMark
}

fn is_dropped(c: char) -> bool {
    c == char::REPLACEMENT_CHARACTER
        || !matches!(c, '\t' | '\n' | '\r')
            && !c.is_ascii_graphic()
            && matches!(get_general_category(c), Gc::Control | Gc::Format | Gc::PrivateUse)
}

fn is_punctuation(c: char) -> bool {
    use Gc::{
        ClosePunctuation, ConnectorPunctuation, DashPunctuation, FinalPunctuation, InitialPunctuation,
        OpenPunctuation, OtherPunctuation,
    };
    c.is_ascii_punctuation()
        || !c.is_ascii()
            && matches!(
                get_general_category(c),
                ConnectorPunctuation
                    | DashPunctuation
                    | OpenPunctuation
                    | ClosePunctuation
                    | InitialPunctuation
                    | FinalPunctuation
                    | OtherPunctuation
            )
}

/// The CJK blocks that the reference tokenizer isolates. It starts the block of extension E at U+2B920; so do we.
fn is_chinese(c: char) -> bool {
    matches!(c as u32,
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x2_0000..=0x2_A6DF | 0x2_A700..=0x2_B73F | 0x2_B740..=0x2_B81F
        | 0x2_B920..=0x2_CEAF | 0xF900..=0xFAFF | 0x2_F800..=0x2_FA1F)
}
