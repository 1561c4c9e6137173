//! The packed layout family: how the integers of any block format lie in memory for the cores.
//!
//! A *tile* is 16 weight rows over the whole of k; tiles follow one another. A tile is a run of *groups* of 256 elements of k (the last may
//! be shorter, for formats with blocks below 256), a group is
//!
//! ```text
//! d      16 rows × blocks of the group            f16, f32 or one byte, as the file has them
//! dmin   16 rows × blocks of the group            f16, asymmetric formats only
//! sc     sub-blocks × 16 rows, bit planes         integer scales, where the format has them
//! m      sub-blocks × 16 rows, bit planes         integer mins, likewise
//! codes  units of 32 elements × 16 rows, bit planes
//! ```
//!
//! padded to 32 bytes. A *unit* of codes is eight *quads*: quad `i` is elements `4i..4i + 4` of 16 rows, one 32-bit lane a row, what one
//! `vpdpbusd` eats. Numbers of `b` bits are split into planes of 8, 4, 2 and 1 bits. For `n` items (quads, sub-blocks) of `w` bytes (64; 16), a
//! plane of `p` bits takes `n·p/8` words of `w` bytes; item `i` is in word `i mod (n·p/8)`, shifted left by `p·(i div (n·p/8))`. So a quad is one load, one
//! shift and one mask a plane, and nothing is stored that the file does not store.
//!
//! Codes are kept unsigned, `u = code + offset`. Codes that come from a table or a codebook are kept as an index into the table of
//! the distinct values (up to 16), which cores look up with one byte shuffle. For the codebook formats (IQ1 to IQ3) this is wider than the file's
//! index and sign bits, and needs no gather; `docs/levers.md` has the reckoning.

use hanzo_quant::{Codes, Format, GridModifier, IntView, SuperScale};

use crate::CpuError;

/// Of the layout as a whole: raised when the packed bytes of any format change, so that bytes kept from before are not read
/// (`exec::pack_cache`). A test knows the bytes of each version.
pub(crate) const LAYOUT_VERSION: u32 = 1;

/// Rows of a tile: the 32-bit lanes of the widest vector.
pub(crate) const LANES: usize = 16;
/// Elements of k in a unit of codes.
pub(crate) const UNIT: usize = 32;
/// Elements of k in a group.
pub(crate) const GROUP_ELEMS: usize = 256;
/// Quads of a unit.
pub(crate) const QUADS: usize = 8;
/// Bytes of a quad of 16 rows.
pub(crate) const QUAD_BYTES: usize = 4 * LANES;

/// The planes that numbers of `bits` bits are split into: their widths, lowest bits first.
pub(crate) const fn plane_widths(bits: u32) -> &'static [u32] {
    match bits {
        1 => &[1],
        2 => &[2],
        3 => &[2, 1],
        4 => &[4],
        5 => &[4, 1],
        6 => &[4, 2],
        7 => &[4, 2, 1],
        8 => &[8],
        _ => &[],
    }
}

/// How `d` is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Super {
    /// f16 bits, times a power of two.
    F16 { factor: f32 },
    /// f32 bits.
    F32,
    /// E8M0 byte, `2^(e − 128)`.
    E8M0,
    /// UE4M3 byte a sub-block, halved.
    Ue4m3,
}

/// The layout of one format: everything that a core needs to know about it.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) format: &'static Format,
    pub(crate) view: &'static IntView,
    /// Bits of a stored code (or table index).
    pub(crate) bits: u32,
    /// Table of unsigned codes, for formats that have one.
    pub(crate) table: Option<[u8; 16]>,
    /// `code = u − offset`.
    pub(crate) offset: i32,
    /// Elements of a sub-block: 16 or 32.
    pub(crate) sub: usize,
    /// Whether there are mins.
    pub(crate) asymmetric: bool,
    pub(crate) super_scale: Super,
    /// Elements under one `d`.
    pub(crate) super_elems: usize,
    pub(crate) sc_bits: u32,
    pub(crate) sc_offset: i32,
    pub(crate) m_bits: u32,
}

