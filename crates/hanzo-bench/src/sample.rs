//! The sampler: which shapes are measured, in which order, and what goes beside the samples.

use std::path::PathBuf;
use std::time::Instant;

use hanzo_cpu::isa::CpuConfig;
use hanzo_fusion::Progress;
use serde_json::{Value, json};

use crate::device::cpu_config;
use crate::error::BenchError;
use crate::model::{BenchModel, Sizes};
use crate::requests::BenchEngine;
use crate::samples::{Cell, Phase, Sample, Shape};

/// Longest prompt, depth or reply.
const MAX_TOKENS: usize = 1 << 24;
/// Most sequences at once.
const MAX_BATCH: usize = 256;
/// Prompt of each stream under load.
const LOAD_PROMPT: usize = 64;

/// What is measured.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Args {
    /// A GGUF file
    #[arg(long, short = 'm', value_name = "FILE")]
    pub model: Option<PathBuf>,
    /// Prompt lengths, 0 for none
    #[arg(short = 'p', long, value_name = "N", value_delimiter = ',', default_value = "512")]
    pub prompt: Vec<usize>,
    /// Tokens to generate, 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value_t = 128)]
    pub generate: usize,
    /// Repetitions that count; one more comes first and warms up
    #[arg(short = 'r', long, value_name = "N", default_value_t = 7)]
    pub repeat: usize,
    /// Sequences that decode together
    #[arg(short = 'b', long, value_name = "N", value_delimiter = ',', default_value = "1")]
    pub batch: Vec<usize>,
    /// Tokens already in the context when decoding starts
    #[arg(short = 'd', long, value_name = "N", default_value_t = 0)]
    pub depth: usize,
    /// Threads; all cores by default
    #[arg(short = 't', long, value_name = "N")]
    pub threads: Option<usize>,
    /// Where it runs: cpu; for --roofline also vulkan (the best GPU) or vulkan:N; list shows what there is
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    pub device: String,
    /// Tokens of a step when a prompt is read
    #[arg(long, value_name = "N", default_value_t = 512)]
    pub chunk: usize,
    /// Also whole requests through the engine, at every prompt length: from submission to first token
    #[arg(long)]
    pub requests: bool,
    /// Also so many requests at once: times to first token, and times between tokens
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub streams: Vec<usize>,
    /// Print JSON with the raw samples
    #[arg(long)]
    pub json: bool,
}

/// Hears how far sampling has come.
pub trait Listener {
    /// Who hears of loading.
    fn loading(&self) -> &dyn Progress;
    /// `of` repetitions of a shape begin.
    fn begin(&mut self, shape: &Shape, of: usize);
    /// One more is done.
    fn repetition(&mut self);
    /// A cell is complete.
    fn cell(&mut self, cell: &Cell);
}

/// The samples, and what they were taken with.
#[derive(Clone, Debug)]
pub struct Report {
    /// Settings and sizes.
    pub manifest: Value,
    /// What was measured.
    pub cells: Vec<Cell>,
}

impl Report {
    /// As a sample file.
    pub fn to_json(&self) -> Value {
        json!({ "manifest": self.manifest, "cells": self.cells })
    }
}

