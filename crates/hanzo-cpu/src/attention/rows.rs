//! Online softmax of the query rows of one item.

use std::marker::PhantomData;
use std::ops::Range;

use hanzo_fusion::BLOCK_TOKENS;
use hanzo_fusion::step::KvType;
use hanzo_quant::canonical::GROUP;
use hanzo_quant::math as scalar;

use super::items::{Item, Items, Sequence, Split, lowest_key, partial_row};
use super::kv::LayerPool;
use super::rotate::rotate;
use super::tile::{Blocks, Elem, Panel, Source, scores, weigh, widen, with_elem};
use super::{BLOCKS, CHUNK, TILE};
use crate::activations::Activations;
use crate::isa::Isa;
use crate::simd::{Kernel, LANES, Simd, dispatch, math};

/// Numbers of the lanes.
const LANE: [f32; LANES] = [0., 1., 2., 3., 4., 5., 6., 7., 8., 9., 10., 11., 12., 13., 14., 15.];

/// Rows from which a tile is widened once for all of them.
const PANEL_ROWS: usize = 9;
/// Rows that share a tile's values at least, where that many see some of them: those of a register tile.
const SHARING: usize = 6;

/// One attention of a step.
#[derive(Clone, Copy)]
pub(crate) struct Attention<'a> {
    pub(crate) pool: &'a LayerPool,
    /// Query heads, and how many share a KV head.
    pub(crate) n_heads: usize,
    pub(crate) group: usize,
    pub(crate) window: Option<u32>,
    pub(crate) scale: f32,
    pub(crate) softcap: Option<f32>,
    /// One a query head.
    pub(crate) sinks: Option<&'a [f32]>,
    /// `[T, n_heads · k_head_dim]`.
    pub(crate) q: *const f32,
    /// `[T, n_heads · v_head_dim]`.
    pub(crate) out: Out<'a>,
    /// [`Items::partial_len`] elements.
    pub(crate) partials: *mut f32,
}

// SAFETY: items read disjoint or shared rows of `q` and write disjoint parts of `out` and `partials`.
unsafe impl Sync for Attention<'_> {}

/// Where the result goes.
#[derive(Clone, Copy)]
pub(crate) enum Out<'a> {
    /// As it is.
    Rows(*mut f32),
    /// Quantized for the next contraction; heads are whole groups.
    Quantized(&'a Activations),
}

/// A thread's working memory.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// Query rows.
    q: Vec<usize>,
    /// The same one after the other, rotated where the keys are.
    queries: Vec<f32>,
    /// Scores, then weights, 64 a row.
    scores: Vec<f32>,
    /// A chunk's weighted sums, `v_stride` a row; greatest scores; sums of weights, 16 lanes a row.
    o: Vec<f32>,
    m: Vec<f32>,
    l: Vec<f32>,
    /// The same over the chunks so far; sums of weights are one number a row.
    all_o: Vec<f32>,
    all_m: Vec<f32>,
    all_l: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    /// One head's result.
    head: Vec<f32>,
}

impl Scratch {
    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let floats = [
            &self.queries,
            &self.scores,
            &self.o,
            &self.m,
            &self.l,
            &self.all_o,
            &self.all_m,
            &self.all_l,
            &self.keys,
            &self.values,
            &self.head,
        ];
        floats.iter().map(|v| v.capacity() * 4).sum::<usize>() + self.q.capacity() * 8
    }

    fn reserve(&mut self, rows: usize, k_dim: usize, v_stride: usize) {
        let grow = |v: &mut Vec<f32>, n: usize| {
            if v.len() < n {
                v.resize(n, 0.0);
            }
        };
        grow(&mut self.scores, rows * TILE);
        grow(&mut self.o, rows * v_stride);
        grow(&mut self.m, rows);
        grow(&mut self.l, rows * LANES);
        grow(&mut self.all_o, rows * v_stride);
        grow(&mut self.all_m, rows);
        grow(&mut self.all_l, rows);
        grow(&mut self.head, v_stride);
        if rows >= PANEL_ROWS {
            grow(&mut self.keys, k_dim * TILE);
            grow(&mut self.values, TILE * v_stride);
        }
    }
}

