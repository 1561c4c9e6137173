//! The merge loop that BPE and SPM share: while some adjacent pair can merge, merge the best one, leftmost first.
//!
//! What "best" means and which pairs merge is the [`MergeRule`]'s matter. Short pieces keep their pairs in flat arrays
//! and rescan them, which beats any heap up to a few dozen symbols; longer ones use a linked list and a binary heap, so
//! that a megabyte of one letter takes O(n log n).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Id of a symbol that is no token of the vocabulary.
pub(crate) const NO_ID: u32 = u32::MAX;
/// Rank of a pair that does not merge.
const NO_RANK: u32 = u32::MAX;
/// Up to this many symbols the flat loop is used.
const FLAT: usize = 48;

/// Which adjacent symbols merge, and how early.
pub(crate) trait MergeRule {
    /// Rank (lower merges earlier, below `u32::MAX`) and id of the merged symbol. `text` is what both cover together.
    fn find(&self, left: u32, right: u32, text: &[u8]) -> Option<(u32, u32)>;
}

/// A piece of text cut into symbols, and the loop's working memory. Reused from piece to piece.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    /// Token id of each symbol, or [`NO_ID`].
    ids: Vec<u32>,
    /// Where each symbol starts in the piece.
    starts: Vec<u32>,
    ranks: Vec<u32>,
    merged: Vec<u32>,
    next: Vec<u32>,
    prev: Vec<u32>,
    heap: Vec<Reverse<u64>>,
    recent: Recent,
}

/// Answers of the rule for pairs asked lately, direct-mapped. The rule's own table is large and far from the processor;
/// the pairs of a text are few.
#[derive(Debug, Default)]
struct Recent {
    /// Key (left << 32 | right) and answer (rank << 32 | merged id); empty for short texts.
    slots: Vec<(u64, u64)>,
}

impl Recent {
    const SLOTS: usize = 1 << 13;

    #[inline]
    fn find<R: MergeRule>(&mut self, rule: &R, left: u32, right: u32, text: &[u8]) -> (u32, u32) {
        let ask = || rule.find(left, right, text).unwrap_or((NO_RANK, NO_ID));
        // What a symbol without id stands for is not known from the pair.
        if self.slots.is_empty() || left == NO_ID || right == NO_ID {
            return ask();
        }
        let key = u64::from(left) << 32 | u64::from(right);
        let i = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 51) as usize;
        let Some(slot) = self.slots.get_mut(i) else { return ask() };
        if slot.0 != key {
            let (rank, id) = ask();
            *slot = (key, u64::from(rank) << 32 | u64::from(id));
        }
        ((slot.1 >> 32) as u32, slot.1 as u32)
    }
}

impl Symbols {
    /// Working memory for a text of `len` bytes.
    pub(crate) fn for_text(len: usize) -> Self {
        let slots = if len < 4096 { Vec::new() } else { vec![(u64::MAX, 0); Recent::SLOTS] };
        Self { recent: Recent { slots }, ..Self::default() }
    }

    /// Forgets all symbols.
    pub(crate) fn clear(&mut self) {
        self.ids.clear();
        self.starts.clear();
    }

    /// Appends a symbol that starts at byte `start`. Starts must ascend.
    #[inline]
    pub(crate) fn push(&mut self, id: u32, start: usize) {
        self.ids.push(id);
        self.starts.push(start as u32);
    }

