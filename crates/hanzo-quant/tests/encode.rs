//! The encoders, judged by what the crate's own decode makes of their bytes.

#![allow(clippy::unwrap_used, clippy::print_stdout, clippy::panic)]

use std::path::PathBuf;

use hanzo_quant::{EncodeError, QuantType, decode_row, encodable, encode_rows};
use proptest::prelude::*;

const N: usize = 512;

fn types() -> impl Iterator<Item = QuantType> {
    QuantType::ALL.iter().copied().filter(|&ty| encodable(ty))
}

fn quantized() -> impl Iterator<Item = QuantType> {
    types().filter(|ty| !ty.is_float())
}

fn try_encode(ty: QuantType, x: &[f32], w: Option<&[f32]>) -> Result<Vec<u8>, EncodeError> {
    let mut out = vec![0xAA; ty.row_bytes(x.len()).unwrap()];
    encode_rows(ty, x, N, w, &mut out).map(|()| out)
}

fn decode(ty: QuantType, bytes: &[u8], n: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; n];
    decode_row(ty, bytes, &mut out).unwrap();
    out
}

fn round_trip(ty: QuantType, x: &[f32], w: Option<&[f32]>) -> Vec<f32> {
    decode(ty, &try_encode(ty, x, w).unwrap(), x.len())
}

/// Root of the weighted mean of squared differences, weights repeating over rows.
fn rms_between(x: &[f32], y: &[f32], w: Option<&[f32]>) -> f64 {
    let weight = |i: usize| w.map_or(1.0, |w| f64::from(w[i % w.len()]));
    let sum: f64 = x
        .iter()
        .zip(y)
        .enumerate()
        .map(|(i, (&x, &y))| weight(i) * (f64::from(x) - f64::from(y)).powi(2))
        .sum();
    (sum / (0..x.len()).map(weight).sum::<f64>()).sqrt()
}

fn rms(x: &[f32]) -> f64 {
    rms_between(x, &vec![0.0; x.len()], None)
}

/// Seeded uniform numbers in 0..1.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 >> 33 ^ self.0).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((mixed >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn gaussian(&mut self) -> f64 {
        (-2.0 * self.next().ln()).sqrt() * (std::f64::consts::TAU * self.next()).cos()
    }

    fn gaussians(seed: u64, n: usize) -> Vec<f32> {
        let mut random = Random(seed);
        (0..n).map(|_| random.gaussian() as f32).collect()
    }

    /// Student's t with three degrees of freedom.
    fn heavy_tailed(seed: u64, n: usize) -> Vec<f32> {
        let mut r = Random(seed);
        (0..n)
            .map(|_| {
                let chi: f64 = (0..3).map(|_| r.gaussian().powi(2)).sum();
                (r.gaussian() / (chi / 3.0).sqrt()) as f32
            })
            .collect()
    }
}

/// The folder of reference values, if it is here.
fn oracle() -> Option<PathBuf> {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/oracles/quantize"));
    if dir.is_dir() {
        return Some(dir);
    }
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is missing", dir.display());
    println!("skipped: no reference values at {}", dir.display());
    None
}

#[test]
fn errors_are_no_larger_than_the_reference_encoders() {
    let Some(dir) = oracle() else { return };
    let bytes = std::fs::read(dir.join("input.f32")).unwrap();
    let x: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
    let mut compared = 0;
    for ty in quantized() {
        let Ok(theirs) = std::fs::read(dir.join(format!("{}.bin", ty.name().to_lowercase()))) else {
            continue;
        };
        let theirs = rms_between(&x, &decode(ty, &theirs, x.len()), None);
        let ours = rms_between(&x, &round_trip(ty, &x, None), None);
        println!("{ty:<8} {ours:.6} / {theirs:.6} = {:.4}", ours / theirs);
        assert!(ours <= 1.0005 * theirs, "{ty}: {ours} against {theirs}");
        compared += 1;
    }
    assert!(compared >= EXPECTED_REFERENCES, "only {compared} formats compared");
}

