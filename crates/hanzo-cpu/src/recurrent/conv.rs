//! Causal convolution of every column by a filter of its own. The state is `[width − 1][columns]`: the last rows, oldest first.

use super::{Share, Slots};
use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Longest filter.
pub(crate) const MAX_TAPS: usize = 16;

/// A convolution over the rows of a step.
pub(crate) struct Conv<'a> {
    pub(crate) slots: &'a Slots,
    /// `[rows, cols]`.
    pub(crate) x: *const f32,
    /// `[rows, cols]`.
    pub(crate) out: *mut f32,
    /// A multiple of [`super::COLUMNS`].
    pub(crate) cols: usize,
    /// `[cols, width]`.
    pub(crate) weight: &'a [f32],
    /// 1 to [`MAX_TAPS`].
    pub(crate) width: usize,
}

impl Conv<'_> {
    /// Blocks of columns, each an item of work.
    pub(crate) fn blocks(&self) -> usize {
        self.cols / LANES
    }

    /// All rows of a sequence in one block of columns.
    ///
    /// # Safety
    /// `x` and `out` hold the step's rows, the share's among them; nobody else has these columns of the sequence's rows of `out`
    /// and of the slots that the share names.
    pub(crate) unsafe fn run(&self, isa: Isa, share: &Share<'_>, block: usize) {
        dispatch(isa, Block { conv: self, share, first: block * LANES });
    }
}

struct Block<'a> {
    conv: &'a Conv<'a>,
    share: &'a Share<'a>,
    first: usize,
}

impl Kernel for Block<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Block { conv, share, first } = self;
        let (cols, width) = (conv.cols, conv.width.clamp(1, MAX_TAPS));
        let mut taps = [s.splat(0.0); MAX_TAPS];
        for (j, tap) in taps.iter_mut().enumerate().take(width) {
            let mut lanes = [0.0; LANES];
            for (lane, w) in lanes.iter_mut().enumerate() {
                *w = conv.weight[(first + lane) * width + j];
            }
            *tap = s.from_array(lanes);
        }
        // The rows before the first, and then the last ones.
        let mut past = [s.splat(0.0); MAX_TAPS];
        // SAFETY: slots have `width - 1` rows of `cols` columns, the step has the share's rows; the caller of `Conv::run` keeps
        // these columns to itself.
        unsafe {
            if let Some(from) = share.from {
                let state = conv.slots.slot(from).add(first);
                for i in 0..width - 1 {
                    past[i] = s.load(state.add(i * cols));
                }
            }
            for t in 0..share.n_rows {
                let at = (share.first_row + t) * cols + first;
                past[width - 1] = s.load(conv.x.add(at));
                let mut sum = s.splat(0.0);
                for j in 0..width {
                    sum = s.fma(taps[j], past[j], sum);
                }
                s.store(sum, conv.out.add(at));
                for j in 1..width {
                    past[j - 1] = past[j];
                }
                for slot in share.slots_after(t + 1) {
                    let state = conv.slots.slot(slot).add(first);
                    for i in 0..width - 1 {
                        s.store(past[i], state.add(i * cols));
                    }
                }
            }
        }
    }
}
