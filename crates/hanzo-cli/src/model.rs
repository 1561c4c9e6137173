//! Finding a model: a path, or the one that is built in.

use anyhow::{Context, Result};
use hanzo_gguf::GgufFile;

/// Opens the model that `spec` names.
///
/// # Errors
/// What is wrong with the file, and its name.
pub(crate) fn open(spec: &str) -> Result<GgufFile> {
    GgufFile::open(spec).with_context(|| format!("cannot open model `{spec}`"))
}
