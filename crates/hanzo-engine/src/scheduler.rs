//! Who runs in the next step, and with how many tokens.
//!
//! Every step has a budget of tokens. Sequences that decode come first, one token each, then their drafts; what is left
//! goes to prompts in chunks, running ones before new ones, by priority and then arrival. While anybody decodes, chunks
//! are as small as the pace asks for, and those of sequences that read have as many rows as readers may take in a step.
//! When blocks run out, the lowest in that order gives its blocks back and computes them again later; its tokens stay, so
//! nothing is lost or said twice. Drafts and new sequences never push anybody out.
//! (Orca, Yu et al. 2022, for iteration-level scheduling; Sarathi, Agrawal et al. 2023, for chunks.)

use std::time::Instant;

use crate::adapters::{self, AdapterCount, Lease};
use crate::kv::KvManager;
use crate::pace::Pace;
use crate::request::FinishReason;
use crate::sequence::{Sequence, SequenceId};
use crate::speculate::Speculation;

/// Bounds of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepLimits {
    /// Tokens of a step.
    pub(crate) max_tokens: usize,
    /// Sequences that run at once.
    pub(crate) max_sequences: usize,
    /// Drafts of a step.
    pub(crate) max_drafts: usize,
    /// Rows of a step that readers take.
    pub(crate) max_reads: usize,
}

impl StepLimits {
    /// Rows whose results a step can give.
    pub(crate) fn max_outputs(&self) -> usize {
        self.max_sequences + self.max_drafts + self.max_reads
    }
}

/// What of a step is left to give away.
#[derive(Clone, Copy, Debug)]
struct Budget {
    tokens: usize,
    reads: usize,
}

impl Budget {
    /// The next chunk of a sequence, as far as the budget goes: tokens, and rows of them that it reads.
    fn share(&self, sequence: &Sequence) -> (usize, usize) {
        let n = sequence.chunk(self.tokens, self.reads);
        let reads = if sequence.is_reading() { sequence.rows_wanted(n, 0).len() } else { 0 };
        (n, reads)
    }
}

/// One sequence's share of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// The sequence.
    pub(crate) id: SequenceId,
    /// Rows that run, from the first token that is not cached, drafts included.
    pub(crate) n_tokens: usize,
    /// Of these, drafts.
    pub(crate) n_drafts: usize,
    /// Of these, ones whose rows a reader takes.
    pub(crate) n_reads: usize,
    /// Whether the sequence decodes: only its last token is not cached.
    pub(crate) decodes: bool,
}

/// Counts of what the scheduler did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) preemptions: u64,
    pub(crate) prefix_queries: u64,
    pub(crate) prefix_hits: u64,
}

/// Sequences, waiting and running, each list in order of precedence.
pub(crate) struct Scheduler {
    pub(crate) kv: KvManager,
    pub(crate) counts: Counts,
    limits: StepLimits,
    waiting: Vec<Sequence>,
    running: Vec<Sequence>,
}

