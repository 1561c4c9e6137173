//! Register tiles: query rows by keys, and weights by values.
//!
//! Both are `C[R][B vectors] += A[R][k] · M[k][B vectors]` with `k` ascending and one accumulator an element: a vector of `M` is
//! loaded (and widened) once for `R` rows, an element of `A` is broadcast from memory. Wide registers hold 6 × 4 vectors, narrow
//! ones 6 × 1, vector by vector over all rows so that a vector's slice of `M` stays in the first-level cache; what is left of the
//! rows goes 2 × 2.

use super::kv::Record;
use super::{BLOCKS, TILE};
use crate::simd::{LANES, Simd};

/// How far ahead keys are brought from the second-level cache to the first, in bytes; values, in tokens. The next tile is a tile
/// ahead in the second level: it would not fit the first beside the present one.
const NEAR: usize = 512;
const NEAR_TOKENS: usize = 4;

/// Rows of a register tile of narrow registers: 12 accumulators, the weights' two and a broadcast.
const NARROW_ROWS: usize = 6;

/// Where a tile's keys and values come from.
pub(super) trait Source: Copy {
    /// Element `d` of keys `16b..16b + 16`.
    unsafe fn key<S: Simd>(self, s: S, d: usize, b: usize) -> S::F;
    /// Elements `16i..16i + 16` of the value of key `t`.
    unsafe fn value<S: Simd>(self, s: S, t: usize, i: usize) -> S::F;
    /// Asks for the same data of the next tile, and for what follows in this one.
    unsafe fn prefetch_key<S: Simd>(self, s: S, d: usize);
    /// Likewise.
    unsafe fn prefetch_value<S: Simd>(self, s: S, t: usize);
}

/// A KV element type.
pub(super) trait Elem: Copy {
    const BYTES: usize;
    /// 16 elements from element `at` on.
    unsafe fn load<S: Simd>(s: S, p: *const u8, at: usize) -> S::F;
}

#[derive(Clone, Copy)]
pub(super) struct Half;
#[derive(Clone, Copy)]
pub(super) struct Byte;
#[derive(Clone, Copy)]
pub(super) struct Float;

impl Elem for Half {
    const BYTES: usize = 2;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8, at: usize) -> S::F {
        // SAFETY: the caller's promise (and so below).
        unsafe { s.load_f16(p.cast::<u16>().add(at)) }
    }
}
impl Elem for Byte {
    const BYTES: usize = 1;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8, at: usize) -> S::F {
        // SAFETY: see above.
        unsafe { s.load_i8(p.cast::<i8>().add(at)) }
    }
}
impl Elem for Float {
    const BYTES: usize = 4;
    #[inline(always)]
    unsafe fn load<S: Simd>(s: S, p: *const u8, at: usize) -> S::F {
        // SAFETY: see above.
        unsafe { s.load(p.cast::<f32>().add(at)) }
    }
}

/// The records of a tile, read in place.
#[derive(Clone, Copy)]
pub(super) struct Blocks<E> {
    pub(super) records: [*const u8; BLOCKS],
    pub(super) next: [*const u8; BLOCKS],
    pub(super) values: usize,
    pub(super) v_stride: usize,
    pub(super) elem: std::marker::PhantomData<E>,
}

impl<E: Elem> Source for Blocks<E> {
    #[inline(always)]
    unsafe fn key<S: Simd>(self, s: S, d: usize, b: usize) -> S::F {
        // SAFETY: the caller's promise: `d` is below the head dimension, the record exists.
        unsafe { E::load(s, self.records[b], d * LANES) }
    }
    #[inline(always)]
    unsafe fn value<S: Simd>(self, s: S, t: usize, i: usize) -> S::F {
        // SAFETY: as above.
        unsafe {
            E::load(s, self.records[t / LANES].add(self.values), (t % LANES) * self.v_stride + i * LANES)
        }
    }
    #[inline(always)]
    unsafe fn prefetch_key<S: Simd>(self, s: S, d: usize) {
        let at = d * LANES * E::BYTES;
        if at.is_multiple_of(64) {
            for b in 0..BLOCKS {
                s.prefetch_far(self.next[b].wrapping_add(at));
                s.prefetch(self.records[b].wrapping_add(at + NEAR));
            }
        }
    }
    #[inline(always)]
    unsafe fn prefetch_value<S: Simd>(self, s: S, t: usize) {
        let (row, at) = (self.v_stride * E::BYTES, (t % LANES) * self.v_stride * E::BYTES);
        let next = self.next[t / LANES].wrapping_add(self.values + at);
        let here = self.records[t / LANES].wrapping_add(self.values + at + NEAR_TOKENS * row);
        for line in (0..row).step_by(64) {
            s.prefetch_far(next.wrapping_add(line));
            s.prefetch(here.wrapping_add(line));
        }
    }
}

