//! Logits of small random models of every architecture, against those of the reference implementation (Hugging Face
//! transformers, f32). The files lie beside the project; without them these tests are skipped, or fail where
//! `HANZO_REQUIRE=all`.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_fusion::{BLOCK_TOKENS, Device, KvConfig, KvType, LoadOptions, LoadedModel, SequenceStep, Step};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;
use serde_json::Value;

const CONTEXT: usize = 128;

fn oracles() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracles/logits");
    if path.exists() {
        return Some(path);
    }
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is missing", path.display());
    println!("skipped: {} is missing", path.display());
    None
}

fn floats(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

struct Sequence {
    model: Box<dyn LoadedModel>,
    tables: Vec<Vec<u32>>,
    context_len: usize,
    vocab_size: usize,
}

impl Sequence {
    fn load(path: &Path, threads: usize, kv_type: KvType) -> Self {
        let file = GgufFile::open(path).unwrap();
        let model = hanzo_models::load(&file).unwrap();
        let n_blocks = CONTEXT / BLOCK_TOKENS;
        let options = LoadOptions { max_tokens: 64, max_outputs: 64, kv: KvConfig { n_blocks, kv_type } };
        let device = CpuDevice::new(&CpuConfig { threads: Some(threads), ..CpuConfig::default() }).unwrap();
        let loaded = device.load(Arc::clone(&model.graph), &GgufWeights(&file), options, &()).unwrap();
        Self {
            model: loaded,
            tables: vec![(0..n_blocks as u32).rev().collect(); model.graph.n_kv_groups()],
            context_len: 0,
            vocab_size: model.graph.vocab_size,
        }
    }

    fn step(&mut self, ids: &[u32]) -> Vec<f32> {
        self.context_len += ids.len();
        let tables: Vec<&[u32]> = self.tables.iter().map(Vec::as_slice).collect();
        let sequence =
            SequenceStep { n_tokens: ids.len(), context_len: self.context_len, block_tables: &tables };
        let outputs: Vec<u32> = (0..ids.len() as u32).collect();
        let mut logits = vec![0.0; ids.len() * self.vocab_size];
        self.model
            .step(&Step { tokens: ids, sequences: &[sequence], outputs: &outputs }, &mut logits)
            .unwrap();
        logits
    }
}

fn max_distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |m, d| if d.is_nan() { f32::INFINITY } else { m.max(d) })
}

fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a))).unwrap() as u32
}

/// Both files of an architecture: logits of the prompt and of the greedy continuation within `bound`, and the
/// continuation itself.
fn check(name: &str, reference: &str, bound: f32) {
    let Some(folder) = oracles().map(|o| o.join(name)) else { return };
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
