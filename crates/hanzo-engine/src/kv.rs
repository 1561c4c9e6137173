//! Which KV block holds what: the pool, the prefix cache, and the block tables of a sequence.
//!
//! Only block numbers live here; keys and values are the device's. References: vLLM's paged attention (Kwon et al.
//! 2023) for pools and tables, its chained block hashes for prefix reuse.

mod budget;
mod pool;
mod size;
mod table;

pub use budget::{KvDemand, KvTooLarge, kv_pool_default, kv_pool_fits};
pub use pool::{BlockPool, PrefixId};
pub use size::{PoolSizes, block_bytes, smaller_window};
pub use table::{KvManager, Tables};
