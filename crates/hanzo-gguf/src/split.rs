//! Split models: which files belong together, and whether they do.
//!
//! Shard `k` of `N` is called `PREFIX-0000k-of-0000N.gguf` and says so in its metadata (`split.no` from 0,
//! `split.count`, `split.tensors.count` for the whole model). Opening any shard opens all; names are derived
//! from the one given and never read from a file.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::header::Report;
use crate::limits::{MAX_HEADER_BYTES, MAX_SHARDS};
use crate::metadata::Metadata;
use crate::part::Part;
use crate::tensor::TensorInfo;

pub(crate) const SPLIT_NO: &str = "split.no";
pub(crate) const SPLIT_COUNT: &str = "split.count";
pub(crate) const SPLIT_TENSORS: &str = "split.tensors.count";

/// A part with its tensor table.
pub(crate) type Opened = (Part, Vec<TensorInfo>);

/// The file name of shard `number` (from 1) of `count`: `PREFIX-00001-of-00003.gguf`.
///
/// # Errors
/// [`Error::SplitPath`] if `prefix` is not part of a plain file name.
pub fn shard_name(prefix: &str, number: u32, count: u32) -> Result<String> {
    let name = format!("{prefix}{}", suffix(number, count));
    check_plain(&name)?;
    Ok(name)
}

/// Prefix, number (from 1) and count of a shard's file name; `None` for any other name.
#[must_use]
pub fn parse_shard_name(name: &str) -> Option<(&str, u32, u32)> {
    let stem = name.strip_suffix(".gguf")?;
    let (rest, count) = stem.rsplit_once("-of-")?;
    let (prefix, number) = rest.rsplit_once('-')?;
    let digits = |text: &str| {
        (text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
    };
    Some((prefix, digits(number)?, digits(count)?))
}

fn suffix(number: u32, count: u32) -> String {
    format!("-{number:05}-of-{count:05}.gguf")
}

fn check_plain(name: &str) -> Result<()> {
    let plain = !name.contains(['/', '\\', '\0', ':']) && name != "." && name != ".." && !name.is_empty();
    if plain { Ok(()) } else { Err(Error::SplitPath { name: name.to_owned() }) }
}

/// What a shard's metadata say about its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// From 0.
    pub(crate) no: u64,
    pub(crate) count: u32,
}

/// `None` for a file that is a model by itself.
pub(crate) fn place(metadata: &Metadata) -> Result<Option<Place>> {
    let Some(count) = metadata.get_u64(SPLIT_COUNT)? else { return Ok(None) };
    if count <= 1 {
        return Ok(None);
    }
    let offset = metadata.item(SPLIT_COUNT).map_or(0, |item| item.offset);
    let limit = u64::from(MAX_SHARDS);
    if count > limit {
        return Err(Error::Limit { what: "`split.count`", value: count, limit, offset });
    }
    Ok(Some(Place { no: metadata.required_u64(SPLIT_NO)?, count: count as u32 }))
}

/// Opens `path` and, if it is a shard, its siblings: all parts in order.
pub(crate) fn open_all(path: &Path, report: Report<'_>) -> Result<Vec<Opened>> {
    let opened = Part::open(path, MAX_HEADER_BYTES, report)?;
    let blame = |error: Error| error.in_file(path);
    let named = path.file_name().and_then(|name| name.to_str()).and_then(parse_shard_name);
    let Some(place) = place(opened.0.metadata()).map_err(blame)? else {
        return match named {
            // The name promises siblings, so what is here is not the whole model.
            Some((_, _, expected @ 2..)) => {
                let found = opened.0.metadata().get_u64(SPLIT_COUNT).map_err(blame)?.unwrap_or(1);
                Err(blame(Error::SplitCount { expected: expected.into(), found }))
            }
            _ => Ok(vec![opened]),
        };
    };
    let Place { no, count } = place;
    let Some((prefix, number, name_count)) = named else {
        let number = no.saturating_add(1).min(u64::from(u32::MAX)) as u32;
        return Err(blame(Error::SplitName { number, count, expected: suffix(number, count) }));
    };
    if name_count != count {
        return Err(blame(Error::SplitCount { expected: name_count.into(), found: count.into() }));
    }
    check_order(place, number).map_err(blame)?;

    let folder = path.parent().unwrap_or(Path::new(""));
    let names =
        (1..=count).map(|k| shard_name(prefix, k, count)).collect::<Result<Vec<_>>>().map_err(blame)?;
    open_siblings(folder, &names, Some((number, opened)), report)
}

/// Opens the shards `names`, which must be all of one model and in order, in `folder`.
pub(crate) fn open_named(folder: &Path, names: &[&str], report: Report<'_>) -> Result<Vec<Opened>> {
    for name in names {
        check_plain(name)?;
    }
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    open_siblings(folder, &names, None, report)
}

/// `given`: a shard that is open already, with its number.
fn open_siblings(
    folder: &Path,
    names: &[String],
    mut given: Option<(u32, Opened)>,
    report: Report<'_>,
) -> Result<Vec<Opened>> {
    let count = names.len() as u32;
    let mut budget = MAX_HEADER_BYTES - given.as_ref().map_or(0, |(_, (part, _))| part.header_len());
    let mut parts: Vec<Opened> = Vec::new();
    let mut seen: HashMap<u64, PathBuf> = HashMap::new();
    for (name, number) in names.iter().zip(1u32..) {
        let path = folder.join(name);
        let opened = match given.take_if(|(at, _)| *at == number) {
            Some((_, opened)) => opened,
            None => {
                let opened = Part::open(&path, budget, report).map_err(|error| match error.root() {
                    Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                        Error::SplitMissing { number, count, name: name.clone() }.in_file(folder)
                    }
                    _ => error,
                })?;
                budget = budget.saturating_sub(opened.0.header_len());
                opened
            }
        };
        let check = || {
            let metadata = opened.0.metadata();
            let place = place(metadata)?.unwrap_or(Place { no: 0, count: 1 });
            if place.count != count {
                return Err(Error::SplitCount { expected: count.into(), found: place.count.into() });
            }
            if let Some(other) = seen.get(&place.no) {
                let number = place.no as u32 + 1;
                return Err(Error::SplitRepeated { number, count, other: other.display().to_string() });
            }
            check_order(place, number)
        };
        check().map_err(|error| error.in_file(&path))?;
        seen.insert(u64::from(number) - 1, path);
        parts.push(opened);
    }
    check_total(&parts)?;
    Ok(parts)
}

fn check_order(place: Place, number: u32) -> Result<()> {
    if place.no.checked_add(1) == Some(u64::from(number)) {
        return Ok(());
    }
    let found = place.no.saturating_add(1);
    Err(Error::SplitOrder { expected: number, found, count: place.count })
}

/// `split.tensors.count`, where a shard has it, is the number of tensors of all shards.
fn check_total(parts: &[Opened]) -> Result<()> {
    let found: u64 = parts.iter().map(|(_, tensors)| tensors.len() as u64).sum();
    for (part, _) in parts {
        match part.metadata().get_u64(SPLIT_TENSORS).map_err(|error| part.blame(error))? {
            Some(expected) if expected != found => {
                return Err(part.blame(Error::SplitTensors { expected, found }));
            }
            _ => {}
        }
    }
    Ok(())
}
