//! The contraction entry points.
