//! Builds a [`Graph`], checking every shape.
//!
//! Calls chain like arithmetic, so they return plain [`Value`]s; the first fault is kept and reported by
//! [`Builder::finish`], and later calls work on a placeholder.

use hanzo_quant::QuantType;

use super::{
    Activation, AttentionSpec, DeltaSpec, Elem, Graph, GraphError, Node, Op, RopeSpec, Rows, Shape, Value,
    Weight, WeightDecl,
};
use crate::step::{KvLayer, StateLayer};

/// Builds a graph; see the module's doc.
#[derive(Debug, Default)]
pub struct Builder {
    graph: Graph,
    layer: Option<u32>,
    fault: Option<GraphError>,
}

impl Builder {
    /// An empty graph for a model of `vocab_size` tokens.
    pub fn new(vocab_size: usize) -> Self {
        Self { graph: Graph { vocab_size, ..Graph::default() }, layer: None, fault: None }
    }

    /// Nodes added from now on belong to `layer`.
    pub fn set_layer(&mut self, layer: Option<u32>) {
        self.layer = layer;
    }

    /// Declares a matrix `[n_out, n_in]`. Declaring a name again returns the same weight (tied embeddings).
    pub fn matrix(&mut self, name: &str, n_out: usize, n_in: usize, ty: QuantType) -> Weight {
        self.weight(WeightDecl { name: name.to_owned(), n_stack: 1, n_out, n_in, ty })
    }

    /// Declares a vector `[n]`.
    pub fn vector(&mut self, name: &str, n: usize, ty: QuantType) -> Weight {
        self.weight(WeightDecl { name: name.to_owned(), n_stack: 1, n_out: 1, n_in: n, ty })
    }

    /// Declares the matrices of `n_experts` experts, `[n_experts, n_out, n_in]`.
    pub fn experts(
        &mut self,
        name: &str,
        n_experts: usize,
        n_out: usize,
        n_in: usize,
        ty: QuantType,
    ) -> Weight {
        self.weight(WeightDecl { name: name.to_owned(), n_stack: n_experts, n_out, n_in, ty })
    }

    fn weight(&mut self, decl: WeightDecl) -> Weight {
        if let Some(i) = self.graph.weights.iter().position(|w| w.name == decl.name) {
            if self.graph.weights.get(i) != Some(&decl) {
                self.fail("weight", format!("`{}` declared twice with different shapes", decl.name));
            }
            return Weight(i as u32);
        }
        self.graph.weights.push(decl);
        Weight((self.graph.weights.len() - 1) as u32)
    }

    /// Declares a rotary table, once for equal ones.
    pub fn rope_table(&mut self, spec: RopeSpec) -> usize {
        if let Some(i) = self.graph.ropes.iter().position(|r| *r == spec) {
            return i;
        }
        self.graph.ropes.push(spec);
        self.graph.ropes.len() - 1
    }

    /// Declares an attention layer's cache.
    pub fn kv_layer(&mut self, layer: KvLayer) -> usize {
        self.graph.kv_layers.push(layer);
        self.graph.kv_layers.len() - 1
    }

    /// Embeddings of the step's tokens.
    pub fn embed(&mut self, weight: Weight) -> Value {
        let w = self.decl(weight);
        if w.n_out != self.graph.vocab_size {
            self.fail("embed", format!("{} rows for a vocabulary of {}", w.n_out, self.graph.vocab_size));
        }
        self.push(Op::Embed { weight }, Rows::Tokens, w.n_in)
    }

    /// Learned embeddings of the tokens' positions.
    pub fn embed_position(&mut self, weight: Weight) -> Value {
        let w = self.decl(weight);
        self.push(Op::EmbedPosition { weight }, Rows::Tokens, w.n_in)
    }

    /// Every token sees its whole sequence, also what comes after it.
    pub fn set_bidirectional(&mut self) {
        self.graph.bidirectional = true;
    }

