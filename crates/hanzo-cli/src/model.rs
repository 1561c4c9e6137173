//! Finding a model: a path, or the one that is built in.

use anyhow::{Context, Result};
use hanzo_gguf::GgufFile;
use hanzo_text::tokenizer::Tokenizer;

/// The built-in model's file.
static TINY: &[u8] = include_bytes!("../assets/hanzo-tiny.gguf");

/// Opens the model that `spec` names, or the built-in one.
///
/// # Errors
/// What is wrong with the file, and its name.
pub(crate) fn open(spec: Option<&str>) -> Result<GgufFile> {
    match spec {
        Some(path) => GgufFile::open(path).with_context(|| format!("cannot open model `{path}`")),
        None => GgufFile::from_bytes(TINY).context("the built-in model is damaged"),
    }
}

/// The tokenizer of the model that `spec` names.
///
/// # Errors
/// As [`open`], and what is wrong with the vocabulary.
pub(crate) fn tokenizer(spec: Option<&str>) -> Result<Tokenizer> {
    tokenizer_of(&open(spec)?)
}

/// The tokenizer of a file; oddities of its vocabulary go to standard error.
///
/// # Errors
/// What is wrong with the vocabulary.
pub(crate) fn tokenizer_of(file: &GgufFile) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::from_gguf(file.metadata())?;
    for warning in tokenizer.warnings() {
        eprintln!("warning: {warning}");
    }
    Ok(tokenizer)
}
