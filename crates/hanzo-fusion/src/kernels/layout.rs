//! How a weight matrix lies in a device's memory: three planes, rearranged at load from any format's integer view.
//!
//! A row is cut into groups of [`GROUP`] = 32 elements, as activations are. Per row:
//!
//! * `codes`, u32: per group, the codes in bit planes, four elements a word so that they fall out as packed bytes ([`Layout::code_words`]);
//! * `scales`, u8: per group, the integer scales of its sub-blocks, then their integer mins;
//! * `supers`: per block, the bits of `d` and then of `dmin`, as wide as the format has them.
//!
//! A plane of `b` bits (1, 2 or 4) has `b` words a group; byte `e` of word `j`, bits `b·t..b·(t+1)`, is element `4·(j + b·t) + e`. Codes of
//! 3, 5, 6 or 7 bits are two or three planes, low bits first. Codebook formats keep index bytes, sign bits, and a word of high index bits.

use hanzo_quant::canonical::GROUP;
use hanzo_quant::{Codes, Format, Grid, GridModifier, IntView, SuperScale, f16};

use crate::kernel::Elem;

/// The layout of one format.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// The format.
    pub format: &'static Format,
    /// Its integer view.
    pub view: IntView,
}

/// A packed matrix, one plane a vector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Planes {
    /// See the module's doc.
    pub codes: Vec<u32>,
    /// One byte an element.
    pub scales: Vec<u8>,
    /// The bits of one super-scale an element, in the low end.
    pub supers: Vec<u32>,
}

/// Widths of the planes that make up codes of `bits` bits.
pub fn planes(bits: u8) -> impl Iterator<Item = u8> {
    [4, 2, 1]
        .into_iter()
        .scan(bits, |left, plane| {
            let take = *left >= plane;
            *left -= if take { plane } else { 0 };
            Some(take.then_some(plane))
        })
        .flatten()
}

impl Layout {
    /// The layout of a block format; `None` for F32, F16 and BF16.
    pub fn of(format: &'static Format) -> Option<Self> {
        format.int.map(|view| Self { format, view })
    }

    /// Sub-blocks of a group: 1 or 2.
    pub fn subs(&self) -> usize {
        GROUP / self.view.sub_block
    }

    /// Words of codes a group.
    pub fn code_words(&self) -> usize {
        match self.view.codes {
            Codes::Linear { bits: 8, .. } => GROUP / 4,
            Codes::Linear { bits, .. } | Codes::Table { bits, .. } => usize::from(bits),
            Codes::Grid(grid) => {
                let indices = GROUP / usize::from(grid.group) / 4;
                indices + usize::from(has_signs(&grid)) + usize::from(has_high(&grid))
            }
        }
    }

    /// What is still to be taken from every packed code: linear codes of fewer than eight bits are packed without their offset.
    pub fn code_offset(&self) -> u8 {
        match self.view.codes {
            Codes::Linear { bits, offset } if bits < 8 => offset,
            _ => 0,
        }
    }

    /// Bytes of scales and mins a group.
    pub fn scale_bytes(&self) -> usize {
        let kinds = usize::from(self.view.sc_bits > 0) + usize::from(self.view.m_bits > 0);
        kinds * self.subs()
    }

    /// Super-scales a block.
    pub fn supers_per_block(&self) -> usize {
        match self.view.super_scale {
            SuperScale::Ue4m3 => self.format.elems / self.view.sub_block,
            _ => 1 + usize::from(self.view.asymmetric),
        }
    }

    /// How wide a super-scale is.
    pub fn super_elem(&self) -> Elem {
        match self.view.super_scale {
            SuperScale::F16 { .. } => Elem::U16,
            SuperScale::F32 => Elem::U32,
            SuperScale::E8M0 | SuperScale::Ue4m3 => Elem::U8,
        }
    }

    /// Bytes of a row of `n_in` elements.
    pub fn row_bytes(&self, n_in: usize) -> usize {
        let (groups, blocks) = (n_in / GROUP, n_in / self.format.elems);
        groups * (4 * self.code_words() + self.scale_bytes())
            + blocks * self.supers_per_block() * self.super_elem().bytes()
    }

    /// Packs rows of raw blocks (whole blocks; bytes beyond the last are ignored).
    pub fn pack(&self, rows: &[u8]) -> Planes {
        let mut out = Planes::default();
        let mut codes = vec![0i8; self.format.elems];
        for block in rows.chunks_exact(self.format.bytes) {
            (self.view.read_codes)(block, &mut codes);
            for (g, codes) in codes.chunks_exact(GROUP).enumerate() {
                self.pack_codes(block, g, codes, &mut out.codes);
                self.pack_scales(block, g, &mut out.scales);
            }
            self.pack_supers(block, &mut out.supers);
        }
        out
    }

