//! Row-wise launches: every op of the launch on a strip of rows, then the next strip.

use hanzo_fusion::graph::{Op, Value, Weight};
use hanzo_fusion::{BLOCK_TOKENS, Domain, Launch, LaunchKind};

use super::arena::{Strip, View, as_ids, as_ids_mut, rows_a_row};
use super::run::Running;
use crate::isa::Isa;
use crate::ops::elementwise::{Binary, Unary, binary, unary};
use crate::ops::norm::{LayerNorm, RmsNorm, combine, layer_norm, normalize_sum, rms_norm, softmax};
use crate::ops::{rope, route};
use crate::pool::Ctx;

/// Bytes of strip memory that still leave the second-level cache to the operands.
const STRIP_BYTES: usize = 256 << 10;
/// Most rows of a strip.
const STRIP_ROWS: usize = 32;

/// Rows of a strip for values of `width` elements a row in all, shared by `threads` threads.
fn strip_rows(rows: usize, width: usize, threads: usize) -> usize {
    (STRIP_BYTES / 4 / width.max(1)).min(rows.div_ceil(threads)).clamp(1, STRIP_ROWS)
}

/// Elements of memory that strips of a launch need at most.
pub(super) fn strip_memory(width: usize) -> usize {
    (STRIP_BYTES / 4).max(width)
}

/// Runs a row-wise launch on all threads.
///
/// # Safety
/// All threads of the run call it together, with a barrier before and after; `memory` has [`strip_memory`] elements.
pub(super) unsafe fn run(
    ctx: &Ctx<'_>,
    r: &Running<'_>,
    launch: &Launch,
    domain: Domain,
    width: usize,
    memory: *mut f32,
) {
    let rows = r.view.rows(domain);
    let operands: usize = launch.nodes.iter().map(|v| r.view.cols(*v)).max().unwrap_or(0);
    let per_strip = strip_rows(rows, width.max(operands), ctx.threads());
    ctx.claim(rows.div_ceil(per_strip), |i| {
        let first = i * per_strip;
        // SAFETY: strips are disjoint; the caller's promise.
        unsafe { strip(ctx, r, launch, Strip { first, n: per_strip.min(rows - first), memory }) };
    });
}

/// Whether the launch is one thread's work in this step.
pub(super) fn is_single(r: &Running<'_>, launch: &Launch) -> bool {
    matches!(launch.kind, LaunchKind::Rows(domain) if r.view.rows(domain) <= 1)
}

/// Runs a launch that [`is_single`] on this thread.
///
/// # Safety
/// No other thread runs a launch meanwhile; `memory` as in [`run`].
pub(super) unsafe fn run_single(ctx: &Ctx<'_>, r: &Running<'_>, launch: &Launch, memory: *mut f32) {
    if let LaunchKind::Rows(domain) = launch.kind
        && r.view.rows(domain) == 1
    {
        // SAFETY: the caller's promise.
        unsafe { strip(ctx, r, launch, Strip { first: 0, n: 1, memory }) };
    }
}

/// # Safety
/// As [`run`]; the strip is this thread's.
unsafe fn strip(ctx: &Ctx<'_>, r: &Running<'_>, launch: &Launch, strip: Strip) {
    for &v in &launch.nodes {
        // SAFETY: operands were made before the launch or earlier in this strip.
        unsafe { node(r, ctx.isa(), v, strip) };
    }
}

