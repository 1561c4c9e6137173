//! The validator: all faults of a broken file at once, and what is odd about a whole one.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Raw, array, string};
use hanzo_gguf::{GgufFile, GgufWriter, Severity, TensorType, check, check_contents, scan_values};

fn messages(raw: &Raw) -> Vec<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    std::fs::write(&path, raw.build()).unwrap();
    check(&path).problems.iter().map(ToString::to_string).collect()
}

fn assert_says(messages: &[String], parts: &[&str]) {
    let found = messages.iter().any(|message| parts.iter().all(|part| message.contains(part)));
    assert!(found, "no message with {parts:?} in {messages:#?}");
}

#[test]
fn all_faults_of_the_container_are_listed() {
    let raw = Raw::new()
        .key("a", 0, &[1])
        .key("a", 0, &[1])
        .key("", 0, &[1])
        .key("general.alignment", 4, &3u32.to_le_bytes())
        .tensor("ok", &[8], 0, 0)
        .tensor("over", &[8], 0, 0)
        .tensor("odd", &[8], 0, 33)
        .tensor("far", &[8], 0, 4096)
        .tensor("old", &[256], 4, 0)
        .tensor("new", &[256], 77, 0)
        .tensor("ragged", &[31], 2, 0)
        .tensor("x\0", &[1], 0, 64)
        .tensor("ok", &[8], 0, 32)
        .data(128);
    let messages = messages(&raw);
    for parts in [
        &["error", "`a`", "repeats"][..],
        &["error", "key 2", "is empty"],
        &["error", "general.alignment", "u32 3"],
        &["error", "`over`", "overlaps"],
        &["error", "`odd`", "not a multiple"],
        &["error", "`far`", "beyond the file"],
        &["error", "`old`", "Q4_2", "removed"],
        &["error", "`new`", "77", "unknown"],
        &["error", "`ragged`", "whole number of Q4_0 blocks"],
        &["error", "name of tensor 7", "NUL"],
        &["error", "`ok`", "repeats"],
        &["error", "general.architecture", "missing"],
    ] {
        assert_says(&messages, parts);
    }
    assert!(messages.iter().filter(|m| m.starts_with("error")).all(|m| !m.contains("InFile")));
}

#[test]
fn what_cannot_be_read_on_from_is_the_last_problem() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    let bytes = Raw::good().key("a", 0, &[1]).key("a", 0, &[1]).build();
    std::fs::write(&path, &bytes[..bytes.len() - 200]).unwrap();
    let report = check(&path);
    assert!(report.file.is_none());
    assert!(report.problems.last().unwrap().message.contains("the file ends inside"), "{report:?}");
    assert!(check(folder.path().join("absent")).problems[0].message.contains("cannot open"));
}

#[test]
fn contents_that_contradict_each_other() {
    let raw = Raw::new()
        .key("general.architecture", 8, &string("llama"))
        .key("general.name", 4, &[0; 4])
        .key("llama.block_count", 8, &string("2"))
        .key("llama.attention.head_count_kv", 9, &array(5, 1, &[0; 4]))
        .key("llama.rope.freq_base", 4, &[0; 4])
        .key("Shout", 0, &[1])
        .key("note", 8, &string(b"\xff"))
        .key("nested", 9, &array(9, 1, &array(0, 0, &[])))
        .key("tokenizer.ggml.tokens", 9, &array(8, 2, &[string("a"), string(b"\xc0")].concat()))
        .key("tokenizer.ggml.scores", 9, &array(6, 3, &[0; 12]))
        .key("tokenizer.ggml.eos_token_id", 4, &2u32.to_le_bytes())
        .tensor("w".repeat(64), &[32], 2, 64)
        .data(64 + 32 + 96);
    let messages = messages(&raw);
    for parts in [
        &["error", "general.name", "u32; string expected"][..],
        &["error", "llama.block_count", "string; unsigned integer expected"],
        &["error", "llama.rope.freq_base", "u32; f32 expected"],
        &["warning", "`Shout`", "lower-case"],
        &["warning", "`note`", "not UTF-8"],
        &["warning", "`nested`", "array of arrays"],
        &["warning", "tokenizer.ggml.tokens", "1 of its strings"],
        &["error", "tokenizer.ggml.scores", "3 elements", "2 tokens"],
        &["error", "tokenizer.ggml.eos_token_id", "is 2", "2 tokens"],
        &["warning", "wwww", "longer than 63"],
        &["warning", "wwww", "not right after"],
        &["warning", "last 96 bytes"],
        &["warning", "general.quantization_version"],
    ] {
        assert_says(&messages, parts);
    }
    assert!(!messages.iter().any(|message| message.contains("head_count_kv")), "{messages:#?}");
}

