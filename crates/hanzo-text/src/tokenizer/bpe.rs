//! Byte-pair encoding with ranked merges (Sennrich et al. 2016; byte-level as in GPT-2).
//!
//! Merges are resolved to pairs of ids when the vocabulary is loaded, so that encoding never builds a string. Symbols
//! start as bytes, or as characters for vocabularies in SentencePiece's spelling.

use super::byte_level;
use super::cache::Scratch;
use super::merge::{MergeRule, NO_ID, Symbols};
use super::pretokenize::{Cuts, Preset, Pretokenizer, Step};
use super::table::{ByteMap, Merge, PairMap};
use super::vocab::{TokenList, TokenType};
use super::{TokenizerError, unescape_spaces, utf8};
use std::borrow::Cow;
use std::collections::HashSet;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

/// Types of the tokens that merging makes.
const ORDINARY: [TokenType; 2] = [TokenType::Normal, TokenType::Unused];

/// A BPE vocabulary, ready to encode.
#[derive(Debug)]
pub(crate) struct Bpe {
    map: ByteMap,
    merges: Merges,
    /// Token of each byte, or [`NO_ID`].
    bytes: Box<[u32; 256]>,
    unk: Option<u32>,
    pre: Pretokenizer,
    whole_pieces_first: bool,
    nfc: bool,
    by_character: bool,
    metaspace: bool,
}

#[derive(Debug)]
struct Merges(PairMap);

impl MergeRule for Merges {
    #[inline]
    fn find(&self, left: u32, right: u32, _: &[u8]) -> Option<(u32, u32)> {
        self.0.get(left, right)
    }
}

impl Bpe {
    /// Resolves `merges` over `tokens`, whose spellings have been turned into the bytes they stand for.
    ///
    /// `byte_tokens[b]` is the token spelled `<0xHH>`. Merges that name a piece which is not in the vocabulary can never
    /// apply; they are counted in the second value.
    pub(crate) fn new(
        tokens: &TokenList,
        types: &[TokenType],
        merges: &TokenList,
        preset: Preset,
        byte_tokens: Box<[u32; 256]>,
        unk: Option<u32>,
        nfc: bool,
    ) -> Result<(Self, usize), TokenizerError> {
        if merges.is_empty() {
            return Err(TokenizerError::MissingMerges);
        }
        // Ordinary tokens win over added ones with the same bytes.
        let mut map = ByteMap::with_capacity(tokens.len());
        let mut repeated = HashSet::new();
        for wanted in [&ORDINARY[..], &[TokenType::UserDefined]] {
            for (id, ty) in (0u32..).zip(types) {
                if !wanted.contains(ty) || tokens.get(id as usize).is_none_or(<[u8]>::is_empty) {
                    continue;
                }
                if map.insert(tokens, id).is_some() {
                    repeated.insert(id);
                }
            }
        }
        let by_character = preset.sentencepiece_spelling;
        let mut bytes = byte_tokens;
        if !by_character {
            for (b, slot) in (0..=u8::MAX).zip(bytes.iter_mut()) {
                *slot = map.get(tokens, &[b]).unwrap_or(NO_ID);
            }
        }
        let is_merge_result = |id: u32| {
            let ordinary = types.get(id as usize).is_some_and(|ty| ORDINARY.contains(ty));
            ordinary && (repeated.is_empty() || !repeated.contains(&id))
        };
        let (merges, skipped) = resolve(tokens, &map, merges, is_merge_result, by_character)?;
        let mut steps = preset.steps;
        if by_character {
            steps.push(Step::Spaces(if preset.metaspace {
                Cuts::new(std::iter::empty())
            } else {
                Cuts::new(tokens.iter())
            }));
        }
        let bpe = Self {
            map,
            merges: Merges(merges),
            bytes,
            unk,
            pre: Pretokenizer::new(steps),
            whole_pieces_first: preset.whole_pieces_first,
            nfc,
            by_character,
            metaspace: preset.metaspace,
        };
        Ok((bpe, skipped))
    }

