use super::super::vocab::TokenList;
use super::*;
use proptest::prelude::*;

const NAMES: &[&str] = &[
    "default",
    "gpt-2",
    "phi-2",
    "mpt",
    "olmo",
    "jais",
    "trillion",
    "starcoder",
    "refact",
    "smollm",
    "codeshell",
    "exaone",
    "exaone4",
    "minerva-7b",
    "granite-docling",
    "command-r",
    "falcon",
    "llama-bpe",
    "llama3",
    "dbrx",
    "smaug-bpe",
    "chatglm-bpe",
    "glm4",
    "jais-2",
    "minicpm5",
    "qwen2",
    "megrez",
    "stablelm2",
    "hunyuan",
    "bailingmoe",
    "qwen35",
    "ufakzeka",
    "seed-coder",
    "laguna",
    "exaone-moe",
    "gpt-4o",
    "llama4",
    "minimax-m2",
    "tiny_aya",
    "tekken",
    "kimi-k2",
    "youtu",
    "deepseek-llm",
    "deepseek-coder",
    "deepseek-v3",
    "hunyuan-dense",
    "spark2_5",
    "afmoe",
    "superbpe",
    "poro-chat",
    "bloom",
    "viking",
    "chameleon",
    "gemma4",
    "sarvam-moe",
];

fn pieces<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
    let pre = Pretokenizer::new(preset(name).unwrap_or_else(|| panic!("{name}")).steps);
    let mut out = Vec::new();
    pre.split(text.as_bytes(), &mut |s, e| out.push(&text[s..e]));
    out
}

#[test]
fn words_and_white_space() {
    assert_eq!(pieces("gpt-2", "I'll  go\n\n x"), ["I", "'ll", " ", " go", "\n\n", " x"]);
    assert_eq!(pieces("llama-bpe", "I'LL  go\n\n x1234"), ["I", "'LL", " ", " go", "\n\n", " x", "123", "4"]);
    assert_eq!(pieces("qwen2", "a\tb (c)!\n\n d  "), ["a", "\tb", " (", "c", ")!\n\n", " d", "  "]);
    assert_eq!(pieces("qwen35", "e\u{301}e \u{301}"), ["e\u{301}e", " \u{301}"]);
    assert_eq!(pieces("qwen2", "e\u{301}e"), ["e", "\u{301}e"]);
    assert_eq!(pieces("smollm", "a12 3"), ["a", "1", "2", " ", "3"]);
    assert_eq!(pieces("seed-coder", "a!\nb"), ["a", "!", "\n", "b"]);
    assert_eq!(pieces("exaone-moe", "one two  three!\n\nx"), ["one two", " ", " three", "!\n", "\n", "x"]);
}

#[test]
fn change_of_case() {
    assert_eq!(pieces("gpt-4o", "HelloWORLDfoo's a/b\n/"), ["Hello", "WORLDfoo's", " a", "/b", "\n", "/"]);
    assert_eq!(pieces("tekken", "HelloWORLD's 12"), ["Hello", "WORLD", "'s", " ", "1", "2"]);
    // Caseless letters end the first alternative; the capitals after them start anew.
    assert_eq!(pieces("gpt-4o", "ABªCD"), ["ABª", "CD"]);
    assert_eq!(pieces("kimi-k2", "abc中文def"), ["abc", "中文", "def"]);
}

#[test]
fn groups_of_digits() {
    assert_eq!(pieces("deepseek-v3", "12345"), ["123", "45"]);
    assert_eq!(pieces("afmoe", "x12345y"), ["x", "12", "345", "y"]);
    assert_eq!(pieces("superbpe", "ab 12345 cd"), ["ab ", "12", "345", " cd"]);
    assert_eq!(pieces("tiny_aya", "1234567 1234x"), ["1", "234", "567", " ", "123", "4", "x"]);
    assert_eq!(pieces("falcon", "12345"), ["123", "45"]);
}

#[test]
fn powers_of_two() {
    let spaces = " ".repeat(13);
    assert_eq!(
        pieces("jais-2", &format!("{spaces}x")).iter().map(|p| p.len()).collect::<Vec<_>>(),
        [8, 4, 2]
    );
    assert_eq!(pieces("jais-2", &spaces).iter().map(|p| p.len()).collect::<Vec<_>>(), [8, 4, 1]);
}

#[test]
fn cuts_respect_tokens() {
    let tokens = TokenList::from_strings([&b" of"[..], b"e t", b"  "]).unwrap();
    let pre = Pretokenizer::new(vec![Step::Spaces(Cuts::new(tokens.iter()))]);
    let text = "one of  the  two";
    let mut out = Vec::new();
    pre.split(text.as_bytes(), &mut |s, e| out.push(&text[s..e]));
    assert_eq!(out, ["one of", "  the  two"]);
}

proptest! {
    #[test]
    fn pieces_cover_any_text(text in "([a-zA-Z']|[0-9]|[ \\t\\r\\n]|\\PC|[\u{0}-\u{1F}]|[à-ῼ一-龥가-힣]){0,60}") {
        for name in NAMES {
            let pre = Pretokenizer::new(preset(name).unwrap().steps);
            let mut end = 0;
            pre.split(text.as_bytes(), &mut |s, e| {
                assert_eq!(s, end, "{name}");
                assert!(e > s, "{name}");
                assert!(text.is_char_boundary(e), "{name}");
                end = e;
            });
            prop_assert_eq!(end, text.len());
        }
    }

    #[test]
    fn any_bytes_are_covered(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        for name in NAMES {
            let pre = Pretokenizer::new(preset(name).unwrap().steps);
            let mut end = 0;
            pre.split(&bytes, &mut |s, e| {
                assert!(s == end && e > s, "{name}");
                end = e;
            });
            prop_assert_eq!(end, bytes.len());
        }
    }
}
