//! A small llama in every block format, against the logits of the same model with its weights decoded to f32.
//!
//! Both this engine and llama.cpp round activations to int8, which moves the logits a little; llama.cpp's distance is the
//! yardstick for ours.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{Sequence, argmax, floats, ids, max_distance, mean_distance, oracles};
use hanzo_fusion::KvType;
use serde_json::Value;

#[test]
fn every_format_is_as_close_as_llama_cpp() {
    let Some(folder) = oracles("quantmodel") else { return };
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    let prompt = ids(&manifest["prompt"]);
    let types = manifest["types"].as_object().unwrap();
    assert_eq!(types.len(), 25);
    for (name, entry) in types {
        let file = folder.join(name.to_lowercase());
        let reference = floats(&file.with_extension("logits"));
        let mut sequence = Sequence::load(&file.with_extension("gguf"), 2, KvType::F32);
        let got = sequence.step(&prompt);
        let (max, mean) = (max_distance(&got, &reference), mean_distance(&got, &reference));
        let (native_max, native_mean) = (
            entry["native_max_abs"].as_f64().unwrap() as f32,
            entry["native_mean_abs"].as_f64().unwrap() as f32,
        );
        let rows = || got.chunks_exact(sequence.vocab_size).zip(reference.chunks_exact(sequence.vocab_size));
        let agree = rows().filter(|(a, b)| argmax(a) == argmax(b)).count();
        println!(
            "{name:8} mean {mean:.4} (llama.cpp {native_mean:.4}), max {max:.3} ({native_max:.3}), argmax {agree}/24"
        );
        assert!(mean <= native_mean * 1.05, "{name}: mean distance {mean}, llama.cpp's is {native_mean}");
        assert!(max <= native_max * 1.5, "{name}: greatest distance {max}, llama.cpp's is {native_max}");
        // Random weights give near-ties; llama.cpp itself agrees at 22 or more.
        assert!(agree >= 20, "{name}: {agree} of 24 positions have the reference's most likely token");
    }
}

/// Law 1: the bits of a row do not depend on the rows beside it.
#[test]
fn a_prompt_gives_the_same_bits_in_any_chunks() {
    let Some(folder) = oracles("quantmodel") else { return };
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(folder.join("manifest.json")).unwrap()).unwrap();
    let prompt = ids(&manifest["prompt"]);
    for name in manifest["types"].as_object().unwrap().keys() {
        let mut sequence =
            Sequence::load(&folder.join(name.to_lowercase()).with_extension("gguf"), 2, KvType::F16);
        let whole = sequence.step(&prompt);
        for chunk in [1, 5, 7] {
            sequence.restart();
            let parts: Vec<f32> = prompt.chunks(chunk).flat_map(|ids| sequence.step(ids)).collect();
            let differing = whole.iter().zip(&parts).filter(|(a, b)| a.to_bits() != b.to_bits()).count();
            assert_eq!(
                differing,
                0,
                "{name} in chunks of {chunk}: {differing} logits of {} differ",
                whole.len()
            );
        }
    }
}
