//! Many rows: tiles of weights and of activations in workgroup memory, a square of outputs an invocation.
//!
//! Rungs of one ladder, which give the same bits: matrix units ([`super::units`]); packed integer dots; the same codes as f32, whose sums are
//! exact because they stay below 2²⁴; and one output an invocation with no tile at all. The lower ones are what the upper are compared with, and
//! what devices run whose integer dots or workgroup memory disappoint ([`super::ladder`] says which device takes which).

use super::super::layout::Layout;
use super::super::weights::{GroupCodes, SubBlock, WORDS, Weights};
use super::{Activations, Rows, code_sums, dots, group_product, needs_sums};
use crate::kernel::{Array, Builder, IntoVal, Kernel, KernelError, Reg, Val};

/// Which rung of the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rung {
    /// Matrix units on tiles.
    Units(Factors),
    /// Packed integer dots on tiles.
    Dot4,
    /// f32 products on tiles.
    F32,
    /// One output an invocation, operands straight from memory.
    Column,
}

/// What matrix units multiply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Factors {
    /// Signed bytes, summed in i32.
    Bytes,
    /// Halves, summed in f32: codes are whole numbers, and so are their sums.
    Halves,
}

/// How outputs are shared out: `tx · ty` invocations of `n × m` outputs each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Invocations along the weights' rows.
    pub tx: u32,
    /// Invocations along the activations' rows.
    pub ty: u32,
    /// Rows of weights an invocation.
    pub n: u32,
    /// Rows of activations an invocation.
    pub m: u32,
}

impl Tile {
    /// For prompts: 128 × 128 outputs, 64 sums an invocation.
    pub const LARGE: Self = Self { tx: 16, ty: 16, n: 8, m: 8 };

    /// The tile for experts that get `rows` rows each on average: the least height that takes them at once, 16 to 64.
    pub fn for_fill(rows: usize) -> Self {
        let m = match rows {
            0..=16 => 1,
            17..=32 => 2,
            _ => 4,
        };
        Self { tx: 16, ty: 16, n: 4, m }
    }

    /// The heights of [`Tile::for_fill`] with as many rows of weights as make whole fragments for each subgroup of [`Rung::Units`].
    pub fn for_fill_of_units(rows: usize, subgroup: u32) -> Self {
        let ty = if subgroup < 32 { 8 } else { 16 };
        Self { tx: 16, ty, n: 8, m: Self::for_fill(rows).height() / ty }
    }

    /// Rows of weights a workgroup.
    pub const fn width(self) -> u32 {
        self.tx * self.n
    }

    /// Rows of activations a workgroup.
    pub const fn height(self) -> u32 {
        self.ty * self.m
    }
}

/// A GEMM kernel.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// Layout of the matrix.
    pub layout: Layout,
    /// One matrix, or a stack of them with the rows grouped by expert ([`super::super::moe::group_slots`]).
    pub rows: Rows,
    /// How.
    pub rung: Rung,
    /// [`Rung::Column`] takes only its number of invocations from it.
    pub tile: Tile,
}

/// Banks of workgroup memory.
const BANKS: u32 = 32;

impl Gemm {
    /// The grid: `[n_out, n_rows]` over what a workgroup takes. With experts, `y` counts the tiles of [`super::super::moe::max_tiles`].
    pub fn outputs_per_workgroup(&self) -> [u32; 2] {
        match self.rung {
            Rung::Column => [self.tile.tx * self.tile.ty, self.tile.height()],
            _ => [self.tile.width(), self.tile.height()],
        }
    }

