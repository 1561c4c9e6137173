//! What a step brings, checked and prepared.

use hanzo_fusion::graph::Graph;
use hanzo_fusion::{BLOCK_TOKENS, DeviceError, LoadOptions, StateUse, Step};

use super::adapters::Adapters;
use crate::attention::Sequence;
use crate::recurrent::Share;

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
    /// The sequences as recurrent ops see them; none where the model has no such ops.
    pub(super) shares: Vec<Share<'a>>,
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
        states: &'a [StateUse<'a>],
        graph: &Graph,
        windows: &[Option<u32>],
        options: &LoadOptions,
        seen: &[Option<usize>],
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
            shares: Vec::new(),
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
        if !graph.states.is_empty() || !states.is_empty() {
            inputs.shares = shares(step, states, graph, seen)?;
        }
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

/// Where the recurrent states of the step's sequences are, checked: slots exist, hold what the sequence's first row
/// follows, and what a share writes is no other's.
fn shares<'a>(
    step: &Step<'a>,
    states: &'a [StateUse<'a>],
    graph: &Graph,
    seen: &[Option<usize>],
) -> Result<Vec<Share<'a>>, DeviceError> {
    if graph.states.is_empty() {
        return invalid("the model has no recurrent states".to_owned());
    }
    if !states.is_empty() && states.len() != step.sequences.len() {
        return invalid(format!("states of {} sequences, of {}", states.len(), step.sequences.len()));
    }
    let n_slots = seen.len();
    let (mut shares, mut first_row) = (Vec::with_capacity(step.sequences.len()), 0);
    let mut written: Vec<(u32, usize)> = Vec::new();
    for (i, sequence) in step.sequences.iter().enumerate() {
        let state = states.get(i).copied().unwrap_or(StateUse::in_slot(i as u32));
        let n_rows = sequence.n_tokens;
        let first_position = sequence.context_len - n_rows;
        let from = (first_position > 0).then_some(state.from);
        let slots = from.into_iter().chain([state.to]).chain(state.saves.iter().map(|s| s.slot));
        if let Some(slot) = slots.into_iter().find(|&slot| slot as usize >= n_slots) {
            return invalid(format!("sequence {i}: slot {slot} of {n_slots} for recurrent states"));
        }
        if let Some(slot) = from
            && seen[slot as usize] != Some(first_position)
        {
            let found = seen[slot as usize];
            return invalid(format!(
                "sequence {i}: the recurrent state in slot {slot} has seen {found:?} tokens, not {first_position}"
            ));
        }
        let rows = state.saves.iter().map(|s| s.after);
        if !rows.clone().is_sorted() || rows.clone().any(|after| after == 0 || after > n_rows) {
            return invalid(format!(
                "sequence {i}: states after {:?} of {n_rows} rows",
                rows.collect::<Vec<_>>()
            ));
        }
        written.extend(state.saves.iter().map(|s| s.slot).chain([state.to]).map(|slot| (slot, i)));
        shares.push(Share { first_row, first_position, n_rows, from, to: state.to, saves: state.saves });
        first_row += n_rows;
    }
    written.sort_unstable();
    if let Some(twice) = written.windows(2).find(|w| w[0].0 == w[1].0) {
        return invalid(format!("slot {} for recurrent states is written twice", twice[0].0));
    }
    for (i, share) in shares.iter().enumerate() {
        let Some(from) = share.from else { continue };
        if let Ok(at) = written.binary_search_by_key(&from, |w| w.0)
            && written[at].1 != i
        {
            return invalid(format!("slot {from} for recurrent states is read and written by two sequences"));
        }
    }
    Ok(shares)
}
