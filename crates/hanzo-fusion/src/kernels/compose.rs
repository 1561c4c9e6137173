//! Row-wise groups of a plan as one kernel each, made of the ops' own bodies: a new pointwise op needs a line in [`Composer::body`], and no kernel.
//!
//! A workgroup has a row. A value that one op reads once is computed where it is read; one that is read again, that a norm sums up, or that leaves the
//! launch is computed once and kept, in its buffer or in workgroup memory. So no element is computed twice.

use std::collections::BTreeMap;

use thiserror::Error;

use super::pointwise::{activate, softcap};
use super::quantize::quantize_word;
use super::reduce::RowSum;
use crate::graph::{Elem, Op, Value, Weight};
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
    /// An op has a kernel of its own, or none.
    #[error("`{0}` is not made of row-wise bodies")]
    Op(&'static str),
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
    let names: Vec<_> = launch.nodes.iter().filter_map(|&v| plan.op(v)).map(Op::name).collect();
    let doc = format!(
        "{}. One workgroup a row. Order: the CPU's, 64 chains and a fixed tree for sums. Bound: bytes of what is read and written.",
        names.join(", ")
    );
    let k = Builder::new(&format!("rows_{}", names.join("_")), &doc, WORKGROUP, subgroup);
    let mut composer = Composer {
        k: &k,
        plan,
        launch,
        bindings: Vec::new(),
        places: BTreeMap::new(),
        weights: BTreeMap::new(),
        inverse: BTreeMap::new(),
    };
    composer.run()?;
    let bindings = composer.bindings;
    Ok(Composed { kernel: k.finish()?, bindings })
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
    launch: &'p Launch,
    bindings: Vec<Binding>,
    places: BTreeMap<Value, Place<'k>>,
    weights: BTreeMap<usize, Array<'k, f32>>,
    /// `1 / sqrt(mean + eps)` of norms.
    inverse: BTreeMap<Value, Val<'k, f32>>,
}

impl<'k> Composer<'k, '_> {
    fn run(&mut self) -> Result<(), ComposeError> {
        let first =
            self.launch.nodes.first().and_then(|&v| self.plan.graph.node(v)).ok_or(ComposeError::Rows)?;
        for &v in self.launch.nodes.iter().chain(&self.launch.reads) {
            let node = self.plan.graph.node(v).ok_or(ComposeError::Rows)?;
            if node.shape.rows != first.shape.rows {
                return Err(ComposeError::Rows);
            }
        }
        for &v in &self.launch.reads {
            if self.plan.graph.node(v).is_none_or(|node| node.shape.elem != Elem::F32) {
                return Err(ComposeError::Op(self.plan.op(v).map_or("?", Op::name)));
            }
            self.places.insert(v, Place::Buffer(self.k.input(&format!("value{}", v.index()))));
            self.bindings.push(Binding::Value(v));
        }
        let sums = RowSum::declare(self.k);
        for &v in &self.launch.nodes {
            self.node(v, &sums)?;
        }
        Ok(())
    }

    fn node(&mut self, v: Value, sums: &RowSum<'k>) -> Result<(), ComposeError> {
        let k = self.k;
        let op = self.plan.op(v).ok_or(ComposeError::Rows)?;
        let cols = self.cols(v);
        match *op {
            Op::Add { .. } | Op::Mul { .. } | Op::Scale { .. } | Op::Activate { .. } | Op::Softcap { .. } => {
            }
            Op::AddWeight { weight, .. } | Op::MulWeight { weight, .. } => self.bind(weight),
            Op::RmsNorm { x, weight, group, eps } if group as u32 == cols => {
                if let Some(weight) = weight {
                    self.bind(weight);
                }
                let squares = sums.fold(
                    cols,
                    0.0,
                    |acc, i| {
                        let x = self.value(x, i);
                        x.fma(x, acc)
                    },
                    |a, b| a + b,
                );
                self.inverse.insert(v, 1.0 / (squares / cols as f32 + eps).sqrt());
            }
            Op::Quantize { x } => {
                self.quantize(v, x);
                return Ok(());
            }
            ref op => return Err(ComposeError::Op(op.name())),
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

    /// Memory for a value that must not be computed again.
    fn keep(&mut self, v: Value, cols: u32) -> Option<Place<'k>> {
        if self.launch.writes.contains(&v) {
            self.bindings.push(Binding::Value(v));
            return Some(Place::Buffer(self.k.inout(&format!("value{}", v.index()))));
        }
        let mut reads = 0;
        for op in self.launch.nodes.iter().filter_map(|&user| self.plan.op(user)) {
            // A norm reads its operand to sum it up, and again to scale it.
            let times = if matches!(op, Op::RmsNorm { .. }) { 2 } else { 1 };
            op.for_each_input(|input| reads += if input == v { times } else { 0 });
        }
        (reads > 1).then(|| Place::Shared(self.k.shared(&format!("kept{}", v.index()), cols)))
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
            Op::RmsNorm { x, weight, .. } => {
                let inverse = self.inverse.get(&v).copied().unwrap_or_else(zero);
                let x = self.value(x, i) * inverse;
                self.weighed(weight, i, |w| x * w, x)
            }
            _ => zero(),
        }
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
