//! Row-wise operations: everything of a model that is neither a contraction nor an attention.
//!
//! Each function works on one row or on the contiguous rows of a strip, written once over [`crate::simd`] and compiled for
//! every instruction set. Elementwise operations round once each and never contract. Reductions have one order:
//! element `i` goes to partial sum `i mod 64`, partial sums are added `((0 + 16) + (32 + 48))` lane by lane, and the 16
//! lanes that are left by halving ([`crate::simd::Simd::sum`]). Elements that are missing from the last 64 count as zero.
#![allow(unsafe_code)]

pub(crate) mod elementwise;
pub(crate) mod norm;
pub(crate) mod rope;
pub(crate) mod route;

#[cfg(test)]
mod tests;

use crate::simd::{LANES, Simd};

/// `Σ f(x[i])` in the order of this module, `f` applied lane by lane as `acc = f(acc, x)`; `f(acc, 0)` must be `acc`
/// where `x` is padded.
#[inline(always)]
fn reduce<S: Simd>(s: S, x: &[f32], fill: f32, f: impl Fn(S::F, S::F) -> S::F) -> f32 {
    let mut acc = [s.splat(0.0); 4];
    let mut blocks = x.chunks_exact(4 * LANES);
    for block in &mut blocks {
        for (i, acc) in acc.iter_mut().enumerate() {
            // SAFETY: the block has 64 elements.
            let v = unsafe { s.load(block.as_ptr().add(i * LANES)) };
            *acc = f(*acc, v);
        }
    }
    for (acc, part) in acc.iter_mut().zip(blocks.remainder().chunks(LANES)) {
        *acc = f(*acc, s.load_part(part, fill));
    }
    s.sum(s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3])))
}

/// `out[i] = f(x[i])`.
#[inline(always)]
fn map<S: Simd>(s: S, x: &[f32], out: &mut [f32], f: impl Fn(S::F) -> S::F) {
    let mut outs = out.chunks_exact_mut(LANES);
    let mut xs = x.chunks_exact(LANES);
    for (out, x) in (&mut outs).zip(&mut xs) {
        // SAFETY: both chunks have 16 elements.
        unsafe { s.store(f(s.load(x.as_ptr())), out.as_mut_ptr()) };
    }
    let tail = outs.into_remainder();
    if !tail.is_empty() {
        s.store_part(f(s.load_part(xs.remainder(), 0.0)), tail);
    }
}

/// `out[i] = f(a[i], b[i])`.
#[inline(always)]
fn map2<S: Simd>(s: S, a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(S::F, S::F) -> S::F) {
    let mut outs = out.chunks_exact_mut(LANES);
    let (mut az, mut bz) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for ((out, a), b) in (&mut outs).zip(&mut az).zip(&mut bz) {
        // SAFETY: all chunks have 16 elements.
        unsafe { s.store(f(s.load(a.as_ptr()), s.load(b.as_ptr())), out.as_mut_ptr()) };
    }
    let tail = outs.into_remainder();
    if !tail.is_empty() {
        s.store_part(f(s.load_part(az.remainder(), 0.0), s.load_part(bz.remainder(), 0.0)), tail);
    }
}
