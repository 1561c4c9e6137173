//! Runs a plan.
