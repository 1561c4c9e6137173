//! The canonical order: which operations, in which order, make an output of a contraction. One answer rests on this page.
//!
//! `y[n] = Σ_k w[n, k] · x[k]` is computed in one of two ways, by the weight's format. Every `f32` operation below rounds once,
//! to nearest even; `fma(a, b, c)` is `a · b + c` rounded once. No device may reassociate, split or merge anything.
//!
//! **Block formats** multiply integers. The activation row is quantized in groups of [`GROUP`] = 32 (see [`quantize_group`]):
//!
//! ```text
//! amax = max |x|      (by the bit pattern of |x|, so that it is total)
//! d    = amax / 127   inv = 127 / amax      where amax < 2^-100: d = 0, all codes 0; where not finite: d = NaN, codes 0
//! a[k] = round_half_even(x[k] · inv)        in −127..=127
//! ```
//!
//! Then, with one accumulator an output, group after group; a group holds one sub-block of 32 or two of 16, `j` ascending:
//!
//! ```text
//! acc = 0
//! for each group i of 32 elements:
//!     idot[j] = Σ code[k] · a[k]      isum[j] = Σ a[k]       over sub-block j, exact integers
//!     p   = scale[first j] · idot[first j]                   scale[j] = d_w · sc
//!     p   = fma(scale[j], idot[j], p)                        for the second sub-block, if there is one
//!     p   = fma(−min[j], isum[j], p)                         for each sub-block, asymmetric formats only; min[j] = dmin · m
//!     acc = fma(d[i], p, acc)
//! ```
//!
//! So the activation's scale is applied once a group, and the chain of dependent operations is one fma a group.
//!
//! **F32, F16 and BF16** multiply floats: `acc = 0; for k ascending: acc = fma(w[k], x[k], acc)`.
//!
//! **Low-rank updates** (LoRA, `A` of `[rank, n_in]`, `B` of `[n_out, rank]`) are two float contractions of the same activations
//! that `W` is contracted with, added to its finished product before anything else is done to that, update after update in the
//! order of the request:
//!
//! ```text
//! x[k] = d[i] · a[k]              where W is of a block format; the f32 activation itself where it is of a float format
//! u[j] = 0; for k ascending: u[j] = fma(A[j, k], x[k], u[j])
//! v[n] = 0; for j ascending: v[n] = fma(B[n, j], u[j], v[n])
//! y[n] = fma(scale, v[n], y[n])
//! ```
//!
//! An update of the embedding has `u[j] = A[j, token]`, exactly.
//!
//! The functions here are that text, one output at a time: the oracle for the cores of every device.

use crate::{Format, IntView};

/// Activations that share one scale.
pub const GROUP: usize = 32;

/// Below this largest magnitude (2^-100) a group of activations counts as zero: its reciprocal would overflow, and no sum could
/// tell the difference.
pub const TINY: f32 = f32::from_bits((127 - 100) << 23);

/// Quantizes one group of activations; returns the scale `d`. `codes` and `x` have the same length, at most [`GROUP`].
pub fn quantize_group(x: &[f32], codes: &mut [i8]) -> f32 {
    let amax = f32::from_bits(x.iter().map(|v| v.to_bits() & 0x7fff_ffff).max().unwrap_or(0));
    if !amax.is_finite() || amax < TINY {
        codes.fill(0);
        return if amax.is_finite() { 0.0 } else { f32::NAN };
    }
    let inv = 127.0 / amax;
    for (code, v) in codes.iter_mut().zip(x) {
        *code = (v * inv).round_ties_even() as i8;
    }
    amax / 127.0
}

/// A quantized activation row.
#[derive(Clone, Debug, Default)]
pub struct QuantizedRow {
    /// Codes, one an element.
    pub codes: Vec<i8>,
    /// Scales, one a [`GROUP`].
    pub d: Vec<f32>,
}

impl QuantizedRow {
    /// Quantizes `x`.
    pub fn new(x: &[f32]) -> Self {
        let mut codes = vec![0; x.len()];
        let d = x.chunks(GROUP).zip(codes.chunks_mut(GROUP)).map(|(x, c)| quantize_group(x, c)).collect();
        QuantizedRow { codes, d }
    }
}

/// One output of a block format: `row` are the raw bytes of the weight row. Bytes beyond the last whole block and blocks beyond the
/// activations are ignored.
pub fn dot_int(format: &Format, view: &IntView, row: &[u8], x: &QuantizedRow) -> f32 {
    let mut codes = vec![0i8; format.elems];
    let mut acc = 0.0f32;
    let blocks = row.chunks_exact(format.bytes).zip(x.codes.chunks_exact(format.elems)).enumerate();
    for (b, (block, a)) in blocks {
        (view.read_codes)(block, &mut codes);
        for (i, (w, a)) in codes.chunks(GROUP).zip(a.chunks(GROUP)).enumerate() {
            let Some(&d) = x.d.get(b * (format.elems / GROUP) + i) else { return f32::NAN };
            let sub = |j: usize| (view.sub_scale)(block, i * (GROUP / view.sub_block) + j);
            let mut p = None;
            for (j, (w, a)) in w.chunks(view.sub_block).zip(a.chunks(view.sub_block)).enumerate() {
                let idot: i32 = w.iter().zip(a).map(|(&w, &a)| i32::from(w) * i32::from(a)).sum();
                let scale = sub(j).scale();
                p = Some(p.map_or(scale * idot as f32, |p| scale.mul_add(idot as f32, p)));
            }
            let mut p = p.unwrap_or(0.0);
            if view.asymmetric {
                for (j, a) in a.chunks(view.sub_block).enumerate() {
                    let isum: i32 = a.iter().map(|&a| i32::from(a)).sum();
                    p = (-sub(j).min()).mul_add(isum as f32, p);
                }
            }
            acc = d.mul_add(p, acc);
        }
    }
    acc
}