    /// Ids and byte ranges of the symbols of `text`.
    pub(crate) fn iter<'t>(&self, text: &'t [u8]) -> impl Iterator<Item = (u32, &'t [u8])> {
        let ends = self.starts.iter().skip(1).copied().chain([text.len() as u32]);
        self.ids
            .iter()
            .zip(self.starts.iter().zip(ends))
            .map(|(&id, (&s, e))| (id, text.get(s as usize..e as usize).unwrap_or_default()))
    }

    /// Runs the loop over the symbols of `text` to its end.
    pub(crate) fn merge<R: MergeRule>(&mut self, rule: &R, text: &[u8]) {
        match self.ids.len() {
            0 | 1 => {}
            n if n <= FLAT => self.merge_flat(rule, text),
            _ => self.merge_heap(rule, text),
        }
    }

    /// The pair of symbol `i` and the one that starts where it ends, `end` being the end of that one.
    #[inline]
    fn pair<R: MergeRule>(&mut self, rule: &R, text: &[u8], ids: (u32, u32), span: (u32, u32)) -> (u32, u32) {
        let covered = text.get(span.0 as usize..span.1 as usize).unwrap_or_default();
        self.recent.find(rule, ids.0, ids.1, covered)
    }

    fn merge_flat<R: MergeRule>(&mut self, rule: &R, text: &[u8]) {
        let mut n = self.ids.len();
        self.starts.push(text.len() as u32);
        self.ranks.clear();
        self.merged.clear();
        for i in 0..n - 1 {
            let (rank, id) =
                self.pair(rule, text, (self.ids[i], self.ids[i + 1]), (self.starts[i], self.starts[i + 2]));
            self.ranks.push(rank);
            self.merged.push(id);
        }
        loop {
            let mut best = NO_RANK;
            let mut at = 0;
            for (i, &rank) in self.ranks.iter().enumerate() {
                if rank < best {
                    best = rank;
                    at = i;
                }
            }
            if best == NO_RANK {
                break;
            }
            self.ids[at] = self.merged[at];
            self.ids.remove(at + 1);
            self.starts.remove(at + 1);
            self.ranks.remove(at);
            self.merged.remove(at);
            n -= 1;
            for i in [at.wrapping_sub(1), at] {
                if i < n - 1 {
                    let ids = (self.ids[i], self.ids[i + 1]);
                    let (rank, id) = self.pair(rule, text, ids, (self.starts[i], self.starts[i + 2]));
                    self.ranks[i] = rank;
                    self.merged[i] = id;
                }
            }
        }
        self.starts.pop();
    }

    fn merge_heap<R: MergeRule>(&mut self, rule: &R, text: &[u8]) {
        const END: u32 = u32::MAX;
        let n = self.ids.len();
        self.next.clear();
        self.next.extend((1..n as u32).chain([END]));
        self.prev.clear();
        self.prev.extend([END].into_iter().chain(0..n as u32 - 1));
        self.ranks.clear();
        self.ranks.resize(n, NO_RANK);
        self.merged.clear();
        self.merged.resize(n, NO_ID);
        let mut storage = std::mem::take(&mut self.heap);
        storage.clear();
        for i in 0..n {
            if let Some(entry) = self.update(rule, text, i) {
                storage.push(Reverse(entry));
            }
        }
        let mut heap = BinaryHeap::from(storage);
        while let Some(Reverse(entry)) = heap.pop() {
            let at = entry as u32 as usize;
            // An entry is stale unless the pair that now starts here has its rank; equal ranks are as good.
            if self.ranks[at] != (entry >> 32) as u32 {
                continue;
            }
            let right = self.next[at] as usize;
            self.ids[at] = self.merged[at];
            self.ranks[right] = NO_RANK;
            self.ids[right] = NO_ID;
            let after = self.next[right];
            self.next[at] = after;
            self.next[right] = right as u32; // marks it as gone
            if after != END {
                self.prev[after as usize] = at as u32;
            }
            if let Some(entry) = self.update(rule, text, at) {
                heap.push(Reverse(entry));
            }
            let before = self.prev[at];
            if before != END
                && let Some(entry) = self.update(rule, text, before as usize)
            {
                heap.push(Reverse(entry));
            }
        }
        self.heap = heap.into_vec();
        let mut kept = 0;
        for i in 0..n {
            if self.next[i] != i as u32 {
                self.ids[kept] = self.ids[i];
                self.starts[kept] = self.starts[i];
                kept += 1;
            }
        }
        self.ids.truncate(kept);
        self.starts.truncate(kept);
    }

    /// Recomputes the pair that starts at `at`; its heap entry (rank, position) if it merges.
    fn update<R: MergeRule>(&mut self, rule: &R, text: &[u8], at: usize) -> Option<u64> {
        let right = self.next[at] as usize;
        let found = match self.ids.get(right) {
            None => (NO_RANK, NO_ID),
            Some(&right_id) => {
                let end = self.starts.get(self.next[right] as usize).copied().unwrap_or(text.len() as u32);
                self.pair(rule, text, (self.ids[at], right_id), (self.starts[at], end))
            }
        };
        (self.ranks[at], self.merged[at]) = found;
        (found.0 != NO_RANK).then(|| u64::from(found.0) << 32 | at as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Ids are lengths; two symbols merge if the sum is in the table, at its rank.
    struct ByLength(Vec<Option<u32>>);

    impl MergeRule for ByLength {
        fn find(&self, left: u32, right: u32, text: &[u8]) -> Option<(u32, u32)> {
            assert_eq!(text.len() as u32, left + right);
            let rank = (*self.0.get(text.len())?)?;
            Some((rank, left + right))
        }
    }

    /// The definition: always the lowest rank, leftmost.
    fn naive(rule: &ByLength, mut ids: Vec<u32>) -> Vec<u32> {
        let zeros = vec![0u8; ids.iter().sum::<u32>() as usize];
        loop {
            let best = (0..ids.len().saturating_sub(1))
                .filter_map(|i| {
                    let covered = &zeros[..(ids[i] + ids[i + 1]) as usize];
                    rule.find(ids[i], ids[i + 1], covered).map(|(rank, id)| (rank, i, id))
                })
                .min();
            let Some((_, i, id)) = best else { return ids };
            ids[i] = id;
            ids.remove(i + 1);
        }
    }

    proptest! {
        #[test]
        fn both_loops_are_the_definition(
            ids in proptest::collection::vec(1u32..4, 0..120),
            table in proptest::collection::vec(proptest::option::of(0u32..6), 0..40),
        ) {
            let rule = ByLength(table);
            let text = vec![0u8; ids.iter().sum::<u32>() as usize];
            let want = naive(&rule, ids.clone());
            for heap in [false, true] {
                let mut s = Symbols::default();
                let mut start = 0;
                for &id in &ids {
                    s.push(id, start);
                    start += id as usize;
                }
                match (ids.len(), heap) {
                    (0 | 1, _) => {}
                    (_, true) => s.merge_heap(&rule, &text),
                    (_, false) => s.merge_flat(&rule, &text),
                }
                prop_assert_eq!(&s.ids, &want);
                for (id, covered) in s.iter(&text) {
                    prop_assert_eq!(id as usize, covered.len());
                }
            }
        }
    }
}
