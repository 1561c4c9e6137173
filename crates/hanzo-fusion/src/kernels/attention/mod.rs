//! Paged flash attention, decode and prompt by one kernel: the order of operations of the CPU's attention.
//!
//! A row is a token's query head. Its result depends on its own keys only:
//!
//! ```text
//! for each chunk of 512 keys (by position), ascending:           m = −∞, l = 0 (16 lanes), o = 0
//!   for each tile of 64 keys of the chunk that the row sees:
//!     s[t] = Σ_d fma(q[d], k[t][d], ·), d ascending; · key scale (int8); · scale; softcap
//!     m' = max(m, max s);  o, l = o · exp(m − m'), l · exp(m − m') where m' > m
//!     p[t] = exp(s[t] − m');  l[t mod 16] += p[t], t ascending
//!     o[d] = fma(p[t] · value scale (int8), v[t][d], o[d]), t ascending over the keys that the row sees
//!   l = the lanes of l, added by halves
//!   merged:  M' = max(M, m), a = exp(M − M'), b = exp(m − M'),  L = L·a + l·b,  O = fma(o, b, O·a)
//! out = O · (a / L),  with a sink  M' = max(M, sink), a = exp(M − M'), L = L·a + exp(sink − M');  without, a = 1
//! ```
//!
//! So it does not matter how many rows share a tile of keys, nor whether chunks are computed by one workgroup or by many: split or not, alone or
//! in a prompt, a row has the same bits. P·V is in f32: rounding P to halves loses what long rows sum up.

mod merge;

use super::kv::{Cache, Kind, KvShape, TOKENS};
use super::{math, pointwise};
use crate::kernel::{Array, Builder, IntoVal, Kernel, KernelError, Reg, Val};
use crate::step::KvType;

use merge::Merged;
pub use merge::combine;

/// Keys of a tile.
const TILE: u32 = 64;
/// Keys of a chunk: what a workgroup takes of a sequence whose keys are split.
pub const CHUNK: u32 = 512;
/// Invocations of a workgroup.
const WORKGROUP: u32 = 128;
/// Rows of a workgroup at most: eight lanes each take its softmax.
pub const MAX_ROWS: u32 = 16;

/// An attention kernel.
#[derive(Clone, Copy, Debug)]
pub struct Attention {
    /// The cache.
    pub kv: KvShape,
    /// Query heads; a multiple of the cache's.
    pub n_heads: u32,
    /// Query heads of one KV head that a workgroup takes; a divisor of `n_heads / n_kv_heads`.
    pub heads: u32,
    /// Tokens that a workgroup takes; `heads · tokens` is at most [`MAX_ROWS`].
    pub tokens: u32,
    /// Whether scores are capped.
    pub softcap: bool,
    /// Whether heads have sinks.
    pub sinks: bool,
    /// Whether each chunk is a workgroup's of its own, whose result [`combine()`] merges.
    pub split: bool,
}

impl Attention {
    /// The tile for prompts (`decode` false) or single tokens: as many heads of a group as fit, then as many tokens.
    pub fn tiled(kv: KvShape, n_heads: u32, decode: bool) -> Self {
        let group = (n_heads / kv.n_kv_heads.max(1)).max(1);
        let heads = (1..=group.min(MAX_ROWS)).rev().find(|h| group.is_multiple_of(*h)).unwrap_or(1);
        let tokens = if decode { 1 } else { MAX_ROWS / heads };
        Self { kv, n_heads, heads, tokens, softcap: false, sinks: false, split: decode }
    }

