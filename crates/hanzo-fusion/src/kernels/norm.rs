//! Row norms.

use super::reduce::RowSum;
use crate::kernel::{Builder, Kernel, KernelError};

/// What a row norm does beside normalizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// Nothing.
    None,
    /// `x += delta` first; the sum is written back to `x`.
    Add,
}

/// `y = x / sqrt(mean(x²) + eps) · weight`, row by row of `n` columns, with the residual sum before it where asked. Grid: the rows.
///
/// # Errors
/// Never for widths that exist.
pub fn rms_norm(subgroup: u32, residual: Residual) -> Result<Kernel, KernelError> {
    let name = if residual == Residual::Add { "add_rms_norm" } else { "rms_norm" };
    let doc = "One workgroup a row. Order: the CPU's, 64 chains of fma and a fixed tree. Bound: bytes of x, delta, weight and y.";
    let k = Builder::new(name, doc, 256, subgroup);
    let x = if residual == Residual::Add { k.inout::<f32>("x") } else { k.input::<f32>("x") };
    let delta = (residual == Residual::Add).then(|| k.input::<f32>("delta"));
    let (weight, y) = (k.input::<f32>("weight"), k.output::<f32>("y"));
    let (n, eps) = (k.param::<u32>("n"), k.param::<f32>("eps"));
    let row = k.workgroup_id(0) * n;
    if let Some(delta) = delta {
        k.each(n, |i| x.set(row + i, x.at(row + i) + delta.at(row + i)));
        k.barrier();
    }
    let squares = RowSum::declare(&k).fold(
        n,
        0.0,
        |acc, i| {
            let v = x.at(row + i);
            v.fma(v, acc)
        },
        |a, b| a + b,
    );
    let inv = 1.0 / (squares / n.f32() + eps).sqrt();
    k.each(n, |i| y.set(row + i, x.at(row + i) * inv * weight.at(i)));
    k.finish()
}
