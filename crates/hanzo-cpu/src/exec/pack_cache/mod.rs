//! Packed weights kept on disk, so that the next load of the same file reads them in place of packing.
//!
//! A folder holds two kinds of files. An *entry* (`DIGEST.pack`) has the packed matrices of a model, named by the SHA-256 of the model's
//! files ([`digest`]); [`entry`] says how it lies. A *stamp* (`PATHS.stamp`, named by the model's paths) has the digest that the files had when they
//! were read last, with their lengths and times: while these are as they were the digest is taken from there, so that a load need not read the whole
//! model ([`stamp`]). [`draft`] puts both in place atomically.
//!
//! Whatever lies in the folder, a load neither fails nor hangs by it, nor is a length believed. What must stand in an entry follows from the
//! model's graph, and every byte of its head is compared with that before a length in it is used; every piece of the weights has a checksum, which is compared when it is read. An
//! entry that fails is left, with a line to the user: the weights are packed from the model's file, and the entry is written anew. That the cache
//! cannot be used or written never fails a load. Checksums tell of damage, not of intent: who can write to the folder can change weights, as who can
//! write to the model's file.
//!
//! Only matrices that are contracted are kept: vectors and tables are read from the model's file, which has them in the form they are used in.

mod digest;
mod draft;
mod entry;
mod open;
mod positioned;
mod stamp;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hanzo_fusion::graph::{Graph, WeightDecl};
use hanzo_fusion::{DeviceError, SourcePart, WeightSource};
use tracing::{debug, info, warn};

use self::digest::Digest;
use self::entry::{Entry, Table};
use super::load_error;
use super::weights::{Held, Reader};
use crate::packed::PackedMatrix;
use crate::pool::Pool;

/// A file that was changed this short ago may be changed again without its times telling: some systems count them in steps of two
/// seconds.
const QUIET: Duration = Duration::from_secs(2);

/// Why a file of the cache was not used, or could not be written.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// The system refused.
    #[error("cannot {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why not.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{0}")]
    Refused(String),
    /// Another process is writing.
    #[error("another load is writing to the folder")]
    Busy,
    /// The model's file could not be read, or the threads failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
}

impl Fault {
    fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// A folder of packed weights.
#[derive(Clone, Debug)]
pub(super) struct PackCache {
    folder: PathBuf,
}

impl PackCache {
    pub(super) fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned() }
    }

    /// Begins a load of those weights of `graph` that are `contracted`. `None` where nothing can be kept of this model; why, goes to the log.
    pub(super) fn begin(
        &self,
        graph: &Graph,
        contracted: &dyn Fn(usize) -> bool,
        reader: &Reader<'_>,
        pool: &Pool,
    ) -> Option<Loading> {
        let begun = Loading::begin(self, graph, contracted, reader, pool);
        begun.unwrap_or_else(|fault| {
            warn!("the pack cache is not used: {fault}");
            None
        })
    }
}

/// A load that may read from the cache, and fills it where it could not.
pub(super) struct Loading {
    folder: PathBuf,
    parts: Vec<SourcePart>,
    digest: Digest,
    table: Table,
    /// What is read from, as long as it proves sound.
    entry: Option<Entry>,
    /// Whether there is an entry that need not be written.
    kept: bool,
    /// An entry that is of no use any more once this load's is written.
    superseded: Option<Digest>,
}

impl Loading {
    fn begin(
        cache: &PackCache,
        graph: &Graph,
        contracted: &dyn Fn(usize) -> bool,
        reader: &Reader<'_>,
        pool: &Pool,
    ) -> Result<Option<Self>, Fault> {
        let source = reader.source();
        let parts = source.parts()?;
        if parts.is_empty() {
            warn!("the pack cache is not used: the model lies in no file");
            return Ok(None);
        }
        if !are_quiet(&parts, SystemTime::now()) {
            warn!("the pack cache is not used this time: the model's file was changed just now");
            return Ok(None);
        }
        let table = Table::new(graph, contracted)?;
        let folder = cache.folder.clone();
        let (digest, superseded) = find_digest(&folder, &parts, source, reader, pool)?;
        let path = entry::path(&folder, &digest);
        let entry = match Entry::open(&path, &digest, &table) {
            Ok(entry) => entry,
            Err(fault) => {
                refuse(&path, &fault);
                None
            }
        };
        let kept = entry.is_some();
        if !kept {
            reader.expect(table.payload_bytes());
        }
        Ok(Some(Self { folder, parts, digest, table, entry, kept, superseded }))
    }

