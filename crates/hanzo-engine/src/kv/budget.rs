//! How large the pool of blocks is: what callers ask for, against what memory there is.

use hanzo_fusion::BLOCK_TOKENS;
use thiserror::Error;

/// Of the memory that is free, one part in this many is left to the system and to activations.
const RESERVE_SHARE: u64 = 8;
/// And so much at least.
const RESERVE_LEAST: u64 = 256 << 20;

/// What sequences may want of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvDemand {
    /// Bytes of one block over all layers (see [`super::block_bytes`]).
    pub block_bytes: u64,
    /// Longest sequence, in tokens.
    pub max_context: usize,
    /// Sequences that run at once.
    pub max_sequences: usize,
}

impl KvDemand {
    /// Blocks of one longest sequence.
    fn one(self) -> u64 {
        self.max_context.max(1).div_ceil(BLOCK_TOKENS) as u64
    }

    /// Blocks that can be in use at once; more would never be used.
    pub fn most(self) -> u64 {
        self.one().saturating_mul(self.max_sequences.max(1) as u64)
    }
}

/// A cache that does not fit.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error(
    "the KV cache for {tokens} tokens takes {} and {} are available for it, which is enough for {fits} tokens; \
     ask for a shorter context, or for smaller elements of the cache", size(*.needed), size(*.available)
)]
pub struct KvTooLarge {
    /// Tokens that were asked for.
    pub tokens: u64,
    /// Bytes that they take.
    pub needed: u64,
    /// Bytes that there are.
    pub available: u64,
    /// Tokens for which these are enough.
    pub fits: u64,
}

/// Whether `blocks` blocks fit into `available` bytes.
///
/// # Errors
/// [`KvTooLarge`] with both figures.
pub fn kv_pool_fits(blocks: u64, block_bytes: u64, available: u64) -> Result<(), KvTooLarge> {
    let needed = blocks.saturating_mul(block_bytes);
    if needed <= available {
        return Ok(());
    }
    let tokens = |blocks: u64| blocks.saturating_mul(BLOCK_TOKENS as u64);
    Err(KvTooLarge {
        tokens: tokens(blocks),
        needed,
        available,
        fits: tokens(available / block_bytes.max(1)),
    })
}

/// Blocks of a pool whose size nobody chose, where `available` bytes are free once the weights are loaded:
///
/// 1. an eighth of them, and 256 MiB at least, stays free;
/// 2. of the rest the pool takes half,
/// 3. but as much as one longest sequence needs,
/// 4. and no more than can be in use at once.
///
/// Memory of blocks is taken when they are first written, so a generous pool costs nothing before it is used.
///
/// # Errors
/// [`KvTooLarge`] where one longest sequence does not fit into what 1 leaves.
pub fn kv_pool_default(available: u64, demand: KvDemand) -> Result<u64, KvTooLarge> {
    let usable = available.saturating_sub((available / RESERVE_SHARE).max(RESERVE_LEAST));
    kv_pool_fits(demand.one(), demand.block_bytes, usable)?;
    let half = usable / 2 / demand.block_bytes.max(1);
    Ok(half.max(demand.one()).min(demand.most()))
}

/// Bytes as people read them.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (bytes as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let unit_name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{bytes} {unit_name}") } else { format!("{value:.1} {unit_name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// Blocks of 1 MiB; a longest sequence has 64 of them.
    fn demand(max_sequences: usize) -> KvDemand {
        KvDemand { block_bytes: MIB, max_context: 1024, max_sequences }
    }

    #[test]
    fn the_rules_of_the_default() {
        let of = |mib: u64, n| kv_pool_default(mib * MIB, demand(n));
        assert_eq!(of(8192, 1), Ok(64), "what one sequence can use");
        assert_eq!(of(8192, 1000), Ok((8192 - 1024) / 2), "half of what the reserve leaves");
        assert_eq!(of(8192, 10), Ok(640), "no more than ten can use");
        assert_eq!(of(1024, 1000), Ok((1024 - 256) / 2), "256 MiB stay free at least");
        assert_eq!(of(256 + 100, 1000), Ok(64), "one sequence, though half would be 50");
        let short = of(256 + 63, 1000).unwrap_err();
        assert_eq!(
            short.to_string(),
            "the KV cache for 1024 tokens takes 64.0 MiB and 63.0 MiB are available for it, which is enough for \
             1008 tokens; ask for a shorter context, or for smaller elements of the cache"
        );
        assert_eq!(of(0, 1).unwrap_err().fits, 0);
        assert_eq!(
            kv_pool_default(u64::MAX, KvDemand { max_context: usize::MAX, ..demand(usize::MAX) })
                .unwrap_err()
                .needed,
            u64::MAX
        );
    }

    #[test]
    fn a_pool_fits_or_both_figures_are_told() {
        assert_eq!(kv_pool_fits(10, MIB, 10 * MIB), Ok(()));
        let large = kv_pool_fits(10, MIB, 10 * MIB - 1).unwrap_err();
        assert_eq!(large, KvTooLarge { tokens: 160, needed: 10 * MIB, available: 10 * MIB - 1, fits: 144 });
        assert!(kv_pool_fits(u64::MAX, 0, 0).is_ok());
    }

    #[test]
    fn sizes_are_readable() {
        assert_eq!([size(17), size(1536), size(u64::MAX)], ["17 B", "1.5 KiB", "16777216.0 TiB"]);
    }
}
