//! `hanzo perplexity`: how well a model predicts a text, and how far it is from another one.
//!
//! This file takes the wishes and runs the windows; `report` keeps the sums and says what came out.

mod report;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use hanzo_engine::Distribution;
use hanzo_fusion::Progress as _;
use hanzo_gguf::GgufFile;
use hanzo_text::tokenizer::Tokenizer;

use super::run::Kv;
use crate::failure::{Interrupted, usage};
use crate::interrupt::{self, During, Stop};
use crate::measure::base::{self, Format, Vocabulary};
use crate::measure::logprob;
use crate::measure::scorer::{Scorer, Settings};
use crate::measure::text;
use crate::measure::windows::Windows;
use crate::progress::Bar;
use crate::{model, out};
use report::{Report, Setting};

/// Window by default, where the model's context is no shorter.
const DEFAULT_CTX: usize = 512;

/// Measure how well a model predicts a text
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo perplexity model.gguf text.txt
  hanzo perplexity model.gguf text.txt --ctx 2048 --chunks 8 --json
  hanzo perplexity model-f16.gguf text.txt --save-logits base.logits
  hanzo perplexity model-q4.gguf --kl-divergence base.logits      how far quantization has moved it

The text is cut into windows of --ctx tokens; the second half of each is scored. The figures compare with those of
llama.cpp's perplexity tool.")]
pub(crate) struct Args {
    /// A GGUF file, or a name of the cache
    model: String,
    /// A text file, - for standard input; saved logits bring their own
    text: Option<PathBuf>,
    /// Tokens of a window [default: 512, or the model's context if that is shorter]
    #[arg(long, short, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(4..=1 << 20))]
    ctx: Option<u32>,
    /// Overlapping windows of --ctx and N/2 tokens, one every N tokens, the last N tokens of each scored
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    stride: Option<u32>,
    /// Stop after N windows
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Save the log-probabilities of all scored positions, for --kl-divergence
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kl_divergence", "stride"])]
    save_logits: Option<PathBuf>,
    /// What --save-logits writes
    #[arg(long, value_enum, default_value_t = Format::Hanzo, requires = "save_logits")]
    logits_format: Format,
    /// Compare with the saved log-probabilities of another model of the same vocabulary
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stride", "ctx"])]
    kl_divergence: Option<PathBuf>,
    /// Element type of cached keys and values
    #[arg(long, value_enum, default_value_t = Kv::F16)]
    kv: Kv,
    /// Threads; all cores by default
    #[arg(long, short, value_name = "N", allow_negative_numbers = true, value_parser = clap::value_parser!(u16).range(1..=1024))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What is run: a text in windows, and what it is held against or saved to.
struct Job {
    tokens: Vec<u32>,
    windows: Windows,
    base: Option<base::Reader>,
    writer: Option<base::Writer>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let source = model::require(&args.model)?;
    let file = source.open()?;
    let described = hanzo_models::load(&file).with_context(|| source.name())?;
    let tokenizer = model::tokenizer_of(&file).with_context(|| source.name())?;
    interrupt::init();
    let (_during, stop) = During::work();
    let mut job = job(args, &file, &tokenizer, described.graph.vocab_size, described.context_length)?;
    let settings =
        Settings { context: job.windows.len, kv: args.kv.into(), threads: args.threads.map(usize::from) };
    let mut scorer = Scorer::load(&file, settings, None).with_context(|| source.name())?;
    let setting = Setting {
        model: source.name(),
        device: scorer.device().to_owned(),
        kv: args.kv,
        ctx: job.windows.len,
        stride: args.stride,
        windows: job.windows.n,
        base: args.kl_divergence.clone(),
    };
    let mut report = Report::new(setting);
    let outcome = score(&stop, &mut scorer, &mut job, &mut report);
    if outcome.as_ref().is_err_and(|error| !error.is::<Interrupted>()) {
        return outcome;
    }
    if report.has_windows() {
        if args.json { out::json(&report.json())? } else { out::print(&report.text())? }
    }
    if outcome.is_ok()
        && let (Some(writer), Some(path)) = (job.writer, &args.save_logits)
    {
        writer.finish()?;
        out::note(format_args!("wrote {}", path.display()));
    }
    outcome
}

/// What the arguments ask for, checked as far as that goes without loading the model.
fn job(
    args: &Args,
    file: &GgufFile,
    tokenizer: &Tokenizer,
    vocab_size: usize,
    context: usize,
) -> Result<Job> {
    let bos = text::bos(tokenizer);
    let read = |path: &Path| text::encode(tokenizer, &text::read(path)?, false);
    let limit = args.chunks.map(|n| n as usize);
    if let Some(path) = &args.kl_divergence {
        let base = base::Reader::open(path)?;
        base.check(&Vocabulary::of(tokenizer, vocab_size), bos)?;
        let saved = base.text();
        if let Some(path) = &args.text {
            let tokens = read(path)?;
            ensure!(
                tokens.starts_with(&saved.tokens),
                "the saved logits are of another text than {}; leave it out to use theirs",
                path.display()
            );
        }
        let tokens = saved.tokens.clone();
        let n = limit.unwrap_or(usize::MAX).min(base.windows());
        let windows = Windows::saved(saved.ctx, bos, n);
        return Ok(Job { tokens, windows, base: Some(base), writer: None });
    }
    let path = args.text.as_ref().ok_or_else(|| {
        usage("give a text: a file, or - for standard input (only --kl-divergence brings its own)")
    })?;
    let tokens = read(path)?;
    let ctx = args.ctx.map_or(DEFAULT_CTX.min(context), |n| n as usize);
    let windows = match args.stride {
        Some(stride) => Windows::strided(tokens.len(), ctx, stride as usize, limit)?,
        None => Windows::plain(tokens.len(), ctx, bos, limit)?,
    };
    let writer = match &args.save_logits {
        Some(path) => {
            model::refuse_overwriting(file, path)?;
            let saved = tokens.get(..windows.n * windows.len).unwrap_or_default().to_vec();
            let saved = base::Text { ctx: windows.len, tokens: saved, bos };
            let vocabulary = Vocabulary::of(tokenizer, vocab_size);
            Some(base::Writer::create(path, args.logits_format, &vocabulary, &saved)?)
        }
        None => None,
    };
    Ok(Job { tokens, windows, base: None, writer })
}

/// Runs the windows.
///
/// # Errors
/// [`Interrupted`] after the window that was running when the user wished so; what else fails.
fn score(stop: &Stop, scorer: &mut Scorer, job: &mut Job, report: &mut Report) -> Result<()> {
    let bar = Bar::pieces("measuring");
    let started = Instant::now();
    let (mut saved, mut compared, mut room) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..job.windows.n {
        if stop.is_wanted() {
            return Err(Interrupted.into());
        }
        bar.update(i as u64, job.windows.n as u64);
        let tokens = job.windows.tokens(&job.tokens, i);
        let scored = job.windows.scored();
        let first = scored.start;
        if let Some(base) = &mut job.base {
            base.window(&mut compared)?;
        }
        let row_len = logprob::encoded_len(scorer.vocab_size()).context("the vocabulary is too large")?;
        saved.clear();
        // What the last token would predict lies in the next window.
        let inputs = tokens.get(..scored.end).context("a whole window")?;
        scorer.run(0, inputs, scored, &mut |position, logits| {
            let here = || format!("window {}, position {position}", i + 1);
            let next = tokens.get(position + 1).copied().with_context(here)?;
            let distribution = Distribution::new(logits);
            ensure!(distribution.is_finite(), "{}: the logits are not finite", here());
            ensure!((next as usize) < logits.len(), "{}: token {next} is beyond the logits", here());
            let nll = -distribution.logprob(next);
            report.scored(nll);
            if job.base.is_some() {
                let at = (position - first) * row_len;
                let row = compared.get(at..at + row_len).with_context(here)?;
                let comparison = logprob::compare(row, &distribution, logits.len(), next as usize, &mut room)
                    .with_context(|| format!("{}: the saved logits are damaged", here()))?;
                report.compared(nll, &comparison);
            }
            if job.writer.is_some() {
                logprob::encode(logits, &distribution, &mut saved);
            }
            Ok(())
        })?;
        if let Some(writer) = &mut job.writer {
            writer.window(&saved)?;
        }
        report.end_window(started.elapsed());
        bar.say(report.brief());
    }
    Ok(())
}
