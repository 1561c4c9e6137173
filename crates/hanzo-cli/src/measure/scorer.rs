//! A model that runs texts for their logits, one sequence at a time and row by row.
//!
//! It runs the model's steps itself, as `hanzo logits` does: nothing is sampled, scheduled or shared between sequences, and what a
//! row gets does not depend on how a text is cut into steps.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use hanzo_fusion::{
    BLOCK_TOKENS, Device, DeviceError, KvConfig, KvType, LoadOptions, LoadedModel, Observer, SequenceStep,
    Step,
};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;

use crate::progress::Bar;

/// Most tokens of a step.
const STEP: usize = 512;
/// Memory for the logits of a step.
const LOGITS_BYTES: usize = 64 << 20;
/// Fewest rows of logits that a step has room for, however large the vocabulary.
const MIN_ROWS: usize = 16;

/// How a model is loaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Longest sequence, in tokens.
    pub(crate) context: usize,
    pub(crate) kv: KvType,
    pub(crate) threads: Option<usize>,
}

/// A loaded model with the cache of one sequence.
pub(crate) struct Scorer {
    model: Box<dyn LoadedModel>,
    device: String,
    table: Vec<u32>,
    n_groups: usize,
    vocab_size: usize,
    context: usize,
    max_rows: usize,
    logits: Vec<f32>,
}

impl Scorer {
    /// Loads a model. With an observer, what enters its contractions is shown to that.
    ///
    /// # Errors
    /// What is wrong with the file, what the device lacks, or a context that the model was not made for.
    pub(crate) fn load(
        file: &GgufFile,
        settings: Settings,
        observer: Option<Arc<dyn Observer>>,
    ) -> Result<Self> {
        let model = hanzo_models::load(file)?;
        let Settings { context, kv, threads } = settings;
        ensure!(
            context <= model.context_length,
            "windows of {context} tokens exceed the model's context of {}; give a smaller --ctx",
            model.context_length
        );
        let graph = &model.graph;
        let row_bytes = graph.vocab_size.saturating_mul(4).max(1);
        let max_rows = (LOGITS_BYTES / row_bytes).clamp(MIN_ROWS, STEP).min(context.max(1));
        let n_blocks = context.div_ceil(BLOCK_TOKENS);
        let options = LoadOptions {
            max_tokens: STEP.min(context.max(1)),
            max_outputs: max_rows,
            kv: KvConfig::equal(n_blocks, kv),
        };
        let device = crate::device::cpu(threads, None)?;
        let bar = Bar::bytes("loading");
        let weights = GgufWeights(file);
        let loaded = match observer {
            Some(observer) => device.load_observed(Arc::clone(graph), &weights, options, observer, &bar),
            None => device.load(Arc::clone(graph), &weights, options, &bar),
        };
        let loaded = loaded.map_err(|error| match &error {
            DeviceError::OutOfMemory { .. } => anyhow::anyhow!("{error}; a smaller --ctx needs less"),
            _ => error.into(),
        })?;
        Ok(Self {
            model: loaded,
            device: device.describe(),
            table: (0..n_blocks as u32).collect(),
            n_groups: graph.n_kv_groups(),
            vocab_size: graph.vocab_size,
            context,
            max_rows,
            logits: Vec::new(),
        })
    }

    /// What it runs on.
    pub(crate) fn device(&self) -> &str {
        &self.device
    }

    /// Logits of a row.
    pub(crate) fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    /// Runs `ids` as the tokens from position `past` on; those before must have been run, and those that were run after are
    /// forgotten. The logits after each position of `wanted` go to `visit` in order, with the position.
    ///
    /// # Errors
    /// A sequence longer than the context, a step that failed, and what `visit` returns.
    pub(crate) fn run(
        &mut self,
        past: usize,
        ids: &[u32],
        wanted: Range<usize>,
        visit: &mut dyn FnMut(usize, &[f32]) -> Result<()>,
    ) -> Result<()> {
        let end = past.saturating_add(ids.len());
        if end > self.context {
            bail!("{end} tokens exceed the context of {}", self.context);
        }
        let mut at = past;
        while at < end {
            // Steps of rows that nobody wants are long, the others have as many as there is room for.
            let (limit, rows) = if at < wanted.start {
                (STEP.min(wanted.start - at), false)
            } else if at < wanted.end {
                (self.max_rows.min(wanted.end - at), true)
            } else {
                (STEP, false)
            };
            let n = limit.min(end - at);
            let tokens = ids.get(at - past..at - past + n).context("tokens of the step")?;
            self.step(at + n, tokens, rows)?;
            if rows {
                for (i, row) in self.logits.chunks_exact(self.vocab_size.max(1)).enumerate() {
                    visit(at + i, row)?;
                }
            }
            at += n;
        }
        Ok(())
    }

    /// Runs one step; with `rows`, all its logits are computed.
    fn step(&mut self, context_len: usize, tokens: &[u32], rows: bool) -> Result<()> {
        let tables: Vec<&[u32]> = vec![&self.table; self.n_groups];
        let sequence =
            SequenceStep { n_tokens: tokens.len(), context_len, block_tables: &tables, adapters: &[] };
        let outputs: Vec<u32> = if rows { (0..tokens.len() as u32).collect() } else { Vec::new() };
        self.logits.resize(outputs.len() * self.vocab_size, 0.0);
        let step = Step { tokens, sequences: &[sequence], outputs: &outputs, hidden: &[] };
        self.model.step(&step, &mut self.logits)?;
        Ok(())
    }
}
