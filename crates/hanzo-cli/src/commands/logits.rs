//! `hanzo logits`: the raw logits of token ids, for scripts and comparisons.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_fusion::{BLOCK_TOKENS, Device, KvConfig, LoadOptions, LoadedModel, SequenceStep, Step};
use hanzo_models::GgufWeights;

use super::run::Kv;
use crate::progress::Bar;
use crate::{model, out};

/// Print logits of token ids (for scripts and comparisons)
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  hanzo logits model.gguf --ids 1,2,3 --greedy 8 --out logits.f32

OUT receives little-endian f32, a row of the vocabulary's size for every position: those of --ids, then those of the
greedy tokens but the last. The greedy ids go to standard output.")]
pub(crate) struct Args {
    /// A GGUF file, or the name of a model on this machine
    model: String,
    /// Token ids, separated by commas
    #[arg(long, value_delimiter = ',', required = true, allow_negative_numbers = true)]
    ids: Vec<u32>,
    /// Continue greedily with this many tokens
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 0)]
    greedy: usize,
    /// Element type of cached keys and values
    #[arg(long, value_enum, default_value_t = Kv::F32)]
    kv: Kv,
    /// Tokens of a step: the ids are fed in chunks of this many
    #[arg(long, value_name = "N", allow_negative_numbers = true, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    chunk: u32,
    /// Where the logits go
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Threads; all cores by default
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
}

/// One sequence with a block table of its own.
struct Sequence {
    model: Box<dyn LoadedModel>,
    table: Vec<u32>,
    n_groups: usize,
    vocab_size: usize,
    context_len: usize,
}

impl Sequence {
    /// Runs `ids` and returns their logits, `[ids, vocab]`.
    fn step(&mut self, ids: &[u32]) -> Result<Vec<f32>> {
        self.context_len += ids.len();
        let tables: Vec<&[u32]> = vec![&self.table; self.n_groups];
        let sequence = SequenceStep {
            n_tokens: ids.len(),
            context_len: self.context_len,
            block_tables: &tables,
            adapters: &[],
        };
        let outputs: Vec<u32> = (0..ids.len() as u32).collect();
        let mut logits = vec![0.0; ids.len() * self.vocab_size];
        self.model.step(
            &Step { tokens: ids, sequences: &[sequence], outputs: &outputs, hidden: &[] },
            &mut logits,
        )?;
        Ok(logits)
    }
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let file = model::open(Some(&args.model))?;
    let model = hanzo_models::load(&file)?;
    let graph = Arc::clone(&model.graph);
    let vocab_size = graph.vocab_size;
    let total = args.ids.len().saturating_add(args.greedy);
    if total > model.context_length {
        bail!(
            "{} ids and {} greedy tokens exceed the model's context of {}",
            args.ids.len(),
            args.greedy,
            model.context_length
        );
    }
    let n_blocks = total.div_ceil(BLOCK_TOKENS);
    let kv_type = args.kv.into();
    let chunk = (args.chunk as usize).min(args.ids.len());
    let options = LoadOptions { max_tokens: chunk, max_outputs: chunk, kv: KvConfig { n_blocks, kv_type } };
    let mut config = CpuConfig::from_env()?;
    config.threads = args.threads.map(usize::from).or(config.threads);
    let device = CpuDevice::new(&config)?;
    let loaded = {
        let bar = Bar::bytes("loading");
        device.load(Arc::clone(&graph), &GgufWeights(&file), options, &bar)?
    };
    let mut sequence = Sequence {
        model: loaded,
        table: (0..n_blocks as u32).collect(),
        n_groups: graph.n_kv_groups(),
        vocab_size,
        context_len: 0,
    };
    let mut out = match &args.out {
        Some(path) => {
            let model_parts = file.parts().filter_map(|part| part.path()?.canonicalize().ok());
            if let Ok(target) = path.canonicalize()
                && model_parts.into_iter().any(|part| part == target)
            {
                bail!("--out {} is the model itself; give another file", path.display());
            }
            let file = File::create(path).with_context(|| format!("cannot create {}", path.display()))?;
            Some(BufWriter::new(file))
        }
        None => None,
    };
    let mut write = |logits: &[f32]| -> Result<()> {
        let Some(out) = &mut out else { return Ok(()) };
        for x in logits {
            out.write_all(&x.to_le_bytes()).context("cannot write the logits")?;
        }
        out.flush().context("cannot write the logits")
    };
    let mut last = Vec::new();
    for ids in args.ids.chunks(chunk.max(1)) {
        let logits = sequence.step(ids)?;
        write(&logits)?;
        last = logits.get(logits.len() - vocab_size..).unwrap_or_default().to_vec();
    }
    let mut greedy = Vec::with_capacity(args.greedy);
    while greedy.len() < args.greedy {
        let next = argmax(&last);
        greedy.push(next);
        if greedy.len() < args.greedy {
            last = sequence.step(&[next])?;
            write(&last)?;
        }
    }
    let ids: Vec<String> = greedy.iter().map(u32::to_string).collect();
    out::println(&ids.join(" "))
}

/// The greatest logit's token, the lowest id among equals.
fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (id, &logit) in logits.iter().enumerate() {
        if logit > best.1 {
            best = (id as u32, logit);
        }
    }
    best.0
}