/// One output of a float format: `w` are the decoded weights.
pub fn dot_float(w: &[f32], x: &[f32]) -> f32 {
    w.iter().zip(x).fold(0.0f32, |acc, (w, x)| w.mul_add(*x, acc))
}

/// The activations that low-rank updates see where the weight itself sees quantized ones.
pub fn dequantize(x: &QuantizedRow) -> Vec<f32> {
    let groups = x.codes.chunks(GROUP).zip(&x.d);
    groups.flat_map(|(codes, d)| codes.iter().map(move |&a| d * f32::from(a))).collect()
}

/// `y[n] += scale · Σ_j b[n][j] · Σ_k a[j][k] · x[k]`: the reference of every low-rank update. `a` is row-major `[rank, x.len()]`, `b`
/// row-major `[y.len(), rank]`.
pub fn add_low_rank(y: &mut [f32], a: &[f32], b: &[f32], rank: usize, scale: f32, x: &[f32]) {
    if rank == 0 || x.is_empty() {
        return;
    }
    let u: Vec<f32> = a.chunks_exact(x.len()).take(rank).map(|a| dot_float(a, x)).collect();
    for (y, b) in y.iter_mut().zip(b.chunks_exact(rank)) {
        *y = scale.mul_add(dot_float(b, &u), *y);
    }
}

/// `out[m][n] = Σ_k weights[n][k] · x[m][k]` in the canonical order: the reference of every contraction.
///
/// `weights` are `n_out` rows of raw blocks of `format`, `x` is row-major `[M, n_in]`; the result is row-major `[M, n_out]`. `n_in` must
/// be a whole number of blocks and of [`GROUP`]s (float formats: any number).
pub fn matmul(format: &Format, weights: &[u8], n_out: usize, n_in: usize, x: &[f32]) -> Vec<f32> {
    let row_bytes = n_in / format.elems * format.bytes;
    let mut out = Vec::with_capacity(n_out * x.len().checked_div(n_in).unwrap_or(0));
    for x in x.chunks_exact(n_in) {
        let quantized = QuantizedRow::new(x);
        for row in weights.chunks_exact(row_bytes).take(n_out) {
            out.push(match &format.int {
                Some(view) => dot_int(format, view, row, &quantized),
                None => {
                    let mut w = vec![0.0; n_in];
                    (format.decode)(row, &mut w);
                    dot_float(&w, x)
                }
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QuantType;

    #[test]
    fn groups_round_half_to_even_and_survive_extremes() {
        let mut codes = [9i8; 4];
        // amax 127 makes the reciprocal exactly 1.
        assert_eq!(quantize_group(&[127.0, 0.5, 1.5, -2.5], &mut codes), 1.0);
        assert_eq!(codes, [127, 0, 2, -2]);
        assert_eq!(quantize_group(&[0.0, -0.0, 1e-38, 0.0], &mut codes), 0.0);
        assert_eq!(codes, [0; 4]);
        assert!(quantize_group(&[1.0, f32::NAN, 0.0, 0.0], &mut codes).is_nan());
        assert!(quantize_group(&[1.0, f32::NEG_INFINITY, 0.0, 0.0], &mut codes).is_nan());
        assert_eq!(codes, [0; 4]);
        let d = quantize_group(&[f32::MAX, -f32::MAX, TINY, 0.0], &mut codes);
        assert_eq!((d, codes), (f32::MAX / 127.0, [127, -127, 0, 0]));
    }

    /// The canonical order approximates the true product: within the error of 8-bit activations.
    #[test]
    fn near_the_product_of_decoded_weights() {
        for &ty in QuantType::ALL {
            let format = ty.format();
            let n_in = 512;
            let bytes: Vec<u8> =
                (0..n_in / format.elems * format.bytes).map(|i| (i * 37 % 61) as u8).collect();
            let x: Vec<f32> = (0..n_in).map(|i| ((i * 29 % 97) as f32 - 48.0) / 48.0).collect();
            let mut w = vec![0.0; n_in];
            (format.decode)(&bytes, &mut w);
            let exact: f64 = w.iter().zip(&x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum();
            let norm: f64 = w.iter().zip(&x).map(|(w, x)| (f64::from(*w) * f64::from(*x)).abs()).sum();
            let got = matmul(format, &bytes, 1, n_in, &x);
            let bound = if ty.is_float() { 1e-5 } else { 1e-2 } * norm;
            assert!((f64::from(got[0]) - exact).abs() <= bound, "{ty}: {} against {exact}", got[0]);
        }
    }
}