    /// `x · weightᵀ`.
    pub fn matmul(&mut self, x: Value, weight: Weight) -> Value {
        let (s, w) = (self.f32(x, "matmul"), self.decl(weight));
        if s.cols != w.n_in || w.n_stack != 1 {
            self.fail(
                "matmul",
                format!("[rows, {}] by `{}` {:?}", s.cols, w.name, (w.n_stack, w.n_out, w.n_in)),
            );
        }
        self.push(Op::MatMul { x, weight }, s.rows, w.n_out)
    }

    /// `x · weight[ids]ᵀ`; `x` has a row a token or a row a slot.
    pub fn moe_matmul(&mut self, x: Value, weight: Weight, ids: Value) -> Value {
        let (s, w, i) = (self.f32(x, "moe_matmul"), self.decl(weight), self.shape(ids));
        let k = i.cols;
        let rows_fit = s.rows == Rows::Tokens || s.rows == Rows::Slots(k);
        if s.cols != w.n_in || i.elem != Elem::U32 || i.rows != Rows::Tokens || !rows_fit || k > w.n_stack {
            self.fail("moe_matmul", format!("{s:?} by `{}` ({} experts), ids {i:?}", w.name, w.n_stack));
        }
        self.push(Op::MoeMatMul { x, weight, ids }, Rows::Slots(k), w.n_out)
    }

    /// `a + b`.
    pub fn add(&mut self, a: Value, b: Value) -> Value {
        let s = self.same(a, b, "add");
        self.push(Op::Add { a, b }, s.rows, s.cols)
    }

    /// `a · b`.
    pub fn mul(&mut self, a: Value, b: Value) -> Value {
        let s = self.same(a, b, "mul");
        self.push(Op::Mul { a, b }, s.rows, s.cols)
    }

    /// `x + weight` on every row.
    pub fn add_weight(&mut self, x: Value, weight: Weight) -> Value {
        let s = self.with_vector(x, weight, "add_weight");
        self.push(Op::AddWeight { x, weight }, s.rows, s.cols)
    }

    /// `x · weight` on every row.
    pub fn mul_weight(&mut self, x: Value, weight: Weight) -> Value {
        let s = self.with_vector(x, weight, "mul_weight");
        self.push(Op::MulWeight { x, weight }, s.rows, s.cols)
    }

    /// `x · factor`; `x` itself when the factor is 1.
    pub fn scale(&mut self, x: Value, factor: f32) -> Value {
        if factor == 1.0 {
            return x;
        }
        let s = self.f32(x, "scale");
        self.push(Op::Scale { x, factor }, s.rows, s.cols)
    }

    /// An elementwise function.
    pub fn activate(&mut self, x: Value, f: Activation) -> Value {
        let s = self.f32(x, "activate");
        self.push(Op::Activate { x, f }, s.rows, s.cols)
    }

    /// `x · sigmoid(x)`.
    pub fn silu(&mut self, x: Value) -> Value {
        self.activate(x, Activation::Silu)
    }

    /// GELU, tanh form.
    pub fn gelu_tanh(&mut self, x: Value) -> Value {
        self.activate(x, Activation::GeluTanh)
    }

    /// `cap · tanh(x / cap)`.
    pub fn softcap(&mut self, x: Value, cap: f32) -> Value {
        let s = self.f32(x, "softcap");
        self.push(Op::Softcap { x, cap }, s.rows, s.cols)
    }

    /// RMS norm of every row, by a weight as long as the row.
    pub fn rms_norm(&mut self, x: Value, weight: Weight, eps: f32) -> Value {
        let group = self.shape(x).cols;
        self.rms_norm_groups(x, Some(weight), group, eps)
    }

    /// RMS norm of every head, by a weight as long as a head.
    pub fn rms_norm_heads(&mut self, x: Value, weight: Weight, eps: f32) -> Value {
        let group = self.decl(weight).n_in;
        self.rms_norm_groups(x, Some(weight), group, eps)
    }