    /// Weight `index` from the entry; `None` where it has to be packed.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`], and what the pool meets.
    pub(super) fn restore(
        &mut self,
        index: usize,
        decl: &WeightDecl,
        reader: &Reader<'_>,
        pool: &Pool,
    ) -> Result<Option<PackedMatrix>, DeviceError> {
        let (Some(entry), Some(slot)) = (&self.entry, self.table.slot(index)) else { return Ok(None) };
        let share = entry::Share::new(super::weights::size(decl)?.1 as u64, slot.len);
        let fault = std::sync::Mutex::new(None);
        let fill = |piece: usize, out: &mut [u8]| match entry.read(slot, piece, out) {
            Ok(()) => {
                reader.advance(share.of(piece));
                true
            }
            Err(why) => {
                *fault.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(why);
                false
            }
        };
        let sizes = [decl.n_stack, decl.n_out, decl.n_in];
        let before = reader.done();
        let matrix = PackedMatrix::restore(decl.ty.format(), sizes, entry::PIECE, pool, fill)
            .map_err(|e| load_error(&decl.name, e))?;
        if let Some(fault) = fault.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            refuse(&entry::path(&self.folder, &self.digest), &fault);
            reader.go_back(before);
            reader.expect(self.table.payload_bytes());
            (self.entry, self.kept) = (None, false);
        }
        Ok(matrix)
    }

    /// Ends the load: writes what was packed, where the cache does not have it.
    pub(super) fn finish(self, weights: &[Held], reader: &Reader<'_>, pool: &Pool) {
        let path = entry::path(&self.folder, &self.digest);
        if self.kept {
            info!("packed weights were read from {}", path.display());
            draft::clear(&self.folder);
            return;
        }
        match self.write(&path, weights, reader, pool) {
            Ok(()) => info!("packed weights were written to {}", path.display()),
            Err(fault) => warn!("packed weights were not kept in {}: {fault}", self.folder.display()),
        }
    }

    fn write(&self, path: &Path, weights: &[Held], reader: &Reader<'_>, pool: &Pool) -> Result<(), Fault> {
        let writing = draft::Writing::begin(&self.folder)?;
        let draft = writing.draft(path, self.table.file_len())?;
        self.table.write(&draft, &self.digest, weights, reader, pool)?;
        // What was packed is what was digested only if the files are as they were before both.
        if reader.source().parts()? != self.parts {
            return Err(Fault::Refused("the model's file was changed meanwhile".to_owned()));
        }
        draft.commit()?;
        write_stamp(&writing, &self.folder, &self.parts, &self.digest, self.superseded)
    }
}

/// Stamps the files with their digest. An entry that only they led to, by the digest that they had, takes room and nothing else: it goes.
fn write_stamp(
    writing: &draft::Writing,
    folder: &Path,
    parts: &[SourcePart],
    digest: &Digest,
    superseded: Option<Digest>,
) -> Result<(), Fault> {
    stamp::write(writing, folder, parts, digest)?;
    if let Some(old) = superseded.filter(|old| !stamp::names(folder, old)) {
        let _ = std::fs::remove_file(entry::path(folder, &old));
    }
    Ok(())
}

/// Whether no part has been changed lately, nor (by a clock that was set) later than now.
fn are_quiet(parts: &[SourcePart], now: SystemTime) -> bool {
    let quiet = |part: &SourcePart| {
        part.changed.and_then(|changed| now.duration_since(changed).ok()).is_some_and(|ago| ago >= QUIET)
    };
    parts.iter().all(quiet)
}

/// The digest of the model's files: as it was, where they are as they were, or else computed. With it, another that they had before.
fn find_digest(
    folder: &Path,
    parts: &[SourcePart],
    source: &dyn WeightSource,
    reader: &Reader<'_>,
    pool: &Pool,
) -> Result<(Digest, Option<Digest>), Fault> {
    let before = match stamp::read(folder, parts) {
        Some(stamp) if stamp.is_of(parts) => return Ok((stamp.digest, None)),
        stamp => stamp.map(|stamp| stamp.digest),
    };
    reader.expect(parts.iter().fold(0, |sum, part| sum.saturating_add(part.len)));
    let digest = digest::compute(source, parts, pool, &|bytes| reader.advance(bytes))?;
    let superseded = before.filter(|before| *before != digest);
    // The same bytes under another path or with other times: an entry is good, and need not be found so again.
    if entry::path(folder, &digest).exists() {
        let renewed = draft::Writing::begin(folder)
            .and_then(|writing| write_stamp(&writing, folder, parts, &digest, superseded));
        if let Err(fault) = renewed {
            debug!("the stamp was not renewed: {fault}");
        }
    } else if let Some(old) = superseded.map(|old| entry::path(folder, &old)).filter(|old| old.exists()) {
        refuse(&old, &Fault::Refused("it is stale: the model's file was changed since".to_owned()));
    }
    Ok((digest, superseded))
}

/// Tells that a file of the cache is not used.
fn refuse(path: &Path, fault: &Fault) {
    warn!("the pack cache's {} is not used: {fault}; the weights are packed anew", path.display());
}
