//! What a model computes: primitive ops on rows.
//!
//! Every value is a matrix `[rows, cols]` whose number of rows is symbolic (the step's tokens, the rows whose logits
//! are wanted, or the expert slots of the tokens) and whose columns are fixed. Heads lie side by side in the columns.
//! Models write primitives and anchors; which of them run together is the planner's business, so no model names a
//! fused kernel, and an op says nothing about how it is stored or split.

mod builder;
mod op;

pub use builder::Builder;
pub use op::{Activation, AttentionSpec, Body, DeltaSpec, KeyHeads, Op, RopeSpec, RopeStyle};

use hanzo_quant::QuantType;
use thiserror::Error;

use crate::step::{KvLayer, StateLayer};

/// How many rows a value has, in terms of the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// One a token of the step.
    Tokens,
    /// `k` a token: token `t`'s slots are rows `t * k ..`.
    Slots(usize),
    /// One a row of which something is wanted: those whose logits are, then those whose hidden states are.
    Outputs,
    /// One a row whose logits are wanted: the first rows of [`Rows::Outputs`].
    Logits,
}

/// What a value's elements are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Elem {
    /// f32.
    F32,
    /// u32 (expert ids).
    U32,
    /// int8 codes with scales and sums, in the form the device's contractions read.
    Quantized,
}

/// Type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Symbolic rows.
    pub rows: Rows,
    /// Columns.
    pub cols: usize,
    /// Elements.
    pub elem: Elem,
}

/// A node's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub(crate) u32);

impl Value {
    /// Index into [`Graph::nodes`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A weight of the model file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Weight(pub(crate) u32);

impl Weight {
    /// Index into [`Graph::weights`].
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A weight: its name in the file, its shape and its type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightDecl {
    /// Name in the file ("blk.0.attn_q.weight").
    pub name: String,
    /// Matrices stacked (1, or the number of experts).
    pub n_stack: usize,
    /// Rows of one matrix: outputs of the contraction (1 for a vector).
    pub n_out: usize,
    /// Columns: inputs of the contraction (a vector's length).
    pub n_in: usize,
    /// Block format of its bytes.
    pub ty: QuantType,
}

/// One op and its result's type.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Type of the result.
    pub shape: Shape,
    /// Layer that the node belongs to, for reports.
    pub layer: Option<u32>,
}

/// A whole model: nodes in execution order, each reading only earlier ones.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Nodes in execution order.
    pub nodes: Vec<Node>,
    /// Weights, each declared once.
    pub weights: Vec<WeightDecl>,
    /// Rotary tables.
    pub ropes: Vec<RopeSpec>,
    /// KV caches, one an attention layer.
    pub kv_layers: Vec<KvLayer>,
    /// What recurrent ops keep of each sequence, one entry an op.
    pub states: Vec<StateLayer>,
    /// The logits, `[Outputs, vocab]` (`[Logits, vocab]` in a plan).
    pub logits: Option<Value>,
    /// The final hidden states, which the output head reads: `[Outputs, n_embd]`. `None` where a model has none to give.
    pub hidden: Option<Value>,
    /// Whether every token sees its whole sequence. Such a sequence must be in one step.
    pub bidirectional: bool,
    /// Token ids below this are valid.
    pub vocab_size: usize,
}

impl Graph {
    /// The node that makes `value`.
    ///
    /// A [`Value`] comes from the builder of this graph, so the node exists; a foreign one gives `None`.
    pub fn node(&self, value: Value) -> Option<&Node> {
        self.nodes.get(value.index())
    }

    /// Elements of a final hidden state; 0 where the model has none to give.
    pub fn hidden_size(&self) -> usize {
        self.hidden.and_then(|v| self.node(v)).map_or(0, |node| node.shape.cols)
    }

    /// The weight of that name.
    pub fn weight(&self, name: &str) -> Option<Weight> {
        self.weights.iter().position(|w| w.name == name).map(|i| Weight(i as u32))
    }

    /// Bytes of one sequence's recurrent states; 0 where the model has none.
    pub fn state_bytes(&self) -> u64 {
        let elements = self.states.iter().map(|s| s.elements as u64).fold(0, u64::saturating_add);
        elements.saturating_mul(4)
    }

    /// Number of KV groups (block tables that a sequence needs).
    pub fn n_kv_groups(&self) -> usize {
        self.kv_layers.iter().map(|layer| layer.group + 1).max().unwrap_or(0)
    }
}

/// Faults of a graph: a model that contradicts itself. Built from a file's metadata, so they are input errors.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GraphError {
    /// Operand types do not fit an op.
    #[error("{op}: {reason}")]
    Shape {
        /// The op's name and layer.
        op: String,
        /// What does not fit.
        reason: String,
    },
    /// A model without logits and hidden states.
    #[error("the graph has no output")]
    NoOutput,
}