    /// The kernel. Buffers: the planes of `w`, `x_codes`, `x_d`, with experts `order`, `tile_expert`, `tile_first` and `tile_end`, then `y`.
    /// Parameters: `n_groups`, `n_out`, `n_rows`, with experts `per_token` and `n_experts`.
    ///
    /// # Errors
    /// Tiles that need more workgroup memory than targets have, or whose invocations are not whole subgroups.
    pub fn kernel(&self, subgroup: u32) -> Result<Kernel, KernelError> {
        let format = self.layout.format.name;
        let Tile { tx, ty, n, m } = self.tile;
        let [width, height] = self.outputs_per_workgroup();
        let how = match self.rung {
            Rung::Units(factors) => self.describe(factors, subgroup)?,
            Rung::Dot4 => format!(
                "Tile {width} x {height} of outputs, {n} x {m} an invocation; a step stages {} groups of both operands.",
                self.step()
            ),
            Rung::F32 => {
                format!("Tile {width} x {height} of outputs, {n} x {m} an invocation, operands as f32.")
            }
            Rung::Column => format!("One output an invocation, row after row of {height}."),
        };
        let doc = format!(
            "{format} weights. {how} Order: the canonical one, a chain of fma over ascending groups. Bound: integer products, of long rows of tiles."
        );
        let rung = match self.rung {
            Rung::Units(Factors::Bytes) => "_units_i8",
            Rung::Units(Factors::Halves) => "_units_f16",
            Rung::Dot4 => "",
            Rung::F32 => "_f32",
            Rung::Column => "_column",
        };
        let twin = if self.rows == Rows::Experts { "_experts" } else { "" };
        let name = format!("qgemm{rung}{twin}_{}", format.to_lowercase());
        let k = Builder::new(&name, &doc, tx * ty, subgroup);
        self.body(&k);
        k.finish()
    }

    /// Groups of a step: two make up the 32-byte sectors that four-bit codes are read in. Wider operands leave no room for a second.
    pub(super) fn step(&self) -> u32 {
        if matches!(self.rung, Rung::Dot4 | Rung::Units(Factors::Bytes)) { 2 } else { 1 }
    }

    fn body(&self, k: &Builder) {
        let n_groups = k.param::<u32>("n_groups");
        let weights = Weights::declare(k, "w", self.layout, n_groups);
        let x = Activations::declare(k);
        let grouped = (self.rows == Rows::Experts)
            .then(|| ["order", "tile_expert", "tile_first", "tile_end"].map(|name| k.input::<u32>(name)));
        let y = k.output::<f32>("y");
        let (n_out, n_rows) = (k.param::<u32>("n_out"), k.param::<u32>("n_rows"));
        let [width, height] = self.outputs_per_workgroup();
        let n0 = k.workgroup_id(0) * width;
        let place = Place { n_groups, n_out, n0, weights, x, y };
        match grouped {
            None => {
                let m0 = k.workgroup_id(1) * height;
                let rows = RowMap { m0, end: n_rows, matrix: 0.val(k), slots: None };
                self.tile(k, &place, rows);
            }
            Some([order, expert, first, end]) => {
                let (per_token, n_experts) = (k.param::<u32>("per_token"), k.param::<u32>("n_experts"));
                let tile = k.workgroup_id(1);
                // Tiles that no expert needed are marked by one that there is not.
                let expert = expert.at(tile);
                k.when(expert.lt(n_experts), || {
                    let slots = Some(Slots { order, per_token, n_rows });
                    let rows =
                        RowMap { m0: first.at(tile), end: end.at(tile), matrix: expert * n_out, slots };
                    self.tile(k, &place, rows);
                });
            }
        }
    }