/// A code of `R` bits cannot bring the error of a Gaussian below 2^−R of its spread (rate-distortion); scalar codes
/// with their scales get within a small factor of that.
#[test]
fn gaussian_rows_come_near_the_rate_distortion_bound() {
    let x = Random::gaussians(1, 32 * N);
    for ty in quantized() {
        let error = rms_between(&x, &round_trip(ty, &x, None), None) / rms(&x);
        let factor = error / (-ty.bits_per_weight()).exp2();
        println!("{ty:<8} {error:.5}, {factor:.3} times the bound");
        assert!((1.0..2.4).contains(&factor), "{ty}: {error}, {factor} times the bound");
    }
}

#[test]
fn heavy_tails_do_not_break_the_scale_search() {
    let x = Random::heavy_tailed(2, 32 * N);
    for ty in quantized() {
        let error = rms_between(&x, &round_trip(ty, &x, None), None) / rms(&x);
        let factor = error / (-ty.bits_per_weight()).exp2();
        println!("{ty:<8} {error:.5}, {factor:.3} times the Gaussian bound");
        assert!(factor < 3.2, "{ty}: {error}, {factor} times the bound");
    }
}

#[test]
fn importance_moves_error_to_columns_that_matter_less() {
    let (x, mut r) = (Random::gaussians(3, 8 * N), Random(4));
    let w: Vec<f32> = (0..N).map(|_| (2.0 * r.gaussian()).exp() as f32).collect();
    for ty in quantized() {
        let plain = rms_between(&x, &round_trip(ty, &x, None), Some(&w));
        let weighted = rms_between(&x, &round_trip(ty, &x, Some(&w)), Some(&w));
        println!("{ty:<8} {:.4}", weighted / plain);
        assert!(weighted < 0.99 * plain, "{ty}: {weighted} with importance, {plain} without");
    }
}

#[test]
fn only_the_ratios_of_importance_count() {
    let (x, mut r) = (Random::gaussians(5, 2 * N), Random(6));
    let w: Vec<f32> = (0..N).map(|_| r.next() as f32).collect();
    let scaled: Vec<f32> = w.iter().map(|w| w * 1024.0).collect();
    for ty in quantized() {
        assert_eq!(try_encode(ty, &x, Some(&w)), try_encode(ty, &x, Some(&scaled)), "{ty}");
        assert_eq!(try_encode(ty, &x, None), try_encode(ty, &x, Some(&vec![7.0; N])), "{ty}");
        assert_eq!(
            try_encode(ty, &x, None),
            try_encode(ty, &x, Some(&vec![0.0; N])),
            "{ty}: all zero is no importance"
        );
    }
}

#[test]
fn columns_of_no_importance_still_get_near_codes() {
    let x = Random::gaussians(7, 4 * N);
    let w: Vec<f32> = (0..N).map(|i| if i % 3 == 0 { 0.0 } else { 1.0 }).collect();
    for ty in quantized() {
        let y = round_trip(ty, &x, Some(&w));
        let error = rms_between(&x, &y, None) / rms(&x);
        assert!(error < 4.0 * (-ty.bits_per_weight()).exp2(), "{ty}: {error}");
    }
}

#[test]
fn zeros_stay_zeros() {
    for ty in types() {
        assert_eq!(round_trip(ty, &[0.0; N], None), [0.0; N], "{ty}");
        let mut x = Random::gaussians(8, N);
        x[256..].fill(0.0);
        assert_eq!(round_trip(ty, &x, None)[256..], [0.0; 256], "{ty}: a zero block after another");
    }
}

#[test]
fn constant_rows_are_kept() {
    for ty in quantized() {
        for value in [0.03, -0.03, 1.0, -7.5] {
            let error =
                rms_between(&[value; N], &round_trip(ty, &[value; N], None), None) / f64::from(value.abs());
            // MXFP4 and NVFP4 have scales and codes of few digits; the others have at least one f16 to fit.
            let bound = if matches!(ty.name(), "MXFP4" | "NVFP4") { 0.15 } else { 1e-2 };
            assert!(error < bound, "{ty}: {value} off by {error}");
        }
    }
}

#[test]
fn no_magnitude_makes_it_worse_than_zeros() {
    let x = Random::gaussians(9, N);
    for ty in types() {
        for power in (-149..=12).step_by(7) {
            if ty.name() == "NVFP4" && power > 8 || ty.name() == "F16" && power > 13 {
                continue;
            }
            let scaled: Vec<f32> =
                x.iter().map(|&v| (f64::from(v) * f64::from(power).exp2()) as f32).collect();
            let y = round_trip(ty, &scaled, None);
            assert!(y.iter().all(|v| v.is_finite()), "{ty} at 2^{power}");
            let (error, norm) = (rms_between(&scaled, &y, None), rms(&scaled));
            assert!(error <= norm * 1.000_001, "{ty} at 2^{power}: {error} against {norm}");
        }
    }
}

