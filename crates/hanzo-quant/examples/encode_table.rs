//! Error and speed of every encoder: `cargo run --release -p hanzo-quant --example encode_table [DIR] [TYPE…]`.
//!
//! Prints, for each format, bits a weight, the error on seeded Gaussian rows relative to their spread, nanoseconds an
//! element, and, where `DIR` holds `input.f32` and `TYPE.bin` of another encoder, the ratio of the two errors.

#![allow(clippy::print_stdout)]

use std::{path::Path, sync::OnceLock, time::Instant};

use hanzo_quant::{QuantType, decode_row, encodable, encode_rows};

fn rmse(x: &[f32], y: &[f32]) -> f64 {
    let sum: f64 = x.iter().zip(y).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)).sum();
    (sum / x.len() as f64).sqrt()
}

fn decode(ty: QuantType, bytes: &[u8], n: usize) -> anyhow::Result<Vec<f32>> {
    let mut out = vec![0.0; n];
    decode_row(ty, bytes, &mut out)?;
    Ok(out)
}

fn encode(ty: QuantType, x: &[f32], n_per_row: usize) -> anyhow::Result<Vec<u8>> {
    let mut out = vec![0; ty.row_bytes(x.len()).unwrap_or(0)];
    encode_rows(ty, x, n_per_row, None, &mut out)?;
    Ok(out)
}

/// Sums of twelve uniform numbers: close enough to a Gaussian of variance 1.
fn gaussian(n: usize) -> Vec<f32> {
    let mut state = 1u64;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..n).map(|_| (0..12).map(|_| uniform()).sum::<f32>() - 6.0).collect()
}

/// Nanoseconds that this thread has run, or where the system does not say, that have passed.
fn cpu_ns() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let ran = stat.as_deref().and_then(|s| s.split(' ').next()).and_then(|s| s.parse().ok());
    ran.unwrap_or_else(|| START.get_or_init(Instant::now).elapsed().as_nanos() as f64)
}

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let dir = args.first().map(Path::new);
    let wanted =
        |ty: QuantType| args.len() < 2 || args[1..].iter().any(|name| QuantType::from_name(name) == Some(ty));
    let gauss = gaussian(64 * 1024);
    println!("{:<8} {:>7} {:>9} {:>8} {:>8}", "type", "bits/w", "rel. err", "ns/elem", "ratio");
    for &ty in QuantType::ALL.iter().filter(|&&ty| encodable(ty) && wanted(ty)) {
        let start = cpu_ns();
        let bytes = encode(ty, &gauss, 1024)?;
        let mut rounds = 1;
        // The clock may tick in steps of milliseconds.
        while cpu_ns() - start < 1e8 {
            encode(ty, &gauss, 1024)?;
            rounds += 1;
        }
        let ns = (cpu_ns() - start) / (rounds * gauss.len()) as f64;
        let error = rmse(&gauss, &decode(ty, &bytes, gauss.len())?);
        let ratio = match dir {
            Some(dir) => {
                let input = std::fs::read(dir.join("input.f32"))?;
                let input: Vec<f32> =
                    input.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
                match std::fs::read(dir.join(format!("{}.bin", ty.name().to_lowercase()))) {
                    Ok(theirs) => {
                        let theirs = rmse(&input, &decode(ty, &theirs, input.len())?);
                        let ours = rmse(&input, &decode(ty, &encode(ty, &input, 512)?, input.len())?);
                        format!("{:.4}", ours / theirs)
                    }
                    Err(_) => "-".into(),
                }
            }
            None => "-".into(),
        };
        println!("{:<8} {:>7.4} {:>9.5} {:>8.1} {:>8}", ty.name(), ty.bits_per_weight(), error, ns, ratio);
    }
    Ok(())
}
