//! A block on its way into a format: values brought to a common magnitude, with their weights.
//!
//! Every search runs on values scaled by a power of two so that the largest lies in [1, 2). The scaling is exact, so
//! no search has to think about denormals or overflow; only [`Block::snap`], which rounds a scale to the f16 that
//! the file stores, knows the true magnitude.

use wide::f32x8;

use crate::f16;

/// Below 2^FLUSH no format with an f16 scale can hold anything but zero.
const FLUSH: i32 = -100;

/// Smallest weight relative to the mean of its block: a column that the importance never saw still gets its nearest code.
const WEIGHT_FLOOR: f32 = 1e-6;

/// `N` values `x · 2^exp` with weights `w` of mean 1 (`wx` is their product).
pub(super) struct Block<const N: usize> {
    pub(super) x: [f32; N],
    pub(super) w: [f32; N],
    pub(super) wx: [f32; N],
    exp: i32,
}

/// A run of consecutive elements of a [`Block`]: a sub-block.
#[derive(Clone, Copy)]
pub(super) struct Part<'a> {
    pub(super) x: &'a [f32],
    pub(super) w: &'a [f32],
    pub(super) wx: &'a [f32],
}

impl<const N: usize> Block<N> {
    /// Loads `N` finite values and their weights (all 1 without importance, or where a block's importance is all zero).
    pub(super) fn load(values: &[f32], importance: Option<&[f32]>) -> Self {
        debug_assert_eq!(values.len(), N);
        let mut block = Block { x: [0.0; N], w: [1.0; N], wx: [0.0; N], exp: 0 };
        let peak = values.iter().fold(0f32, |m, v| m.max(v.abs()));
        let exp = exponent(peak);
        if exp > FLUSH {
            block.exp = exp;
            let scale = pow2(-exp);
            for (x, &v) in block.x.iter_mut().zip(values) {
                *x = (f64::from(v) * scale) as f32;
            }
        }
        if let Some(importance) = importance {
            let mean = importance.iter().map(|&v| f64::from(v)).sum::<f64>() / N as f64;
            if mean > 0.0 {
                for (w, &v) in block.w.iter_mut().zip(importance) {
                    *w = ((f64::from(v) / mean) as f32).max(WEIGHT_FLOOR);
                }
            }
        }
        for ((wx, &w), &x) in block.wx.iter_mut().zip(&block.w).zip(&block.x) {
            *wx = w * x;
        }
        block
    }

    /// Sub-block `j` of `len` elements.
    pub(super) fn part(&self, j: usize, len: usize) -> Part<'_> {
        let range = j * len..(j + 1) * len;
        Part { x: &self.x[range.clone()], w: &self.w[range.clone()], wx: &self.wx[range] }
    }

    /// The whole block as one part.
    pub(super) fn whole(&self) -> Part<'_> {
        Part { x: &self.x, w: &self.w, wx: &self.wx }
    }

    /// The exponent that was taken out.
    pub(super) fn exp(&self) -> i32 {
        self.exp
    }

    /// The f16 nearest to `d` at the block's true magnitude.
    pub(super) fn snap(&self, d: f32) -> Snapped {
        let true_d = f64::from(d) * pow2(self.exp);
        let limit = f64::from(f16::MAX);
        self.at_bits(f16::from_f64(true_d.clamp(-limit, limit)))
    }

    /// What the f16 `d` of a file is to this block.
    pub(super) fn at_bits(&self, d: f16) -> Snapped {
        Snapped { bits: d, d: (f64::from(d) * pow2(-self.exp)) as f32 }
    }
}

/// A scale that a file can hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Snapped {
    /// As stored.
    pub(super) bits: f16,
    /// Its value in the block's magnitude.
    pub(super) d: f32,
}

impl<'a> Part<'a> {
    /// Eight elements at a time: `(x, w, wx)`.
    #[inline(always)]
    pub(super) fn eights(self) -> impl Iterator<Item = (f32x8, f32x8, f32x8)> + use<'a> {
        let (x, w, wx) = (self.x.as_chunks::<8>().0, self.w.as_chunks::<8>().0, self.wx.as_chunks::<8>().0);
        x.iter().zip(w).zip(wx).map(|((&x, &w), &wx)| (f32x8::new(x), f32x8::new(w), f32x8::new(wx)))
    }

    /// Largest magnitude.
    pub(super) fn peak(self) -> f32 {
        self.x.iter().fold(0f32, |m, v| m.max(v.abs()))
    }
}

/// `1 / s`, and 0 for the scale 0, under which all codes are the code of 0.
pub(super) fn reciprocal(s: f32) -> f32 {
    let inv = 1.0 / s;
    if inv.is_finite() { inv } else { 0.0 }
}

/// ⌊log2 v⌋ of a positive normal number; −127 for zero and denormals.
fn exponent(v: f32) -> i32 {
    (v.to_bits() >> 23) as i32 - 127
}

/// 2^e for |e| ≤ 1000.
fn pow2(e: i32) -> f64 {
    f64::from_bits(((e + 1023).clamp(1, 2046) as u64) << 52)
}
