//! `hanzo completions`: what a shell needs to complete commands and flags.

use anyhow::Result;
use clap_complete::Shell;

use crate::out;

/// Print completions for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo completions bash > ~/.local/share/bash-completion/completions/hanzo
  hanzo completions zsh > ~/.zfunc/_hanzo
  hanzo completions fish > ~/.config/fish/completions/hanzo.fish")]
pub(crate) struct Args {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Runs the command. `command` is the whole command line's definition.
pub(crate) fn run(args: &Args, mut command: clap::Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "hanzo", &mut script);
    out::print(&String::from_utf8_lossy(&script))
}