/// Byte offsets inside a group of `elems` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupLayout {
    pub(crate) dmin: usize,
    pub(crate) sc: usize,
    pub(crate) m: usize,
    pub(crate) codes: usize,
    pub(crate) bytes: usize,
}

impl Layout {
    /// The layout of `format`, which must have an integer view.
    pub(crate) fn new(format: &'static Format) -> Result<Self, CpuError> {
        let refuse = |why: &str| CpuError::Format { format: format.name, why: why.to_owned() };
        let view = format.int.as_ref().ok_or_else(|| refuse("it has no integer view"))?;
        let (bits, table, offset) = match view.codes {
            Codes::Linear { bits, offset } => (u32::from(bits), None, i32::from(offset)),
            Codes::Table { bits, table } => {
                // In the file's order, so that what is stored is what the file stores.
                let low = table.iter().copied().min().map_or(0, i32::from);
                (u32::from(bits), Some(table.map(|v| (i32::from(v) - low) as u8)), -low)
            }
            Codes::Grid(grid) => {
                let values = grid.table.iter().flat_map(|&v| match grid.modifier {
                    GridModifier::Signs { .. } => [v, v.wrapping_neg()],
                    GridModifier::Shift => [v.wrapping_sub(1), v.wrapping_add(1)],
                });
                tabulate(values.collect())
                    .ok_or_else(|| refuse("its codebook has more than 16 distinct codes"))?
            }
        };
        if plane_widths(bits).is_empty() {
            return Err(refuse("its codes are wider than a byte"));
        }
        let (super_scale, super_elems) = match view.super_scale {
            SuperScale::F16 { factor } => (Super::F16 { factor }, format.elems),
            SuperScale::F32 => (Super::F32, format.elems),
            SuperScale::E8M0 => (Super::E8M0, format.elems),
            SuperScale::Ue4m3 => (Super::Ue4m3, view.sub_block),
        };
        let layout = Layout {
            format,
            view,
            bits,
            table,
            offset,
            sub: view.sub_block,
            asymmetric: view.asymmetric,
            super_scale,
            super_elems,
            sc_bits: view.sc_bits.into(),
            sc_offset: view.sc_offset.into(),
            m_bits: view.m_bits.into(),
        };
        let scaled = layout.sc_bits > 0 || layout.m_bits > 0;
        if !matches!(layout.sub, 16 | 32)
            || !GROUP_ELEMS.is_multiple_of(format.elems)
            || layout.super_elems < 16
        {
            return Err(refuse("its blocks do not tile groups of 256"));
        }
        if scaled && format.elems != GROUP_ELEMS {
            return Err(refuse("integer scales need blocks of 256"));
        }
        if (layout.sc_bits > 0 && plane_widths(layout.sc_bits).is_empty()) || layout.m_bits > 8 {
            return Err(refuse("its integer scales are wider than a byte"));
        }
        Ok(layout)
    }

    /// Bytes of a unit of codes.
    pub(crate) fn unit_bytes(&self) -> usize {
        QUAD_BYTES * self.bits as usize
    }

    /// Bytes of one `d`.
    pub(crate) fn super_bytes(&self) -> usize {
        match self.super_scale {
            Super::F16 { .. } => 2,
            Super::F32 => 4,
            Super::E8M0 | Super::Ue4m3 => 1,
        }
    }

    /// Offsets inside a group of `elems` elements, a multiple of 32 up to 256.
    pub(crate) fn group(&self, elems: usize) -> GroupLayout {
        let supers = elems / self.super_elems * LANES;
        let subs = elems / self.sub;
        let planes = |bits: u32| subs * LANES * bits as usize / 8;
        let dmin = supers * self.super_bytes();
        let sc = dmin + if self.asymmetric { 2 * supers } else { 0 };
        let m = sc + planes(self.sc_bits);
        let codes = m + planes(self.m_bits);
        let bytes = (codes + elems / UNIT * self.unit_bytes()).next_multiple_of(32);
        GroupLayout { dmin, sc, m, codes, bytes }
    }