impl Scheduler {
    pub(crate) fn new(kv: KvManager, limits: StepLimits) -> Self {
        Self { kv, counts: Counts::default(), limits, waiting: Vec::new(), running: Vec::new() }
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

    /// How many sequences use each adapter.
    pub(crate) fn adapter_counts(&self) -> Vec<AdapterCount> {
        fn leases(s: &Sequence) -> &[Lease] {
            &s.adapters
        }
        adapters::count(self.waiting.iter().map(leases), self.running.iter().map(leases))
    }

    /// Queues a sequence behind those of its priority that came before it.
    pub(crate) fn enqueue(&mut self, mut sequence: Sequence) {
        sequence.prefix_root = self.kv.prefix_root(&adapters::prefix_key(&sequence.adapters));
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

    /// Decides the next step. Every sequence of the result has blocks for its share. While anybody decodes, prompts get
    /// what `pace` allows at most.
    pub(crate) fn plan(&mut self, pace: &Pace) -> Vec<Work> {
        let mut work = Vec::new();
        let mut budget = Budget { tokens: self.limits.max_tokens, reads: self.limits.max_reads };
        let n_running = self.running.len();
        self.run_those(&mut work, &mut budget, true);
        self.add_drafts(&mut work, &mut budget.tokens);
        let n_decode = work.iter().map(|w| w.n_tokens).sum();
        budget.tokens = budget.tokens.min(pace.allowance(n_decode));
        self.run_those(&mut work, &mut budget, false);
        if self.running.len() == n_running {
            self.admit(&mut work, budget);
        }
        self.plan_states(&work);
        work
    }

    /// Gives all running sequences that decode, or all that do not, their share.
    fn run_those(&mut self, work: &mut Vec<Work>, budget: &mut Budget, decodes: bool) {
        let mut i = 0;
        // Those who give way are taken from the end, so `i` stays valid.
        while let Some(sequence) = self.running.get(i).filter(|_| budget.tokens > 0) {
            let (id, (n_tokens, n_reads)) = (sequence.id, budget.share(sequence));
            let wanted = sequence.decodes() == decodes && n_tokens > 0;
            while wanted && let Some(sequence) = self.running.get_mut(i) {
                let target = sequence.n_computed + n_tokens;
                if self.kv.grow(&mut sequence.tables, sequence.n_computed, target).is_ok() {
                    work.push(Work { id, n_tokens, n_drafts: 0, n_reads, decodes });
                    budget.tokens -= n_tokens;
                    budget.reads -= n_reads;
                    break;
                }
                self.preempt_last(work, budget);
            }
            i += 1;
        }
    }

    /// Adds the drafts of those who decode, as far as budget, outputs and free blocks go.
    fn add_drafts(&mut self, work: &mut [Work], budget: &mut usize) {
        let mut outputs = self.limits.max_drafts;
        for w in work {
            let Some(sequence) = self.running.iter_mut().find(|s| s.id == w.id) else { continue };
            let n = sequence.drafts.len().min(*budget).min(outputs);
            let target = sequence.n_computed + w.n_tokens + n;
            // They follow the last token, which must be in the step.
            if n > 0
                && w.n_tokens == sequence.pending()
                && self.kv.reserve_drafts(&mut sequence.tables)
                && self.kv.grow(&mut sequence.tables, sequence.n_computed, target).is_ok()
            {
                (w.n_tokens, w.n_drafts) = (w.n_tokens + n, n);
                (*budget, outputs) = (*budget - n, outputs - n);
            }
        }
    }

    /// Chooses the recurrent states that the step keeps.
    fn plan_states(&mut self, work: &[Work]) {
        for w in work {
            let Some(sequence) = self.running.iter_mut().find(|s| s.id == w.id) else { continue };
            let (from, n) = (sequence.n_computed, sequence.tokens.len());
            let to = from + w.n_tokens - w.n_drafts;
            self.kv.plan_saves(&mut sequence.tables, from, to, n, w.decodes);
        }
    }

    /// Takes the blocks of the last running sequence, and what it had been given in this step.
    fn preempt_last(&mut self, work: &mut Vec<Work>, budget: &mut Budget) {
        let Some(mut sequence) = self.running.pop() else { return };
        tracing::debug!(id = ?sequence.id, computed = sequence.n_computed, "preempted: KV blocks ran out");
        self.counts.preemptions += 1;
        self.kv.release(std::mem::take(&mut sequence.tables));
        sequence.restart();
        for w in work.extract_if(.., |w| w.id == sequence.id) {
            budget.tokens += w.n_tokens;
            budget.reads += w.n_reads;
        }
        insert_by_precedence(&mut self.waiting, sequence);
    }

    /// Starts waiting sequences while there is budget, and blocks for all that they hold so far: a new one must not
    /// push out an older one right away.
    fn admit(&mut self, work: &mut Vec<Work>, mut budget: Budget) {
        let mut places = self.running.iter().map(Sequence::n_continuations).sum::<usize>();
        while budget.tokens > 0 {
            let Some(sequence) = self.waiting.first_mut() else { return };
            places += sequence.n_continuations();
            if places > self.limits.max_sequences {
                return;
            }
            let (tables, cached) = self.kv.admit(sequence.prefix_root, sequence.cacheable());
            (sequence.tables, sequence.n_computed) = (tables, cached);
            let (n_tokens, n_reads) = budget.share(sequence);
            let fits = n_tokens > 0
                && self.kv.has_room(&sequence.tables, cached, sequence.least_room())
                && self.kv.grow(&mut sequence.tables, cached, cached + n_tokens).is_ok();
            if !fits {
                self.kv.release(std::mem::take(&mut sequence.tables));
                sequence.n_computed = 0;
                return;
            }
            let mut sequence = self.waiting.remove(0);
            if sequence.start(cached) {
                self.counts.prefix_queries += sequence.tokens.len() as u64;
                self.counts.prefix_hits += cached as u64;
            }
            budget.tokens -= n_tokens;
            budget.reads -= n_reads;
            work.push(Work { id: sequence.id, n_tokens, n_drafts: 0, n_reads, decodes: false });
            insert_by_precedence(&mut self.running, sequence);
        }
    }

    /// Makes the further continuations of a request, whose prompt is through, sequences of their own that share its blocks.
    /// Returns all that there are now, the first included.
    pub(crate) fn split(&mut self, id: SequenceId, speculation: &Speculation) -> Vec<SequenceId> {
        let mut ids = vec![id];
        let Some(sequence) = self.running.iter_mut().find(|s| s.id == id) else { return ids };
        for mut sibling in sequence.split(|| speculation.proposer()) {
            let first = self.running.iter().find(|s| s.id == id);
            match first.and_then(|first| self.kv.fork(&first.tables)) {
                Some(tables) => sibling.tables = tables,
                // Computed again.
                None => sibling.restart(),
            }
            ids.push(sibling.id);
            insert_by_precedence(&mut self.running, sibling);
        }
        ids
    }

    /// The running sequences.
    pub(crate) fn all_running(&mut self) -> &mut [Sequence] {
        &mut self.running
    }

    /// The running sequence of that id.
    pub(crate) fn running(&self, id: SequenceId) -> Option<&Sequence> {
        self.running.iter().find(|s| s.id == id)
    }

    /// The running sequence of that id, with the block pools.
    pub(crate) fn running_mut(&mut self, id: SequenceId) -> Option<(&mut Sequence, &mut KvManager)> {
        self.running.iter_mut().find(|s| s.id == id).map(|s| (s, &mut self.kv))
    }

    /// Takes a running sequence out and gives its blocks back.
    pub(crate) fn remove(&mut self, id: SequenceId) -> Option<Sequence> {
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

/// Greater priority first, then the earlier arrival.
fn insert_by_precedence(list: &mut Vec<Sequence>, sequence: Sequence) {
    let key = |s: &Sequence| (std::cmp::Reverse(s.priority), s.id);
    let at = list.partition_point(|s| key(s) < key(&sequence));
    list.insert(at, sequence);
}
