//! Blocks whose codes come from a codebook of vectors: choosing entries, signs or shifts, and scales together.
//!
//! Objective: `Σ w (x − x̂)²` over the 256 elements. For every run of elements that can be coded on its own, a [`Unit`] knows
//! the best choice at every scale ([`Envelope`], over the whole codebook, signs and parity included: nothing is pruned by
//! guess). Sub-blocks add their units up, and [`fit_ladder`] chooses the super-scale and the sub-blocks' odd multipliers.

use wide::f32x8;

use super::block::{Block, Part, Snapped};
use super::envelope::{Envelope, Line};
use super::scale::{LadderSearch, Rungs, fit_ladder};
use crate::{Codes, QuantType};

/// A codebook, laid out for products with all entries at once.
pub(super) struct Codebook {
    /// Elements of an entry.
    group: usize,
    /// Entries one after the other.
    entries: Vec<f32>,
    /// For every eight entries, their elements `t`, by ascending `t`.
    eights: Vec<f32x8>,
    /// Σ e² and Σ e of all entries.
    squares: Vec<f32x8>,
    sums: Vec<f32x8>,
    /// Root of the mean square, and the largest, of all elements.
    rms: f32,
    peak: f32,
}

impl Codebook {
    /// The codebook of a format; empty where it has none.
    pub(super) fn of(ty: QuantType) -> Self {
        let (group, table) = match ty.format().int.map(|int| int.codes) {
            Some(Codes::Grid(grid)) => (usize::from(grid.group), grid.table),
            _ => (8, &[][..]),
        };
        let entries: Vec<f32> = table.iter().map(|&e| f32::from(e)).collect();
        let eights = entries.chunks_exact(8 * group);
        let eights = eights
            .flat_map(|eight| (0..group).map(|t| f32x8::new(std::array::from_fn(|l| eight[l * group + t]))));
        let mut book = Codebook {
            group,
            eights: eights.collect(),
            squares: Vec::new(),
            sums: Vec::new(),
            rms: (entries.iter().map(|e| e * e).sum::<f32>() / entries.len().max(1) as f32).sqrt(),
            peak: entries.iter().fold(0.0, |m, e| m.max(e.abs())),
            entries,
        };
        let (mut squares, mut sums) = (Vec::new(), Vec::new());
        book.weighted_squares(&[1.0; 8], &mut squares);
        book.products(&[1.0; 8], &mut sums);
        (book.squares, book.sums) = (squares, sums);
        book
    }

    /// Entry `i`.
    fn entry(&self, i: u32) -> &[f32] {
        self.entries.get(i as usize * self.group..).and_then(|rest| rest.get(..self.group)).unwrap_or(&[])
    }

    /// Folds the elements of every entry with `u`, eight entries at a time, into `out`.
    #[inline(always)]
    fn fold(&self, u: &[f32], start: f32, out: &mut Vec<f32x8>, f: impl Fn(f32x8, f32x8, f32x8) -> f32x8) {
        let u: [f32x8; 8] = std::array::from_fn(|t| f32x8::splat(u.get(t).copied().unwrap_or(0.0)));
        let eights = self.eights.chunks_exact(self.group);
        out.clear();
        out.extend(
            eights.map(|eight| eight.iter().zip(&u).fold(f32x8::splat(start), |sum, (&e, &u)| f(sum, u, e))),
        );
    }

    /// Σ u·e of all entries.
    fn products(&self, u: &[f32], out: &mut Vec<f32x8>) {
        self.fold(u, 0.0, out, |sum, u, e| sum + u * e);
    }

    /// min u·e over the elements of each entry.
    fn least_products(&self, u: &[f32], out: &mut Vec<f32x8>) {
        self.fold(u, f32::INFINITY, out, |least, u, e| least.fast_min(u * e));
    }

    /// Σ w·e² of all entries.
    fn weighted_squares(&self, w: &[f32], out: &mut Vec<f32x8>) {
        self.fold(w, 0.0, out, |sum, w, e| sum + w * e * e);
    }

    /// Σ w·e² of all entries: the table's where all weights are 1.
    fn squares<'a>(&'a self, w: &[f32], out: &'a mut Vec<f32x8>) -> &'a [f32x8] {
        if all_one(w) {
            return &self.squares;
        }
        self.weighted_squares(w, out);
        out
    }

