//! hanzo-cpu
