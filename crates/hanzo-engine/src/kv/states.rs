//! Slots of recurrent states: who has which, and checkpoints of prefixes.
//!
//! A recurrent layer keeps one state a sequence, however long it is, and no token of it can be taken back. So a prefix
//! can be taken up only where its state was kept: at some block borders there are checkpoints, named like the prefixes that
//! they end. Every running sequence has a slot of its own. The extra ones hold checkpoints, the least recently used of
//! which goes first, and while a step has drafts the state after the last of them; drafts never take more than half.
//!
//! Only slot numbers live here; the states are the device's.

use std::collections::HashMap;

use hanzo_fusion::BLOCK_TOKENS;

use super::pool::PrefixId;

/// Checkpoints of a prompt are this far apart at most, in tokens.
const WIDEST: u64 = 2048;
/// Extra slots beside one a sequence.
const SOME: usize = 16;
/// Of a bounded memory, states may take one part in this many beyond what running sequences need.
const SHARE: u64 = 4;

/// Slots of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSizes {
    /// Of running sequences.
    pub running: usize,
    /// Of checkpoints and drafts.
    pub extra: usize,
    /// Tokens between two checkpoints of a long prompt, whole blocks.
    pub spacing: usize,
}

impl StateSizes {
    /// Slots for `running` sequences with states of `state_bytes`, beside blocks of `block_bytes`. Without a bound, `extra` are
    /// as many again and some; with one of `memory` bytes, as many as a quarter of it has room for.
    ///
    /// A prompt's checkpoints are so far apart that they take about as much as its blocks.
    ///
    /// `None` where the running sequences' states alone exceed `memory`.
    pub fn new(
        running: usize,
        extra: Option<usize>,
        state_bytes: u64,
        block_bytes: u64,
        memory: Option<u64>,
    ) -> Option<Self> {
        let (running, state) = (running.max(1), state_bytes.max(1));
        let wanted = extra.unwrap_or(running.saturating_add(SOME));
        let extra = match memory {
            None => wanted,
            Some(memory) if state.saturating_mul(running as u64) > memory => return None,
            Some(memory) => {
                let room = (memory / SHARE / state).saturating_sub(running as u64);
                wanted.min(usize::try_from(room).unwrap_or(usize::MAX))
            }
        };
        let blocks = state_bytes.div_ceil(block_bytes.max(1)).clamp(1, WIDEST / BLOCK_TOKENS as u64);
        Some(Self { running, extra, spacing: blocks as usize * BLOCK_TOKENS })
    }

    /// All slots.
    pub fn slots(&self) -> usize {
        self.running.saturating_add(self.extra)
    }
}

/// A state that was kept.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    slot: u32,
    /// When it was last made use of.
    used: u64,
    /// Whether a sequence went on from it.
    hit: bool,
}

/// All slots.
#[derive(Debug)]
pub(super) struct StatePool {
    spacing: usize,
    free_running: Vec<u32>,
    free_extra: Vec<u32>,
    checkpoints: HashMap<PrefixId, Checkpoint>,
    clock: u64,
    /// Extra slots that drafts have, and the most that they may have.
    drafts: usize,
    most_drafts: usize,
}

impl StatePool {
    pub(super) fn new(sizes: StateSizes) -> Self {
        let running = u32::try_from(sizes.running).unwrap_or(u32::MAX);
        let all = u32::try_from(sizes.slots()).unwrap_or(u32::MAX);
        Self {
            spacing: sizes.spacing.max(BLOCK_TOKENS),
            free_running: (0..running).rev().collect(),
            free_extra: (running..all).rev().collect(),
            checkpoints: HashMap::new(),
            clock: 0,
            drafts: 0,
            most_drafts: sizes.extra.div_ceil(2),
        }
    }

    /// Slots that nobody uses but as checkpoints: all of them where nothing runs.
    pub(super) fn n_free(&self) -> usize {
        self.free_running.len() + self.free_extra.len() + self.checkpoints.len()
    }

    /// Whether a sequence can start.
    pub(super) fn has_running(&self) -> bool {
        !self.free_running.is_empty()
    }

    /// A slot for a sequence that starts.
    pub(super) fn take_running(&mut self) -> Option<u32> {
        self.free_running.pop()
    }

    pub(super) fn give_running(&mut self, slot: u32) {
        self.free_running.push(slot);
    }

    /// An extra slot; the checkpoint that was unused for longest makes room.
    pub(super) fn take_extra(&mut self) -> Option<u32> {
        if let Some(slot) = self.free_extra.pop() {
            return Some(slot);
        }
        let (&oldest, _) = self.checkpoints.iter().min_by_key(|(_, c)| c.used)?;
        self.checkpoints.remove(&oldest).map(|c| c.slot)
    }

    pub(super) fn give_extra(&mut self, slot: u32) {
        self.free_extra.push(slot);
    }

    /// An extra slot for the state after a sequence's drafts.
    pub(super) fn take_draft(&mut self) -> Option<u32> {
        if self.drafts >= self.most_drafts {
            return None;
        }
        let slot = self.take_extra()?;
        self.drafts += 1;
        Some(slot)
    }

    /// Gives back a slot that came from [`StatePool::take_draft`], or one that took its place.
    pub(super) fn give_draft(&mut self, slot: u32) {
        self.drafts = self.drafts.saturating_sub(1);
        self.give_extra(slot);
    }

    /// Whether a prefix can be taken up where it ends.
    pub(super) fn has(&self, prefix: PrefixId) -> bool {
        self.checkpoints.contains_key(&prefix)
    }

    /// The slot of a checkpoint that a sequence goes on from.
    pub(super) fn hit(&mut self, prefix: PrefixId) -> Option<u32> {
        self.clock += 1;
        let checkpoint = self.checkpoints.get_mut(&prefix)?;
        (checkpoint.used, checkpoint.hit) = (self.clock, true);
        Some(checkpoint.slot)
    }

