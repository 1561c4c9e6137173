//! The GEMM's highest rung: matrix units multiply the codes, and what a sub-block amounts to is scaled where the units leave it.
//!
//! A subgroup has a rectangle of 16 × 16 fragments of outputs. A group of 32 is two products a fragment: both into one accumulator where it is
//! one sub-block, one each into their own where it is two. Either way the accumulator is a sub-block's dot, exact: of bytes in i32; of halves in
//! f32, because codes are whole numbers of at most eight bits and 32 of their products stay below 2²⁰, which leaves a unit that keeps fewer
//! than 24 bits while it sums nothing to lose. The canonical chain follows element by element in registers, on fragments that hold
//! scales and mins (the same down a column) and the activations' scales and sums (the same along a row). So no lane needs to know which
//! elements are its own, the dots never see memory, and the result has the canonical order's bits.

use std::panic::Location;

use super::super::layout::Layout;
use super::super::weights::WORDS;
use super::gemm::{Factors, Gemm, Place, RowMap};
use super::{Activations, code_sums};
use crate::kernel::ir::TILE;
use crate::kernel::{Array, Builder, Elem, Frag, KernelError, Side, Tile, Val};

/// Side of a fragment.
const SIDE: u32 = TILE as u32;
/// Fragment products along a group.
const HALVES: u32 = 2;
/// Subgroups that bring a fragment of results to memory at a time.
const LEAVING: u32 = 8;

/// How a workgroup's fragments are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Split {
    /// Subgroups along the activations' rows, and along the weights'.
    subgroups: [u32; 2],
    /// Fragments of a subgroup, likewise.
    fragments: [u32; 2],
}

impl Gemm {
    /// The rectangles that are nearest to squares, as those load the fewest factors; among equals the flattest, as rows of activations are held
    /// while the weights' pass by.
    fn split(&self, subgroup: u32) -> Option<Split> {
        let (n_subgroups, height, width) =
            (self.tile.tx * self.tile.ty / subgroup.max(1), self.tile.height(), self.tile.width());
        if subgroup < SIDE || !height.is_multiple_of(SIDE) || !width.is_multiple_of(SIDE) {
            return None;
        }
        let all = [height / SIDE, width / SIDE];
        let splits =
            (1..=n_subgroups).filter(|m| n_subgroups.is_multiple_of(*m)).map(|m| [m, n_subgroups / m]);
        let fitting = splits.filter(|[m, n]| all[0].is_multiple_of(*m) && all[1].is_multiple_of(*n));
        let of = |[m, n]: [u32; 2]| Split { subgroups: [m, n], fragments: [all[0] / m, all[1] / n] };
        fitting.map(of).min_by_key(|s| (s.fragments[0] + s.fragments[1], s.fragments[0]))
    }

    /// For the kernel's doc; or why its tile cannot be.
    pub(super) fn describe(&self, factors: Factors, subgroup: u32) -> Result<String, KernelError> {
        let (height, width) = (self.tile.height(), self.tile.width());
        let Some(Split { fragments: [m, n], .. }) = self.split(subgroup) else {
            let reason = format!(
                "a tile of {width} x {height} is not whole fragments of {SIDE} x {SIDE} for each of its subgroups of {subgroup}"
            );
            return Err(KernelError { kernel: "qgemm_units".to_owned(), at: Location::caller(), reason });
        };
        let what = if factors == Factors::Bytes { "bytes" } else { "halves" };
        Ok(format!(
            "Tile {width} x {height} of outputs, {n} x {m} fragments of {what} a subgroup; a step stages {} groups of both operands. \
             Dots of sub-blocks are exact, and scaled in the registers that hold them.",
            self.step()
        ))
    }