    /// The kernel. Tiles are runs of rows of one sequence, at most `tokens` long; those with `tile_first = tile_end` are skipped.
    ///
    /// Buffers: `q` `[T, n_heads · k_dim]`, `keys`, `values`, of int8 `key_scales`, `value_scales`, `positions` `[T]`, `sequences` `[T]` (row of the
    /// block table), `block_table` `[sequences, max_blocks]`, `tile_first`, `tile_end`; then unsplit `y` `[T, n_heads · v_dim]` and where there are `sinks`
    /// those `[n_heads]`, split `part_o` `[chunks, T, n_heads, v_dim]`, `part_m`, `part_l` `[chunks, T, n_heads]`. Parameters: `max_blocks`, `window`
    /// (`u32::MAX` for none), `scale`, with cap `cap`, split `n_rows` = T. Grid: `[n_heads / heads, tiles, chunks if split, else 1]`.
    ///
    /// # Errors
    /// Rows that workgroup memory does not hold.
    pub fn kernel(&self, subgroup: u32) -> Result<Kernel, KernelError> {
        let how = if self.split { "decode" } else { "prefill" };
        let name = format!("attention_{how}_{}", self.kv.kv_type.name());
        let rows = self.rows();
        let doc = format!(
            "{} heads by {} tokens a workgroup, tiles of {TILE} keys. Scores: a key a lane, keys straight from the cache, queries in workgroup memory; \
             softmax: eight lanes a row; P·V in f32: an element a lane. Order: the CPU's, chunks of {CHUNK} keys merged in ascending order. \
             Bound: bytes of the cache{}.",
            self.heads,
            self.tokens,
            if rows > 8 { ", then f32 products" } else { "" },
        );
        let k = Builder::new(&name, &doc, WORKGROUP, subgroup);
        Body::declare(&k, *self).run();
        k.finish()
    }

    fn rows(&self) -> u32 {
        (self.heads * self.tokens).clamp(1, MAX_ROWS)
    }
}

/// Buffers and where the workgroup stands.
struct Body<'k> {
    k: &'k Builder,
    a: Attention,
    q: Array<'k, f32>,
    keys: Cache<'k>,
    values: Cache<'k>,
    scales: Option<(Array<'k, f32>, Array<'k, f32>)>,
    block_table: Array<'k, u32>,
    out: Out<'k>,
    scale: Val<'k, f32>,
    cap: Option<Val<'k, f32>>,
    window: Val<'k, u32>,
    /// Rows of the step: the tile's first, and beyond its last.
    tile: (Val<'k, u32>, Val<'k, u32>),
    /// Position of the first.
    position: Val<'k, u32>,
    /// Its part of the block table.
    table: Val<'k, u32>,
    /// First query head, and the KV head.
    head: Val<'k, u32>,
    kv_head: Val<'k, u32>,
    /// `[row][k_dim]`.
    queries: Array<'k, f32>,
    /// `[row][TILE]`: scores, then weights.
    weights: Array<'k, f32>,
    /// `[row]`: what sums so far, and new ones, are multiplied by.
    factors: [Array<'k, f32>; 2],
}

enum Out<'k> {
    Rows { y: Array<'k, f32>, sinks: Option<Array<'k, f32>> },
    Parts { o: Array<'k, f32>, m: Array<'k, f32>, l: Array<'k, f32>, n_rows: Val<'k, u32> },
}

/// Softmax state of the row of an invocation's octet.
struct RowState<'k> {
    m: Reg<'k, f32>,
    /// Lanes `j` and `j + 8` of the sixteen, `j` the lane in its octet.
    l: [Reg<'k, f32>; 2],
}

/// A tile of keys: its first, and the range that any row sees.
#[derive(Clone, Copy)]
struct Keys<'k> {
    k0: Val<'k, u32>,
    low: Val<'k, u32>,
    high: Val<'k, u32>,
}

