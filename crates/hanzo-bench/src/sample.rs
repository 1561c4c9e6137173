//! Takes samples: prompts of given lengths, and decoding at given batches and depth.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_fusion::{BLOCK_TOKENS, Device, KvConfig, KvType, LoadOptions, LoadedModel, SequenceStep, Step};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;
use serde_json::{Value, json};

/// Longest prompt, depth or reply.
const MAX_TOKENS: usize = 1 << 24;

/// What is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A GGUF file
    #[arg(long, short = 'm', value_name = "FILE")]
    model: Option<PathBuf>,
    /// Prompt lengths, 0 for none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_value = "512")]
    prompt: Vec<usize>,
    /// Tokens to generate, 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    generate: usize,
    /// Repetitions that count; one more comes first and warms up
    #[arg(short = 'r', long, value_name = "N", default_value_t = 5)]
    repeat: usize,
    /// Sequences that decode together
    #[arg(short = 'b', long, value_name = "N", value_delimiter = ',', default_value = "1")]
    batch: Vec<usize>,
    /// Tokens already in the context when decoding starts
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    depth: usize,
    /// Threads; all cores by default
    #[arg(short = 't', long, value_name = "N")]
    threads: Option<usize>,
    /// Tokens of a step when a prompt is read
    #[arg(long, value_name = "N", default_value_t = 512)]
    chunk: usize,
    /// Print JSON with the raw samples
    #[arg(long)]
    json: bool,
}

/// One shape and its samples.
struct Cell {
    phase: &'static str,
    n: usize,
    batch: usize,
    depth: usize,
    samples: Vec<(f64, usize)>,
}

/// A loaded model and as many block tables as sequences.
struct Bench {
    model: Box<dyn LoadedModel>,
    tables: Vec<Vec<u32>>,
    n_groups: usize,
    vocab_size: usize,
    logits: Vec<f32>,
}

impl Bench {
    /// Runs `ids` of each of the sequences at `context`, with logits for each one's last token.
    fn step(&mut self, ids: &[Vec<u32>], context: usize) -> Result<()> {
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
        self.model.step(
            &Step { tokens: &tokens, sequences: &sequences, outputs: &outputs, hidden: &[] },
            &mut self.logits,
        )?;
        Ok(())
    }