impl Attention<'_> {
    /// Computes an item, and its group's result if it is the last of the group.
    ///
    /// # Safety
    /// `q` and `out` hold the rows of all sequences, `partials` is as long as `items` says, and no other thread works on the same
    /// item. Block tables hold every block that their sequence's rows see.
    pub(crate) unsafe fn run(
        &self,
        isa: Isa,
        sequences: &[Sequence<'_>],
        items: &Items,
        item: &Item,
        scratch: &mut Scratch,
    ) {
        let Some(sequence) = sequences.get(item.sequence) else { return };
        with_elem!(self.pool.record.kv_type, E => {
            let elem = PhantomData::<E>;
            dispatch(isa, Run { a: self, isa, sequence, items, item, scratch, elem });
        });
    }
}

struct Run<'a, E> {
    a: &'a Attention<'a>,
    isa: Isa,
    sequence: &'a Sequence<'a>,
    items: &'a Items,
    item: &'a Item,
    scratch: &'a mut Scratch,
    elem: PhantomData<E>,
}

impl<E: Elem> Kernel for Run<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        let (record, item) = (self.a.pool.record, self.item);
        let rows = (item.tokens.1 - item.tokens.0) * self.a.group;
        self.scratch.reserve(rows, record.k_dim, record.v_stride);
        self.scratch.q.clear();
        for token in item.tokens.0..item.tokens.1 {
            let row = (self.sequence.first_row + token) * self.a.n_heads + item.head * self.a.group;
            for g in 0..self.a.group {
                // Addresses: pointers are not `Send`, and the buffer outlives the call.
                self.scratch.q.push(self.a.q.wrapping_add((row + g) * record.k_dim) as usize);
            }
        }
        let rotated = record.kv_type == KvType::Int8;
        if rotated || rows >= PANEL_ROWS {
            self.copy_queries(record.k_dim, rotated);
        }
        self.scratch.all_l[..rows].fill(0.0);
        for chunk in item.chunks.0..item.chunks.1 {
            self.chunk(s, chunk, rows);
            match &item.split {
                Some(split) => self.keep(s, split, chunk, rows),
                None => {
                    for r in 0..rows {
                        let (m, l) = (self.scratch.m[r], self.lane_sum(s, r));
                        let o = self.scratch.o[r * record.v_stride..].as_ptr();
                        // SAFETY: row `r` of `o` has `v_stride` elements.
                        unsafe { self.merge(s, r, m, l, o) };
                    }
                }
            }
        }
        if let Some(split) = &item.split {
            if !self.items.is_last(split) {
                return;
            }
            let len = partial_row(record.v_stride);
            for c in 0..split.chunks.1 - split.chunks.0 {
                for r in 0..rows {
                    // SAFETY: inside the group's part of `partials`; its writers are done.
                    unsafe {
                        let p = self.a.partials.add(split.at + (c * rows + r) * len).cast_const();
                        let (m, l) = (*p.add(record.v_stride), *p.add(record.v_stride + 1));
                        self.merge(s, r, m, l, p);
                    }
                }
            }
        }
        self.finish(s, rows);
    }
}