impl<'k> Body<'k> {
    fn declare(k: &'k Builder, a: Attention) -> Self {
        let q = k.input("q");
        let (keys, values) = (a.kv.kv_type.input(k, "keys"), a.kv.kv_type.input(k, "values"));
        let scales = (a.kv.kv_type == KvType::Int8).then(|| (k.input("key_scales"), k.input("value_scales")));
        let [positions, sequences, block_table, tile_first, tile_end] =
            ["positions", "sequences", "block_table", "tile_first", "tile_end"].map(|n| k.input::<u32>(n));
        let out = match a.split {
            false => Out::Rows { y: k.output("y"), sinks: a.sinks.then(|| k.input("sinks")) },
            true => {
                let [o, m, l] = ["part_o", "part_m", "part_l"].map(|n| k.output(n));
                Out::Parts { o, m, l, n_rows: k.param("n_rows") }
            }
        };
        let (max_blocks, window) = (k.param::<u32>("max_blocks"), k.param::<u32>("window"));
        // Half of all numbers: differences that wrapped are not below it.
        let window = window.min(1 << 31);
        let scale = k.param::<f32>("scale");
        let cap = a.softcap.then(|| k.param::<f32>("cap"));
        let tile = k.workgroup_id(1);
        let tile = (tile_first.at(tile), tile_end.at(tile));
        let head = k.workgroup_id(0) * a.heads;
        let rows = a.rows();
        let keep = k.shared("keep", rows);
        Self {
            k,
            a,
            q,
            keys,
            values,
            scales,
            block_table,
            out,
            scale,
            cap,
            window,
            tile,
            position: positions.at(tile.0),
            table: sequences.at(tile.0) * max_blocks,
            head,
            kv_head: head / (a.n_heads / a.kv.n_kv_heads.max(1)).max(1),
            queries: k.shared("queries", rows * a.kv.k_dim),
            weights: k.shared("weights", rows * TILE),
            // Chunks that are merged elsewhere have no second factor.
            factors: [keep, if a.split { keep } else { k.shared("take", rows) }],
        }
    }

    fn run(self) {
        let k = self.k;
        k.when(self.tile.0.lt(self.tile.1), || {
            let dim = self.a.kv.k_dim;
            k.each(self.a.rows() * dim, |i| {
                let row = self.step_row(i / dim) * self.a.n_heads + self.head_of(i / dim);
                self.queries.set(i, self.q.at(row * dim + i % dim));
            });
            let end = self.position + (self.tile.1 - self.tile.0);
            let low = self.lowest(self.position);
            match &self.out {
                Out::Parts { .. } => {
                    let chunk = k.workgroup_id(2);
                    let first = chunk * CHUNK;
                    k.when(first.lt(end) & low.lt(first + CHUNK), || {
                        let sums = self.sums();
                        let row = self.chunk(chunk, low, end, &sums);
                        self.keep(chunk, &row, &sums);
                    });
                }
                Out::Rows { .. } => self.rows(low, end),
            }
        });
    }

    /// Row of the step of the workgroup's row `r`; beyond the tile's last, the last.
    fn step_row(&self, r: Val<'k, u32>) -> Val<'k, u32> {
        (self.tile.0 + r / self.a.heads).min(self.tile.1 - 1)
    }
    fn head_of(&self, r: Val<'k, u32>) -> Val<'k, u32> {
        self.head + r % self.a.heads
    }
    fn position_of(&self, r: Val<'k, u32>) -> Val<'k, u32> {
        self.position + r / self.a.heads
    }
    /// The lowest key that a row at `position` sees.
    fn lowest(&self, position: Val<'k, u32>) -> Val<'k, u32> {
        let end = position + 1;
        end - self.window.min(end)
    }
    /// Whether a row at `position` sees `key`: one comparison, as differences below zero wrap to large ones.
    fn sees(&self, position: Val<'k, u32>, key: Val<'k, u32>) -> Val<'k, bool> {
        (position - key).lt(self.window)
    }
    /// Record of the block of a key.
    fn record(&self, key: Val<'k, u32>) -> Val<'k, u32> {
        self.block_table.at(self.table + key / TOKENS) * self.a.kv.n_kv_heads + self.kv_head
    }
    /// The row whose softmax the invocation's octet takes; octets beyond the last row repeat it.
    fn octet_row(&self) -> Val<'k, u32> {
        (self.k.local_id() / 8).min(self.a.rows() - 1)
    }

    /// Lanes along a value's elements: a power of two. Rows are dealt out to what is left of the workgroup.
    fn lanes(&self) -> u32 {
        self.a.kv.v_dim.next_power_of_two().min(WORKGROUP)
    }
    /// The invocation's elements of a value.
    fn element(&self, j: usize) -> Val<'k, u32> {
        self.k.local_id() % self.lanes() + j as u32 * self.lanes()
    }
    /// The invocation's rows; beyond the last, the last.
    fn row(&self, i: usize) -> Val<'k, u32> {
        let parts = WORKGROUP / self.lanes();
        (self.k.local_id() / self.lanes() + i as u32 * parts).min(self.a.rows() - 1)
    }
    /// Whether the invocation's row `i` is the workgroup's, and not a repetition.
    fn has_row(&self, i: usize) -> Val<'k, bool> {
        let parts = WORKGROUP / self.lanes();
        (self.k.local_id() / self.lanes() + i as u32 * parts).lt(self.a.rows())
    }

