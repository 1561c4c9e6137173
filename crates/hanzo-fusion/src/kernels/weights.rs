//! Packed weights as kernels read them: codes as packed bytes, scales and mins as f32, for any format.

use hanzo_quant::canonical::GROUP;
use hanzo_quant::{Codes, Grid, GridModifier, SuperScale};

use super::layout::{Layout, has_high, has_signs, planes};
use crate::kernel::{Array, Builder, Dot, Elem, IntoVal, Val};

/// Words of a group's codes, four packed bytes each.
pub const WORDS: usize = GROUP / 4;

/// The three planes of a matrix `[rows, n_in]`, bound to a kernel.
#[derive(Clone, Copy, Debug)]
pub struct Weights<'k> {
    k: &'k Builder,
    layout: Layout,
    codes: Array<'k, u32>,
    scales: Option<Array<'k, u32>>,
    supers: Array<'k, u32>,
    table: Option<Array<'k, u32>>,
    /// Groups of a row.
    groups: Val<'k, u32>,
}

/// One group's codes: packed bytes, and what must be taken from every one of them.
#[derive(Clone, Copy, Debug)]
pub struct GroupCodes<'k> {
    /// Eight words of four codes.
    pub words: [Val<'k, u32>; WORDS],
    /// Whether the bytes are signed.
    pub kind: Dot,
    /// `code = byte − offset`.
    pub offset: u8,
}

impl<'k> GroupCodes<'k> {
    /// Signed bytes, `offset` too large.
    pub fn signed(words: [Val<'k, u32>; WORDS], offset: u8) -> Self {
        Self { words, kind: Dot::SignedSigned, offset }
    }

    /// The codes themselves, as packed signed bytes: those of formats with an offset have fewer than eight bits.
    pub fn exact(&self) -> [Val<'k, u32>; WORDS] {
        let off = 0x0101_0101 * u32::from(self.offset.wrapping_neg());
        self.words.map(|word| if self.offset > 0 { add_bytes(word, off) } else { word })
    }
}

/// Scale and min of a sub-block, in f32.
#[derive(Clone, Copy, Debug)]
pub struct SubBlock<'k> {
    /// `d · sc`.
    pub scale: Val<'k, f32>,
    /// `dmin · m`, of asymmetric formats.
    pub min: Option<Val<'k, f32>>,
}

impl<'k> Weights<'k> {
    /// Declares the planes as `{name}_codes`, `{name}_scales` (where there are any) and `{name}_supers`; rows have `n_in / 32` groups.
    #[track_caller]
    pub fn declare(k: &'k Builder, name: &str, layout: Layout, groups: Val<'k, u32>) -> Self {
        let codes = k.input(&format!("{name}_codes"));
        let scales = (layout.scale_bytes() > 0).then(|| k.input_small(&format!("{name}_scales"), Elem::U8));
        let supers = match layout.super_elem() {
            Elem::U32 => k.input(&format!("{name}_supers")),
            elem => k.input_small(&format!("{name}_supers"), elem),
        };
        let table = match layout.view.codes {
            Codes::Linear { .. } => None,
            Codes::Table { table, .. } => Some(k.table(&format!("{name}_table"), bytes(table))),
            Codes::Grid(grid) => {
                let words = grid.table.chunks_exact(4).map(pack4).collect::<Vec<_>>();
                Some(k.table(&format!("{name}_table"), words))
            }
        };
        Self { k, layout, codes, scales, supers, table, groups }
    }

