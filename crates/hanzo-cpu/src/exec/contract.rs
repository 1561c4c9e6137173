//! Contraction launches: which matrices, and the elementwise program that takes their results segment by segment.

use hanzo_fusion::graph::{Elem, Graph, Op, Value, Weight};
use hanzo_fusion::{Launch, LaunchKind};

use super::adapters::Updates;
use super::run::Running;
use crate::CpuError;
use crate::contract::{Routes, Rows, matmul, matmul_pair, moe_matmul, moe_matmul_pair};
use crate::epilogue::{Epilogue, PairEpilogue, SEGMENT};
use crate::isa::Isa;
use crate::ops::elementwise::{Binary, Unary, binary_in_place, unary_in_place};
use crate::pool::Ctx;
use crate::simd::{Kernel, Simd, dispatch};

/// One result of a launch: one or two contractions, what is done to a segment of theirs, and where it goes.
#[derive(Clone, Debug)]
pub(super) struct Output {
    weights: Vec<Weight>,
    steps: Vec<StepOp>,
    result: Value,
    quantize: bool,
}

impl Output {
    /// The weights of its contractions.
    pub(super) fn weights(&self) -> &[Weight] {
        &self.weights
    }

    /// The weight of the first contraction.
    pub(super) fn first_weight(&self) -> Option<Weight> {
        self.weights.first().copied()
    }
}

/// An elementwise step on a segment; register 0 is the first contraction's, 1 the second's.
#[derive(Clone, Copy, Debug)]
enum StepOp {
    Unary(usize, Unary),
    /// With a vector of weights.
    Weight(usize, Binary, Weight),
    /// With a value that was made before.
    Value(usize, Binary, Value),
    /// Register 0 becomes 0 ∘ 1.
    Merge(Binary),
}

/// The results of a contraction launch.
pub(super) fn outputs(graph: &Graph, launch: &Launch) -> Vec<Output> {
    // Partial results, each with the value that it stands for.
    let mut open: Vec<(Value, Output)> = Vec::new();
    for &v in &launch.nodes {
        let op = &graph.nodes[v.index()].op;
        if let Op::MatMul { weight, .. } | Op::MoeMatMul { weight, .. } = *op {
            open.push((v, Output { weights: vec![weight], steps: Vec::new(), result: v, quantize: false }));
            continue;
        }
        let mut inside = Vec::new();
        let mut outside = None;
        op.for_each_input(|x| match open.iter().position(|(value, _)| *value == x) {
            Some(at) => inside.push(at),
            None => outside = Some(x),
        });
        inside.sort_unstable();
        inside.dedup();
        let binary =
            if matches!(op, Op::Add { .. } | Op::AddWeight { .. }) { Binary::Add } else { Binary::Mul };
        let Some(&first) = inside.first() else { continue };
        if let Some(&second) = inside.get(1) {
            // Steps on the second contraction keep their order, in register 1.
            let (_, other) = open.remove(second);
            let (value, output) = &mut open[first];
            let moved = other.steps.into_iter().map(|s| match s {
                StepOp::Unary(_, f) => StepOp::Unary(1, f),
                StepOp::Weight(_, b, w) => StepOp::Weight(1, b, w),
                StepOp::Value(_, b, v) => StepOp::Value(1, b, v),
                StepOp::Merge(b) => StepOp::Merge(b),
            });
            output.steps.extend(moved);
            output.weights.extend(other.weights);
            output.steps.push(StepOp::Merge(binary));
            (*value, output.result) = (v, v);
            continue;
        }
        let (value, output) = &mut open[first];
        match *op {
            Op::Add { .. } | Op::Mul { .. } => {
                if let Some(x) = outside {
                    output.steps.push(StepOp::Value(0, binary, x));
                }
            }
            Op::AddWeight { weight, .. } | Op::MulWeight { weight, .. } => {
                output.steps.push(StepOp::Weight(0, binary, weight));
            }
            Op::Scale { factor, .. } => output.steps.push(StepOp::Unary(0, Unary::Scale(factor))),
            Op::Activate { f, .. } => output.steps.push(StepOp::Unary(0, Unary::Activate(f))),
            Op::Softcap { cap, .. } => output.steps.push(StepOp::Unary(0, Unary::Softcap(cap))),
            Op::Quantize { .. } => output.quantize = true,
            _ => {}
        }
        (*value, output.result) = (v, v);
    }
    open.into_iter().map(|(_, output)| output).collect()
}