    /// Reads a prompt of `n` tokens into the first sequences, `chunk` tokens a step.
    fn prompt(&mut self, n: usize, chunk: usize, batch: usize) -> Result<()> {
        for sequence in 0..batch {
            self.tables.swap(0, sequence);
            for start in (0..n).step_by(chunk) {
                let ids = (start..n.min(start + chunk)).map(|i| self.token(i + sequence)).collect();
                self.step(&[ids], start)?;
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
    fn decode(&mut self, n: usize, batch: usize, depth: usize) -> Result<()> {
        let mut ids: Vec<Vec<u32>> = (0..batch).map(|i| vec![self.token(i)]).collect();
        for i in 0..n {
            self.step(&ids, depth + i)?;
            for (ids, logits) in ids.iter_mut().zip(self.logits.chunks_exact(self.vocab_size)) {
                *ids = vec![argmax(logits)];
            }
        }
        Ok(())
    }
}

fn argmax(logits: &[f32]) -> u32 {
    let mut best = (0, f32::NEG_INFINITY);
    for (i, &x) in logits.iter().enumerate() {
        if x > best.1 {
            best = (i as u32, x);
        }
    }
    best.0
}

/// Takes the samples and prints them.
pub(crate) fn run(args: &Args) -> Result<()> {
    let Some(path) = &args.model else { bail!("--model FILE is needed (see --help)") };
    let prompts: Vec<usize> = args.prompt.iter().copied().filter(|&n| n > 0).collect();
    let largest = prompts.iter().chain([&args.generate, &args.depth]).copied().max().unwrap_or(0);
    if largest > MAX_TOKENS || args.batch.iter().any(|&b| b == 0 || b > 256) || args.chunk == 0 {
        bail!("lengths up to {MAX_TOKENS}, batches of 1 to 256 and chunks of at least 1 are possible");
    }
    let start = Instant::now();
    let file = GgufFile::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let model = hanzo_models::load(&file)?;
    let max_batch = if args.generate == 0 { 1 } else { args.batch.iter().copied().max().unwrap_or(1) };
    let longest = prompts.iter().copied().max().unwrap_or(0).max(args.depth + args.generate).max(1);
    let per_sequence = longest.div_ceil(BLOCK_TOKENS);
    let options = LoadOptions {
        max_tokens: args.chunk.max(max_batch),
        max_outputs: max_batch,
        kv: KvConfig { n_blocks: per_sequence * max_batch, kv_type: KvType::F16 },
    };
    let config = CpuConfig { threads: args.threads, ..CpuConfig::from_env()? };
    let device = CpuDevice::new(&config)?;
    let loaded = device.load(Arc::clone(&model.graph), &GgufWeights(&file), options, &())?;
    let memory = loaded.memory();
    let mut bench = Bench {
        model: loaded,
        tables: (0..max_batch)
            .map(|s| (0..per_sequence).map(|b| (s * per_sequence + b) as u32).collect())
            .collect(),
        n_groups: model.graph.n_kv_groups(),
        vocab_size: model.graph.vocab_size,
        logits: Vec::new(),
    };
    bench.step(&[vec![0]], 0)?;
    let first_token_s = start.elapsed().as_secs_f64();

    let mut cells = Vec::new();
    for &n in &prompts {
        let mut cell = Cell { phase: "prefill", n, batch: 1, depth: 0, samples: Vec::new() };
        for _ in 0..=args.repeat {
            let start = Instant::now();
            bench.prompt(n, args.chunk, 1)?;
            cell.samples.push((start.elapsed().as_secs_f64(), n));
        }
        report(args, &cell);
        cells.push(cell);
    }
    for &batch in args.batch.iter().filter(|_| args.generate > 0) {
        let mut cell =
            Cell { phase: "decode", n: args.generate, batch, depth: args.depth, samples: Vec::new() };
        bench.prompt(args.depth, args.chunk, batch)?;
        for _ in 0..=args.repeat {
            let start = Instant::now();
            bench.decode(args.generate, batch, args.depth)?;
            cell.samples.push((start.elapsed().as_secs_f64(), args.generate * batch));
        }
        report(args, &cell);
        cells.push(cell);
    }
    if args.json {
        let manifest = json!({
            "engine": "hanzo",
            "version": env!("CARGO_PKG_VERSION"),
            "device": device.describe(),
            "model": path.file_name().map(|n| n.to_string_lossy().into_owned()),
            "model_bytes": file.tensor_bytes_total(),
            "architecture": model.architecture,
            "sampler": "greedy",
            "kv": "f16",
            "chunk": args.chunk,
            "warm_up_repetitions": 1,
            "load_to_first_token_s": first_token_s,
            "weight_bytes": memory.weights,
            "kv_bytes": memory.kv,
            "arena_bytes": memory.arena,
        });
        let cells: Vec<Value> = cells.iter().map(Cell::to_json).collect();
        writeln!(std::io::stdout(), "{:#}", json!({ "manifest": manifest, "cells": cells }))?;
    }
    Ok(())
}

impl Cell {
    fn to_json(&self) -> Value {
        let samples: Vec<Value> = self.samples.iter().map(|(s, n)| json!([s, n])).collect();
        json!({ "phase": self.phase, "n": self.n, "batch": self.batch, "depth": self.depth, "samples": samples })
    }
}

/// One line a cell, on standard error when JSON goes to standard output.
fn report(args: &Args, cell: &Cell) {
    let rates: Vec<f64> = cell.samples.iter().skip(1).map(|&(s, n)| n as f64 / s).collect();
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    let spread =
        rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / rates.len().saturating_sub(1).max(1) as f64;
    let line = format!(
        "{:8} n {:5}  batch {:3}  depth {:5}  {mean:10.2} ± {:.2} tok/s",
        cell.phase,
        cell.n,
        cell.batch,
        cell.depth,
        spread.sqrt()
    );
    let written =
        if args.json { writeln!(std::io::stderr(), "{line}") } else { writeln!(std::io::stdout(), "{line}") };
    // Nobody reads: the samples still go on.
    let _ = written;
}
