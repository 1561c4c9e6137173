//! Remembers, within one call, how pieces of text were tokenized: text repeats its words.
//!
//! A direct-mapped table of fixed size; an entry points at a copy of the piece and at its ids in the output. A collision
//! overwrites. It lives as long as one `encode`, hence results can never depend on what was encoded before or on other
//! threads, and its copies are never more than the text.

use super::merge::Symbols;
use super::table::hash_bytes;

/// Longer pieces are rare and would only evict others.
const MAX_PIECE: usize = 48;
const MAX_SLOTS: usize = 1 << 14;
/// Below this many bytes of text, filling the table costs more than it saves.
const MIN_TEXT: usize = 256;

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    hash: u64,
    piece: u32,
    piece_len: u32,
    out: u32,
    out_len: u32,
}

/// The table, for one text.
#[derive(Debug)]
pub(crate) struct PieceCache {
    slots: Vec<Entry>,
    pieces: Vec<u8>,
}

/// What a lookup found out, for [`PieceCache::store`].
pub(crate) struct Miss {
    hash: u64,
}

impl PieceCache {
    /// A table for a text of `len` bytes.
    pub(crate) fn for_text(len: usize) -> Self {
        let n = if len < MIN_TEXT { 0 } else { (len / 8).next_power_of_two().min(MAX_SLOTS) };
        Self { slots: vec![Entry::default(); n], pieces: Vec::new() }
    }

    /// Appends the ids of `piece` to `out` if it was met before.
    #[inline]
    pub(crate) fn replay(&self, piece: &[u8], out: &mut Vec<u32>) -> Result<(), Option<Miss>> {
        if self.slots.is_empty() || piece.len() > MAX_PIECE {
            return Err(None);
        }
        let hash = hash_bytes(0, piece);
        let e = self.slots.get(hash as usize & (self.slots.len() - 1)).copied().unwrap_or_default();
        if e.hash == hash && e.piece_len as usize == piece.len() {
            let known =
                self.pieces.get(e.piece as usize..(e.piece + e.piece_len) as usize).unwrap_or_default();
            let ids = e.out as usize..(e.out + e.out_len) as usize;
            if known == piece && ids.end <= out.len() {
                out.extend_from_within(ids);
                return Ok(());
            }
        }
        Err(Some(Miss { hash }))
    }

    /// Remembers that `piece` gave `out[from..]`.
    #[inline]
    pub(crate) fn store(&mut self, miss: Option<Miss>, piece: &[u8], from: usize, out: &[u32]) {
        let Some(Miss { hash }) = miss else { return };
        let mask = self.slots.len().wrapping_sub(1);
        if let Some(slot) = self.slots.get_mut(hash as usize & mask) {
            *slot = Entry {
                hash,
                piece: self.pieces.len() as u32,
                piece_len: piece.len() as u32,
                out: from as u32,
                out_len: (out.len() - from) as u32,
            };
            self.pieces.extend_from_slice(piece);
        }
    }
}

/// Working memory of one `encode`.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) cache: PieceCache,
    pub(crate) symbols: Symbols,
}

impl Scratch {
    /// For a text of `len` bytes.
    pub(crate) fn for_text(len: usize) -> Self {
        Self { cache: PieceCache::for_text(len), symbols: Symbols::for_text(len) }
    }
}
