//! Real models: the logits of three prompts against those of the model with its weights decoded to f32, and its greedy
//! continuations token by token.
//!
//! Both this engine and llama.cpp round activations to int8, and how far that moves one row of logits varies by a factor
//! of five from row to row, so llama.cpp's own distance is the yardstick for the sum over the prompts. (Decoded to an
//! F32 file, SmolLM2 gives logits within 7e-5 of the reference here.)

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{Sequence, argmax, floats, ids, oracles, real_model};
use hanzo_fusion::KvType;
use serde_json::Value;

/// Mean distance of two rows of logits, but for what all logits moved by in common, which no probability feels.
fn centred_distance(a: &[f32], b: &[f32]) -> f32 {
    let n = a.len() as f32;
    let shift = a.iter().zip(b).map(|(a, b)| a - b).sum::<f32>() / n;
    a.iter().zip(b).map(|(a, b)| (a - b - shift).abs()).sum::<f32>() / n
}

fn check(file: &str, oracle: &str) {
    let (Some(model), Some(folder)) = (real_model(file), oracles("real")) else { return };
    let json: Value =
        serde_json::from_slice(&std::fs::read(folder.join(format!("{oracle}.json"))).unwrap()).unwrap();
    let mut sequence = Sequence::load(&model, 2, KvType::F32);
    let vocab_size = sequence.vocab_size;
    let (mut ours, mut theirs, mut agree, mut total) = (0.0, 0.0, 0, 0);
    for (i, entry) in json["generate"].as_array().unwrap().iter().enumerate() {
        let (prompt, greedy) = (ids(&entry["ids"]), ids(&entry["dequant_f32"]["greedy24"]));
        let fed: Vec<u32> = prompt.iter().chain(&greedy).copied().collect();
        sequence.restart();
        let logits = sequence.step(&fed[..fed.len() - 1]);
        let rows: Vec<&[f32]> = logits.chunks_exact(vocab_size).skip(prompt.len() - 1).collect();
        let decoded = floats(&folder.join(format!("{oracle}.{i}.lastlogits.dqf32")));
        let native = floats(&folder.join(format!("{oracle}.{i}.lastlogits.f32")));
        ours += centred_distance(rows[0], &decoded);
        theirs += centred_distance(&native, &decoded);
        agree += rows.iter().zip(&greedy).filter(|(row, token)| argmax(row) == **token).count();
        total += greedy.len();
        assert_eq!(argmax(rows[0]), greedy[0], "{oracle} prompt {i}");
    }
    println!("{oracle}: distance {ours:.3} (llama.cpp {theirs:.3}), {agree} of {total} greedy tokens agree");
    assert!(ours <= theirs * 1.5, "{oracle}: distance {ours}, llama.cpp's is {theirs}");
    assert!(agree * 5 >= total * 4, "{oracle}: {agree} of {total} greedy tokens agree");
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
