//! Damaged and contradictory vocabularies: a typed error that names the thing, or a defined meaning; never a panic.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use hanzo_text::detokenize::DecodeOptions;
use hanzo_text::tokenizer::{
    EncodeOptions, MAX_TOKEN_LEN, SpecialIds, TokenList, TokenType, Tokenizer, TokenizerError, Vocab,
    pretokenize,
};
use proptest::prelude::*;

fn list<S: AsRef<[u8]>>(strings: &[S]) -> TokenList {
    TokenList::from_strings(strings.iter().map(AsRef::as_ref)).unwrap()
}

/// A SentencePiece vocabulary over a few letters.
fn spm() -> Vocab {
    Vocab {
        model: "llama".into(),
        tokens: list(&["<unk>", "<s>", "</s>", "<0x0A>", "▁", "a", "b", "ab", "▁a", "▁ab"]),
        scores: vec![0.0, 0.0, 0.0, 0.0, -5.0, -6.0, -7.0, -1.0, -2.0, -3.0],
        token_types: [2, 3, 3, 6, 1, 1, 1, 1, 1, 1].map(TokenType::from_gguf).to_vec(),
        ..Vocab::default()
    }
}

/// A byte-level vocabulary over a few letters.
fn bpe() -> Vocab {
    Vocab {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: list(&["a", "b", "Ġ", "ab", "Ġa", "<|im_end|>"]),
        token_types: [1, 1, 1, 1, 1, 3].map(TokenType::from_gguf).to_vec(),
        merges: list(&["a b", "Ġ a"]),
        ..Vocab::default()
    }
}

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

#[test]
fn the_small_vocabularies_are_good() {
    let t = Tokenizer::new(spm()).unwrap();
    assert_eq!(t.encode("ab ba\nc", EncodeOptions::default()).unwrap(), [1, 9, 4, 6, 5, 3, 0]);
    assert_eq!(t.decode(&[1, 9, 4, 6, 5, 3], DecodeOptions::default()).unwrap(), "ab ba\n");
    let t = Tokenizer::new(bpe()).unwrap();
    assert_eq!(t.encode("ab a b", PLAIN).unwrap(), [3, 4, 2, 1]);
    assert_eq!(t.eog_ids(), [5]);
    assert!(t.warnings().is_empty(), "{:?}", t.warnings());
}

#[test]
fn arrays_of_different_lengths() {
    let mut v = spm();
    v.scores.pop();
    assert_eq!(
        Tokenizer::new(v).unwrap_err(),
        TokenizerError::LengthMismatch { what: "scores", found: 9, expected: 10 }
    );
    let mut v = bpe();
    v.token_types.push(TokenType::Normal);
    assert_eq!(
        Tokenizer::new(v).unwrap_err(),
        TokenizerError::LengthMismatch { what: "token types", found: 7, expected: 6 }
    );
}

#[test]
fn byte_tokens_that_are_none() {
    for bad in ["<0x-1>", "<0xZZ>", "<0x0A", "<0x100>", "", "<0x+1>", "x"] {
        let mut v = spm();
        v.tokens = list(&["<unk>", "<s>", "</s>", bad, "▁", "a", "b", "ab", "▁a", "▁ab"]);
        let e = Tokenizer::new(v).unwrap_err();
        assert_eq!(e, TokenizerError::BadByteToken { id: 3, text: bad.into() });
    }
}

#[test]
fn special_ids_beyond_the_vocabulary() {
    for (what, special) in [
        ("BOS", SpecialIds { bos: Some(10), ..Default::default() }),
        ("EOS", SpecialIds { eos: Some(10), ..Default::default() }),
        ("SEP", SpecialIds { sep: Some(10), ..Default::default() }),
        ("the unknown token", SpecialIds { unk: Some(10), ..Default::default() }),
    ] {
        let e = Tokenizer::new(Vocab { special, ..spm() }).unwrap_err();
        assert_eq!(e, TokenizerError::SpecialOutOfRange { what, id: 10, n_tokens: 10 });
    }
    // Encoding does not need these.
    let special = SpecialIds { pad: Some(u32::MAX - 1), fim_pre: Some(10), ..Default::default() };
    let t = Tokenizer::new(Vocab { special, ..spm() }).unwrap();
    assert_eq!(t.warnings().len(), 2);
    assert_eq!(t.special_ids().pad, None);
}

