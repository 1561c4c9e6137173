//! `hanzo bench`: what `hanzo-bench` does, in this program.

use anyhow::Result;
use hanzo_bench::cli;

use crate::failure;

/// Measure the speed of a model, or of the machine (--roofline)
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  hanzo bench -m model.gguf                       prompt of 512 tokens and decode of 128, 7 times
  hanzo bench -m model.gguf -p 512,2048 -n 128 -b 1,4,8 --json
  hanzo bench -m model.gguf --requests --streams 8    first token and times between tokens, through the engine
  hanzo bench --roofline                          what the machine can do at most
  hanzo bench --roofline --device vulkan          the same of the best GPU; vulkan:1 is another
  hanzo bench --device list                       which devices there are

docs/benchmarking.md has the protocol, and how a comparison with another engine is made.")]
pub(crate) struct Args {
    #[command(flatten)]
    bench: cli::Bench,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    match cli::run(&args.bench) {
        Err(error) if cli::is_reader_gone(&error) => Ok(()),
        Err(error) if cli::is_usage(&error) => Err(failure::usage(error.to_string())),
        outcome => outcome,
    }
}
