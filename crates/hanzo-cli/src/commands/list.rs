//! `hanzo list`: what can be run without a path.

use anyhow::Result;
use hanzo_hub::Store;
use serde_json::{Value as Json, json};

use crate::model::{BUILT_IN, Source};
use crate::{describe, out};

/// List the models that can be run by name
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  hanzo list
  hanzo list --json | jq -r '.models[].name'
  hanzo list --aliases                    short names for `hanzo pull` and `hanzo run`

Models are those that are built in, those that were pulled (or fetched by huggingface_hub, whose cache is the same), and your
own in HANZO_HOME/models, by default ~/.cache/hanzo/models: FILE.gguf, or ORG/REPO/FILE.gguf.")]
pub(crate) struct Args {
    /// List the short names of well-known models instead
    #[arg(long)]
    aliases: bool,
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
    if args.aliases {
        return aliases(args.json);
    }
    let store = Store::from_env();
    let mut rows = vec![row(BUILT_IN.to_owned(), Source::BuiltIn, 0)];
    for stored in store.list()? {
        rows.push(row(stored.name, Source::File(stored.path), stored.bytes));
    }
    let unfinished = store.unfinished()?;
    if args.json {
        let models: Vec<Json> = rows.iter().map(as_json).collect();
        let path = |dir: Option<&std::path::Path>| dir.map(|d| d.display().to_string());
        return out::json(&json!({
            "cache": path(store.hub_cache()),
            "own": path(store.own()),
            "unfinished_bytes": unfinished,
            "models": models,
        }));
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
    if unfinished > 0 {
        out::aside(format_args!(
            "{} of interrupted pulls; the same pull goes on from there, `hanzo rm ORG/REPO` removes them.",
            out::bytes(unfinished)
        ));
    }
    if rows.len() == 1 {
        out::aside(format_args!("Nothing else is here. To get a model: hanzo pull qwen3:0.6b"));
    }
    Ok(())
}

fn aliases(as_json: bool) -> Result<()> {
    if as_json {
        let map: serde_json::Map<String, Json> =
            hanzo_hub::aliases().map(|alias| (alias.name.to_owned(), alias.model.into())).collect();
        return out::json(&Json::Object(map));
    }
    let width = hanzo_hub::aliases().map(|alias| alias.name.len()).max().unwrap_or(0);
    let lines: Vec<String> =
        hanzo_hub::aliases().map(|alias| format!("{:width$}  {}", alias.name, alias.model)).collect();
    out::println(&lines.join("\n"))
}

fn row(name: String, source: Source, bytes: u64) -> Row {
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
        Err(error) => Row { name, source, bytes, what: Err(format!("{:#}", error.root_cause())) },
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
