//! The digest that entries are named by: the SHA-256 of the lengths of a model's files and of the SHA-256 of each piece of 4 MiB of them, so
//! that all threads work on it.

use std::sync::{Mutex, PoisonError};

use hanzo_fusion::{DeviceError, SourcePart, WeightSource};
use sha2::{Digest as _, Sha256};

use crate::exec::load_error;
use crate::pool::Pool;

/// A SHA-256.
pub(super) type Digest = [u8; 32];

/// Bytes of a piece.
const PIECE: u64 = 4 << 20;

/// The digest of the files of `source`; `note` hears of every piece's bytes.
pub(super) fn compute(
    source: &dyn WeightSource,
    parts: &[SourcePart],
    pool: &Pool,
    note: &(dyn Fn(u64) + Sync),
) -> Result<Digest, DeviceError> {
    let pieces: Vec<(usize, u64, u64)> = parts
        .iter()
        .enumerate()
        .flat_map(|(part, SourcePart { len, .. })| {
            (0..len.div_ceil(PIECE)).map(move |i| (part, i * PIECE, PIECE.min(len - i * PIECE)))
        })
        .collect();
    let digests = Mutex::new(vec![[0; 32]; pieces.len()]);
    let error = Mutex::new(None);
    // Few enough claims for any length.
    let step = pieces.len().div_ceil(1 << 20).max(1);
    pool.run(|ctx| {
        let mut bytes = Vec::new();
        ctx.claim(pieces.len().div_ceil(step), |chunk| {
            for (i, &(part, offset, len)) in pieces.iter().enumerate().skip(chunk * step).take(step) {
                bytes.resize(len as usize, 0);
                if let Err(fault) = source.read_part(part, offset, &mut bytes) {
                    error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
                    return;
                }
                let digest = sha256(&bytes);
                if let Some(slot) = digests.lock().unwrap_or_else(PoisonError::into_inner).get_mut(i) {
                    *slot = digest;
                }
                note(len);
            }
        });
    })
    .map_err(|e| load_error("the model's digest", e))?;
    if let Some(error) = error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let mut all = Sha256::new();
    for part in parts {
        all.update(part.len.to_le_bytes());
    }
    for digest in digests.into_inner().unwrap_or_else(PoisonError::into_inner) {
        all.update(digest);
    }
    Ok(all.finalize().into())
}

pub(super) fn sha256(bytes: &[u8]) -> Digest {
    Sha256::digest(bytes).into()
}

/// The first `digits` hexadecimal digits.
pub(super) fn hex(digest: &Digest, digits: usize) -> String {
    let digit = |i: usize| {
        let byte = digest.get(i / 2).copied().unwrap_or(0);
        let nibble = if i.is_multiple_of(2) { byte >> 4 } else { byte & 15 };
        char::from_digit(u32::from(nibble), 16).unwrap_or('0')
    };
    (0..digits).map(digit).collect()
}
