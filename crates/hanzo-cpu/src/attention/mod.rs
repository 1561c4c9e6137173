//! Attention over the paged KV cache.
//!
//! The result of a query row depends on its own keys only, by one order of operations, whatever else is in the step:
//!
//! ```text
//! for each chunk of 512 keys (by position), ascending:           m = −∞, l = 0 (16 lanes), o = 0
//!   for each tile of 64 keys of the chunk that the row sees, ascending:
//!     s[t] = Σ_d fma(q[d], k[t][d], ·), d ascending; · key scale (int8); · scale; softcap
//!     m' = max(m, max s);  o, l = o · exp(m − m'), l · exp(m − m') where m' > m
//!     p[t] = exp(s[t] − m');  l[t mod 16] += p[t], t ascending
//!     o[d] = fma(p[t] · value scale (int8), v[t][d], o[d]), t ascending over the keys that the row sees
//!   l = the lanes of l by the fixed tree
//!   merged into the row's (M, L, O):  M' = max(M, m), a = exp(M − M'), b = exp(m − M'),
//!                                     L = L·a + l·b,  O = fma(o, b, O·a)       (the first chunk is taken as it is)
//! out = O · (a / L),  with a sink  M' = max(M, sink), a = exp(M − M'), L = L·a + exp(sink − M');  without, a = 1
//! ```
//!
//! An int8 cache has its keys and values rotated (see `rotate`): q is rotated before all this, out after it.
//!
//! Decode, prefill and verification differ in how many rows share a tile's keys, and in whether a sequence's chunks are
//! computed by several threads (their partial results are merged in the order above), so all give the same bits.
#![allow(unsafe_code)]
// Register tiles are arrays indexed by row and vector, several of them side by side.
#![allow(clippy::needless_range_loop, clippy::too_many_arguments)]

mod items;
pub(crate) mod kv;
mod rotate;
mod rows;
mod tile;

#[cfg(test)]
mod tests;

pub(crate) use items::{Items, Sequence};
pub(crate) use rows::{Attention, Out, Scratch};

/// Keys of a tile.
const TILE: usize = 64;
/// Blocks of a tile.
const BLOCKS: usize = TILE / hanzo_fusion::BLOCK_TOKENS;
/// Keys of a chunk: what one thread takes when a sequence's keys are split.
const CHUNK: usize = 512;
/// Query rows that share a tile of keys: enough that widening the tile costs little, few enough that their queries, scores and
/// sums stay in the second-level cache.
const ROWS: usize = 192;
