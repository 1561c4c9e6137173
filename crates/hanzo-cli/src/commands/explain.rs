//! `hanzo explain`: why a model is as fast as it is.

use anyhow::Result;
use hanzo_bench::{cli, explain};

use crate::failure;
use crate::model::{self, Source};

/// Say where the time of a model's steps goes, and what would make them faster
#[derive(Debug, clap::Args)]
#[command(after_help = explain::EXAMPLES)]
pub(crate) struct Args {
    /// A GGUF file, or the name of one on this machine; the built-in model if left out
    model: Option<String>,
    #[command(flatten)]
    explain: explain::Args,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let source = args.model.as_deref().map_or(Ok(Source::BuiltIn), model::require)?;
    match cli::explain(&source.open()?, &source.name(), &args.explain) {
        Err(error) if cli::is_reader_gone(&error) => Ok(()),
        Err(error) if cli::is_usage(&error) => Err(failure::usage(error.to_string())),
        outcome => outcome,
    }
}
