//! Turns a [`Vocab`] into a [`Tokenizer`]: checks, defaults of each kind, and the spelling of tokens.

use super::charsmap::Charsmap;
use super::merge::NO_ID;
use super::pretokenize::preset;
use super::special::{SpecialMatcher, Strip, assign_roles, known_names};
use super::ugm::Spaces;
use super::vocab::{SpecialIds, TokenList, TokenType, Vocab};
use super::{Encoder, Tokenizer, TokenizerError, bpe, byte_level, spm, ugm, unescape_spaces, wpm};
use std::borrow::Cow;
use std::collections::HashMap;

/// How tokens of a kind are spelled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spelling {
    ByteLevel,
    SentencePiece,
}

pub(super) fn load(vocab: Vocab) -> Result<Tokenizer, TokenizerError> {
    let n_tokens = vocab.tokens.len();
    if n_tokens == 0 {
        return Err(TokenizerError::NoTokens);
    }
    let mut warnings = Vec::new();
    let mut types = match vocab.token_types.len() {
        0 => vec![TokenType::Normal; n_tokens],
        n if n == n_tokens => vocab.token_types.clone(),
        found => {
            return Err(TokenizerError::LengthMismatch { what: "token types", found, expected: n_tokens });
        }
    };
    let mut special = vocab.special;
    check_special(&mut special, n_tokens, &mut warnings)?;

    let names = known_names(&vocab.tokens);
    let end_of_generation = assign_roles(&mut special, &mut types, |name| names.get(name).copied());

    match vocab.model.as_str() {
        "gpt2" | "gemma4" => load_bpe(&vocab, types, special, end_of_generation, warnings),
        "llama" => load_spm(&vocab, types, special, end_of_generation, warnings),
        "bert" => load_wpm(&vocab, types, special, end_of_generation, warnings),
        "t5" => load_ugm(&vocab, types, special, end_of_generation, warnings),
        _ => Err(TokenizerError::UnknownModel(vocab.model)),
    }
}

/// Ids that encoding uses must exist; others that do not are dropped with a warning.
fn check_special(
    special: &mut SpecialIds,
    n_tokens: usize,
    warnings: &mut Vec<String>,
) -> Result<(), TokenizerError> {
    let needed = [
        ("BOS", special.bos),
        ("EOS", special.eos),
        ("the unknown token", special.unk),
        ("SEP", special.sep),
    ];
    for (what, id) in needed {
        if let Some(id) = id.filter(|&id| id as usize >= n_tokens) {
            return Err(TokenizerError::SpecialOutOfRange { what, id, n_tokens });
        }
    }
    let optional = [
        ("end of turn", &mut special.eot),
        ("end of message", &mut special.eom),
        ("padding", &mut special.pad),
        ("mask", &mut special.mask),
        ("fill-in-the-middle prefix", &mut special.fim_pre),
        ("fill-in-the-middle suffix", &mut special.fim_suf),
        ("fill-in-the-middle middle", &mut special.fim_mid),
        ("fill-in-the-middle padding", &mut special.fim_pad),
        ("fill-in-the-middle repository", &mut special.fim_rep),
        ("fill-in-the-middle separator", &mut special.fim_sep),
    ];
    for (what, slot) in optional {
        if let Some(id) = slot.filter(|&id| id as usize >= n_tokens) {
            warnings.push(format!(
                "the {what} token is {id}, outside the vocabulary of {n_tokens}; it is ignored"
            ));
            *slot = None;
        }
    }
    Ok(())
}

/// Uses `default` for a role that is open, if it exists.
fn or_default(role: &mut Option<u32>, default: u32, n_tokens: usize) {
    if role.is_none() && (default as usize) < n_tokens {
        *role = Some(default);
    }
}

/// The tokens as the bytes they stand for, and the token of each byte that has one spelled `<0xHH>`.
fn spell(
    tokens: &TokenList,
    types: &[TokenType],
    spelling: Spelling,
) -> Result<(TokenList, Box<[u32; 256]>), TokenizerError> {
    let mut out = TokenList::with_capacity(tokens.len());
    let mut bytes = Box::new([NO_ID; 256]);
    let mut buffer = Vec::new();
    for ((id, token), ty) in tokens.iter().enumerate().zip(types) {
        match ty {
            TokenType::Byte => {
                let byte = parse_byte(token).ok_or_else(|| TokenizerError::BadByteToken {
                    id,
                    text: String::from_utf8_lossy(token.get(..32).unwrap_or(token)).into_owned(),
                })?;
                if let Some(slot) = bytes.get_mut(usize::from(byte)).filter(|slot| **slot == NO_ID) {
                    *slot = id as u32;
                }
                out.push(&[byte])?;
            }
            TokenType::Normal | TokenType::Unused | TokenType::UserDefined
                if spelling == Spelling::SentencePiece =>
            {
                out.push(&unescape_spaces(Cow::Borrowed(token)))?;
            }
            TokenType::Normal | TokenType::Unused => {
                buffer.clear();
                let decoded = byte_level::decode(token, &mut buffer);
                out.push(if decoded { &buffer } else { token })?;
            }
            TokenType::Unknown | TokenType::Control | TokenType::UserDefined => out.push(token)?,
        }
    }
    Ok((out, bytes))
}

