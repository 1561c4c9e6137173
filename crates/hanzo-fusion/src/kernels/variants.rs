//! Plain variants of kernels, chosen by name: two of a kind can be compared in one binary. All give the same bits, or the difference is a fault.

use thiserror::Error;

use super::matmul::gemm::Rung;

/// The variables that choose plain variants, and what each does.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "HANZO_QGEMM_FALLBACK",
        "1 contracts many rows with tiles of f32 instead of packed integer dots (same bits, other speed)",
    ),
    (
        "HANZO_QGEMM_TILE_FALLBACK",
        "1 contracts many rows with one output an invocation and no tiles (same bits, other speed)",
    ),
    ("HANZO_QMATVEC_FALLBACK", "1 contracts few rows with one output an invocation (same bits, other speed)"),
    (
        "HANZO_ATTENTION_FALLBACK",
        "1 never splits a sequence's keys among workgroups (same bits, other speed)",
    ),
];

/// Which variants run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variants {
    /// Of the GEMM.
    pub gemm: Rung,
    /// Whether mat-vec is the GEMM's lowest rung.
    pub plain_matvec: bool,
    /// Whether attention never splits.
    pub unsplit_attention: bool,
}

impl Default for Variants {
    fn default() -> Self {
        Self { gemm: Rung::Dot4, plain_matvec: false, unsplit_attention: false }
    }
}

/// A value that a variable does not have.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{name}={value}: 1 chooses the plain variant, 0 or nothing the usual one")]
pub struct VariantError {
    /// The variable.
    pub name: &'static str,
    /// What it holds.
    pub value: String,
}

impl Variants {
    /// What the variables of [`ENVIRONMENT`] choose, as `lookup` finds them; meant to be called once, by the program.
    ///
    /// # Errors
    /// [`VariantError`] for anything but 0, 1 and nothing.
    pub fn from(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, VariantError> {
        let chosen = |at: usize| {
            let Some(&(name, _)) = ENVIRONMENT.get(at) else { return Ok(false) };
            match lookup(name).as_deref() {
                None | Some("" | "0") => Ok(false),
                Some("1") => Ok(true),
                Some(value) => Err(VariantError { name, value: value.to_owned() }),
            }
        };
        let [floats, columns, matvec, attention] = [chosen(0)?, chosen(1)?, chosen(2)?, chosen(3)?];
        let gemm = match (columns, floats) {
            (true, _) => Rung::Column,
            (false, true) => Rung::F32,
            (false, false) => Rung::Dot4,
        };
        Ok(Self { gemm, plain_matvec: matvec, unsplit_attention: attention })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_variable_chooses_its_variant() {
        let only = |name: &'static str| Variants::from(|n| (n == name).then(|| "1".to_owned()));
        let usual = Variants::default();
        assert_eq!(Variants::from(|_| None), Ok(usual));
        assert_eq!(only("HANZO_QGEMM_FALLBACK"), Ok(Variants { gemm: Rung::F32, ..usual }));
        assert_eq!(only("HANZO_QGEMM_TILE_FALLBACK"), Ok(Variants { gemm: Rung::Column, ..usual }));
        assert_eq!(only("HANZO_QMATVEC_FALLBACK"), Ok(Variants { plain_matvec: true, ..usual }));
        assert_eq!(only("HANZO_ATTENTION_FALLBACK"), Ok(Variants { unsplit_attention: true, ..usual }));
        assert!(Variants::from(|_| Some("yes".to_owned())).is_err());
    }
}
