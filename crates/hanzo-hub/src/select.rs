//! Which files of a repository make a model, and which of its models is meant.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::name::{quant_of, without_shard};
use crate::remote::RemoteFile;

/// Which of several types is meant when none is named.
pub(crate) const PREFERRED: &str = "Q4_K_M";

/// One model of a repository: a file, or all shards of a split one in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// What tells it from its neighbours: its type, or else its file name without `.gguf`.
    pub label: String,
    /// Path without shard number and `.gguf`.
    pub stem: String,
    /// Its files, in order.
    pub files: Vec<RemoteFile>,
    /// How many files there should be.
    pub n_shards: usize,
}

impl Variant {
    /// Bytes of all files, where they are known.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.files.iter().map(|file| file.size).sum()
    }

    /// Whether no shard is missing.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.files.len() == self.n_shards
    }

    fn base(&self) -> &str {
        self.stem.rsplit('/').next().unwrap_or(&self.stem)
    }
}

/// The models that these files make, by name. Files that are no `.gguf`, and projectors of images (`mmproj`), are none.
pub(crate) fn variants(files: &[RemoteFile]) -> Vec<Variant> {
    let mut groups: BTreeMap<(&str, u32), BTreeMap<u32, &RemoteFile>> = BTreeMap::new();
    for file in files {
        let Some(stem) = file.path.strip_suffix(".gguf") else { continue };
        let base = stem.rsplit('/').next().unwrap_or(stem);
        if base.starts_with("mmproj") {
            continue;
        }
        let (number, count) = match hanzo_gguf::parse_shard_name(&file.path) {
            Some((_, number, count)) => (number, count),
            None => (1, 1),
        };
        groups.entry((without_shard(stem), count)).or_default().insert(number, file);
    }
    let mut variants: Vec<Variant> = groups
        .into_iter()
        .map(|((stem, count), files)| Variant {
            label: quant_of(stem).unwrap_or(stem).to_owned(),
            stem: stem.to_owned(),
            files: files.into_values().cloned().collect(),
            n_shards: count as usize,
        })
        .collect();
    // A type that two models share names neither.
    let labels: Vec<String> = variants.iter().map(|v| v.label.to_ascii_uppercase()).collect();
    for (i, variant) in variants.iter_mut().enumerate() {
        let mine = variant.label.to_ascii_uppercase();
        if labels.iter().enumerate().any(|(j, other)| j != i && *other == mine) {
            variant.label.clone_from(&variant.stem);
        }
    }
    variants
}

/// The model that `wanted` means: a type, a file name (with or without `.gguf`), a path; without it the one of the
/// preferred type, or the only one. `what` names the whole in errors.
///
/// # Errors
/// When none or several are meant, with the list of what there is.
pub(crate) fn choose<'a>(variants: &'a [Variant], wanted: Option<&str>, what: &str) -> Result<&'a Variant> {
    let list = |of: &mut dyn Iterator<Item = &Variant>| of.map(describe).collect::<Vec<_>>();
    let all = || list(&mut variants.iter());
    if variants.is_empty() {
        return Err(Error::Choose { what: format!("{what} has no GGUF model"), choices: Vec::new() });
    }
    let same = |a: &str, b: &str| a.eq_ignore_ascii_case(b);
    let Some(wanted) = wanted else {
        let typed = |v: &&Variant| quant_of(&v.stem).is_some_and(|quant| same(quant, PREFERRED));
        let preferred: Vec<&Variant> = variants.iter().filter(typed).collect();
        return match (preferred.as_slice(), variants) {
            ([one], _) => Ok(one),
            ([], [one]) => Ok(one),
            ([], _) => Err(Error::Choose {
                what: format!(
                    "{what} has no {PREFERRED}; say which, as in `{what}:{}`",
                    first_label(variants)
                ),
                choices: all(),
            }),
            (several, _) => Err(Error::Choose {
                what: format!(
                    "{what} has several models; say which, as in `{what}:{}`",
                    first_label(variants)
                ),
                choices: list(&mut several.iter().copied()),
            }),
        };
    };
    let bare = wanted.strip_suffix(".gguf").unwrap_or(wanted);
    let bare = without_shard(bare);
    let exact = |v: &&Variant| same(&v.label, bare) || same(&v.stem, bare) || same(v.base(), bare);
    let by_type = |v: &&Variant| quant_of(&v.stem).is_some_and(|quant| same(quant, bare));
    for found in
        [variants.iter().filter(exact).collect::<Vec<_>>(), variants.iter().filter(by_type).collect()]
    {
        match found.as_slice() {
            [] => {}
            [one] => return Ok(one),
            several => {
                return Err(Error::Choose {
                    what: format!("{what} has several models `{wanted}`; name the file instead"),
                    choices: list(&mut several.iter().copied()),
                });
            }
        }
    }
    Err(Error::Choose { what: format!("{what} has no `{wanted}`"), choices: all() })
}

