//! The fast encoders against the definitions of what they compute, written as plainly as possible, on random vocabularies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use hanzo_text::detokenize::DecodeOptions;
use hanzo_text::tokenizer::{EncodeOptions, SpecialIds, TokenList, TokenType, Tokenizer, Vocab, pretokenize};
use proptest::prelude::*;
use std::collections::HashMap;

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

type Bytes = Vec<u8>;

/// GPT-2's spelling of a byte.
fn spell(bytes: &[u8]) -> String {
    let printable = |b: u8| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    bytes
        .iter()
        .map(|&b| match printable(b) {
            true => char::from(b),
            false => char::from_u32(0x100 + (0..b).filter(|&c| !printable(c)).count() as u32).unwrap(),
        })
        .collect()
}

/// A byte-level vocabulary: all bytes, then what the merges make, each of two earlier tokens.
fn byte_level(choices: &[(prop::sample::Index, prop::sample::Index)]) -> (Vec<Bytes>, Vec<(Bytes, Bytes)>) {
    let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).collect();
    let common: Vec<u8> = b"ab \n1".to_vec();
    let mut merges = Vec::new();
    for (left, right) in choices {
        let pick = |i: &prop::sample::Index| match i.index(common.len() + tokens.len() - 256) {
            i if i < common.len() => vec![common[i]],
            i => tokens[256 + i - common.len()].clone(),
        };
        let (left, right) = (pick(left), pick(right));
        let merged = [&left[..], &right].concat();
        if merged.len() <= 12 {
            if !tokens.contains(&merged) {
                tokens.push(merged);
            }
            if !merges.contains(&(left.clone(), right.clone())) {
                merges.push((left, right));
            }
        }
    }
    (tokens, merges)
}

fn byte_level_vocab(pre: &str, tokens: &[Vec<u8>], merges: &[(Vec<u8>, Vec<u8>)]) -> Vocab {
    let merges: Vec<String> = merges.iter().map(|(l, r)| format!("{} {}", spell(l), spell(r))).collect();
    Vocab {
        model: "gpt2".into(),
        pre: Some(pre.into()),
        tokens: TokenList::from_strings(
            tokens.iter().map(|t| spell(t)).collect::<Vec<_>>().iter().map(String::as_bytes),
        )
        .unwrap(),
        merges: TokenList::from_strings(merges.iter().map(String::as_bytes)).unwrap(),
        ..Vocab::default()
    }
}

