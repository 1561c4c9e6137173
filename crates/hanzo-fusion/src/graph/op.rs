//! The primitive ops.

use super::{Value, Weight};

/// Elementwise functions. All are evaluated by `hanzo_quant::math`, so their bits are the same everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// x · sigmoid(x).
    Silu,
    /// GELU, tanh form.
    GeluTanh,
    /// GELU, erf form.
    Gelu,
    /// max(x, 0).
    Relu,
    /// 1 / (1 + e^-x).
    Sigmoid,
    /// tanh(x).
    Tanh,
    /// ln(1 + e^x).
    Softplus,
}

/// Which elements of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopeStyle {
    /// `i` with `i + n_rot / 2` (NeoX, Hugging Face).
    Halves,
    /// `2i` with `2i + 1` (the original; GGUF's llama family has its rows permuted for it).
    Pairs,
}

/// A rotary embedding: the angle of pair `i` at position `p` is `p · inv_freq[i]` (evaluated in f64).
#[derive(Clone, Debug, PartialEq)]
pub struct RopeSpec {
    /// Pairing.
    pub style: RopeStyle,
    /// Inverse frequencies, one a rotated pair; twice their number of leading elements of a head are rotated.
    pub inv_freq: Vec<f64>,
    /// Multiplies sine and cosine (YaRN's attention factor; 1 otherwise).
    pub magnitude: f32,
}

/// Everything of an attention beside its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionSpec {
    /// Query heads.
    pub n_heads: usize,
    /// Multiplies q·k.
    pub scale: f32,
    /// `cap · tanh(x / cap)` on the scaled scores.
    pub softcap: Option<f32>,
    /// A logit a head, `[n_heads]`, that takes part in the softmax without a value (attention sinks).
    pub sinks: Option<Weight>,
}

impl AttentionSpec {
    /// Scores scaled by `1 / sqrt(dim)`, without cap or sinks.
    pub fn scaled(n_heads: usize, dim: usize) -> Self {
        Self { n_heads, scale: (1.0 / (dim as f64).sqrt()) as f32, softcap: None, sinks: None }
    }
}

/// Which key head a value head of a [`Op::DeltaRule`] goes with, where there are fewer of the former.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyHeads {
    /// Value heads that share a key head lie side by side.
    Grouped,
    /// Value head `h` goes with key head `h` modulo their number.
    Tiled,
}

/// The heads of a [`Op::DeltaRule`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeltaSpec {
    /// Heads of queries and keys.
    pub n_k_heads: usize,
    /// Heads of values; a multiple.
    pub n_v_heads: usize,
    /// Elements of a query or key.
    pub k_head_dim: usize,
    /// Elements of a value.
    pub v_head_dim: usize,
    /// Which go together.
    pub order: KeyHeads,
}

impl DeltaSpec {
    /// The key head of a value head.
    pub fn key_head(&self, v_head: usize) -> usize {
        match self.order {
            KeyHeads::Grouped => v_head / (self.n_v_heads / self.n_k_heads.max(1)).max(1),
            KeyHeads::Tiled => v_head % self.n_k_heads.max(1),
        }
    }
}

/// What one element of an op's result is made of, where it is made of the operands' same row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// The same element of each operand (of a quantization: its group's).
    Element,
    /// Other elements of the row, or its slots' rows.
    Others,
    /// The whole row or group, which is summed up first.
    Whole,
}

