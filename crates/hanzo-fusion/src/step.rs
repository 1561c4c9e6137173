//! What changes from step to step: which tokens run, where their keys live, whose logits are wanted.
//!
//! A step is ragged: every running sequence contributes some tokens (one when it decodes, one plus the drafts when
//! it verifies, a chunk when it prefills). Rows are packed sequence after sequence.

use crate::adapter::Adapter;

/// Tokens of a KV block.
pub const BLOCK_TOKENS: usize = 16;

/// One sequence's share of a step.
#[derive(Clone, Copy, Debug)]
pub struct SequenceStep<'a> {
    /// Tokens of this sequence in the step (at least 1); their positions are `context_len - n_tokens ..`.
    pub n_tokens: usize,
    /// Tokens of the sequence once the step is done: keys that its last row sees.
    pub context_len: usize,
    /// Physical block of each logical block of [`BLOCK_TOKENS`] tokens, one table a KV group (see
    /// [`KvLayer::group`]). Entry `p / BLOCK_TOKENS` holds position `p`. Entries of blocks that fell behind a sliding
    /// window may be `u32::MAX`; they are never read.
    pub block_tables: &'a [&'a [u32]],
    /// Adapters that its rows use, in this order. Rows without any are computed as if there were none in the step.
    pub adapters: &'a [AdapterUse<'a>],
}

/// An adapter as one sequence uses it.
#[derive(Clone, Copy, Debug)]
pub struct AdapterUse<'a> {
    /// Which; made for the graph that runs.
    pub adapter: &'a Adapter,
    /// Multiplies each of its updates, beside their own scales.
    pub scale: f32,
}

/// All that a step needs beside the weights and the KV cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct Step<'a> {
    /// Token ids, packed sequence after sequence; its length is the step's number of rows.
    pub tokens: &'a [u32],
    /// The sequences, in the order of their rows; their `n_tokens` sum to `tokens.len()`.
    pub sequences: &'a [SequenceStep<'a>],
    /// Rows whose logits are wanted, ascending.
    pub outputs: &'a [u32],
    /// Rows whose final hidden states are wanted, ascending; no logits are computed for them.
    pub hidden: &'a [u32],
}

/// How one sequence's share of a step uses the recurrent states of a model that has some. Such a state is as large for any
/// number of tokens, and lies in a slot that the caller chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateUse<'a> {
    /// Slot of the state after the tokens before this step. Not read where the step has the sequence's first token: that
    /// one follows a state of zeros.
    pub from: u32,
    /// Slot that the state after the last row goes to; may be `from`.
    pub to: u32,
    /// States on the way that are wanted too, ascending.
    pub saves: &'a [StateSave],
}

impl StateUse<'_> {
    /// The state stays in its slot.
    pub fn in_slot(slot: u32) -> Self {
        Self { from: slot, to: slot, saves: &[] }
    }
}

/// A state on the way through a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateSave {
    /// Rows of the sequence in this step that the state has seen, at least 1.
    pub after: usize,
    /// Where it goes.
    pub slot: u32,
}

/// What a recurrent op keeps of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLayer {
    /// f32 elements.
    pub elements: usize,
}

/// Element type of cached keys and values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum KvType {
    /// IEEE half, rounded to nearest even.
    #[default]
    F16,
    /// int8 with one f32 scale a token and head, of heads that were rotated by a fixed Hadamard matrix.
    Int8,
    /// f32: the reference.
    F32,
}

/// The cache of one attention layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Heads of keys and values.
    pub n_kv_heads: usize,
    /// Elements of a key.
    pub k_head_dim: usize,
    /// Elements of a value.
    pub v_head_dim: usize,
    /// A row at position `p` sees keys at positions `> p - window` only.
    pub window: Option<u32>,
    /// Which of a sequence's block tables this layer uses: layers whose blocks live equally long share one.
    pub group: usize,
}

/// How large the cache is. The blocks of all layers of a group are numbered alike.
#[derive(Clone, Copy, Debug)]
pub struct KvConfig {
    /// Blocks of [`BLOCK_TOKENS`] tokens in the pool of a group with a layer that sees everything.
    pub n_blocks: usize,
    /// Blocks in the pool of a group whose layers all have a window.
    pub n_window_blocks: usize,
    /// Slots for the recurrent states of models that have some.
    pub n_states: usize,
    /// Element type.
    pub kv_type: KvType,
}

impl KvConfig {
    /// As many blocks for every group, and the recurrent state of one sequence.
    pub fn equal(n_blocks: usize, kv_type: KvType) -> Self {
        Self { n_blocks, n_window_blocks: n_blocks, n_states: 1, kv_type }
    }

    /// Blocks in the pool of a group, whose widest window this is.
    pub fn blocks(&self, window: Option<u32>) -> usize {
        if window.is_some() { self.n_window_blocks } else { self.n_blocks }
    }
}
