//! What a user types to mean a model.

use std::fmt;

use crate::alias;
use crate::error::{Error, Result};

/// Longest name of a repository, as on the Hub.
const MAX_REPO: usize = 96;

/// A repository of the Hub: `ORG/REPO`, checked, so that it can stand in URLs and paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Repo(String);

impl Repo {
    /// Reads `ORG/REPO`.
    ///
    /// # Errors
    /// When it is none: letters, digits, `-`, `_` and `.` may stand in both parts, which neither begin nor end with `-` or
    /// `.` and do not have two of them in a row (the rules of the Hub, which also keep `..` out of paths).
    pub fn parse(text: &str) -> Result<Self> {
        let bad = |why| Error::BadName { name: text.to_owned(), why };
        let (org, repo) = text.split_once('/').ok_or_else(|| bad("ORG/REPO is expected"))?;
        if text.len() > MAX_REPO {
            return Err(bad("it is longer than 96 characters"));
        }
        for part in [org, repo] {
            if part.is_empty() || !part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
                return Err(bad("only letters, digits, -, _ and . may stand on each side of the /"));
            }
            if part.starts_with(['-', '.'])
                || part.ends_with(['-', '.'])
                || part.contains("..")
                || part.contains("--")
            {
                return Err(bad("- and . may not stand at an end or twice"));
            }
        }
        Ok(Self(text.to_owned()))
    }

    /// `ORG/REPO`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Repo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A model of the Hub: its repository, and which of its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The repository.
    pub repo: Repo,
    /// The type (`Q4_K_M`) or a file's name; the preferred type if left out.
    pub variant: Option<String>,
}

impl Name {
    /// Reads `ORG/REPO`, `ORG/REPO:VARIANT`, either behind `hf.co/` or `https://huggingface.co/`, or an alias (which may have
    /// a `:VARIANT` of its own behind it).
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(name) = alias::resolve(text) {
            return Ok(name);
        }
        let bare = ["https://huggingface.co/", "https://hf.co/", "huggingface.co/", "hf.co/", "hf://"]
            .iter()
            .find_map(|prefix| text.strip_prefix(prefix))
            .unwrap_or(text);
        if let Some((head, variant)) = bare.rsplit_once(':')
            && let Some(name) = alias::resolve(head)
        {
            return Ok(Self { variant: Some(checked_variant(text, variant)?), ..name });
        }
        Self::parse_repo(bare, text)
    }

    /// Reads `ORG/REPO[:VARIANT]`, which stands in `whole`.
    pub(crate) fn parse_repo(bare: &str, whole: &str) -> Result<Self> {
        let (repo, variant) = match bare.split_once(':') {
            Some((repo, variant)) => (repo, Some(checked_variant(whole, variant)?)),
            None => (bare, None),
        };
        if !repo.contains('/') {
            let why = "it is neither an alias nor ORG/REPO, as in `Qwen/Qwen3-0.6B-GGUF`";
            return Err(Error::BadName { name: whole.to_owned(), why });
        }
        Ok(Self { repo: Repo::parse(repo)?, variant })
    }
}

fn checked_variant(whole: &str, variant: &str) -> Result<String> {
    let bad = |why| Error::BadName { name: whole.to_owned(), why };
    if variant.is_empty() {
        return Err(bad("a type is expected behind the :"));
    }
    if variant.chars().any(|c| c.is_control() || c == ':') || variant.len() > 512 {
        return Err(bad("what stands behind the : is no type or file name"));
    }
    Ok(variant.to_owned())
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.variant {
            Some(variant) => write!(f, "{}:{variant}", self.repo),
            None => write!(f, "{}", self.repo),
        }
    }
}

/// The type that a file's name (without `.gguf`) ends with: `Q4_K_M` of `Some-Model-Q4_K_M` and `some-model.Q4_K_M`,
/// `UD-Q4_K_XL` of `Model-UD-Q4_K_XL`; shard numbers do not count.
#[must_use]
pub fn quant_of(stem: &str) -> Option<&str> {
    let stem = without_shard(stem);
    let quant = bare_quant_of(stem)?;
    let dynamic = stem.len().checked_sub(quant.len() + "UD-".len()).and_then(|start| stem.get(start..));
    Some(dynamic.filter(|text| text.starts_with("UD-") && !stem_goes_on(stem, text)).unwrap_or(quant))
}

/// Whether a letter or digit stands before the end `tail` of `stem`.
fn stem_goes_on(stem: &str, tail: &str) -> bool {
    stem.strip_suffix(tail).is_some_and(|head| head.ends_with(|c: char| c.is_alphanumeric()))
}

fn bare_quant_of(stem: &str) -> Option<&str> {
    let last = stem.rsplit(['-', '.', '/']).next()?;
    let upper = last.to_ascii_uppercase();
    let starts = ["Q", "IQ", "TQ"]
        .iter()
        .any(|p| upper.strip_prefix(p).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())));
    (starts || ["F16", "BF16", "F32", "MXFP4", "NVFP4"].contains(&upper.as_str())).then_some(last)
}

/// The name without the `-00001-of-00003` that shards end in.
pub(crate) fn without_shard(stem: &str) -> &str {
    hanzo_gguf::parse_shard_name(&format!("{stem}.gguf"))
        .map_or(stem, |(prefix, ..)| stem.get(..prefix.len()).unwrap_or(stem))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read() {
        for (text, expected) in [
            ("Qwen/Qwen3-0.6B-GGUF", "Qwen/Qwen3-0.6B-GGUF"),
            ("Qwen/Qwen3-0.6B-GGUF:Q8_0", "Qwen/Qwen3-0.6B-GGUF:Q8_0"),
            ("hf.co/a/b:UD-Q4_K_XL", "a/b:UD-Q4_K_XL"),
            ("https://huggingface.co/a/b", "a/b"),
            ("qwen3:0.6b", "Qwen/Qwen3-0.6B-GGUF:Q8_0"),
            ("QWEN3:0.6B", "Qwen/Qwen3-0.6B-GGUF:Q8_0"),
            ("qwen3:0.6b:IQ4_XS", "Qwen/Qwen3-0.6B-GGUF:IQ4_XS"),
        ] {
            assert_eq!(Name::parse(text).unwrap().to_string(), expected, "{text}");
        }
    }

    #[test]
    fn what_could_leave_the_cache_or_the_url_is_no_name() {
        for text in [
            "", "a", "a/", "/b", "../b", "a/..", "a/b/c", "a\\b/c", "a/b?x", "a/b%2f", "a/b\0", "a/b#",
            "a b/c", "a/b:", "-a/b", "a/b.", "a--b/c", "a/b:x\ny", "é/b",
        ] {
            assert!(matches!(Name::parse(text), Err(Error::BadName { .. })), "{text:?}");
        }
        assert!(Name::parse(&format!("a/{}", "b".repeat(95))).is_err());
    }

    #[test]
    fn types_are_read_off_names() {
        assert_eq!(quant_of("a-Q4_K_M"), Some("Q4_K_M"));
        assert_eq!(quant_of("a.iq2_xs"), Some("iq2_xs"));
        assert_eq!(quant_of("a-Q8_0-00001-of-00002"), Some("Q8_0"));
        assert_eq!(quant_of("Model-UD-Q4_K_XL"), Some("UD-Q4_K_XL"));
        assert_eq!(quant_of("CLOUD-Q4_0"), Some("Q4_0"));
        assert_eq!(quant_of("Qwen"), None);
        assert_eq!(quant_of("model-bf16"), Some("bf16"));
    }
}