    /// RMS norm of groups of `group` columns.
    pub fn rms_norm_groups(&mut self, x: Value, weight: Option<Weight>, group: usize, eps: f32) -> Value {
        let s = self.f32(x, "rms_norm");
        let fits = weight.is_none_or(|w| self.decl(w).n_in == group && self.decl(w).n_out == 1);
        if group == 0 || !s.cols.is_multiple_of(group) || !fits {
            self.fail("rms_norm", format!("groups of {group} in {} columns", s.cols));
        }
        self.push(Op::RmsNorm { x, weight, group, eps }, s.rows, s.cols)
    }

    /// Layer norm of every row.
    pub fn layer_norm(&mut self, x: Value, weight: Option<Weight>, bias: Option<Weight>, eps: f32) -> Value {
        let s = self.f32(x, "layer_norm");
        for w in [weight, bias].into_iter().flatten() {
            self.with_vector(x, w, "layer_norm");
        }
        self.push(Op::LayerNorm { x, weight, bias, group: s.cols, eps }, s.rows, s.cols)
    }

    /// Rotates every head by its token's position.
    pub fn rope(&mut self, x: Value, head_dim: usize, table: usize) -> Value {
        let s = self.f32(x, "rope");
        let rotated = self.graph.ropes.get(table).map(|r| r.inv_freq.len() * 2);
        if head_dim == 0 || !s.cols.is_multiple_of(head_dim) || rotated.is_none_or(|n| n > head_dim) {
            self.fail("rope", format!("heads of {head_dim} in {} columns, {rotated:?} rotated", s.cols));
        }
        if s.rows != Rows::Tokens {
            self.fail("rope", "rows are not tokens".to_owned());
        }
        self.push(Op::Rope { x, head_dim, table }, s.rows, s.cols)
    }

    /// Caches `k` and `v`, then attends: → `[T, n_heads · v_head_dim]`.
    pub fn attention(&mut self, q: Value, k: Value, v: Value, kv: usize, spec: AttentionSpec) -> Value {
        let (qs, ks, vs) = (self.f32(q, "attention"), self.f32(k, "attention"), self.f32(v, "attention"));
        let Some(layer) = self.graph.kv_layers.get(kv).copied() else {
            self.fail("attention", format!("no KV layer {kv}"));
            return q;
        };
        let fits = qs.cols == spec.n_heads.saturating_mul(layer.k_head_dim)
            && ks.cols == layer.n_kv_heads.saturating_mul(layer.k_head_dim)
            && vs.cols == layer.n_kv_heads.saturating_mul(layer.v_head_dim)
            && layer.n_kv_heads > 0
            && spec.n_heads.is_multiple_of(layer.n_kv_heads)
            && [qs, ks, vs].iter().all(|s| s.rows == Rows::Tokens);
        if !fits {
            self.fail(
                "attention",
                format!("q {qs:?}, k {ks:?}, v {vs:?}, {layer:?}, {} heads", spec.n_heads),
            );
        }
        if let Some(sinks) = spec.sinks
            && self.decl(sinks).n_in != spec.n_heads
        {
            self.fail("attention", "one sink a head is needed".to_owned());
        }
        let written = self.push(Op::KvWrite { k, v, kv }, Rows::Tokens, 0);
        self.push(Op::Attention { q, written, kv, spec }, Rows::Tokens, spec.n_heads * layer.v_head_dim)
    }

    /// Each column filtered over its sequence's tokens by a row of `weight`.
    pub fn causal_conv(&mut self, x: Value, weight: Weight) -> Value {
        let (s, w) = (self.f32(x, "causal_conv"), self.decl(weight));
        if s.rows != Rows::Tokens || w.n_out != s.cols || w.n_in == 0 || w.n_stack != 1 {
            self.fail("causal_conv", format!("{s:?} by `{}` [{}, {}]", w.name, w.n_out, w.n_in));
        }
        let state = self.state(w.n_in.saturating_sub(1).checked_mul(s.cols), "causal_conv");
        self.push(Op::CausalConv { x, weight, state }, s.rows, s.cols)
    }

