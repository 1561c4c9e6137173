//! Row-wise kernels: norms and the activations' quantizer.

use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernels::norm::Residual;
use hanzo_fusion::kernels::{norm, quantize};
use hanzo_quant::canonical::{GROUP, QuantizedRow};

use crate::harness::{Check, Rng, bits, everywhere, words};

/// A row's fold in the CPU's order: 64 chains, four vectors of 16, halves.
pub(crate) fn row_fold(x: &[f32], step: impl Fn(f32, f32) -> f32) -> f32 {
    let mut chains = [0f32; 64];
    for (i, &x) in x.iter().enumerate() {
        chains[i % 64] = step(chains[i % 64], x);
    }
    let mut lanes: Vec<f32> =
        (0..16).map(|i| (chains[i] + chains[16 + i]) + (chains[32 + i] + chains[48 + i])).collect();
    while lanes.len() > 1 {
        let (low, high) = lanes.split_at(lanes.len() / 2);
        lanes = low.iter().zip(high).map(|(a, b)| a + b).collect();
    }
    lanes[0]
}

pub(crate) fn rms_norm(x: &[f32], weight: &[f32], eps: f32) -> Vec<f32> {
    let squares = row_fold(x, |acc, x| x.mul_add(x, acc));
    let inv = 1.0 / (squares / x.len() as f32 + eps).sqrt();
    x.iter().zip(weight).map(|(x, w)| x * inv * w).collect()
}

#[test]
fn add_rmsnorm_numeric() {
    // One quotient and one square root, 2.5 ulp each at most.
    everywhere("norms", 6, |subgroup| {
        let mut rng = Rng(1);
        let mut checks = Vec::new();
        for residual in [Residual::None, Residual::Add] {
            for n in [1usize, 31, 256, 300, 1024] {
                let rows = 3;
                let (x, delta, w) = (rng.floats(rows * n), rng.floats(rows * n), rng.floats(n));
                let kernel = norm::rms_norm(subgroup, residual).unwrap();
                let mut buffers = vec![
                    ("x", BufferData::of_f32(&x)),
                    ("weight", BufferData::of_f32(&w)),
                    ("y", BufferData::empty(rows * n)),
                ];
                let mut want = Vec::new();
                let sums: Vec<f32> = match residual {
                    Residual::None => x,
                    Residual::Add => {
                        buffers.push(("delta", BufferData::of_f32(&delta)));
                        let sums: Vec<_> = x.iter().zip(&delta).map(|(x, d)| x + d).collect();
                        want.push(("x", bits(&sums)));
                        sums
                    }
                };
                let y: Vec<f32> = sums.chunks(n).flat_map(|row| rms_norm(row, &w, 1e-5)).collect();
                want.push(("y", bits(&y)));
                let params = [("n", n as u32), ("eps", 1e-5f32.to_bits())];
                checks.push(Check::new(&kernel, [rows as u32, 1, 1], buffers, &params, want));
            }
        }
        checks
    });
}

#[test]
fn activations_are_quantized_to_the_canonical_bits() {
    everywhere("quantize", 0, |subgroup| {
        let mut rng = Rng(2);
        let one = |groups: usize| {
            let mut x = rng.floats(groups * GROUP);
            // A group of nothing, one too small to count, and one with an infinity.
            for (g, value) in [(1, 0.0), (2, f32::from_bits(1 << 23)), (3, f32::INFINITY)] {
                if let Some(v) = x.get_mut(g * GROUP..(g + 1) * GROUP) {
                    v.fill(0.0);
                    v[5] = value;
                }
            }
            let kernel = quantize::quantize_q8(subgroup).unwrap();
            let grid = [(groups as u32 * 8).div_ceil(kernel.workgroup), 1, 1];
            let buffers = vec![
                ("x", BufferData::of_f32(&x)),
                ("codes", BufferData::empty(groups * 8)),
                ("d", BufferData::empty(groups)),
            ];
            let row = QuantizedRow::new(&x);
            let want = vec![("codes", words(&row.codes).collect()), ("d", bits(&row.d))];
            Check::new(&kernel, grid, buffers, &[("n_groups", groups as u32)], want)
        };
        [1usize, 3, 32, 67].map(one).into()
    });
}