/// The value of `<0xHH>`.
fn parse_byte(token: &[u8]) -> Option<u8> {
    let [high, low] = token.strip_prefix(b"<0x")?.strip_suffix(b">")? else { return None };
    let digit = |b: u8| char::from(b).to_digit(16);
    u8::try_from(digit(*high)? * 16 + digit(*low)?).ok()
}

/// One score a token, none NaN.
fn scores(vocab: &Vocab) -> Result<&[f32], TokenizerError> {
    if vocab.scores.len() != vocab.tokens.len() {
        return Err(TokenizerError::LengthMismatch {
            what: "scores",
            found: vocab.scores.len(),
            expected: vocab.tokens.len(),
        });
    }
    match vocab.scores.iter().position(|s| s.is_nan()) {
        Some(id) => Err(TokenizerError::BadScore { id }),
        None => Ok(&vocab.scores),
    }
}

fn load_bpe(
    vocab: &Vocab,
    types: Vec<TokenType>,
    special: SpecialIds,
    end_of_generation: Vec<u32>,
    mut warnings: Vec<String>,
) -> Result<Tokenizer, TokenizerError> {
    let name = match (vocab.model.as_str(), vocab.pre.as_deref()) {
        ("gemma4", _) => "gemma4",
        (_, Some(name)) if !name.is_empty() => name,
        _ => {
            warnings.push(
                "the file does not name its pre-tokenizer; the default one is used and may tokenize differently \
                 from what the model was trained on"
                    .to_owned(),
            );
            "default"
        }
    };
    let preset = preset(name).ok_or_else(|| TokenizerError::UnknownPreTokenizer(name.to_owned()))?;
    let mut add_bos = vocab.add_bos.unwrap_or(preset.add_bos);
    if name == "gemma4" && !add_bos {
        warnings.push("the file says not to add BOS, but Gemma 4 needs it; it is added".to_owned());
        add_bos = true;
    }
    let spelling = if preset.sentencepiece_spelling { Spelling::SentencePiece } else { Spelling::ByteLevel };
    let (tokens, bytes) = spell(&vocab.tokens, &types, spelling)?;
    let (bpe, skipped) =
        bpe::Bpe::new(&tokens, &types, &vocab.merges, preset, bytes, special.unk, vocab.nfc)?;
    if skipped > 0 {
        warnings
            .push(format!("{skipped} merges name pieces that are not in the vocabulary; they never apply"));
    }
    Parts { vocab, tokens, types, special, end_of_generation, warnings }.finish(
        Encoder::Bpe(bpe),
        Flags { add_bos, add_eos: vocab.add_eos.unwrap_or(false), add_sep: false, space_prefix: false },
    )
}

fn load_spm(
    vocab: &Vocab,
    types: Vec<TokenType>,
    mut special: SpecialIds,
    end_of_generation: Vec<u32>,
    warnings: Vec<String>,
) -> Result<Tokenizer, TokenizerError> {
    let n = vocab.tokens.len();
    or_default(&mut special.bos, 1, n);
    or_default(&mut special.eos, 2, n);
    or_default(&mut special.unk, 0, n);
    let (tokens, bytes) = spell(&vocab.tokens, &types, Spelling::SentencePiece)?;
    let spm = spm::Spm::new(&tokens, &types, scores(vocab)?, bytes, special.unk);
    Parts { vocab, tokens, types, special, end_of_generation, warnings }.finish(
        Encoder::Spm(spm),
        Flags {
            add_bos: vocab.add_bos.unwrap_or(true),
            add_eos: vocab.add_eos.unwrap_or(false),
            add_sep: false,
            space_prefix: vocab.add_space_prefix.unwrap_or(true),
        },
    )
}

fn load_wpm(
    vocab: &Vocab,
    types: Vec<TokenType>,
    mut special: SpecialIds,
    end_of_generation: Vec<u32>,
    warnings: Vec<String>,
) -> Result<Tokenizer, TokenizerError> {
    let n = vocab.tokens.len();
    or_default(&mut special.bos, 101, n);
    or_default(&mut special.sep, 102, n);
    or_default(&mut special.unk, 100, n);
    or_default(&mut special.pad, 0, n);
    or_default(&mut special.mask, 103, n);
    let unk = special.unk.ok_or(TokenizerError::MissingUnknown)?;
    let (tokens, _) = spell(&vocab.tokens, &types, Spelling::SentencePiece)?;
    let lowercase = vocab.lowercase.unwrap_or(true);
    let wpm = wpm::Wpm::new(&tokens, &types, unk, lowercase, vocab.strip_accents.unwrap_or(lowercase))?;
    Parts { vocab, tokens, types, special, end_of_generation, warnings }.finish(
        Encoder::Wpm(wpm),
        Flags {
            add_bos: vocab.add_bos.unwrap_or(true),
            add_eos: vocab.add_eos.unwrap_or(false),
            add_sep: vocab.add_sep.unwrap_or(true),
            space_prefix: true,
        },
    )
}