    /// The gated delta rule; see [`Op::DeltaRule`].
    pub fn delta_rule(&mut self, [q, k, v]: [Value; 3], [g, beta]: [Value; 2], spec: DeltaSpec) -> Value {
        let shapes = [q, k, v, g, beta].map(|x| self.f32(x, "delta_rule"));
        let keys = spec.n_k_heads.checked_mul(spec.k_head_dim);
        let values = spec.n_v_heads.checked_mul(spec.v_head_dim);
        let wanted = [keys, keys, values, Some(spec.n_v_heads), Some(spec.n_v_heads)];
        let fits = shapes.iter().zip(wanted).all(|(s, cols)| s.rows == Rows::Tokens && Some(s.cols) == cols)
            && keys.zip(values).is_some_and(|(k, v)| k > 0 && v > 0)
            && spec.n_v_heads.is_multiple_of(spec.n_k_heads.max(1));
        if !fits {
            self.fail("delta_rule", format!("{shapes:?} for {spec:?}"));
        }
        let state = self.state(values.and_then(|v| v.checked_mul(spec.k_head_dim)), "delta_rule");
        self.push(Op::DeltaRule { q, k, v, g, beta, state, spec }, Rows::Tokens, values.unwrap_or(0))
    }

    /// Declares what a recurrent op keeps of a sequence.
    fn state(&mut self, elements: Option<usize>, op: &str) -> usize {
        if elements.is_none() {
            self.fail(op, "its state is too large".to_owned());
        }
        self.graph.states.push(StateLayer { elements: elements.unwrap_or(0) });
        self.graph.states.len() - 1
    }

    /// Softmax over the columns.
    pub fn softmax(&mut self, x: Value) -> Value {
        let s = self.f32(x, "softmax");
        self.push(Op::Softmax { x }, s.rows, s.cols)
    }

    /// Columns of the `k` greatest elements.
    pub fn top_k(&mut self, x: Value, k: usize) -> Value {
        let s = self.f32(x, "top_k");
        if k == 0 || k > s.cols || s.rows != Rows::Tokens {
            self.fail("top_k", format!("{k} of {} columns", s.cols));
        }
        self.push_elem(Op::TopK { x, k }, Shape { rows: s.rows, cols: k, elem: Elem::U32 })
    }

    /// `x[row, ids[row, j]]`.
    pub fn gather_cols(&mut self, x: Value, ids: Value) -> Value {
        let (s, i) = (self.f32(x, "gather_cols"), self.shape(ids));
        if i.elem != Elem::U32 || i.rows != s.rows {
            self.fail("gather_cols", format!("ids {i:?} for {s:?}"));
        }
        self.push(Op::GatherCols { x, ids }, s.rows, i.cols)
    }

    /// Rows divided by their sums.
    pub fn normalize_sum(&mut self, x: Value, floor: f32) -> Value {
        let s = self.f32(x, "normalize_sum");
        self.push(Op::NormalizeSum { x, floor }, s.rows, s.cols)
    }

    /// Weighted sum of a token's slots.
    pub fn combine_slots(&mut self, x: Value, weights: Value) -> Value {
        let (s, w) = (self.f32(x, "combine_slots"), self.f32(weights, "combine_slots"));
        if s.rows != Rows::Slots(w.cols) || w.rows != Rows::Tokens {
            self.fail("combine_slots", format!("{s:?} by {w:?}"));
        }
        self.push(Op::CombineSlots { x, weights }, Rows::Tokens, s.cols)
    }

    /// Some of the columns.
    pub fn slice_cols(&mut self, x: Value, start: usize, len: usize) -> Value {
        let group = self.shape(x).cols;
        self.slice_groups(x, group, start, len)
    }

    /// Some of the columns of each group of `group` columns.
    pub fn slice_groups(&mut self, x: Value, group: usize, start: usize, len: usize) -> Value {
        let s = self.f32(x, "slice_cols");
        let fits = group > 0 && s.cols.is_multiple_of(group);
        if !fits || start.checked_add(len).is_none_or(|end| end > group) {
            self.fail("slice_cols", format!("{start}..+{len} of {group} of {}", s.cols));
        }
        let groups = s.cols / group.max(1);
        self.push(Op::SliceCols { x, group, start, len }, s.rows, groups.saturating_mul(len))
    }

