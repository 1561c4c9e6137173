//! Recurrent ops: what a token's row depends on is its sequence's state, which the rows before have made.
//!
//! The result of a row depends on the rows of its own sequence only, by one order of operations, whatever else is in the step
//! and however the sequence is cut into steps:
//!
//! ```text
//! convolution   out[t, c] = fma(w[c, j], x[t + 1 + j − width, c], ·) from 0, j ascending
//! delta rule    per row, value head and column j of its state S[i][j]:
//!                 e = exp(g);   r = fma(S[i][j]·e, k[i], ·) from 0, i ascending;   d = (v[j] − r)·β
//!                 S[i][j] = fma(k[i], d, S[i][j]·e);   out[j] = fma(S[i][j], q[i], ·) from 0, i ascending
//! ```
//!
//! Columns never see each other, so threads share sequences and blocks of columns, lanes are columns, and each walks its rows
//! from the first to the last. A block's state is taken out of its slot before anything is written, so a sequence may
//! write over the slot that it reads.
#![allow(unsafe_code)]
// Register tiles are arrays indexed by vector.
#![allow(clippy::needless_range_loop)]

mod conv;
mod delta;

#[cfg(test)]
mod tests;

use hanzo_fusion::{StateLayer, StateSave};

use crate::CpuError;
use crate::simd::LANES;

pub(crate) use conv::{Conv, MAX_TAPS};
pub(crate) use delta::{Delta, scratch_len};

/// Columns that these ops take are whole vectors.
pub(crate) const COLUMNS: usize = LANES;

/// The states of one op, a slot a sequence.
#[derive(Debug)]
pub(crate) struct Slots {
    elements: usize,
    n_slots: usize,
    data: memmap2::MmapMut,
    /// Start of `data`; threads write disjoint elements through it.
    base: *mut f32,
}

// SAFETY: `base` points into `data`, which it owns; shared writes go through unsafe methods whose callers keep elements disjoint.
unsafe impl Send for Slots {}
// SAFETY: as above.
unsafe impl Sync for Slots {}

impl Slots {
    /// Reserves `n_slots` states; memory is taken as they are used.
    pub(crate) fn new(layer: StateLayer, n_slots: usize) -> Result<Self, CpuError> {
        let refused = |bytes| CpuError::Memory { what: "recurrent states", bytes };
        let bytes = layer.elements.checked_mul(n_slots).and_then(|n| n.checked_mul(4));
        let bytes = bytes.filter(|&b| b <= isize::MAX as usize).ok_or(refused(usize::MAX))?;
        let mut data = memmap2::MmapMut::map_anon(bytes.max(1)).map_err(|_| refused(bytes))?;
        let base = data.as_mut_ptr().cast();
        Ok(Self { elements: layer.elements, n_slots, data, base })
    }

    /// Bytes reserved.
    pub(crate) fn bytes(&self) -> usize {
        self.data.len()
    }

    /// Start of a slot's state. Panics where there is none.
    fn slot(&self, slot: u32) -> *mut f32 {
        assert!((slot as usize) < self.n_slots, "no such slot of recurrent states");
        // SAFETY: inside the mapping by the assertion.
        unsafe { self.base.add(slot as usize * self.elements) }
    }

    /// Copies a state over another.
    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        let (from, to) = (self.slot(from), self.slot(to));
        if from != to {
            // SAFETY: two different slots, to which we have exclusive access.
            unsafe { std::ptr::copy_nonoverlapping(from, to, self.elements) };
        }
    }
}

/// One sequence's share of a step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share<'a> {
    pub(crate) first_row: usize,
    /// Tokens of the sequence before its first row.
    pub(crate) first_position: usize,
    pub(crate) n_rows: usize,
    /// Slot of the state before; zeros where `None`.
    pub(crate) from: Option<u32>,
    /// Slot of the state after all rows.
    pub(crate) to: u32,
    /// States on the way that are wanted, ascending.
    pub(crate) saves: &'a [StateSave],
}

impl Share<'_> {
    /// Slots that get states, each with the tokens that its state has seen.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (u32, usize)> {
        let first = self.first_position;
        let saves = self.saves.iter().map(move |save| (save.slot, first + save.after));
        saves.chain([(self.to, first + self.n_rows)])
    }

    /// Slots that want the state after `n` rows.
    #[inline(always)]
    fn slots_after(&self, n: usize) -> impl Iterator<Item = u32> {
        let last = (n == self.n_rows).then_some(self.to);
        self.saves.iter().filter(move |save| save.after == n).map(|save| save.slot).chain(last)
    }
}
