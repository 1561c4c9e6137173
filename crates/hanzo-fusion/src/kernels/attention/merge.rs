//! Chunks of a row's keys put together, inside one workgroup or by a launch of its own.

use super::super::math;
use super::CHUNK;
use crate::kernel::{Builder, IntoVal, Kernel, KernelError, Reg, Val};

/// Greatest score and sum of weights over the chunks so far.
pub(super) struct Merged<'k> {
    k: &'k Builder,
    m: Reg<'k, f32>,
    l: Reg<'k, f32>,
}

impl<'k> Merged<'k> {
    pub(super) fn new(k: &'k Builder) -> Self {
        Self { k, m: k.reg(f32::NEG_INFINITY), l: k.reg(0.0) }
    }

    /// Takes a chunk's; gives what the sums so far and the chunk's are multiplied by. A chunk of which a row sees nothing has `l = 0`.
    pub(super) fn merge(&self, m: Val<'k, f32>, l: Val<'k, f32>) -> (Val<'k, f32>, Val<'k, f32>) {
        let (k, all_m, all_l) = (self.k, self.m.get(), self.l.get());
        let (none, first) = (l.eq(0.0), all_l.eq(0.0));
        let top = all_m.max(m);
        let (keep, take) = (math::exp(k, all_m - top), math::exp(k, m - top));
        let one = 1.0.val(k);
        let keep = (none | first).select(one, keep);
        let take = none.select(0.0, first.select(one, take));
        self.l.set(all_l * keep + l * take);
        self.m.set(none.select(all_m, first.select(m, top)));
        (keep, take)
    }

    /// What the sums are multiplied by in the end.
    pub(super) fn finish(&self, sink: Option<Val<'k, f32>>) -> Val<'k, f32> {
        let Some(sink) = sink else { return 1.0 / self.l.get() };
        let (k, m) = (self.k, self.m.get());
        let top = m.max(sink);
        let a = math::exp(k, m - top);
        a / (self.l.get() * a + math::exp(k, sink - top))
    }
}

/// Merges the chunks of split attention in ascending order.
///
/// Buffers: `part_o`, `part_m`, `part_l` as [`super::Attention::kernel`] leaves them, `positions` `[T]`, where there are `sinks` those, `y`. Parameters:
/// `window`. Grid: `[n_heads, T]`.
///
/// # Errors
/// Never for widths that exist.
pub fn combine(v_dim: u32, sinks: bool, subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "One workgroup a row; an element of the value an invocation. Order: ascending chunks. Bound: bytes of the parts.";
    let k = Builder::new("attention_combine", doc, 64, subgroup);
    let [o, m, l] = ["part_o", "part_m", "part_l"].map(|n| k.input::<f32>(n));
    let positions = k.input::<u32>("positions");
    let sinks = sinks.then(|| k.input::<f32>("sinks"));
    let y = k.output::<f32>("y");
    let window = k.param::<u32>("window");
    let (head, token) = (k.workgroup_id(0), k.workgroup_id(1));
    let (n_heads, n_rows) = (k.num_workgroups(0), k.num_workgroups(1));
    let end = positions.at(token) + 1;
    let first = (end - window.min(end)) / CHUNK;
    let merged = Merged::new(&k);
    let sums: Vec<Reg<'_, f32>> = (0..v_dim.div_ceil(64)).map(|_| k.reg(0.0)).collect();
    let element = |j: u32| k.local_id() + j * 64;
    k.for_range(first, (end + (CHUNK - 1)) / CHUNK, |chunk| {
        let at = (chunk * n_rows + token) * n_heads + head;
        let (keep, take) = merged.merge(m.at(at), l.at(at));
        for (j, sum) in (0..).zip(&sums) {
            let d = element(j).min(v_dim - 1);
            sum.set(o.at(at * v_dim + d).fma(take, sum.get() * keep));
        }
    });
    let factor = merged.finish(sinks.map(|sinks| sinks.at(head)));
    let row = (token * n_heads + head) * v_dim;
    for (j, sum) in (0..).zip(&sums) {
        k.when(element(j).lt(v_dim), || y.set(row + element(j), sum.get() * factor));
    }
    k.finish()
}