    fn tile<'k>(&self, k: &'k Builder, place: &Place<'k>, rows: RowMap<'k>) {
        match self.rung {
            Rung::Column => return self.columns(k, place, rows),
            Rung::Units(factors) => return self.units(k, factors, place, &rows),
            Rung::Dot4 | Rung::F32 => {}
        }
        let Tile { tx, n, m, .. } = self.tile;
        let stage = Stage::declare(k, self);
        // Neighbouring invocations take neighbouring rows of weights: their words lie in different banks, and their results side by side.
        let (t, ty) = (k.local_id() % tx, k.local_id() / tx);
        let n_of = |i: u32| t + i * tx;
        let m_of = |j: u32| ty + j * self.tile.ty;
        let sums: Vec<Vec<Reg<'k, f32>>> =
            (0..n).map(|_| (0..m).map(|_| k.reg::<f32>(0.0)).collect()).collect();
        k.for_step(0, place.n_groups, self.step(), |g0| {
            k.barrier();
            stage.fill(place, &rows, g0);
            k.barrier();
            for s in 0..self.step() {
                let product = || stage.multiply(s, &sums, &n_of, &m_of);
                if s == 0 { product() } else { k.when((g0 + s).lt(place.n_groups), product) }
            }
        });
        for (j, column) in (0..m).map(|j| (j, sums.iter().map(move |row| row.get(j as usize)))) {
            let row = rows.m0 + m_of(j);
            k.when(row.lt(rows.end), || {
                let y_row = rows.y_row(row) * place.n_out;
                for (i, sum) in (0..).zip(column.flatten()) {
                    let col = place.n0 + n_of(i);
                    k.when(col.lt(place.n_out), || place.y.set(y_row + col, sum.get()));
                }
            });
        }
    }

    fn columns<'k>(&self, k: &'k Builder, place: &Place<'k>, rows: RowMap<'k>) {
        let col = place.n0 + k.local_id();
        k.when(col.lt(place.n_out), || {
            k.for_range(rows.m0, rows.end.min(rows.m0 + self.tile.height()), |row| {
                let sum = k.reg::<f32>(0.0);
                let x_row = rows.x_row(row) * place.n_groups;
                k.for_range(0, place.n_groups, |g| {
                    let a = place.x.words(x_row + g);
                    let w_row = rows.matrix + col;
                    let (codes, subs) = (place.weights.codes(w_row, g), place.weights.sub_blocks(w_row, g));
                    let sums = code_sums(k, &self.layout, &a);
                    let dots = dots(k, &codes, subs.len(), &a);
                    if let Some(p) = group_product(codes.offset, &subs, &dots, &sums) {
                        sum.set(place.x.d.at(x_row + g).fma(p, sum.get()));
                    }
                });
                place.y.set(rows.y_row(row) * place.n_out + col, sum.get());
            });
        });
    }
}

/// The operands and where the workgroup stands among the outputs.
pub(super) struct Place<'k> {
    pub(super) n_groups: Val<'k, u32>,
    pub(super) n_out: Val<'k, u32>,
    pub(super) n0: Val<'k, u32>,
    pub(super) weights: Weights<'k>,
    pub(super) x: Activations<'k>,
    pub(super) y: Array<'k, f32>,
}

/// What the tile's rows are: `m0 ..` below `end`, of the result or of the order of the slots.
pub(super) struct RowMap<'k> {
    pub(super) m0: Val<'k, u32>,
    pub(super) end: Val<'k, u32>,
    /// First row of weights.
    pub(super) matrix: Val<'k, u32>,
    slots: Option<Slots<'k>>,
}

#[derive(Clone, Copy)]
struct Slots<'k> {
    order: Array<'k, u32>,
    per_token: Val<'k, u32>,
    n_rows: Val<'k, u32>,
}

impl<'k> RowMap<'k> {
    pub(super) fn y_row(&self, row: Val<'k, u32>) -> Val<'k, u32> {
        self.slots.map_or(row, |s| s.order.at(row).min(s.n_rows - 1))
    }

    pub(super) fn x_row(&self, row: Val<'k, u32>) -> Val<'k, u32> {
        let y_row = self.y_row(row);
        self.slots.map_or(y_row, |s| y_row / s.per_token)
    }
}

/// Both operands of a step in workgroup memory: codes `[group][word][row]`, so that rows, which lanes count, lie in different banks.
struct Stage<'k> {
    k: &'k Builder,
    layout: Layout,
    step: u32,
    width: u32,
    height: u32,
    codes: Codes<'k>,
    scales: Array<'k, f32>,
    mins: Option<Array<'k, f32>>,
    x_d: Array<'k, f32>,
    x_sums: Option<Array<'k, i32>>,
}

enum Codes<'k> {
    Packed { w: Array<'k, u32>, x: Array<'k, u32> },
    Floats { w: Array<'k, f32>, x: Array<'k, f32> },
}

