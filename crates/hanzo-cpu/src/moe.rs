//! Contractions over routed experts.