    /// Id of the token with exactly these bytes.
    pub(crate) fn id_of(&self, tokens: &TokenList, bytes: &[u8]) -> Option<u32> {
        self.map.get(tokens, bytes)
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(
        &self,
        tokens: &TokenList,
        text: &str,
        scratch: &mut Scratch,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let normalized = if self.nfc && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            Cow::Owned(text.nfc().collect::<String>())
        } else {
            Cow::Borrowed(text)
        };
        let mut text = Cow::Borrowed(normalized.as_bytes());
        if self.by_character {
            text = unescape_spaces(text);
        }
        if self.metaspace {
            text = Cow::Owned(space_before_lines(&text));
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
        let whole = if self.by_character {
            // A run of line feeds is one word even where no merges lead to it.
            piece.iter().all(|&b| b == b'\n')
        } else {
            self.whole_pieces_first
        };
        if whole && let Some(id) = self.map.get(tokens, piece) {
            out.push(id);
            return Ok(());
        }
        symbols.clear();
        let mut pos = 0;
        while let Some(&b) = piece.get(pos) {
            let len = if self.by_character { utf8::len_at(piece, pos) } else { 1 };
            let id = if self.by_character {
                self.map.get(tokens, piece.get(pos..pos + len).unwrap_or_default()).unwrap_or(NO_ID)
            } else {
                self.bytes.get(usize::from(b)).copied().unwrap_or(NO_ID)
            };
            symbols.push(id, pos);
            pos += len;
        }
        symbols.merge(&self.merges, piece);
        let from = out.len();
        for (id, covered) in symbols.iter(piece) {
            if id == NO_ID {
                push_bytes((&self.bytes, self.unk), covered, self.by_character, from, out)?;
            } else {
                out.push(id);
            }
        }
        Ok(())
    }
}

/// What stands for text that is no token: its bytes, if all have tokens, else the unknown token. An unknown token directly
/// after another that this piece (`out[from..]`) ends with is left out if `fuse`.
pub(crate) fn push_bytes(
    fallback: (&[u32; 256], Option<u32>),
    text: &[u8],
    fuse: bool,
    from: usize,
    out: &mut Vec<u32>,
) -> Result<(), TokenizerError> {
    let (bytes, unk) = fallback;
    let id = |b: u8| bytes.get(usize::from(b)).copied().unwrap_or(NO_ID);
    match (text.iter().find(|&&b| id(b) == NO_ID), unk) {
        (None, _) => out.extend(text.iter().map(|&b| id(b))),
        (Some(_), Some(unk)) if fuse && out.len() > from && out.last() == Some(&unk) => {}
        (Some(_), Some(unk)) => out.push(unk),
        (Some(&byte), None) => {
            return Err(TokenizerError::Unencodable {
                byte,
                text: String::from_utf8_lossy(text).into_owned(),
            });
        }
    }
    Ok(())
}

fn resolve(
    tokens: &TokenList,
    map: &ByteMap,
    merges: &TokenList,
    is_result: impl Fn(u32) -> bool,
    by_character: bool,
) -> Result<(PairMap, usize), TokenizerError> {
    let mut pairs = Vec::with_capacity(merges.len());
    let mut skipped = 0;
    let mut joined = Vec::new();
    // Merges are usually listed in the order of the tokens they make, so the next token is tried before the table.
    let mut last = 0;
    for (index, merge) in merges.iter().enumerate() {
        // The separator is the first space that is not the first character.
        let space = merge.iter().skip(1).position(|&b| b == b' ').map(|i| i + 1);
        let Some((left, right)) = space.and_then(|i| Some((merge.get(..i)?, merge.get(i + 1..)?))) else {
            return Err(TokenizerError::BadMerge { index });
        };
        if right.is_empty() {
            return Err(TokenizerError::BadMerge { index });
        }
        joined.clear();
        spell(left, by_character, &mut joined);
        let middle = joined.len();
        spell(right, by_character, &mut joined);
        let (left, right) = joined.split_at(middle);
        let expected = [last + 1, last]
            .into_iter()
            .find(|&id| is_result(id) && tokens.get(id as usize) == Some(&joined));
        let merged = expected.or_else(|| map.get(tokens, &joined));
        match (map.get(tokens, left), map.get(tokens, right), merged) {
            (Some(left), Some(right), Some(merged)) => {
                last = merged;
                pairs.push(Merge { left, right, rank: index as u32, merged });
            }
            _ => skipped += 1,
        }
    }
    Ok((PairMap::new(&pairs), skipped))
}

/// Appends the bytes that a spelling stands for.
fn spell(spelling: &[u8], by_character: bool, out: &mut Vec<u8>) {
    if by_character {
        out.extend_from_slice(&unescape_spaces(Cow::Borrowed(spelling)));
    } else if !byte_level::decode(spelling, out) {
        out.extend_from_slice(spelling);
    }
}

/// Text in which every line that is not empty begins with a space.
fn space_before_lines(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 16);
    let mut previous = b'\n';
    for &b in text {
        if previous == b'\n' && b != b'\n' && b != b' ' {
            out.push(b' ');
        }
        out.push(b);
        previous = b;
    }
    out
}
