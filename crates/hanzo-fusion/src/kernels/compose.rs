//! Row-wise groups of a plan as one kernel each, made of the ops' own bodies: a new pointwise op needs its `Op::body`, a line in
//! `Composer::body`, and no kernel.
//!
//! A workgroup has a row. A value that one op reads once is computed where it is read; one that is read again, that a norm sums up, or that leaves the
//! launch is computed once and kept, in its buffer or in workgroup memory. So no element is computed twice.

use std::collections::BTreeMap;

use thiserror::Error;

use super::math;
use super::pointwise::{activate, softcap};
use super::quantize::quantize_word;
use super::reduce::RowSum;
use crate::graph::{Body, Elem, Op, Value, Weight};
use crate::kernel::{Array, Builder, IntoVal, Kernel, KernelError, Val};
use crate::plan::{Launch, LaunchKind, Plan};

/// Invocations of a workgroup.
const WORKGROUP: u32 = 256;

/// What a buffer of a composed kernel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binding {
    /// Rows of a value, f32.
    Value(Value),
    /// Packed codes of a quantized value.
    Codes(Value),
    /// Its scales, one a group.
    Scales(Value),
    /// A vector of the model, as f32.
    Weight(Weight),
}

/// A launch as one kernel. Its grid is the rows of the launch.
#[derive(Clone, Debug)]
pub struct Composed {
    /// The kernel; it has no parameters.
    pub kernel: Kernel,
    /// One a buffer, in their order.
    pub bindings: Vec<Binding>,
}

/// Why a launch is not composed.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ComposeError {
    /// It is no row-wise group.
    #[error("the launch is built around an anchor")]
    Anchor,
    /// An op that no row of a workgroup can make.
    #[error("`{op}` is not made of row-wise bodies: {reason}")]
    Op {
        /// Its name.
        op: &'static str,
        /// Why, and what makes it instead.
        reason: &'static str,
    },
    /// An operand whose rows are not f32.
    #[error("`{op}` reads what is not f32")]
    Operand {
        /// The op that reads it.
        op: &'static str,
    },
    /// Its values have different numbers of rows, or a value is not of this plan.
    #[error("the launch's values have different rows")]
    Rows,
    /// The kernel cannot be: a row that workgroup memory does not hold, say.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// The kernel of a row-wise launch.
///
/// # Errors
/// [`ComposeError`].
pub fn compose(plan: &Plan, launch: &Launch, subgroup: u32) -> Result<Composed, ComposeError> {
    if !matches!(launch.kind, LaunchKind::Rows(_)) {
        return Err(ComposeError::Anchor);
    }
    group(plan, &launch.nodes, subgroup)
}

/// The kernel of some of a plan's nodes, in its order: a part of a row-wise launch, or what a contraction's epilogue is where contractions have
/// none. It reads what others made, and writes what others read.
///
/// # Errors
/// [`ComposeError`].
pub fn group(plan: &Plan, nodes: &[Value], subgroup: u32) -> Result<Composed, ComposeError> {
    let names: Vec<_> = nodes.iter().filter_map(|&v| plan.op(v)).map(Op::name).collect();
    let doc = format!(
        "{}. One workgroup a row. Order: the CPU's, 64 chains and a fixed tree for sums. Bound: bytes of what is read and written.",
        names.join(", ")
    );
    let k = Builder::new(&format!("rows_{}", names.join("_")), &doc, WORKGROUP, subgroup);
    let mut composer = Composer {
        k: &k,
        plan,
        nodes,
        writes: writes(plan, nodes),
        bindings: Vec::new(),
        places: BTreeMap::new(),
        weights: BTreeMap::new(),
        norms: BTreeMap::new(),
    };
    composer.run()?;
    let bindings = composer.bindings;
    Ok(Composed { kernel: k.finish()?, bindings })
}

/// What the nodes read that is not theirs, each once, in order.
fn reads(plan: &Plan, nodes: &[Value]) -> Vec<Value> {
    let mut reads = Vec::new();
    for op in nodes.iter().filter_map(|&v| plan.op(v)) {
        op.for_each_input(|input| {
            if !nodes.contains(&input) && !reads.contains(&input) {
                reads.push(input);
            }
        });
    }
    reads
}

