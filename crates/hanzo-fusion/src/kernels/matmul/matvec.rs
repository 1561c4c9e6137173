//! Few rows: every weight is read once, and serves all rows of the batch.

use hanzo_quant::canonical::GROUP;

use super::super::layout::Layout;
use super::super::pointwise::activate;
use super::super::weights::Weights;
use super::{Activations, Rows, code_sums, dots, group_product};
use crate::graph::Activation;
use crate::kernel::{Builder, IntoVal, Kernel, KernelError, Val};

/// Outputs of a subgroup: `OUTPUTS / batch` rows of weights by `batch` rows of activations. No more than the narrowest subgroup has lanes.
const OUTPUTS: u32 = 8;
/// Invocations of a workgroup.
const WORKGROUP: u32 = 128;

/// A second matrix that meets the same activations: `y = f(gate) · up`.
#[derive(Clone, Copy, Debug)]
pub struct Pair {
    /// Layout of the second matrix.
    pub up: Layout,
    /// Of the first matrix' product.
    pub f: Activation,
}

/// A mat-vec kernel.
#[derive(Clone, Copy, Debug)]
pub struct MatVec {
    /// Layout of the matrix.
    pub layout: Layout,
    /// A second matrix, whose product the first one gates.
    pub pair: Option<Pair>,
    /// One matrix, or a stack of them.
    pub rows: Rows,
    /// Rows of activations at a time: 1, 2, 4 or 8; 1 for [`Rows::Experts`].
    pub batch: u32,
}

impl MatVec {
    /// Rows of weights that a workgroup takes: the grid is `[n_out / this, n_rows / batch]`, rounded up.
    pub fn rows_per_workgroup(&self, subgroup: u32) -> u32 {
        self.rows_per_subgroup() * (WORKGROUP / subgroup)
    }

    fn batch(&self) -> u32 {
        if self.rows == Rows::Experts { 1 } else { self.batch.clamp(1, OUTPUTS) }
    }

    fn rows_per_subgroup(&self) -> u32 {
        OUTPUTS / self.batch()
    }

    /// The kernel. Buffers: the planes of `w` (of `up`, with a pair), `x_codes`, `x_d`, with experts `ids`, then `y`. Parameters:
    /// `n_groups`, `n_out`, `n_rows`, with experts `per_token` and `n_experts`.
    ///
    /// # Errors
    /// Never for widths that exist.
    pub fn kernel(&self, subgroup: u32) -> Result<Kernel, KernelError> {
        let (batch, rows) = (self.batch(), self.rows_per_subgroup());
        let format = self.layout.format.name;
        let doc = format!(
            "{format} weights. A subgroup has {rows} output rows by {batch} rows of activations. A lane multiplies a group of {GROUP} of each \
             (neighbouring lanes, neighbouring groups); what they give goes through workgroup memory to one lane an output. \
             Order: the canonical one, a chain of fma over ascending groups. Bound: bytes of the weights."
        );
        let twin = if self.rows == Rows::Experts { "_experts" } else { "" };
        let pair = if self.pair.is_some() { "_pair" } else { "" };
        let name = format!("qmatvec{pair}{twin}_{}", format.to_lowercase());
        let k = Builder::new(&name, &doc, WORKGROUP, subgroup);
        self.body(&k);
        k.finish()
    }