/// While a pair has a rank, merge the pair of lowest rank, leftmost first.
fn merge_all(mut parts: Vec<Vec<u8>>, rank: impl Fn(&[u8], &[u8]) -> Option<i64>) -> Vec<Vec<u8>> {
    loop {
        let best = (1..parts.len()).filter_map(|i| Some((rank(&parts[i - 1], &parts[i])?, i))).min();
        let Some((_, i)) = best else { return parts };
        let right = parts.remove(i);
        parts[i - 1].extend(right);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn byte_level_bpe(
        choices in proptest::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 1..60),
        pre in prop_oneof![Just("gpt-2"), Just("qwen2"), Just("deepseek-v3"), Just("superbpe")],
        text in prop_oneof!["[ab \n1]{0,300}", ".{0,40}", "(ab|ba|aab| ab|  |1){0,400}"],
    ) {
        let (tokens, merges) = byte_level(&choices);
        prop_assume!(!merges.is_empty());
        let t = Tokenizer::new(byte_level_vocab(pre, &tokens, &merges)).unwrap();
        let ids: HashMap<&[u8], u32> = (0u32..).zip(&tokens).map(|(i, t)| (&t[..], i)).collect();
        let ranks: HashMap<(&[u8], &[u8]), i64> =
            (0i64..).zip(&merges).map(|(i, (l, r))| ((&l[..], &r[..]), i)).collect();
        let mut want = Vec::new();
        for piece in pretokenize(pre, &text).unwrap() {
            let parts = piece.bytes().map(|b| vec![b]).collect();
            let parts = merge_all(parts, |l, r| ranks.get(&(l, r)).copied());
            want.extend(parts.iter().map(|p| ids[&p[..]]));
        }
        let got = t.encode(&text, PLAIN).unwrap();
        prop_assert_eq!(&got, &want);
        // Nothing is lost, and a stream shows what decoding at once shows.
        prop_assert_eq!(t.decode(&got, DecodeOptions::default()).unwrap(), text);
    }

    #[test]
    fn streams_show_what_decoding_at_once_shows(
        choices in proptest::collection::vec(any::<(prop::sample::Index, prop::sample::Index)>(), 1..20),
        ids in proptest::collection::vec(0u32..256, 0..40),
    ) {
        let (tokens, merges) = byte_level(&choices);
        prop_assume!(!merges.is_empty());
        let t = Tokenizer::new(byte_level_vocab("gpt-2", &tokens, &merges)).unwrap();
        let bytes: Vec<u8> = ids.iter().flat_map(|&id| t.token_bytes(id).unwrap().to_vec()).collect();
        let mut decoder = t.stream_decoder(DecodeOptions::default());
        let mut out = String::new();
        for &id in &ids {
            out.push_str(decoder.push(id).unwrap());
        }
        out.push_str(decoder.finish());
        prop_assert_eq!(out, String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn sentencepiece_bpe(
        words in proptest::collection::vec("[ab▁é]{1,4}", 1..40),
        scores in proptest::collection::vec(0i8..6, 48),
        prefix in any::<bool>(),
        text in prop_oneof!["[ab é▁]{0,300}", "(ab| ab|ba|  ){0,300}", ".{0,30}"],
    ) {
        let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>", "▁", "a", "b"].map(String::from).to_vec();
        tokens.extend(words);
        tokens.sort();
        tokens.dedup();
        tokens.retain(|t| !["<unk>", "<s>", "</s>"].contains(&&t[..]));
        let specials = ["<unk>", "<s>", "</s>"].map(String::from);
        let tokens: Vec<String> = specials.into_iter().chain(tokens).collect();
        let scores: Vec<f32> = (0..tokens.len()).map(|i| f32::from(scores[i % scores.len()])).collect();
        let t = Tokenizer::new(Vocab {
            model: "llama".into(),
            tokens: TokenList::from_strings(tokens.iter().map(String::as_bytes)).unwrap(),
            scores: scores.clone(),
            token_types: (0..tokens.len()).map(|i| TokenType::from_gguf(match i { 0 => 2, 1 | 2 => 3, _ => 1 })).collect(),
            add_space_prefix: Some(prefix),
            ..Vocab::default()
        }).unwrap();
        let ids: HashMap<&[u8], usize> = tokens.iter().enumerate().skip(3).map(|(i, t)| (t.as_bytes(), i)).collect();
        let mut want: Vec<u32> = Vec::new();
        if !text.is_empty() {
            let escaped = format!("{}{text}", if prefix { " " } else { "" }).replace(' ', "▁");
            let parts = escaped.chars().map(|c| c.to_string().into_bytes()).collect();
            let parts = merge_all(parts, |l, r| ids.get(&[l, r].concat()[..]).map(|&i| -(scores[i] as i64)));
            for part in parts {
                let id = ids.get(&part[..]).map_or(0, |&i| i as u32);
                if id != 0 || want.last() != Some(&0) {
                    want.push(id);
                }
            }
        }
        prop_assert_eq!(t.encode(&text, PLAIN).unwrap(), want);
    }

    #[test]
    fn unigram(
        words in proptest::collection::vec("[abc▁]{1,4}", 1..20),
        scores in proptest::collection::vec(1u8..200, 32),
        text in "[abcd ]{0,9}",
    ) {
        let mut tokens: Vec<String> = words;
        tokens.sort();
        tokens.dedup();
        let tokens: Vec<String> = ["<pad>", "</s>", "<unk>"].map(String::from).into_iter().chain(tokens).collect();
        let scores: Vec<f32> = (0..tokens.len()).map(|i| -f32::from(scores[i % scores.len()]) / 8.0).collect();
        let t = Tokenizer::new(Vocab {
            model: "t5".into(),
            tokens: TokenList::from_strings(tokens.iter().map(String::as_bytes)).unwrap(),
            scores: scores.clone(),
            token_types: (0..tokens.len()).map(|i| TokenType::from_gguf(match i { 0 | 1 => 3, 2 => 2, _ => 1 })).collect(),
            add_space_prefix: Some(true),
            remove_extra_whitespaces: Some(true),
            ..Vocab::default()
        }).unwrap();
        let words: Vec<&str> = text.split(' ').filter(|w| !w.is_empty()).collect();
        let normalized: Vec<char> = words.iter().flat_map(|w| format!("▁{w}").chars().collect::<Vec<_>>()).collect();
        // Every way to cut the text, by brute force: the best score.
        let worst = scores.iter().skip(3).copied().fold(f32::MAX, f32::min);
        let unknown = f64::from(worst - 10.0);
        let score_of = |s: &str| tokens.iter().skip(3).position(|t| t == s).map(|i| f64::from(scores[i + 3]));
        let mut best = vec![f64::NEG_INFINITY; normalized.len() + 1];
        best[0] = 0.0;
        for end in 1..=normalized.len() {
            for start in 0..end {
                let s: String = normalized[start..end].iter().collect();
                let score = score_of(&s).or((end - start == 1).then_some(unknown));
                if let Some(score) = score {
                    best[end] = best[end].max(best[start] + score);
                }
            }
        }
        let got = t.encode(&text, PLAIN).unwrap();
        // The score of the ids that we got; a fused unknown token stands for some unknown characters.
        let known: f64 = got.iter().filter(|&&id| id != 2).map(|&id| f64::from(scores[id as usize])).sum();
        let known_chars: usize =
            got.iter().filter(|&&id| id != 2).map(|&id| tokens[id as usize].chars().count()).sum();
        let total = known + unknown * (normalized.len() - known_chars) as f64;
        prop_assert!((total - best[normalized.len()]).abs() < 1e-9, "{:?}: {} against {}", got, total, best[normalized.len()]);
    }

    #[test]
    fn word_piece(words in proptest::collection::vec("▁?[abc]{1,3}", 1..20), text in "[abcdABÁ ,]{0,20}") {
        let tokens: Vec<String> = ["[UNK]", "[CLS]", "[SEP]"].map(String::from).into_iter().chain(words).collect();
        let t = Tokenizer::new(Vocab {
            model: "bert".into(),
            tokens: TokenList::from_strings(tokens.iter().map(String::as_bytes)).unwrap(),
            token_types: (0..tokens.len()).map(|i| TokenType::from_gguf(match i { 0 => 2, 1 | 2 => 3, _ => 1 })).collect(),
            special: SpecialIds { unk: Some(0), bos: Some(1), sep: Some(2), ..SpecialIds::default() },
            ..Vocab::default()
        }).unwrap();
        let mut want = vec![1];
        for word in text.to_lowercase().replace('á', "a").replace(',', " , ").split_whitespace() {
            let word = format!("▁{word}");
            let from = want.len();
            let mut rest = &word[..];
            while !rest.is_empty() {
                let found = tokens.iter().enumerate().skip(3).filter(|(_, t)| rest.starts_with(&t[..]));
                match found.max_by_key(|(i, t)| (t.len(), usize::MAX - i)) {
                    Some((i, t)) => {
                        want.push(i as u32);
                        rest = &rest[t.len()..];
                    }
                    None => {
                        want.truncate(from);
                        want.push(0);
                        break;
                    }
                }
            }
        }
        want.push(2);
        prop_assert_eq!(t.encode(&text, EncodeOptions::default()).unwrap(), want);
    }
}

/// Special tokens, by an example that has all kinds.
#[test]
fn special_tokens() {
    let names = ["<|im_start|>", "<|im_end|>", "<tool>", "<tool>x", "<|endoftext|>"];
    let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).collect();
    tokens.push(b"ab".to_vec());
    let mut v = byte_level_vocab("llama-bpe", &tokens, &[(b"a".to_vec(), b"b".to_vec())]);
    let mut types = vec![TokenType::Normal; tokens.len()];
    for (name, ty) in names.iter().zip([3, 1, 4, 4, 3]) {
        v.tokens.push(name.as_bytes()).unwrap();
        types.push(TokenType::from_gguf(ty));
    }
    v.token_types = types;
    v.special.bos = Some(261);
    v.special.eos = Some(261);
    let t = Tokenizer::new(v).unwrap();
    let parse = EncodeOptions { add_special: true, parse_special: true };
    // Llama 3's pre-tokenizer implies BOS. The longest of the tokens that start at a place is taken.
    assert_eq!(
        t.encode("<|im_start|>ab<|im_end|><tool>x<tool>", parse).unwrap(),
        [261, 257, 256, 258, 260, 259]
    );
    // Without `parse_special` only added tokens are read, and a control token's name is text.
    let ids = t.encode("<tool>ab<|im_end|>", PLAIN).unwrap();
    assert_eq!(ids[..2], [259, 256]);
    assert!(!ids.contains(&258));
    // `<|im_end|>` was declared ordinary, but its name makes it a control token that ends a reply.
    assert_eq!(t.eog_ids(), [258, 261]);
    assert!(t.is_control(258) && t.is_eog(258) && !t.is_eog(257) && !t.is_control(259));
    assert_eq!(t.special_ids().eot, Some(258));
    assert_eq!(t.token_to_id("<|im_end|>"), Some(258));
    assert_eq!(t.token_to_id("ab"), Some(256));
    assert_eq!(t.token_to_id("abc"), None);
    let ids = [257, 256, 258, 259];
    assert_eq!(t.decode(&ids, DecodeOptions::default()).unwrap(), "ab<tool>");
    let all = DecodeOptions { render_special: true, keep_leading_space: false };
    assert_eq!(t.decode(&ids, all).unwrap(), "<|im_start|>ab<|im_end|><tool>");
}

/// Long runs of one character, for each kind of loop: with anything quadratic this would not end.
#[test]
fn long_runs_of_one_character() {
    let mut tokens: Vec<Vec<u8>> = (0..=255u8).map(|b| vec![b]).collect();
    let mut merges = Vec::new();
    for byte in [b'a', b' ', b'\n', b'!'] {
        for k in 0..6 {
            let half = vec![byte; 1 << k];
            tokens.push(vec![byte; 2 << k]);
            merges.push((half.clone(), half));
        }
    }
    for pre in [
        "gpt-2",
        "llama-bpe",
        "gpt-4o",
        "jais-2",
        "deepseek-v3",
        "deepseek-llm",
        "tiny_aya",
        "default",
        "viking",
    ] {
        let t = Tokenizer::new(byte_level_vocab(pre, &tokens, &merges)).unwrap();
        for unit in ["a", " ", "\n", "!", "1", "e\u{301}", "\u{3000}", "A", "中", "'s", " \n"] {
            let text = unit.repeat((1 << 17) / unit.len());
            let ids = t.encode(&text, PLAIN).unwrap();
            let n: usize = ids.iter().map(|&id| t.token_bytes(id).unwrap().len()).sum();
            assert_eq!(n, text.len(), "{pre} {unit:?}");
        }
    }
}

/// Pieces by the models' own regular expressions, run by the engine they were written for.
#[test]
fn pieces_are_those_of_the_regular_expressions() {
    let golden: serde_json::Value = serde_json::from_str(include_str!("data/pieces.json")).unwrap();
    let texts = golden["texts"].as_array().unwrap();
    let presets = golden["pieces"].as_object().unwrap();
    assert!(texts.len() > 50 && presets.len() > 25);
    for (name, pieces) in presets {
        for (text, want) in texts.iter().zip(pieces.as_array().unwrap()) {
            let got = pretokenize(name, text.as_str().unwrap()).unwrap();
            let lengths: Vec<usize> = got.iter().map(|p| p.len()).collect();
            assert_eq!(serde_json::json!(lengths), *want, "{name} {got:?}");
        }
    }
}
