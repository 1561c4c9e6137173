//! The tensor table of a header: entries read, sizes computed, and each tensor's bytes placed in the file.

#![forbid(unsafe_code)]

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::header::{Report, name_problem};
use crate::limits::{MAX_DIMS, MAX_TENSOR_NAME_BYTES};
use crate::tensor::TensorInfo;
use crate::tensor_type::TensorType;

/// Name length, one byte of name, number of dims, one dim, type, offset.
pub(crate) const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// Reads `count` entries, their offsets still relative to the data section. Those that [`Report`] lets pass in
/// spite of a fault are left out.
pub(crate) fn read(cursor: &mut Cursor<'_>, count: u64, report: Report<'_>) -> Result<Vec<TensorInfo>> {
    // The count was compared with the file and with MAX_TENSORS.
    let mut tensors = Vec::with_capacity(count as usize);
    for index in 0..count {
        tensors.extend(entry(cursor, index, report)?);
    }
    Ok(tensors)
}

fn entry(cursor: &mut Cursor<'_>, index: u64, report: Report<'_>) -> Result<Option<TensorInfo>> {
    let info_offset = cursor.pos();
    let span = cursor.string("a tensor name", MAX_TENSOR_NAME_BYTES)?;
    let raw = span.of(cursor.bytes());
    let problem = name_problem(raw);
    let name = String::from_utf8_lossy(raw).into_owned();
    if let Some(problem) = problem {
        report(Error::BadTensorName { index, offset: u64::from(span.start), problem })?;
    }

    let dims_at = cursor.pos();
    let n_dims = cursor.u32("a tensor's number of dimensions")?;
    if !(1..=MAX_DIMS).contains(&n_dims) {
        let problem = format!("{n_dims} dimensions; 1 to {MAX_DIMS} expected");
        return Err(Error::BadShape { tensor: name, offset: dims_at, problem });
    }
    let mut dims = [1; MAX_DIMS as usize];
    for dim in dims.iter_mut().take(n_dims as usize) {
        *dim = cursor.u64("a tensor's dimensions")?;
    }
    let type_at = cursor.pos();
    let type_id = cursor.u32("a tensor's type")?;
    let offset = cursor.u64("a tensor's offset")?;

    let shape = dims.get(..n_dims as usize).unwrap_or_default();
    let checked = TensorType::checked(type_id, &name, type_at).and_then(|ty| match ty.tensor_bytes(shape) {
        Ok(n_bytes) => Ok((ty, n_bytes)),
        Err(problem) => Err(Error::BadShape { tensor: name.clone(), offset: dims_at, problem }),
    });
    let (ty, n_bytes) = match checked {
        Ok(checked) => checked,
        Err(error) => return report(error).map(|()| None),
    };
    if problem.is_some() {
        return Ok(None);
    }
    let info = TensorInfo {
        name: name.into_boxed_str(),
        dims,
        n_dims: n_dims as u8,
        ty,
        shard: 0,
        offset,
        n_bytes,
        info_offset,
    };
    Ok(Some(info))
}

/// Checks that each tensor is aligned, inside the file, and shares no byte with another; makes the offsets
/// absolute.
pub(crate) fn place(
    mut tensors: Vec<TensorInfo>,
    alignment: u32,
    data_start: u64,
    file_len: u64,
    report: Report<'_>,
) -> Result<Vec<TensorInfo>> {
    let mut fault = Ok(());
    tensors.retain_mut(|info| match place_one(info, alignment, data_start, file_len) {
        Ok(()) => true,
        Err(error) => {
            if fault.is_ok() {
                fault = report(error);
            }
            false
        }
    });
    fault?;
    check_overlaps(&tensors, report)?;
    Ok(tensors)
}

fn place_one(info: &mut TensorInfo, alignment: u32, data_start: u64, file_len: u64) -> Result<()> {
    let data_offset = info.offset;
    // The entry is name length, name, number of dims, dims, type, and then the offset.
    let offset_at = info.info_offset + 8 + info.name.len() as u64 + 4 + 8 * u64::from(info.n_dims) + 4;
    if !data_offset.is_multiple_of(u64::from(alignment)) {
        let tensor = info.name.to_string();
        return Err(Error::Unaligned { tensor, offset: offset_at, data_offset, alignment });
    }
    let start = data_start.checked_add(data_offset);
    match start.filter(|s| s.checked_add(info.n_bytes).is_some_and(|end| end <= file_len)) {
        Some(start) => {
            info.offset = start;
            Ok(())
        }
        None => Err(Error::OutOfFile {
            tensor: info.name.to_string(),
            offset: offset_at,
            data_offset,
            n_bytes: info.n_bytes,
            data_start,
            have: file_len.saturating_sub(data_start),
        }),
    }
}

fn check_overlaps(tensors: &[TensorInfo], report: Report<'_>) -> Result<()> {
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|tensor| (tensor.offset, tensor.offset + tensor.n_bytes));
    // Compared with the one that reaches furthest so far, not just the one before.
    let mut furthest: Option<&TensorInfo> = None;
    for tensor in order {
        let end = |t: &TensorInfo| t.offset + t.n_bytes;
        if let Some(other) = furthest
            && end(other) > tensor.offset
        {
            report(Error::Overlap {
                tensor: tensor.name.to_string(),
                start: tensor.offset,
                other: other.name.to_string(),
                other_end: end(other),
            })?;
        }
        if furthest.is_none_or(|other| end(other) < end(tensor)) {
            furthest = Some(tensor);
        }
    }
    Ok(())
}