fn first_label(variants: &[Variant]) -> &str {
    variants.first().map_or("", |v| &v.label)
}

fn describe(variant: &Variant) -> String {
    match variant.bytes() {
        Some(bytes) => format!("{} ({})", variant.label, megabytes(bytes)),
        None => variant.label.clone(),
    }
}

fn megabytes(bytes: u64) -> String {
    let mb = bytes as f64 / 1e6;
    if mb < 1000.0 { format!("{mb:.0} MB") } else { format!("{:.1} GB", mb / 1000.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repo(paths: &[&str]) -> Vec<Variant> {
        let files: Vec<RemoteFile> = paths
            .iter()
            .map(|path| RemoteFile { path: (*path).to_owned(), size: Some(1_500_000_000) })
            .collect();
        variants(&files)
    }

    #[track_caller]
    fn chosen(variants: &[Variant], wanted: Option<&str>) -> Vec<String> {
        choose(variants, wanted, "a/b").unwrap().files.iter().map(|f| f.path.clone()).collect()
    }

    #[test]
    fn the_preferred_type_is_the_default_and_any_other_can_be_named() {
        let all = repo(&[
            "README.md",
            "m-Q8_0.gguf",
            "m-Q4_K_M.gguf",
            "m.iq2_xs.gguf",
            "mmproj-f16.gguf",
            "m-UD-Q4_K_M.gguf",
        ]);
        assert_eq!(chosen(&all, None), ["m-Q4_K_M.gguf"]);
        assert_eq!(chosen(&all, Some("q8_0")), ["m-Q8_0.gguf"]);
        assert_eq!(chosen(&all, Some("IQ2_XS")), ["m.iq2_xs.gguf"]);
        assert_eq!(chosen(&all, Some("UD-Q4_K_M")), ["m-UD-Q4_K_M.gguf"]);
        assert_eq!(chosen(&all, Some("m-Q8_0.gguf")), ["m-Q8_0.gguf"]);
        assert_eq!(chosen(&repo(&["model.gguf"]), None), ["model.gguf"]);
    }

    #[test]
    fn all_shards_are_one_model() {
        let shard = |n: u32| format!("Q8_0/big-Q8_0-{n:05}-of-00003.gguf");
        let (a, b, c) = (shard(1), shard(2), shard(3));
        let all = repo(&[&c, &a, &b, "big-Q4_K_M.gguf"]);
        assert_eq!(chosen(&all, Some("Q8_0")), [a.clone(), b.clone(), c]);
        assert!(choose(&all, Some("Q8_0"), "x").unwrap().is_complete());
        assert!(!choose(&repo(&[&a, &b]), None, "x").unwrap().is_complete());
    }

    #[test]
    fn what_is_unclear_is_an_error_with_a_list() {
        let fails = |variants: &[Variant], wanted: Option<&str>, parts: &[&str]| {
            let error = choose(variants, wanted, "a/b").unwrap_err().to_string();
            for part in parts {
                assert!(error.contains(part), "no `{part}` in {error}");
            }
        };
        let two = repo(&["m-Q8_0.gguf", "m-Q5_0.gguf"]);
        fails(&two, None, &["no Q4_K_M", "a/b:Q5_0", "Q8_0 (1.5 GB)"]);
        fails(&two, Some("Q2_K"), &["no `Q2_K`", "Q5_0", "Q8_0"]);
        fails(&repo(&["README.md"]), None, &["no GGUF model"]);
        let twins = repo(&["base-Q4_K_M.gguf", "chat-Q4_K_M.gguf"]);
        fails(&twins, None, &["several", "base-Q4_K_M", "chat-Q4_K_M"]);
        fails(&twins, Some("Q4_K_M"), &["several"]);
        assert_eq!(chosen(&twins, Some("chat-Q4_K_M")), ["chat-Q4_K_M.gguf"]);
    }
}