impl<E: Elem> Run<'_, E> {
    /// Copies the queries together, rotated if keys are. In place they lie a row of all heads apart, which for many models is a power of two: a
    /// hundred rows of one head then share a few sets of the second-level cache and come from the third with every tile of keys.
    #[inline(always)]
    fn copy_queries(&mut self, k_dim: usize, rotated: bool) {
        let Scratch { q, queries, .. } = &mut *self.scratch;
        queries.clear();
        for q in q.iter() {
            // SAFETY: each is the address of `k_dim` elements of the step's queries.
            queries.extend_from_slice(unsafe { std::slice::from_raw_parts(*q as *const f32, k_dim) });
        }
        for (q, row) in q.iter_mut().zip(queries.chunks_exact_mut(k_dim)) {
            if rotated {
                rotate(row);
            }
            *q = row.as_ptr() as usize;
        }
    }

    #[inline(always)]
    fn lane_sum<S: Simd>(&self, s: S, r: usize) -> f32 {
        // SAFETY: 16 lanes a row.
        s.sum(unsafe { s.load(self.scratch.l[r * LANES..][..LANES].as_ptr()) })
    }

    /// One chunk of keys for all rows: leaves `m`, `l` and `o`. A row that sees none of them has `l = 0`.
    #[inline(always)]
    fn chunk<S: Simd>(&mut self, s: S, chunk: usize, rows: usize) {
        let (a, record, sequence) = (self.a, self.a.pool.record, self.sequence);
        self.scratch.m[..rows].fill(f32::NEG_INFINITY);
        self.scratch.l[..rows * LANES].fill(0.0);
        self.scratch.o[..rows * record.v_stride].fill(0.0);
        let position = |token: usize| sequence.first_position + token;
        let tokens = self.item.tokens;
        let end = sequence.horizon(tokens.1 - 1);
        for k0 in (chunk * CHUNK..end.min((chunk + 1) * CHUNK)).step_by(TILE) {
            // Tokens that see a key of the tile: those not before it, nor too far behind it.
            let first = match sequence.whole {
                false => tokens.0.max(k0.saturating_sub(sequence.first_position)),
                true => tokens.0,
            };
            let last = match a.window {
                None => tokens.1,
                Some(w) => tokens
                    .1
                    .min((k0 + TILE - 1).saturating_add(w as usize).saturating_sub(sequence.first_position)),
            };
            if first >= last {
                continue;
            }
            let seen = |token: usize| {
                let p = position(token);
                (lowest_key(p, a.window).max(k0) - k0, sequence.horizon(token).min(k0 + TILE) - k0)
            };
            let keys = (seen(first).0, seen(last - 1).1);
            let blocks = (keys.0 / BLOCK_TOKENS, keys.1.div_ceil(BLOCK_TOKENS));
            let source = self.source(k0 / BLOCK_TOKENS, blocks);
            let active = (first - tokens.0) * a.group..(last - tokens.0) * a.group;
            if active.len() >= PANEL_ROWS {
                let panel = Panel {
                    keys: self.scratch.keys.as_ptr(),
                    values: self.scratch.values.as_ptr(),
                    k_dim: record.k_dim,
                };
                // SAFETY: `source` has these blocks; the panel was reserved.
                unsafe {
                    let (k, v) = (self.scratch.keys.as_mut_ptr(), self.scratch.values.as_mut_ptr());
                    widen(s, source, &record, blocks, keys, k, v);
                }
                self.tile(s, panel, source.records, active, seen);
            } else {
                self.tile(s, source, source.records, active, seen);
            }
        }
    }

    /// The records of a tile. Blocks that no row sees are stood in for by one that is seen.
    #[inline(always)]
    fn source(&self, first: usize, blocks: (usize, usize)) -> Blocks<E> {
        let pool = self.a.pool;
        let at = |b: usize| {
            let block = self.sequence.table.get(first + b).map_or(usize::MAX, |&b| b as usize);
            pool.record_ptr(self.item.head, block).cast_const()
        };
        let mut records = [at(blocks.0); BLOCKS];
        for b in blocks.0 + 1..blocks.1 {
            records[b] = at(b);
        }
        let mut next = records;
        for (b, next) in next.iter_mut().enumerate() {
            if let Some(&block) = self.sequence.table.get(first + BLOCKS + b)
                && (block as usize) < pool.n_blocks()
            {
                *next = pool.record_ptr(self.item.head, block as usize).cast_const();
            }
        }
        let record = pool.record;
        Blocks { records, next, values: record.values, v_stride: record.v_stride, elem: self.elem }
    }

    /// One tile of keys for the rows `active`; `seen` are the keys of the tile that a token sees.
    #[inline(always)]
    fn tile<S: Simd, M: Source>(
        &mut self,
        s: S,
        source: M,
        records: [*const u8; BLOCKS],
        active: Range<usize>,
        seen: impl Fn(usize) -> (usize, usize),
    ) {
        let (a, record, scratch) = (self.a, self.a.pool.record, &mut *self.scratch);
        let token = |row: usize| self.item.tokens.0 + row / a.group;
        let int8 = record.kv_type == KvType::Int8;
        // SAFETY: rows of the scratch are below the reserved ones; `source` has all blocks that rows see.
        unsafe {
            let q = std::slice::from_raw_parts(scratch.q.as_ptr().cast::<*const f32>(), scratch.q.len());
            let p = scratch.scores.as_mut_ptr();
            // On the diagonal, the first rows see no more than half of the tile.
            let mut middle = active.start;
            while middle < active.end && seen(token(middle)).1 <= TILE / 2 {
                middle += a.group;
            }
            for (rows, half) in [(active.start..middle, true), (middle..active.end, false)] {
                let out = p.add(rows.start * TILE);
                scores(s, source, &q[rows], record.k_dim, half, out);
            }
            for row in active.clone() {
                let weights = Weights {
                    keys: seen(token(row)),
                    scales: int8.then(|| {
                        records.map(|r| (r.add(record.k_scales).cast(), r.add(record.v_scales).cast()))
                    }),
                    s: p.add(row * TILE),
                    m: &mut scratch.m[row],
                    l: scratch.l.as_mut_ptr().add(row * LANES),
                    o: scratch.o.as_mut_ptr().add(row * record.v_stride),
                    vectors: record.v_stride / LANES,
                };
                weights.update(s, a.scale, a.softcap);
            }
            let values = Values { p, o: scratch.o.as_mut_ptr(), v_stride: record.v_stride };
            // Rows that see the same keys share the values; where few do, several tokens' rows share those that all of them see.
            let mut row = active.start;
            while row < active.end {
                let keys = seen(token(row));
                let mut end = row + a.group;
                while end < active.end && seen(token(end)) == keys {
                    end += a.group;
                }
                let mut shared = keys;
                while end < active.end && end - row < SHARING {
                    let next = seen(token(end));
                    shared = (shared.0.max(next.0), shared.1.min(next.1));
                    end += a.group;
                }
                if shared.0 >= shared.1 {
                    (end, shared) = (row + a.group, keys);
                }
                for own in (row..end).step_by(a.group) {
                    values.add(s, source, own..own + a.group, (seen(token(own)).0, shared.0));
                }
                values.add(s, source, row..end, shared);
                for own in (row..end).step_by(a.group) {
                    values.add(s, source, own..own + a.group, (shared.1, seen(token(own)).1));
                }
                row = end;
            }
        }
    }

    /// Adds a chunk's result to the row's.
    ///
    /// # Safety
    /// `o` has `v_stride` elements.
    #[inline(always)]
    unsafe fn merge<S: Simd>(&mut self, s: S, r: usize, m: f32, l: f32, o: *const f32) {
        let v_stride = self.a.pool.record.v_stride;
        let scratch = &mut *self.scratch;
        if l == 0.0 {
            return;
        }
        // SAFETY: the caller's promise; the row is reserved.
        unsafe {
            let all = scratch.all_o.as_mut_ptr().add(r * v_stride);
            let (all_m, all_l) = (&mut scratch.all_m[r], &mut scratch.all_l[r]);
            if *all_l == 0.0 {
                std::ptr::copy_nonoverlapping(o, all, v_stride);
                (*all_m, *all_l) = (m, l);
                return;
            }
            let top = scalar::max(*all_m, m);
            let (x, y) = (scalar::exp(*all_m - top), scalar::exp(m - top));
            *all_l = *all_l * x + l * y;
            *all_m = top;
            let (x, y) = (s.splat(x), s.splat(y));
            for i in (0..v_stride).step_by(LANES) {
                s.store(s.fma(s.load(o.add(i)), y, s.mul(s.load(all.add(i)), x)), all.add(i));
            }
        }
    }

    /// Keeps a chunk's result for the last item of the group.
    #[inline(always)]
    fn keep<S: Simd>(&mut self, s: S, split: &Split, chunk: usize, rows: usize) {
        let v_stride = self.a.pool.record.v_stride;
        for r in 0..rows {
            let l = self.lane_sum(s, r);
            let at = split.at + ((chunk - split.chunks.0) * rows + r) * partial_row(v_stride);
            // SAFETY: inside the group's part of `partials`; this chunk is this item's alone.
            unsafe {
                let p = self.a.partials.add(at);
                std::ptr::copy_nonoverlapping(self.scratch.o[r * v_stride..].as_ptr(), p, v_stride);
                *p.add(v_stride) = self.scratch.m[r];
                *p.add(v_stride + 1) = l;
            }
        }
    }

    /// Divides and writes the rows.
    #[inline(always)]
    fn finish<S: Simd>(&mut self, s: S, rows: usize) {
        let (a, record) = (self.a, self.a.pool.record);
        for r in 0..rows {
            let head = self.item.head * a.group + r % a.group;
            let row = self.sequence.first_row + self.item.tokens.0 + r / a.group;
            let (mut x, mut l) = (1.0, self.scratch.all_l[r]);
            if let Some(sink) = a.sinks.and_then(|sinks| sinks.get(head)) {
                let top = scalar::max(self.scratch.all_m[r], *sink);
                x = scalar::exp(self.scratch.all_m[r] - top);
                l = l * x + scalar::exp(sink - top);
            }
            let factor = s.splat(x / l);
            let o = &self.scratch.all_o[r * record.v_stride..][..record.v_dim];
            let first = head * record.v_dim;
            // SAFETY: the item's own part of the output, or of the scratch.
            let out = unsafe {
                let out = match a.out {
                    Out::Rows(out) => out.add(row * a.n_heads * record.v_dim + first),
                    Out::Quantized(_) => self.scratch.head.as_mut_ptr(),
                };
                std::slice::from_raw_parts_mut(out, record.v_dim)
            };
            for (out, o) in out.chunks_mut(LANES).zip(o.chunks(LANES)) {
                s.store_part(s.mul(s.load_part(o, 0.0), factor), out);
            }
            if record.kv_type == KvType::Int8 {
                rotate(out);
            }
            if let Out::Quantized(activations) = a.out {
                for (g, x) in out.chunks_exact(GROUP).enumerate() {
                    // SAFETY: the row's groups of this head are the item's own.
                    unsafe { activations.quantize_group_shared(self.isa, row, first / GROUP + g, x) };
                }
            }
        }
    }
}

