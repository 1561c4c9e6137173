//! Norms, softmax and sums of a row.

use super::{Fold, Map, Map2, map, map_in_place, map2, map2_in_place, reduce};
use crate::isa::Isa;
use crate::simd::{Kernel, Simd, dispatch, math};

/// `acc + x²`.
#[derive(Clone, Copy)]
struct Squares;
impl Fold for Squares {
    #[inline(always)]
    fn step<S: Simd>(self, s: S, acc: S::F, x: S::F) -> S::F {
        s.fma(x, x, acc)
    }
}

/// `acc + x`.
#[derive(Clone, Copy)]
struct Sum;
impl Fold for Sum {
    #[inline(always)]
    fn step<S: Simd>(self, s: S, acc: S::F, x: S::F) -> S::F {
        s.add(acc, x)
    }
}

/// `acc + (x - mean)²`.
#[derive(Clone, Copy)]
struct Spread(f32);
impl Fold for Spread {
    #[inline(always)]
    fn step<S: Simd>(self, s: S, acc: S::F, x: S::F) -> S::F {
        let d = s.sub(x, s.splat(self.0));
        s.fma(d, d, acc)
    }
}

/// `x · factor`, then `· w`.
#[derive(Clone, Copy)]
struct Times(f32);
impl Map for Times {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.mul(x, s.splat(self.0))
    }
}
impl Map2 for Times {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::F, w: S::F) -> S::F {
        s.mul(s.mul(x, s.splat(self.0)), w)
    }
}

/// `(x - mean) · factor`, then `· w`.
#[derive(Clone, Copy)]
struct Centred(f32, f32);
impl Map for Centred {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.mul(s.sub(x, s.splat(self.0)), s.splat(self.1))
    }
}
impl Map2 for Centred {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::F, w: S::F) -> S::F {
        s.mul(Map::at(self, s, x), w)
    }
}

/// `a + b`.
#[derive(Clone, Copy)]
struct Plus;
impl Map2 for Plus {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F {
        s.add(a, b)
    }
}

/// `exp(x - max)`.
#[derive(Clone, Copy)]
struct ExpBelow(f32);
impl Map for ExpBelow {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::F) -> S::F {
        math::exp(s, s.sub(x, s.splat(self.0)))
    }
}

/// `x / divisor`.
#[derive(Clone, Copy)]
struct Over(f32);
impl Map for Over {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, x: S::F) -> S::F {
        s.div(x, s.splat(self.0))
    }
}

/// `w · x + acc`, rounded once.
#[derive(Clone, Copy)]
struct Accumulate(f32);
impl Map2 for Accumulate {
    #[inline(always)]
    fn at<S: Simd>(self, s: S, acc: S::F, x: S::F) -> S::F {
        s.fma(s.splat(self.0), x, acc)
    }
}

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
            let squares = reduce(s, x, 0.0, Squares);
            let inv = 1.0 / (squares / x.len() as f32 + self.eps).sqrt();
            match self.weight {
                Some(weight) => map2(s, x, weight, out, Times(inv)),
                None => map(s, x, out, Times(inv)),
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
            let mean = reduce(s, x, 0.0, Sum) / n;
            // Padding equals the mean, so that its difference is zero.
            let squares = reduce(s, x, mean, Spread(mean));
            let inv = 1.0 / (squares / n + self.eps).sqrt();
            match self.weight {
                Some(weight) => map2(s, x, weight, out, Centred(mean, inv)),
                None => map(s, x, out, Centred(mean, inv)),
            }
            if let Some(bias) = self.bias {
                map2_in_place(s, out, bias, Plus);
            }
        }
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
        let max = x.iter().fold(f32::NEG_INFINITY, |m, &x| if x > m { x } else { m });
        map(s, x, out, ExpBelow(max));
        let sum = reduce(s, out, 0.0, Sum);
        map_in_place(s, out, Over(sum));
    }
}

/// Softmax of one row: `exp(x - max)`, divided by their sum.
pub(crate) fn softmax(isa: Isa, x: &[f32], out: &mut [f32]) {
    dispatch(isa, Softmax(x, out));
}

struct Exp<'a>(&'a [f32], f32, &'a mut [f32]);

impl Kernel for Exp<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let Exp(x, shift, out) = self;
        map(s, x, out, ExpBelow(shift));
    }
}

/// `exp(x - shift)` of each element, as [`softmax`] computes it: for log-probabilities of whole rows of logits. Elements beyond the
/// shorter of the two are left alone.
pub fn exp_below(isa: Isa, x: &[f32], shift: f32, out: &mut [f32]) {
    let n = x.len().min(out.len());
    dispatch(isa, Exp(&x[..n], shift, &mut out[..n]));
}

struct NormalizeSum<'a>(&'a [f32], f32, &'a mut [f32]);

impl Kernel for NormalizeSum<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let NormalizeSum(x, floor, out) = self;
        let sum = reduce(s, x, 0.0, Sum);
        map(s, x, out, Over(if sum > floor { sum } else { floor }));
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
        map2_in_place(s, out, x, Accumulate(w));
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