#[test]
fn powers_of_two_scale_through() {
    let x = Random::gaussians(10, N);
    // NVFP4's scales have four bits of exponent, too few for this.
    for ty in types().filter(|ty| ty.name() != "NVFP4") {
        let y = round_trip(ty, &x, None);
        for power in [-4, 5] {
            let factor = f32::exp2(power as f32);
            let scaled: Vec<f32> = x.iter().map(|v| v * factor).collect();
            let expected: Vec<f32> = y.iter().map(|v| v * factor).collect();
            let got = round_trip(ty, &scaled, None);
            let off = rms_between(&got, &expected, None) / rms(&expected);
            assert!(off < 2e-3, "{ty}: {off} at 2^{power}");
        }
    }
}

#[test]
fn rows_are_independent_and_the_result_is_always_the_same() {
    let x = Random::heavy_tailed(11, 3 * N);
    let w = Random::gaussians(12, N).iter().map(|v| v * v).collect::<Vec<_>>();
    for ty in types() {
        for w in [None, Some(&*w)] {
            let together = try_encode(ty, &x, w).unwrap();
            assert_eq!(Ok(&together), try_encode(ty, &x, w).as_ref(), "{ty}");
            let alone: Vec<u8> = x.chunks(N).flat_map(|row| try_encode(ty, row, w).unwrap()).collect();
            assert_eq!(together, alone, "{ty}");
        }
    }
}

#[test]
fn ternary_weights_come_back() {
    let mut r = Random(13);
    let x: Vec<f32> = (0..N).map(|_| [-0.5, 0.0, 0.5][(r.next() * 3.0) as usize]).collect();
    for ty in quantized().filter(|ty| ty.name().starts_with("TQ") || ty.name() == "Q2_0") {
        assert_eq!(round_trip(ty, &x, None), x, "{ty}");
    }
}

#[test]
fn floats_round_to_nearest() {
    let x = Random::heavy_tailed(14, N);
    for ty in types().filter(|ty| ty.is_float()) {
        let unit = match ty.name() {
            "F32" => 0.0,
            "F16" => 1.0 / 2048.0,
            "BF16" => 1.0 / 256.0,
            other => panic!("{other}"),
        };
        for (x, y) in x.iter().zip(round_trip(ty, &x, None)) {
            assert!((x - y).abs() <= unit * x.abs().max(1e-4), "{ty}: {x} became {y}");
        }
    }
}

#[test]
fn numbers_that_are_none_are_refused_by_position() {
    for ty in types() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut x = vec![0.5; 2 * N];
            x[N + 77] = bad;
            match try_encode(ty, &x, None) {
                Err(EncodeError::NotFinite { index, value }) => {
                    assert_eq!((index, value.to_bits()), (N + 77, bad.to_bits()), "{ty}");
                }
                other => panic!("{ty}: {other:?}"),
            }
        }
    }
}

#[test]
fn values_beyond_the_scales_are_refused() {
    for ty in types().filter(|ty| !matches!(ty.name(), "F32" | "BF16" | "MXFP4")) {
        let mut x = Random::gaussians(15, N);
        x[300] = -1e30;
        match try_encode(ty, &x, None) {
            Err(EncodeError::OutOfRange { index: 300, value, limit, .. }) => {
                assert_eq!(value, -1e30);
                // What is within the limit is kept, whatever stands beside it (but where one bit is all there is).
                if ty == QuantType::Q1_0 {
                    continue;
                }
                for v in [limit, -limit] {
                    (x[300], x[301]) = (v, -v);
                    let y = round_trip(ty, &x, None);
                    assert!(
                        (y[300] - v).abs() <= 0.75 * limit && y[300] * v > 0.0,
                        "{ty}: {v} became {}",
                        y[300]
                    );
                }
            }
            other => panic!("{ty}: {other:?}"),
        }
    }
}

