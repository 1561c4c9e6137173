//! An entry of the cache: the packed matrices of one model.
//!
//! All numbers are little-endian.
//!
//! ```text
//! 0    magic, 8 bytes
//! 8    u32 version of this format, u32 version of the packed layout
//! 16   u64 length of the file
//! 24   u64 length of the table
//! 32   SHA-256 of the model's files
//! 64   u64 XXH3 of all before, of the table and of the checksums
//! 72   table: of each matrix, its name, its format's name, its sizes, where its bytes begin and how many they are
//!      u64 XXH3 of every piece of 1 MiB of every matrix
//!      (zeros up to a whole page) the matrices, each from a whole page on
//! ```
//!
//! The table of a model follows from its graph, so it is never read to learn a length: it is compared.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hanzo_fusion::graph::Graph;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::Fault;
use super::digest::{Digest, hex};
use super::draft::Draft;
use super::open::open;
use super::positioned::Positioned;
use crate::exec::load_error;
use crate::exec::weights::{Held, Reader};
use crate::packed::{self, PackedMatrix};
use crate::pool::Pool;

const MAGIC: &[u8; 8] = b"HANZOPAK";
/// Raised when this format changes; the packed layout has a version of its own.
const VERSION: u32 = 1;
/// Bytes of the fixed part of the head.
const FIXED: usize = 72;
/// Where the checksum of the head stands.
const SEAL: usize = 64;
/// Bytes of weights under one checksum: they are still in the processor's cache when they are looked at again.
pub(super) const PIECE: usize = 1 << 20;
/// Matrices begin at multiples of this.
const PAGE: u64 = 4096;

/// Where an entry is.
pub(super) fn path(folder: &Path, digest: &Digest) -> PathBuf {
    folder.join(format!("{}.pack", hex(digest, 64)))
}

/// Where a matrix lies in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    offset: u64,
    pub(super) len: u64,
    /// Of its first checksum.
    first_piece: usize,
}

#[cfg(test)]
impl Slot {
    /// Where its bytes begin.
    pub(super) fn start(&self) -> usize {
        self.offset as usize
    }
}

/// What an entry of a model must contain.
pub(super) struct Table {
    bytes: Vec<u8>,
    /// By weight; `None` for those that are not kept.
    slots: Vec<Option<Slot>>,
    pieces: usize,
    file_len: u64,
}

impl Table {
    /// That of those weights of `graph` that are `contracted`.
    pub(super) fn new(graph: &Graph, contracted: &dyn Fn(usize) -> bool) -> Result<Self, Fault> {
        let too_large = || Fault::Refused("the model is too large for one file".to_owned());
        let mut slots = Vec::with_capacity(graph.weights.len());
        let (mut pieces, mut table_len) = (0usize, 0usize);
        for (index, decl) in graph.weights.iter().enumerate() {
            if !contracted(index) {
                slots.push(None);
                continue;
            }
            let sizes = [decl.n_stack, decl.n_out, decl.n_in];
            let len =
                PackedMatrix::packed_bytes(decl.ty.format(), sizes).map_err(|e| load_error(&decl.name, e))?;
            slots.push(Some(Slot { offset: 0, len: len as u64, first_piece: pieces }));
            pieces = pieces.checked_add(len.div_ceil(PIECE)).ok_or_else(too_large)?;
            // Two texts with their lengths, and five numbers.
            let row = decl.name.len().checked_add(decl.ty.format().name.len() + 2 * 8 + 5 * 8);
            table_len = row.and_then(|row| row.checked_add(table_len)).ok_or_else(too_large)?;
        }
        let head = pieces.checked_mul(8).and_then(|n| n.checked_add(table_len)?.checked_add(FIXED));
        let mut end = head.ok_or_else(too_large)? as u64;
        let mut bytes = Vec::with_capacity(table_len);
        for (decl, slot) in graph.weights.iter().zip(&mut slots) {
            let Some(slot) = slot else { continue };
            slot.offset = end.checked_next_multiple_of(PAGE).ok_or_else(too_large)?;
            end = slot.offset.checked_add(slot.len).ok_or_else(too_large)?;
            for text in [decl.name.as_str(), decl.ty.format().name] {
                bytes.extend((text.len() as u64).to_le_bytes());
                bytes.extend(text.as_bytes());
            }
            let sizes = [decl.n_stack, decl.n_out, decl.n_in].map(|n| n as u64);
            for number in sizes.into_iter().chain([slot.offset, slot.len]) {
                bytes.extend(number.to_le_bytes());
            }
        }
        debug_assert_eq!(bytes.len(), table_len);
        Ok(Self { bytes, slots, pieces, file_len: end })
    }

