//! A format that does not exist, added by one declaration: it runs through mat-vec, GEMM, both experts' twins and the embedding on every target.
//! `docs/adding-a-format.md` walks through it.

use hanzo_fusion::kernels::layout::Layout;
use hanzo_fusion::kernels::matmul::gemm::Rung;
use hanzo_quant::{Codes, Format, IntView, SubScale, SuperScale, f16, f16_to_f32};

use crate::experts::Stack;
use crate::harness::{Rng, everywhere};
use crate::matmul::{SMALL, Shape, gemm, matvec};
use crate::tokens::embedding;

/// 64 weights: seven-bit codes less 50, four sub-blocks of 16 with a five-bit scale less 3 and a three-bit min.
pub(crate) static Q7_X: Format = Format {
    name: "Q7_X",
    id: u32::MAX,
    elems: 64,
    bytes: 76,
    doc: "made up",
    layout: "d: f16, dmin: f16, scales: [[u8; 2]; 4], qs: [u8; 64]",
    decode: |blocks, out| {
        for (block, out) in blocks.chunks_exact(76).zip(out.chunks_exact_mut(64)) {
            for (i, (out, q)) in out.iter_mut().zip(&block[12..]).enumerate() {
                let sub = sub_scale(block, i / 16);
                *out = sub.scale() * f32::from(i16::from(q & 0x7f) - 50) - sub.min();
            }
        }
    },
    int: Some(IntView {
        sub_block: 16,
        codes: Codes::Linear { bits: 7, offset: 50 },
        super_scale: SuperScale::F16 { factor: 1.0 },
        asymmetric: true,
        sc_bits: 5,
        sc_offset: 3,
        m_bits: 3,
        read_codes: |block, out| {
            out.iter_mut().zip(&block[12..]).for_each(|(out, q)| *out = (q & 0x7f) as i8 - 50);
        },
        sub_scale,
        grid_index: |_, _| (0, 0),
    }),
};

fn sub_scale(block: &[u8], j: usize) -> SubScale {
    let half = |i: usize| f16_to_f32(f16::from_le_bytes([block[i], block[i + 1]]));
    let (sc, m) = (block[4 + 2 * j] & 31, block[5 + 2 * j] & 7);
    SubScale::symmetric(half(0), i16::from(sc) - 3).with_min(half(2), m)
}

#[test]
fn a_made_up_format_needs_no_kernel() {
    let layout = Layout::of(&Q7_X).unwrap();
    assert_eq!(layout.code_words(), 7, "planes of 4, 2 and 1 bits");
    everywhere("made_up", 0, |subgroup| {
        let mut rng = Rng(50);
        let shape = Shape { n_out: 19, blocks: 3, m: 18 };
        let stack = Stack::new(layout, 5, 2, &mut rng);
        vec![
            matvec(layout, subgroup, Shape { m: 3, ..shape }, 2, &mut rng),
            gemm(layout, subgroup, Rung::Dot4, SMALL, shape, &mut rng),
            gemm(layout, subgroup, Rung::F32, SMALL, shape, &mut rng),
            gemm(layout, subgroup, Rung::Column, SMALL, shape, &mut rng),
            stack.matvec(subgroup),
            stack.gemm(subgroup, SMALL),
            embedding(layout, subgroup, &mut rng),
        ]
    });
}
