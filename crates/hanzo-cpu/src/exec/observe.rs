//! Showing the inputs of a contraction launch to an observer.

use hanzo_fusion::graph::Op;
use hanzo_fusion::observe::{ContractionInput, Observer, Routes};
use hanzo_fusion::{Launch, LaunchKind, Plan};

use super::run::Running;

/// Shows what entered `launch`, if that was a contraction of any rows.
///
/// # Safety
/// The launch is done, and no thread writes to the arena meanwhile. The plan is [`Plan::observed`].
pub(super) unsafe fn launch(observer: &dyn Observer, plan: &Plan, r: &Running<'_>, launch: &Launch) {
    let LaunchKind::Contract { x, ids, .. } = launch.kind else { return };
    let x = plan.float_input(x);
    let n_rows = r.view.value_rows(x);
    if n_rows == 0 {
        return;
    }
    let weight = |v: &hanzo_fusion::Value| match plan.op(*v)? {
        Op::MatMul { weight, .. } | Op::MoeMatMul { weight, .. } => plan.graph.weights.get(weight.index()),
        _ => None,
    };
    let weights: Vec<_> = launch.nodes.iter().filter_map(weight).collect();
    // SAFETY: the caller's promise; the plan keeps the rows until the launch is done.
    let (rows, ids) = unsafe { (r.view.all(x), ids.map(|ids| (r.view.cols(ids), r.view.ids(ids)))) };
    let routes =
        ids.map(|(k, ids)| Routes { ids, pairs_per_row: if n_rows == r.view.counts.tokens { k } else { 1 } });
    observer.contraction(&ContractionInput { weights: &weights, rows, routes });
}