fn load_ugm(
    vocab: &Vocab,
    types: Vec<TokenType>,
    mut special: SpecialIds,
    end_of_generation: Vec<u32>,
    warnings: Vec<String>,
) -> Result<Tokenizer, TokenizerError> {
    let n = vocab.tokens.len();
    or_default(&mut special.eos, 1, n);
    or_default(&mut special.unk, 2, n);
    or_default(&mut special.pad, 0, n);
    let unk = special.unk.ok_or(TokenizerError::MissingUnknown)?;
    let (tokens, _) = spell(&vocab.tokens, &types, Spelling::SentencePiece)?;
    let charsmap = Charsmap::new(&vocab.precompiled_charsmap)?;
    let spaces = Spaces {
        prefix: vocab.add_space_prefix.unwrap_or(false),
        merge: vocab.remove_extra_whitespaces.unwrap_or(false),
    };
    let ugm = ugm::Ugm::new(&tokens, &types, scores(vocab)?, unk, charsmap, spaces)?;
    Parts { vocab, tokens, types, special, end_of_generation, warnings }.finish(
        Encoder::Ugm(ugm),
        Flags {
            add_bos: vocab.add_bos.unwrap_or(false),
            add_eos: vocab.add_eos.unwrap_or(true),
            add_sep: false,
            space_prefix: spaces.prefix || spaces.merge,
        },
    )
}

struct Flags {
    add_bos: bool,
    add_eos: bool,
    add_sep: bool,
    space_prefix: bool,
}

/// What all kinds have in common.
struct Parts<'v> {
    vocab: &'v Vocab,
    tokens: TokenList,
    types: Vec<TokenType>,
    special: SpecialIds,
    end_of_generation: Vec<u32>,
    warnings: Vec<String>,
}

impl Parts<'_> {
    fn finish(mut self, encoder: Encoder, flags: Flags) -> Result<Tokenizer, TokenizerError> {
        let mut ends = self.end_of_generation;
        ends.extend(self.special.eos);
        ends.sort_unstable();
        ends.dedup();
        let missing = [
            (flags.add_bos && self.special.bos.is_none(), "BOS"),
            (flags.add_eos && self.special.eos.is_none(), "EOS"),
            (flags.add_sep && self.special.sep.is_none(), "SEP"),
        ];
        for (_, what) in missing.into_iter().filter(|(is_missing, _)| *is_missing) {
            self.warnings.push(format!("{what} is to be added to texts, but the vocabulary has none"));
        }
        let strip = strip_rules(self.vocab, &self.types);
        let matcher = SpecialMatcher::new(&self.tokens, &self.types, strip)?;
        Ok(Tokenizer {
            add_bos: flags.add_bos && self.special.bos.is_some(),
            add_eos: flags.add_eos && self.special.eos.is_some(),
            add_sep: flags.add_sep && self.special.sep.is_some(),
            space_prefix: flags.space_prefix,
            tokens: self.tokens,
            types: self.types,
            encoder,
            matcher,
            special: self.special,
            end_of_generation: ends,
            warnings: self.warnings,
        })
    }
}

/// White space that belongs to special tokens. The container has no key for it, so it follows from the model's name.
fn strip_rules(vocab: &Vocab, types: &[TokenType]) -> HashMap<u32, Strip> {
    let mut rules = HashMap::new();
    let pre = vocab.pre.as_deref().unwrap_or_default();
    let name = vocab.model_name.as_deref().unwrap_or_default().to_ascii_lowercase();
    let phi3 = name.contains("phi-3") || name.contains("phi3");
    let mask: Option<&[u8]> = match pre {
        "jina-v2-de" | "jina-v2-es" | "jina-v2-code" | "mmbert" => Some(b"<mask>"),
        _ if name.contains("modern-bert") => Some(b"[MASK]"),
        _ => None,
    };
    for ((id, token), ty) in (0u32..).zip(vocab.tokens.iter()).zip(types) {
        let ordinary = matches!(ty, TokenType::Normal | TokenType::Byte | TokenType::Unused);
        if phi3 && (!ordinary && ![&b"<unk>"[..], b"<s>", b"<|endoftext|>"].contains(&token)) {
            rules.insert(id, Strip { left: false, right: true });
        } else if mask == Some(token) {
            rules.insert(id, Strip { left: true, right: false });
        }
    }
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_tokens() {
        assert_eq!(parse_byte(b"<0x0A>"), Some(10));
        assert_eq!(parse_byte(b"<0xff>"), Some(255));
        for bad in [&b"<0x-1>"[..], b"<0xZZ>", b"<0x1>", b"<0x123>", b"0x12", b"", b"<0x>", b"<0x+1>"] {
            assert_eq!(parse_byte(bad), None);
        }
    }
}
