//! What a model's files looked like when their digest was computed.
//!
//! ```text
//! 0    magic, 8 bytes
//! 8    SHA-256 of all that tells whether the files have changed (paths, lengths, numbers, times)
//! 40   SHA-256 of the files
//! 72   u64 XXH3 of all before
//! ```

use std::fs::OpenOptions;
use std::io::Read;
use std::path::{Path, PathBuf};

use hanzo_fusion::SourcePart;
use xxhash_rust::xxh3::xxh3_64;

use super::Fault;
use super::digest::{Digest, hex, sha256};
use super::draft::Writing;
use super::open::open;

const MAGIC: &[u8; 8] = b"HANZOSTP";
const BYTES: usize = 80;
/// Most files of the folder that are looked at for one that needs an entry.
const MAX_FILES: usize = 10_000;

/// A stamp as it was read.
pub(super) struct Stamp {
    looks: Digest,
    pub(super) digest: Digest,
}

impl Stamp {
    /// Whether the files look as they did.
    pub(super) fn is_of(&self, parts: &[SourcePart]) -> bool {
        self.looks == looks(parts)
    }

    fn read(path: &Path) -> Option<Self> {
        let mut bytes = Vec::new();
        open(path, OpenOptions::new().read(true))
            .ok()?
            .take(BYTES as u64 + 1)
            .read_to_end(&mut bytes)
            .ok()?;
        let bytes: &[u8; BYTES] = bytes.as_slice().try_into().ok()?;
        let (body, sum) = bytes.split_last_chunk()?;
        let (magic, rest) = body.split_first_chunk::<8>()?;
        let (looks, digest) = rest.split_first_chunk::<32>()?;
        let sound = magic == MAGIC && xxh3_64(body) == u64::from_le_bytes(*sum);
        sound.then_some(Self { looks: *looks, digest: digest.try_into().ok()? })
    }
}

/// The stamp of the files at the paths of `parts`; `None` where there is none, or none that could be read.
pub(super) fn read(folder: &Path, parts: &[SourcePart]) -> Option<Stamp> {
    Stamp::read(&path(folder, parts))
}

/// Writes the stamp of `parts`.
pub(super) fn write(
    writing: &Writing,
    folder: &Path,
    parts: &[SourcePart],
    digest: &Digest,
) -> Result<(), Fault> {
    let mut bytes = [&MAGIC[..], &looks(parts), digest].concat();
    bytes.extend(xxh3_64(&bytes).to_le_bytes());
    let draft = writing.draft(&path(folder, parts), bytes.len() as u64)?;
    draft.file().write(0, &bytes).map_err(Fault::io("write"))?;
    draft.commit()
}

/// Whether a stamp of the folder leads to the entry of this digest.
pub(super) fn names(folder: &Path, digest: &Digest) -> bool {
    let Ok(files) = std::fs::read_dir(folder) else { return true };
    let mut stamps = files.take(MAX_FILES).flatten().map(|file| file.path());
    stamps.any(|path| {
        path.extension().is_some_and(|e| e == "stamp")
            && Stamp::read(&path).is_some_and(|stamp| stamp.digest == *digest)
    })
}

fn path(folder: &Path, parts: &[SourcePart]) -> PathBuf {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend((part.name.len() as u64).to_le_bytes());
        bytes.extend(part.name.as_bytes());
    }
    folder.join(format!("{}.stamp", hex(&sha256(&bytes), 32)))
}

fn looks(parts: &[SourcePart]) -> Digest {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend((part.name.len() as u64).to_le_bytes());
        bytes.extend(part.name.as_bytes());
        bytes.extend(part.len.to_le_bytes());
        bytes.extend((part.stamp.len() as u64).to_le_bytes());
        part.stamp.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    }
    sha256(&bytes)
}
