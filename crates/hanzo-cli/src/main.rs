//! The `hanzo` binary: run, serve, inspect, tokenize, quantize, measure GGUF models.
//!
//! Each command is one file under `commands/`; this one parses and dispatches. `failure` turns an error into a message
//! and an exit code, `out` is the only place that writes to the terminal.

mod commands;
mod describe;
mod device;
mod environment;
mod failure;
mod file;
mod interrupt;
mod json;
mod log;
mod lora;
mod measure;
mod model;
mod out;
mod progress;
mod session;
mod size;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// Run language models: GGUF files, on this machine.
#[derive(Debug, Parser)]
#[command(name = "hanzo", version, about, long_about = None, arg_required_else_help = true)]
#[command(after_help = "Examples:
  hanzo run \"Once upon a time\"            one reply of the small model that is built in
  hanzo run model.gguf                    chat with a model of your own
  hanzo serve model.gguf                  the same over HTTP, for OpenAI's clients
  hanzo pull qwen3:0.6b                   fetch a model from the Hugging Face Hub; then: hanzo run qwen3:0.6b
  hanzo inspect model.gguf                what is in a file
  hanzo quantize model.gguf out.gguf Q4_K_M
  hanzo help COMMAND                      more about a command")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(commands::run::Args),
    Serve(commands::serve::Args),
    Inspect(commands::inspect::Args),
    Pull(commands::pull::Args),
    #[command(visible_alias = "models", visible_alias = "ls")]
    List(commands::list::Args),
    Rm(commands::rm::Args),
    Quantize(commands::quantize::Args),
    Tokenize(commands::tokenize::Args),
    Detokenize(commands::tokenize::DetokenizeArgs),
    Template(commands::template::Args),
    Logits(commands::logits::Args),
    Bench(commands::bench::Args),
    Explain(commands::explain::Args),
    Perplexity(commands::perplexity::Args),
    Imatrix(commands::imatrix::Args),
    Eval(commands::eval::Args),
    Kernels(commands::kernels::Args),
    Completions(commands::completions::Args),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    if !matches!(command, Command::Run(_) | Command::Serve(_)) {
        log::init(tracing::Level::WARN, log::Format::Text);
    }
    failure::exit_code(match command {
        Command::Run(args) => commands::run::run(&args),
        Command::Serve(args) => commands::serve::run(&args),
        Command::Inspect(args) => commands::inspect::run(&args),
        Command::Pull(args) => commands::pull::run(&args),
        Command::List(args) => commands::list::run(&args),
        Command::Rm(args) => commands::rm::run(&args),
        Command::Quantize(args) => commands::quantize::run(&args),
        Command::Tokenize(args) => commands::tokenize::run(&args),
        Command::Detokenize(args) => commands::tokenize::run_detokenize(&args),
        Command::Template(args) => commands::template::run(&args),
        Command::Logits(args) => commands::logits::run(&args),
        Command::Bench(args) => commands::bench::run(&args),
        Command::Explain(args) => commands::explain::run(&args),
        Command::Perplexity(args) => commands::perplexity::run(&args),
        Command::Imatrix(args) => commands::imatrix::run(&args),
        Command::Eval(args) => commands::eval::run(&args),
        Command::Kernels(args) => commands::kernels::run(&args),
        Command::Completions(args) => commands::completions::run(&args, Cli::command()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        let mut command = Cli::command();
        command.build();
        command.debug_assert();
    }
}