/// Takes all samples.
///
/// # Errors
/// For shapes that cannot be, and faults of model and device.
pub fn run(args: &Args, listener: &mut dyn Listener) -> Result<Report, BenchError> {
    let path = args.model.as_deref();
    let path = path.ok_or_else(|| BenchError::Asked("--model FILE is needed (see --help)".to_owned()))?;
    let config = cpu_config(&args.device, args.threads)?;
    let prompts: Vec<usize> = args.prompt.iter().copied().filter(|&n| n > 0).collect();
    let batches: Vec<usize> = args.batch.iter().copied().filter(|_| args.generate > 0).collect();
    check(args)?;
    let started = Instant::now();
    let max_batch = batches.iter().copied().max().unwrap_or(1);
    let longest = prompts.iter().copied().max().unwrap_or(0);
    let decoded = if batches.is_empty() { 0 } else { args.depth + args.generate };
    let sizes = Sizes { batch: max_batch, context: longest.max(decoded).max(1), chunk: args.chunk };
    let mut model = BenchModel::open(path, &config, sizes, listener.loading())?;
    model.decode(1, 1, 0)?;
    let first_token_s = started.elapsed().as_secs_f64();

    let mut cells = Vec::new();
    for &n in &prompts {
        let mut cell = Cell::new(Shape::new(Phase::Prefill, n as u64));
        cell.int8_ops = Some(model.prompt_ops(n)).filter(|&ops| ops > 0.0);
        take(&mut cell, args.repeat, n as u64, listener, || model.prompt(n, 1))?;
        cells.push(cell);
    }
    for &batch in &batches {
        let (n, depth) = (args.generate, args.depth);
        let mut cell = Cell::new(Shape {
            batch: batch as u64,
            depth: depth as u64,
            ..Shape::new(Phase::Decode, n as u64)
        });
        cell.step_bytes = Some(model.decode_bytes(n, batch, depth));
        model.prompt(depth, batch)?;
        take(&mut cell, args.repeat, (n * batch) as u64, listener, || model.decode(n, batch, depth))?;
        cells.push(cell);
    }
    let memory = model.memory();
    let mut manifest = json!({
        "engine": "hanzo",
        "version": env!("CARGO_PKG_VERSION"),
        "device": model.device,
        "model": path.file_name().map(|n| n.to_string_lossy().into_owned()),
        "model_bytes": model.tensor_bytes,
        "architecture": model.architecture,
        "sampler": "greedy, on the device's logits",
        "kv": "f16",
        "chunk": args.chunk,
        "prefix_cache": false,
        "stop_at_eos": false,
        "fused": !config.no_fuse,
        "launches": model.plan.launches.len(),
        "repetitions": args.repeat,
        "warm_up_repetitions": 1,
        "load_s": model.load_s,
        "load_to_first_token_s": first_token_s,
        "weight_bytes": memory.weights,
        "kv_bytes": memory.kv,
        "arena_bytes": memory.arena,
        "peak_rss_bytes": crate::process::own_peak_bytes(),
    });
    // The engine loads its own copy: two at once could be too much.
    drop(model);
    if args.requests || !args.streams.is_empty() {
        let engine_cells = through_engine(args, &config, &prompts, listener)?;
        cells.extend(engine_cells);
        if let Some(fields) = manifest.as_object_mut() {
            fields.insert("through_engine".to_owned(), json!(true));
            fields.insert("streams_prompt".to_owned(), json!(LOAD_PROMPT));
        }
    }
    Ok(Report { manifest, cells })
}

fn check(args: &Args) -> Result<(), BenchError> {
    let asked = |why: String| Err(BenchError::Asked(why));
    let lengths = args.prompt.iter().chain([&args.generate, &args.depth, &args.chunk]);
    if lengths.copied().any(|n| n > MAX_TOKENS) || args.chunk == 0 {
        return asked(format!(
            "prompts, replies, depths and chunks of up to {MAX_TOKENS} tokens are possible, and chunks of at least 1"
        ));
    }
    if args.batch.iter().chain(&args.streams).any(|&b| b == 0 || b > MAX_BATCH) {
        return asked(format!("batches and streams of 1 to {MAX_BATCH} are possible"));
    }
    if args.requests && args.prompt.iter().all(|&n| n == 0) {
        return asked("--requests needs a prompt length: -p N".to_owned());
    }
    if !args.streams.is_empty() && args.generate < 2 {
        return asked("--streams needs at least two tokens to have a time between: -n 2".to_owned());
    }
    Ok(())
}

/// Warm-up and repetitions of a cell.
fn take(
    cell: &mut Cell,
    repeat: usize,
    tokens: u64,
    listener: &mut dyn Listener,
    mut once: impl FnMut() -> Result<(), BenchError>,
) -> Result<(), BenchError> {
    listener.begin(&cell.shape, repeat + 1);
    for _ in 0..=repeat {
        let start = Instant::now();
        once()?;
        cell.samples.push(Sample(start.elapsed().as_secs_f64().max(1e-9), tokens));
        listener.repetition();
    }
    listener.cell(cell);
    Ok(())
}

fn through_engine(
    args: &Args,
    config: &CpuConfig,
    prompts: &[usize],
    listener: &mut dyn Listener,
) -> Result<Vec<Cell>, BenchError> {
    let path = args.model.as_deref().unwrap_or_else(|| std::path::Path::new(""));
    let mut cells = Vec::new();
    if args.requests {
        let longest = prompts.iter().copied().max().unwrap_or(1);
        let engine = BenchEngine::load(path, config, 1, longest + 1, args.chunk)?;
        for &n in prompts {
            cells.push(engine.first_token(n, args.repeat, listener)?);
        }
    }
    if let Some(&most) = args.streams.iter().max() {
        let engine = BenchEngine::load(path, config, most, LOAD_PROMPT + args.generate, args.chunk)?;
        for &streams in &args.streams {
            cells.extend(engine.under_load(streams, LOAD_PROMPT, args.generate, listener)?);
        }
    }
    Ok(cells)
}