/// A tile that was widened to f32, a slice a vector: keys `[4][k_dim][16]`, values `[v_stride / 16][64][16]`.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    pub(super) keys: *const f32,
    pub(super) values: *const f32,
    pub(super) k_dim: usize,
}

impl Panel {
    /// First element of dimension `d` of block `b`'s keys.
    #[inline(always)]
    fn key_at(k_dim: usize, d: usize, b: usize) -> usize {
        (b * k_dim + d) * LANES
    }
    /// First element of vector `i` of key `t`'s value.
    #[inline(always)]
    fn value_at(t: usize, i: usize) -> usize {
        (i * TILE + t) * LANES
    }
}

impl Source for Panel {
    #[inline(always)]
    unsafe fn key<S: Simd>(self, s: S, d: usize, b: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load(self.keys.add(Panel::key_at(self.k_dim, d, b))) }
    }
    #[inline(always)]
    unsafe fn value<S: Simd>(self, s: S, t: usize, i: usize) -> S::F {
        // SAFETY: the caller's promise.
        unsafe { s.load(self.values.add(Panel::value_at(t, i))) }
    }
    #[inline(always)]
    unsafe fn prefetch_key<S: Simd>(self, _: S, _: usize) {}
    #[inline(always)]
    unsafe fn prefetch_value<S: Simd>(self, _: S, _: usize) {}
}

/// Widens the keys of the tile's `blocks` and the values of its `tokens`.
///
/// # Safety
/// The records of `blocks` exist, `keys` and `values` have room for the whole panel.
#[inline(always)]
pub(super) unsafe fn widen<S: Simd, E: Elem>(
    s: S,
    source: Blocks<E>,
    record: &Record,
    blocks: (usize, usize),
    tokens: (usize, usize),
    keys: *mut f32,
    values: *mut f32,
) {
    // SAFETY: the caller's promise.
    unsafe {
        for b in blocks.0..blocks.1 {
            for d in 0..record.k_dim {
                s.store(source.key(s, d, b), keys.add(Panel::key_at(record.k_dim, d, b)));
            }
        }
        for t in tokens.0..tokens.1 {
            for i in 0..record.v_stride / LANES {
                s.store(source.value(s, t, i), values.add(Panel::value_at(t, i)));
            }
        }
    }
}

/// Scores of `R` rows by `B` vectors of keys.
#[inline(always)]
unsafe fn score_tile<S: Simd, M: Source, const R: usize, const B: usize>(
    s: S,
    source: M,
    q: [*const f32; R],
    k_dim: usize,
    b0: usize,
    out: *mut f32,
    fetch: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[s.splat(0.0); B]; R];
        for d in 0..k_dim {
            let mut keys = [s.splat(0.0); B];
            for b in 0..B {
                keys[b] = source.key(s, d, b0 + b);
            }
            if fetch {
                source.prefetch_key(s, d);
            }
            for r in 0..R {
                let x = s.splat(*q[r].add(d));
                for b in 0..B {
                    acc[r][b] = s.fma(x, keys[b], acc[r][b]);
                }
            }
        }
        for r in 0..R {
            for b in 0..B {
                s.store(acc[r][b], out.add(r * TILE + (b0 + b) * LANES));
            }
        }
    }
}

/// Scores of rows by the 64 keys of a tile, or if `half` by its first 32: `out[r][t]`, rows 64 apart.
///
/// # Safety
/// `q` points to rows of `k_dim` elements, `out` to `q.len()` rows of 64; all four records of the source can be read.
#[inline(always)]
pub(super) unsafe fn scores<S: Simd, M: Source>(
    s: S,
    source: M,
    q: &[*const f32],
    k_dim: usize,
    half: bool,
    out: *mut f32,
) {
    let mut at = if S::WIDE { 0 } else { q.len() / NARROW_ROWS * NARROW_ROWS };
    for b in 0..if half { BLOCKS / 2 } else { BLOCKS } {
        for row in (0..at).step_by(NARROW_ROWS) {
            // SAFETY: whole tiles of rows.
            unsafe {
                let q = *q.as_ptr().add(row).cast::<[*const f32; NARROW_ROWS]>();
                let fetch = row == 0 && b == 0;
                score_tile::<S, M, NARROW_ROWS, 1>(s, source, q, k_dim, b, out.add(row * TILE), fetch);
            }
        }
    }
    while at < q.len() {
        let left = q.len() - at;
        // SAFETY: the caller's promise; each arm takes as many rows as it names.
        unsafe {
            let (q, out) = (q.as_ptr().add(at), out.add(at * TILE));
            let fetch = at == 0;
            macro_rules! rows {
                ($r:literal) => {{
                    let q = *q.cast::<[*const f32; $r]>();
                    if half {
                        score_tile::<S, M, $r, 2>(s, source, q, k_dim, 0, out, fetch);
                    } else if S::WIDE {
                        score_tile::<S, M, $r, 4>(s, source, q, k_dim, 0, out, fetch);
                    } else {
                        score_tile::<S, M, $r, 2>(s, source, q, k_dim, 0, out, fetch);
                        score_tile::<S, M, $r, 2>(s, source, q, k_dim, 2, out, false);
                    }
                    $r
                }};
            }
            at += if S::WIDE && left >= 6 {
                rows!(6)
            } else if S::WIDE && left >= 4 {
                rows!(4)
            } else if left >= 2 {
                rows!(2)
            } else {
                rows!(1)
            };
        }
    }
}

