//! The plain interfaces: tokenize, detokenize, template, inspect.

mod common;

use common::{TINY, run, run_with_input, shared};
use serde_json::Value;

#[test]
fn text_to_ids_and_back() {
    let text = "Once upon a time, there was a fox. Ünï 🦊!\n  ends";
    let ids = run(&["tokenize", TINY, "--text", text, "--ids"]).ok();
    let same = run_with_input(&["tokenize", TINY, "--ids"], text.as_bytes()).ok();
    assert_eq!(ids.text(), same.text());
    let back = run_with_input(&["detokenize", TINY], &ids.out).ok();
    assert_eq!(back.text(), format!("{text}\n"));
    let commas = ids.text().trim().replace(' ', ",");
    assert_eq!(run(&["detokenize", TINY, "--ids", &commas]).ok().text(), back.text());
    run(&["detokenize", TINY, "--ids", "1,x"]).fails(1, &["`x`"]);
    run(&["detokenize", TINY, "--ids", "99999999"]).fails(1, &["99999999"]);
}

#[test]
fn special_tokens_are_read_when_asked_for() {
    let text = "<|im_start|>user";
    let plain = run(&["tokenize", TINY, "--text", text, "--ids"]).ok();
    let special = run(&["tokenize", TINY, "--text", text, "--ids", "--parse-special", "--no-bos"]).ok();
    let count = |run: &common::Run| run.text().split_whitespace().count();
    assert!(count(&special) < count(&plain));
    let named = run_with_input(&["detokenize", TINY, "--special"], &special.out).ok();
    assert_eq!(named.text().trim_end(), text);
}

#[test]
fn vocabulary_only_files_tokenize_as_the_reference_does() {
    let Some(vocab) = shared("oracles/tokenizers/ggml-vocab-llama-bpe.gguf") else { return };
    let vocab = vocab.to_str().unwrap();
    let (texts, ids) = (format!("{vocab}.inp"), format!("{vocab}.out"));
    let (texts, ids) = (std::fs::read_to_string(texts).unwrap(), std::fs::read_to_string(ids).unwrap());
    let mut checked = 0;
    for (text, ids) in texts.split("\n__ggml_vocab_test__\n").zip(ids.lines()).take(12) {
        let ours = run(&["tokenize", vocab, "--text", text, "--no-bos", "--ids"]).ok();
        assert_eq!(ours.text().trim(), ids.trim(), "{text:?}");
        checked += 1;
    }
    assert_eq!(checked, 12);
    let inspected = run(&["inspect", vocab]).ok();
    assert!(inspected.text().contains("a vocabulary only"), "{}", inspected.text());
}

#[test]
fn templates_render_as_the_reference_does() {
    let Some(path) = shared("oracles/templates/GLM-4.6.json") else { return };
    let oracle: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (template, messages, tools) = (file("t.jinja"), file("messages.json"), file("tools.json"));
    std::fs::write(&template, oracle["template"].as_str().unwrap()).unwrap();
    let mut rendered = 0;
    for (name, case) in oracle["cases"].as_object().unwrap() {
        std::fs::write(&messages, case["messages"].to_string()).unwrap();
        std::fs::write(&tools, case["tools"].to_string()).unwrap();
        let now = format!("{}Z", oracle["now"].as_str().unwrap());
        let mut args = vec!["template", &template, "--messages", &messages, "--tools", &tools, "--now", &now];
        args.extend(["--bos-token", "<BOS>", "--eos-token", "<EOS>"]);
        if case["add_generation_prompt"] == false {
            args.push("--no-generation-prompt");
        }
        let vars: Vec<String> =
            case["extra"].as_object().into_iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
        for var in &vars {
            args.extend(["--var", var]);
        }
        let ours = run(&args);
        match case["expected"].as_str() {
            Some(expected) => {
                assert_eq!(ours.ok().text(), expected, "{name}");
                rendered += 1;
            }
            None => drop(ours.fails(1, &["chat template"])),
        }
    }
    assert!(rendered > 3);
}

#[test]
fn the_models_own_template_and_tokens_are_used() {
    let messages = br#"{"messages": [{"role": "user", "content": "Hi"}]}"#;
    let ours = run_with_input(&["template", TINY, "--messages", "-"], messages).ok();
    assert_eq!(ours.text(), "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    let bad = br#"[{"role": "user", "content": "Hi"}, {"role": "user", "content": 5}]"#;
    run_with_input(&["template", TINY, "--messages", "-"], bad).fails(1, &["message 1", "/content"]);
    run_with_input(&["template", TINY, "--messages", "-"], b"[{").fails(1, &["JSON"]);
}

#[test]
fn inspect_tells_what_is_in_a_file() {
    let text = run(&["inspect"]).ok();
    for part in ["qwen3", "Metadata", "general.architecture", "Types", "can be run here"] {
        assert!(text.text().contains(part), "no `{part}` in {}", text.text());
    }
    let json = run(&["inspect", TINY, "--json", "--tensors"]).ok().json();
    let tensors = json["tensors"].as_array().unwrap();
    assert_eq!(json["n_tensors"], tensors.len());
    let sum =
        |list: &mut dyn Iterator<Item = &Value>| list.map(|v| v["bytes"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(sum(&mut tensors.iter()), sum(&mut json["types"].as_object().unwrap().values()));
    assert_eq!(json["runs"], true);
    let tokens = &json["metadata"]["tokenizer.ggml.tokens"];
    assert_eq!(tokens["first"].as_array().unwrap().len(), 8);
    let all = run(&["inspect", TINY, "--json", "--key", "tokenizer.ggml.tokens"]).ok().json();
    assert_eq!(tokens["length"], all.as_array().unwrap().len());
    assert_eq!(run(&["inspect", "--key", "general.architecture"]).ok().text(), "qwen3\n");
    run(&["inspect", "--key", "architecture"]).fails(1, &["general.architecture"]);
    let scanned = run(&["inspect", "--scan"]).ok();
    assert_eq!(scanned.text(), text.text());
}

#[test]
fn a_broken_file_is_described_as_far_as_possible() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("cut.gguf");
    let tiny = std::fs::read(TINY).unwrap();
    std::fs::write(&path, &tiny[..tiny.len() - 1000]).unwrap();
    let json = run(&["inspect", path.to_str().unwrap(), "--json"]);
    assert_eq!(json.code, 1, "{}", json.err);
    let json = json.json();
    assert_eq!(json["architecture"], "qwen3");
    assert_eq!(json["runs"], false);
    assert!(json["problems"].as_array().unwrap().iter().any(|p| p["severity"] == "error"), "{json}");
}
