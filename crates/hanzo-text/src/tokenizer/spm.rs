//! SentencePiece BPE (Kudo and Richardson 2018): adjacent symbols merge when together they are a token, best score
//! first; what is left is spelled in byte tokens.
//!
//! Tokens are kept with plain spaces instead of U+2581, so text needs no escaping. The text is cut before spaces where no
//! token reaches over (see [`Cuts`]), which changes nothing in the result and makes words cacheable.

use super::bpe::push_bytes;
use super::cache::Scratch;
use super::merge::{MergeRule, NO_ID, Symbols};
use super::pretokenize::{Cuts, Pretokenizer, Step};
use super::table::ByteMap;
use super::vocab::{TokenList, TokenType};
use super::{TokenizerError, unescape_spaces, utf8};
use std::borrow::Cow;

/// A SentencePiece BPE vocabulary, ready to encode.
#[derive(Debug)]
pub(crate) struct Spm {
    map: ByteMap,
    /// Merge order of each token: lower for a better score.
    ranks: Vec<u32>,
    bytes: Box<[u32; 256]>,
    unk: Option<u32>,
    pre: Pretokenizer,
}

struct Rule<'a> {
    spm: &'a Spm,
    tokens: &'a TokenList,
}

impl MergeRule for Rule<'_> {
    #[inline]
    fn find(&self, _: u32, _: u32, text: &[u8]) -> Option<(u32, u32)> {
        let id = self.spm.map.get(self.tokens, text)?;
        Some((*self.spm.ranks.get(id as usize)?, id))
    }
}

impl Spm {
    /// Prepares `tokens`. `scores` holds one number a token and no NaN.
    pub(crate) fn new(
        tokens: &TokenList,
        types: &[TokenType],
        scores: &[f32],
        byte_tokens: Box<[u32; 256]>,
        unk: Option<u32>,
    ) -> Self {
        let mut map = ByteMap::with_capacity(tokens.len());
        for (id, ty) in (0u32..).zip(types) {
            let is_text = matches!(ty, TokenType::Normal | TokenType::UserDefined);
            if is_text && tokens.get(id as usize).is_some_and(|t| !t.is_empty()) {
                map.insert(tokens, id);
            }
        }
        let ranks = scores.iter().map(|&s| descending(s)).collect();
        let pre = Pretokenizer::new(vec![Step::Spaces(Cuts::new(tokens.iter()))]);
        Self { map, ranks, bytes: byte_tokens, unk, pre }
    }

    /// Id of the token with exactly these bytes.
    pub(crate) fn id_of(&self, tokens: &TokenList, bytes: &[u8]) -> Option<u32> {
        self.map.get(tokens, bytes)
    }

    /// Appends the ids of `text`, with a space before it if `space_prefix`.
    pub(crate) fn encode(
        &self,
        tokens: &TokenList,
        text: &str,
        space_prefix: bool,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut text = unescape_spaces(Cow::Borrowed(text.as_bytes()));
        if space_prefix {
            text.to_mut().insert(0, b' ');
        }
        let text = text.as_ref();
        let Scratch { cache, symbols } = scratch;
        let mut result = Ok(());
        self.pre.split(text, &mut |start, end| {
            if result.is_err() {
                return;
            }
            let piece = text.get(start..end).unwrap_or_default();
            if let Err(miss) = cache.replay(piece, out) {
                let from = out.len();
                result = self.piece(tokens, piece, symbols, out);
                cache.store(miss, piece, from, out);
            }
        });
        result
    }

    fn piece(
        &self,
        tokens: &TokenList,
        piece: &[u8],
        symbols: &mut Symbols,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        symbols.clear();
        let mut pos = 0;
        while pos < piece.len() {
            let len = utf8::len_at(piece, pos);
            let character = piece.get(pos..pos + len).unwrap_or_default();
            symbols.push(self.map.get(tokens, character).unwrap_or(NO_ID), pos);
            pos += len;
        }
        symbols.merge(&Rule { spm: self, tokens }, piece);
        let from = out.len();
        for (id, covered) in symbols.iter(piece) {
            if id == NO_ID {
                push_bytes((&self.bytes, self.unk), covered, true, from, out)?;
            } else {
                out.push(id);
            }
        }
        Ok(())
    }
}

/// Numbers that order as the scores do, reversed, and never reach `u32::MAX`.
fn descending(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits(); // + 0.0 makes -0.0 equal 0.0
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranks_order_as_scores(a in any::<f32>(), b in any::<f32>()) {
            prop_assume!(!a.is_nan() && !b.is_nan());
            prop_assert_eq!(descending(a).cmp(&descending(b)), b.partial_cmp(&a).unwrap());
            prop_assert!(descending(a) < u32::MAX);
        }
    }
}
