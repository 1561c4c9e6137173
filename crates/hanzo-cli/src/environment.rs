//! The one table of the variables that choose between ways to compute the same: `HANZO_*`, for comparisons and debugging.
//!
//! Each crate declares its own; here they stand together, and are read. (Options of `hanzo serve` that can be given as variables are that
//! command's, and stand in its `--help`.)

use std::fmt::Write as _;

use anyhow::Result;
use hanzo_fusion::kernels::variants::{self, Variants};

use crate::failure::usage;

/// Every variable and what it does: of the CPU device, then of device kernels.
fn table() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    hanzo_cpu::isa::ENVIRONMENT.iter().chain(variants::ENVIRONMENT)
}

/// The variables that begin so, as lines for a command's `--help`.
pub(crate) fn help(wanted: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    for (name, does) in table().filter(|(name, _)| wanted(name)) {
        let _ = writeln!(text, "  {name:<27} {does}");
    }
    text
}

/// Which plain variants of device kernels are asked for.
pub(crate) fn variants() -> Result<Variants> {
    let lookup = |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
    Variants::from(lookup).map_err(|e| usage(e.to_string()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_variable_is_declared_once() {
        let mut seen = HashSet::new();
        for (name, does) in table() {
            assert!(name.starts_with("HANZO_") && !does.is_empty(), "{name}");
            assert!(seen.insert(name), "{name} stands twice");
        }
        assert!(seen.contains(&"HANZO_CPU_ISA") && seen.contains(&"HANZO_QGEMM_FALLBACK"));
    }
}
