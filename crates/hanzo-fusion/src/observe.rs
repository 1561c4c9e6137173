//! Seeing what enters the contractions of a step: what importance matrices are made of.
//!
//! A model loaded by [`Device::load_observed`](crate::Device::load_observed) shows an [`Observer`] the f32 rows of every
//! contraction, before they are quantized for it. A model loaded otherwise keeps no such rows and pays nothing.

use crate::graph::WeightDecl;

/// Hears of every contraction of a step, in the plan's order and once each, from one thread at a time. The rows' order is the
/// step's, so sums over them do not depend on the number of threads.
pub trait Observer: Send + Sync {
    /// Rows were contracted with `input.weights`.
    fn contraction(&self, input: &ContractionInput<'_>);
}

/// The operands of contractions that share one input.
#[derive(Clone, Copy, Debug)]
pub struct ContractionInput<'a> {
    /// The matrices; each met all the rows (over experts: those that were routed to it).
    pub weights: &'a [&'a WeightDecl],
    /// `[rows, n_in]`, with the matrices' `n_in`.
    pub rows: &'a [f32],
    /// Which expert each row went to; `None` where the matrices are not stacked.
    pub routes: Option<Routes<'a>>,
}

/// Routing of rows to experts.
#[derive(Clone, Copy, Debug)]
pub struct Routes<'a> {
    /// Experts, `[tokens, k]`. Pair `p` is entry `p`.
    pub ids: &'a [u32],
    /// Pairs that share an input row: pair `p` read row `p / pairs_per_row` (`k` where tokens have one row each, else 1).
    pub pairs_per_row: usize,
}
