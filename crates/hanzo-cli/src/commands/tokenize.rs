//! `hanzo tokenize` and `hanzo detokenize`: text to ids and back, also with vocabulary-only files.

use std::io::Read;

use anyhow::{Context, Result, bail};
use hanzo_text::detokenize::DecodeOptions;
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

use crate::{model, out};

/// Longest text read from standard input, in bytes.
const MAX_INPUT: u64 = 1 << 30;

/// Turn text into token ids
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo tokenize model.gguf --text \"Hello world\"
  cat story.txt | hanzo tokenize model.gguf --ids
  hanzo tokenize model.gguf --text \"<|im_start|>user\" --parse-special --no-bos --ids

Without --ids, each token stands on a line of its own with its id, its type and its text.")]
pub(crate) struct Args {
    /// A GGUF file, which may hold a vocabulary only; the built-in model if left out
    model: Option<String>,
    /// The text; standard input if left out
    #[arg(long, value_name = "TEXT")]
    text: Option<String>,
    /// Leave out the special tokens that the vocabulary asks for around a text
    #[arg(long)]
    no_bos: bool,
    /// Read special tokens that are spelled out in the text
    #[arg(long)]
    parse_special: bool,
    /// Print nothing but the ids, separated by spaces
    #[arg(long)]
    ids: bool,
}

/// Turn token ids into text
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo detokenize model.gguf --ids 9707,1879
  hanzo tokenize model.gguf --text \"Hello\" --ids | hanzo detokenize model.gguf")]
pub(crate) struct DetokenizeArgs {
    /// A GGUF file, which may hold a vocabulary only; the built-in model if left out
    model: Option<String>,
    /// Ids, separated by commas; standard input (commas or spaces) if left out
    #[arg(long, value_name = "IDS")]
    ids: Option<String>,
    /// Show special tokens by their names
    #[arg(long)]
    special: bool,
}

/// Runs `tokenize`.
pub(crate) fn run(args: &Args) -> Result<()> {
    let tokenizer = model::tokenizer(args.model.as_deref())?;
    let text = match &args.text {
        Some(text) => text.clone(),
        None => read_input("text")?,
    };
    let options = EncodeOptions { add_special: !args.no_bos, parse_special: args.parse_special };
    let ids = tokenizer.encode(&text, options)?;
    if args.ids {
        return out::println(&join(&ids));
    }
    let mut lines = String::new();
    for &id in &ids {
        let bytes = tokenizer.token_bytes(id).unwrap_or_default();
        let kind = if tokenizer.is_control(id) { "control" } else { "" };
        lines.push_str(&format!("{id:>8}  {kind:7}  {:?}\n", String::from_utf8_lossy(bytes)));
    }
    lines.push_str(&format!("{} tokens", ids.len()));
    out::println(&lines)
}

/// Runs `detokenize`.
pub(crate) fn run_detokenize(args: &DetokenizeArgs) -> Result<()> {
    let tokenizer: Tokenizer = model::tokenizer(args.model.as_deref())?;
    let text = match &args.ids {
        Some(ids) => ids.clone(),
        None => read_input("ids")?,
    };
    let mut ids = Vec::new();
    for word in text.split([',', ' ', '\n', '\t', '\r']).filter(|w| !w.is_empty()) {
        ids.push(word.parse::<u32>().with_context(|| format!("`{word}` is not a token id"))?);
    }
    let text =
        tokenizer.decode(&ids, DecodeOptions { render_special: args.special, ..DecodeOptions::default() })?;
    out::println(&text)
}

fn join(ids: &[u32]) -> String {
    ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// Standard input as text.
fn read_input(what: &str) -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .lock()
        .take(MAX_INPUT + 1)
        .read_to_end(&mut bytes)
        .context("cannot read standard input")?;
    if bytes.len() as u64 > MAX_INPUT {
        bail!("{what} on standard input is longer than {MAX_INPUT} bytes");
    }
    String::from_utf8(bytes).with_context(|| format!("{what} on standard input is not UTF-8"))
}
