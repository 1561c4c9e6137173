//! The gated delta rule. The state is `[value head][k_head_dim][v_head_dim]`.
//!
//! A block is a value head's columns, two vectors of them or one: its state (16 KiB for keys of 128) stays in the first-level
//! cache while the block walks the rows.

use hanzo_fusion::graph::DeltaSpec;
use hanzo_quant::math;

use super::{Share, Slots};
use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Vectors of a block's columns, where a head has as many.
const VECTORS: usize = 2;

/// Elements that a thread needs for a block's state.
pub(crate) fn scratch_len(spec: &DeltaSpec) -> usize {
    spec.k_head_dim * VECTORS * LANES
}

/// A delta rule over the rows of a step; pointers are to its first row.
pub(crate) struct Delta<'a> {
    pub(crate) slots: &'a Slots,
    /// `v_head_dim` is a multiple of [`super::COLUMNS`].
    pub(crate) spec: DeltaSpec,
    pub(crate) q: *const f32,
    pub(crate) k: *const f32,
    pub(crate) v: *const f32,
    pub(crate) g: *const f32,
    pub(crate) beta: *const f32,
    pub(crate) out: *mut f32,
}

impl Delta<'_> {
    fn vectors(&self) -> usize {
        if self.spec.v_head_dim.is_multiple_of(VECTORS * LANES) { VECTORS } else { 1 }
    }

    /// Blocks of columns, each an item of work.
    pub(crate) fn blocks(&self) -> usize {
        self.spec.n_v_heads * (self.spec.v_head_dim / (self.vectors() * LANES))
    }

    /// All rows of a sequence in one block of columns.
    ///
    /// # Safety
    /// The pointers hold the step's rows, the share's among them; `scratch` has [`scratch_len`] elements; nobody else has these
    /// columns of the sequence's rows of `out` and of the slots that the share names.
    pub(crate) unsafe fn run(&self, isa: Isa, share: &Share<'_>, block: usize, scratch: *mut f32) {
        let columns = self.vectors() * LANES;
        let per_head = self.spec.v_head_dim / columns;
        let (head, first) = (block / per_head, block % per_head * columns);
        if columns == LANES {
            dispatch(isa, Block::<1> { delta: self, share, head, first, state: scratch });
        } else {
            dispatch(isa, Block::<VECTORS> { delta: self, share, head, first, state: scratch });
        }
    }
}

struct Block<'a, const N: usize> {
    delta: &'a Delta<'a>,
    share: &'a Share<'a>,
    head: usize,
    first: usize,
    /// `[k_head_dim][N vectors]`.
    state: *mut f32,
}

impl<const N: usize> Block<'_, N> {
    /// Copies the block's state, `dim` rows, to or from a slot's.
    ///
    /// # Safety
    /// As [`Delta::run`].
    #[inline(always)]
    unsafe fn copy<S: Simd>(&self, s: S, slot: u32, store: bool) {
        let DeltaSpec { k_head_dim, v_head_dim, .. } = self.delta.spec;
        // SAFETY: a slot has `[n_v_heads][k_head_dim][v_head_dim]` elements; the caller's promise.
        unsafe {
            let base = self.delta.slots.slot(slot).add(self.head * k_head_dim * v_head_dim + self.first);
            for i in 0..k_head_dim {
                for n in 0..N {
                    let (there, here) =
                        (base.add(i * v_head_dim + n * LANES), self.state.add((i * N + n) * LANES));
                    if store {
                        s.store(s.load(here), there);
                    } else {
                        s.store(s.load(there), here);
                    }
                }
            }
        }
    }
}

impl<const N: usize> Kernel for Block<'_, N> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Self { delta, share, head, first, state } = self;
        let spec = delta.spec;
        let (dk, keys) = (spec.k_head_dim, spec.n_k_heads * spec.k_head_dim);
        let values = spec.n_v_heads * spec.v_head_dim;
        let key_head = spec.key_head(head);
        // SAFETY: all offsets are inside the rows and the scratch; the caller of `Delta::run` keeps the columns to itself.
        unsafe {
            match share.from {
                Some(slot) => self.copy(s, slot, false),
                None => std::slice::from_raw_parts_mut(state, dk * N * LANES).fill(0.0),
            }
            for t in 0..share.n_rows {
                let row = share.first_row + t;
                let q = delta.q.add(row * keys + key_head * dk);
                let k = delta.k.add(row * keys + key_head * dk);
                let at = row * values + head * spec.v_head_dim + first;
                let decay = s.splat(math::exp(*delta.g.add(row * spec.n_v_heads + head)));
                let beta = s.splat(*delta.beta.add(row * spec.n_v_heads + head));
                let mut sums = [s.splat(0.0); N];
                for i in 0..dk {
                    let k = s.splat(*k.add(i));
                    for n in 0..N {
                        let x = s.mul(s.load(state.add((i * N + n) * LANES)), decay);
                        sums[n] = s.fma(x, k, sums[n]);
                    }
                }
                let mut update = sums;
                for n in 0..N {
                    update[n] = s.mul(s.sub(s.load(delta.v.add(at + n * LANES)), sums[n]), beta);
                    sums[n] = s.splat(0.0);
                }
                for i in 0..dk {
                    let (k, q) = (s.splat(*k.add(i)), s.splat(*q.add(i)));
                    for n in 0..N {
                        let p = state.add((i * N + n) * LANES);
                        let x = s.fma(k, update[n], s.mul(s.load(p), decay));
                        s.store(x, p);
                        sums[n] = s.fma(x, q, sums[n]);
                    }
                }
                for n in 0..N {
                    s.store(sums[n], delta.out.add(at + n * LANES));
                }
                for slot in share.slots_after(t + 1) {
                    self.copy(s, slot, true);
                }
            }
        }
    }
}