/// Weights of all rows, and the sums of values that they go to.
struct Values {
    p: *const f32,
    o: *mut f32,
    v_stride: usize,
}

impl Values {
    /// Adds the values of `keys`, if any, to the sums of `rows`.
    ///
    /// # Safety
    /// As `weigh`, for each of the rows. (No closure: those are compiled without the instruction set.)
    #[inline(always)]
    unsafe fn add<S: Simd, M: Source>(&self, s: S, source: M, rows: Range<usize>, keys: (usize, usize)) {
        if keys.0 >= keys.1 {
            return;
        }
        // SAFETY: passed through.
        unsafe {
            let (p, o) = (self.p.add(rows.start * TILE), self.o.add(rows.start * self.v_stride));
            weigh(s, source, p, rows.len(), keys, self.v_stride / LANES, o, self.v_stride);
        }
    }
}

/// Scores of one row and tile, on their way to weights.
struct Weights<'a> {
    /// Keys that the row sees.
    keys: (usize, usize),
    /// Scales of the blocks' keys and values (int8).
    scales: Option<[(*const f32, *const f32); BLOCKS]>,
    s: *mut f32,
    m: &'a mut f32,
    l: *mut f32,
    o: *mut f32,
    vectors: usize,
}

impl Weights<'_> {
    /// # Safety
    /// Pointers lead to 64 scores, 16 lanes of `l`, `vectors` vectors of `o`, and 16 scales a block.
    #[inline(always)]
    unsafe fn update<S: Simd>(self, s: S, scale: f32, softcap: Option<f32>) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut v = [s.splat(0.0); BLOCKS];
            for b in 0..BLOCKS {
                v[b] = s.load(self.s.add(b * LANES));
                if let Some(scales) = &self.scales {
                    v[b] = s.mul(v[b], s.load(scales[b].0));
                }
                v[b] = s.mul(v[b], s.splat(scale));
            }
            if let Some(cap) = softcap {
                let cap = s.splat(cap);
                for v in &mut v {
                    *v = s.mul(cap, math::tanh(s, s.div(*v, cap)));
                }
            }
            if self.keys != (0, TILE) {
                let hidden = s.splat(f32::NEG_INFINITY);
                let lane = s.from_array(LANE);
                for b in 0..BLOCKS {
                    let first = (b * LANES) as f32;
                    v[b] = s.select_lt(lane, s.splat(self.keys.0 as f32 - first), hidden, v[b]);
                    v[b] = s.select_lt(lane, s.splat(self.keys.1 as f32 - first), v[b], hidden);
                }
            }
            let top = s.max_lane(s.max(s.max(v[0], v[1]), s.max(v[2], v[3])));
            let mut l = s.load(self.l);
            if top > *self.m {
                if *self.m > f32::NEG_INFINITY {
                    let shrink = s.splat(scalar::exp(*self.m - top));
                    l = s.mul(l, shrink);
                    for i in 0..self.vectors {
                        let o = self.o.add(i * LANES);
                        s.store(s.mul(s.load(o), shrink), o);
                    }
                }
                *self.m = top;
            }
            let m = s.splat(*self.m);
            for b in 0..BLOCKS {
                let mut p = math::exp(s, s.sub(v[b], m));
                l = s.add(l, p);
                if let Some(scales) = &self.scales {
                    p = s.mul(p, s.load(scales[b].1));
                }
                s.store(p, self.s.add(b * LANES));
            }
            s.store(l, self.l);
        }
    }
}