/// What leaves the nodes: what their launches leave behind, and what others of these launches read.
fn writes(plan: &Plan, nodes: &[Value]) -> Vec<Value> {
    let mut wanted: Vec<Value> = plan.launches.iter().flat_map(|l| &l.writes).copied().collect();
    for (i, node) in plan.graph.nodes.iter().enumerate() {
        if !nodes.iter().any(|v| v.index() == i) {
            node.op.for_each_input(|input| wanted.push(input));
        }
    }
    nodes.iter().copied().filter(|v| wanted.contains(v)).collect()
}

/// Whether an op must see its row as a whole.
fn sums_up(op: &Op) -> bool {
    op.body() == Some(Body::Whole)
}

/// Element `i` from `first` on.
fn plus<'k>(first: Option<Val<'k, u32>>, i: Val<'k, u32>) -> Val<'k, u32> {
    first.map_or(i, |first| first + i)
}

/// Where a value that is kept lies.
#[derive(Clone, Copy)]
enum Place<'k> {
    Buffer(Array<'k, f32>),
    Shared(Array<'k, f32>),
}

struct Composer<'k, 'p> {
    k: &'k Builder,
    plan: &'p Plan,
    nodes: &'p [Value],
    /// Those that leave the kernel.
    writes: Vec<Value>,
    bindings: Vec<Binding>,
    places: BTreeMap<Value, Place<'k>>,
    weights: BTreeMap<usize, Array<'k, f32>>,
    /// What norms found.
    norms: BTreeMap<Value, Norm<'k>>,
}

/// What was found of a row, or of each of its groups.
#[derive(Clone, Copy)]
enum Found<'k> {
    Row(Val<'k, f32>),
    Groups { of: Array<'k, f32>, size: u32 },
}

impl<'k> Found<'k> {
    /// For element `i`.
    fn at(self, i: Val<'k, u32>) -> Val<'k, f32> {
        match self {
            Self::Row(v) => v,
            Self::Groups { of, size } => of.at(i / size),
        }
    }
}

/// Of a norm: what is taken off, and what the rest is multiplied by (of sums: divided by).
#[derive(Clone, Copy)]
struct Norm<'k> {
    mean: Option<Found<'k>>,
    factor: Found<'k>,
}

/// Why an op is not composed.
fn reason(op: &Op) -> &'static str {
    match op {
        Op::MatMul { .. } | Op::MoeMatMul { .. } | Op::Attention { .. } => "kernels are built around it",
        Op::Embed { .. } | Op::EmbedPosition { .. } => {
            "its rows are a table's, by ids or positions; `embed` and `gather` copy them"
        }
        Op::Rope { .. } => {
            "a head is rotated by its token's position, out of tables; `rope_norm_positions` does it, a head a workgroup"
        }
        Op::KvWrite { .. } => "it writes to the cache's blocks; `kv_write` does it",
        Op::TopK { .. } => "columns come in the order of their values; `moe_route` and `top_k` find them",
        Op::GatherCols { .. } => "it reads columns by ids; `moe_route` does it",
        Op::SelectOutputs { .. } => "its rows are others than its operand's; `gather` copies them",
        Op::CausalConv { .. } | Op::DeltaRule { .. } => {
            "it goes through its sequence's rows one after the other; no kernel does it yet"
        }
        _ => "it has no body, and no kernel does it yet",
    }
}

impl<'k> Composer<'k, '_> {
    fn run(&mut self) -> Result<(), ComposeError> {
        let reads = reads(self.plan, self.nodes);
        let first = self.nodes.first().and_then(|&v| self.plan.graph.node(v)).ok_or(ComposeError::Rows)?;
        for &v in self.nodes {
            let op = self.plan.op(v).ok_or(ComposeError::Rows)?;
            if op.body().is_none() {
                return Err(ComposeError::Op { op: op.name(), reason: reason(op) });
            }
        }
        for &v in self.nodes.iter().chain(&reads) {
            let node = self.plan.graph.node(v).ok_or(ComposeError::Rows)?;
            if node.shape.rows != first.shape.rows && !(reads.contains(&v) && self.only_combined(v)) {
                return Err(ComposeError::Rows);
            }
        }
        for v in reads {
            if self.plan.graph.node(v).is_none_or(|node| node.shape.elem != Elem::F32) {
                let reader = self.nodes.iter().filter_map(|&n| self.plan.op(n)).find(|op| {
                    let mut found = false;
                    op.for_each_input(|input| found |= input == v);
                    found
                });
                return Err(ComposeError::Operand { op: reader.map_or("?", Op::name) });
            }
            self.places.insert(v, Place::Buffer(self.k.input(&format!("value{}", v.index()))));
            self.bindings.push(Binding::Value(v));
        }
        let sums = self.nodes.iter().filter_map(|&v| self.plan.op(v)).any(sums_up);
        let sums = sums.then(|| RowSum::declare(self.k));
        for &v in self.nodes {
            match (self.plan.op(v), sums) {
                (Some(op), Some(sums)) if sums_up(op) => self.sums(v, op, &sums),
                _ => {}
            }
            self.node(v)?;
        }
        Ok(())
    }

    /// Whether the slots of `v` are only put together.
    fn only_combined(&self, v: Value) -> bool {
        let readers = self.nodes.iter().filter_map(|&n| self.plan.op(n)).filter(|op| {
            let mut found = false;
            op.for_each_input(|input| found |= input == v);
            found
        });
        readers
            .into_iter()
            .all(|op| matches!(op, Op::CombineSlots { x, weights } if *x == v && *weights != v))
    }

    /// What must be known of the whole row before an element of `v` can be made.
    fn sums(&mut self, v: Value, op: &Op, sums: &RowSum<'k>) {
        match *op {
            Op::RmsNorm { x, group, eps, .. } => {
                let factor = self.of_groups(v, "factor", group as u32, &|first| {
                    let squares = sums.fold(
                        group as u32,
                        0.0,
                        |acc, i| {
                            let x = self.value(x, plus(first, i));
                            x.fma(x, acc)
                        },
                        |a, b| a + b,
                    );
                    1.0 / (squares / group as f32 + eps).sqrt()
                });
                self.norms.insert(v, Norm { mean: None, factor });
            }
            Op::LayerNorm { x, group, eps, .. } => {
                let n = group as u32;
                let mean = self.of_groups(v, "mean", n, &|first| {
                    sums.sum(n, |i| self.value(x, plus(first, i))) / group as f32
                });
                let factor = self.of_groups(v, "factor", n, &|first| {
                    let squares = sums.fold(
                        n,
                        0.0,
                        |acc, i| {
                            let i = plus(first, i);
                            let d = self.value(x, i) - mean.at(i);
                            d.fma(d, acc)
                        },
                        |a, b| a + b,
                    );
                    1.0 / (squares / group as f32 + eps).sqrt()
                });
                self.norms.insert(v, Norm { mean: Some(mean), factor });
            }
            Op::NormalizeSum { x, floor } => {
                let sum = sums.sum(self.cols(v), |i| self.value(x, i));
                let factor = Found::Row(sum.gt(floor).select(sum, floor));
                self.norms.insert(v, Norm { mean: None, factor });
            }
            Op::Softmax { x } => self.softmax(v, x, sums),
            _ => {}
        }
    }

    fn node(&mut self, v: Value) -> Result<(), ComposeError> {
        let k = self.k;
        let cols = self.cols(v);
        match *self.plan.op(v).ok_or(ComposeError::Rows)? {
            Op::AddWeight { weight, .. } | Op::MulWeight { weight, .. } => self.bind(weight),
            Op::RmsNorm { weight, .. } => weight.into_iter().for_each(|w| self.bind(w)),
            Op::LayerNorm { weight, bias, .. } => {
                weight.into_iter().chain(bias).for_each(|w| self.bind(w));
            }
            // It lies where it was made.
            Op::Softmax { .. } => return Ok(()),
            Op::Quantize { x } => {
                self.quantize(v, x);
                return Ok(());
            }
            _ => {}
        }
        if let Some(place) = self.keep(v, cols) {
            let row = k.workgroup_id(0) * cols;
            k.each(cols, |i| match place {
                Place::Buffer(to) => to.set(row + i, self.body(v, i)),
                Place::Shared(to) => to.set(i, self.body(v, i)),
            });
            k.barrier();
            self.places.insert(v, place);
        }
        Ok(())
    }

    /// `find` of the first element of each group of a row (`None` is the row's): a value where there is one group, workgroup memory where there are more.
    fn of_groups(
        &self,
        v: Value,
        name: &str,
        group: u32,
        find: &dyn Fn(Option<Val<'k, u32>>) -> Val<'k, f32>,
    ) -> Found<'k> {
        let (k, n) = (self.k, self.cols(v) / group.max(1));
        if n == 1 {
            return Found::Row(find(None));
        }
        let of = k.shared::<f32>(&format!("{name}{}", v.index()), n);
        k.for_range(0, n, |g| {
            let found = find(Some(g * group));
            k.when(k.local_id().eq(0), || of.set(g, found));
        });
        k.barrier();
        Found::Groups { of, size: group }
    }

    /// Exponentials are kept, added up and divided where they lie, each by who made it.
    fn softmax(&mut self, v: Value, x: Value, sums: &RowSum<'k>) {
        let (k, cols) = (self.k, self.cols(v));
        let place = self.keep(v, cols).unwrap_or_else(|| Place::Shared(self.shared(v, cols)));
        let row = k.workgroup_id(0) * cols;
        let at = |i: Val<'k, u32>| match place {
            Place::Buffer(of) => of.at(row + i),
            Place::Shared(of) => of.at(i),
        };
        let set = |i: Val<'k, u32>, value: Val<'k, f32>| match place {
            Place::Buffer(of) => of.set(row + i, value),
            Place::Shared(of) => of.set(i, value),
        };
        let max = sums.max(cols, |i| self.value(x, i));
        k.each(cols, |i| set(i, math::exp(k, self.value(x, i) - max)));
        k.barrier();
        let sum = sums.sum(cols, at);
        k.each(cols, |i| set(i, at(i) / sum));
        k.barrier();
        self.places.insert(v, place);
    }

    fn shared(&self, v: Value, cols: u32) -> Array<'k, f32> {
        self.k.shared(&format!("kept{}", v.index()), cols)
    }

    /// Memory for a value that must not be computed again.
    fn keep(&mut self, v: Value, cols: u32) -> Option<Place<'k>> {
        if self.writes.contains(&v) {
            self.bindings.push(Binding::Value(v));
            return Some(Place::Buffer(self.k.inout(&format!("value{}", v.index()))));
        }
        let mut reads = 0;
        for op in self.nodes.iter().filter_map(|&user| self.plan.op(user)) {
            // A norm reads its operand to sum it up, and again to scale it; what is put together reads its weights for every column.
            let times = match op {
                op if sums_up(op) => 2,
                Op::CombineSlots { .. } => 2,
                _ => 1,
            };
            op.for_each_input(|input| reads += if input == v { times } else { 0 });
        }
        (reads > 1).then(|| Place::Shared(self.shared(v, cols)))
    }

    fn bind(&mut self, weight: Weight) {
        let at = weight.index();
        if !self.weights.contains_key(&at) {
            self.weights.insert(at, self.k.input(&format!("weight{at}")));
            self.bindings.push(Binding::Weight(weight));
        }
    }

    fn cols(&self, v: Value) -> u32 {
        self.plan.graph.node(v).map_or(0, |node| node.shape.cols as u32)
    }

    /// Element `i` of the row, read or computed.
    fn value(&self, v: Value, i: Val<'k, u32>) -> Val<'k, f32> {
        match self.places.get(&v) {
            Some(Place::Buffer(from)) => from.at(self.k.workgroup_id(0) * self.cols(v) + i),
            Some(Place::Shared(from)) => from.at(i),
            None => self.body(v, i),
        }
    }

    fn weighed(
        &self,
        weight: Option<Weight>,
        i: Val<'k, u32>,
        f: impl FnOnce(Val<'k, f32>) -> Val<'k, f32>,
        otherwise: Val<'k, f32>,
    ) -> Val<'k, f32> {
        match weight.and_then(|w| self.weights.get(&w.index())) {
            Some(w) => f(w.at(i)),
            None => otherwise,
        }
    }

    /// What an op does to one element.
    fn body(&self, v: Value, i: Val<'k, u32>) -> Val<'k, f32> {
        let k = self.k;
        let zero = || 0.0.val(k);
        let Some(op) = self.plan.op(v) else { return zero() };
        match *op {
            Op::Add { a, b } => self.value(a, i) + self.value(b, i),
            Op::Mul { a, b } => self.value(a, i) * self.value(b, i),
            Op::Scale { x, factor } => self.value(x, i) * factor,
            Op::Activate { x, f } => activate(k, f, self.value(x, i)),
            Op::Softcap { x, cap } => softcap(k, self.value(x, i), cap.val(k)),
            Op::AddWeight { x, weight } => {
                let x = self.value(x, i);
                self.weighed(Some(weight), i, |w| x + w, x)
            }
            Op::MulWeight { x, weight } => {
                let x = self.value(x, i);
                self.weighed(Some(weight), i, |w| x * w, x)
            }
            Op::RmsNorm { x, weight, group, .. } => {
                let x = self.normed(v, x, i);
                self.weighed(weight, self.column(v, i, group), |w| x * w, x)
            }
            Op::LayerNorm { x, weight, bias, group, .. } => {
                let (x, column) = (self.normed(v, x, i), self.column(v, i, group));
                let x = self.weighed(weight, column, |w| x * w, x);
                self.weighed(bias, column, |b| x + b, x)
            }
            Op::NormalizeSum { x, .. } => {
                let sum = self.norms.get(&v).map_or_else(zero, |n| n.factor.at(i));
                self.value(x, i) / sum
            }
            Op::SliceCols { x, group, start, len } if group as u32 != self.cols(x) => {
                let len = len as u32;
                self.value(x, i / len * group as u32 + (i % len + start as u32))
            }
            Op::SliceCols { x, start, .. } => self.value(x, i + start as u32),
            Op::CombineSlots { x, weights } => {
                let (cols, slots) = (self.cols(v), self.cols(weights));
                let Some(Place::Buffer(from)) = self.places.get(&x) else { return zero() };
                let first = k.workgroup_id(0) * slots;
                (0..slots).fold(zero(), |sum, j| {
                    self.value(weights, j.val(k)).fma(from.at((first + j) * cols + i), sum)
                })
            }
            _ => zero(),
        }
    }

    /// Of element `i`, its place in its group.
    fn column(&self, v: Value, i: Val<'k, u32>, group: usize) -> Val<'k, u32> {
        if group as u32 == self.cols(v) { i } else { i % group as u32 }
    }

    /// `(x − mean) · factor` of a norm.
    fn normed(&self, v: Value, x: Value, i: Val<'k, u32>) -> Val<'k, f32> {
        let x = self.value(x, i);
        let Some(norm) = self.norms.get(&v) else { return x };
        let x = norm.mean.map_or(x, |mean| x - mean.at(i));
        x * norm.factor.at(i)
    }

    fn quantize(&mut self, v: Value, x: Value) {
        let k = self.k;
        let (codes, scales) = (
            k.output::<u32>(&format!("value{}_codes", v.index())),
            k.output::<f32>(&format!("value{}_d", v.index())),
        );
        self.bindings.extend([Binding::Codes(v), Binding::Scales(v)]);
        let words = self.cols(x) / 4;
        let row = k.workgroup_id(0) * words;
        k.for_step(0, words, WORKGROUP, |w0| {
            let word = w0 + k.local_id();
            let inside = word.lt(words);
            // Lanes beyond the last group compute the last one again, so that all take part in the maximum.
            let from = inside.select(word, (word & 7) + (words.max(8) - 8)) * 4;
            let (packed, d) = quantize_word(std::array::from_fn(|e| self.value(x, from + e as u32)));
            k.when(inside, || {
                codes.set(row + word, packed);
                k.when((word & 7).eq(0), || scales.set((row + word) / 8, d));
            });
        });
    }
}
