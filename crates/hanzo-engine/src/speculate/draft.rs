//! Drafts by a smaller model of the same vocabulary.
//!
//! One [`DraftModel`] serves all sequences of an engine: it has its own weights and its own small KV pool, in which each
//! sequence keeps what the two models have read in common. Where blocks run out or a step fails there are no drafts,
//! and the reply goes on without.

use std::sync::{Arc, Mutex, PoisonError};

use hanzo_fusion::{
    BLOCK_TOKENS, Device, KvConfig, KvType, LoadOptions, LoadedModel, Progress, SequenceStep, Step,
};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;

use super::{Proposer, Speculation};
use crate::EngineError;
use crate::kv::{KvManager, PoolSizes, PrefixId, Tables};

/// Tokens that a step of the draft model takes.
const CHUNK: usize = 256;
/// What a draft costs, as a share of a step of the large model: a row of verification and a step of the small model.
const COST: f32 = 0.4;
/// Weight of the newest outcome in the rate of right drafts.
const NEWEST: f32 = 0.1;
/// Where drafts do not pay, one in so many chances is tried.
const PROBE_EVERY: u32 = 32;

/// A small model that guesses for a large one.
#[derive(Clone)]
pub struct DraftModel(Arc<Mutex<Inner>>);

struct Inner {
    model: Box<dyn LoadedModel>,
    kv: KvManager,
    vocab_size: usize,
    logits: Vec<f32>,
}

impl std::fmt::Debug for DraftModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DraftModel")
    }
}

impl DraftModel {
    /// Loads a model with a KV pool of `kv_tokens` tokens.
    ///
    /// # Errors
    /// [`EngineError`] naming what is wrong with the file or what the device lacks.
    pub fn load(
        file: &GgufFile,
        device: &dyn Device,
        kv_tokens: usize,
        progress: &dyn Progress,
    ) -> Result<Self, EngineError> {
        let model = hanzo_models::load(file)?;
        if model.graph.state_bytes() > 0 {
            return Err(EngineError::RecurrentDraft { architecture: model.architecture });
        }
        let n_blocks = kv_tokens.div_ceil(BLOCK_TOKENS).max(1);
        let kv = KvConfig::equal(n_blocks, KvType::F16);
        let options = LoadOptions { max_tokens: CHUNK, max_outputs: 1, kv };
        let kv = KvManager::new(&model.graph.kv_layers, PoolSizes::equal(n_blocks), false);
        let vocab_size = model.graph.vocab_size;
        let model = device.load(Arc::clone(&model.graph), &GgufWeights(file), options, progress)?;
        Ok(Self(Arc::new(Mutex::new(Inner { model, kv, vocab_size, logits: Vec::new() }))))
    }

    /// Speculation by this model, with up to `most` drafts a step.
    pub fn speculation(&self, most: usize) -> Speculation {
        let shared = self.clone();
        Speculation::with(most, move || Box::new(shared.follower()))
    }

    fn follower(&self) -> Follower {
        Follower { shared: self.clone(), tables: None, read: Vec::new(), rate: 0.7, passed: 0 }
    }
}

/// The draft model's view of one sequence.
struct Follower {
    shared: DraftModel,
    tables: Option<Tables>,
    /// Tokens whose keys and values the draft model has.
    read: Vec<u32>,
    /// Estimated chance that a draft is right when all before it were.
    rate: f32,
    passed: u32,
}

impl Follower {
    /// Drafts worth proposing.
    fn wanted(&mut self, most: usize) -> usize {
        let (mut chance, mut n) = (self.rate, 0);
        while n < most && chance >= COST {
            (chance, n) = (chance * self.rate, n + 1);
        }
        if n == 0 {
            self.passed += 1;
            if self.passed >= PROBE_EVERY {
                (self.passed, n) = (0, most.min(1));
            }
        }
        n
    }

    /// Reads `tokens` after what was read, and gives the most likely next one.
    fn read(&mut self, inner: &mut Inner, tokens: &[u32]) -> Option<u32> {
        let tables = self.tables.get_or_insert_with(|| inner.kv.admit(PrefixId::ROOT, &[]).0);
        for chunk in tokens.chunks(CHUNK) {
            let (n_read, context_len) = (self.read.len(), self.read.len() + chunk.len());
            if chunk.iter().any(|&id| id as usize >= inner.vocab_size) {
                return None;
            }
            inner.kv.grow(tables, n_read, context_len).ok()?;
            let block_tables: Vec<&[u32]> = tables.slices().collect();
            let sequence = SequenceStep {
                n_tokens: chunk.len(),
                context_len,
                block_tables: &block_tables,
                adapters: &[],
            };
            let outputs = [chunk.len() as u32 - 1];
            inner.logits.resize(inner.vocab_size, 0.0);
            let step = Step { tokens: chunk, sequences: &[sequence], outputs: &outputs, hidden: &[] };
            inner.model.step(&step, &mut inner.logits).ok()?;
            self.read.extend_from_slice(chunk);
        }
        let best =
            inner.logits.iter().enumerate().fold((0, f32::NEG_INFINITY), |best, (id, &l)| {
                if l > best.1 { (id as u32, l) } else { best }
            });
        (best.1 > f32::NEG_INFINITY).then_some(best.0)
    }
}

impl Proposer for Follower {
    fn propose(&mut self, tokens: &[u32], most: usize, drafts: &mut Vec<u32>) {
        let n = self.wanted(most);
        if n == 0 {
            return;
        }
        let shared = self.shared.clone();
        let mut inner = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
        // What was read of drafts that turned out wrong is written over.
        let common = self.read.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        self.read.truncate(common.min(tokens.len().saturating_sub(1)));
        let mut next = tokens.get(self.read.len()..).unwrap_or_default().to_vec();
        for _ in 0..n {
            let Some(draft) = self.read(&mut inner, &next) else { return };
            drafts.push(draft);
            next = vec![draft];
        }
    }

    fn observe(&mut self, tried: usize, accepted: usize) {
        let accepted = accepted.min(tried);
        for right in (0..accepted).map(|_| 1.0).chain((accepted < tried).then_some(0.0)) {
            self.rate += NEWEST * (right - self.rate);
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(tables) = self.tables.take() {
            self.shared.0.lock().unwrap_or_else(PoisonError::into_inner).kv.release(tables);
        }
    }
}
