//! What the tests on reference values share: where the values are, and a model on the CPU.

#![allow(dead_code, unreachable_pub)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_fusion::{
    Adapter, AdapterUse, BLOCK_TOKENS, Device, KvConfig, KvType, LoadOptions, LoadedModel, SequenceStep, Step,
};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;
use serde_json::Value;

const CONTEXT: usize = 128;

/// A folder of reference values, which lies beside the project. Without it the test is skipped, or fails where
/// `HANZO_REQUIRE=all`.
pub fn oracles(name: &str) -> Option<PathBuf> {
    required(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracles").join(name))
}

/// A real model in the folder that `HANZO_TEST_MODELS` names; skipped likewise.
pub fn real_model(name: &str) -> Option<PathBuf> {
    required(PathBuf::from(std::env::var_os("HANZO_TEST_MODELS").unwrap_or_default()).join(name))
}

fn required(path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is missing", path.display());
    println!("skipped: {} is missing", path.display());
    None
}

pub fn floats(path: &Path) -> Vec<f32> {
    std::fs::read(path).unwrap().as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

pub fn ids(value: &Value) -> Vec<u32> {
    value.as_array().unwrap().iter().map(|v| v.as_u64().unwrap() as u32).collect()
}

pub struct Sequence {
    model: Box<dyn LoadedModel>,
    tables: Vec<Vec<u32>>,
    context_len: usize,
    pub vocab_size: usize,
    /// Adapters that the next steps use, with their scales.
    pub adapters: Vec<(Adapter, f32)>,
}

impl Sequence {
    pub fn load(path: &Path, threads: usize, kv_type: KvType) -> Self {
        let file = GgufFile::open(path).unwrap();
        let model = hanzo_models::load(&file).unwrap();
        let n_blocks = CONTEXT / BLOCK_TOKENS;
        let options = LoadOptions { max_tokens: 64, max_outputs: 64, kv: KvConfig::equal(n_blocks, kv_type) };
        let device = CpuDevice::new(&CpuConfig { threads: Some(threads), ..CpuConfig::default() }).unwrap();
        let loaded = device.load(Arc::clone(&model.graph), &GgufWeights(&file), options, &()).unwrap();
        Self {
            model: loaded,
            tables: vec![(0..n_blocks as u32).rev().collect(); model.graph.n_kv_groups()],
            context_len: 0,
            vocab_size: model.graph.vocab_size,
            adapters: Vec::new(),
        }
    }

    /// Begins anew with an empty context.
    pub fn restart(&mut self) {
        self.context_len = 0;
    }

    pub fn step(&mut self, ids: &[u32]) -> Vec<f32> {
        self.context_len += ids.len();
        let tables: Vec<&[u32]> = self.tables.iter().map(Vec::as_slice).collect();
        let adapters: Vec<AdapterUse<'_>> =
            self.adapters.iter().map(|(adapter, scale)| AdapterUse { adapter, scale: *scale }).collect();
        let sequence = SequenceStep {
            n_tokens: ids.len(),
            context_len: self.context_len,
            block_tables: &tables,
            adapters: &adapters,
        };
        let outputs: Vec<u32> = (0..ids.len() as u32).collect();
        let mut logits = vec![0.0; ids.len() * self.vocab_size];
        self.model
            .step(&Step { tokens: ids, sequences: &[sequence], outputs: &outputs, hidden: &[] }, &mut logits)
            .unwrap();
        logits
    }
}

pub fn max_distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |m, d| if d.is_nan() { f32::INFINITY } else { m.max(d) })
}

pub fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a))).unwrap() as u32
}

pub fn mean_distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).sum::<f32>() / a.len() as f32
}
