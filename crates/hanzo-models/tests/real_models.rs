//! Real models: the last logits of three prompts, against those of the model with its weights decoded to f32, and the
//! greedy continuations of llama.cpp.
//!
//! As for the small models, llama.cpp's own distance from the decoded weights is the yardstick.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{Sequence, argmax, floats, ids, mean_distance, oracles, real_model};
use hanzo_fusion::KvType;
use serde_json::Value;

fn check(file: &str, oracle: &str) {
    let (Some(model), Some(folder)) = (real_model(file), oracles("real")) else { return };
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.join(format!("{oracle}.json"))).unwrap()).unwrap();
    let mut same_tokens = 0;
    let prompts = json["generate"].as_array().unwrap();
    for (i, entry) in prompts.iter().enumerate() {
        let mut sequence = Sequence::load(&model, 2, KvType::F32);
        let got = sequence.step(&ids(&entry["ids"]));
        let mut last = got[got.len() - sequence.vocab_size..].to_vec();
        let decoded = floats(&folder.join(format!("{oracle}.{i}.lastlogits.dqf32")));
        let native = floats(&folder.join(format!("{oracle}.{i}.lastlogits.f32")));
        let (ours, theirs) = (mean_distance(&last, &decoded), mean_distance(&native, &decoded));
        let expected = ids(&entry["greedy24"]);
        let mut same = 0;
        for &token in &expected {
            if argmax(&last) != token {
                break;
            }
            same += 1;
            last = sequence.step(&[token]);
        }
        same_tokens += same;
        println!(
            "{oracle} prompt {i}: mean distance {ours:.4} (llama.cpp {theirs:.4}), {same} greedy tokens in common"
        );
        assert!(ours <= theirs * 1.1, "{oracle} prompt {i}: mean distance {ours}, llama.cpp's is {theirs}");
        assert_eq!(argmax(&decoded), argmax(&got[got.len() - sequence.vocab_size..]), "{oracle} prompt {i}");
    }
    // Two engines that round activations differently part ways at the first near-tie; most of the text is the same.
    assert!(same_tokens >= prompts.len() * 8, "{oracle}: {same_tokens} greedy tokens in common");
}

#[test]
fn smollm2() {
    check("SmolLM2-135M-Instruct-Q4_1.gguf", "smollm2-135m-q4_1");
}

#[test]
fn qwen2_5_coder() {
    check("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf", "qwen2.5-coder-0.5b-q4_k_m");
}

#[test]
fn gemma3() {
    check("gemma-3-270m-Q4_K_M.gguf", "gemma3-270m-q4_k_m");
}