    pub(super) fn units<'k>(&self, k: &'k Builder, factors: Factors, place: &Place<'k>, rows: &RowMap<'k>) {
        let Some(split) = self.split(k.subgroup()) else { return };
        let stage = Stage::declare(k, self, factors);
        let [along_m, along_n] = split.fragments;
        let (sub_m, sub_n) = (k.subgroup_id() / split.subgroups[1], k.subgroup_id() % split.subgroups[1]);
        let m_of = |i: u32| (sub_m * along_m + i) * SIDE;
        let n_of = |j: u32| (sub_n * along_n + j) * SIDE;
        let held = Held::declare(k, &self.layout, factors, split);
        held.sums.iter().flatten().for_each(|sum| sum.zero());
        k.for_step(0, place.n_groups, self.step(), |g0| {
            k.barrier();
            stage.fill(place, rows, g0);
            k.barrier();
            for s in 0..self.step() {
                let product = || stage.multiply(s, &held, &m_of, &n_of);
                if s == 0 { product() } else { k.when((g0 + s).lt(place.n_groups), product) }
            }
        });
        // Rows of results need not be whole fragments, nor on 16 bytes: they go through workgroup memory, some subgroups at a time.
        let turns = (k.workgroup() / k.subgroup()).div_ceil(LEAVING);
        let mine = k.subgroup_id() % LEAVING * (SIDE * SIDE);
        let leave = |i: u32, j: u32| {
            k.for_step(k.lane(), SIDE * SIDE, k.subgroup(), |e| {
                let (row, col) = (rows.m0 + m_of(i) + e / SIDE, place.n0 + n_of(j) + e % SIDE);
                k.when(row.lt(rows.end) & col.lt(place.n_out), || {
                    place.y.set(rows.y_row(row) * place.n_out + col, stage.out.at(mine + e));
                });
            });
        };
        for (i, sums) in (0..).zip(&held.sums) {
            for (j, sum) in (0..).zip(sums) {
                for turn in 0..turns {
                    let my_turn = (k.subgroup_id() / LEAVING).eq(turn);
                    k.when(my_turn, || sum.store(stage.out, mine, SIDE));
                    k.barrier();
                    k.when(my_turn, || leave(i, j));
                    k.barrier();
                }
            }
        }
    }
}

/// A subgroup's fragments.
struct Held<'k> {
    /// Of the results: `[m][n]`.
    sums: Vec<Vec<Tile<'k>>>,
    /// Activations: `[m][half of the group]`.
    x: Vec<Vec<Tile<'k>>>,
    /// Weights, of one column of fragments.
    w: Vec<Tile<'k>>,
    /// Scales of the activations' groups, `[m]`.
    x_d: Vec<Tile<'k>>,
    /// Sums of the activations' codes, `[m][sub-block]`; empty for formats without mins.
    x_sums: Vec<Vec<Tile<'k>>>,
    /// By sub-block.
    scales: Vec<Tile<'k>>,
    /// By sub-block, negative; or empty.
    mins: Vec<Tile<'k>>,
    /// A sub-block's dot as the units leave it, and as f32 (halves: the same).
    dot: Tile<'k>,
    float: Tile<'k>,
    product: Tile<'k>,
}

impl<'k> Held<'k> {
    fn declare(k: &'k Builder, layout: &Layout, factors: Factors, split: Split) -> Self {
        let [m, n] = split.fragments;
        let subs = layout.subs() as u32;
        let mins = if layout.view.asymmetric { subs } else { 0 };
        let elem = if factors == Factors::Bytes { Elem::U8 } else { Elem::F16 };
        let many =
            |count: u32, role: Frag, elem: Elem| (0..count).map(|_| k.tile(role, elem)).collect::<Vec<_>>();
        let floats = |count: u32| many(count, Frag::Acc, Elem::F32);
        let float = k.tile(Frag::Acc, Elem::F32);
        Self {
            sums: (0..m).map(|_| floats(n)).collect(),
            x: (0..m).map(|_| many(HALVES, Frag::A, elem)).collect(),
            w: many(HALVES, Frag::B, elem),
            x_d: floats(m),
            x_sums: (0..m).map(|_| floats(mins)).collect(),
            scales: floats(subs),
            mins: floats(mins),
            dot: if factors == Factors::Bytes { k.tile(Frag::Acc, Elem::I32) } else { float },
            float,
            product: k.tile(Frag::Acc, Elem::F32),
        }
    }
}

