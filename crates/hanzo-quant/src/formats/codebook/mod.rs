//! The codebooks of the IQ formats: short vectors of small integers, expanded at compile time from their packed form.

use crate::{Grid, GridModifier};

mod tables;

/// A codebook with its elements written as level numbers (see `tables.rs`).
struct Packed<const ENTRIES: usize> {
    levels: &'static [i8],
    entries: [u16; ENTRIES],
}

impl<const ENTRIES: usize> Packed<ENTRIES> {
    /// The table of a [`Grid`]; `LEN` is `ENTRIES` times the elements of an entry.
    const fn expand<const LEN: usize>(&self) -> [i8; LEN] {
        let group = LEN / ENTRIES;
        let bits = if group == 8 { 2 } else { 3 };
        let mut table = [0; LEN];
        let mut i = 0;
        while i < LEN {
            let level = self.entries[i / group] >> (bits * (i % group)) & ((1 << bits) - 1);
            table[i] = self.levels[level as usize];
            i += 1;
        }
        table
    }
}

/// The table of IQ1_S and IQ1_M, in eighths.
pub static IQ1: [i8; 16384] = tables::IQ1.expand();
/// The table of IQ2_XXS.
pub static IQ2_XXS: [i8; 2048] = tables::IQ2_XXS.expand();
/// The table of IQ2_XS.
pub static IQ2_XS: [i8; 4096] = tables::IQ2_XS.expand();
/// The table of IQ2_S.
pub static IQ2_S: [i8; 8192] = tables::IQ2_S.expand();
/// The table of IQ3_XXS.
pub static IQ3_XXS: [i8; 1024] = tables::IQ3_XXS.expand();
/// The table of IQ3_S.
pub static IQ3_S: [i8; 2048] = tables::IQ3_S.expand();

pub(super) const IQ1_GRID: Grid =
    Grid { group: 8, index_bits: 11, table: &IQ1, modifier: GridModifier::Shift };
pub(super) const IQ2_XXS_GRID: Grid = signed(8, 8, &IQ2_XXS, false);
pub(super) const IQ2_XS_GRID: Grid = signed(8, 9, &IQ2_XS, false);
pub(super) const IQ2_S_GRID: Grid = signed(8, 10, &IQ2_S, true);
pub(super) const IQ3_XXS_GRID: Grid = signed(4, 8, &IQ3_XXS, false);
pub(super) const IQ3_S_GRID: Grid = signed(4, 9, &IQ3_S, true);

const fn signed(group: u8, index_bits: u8, table: &'static [i8], free: bool) -> Grid {
    Grid { group, index_bits, table, modifier: GridModifier::Signs { free } }
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// The digests are of the tables as the `gguf` package expands them.
    #[test]
    fn tables_are_the_file_formats() {
        let hex = |table: &[i8]| {
            let bytes: Vec<u8> = table.iter().map(|v| v.cast_unsigned()).collect();
            Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect::<String>()
        };
        for (name, table, digest) in [
            ("IQ1", &IQ1[..], "ce14cc6490491fa13837d2415d10747e26f509cfc9bed7e5f5d66e68fd7c041f"),
            ("IQ2_XXS", &IQ2_XXS[..], "05826b5d3e472a3a78f196be62ac78acf81df0f909626e12ab9fa2a5d490dd54"),
            ("IQ2_XS", &IQ2_XS[..], "06e47aaca60b4dc1d9b5a3f34540437058a6b142b4d7a59d5ded769b4d1bf1de"),
            ("IQ2_S", &IQ2_S[..], "e1aa1473412b0552c2174c30ef22ab4073f6a181b85a17056e8249bd2932fd88"),
            ("IQ3_XXS", &IQ3_XXS[..], "46e35f5a997efdee6c99ce57854c8a0d4f0ff8ca57e5e8a60c0793ea580acf5d"),
            ("IQ3_S", &IQ3_S[..], "bd1af4945a1717c65610b0284e4628b9a1ba3b306fae3a06f6e5f597356e349f"),
        ] {
            assert_eq!(hex(table), digest, "{name}");
        }
    }
}
