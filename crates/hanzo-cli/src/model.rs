//! Finding a model: a path, the name of one that is on this machine, or the one that is built in.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use hanzo_gguf::GgufFile;
use hanzo_hub::{Name, Store};
use hanzo_text::tokenizer::Tokenizer;

use crate::failure::usage;
use crate::out;

/// The built-in model's file.
static TINY: &[u8] = include_bytes!("../assets/hanzo-tiny.gguf");

/// The name that leads to it.
pub(crate) const BUILT_IN: &str = "hanzo-tiny";

/// Where a model comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The one that is compiled into the program.
    BuiltIn,
    /// A file.
    File(PathBuf),
}

impl Source {
    /// What to call the model in messages.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::BuiltIn => BUILT_IN.to_owned(),
            Self::File(path) => path.display().to_string(),
        }
    }

    /// Opens the file.
    ///
    /// # Errors
    /// What is wrong with it, and its name.
    pub(crate) fn open(&self) -> Result<GgufFile> {
        match self {
            Self::BuiltIn => GgufFile::from_bytes(TINY).context("the built-in model is damaged"),
            Self::File(path) => GgufFile::open(path).context("cannot open the model"),
        }
    }
}

/// The source that `spec` means, if it means one: what exists as a path or ends in `.gguf` is a path; then come the
/// built-in model's name and the names of the models on this machine.
///
/// # Errors
/// When a name means several models, or a type that is not here.
pub(crate) fn find(spec: &str) -> Result<Option<Source>> {
    let path = Path::new(spec);
    if has_model_ending(spec) || path.exists() {
        return Ok(Some(Source::File(path.to_owned())));
    }
    if spec == BUILT_IN {
        return Ok(Some(Source::BuiltIn));
    }
    Ok(Store::from_env().find(spec)?.map(|stored| Source::File(stored.path)))
}

/// As [`find`], where nothing is an error.
///
/// # Errors
/// As there.
pub(crate) fn require(spec: &str) -> Result<Source> {
    if spec.trim().is_empty() {
        return Err(usage("the model's name is empty; leave it out for the built-in one"));
    }
    find(spec)?.ok_or_else(|| missing(spec))
}

/// The error that `spec` means no model.
pub(crate) fn missing(spec: &str) -> anyhow::Error {
    match Name::parse(spec) {
        Ok(name) => anyhow::anyhow!(
            "no model `{spec}` on this machine: `hanzo pull {spec}` fetches it{}; `hanzo list` shows what there is",
            if name.to_string() == spec { String::new() } else { format!(" (it is {name})") }
        ),
        Err(_) => anyhow::anyhow!(
            "no model `{spec}`: it is no file, no model on this machine (`hanzo list` shows those) and no name of one \
             to pull"
        ),
    }
}

/// The error that `name` means no model that could be removed.
pub(crate) fn not_here(name: &str) -> anyhow::Error {
    anyhow::anyhow!("no model `{name}` on this machine; `hanzo list` shows what there is")
}

/// Whether a word can only be meant as a model: `something.gguf`, `org/repo`, `org/repo:Q4_K_M`, an alias with its size.
pub(crate) fn looks_like_model(word: &str) -> bool {
    has_model_ending(word) || Name::parse(word).is_ok()
}

fn has_model_ending(word: &str) -> bool {
    Path::new(word).extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}

/// Opens the model that `spec` names, or the built-in one.
///
/// # Errors
/// As [`require`] and [`Source::open`].
pub(crate) fn open(spec: Option<&str>) -> Result<GgufFile> {
    spec.map_or(Ok(Source::BuiltIn), require)?.open()
}

/// The tokenizer of the model that `spec` names.
///
/// # Errors
/// As [`open`], and what is wrong with the vocabulary.
pub(crate) fn tokenizer(spec: Option<&str>) -> Result<Tokenizer> {
    tokenizer_of(&open(spec)?)
}

/// The tokenizer of a file; oddities of its vocabulary go to standard error.
///
/// # Errors
/// What is wrong with the vocabulary.
pub(crate) fn tokenizer_of(file: &GgufFile) -> Result<Tokenizer> {
    let tokenizer = Tokenizer::from_gguf(file.metadata()).context("the model's vocabulary cannot be used")?;
    for warning in tokenizer.warnings() {
        out::warning(format_args!("{warning}"));
    }
    Ok(tokenizer)
}

/// Refuses a path to write to that is the model (or a part of it) itself.
///
/// # Errors
/// If it is.
pub(crate) fn refuse_overwriting(file: &GgufFile, output: &Path) -> Result<()> {
    let Ok(output) = output.canonicalize() else { return Ok(()) };
    let is_part = file.parts().filter_map(|part| part.path()?.canonicalize().ok()).any(|part| part == output);
    ensure!(!is_part, "`{}` is the model itself; give another file", output.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_and_prompts_look_different() {
        for model in ["x.gguf", "a/b/x.GGUF", "org/repo", "Qwen/Qwen3-0.6B-GGUF:Q8_0", "qwen3:0.6b", "QWEN3"]
        {
            assert!(looks_like_model(model), "{model}");
        }
        for prompt in ["hello", "Once upon a time", "and/or what?", "a/b/c", "/help", "1/", "What is .gguf?"]
        {
            assert!(!looks_like_model(prompt), "{prompt}");
        }
    }
}