    pub(super) fn slot(&self, index: usize) -> Option<Slot> {
        self.slots.get(index).copied().flatten()
    }

    pub(super) fn file_len(&self) -> u64 {
        self.file_len
    }

    /// Bytes of all matrices.
    pub(super) fn payload_bytes(&self) -> u64 {
        self.slots.iter().flatten().map(|slot| slot.len).sum()
    }

    /// The fixed part of the head, without its seal.
    fn fixed(&self, digest: &Digest) -> [u8; FIXED] {
        let mut head = [0; FIXED];
        let fields: [&[u8]; 6] = [
            MAGIC,
            &VERSION.to_le_bytes(),
            &packed::LAYOUT_VERSION.to_le_bytes(),
            &self.file_len.to_le_bytes(),
            &(self.bytes.len() as u64).to_le_bytes(),
            digest,
        ];
        for (to, from) in head.iter_mut().zip(fields.into_iter().flatten()) {
            *to = *from;
        }
        head
    }

    fn seal(fixed: &[u8; FIXED], rest: &[&[u8]]) -> u64 {
        let mut state = Xxh3::new();
        state.update(fixed.split_at(SEAL).0);
        rest.iter().for_each(|bytes| state.update(bytes));
        state.digest()
    }

    /// Writes an entry; `reader` hears how far it has come.
    pub(super) fn write(
        &self,
        draft: &Draft<'_>,
        digest: &Digest,
        weights: &[Held],
        reader: &Reader<'_>,
        pool: &Pool,
    ) -> Result<(), Fault> {
        // Of each piece, where it lies in the file and its bytes.
        let mut pieces: Vec<(u64, &[u8])> = Vec::with_capacity(self.pieces);
        for (slot, held) in self.slots.iter().zip(weights) {
            let Some(slot) = slot else { continue };
            let data = held.matrix().map(PackedMatrix::data).filter(|data| data.len() as u64 == slot.len);
            let data = data.ok_or_else(|| Fault::Refused("a weight is not as the table says".to_owned()))?;
            let at = (0..).map(|i| slot.offset + i * PIECE as u64);
            pieces.extend(at.zip(data.chunks(PIECE)));
        }
        let sums = Mutex::new(vec![0u64; pieces.len()]);
        let error = Mutex::new(None);
        let step = pieces.len().div_ceil(1 << 20).max(1);
        pool.run(|ctx| {
            ctx.claim(pieces.len().div_ceil(step), |chunk| {
                for (i, (at, bytes)) in pieces.iter().enumerate().skip(chunk * step).take(step) {
                    let sum = xxh3_64(bytes);
                    if let Err(source) = draft.file().write(*at, bytes) {
                        let fault = Fault::Io { what: "write", source };
                        error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(fault);
                        return;
                    }
                    if let Some(slot) = sums.lock().unwrap_or_else(PoisonError::into_inner).get_mut(i) {
                        *slot = sum;
                    }
                    reader.advance(bytes.len() as u64);
                }
            });
        })
        .map_err(|e| load_error("packed weights", e))?;
        if let Some(error) = error.into_inner().unwrap_or_else(PoisonError::into_inner) {
            return Err(error);
        }
        let sums = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
        let sums: Vec<u8> = sums.into_iter().flat_map(u64::to_le_bytes).collect();
        let mut head = self.fixed(digest);
        let seal = Self::seal(&head, &[&self.bytes, &sums]);
        head.split_at_mut(SEAL).1.copy_from_slice(&seal.to_le_bytes());
        let head = [&head[..], &self.bytes, &sums].concat();
        draft.file().write(0, &head).map_err(Fault::io("write"))
    }
}

