//! Which KV block holds what: the pool, the prefix cache, and the block tables of a sequence.
//!
//! Only numbers of blocks and of slots for recurrent states live here; keys, values and states are the device's. References: vLLM's paged attention (Kwon et al.
//! 2023) for pools and tables, its chained block hashes for prefix reuse.

mod budget;
mod pool;
mod size;
mod states;
mod table;

pub use budget::{KvDemand, KvTooLarge, kv_pool_default, kv_pool_fits};
pub use pool::{BlockPool, PrefixId};
pub use size::{PoolSizes, block_bytes, smaller_window};
pub use states::StateSizes;
pub use table::{KvManager, StatePlan, Tables};