#[test]
fn huge_tokens() {
    let huge = vec![b'x'; 100_000_000];
    let e = TokenList::from_strings([&b"a"[..], &huge]).unwrap_err();
    assert_eq!(e, TokenizerError::TokenTooLong { id: 1, len: 100_000_000, limit: MAX_TOKEN_LEN });
    // The longest that is accepted works in every kind.
    let long = vec![b'x'; MAX_TOKEN_LEN];
    for model in ["gpt2", "gemma4", "llama", "bert", "t5"] {
        let mut v = generic(model, vec![b"<unk>".to_vec(), long.clone(), b"x".to_vec()], vec![2, 1, 1]);
        v.special.unk = Some(0);
        let t = Tokenizer::new(v).unwrap();
        t.encode(&"x".repeat(2 * MAX_TOKEN_LEN), PLAIN).unwrap();
    }
}

#[test]
fn merges_of_absent_tokens() {
    let v = Vocab { merges: list(&["a b", "b b", "x y", "Ġ a"]), ..bpe() };
    let t = Tokenizer::new(v).unwrap();
    assert_eq!(t.warnings().len(), 1);
    assert!(t.warnings()[0].starts_with("2 merges"), "{:?}", t.warnings());
    assert_eq!(t.encode("abb", PLAIN).unwrap(), [3, 1]);
    for bad in ["ab", "", " ", "a ", " a"] {
        let e = Tokenizer::new(Vocab { merges: list(&["a b", bad]), ..bpe() }).unwrap_err();
        assert_eq!(e, TokenizerError::BadMerge { index: 1 }, "{bad:?}");
    }
    let e = Tokenizer::new(Vocab { merges: TokenList::new(), ..bpe() }).unwrap_err();
    assert_eq!(e, TokenizerError::MissingMerges);
}

#[test]
fn no_tokens() {
    for model in ["gpt2", "gemma4", "llama", "bert", "t5"] {
        let v = Vocab { model: model.into(), ..Vocab::default() };
        assert_eq!(Tokenizer::new(v).unwrap_err(), TokenizerError::NoTokens);
    }
}

#[test]
fn equal_tokens() {
    // The first of equal tokens is produced; all decode.
    let mut v = bpe();
    v.tokens = list(&["a", "b", "Ġ", "ab", "ab", "<|im_end|>"]);
    let t = Tokenizer::new(v).unwrap();
    assert_eq!(t.encode("ab", PLAIN).unwrap(), [3]);
    assert_eq!(t.decode(&[3, 4], DecodeOptions::default()).unwrap(), "abab");
}

#[test]
fn names_that_are_unknown() {
    let e = Tokenizer::new(Vocab { pre: Some("no-such".into()), ..bpe() }).unwrap_err();
    assert_eq!(e, TokenizerError::UnknownPreTokenizer("no-such".into()));
    assert!(pretokenize("no-such", "x").is_err());
    let e = Tokenizer::new(Vocab { model: "no-such".into(), ..bpe() }).unwrap_err();
    assert_eq!(e, TokenizerError::UnknownModel("no-such".into()));
    let t = Tokenizer::new(Vocab { pre: None, ..bpe() }).unwrap();
    assert_eq!(t.warnings().len(), 1, "a missing name is told");
}

#[test]
fn scores_that_are_no_numbers() {
    let mut v = spm();
    v.scores[7] = f32::NAN;
    assert_eq!(Tokenizer::new(v).unwrap_err(), TokenizerError::BadScore { id: 7 });
    let mut v = spm();
    v.scores[7] = f32::INFINITY;
    v.scores[8] = f32::NEG_INFINITY;
    assert!(Tokenizer::new(v).unwrap().encode("ab ab", PLAIN).is_ok());
}

#[test]
fn text_that_cannot_be_expressed() {
    let e = Tokenizer::new(bpe()).unwrap().encode("ac", PLAIN).unwrap_err();
    assert_eq!(e, TokenizerError::Unencodable { byte: b'c', text: "c".into() });
    let e = Tokenizer::new(bpe()).unwrap().decode(&[0, 6], DecodeOptions::default()).unwrap_err();
    assert_eq!(e, TokenizerError::UnknownId { id: 6, n_tokens: 6 });
}

#[test]
fn damaged_character_maps() {
    let v = generic("t5", vec![b"<pad>".to_vec(), b"</s>".to_vec(), b"<unk>".to_vec()], vec![3, 3, 2]);
    for bad in [&b"abc"[..], b"\xFF\xFF\xFF\xFFx\0", b"\x03\0\0\0abc\0", b"\x04\0\0\0abcdx"] {
        let v = Vocab { precompiled_charsmap: bad.to_vec(), ..v.clone() };
        assert!(matches!(Tokenizer::new(v), Err(TokenizerError::BadCharsmap(_))), "{bad:?}");
    }
}

