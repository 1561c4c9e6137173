//! What a step brings, checked and prepared.

use hanzo_fusion::graph::Graph;
use hanzo_fusion::{BLOCK_TOKENS, DeviceError, LoadOptions, Step};

use super::adapters::Adapters;
use crate::attention::Sequence;

fn invalid<T>(why: String) -> Result<T, DeviceError> {
    Err(DeviceError::InvalidStep(why))
}

/// A checked step.
#[derive(Debug)]
pub(super) struct Inputs<'a> {
    pub(super) tokens: &'a [u32],
    /// Rows of which something is wanted: logits of the first `n_logits`, hidden states of the others.
    pub(super) outputs: Vec<u32>,
    pub(super) n_logits: usize,
    /// Position of each row.
    pub(super) positions: Vec<usize>,
    /// Sequence of each row.
    pub(super) sequence_of: Vec<usize>,
    /// The sequences as each KV group sees them.
    pub(super) groups: Vec<Vec<Sequence<'a>>>,
    pub(super) adapters: Adapters<'a>,
}

/// Windows of the KV groups: what the group's layer that sees furthest sees.
pub(super) fn group_windows(graph: &Graph) -> Vec<Option<u32>> {
    (0..graph.n_kv_groups())
        .map(|group| {
            let mut windows = graph.kv_layers.iter().filter(|l| l.group == group).map(|l| l.window);
            windows.try_fold(0, |widest: u32, w| w.map(|w| w.max(widest)))
        })
        .collect()
}

impl<'a> Inputs<'a> {
    /// Checks everything that kernels rely on.
    pub(super) fn new(
        step: &Step<'a>,
        graph: &Graph,
        windows: &[Option<u32>],
        options: &LoadOptions,
        n_logits: usize,
    ) -> Result<Self, DeviceError> {
        let n = step.tokens.len();
        if n > options.max_tokens {
            return invalid(format!("{n} rows; {} were reserved", options.max_tokens));
        }
        let n_outputs = step.outputs.len().saturating_add(step.hidden.len());
        if n_outputs > options.max_outputs {
            return invalid(format!("{n_outputs} outputs; {} were reserved", options.max_outputs));
        }
        if !step.hidden.is_empty() && graph.hidden.is_none() {
            return invalid("the model gives no hidden states".to_owned());
        }
        if let Some(id) = step.tokens.iter().find(|&&id| id as usize >= graph.vocab_size) {
            return invalid(format!("token {id} of a vocabulary of {}", graph.vocab_size));
        }
        for rows in [step.outputs, step.hidden] {
            if !rows.is_sorted_by(|a, b| a < b) || rows.last().is_some_and(|&row| row as usize >= n) {
                return invalid(format!("outputs are not ascending rows below {n}"));
            }
        }
        if step.outputs.len().checked_mul(graph.vocab_size) != Some(n_logits) {
            let (outputs, vocab) = (step.outputs.len(), graph.vocab_size);
            return invalid(format!("room for {n_logits} logits; {outputs} outputs of {vocab} are wanted"));
        }
        let mut inputs = Inputs {
            tokens: step.tokens,
            outputs: [step.outputs, step.hidden].concat(),
            n_logits: step.outputs.len(),
            positions: Vec::with_capacity(n),
            sequence_of: Vec::with_capacity(n),
            groups: vec![Vec::with_capacity(step.sequences.len()); windows.len()],
            adapters: Adapters::default(),
        };
        for (i, s) in step.sequences.iter().enumerate() {
            let first_row = inputs.positions.len();
            let Some(first_position) = s.context_len.checked_sub(s.n_tokens).filter(|_| s.n_tokens > 0)
            else {
                return invalid(format!(
                    "sequence {i}: {} tokens of a context of {}",
                    s.n_tokens, s.context_len
                ));
            };
            if graph.bidirectional && first_position > 0 {
                return invalid(format!(
                    "sequence {i}: its first {first_position} tokens are not in the step"
                ));
            }
            if s.n_tokens > n - first_row {
                return invalid(format!(
                    "sequence {i}: its {} tokens exceed the step's {n} rows",
                    s.n_tokens
                ));
            }
            inputs.positions.extend(first_position..s.context_len);
            inputs.sequence_of.extend(std::iter::repeat_n(i, s.n_tokens));
            if s.block_tables.len() < windows.len() {
                return invalid(format!(
                    "sequence {i}: {} block tables for {} groups",
                    s.block_tables.len(),
                    windows.len()
                ));
            }
            for ((&window, table), group) in windows.iter().zip(s.block_tables).zip(&mut inputs.groups) {
                let oldest = window.map_or(0, |w| (first_position + 1).saturating_sub(w as usize));
                let blocks = oldest / BLOCK_TOKENS..s.context_len.div_ceil(BLOCK_TOKENS);
                let Some(seen) = table.get(blocks.clone()) else {
                    return invalid(format!("sequence {i}: {} blocks, {} needed", table.len(), blocks.end));
                };
                let n_blocks = options.kv.blocks(window);
                if let Some(block) = seen.iter().find(|&&b| b as usize >= n_blocks) {
                    return invalid(format!("sequence {i}: block {block} of {n_blocks}"));
                }
                let whole = graph.bidirectional;
                group.push(Sequence { first_row, n_tokens: s.n_tokens, first_position, table, whole });
            }
        }
        if inputs.positions.len() != n {
            return invalid(format!("the sequences have {} tokens, the step {n}", inputs.positions.len()));
        }
        inputs.adapters = Adapters::new(step, graph, &inputs.sequence_of)?;
        inputs.check_writes()?;
        Ok(inputs)
    }

    /// No block is written under two names: threads would write over each other.
    fn check_writes(&self) -> Result<(), DeviceError> {
        for (g, group) in self.groups.iter().enumerate() {
            let mut written: Vec<u32> = Vec::new();
            for s in group {
                let end = s.first_position + s.n_tokens;
                written.extend(&s.table[s.first_position / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS)]);
            }
            written.sort_unstable();
            if let Some(twice) = written.windows(2).find(|w| w[0] == w[1]) {
                return invalid(format!("block {} of group {g} is written as two", twice[0]));
            }
        }
        Ok(())
    }
}