/// Both operands of a step in workgroup memory: codes `[group][half of it][row]`, 16 codes a row, packed in words: the rows of a fragment follow
/// each other without a gap, in all banks.
struct Stage<'k> {
    k: &'k Builder,
    layout: Layout,
    factors: Factors,
    step: u32,
    width: u32,
    height: u32,
    w: Array<'k, u32>,
    x: Array<'k, u32>,
    scales: Array<'k, f32>,
    mins: Option<Array<'k, f32>>,
    x_d: Array<'k, f32>,
    x_sums: Option<Array<'k, f32>>,
    /// A fragment a subgroup, on its way out.
    out: Array<'k, f32>,
}

impl<'k> Stage<'k> {
    fn declare(k: &'k Builder, gemm: &Gemm, factors: Factors) -> Self {
        let (layout, step) = (gemm.layout, gemm.step());
        let (width, height) = (gemm.tile.width(), gemm.tile.height());
        let subs = layout.subs() as u32;
        let words = step * HALVES * Self::row_words(factors);
        let asymmetric = layout.view.asymmetric;
        Self {
            k,
            layout,
            factors,
            step,
            width,
            height,
            w: k.shared("w_tile", words * width),
            x: k.shared("x_tile", words * height),
            scales: k.shared("w_scales_tile", step * subs * width),
            mins: asymmetric.then(|| k.shared("w_mins_tile", step * subs * width)),
            x_d: k.shared("x_d_tile", step * height),
            x_sums: asymmetric.then(|| k.shared("x_sums_tile", step * subs * height)),
            out: k.shared("out_tile", (k.workgroup() / k.subgroup()).min(LEAVING) * SIDE * SIDE),
        }
    }

    /// Words of 16 codes.
    const fn row_words(factors: Factors) -> u32 {
        match factors {
            Factors::Bytes => SIDE / 4,
            Factors::Halves => SIDE / 2,
        }
    }

    /// Brings the groups from `g0` on. Rows beyond the last repeat it.
    fn fill(&self, place: &Place<'k>, rows: &RowMap<'k>, g0: Val<'k, u32>) {
        let (k, subs, step) = (self.k, self.layout.subs() as u32, self.step);
        k.each(step * self.width, |task| {
            let (s, r) = (task % step, task / step);
            let g = g0 + s;
            k.when(g.lt(place.n_groups), || {
                let row = rows.matrix + (place.n0 + r).min(place.n_out - 1);
                let (codes, sub_blocks) = (place.weights.codes(row, g), place.weights.sub_blocks(row, g));
                self.put(self.w, self.width, s, r, &codes.exact());
                for (j, sub) in (0..).zip(&sub_blocks) {
                    let at = (s * subs + j) * self.width + r;
                    self.scales.set(at, sub.scale);
                    if let (Some(mins), Some(min)) = (self.mins, sub.min) {
                        mins.set(at, -min);
                    }
                }
            });
        });
        k.each(step * self.height, |task| {
            let (s, r) = (task % step, task / step);
            let g = g0 + s;
            k.when(g.lt(place.n_groups), || {
                let Activations { d, .. } = place.x;
                let g = rows.x_row((rows.m0 + r).min(rows.end - 1)) * place.n_groups + g;
                let words = place.x.words(g);
                self.put(self.x, self.height, s, r, &words);
                self.x_d.set(s * self.height + r, d.at(g));
                if let Some(x_sums) = self.x_sums {
                    for (j, sum) in (0..).zip(code_sums(k, &self.layout, &words)) {
                        x_sums.set((s * subs + j) * self.height + r, sum.f32());
                    }
                }
            });
        });
    }

