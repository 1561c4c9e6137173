//! Decode speed of every format, as a ratio to copying the same number of f32: `cargo bench -p hanzo-quant --bench decode`.
#![allow(clippy::print_stdout)]

use std::hint::black_box;
use std::time::Instant;

use hanzo_quant::{QuantType, decode_row};

/// Best seconds of several runs: the disturbances of a shared machine only ever add.
fn best(mut run: impl FnMut()) -> f64 {
    (0..20).fold(f64::INFINITY, |best, _| {
        let start = Instant::now();
        run();
        best.min(start.elapsed().as_secs_f64())
    })
}

fn main() {
    const N: usize = 1 << 16;
    let source = vec![1f32; N];
    let mut out = vec![0f32; N];
    let copy = best(|| black_box(&mut out).copy_from_slice(black_box(&source)));
    for &ty in QuantType::ALL {
        let Some(len) = ty.row_bytes(N) else { continue };
        let bytes: Vec<u8> =
            (0..len).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_le_bytes()[3] & 0x3f).collect();
        let time = best(|| {
            let _ = black_box(decode_row(ty, black_box(&bytes), black_box(&mut out)));
        });
        println!("{ty:>8}  {:6.2} × copy   {:5.2} elements/ns", time / copy, N as f64 / time / 1e9);
    }
}
