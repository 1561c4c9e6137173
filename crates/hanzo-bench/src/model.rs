//! A model on a device with block tables, driven step by step: no scheduler, no sampler but the greedy one, nothing between the clock and
//! the model.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_engine::argmax;
use hanzo_fusion::{
    BLOCK_TOKENS, Device, KvConfig, KvType, LoadOptions, LoadedModel, MemoryReport, Plan, PlanOptions,
    Progress, SequenceStep, Step, StepTimes,
};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;

use crate::error::BenchError;
use crate::work::{StepShape, Work};

/// Element type of the cache that is measured: the default of both engines.
const KV: KvType = KvType::F16;

/// How large the sequences may be.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Sequences at once.
    pub batch: usize,
    /// Tokens of each.
    pub context: usize,
    /// Tokens of a step when a prompt is read.
    pub chunk: usize,
}

/// A loaded model.
pub struct BenchModel {
    /// Its architecture.
    pub architecture: &'static str,
    /// Where it runs.
    pub device: String,
    /// Bytes of the file's tensors.
    pub tensor_bytes: u64,
    /// Seconds from opening the file to a model that is ready.
    pub load_s: f64,
    /// The plan that the device follows.
    pub plan: Plan,
    sizes: Sizes,
    model: Box<dyn LoadedModel>,
    tables: Vec<Vec<u32>>,
    n_groups: usize,
    vocab_size: usize,
    logits: Vec<f32>,
}

impl BenchModel {
    /// Opens and loads a file.
    ///
    /// # Errors
    /// As [`load`](Self::load), and what is wrong with the file.
    pub fn open(
        path: &Path,
        config: &CpuConfig,
        sizes: Sizes,
        progress: &dyn Progress,
    ) -> Result<Self, BenchError> {
        let start = Instant::now();
        let model = Self::load(&GgufFile::open(path)?, config, sizes, progress)?;
        Ok(Self { load_s: start.elapsed().as_secs_f64(), ..model })
    }

    /// Loads an open file.
    ///
    /// # Errors
    /// What is wrong with the model, or what the device lacks.
    pub fn load(
        file: &GgufFile,
        config: &CpuConfig,
        sizes: Sizes,
        progress: &dyn Progress,
    ) -> Result<Self, BenchError> {
        let start = Instant::now();
        let model = hanzo_models::load(file)?;
        if sizes.context > model.context_length {
            return Err(BenchError::Asked(format!(
                "{} tokens of context are asked for; the model was made for {}: ask for shorter prompts, replies or depth",
                sizes.context, model.context_length
            )));
        }
        let per_sequence = sizes.context.max(1).div_ceil(BLOCK_TOKENS);
        let options = LoadOptions {
            max_tokens: sizes.chunk.max(sizes.batch),
            max_outputs: sizes.batch,
            kv: KvConfig::equal(per_sequence * sizes.batch, KV),
        };
        let device = CpuDevice::new(config)?;
        let loaded = device.load(Arc::clone(&model.graph), &GgufWeights(file), options, progress)?;
        let plan = Plan::new(&model.graph, PlanOptions { fuse: !config.no_fuse })
            .map_err(hanzo_fusion::DeviceError::from)?;
        Ok(Self {
            architecture: model.architecture,
            device: device.describe(),
            tensor_bytes: file.tensor_bytes_total(),
            load_s: start.elapsed().as_secs_f64(),
            plan,
            sizes,
            model: loaded,
            tables: (0..sizes.batch)
                .map(|s| (0..per_sequence).map(|b| (s * per_sequence + b) as u32).collect())
                .collect(),
            n_groups: model.graph.n_kv_groups(),
            vocab_size: model.graph.vocab_size,
            logits: Vec::new(),
        })
    }

    /// Bytes held.
    pub fn memory(&self) -> MemoryReport {
        self.model.memory()
    }

