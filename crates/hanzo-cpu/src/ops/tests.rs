//! Numeric gates of the row-wise ops: near a plain evaluation in f64, and the same bits from every instruction set.

use hanzo_fusion::graph::{Activation, RopeSpec, RopeStyle};
use hanzo_quant::math;

use super::elementwise::{Binary, Unary, binary, unary};
use super::norm::{LayerNorm, RmsNorm, combine, layer_norm, normalize_sum, rms_norm, softmax};
use super::rope::{RopeTable, rope};
use super::route::{gather, top_k};
use crate::isa::Isa;

fn sample(seed: u32, n: usize) -> Vec<f32> {
    let mut h = seed.wrapping_mul(0x9e37_79b9) | 1;
    let mut next = || {
        h ^= h << 13;
        h ^= h >> 17;
        h ^= h << 5;
        (h >> 8) as f32 / (1 << 22) as f32 - 2.0
    };
    (0..n).map(|_| next()).collect()
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// `f` on every instruction set; all bits are the scalar path's, which is returned.
fn on_all(n: usize, f: impl Fn(Isa, &mut [f32])) -> Vec<f32> {
    let mut want = vec![f32::NAN; n];
    f(Isa::Scalar, &mut want);
    for isa in Isa::available() {
        let mut got = vec![f32::NAN; n];
        f(isa, &mut got);
        assert_eq!(bits(&got), bits(&want), "{isa:?}");
    }
    want
}

fn assert_near(got: &[f32], want: impl Iterator<Item = f64>, bound: f64) {
    let mut n = 0;
    for (i, (got, want)) in got.iter().zip(want).enumerate() {
        let error = (f64::from(*got) - want).abs();
        assert!(error <= bound * want.abs().max(1.0), "element {i}: {got} against {want}");
        n += 1;
    }
    assert_eq!(n, got.len());
}

const SIZES: [usize; 12] = [1, 2, 15, 16, 17, 63, 64, 65, 100, 128, 250, 2048];

#[test]
fn add_rmsnorm_numeric() {
    for n in SIZES {
        let (a, b, w) = (sample(1, n), sample(2, n), sample(3, n));
        let sum = on_all(n, |isa, out| binary(isa, Binary::Add, &a, &b, out));
        assert_eq!(bits(&sum), a.iter().zip(&b).map(|(a, b)| (a + b).to_bits()).collect::<Vec<_>>());
        for weight in [None, Some(&w[..])] {
            let got = on_all(n, |isa, out| {
                rms_norm(isa, RmsNorm { x: &sum, weight, group: n, eps: 1e-6, out });
            });
            let squares: f64 = sum.iter().map(|x| f64::from(*x).powi(2)).sum();
            let inv = 1.0 / (squares / n as f64 + 1e-6).sqrt();
            let want = sum
                .iter()
                .enumerate()
                .map(|(i, x)| f64::from(*x) * inv * weight.map_or(1.0, |w| w[i].into()));
            assert_near(&got, want, 1e-6);
        }
    }
}

#[test]
fn layer_norm_numeric() {
    for n in SIZES {
        let (x, w, b) = (sample(1, 2 * n), sample(2, n), sample(3, n));
        let (weight, bias) = (Some(&w[..]), Some(&b[..]));
        let got = on_all(2 * n, |isa, out| {
            layer_norm(isa, LayerNorm { x: &x, weight, bias, group: n, eps: 1e-5, out })
        });
        for (x, got) in x.chunks(n).zip(got.chunks(n)) {
            let mean = x.iter().map(|x| f64::from(*x)).sum::<f64>() / n as f64;
            let var = x.iter().map(|x| (f64::from(*x) - mean).powi(2)).sum::<f64>() / n as f64;
            let inv = 1.0 / (var + 1e-5).sqrt();
            let want = x.iter().zip(&w).zip(&b);
            // A single column is its own mean up to rounding.
            assert_near(
                got,
                want.map(|((x, w), b)| (f64::from(*x) - mean) * inv * f64::from(*w) + f64::from(*b)),
                1e-5,
            );
        }
    }
}

#[test]
fn qk_rms_norm_rope_numeric() {
    for (style, dim, n_rot) in [
        (RopeStyle::Halves, 128, 128),
        (RopeStyle::Halves, 80, 20),
        (RopeStyle::Halves, 24, 24),
        (RopeStyle::Pairs, 64, 64),
        (RopeStyle::Pairs, 100, 38),
    ] {
        let heads = 3;
        let spec = RopeSpec {
            style,
            inv_freq: (0..n_rot / 2).map(|i| 1e6f64.powf(-2.0 * i as f64 / n_rot as f64)).collect(),
            magnitude: 1.25,
        };
        let (x, w) = (sample(4, heads * dim), sample(5, dim));
        let positions = [0, 1, 77, 40_000, 1_000_000];
        let mut table = RopeTable::default();
        table.resize(&spec, positions.len());
        for (row, &p) in positions.iter().enumerate() {
            table.fill(&spec, row, p);
        }
        for (row, &p) in positions.iter().enumerate() {
            let mut normed = vec![0.0; x.len()];
            let got = on_all(x.len(), |isa, out| {
                let mut h = vec![0.0; x.len()];
                rms_norm(isa, RmsNorm { x: &x, weight: Some(&w), group: dim, eps: 1e-6, out: &mut h });
                rope(isa, style, &h, dim, table.row(row), out);
            });
            rms_norm(
                Isa::Scalar,
                RmsNorm { x: &x, weight: Some(&w), group: dim, eps: 1e-6, out: &mut normed },
            );
            let mut want: Vec<f64> = normed.iter().map(|x| f64::from(*x)).collect();
            for head in want.chunks_mut(dim) {
                for (i, f) in spec.inv_freq.iter().enumerate() {
                    let (a, b) = match style {
                        RopeStyle::Halves => (i, i + n_rot / 2),
                        RopeStyle::Pairs => (2 * i, 2 * i + 1),
                    };
                    let (sin, cos) = (p as f64 * f).sin_cos();
                    (head[a], head[b]) =
                        ((head[a] * cos - head[b] * sin) * 1.25, (head[b] * cos + head[a] * sin) * 1.25);
                }
            }
            assert_near(&got, want.into_iter(), 1e-6);
        }
    }
}

#[test]
fn moe_route_numeric() {
    for (n, k) in [(1, 1), (4, 2), (8, 8), (60, 4), (64, 6), (128, 8), (257, 10)] {
        for seed in 0..20 {
            let x = sample(100 + seed, n);
            let p = on_all(n, |isa, out| softmax(isa, &x, out));
            let max = x.iter().fold(f64::NEG_INFINITY, |m, x| m.max(f64::from(*x)));
            let sum: f64 = x.iter().map(|x| (f64::from(*x) - max).exp()).sum();
            assert_near(&p, x.iter().map(|x| (f64::from(*x) - max).exp() / sum), 1e-6);
            let mut ids = vec![0; k];
            top_k(&p, &mut ids);
            let mut order: Vec<u32> = (0..n as u32).collect();
            order.sort_by(|a, b| p[*b as usize].total_cmp(&p[*a as usize]).then(a.cmp(b)));
            assert_eq!(ids, order[..k]);
            let mut w = vec![0.0; k];
            gather(&p, &ids, &mut w);
            assert_eq!(w, ids.iter().map(|&i| p[i as usize]).collect::<Vec<_>>());
            let got = on_all(k, |isa, out| normalize_sum(isa, &w, 1e-9, out));
            let total: f64 = w.iter().map(|x| f64::from(*x)).sum();
            assert_near(&got, w.iter().map(|x| f64::from(*x) / total), 1e-6);
        }
    }
}

#[test]
fn top_k_of_anything_is_valid() {
    let nan = f32::NAN;
    let mut ids = [9; 3];
    top_k(&[nan, 1.0, nan, 2.0], &mut ids);
    assert_eq!(ids, [3, 1, 0]);
    top_k(&[1.0, 1.0, 1.0, 1.0], &mut ids);
    assert_eq!(ids, [0, 1, 2]);
    top_k(&[nan; 5], &mut ids);
    assert_eq!(ids, [0, 1, 2]);
    top_k(&[f32::NEG_INFINITY, nan, f32::INFINITY], &mut ids);
    assert_eq!(ids, [2, 0, 1]);
}

#[test]
fn elementwise_numeric() {
    type Scalar = fn(f32) -> f32;
    let scalar: [(Unary, Scalar); 9] = [
        (Unary::Scale(0.3), |x| x * 0.3),
        (Unary::Softcap(1.5), |x| 1.5 * math::tanh(x / 1.5)),
        (Unary::Activate(Activation::Silu), math::silu),
        (Unary::Activate(Activation::GeluTanh), math::gelu_tanh),
        (Unary::Activate(Activation::Gelu), math::gelu_erf),
        (Unary::Activate(Activation::Relu), |x| if 0.0 > x { 0.0 } else { x }),
        (Unary::Activate(Activation::Sigmoid), math::sigmoid),
        (Unary::Activate(Activation::Tanh), math::tanh),
        (Unary::Activate(Activation::Softplus), math::softplus),
    ];
    for n in SIZES {
        let (x, b) = (sample(7, n), sample(8, n));
        for (op, f) in scalar {
            let got = on_all(n, |isa, out| unary(isa, op, &x, out));
            assert_eq!(bits(&got), x.iter().map(|x| f(*x).to_bits()).collect::<Vec<_>>(), "{op:?}");
        }
        let got = on_all(n, |isa, out| binary(isa, Binary::Mul, &x, &b, out));
        assert_eq!(bits(&got), x.iter().zip(&b).map(|(x, b)| (x * b).to_bits()).collect::<Vec<_>>());
    }
}

#[test]
fn combine_is_in_order() {
    for n in SIZES {
        let (rows, w) = (sample(9, 4 * n), sample(10, 4));
        let got = on_all(n, |isa, out| combine(isa, &w, &rows, out));
        let want = (0..n).map(|c| (0..4).fold(0.0f32, |acc, j| w[j].mul_add(rows[j * n + c], acc)).to_bits());
        assert_eq!(bits(&got), want.collect::<Vec<_>>());
    }
}
