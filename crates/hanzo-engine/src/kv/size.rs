//! Bytes of the cache, and blocks of its pools.

use hanzo_fusion::{BLOCK_TOKENS, KvLayer, KvType};

/// Blocks of each kind of pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSizes {
    /// Of groups with a layer that sees everything (and of the first group, where no group has one).
    pub full: usize,
    /// Of the other groups.
    pub window: usize,
    /// Blocks that a sequence has in a pool of the second kind at most, a step's chunk and copies included.
    pub window_sequence: usize,
}

impl PoolSizes {
    /// As many blocks in every pool.
    pub fn equal(n_blocks: usize) -> Self {
        Self { full: n_blocks, window: n_blocks, window_sequence: n_blocks }
    }

    /// Windowed pools hold what the window of each of `max_sequences` sequences needs while a step computes up to
    /// `max_tokens` tokens of them together ([`PoolSizes::needs`]). A share of the others' blocks comes on top, so that
    /// prefixes that ended live on for a while; never more than the others have.
    pub fn new(full: usize, window: usize, max_sequences: usize, max_tokens: usize) -> Self {
        let all = Self::needs(window, max_sequences, max_tokens).saturating_add(full / Self::CACHED);
        let window_sequence = Self::needs(window, 1, max_tokens).min(full);
        Self { full, window: all.min(full), window_sequence }
    }

    /// One block in so many of the others' pools is added for cached prefixes.
    pub const CACHED: usize = 4;

    /// Blocks behind a window that so many sequences can have in use at once.
    pub fn needs(window: usize, max_sequences: usize, max_tokens: usize) -> usize {
        let blocks = |tokens: usize| tokens.div_ceil(BLOCK_TOKENS);
        // Window and chunk both begin inside a block, and the block that is written next may have to be copied.
        let kept = blocks(window).saturating_add(3);
        kept.saturating_mul(max_sequences).saturating_add(blocks(max_tokens))
    }
}

/// Whether the pools of these layers are of two sizes: some groups have a layer that sees everything, and others do not.
/// Returns the widest window of the latter.
pub fn smaller_window(layers: &[KvLayer]) -> Option<usize> {
    let sees_all = |group: usize| layers.iter().any(|l| l.group == group && l.window.is_none());
    let windowed = layers.iter().filter(|l| !sees_all(l.group));
    let widest = windowed.filter_map(|l| l.window).max()?;
    layers.iter().any(|l| l.window.is_none()).then_some(widest as usize)
}

/// Bytes of one block over all layers: keys and values, and their scales where they are integers. A device may pad them.
pub fn block_bytes(layers: &[KvLayer], kv_type: KvType) -> u64 {
    let (element, scale) = match kv_type {
        KvType::F16 => (2, 0),
        KvType::Int8 => (1, 4),
        KvType::F32 => (4, 0),
    };
    let head = |dim: usize| (dim as u64).saturating_mul(element).saturating_add(scale);
    let token = |l: &KvLayer| {
        (l.n_kv_heads as u64).saturating_mul(head(l.k_head_dim).saturating_add(head(l.v_head_dim)))
    };
    layers.iter().map(token).fold(0u64, u64::saturating_add).saturating_mul(BLOCK_TOKENS as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windowed_pools_by_hand() {
        // 4 sequences of 512 / 16 + 3 blocks, 128 tokens of chunks, and a quarter for prefixes.
        assert_eq!(
            PoolSizes::new(1000, 512, 4, 128),
            PoolSizes { full: 1000, window: 398, window_sequence: 43 }
        );
        assert_eq!(PoolSizes::new(20, 512, 4, 128), PoolSizes::equal(20), "never more than the others");
        assert_eq!(PoolSizes::new(9, usize::MAX, usize::MAX, usize::MAX), PoolSizes::equal(9));
        let layer = |window, group| KvLayer { n_kv_heads: 1, k_head_dim: 2, v_head_dim: 2, window, group };
        assert_eq!(smaller_window(&[layer(None, 0), layer(Some(7), 1), layer(Some(9), 1)]), Some(9));
        assert_eq!(
            smaller_window(&[layer(None, 0), layer(Some(7), 0)]),
            None,
            "one group, which sees everything"
        );
        assert_eq!(smaller_window(&[layer(Some(7), 0)]), None, "no other to be smaller than");
        assert_eq!(smaller_window(&[]), None);
    }

    #[test]
    fn sizes_by_hand() {
        let layer = KvLayer { n_kv_heads: 3, k_head_dim: 64, v_head_dim: 32, window: None, group: 0 };
        assert_eq!(block_bytes(&[layer; 2], KvType::F16), 2 * 3 * 96 * 2 * 16);
        assert_eq!(block_bytes(&[layer], KvType::Int8), 3 * (96 + 8) * 16);
        assert_eq!(block_bytes(&[layer], KvType::F32), 3 * 96 * 4 * 16);
    }
}
