//! The unigram language model (Kudo 2018): of all ways to cut the normalized text into tokens, the one with the highest
//! sum of scores, found by Viterbi's algorithm.

use super::charsmap::Charsmap;
use super::trie::Trie;
use super::vocab::{TokenList, TokenType};
use super::{TokenizerError, utf8};

/// An unknown character costs this much more than the worst token.
const UNKNOWN_PENALTY: f32 = 10.0;

/// What becomes of white space.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spaces {
    /// A space is put before the text.
    pub(crate) prefix: bool,
    /// Runs of spaces shrink to one, and those at the ends vanish.
    pub(crate) merge: bool,
}

/// A unigram vocabulary, ready to encode.
#[derive(Debug)]
pub(crate) struct Ugm {
    trie: Trie,
    /// Score of each token.
    scores: Vec<f32>,
    unknown_score: f64,
    unk: u32,
    charsmap: Charsmap,
    spaces: Spaces,
}

/// The best way to the end of a token.
#[derive(Clone, Copy)]
struct Best {
    score: f64,
    id: u32,
    start: u32,
}

impl Ugm {
    /// Prepares `tokens`. `scores` holds one number a token and no NaN.
    pub(crate) fn new(
        tokens: &TokenList,
        types: &[TokenType],
        scores: &[f32],
        unk: u32,
        charsmap: Charsmap,
        spaces: Spaces,
    ) -> Result<Self, TokenizerError> {
        let is_text =
            |ty: TokenType| matches!(ty, TokenType::Normal | TokenType::UserDefined | TokenType::Unused);
        let ids = (0u32..).zip(types).filter(|&(_, &ty)| is_text(ty)).map(|(id, _)| id);
        let trie = Trie::new(tokens, ids)?;
        let worst = types
            .iter()
            .zip(scores)
            .filter(|(ty, _)| **ty == TokenType::Normal)
            .map(|(_, &score)| score)
            .fold(f32::MAX, f32::min);
        // Added tokens count as certain, so that they are preferred to any other way.
        let scores = types
            .iter()
            .zip(scores)
            .map(|(ty, &score)| if *ty == TokenType::UserDefined { 0.0 } else { score })
            .collect();
        let unknown_score = f64::from(worst - UNKNOWN_PENALTY);
        Ok(Self { trie, scores, unknown_score, unk, charsmap, spaces })
    }

    /// Id of the token with exactly these bytes.
    pub(crate) fn id_of(&self, bytes: &[u8]) -> Option<u32> {
        self.trie.get(bytes)
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let text = self.normalize(text.as_bytes());
        if text.is_empty() {
            return;
        }
        let unreached = Best { score: f64::NEG_INFINITY, id: self.unk, start: 0 };
        let mut best = vec![unreached; text.len() + 1];
        if let Some(origin) = best.first_mut() {
            origin.score = 0.0;
        }
        let mut pos = 0;
        while pos < text.len() {
            let so_far = best.get(pos).map_or(f64::NEG_INFINITY, |b| b.score);
            let mut offer = |len: usize, id: u32, score: f64| {
                if let Some(champion) = best.get_mut(pos + len)
                    && so_far + score > champion.score
                {
                    *champion = Best { score: so_far + score, id, start: pos as u32 };
                }
            };
            let char_len = utf8::len_at(&text, pos);
            let mut char_is_token = false;
            self.trie.prefixes(text.get(pos..).unwrap_or_default(), |len, id| {
                char_is_token |= len == char_len;
                offer(len, id, self.scores.get(id as usize).copied().map_or(0.0, f64::from));
            });
            if !char_is_token {
                offer(char_len, self.unk, self.unknown_score);
            }
            pos += char_len;
        }
        let from = out.len();
        let mut end = text.len();
        let mut after_unknown = false;
        while end > 0 {
            let Some(step) = best.get(end) else { break };
            let unknown = step.id == self.unk;
            // Neighbouring unknown characters are one unknown token.
            if !(unknown && after_unknown) {
                out.push(step.id);
            }
            after_unknown = unknown;
            // Starts precede ends; a character boundary that nothing reached cannot occur, but must not loop.
            end = (step.start as usize).min(end - 1);
        }
        if let Some(appended) = out.get_mut(from..) {
            appended.reverse();
        }
    }

    /// The text as the vocabulary was trained on it, with plain spaces.
    fn normalize(&self, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() + text.len() / 4 + 1);
        let mut in_word = false;
        // With `merge` the space before the first word comes from the loop.
        if self.spaces.prefix && !self.spaces.merge && !text.is_empty() {
            out.push(b' ');
        }
        let mut put = |replacement: &[u8]| {
            for &b in replacement {
                if b == b' ' {
                    in_word = false;
                    if !self.spaces.merge {
                        out.push(b' ');
                    }
                } else {
                    if !in_word && self.spaces.merge {
                        out.push(b' ');
                    }
                    in_word = true;
                    out.push(b);
                }
            }
        };
        let mut pos = 0;
        while pos < text.len() {
            let rest = text.get(pos..).unwrap_or_default();
            if let Some((len, replacement)) = self.charsmap.longest(rest) {
                put(replacement);
                pos += len;
            } else {
                let len = utf8::len_at(text, pos);
                put(rest.get(..len).unwrap_or_default());
                pos += len;
            }
        }
        super::unescape_spaces(out.into()).into_owned()
    }
}