    /// Bytes of a tile of 16 rows of `k` elements; `None` on overflow.
    pub(crate) fn tile_bytes(&self, k: usize) -> Option<usize> {
        let whole = (k / GROUP_ELEMS).checked_mul(self.group(GROUP_ELEMS).bytes)?;
        let rest = k % GROUP_ELEMS;
        whole.checked_add(if rest == 0 { 0 } else { self.group(rest).bytes })
    }
}

/// Bits, unsigned table and offset for these distinct codes; `None` where they are more than 16. The table is sorted; unused entries repeat
/// the first.
fn tabulate(mut values: Vec<i8>) -> Option<(u32, Option<[u8; 16]>, i32)> {
    values.sort_unstable();
    values.dedup();
    let low = i32::from(*values.first()?);
    if values.len() > 16 {
        return None;
    }
    let mut table = [0u8; 16];
    for (slot, &v) in table.iter_mut().zip(&values) {
        *slot = u8::try_from(i32::from(v) - low).ok()?;
    }
    let bits = values.len().next_power_of_two().trailing_zeros().max(1);
    Some((bits, Some(table), -low))
}

/// Reads item `i` of `n` items of `w` bytes, byte `at`, out of bit planes. The portable reader, and the definition.
pub(crate) fn read_planes(planes: &[u8], bits: u32, n: usize, w: usize, i: usize, at: usize) -> u8 {
    let (mut value, mut base, mut low) = (0, 0, 0);
    for &p in plane_widths(bits) {
        let words = n * p as usize / 8;
        let byte = planes.get(base + i % words * w + at).copied().unwrap_or(0);
        let mask = ((1u32 << p) - 1) as u8;
        value |= (byte >> (p * (i / words) as u32) & mask) << low;
        base += words * w;
        low += p;
    }
    value
}

/// Writes what [`read_planes`] reads; the planes must be zero before.
#[cfg(test)]
pub(crate) fn write_planes(planes: &mut [u8], bits: u32, n: usize, w: usize, i: usize, at: usize, value: u8) {
    let (mut base, mut low) = (0, 0);
    for &p in plane_widths(bits) {
        let words = n * p as usize / 8;
        let mask = ((1u32 << p) - 1) as u8;
        if let Some(byte) = planes.get_mut(base + i % words * w + at) {
            *byte |= (value >> low & mask) << (p * (i / words) as u32);
        }
        base += words * w;
        low += p;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hanzo_quant::QuantType;

    #[test]
    fn planes_hold_what_was_written() {
        for bits in 1..=8u32 {
            for (n, w) in [(8, 64), (8, 16), (16, 16)] {
                let mut planes = vec![0; n * w * bits as usize / 8];
                let value = |i: usize, at: usize| ((i * 37 + at * 11) as u32 % (1 << bits)) as u8;
                for i in 0..n {
                    (0..w).for_each(|at| write_planes(&mut planes, bits, n, w, i, at, value(i, at)));
                }
                for i in 0..n {
                    (0..w).for_each(|at| assert_eq!(read_planes(&planes, bits, n, w, i, at), value(i, at)));
                }
            }
        }
    }

    /// Packed bytes against file bytes, where the codes are plain numbers: the same, but for padding of a group.
    #[test]
    fn packed_size_is_the_file_size() {
        for &ty in QuantType::ALL {
            let format = ty.format();
            let Some(view) = &format.int else { continue };
            let layout = Layout::new(format).unwrap();
            let file = 16 * 4096 / format.elems * format.bytes;
            let packed = layout.tile_bytes(4096).unwrap();
            let allowed = match view.codes {
                Codes::Linear { .. } | Codes::Table { .. } => 1.04,
                Codes::Grid(_) => 2.1,
            };
            let ratio = packed as f64 / file as f64;
            // TQ1_0 packs five trits in a byte and Q8_1 and Q8_K carry sums that the cores do not need.
            assert!(ratio <= allowed || ty.name() == "TQ1_0", "{ty}: {ratio}");
        }
    }
}