    /// Scales among which the best of a sub-block lies: around the one that gives codes the spread of the values, and
    /// up to where the largest value is past the largest code. Values of about one magnitude fit the small codes as well
    /// as the large ones.
    fn range(&self, part: Part<'_>) -> (f32, f32) {
        let terms = part.x.iter().zip(part.wx).zip(part.w);
        let (xx, w) = terms.fold((0f32, 0f32), |(xx, sum), ((x, wx), w)| (xx + x * wx, sum + w));
        let (spread, peak) = ((xx / w).sqrt(), part.peak());
        let even = spread / self.rms;
        let top = if peak < 1.5 * spread { peak } else { 1.7 * peak / self.peak };
        (0.55 * even, top.max(2.0 * even))
    }
}

fn all_one(w: &[f32]) -> bool {
    w.iter().all(|&w| w == 1.0)
}

/// Room to work in, kept from unit to unit.
#[derive(Default)]
pub(super) struct Scratch {
    a: Vec<f32x8>,
    b: Vec<f32x8>,
    c: Vec<f32x8>,
    lines: Vec<Line>,
}

/// What a unit is coded as: table indices, and the eight signs or the one shift beside them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) index: [u16; 4],
    pub(super) bits: u8,
}

/// A run of elements that is coded on its own, but for the scale.
pub(super) trait Unit {
    /// Elements of the run.
    const ELEMS: usize;
    /// Prepares the choices for scales within `range`.
    fn new(book: &Codebook, part: Part<'_>, range: (f32, f32), room: &mut Scratch) -> Self;
    /// The cost of the best choice at every scale.
    fn envelope(&self) -> &Envelope;
    /// The best choice at scale `s`.
    fn choose(&self, book: &Codebook, s: f32) -> Choice;
}

/// A block of `J` sub-blocks: super-scale, multiplier number of each sub-block, and the choices of all units.
pub(super) struct Fit<const J: usize> {
    pub(super) d: Snapped,
    pub(super) k: [u8; J],
    pub(super) choices: Vec<Choice>,
}

/// Codes a block whose multipliers are the `count` first odd numbers, with `unit_scale` times the stored `d`.
pub(super) fn fit<U: Unit, const J: usize>(
    book: &Codebook,
    block: &Block<256>,
    count: i32,
    unit_scale: f32,
) -> Fit<J> {
    let per_sub = 256 / J / U::ELEMS;
    let ranges: [_; J] = std::array::from_fn(|j| book.range(block.part(j, 256 / J)));
    let mut room = Scratch::default();
    let mut unit_of = |i: usize, range| U::new(book, block.part(i, U::ELEMS), range, &mut room);
    let units: Vec<U> = (0..J * per_sub).map(|i| unit_of(i, ranges[i / per_sub])).collect();
    let curves: [Envelope; J] = std::array::from_fn(|j| {
        let envelopes = units[j * per_sub..(j + 1) * per_sub].iter().map(U::envelope);
        envelopes
            .fold(None, |sum: Option<Envelope>, e| Some(sum.map_or_else(|| e.clone(), |sum| sum.sum(e))))
            .unwrap_or_default()
    });
    let ideal = curves.each_ref().map(Envelope::best_scale);
    // The steps between multipliers are coarse, so where the ladder stands matters: try many places.
    let starts: [f32; 48] = std::array::from_fn(|i| 0.82 + 0.02 * i as f32);
    let rungs = Rungs { first: 1, step: 2, count };
    let search = LadderSearch { rungs, unit: unit_scale, starts: &starts };
    let ladder = fit_ladder(&curves, &ideal, search, |d| block.snap(d));
    let mut choose = |(i, unit): (usize, &U)| {
        let (scale, range) =
            (ladder.d.d * unit_scale * rungs.multiplier(ladder.k[i / per_sub]), ranges[i / per_sub]);
        // The ladder may have forced a scale on the sub-block that it would not have chosen.
        if scale < range.0 || scale > range.1 {
            return unit_of(i, (scale, scale)).choose(book, scale);
        }
        unit.choose(book, scale)
    };
    let choices = units.iter().enumerate().map(&mut choose).collect();
    Fit { d: ladder.d, k: ladder.k, choices }
}

/// Magnitudes by weight, and the sign bits, of up to eight elements.
fn signs(part: Part<'_>) -> ([f32; 8], u8) {
    let (mut u, mut bits) = ([0.0; 8], 0);
    for (t, &wx) in part.wx.iter().take(8).enumerate() {
        u[t] = wx.abs();
        bits |= u8::from(wx < 0.0) << t;
    }
    (u, bits)
}

/// The element whose sign is cheapest to turn over under entry `e`.
fn cheapest(u: &[f32], e: &[f32]) -> usize {
    let mut best = (0, f32::INFINITY);
    for (t, (&u, &e)) in u.iter().zip(e).enumerate() {
        if u * e < best.1 {
            best = (t, u * e);
        }
    }
    best.0
}

/// Choices for magnitudes `u` with all signs right, or with the cheapest one wrong.
fn magnitudes(
    book: &Codebook,
    u: &[f32],
    w: &[f32],
    wrong: bool,
    range: (f32, f32),
    room: &mut Scratch,
) -> Envelope {
    let Scratch { a, b, c, lines } = room;
    book.products(u, a);
    if wrong {
        book.least_products(u, c);
        for (a, &least) in a.iter_mut().zip(c.iter()) {
            *a -= least + least;
        }
    }
    Envelope::of(a, book.squares(w, b), range, lines)
}

/// Eight elements, one entry, eight free signs (IQ2_S).
pub(super) struct Free8 {
    envelope: Envelope,
    bits: u8,
}

impl Unit for Free8 {
    const ELEMS: usize = 8;

