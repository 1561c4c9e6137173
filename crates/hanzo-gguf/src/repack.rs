//! One model, other files: a split model merged into one, a large one cut into shards. Values and metadata pass
//! through unchanged, but for the `split.*` keys.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::file::GgufFile;
use crate::header::ALIGNMENT_KEY;
use crate::limits::MAX_SHARDS;
use crate::split::{SPLIT_COUNT, SPLIT_NO, SPLIT_TENSORS, shard_name};
use crate::tensor::TensorInfo;
use crate::writer::{GgufWriter, TensorWriter};

/// Bytes copied at a time.
const PIECE: usize = 4 << 20;

/// Writes all of `model` to the one file `path`; `progress` is told the bytes of each piece copied.
///
/// # Errors
/// What reading or writing gives; nothing is left at `path` then.
pub fn merge(model: &GgufFile, path: impl AsRef<Path>, mut progress: impl FnMut(u64)) -> Result<()> {
    let mut writer = whole(model)?;
    announce(&mut writer, model.tensors())?;
    let mut out = writer.create(path)?;
    copy(model, model.tensors(), &mut out, &mut progress)?;
    out.finish()
}

/// Cuts `model` into `PREFIX-00001-of-0000N.gguf` in `folder`, with at most `max_bytes` of tensors each (a
/// larger tensor gets a shard to itself). The first shard carries the metadata and appears last, so that a
/// set cut short is recognized by its absence.
///
/// # Errors
/// What reading or writing gives.
pub fn split(
    model: &GgufFile,
    folder: impl AsRef<Path>,
    prefix: &str,
    max_bytes: u64,
    mut progress: impl FnMut(u64),
) -> Result<Vec<PathBuf>> {
    let folder = folder.as_ref();
    let groups = group(model.tensors(), max_bytes);
    let (value, limit) = (groups.len() as u64, u64::from(MAX_SHARDS));
    if value > limit {
        let problem = format!("{value} shards of {max_bytes} bytes; at most {limit} are possible");
        return Err(Error::Unwritable { what: "the split model".to_owned(), problem });
    }
    let count = groups.len() as u32;
    let mut paths = Vec::with_capacity(groups.len());
    let mut first = None;
    for (no, tensors) in (0u32..).zip(&groups) {
        let mut writer = if no == 0 { whole(model)? } else { bare(model)? };
        writer.set(SPLIT_NO, no as u16)?;
        writer.set(SPLIT_COUNT, count as u16)?;
        // At most MAX_TENSORS.
        writer.set(SPLIT_TENSORS, model.tensors().len() as i32)?;
        announce(&mut writer, tensors)?;
        let path = folder.join(shard_name(prefix, no + 1, count)?);
        let mut out = writer.create(&path)?;
        copy(model, tensors, &mut out, &mut progress)?;
        paths.push(path);
        match first {
            None => first = Some(out),
            Some(_) => out.finish()?,
        }
    }
    first.map_or(Ok(()), TensorWriter::finish)?;
    Ok(paths)
}

/// A writer with the metadata of `model`, as of a model in one file.
fn whole(model: &GgufFile) -> Result<GgufWriter> {
    let mut writer = GgufWriter::new();
    writer.copy_metadata(model.metadata())?;
    for key in [SPLIT_NO, SPLIT_COUNT, SPLIT_TENSORS] {
        writer.remove(key);
    }
    Ok(writer)
}

/// A writer with no metadata but what places the data as in `model`.
fn bare(model: &GgufFile) -> Result<GgufWriter> {
    let mut writer = GgufWriter::new();
    if model.metadata().contains(ALIGNMENT_KEY) {
        writer.set_alignment(model.alignment())?;
    }
    Ok(writer)
}

fn announce(writer: &mut GgufWriter, tensors: &[TensorInfo]) -> Result<()> {
    tensors.iter().try_for_each(|tensor| writer.tensor(tensor.name(), tensor.ty(), tensor.dims()).map(drop))
}

fn copy(
    model: &GgufFile,
    tensors: &[TensorInfo],
    out: &mut TensorWriter,
    progress: &mut impl FnMut(u64),
) -> Result<()> {
    let mut buffer = vec![0; PIECE];
    for (index, tensor) in tensors.iter().enumerate() {
        let mut done = 0;
        while done < tensor.n_bytes() {
            let left = tensor.n_bytes() - done;
            let take = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            let piece = buffer.get_mut(..take).unwrap_or_default();
            model.read_tensor_at(tensor, done, piece)?;
            out.append(index, piece)?;
            done += take as u64;
            progress(take as u64);
        }
    }
    Ok(())
}

/// Consecutive tensors, as many together as `max_bytes` allows.
fn group(tensors: &[TensorInfo], max_bytes: u64) -> Vec<&[TensorInfo]> {
    let mut groups = Vec::new();
    let mut rest = tensors;
    while !rest.is_empty() {
        let mut sum = 0u64;
        let fit = rest.iter().take_while(|tensor| {
            sum = sum.saturating_add(tensor.n_bytes());
            sum <= max_bytes
        });
        let (group, tail) = rest.split_at(fit.count().clamp(1, rest.len()));
        groups.push(group);
        rest = tail;
    }
    if groups.is_empty() {
        groups.push(tensors);
    }
    groups
}
