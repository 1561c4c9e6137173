//! The `hanzo-bench` binary: raw throughput samples, and synthetic models to take them on.
//!
//! A sample is `[wall_s, tokens]` of one repetition, by the wall clock, over a fixed number of tokens; nothing that an
//! engine says of itself goes in. Statistics are made from committed samples, elsewhere.

mod sample;
mod synth;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Measure the throughput of a model.
#[derive(Debug, Parser)]
#[command(name = "hanzo-bench", version, about, args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  hanzo-bench --model model.gguf
  hanzo-bench --model model.gguf -p 512,500,2048 -n 128 -r 7 -b 1,4,8 --json > samples.json
  hanzo-bench --model model.gguf -p 0 -n 128 --depth 4096
  hanzo-bench synth --shape qwen3-0.6b --type q4_k_m synthetic.gguf")]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    sample: sample::Args,
}

#[derive(Debug, Subcommand)]
enum Command {
    Synth(synth::Args),
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = match &cli.command {
        Some(Command::Synth(args)) => synth::run(args),
        None => sample::run(&cli.sample),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