fn generic(model: &str, tokens: Vec<Vec<u8>>, types: Vec<i32>) -> Vocab {
    Vocab {
        model: model.into(),
        pre: Some("default".into()),
        scores: (0..tokens.len()).map(|i| -(i as f32)).collect(),
        token_types: types.into_iter().map(TokenType::from_gguf).collect(),
        merges: list(&["a b"]),
        tokens: list(&tokens),
        ..Vocab::default()
    }
}

/// A token with type and score, mostly such that the vocabulary is accepted.
fn any_token() -> impl Strategy<Value = (Vec<u8>, i32, f32)> {
    let text = prop_oneof![
        8 => "[ab▁Ġ <|>]{0,4}".prop_map(String::into_bytes),
        4 => ".{0,3}".prop_map(String::into_bytes),
        2 => proptest::collection::vec(any::<u8>(), 0..5),
        1 => Just(b"<|im_end|>".to_vec()),
        1 => Just(b"</s>".to_vec()),
    ];
    let score = prop_oneof![20 => -9f32..9.0, 1 => any::<f32>().prop_filter("a number", |s| !s.is_nan())];
    prop_oneof![
        8 => (text, prop_oneof![4 => Just(1), 1 => -1i32..6, 1 => 7i32..9], score),
        1 => any::<u8>().prop_map(|b| (format!("<0x{b:02X}>").into_bytes(), 6, 0.0)),
    ]
}

fn any_merge() -> impl Strategy<Value = Vec<u8>> {
    "[abĠ▁<|>]{1,2} [abĠ▁<|>]{1,2}".prop_map(String::into_bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_vocabulary_and_no_text_panics(
        model in prop_oneof![Just("gpt2"), Just("gemma4"), Just("llama"), Just("bert"), Just("t5")],
        pre in prop_oneof![Just("default"), Just("llama-bpe"), Just("gpt-4o"), Just("deepseek-v3"), Just("mmbert")],
        tokens in proptest::collection::vec(any_token(), 1..30),
        merges in proptest::collection::vec(any_merge(), 1..10),
        ids in proptest::array::uniform4(proptest::option::of(any::<prop::sample::Index>())),
        beyond in proptest::option::weighted(0.05, 0u32..9),
        flags in proptest::array::uniform5(proptest::option::of(any::<bool>())),
        charsmap in prop_oneof![3 => Just(Vec::new()), 1 => proptest::collection::vec(any::<u8>(), 0..40)],
        text in prop_oneof![".{0,40}", "[ab▁ \n<|>/s]{0,200}", "(a|b| |<\\|im_end\\|>){0,300}"],
        options in (any::<bool>(), any::<bool>()),
    ) {
        let ids = ids.map(|id| id.map(|id| id.index(tokens.len()) as u32 + beyond.unwrap_or(0)));
        let vocab = Vocab {
            model: model.into(),
            pre: Some(pre.into()),
            model_name: Some("phi-3".into()),
            scores: tokens.iter().map(|t| t.2).collect(),
            token_types: tokens.iter().map(|t| TokenType::from_gguf(t.1)).collect(),
            tokens: TokenList::from_strings(tokens.iter().map(|t| &t.0[..])).unwrap(),
            merges: TokenList::from_strings(merges.iter().map(|m| &m[..])).unwrap(),
            special: SpecialIds { bos: ids[0], eos: ids[1], unk: ids[2], sep: ids[3], ..Default::default() },
            add_bos: flags[0],
            add_eos: flags[1],
            add_space_prefix: flags[2],
            remove_extra_whitespaces: flags[3],
            lowercase: flags[4],
            nfc: flags[0].unwrap_or(false),
            precompiled_charsmap: charsmap,
            ..Vocab::default()
        };
        let n = vocab.tokens.len();
        if let Ok(t) = Tokenizer::new(vocab) {
            let options = EncodeOptions { add_special: options.0, parse_special: options.1 };
            if let Ok(ids) = t.encode(&text, options) {
                prop_assert!(ids.iter().all(|&id| (id as usize) < n));
                t.decode(&ids, DecodeOptions::default()).unwrap();
                t.decode(&ids, DecodeOptions { render_special: true, keep_leading_space: true }).unwrap();
            }
            let _ = t.token_to_id(&text);
        }
    }
}
