//! The numeric gates of the contractions: every format, ragged sizes, every instruction set, several thread counts, against the
//! canonical-order reference. `nbad` counts outputs with different bits, and must be 0.

use hanzo_quant::{Format, QuantType, canonical};

use crate::activations::Activations;
use crate::contract::{self, Routes, Rows};
use crate::epilogue::{RowsMut, Store};
use crate::isa::Isa;
use crate::packed::PackedMatrix;
use crate::pool::Pool;

/// A counter-based generator: test data.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Roughly normal.
    pub(crate) fn normal(&mut self) -> f32 {
        (0..4).map(|_| (self.next() >> 40) as f32 / (1 << 24) as f32 - 0.5).sum::<f32>() * 1.7
    }
}

/// Random blocks whose values are finite: super-scales are drawn again until decoding gives finite numbers of moderate size.
pub(crate) fn weights(format: &Format, n: usize, rng: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(n / format.elems * format.bytes);
    let mut values = vec![0.0f32; format.elems];
    for _ in 0..n / format.elems {
        loop {
            let block: Vec<u8> = (0..format.bytes).map(|_| rng.next() as u8).collect();
            (format.decode)(&block, &mut values);
            if values.iter().all(|v| v.is_finite() && v.abs() < 1e6) {
                bytes.extend(block);
                break;
            }
        }
    }
    bytes
}

/// Activations with outliers, zero groups and tiny groups.
pub(crate) fn rows(m: usize, k: usize, rng: &mut Random) -> Vec<f32> {
    (0..m * k)
        .map(|i| match i / 32 % 11 {
            3 => 0.0,
            5 => rng.normal() * 1e-20,
            7 if i % 32 == 9 => 90.0,
            _ => rng.normal(),
        })
        .collect()
}

fn pools() -> Vec<Pool> {
    Isa::available().flat_map(|isa| [1, 2, 3].map(|n| Pool::with_isa(n, isa).unwrap())).collect()
}

fn quantized(x: &[f32], k: usize) -> Activations {
    let mut a = Activations::new(x.len() / k, k).unwrap();
    x.chunks(k).enumerate().for_each(|(m, x)| a.quantize_row(Isa::best(), m, x));
    a
}

fn multiply(pool: &Pool, w: &PackedMatrix, x: &[f32]) -> Vec<f32> {
    let m = x.len() / w.n_in();
    let mut out = vec![f32::NAN; m * w.n_out()];
    let a = if w.takes_quantized() { Some(quantized(x, w.n_in())) } else { None };
    let rows = a.as_ref().map_or(Rows::Float { data: x, stride: w.n_in() }, Rows::Quantized);
    let store = Store(RowsMut::new(&mut out, w.n_out()));
    pool.run(|ctx| contract::matmul(ctx, w, rows, m, &store).unwrap()).unwrap();
    out
}

fn nbad(got: &[f32], want: &[f32]) -> usize {
    assert_eq!(got.len(), want.len());
    got.iter().zip(want).filter(|(g, w)| g.to_bits() != w.to_bits()).count()
}

/// Sizes of k that exercise whole groups, a ragged last group and a single block.
fn ks(format: &Format) -> Vec<usize> {
    let block = format.elems.max(32);
    let mut ks = vec![block, 3 * block, 512 + if block < 256 { block } else { 0 }];
    ks.dedup();
    ks
}

