//! From graph to plan: which ops run together, in which order, in which buffers.
//!
//! [`Plan::new`] lowers the graph ([`lower`]: quantized activations are made once, dead ops go, rows that nobody wants
//! are not computed), groups its ops into [`Launch`]es by rule ([`fuse`]), and gives every value that crosses a launch a
//! slot of the arena ([`slots`]). The plan is the same for every device; how a launch is executed is the device's business.
//! A launch never computes an element twice, and never changes an element's bits: fusing is only about where
//! intermediate values live and how often threads meet.

mod fuse;
mod lower;
mod slots;
mod text;

use crate::graph::{Graph, GraphError, Op, Rows, Value};

pub use slots::Slot;

/// How a plan is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanOptions {
    /// Group ops into launches. Without, every primitive is a launch of its own (the reference: same bits).
    pub fuse: bool,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { fuse: true }
    }
}

/// Whose rows a row-wise launch walks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Domain {
    /// Tokens, and with each token its expert slots.
    Tokens,
    /// Rows of which something is wanted.
    Outputs,
    /// Rows whose logits are wanted.
    Logits,
}

impl Domain {
    /// The domain that rows of this kind belong to.
    pub fn of(rows: Rows) -> Self {
        match rows {
            Rows::Tokens | Rows::Slots(_) => Domain::Tokens,
            Rows::Outputs => Domain::Outputs,
            Rows::Logits => Domain::Logits,
        }
    }
}

/// What a launch is built around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchKind {
    /// Row-wise ops: row `r` of every result depends on row `r` of the operands (token `t`'s slots count as its row).
    Rows(Domain),
    /// Contractions of one input, and the elementwise ops that take their results.
    Contract {
        /// The shared input.
        x: Value,
        /// Expert ids, for contractions over experts.
        ids: Option<Value>,
        /// How many of the launch's first nodes are contractions; the others are their epilogue.
        anchors: usize,
    },
    /// One attention, and the quantization of its result if it has one.
    Attention,
    /// One recurrent op: a convolution over tokens or a delta rule.
    Recurrent,
}

/// Ops that run together, between two barriers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// What it is built around.
    pub kind: LaunchKind,
    /// Its nodes, in an order in which each reads only earlier ones.
    pub nodes: Vec<Value>,
    /// Values that it reads from the arena (each once).
    pub reads: Vec<Value>,
    /// Values that it leaves in the arena or in the step's result.
    pub writes: Vec<Value>,
}

/// Whether the f32 rows behind a contraction's quantized input stay until it has run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inputs {
    AsNeeded,
    Kept,
}

/// What `x` was quantized from; `x` itself if it was not.
fn float_input(graph: &Graph, x: Value) -> Value {
    match graph.node(x).map(|node| &node.op) {
        Some(Op::Quantize { x }) => *x,
        _ => x,
    }
}

/// A graph in launches.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The lowered graph; [`Launch::nodes`] index it.
    pub graph: Graph,
    /// Launches in execution order.
    pub launches: Vec<Launch>,
    /// Buffers of the arena.
    pub slots: Vec<Slot>,
    /// Slot of each value; `None` for values that never leave their launch, and for the logits.
    pub slot_of: Vec<Option<usize>>,
}

impl Plan {
    /// Plans `graph`.
    ///
    /// # Errors
    /// [`GraphError`] where the graph has no result or a node reads a later one.
    pub fn new(graph: &Graph, options: PlanOptions) -> Result<Self, GraphError> {
        Ok(Self::of_lowered(lower::lower(graph)?, options, Inputs::AsNeeded))
    }

    /// As [`Plan::new`], but the f32 rows that enter a contraction are in the arena while it runs (it lists them in
    /// [`Launch::reads`]), also where it reads them quantized, and every row is computed, wanted or not.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn observed(graph: &Graph, options: PlanOptions) -> Result<Self, GraphError> {
        Ok(Self::of_lowered(lower::lower_all_rows(graph)?, options, Inputs::Kept))
    }

    fn of_lowered(graph: Graph, options: PlanOptions, inputs: Inputs) -> Self {
        let launches = fuse::fuse(&graph, options, inputs);
        let (slots, slot_of) = slots::assign(&graph, &launches);
        Self { graph, launches, slots, slot_of }
    }

    /// The f32 rows that a contraction's input is or was made of.
    pub fn float_input(&self, x: Value) -> Value {
        float_input(&self.graph, x)
    }

    /// The op that makes `value`.
    pub fn op(&self, value: Value) -> Option<&Op> {
        self.graph.node(value).map(|node| &node.op)
    }
}

#[cfg(test)]
mod tests;