#[test]
fn files_of_other_programs_have_no_problems() {
    let Some(oracles) = common::oracles() else { return };
    for path in common::ggufs(&oracles) {
        let report = check(&path);
        let errors: Vec<_> = report.problems.iter().filter(|p| p.severity == Severity::Error).collect();
        assert!(errors.is_empty(), "{}: {errors:#?}", path.display());
    }
}

#[test]
fn a_file_of_our_own_writer_has_no_problems() {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama").unwrap();
    writer.tensor("a", TensorType::F32, &[3, 5]).unwrap();
    writer.tensor("b", TensorType::F16, &[7]).unwrap();
    let file = GgufFile::from_bytes(writer.to_bytes(&[vec![0; 60], vec![0; 14]]).unwrap()).unwrap();
    assert_eq!(check_contents(&file), []);
}

#[test]
fn values_that_are_not_finite_are_counted() {
    let mut writer = GgufWriter::new();
    for (name, ty) in
        [("h", TensorType::F16), ("b", TensorType::BF16), ("s", TensorType::F32), ("d", TensorType::F64)]
    {
        writer.tensor(name, ty, &[4]).unwrap();
    }
    writer.tensor("q", TensorType::Q8_0, &[32]).unwrap();
    // 1, −∞, NaN, +∞ of each type; of the quantized one only ones.
    let h = [0x3c00u16, 0xfc00, 0x7e01, 0x7c00].map(u16::to_le_bytes).concat();
    let b = [0x3f80u16, 0xff80, 0xffc1, 0x7f80].map(u16::to_le_bytes).concat();
    let s = [1.0, f32::NEG_INFINITY, f32::NAN, f32::INFINITY].map(f32::to_le_bytes).concat();
    let d = [1.0, f64::NEG_INFINITY, -f64::NAN, f64::INFINITY].map(f64::to_le_bytes).concat();
    let bytes = writer.to_bytes(&[h, b, s, d, vec![0xff; 34]]).unwrap();
    let problems = scan_values(&GgufFile::from_bytes(bytes).unwrap(), |_| ()).unwrap();
    let said: Vec<_> = problems.iter().map(|problem| problem.message.as_str()).collect();
    let expected =
        ["h", "b", "s", "d"].map(|t| format!("tensor `{t}`: of 4 values 1 are NaN and 2 infinite"));
    assert_eq!(said, expected);
}

/// -1, or its 32 bits, is how some converters write that there is no such token; loaders take it so.
#[test]
fn a_token_that_does_not_exist_is_no_problem() {
    let problems = |id: hanzo_gguf::MetadataValue| {
        let mut writer = GgufWriter::new();
        writer.set("general.architecture", "llama").unwrap();
        writer.set("tokenizer.ggml.tokens", &["a", "b"][..]).unwrap();
        writer.set("tokenizer.ggml.bos_token_id", id).unwrap();
        check_contents(&GgufFile::from_bytes(writer.to_bytes::<Vec<u8>>(&[]).unwrap()).unwrap())
    };
    assert_eq!(problems((-1i32).into()), []);
    assert_eq!(problems(u32::MAX.into()), []);
    assert!(!problems((-2i32).into()).is_empty());
    assert!(!problems(2u32.into()).is_empty());
}

/// One tensor out of bounds: that is said, and nothing that only follows from it.
#[test]
fn a_fault_is_told_once() {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama").unwrap();
    for name in ["a", "b", "c"] {
        writer.tensor(name, TensorType::F32, &[16]).unwrap();
    }
    let good = writer.to_bytes(&[vec![0; 64], vec![0; 64], vec![0; 64]]).unwrap();
    let report = hanzo_gguf::check_bytes(good[..good.len() - 32].to_vec());
    assert_eq!(report.problems.len(), 1, "{:?}", report.problems);
    assert!(report.problems[0].message.contains("`c`"), "{:?}", report.problems);
}
