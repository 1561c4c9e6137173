//! `hanzo logits`: the raw logits of token ids, for scripts and comparisons.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use hanzo_engine::argmax;
use hanzo_fusion::{BLOCK_TOKENS, Device, KvConfig, LoadOptions, LoadedModel, SequenceStep, Step};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;

use super::run::Kv;
use crate::file::Draft;
use crate::progress::Bar;
use crate::{model, out};

/// Print logits of token ids (for scripts and comparisons)
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  hanzo logits model.gguf --ids 1,2,3 --greedy 8 --out logits.f32

FILE receives little-endian f32, a row of the vocabulary's size for every position: those of --ids, then those of the
greedy tokens but the last. It appears when it is complete. The greedy ids go to standard output, with --out - to standard
error.")]
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
    /// Where the logits go; - for standard output
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
    let options =
        LoadOptions { max_tokens: chunk, max_outputs: chunk, kv: KvConfig::equal(n_blocks, kv_type) };
    let device = crate::device::cpu(args.threads.map(usize::from), None)?;
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
    let mut out = args.out.as_deref().map(|path| Sink::open(path, &file)).transpose()?;
    let mut write = |logits: &[f32]| -> Result<()> {
        let Some(out) = &mut out else { return Ok(()) };
        let bytes: Vec<u8> = logits.iter().flat_map(|x| x.to_le_bytes()).collect();
        out.write(&bytes)
    };
    let mut last = Vec::new();
    for ids in args.ids.chunks(chunk.max(1)) {
        let logits = sequence.step(ids)?;
        write(&logits)?;
        last = logits.get(logits.len() - vocab_size..).unwrap_or_default().to_vec();
    }
    let mut greedy = Vec::with_capacity(args.greedy);
    while greedy.len() < args.greedy {
        let next = argmax(&last).context("the model's logits are all NaN")?;
        greedy.push(next);
        if greedy.len() < args.greedy {
            last = sequence.step(&[next])?;
            write(&last)?;
        }
    }
    let ids: Vec<String> = greedy.iter().map(u32::to_string).collect();
    match out {
        Some(Sink::Stdout) => {
            out::note(format_args!("{}", ids.join(" ")));
            Ok(())
        }
        Some(Sink::File(draft, path)) => {
            draft.commit().with_context(|| format!("cannot write {}", path.display()))?;
            out::println(&ids.join(" "))
        }
        _ => out::println(&ids.join(" ")),
    }
}

/// Where logits go.
enum Sink {
    Stdout,
    /// A regular file, which appears when it is complete.
    File(Box<Draft>, PathBuf),
    /// A device or a pipe, which takes them as they come.
    Stream(File, PathBuf),
}

impl Sink {
    fn open(path: &Path, model: &GgufFile) -> Result<Self> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        let context = || format!("cannot create {}", path.display());
        if let Ok(target) = path.canonicalize() {
            let mut parts = model.parts().filter_map(|part| part.path()?.canonicalize().ok());
            if parts.any(|part| part == target) {
                bail!("--out {} is the model itself; give another file", path.display());
            }
        }
        if std::fs::metadata(path).is_ok_and(|there| !there.is_file() && !there.is_dir()) {
            let file = File::options().write(true).open(path).with_context(context)?;
            return Ok(Self::Stream(file, path.to_owned()));
        }
        Ok(Self::File(Box::new(Draft::create(path).with_context(context)?), path.to_owned()))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Stdout => out::bytes_to_stdout(bytes),
            Self::File(draft, path) => {
                draft.write_all(bytes).with_context(|| format!("cannot write {}", path.display()))
            }
            Self::Stream(file, path) => {
                file.write_all(bytes).with_context(|| format!("cannot write {}", path.display()))
            }
        }
    }
}
