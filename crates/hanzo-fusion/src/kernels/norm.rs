//! Row norms.

use crate::kernel::{Builder, Combine, Kernel, KernelError, Val};

/// The sum over the workgroup, the same in every invocation: a butterfly in each subgroup, then one over the subgroups' sums.
///
/// Uses workgroup memory named `sums`, and two barriers.
#[track_caller]
pub fn workgroup_sum<'k>(k: &'k Builder, v: Val<'k, f32>) -> Val<'k, f32> {
    let n = k.workgroup() / k.subgroup();
    let sums = k.shared::<f32>("sums", n);
    let sum = v.subgroup(Combine::Add);
    k.when(k.lane().eq(0), || sums.set(k.subgroup_id(), sum));
    k.barrier();
    let mut total = sums.at(0);
    for i in 1..n {
        total = total + sums.at(i);
    }
    k.barrier();
    total
}

/// What a row norm does beside normalizing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Residual {
    /// Nothing.
    None,
    /// `x += delta` first; the sum is written back to `x`.
    Add,
}

/// `y = x / sqrt(mean(x²) + eps) · weight`, row by row of `n` columns, with the residual sum before it where asked.
///
/// # Errors
/// Never for widths that exist.
pub fn rms_norm(subgroup: u32, residual: Residual) -> Result<Kernel, KernelError> {
    let name = if residual == Residual::Add { "add_rms_norm" } else { "rms_norm" };
    let doc = "One workgroup a row. Order: each invocation adds every 256th square by fma, then a fixed butterfly. \
               Bound: bytes of x, delta, weight and y.";
    let k = Builder::new(name, doc, 256, subgroup);
    let x = if residual == Residual::Add { k.inout::<f32>("x") } else { k.input::<f32>("x") };
    let delta = (residual == Residual::Add).then(|| k.input::<f32>("delta"));
    let (weight, y) = (k.input::<f32>("weight"), k.output::<f32>("y"));
    let (n, eps) = (k.param::<u32>("n"), k.param::<f32>("eps"));
    let row = k.workgroup_id(0) * n;
    let squares = k.reg::<f32>(0.0);
    k.each(n, |i| {
        let mut v = x.at(row + i);
        if let Some(delta) = delta {
            v = v + delta.at(row + i);
            x.set(row + i, v);
        }
        squares.set(v.fma(v, squares.get()));
    });
    let mean = workgroup_sum(&k, squares.get()) / n.f32();
    let factor = 1.0 / (mean + eps).sqrt();
    k.each(n, |i| y.set(row + i, x.at(row + i) * factor * weight.at(i)));
    k.finish()
}
