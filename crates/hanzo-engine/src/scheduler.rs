//! Who runs in the next step, and with how many tokens.
//!
//! Every step has a budget of tokens. Sequences that decode come first, one token each; what is left of the budget
//! goes to prompts in chunks, running ones before new ones, by priority and then arrival. When blocks run out, the
//! lowest in that order gives its blocks back and computes them again later; its tokens stay, so nothing is lost or
//! said twice. (Orca, Yu et al. 2022, for iteration-level scheduling; Sarathi, Agrawal et al. 2023, for chunks.)

use std::time::Instant;

use crate::kv::KvManager;
use crate::request::FinishReason;
use crate::sequence::Sequence;

/// Bounds of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepLimits {
    /// Tokens of a step.
    pub(crate) max_tokens: usize,
    /// Sequences that run at once.
    pub(crate) max_sequences: usize,
}

/// One sequence's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// The sequence.
    pub(crate) id: u64,
    /// Tokens that run, from the first that is not cached.
    pub(crate) n_tokens: usize,
}

/// Sequences, waiting and running, each list in order of precedence.
pub(crate) struct Scheduler {
    pub(crate) kv: KvManager,
    limits: StepLimits,
    waiting: Vec<Sequence>,
    running: Vec<Sequence>,
}

impl Scheduler {
    pub(crate) fn new(kv: KvManager, limits: StepLimits) -> Self {
        Self { kv, limits, waiting: Vec::new(), running: Vec::new() }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    pub(crate) fn n_waiting(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn n_running(&self) -> usize {
        self.running.len()
    }

    /// Queues a sequence behind those of its priority that came before it.
    pub(crate) fn enqueue(&mut self, sequence: Sequence) {
        insert_by_precedence(&mut self.waiting, sequence);
    }

    /// Ends sequences that were cancelled or are too late.
    pub(crate) fn reap(&mut self, now: Instant) {
        for list in [&mut self.waiting, &mut self.running] {
            let ended = list.extract_if(.., |s| s.interrupted(now).is_some());
            for mut sequence in ended.collect::<Vec<_>>() {
                let reason = sequence.interrupted(now).unwrap_or(FinishReason::Cancelled);
                self.kv.release(std::mem::take(&mut sequence.tables));
                sequence.finish(reason);
            }
        }
    }

    /// Decides the next step. Every sequence of the result has blocks for its share.
    pub(crate) fn plan(&mut self) -> Vec<Work> {
        let mut work = Vec::new();
        let mut budget = self.limits.max_tokens;
        let n_running = self.running.len();
        for decoding in [true, false] {
            let mut i = 0;
            // Those who give way are taken from the end, so `i` stays valid.
            while let Some(sequence) = self.running.get(i).filter(|_| budget > 0) {
                let n_tokens = sequence.pending().min(budget);
                if (sequence.pending() == 1) != decoding {
                    i += 1;
                    continue;
                }
                let (id, target) = (sequence.id, sequence.n_computed + n_tokens);
                while let Some(sequence) = self.running.get_mut(i) {
                    if self.kv.grow(&mut sequence.tables, target).is_ok() {
                        work.push(Work { id, n_tokens });
                        budget -= n_tokens;
                        break;
                    }
                    budget += self.preempt_last(&mut work);
                }
                i += 1;
            }
        }
        if self.running.len() == n_running {
            self.admit(&mut work, budget);
        }
        work
    }

    /// Takes the blocks of the last running sequence. Returns the tokens that it had been given in this step.
    fn preempt_last(&mut self, work: &mut Vec<Work>) -> usize {
        let Some(mut sequence) = self.running.pop() else { return 0 };
        tracing::debug!(id = sequence.id, computed = sequence.n_computed, "preempted: KV blocks ran out");
        self.kv.release(std::mem::take(&mut sequence.tables));
        sequence.n_computed = 0;
        let given = work.extract_if(.., |w| w.id == sequence.id).map(|w| w.n_tokens).sum();
        insert_by_precedence(&mut self.waiting, sequence);
        given
    }

    /// Starts waiting sequences while there is budget, and blocks for all that they hold so far: a new one must not
    /// push out an older one right away.
    fn admit(&mut self, work: &mut Vec<Work>, mut budget: usize) {
        while budget > 0 && self.running.len() < self.limits.max_sequences {
            let Some(sequence) = self.waiting.first_mut() else { return };
            let (tables, cached) = self.kv.admit(&sequence.tokens);
            (sequence.tables, sequence.n_computed) = (tables, cached);
            let n_tokens = sequence.pending().min(budget);
            let fits = self.kv.has_room(&sequence.tables, sequence.tokens.len() + 1)
                && self.kv.grow(&mut sequence.tables, cached + n_tokens).is_ok();
            if !fits {
                self.kv.release(std::mem::take(&mut sequence.tables));
                sequence.n_computed = 0;
                return;
            }
            let mut sequence = self.waiting.remove(0);
            sequence.start(cached);
            budget -= n_tokens;
            work.push(Work { id: sequence.id, n_tokens });
            insert_by_precedence(&mut self.running, sequence);
        }
    }

    /// The running sequence of that id.
    pub(crate) fn running(&self, id: u64) -> Option<&Sequence> {
        self.running.iter().find(|s| s.id == id)
    }

    /// The running sequence of that id, with the block pools.
    pub(crate) fn running_mut(&mut self, id: u64) -> Option<(&mut Sequence, &mut KvManager)> {
        self.running.iter_mut().find(|s| s.id == id).map(|s| (s, &mut self.kv))
    }

    /// Takes a running sequence out and gives its blocks back.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Sequence> {
        let i = self.running.iter().position(|s| s.id == id)?;
        let mut sequence = self.running.remove(i);
        self.kv.release(std::mem::take(&mut sequence.tables));
        Some(sequence)
    }

    /// Takes all sequences out.
    pub(crate) fn drain(&mut self) -> Vec<Sequence> {
        let mut all: Vec<_> = self.running.drain(..).chain(self.waiting.drain(..)).collect();
        all.iter_mut().for_each(|s| self.kv.release(std::mem::take(&mut s.tables)));
        all
    }
}

/// Greater priority first, then the earlier arrival (ids count arrivals).
fn insert_by_precedence(list: &mut Vec<Sequence>, sequence: Sequence) {
    let key = |s: &Sequence| (std::cmp::Reverse(s.priority), s.id);
    let at = list.partition_point(|s| key(s) < key(&sequence));
    list.insert(at, sequence);
}