    /// The extra slot `slot` now holds the state after `prefix`. A checkpoint that was there before stays.
    pub(super) fn keep(&mut self, prefix: PrefixId, slot: u32) {
        self.clock += 1;
        let new = Checkpoint { slot, used: self.clock, hit: false };
        if let Some(there) = self.checkpoints.get_mut(&prefix) {
            there.used = self.clock;
            self.give_extra(slot);
            return;
        }
        self.checkpoints.insert(prefix, new);
    }

    /// The prefix cannot be found any more.
    pub(super) fn forget(&mut self, prefix: PrefixId) {
        if let Some(checkpoint) = self.checkpoints.remove(&prefix) {
            self.give_extra(checkpoint.slot);
        }
    }

    /// A better checkpoint was made; this one goes unless somebody went on from it.
    pub(super) fn outdate(&mut self, prefix: PrefixId) {
        if self.checkpoints.get(&prefix).is_some_and(|c| !c.hit) {
            self.forget(prefix);
        }
    }

    pub(super) fn forget_all(&mut self) {
        self.free_extra.extend(self.checkpoints.drain().map(|(_, c)| c.slot));
    }

    /// Borders after which states are to be kept when tokens `from .. to` of a text of `n` run, the most useful first: where
    /// the same text, or one that goes on from it, would be taken up, and at every [`StateSizes::spacing`].
    pub(super) fn borders(&self, from: usize, to: usize, n: usize) -> Vec<usize> {
        let last = |n: usize| n / BLOCK_TOKENS * BLOCK_TOKENS;
        let ends = [last(n.saturating_sub(1)), last(n)].into_iter();
        let first = from / self.spacing + 1;
        let regular = (first..=to / self.spacing).rev().map(|i| i * self.spacing);
        let mut borders: Vec<usize> = Vec::new();
        for border in ends.chain(regular).filter(|b| (from + 1..=to).contains(b)) {
            if !borders.contains(&border) {
                borders.push(border);
            }
        }
        borders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u64) -> PrefixId {
        PrefixId::root(n)
    }

    #[test]
    fn sizes_by_hand() {
        let new = |extra, memory| StateSizes::new(4, extra, 1000, 100, memory);
        let sizes = |extra| Some(StateSizes { running: 4, extra, spacing: 160 });
        assert_eq!(new(None, None), sizes(20));
        assert_eq!(new(Some(3), None), sizes(3));
        assert_eq!(new(None, Some(3999)), None);
        assert_eq!(new(None, Some(4000)), sizes(0), "running sequences take more than the share");
        assert_eq!(new(None, Some(40_000)), sizes(6));
        assert_eq!(new(None, Some(u64::MAX)), sizes(20));
        assert_eq!(StateSizes::new(1, None, 75 << 20, 24 << 14, None).map(|s| s.spacing), Some(2048));
        assert_eq!(StateSizes::new(1, None, 1, 1 << 20, None).map(|s| s.spacing), Some(16));
        assert_eq!(StateSizes::new(1, None, u64::MAX, 1, Some(u64::MAX - 1)), None);
    }

    #[test]
    fn the_least_recently_used_checkpoint_goes_first() {
        let mut pool = StatePool::new(StateSizes { running: 1, extra: 2, spacing: 64 });
        for n in [1, 2] {
            let slot = pool.take_extra().unwrap();
            pool.keep(id(n), slot);
        }
        let first = pool.hit(id(1)).unwrap();
        let slot = pool.take_extra().unwrap();
        assert_ne!(slot, first);
        assert!(pool.has(id(1)) && !pool.has(id(2)));
        // The same prefix again: the older state stays, the slot comes back.
        pool.keep(id(1), slot);
        assert_eq!((pool.hit(id(1)), pool.n_free()), (Some(first), 3));
        pool.outdate(id(1));
        assert!(pool.has(id(1)), "somebody went on from it");
        pool.forget(id(1));
        assert_eq!((pool.has(id(1)), pool.n_free()), (false, 3));
    }

    #[test]
    fn drafts_take_half_at_most() {
        let mut pool = StatePool::new(StateSizes { running: 4, extra: 3, spacing: 64 });
        let [a, b] = [pool.take_draft().unwrap(), pool.take_draft().unwrap()];
        assert_eq!(pool.take_draft(), None);
        assert!(pool.take_extra().is_some());
        assert_eq!(pool.take_extra(), None);
        pool.give_draft(a);
        assert_eq!(pool.take_draft(), Some(a));
        pool.give_draft(a);
        pool.give_draft(b);
        assert_eq!(pool.n_free(), 6);
        let mut none = StatePool::new(StateSizes { running: 1, extra: 0, spacing: 64 });
        assert_eq!((none.take_draft(), none.take_extra()), (None, None));
    }

    #[test]
    fn borders_by_hand() {
        let pool = StatePool::new(StateSizes { running: 1, extra: 9, spacing: 64 });
        assert_eq!(pool.borders(0, 50, 50), [48]);
        assert_eq!(pool.borders(0, 48, 48), [32, 48], "the same text takes up 32, a longer one 48");
        assert_eq!(pool.borders(0, 200, 200), [192, 128, 64]);
        assert_eq!(pool.borders(0, 100, 200), [64]);
        assert_eq!(pool.borders(64, 127, 200), [] as [usize; 0]);
        assert_eq!(pool.borders(64, 128, 200), [128]);
        assert_eq!(pool.borders(47, 48, 48), [48], "a reply crosses a border");
        assert_eq!(pool.borders(48, 49, 49), [] as [usize; 0]);
    }
}
