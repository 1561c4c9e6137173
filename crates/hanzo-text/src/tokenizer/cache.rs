//! Remembers, within one call, how pieces of text were tokenized: text repeats its words.
//!
//! A direct-mapped table of fixed size; an entry points at the piece in the input and at its ids in the output, so that
//! it owns nothing. A collision overwrites. It lives as long as one `encode`, hence results can never depend on what was
//! encoded before or on other threads.

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
}

/// What a lookup found out, for [`PieceCache::store`].
pub(crate) struct Miss {
    hash: u64,
}

impl PieceCache {
    /// A table for a text of `len` bytes.
    pub(crate) fn for_text(len: usize) -> Self {
        let n = if len < MIN_TEXT { 0 } else { (len / 8).next_power_of_two().min(MAX_SLOTS) };
        Self { slots: vec![Entry::default(); n] }
    }

    /// Appends the ids of `text[start..end]` to `out` if that piece was met before.
    #[inline]
    pub(crate) fn replay(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        out: &mut Vec<u32>,
    ) -> Result<(), Option<Miss>> {
        if self.slots.is_empty() || end - start > MAX_PIECE {
            return Err(None);
        }
        let piece = text.get(start..end).unwrap_or_default();
        let hash = hash_bytes(0, piece);
        let e = self.slots.get(hash as usize & (self.slots.len() - 1)).copied().unwrap_or_default();
        if e.hash == hash && e.piece_len as usize == piece.len() {
            let known = text.get(e.piece as usize..(e.piece + e.piece_len) as usize).unwrap_or_default();
            let ids = e.out as usize..(e.out + e.out_len) as usize;
            if known == piece && ids.end <= out.len() {
                out.extend_from_within(ids);
                return Ok(());
            }
        }
        Err(Some(Miss { hash }))
    }

    /// Remembers that `text[start..end]` gave `out[from..]`.
    #[inline]
    pub(crate) fn store(&mut self, miss: Option<Miss>, start: usize, end: usize, from: usize, out: &[u32]) {
        let Some(Miss { hash }) = miss else { return };
        let mask = self.slots.len().wrapping_sub(1);
        if let Some(slot) = self.slots.get_mut(hash as usize & mask) {
            *slot = Entry {
                hash,
                piece: start as u32,
                piece_len: (end - start) as u32,
                out: from as u32,
                out_len: (out.len() - from) as u32,
            };
        }
    }
}