/// `o[r][16·i0 ..] += Σ_t p[r][t] · v[t]` for `R` rows and `B` vectors of the value.
#[inline(always)]
unsafe fn weigh_tile<S: Simd, M: Source, const R: usize, const B: usize>(
    s: S,
    source: M,
    p: *const f32,
    tokens: (usize, usize),
    i0: usize,
    o: *mut f32,
    o_stride: usize,
    fetch: bool,
) {
    // SAFETY: the caller's promise.
    unsafe {
        let mut acc = [[s.splat(0.0); B]; R];
        for r in 0..R {
            for b in 0..B {
                acc[r][b] = s.load(o.add(r * o_stride + (i0 + b) * LANES));
            }
        }
        for t in tokens.0..tokens.1 {
            let mut values = [s.splat(0.0); B];
            for b in 0..B {
                values[b] = source.value(s, t, i0 + b);
            }
            if fetch {
                source.prefetch_value(s, t);
            }
            for r in 0..R {
                let x = s.splat(*p.add(r * TILE + t));
                for b in 0..B {
                    acc[r][b] = s.fma(x, values[b], acc[r][b]);
                }
            }
        }
        for r in 0..R {
            for b in 0..B {
                s.store(acc[r][b], o.add(r * o_stride + (i0 + b) * LANES));
            }
        }
    }
}

/// Adds the weighted values of `tokens` to `n` rows of `o`; rows of `p` are 64 apart.
///
/// # Safety
/// `p` and `o` have `n` rows, those of `o` `vectors` vectors and `o_stride` elements apart; the records of `tokens` can be read.
#[inline(always)]
pub(super) unsafe fn weigh<S: Simd, M: Source>(
    s: S,
    source: M,
    p: *const f32,
    n: usize,
    tokens: (usize, usize),
    vectors: usize,
    o: *mut f32,
    o_stride: usize,
) {
    let mut at = if S::WIDE { 0 } else { n / NARROW_ROWS * NARROW_ROWS };
    for i in 0..if at == 0 { 0 } else { vectors } {
        for row in (0..at).step_by(NARROW_ROWS) {
            // SAFETY: whole tiles of rows.
            unsafe {
                let (p, o) = (p.add(row * TILE), o.add(row * o_stride));
                let fetch = row == 0 && i == 0;
                weigh_tile::<S, M, NARROW_ROWS, 1>(s, source, p, tokens, i, o, o_stride, fetch);
            }
        }
    }
    while at < n {
        let left = n - at;
        // SAFETY: the caller's promise; each arm takes as many rows and vectors as it names.
        unsafe {
            let (p, o) = (p.add(at * TILE), o.add(at * o_stride));
            macro_rules! rows {
                ($r:literal) => {{
                    let mut i = 0;
                    while i < vectors {
                        let fetch = at == 0 && i == 0;
                        if S::WIDE && vectors - i >= 4 {
                            weigh_tile::<S, M, $r, 4>(s, source, p, tokens, i, o, o_stride, fetch);
                            i += 4;
                        } else if vectors - i >= 2 {
                            weigh_tile::<S, M, $r, 2>(s, source, p, tokens, i, o, o_stride, fetch);
                            i += 2;
                        } else {
                            weigh_tile::<S, M, $r, 1>(s, source, p, tokens, i, o, o_stride, fetch);
                            i += 1;
                        }
                    }
                    $r
                }};
            }
            at += if S::WIDE && left >= 6 {
                rows!(6)
            } else if S::WIDE && left >= 4 {
                rows!(4)
            } else if left >= 2 {
                rows!(2)
            } else {
                rows!(1)
            };
        }
    }
}

/// Evaluates `$body` with `$e` standing for the element type of `$kv`.
macro_rules! with_elem {
    ($kv:expr, $e:ident => $body:expr) => {
        match $kv {
            hanzo_fusion::step::KvType::F16 => {
                type $e = $crate::attention::tile::Half;
                $body
            }
            hanzo_fusion::step::KvType::Int8 => {
                type $e = $crate::attention::tile::Byte;
                $body
            }
            hanzo_fusion::step::KvType::F32 => {
                type $e = $crate::attention::tile::Float;
                $body
            }
        }
    };
}
pub(super) use with_elem;
