//! Rotary embedding. The sines and cosines of a step are made once ([`RopeTable`]) and shared by all layers.

use hanzo_fusion::graph::{RopeSpec, RopeStyle};
use hanzo_quant::math;

use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, dispatch};

/// Cosines and signed sines of a step's tokens, as the rotation reads them.
///
/// A rotation of `(a, b)` is `(a·c − b·s, b·c + a·s)`: with the partner of every element at hand that is
/// `x·c + partner·s`, the sine negated for first elements. Two products and a sum, each rounded once.
#[derive(Debug, Default)]
pub(crate) struct RopeTable {
    /// Rotated elements of a head.
    n_rot: usize,
    /// `[tokens, n_rot]`.
    cos: Vec<f32>,
    /// `[tokens, n_rot]`.
    sin: Vec<f32>,
}

impl RopeTable {
    /// Room for `tokens` rows of `spec`.
    pub(crate) fn resize(&mut self, spec: &RopeSpec, tokens: usize) {
        self.n_rot = 2 * spec.inv_freq.len();
        self.cos.resize(tokens * self.n_rot, 0.0);
        self.sin.resize(tokens * self.n_rot, 0.0);
    }

    /// Cosines and sines of one row.
    pub(crate) fn row(&self, token: usize) -> (&[f32], &[f32]) {
        let range = token * self.n_rot..(token + 1) * self.n_rot;
        (self.cos.get(range.clone()).unwrap_or(&[]), self.sin.get(range).unwrap_or(&[]))
    }

    /// Fills the row of a token at `position`. The angle and its sine and cosine are f64, rounded once to f32 and then
    /// multiplied by the spec's magnitude.
    pub(crate) fn fill(&mut self, spec: &RopeSpec, token: usize, position: usize) {
        let (n, half) = (self.n_rot, self.n_rot / 2);
        let range = token * n..(token + 1) * n;
        let (Some(cos), Some(sin)) = (self.cos.get_mut(range.clone()), self.sin.get_mut(range)) else {
            return;
        };
        for (i, &freq) in spec.inv_freq.iter().enumerate() {
            let (s, c) = math::sin_cos(position as f64 * freq);
            let (s, c) = (s as f32 * spec.magnitude, c as f32 * spec.magnitude);
            let (first, second) = match spec.style {
                RopeStyle::Halves => (i, i + half),
                RopeStyle::Pairs => (2 * i, 2 * i + 1),
            };
            (cos[first], cos[second]) = (c, c);
            (sin[first], sin[second]) = (-s, s);
        }
    }
}

struct Rope<'a> {
    style: RopeStyle,
    x: &'a [f32],
    head_dim: usize,
    cos: &'a [f32],
    sin: &'a [f32],
    out: &'a mut [f32],
}

impl Kernel for Rope<'_> {
    type Output = ();
    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let n = self.cos.len();
        for (x, out) in self.x.chunks_exact(self.head_dim).zip(self.out.chunks_exact_mut(self.head_dim)) {
            let (rotated, rest) = out.split_at_mut(n);
            rest.copy_from_slice(&x[n..]);
            match self.style {
                RopeStyle::Halves => {
                    let (a, b) = x[..n].split_at(n / 2);
                    let (out_a, out_b) = rotated.split_at_mut(n / 2);
                    rotate(s, a, b, &self.cos[..n / 2], &self.sin[..n / 2], out_a);
                    rotate(s, b, a, &self.cos[n / 2..], &self.sin[n / 2..], out_b);
                }
                RopeStyle::Pairs => {
                    let parts = x[..n].chunks(LANES).zip(self.cos.chunks(LANES)).zip(self.sin.chunks(LANES));
                    for (((x, c), sn), out) in parts.zip(rotated.chunks_mut(LANES)) {
                        let v = s.load_part(x, 0.0);
                        let xc = s.mul(v, s.load_part(c, 0.0));
                        let ps = s.mul(s.swap_pairs(v), s.load_part(sn, 0.0));
                        s.store_part(s.add(xc, ps), out);
                    }
                }
            }
        }
    }
}

/// `out = x · cos + partner · sin`.
#[inline(always)]
fn rotate<S: Simd>(s: S, x: &[f32], partner: &[f32], cos: &[f32], sin: &[f32], out: &mut [f32]) {
    let parts = x.chunks(LANES).zip(partner.chunks(LANES)).zip(cos.chunks(LANES)).zip(sin.chunks(LANES));
    for ((((x, p), c), sn), out) in parts.zip(out.chunks_mut(LANES)) {
        let xc = s.mul(s.load_part(x, 0.0), s.load_part(c, 0.0));
        let ps = s.mul(s.load_part(p, 0.0), s.load_part(sn, 0.0));
        s.store_part(s.add(xc, ps), out);
    }
}

/// Rotates the heads of one row; elements of a head beyond the table's are copied.
pub(crate) fn rope(
    isa: Isa,
    style: RopeStyle,
    x: &[f32],
    head_dim: usize,
    row: (&[f32], &[f32]),
    out: &mut [f32],
) {
    debug_assert!(row.0.len() <= head_dim && x.len() == out.len());
    dispatch(isa, Rope { style, x, head_dim, cos: row.0, sin: row.1, out });
}