    /// Groups of columns, each times a column of `by`.
    pub fn mul_groups(&mut self, x: Value, by: Value) -> Value {
        let (s, b) = (self.f32(x, "mul_groups"), self.f32(by, "mul_groups"));
        if s.rows != b.rows || b.cols == 0 || !s.cols.is_multiple_of(b.cols) {
            self.fail("mul_groups", format!("{s:?} by {b:?}"));
        }
        self.push(Op::MulGroups { x, by }, s.rows, s.cols)
    }

    /// Rows whose logits are wanted.
    pub fn select_outputs(&mut self, x: Value) -> Value {
        let s = self.f32(x, "select_outputs");
        if s.rows != Rows::Tokens {
            self.fail("select_outputs", "rows are not tokens".to_owned());
        }
        self.push(Op::SelectOutputs { x }, Rows::Outputs, s.cols)
    }

    /// Notes `x` as the final hidden states: what the output head reads, and what embeddings are made of.
    pub fn set_hidden(&mut self, x: Value) {
        let s = self.f32(x, "hidden");
        if s.rows != Rows::Outputs {
            self.fail("hidden", format!("{s:?}: rows are not outputs"));
        }
        self.graph.hidden = Some(x);
    }

    /// The finished graph with `logits` as its result; with hidden states only, where it is given the value that was noted
    /// as these.
    ///
    /// # Errors
    /// The first fault met while building.
    pub fn finish(mut self, logits: Value) -> Result<Graph, GraphError> {
        if self.graph.hidden == Some(logits) {
            return self.fault.map_or(Ok(self.graph), Err);
        }
        let s = self.f32(logits, "logits");
        if s.rows != Rows::Outputs || s.cols != self.graph.vocab_size {
            self.fail("logits", format!("{s:?} for a vocabulary of {}", self.graph.vocab_size));
        }
        self.graph.logits = Some(logits);
        match self.fault {
            Some(fault) => Err(fault),
            None => Ok(self.graph),
        }
    }

    /// Type of a value (of a placeholder when it is foreign).
    pub fn shape(&self, value: Value) -> Shape {
        self.graph.node(value).map_or(Shape { rows: Rows::Tokens, cols: 0, elem: Elem::F32 }, |n| n.shape)
    }

    fn f32(&mut self, value: Value, op: &str) -> Shape {
        let s = self.shape(value);
        if s.elem != Elem::F32 {
            self.fail(op, format!("an f32 operand is needed, not {:?}", s.elem));
        }
        s
    }

    fn decl(&self, weight: Weight) -> WeightDecl {
        self.graph.weights.get(weight.index()).cloned().unwrap_or(WeightDecl {
            name: String::new(),
            n_stack: 0,
            n_out: 0,
            n_in: 0,
            ty: QuantType::F32,
        })
    }

    fn same(&mut self, a: Value, b: Value, op: &str) -> Shape {
        let (sa, sb) = (self.f32(a, op), self.f32(b, op));
        if sa != sb {
            self.fail(op, format!("{sa:?} and {sb:?} differ"));
        }
        sa
    }

    fn with_vector(&mut self, x: Value, weight: Weight, op: &str) -> Shape {
        let (s, w) = (self.f32(x, op), self.decl(weight));
        if w.n_in != s.cols || w.n_out != 1 || w.n_stack != 1 {
            self.fail(op, format!("`{}` has {} elements for {} columns", w.name, w.n_in, s.cols));
        }
        s
    }

    fn push(&mut self, op: Op, rows: Rows, cols: usize) -> Value {
        self.push_elem(op, Shape { rows, cols, elem: Elem::F32 })
    }

    fn push_elem(&mut self, op: Op, shape: Shape) -> Value {
        self.graph.nodes.push(Node { op, shape, layer: self.layer });
        Value((self.graph.nodes.len() - 1) as u32)
    }

    fn fail(&mut self, op: &str, reason: String) {
        if self.fault.is_none() {
            let op = self.layer.map_or_else(|| op.to_owned(), |l| format!("{op} in layer {l}"));
            self.fault = Some(GraphError::Shape { op, reason });
        }
    }
}