    /// The codes of group `g` of `row`.
    #[track_caller]
    pub fn codes(&self, row: Val<'k, u32>, g: Val<'k, u32>) -> GroupCodes<'k> {
        let n = self.layout.code_words();
        let first = (row * self.groups + g) * n as u32;
        let words = self.load(first, n);
        let bytes = match self.layout.view.codes {
            Codes::Linear { bits: 8, .. } => std::array::from_fn(|i| words[i]),
            // Up to 7 bits are as good signed as unsigned.
            Codes::Linear { bits, .. } => self.spread(&words, bits),
            Codes::Table { bits, .. } => self.spread(&words, bits).map(|word| self.lookup(word)),
            Codes::Grid(grid) => self.grid(&words, &grid),
        };
        GroupCodes::signed(bytes, self.layout.code_offset())
    }

    /// `n` words from `first`, a multiple of `n`, in the widest loads that divide `n`.
    fn load(&self, first: Val<'k, u32>, n: usize) -> Vec<Val<'k, u32>> {
        let at = |i: usize| first + i as u32;
        match n {
            n if n.is_multiple_of(4) => (0..n).step_by(4).flat_map(|i| self.codes.wide::<4>(at(i))).collect(),
            n if n.is_multiple_of(2) => (0..n).step_by(2).flat_map(|i| self.codes.wide::<2>(at(i))).collect(),
            n => (0..n).map(|i| self.codes.at(at(i))).collect(),
        }
    }

    /// Bit planes to packed bytes.
    fn spread(&self, words: &[Val<'k, u32>], bits: u8) -> [Val<'k, u32>; WORDS] {
        std::array::from_fn(|out| {
            let mut from = 0;
            let mut low = 0u8;
            let mut sum: Option<Val<'k, u32>> = None;
            for plane in planes(bits) {
                let (j, t) = (out % usize::from(plane), out / usize::from(plane));
                let mask = 0x0101_0101 * ((1u32 << plane) - 1);
                let part = (words[from + j] >> (usize::from(plane) * t) as u32) & mask;
                let part = part << u32::from(low);
                sum = Some(sum.map_or(part, |sum| sum | part));
                from += usize::from(plane);
                low += plane;
            }
            sum.unwrap_or_else(|| 0.val(self.k))
        })
    }

    /// Each byte `q` of `word` replaced by `table[q]`.
    fn lookup(&self, word: Val<'k, u32>) -> Val<'k, u32> {
        let Some(table) = self.table else { return word };
        let parts = (0..4u32).map(|e| table.at((word >> (8 * e)) & 0xff) << (8 * e));
        parts.reduce(|a, b| a | b).unwrap_or(word)
    }

    fn grid(&self, words: &[Val<'k, u32>], grid: &Grid) -> [Val<'k, u32>; WORDS] {
        let Some(table) = self.table else { return std::array::from_fn(|_| 0.val(self.k)) };
        let per = usize::from(grid.group);
        let n_index_words = GROUP / per / 4;
        let signs = has_signs(grid).then(|| words[n_index_words]);
        let high = has_high(grid).then(|| words[n_index_words + usize::from(has_signs(grid))]);
        std::array::from_fn(|out| {
            let (i, half) = (4 * out / per, 4 * out % per / 4);
            let mut index = (words[i / 4] >> (8 * (i % 4)) as u32) & 0xff;
            let extra = grid.index_bits.saturating_sub(8);
            if let Some(high) = high
                && extra > 0
            {
                let bits = (high >> (usize::from(extra) * i) as u32) & ((1 << extra) - 1);
                index = index | (bits << 8);
            }
            let entry = table.at(index * (per / 4) as u32 + half as u32);
            match grid.modifier {
                GridModifier::Signs { .. } => {
                    let bits = signs.unwrap_or(entry) >> (4 * out) as u32;
                    negate_bytes(entry, bits & 15)
                }
                GridModifier::Shift => {
                    // Entries are multiples of 8: −1 and +1 stay within their bytes but for 0 − 1, so add them byte by byte.
                    let down = (high.unwrap_or(entry) >> (28 + 4 * out / 8) as u32) & 1;
                    add_bytes(entry, down.eq(1).select(0xffff_ffffu32, 0x0101_0101))
                }
            }
        })
    }

    /// Scales and mins of the sub-blocks of group `g` of `row`.
    #[track_caller]
    pub fn sub_blocks(&self, row: Val<'k, u32>, g: Val<'k, u32>) -> Vec<SubBlock<'k>> {
        let view = &self.layout.view;
        let subs = self.layout.subs();
        let groups_per_block = (self.layout.format.elems / GROUP) as u32;
        let global = row * self.groups + g;
        let per_block = self.layout.supers_per_block() as u32;
        let block = (global / groups_per_block) * per_block;
        let d = |j: usize| match view.super_scale {
            SuperScale::F16 { factor } => self.supers.at(block).as_f16().f32() * factor,
            SuperScale::F32 => self.supers.at(block).as_f32(),
            SuperScale::E8M0 => e8m0(self.supers.at(block)),
            SuperScale::Ue4m3 => {
                let first = block + (g % groups_per_block) * subs as u32;
                ue4m3(self.supers.at(first + j as u32))
            }
        };
        let dmin = view.asymmetric.then(|| self.supers.at(block + 1).as_f16().f32());
        let bytes = global * self.layout.scale_bytes() as u32;
        let byte = |i: usize| self.scales.map(|s| s.at(bytes + i as u32));
        (0..subs)
            .map(|j| {
                let sc = (view.sc_bits > 0).then(|| byte(j)).flatten();
                let scale = match sc {
                    Some(sc) => d(j) * (sc.i32() - i32::from(view.sc_offset)).f32(),
                    None => d(j),
                };
                let m_at = j + if view.sc_bits > 0 { subs } else { 0 };
                let m = (view.m_bits > 0).then(|| byte(m_at)).flatten();
                let min = dmin.map(|dmin| m.map_or(dmin, |m| dmin * m.f32()));
                SubBlock { scale, min }
            })
            .collect()
    }
}

/// The bytes whose bit is set in `bits` (4), negated.
fn negate_bytes<'k>(bytes: Val<'k, u32>, bits: Val<'k, u32>) -> Val<'k, u32> {
    // Bit e to the low bit of byte e: the multiplication has no carries.
    let ones = (bits * 0x0020_4081) & 0x0101_0101;
    add_bytes(bytes ^ (ones * 0xff), ones)
}

/// Sums byte by byte.
fn add_bytes<'k>(a: Val<'k, u32>, b: impl IntoVal<'k, u32>) -> Val<'k, u32> {
    let b = b.val(a.builder());
    ((a & 0x7f7f_7f7f) + (b & 0x7f7f_7f7f)) ^ ((a ^ b) & 0x8080_8080)
}

/// `2^(e − 128)`.
fn e8m0(e: Val<'_, u32>) -> Val<'_, f32> {
    let subnormal = e.eq(0).select(0x0020_0000u32, 0x0040_0000);
    e.lt(2).select(subnormal, (e - 1) << 23).as_f32()
}

/// Half of an unsigned E4M3 number; 0x7f and the top bit read as nothing.
fn ue4m3(byte: Val<'_, u32>) -> Val<'_, f32> {
    let (exponent, mantissa) = ((byte >> 3) & 15, (byte & 7).f32());
    let subnormal = mantissa * f32::from_bits((127 - 10) << 23);
    let normal = (mantissa + 8.0) * ((exponent + (127 - 11)) << 23).as_f32();
    let value = exponent.eq(0).select(subnormal, normal);
    (byte & 0x7f).eq(0x7f).select(0.0, value)
}

fn pack4(codes: &[i8]) -> u32 {
    codes.iter().rev().fold(0, |word, &c| word << 8 | u32::from(c.cast_unsigned()))
}

/// A table of bytes, one a word.
fn bytes(table: &[i8; 16]) -> Vec<u32> {
    table.iter().map(|&c| u32::from(c.cast_unsigned())).collect()
}
