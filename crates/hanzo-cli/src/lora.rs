//! LoRA adapters on the command line: `--lora PATH[=SCALE]`, and what an adapter file says of itself.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use hanzo_engine::{AdapterId, Engine};
use hanzo_models::lora::{LoraFile, LoraFormat};
use serde_json::{Value as Json, json};

use crate::out;

/// An adapter and how strongly it is applied.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LoraFlag {
    path: PathBuf,
    scale: f32,
}

/// Reads `PATH[=SCALE]`. What follows the last `=` is a scale if it is a number.
///
/// # Errors
/// A path that is empty, a scale that is not finite.
pub(crate) fn parse(flag: &str) -> Result<LoraFlag, String> {
    let (path, scale) = match flag.rsplit_once('=') {
        Some((path, scale)) => match scale.parse::<f32>() {
            Ok(scale) => (path, scale),
            // A path with `=` in it; but if what is before is there, a number was meant.
            Err(_) if Path::new(path).exists() && !Path::new(flag).exists() => {
                return Err(format!("{scale:?} is no scale: a number is expected after `=`"));
            }
            Err(_) => (flag, 1.0),
        },
        None => (flag, 1.0),
    };
    if path.is_empty() {
        return Err("the path is empty".to_owned());
    }
    if !scale.is_finite() {
        return Err(format!("{scale} is no scale: a finite number is expected"));
    }
    Ok(LoraFlag { path: PathBuf::from(path), scale })
}

/// An adapter and its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct NamedLora {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
}

/// Reads `NAME=PATH`.
///
/// # Errors
/// What lacks a name or a path.
pub(crate) fn parse_named(flag: &str) -> Result<NamedLora, String> {
    match flag.split_once('=') {
        Some((name, path)) if !name.is_empty() && !path.is_empty() => {
            Ok(NamedLora { name: name.to_owned(), path: PathBuf::from(path) })
        }
        _ => Err("a name and a path are expected, such as style=style.gguf".to_owned()),
    }
}

/// Loads the adapters, each under its path; settings of theirs that are not known go to standard error.
///
/// # Errors
/// What is wrong with an adapter, or that it is not for this model.
pub(crate) fn load(engine: &Engine, flags: &[LoraFlag]) -> Result<Vec<(AdapterId, f32)>> {
    let mut ids = Vec::with_capacity(flags.len());
    for flag in flags {
        ids.push((engine.load_adapter(&flag.path.display().to_string(), &flag.path)?, flag.scale));
    }
    for adapter in engine.adapters().iter().filter(|a| !a.unknown_keys.is_empty()) {
        let keys = adapter.unknown_keys.join(", ");
        out::warning(format_args!(
            "{}: not known and left out of account: {}",
            out::for_terminal(&adapter.name),
            out::for_terminal(&keys)
        ));
    }
    Ok(ids)
}

/// Opens `path` if it is an adapter: a folder, a file of PEFT's, or a GGUF file that says so.
///
/// # Errors
/// What is wrong with the adapter.
pub(crate) fn open(path: &Path) -> Result<Option<LoraFile>> {
    let is_peft = path.is_dir()
        || path.file_name().is_some_and(|n| n == "adapter_config.json" || n == "adapter_model.safetensors");
    let is_gguf = || {
        let file = hanzo_gguf::GgufFile::open(path).ok()?;
        file.metadata().get_str("general.type").ok()?.map(|t| t == "adapter")
    };
    if is_peft || is_gguf() == Some(true) {
        return LoraFile::open(path).map(Some).context("cannot open the adapter");
    }
    Ok(None)
}

/// An adapter's description as text.
pub(crate) fn as_text(file: &LoraFile, with_tensors: bool) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write_text(&mut text, file, with_tensors);
    text
}

fn write_text(text: &mut String, file: &LoraFile, with_tensors: bool) -> std::fmt::Result {
    writeln!(text, "{}", out::bold(&file.path().display().to_string()))?;
    let architecture =
        file.architecture().map_or(String::new(), |a| format!(" for {}", out::for_terminal(a)));
    writeln!(text, "  LoRA adapter in {} form{architecture}", file.format().name())?;
    if let Some(base) = file.base_model() {
        writeln!(text, "  made for {base:?}")?;
    }
    writeln!(
        text,
        "  {} updates, rank {} at most, {} in memory",
        file.updates().len(),
        file.max_rank(),
        out::bytes(file.memory())
    )?;
    if !file.unknown_keys().is_empty() {
        let keys = file.unknown_keys().join(", ");
        writeln!(text, "  not known and left out of account: {}", out::for_terminal(&keys))?;
    }
    if file.format() == LoraFormat::Peft {
        writeln!(text, "  the architecture is not told; whether it fits a model is seen when it is loaded")?;
    }
    if with_tensors {
        let width = file.updates().map(|u| u.target.chars().count()).max().unwrap_or(0).min(64);
        writeln!(text, "\n{}", out::bold(&format!("Updates ({})", file.updates().len())))?;
        for u in file.updates() {
            writeln!(
                text,
                "  {:width$}  {:<5} {:>6} → {:<6}  rank {:<4} scale {}",
                out::for_terminal(&u.target),
                u.ty.name(),
                u.shape.n_in,
                u.shape.n_out,
                u.shape.rank,
                u.scale
            )?;
        }
    }
    Ok(())
}

/// An adapter's description as JSON.
pub(crate) fn as_json(file: &LoraFile, with_tensors: bool) -> Json {
    let mut json = json!({
        "name": file.path().display().to_string(),
        "type": "adapter",
        "format": file.format().name(),
        "architecture": file.architecture(),
        "base_model": file.base_model(),
        "n_updates": file.updates().len(),
        "max_rank": file.max_rank(),
        "memory": file.memory(),
        "unknown_keys": file.unknown_keys(),
    });
    if let (true, Some(object)) = (with_tensors, json.as_object_mut()) {
        let list: Vec<Json> = file
            .updates()
            .map(|u| {
                json!({"target": u.target, "type": u.ty.name(), "n_in": u.shape.n_in, "n_out": u.shape.n_out,
                       "rank": u.shape.rank, "scale": u.scale})
            })
            .collect();
        object.insert("updates".to_owned(), list.into());
    }
    json
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_scales() {
        let flag = |path: &str, scale| Ok(LoraFlag { path: PathBuf::from(path), scale });
        assert_eq!(parse("a.gguf"), flag("a.gguf", 1.0));
        assert_eq!(parse("a.gguf=0.5"), flag("a.gguf", 0.5));
        assert_eq!(parse("a=b=-2"), flag("a=b", -2.0));
        assert_eq!(parse("a=b"), flag("a=b", 1.0));
        for bad in ["=1", "", "a=NaN", "a=inf"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        let named = parse_named("a=b=c.gguf").unwrap();
        assert_eq!((named.name.as_str(), named.path.to_str()), ("a", Some("b=c.gguf")));
        assert!(parse_named("a").is_err() && parse_named("=a").is_err() && parse_named("a=").is_err());
        assert!(parse("Cargo.toml=0,5").is_err_and(|e| e.contains("\"0,5\" is no scale")));
    }
}
