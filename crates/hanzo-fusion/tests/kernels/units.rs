//! The GEMM on matrix units: every format, against `canonical::matmul` by the bit, on the interpreter in every unit's layout, and as text over
//! shims that keep the vendors' layouts.

use hanzo_fusion::kernel::Dialect;
use hanzo_fusion::kernel::interpret::MatrixUnits;
use hanzo_fusion::kernels::layout::Layout;
use hanzo_fusion::kernels::matmul::Rows;
use hanzo_fusion::kernels::matmul::gemm::{Factors, Gemm, Rung, Tile};

use crate::common::{Case, these_dialects_agree};
use crate::experts::Stack;
use crate::harness::{Check, Rng, formats, layout};
use crate::made_up::Q7_X;
use crate::matmul::{Shape, gemm};

const UNITS: [MatrixUnits; 4] =
    [MatrixUnits::Rows, MatrixUnits::MmaSync, MatrixUnits::Wmma, MatrixUnits::Mfma];
const FACTORS: [Factors; 2] = [Factors::Bytes, Factors::Halves];

/// 32 × 32 outputs by 64 invocations: from one to four subgroups, which hold from four fragments to one.
const SMALL: Tile = Tile { tx: 16, ty: 4, n: 2, m: 8 };

fn check(units: MatrixUnits, check: &Check) {
    let got = check.case.interpret_with(units);
    let (bad, first) = check.bad(&got, 0);
    assert!(bad == 0, "{} on {units:?}: nbad = {bad}, first {first:?}", check.case.kernel.name);
}

#[test]
fn every_format_on_units_numeric() {
    let all = formats().map(|(_, layout)| layout).chain(Layout::of(&Q7_X));
    for (i, layout) in all.enumerate() {
        let mut rng = Rng(60 + i as u64);
        for factors in FACTORS {
            // A corner of one fragment; two steps whose last is half, ragged in both directions.
            let blocks = 96usize.div_ceil(layout.format.elems);
            for (n_out, blocks, m) in [(1, 1, 1), (37, blocks, 35)] {
                let shape = Shape { n_out, blocks, m };
                // One layout of lanes a format and shape, all of them in turn.
                let units = UNITS[(i + m) % UNITS.len()];
                check(units, &gemm(layout, units.lanes(), Rung::Units(factors), SMALL, shape, &mut rng));
            }
        }
    }
}

#[test]
fn every_units_layout_and_split_gives_the_bits() {
    for units in UNITS {
        let mut rng = Rng(61);
        for factors in FACTORS {
            for name in ["Q4_K", "Q2_K", "Q6_K", "Q8_0", "NVFP4"] {
                let shape = Shape { n_out: 33, blocks: 1, m: 18 };
                check(
                    units,
                    &gemm(layout(name), units.lanes(), Rung::Units(factors), SMALL, shape, &mut rng),
                );
            }
            // More fragments a subgroup along one side than along the other.
            let ty = units.lanes() / 4;
            let wide = Tile { tx: 16, ty, n: 4, m: 16 / ty };
            let shape = Shape { n_out: 70, blocks: 1, m: 17 };
            check(units, &gemm(layout("Q4_K"), units.lanes(), Rung::Units(factors), wide, shape, &mut rng));
            // More subgroups than bring their results to memory at a time.
            let many = Tile { tx: 16, ty: 16, n: 4, m: 4 };
            check(units, &gemm(layout("Q8_0"), units.lanes(), Rung::Units(factors), many, shape, &mut rng));
        }
        // Experts: rows gathered by the order of slots, tiles that nobody needs.
        for (tokens, per_token) in [(9, 1), (7, 4)] {
            let stack = Stack::new(layout("Q5_K"), tokens, per_token, &mut rng);
            check(units, &stack.gemm_by(Rung::Units(Factors::Bytes), units.lanes(), SMALL));
        }
    }
}

fn texts(subgroup: u32, factors: &[Factors]) -> Vec<Case> {
    let mut rng = Rng(62);
    let mut cases = Vec::new();
    for &factors in factors {
        for name in ["Q4_K", "Q2_K", "Q6_K", "MXFP4"] {
            let shape = Shape { n_out: 35, blocks: 3usize.div_ceil(layout(name).format.elems / 32), m: 19 };
            cases.push(gemm(layout(name), subgroup, Rung::Units(factors), SMALL, shape, &mut rng).case);
        }
        let stack = Stack::new(layout("Q8_0"), 7, 3, &mut rng);
        cases.push(stack.gemm_by(Rung::Units(factors), subgroup, SMALL).case);
    }
    cases
}

#[test]
fn their_texts_give_the_interpreters_bits() {
    // mma.sync and wmma; mfma, whose waves are of 64; Metal's units multiply halves only.
    these_dialects_agree("units", &[Dialect::Cuda, Dialect::Hip], &texts(32, &FACTORS));
    these_dialects_agree("units-64", &[Dialect::Hip], &texts(64, &FACTORS));
    these_dialects_agree("units-metal", &[Dialect::Metal], &texts(32, &[Factors::Halves]));
}

#[test]
fn large_tiles_fit_and_others_are_refused() {
    for (format, layout) in formats() {
        for subgroup in [16, 32, 64] {
            for factors in FACTORS {
                let fills = [3, 100].map(|rows| Tile::for_fill_of_units(rows, subgroup));
                for tile in [Tile::LARGE, fills[0], fills[1]] {
                    let plan = Gemm { layout, rows: Rows::Dense, rung: Rung::Units(factors), tile };
                    let kernel = plan.kernel(subgroup);
                    kernel.unwrap_or_else(|e| panic!("{} at {subgroup}, {tile:?}: {e}", format.name));
                }
            }
        }
    }
    let odd = |subgroup, tile| {
        let rung = Rung::Units(Factors::Bytes);
        Gemm { layout: layout("Q4_K"), rows: Rows::Dense, rung, tile }
            .kernel(subgroup)
            .unwrap_err()
            .to_string()
    };
    let e = odd(32, Tile { tx: 16, ty: 16, n: 1, m: 1 });
    assert!(
        e.contains("a tile of 16 x 16 is not whole fragments of 16 x 16 for each of its subgroups of 32"),
        "{e}"
    );
    assert!(odd(32, Tile { tx: 24, ty: 8, n: 1, m: 2 }).contains("a tile of 24 x 16 is not whole"));
    assert!(odd(8, SMALL).contains("for each of its subgroups of 8"));
}
