//! Row-wise operations: everything of a model that is neither a contraction nor an attention.
//!
//! Each function works on one row or on the contiguous rows of a strip, written once over [`crate::simd`] and compiled for
//! every instruction set. Elementwise operations round once each and never contract. Reductions have one order:
//! element `i` goes to partial sum `i mod 64`, partial sums are added `((0 + 16) + (32 + 48))` lane by lane, and the 16
//! lanes that are left by halving ([`crate::simd::Simd::sum`]). Elements that are missing from the last 64 count as zero.
#![allow(unsafe_code)]
#![allow(clippy::needless_range_loop, clippy::explicit_counter_loop)]

pub(crate) mod elementwise;
pub(crate) mod norm;
pub(crate) mod rope;
pub(crate) mod route;

#[cfg(test)]
mod tests;

pub use norm::exp_below;

use crate::simd::{LANES, Simd};

/// A function of one vector. Traits, not closures: a closure is compiled without its caller's instruction set.
trait Map: Copy {
    fn at<S: Simd>(self, s: S, x: S::F) -> S::F;
}

/// A function of two vectors.
trait Map2: Copy {
    fn at<S: Simd>(self, s: S, a: S::F, b: S::F) -> S::F;
}

/// A step of a reduction; of a zero (or what the vector is padded with) it must give `acc`.
trait Fold: Copy {
    fn step<S: Simd>(self, s: S, acc: S::F, x: S::F) -> S::F;
}

/// The reduction of `x` in the order of this module.
#[inline(always)]
fn reduce<S: Simd, F: Fold>(s: S, x: &[f32], fill: f32, f: F) -> f32 {
    let mut acc = [s.splat(0.0); 4];
    let mut blocks = x.chunks_exact(4 * LANES);
    for block in &mut blocks {
        for i in 0..4 {
            // SAFETY: the block has 64 elements.
            acc[i] = f.step(s, acc[i], unsafe { s.load(block.as_ptr().add(i * LANES)) });
        }
    }
    let mut i = 0;
    for part in blocks.remainder().chunks(LANES) {
        acc[i] = f.step(s, acc[i], s.load_part(part, fill));
        i += 1;
    }
    s.sum(s.add(s.add(acc[0], acc[1]), s.add(acc[2], acc[3])))
}

/// `out[i] = f(x[i])` for as many elements as both have.
#[inline(always)]
fn map<S: Simd, F: Map>(s: S, x: &[f32], out: &mut [f32], f: F) {
    let n = x.len().min(out.len());
    // SAFETY: both have `n` elements.
    unsafe { map_raw(s, x.as_ptr(), out.as_mut_ptr(), n, f) }
}

/// `y[i] = f(y[i])`.
#[inline(always)]
fn map_in_place<S: Simd, F: Map>(s: S, y: &mut [f32], f: F) {
    let p = y.as_mut_ptr();
    // SAFETY: in bounds; elements are read before they are written.
    unsafe { map_raw(s, p, p, y.len(), f) }
}

/// # Safety
/// `x` is readable and `out` writable for `n` elements; they are the same or apart.
#[inline(always)]
unsafe fn map_raw<S: Simd, F: Map>(s: S, x: *const f32, out: *mut f32, n: usize, f: F) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut i = 0;
        while i + LANES <= n {
            s.store(f.at(s, s.load(x.add(i))), out.add(i));
            i += LANES;
        }
        if i < n {
            let y = f.at(s, s.load_part(std::slice::from_raw_parts(x.add(i), n - i), 0.0));
            s.store_part(y, std::slice::from_raw_parts_mut(out.add(i), n - i));
        }
    }
}

/// `out[i] = f(a[i], b[i])` for as many elements as all have.
#[inline(always)]
fn map2<S: Simd, F: Map2>(s: S, a: &[f32], b: &[f32], out: &mut [f32], f: F) {
    let n = a.len().min(b.len()).min(out.len());
    // SAFETY: all have `n` elements.
    unsafe { map2_raw(s, a.as_ptr(), b.as_ptr(), out.as_mut_ptr(), n, f) }
}

/// `y[i] = f(y[i], b[i])` for as many elements as both have.
#[inline(always)]
fn map2_in_place<S: Simd, F: Map2>(s: S, y: &mut [f32], b: &[f32], f: F) {
    let (n, p) = (y.len().min(b.len()), y.as_mut_ptr());
    // SAFETY: in bounds; elements are read before they are written.
    unsafe { map2_raw(s, p, b.as_ptr(), p, n, f) }
}

/// # Safety
/// `a` and `b` are readable and `out` writable for `n` elements; `out` is `a` or apart.
#[inline(always)]
unsafe fn map2_raw<S: Simd, F: Map2>(s: S, a: *const f32, b: *const f32, out: *mut f32, n: usize, f: F) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut i = 0;
        while i + LANES <= n {
            s.store(f.at(s, s.load(a.add(i)), s.load(b.add(i))), out.add(i));
            i += LANES;
        }
        if i < n {
            let a = s.load_part(std::slice::from_raw_parts(a.add(i), n - i), 0.0);
            let b = s.load_part(std::slice::from_raw_parts(b.add(i), n - i), 0.0);
            s.store_part(f.at(s, a, b), std::slice::from_raw_parts_mut(out.add(i), n - i));
        }
    }
}
