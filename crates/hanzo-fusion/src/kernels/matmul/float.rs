//! F32, F16 and BF16 weights: routers, small models, and what a file keeps unquantized.
//!
//! The canonical order of float formats is one chain of fused multiply-adds over all of k, so an output is one invocation's. Both operands
//! are staged, 32 columns at a time, for loads that neighbours share; a tile one row high is the mat-vec.

use super::Rows;
use super::gemm::Tile;
use crate::kernel::{Array, Builder, Elem, IntoVal, Kernel, KernelError, Val};

/// Columns of a step.
const COLUMNS: u32 = 32;

/// A format of plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Float {
    /// Four bytes.
    F32,
    /// IEEE half.
    F16,
    /// The upper half of an f32.
    Bf16,
}

/// Plain numbers of any width, read as f32.
#[derive(Clone, Copy, Debug)]
pub enum Values<'k> {
    /// As they are.
    F32(Array<'k, f32>),
    /// 16 bits each.
    Small(Array<'k, u32>, Float),
}

impl Float {
    /// The format of this name, as GGUF tools print it.
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "F32" => Self::F32,
            "F16" => Self::F16,
            "BF16" => Self::Bf16,
            _ => return None,
        })
    }

    /// A read-only buffer of them.
    #[track_caller]
    pub fn input<'k>(self, k: &'k Builder, name: &str) -> Values<'k> {
        match self {
            Self::F32 => Values::F32(k.input(name)),
            _ => Values::Small(k.input_small(name, Elem::U16), self),
        }
    }

    /// As kernels' names have it.
    pub(in crate::kernels) fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        }
    }
}

impl<'k> Values<'k> {
    /// Element `index`, exactly.
    #[track_caller]
    pub fn at(self, index: Val<'k, u32>) -> Val<'k, f32> {
        match self {
            Self::F32(array) => array.at(index),
            Self::Small(array, Float::Bf16) => (array.at(index) << 16).as_f32(),
            Self::Small(array, _) => array.at(index).as_f16().f32(),
        }
    }
}

/// A contraction with float weights.
#[derive(Clone, Copy, Debug)]
pub struct FloatMatmul {
    /// Of the weights.
    pub float: Float,
    /// One matrix, or a stack of them; with experts a tile is one row high.
    pub rows: Rows,
    /// The tile.
    pub tile: Tile,
}

impl FloatMatmul {
    /// For one row, or few: 64 rows of weights by one of activations.
    pub const MATVEC: Tile = Tile { tx: 64, ty: 1, n: 1, m: 1 };

    /// The kernel. Buffers: `w`, `x` (f32), with experts `ids`, then `y`. Parameters: `n_in`, `n_out`, `n_rows`, with experts `per_token`
    /// and `n_experts`. Grid: `[n_out, n_rows]` over the tile.
    ///
    /// # Errors
    /// Tiles that need more workgroup memory than targets have, or whose invocations are not whole subgroups.
    pub fn kernel(&self, subgroup: u32) -> Result<Kernel, KernelError> {
        let twin = if self.rows == Rows::Experts { "_experts" } else { "" };
        let tile = if self.rows == Rows::Experts { Tile { ty: 1, m: 1, ..self.tile } } else { self.tile };
        let name = format!("matmul{twin}_{}", self.float.name());
        let doc = format!(
            "{} weights. Tile {} x {} of outputs, {COLUMNS} columns of both operands staged a step. Order: one chain of fma, k ascending. \
             Bound: bytes of the weights for few rows, f32 products for many.",
            self.float.name(),
            tile.width(),
            tile.height(),
        );
        let k = Builder::new(&name, &doc, tile.tx * tile.ty, subgroup);
        self.body(&k, tile);
        k.finish()
    }

    fn body(&self, k: &Builder, tile: Tile) {
        let (w, x) = (self.float.input(k, "w"), k.input::<f32>("x"));
        let ids = (self.rows == Rows::Experts).then(|| k.input::<u32>("ids"));
        let y = k.output::<f32>("y");
        let (n_in, n_out, n_rows) =
            (k.param::<u32>("n_in"), k.param::<u32>("n_out"), k.param::<u32>("n_rows"));
        let experts = ids.map(|ids| (ids, k.param::<u32>("per_token"), k.param::<u32>("n_experts")));
        let (n0, m0) = (k.workgroup_id(0) * tile.width(), k.workgroup_id(1) * tile.height());
        let (per_token, matrix) = match experts {
            Some((ids, per_token, n_experts)) => (per_token, ids.at(m0).min(n_experts - 1) * n_out),
            None => (1.val(k), 0.val(k)),
        };
        // One element more a row: rows, which lanes count, start in different banks.
        let stride = COLUMNS + 1;
        let w_tile = k.shared::<f32>("w_tile", tile.width() * stride);
        let x_tile = k.shared::<f32>("x_tile", tile.height() * stride);
        let n_of = |i: u32| k.local_id() % tile.tx + i * tile.tx;
        let m_of = |j: u32| k.local_id() / tile.tx + j * tile.ty;
        let sums: Vec<Vec<_>> =
            (0..tile.n).map(|_| (0..tile.m).map(|_| k.reg::<f32>(0.0)).collect()).collect();
        k.for_step(0, n_in, COLUMNS, |k0| {
            k.barrier();
            k.each(tile.width() * COLUMNS, |task| {
                let (r, e) = (task / COLUMNS, task % COLUMNS);
                k.when((k0 + e).lt(n_in), || {
                    let row = matrix + (n0 + r).min(n_out - 1);
                    w_tile.set(r * stride + e, w.at(row * n_in + (k0 + e)));
                });
            });
            k.each(tile.height() * COLUMNS, |task| {
                let (r, e) = (task / COLUMNS, task % COLUMNS);
                k.when((k0 + e).lt(n_in), || {
                    let row = (m0 + r).min(n_rows - 1) / per_token;
                    x_tile.set(r * stride + e, x.at(row * n_in + (k0 + e)));
                });
            });
            k.barrier();
            k.for_range(0, (n_in - k0).min(COLUMNS), |e| {
                let xs: Vec<_> = (0..tile.m).map(|j| x_tile.at(m_of(j) * stride + e)).collect();
                for (i, row) in (0..).zip(&sums) {
                    let v = w_tile.at(n_of(i) * stride + e);
                    for (sum, &x) in row.iter().zip(&xs) {
                        sum.set(v.fma(x, sum.get()));
                    }
                }
            });
        });
        for (i, row) in (0..).zip(&sums) {
            for (j, sum) in (0..).zip(row) {
                let (col, m) = (n0 + n_of(i), m0 + m_of(j));
                k.when(col.lt(n_out) & m.lt(n_rows), || y.set(m * n_out + col, sum.get()));
            }
        }
    }
}
