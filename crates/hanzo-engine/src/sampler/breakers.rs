//! Where a repetition ends: sequences of tokens that DRY does not look across.
//!
//! A string like `"\n"` may be a token, the inside of one, or the end of one token and the beginning of others;
//! [`breakers_of`] finds them all (as llama.cpp does).

use std::collections::HashMap;

use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

/// Bytes of a string that are looked at; a longer one breaks where its beginning does.
const MAX_BYTES: usize = 40;
/// Tokens after the first that are looked at.
const MAX_TAIL: usize = 20;

/// Sequences by their first token: what follows it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breakers(HashMap<u32, Vec<Vec<u32>>>);

impl Breakers {
    pub(crate) fn new(sequences: &[Vec<u32>]) -> Self {
        let mut tails: HashMap<u32, Vec<Vec<u32>>> = HashMap::new();
        for sequence in sequences {
            if let [first, tail @ ..] = sequence.as_slice() {
                tails.entry(*first).or_default().push(tail.to_vec());
            }
        }
        // The longest match at a place counts.
        tails.values_mut().for_each(|tails| tails.sort_by_key(|tail| std::cmp::Reverse(tail.len())));
        Self(tails)
    }

    /// Tokens of the text after the last breaker; all of them where there is none.
    pub(crate) fn since_last(&self, text: &[u32]) -> usize {
        if self.0.is_empty() {
            return text.len();
        }
        let after = |first: usize| {
            let (id, rest) = text.get(first..)?.split_first()?;
            let tail = self.0.get(id)?.iter().find(|tail| rest.starts_with(tail))?;
            Some(rest.len() - tail.len())
        };
        (0..text.len()).rev().find_map(after).unwrap_or(text.len())
    }
}

/// The token sequences in which `text` may occur: tokens that contain it, and tokens that end with a beginning of it,
/// followed by the tokens of the rest. Looks through the whole vocabulary, so do it once for many requests.
pub fn breakers_of(tokenizer: &Tokenizer, text: &str) -> Vec<Vec<u32>> {
    let end = (0..=text.len().min(MAX_BYTES)).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
    let text = text.get(..end).unwrap_or_default();
    if text.is_empty() {
        return Vec::new();
    }
    let options = EncodeOptions { add_special: false, parse_special: false };
    let rest_of = |begun: usize| -> Option<Vec<u32>> {
        let mut tail = tokenizer.encode(text.get(begun..)?, options).ok()?;
        tail.truncate(MAX_TAIL);
        Some(tail)
    };
    // One tail for each beginning, at most.
    let tails: Vec<Option<Vec<u32>>> =
        (0..text.len()).map(|n| if n == 0 { None } else { rest_of(n) }).collect();
    let mut found = Vec::new();
    for id in 0..tokenizer.vocab_size() as u32 {
        let Some(word) = tokenizer.token_bytes(id).filter(|word| !word.is_empty()) else { continue };
        if word.windows(text.len()).any(|part| part == text.as_bytes()) {
            found.push(vec![id]);
            continue;
        }
        for (begun, tail) in tails.iter().enumerate().filter(|(n, _)| *n <= word.len()) {
            if let (Some(tail), true) =
                (tail, word.ends_with(text.as_bytes().get(..begun).unwrap_or_default()))
            {
                found.push([&[id], tail.as_slice()].concat());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use hanzo_text::tokenizer::{TokenList, Vocab};

    use super::*;

    #[test]
    fn the_longest_breaker_at_the_last_place_counts() {
        let breakers = Breakers::new(&[vec![5], vec![5, 6], vec![7, 8, 9], vec![]]);
        assert_eq!(breakers.since_last(&[1, 5, 2, 3]), 2);
        assert_eq!(breakers.since_last(&[1, 5, 6, 3]), 1);
        assert_eq!(breakers.since_last(&[1, 7, 8, 9]), 0);
        assert_eq!(breakers.since_last(&[1, 7, 8]), 3, "only the whole of it breaks");
        assert_eq!(breakers.since_last(&[5, 1, 7, 8, 9, 4, 4]), 2);
        assert_eq!((breakers.since_last(&[]), Breakers::default().since_last(&[5, 6])), (0, 2));
    }

    #[test]
    fn strings_are_found_inside_and_across_tokens() {
        // Ċ is a line end, Ġ a space.
        let words = ["a", "b", "c", "ab", "xab", "abc", "bc", "ca", "Ċ", "aĊb"];
        let tokens = TokenList::from_strings(words.map(str::as_bytes)).unwrap();
        let merges = TokenList::from_strings([&b"b c"[..]]).unwrap();
        let vocab =
            Vocab { model: "gpt2".into(), pre: Some("gpt-2".into()), tokens, merges, ..Vocab::default() };
        let tokenizer = Tokenizer::new(vocab).unwrap();
        let of = |text| {
            let mut found = breakers_of(&tokenizer, text);
            found.sort();
            found
        };
        assert_eq!(of("\n"), [vec![8], vec![9]]);
        // a+bc, ab+c, xab+c, abc itself, ca+bc.
        assert_eq!(of("abc"), [vec![0, 6], vec![3, 2], vec![4, 2], vec![5], vec![7, 6]]);
        assert!(of("").is_empty());
    }
}