/// A primitive op. Shapes: `T` tokens, `O` outputs, `S = T·k` expert slots.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    /// Rows of `weight` by the step's token ids: `[T, n_in]`.
    Embed {
        /// `[vocab, n]`.
        weight: Weight,
    },
    /// Rows of `weight` by the tokens' positions: `[T, n_in]`.
    EmbedPosition {
        /// `[positions, n]`.
        weight: Weight,
    },
    /// `x · weightᵀ`: `[rows, n_in] → [rows, n_out]`.
    MatMul {
        /// Input; f32, or quantized where the weight has an integer view.
        x: Value,
        /// `[n_out, n_in]`.
        weight: Weight,
    },
    /// `x · weight[ids]ᵀ`, an expert a slot: → `[S, n_out]`.
    MoeMatMul {
        /// `[T, n_in]` (each token's row serves its `k` slots) or `[S, n_in]`.
        x: Value,
        /// `[experts, n_out, n_in]`.
        weight: Weight,
        /// `[T, k]` u32.
        ids: Value,
    },
    /// int8 activations of `x`. Inserted by the planner, once a value, never by models.
    Quantize {
        /// f32.
        x: Value,
    },
    /// `a + b`.
    Add {
        /// Left.
        a: Value,
        /// Right.
        b: Value,
    },
    /// `a · b`, elementwise.
    Mul {
        /// Left.
        a: Value,
        /// Right.
        b: Value,
    },
    /// `x + weight` on every row (a bias).
    AddWeight {
        /// Rows.
        x: Value,
        /// `[cols]`.
        weight: Weight,
    },
    /// `x · weight` on every row.
    MulWeight {
        /// Rows.
        x: Value,
        /// `[cols]`.
        weight: Weight,
    },
    /// `x · factor`.
    Scale {
        /// Rows.
        x: Value,
        /// Constant.
        factor: f32,
    },
    /// An elementwise function.
    Activate {
        /// Rows.
        x: Value,
        /// Which.
        f: Activation,
    },
    /// `cap · tanh(x / cap)`.
    Softcap {
        /// Rows.
        x: Value,
        /// The bound.
        cap: f32,
    },
    /// Each group of `group` columns `g`: `g / sqrt(mean(g²) + eps) · weight`. One group a row, or one a head.
    RmsNorm {
        /// Rows.
        x: Value,
        /// `[group]`.
        weight: Option<Weight>,
        /// Columns normalized together.
        group: usize,
        /// Added to the mean square.
        eps: f32,
    },
    /// Each group of columns `g`: `(g - mean) / sqrt(var + eps) · weight + bias`.
    LayerNorm {
        /// Rows.
        x: Value,
        /// `[group]`.
        weight: Option<Weight>,
        /// `[group]`.
        bias: Option<Weight>,
        /// Columns normalized together.
        group: usize,
        /// Added to the variance.
        eps: f32,
    },
    /// Rotates every head of `head_dim` columns by its token's position.
    Rope {
        /// `[T, heads · head_dim]`.
        x: Value,
        /// Elements of a head.
        head_dim: usize,
        /// Index into [`super::Graph::ropes`].
        table: usize,
    },
    /// Writes keys and values of the step's tokens to the cache. Its result is a token of order only, `[T, 0]`.
    KvWrite {
        /// `[T, n_kv_heads · k_head_dim]`.
        k: Value,
        /// `[T, n_kv_heads · v_head_dim]`.
        v: Value,
        /// Index into [`super::Graph::kv_layers`].
        kv: usize,
    },
    /// Attention of the step's tokens over the cache, causal unless [`super::Graph::bidirectional`]: → `[T, n_heads · v_head_dim]`.
    Attention {
        /// `[T, n_heads · k_head_dim]`.
        q: Value,
        /// The [`Op::KvWrite`] that must have happened.
        written: Value,
        /// Index into [`super::Graph::kv_layers`].
        kv: usize,
        /// Scale, cap, sinks.
        spec: AttentionSpec,
    },
    /// Each column filtered over its sequence's tokens, `w` taps: `out[t, c] = Σ_j weight[c, j] · x[t + 1 + j − w, c]`. Rows
    /// before the step's come from the sequence's state, which becomes the last `w − 1` rows of `x`, the oldest first; before
    /// the first token there are zeros.
    CausalConv {
        /// `[T, n]`.
        x: Value,
        /// `[n, w]`.
        weight: Weight,
        /// Index into [`super::Graph::states`].
        state: usize,
    },
    /// The gated delta rule, token by token: per value head, on its state `S`, `[k_head_dim, v_head_dim]` and zero at first,
    /// `S ← e^g · S`, `S ← S + k ⊗ (β · (v − Sᵀk))`, `out = Sᵀq`: → `[T, n_v_heads · v_head_dim]`.
    DeltaRule {
        /// `[T, n_k_heads · k_head_dim]`.
        q: Value,
        /// `[T, n_k_heads · k_head_dim]`.
        k: Value,
        /// `[T, n_v_heads · v_head_dim]`.
        v: Value,
        /// Logarithm of the decay, `[T, n_v_heads]`.
        g: Value,
        /// `[T, n_v_heads]`.
        beta: Value,
        /// Index into [`super::Graph::states`].
        state: usize,
        /// The heads.
        spec: DeltaSpec,
    },
    /// Softmax over the columns.
    Softmax {
        /// Rows.
        x: Value,
    },
    /// Columns of the `k` greatest elements, greatest first, the lower column first among equals: `[T, k]` u32.
    TopK {
        /// `[T, n]`.
        x: Value,
        /// How many.
        k: usize,
    },
    /// `x[row, ids[row, j]]`: `[T, k]`.
    GatherCols {
        /// `[T, n]`.
        x: Value,
        /// `[T, k]` u32.
        ids: Value,
    },
    /// Each row divided by the sum of its elements (of at least `floor`).
    NormalizeSum {
        /// Rows.
        x: Value,
        /// Least divisor.
        floor: f32,
    },
    /// `Σ_j weights[t, j] · x[t·k + j]`, `j` ascending: `[S, n] → [T, n]`.
    CombineSlots {
        /// `[S, n]`.
        x: Value,
        /// `[T, k]`.
        weights: Value,
    },
    /// Each of `by`'s columns times the group of `x`'s columns that it stands for: the `j`-th of as many equal ones.
    MulGroups {
        /// Rows.
        x: Value,
        /// Rows, of a divisor of the columns.
        by: Value,
    },
    /// Columns `start .. start + len` of each group of `group` columns.
    SliceCols {
        /// Rows.
        x: Value,
        /// Columns of a group.
        group: usize,
        /// First column.
        start: usize,
        /// Columns.
        len: usize,
    },
    /// Rows whose logits are wanted: `[T, n] → [O, n]`.
    SelectOutputs {
        /// `[T, n]`.
        x: Value,
    },
}

