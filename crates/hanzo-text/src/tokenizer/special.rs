//! Special tokens: cutting them out of text, and knowing their roles by name where files do not say.

use super::TokenizerError;
use super::vocab::{SpecialIds, TokenList, TokenType};
use aho_corasick::{AhoCorasick, MatchKind};
use std::collections::HashMap;

/// Most bytes of special tokens that are compiled into the matcher.
const MAX_PATTERN_BYTES: usize = 8 << 20;

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    /// Ordinary text, not empty.
    Text(&'t str),
    /// A special token.
    Token(u32),
}

/// Finds special tokens in text, leftmost and among those longest.
#[derive(Debug)]
pub(crate) struct SpecialMatcher {
    /// Added tokens, which are always matched.
    added: Option<(AhoCorasick, Vec<u32>)>,
    /// Added, control and unknown tokens.
    all: Option<(AhoCorasick, Vec<u32>)>,
    strip: HashMap<u32, Strip>,
}

/// Which white space beside a special token belongs to it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Strip {
    /// That before it.
    pub(crate) left: bool,
    /// That after it.
    pub(crate) right: bool,
}

impl SpecialMatcher {
    /// Compiles the special tokens among `tokens`.
    pub(crate) fn new(
        tokens: &TokenList,
        types: &[TokenType],
        strip: HashMap<u32, Strip>,
    ) -> Result<Self, TokenizerError> {
        Ok(Self {
            added: compile(tokens, types, &[TokenType::UserDefined])?,
            all: compile(tokens, types, &[TokenType::UserDefined, TokenType::Control, TokenType::Unknown])?,
            strip,
        })
    }

    /// Calls `part` with the parts of `text` in order. Control and unknown tokens are found only if `parse_special`.
    pub(crate) fn split<'t>(&self, text: &'t str, parse_special: bool, mut part: impl FnMut(Part<'t>)) {
        let matcher = if parse_special { &self.all } else { &self.added };
        let Some((automaton, ids)) = matcher else {
            if !text.is_empty() {
                part(Part::Text(text));
            }
            return;
        };
        let ascii_space = |c: char| matches!(c, ' ' | '\t'..='\r');
        let mut done = 0;
        let mut trim_next = false;
        let plain = |range: std::ops::Range<usize>, trim_start: bool, trim_end: bool| {
            let mut s = text.get(range).unwrap_or_default();
            if trim_start {
                s = s.trim_start_matches(ascii_space);
            }
            if trim_end {
                s = s.trim_end_matches(ascii_space);
            }
            (!s.is_empty()).then_some(Part::Text(s))
        };
        for m in automaton.find_iter(text) {
            let Some(&id) = ids.get(m.pattern().as_usize()) else { continue };
            let strip = self.strip.get(&id).copied().unwrap_or_default();
            if let Some(p) = plain(done..m.start(), trim_next, strip.left) {
                part(p);
            }
            part(Part::Token(id));
            done = m.end();
            trim_next = strip.right;
        }
        if let Some(p) = plain(done..text.len(), trim_next, false) {
            part(p);
        }
    }

    /// Id of the special token with exactly this text.
    pub(crate) fn id_of(&self, text: &[u8]) -> Option<u32> {
        let (automaton, ids) = self.all.as_ref()?;
        let m = automaton.find(text)?;
        (m.start() == 0 && m.end() == text.len()).then(|| ids.get(m.pattern().as_usize()).copied()).flatten()
    }
}

fn compile(
    tokens: &TokenList,
    types: &[TokenType],
    wanted: &[TokenType],
) -> Result<Option<(AhoCorasick, Vec<u32>)>, TokenizerError> {
    let mut ids = Vec::new();
    let mut patterns = Vec::new();
    let mut bytes = 0;
    for ((id, token), ty) in (0u32..).zip(tokens.iter()).zip(types) {
        // Tokens that are not text cannot occur in text, and would cut it inside a character.
        if wanted.contains(ty) && !token.is_empty() && std::str::from_utf8(token).is_ok() {
            ids.push(id);
            patterns.push(token);
            bytes += token.len();
        }
    }
    if bytes > MAX_PATTERN_BYTES {
        return Err(TokenizerError::TooLarge {
            what: "bytes of special tokens",
            found: bytes,
            limit: MAX_PATTERN_BYTES,
        });
    }
    if patterns.is_empty() {
        return Ok(None);
    }
    let automaton = AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .build(&patterns)
        .map_err(|e| TokenizerError::SpecialMatcher(e.to_string()))?;
    Ok(Some((automaton, ids)))
}

/// Tokens whose names tell that they end a reply, in any vocabulary that has them.
const END_OF_GENERATION: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "</s>",
];

/// Names that could also be a user's text: they count only where the file calls the token a control token.
const AMBIGUOUS: &[&str] =
    &["</s>", "<eos>", "[EOS]", "[EOT]", "[PAD]", "<PAD>", "<PRE>", "<SUF>", "<MID>", "<REPO>"];

const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];