/// An entry whose head is as it must be.
pub(super) struct Entry {
    file: Positioned,
    sums: Vec<u64>,
}

impl Entry {
    /// Opens the entry at `path` of a model with this digest, which must have this table. `None` where there is none.
    pub(super) fn open(path: &Path, digest: &Digest, table: &Table) -> Result<Option<Self>, Fault> {
        let file = match open(path, OpenOptions::new().read(true)) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(Fault::io("open it")(e)),
        };
        let len = file.metadata().map_err(Fault::io("look at it"))?.len();
        let file = Positioned::new(file);
        if len < FIXED as u64 {
            return Err(Fault::Refused(format!("it is damaged: {len} bytes are no head")));
        }
        let mut fixed = [0; FIXED];
        file.read(0, &mut fixed).map_err(Fault::io("read it"))?;
        let want = table.fixed(digest);
        let number = |at: usize, n: usize| {
            let bytes = fixed.get(at..at + n).unwrap_or_default();
            bytes.iter().rev().fold(0u64, |all, &byte| all << 8 | u64::from(byte))
        };
        let differs = |at: usize, n: usize| fixed.get(at..at + n) != want.get(at..at + n);
        if differs(0, 8) {
            return Err(Fault::Refused("it is no file of packed weights".to_owned()));
        }
        if differs(8, 8) {
            return Err(Fault::Refused(format!(
                "it has version {}.{}, this program writes {VERSION}.{}",
                number(8, 4),
                number(12, 4),
                packed::LAYOUT_VERSION
            )));
        }
        if number(16, 8) != len {
            return Err(Fault::Refused(format!(
                "it is damaged: it has {len} bytes, {} by its head",
                number(16, 8)
            )));
        }
        if differs(16, 16) {
            return Err(Fault::Refused(
                "it is damaged, or was made for another plan of the model".to_owned(),
            ));
        }
        // All lengths are those of `table` from here on.
        let mut rest = vec![0; table.bytes.len() + 8 * table.pieces];
        file.read(FIXED as u64, &mut rest).map_err(Fault::io("read it"))?;
        let (names, sums) = rest.split_at(table.bytes.len());
        if Table::seal(&fixed, &[names, sums]) != number(SEAL, 8) {
            return Err(Fault::Refused("it is damaged: the checksum of its head is another".to_owned()));
        }
        if names != table.bytes || differs(32, 32) {
            return Err(Fault::Refused("it was made for another model".to_owned()));
        }
        let sums = sums.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        Ok(Some(Self { file, sums }))
    }

    /// Reads the `piece`-th piece of a matrix, which has the length of `out`.
    pub(super) fn read(&self, slot: Slot, piece: usize, out: &mut [u8]) -> Result<(), Fault> {
        let at = slot.offset.saturating_add((piece as u64).saturating_mul(PIECE as u64));
        self.file.read(at, out).map_err(Fault::io("read it"))?;
        if self.sums.get(slot.first_piece + piece) == Some(&xxh3_64(out)) {
            return Ok(());
        }
        Err(Fault::Refused(format!(
            "it is damaged: the checksum of {} bytes at byte {at} is another",
            out.len()
        )))
    }
}

/// Shares the bytes that a matrix has in the model's file out to the pieces that it has here.
pub(super) struct Share {
    raw: u64,
    pieces: u64,
}

impl Share {
    pub(super) fn new(raw: u64, packed: u64) -> Self {
        Self { raw, pieces: packed.div_ceil(PIECE as u64).max(1) }
    }

    pub(super) fn of(&self, piece: usize) -> u64 {
        let until = |i: u64| (u128::from(self.raw) * u128::from(i) / u128::from(self.pieces)) as u64;
        let piece = piece as u64;
        until(piece + 1) - until(piece)
    }
}
