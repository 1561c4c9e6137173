//! Copies of rows: strided, converted, gathered. Slices of columns, selected outputs, tables of floats and casts are all this.

use super::matmul::float::Float;
use crate::kernel::{Array, Builder, Elem, F16, Kernel, KernelError, Val};

/// Invocations of a workgroup.
pub const WORKGROUP: u32 = 256;

/// A copy of rows.
#[derive(Clone, Copy, Debug)]
pub struct CopyRows {
    /// Elements that are read.
    pub from: Float,
    /// Elements that are written, rounded to nearest even.
    pub to: Float,
    /// Whether row `r` is read from `rows[r]`.
    pub gather: bool,
}

#[derive(Clone, Copy)]
enum Out<'k> {
    F32(Array<'k, f32>),
    F16(Array<'k, F16>),
    Bf16(Array<'k, u32>),
}

impl CopyRows {
    /// `y[r · y_stride + y_start + c] = x[row(r) · x_stride + x_start + c]`, `c` below `n`. Buffers: `x`, with gather `rows`, `y`. Parameters:
    /// `n`, `x_stride`, `x_start`, `y_stride`, `y_start`, with gather `n_rows` of `x` (rows are below it). Grid: `[n / WORKGROUP, rows]`, rounded up.
    ///
    /// # Errors
    /// Never for widths that exist.
    pub fn kernel(&self, subgroup: u32) -> Result<Kernel, KernelError> {
        let gather = if self.gather { "gather" } else { "copy" };
        let name = format!("{gather}_{}_{}", self.from.name(), self.to.name());
        let doc = "An element an invocation, neighbours side by side. Order: none. Bound: bytes of x and y.";
        let k = Builder::new(&name, doc, WORKGROUP, subgroup);
        let x = self.from.input(&k, "x");
        let rows = self.gather.then(|| k.input::<u32>("rows"));
        let y = match self.to {
            Float::F32 => Out::F32(k.output("y")),
            Float::F16 => Out::F16(k.output("y")),
            Float::Bf16 => Out::Bf16(k.output_small("y", Elem::U16)),
        };
        let [n, x_stride, x_start, y_stride, y_start] =
            ["n", "x_stride", "x_start", "y_stride", "y_start"].map(|name| k.param::<u32>(name));
        let r = k.workgroup_id(1);
        let row = match rows {
            // A stray row must not lead out of the table.
            Some(rows) => rows.at(r).min(k.param::<u32>("n_rows") - 1),
            None => r,
        };
        let c = k.workgroup_id(0) * WORKGROUP + k.local_id();
        k.when(c.lt(n), || {
            let v = x.at(row * x_stride + x_start + c);
            let at = r * y_stride + y_start + c;
            match y {
                Out::F32(y) => y.set(at, v),
                Out::F16(y) => y.set(at, v.f16()),
                Out::Bf16(y) => y.set(at, bf16(v)),
            }
        });
        k.finish()
    }
}

/// The bits of `v` as BF16, to nearest even; a NaN stays one.
fn bf16(v: Val<'_, f32>) -> Val<'_, u32> {
    let bits = v.bits();
    let rounded = (bits + (((bits >> 16) & 1) + 0x7fff)) >> 16;
    v.eq(v).select(rounded, (bits >> 16) | 0x40)
}