    fn new(book: &Codebook, part: Part<'_>, range: (f32, f32), room: &mut Scratch) -> Self {
        let (u, bits) = signs(part);
        Free8 { envelope: magnitudes(book, &u, part.w, false, range, room), bits }
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn choose(&self, _: &Codebook, s: f32) -> Choice {
        Choice { index: [self.envelope.choice(s) as u16, 0, 0, 0], bits: self.bits }
    }
}

/// Eight elements, one entry, an even number of minus signs (IQ2_XXS, IQ2_XS): where the number is odd, entry and sign
/// to turn over are chosen together.
pub(super) struct Even8 {
    envelope: Envelope,
    u: [f32; 8],
    bits: u8,
}

impl Unit for Even8 {
    const ELEMS: usize = 8;

    fn new(book: &Codebook, part: Part<'_>, range: (f32, f32), room: &mut Scratch) -> Self {
        let (u, bits) = signs(part);
        Even8 { envelope: magnitudes(book, &u, part.w, bits.count_ones() % 2 == 1, range, room), u, bits }
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn choose(&self, book: &Codebook, s: f32) -> Choice {
        let index = self.envelope.choice(s);
        let odd = (self.bits.count_ones() % 2) as u8;
        let bits = self.bits ^ odd << cheapest(&self.u, book.entry(index));
        Choice { index: [index as u16, 0, 0, 0], bits }
    }
}

/// Eight elements, two entries of four, eight free signs (IQ3_S).
pub(super) struct Free4x2 {
    halves: [Envelope; 2],
    envelope: Envelope,
    bits: u8,
}

impl Unit for Free4x2 {
    const ELEMS: usize = 8;

    fn new(book: &Codebook, part: Part<'_>, range: (f32, f32), room: &mut Scratch) -> Self {
        let (u, bits) = signs(part);
        let halves = [0, 4].map(|t| magnitudes(book, &u[t..t + 4], &part.w[t..t + 4], false, range, room));
        Free4x2 { envelope: halves[0].sum(&halves[1]), halves, bits }
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn choose(&self, _: &Codebook, s: f32) -> Choice {
        let [low, high] = self.halves.each_ref().map(|half| half.choice(s) as u16);
        Choice { index: [low, high, 0, 0], bits: self.bits }
    }
}

/// Eight elements, two entries of four, an even number of minus signs (IQ3_XXS): where the number is odd, one half takes
/// the wrong sign, whichever costs less at the scale in question.
pub(super) struct Even4x2 {
    /// Choices of each half with all signs right, and with one wrong (empty where the number is even).
    right: [Envelope; 2],
    wrong: [Envelope; 2],
    /// Named by the half that takes the wrong sign.
    envelope: Envelope,
    u: [f32; 8],
    bits: u8,
}

impl Unit for Even4x2 {
    const ELEMS: usize = 8;

