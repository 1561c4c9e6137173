//! Contraction of many rows.