const FIM_PRE: &[&str] = &[
    "<|fim_prefix|>",
    "<fim-prefix>",
    "<fim_prefix>",
    "<｜fim▁begin｜>",
    "<PRE>",
    "▁<PRE>",
    "<|code_prefix|>",
    "<|prefix|>",
];
const FIM_SUF: &[&str] = &[
    "<|fim_suffix|>",
    "<fim-suffix>",
    "<fim_suffix>",
    "<｜fim▁hole｜>",
    "<SUF>",
    "▁<SUF>",
    "<|code_suffix|>",
    "<|suffix|>",
];
const FIM_MID: &[&str] = &[
    "<|fim_middle|>",
    "<fim-middle>",
    "<fim_middle>",
    "<｜fim▁end｜>",
    "<MID>",
    "▁<MID>",
    "<|code_middle|>",
    "<|middle|>",
];
const FIM_PAD: &[&str] = &["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const FIM_REP: &[&str] = &["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
const FIM_SEP: &[&str] = &["<|file_sep|>"];

/// The ids of all tokens whose name tells a role, by name. Of equal names the lowest id counts.
pub(crate) fn known_names(tokens: &TokenList) -> HashMap<&'static str, u32> {
    let lists = [
        END_OF_GENERATION,
        END_OF_TURN,
        &["<|eom_id|>"],
        FIM_PRE,
        FIM_SUF,
        FIM_MID,
        FIM_PAD,
        FIM_REP,
        FIM_SEP,
    ];
    let names: HashMap<&[u8], &'static str> =
        lists.into_iter().flatten().map(|&name| (name.as_bytes(), name)).collect();
    let mut found = HashMap::new();
    for (id, token) in (0u32..).zip(tokens.iter()) {
        // Most tokens are ruled out by their first byte.
        if matches!(token.first(), Some(b'<' | b'[' | b'_' | 0xE2))
            && let Some(&name) = names.get(token)
        {
            found.entry(name).or_insert(id);
        }
    }
    found
}

/// Fills in the roles that `special` leaves open by the names of tokens, turns the tokens found that way into control
/// tokens, and returns the ids that end generation, sorted.
///
/// `find(name)` gives the id of the token spelled so.
pub(crate) fn assign_roles(
    special: &mut SpecialIds,
    types: &mut [TokenType],
    find: impl Fn(&str) -> Option<u32>,
) -> Vec<u32> {
    // The id of `name` if it may have a role; it then is a control token.
    let mut claim = |name: &str| {
        let id = find(name)?;
        let ty = types.get_mut(id as usize)?;
        if AMBIGUOUS.contains(&name) && *ty != TokenType::Control {
            return None;
        }
        if *ty != TokenType::Unknown {
            *ty = TokenType::Control;
        }
        Some(id)
    };
    let mut fill = |role: &mut Option<u32>, names: &[&str]| {
        if role.is_none() {
            *role = names.iter().find_map(|name| claim(name));
        }
    };
    fill(&mut special.eot, END_OF_TURN);
    fill(&mut special.eom, &["<|eom_id|>"]);
    fill(&mut special.fim_pre, FIM_PRE);
    fill(&mut special.fim_suf, FIM_SUF);
    fill(&mut special.fim_mid, FIM_MID);
    fill(&mut special.fim_pad, FIM_PAD);
    fill(&mut special.fim_rep, FIM_REP);
    fill(&mut special.fim_sep, FIM_SEP);

    let mut ends: Vec<u32> = END_OF_GENERATION.iter().filter_map(|name| claim(name)).collect();
    ends.extend([special.eos, special.eot, special.eom].into_iter().flatten());
    ends.extend([special.fim_pad, special.fim_rep, special.fim_sep].into_iter().flatten());

    // In the Harmony and Solar formats `<|end|>` separates messages of one reply; Gemma 4 has an ordinary `</s>`.
    let has = |name: &str| find(name).filter(|id| ends.contains(id));
    let mut not_ends = Vec::new();
    if has("<|return|>").is_some() && has("<|call|>").is_some()
        || has("<|flush|>").is_some() && has("<|calls|>").is_some()
    {
        not_ends.extend(find("<|end|>"));
    }
    if has("<|tool_response>").is_some() {
        not_ends.extend(find("</s>"));
    }
    ends.retain(|id| !not_ends.contains(id) || special.eos == Some(*id));
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names and GGUF types of tokens → what they became.
    fn roles(tokens: &[(&str, i32)], eos: Option<u32>) -> (SpecialIds, Vec<TokenType>, Vec<u32>) {
        let list = TokenList::from_strings(tokens.iter().map(|t| t.0.as_bytes())).unwrap();
        let mut types: Vec<_> = tokens.iter().map(|t| TokenType::from_gguf(t.1)).collect();
        let mut special = SpecialIds { eos, ..SpecialIds::default() };
        let names = known_names(&list);
        let ends = assign_roles(&mut special, &mut types, |name| names.get(name).copied());
        (special, types, ends)
    }

    #[test]
    fn names_tell_roles_and_make_control_tokens() {
        let tokens =
            [("x", 1), ("<|im_end|>", 4), ("<|fim_prefix|>", 1), ("<|file_sep|>", 3), ("<|endoftext|>", 3)];
        let (special, types, ends) = roles(&tokens, Some(4));
        assert_eq!((special.eot, special.fim_pre, special.fim_sep), (Some(1), Some(2), Some(3)));
        assert_eq!(types[1..], [TokenType::Control; 4]);
        assert_eq!(types[0], TokenType::Normal);
        assert_eq!(ends, [1, 3, 4]);
    }

    #[test]
    fn the_separator_of_harmony_messages_ends_nothing() {
        let tokens = [("<|end|>", 3), ("<|return|>", 3), ("<|call|>", 3)];
        assert_eq!(roles(&tokens, Some(1)).2, [1, 2]);
        // Phi-3 has the same name without the others.
        assert_eq!(roles(&tokens[..1], None).2, [0]);
    }

    #[test]
    fn markup_in_a_vocabulary_is_no_end() {
        let tokens = [("</s>", 1), ("<eos>", 4), ("</s>", 3)];
        let (_, types, ends) = roles(&tokens, None);
        assert_eq!(types[0], TokenType::Normal);
        assert!(ends.is_empty());
        assert_eq!(roles(&[("</s>", 3)], None).2, [0]);
    }
}