    fn new(book: &Codebook, part: Part<'_>, range: (f32, f32), room: &mut Scratch) -> Self {
        let (u, bits) = signs(part);
        let mut half =
            |t: usize, wrong| magnitudes(book, &u[t..t + 4], &part.w[t..t + 4], wrong, range, room);
        let right = [half(0, false), half(4, false)];
        if bits.count_ones() % 2 == 0 {
            let envelope = right[0].sum(&right[1]);
            return Even4x2 { right, wrong: Default::default(), envelope, u, bits };
        }
        let wrong = [half(0, true), half(4, true)];
        let (low, high) = (wrong[0].sum(&right[1]).named(0), right[0].sum(&wrong[1]).named(1));
        Even4x2 { envelope: Envelope::union([&low, &high], &mut room.lines), right, wrong, u, bits }
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn choose(&self, book: &Codebook, s: f32) -> Choice {
        let mut index = self.right.each_ref().map(|half| half.choice(s));
        let mut bits = self.bits;
        if bits.count_ones() % 2 == 1 {
            let half = self.envelope.choice(s) as usize & 1;
            index[half] = self.wrong[half].choice(s);
            bits ^= 1 << (4 * half + cheapest(&self.u[4 * half..], book.entry(index[half])));
        }
        Choice { index: [index[0] as u16, index[1] as u16, 0, 0], bits }
    }
}

/// The choices of eight elements under either shift: entries count in eighths, a shift adds or takes one.
fn shifted(book: &Codebook, part: Part<'_>, range: (f32, f32), room: &mut Scratch) -> [Envelope; 2] {
    let (mut a, mut b, mut sums) = (Vec::new(), Vec::new(), Vec::new());
    book.products(part.wx, &mut a);
    if !all_one(part.w) {
        book.products(part.w, &mut sums);
    }
    let sums = if sums.is_empty() { &book.sums } else { &sums };
    let squares = book.squares(part.w, &mut b);
    let (x, w) = (part.wx.iter().sum::<f32>(), part.w.iter().sum::<f32>());
    [1.0, -1.0].map(|shift: f32| {
        let (x, twice, w) = (f32x8::splat(shift * x), f32x8::splat(2.0 * shift), f32x8::splat(w));
        room.a.clear();
        room.a.extend(a.iter().map(|&a| a + x));
        room.b.clear();
        room.b.extend(squares.iter().zip(sums).map(|(&b, &sum)| b + twice * sum + w));
        Envelope::of(&room.a, &room.b, range, &mut room.lines)
    })
}

/// Eight elements, one entry, a shift of their own (IQ1_M).
pub(super) struct Shift8 {
    shifts: [Envelope; 2],
    envelope: Envelope,
}

impl Unit for Shift8 {
    const ELEMS: usize = 8;

    fn new(book: &Codebook, part: Part<'_>, range: (f32, f32), room: &mut Scratch) -> Self {
        let shifts = shifted(book, part, range, room);
        let [plus, minus] = [0, 1].map(|bit| shifts[bit as usize].clone().named(bit));
        Shift8 { envelope: Envelope::union([&plus, &minus], &mut room.lines), shifts }
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn choose(&self, _: &Codebook, s: f32) -> Choice {
        let bit = self.envelope.choice(s) as u8 & 1;
        Choice { index: [self.shifts[usize::from(bit)].choice(s) as u16, 0, 0, 0], bits: bit }
    }
}

/// Thirty-two elements, four entries, one shift (IQ1_S).
pub(super) struct Shift32 {
    groups: [[Envelope; 2]; 4],
    envelope: Envelope,
}

impl Unit for Shift32 {
    const ELEMS: usize = 32;

    fn new(book: &Codebook, part: Part<'_>, range: (f32, f32), room: &mut Scratch) -> Self {
        let groups: [[Envelope; 2]; 4] = std::array::from_fn(|g| {
            let at = 8 * g..8 * (g + 1);
            shifted(
                book,
                Part { x: &part.x[at.clone()], w: &part.w[at.clone()], wx: &part.wx[at] },
                range,
                room,
            )
        });
        let [plus, minus] = [0, 1].map(|bit| {
            let [a, b, c, d] = groups.each_ref().map(|shifts| &shifts[bit as usize]);
            a.sum(b).sum(&c.sum(d)).named(bit)
        });
        Shift32 { envelope: Envelope::union([&plus, &minus], &mut room.lines), groups }
    }

    fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    fn choose(&self, _: &Codebook, s: f32) -> Choice {
        let bit = self.envelope.choice(s) as u8 & 1;
        Choice {
            index: self.groups.each_ref().map(|shifts| shifts[usize::from(bit)].choice(s) as u16),
            bits: bit,
        }
    }
}
