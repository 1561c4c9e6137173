//! Logits of small random models of every architecture, against those of the reference implementation (Hugging Face
//! transformers, f32).

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{Sequence, argmax, floats, ids, max_distance, oracles};
use hanzo_fusion::KvType;
use serde_json::Value;

/// Both files of an architecture: logits of the prompt and of the greedy continuation within `bound`, and the
/// continuation itself.
fn check(name: &str, reference: &str, bound: f32) {
    let Some(folder) = oracles("logits").map(|o| o.join(name)) else { return };
    let oracle: Value = serde_json::from_slice(&std::fs::read(folder.join("oracle.json")).unwrap()).unwrap();
    let (prompt, greedy) = (ids(&oracle["prompt"]), ids(&oracle["greedy"]));
    let logits = floats(&folder.join(reference));
    let greedy_logits = floats(&folder.join("greedy_logits.f32"));
    for kind in ["f32", "f16"] {
        let mut sequence = Sequence::load(&folder.join(format!("{name}-{kind}.gguf")), 2, KvType::F32);
        let got = sequence.step(&prompt);
        let distance = max_distance(&got, &logits);
        println!("{name}-{kind}: prompt {distance:.2e}");
        assert!(distance <= bound, "{name}-{kind}: logits of the prompt are off by {distance}");
        let mut last = got[got.len() - sequence.vocab_size..].to_vec();
        for (i, &expected) in greedy.iter().enumerate() {
            if reference == "logits.f32" {
                let wanted = &greedy_logits[i * sequence.vocab_size..][..sequence.vocab_size];
                let distance = max_distance(&last, wanted);
                assert!(distance <= bound, "{name}-{kind}: logits of greedy token {i} are off by {distance}");
            }
            let token = argmax(&last);
            if reference == "logits.f32" {
                assert_eq!(token, expected, "{name}-{kind}: greedy token {i}");
            }
            last = sequence.step(&[token]);
        }
    }
}

#[test]
fn llama() {
    check("llama", "logits.f32", 2e-3);
}

#[test]
fn qwen2() {
    check("qwen2", "logits.f32", 2e-3);
}

#[test]
fn qwen3() {
    check("qwen3", "logits.f32", 2e-3);
}

#[test]
fn qwen3moe() {
    check("qwen3moe", "logits.f32", 2e-3);
}

/// Delta nets and attention, with a shared expert.
#[test]
fn qwen3next() {
    check("qwen3next", "logits.f32", 2e-3);
}

#[test]
fn qwen3_5() {
    check("qwen3_5", "logits.f32", 2e-3);
}

#[test]
fn gemma3() {
    check("gemma3", "logits.f32", 6e-3);
}

/// Mistral's file has no window, so its logits are those of full attention.
#[test]
fn mistral_is_llama() {
    check("mistral", "logits_full_attention.f32", 2e-3);
}

/// Mixtral is llama with routed experts.
#[test]
fn mixtral_is_llama_with_experts() {
    check("mixtral", "logits.f32", 2e-3);
}