    /// Runs `ids` of each of the sequences at `context`, with logits for each one's last token.
    fn step(&mut self, ids: &[Vec<u32>], context: usize, timed: bool) -> Result<StepTimes, BenchError> {
        let tables: Vec<Vec<&[u32]>> =
            self.tables.iter().map(|t| vec![t.as_slice(); self.n_groups]).collect();
        let (mut tokens, mut sequences, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for (ids, tables) in ids.iter().zip(&tables) {
            tokens.extend_from_slice(ids);
            outputs.push(tokens.len() as u32 - 1);
            sequences.push(SequenceStep {
                n_tokens: ids.len(),
                context_len: context + ids.len(),
                block_tables: tables,
                adapters: &[],
            });
        }
        self.logits.resize(outputs.len() * self.vocab_size, 0.0);
        let step = Step { tokens: &tokens, sequences: &sequences, outputs: &outputs, hidden: &[] };
        if timed {
            return Ok(self.model.step_timed(&step, &mut self.logits)?);
        }
        self.model.step(&step, &mut self.logits)?;
        Ok(StepTimes::default())
    }

    /// Computes a prompt of `n` tokens in each of the first `batch` sequences, one after the other, a chunk a step.
    ///
    /// # Errors
    /// The device's.
    pub fn prompt(&mut self, n: usize, batch: usize) -> Result<(), BenchError> {
        self.prompt_timed(n, batch, false, &mut |_, _| ())
    }

    /// As [`prompt`](Self::prompt); `each` hears of every step.
    ///
    /// # Errors
    /// The device's.
    pub fn prompt_timed(
        &mut self,
        n: usize,
        batch: usize,
        timed: bool,
        each: &mut dyn FnMut(StepShape, StepTimes),
    ) -> Result<(), BenchError> {
        for sequence in 0..batch {
            self.tables.swap(0, sequence);
            for start in (0..n).step_by(self.sizes.chunk) {
                let ids: Vec<u32> =
                    (start..n.min(start + self.sizes.chunk)).map(|i| self.token(i + sequence)).collect();
                let shape =
                    StepShape { sequences: 1, rows: ids.len(), context: start + ids.len(), kv_type: KV };
                each(shape, self.step(&[ids], start, timed)?);
            }
            self.tables.swap(0, sequence);
        }
        Ok(())
    }

    /// Some token, another at every position.
    fn token(&self, i: usize) -> u32 {
        (i.wrapping_mul(7919) % self.vocab_size) as u32
    }

    /// Decodes `n` tokens of `batch` sequences from `depth` on, greedily.
    ///
    /// # Errors
    /// The device's.
    pub fn decode(&mut self, n: usize, batch: usize, depth: usize) -> Result<(), BenchError> {
        self.decode_timed(n, batch, depth, false, &mut |_, _| ())
    }

    /// As [`decode`](Self::decode); `each` hears of every step.
    ///
    /// # Errors
    /// The device's.
    pub fn decode_timed(
        &mut self,
        n: usize,
        batch: usize,
        depth: usize,
        timed: bool,
        each: &mut dyn FnMut(StepShape, StepTimes),
    ) -> Result<(), BenchError> {
        let mut ids: Vec<Vec<u32>> = (0..batch).map(|i| vec![self.token(i)]).collect();
        for i in 0..n {
            let times = self.step(&ids, depth + i, timed)?;
            each(self.decode_shape(batch, depth + i), times);
            for (ids, logits) in ids.iter_mut().zip(self.logits.chunks_exact(self.vocab_size)) {
                *ids = vec![argmax(logits).unwrap_or(0)];
            }
        }
        Ok(())
    }

    fn decode_shape(&self, batch: usize, depth: usize) -> StepShape {
        StepShape { sequences: batch, rows: 1, context: depth + 1, kv_type: KV }
    }

    /// Bytes that a step of [`decode`](Self::decode) reads, averaged over its `n` steps.
    pub fn decode_bytes(&self, n: usize, batch: usize, depth: usize) -> f64 {
        // Linear in the depth but for windows, where the middle is as good.
        Work::of_step(&self.plan, self.decode_shape(batch, depth + n / 2)).bytes
    }

    /// Integer operations of a [`prompt`](Self::prompt) of one sequence.
    pub fn prompt_ops(&self, n: usize) -> f64 {
        (0..n)
            .step_by(self.sizes.chunk)
            .map(|start| {
                let context = n.min(start + self.sizes.chunk);
                let step = StepShape { sequences: 1, rows: context - start, context, kv_type: KV };
                Work::of_step(&self.plan, step).int8_ops
            })
            .sum()
    }
}
