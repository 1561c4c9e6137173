//! Recurrent launches: threads share the step's sequences and blocks of columns.

use hanzo_fusion::graph::{Graph, Op, Value};

use super::run::Running;
use crate::pool::Ctx;
use crate::recurrent::{COLUMNS, Conv, Delta, MAX_TAPS, scratch_len as block_len};

/// What is wrong with a graph's recurrent ops for these kernels.
pub(super) fn check(graph: &Graph) -> Result<(), String> {
    for node in &graph.nodes {
        match &node.op {
            Op::CausalConv { weight, .. } => {
                let taps = graph.weights.get(weight.index()).map_or(0, |w| w.n_in);
                if taps > MAX_TAPS || !node.shape.cols.is_multiple_of(COLUMNS) {
                    return Err(format!("a convolution of {taps} taps over {} columns", node.shape.cols));
                }
            }
            Op::DeltaRule { spec, .. } if !spec.v_head_dim.is_multiple_of(COLUMNS) => {
                return Err(format!("a delta rule on values of {} elements", spec.v_head_dim));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Elements that a thread needs for the states of its block.
pub(super) fn scratch_len(graph: &Graph) -> usize {
    let of = |op: &Op| if let Op::DeltaRule { spec, .. } = op { block_len(spec) } else { 0 };
    graph.nodes.iter().map(|node| of(&node.op)).max().unwrap_or(0)
}

/// Runs a recurrent op on all threads.
///
/// # Safety
/// All threads of the run call it together, with a barrier before and after; `scratch` has [`scratch_len`] elements and is this
/// thread's.
pub(super) unsafe fn run(ctx: &Ctx<'_>, r: &Running<'_>, v: Value, scratch: *mut f32) {
    let (view, shares) = (&r.view, &r.inputs.shares);
    let words = |x: Value| view.words(x, 0, view.counts.tokens).0;
    match view.graph.nodes[v.index()].op {
        Op::CausalConv { x, weight, state } => {
            let (Some(slots), Some(taps)) = (r.states.get(state), r.weight(weight).vector()) else { return };
            let cols = view.cols(v);
            let (x, out) = (words(x).cast_const(), words(v));
            let conv = Conv { slots, x, out, cols, weight: taps, width: taps.len() / cols.max(1) };
            let blocks = conv.blocks();
            ctx.claim(shares.len() * blocks, |i| {
                // SAFETY: an item is claimed once; shares were checked to write slots of their own.
                unsafe { conv.run(ctx.isa(), &shares[i / blocks], i % blocks) };
            });
        }
        Op::DeltaRule { q, k, v: values, g, beta, state, spec } => {
            let Some(slots) = r.states.get(state) else { return };
            let [q, k, values, g, beta] = [q, k, values, g, beta].map(|x| words(x).cast_const());
            let delta = Delta { slots, spec, q, k, v: values, g, beta, out: words(v) };
            let blocks = delta.blocks();
            ctx.claim(shares.len() * blocks, |i| {
                // SAFETY: as above; the scratch is this thread's.
                unsafe { delta.run(ctx.isa(), &shares[i / blocks], i % blocks, scratch) };
            });
        }
        _ => {}
    }
}
