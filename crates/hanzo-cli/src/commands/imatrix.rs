//! `hanzo imatrix`: which columns of a model's matrices matter, measured on a text.
//!
//! This file runs the text and writes the file; `collect` sums up what the model's contractions show. What the file means is
//! told by its reader, `quantize::importance`.

mod collect;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hanzo_fusion::{KvType, Progress as _};
use hanzo_gguf::{GgufWriter, MetadataValue, TensorType};
use serde_json::json;

use crate::failure::Interrupted;
use crate::interrupt::{self, During};
use crate::measure::scorer::{Scorer, Settings};
use crate::measure::text;
use crate::measure::windows::Windows;
use crate::progress::Bar;
use crate::{model, out};
use collect::{Collector, Sums};

/// Window by default, where the model's context is no shorter.
const DEFAULT_CTX: usize = 512;

/// Measure which weights matter, for quantize
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo imatrix model-f16.gguf text.txt
  hanzo imatrix model-f16.gguf text.txt --output model.imatrix.gguf --chunks 100
  hanzo quantize model-f16.gguf model-iq2_xs.gguf IQ2_XS --imatrix imatrix.gguf

The file is llama.cpp's importance matrix in GGUF. Ctrl-C writes what was collected so far.")]
pub(crate) struct Args {
    /// A GGUF file, best of F32, F16 or BF16 weights, or a name of the cache
    model: String,
    /// A text file, - for standard input
    text: PathBuf,
    /// Where the matrix goes
    #[arg(long, short, value_name = "FILE", default_value = "imatrix.gguf")]
    output: PathBuf,
    /// Tokens of a window [default: 512, or the model's context if that is shorter]
    #[arg(long, short, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    ctx: Option<u32>,
    /// Stop after N windows
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Collect for the output matrix too
    #[arg(long)]
    process_output: bool,
    /// Read special tokens that are spelled out in the text
    #[arg(long)]
    parse_special: bool,
    /// Threads; all cores by default
    #[arg(long, short, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let source = model::require(&args.model)?;
    let file = source.open()?;
    model::refuse_overwriting(&file, &args.output)?;
    // Known now, rather than after hours.
    let folder = args.output.parent().filter(|p| !p.as_os_str().is_empty());
    ensure!(
        folder.is_none_or(Path::is_dir),
        "cannot write {}: its folder does not exist",
        args.output.display()
    );
    let described = hanzo_models::load(&file).with_context(|| source.name())?;
    let tokenizer = model::tokenizer_of(&file).with_context(|| source.name())?;
    let tokens = text::encode(&tokenizer, &text::read(&args.text)?, args.parse_special)?;
    let ctx = args.ctx.map_or(DEFAULT_CTX.min(described.context_length), |n| n as usize);
    let limit = args.chunks.map(|n| n as usize);
    let windows = Windows::plain(tokens.len(), ctx, text::bos(&tokenizer), limit)?;
    let settings = Settings { context: ctx, kv: KvType::F16, threads: args.threads.map(usize::from) };
    let collector = Arc::new(Collector::new(args.process_output));
    let observer = Arc::clone(&collector);
    let mut scorer = Scorer::load(&file, settings, Some(observer)).with_context(|| source.name())?;

    interrupt::init();
    let (_during, stop) = During::work();
    let bar = Bar::pieces("collecting");
    let started = Instant::now();
    // The output matrix sees a row only if its logits are wanted.
    let wanted = if args.process_output { 0..ctx } else { 0..0 };
    let mut done = 0;
    while done < windows.n && !stop.is_wanted() {
        bar.update(done as u64, windows.n as u64);
        scorer.run(0, &windows.tokens(&tokens, done), wanted.clone(), &mut |_, _| Ok(()))?;
        done += 1;
    }
    drop(bar);
    let tensors = collector.take()?;
    let outcome = if done < windows.n { Err(Interrupted.into()) } else { Ok(()) };
    if done == 0 {
        return outcome;
    }
    write(args, done, ctx, &tensors)?;
    // Experts that no token was routed to have no preferences.
    let idle: usize = tensors.iter().map(|(_, sums)| sums.counts.iter().filter(|c| **c == 0).count()).sum();
    if idle > 0 {
        out::warning(format_args!("{idle} matrices of experts met no token; a longer text may reach them"));
    }
    let elapsed = started.elapsed().as_secs_f64();
    if args.json {
        out::json(&json!({
            "model": source.name(),
            "device": scorer.device(),
            "output": args.output.display().to_string(),
            "tensors": tensors.len(),
            "ctx": ctx,
            "windows": done,
            "complete": done == windows.n,
            "idle_experts": idle,
            "elapsed_s": elapsed,
        }))?;
    } else {
        let s = if done == 1 { "" } else { "s" };
        out::println(&format!(
            "wrote {}: {} tensors, from {done} window{s} of {ctx} tokens in {elapsed:.1} s",
            args.output.display(),
            tensors.len(),
        ))?;
        if outcome.is_err() {
            out::note(format_args!("interrupted: {done} of {} windows", windows.n));
        }
    }
    outcome
}

/// Writes the file.
fn write(args: &Args, windows: usize, ctx: usize, tensors: &[(String, Sums)]) -> Result<()> {
    let what = || format!("cannot write {}", args.output.display());
    ensure!(!tensors.is_empty(), "the model has no matrices to collect for");
    let mut header = GgufWriter::new();
    let name =
        if args.text.as_os_str() == "-" { "stdin".to_owned() } else { args.text.display().to_string() };
    header.set("general.type", "imatrix")?;
    header.set("imatrix.datasets", MetadataValue::strings([name]))?;
    header.set("imatrix.chunk_count", u32::try_from(windows)?)?;
    header.set("imatrix.chunk_size", u32::try_from(ctx)?)?;
    let mut data: Vec<Vec<u8>> = Vec::with_capacity(3 * tensors.len());
    let mut add = |name: String, dims: &[u64], values: &mut dyn Iterator<Item = f32>| -> Result<()> {
        header.tensor(&name, TensorType::F32, dims)?;
        data.push(values.flat_map(f32::to_le_bytes).collect());
        Ok(())
    };
    for (name, sums) in tensors {
        let matrices = sums.counts.len() as u64;
        let dims = [sums.columns as u64, matrices];
        add(format!("{name}.in_sum2"), &dims, &mut sums.squares.iter().map(|&x| x as f32))?;
        add(format!("{name}.counts"), &[1, matrices], &mut sums.counts.iter().map(|&n| n as f32))?;
        add(format!("{name}.in_sum"), &dims, &mut sums.values.iter().map(|&x| x as f32))?;
    }
    let mut out = header.create(&args.output).with_context(what)?;
    for (i, bytes) in data.iter().enumerate() {
        out.append(i, bytes).with_context(what)?;
    }
    out.finish().with_context(what)
}