/// Runs a contraction launch on all threads.
///
/// # Safety
/// All threads of the run call it together, with a barrier before and after.
pub(super) unsafe fn run(
    ctx: &Ctx<'_>,
    r: &Running<'_>,
    launch: &Launch,
    outputs: &[Output],
    updates: Option<&Updates<'_>>,
    routes: &Routes,
) -> Result<(), CpuError> {
    let LaunchKind::Contract { x, ids, .. } = launch.kind else { return Ok(()) };
    let shape = r.view.graph.nodes[x.index()].shape;
    let rows = match shape.elem {
        Elem::Quantized => Rows::Quantized(r.view.quantized(x)),
        // SAFETY: made by an earlier launch.
        _ => Rows::Float { data: unsafe { r.view.all(x) }, stride: shape.cols },
    };
    // Rows of results to a row of the input.
    let x_div =
        ids.map(|ids| if r.view.value_rows(x) == r.view.counts.tokens { r.view.cols(ids) } else { 1 });
    for output in outputs {
        let finish = Finisher { r, isa: ctx.isa(), output, updates };
        // Logits are wanted of the first rows only.
        let m = r.view.value_rows(output.result);
        let matrix = |i: usize| output.weights.get(i).and_then(|w| r.weight(*w).matrix());
        match (matrix(0), matrix(1), x_div) {
            (Some(w), None, None) => matmul(ctx, w, rows, m, &finish)?,
            (Some(w), Some(up), None) => matmul_pair(ctx, w, up, rows, m, &finish)?,
            (Some(w), None, Some(div)) => moe_matmul(ctx, w, rows, div, routes, &finish)?,
            (Some(w), Some(up), Some(div)) => moe_matmul_pair(ctx, w, up, rows, div, routes, &finish)?,
            (None, ..) => return Err(CpuError::Operands("a contraction without its matrix".to_owned())),
        }
    }
    Ok(())
}

/// Takes segments of a launch's contractions.
struct Finisher<'a> {
    r: &'a Running<'a>,
    isa: Isa,
    output: &'a Output,
    updates: Option<&'a Updates<'a>>,
}

impl Finisher<'_> {
    /// # Safety
    /// As [`Epilogue::finish`].
    unsafe fn take(&self, m: usize, n0: usize, y: &mut [f32], up: &mut [f32]) {
        let (view, result) = (&self.r.view, self.output.result);
        if let Some(updates) = self.updates {
            for (&weight, y) in self.output.weights.iter().zip([&mut *y, &mut *up]) {
                // SAFETY: the launch's projections were made before its contractions.
                unsafe { updates.add(self.r, self.isa, weight, m, n0, y) };
            }
        }
        if !self.output.steps.is_empty() {
            dispatch(self.isa, Segment { f: self, m, n0, y: [&mut *y, up] });
        }
        // SAFETY: segments are disjoint, and each is handed out once.
        unsafe {
            if self.output.quantize {
                view.quantized(result).quantize_group_shared(self.isa, m, n0 / SEGMENT, y);
            } else {
                let (p, n) = view.words(result, m, 1);
                if n0 + y.len() <= n {
                    let out = std::slice::from_raw_parts_mut(p.add(n0), y.len());
                    // The known length of a whole segment makes this a few vector moves.
                    match (out.first_chunk_mut::<SEGMENT>(), y.first_chunk::<SEGMENT>()) {
                        (Some(out), Some(y)) => *out = *y,
                        _ => out.copy_from_slice(y),
                    }
                }
            }
        }
    }
}

impl Finisher<'_> {
    fn fetch(&self, m: usize, n0: usize) {
        let view = &self.r.view;
        if !self.output.quantize {
            view.prefetch(self.output.result, m, n0);
        }
        for step in &self.output.steps {
            if let StepOp::Value(_, _, v) = *step {
                view.prefetch(v, m, n0);
            }
        }
    }
}

impl Epilogue for Finisher<'_> {
    #[inline]
    unsafe fn finish(&self, m: usize, n0: usize, y: &mut [f32]) {
        // SAFETY: passed through.
        unsafe { self.take(m, n0, y, &mut []) }
    }

    fn prefetch(&self, m: usize, n0: usize) {
        self.fetch(m, n0);
    }
}

impl PairEpilogue for Finisher<'_> {
    #[inline]
    unsafe fn finish(&self, m: usize, n0: usize, gate: &mut [f32], up: &mut [f32]) {
        // SAFETY: passed through.
        unsafe { self.take(m, n0, gate, up) }
    }

    fn prefetch(&self, m: usize, n0: usize) {
        self.fetch(m, n0);
    }
}

struct Segment<'a, 'b> {
    f: &'a Finisher<'a>,
    m: usize,
    n0: usize,
    y: [&'b mut [f32]; 2],
}

impl Kernel for Segment<'_, '_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Segment { f, m, n0, y: [y, up] } = self;
        for step in &f.output.steps {
            match *step {
                StepOp::Unary(0, op) => unary_in_place(s, op, y),
                StepOp::Unary(_, op) => unary_in_place(s, op, up),
                StepOp::Merge(op) => binary_in_place(s, op, y, up),
                StepOp::Weight(at, op, w) => {
                    let (y, weight) =
                        (if at == 0 { &mut *y } else { &mut *up }, f.r.weight(w).vector().unwrap_or(&[]));
                    binary_in_place(s, op, y, weight.get(n0..n0 + y.len()).unwrap_or(&[]));
                }
                StepOp::Value(at, op, v) => {
                    let y = if at == 0 { &mut *y } else { &mut *up };
                    let (p, n) = f.r.view.words(v, m, 1);
                    if n0 + y.len() <= n {
                        // SAFETY: in bounds; made by an earlier launch.
                        binary_in_place(s, op, y, unsafe { std::slice::from_raw_parts(p.add(n0), y.len()) });
                    }
                }
            }
        }
    }
}
