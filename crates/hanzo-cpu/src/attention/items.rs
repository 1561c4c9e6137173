//! How an attention is split into pieces of work.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{CHUNK, ROWS};

/// A sequence as attention sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence<'a> {
    /// First row of the step that belongs to it.
    pub(crate) first_row: usize,
    /// Its rows.
    pub(crate) n_tokens: usize,
    /// Position of its first row.
    pub(crate) first_position: usize,
    /// Physical blocks.
    pub(crate) table: &'a [u32],
    /// Whether its rows see all of its tokens, also later ones.
    pub(crate) whole: bool,
}

impl Sequence<'_> {
    /// The first position that a token does not see.
    pub(crate) fn horizon(&self, token: usize) -> usize {
        self.first_position + if self.whole { self.n_tokens } else { token + 1 }
    }
}

/// A piece of work: some rows of a sequence, for all query heads of one KV head, over some chunks of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) sequence: usize,
    pub(crate) head: usize,
    /// Tokens of the sequence, counted from its first row of the step.
    pub(crate) tokens: (usize, usize),
    /// Chunks of keys, and whether these are all that the rows see.
    pub(crate) chunks: (usize, usize),
    /// Where partial results of split work go; `None` where the item sees all chunks.
    pub(crate) split: Option<Split>,
}

/// A group of items that make one result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Split {
    /// Index of the group's counter.
    pub(crate) group: usize,
    /// Items of the group.
    pub(crate) items: u32,
    /// All chunks of the group.
    pub(crate) chunks: (usize, usize),
    /// First element of the group's partial results.
    pub(crate) at: usize,
}

/// The items of one kind of attention layer in one step.
#[derive(Debug, Default)]
pub(crate) struct Items {
    pub(crate) items: Vec<Item>,
    counters: Vec<AtomicU32>,
    /// Elements of partial results.
    pub(crate) partial_len: usize,
}

/// Elements of a row's partial result: the weighted sum, then `m` and `l`.
pub(crate) fn partial_row(v_stride: usize) -> usize {
    v_stride + 16
}

impl Items {
    /// Splits the work of `n_heads` KV heads with `group` query heads each for `threads` threads. Where the split falls changes no bit.
    pub(crate) fn new(
        sequences: &[Sequence<'_>],
        n_heads: usize,
        group: usize,
        window: Option<u32>,
        v_stride: usize,
        threads: usize,
    ) -> Self {
        let tokens_a_tile = (ROWS / group).max(1);
        let whole: usize = sequences.iter().map(|s| s.n_tokens.div_ceil(tokens_a_tile) * n_heads).sum();
        // Enough pieces that threads end about together.
        let pieces = if threads == 1 { 1 } else { (4 * threads).div_ceil(whole.max(1)) };
        let mut out = Items::default();
        for (sequence, s) in sequences.iter().enumerate() {
            for head in 0..n_heads {
                for first in (0..s.n_tokens).step_by(tokens_a_tile) {
                    let tokens = (first, (first + tokens_a_tile).min(s.n_tokens));
                    let oldest = lowest_key(s.first_position + tokens.0, window);
                    let chunks = (oldest / CHUNK, s.horizon(tokens.1 - 1).div_ceil(CHUNK));
                    out.add(Item { sequence, head, tokens, chunks, split: None }, pieces, group, v_stride);
                }
            }
        }
        out
    }

    fn add(&mut self, item: Item, pieces: usize, group: usize, v_stride: usize) {
        let n_chunks = item.chunks.1 - item.chunks.0;
        let pieces = pieces.min(n_chunks);
        if pieces <= 1 {
            self.items.push(item);
            return;
        }
        let split = Split {
            group: self.counters.len(),
            items: pieces as u32,
            chunks: item.chunks,
            at: self.partial_len,
        };
        self.counters.push(AtomicU32::new(0));
        self.partial_len += n_chunks * (item.tokens.1 - item.tokens.0) * group * partial_row(v_stride);
        for piece in 0..pieces {
            let at = |p: usize| item.chunks.0 + n_chunks * p / pieces;
            self.items.push(Item { chunks: (at(piece), at(piece + 1)), split: Some(split), ..item });
        }
    }

    /// Notes that an item of the group is done; true for the last one, which sees what the others wrote. The counter is then
    /// ready for the next layer.
    pub(crate) fn is_last(&self, split: &Split) -> bool {
        let Some(counter) = self.counters.get(split.group) else { return false };
        let last = counter.fetch_add(1, Ordering::AcqRel) + 1 == split.items;
        if last {
            counter.store(0, Ordering::Release);
        }
        last
    }
}

/// The oldest key that a row at `position` sees.
pub(crate) fn lowest_key(position: usize, window: Option<u32>) -> usize {
    window.map_or(0, |w| (position + 1).saturating_sub(w as usize))
}
