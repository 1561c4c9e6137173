//! The `hanzo-bench` binary; see [`hanzo_bench::cli`].

use std::process::ExitCode;

use clap::Parser;
use hanzo_bench::cli;

/// Measure the throughput of a model, and evaluate what was measured.
#[derive(Debug, Parser)]
#[command(name = "hanzo-bench", version, about, args_conflicts_with_subcommands = true)]
#[command(after_help = cli::EXAMPLES)]
struct Cli {
    #[command(flatten)]
    bench: cli::Bench,
}

fn main() -> ExitCode {
    match cli::run(&Cli::parse().bench) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if cli::is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
