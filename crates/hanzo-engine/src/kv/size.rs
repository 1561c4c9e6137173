//! Bytes of the cache.

use hanzo_fusion::{BLOCK_TOKENS, KvLayer, KvType};

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
    fn sizes_by_hand() {
        let layer = KvLayer { n_kv_heads: 3, k_head_dim: 64, v_head_dim: 32, window: None, group: 0 };
        assert_eq!(block_bytes(&[layer; 2], KvType::F16), 2 * 3 * 96 * 2 * 16);
        assert_eq!(block_bytes(&[layer], KvType::Int8), 3 * (96 + 8) * 16);
        assert_eq!(block_bytes(&[layer], KvType::F32), 3 * 96 * 4 * 16);
    }
}
