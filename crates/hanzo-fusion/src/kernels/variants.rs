//! Plain variants of kernels, chosen by name: two of a kind can be compared in one binary. All give the same bits, or the difference is a fault.
//!
//! What was chosen is one [`Variants`], which [`super::registry`] and [`super::select`] are given; nothing here reads the environment.

use thiserror::Error;

use super::matmul::gemm::{Rung, Tile};

/// Chooses [`Rung::F32`].
pub const QGEMM: &str = "HANZO_QGEMM_FALLBACK";
/// Chooses [`Rung::Column`].
pub const QGEMM_TILE: &str = "HANZO_QGEMM_TILE_FALLBACK";
/// Chooses [`Variants::plain_matvec`].
pub const QMATVEC: &str = "HANZO_QMATVEC_FALLBACK";
/// Chooses [`Variants::unsplit_attention`].
pub const ATTENTION: &str = "HANZO_ATTENTION_FALLBACK";

/// The variables that choose plain variants, and what each does.
pub const ENVIRONMENT: &[(&str, &str)] = &[
    (
        QGEMM,
        "1 contracts many rows with tiles of f32 instead of packed integer dots (same bits, other speed)",
    ),
    (QGEMM_TILE, "1 contracts many rows with one output an invocation and no tiles (same bits, other speed)"),
    (
        QMATVEC,
        "1 contracts few rows with one output an invocation, a gate and what it gates apart (same bits, other speed)",
    ),
    (ATTENTION, "1 never splits a sequence's keys among workgroups (same bits, other speed)"),
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
        let chosen = |name: &'static str| match lookup(name).as_deref() {
            None | Some("" | "0") => Ok(false),
            Some("1") => Ok(true),
            Some(value) => Err(VariantError { name, value: value.to_owned() }),
        };
        let gemm = match (chosen(QGEMM_TILE)?, chosen(QGEMM)?) {
            (true, _) => Rung::Column,
            (false, true) => Rung::F32,
            (false, false) => Self::default().gemm,
        };
        Ok(Self { gemm, plain_matvec: chosen(QMATVEC)?, unsplit_attention: chosen(ATTENTION)? })
    }

    /// What names of kernels have of a rung; nothing of the usual one.
    pub fn rung_name(rung: Rung) -> &'static str {
        match rung {
            Rung::F32 => "f32",
            Rung::Column => "column",
            _ => "",
        }
    }

    /// The variable that chooses a rung, where one is needed.
    pub fn rung_variable(rung: Rung) -> Option<&'static str> {
        match rung {
            Rung::F32 => Some(QGEMM),
            Rung::Column => Some(QGEMM_TILE),
            _ => None,
        }
    }

    /// The tile that a rung takes for prompts: operands as f32 are four times as large as packed ones.
    pub fn prompt_tile(rung: Rung) -> Tile {
        match rung {
            Rung::F32 => Tile { n: 4, m: 4, ..Tile::LARGE },
            Rung::Column => Self::PLAIN_TILE,
            _ => Tile::LARGE,
        }
    }

    /// The tile of one output an invocation, for few rows and many.
    pub const PLAIN_TILE: Tile = Tile { tx: 128, ty: 1, n: 1, m: 4 };
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
