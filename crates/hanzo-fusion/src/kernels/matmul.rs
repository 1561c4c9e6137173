//! Contractions with quantized weights, generic over the format.

use super::layout::Layout;
use super::weights::{GroupCodes, SubBlock, WORDS, Weights};
use crate::kernel::{Array, Builder, Combine, Dot, IntoVal, Kernel, KernelError, Val};

/// A row's activations: packed codes and a scale a group.
#[derive(Clone, Copy, Debug)]
struct Activations<'k> {
    codes: Array<'k, u32>,
    d: Array<'k, f32>,
}

impl<'k> Activations<'k> {
    fn declare(k: &'k Builder) -> Self {
        Self { codes: k.input("x_codes"), d: k.input("x_d") }
    }

    /// Group `g` (counted over all rows): eight words of codes, and the scale.
    fn group(self, g: Val<'k, u32>) -> ([Val<'k, u32>; WORDS], Val<'k, f32>) {
        let at = g * WORDS as u32;
        let (low, high) = (self.codes.wide::<4>(at), self.codes.wide::<4>(at + 4));
        (std::array::from_fn(|i| if i < 4 { low[i] } else { high[i - 4] }), self.d.at(g))
    }
}

/// `acc + d·p`: one group of one output, in the canonical order (`hanzo_quant::canonical`).
fn accumulate<'k>(
    k: &'k Builder,
    codes: &GroupCodes<'k>,
    subs: &[SubBlock<'k>],
    (a, d): ([Val<'k, u32>; WORDS], Val<'k, f32>),
    acc: Val<'k, f32>,
) -> Val<'k, f32> {
    let per = WORDS / subs.len();
    let sum_of = |words: std::ops::Range<usize>, f: &dyn Fn(usize, Val<'k, i32>) -> Val<'k, i32>| {
        words.fold(0.val(k), |sum, i| f(i, sum))
    };
    let isum = |j: usize| {
        sum_of(j * per..(j + 1) * per, &|i, sum| k.dot4(Dot::SignedSigned, a[i], 0x0101_0101.val(k), sum))
    };
    let mut p: Option<Val<'k, f32>> = None;
    for (j, sub) in subs.iter().enumerate() {
        let mut idot =
            sum_of(j * per..(j + 1) * per, &|i, sum| k.dot4(codes.kind, codes.words[i], a[i], sum));
        if codes.offset > 0 {
            idot = idot - isum(j) * i32::from(codes.offset);
        }
        let idot = idot.f32();
        p = Some(match p {
            None => sub.scale * idot,
            Some(p) => sub.scale.fma(idot, p),
        });
    }
    let mut p = p.unwrap_or(acc);
    for (j, sub) in subs.iter().enumerate() {
        if let Some(min) = sub.min {
            p = (-min).fma(isum(j).f32(), p);
        }
    }
    d.fma(p, acc)
}

/// `y[m, n] = Σ_k w[n, k]·x[m, k]` for few rows of activations, `batch` at a time.
///
/// # Errors
/// Never for widths that exist.
pub fn qmatvec(layout: Layout, subgroup: u32, batch: u32) -> Result<Kernel, KernelError> {
    let doc = format!(
        "{} weights. One subgroup an output row, {batch} rows of activations at a time. Order: lane l adds groups l, l + {subgroup}, … in \
         the canonical order of a group; then a fixed butterfly. Bound: bytes of the weights.",
        layout.format.name
    );
    let name = format!("qmatvec_{}", layout.format.name.to_lowercase());
    let workgroup = subgroup.max(64);
    let k = Builder::new(&name, &doc, workgroup, subgroup);
    let n_groups = k.param::<u32>("n_groups");
    let weights = Weights::declare(&k, "w", layout, n_groups);
    let x = Activations::declare(&k);
    let y = k.output::<f32>("y");
    let (n_out, n_rows) = (k.param::<u32>("n_out"), k.param::<u32>("n_rows"));
    let row = k.workgroup_id(0) * (workgroup / subgroup) + k.subgroup_id();
    let first = k.workgroup_id(1) * batch;
    k.when(row.lt(n_out), || {
        let acc: Vec<_> = (0..batch).map(|_| k.reg::<f32>(0.0)).collect();
        k.for_step(k.lane(), n_groups, k.subgroup(), |g| {
            let (codes, subs) = (weights.codes(row, g), weights.sub_blocks(row, g));
            for (m, acc) in acc.iter().enumerate() {
                // Rows beyond the last repeat it; their sums are not written.
                let m = (first + m as u32).min(n_rows - 1);
                let activations = x.group(m * n_groups + g);
                acc.set(accumulate(&k, &codes, &subs, activations, acc.get()));
            }
        });
        for (m, acc) in acc.iter().enumerate() {
            let sum = acc.get().subgroup(Combine::Add);
            let m = first + m as u32;
            k.when(k.lane().eq(0) & m.lt(n_rows), || y.set(m * n_out + row, sum));
        }
    });
    k.finish()
}