    /// A group's codes in the units' element type.
    fn put(
        &self,
        to: Array<'k, u32>,
        rows: u32,
        s: Val<'k, u32>,
        r: Val<'k, u32>,
        words: &[Val<'k, u32>; WORDS],
    ) {
        let words: Vec<_> = match self.factors {
            Factors::Bytes => words.to_vec(),
            Factors::Halves => {
                let half = |word: Val<'k, u32>, e: u32| {
                    let code = (word << (24 - 8 * e)).i32() >> 24;
                    code.f32().f16().bits()
                };
                let pair = |word, e| half(word, e) | (half(word, e + 1) << 16);
                words.iter().flat_map(|&word| [pair(word, 0), pair(word, 2)]).collect()
            }
        };
        let n = Self::row_words(self.factors);
        for (h, row) in (0..).zip(words.chunks(n as usize)) {
            let first = ((s * HALVES + h) * rows + r) * n;
            for (i, &word) in (0..).zip(row) {
                to.set(first + i, word);
            }
        }
    }

    /// Adds group `s` of the step to the subgroup's sums.
    fn multiply(
        &self,
        s: u32,
        held: &Held<'k>,
        m_of: &dyn Fn(u32) -> Val<'k, u32>,
        n_of: &dyn Fn(u32) -> Val<'k, u32>,
    ) {
        let (words, subs) = (Self::row_words(self.factors), self.layout.subs() as u32);
        let codes = |rows: u32, h: u32, r: Val<'k, u32>| (r + (s * HALVES + h) * rows) * words;
        for (i, x) in (0..).zip(&held.x) {
            for (h, x) in (0..).zip(x) {
                x.load(self.x, codes(self.height, h, m_of(i)), words);
            }
        }
        for (i, (x_d, x_sums)) in (0..).zip(held.x_d.iter().zip(&held.x_sums)) {
            x_d.spread(Side::Rows, self.x_d, m_of(i) + s * self.height);
            for (sub, tile) in (0..).zip(x_sums) {
                if let Some(sums) = self.x_sums {
                    tile.spread(Side::Rows, sums, m_of(i) + (s * subs + sub) * self.height);
                }
            }
        }
        let columns = held.sums.first().map_or(0, Vec::len);
        for j in 0..columns {
            let n = n_of(j as u32);
            for (h, w) in (0..).zip(&held.w) {
                w.load(self.w, codes(self.width, h, n), words);
            }
            let at = |sub: u32| n + (s * subs + sub) * self.width;
            for (sub, scale) in (0..).zip(&held.scales) {
                scale.spread(Side::Columns, self.scales, at(sub));
            }
            for (sub, min) in (0..).zip(&held.mins) {
                if let Some(mins) = self.mins {
                    min.spread(Side::Columns, mins, at(sub));
                }
            }
            for (i, row) in held.sums.iter().enumerate() {
                self.group_product(held, i);
                if let (Some(sum), Some(&d)) = (row.get(j), held.x_d.get(i)) {
                    sum.fma(d, held.product);
                }
            }
        }
    }

    /// `p` of the canonical order for row `i` of fragments and the weights that are held.
    fn group_product(&self, held: &Held<'k>, i: usize) {
        let (Some(x), Some(x_sums)) = (held.x.get(i), held.x_sums.get(i)) else { return };
        let per = HALVES as usize / self.layout.subs();
        let pairs: Vec<_> = x.iter().zip(&held.w).collect();
        for (sub, (scale, factors)) in held.scales.iter().zip(pairs.chunks(per)).enumerate() {
            held.dot.zero();
            for &(&x, &w) in factors {
                held.dot.mul_add(x, w);
            }
            if self.factors == Factors::Bytes {
                held.float.float(held.dot);
            }
            if sub == 0 {
                held.product.scale(*scale, held.float);
            } else {
                held.product.fma(*scale, held.float);
            }
        }
        for (&min, &sum) in held.mins.iter().zip(x_sums) {
            held.product.fma(min, sum);
        }
    }
}
