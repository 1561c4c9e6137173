//! `hanzo rm`: removes models from this machine.

use anyhow::{Result, bail};
use hanzo_hub::Store;

use crate::failure::usage;
use crate::model::{self, BUILT_IN};
use crate::out;

/// Remove models from this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo rm qwen3:0.6b
  hanzo rm Qwen/Qwen3-4B-GGUF:Q8_0 Qwen/Qwen3-4B-GGUF:Q4_K_M

Takes the names that `hanzo list` shows. Content that another model of the cache shares stays. With the name of a repository of
which only an interrupted pull is here, removes that.")]
pub(crate) struct Args {
    /// Names of models
    #[arg(required = true, value_name = "MODEL")]
    models: Vec<String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let store = Store::from_env();
    for name in &args.models {
        if name == BUILT_IN {
            bail!("{BUILT_IN} is part of the program; it cannot be removed");
        }
        let removed = match store.remove(name)? {
            Some(removed) => removed,
            None if std::path::Path::new(name).exists() => {
                return Err(usage(format!(
                    "`{name}` is a file; models are removed by name (`hanzo list`), files as any other"
                )));
            }
            None => return Err(model::not_here(name)),
        };
        out::println(&format!("removed {}: {} are free", removed.name, out::bytes(removed.bytes)))?;
    }
    Ok(())
}