impl<'k> Stage<'k> {
    fn declare(k: &'k Builder, gemm: &Gemm) -> Self {
        let (layout, step) = (gemm.layout, gemm.step());
        let [width, height] = gemm.outputs_per_workgroup();
        let subs = layout.subs() as u32;
        let codes = match gemm.rung {
            Rung::F32 => Codes::Floats {
                w: k.shared("w_tile", step * Self::plane(width, 4 * WORDS as u32)),
                x: k.shared("x_tile", step * Self::plane(height, 4 * WORDS as u32)),
            },
            _ => Codes::Packed {
                w: k.shared("w_tile", step * Self::plane(width, WORDS as u32)),
                x: k.shared("x_tile", step * Self::plane(height, WORDS as u32)),
            },
        };
        Self {
            k,
            layout,
            step,
            width,
            height,
            codes,
            scales: k.shared("w_scales_tile", step * subs * width),
            mins: layout.view.asymmetric.then(|| k.shared("w_mins_tile", step * subs * width)),
            x_d: k.shared("x_d_tile", step * height),
            x_sums: needs_sums(&layout).then(|| k.shared("x_sums_tile", step * subs * height)),
        }
    }

    /// Elements of a group's plane. Invocations that stage one row's groups are neighbours: half of the banks apart.
    const fn plane(rows: u32, words: u32) -> u32 {
        rows * words + BANKS / 2
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
                match &self.codes {
                    Codes::Packed { w, .. } => self.put(*w, self.width, s, r, &codes.words),
                    Codes::Floats { w, .. } => self.put(*w, self.width, s, r, &Self::floats(&codes.words)),
                }
                for (j, sub) in (0..).zip(&sub_blocks) {
                    let at = (s * subs + j) * self.width + r;
                    self.scales.set(at, sub.scale);
                    if let (Some(mins), Some(min)) = (self.mins, sub.min) {
                        mins.set(at, min);
                    }
                }
            });
        });
        k.each(step * self.height, |task| {
            let (s, r) = (task % step, task / step);
            let g = g0 + s;
            k.when(g.lt(place.n_groups), || {
                let x_row = rows.x_row((rows.m0 + r).min(rows.end - 1));
                let g = x_row * place.n_groups + g;
                let words = place.x.words(g);
                match &self.codes {
                    Codes::Packed { x, .. } => self.put(*x, self.height, s, r, &words),
                    Codes::Floats { x, .. } => self.put(*x, self.height, s, r, &Self::floats(&words)),
                }
                self.x_d.set(s * self.height + r, place.x.d.at(g));
                if let Some(x_sums) = self.x_sums {
                    for (j, sum) in (0..).zip(code_sums(k, &self.layout, &words)) {
                        x_sums.set((s * subs + j) * self.height + r, sum);
                    }
                }
            });
        });
    }

    fn put<T: crate::kernel::build::Register>(
        &self,
        to: Array<'k, T>,
        rows: u32,
        s: Val<'k, u32>,
        r: Val<'k, u32>,
        words: &[Val<'k, T>],
    ) {
        let first = s * Self::plane(rows, words.len() as u32) + r;
        for (i, &word) in (0..).zip(words) {
            to.set(first + i * rows, word);
        }
    }

    /// Packed signed bytes as f32.
    fn floats(words: &[Val<'k, u32>]) -> Vec<Val<'k, f32>> {
        let byte = |word: Val<'k, u32>, e: u32| ((word << (24 - 8 * e)).i32() >> 24).f32();
        words.iter().flat_map(|&word| (0..4).map(move |e| byte(word, e))).collect()
    }

    /// Adds group `s` of the step to the invocation's sums.
    fn multiply(
        &self,
        s: u32,
        sums: &[Vec<Reg<'k, f32>>],
        n_of: &dyn Fn(u32) -> Val<'k, u32>,
        m_of: &dyn Fn(u32) -> Val<'k, u32>,
    ) {
        let subs = self.layout.subs() as u32;
        let m = sums.first().map_or(0, Vec::len) as u32;
        let x_at = |plane: u32, j: u32| m_of(j) + plane * self.height;
        let x_sums: Vec<Vec<_>> = (0..m)
            .map(|j| {
                let one = |sub: u32| self.x_sums.map(|sums| sums.at(x_at(s * subs + sub, j)));
                (0..subs).filter_map(one).collect()
            })
            .collect();
        let x_d: Vec<_> = (0..m).map(|j| self.x_d.at(x_at(s, j))).collect();
        let ready = self.ready(s, sums.len() as u32, m, n_of, m_of);
        for (i, row) in (0..).zip(sums) {
            let w_at = |j: u32| n_of(i) + (s * subs + j) * self.width;
            let sub_blocks: Vec<_> = (0..subs)
                .map(|j| SubBlock { scale: self.scales.at(w_at(j)), min: self.mins.map(|m| m.at(w_at(j))) })
                .collect();
            let dots = self.dots_of_row(s, i, n_of(i), &ready);
            for (((sum, dots), x_sums), d) in row.iter().zip(dots).zip(&x_sums).zip(&x_d) {
                if let Some(p) = group_product(self.layout.code_offset(), &sub_blocks, &dots, x_sums) {
                    sum.set(d.fma(p, sum.get()));
                }
            }
        }
    }

    /// What all rows of weights need of group `s`: the words of the activations, or of f32 operands the finished dots.
    fn ready(
        &self,
        s: u32,
        n: u32,
        m: u32,
        n_of: &dyn Fn(u32) -> Val<'k, u32>,
        m_of: &dyn Fn(u32) -> Val<'k, u32>,
    ) -> Ready<'k> {
        let (k, subs) = (self.k, self.layout.subs() as u32);
        match self.codes {
            Codes::Packed { x, .. } => {
                Ready::Words((0..m).map(|j| self.words(x, self.height, s, m_of(j))).collect())
            }
            Codes::Floats { w, x } => {
                let (all, per) = (4 * WORDS as u32, 4 * WORDS as u32 / subs);
                let zeros = || (0..subs).map(|_| k.reg::<f32>(0.0)).collect::<Vec<_>>();
                let totals: Vec<Vec<_>> = (0..n).map(|_| (0..m).map(|_| zeros()).collect()).collect();
                for sub in 0..subs {
                    k.for_range(sub * per, (sub + 1) * per, |e| {
                        let at = |rows: u32, r: Val<'k, u32>| r + s * Self::plane(rows, all) + e * rows;
                        let xs: Vec<_> = (0..m).map(|j| x.at(at(self.height, m_of(j)))).collect();
                        for (i, totals) in (0..).zip(&totals) {
                            let v = w.at(at(self.width, n_of(i)));
                            for (total, &x) in totals.iter().zip(&xs) {
                                if let Some(total) = total.get(sub as usize) {
                                    total.set(v.fma(x, total.get()));
                                }
                            }
                        }
                    });
                }
                Ready::Dots(totals)
            }
        }
    }

    /// The dots of row `i` of the weights with every row of the activations: `[m][sub-block]`.
    fn dots_of_row(&self, s: u32, i: u32, row: Val<'k, u32>, ready: &Ready<'k>) -> Vec<Vec<Val<'k, i32>>> {
        match (ready, &self.codes) {
            (Ready::Words(x), Codes::Packed { w, .. }) => {
                let codes = GroupCodes::signed(self.words(*w, self.width, s, row), self.layout.code_offset());
                x.iter().map(|a| dots(self.k, &codes, self.layout.subs(), a)).collect()
            }
            (Ready::Dots(totals), _) => {
                let row = totals.get(i as usize).map_or(&[][..], Vec::as_slice);
                // Whole numbers below 2²⁴: exact.
                row.iter().map(|t| t.iter().map(|total| total.get().i32()).collect()).collect()
            }
            (Ready::Words(_), Codes::Floats { .. }) => Vec::new(),
        }
    }

    fn words(&self, from: Array<'k, u32>, rows: u32, s: u32, r: Val<'k, u32>) -> [Val<'k, u32>; WORDS] {
        let first = r + s * Self::plane(rows, WORDS as u32);
        std::array::from_fn(|i| from.at(first + i as u32 * rows))
    }
}

/// See [`Stage::ready`].
enum Ready<'k> {
    /// `[m]`.
    Words(Vec<[Val<'k, u32>; WORDS]>),
    /// `[n][m][sub-block]`.
    Dots(Vec<Vec<Vec<Reg<'k, f32>>>>),
}