#[test]
fn misfits_are_refused() {
    let mut out = vec![0; 4096];
    for ty in types() {
        let bytes = ty.row_bytes(N).unwrap();
        let mut run =
            |x: &[f32], n, w: Option<&[f32]>, len| encode_rows(ty, x, n, w, &mut out[..len]).unwrap_err();
        let x = [0.5; N];
        assert!(
            matches!(run(&x, 1024, None, bytes), EncodeError::PartialRow { len: N, n_per_row: 1024 }),
            "{ty}"
        );
        assert!(
            matches!(run(&x, N, None, bytes - 1), EncodeError::OutputLength { found, .. } if found == bytes - 1)
        );
        if ty.block_elems() > 1 {
            assert!(
                matches!(run(&x[1..], N - 1, None, bytes), EncodeError::RaggedRow { n_per_row: 511, .. }),
                "{ty}"
            );
        }
        let short = EncodeError::ImportanceLength { expected: N, found: 3 };
        assert_eq!(run(&x, N, Some(&[1.0; 3]), bytes), short);
        for bad in [-1.0, f32::INFINITY] {
            let mut w = [1.0; N];
            w[5] = bad;
            assert_eq!(run(&x, N, Some(&w), bytes), EncodeError::ImportanceValue { index: 5, value: bad });
        }
        assert_eq!(encode_rows(ty, &[], 0, None, &mut []), Ok(()), "no rows at all");
    }
}

/// Formats that hold activations only.
#[test]
fn what_nobody_encodes_says_so() {
    for &ty in QuantType::ALL.iter().filter(|&&ty| !encodable(ty)) {
        assert!(matches!(ty.name(), "Q8_1" | "Q8_K"), "{ty} has no encoder");
        assert_eq!(encode_rows(ty, &[], 0, None, &mut []), Err(EncodeError::NotEncodable { ty }));
    }
}

const EXPECTED_REFERENCES: usize = 25;

/// Values of all magnitudes side by side, and weights likewise: what no real model has, but a file can hold.
fn wild() -> impl Strategy<Value = (Vec<f32>, Option<Vec<f32>>)> {
    let magnitude =
        |low: i32, high: i32| (low..high, -1f32..1.0).prop_map(|(e, m)| m * f64::from(e).exp2() as f32);
    let value = prop_oneof![4 => magnitude(-8, 1), 1 => magnitude(-149, 12), 1 => Just(0.0)];
    let weight = prop_oneof![
        4 => 0f32..1.0,
        1 => magnitude(-149, 127).prop_map(f32::abs),
        1 => Just(0.0),
        1 => Just(f32::MAX),
    ];
    let weights = proptest::option::of(proptest::collection::vec(weight, 256));
    (proptest::collection::vec(value, 256), weights)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn wild_rows_are_never_worse_than_zeros((x, w) in wild()) {
        for ty in types() {
            let scale = if ty == QuantType::NVFP4 { 0.125 } else { 1.0 };
            let x: Vec<f32> = x.iter().map(|v| v * scale).collect();
            let mut bytes = vec![0; ty.row_bytes(256).unwrap()];
            encode_rows(ty, &x, 256, w.as_deref(), &mut bytes).unwrap();
            let y = decode(ty, &bytes, 256);
            prop_assert!(y.iter().all(|v| v.is_finite()), "{}", ty);
            // Per block: what a block minimizes does not depend on its neighbours.
            for (i, (x, y)) in x.chunks(ty.block_elems()).zip(y.chunks(ty.block_elems())).enumerate() {
                let weight = |t: usize| w.as_ref().map_or(1.0, |w| f64::from(w[i * ty.block_elems() + t]));
                let mean = (0..x.len()).map(weight).sum::<f64>() / x.len() as f64;
                // No weight is less than a millionth of the mean, and none at all are equal weights.
                let weight = |t: usize| if mean > 0.0 { (weight(t) / mean).max(1e-6) } else { 1.0 };
                let error: f64 = (0..x.len()).map(|t| weight(t) * (f64::from(x[t]) - f64::from(y[t])).powi(2)).sum();
                let zeros: f64 = (0..x.len()).map(|t| weight(t) * f64::from(x[t]).powi(2)).sum();
                prop_assert!(error <= zeros * 1.001, "{}: block {} has error {} against {}", ty, i, error, zeros);
            }
        }
    }
}
