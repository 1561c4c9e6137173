//! Heads of queries and keys: normalized where the model does that, then rotated by their token's position.

use super::reduce::{CHAINS, RowSum};
use crate::graph::RopeStyle;
use crate::kernel::{Builder, Kernel, KernelError};

/// What is done to a head.
#[derive(Clone, Copy, Debug)]
pub struct RopeNorm {
    /// Which elements are rotated together.
    pub style: RopeStyle,
    /// Whether the head is divided by its root mean square and multiplied by a weight first.
    pub norm: bool,
    /// Elements of a head.
    pub head_dim: u32,
    /// Of these the first so many are rotated; even.
    pub n_rot: u32,
}

impl RopeNorm {
    /// The kernel. Buffers: `x` `[T, n_heads · head_dim]`, with norm `weight` `[head_dim]`, `positions` `[T]`, `cos` and `sin`
    /// `[positions, n_rot / 2]` (made on the CPU, in f64, with the magnitude in them), `y` like `x`. Parameters: with norm `eps`. Grid:
    /// `[n_heads, T]`.
    ///
    /// # Errors
    /// Never for widths that exist.
    pub fn kernel(&self, subgroup: u32) -> Result<Kernel, KernelError> {
        let Self { style, norm, head_dim, n_rot } = *self;
        let name = if norm { "rope_norm_positions" } else { "rope_positions" };
        let doc = "One workgroup a token's head. Order: the CPU's, 64 chains of fma and a fixed tree; a rotation is two products and a sum, \
                   each rounded once. Bound: latency; bytes of x and y.";
        let k = Builder::new(name, doc, CHAINS, subgroup);
        let x = k.input::<f32>("x");
        let weight = norm.then(|| k.input::<f32>("weight"));
        let (positions, cos, sin) =
            (k.input::<u32>("positions"), k.input::<f32>("cos"), k.input::<f32>("sin"));
        let y = k.output::<f32>("y");
        let eps = norm.then(|| k.param::<f32>("eps"));
        let token = k.workgroup_id(1);
        let head = (token * k.num_workgroups(0) + k.workgroup_id(0)) * head_dim;
        let inv = eps.map(|eps| {
            let squares = RowSum::declare(&k).fold(
                head_dim,
                0.0,
                |acc, i| {
                    let v = x.at(head + i);
                    v.fma(v, acc)
                },
                |a, b| a + b,
            );
            1.0 / (squares / head_dim as f32 + eps).sqrt()
        });
        let value = |i| match (inv, weight) {
            (Some(inv), Some(weight)) => x.at(head + i) * inv * weight.at(i),
            _ => x.at(head + i),
        };
        let half = n_rot / 2;
        let table = positions.at(token) * half;
        k.each(head_dim, |i| {
            k.when_else(
                i.lt(n_rot),
                || {
                    let (partner, pair, first) = match style {
                        RopeStyle::Halves => {
                            let first = i.lt(half);
                            (first.select(i + half, i - half), first.select(i, i - half), first)
                        }
                        RopeStyle::Pairs => (i ^ 1, i >> 1, (i & 1).eq(0)),
                    };
                    let s = sin.at(table + pair);
                    let s = first.select(-s, s);
                    y.set(head + i, value(i) * cos.at(table + pair) + value(partner) * s);
                },
                || y.set(head + i, value(i)),
            );
        });
        k.finish()
    }
}
