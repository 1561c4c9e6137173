//! Norms, softmax and sums of a row.

use super::{map, map2, reduce};
use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, dispatch, math};

/// `x / sqrt(mean(x²) + eps) · weight` of every group: squares are added by fused multiply-adds, the mean is the sum
/// divided by the count, and `1 / sqrt(…)` is a square root and a division; then two products an element.
pub(crate) struct RmsNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: Option<&'a [f32]>,
    pub(crate) group: usize,
    pub(crate) eps: f32,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for RmsNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, out) in self.x.chunks_exact(self.group).zip(self.out.chunks_exact_mut(self.group)) {
            let squares = reduce(s, x, 0.0, |acc, x| s.fma(x, x, acc));
            let inv = s.splat(1.0 / (squares / x.len() as f32 + self.eps).sqrt());
            match self.weight {
                Some(weight) => map2(s, x, weight, out, |x, w| s.mul(s.mul(x, inv), w)),
                None => map(s, x, out, |x| s.mul(x, inv)),
            }
        }
    }
}

/// RMS norm of the groups of `x` (whole rows of groups); `weight` has a group's length.
pub(crate) fn rms_norm(isa: Isa, kernel: RmsNorm<'_>) {
    dispatch(isa, kernel);
}

/// `(x - mean) / sqrt(var + eps) · weight + bias` of every group; the variance is that of the differences from the
/// rounded mean. Each operation rounds once.
pub(crate) struct LayerNorm<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) weight: Option<&'a [f32]>,
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) group: usize,
    pub(crate) eps: f32,
    pub(crate) out: &'a mut [f32],
}

impl Kernel for LayerNorm<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        for (x, out) in self.x.chunks_exact(self.group).zip(self.out.chunks_exact_mut(self.group)) {
            let n = x.len() as f32;
            let mean = reduce(s, x, 0.0, |acc, x| s.add(acc, x)) / n;
            let m = s.splat(mean);
            // Padding equals the mean, so that its difference is zero.
            let squares = reduce(s, x, mean, |acc, x| {
                let d = s.sub(x, m);
                s.fma(d, d, acc)
            });
            let inv = s.splat(1.0 / (squares / n + self.eps).sqrt());
            match self.weight {
                Some(weight) => map2(s, x, weight, out, |x, w| s.mul(s.mul(s.sub(x, m), inv), w)),
                None => map(s, x, out, |x| s.mul(s.sub(x, m), inv)),
            }
            if let Some(bias) = self.bias {
                add_in_place(s, out, bias);
            }
        }
    }
}

#[inline(always)]
fn add_in_place<S: Simd>(s: S, out: &mut [f32], bias: &[f32]) {
    for (out, bias) in out.chunks_mut(LANES).zip(bias.chunks(LANES)) {
        s.store_part(s.add(s.load_part(out, 0.0), s.load_part(bias, 0.0)), out);
    }
}

/// Layer norm of the groups of `x`; `weight` and `bias` have a group's length.
pub(crate) fn layer_norm(isa: Isa, kernel: LayerNorm<'_>) {
    dispatch(isa, kernel);
}

struct Softmax<'a>(&'a [f32], &'a mut [f32]);

impl Kernel for Softmax<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Softmax(x, out) = self;
        let max = s.splat(x.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m }));
        map(s, x, out, |x| math::exp(s, s.sub(x, max)));
        let sum = s.splat(reduce(s, out, 0.0, |acc, x| s.add(acc, x)));
        for part in out.chunks_mut(LANES) {
            s.store_part(s.div(s.load_part(part, 0.0), sum), part);
        }
    }
}

/// Softmax of one row: `exp(x - max)`, divided by their sum.
pub(crate) fn softmax(isa: Isa, x: &[f32], out: &mut [f32]) {
    dispatch(isa, Softmax(x, out));
}

struct NormalizeSum<'a>(&'a [f32], f32, &'a mut [f32]);

impl Kernel for NormalizeSum<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let NormalizeSum(x, floor, out) = self;
        let sum = reduce(s, x, 0.0, |acc, x| s.add(acc, x));
        let divisor = s.splat(if sum > floor { sum } else { floor });
        map(s, x, out, |x| s.div(x, divisor));
    }
}

/// One row divided by its sum, or by `floor` if the sum is not greater.
pub(crate) fn normalize_sum(isa: Isa, x: &[f32], floor: f32, out: &mut [f32]) {
    dispatch(isa, NormalizeSum(x, floor, out));
}

struct Axpy<'a>(f32, &'a [f32], &'a mut [f32]);

impl Kernel for Axpy<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Axpy(w, x, out) = self;
        let w = s.splat(w);
        for (out, x) in out.chunks_mut(LANES).zip(x.chunks(LANES)) {
            s.store_part(s.fma(w, s.load_part(x, 0.0), s.load_part(out, 0.0)), out);
        }
    }
}

/// `out = Σ_j weights[j] · rows[j]`, `j` ascending, by fused multiply-adds from zero. `rows` are `weights.len()` rows of
/// `out.len()` elements.
pub(crate) fn combine(isa: Isa, weights: &[f32], rows: &[f32], out: &mut [f32]) {
    out.fill(0.0);
    for (&w, row) in weights.iter().zip(rows.chunks_exact(out.len())) {
        dispatch(isa, Axpy(w, row, out));
    }
}
