//! Sums over a row, in the order that the CPU keeps.
//!
//! Element `i` belongs to chain `i mod 64`; a chain takes its elements in ascending order. The 64 chains are four vectors of 16, added as
//! `(a + b) + (c + d)`, and the lanes of that are added by halves: `i` and `i + 8`, then 4, 2, 1. So a row's sum is the same on every device,
//! whatever its subgroups are.

use crate::kernel::{Array, Builder, IntoVal, Val};

/// Chains of a row.
pub const CHAINS: u32 = 64;
/// Lanes that are left of them before the tree.
const LANES: u32 = 16;

/// Workgroup memory for the sums of rows, one row after the other. The workgroup has at least [`CHAINS`] invocations.
#[derive(Clone, Copy, Debug)]
pub struct RowSum<'k> {
    k: &'k Builder,
    chains: Array<'k, f32>,
    lanes: Array<'k, f32>,
}

impl<'k> RowSum<'k> {
    /// Declares `sum_chains` and `sum_lanes`.
    pub fn declare(k: &'k Builder) -> Self {
        Self { k, chains: k.shared("sum_chains", CHAINS), lanes: k.shared("sum_lanes", LANES) }
    }

    /// The fold of `0..n` from `first` by `step(acc, i)`, chains put together by `join`; the same in every invocation. Two barriers.
    #[track_caller]
    pub fn fold(
        &self,
        n: impl IntoVal<'k, u32>,
        first: f32,
        step: impl FnOnce(Val<'k, f32>, Val<'k, u32>) -> Val<'k, f32>,
        join: impl Fn(Val<'k, f32>, Val<'k, f32>) -> Val<'k, f32>,
    ) -> Val<'k, f32> {
        let (k, n) = (self.k, n.val(self.k));
        let (acc, id) = (k.reg::<f32>(first), k.local_id());
        k.for_step(id.lt(CHAINS).select(id, n), n, CHAINS, |i| acc.set(step(acc.get(), i)));
        k.when(id.lt(CHAINS), || self.chains.set(id, acc.get()));
        k.barrier();
        k.when(id.lt(LANES), || {
            let chain = |i: u32| self.chains.at(id + i * LANES);
            self.lanes.set(id, join(join(chain(0), chain(1)), join(chain(2), chain(3))));
        });
        k.barrier();
        let mut lanes: Vec<_> = (0..LANES).map(|i| self.lanes.at(i)).collect();
        while lanes.len() > 1 {
            let (low, high) = lanes.split_at(lanes.len() / 2);
            lanes = low.iter().zip(high).map(|(&a, &b)| join(a, b)).collect();
        }
        lanes.first().copied().unwrap_or_else(|| first.val(k))
    }

    /// `Σ x(i)`.
    #[track_caller]
    pub fn sum(
        &self,
        n: impl IntoVal<'k, u32>,
        x: impl FnOnce(Val<'k, u32>) -> Val<'k, f32>,
    ) -> Val<'k, f32> {
        self.fold(n, 0.0, |acc, i| acc + x(i), |a, b| a + b)
    }

    /// The greatest `x(i)`; NaN counts as nothing.
    #[track_caller]
    pub fn max(
        &self,
        n: impl IntoVal<'k, u32>,
        x: impl FnOnce(Val<'k, u32>) -> Val<'k, f32>,
    ) -> Val<'k, f32> {
        self.fold(n, f32::NEG_INFINITY, |acc, i| x(i).max(acc), |a, b| a.max(b))
    }
}
