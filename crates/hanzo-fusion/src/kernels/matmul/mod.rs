//! Contractions: `y[m, n] = Σ_k w[n, k] · x[m, k]`, generic over the format, the same bits on every device.
//!
//! All kernels here keep the canonical order of [`hanzo_quant::canonical`], the one that the CPU keeps: a group's integer dots are exact,
//! and one chain of fused multiply-adds an output takes the groups in ascending order. So a row's result does not depend on the rows beside it, on
//! which of the kernels computes it, or on the width of a subgroup; and what they give can be compared with the CPU bit by bit.
//!
//! * [`matvec`]: few rows; bound by the bytes of the weights.
//! * [`gemm`]: many rows; tiles of both operands in workgroup memory. Its plain variants are the lower rungs of a ladder of equal bits,
//!   [`units`] is the highest, and [`ladder`] says which device takes which.
//! * [`float`]: F32, F16 and BF16 weights.
//!
//! Each comes over one matrix, or over a stack of experts' matrices of which every row names one ([`Rows`]).

pub mod float;
pub mod gemm;
pub mod ladder;
pub mod matvec;
pub mod units;

use super::layout::Layout;
use super::weights::{GroupCodes, SubBlock, WORDS};
use crate::kernel::{Array, Builder, Dot, IntoVal, Kernel, KernelError, Val};

/// Which matrix a row of the result is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rows {
    /// There is one matrix; row `m` of the result is made of row `m` of the activations.
    Dense,
    /// Row `s` of the result is an expert slot: it takes matrix `ids[s]` of the stack and row `s / per_token` of the activations.
    Experts,
}

/// `y[m, n] = Σ_k w[n, k]·x[m, k]` for few rows of activations, `batch` (1 to 8) at a time: [`matvec::MatVec`] over one matrix.
///
/// # Errors
/// Never for widths that exist.
pub fn qmatvec(layout: Layout, subgroup: u32, batch: u32) -> Result<Kernel, KernelError> {
    matvec::MatVec { layout, pair: None, rows: Rows::Dense, batch }.kernel(subgroup)
}

/// Quantized activations: packed codes and a scale a group ([`super::quantize`] makes them).
#[derive(Clone, Copy, Debug)]
struct Activations<'k> {
    codes: Array<'k, u32>,
    d: Array<'k, f32>,
}

impl<'k> Activations<'k> {
    /// Declares `x_codes` and `x_d`.
    fn declare(k: &'k Builder) -> Self {
        Self { codes: k.input("x_codes"), d: k.input("x_d") }
    }

    /// The codes of group `g`, counted over all rows.
    fn words(self, g: Val<'k, u32>) -> [Val<'k, u32>; WORDS] {
        let at = g * WORDS as u32;
        let (low, high) = (self.codes.wide::<4>(at), self.codes.wide::<4>(at + 4));
        std::array::from_fn(|i| if i < 4 { low[i] } else { high[i - 4] })
    }
}

/// Whether a format's product needs the sums of the activations' codes.
fn needs_sums(layout: &Layout) -> bool {
    layout.code_offset() > 0 || layout.view.asymmetric
}

/// `Σ a` of each sub-block of a group.
fn code_sums<'k>(k: &'k Builder, layout: &Layout, a: &[Val<'k, u32>; WORDS]) -> Vec<Val<'k, i32>> {
    if !needs_sums(layout) {
        return Vec::new();
    }
    let per = WORDS / layout.subs();
    let sum = |words: &[Val<'k, u32>]| {
        words.iter().fold(0.val(k), |sum, &word| k.dot4(Dot::SignedSigned, word, 0x0101_0101.val(k), sum))
    };
    a.chunks(per).map(sum).collect()
}

/// `Σ code·a` of each sub-block of a group, codes without their offset taken off.
fn dots<'k>(
    k: &'k Builder,
    codes: &GroupCodes<'k>,
    subs: usize,
    a: &[Val<'k, u32>; WORDS],
) -> Vec<Val<'k, i32>> {
    let per = WORDS / subs;
    let dot = |j: usize| {
        (j * per..(j + 1) * per).fold(0.val(k), |sum, i| k.dot4(codes.kind, codes.words[i], a[i], sum))
    };
    (0..subs).map(dot).collect()
}

/// `p` of the canonical order: what a group of one output amounts to before the activations' scale. `sums` are empty for formats without need
/// of them.
fn group_product<'k>(
    offset: u8,
    subs: &[SubBlock<'k>],
    dots: &[Val<'k, i32>],
    sums: &[Val<'k, i32>],
) -> Option<Val<'k, f32>> {
    let mut p: Option<Val<'k, f32>> = None;
    for (j, (sub, &dot)) in subs.iter().zip(dots).enumerate() {
        let dot = match sums.get(j) {
            Some(&sum) if offset > 0 => dot - sum * i32::from(offset),
            _ => dot,
        };
        p = Some(match p {
            None => sub.scale * dot.f32(),
            Some(p) => sub.scale.fma(dot.f32(), p),
        });
    }
    let mins = subs.iter().zip(sums).filter_map(|(sub, sum)| sub.min.map(|min| (min, sum)));
    mins.fold(p, |p, (min, sum)| p.map(|p| (-min).fma(sum.f32(), p)))
}
