//! Contraction of few rows.
