//! The numeric gate of low-rank updates: ranks and sizes whole and ragged, both kinds of activations, every instruction set, against
//! `hanzo_quant::canonical`. `nbad` counts outputs with different bits, and must be 0.

use hanzo_fusion::LowRank;
use hanzo_fusion::adapter::LowRankShape;
use hanzo_quant::canonical::{self, QuantizedRow};

use crate::activations::Activations;
use crate::isa::Isa;
use crate::low_rank::{self, ROWS};
use crate::numeric::{Random, rows};

/// Splits outputs the way that cores hand them to epilogues.
const SEGMENT: usize = crate::epilogue::SEGMENT;

#[test]
fn nbad_is_0() {
    let mut rng = Random(11);
    for (rank, n_in, n_out) in
        [(1, 32, 1), (4, 64, 33), (16, 96, 64), (17, 512, 50), (64, 160, 31), (100, 1024, 97)]
    {
        let a: Vec<f32> = (0..rank * n_in).map(|_| rng.normal()).collect();
        let b: Vec<f32> = (0..rank * n_out).map(|_| rng.normal()).collect();
        let x = rows(ROWS, n_in, &mut rng);
        let base: Vec<f32> = (0..ROWS * n_out).map(|_| rng.normal()).collect();
        let update = LowRank::new(LowRankShape { rank, n_in, n_out }, 0.37, &a, &b).unwrap();
        let scale = -1.3 * update.scale();
        for isa in Isa::available() {
            for quantized in [false, true] {
                let mut seen = x.clone();
                if quantized {
                    let mut activations = Activations::new(ROWS, n_in).unwrap();
                    for (m, (x, seen)) in x.chunks(n_in).zip(seen.chunks_mut(n_in)).enumerate() {
                        activations.quantize_row(isa, m, x);
                        activations.dequantize_row(isa, m, seen);
                    }
                }
                for n in 1..=ROWS {
                    let mut u = vec![f32::NAN; n * update.rank_stride()];
                    low_rank::project(isa, &update, &seen, &mut u);
                    for m in 0..n {
                        let x = &x[m * n_in..][..n_in];
                        let x =
                            if quantized { canonical::dequantize(&QuantizedRow::new(x)) } else { x.to_vec() };
                        let base = &base[m * n_out..][..n_out];
                        let (mut got, mut want) = (base.to_vec(), base.to_vec());
                        canonical::add_low_rank(&mut want, &a, &b, rank, scale, &x);
                        for (i, y) in got.chunks_mut(SEGMENT).enumerate() {
                            let u = &u[m * update.rank_stride()..][..update.rank_stride()];
                            low_rank::add(isa, &update, u, scale, i * SEGMENT, y);
                        }
                        let nbad = got.iter().zip(&want).filter(|(g, w)| g.to_bits() != w.to_bits()).count();
                        assert_eq!(
                            nbad, 0,
                            "rank {rank}, [{n_out}, {n_in}], row {m} of {n}, {isa:?}, {quantized}"
                        );
                        // Shorter rows may be zero or tiny throughout.
                        assert!(n_in < 96 || got != base, "the update changes something");
                    }
                }
            }
        }
    }
}
