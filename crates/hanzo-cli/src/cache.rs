//! The cache: models on this machine that can be named without a path.
//!
//! `HANZO_HOME`, or else `hanzo` in the user's cache directory, holds `models/ORG/REPO/FILE.gguf` for what came from a
//! repository and `models/FILE.gguf` for what the user put there. A model has the names `ORG/REPO:QUANT`, `REPO:QUANT`
//! and `FILE` (without its ending), without regard to case.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Most files looked at: a cache with more is something else.
const MAX_FILES: usize = 10_000;
/// Which of several files of a repository is meant when no type is named.
const PREFERRED: &str = "Q4_K_M";

/// A model file of the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cached {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// `ORG/REPO`, for a file from a repository.
    pub(crate) repo: Option<String>,
    /// The file's name without `.gguf`.
    pub(crate) stem: String,
}

impl Cached {
    /// The name that leads to this file and no other.
    pub(crate) fn name(&self) -> String {
        match (&self.repo, self.quant()) {
            (Some(repo), Some(quant)) => format!("{repo}:{quant}"),
            _ => self.stem.clone(),
        }
    }

    /// The type that the file's name ends with, such as `Q4_K_M`.
    fn quant(&self) -> Option<&str> {
        quant_of_name(&self.stem)
    }
}

/// `Q4_K_M` of `Some-Model-Q4_K_M` and of `some-model.Q4_K_M`.
fn quant_of_name(stem: &str) -> Option<&str> {
    // Shards end in `-00001-of-00003`.
    let stem = hanzo_gguf::parse_shard_name(&format!("{stem}.gguf"))
        .map_or(stem, |(prefix, ..)| stem.get(..prefix.len()).unwrap_or(stem));
    let last = stem.rsplit(['-', '.']).next()?;
    let upper = last.to_ascii_uppercase();
    let starts = ["Q", "IQ", "TQ"]
        .iter()
        .any(|p| upper.strip_prefix(p).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    (starts || ["F16", "BF16", "F32", "MXFP4", "NVFP4"].contains(&upper.as_str())).then_some(last)
}

/// The cache's directory; `None` where the environment names no home.
pub(crate) fn home() -> Option<PathBuf> {
    let var = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    var("HANZO_HOME")
        .or_else(|| var("XDG_CACHE_HOME").map(|dir| dir.join("hanzo")))
        .or_else(|| var("LOCALAPPDATA").filter(|_| cfg!(windows)).map(|dir| dir.join("hanzo")))
        .or_else(|| var("HOME").map(|dir| dir.join(".cache").join("hanzo")))
}

/// Where models are; `None` as for [`home`].
pub(crate) fn models_dir() -> Option<PathBuf> {
    home().map(|dir| dir.join("models"))
}

/// All models of the cache, sorted by path. A cache that does not exist is empty.
///
/// # Errors
/// When a directory cannot be read.
pub(crate) fn list() -> Result<Vec<Cached>> {
    let Some(dir) = models_dir() else { return Ok(Vec::new()) };
    let mut found = Vec::new();
    for (path, is_dir) in entries(&dir)? {
        if !is_dir {
            found.extend(cached(path, None));
            continue;
        }
        for (repo, is_dir) in entries(&path)? {
            if !is_dir {
                continue;
            }
            let name = format!("{}/{}", file_name(&path), file_name(&repo));
            for (file, is_dir) in entries(&repo)? {
                if !is_dir {
                    found.extend(cached(file, Some(&name)));
                }
            }
        }
    }
    Ok(found)
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The file as a model, if it is one; of a split model only the first shard counts.
fn cached(path: PathBuf, repo: Option<&str>) -> Option<Cached> {
    let name = file_name(&path);
    let stem = name.strip_suffix(".gguf")?.to_owned();
    let later_shard = hanzo_gguf::parse_shard_name(&name).is_some_and(|(_, number, _)| number > 1);
    (!later_shard).then(|| Cached { path, repo: repo.map(str::to_owned), stem })
}

/// What is in a directory, sorted, and whether each is a directory itself.
fn entries(dir: &Path) -> Result<Vec<(PathBuf, bool)>> {
    let reader = match fs::read_dir(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        reader => reader.with_context(|| format!("cannot read the cache {}", dir.display()))?,
    };
    let mut found = Vec::new();
    for entry in reader {
        let path = entry.with_context(|| format!("cannot read the cache {}", dir.display()))?.path();
        if found.len() == MAX_FILES {
            bail!("{} has more than {MAX_FILES} entries; is this a cache of models?", dir.display());
        }
        let is_dir = path.is_dir();
        found.push((path, is_dir));
    }
    found.sort();
    Ok(found)
}

/// The model of the cache that `name` means, if it means one.
///
/// # Errors
/// When several are meant, or the cache cannot be read.
pub(crate) fn find(name: &str) -> Result<Option<PathBuf>> {
    choose(&list()?, name)
}

fn choose(all: &[Cached], name: &str) -> Result<Option<PathBuf>> {
    let (base, quant) = match name.rsplit_once(':') {
        Some((base, quant)) => (base, Some(quant)),
        None => (name, None),
    };
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let meant = |c: &&Cached| {
        let repo = c.repo.as_deref().unwrap_or_default();
        let short = repo.rsplit('/').next().unwrap_or_default();
        same(repo, base) || same(short, base) || same(&c.stem, base)
    };
    let found: Vec<&Cached> = all.iter().filter(meant).collect();
    let typed = |quant: &str| {
        let of_type = |c: &&&Cached| c.quant().is_some_and(|q| same(q, quant));
        found.iter().filter(of_type).copied().collect::<Vec<_>>()
    };
    let names = |of: &[&Cached]| of.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ");
    let candidates = match quant {
        Some(quant) if !found.is_empty() && typed(quant).is_empty() => {
            bail!("`{base}` is in the cache, but not as {quant}; there is: {}", names(&found));
        }
        Some(quant) => typed(quant),
        None => found.clone(),
    };
    match candidates.as_slice() {
        [] => Ok(None),
        [one] => Ok(Some(one.path.clone())),
        several => match typed(PREFERRED).as_slice() {
            [one] if quant.is_none() => Ok(Some(one.path.clone())),
            _ => bail!("`{name}` may be one of several models; say which: {}", names(several)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> Vec<Cached> {
        let file =
            |repo: Option<&str>, stem: &str| cached(PathBuf::from(format!("/c/{stem}.gguf")), repo).unwrap();
        vec![
            file(Some("Qwen/Qwen3-0.6B-GGUF"), "Qwen3-0.6B-Q4_K_M"),
            file(Some("Qwen/Qwen3-0.6B-GGUF"), "Qwen3-0.6B-Q8_0"),
            file(Some("other/tales"), "tales-iq3_xxs"),
            file(None, "mine"),
        ]
    }

    #[track_caller]
    fn finds(name: &str, stem: Option<&str>) {
        let found = choose(&cache(), name).unwrap();
        assert_eq!(found, stem.map(|s| PathBuf::from(format!("/c/{s}.gguf"))), "{name}");
    }

    #[test]
    fn names_lead_to_files() {
        finds("Qwen/Qwen3-0.6B-GGUF:Q8_0", Some("Qwen3-0.6B-Q8_0"));
        finds("qwen3-0.6b-gguf:q8_0", Some("Qwen3-0.6B-Q8_0"));
        finds("Qwen/Qwen3-0.6B-GGUF", Some("Qwen3-0.6B-Q4_K_M"));
        finds("tales", Some("tales-iq3_xxs"));
        finds("tales:IQ3_XXS", Some("tales-iq3_xxs"));
        finds("mine", Some("mine"));
        finds("Once upon a time", None);
        finds("unknown:Q8_0", None);
    }

    #[test]
    fn a_missing_type_is_an_error_that_lists_what_there_is() {
        let error = choose(&cache(), "Qwen/Qwen3-0.6B-GGUF:Q5_K_M").unwrap_err().to_string();
        assert!(error.contains("Qwen/Qwen3-0.6B-GGUF:Q8_0"), "{error}");
    }

    #[test]
    fn types_are_read_off_names() {
        assert_eq!(quant_of_name("a-Q4_K_M"), Some("Q4_K_M"));
        assert_eq!(quant_of_name("a.iq2_xs"), Some("iq2_xs"));
        assert_eq!(quant_of_name("a-Q8_0-00001-of-00002"), Some("Q8_0"));
        assert_eq!(quant_of_name("Qwen"), None);
        assert_eq!(quant_of_name("model-bf16"), Some("bf16"));
    }
}
