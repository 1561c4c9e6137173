//! `hanzo models`: what can be run without a path.

use anyhow::Result;
use serde_json::{Value as Json, json};

use crate::model::{BUILT_IN, Source};
use crate::{cache, describe, out};

/// List the models that are built in or in the cache
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo models
  hanzo models --json | jq -r '.models[].name'

The cache is HANZO_HOME/models, by default ~/.cache/hanzo/models. A file there (FILE.gguf, or ORG/REPO/FILE.gguf) can
be run by its name: hanzo run FILE, hanzo run ORG/REPO:Q4_K_M.")]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is said of a model.
struct Row {
    name: String,
    source: Source,
    bytes: u64,
    /// Architecture, type and weights, or what is wrong with the file.
    what: Result<(String, String, u64), String>,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut rows = vec![row(BUILT_IN.to_owned(), Source::BuiltIn)];
    for cached in cache::list()? {
        rows.push(row(cached.name(), Source::File(cached.path)));
    }
    let dir = cache::models_dir();
    if args.json {
        let models: Vec<Json> = rows.iter().map(as_json).collect();
        return out::json(&json!({"cache": dir.map(|d| d.display().to_string()), "models": models}));
    }
    let width = rows.iter().map(|r| r.name.chars().count()).max().unwrap_or(0).max(4);
    let head = format!("{:width$}  {:>9}  {:<10} {:<8} {:>8}", "NAME", "SIZE", "ARCH", "TYPE", "WEIGHTS");
    let mut lines = vec![out::bold(&head)];
    for row in &rows {
        let what = match &row.what {
            Ok((architecture, ty, n)) => format!("{architecture:<10} {ty:<8} {:>8}", out::count(*n)),
            Err(problem) => format!("cannot be used: {problem}"),
        };
        let place = if row.source == Source::BuiltIn { "  (built in)" } else { "" };
        let line = format!("{:width$}  {:>9}  {what}{place}", row.name, out::bytes(row.bytes));
        lines.push(out::for_terminal(&line).into_owned());
    }
    out::println(&lines.join("\n"))?;
    match dir {
        Some(dir) if rows.len() == 1 => {
            out::aside(format_args!(
                "The cache is empty: {} is where .gguf files with names go.",
                dir.display()
            ));
        }
        Some(_) => {}
        None => out::aside(format_args!("There is no cache: HANZO_HOME would say where.")),
    }
    Ok(())
}

fn row(name: String, source: Source) -> Row {
    match source.open() {
        Ok(file) => {
            let bytes = file.parts().map(|part| part.file_len()).fold(0, u64::saturating_add);
            let architecture = file.metadata().get("general.architecture").and_then(|v| v.as_str());
            let what = (
                architecture.unwrap_or("?").to_owned(),
                describe::file_type(&file),
                describe::parameters(&file),
            );
            Row { name, source, bytes, what: Ok(what) }
        }
        Err(error) => {
            let bytes = match &source {
                Source::File(path) => std::fs::metadata(path).map_or(0, |m| m.len()),
                Source::BuiltIn => 0,
            };
            Row { name, source, bytes, what: Err(format!("{:#}", error.root_cause())) }
        }
    }
}

fn as_json(row: &Row) -> Json {
    let path = match &row.source {
        Source::BuiltIn => None,
        Source::File(path) => Some(path.display().to_string()),
    };
    let what = row.what.as_ref();
    json!({
        "name": row.name,
        "built_in": row.source == Source::BuiltIn,
        "path": path,
        "bytes": row.bytes,
        "architecture": what.ok().map(|w| &w.0),
        "type": what.ok().map(|w| &w.1),
        "weights": what.ok().map(|w| w.2),
        "problem": what.err(),
    })
}