fn gate(ms: &[usize], ns: &[usize]) {
    let pools = pools();
    let mut rng = Random(7);
    for &ty in QuantType::ALL {
        let format = ty.format();
        for k in ks(format) {
            for &n in ns {
                let raw = weights(format, n * k, &mut rng);
                let most = ms.iter().copied().max().unwrap();
                let x = rows(most, k, &mut rng);
                let want = canonical::matmul(format, &raw, n, k, &x);
                let w = PackedMatrix::pack(format, n, k, &raw[..], &pools[1], None).unwrap();
                for pool in &pools {
                    for &m in ms {
                        let got = multiply(pool, &w, &x[..m * k]);
                        let bad = nbad(&got, &want[..m * n]);
                        assert_eq!(
                            bad,
                            0,
                            "{ty} [{m}, {k}] x [{n}]: {:?}, {} threads",
                            pool.isa(),
                            pool.threads()
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn qmatvec_unified_numeric() {
    gate(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 17, 32], &[1, 16, 33, 80]);
}

#[test]
fn qgemm_unified_numeric() {
    gate(&[33, 36, 43, 48, 67], &[1, 31, 40, 160]);
}

/// Row `i` of a batch has the bits of the row alone, whatever the batch, and wherever in it the row is.
#[test]
fn a_row_does_not_see_its_batch() {
    let mut rng = Random(3);
    for &ty in QuantType::ALL {
        let (n, k) = (48, 512);
        let raw = weights(ty.format(), n * k, &mut rng);
        let x = rows(67, k, &mut rng);
        let mut alone = Vec::new();
        for pool in pools() {
            let w = PackedMatrix::pack(ty.format(), n, k, &raw[..], &pool, None).unwrap();
            if alone.is_empty() {
                alone = x.chunks(k).flat_map(|x| multiply(&pool, &w, x)).collect();
            }
            for (first, m) in [(0, 67), (1, 66), (13, 20), (60, 7), (66, 1)] {
                let got = multiply(&pool, &w, &x[first * k..(first + m) * k]);
                assert_eq!(nbad(&got, &alone[first * n..(first + m) * n]), 0, "{ty} rows {first}.. of {m}");
            }
        }
    }
}

#[test]
fn rows_come_back_as_the_format_decodes_them() {
    let mut rng = Random(5);
    let pool = Pool::new(2).unwrap();
    for &ty in QuantType::ALL {
        let format = ty.format();
        for k in ks(format) {
            let n = 35;
            let raw = weights(format, n * k, &mut rng);
            let w = PackedMatrix::pack(format, n, k, &raw[..], &pool, None).unwrap();
            let (mut got, mut want) = (vec![0.0; k], vec![0.0; k]);
            for (row, raw) in raw.chunks(k / format.elems * format.bytes).enumerate() {
                w.dequantize_row(row, &mut got).unwrap();
                (format.decode)(raw, &mut want);
                assert_eq!(nbad(&got, &want), 0, "{ty} row {row}, k {k}");
            }
        }
    }
}

/// `tokens` rows to `top_k` of `experts`, unevenly.
fn moe_gate(tokens: &[usize]) {
    let (experts, top_k, n, k) = (5, 2, 40, 256);
    let pools = pools();
    let mut rng = Random(11);
    for &ty in QuantType::ALL {
        let format = ty.format();
        let raw = weights(format, experts * n * k, &mut rng);
        let expert_bytes = raw.len() / experts;
        let w = PackedMatrix::pack_experts(format, experts, n, k, &raw[..], &pools[1], None).unwrap();
        for &t in tokens {
            let ids: Vec<u32> =
                (0..t * top_k).map(|i| if i % 3 == 0 { 1 } else { rng.next() as u32 % 5 }).collect();
            let mut routes = Routes::default();
            routes.build(&ids, experts);
            for x_div in [top_k, 1] {
                let x = rows(t * top_k / x_div, k, &mut rng);
                let mut want = Vec::new();
                for (pair, &id) in ids.iter().enumerate() {
                    let (row, e) = (pair / x_div, id as usize);
                    let raw = &raw[e * expert_bytes..(e + 1) * expert_bytes];
                    want.extend(canonical::matmul(format, raw, n, k, &x[row * k..(row + 1) * k]));
                }
                let a = if format.int.is_some() { Some(quantized(&x, k)) } else { None };
                let rows = a.as_ref().map_or(Rows::Float { data: &x, stride: k }, Rows::Quantized);
                for pool in &pools {
                    let mut out = vec![f32::NAN; t * top_k * n];
                    let store = Store(RowsMut::new(&mut out, n));
                    pool.run(|ctx| contract::moe_matmul(ctx, &w, rows, x_div, &routes, &store).unwrap())
                        .unwrap();
                    let bad = nbad(&out, &want);
                    assert_eq!(bad, 0, "{ty} {t} tokens: {:?}, {} threads", pool.isa(), pool.threads());
                }
            }
        }
    }
}

#[test]
fn moe_matvec_unified_numeric() {
    moe_gate(&[1, 2, 5]);
}

#[test]
fn moe_gemm_numeric() {
    moe_gate(&[67, 130]);
}