    fn pack_codes(&self, block: &[u8], g: usize, codes: &[i8], out: &mut Vec<u32>) {
        match self.view.codes {
            Codes::Linear { bits: 8, .. } => {
                out.extend(
                    codes.chunks_exact(4).map(|c| {
                        c.iter().rev().fold(0u32, |word, &c| word << 8 | u32::from(c.cast_unsigned()))
                    }),
                );
            }
            Codes::Linear { bits, offset } => {
                let q = |i: usize| u32::try_from(i32::from(codes[i]) + i32::from(offset)).unwrap_or_default();
                pack_planes(bits, q, out);
            }
            Codes::Table { bits, table } => {
                let q = |i: usize| table.iter().position(|&t| t == codes[i]).unwrap_or_default() as u32;
                pack_planes(bits, q, out);
            }
            Codes::Grid(grid) => self.pack_grid(block, g, &grid, out),
        }
    }

    fn pack_grid(&self, block: &[u8], g: usize, grid: &Grid, out: &mut Vec<u32>) {
        let per = usize::from(grid.group);
        let n = GROUP / per;
        let parts: Vec<(u16, u8)> = (0..n).map(|i| (self.view.grid_index)(block, g * n + i)).collect();
        for four in parts.chunks(4) {
            out.push(four.iter().rev().fold(0, |word, &(index, _)| word << 8 | u32::from(index & 0xff)));
        }
        // One modifier stands for eight elements: every index, or every second.
        let modifiers = parts.iter().step_by(8 / per).map(|&(_, m)| u32::from(m));
        if has_signs(grid) {
            out.push(modifiers.rev().fold(0, |word, m| word << 8 | m));
        } else {
            let shifts = modifiers.rev().fold(0, |word, m| word << 1 | (m & 1));
            out.push(high_bits(grid, &parts) | shifts << 28);
            return;
        }
        if has_high(grid) {
            out.push(high_bits(grid, &parts));
        }
    }

    fn pack_scales(&self, block: &[u8], g: usize, out: &mut Vec<u8>) {
        let subs = || (0..self.subs()).map(|j| (self.view.sub_scale)(block, g * self.subs() + j));
        if self.view.sc_bits > 0 {
            out.extend(subs().map(|s| (s.sc + i16::from(self.view.sc_offset)) as u8));
        }
        if self.view.m_bits > 0 {
            out.extend(subs().map(|s| s.m));
        }
    }

    fn pack_supers(&self, block: &[u8], out: &mut Vec<u32>) {
        let sub = |j: usize| (self.view.sub_scale)(block, j);
        match self.view.super_scale {
            SuperScale::F16 { factor } => out.push(u32::from(f16::from_f32(sub(0).d / factor).to_bits())),
            SuperScale::F32 => out.push(sub(0).d.to_bits()),
            SuperScale::E8M0 => out.push(e8m0_bits(sub(0).d)),
            SuperScale::Ue4m3 => {
                out.extend((0..self.supers_per_block()).map(|j| ue4m3_bits(sub(j).d)));
            }
        }
        if self.view.asymmetric {
            out.push(u32::from(f16::from_f32(sub(0).dmin).to_bits()));
        }
    }
}

fn pack_planes(bits: u8, q: impl Fn(usize) -> u32, out: &mut Vec<u32>) {
    let mut low = 0;
    for plane in planes(bits) {
        for j in 0..usize::from(plane) {
            let mut word = 0;
            for t in 0..usize::from(8 / plane) {
                for e in 0..4 {
                    let q = q(4 * (j + usize::from(plane) * t) + e) >> low & ((1 << plane) - 1);
                    word |= q << (8 * e + usize::from(plane) * t);
                }
            }
            out.push(word);
        }
        low += plane;
    }
}

/// Index bits above the eighth, `index_bits − 8` each, first index lowest.
fn high_bits(grid: &Grid, parts: &[(u16, u8)]) -> u32 {
    let bits = grid.index_bits.saturating_sub(8);
    parts.iter().rev().fold(0, |word, &(index, _)| word << bits | u32::from(index >> 8))
}

pub(super) fn has_signs(grid: &Grid) -> bool {
    matches!(grid.modifier, GridModifier::Signs { .. })
}

/// Whether a group has a word of high index bits (and of shifts, in its top bits).
pub(super) fn has_high(grid: &Grid) -> bool {
    grid.index_bits > 8 || !has_signs(grid)
}

/// The exponent byte of `2^(e − 128)`; `e = 0` is the subnormal `2^−128`.
fn e8m0_bits(d: f32) -> u32 {
    match d.to_bits() >> 23 {
        0 if d.to_bits() == 1 << 21 => 0,
        0 => 1,
        exponent => exponent + 1,
    }
}

/// The UE4M3 byte of twice `d` (the view halves it); 0 for 0.
fn ue4m3_bits(d: f32) -> u32 {
    let value = d + d;
    // Exponent 0 counts 2^−9; above, 1.mmm · 2^(e − 7).
    if value < f32::from_bits((127 - 6) << 23) {
        return (value * 512.0) as u32;
    }
    let bits = value.to_bits();
    ((bits >> 23) - 120) << 3 | bits >> 20 & 7
}
