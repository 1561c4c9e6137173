//! Counts of what an engine does, for those who watch it.

/// A snapshot. Counters only grow; the others are of now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Requests that wait.
    pub waiting: usize,
    /// Sequences that run.
    pub running: usize,
    /// Blocks of the KV pool.
    pub kv_blocks: usize,
    /// Of these, free (those with cached prefixes are).
    pub kv_free: usize,
    /// Slots for recurrent states, of models that have such.
    pub states: usize,
    /// Of these, such that no sequence has; checkpoints of prefixes count.
    pub states_free: usize,
    /// Prompt tokens looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Of these, found.
    pub prefix_hits: u64,
    /// Sequences whose blocks were taken away.
    pub preemptions: u64,
    /// Steps run.
    pub steps: u64,
    /// Steps that failed.
    pub failed_steps: u64,
    /// Times that the engine's thread was started anew after a panic.
    pub restarts: u64,
    /// Rows of prompts that ran (those that ran again after preemption included).
    pub prompt_tokens: u64,
    /// Tokens of replies.
    pub generated_tokens: u64,
    /// Drafts that ran.
    pub drafted_tokens: u64,
    /// Drafts that were right.
    pub accepted_tokens: u64,
}