/// One op on one strip.
///
/// # Safety
/// As [`run`]; the strip is this thread's.
unsafe fn node(r: &Running<'_>, isa: Isa, v: Value, strip: Strip) {
    let view: &View<'_> = &r.view;
    let shape = view.graph.nodes[v.index()].shape;
    let rows = strip.n * rows_a_row(shape.rows);
    let cols = shape.cols;
    // SAFETY (here and below): the caller's promise; a node's result is never one of its operands.
    let get = |x: Value| unsafe { view.strip(x, strip) };
    let set = || unsafe { view.strip_mut(v, strip) };
    let vector = |w: Weight| r.weight(w).vector().unwrap_or(&[]);
    match view.graph.nodes[v.index()].op {
        Op::Embed { weight } => {
            let tokens = &r.inputs.tokens[strip.first..strip.first + rows];
            for (i, (&token, out)) in tokens.iter().zip(set().chunks_exact_mut(cols)).enumerate() {
                r.weight(weight).row(token as usize, out);
                r.inputs.adapters.embed(isa, strip.first + i, token as usize, out);
            }
        }
        Op::EmbedPosition { weight } => {
            let positions = &r.inputs.positions[strip.first..strip.first + rows];
            for (&position, out) in positions.iter().zip(set().chunks_exact_mut(cols)) {
                r.weight(weight).row(position, out);
            }
        }
        Op::Quantize { x } => {
            let (out, first) = (view.quantized(v), strip.first * rows_a_row(shape.rows));
            for (i, row) in get(x).chunks_exact(cols).enumerate() {
                // SAFETY: rows of the strip are this thread's.
                unsafe { out.quantize_row_shared(isa, first + i, row) };
            }
        }
        Op::Add { a, b } => binary(isa, Binary::Add, get(a), get(b), set()),
        Op::Mul { a, b } => binary(isa, Binary::Mul, get(a), get(b), set()),
        Op::AddWeight { x, weight } | Op::MulWeight { x, weight } => {
            let add = matches!(view.graph.nodes[v.index()].op, Op::AddWeight { .. });
            let op = if add { Binary::Add } else { Binary::Mul };
            for (x, out) in get(x).chunks_exact(cols).zip(set().chunks_exact_mut(cols)) {
                binary(isa, op, x, vector(weight), out);
            }
        }
        Op::Scale { x, factor } => unary(isa, Unary::Scale(factor), get(x), set()),
        Op::Activate { x, f } => unary(isa, Unary::Activate(f), get(x), set()),
        Op::Softcap { x, cap } => unary(isa, Unary::Softcap(cap), get(x), set()),
        Op::RmsNorm { x, weight, group, eps } => {
            rms_norm(isa, RmsNorm { x: get(x), weight: weight.map(vector), group, eps, out: set() });
        }
        Op::LayerNorm { x, weight, bias, group, eps } => {
            let (weight, bias) = (weight.map(vector), bias.map(vector));
            layer_norm(isa, LayerNorm { x: get(x), weight, bias, group, eps, out: set() });
        }
        Op::Rope { x, head_dim, table } => {
            let Some((spec, table)) = r.ropes.get(table) else { return };
            for (i, (x, out)) in get(x).chunks_exact(cols).zip(set().chunks_exact_mut(cols)).enumerate() {
                rope::rope(isa, spec.style, x, head_dim, table.row(strip.first + i), out);
            }
        }
        Op::KvWrite { k, v, kv } => {
            let (Some(layer), Some(pool)) = (view.graph.kv_layers.get(kv), r.kv.get(kv)) else { return };
            let Some(sequences) = r.inputs.groups.get(layer.group) else { return };
            let (k, v) = (get(k).chunks_exact(view.cols(k)), get(v).chunks_exact(view.cols(v)));
            for (i, (k, v)) in k.zip(v).enumerate() {
                let row = strip.first + i;
                let position = r.inputs.positions[row];
                let block = sequences[r.inputs.sequence_of[row]].table[position / BLOCK_TOKENS];
                // SAFETY: the step was checked: no two rows share a block and slot.
                unsafe { pool.write(isa, block as usize, position % BLOCK_TOKENS, k, v) };
            }
        }
        Op::Softmax { x } => {
            for (x, out) in get(x).chunks_exact(cols).zip(set().chunks_exact_mut(cols)) {
                softmax(isa, x, out);
            }
        }
        Op::TopK { x, k } => {
            let out = as_ids_mut(set());
            for (x, out) in get(x).chunks_exact(view.cols(x)).zip(out.chunks_exact_mut(k)) {
                route::top_k(x, out);
            }
        }
        Op::GatherCols { x, ids } => {
            let ids = as_ids(get(ids));
            let x = get(x).chunks_exact(view.cols(x));
            for ((x, ids), out) in x.zip(ids.chunks_exact(cols)).zip(set().chunks_exact_mut(cols)) {
                route::gather(x, ids, out);
            }
        }
        Op::NormalizeSum { x, floor } => {
            for (x, out) in get(x).chunks_exact(cols).zip(set().chunks_exact_mut(cols)) {
                normalize_sum(isa, x, floor, out);
            }
        }
        Op::CombineSlots { x, weights } => {
            let k = view.cols(weights);
            let rows = get(x).chunks_exact(cols * k);
            for ((x, w), out) in rows.zip(get(weights).chunks_exact(k)).zip(set().chunks_exact_mut(cols)) {
                combine(isa, w, x, out);
            }
        }
        Op::SliceCols { x, group, start, len } => {
            // A row has whole groups.
            for (x, out) in get(x).chunks_exact(group).zip(set().chunks_exact_mut(len)) {
                out.copy_from_slice(&x[start..start + len]);
            }
        }
        Op::MulGroups { x, by } => {
            let group = cols / view.cols(by).max(1);
            let groups = get(x).chunks_exact(group).zip(set().chunks_exact_mut(group));
            for (&by, (x, out)) in get(by).iter().zip(groups) {
                unary(isa, Unary::Scale(by), x, out);
            }
        }
        Op::SelectOutputs { x } => {
            let outputs = &r.inputs.outputs[strip.first..strip.first + strip.n];
            for (&row, out) in outputs.iter().zip(set().chunks_exact_mut(cols)) {
                let (p, n) = view.words(x, row as usize, 1);
                // SAFETY: in bounds; made by an earlier launch.
                out.copy_from_slice(unsafe { std::slice::from_raw_parts(p, n) });
            }
        }
        // Anchors are launches of their own.
        Op::MatMul { .. }
        | Op::MoeMatMul { .. }
        | Op::Attention { .. }
        | Op::CausalConv { .. }
        | Op::DeltaRule { .. } => {}
    }
}
