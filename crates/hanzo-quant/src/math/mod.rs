//! Transcendental functions with the same bits on every machine.
//!
//! A C library's `expf` differs from platform to platform in the last place, and one differing bit can turn a greedy
//! reply. These functions are sequences of IEEE 754 operations only (add, multiply, divide, fused multiply-add, integer
//! arithmetic on the bits), so a scalar, AVX2 or AVX-512 evaluation of the same sequence gives the same result.
//!
//! **To evaluate them in lanes**, do what the scalar code does, operation for operation. [`f32::mul_add`] is a fused
//! multiply-add everywhere (in hardware where the caller is compiled with the `fma` feature, exact in software elsewhere).
//! Single-precision functions have no branches: what reads `if a < b { c } else { d }` is a compare and a select, and
//! [`min`] and [`max`] have the operand order of `minps` and `maxps`, by which a NaN in the second operand passes through.
//! Polynomials are evaluated by Horner's rule in fused multiply-adds, highest coefficient first. What is exact may be
//! computed in any way: the scaling by a power of two in [`exp`] is rounded once and equals `vscalefps`.
//!
//! Nothing here changes the rounding mode or flushes subnormal numbers, and callers must not either.

mod double;
mod single;

pub use double::{exp as exp_f64, exp2 as exp2_f64, ln as ln_f64, log2 as log2_f64, pow, sin_cos};
pub use single::*;

#[cfg(test)]
mod tests;