impl Op {
    /// Short name, as reports print it.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Embed { .. } => "embed",
            Op::EmbedPosition { .. } => "embed_position",
            Op::MatMul { .. } => "matmul",
            Op::MoeMatMul { .. } => "moe_matmul",
            Op::Quantize { .. } => "quantize",
            Op::Add { .. } => "add",
            Op::Mul { .. } => "mul",
            Op::AddWeight { .. } => "add_weight",
            Op::MulWeight { .. } => "mul_weight",
            Op::Scale { .. } => "scale",
            Op::Activate { f, .. } => match f {
                Activation::Silu => "silu",
                Activation::GeluTanh => "gelu_tanh",
                Activation::Gelu => "gelu",
                Activation::Relu => "relu",
                Activation::Sigmoid => "sigmoid",
                Activation::Tanh => "tanh",
                Activation::Softplus => "softplus",
            },
            Op::Softcap { .. } => "softcap",
            Op::RmsNorm { .. } => "rms_norm",
            Op::LayerNorm { .. } => "layer_norm",
            Op::Rope { .. } => "rope",
            Op::KvWrite { .. } => "kv_write",
            Op::Attention { .. } => "attention",
            Op::CausalConv { .. } => "causal_conv",
            Op::DeltaRule { .. } => "delta_rule",
            Op::Softmax { .. } => "softmax",
            Op::TopK { .. } => "top_k",
            Op::GatherCols { .. } => "gather_cols",
            Op::NormalizeSum { .. } => "normalize_sum",
            Op::CombineSlots { .. } => "combine_slots",
            Op::MulGroups { .. } => "mul_groups",
            Op::SliceCols { .. } => "slice_cols",
            Op::SelectOutputs { .. } => "select_outputs",
        }
    }

    /// What an element of the result is made of; `None` where kernels are built around the op, or it has one of its own. An op whose
    /// body is an [element](Body::Element)'s is fused into the contraction that makes its operand; kernels of row-wise launches, and of
    /// what follows a contraction, are composed of bodies of any kind ([`crate::kernels::compose`]).
    pub fn body(&self) -> Option<Body> {
        match self {
            Op::Quantize { .. }
            | Op::Add { .. }
            | Op::Mul { .. }
            | Op::AddWeight { .. }
            | Op::MulWeight { .. }
            | Op::Scale { .. }
            | Op::Activate { .. }
            | Op::Softcap { .. } => Some(Body::Element),
            Op::SliceCols { .. } | Op::CombineSlots { .. } => Some(Body::Others),
            Op::RmsNorm { .. } | Op::LayerNorm { .. } | Op::Softmax { .. } | Op::NormalizeSum { .. } => {
                Some(Body::Whole)
            }
            Op::Embed { .. }
            | Op::EmbedPosition { .. }
            | Op::MatMul { .. }
            | Op::MoeMatMul { .. }
            | Op::Rope { .. }
            | Op::KvWrite { .. }
            | Op::Attention { .. }
            | Op::CausalConv { .. }
            | Op::DeltaRule { .. }
            | Op::TopK { .. }
            | Op::GatherCols { .. }
            | Op::MulGroups { .. }
            | Op::SelectOutputs { .. } => None,
        }
    }

    /// Whether the op, as models emit it, can run on some of the tokens' rows: a row of the result is made of the same row of operands,
    /// all f32, and does not depend on whose it is.
    pub fn takes_any_rows(&self) -> bool {
        match self {
            Op::MatMul { .. }
            | Op::Add { .. }
            | Op::Mul { .. }
            | Op::MulGroups { .. }
            | Op::AddWeight { .. }
            | Op::MulWeight { .. }
            | Op::Scale { .. }
            | Op::Activate { .. }
            | Op::Softcap { .. }
            | Op::RmsNorm { .. }
            | Op::LayerNorm { .. }
            | Op::Softmax { .. }
            | Op::NormalizeSum { .. }
            | Op::SliceCols { .. } => true,
            // Rows of a table, or places in a sequence.
            Op::Embed { .. }
            | Op::EmbedPosition { .. }
            | Op::Rope { .. }
            | Op::KvWrite { .. }
            | Op::Attention { .. }
            | Op::CausalConv { .. }
            | Op::DeltaRule { .. } => false,
            // Rows of slots, which are a token's; columns by number; what planners insert, after rows are selected.
            Op::MoeMatMul { .. }
            | Op::CombineSlots { .. }
            | Op::TopK { .. }
            | Op::GatherCols { .. }
            | Op::Quantize { .. }
            | Op::SelectOutputs { .. } => false,
        }
    }

    /// Replaces every value that the op reads by `f` of it, in order.
    pub fn map_inputs(&mut self, mut f: impl FnMut(Value) -> Value) {
        match self {
            Op::Embed { .. } | Op::EmbedPosition { .. } => {}
            Op::MatMul { x, .. }
            | Op::Quantize { x }
            | Op::AddWeight { x, .. }
            | Op::MulWeight { x, .. }
            | Op::Scale { x, .. }
            | Op::Activate { x, .. }
            | Op::Softcap { x, .. }
            | Op::RmsNorm { x, .. }
            | Op::LayerNorm { x, .. }
            | Op::Rope { x, .. }
            | Op::CausalConv { x, .. }
            | Op::Softmax { x }
            | Op::TopK { x, .. }
            | Op::NormalizeSum { x, .. }
            | Op::SliceCols { x, .. }
            | Op::SelectOutputs { x } => *x = f(*x),
            Op::MoeMatMul { x, ids: y, .. }
            | Op::GatherCols { x, ids: y }
            | Op::Add { a: x, b: y }
            | Op::Mul { a: x, b: y }
            | Op::MulGroups { x, by: y }
            | Op::KvWrite { k: x, v: y, .. }
            | Op::Attention { q: x, written: y, .. }
            | Op::CombineSlots { x, weights: y } => {
                *x = f(*x);
                *y = f(*y);
            }
            Op::DeltaRule { q, k, v, g, beta, .. } => {
                for x in [q, k, v, g, beta] {
                    *x = f(*x);
                }
            }
        }
    }

    /// Calls `f` on every value that the op reads, in order.
    pub fn for_each_input(&self, mut f: impl FnMut(Value)) {
        match *self {
            Op::Embed { .. } | Op::EmbedPosition { .. } => {}
            Op::MatMul { x, .. }
            | Op::Quantize { x }
            | Op::AddWeight { x, .. }
            | Op::MulWeight { x, .. }
            | Op::Scale { x, .. }
            | Op::Activate { x, .. }
            | Op::Softcap { x, .. }
            | Op::RmsNorm { x, .. }
            | Op::LayerNorm { x, .. }
            | Op::Rope { x, .. }
            | Op::CausalConv { x, .. }
            | Op::Softmax { x }
            | Op::TopK { x, .. }
            | Op::NormalizeSum { x, .. }
            | Op::SliceCols { x, .. }
            | Op::SelectOutputs { x } => f(x),
            Op::MoeMatMul { x, ids, .. } | Op::GatherCols { x, ids } => {
                f(x);
                f(ids);
            }
            Op::DeltaRule { q, k, v, g, beta, .. } => [q, k, v, g, beta].into_iter().for_each(f),
            Op::Add { a, b } | Op::Mul { a, b } | Op::MulGroups { x: a, by: b } => {
                f(a);
                f(b);
            }
            Op::KvWrite { k, v, .. } => {
                f(k);
                f(v);
            }
            Op::Attention { q, written, .. } => {
                f(q);
                f(written);
            }
            Op::CombineSlots { x, weights } => {
                f(x);
                f(weights);
            }
        }
    }
}
