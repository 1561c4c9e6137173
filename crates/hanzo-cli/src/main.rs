//! The `hanzo` binary: run, inspect, tokenize, quantize GGUF models.
//!
//! Each command is one file under `commands/`; this one parses, dispatches, and turns an error into a message and an
//! exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

mod commands;
mod model;
mod progress;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Run language models: any GGUF file, on this machine.
#[derive(Debug, Parser)]
#[command(name = "hanzo", version, about, long_about = None, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Examples:
  hanzo run \"Once upon a time\"            a small model that is built in
  hanzo run model.gguf                     chat with a model of your own
  hanzo inspect model.gguf                 what is in a file
  hanzo quantize model.gguf out.gguf Q4_K_M")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Tokenize(commands::tokenize::Args),
    Detokenize(commands::tokenize::DetokenizeArgs),
    Template(commands::template::Args),
    Logits(commands::logits::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Detokenize(args) => commands::tokenize::run_detokenize(&args),
        Command::Template(args) => commands::template::run(&args),
        Command::Logits(args) => commands::logits::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
