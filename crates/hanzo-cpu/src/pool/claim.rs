//! Who computes which part: a static partition with stealing.
//!
//! Every thread owns a contiguous range of the chunks and walks it upwards, which keeps its memory stream sequential. A thread
//! that is done takes chunks from the far end of the others' ranges, so that a thread whose core was taken away delays the step by one
//! chunk and not by its whole share. What a chunk computes does not depend on who computes it.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// Loops that may be in flight at once: a thread that lags further behind than this finds its loop's board reused, which can
/// only be when that loop had no chunks left.
const BOARDS: usize = 32;
const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;

/// More chunks than this cannot be claimed in one loop.
pub(super) const MAX_CHUNKS: usize = MASK as usize;

/// One cache line a counter, so that owners do not disturb each other.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot(AtomicU64);

/// The chunk counters of a pool: `BOARDS` loops × its threads. A slot holds loop tag (16 bits), first and last unclaimed chunk.
#[derive(Debug)]
pub(super) struct Claims {
    stride: usize,
    slots: Vec<Slot>,
}

fn pack(tag: u64, lo: u64, hi: u64) -> u64 {
    tag << (2 * BITS) | hi << BITS | lo
}

impl Claims {
    pub(super) fn new(threads: usize) -> Self {
        Claims { stride: threads, slots: (0..BOARDS * threads).map(|_| Slot::default()).collect() }
    }

    /// Forgets all loops; only while no thread is claiming.
    pub(super) fn reset(&self) {
        for slot in &self.slots {
            slot.0.store(0, Ordering::Relaxed);
        }
    }

    /// The share of thread `t` of `threads` in `chunks`.
    pub(super) fn share(chunks: usize, t: usize, threads: usize) -> Range<usize> {
        chunks * t / threads..chunks * (t + 1) / threads
    }

    /// Next chunk of loop number `seq` (counted from 0 since [`reset`](Self::reset)) for thread `me` of `threads`, or `None` when all are
    /// taken.
    pub(super) fn next(&self, seq: u32, chunks: usize, me: usize, threads: usize) -> Option<usize> {
        let tag = u64::from(seq % 0xffff) + 1;
        (0..threads).find_map(|i| {
            let owner = (me + i) % threads;
            self.take(seq, tag, Self::share(chunks, owner, threads), owner, i != 0)
        })
    }

    fn take(&self, seq: u32, tag: u64, share: Range<usize>, owner: usize, steal: bool) -> Option<usize> {
        let slot = &self.slots.get(seq as usize % BOARDS * self.stride + owner)?.0;
        let mut seen = slot.load(Ordering::Relaxed);
        loop {
            let (lo, hi) = if seen >> (2 * BITS) == tag {
                (seen & MASK, seen >> BITS & MASK)
            } else if seen == 0 || (tag + 0xffff - (seen >> (2 * BITS))) % 0xffff < 0x8000 {
                (share.start as u64, share.end as u64)
            } else {
                return None; // a later loop is on this board: ours is over
            };
            if lo >= hi {
                return None;
            }
            let (chunk, left) =
                if steal { (hi - 1, pack(tag, lo, hi - 1)) } else { (lo, pack(tag, lo + 1, hi)) };
            // Relaxed: the claim publishes nothing; data moves between threads at barriers.
            match slot.compare_exchange_weak(seen, left, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some(chunk as usize),
                Err(now) => seen = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_alone_takes_every_chunk_once() {
        for threads in 1..4 {
            let claims = Claims::new(threads);
            for seq in 0..200 {
                let mut seen = [0u8; 17];
                while let Some(c) = claims.next(seq, 17, 0, threads) {
                    seen[c] += 1;
                }
                assert_eq!(seen, [1; 17]);
            }
        }
    }

    #[test]
    fn a_laggard_finds_nothing_left() {
        let claims = Claims::new(2);
        for seq in 0..100 {
            while claims.next(seq, 3, 0, 2).is_some() {}
        }
        for seq in 0..100 {
            assert_eq!(claims.next(seq, 3, 1, 2), None, "loop {seq}");
        }
    }
}