    fn body(&self, k: &Builder) {
        let (batch, rows, width) = (self.batch(), self.rows_per_subgroup(), k.subgroup());
        let n_groups = k.param::<u32>("n_groups");
        let mut matrices = vec![(self.layout, Weights::declare(k, "w", self.layout, n_groups))];
        if let Some(pair) = self.pair {
            matrices.push((pair.up, Weights::declare(k, "up", pair.up, n_groups)));
        }
        let x = Activations::declare(k);
        let ids = (self.rows == Rows::Experts).then(|| k.input::<u32>("ids"));
        let y = k.output::<f32>("y");
        let (n_out, n_rows) = (k.param::<u32>("n_out"), k.param::<u32>("n_rows"));
        let experts = ids.map(|ids| (ids, k.param::<u32>("per_token"), k.param::<u32>("n_experts")));

        let n_subgroups = k.workgroup() / width;
        let first = (k.workgroup_id(0) * n_subgroups + k.subgroup_id()) * rows;
        let m0 = k.workgroup_id(1) * batch;
        // Rows beyond the last repeat it; their sums are not written.
        let m = |b: u32| (m0 + b).min(n_rows - 1);
        let (x_row, matrix) = match experts {
            // `ids` are the router's and below `n_experts`; a stray one must not lead out of the stack.
            Some((ids, per_token, n_experts)) => (m(0) / per_token, ids.at(m(0)).min(n_experts - 1) * n_out),
            None => (m(0), 0.val(k)),
        };
        let x_rows: Vec<_> = (0..batch).map(|b| if b == 0 { x_row } else { m(b) }).collect();
        let w_rows: Vec<_> = (0..rows).map(|r| matrix + (first + r).min(n_out - 1)).collect();

        // Of each subgroup: products `[matrix][output][lane]` and scales `[batch][lane]`, rows a word apart from a multiple of the banks. Twice,
        // so that one barrier a round is enough.
        let stride = width + 1;
        let product_words = matrices.len() as u32 * OUTPUTS * stride;
        let products = k.shared::<f32>("products", 2 * n_subgroups * product_words);
        let scales = k.shared::<f32>("scales", 2 * n_subgroups * batch * stride);
        let odd = k.reg::<u32>(0);
        let sums: Vec<_> = matrices.iter().map(|_| k.reg::<f32>(0.0)).collect();
        let lane = k.lane();

        k.for_step(0, n_groups, width, |g0| {
            let half = odd.get() * n_subgroups + k.subgroup_id();
            let (product, scale) = (half * product_words, half * (batch * stride));
            // Lanes beyond the last group repeat it; nobody reads what they give.
            let g = (g0 + lane).min(n_groups - 1);
            let activations: Vec<_> = x_rows.iter().map(|&row| x.words(row * n_groups + g)).collect();
            for (b, &row) in (0..).zip(&x_rows) {
                scales.set(scale + (lane + b * stride), x.d.at(row * n_groups + g));
            }
            for (i, (layout, weights)) in (0..).zip(&matrices) {
                let code_sums: Vec<_> = activations.iter().map(|a| code_sums(k, layout, a)).collect();
                for (r, &row) in (0..).zip(&w_rows) {
                    let (codes, subs) = (weights.codes(row, g), weights.sub_blocks(row, g));
                    for (b, (a, sums)) in (0..).zip(activations.iter().zip(&code_sums)) {
                        let dots = dots(k, &codes, subs.len(), a);
                        if let Some(p) = group_product(codes.offset, &subs, &dots, sums) {
                            let at = (i * OUTPUTS + r * batch + b) * stride;
                            products.set(product + (lane + at), p);
                        }
                    }
                }
            }
            k.barrier();
            k.when(lane.lt(rows * batch), || {
                let d = scale + (lane % batch) * stride;
                let p = product + lane * stride;
                k.for_range(0, (n_groups - g0).min(width), |j| {
                    for (i, sum) in (0..).zip(&sums) {
                        let p = products.at(p + (j + i * OUTPUTS * stride));
                        sum.set(scales.at(d + j).fma(p, sum.get()));
                    }
                });
            });
            odd.set(1 - odd.get());
        });

        let (row, m) = (first + lane / batch, m0 + lane % batch);
        k.when(lane.lt(rows * batch) & row.lt(n_out) & m.lt(n_rows), || {
            y.set(m * n_out + row, self.result(k, sums.iter().map(|sum| sum.get()).collect()));
        });
    }

    fn result<'k>(&self, k: &'k Builder, sums: Vec<Val<'k, f32>>) -> Val<'k, f32> {
        match (self.pair, sums.as_slice()) {
            (Some(pair), &[gate, up]) => activate(k, pair.f, gate) * up,
            (_, &[sum, ..]) => sum,
            (_, []) => 0.0.val(k),
        }
    }
}