    /// Weighted sums of values, `[row][element]` of the invocation.
    fn sums(&self) -> Vec<Vec<Reg<'k, f32>>> {
        let rows = self.a.rows().div_ceil(WORKGROUP / self.lanes());
        let elements = self.a.kv.v_dim.div_ceil(self.lanes());
        (0..rows).map(|_| (0..elements).map(|_| self.k.reg::<f32>(0.0)).collect()).collect()
    }

    /// One chunk of keys: leaves `m`, `l` and `o` (which are reset first).
    fn chunk(
        &self,
        chunk: Val<'k, u32>,
        low: Val<'k, u32>,
        end: Val<'k, u32>,
        sums: &[Vec<Reg<'k, f32>>],
    ) -> RowState<'k> {
        let k = self.k;
        let state = RowState { m: k.reg(f32::NEG_INFINITY), l: [k.reg(0.0), k.reg(0.0)] };
        sums.iter().flatten().for_each(|sum| sum.set(0.0));
        let first = (chunk * CHUNK).max(low / TILE * TILE);
        k.for_step(first, end.min((chunk + 1) * CHUNK), TILE, |k0| {
            let keys = Keys { k0, low: low.max(k0), high: end.min(k0 + TILE) };
            // What the last tile's sums read is overwritten from here on.
            k.barrier();
            self.scores(keys);
            k.barrier();
            self.softmax(keys, &state);
            k.barrier();
            self.weigh(keys, sums);
        });
        state
    }

    /// `weights[row][t] = s[t]`, a key an invocation and the rows dealt out.
    fn scores(&self, keys: Keys<'k>) {
        let (k, rows, dim) = (self.k, self.a.rows(), self.a.kv.k_dim);
        let (t, part) = (k.local_id() % TILE, k.local_id() / TILE);
        let parts = WORKGROUP / TILE;
        let key = keys.k0 + t;
        // A key that nobody sees is stood in for by one that somebody does: its block may be gone.
        let near = key.max(keys.low).min(keys.high - 1);
        let (record, place) = (self.record(near), near % TOKENS);
        let from = record * (dim * TOKENS) + place;
        let mine = |i: u32| (part + i * parts).min(rows - 1);
        let sums: Vec<Reg<'k, f32>> = (0..rows.div_ceil(parts)).map(|_| k.reg(0.0)).collect();
        k.for_range(0, dim, |d| {
            let v = self.keys.at(from + d * TOKENS);
            for (i, sum) in (0..).zip(&sums) {
                sum.set(self.queries.at(mine(i) * dim + d).fma(v, sum.get()));
            }
        });
        let key_scale = self.scales.map(|(scales, _)| scales.at(record * TOKENS + place));
        for (i, sum) in (0..).zip(&sums) {
            let mut s = sum.get();
            if let Some(key_scale) = key_scale {
                s = s * key_scale;
            }
            s = s * self.scale;
            if let Some(cap) = self.cap {
                s = pointwise::softcap(k, s, cap);
            }
            let seen = self.sees(self.position_of(mine(i)), key);
            k.when((part + i * parts).lt(rows), || {
                self.weights.set(mine(i) * TILE + t, seen.select(s, f32::NEG_INFINITY));
            });
        }
    }

    /// Scores to weights; eight lanes a row, lane `j` taking keys `j`, `j + 8`, …
    fn softmax(&self, keys: Keys<'k>, state: &RowState<'k>) {
        let k = self.k;
        let (row, j) = (self.octet_row(), k.local_id() % 8);
        let at = |i: u32| row * TILE + j + 8 * i;
        let mine = (k.local_id() / 8).lt(self.a.rows());
        // Octets without a row take part in the shuffles only.
        let scores: Vec<_> = (0..TILE / 8).map(|_| k.reg::<f32>(f32::NEG_INFINITY)).collect();
        k.when(mine, || (0..).zip(&scores).for_each(|(i, s)| s.set(self.weights.at(at(i)))));
        let scores: Vec<_> = scores.iter().map(|s| s.get()).collect();
        let own = scores.iter().copied().reduce(|a, b| a.max(b));
        let mut top = own.unwrap_or_else(|| f32::NEG_INFINITY.val(k));
        for mask in [4, 2, 1] {
            top = top.max(top.shuffle_xor(mask));
        }
        let position = self.position_of(row);
        let active = self.lowest(position).max(keys.k0).lt((position + 1).min(keys.k0 + TILE));
        let m = state.m.get();
        let grows = active & top.gt(m);
        let shrink = (grows & m.gt(f32::NEG_INFINITY)).select(math::exp(k, m - top), 1.0);
        let m = grows.select(top, m);
        state.m.set(m);
        for l in &state.l {
            l.set(l.get() * shrink);
        }
        for (i, (&s, l)) in (0..).zip(scores.iter().zip(state.l.iter().cycle())) {
            let p = active.select(math::exp(k, s - m), 0.0);
            l.set(l.get() + p);
            let key = keys.k0 + j + 8 * i;
            let weight = match self.scales {
                Some((_, scales)) => {
                    let near = key.max(keys.low).min(keys.high - 1);
                    p * scales.at(self.record(near) * TOKENS + near % TOKENS)
                }
                None => p,
            };
            k.when(mine, || self.weights.set(at(i), weight));
        }
        k.when(mine & j.eq(0), || self.factors[0].set(row, shrink));
    }

    /// `o = o · shrink + Σ p · v`.
    fn weigh(&self, keys: Keys<'k>, sums: &[Vec<Reg<'k, f32>>]) {
        let (k, dim) = (self.k, self.a.kv.v_dim);
        for (i, row) in sums.iter().enumerate() {
            let shrink = self.factors[0].at(self.row(i));
            row.iter().for_each(|sum| sum.set(sum.get() * shrink));
        }
        k.for_range(keys.low / TOKENS, (keys.high + (TOKENS - 1)) / TOKENS, |block| {
            let first = block * TOKENS;
            let from = self.record(first) * (dim * TOKENS);
            k.for_range(keys.low.max(first), keys.high.min(first + TOKENS), |key| {
                // Elements beyond the last repeat it; their sums are not written.
                let value = |j| self.values.at(from + (key - first) * dim + self.element(j).min(dim - 1));
                let values: Vec<_> = (0..sums.first().map_or(0, Vec::len)).map(value).collect();
                for (i, row) in sums.iter().enumerate() {
                    let r = self.row(i);
                    let p = self.weights.at(r * TILE + (key - keys.k0));
                    let seen = self.sees(self.position_of(r), key);
                    for (sum, &v) in row.iter().zip(&values) {
                        let more = p.fma(v, sum.get());
                        // One token's rows all see what its tile sees; other tokens' values must not reach a row, not even as 0 · NaN.
                        sum.set(if self.a.tokens == 1 { more } else { seen.select(more, sum.get()) });
                    }
                }
            });
        });
    }

    /// The sum of a row's sixteen lanes, in all of its octet.
    fn lane_sum(&self, state: &RowState<'k>) -> Val<'k, f32> {
        let mut l = state.l[0].get() + state.l[1].get();
        for mask in [4, 2, 1] {
            l = l + l.shuffle_xor(mask);
        }
        l
    }

    /// Leaves a chunk's result to [`combine()`].
    fn keep(&self, chunk: Val<'k, u32>, state: &RowState<'k>, sums: &[Vec<Reg<'k, f32>>]) {
        let k = self.k;
        let Out::Parts { o, m, l, n_rows } = &self.out else { return };
        let at = |r| (chunk * *n_rows + self.step_row(r)) * self.a.n_heads + self.head_of(r);
        let inside = |r: Val<'k, u32>| (self.tile.0 + r / self.a.heads).lt(self.tile.1);
        let (row, sum) = (self.octet_row(), self.lane_sum(state));
        let writes = (k.local_id() / 8).lt(self.a.rows()) & (k.local_id() % 8).eq(0) & inside(row);
        k.when(writes, || {
            m.set(at(row), state.m.get());
            l.set(at(row), sum);
        });
        self.each_sum(sums, |r, d, sum| {
            k.when(inside(r), || o.set(at(r) * self.a.kv.v_dim + d, sum.get()));
        });
    }

    /// Runs `f` on every sum that is the invocation's own: its row, its element.
    fn each_sum(&self, sums: &[Vec<Reg<'k, f32>>], f: impl Fn(Val<'k, u32>, Val<'k, u32>, Reg<'k, f32>)) {
        for (i, row) in sums.iter().enumerate() {
            for (j, &sum) in row.iter().enumerate() {
                let d = self.element(j);
                self.k.when(self.has_row(i) & d.lt(self.a.kv.v_dim), || f(self.row(i), d, sum));
            }
        }
    }

    /// All chunks of the rows, one after the other.
    fn rows(&self, low: Val<'k, u32>, end: Val<'k, u32>) {
        let k = self.k;
        let Out::Rows { y, sinks } = &self.out else { return };
        let (sums, all) = (self.sums(), self.sums());
        let merged = Merged::new(k);
        let row = self.octet_row();
        let mine = (k.local_id() / 8).lt(self.a.rows()) & (k.local_id() % 8).eq(0);
        k.for_range(low / CHUNK, (end + (CHUNK - 1)) / CHUNK, |chunk| {
            let state = self.chunk(chunk, low, end, &sums);
            let (keep, take) = merged.merge(state.m.get(), self.lane_sum(&state));
            // The sums of the last tile have read the factors.
            k.barrier();
            k.when(mine, || {
                self.factors[0].set(row, keep);
                self.factors[1].set(row, take);
            });
            k.barrier();
            for (i, (all, sums)) in all.iter().zip(&sums).enumerate() {
                let (keep, take) = (self.factors[0].at(self.row(i)), self.factors[1].at(self.row(i)));
                for (all, sum) in all.iter().zip(sums) {
                    all.set(sum.get().fma(take, all.get() * keep));
                }
            }
        });
        let sink = sinks.map(|sinks| sinks.at(self.head_of(row)));
        let factor = merged.finish(sink);
        k.barrier();
        k.when(mine, || self.factors[0].set(row, factor));
        k.barrier();
        self.each_sum(&all, |r, d, sum| {
            let at = (self.step_row(r) * self.a.n_heads + self.head_of(r)) * self.a.kv.v_dim + d;
            let value = sum.get() * self.factors[0].at(r);
            k.when((self.tile.0 + r / self.a.heads).lt(self.tile.1), || y.set(at, value));
        });
    }
}
