//! Tokenizers against reference ids: the vocabulary files with their texts, and real models where they are present.

#![cfg(feature = "gguf")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "a test that says what it skipped"
)]

use hanzo_gguf::GgufFile;
use hanzo_text::detokenize::DecodeOptions;
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};
use std::path::{Path, PathBuf};

const PLAIN: EncodeOptions = EncodeOptions { add_special: false, parse_special: false };

/// The folder of reference values beside the project, `None` (with a line) if it is not there.
fn oracles(part: &str) -> Option<PathBuf> {
    present(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/oracles")).join(part))
}

fn present(path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is required", path.display());
    eprintln!("skipped: {} is not there", path.display());
    None
}

fn load(path: &Path) -> Tokenizer {
    let file = GgufFile::open(path).unwrap();
    Tokenizer::from_gguf(file.metadata()).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn every_vocabulary_file() {
    let Some(folder) = oracles("tokenizers") else { return };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "gguf"));
    files.sort();
    assert!(files.len() >= 10);
    let mut wrong = Vec::new();
    let mut cases = 0;
    for file in &files {
        let tokenizer = load(file);
        let texts = std::fs::read_to_string(file.with_extension("gguf.inp")).unwrap();
        let ids = std::fs::read_to_string(file.with_extension("gguf.out")).unwrap();
        let texts: Vec<&str> = texts.split("\n__ggml_vocab_test__\n").collect();
        let ids: Vec<&str> = ids.lines().collect();
        // The list of texts ends with a separator.
        assert_eq!(texts.len() - 1, ids.len(), "{}", file.display());
        for (text, want) in texts.iter().zip(&ids) {
            cases += 1;
            let want: Vec<u32> = want.split_whitespace().map(|id| id.parse().unwrap()).collect();
            let got = tokenizer.encode(text, PLAIN).unwrap();
            if got != want {
                let name = file.file_name().unwrap().to_string_lossy().into_owned();
                wrong.push(format!("{name} {text:?}\n  want {want:?}\n   got {got:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(cases > 400);
}

/// The texts that real models' own engines tokenized; `None` where the model file is not at hand.
fn real(name: &str, vocabulary: &Path) {
    let Some(folder) = oracles("real") else { return };
    let list = std::fs::read_to_string(folder.join(name)).unwrap();
    let list: serde_json::Value = serde_json::from_str(&list).unwrap();
    let tokenizer = load(vocabulary);
    let cases = list["tokenize"].as_array().unwrap();
    assert!(cases.len() > 20);
    for case in cases {
        let text = case["text"].as_str().unwrap();
        for (key, options) in [
            ("ids_plain", PLAIN),
            ("ids_add_special_parse_special", EncodeOptions { add_special: true, parse_special: true }),
        ] {
            let want: Vec<u64> =
                case[key].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect();
            let got: Vec<u64> = tokenizer.encode(text, options).unwrap().into_iter().map(u64::from).collect();
            assert_eq!(got, want, "{name} {key} {text:?}");
        }
        let ids: Vec<u32> =
            case["ids_plain"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        let got = tokenizer.decode(&ids, DecodeOptions::default()).unwrap();
        assert_eq!(got, case["detok_plain"].as_str().unwrap(), "{name} decode {ids:?}");
    }
}

/// A model file in the folder that `HANZO_TEST_MODELS` names.
fn model(name: &str) -> Option<PathBuf> {
    present(PathBuf::from(std::env::var_os("HANZO_TEST_MODELS").unwrap_or_default()).join(name))
}

#[test]
fn smollm2() {
    if let Some(path) = model("SmolLM2-135M-Instruct-Q4_1.gguf") {
        real("smollm2-135m-q4_1.json", &path);
    }
}

#[test]
fn qwen25_coder() {
    if let Some(path) = model("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf") {
        real("qwen2.5-coder-0.5b-q4_k_m.json", &path);
    }
}

#[test]
fn gemma3() {
    if let Some(path) = model("gemma-3-270m-Q4_K_M.gguf") {
        real("gemma3-270m-q4_k_m.json", &path);
    }
}
