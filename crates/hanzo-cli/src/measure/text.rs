//! Texts to measure on: from a file or standard input, to token ids.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

/// Longest text, in bytes.
const MAX_BYTES: u64 = 1 << 30;

/// Reads a file, or standard input where the path is `-`.
///
/// # Errors
/// When it cannot be read, is no UTF-8, longer than 1 GiB, or empty.
pub(crate) fn read(path: &Path) -> Result<String> {
    let from_stdin = path == Path::new("-");
    let name = if from_stdin { "standard input".to_owned() } else { path.display().to_string() };
    let cannot_read = || format!("cannot read {name}");
    let source: Box<dyn Read> = if from_stdin {
        Box::new(std::io::stdin().lock())
    } else {
        ensure!(
            std::fs::metadata(path).with_context(cannot_read)?.is_file(),
            "{}: it is not a regular file",
            cannot_read()
        );
        Box::new(File::open(path).with_context(cannot_read)?)
    };
    let mut bytes = Vec::new();
    source.take(MAX_BYTES + 1).read_to_end(&mut bytes).with_context(cannot_read)?;
    if bytes.len() as u64 > MAX_BYTES {
        bail!("{name} is longer than {MAX_BYTES} bytes");
    }
    let text = String::from_utf8(bytes)
        .map_err(|e| anyhow::anyhow!("{name} is not UTF-8 (at byte {})", e.utf8_error().valid_up_to()))?;
    ensure!(!text.trim().is_empty(), "{name} is empty");
    Ok(text)
}

/// The tokens of a text that is to be scored: BOS first where the vocabulary asks for it, nothing at its end. As llama.cpp's tools
/// do, one newline at the very end is left out.
///
/// # Errors
/// When the vocabulary cannot express it.
pub(crate) fn encode(tokenizer: &Tokenizer, text: &str, parse_special: bool) -> Result<Vec<u32>> {
    let text = text.strip_suffix('\n').unwrap_or(text);
    let mut ids: Vec<u32> = bos(tokenizer).into_iter().collect();
    ids.extend(tokenizer.encode(text, EncodeOptions { add_special: false, parse_special })?);
    Ok(ids)
}

/// The BOS that the vocabulary puts before a text, if it does.
pub(crate) fn bos(tokenizer: &Tokenizer) -> Option<u32> {
    tokenizer.bos().filter(|_| tokenizer.adds_bos())
}
