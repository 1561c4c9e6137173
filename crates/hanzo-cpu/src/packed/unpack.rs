//! Reading the packed layout back, portably: the definition that the vector paths are tested against, the scalar core's unpack stage, and
//! single rows.

use half::{bf16, f16};

use super::FloatKind;
use super::layout::{LANES, Layout, QUAD_BYTES, QUADS, Super, UNIT, read_planes};

/// Scales (and mins) of a group: `[sub-block][row]`, products rounded as the canonical order has them.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct Scales {
    pub(crate) scale: [[f32; LANES]; 16],
    pub(crate) min: [[f32; LANES]; 16],
}

/// Width of the integer scales of formats whose super-scale is an f16 and that have none, where vector paths are generic over it.
pub(crate) const PLAIN: u32 = 0;
/// The same for any format: all scales are computed when a group begins.
pub(crate) const ANY: u32 = u32::MAX;
/// The same for formats whose only scales are E8M0 bytes, and UE4M3 bytes.
pub(crate) const E8M0: u32 = u32::MAX - 1;
pub(crate) const UE4M3: u32 = u32::MAX - 2;

impl Default for Scales {
    fn default() -> Self {
        Scales { scale: [[0.0; LANES]; 16], min: [[0.0; LANES]; 16] }
    }
}

/// Element `lane` of a run of 16 floats.
pub(crate) fn float(kind: FloatKind, values: &[u8], lane: usize) -> f32 {
    match kind {
        FloatKind::F32 => f32::from_le_bytes(read(values, lane)),
        FloatKind::F16 => f16::from_le_bytes(read(values, lane)).to_f32(),
        FloatKind::Bf16 => bf16::from_le_bytes(read(values, lane)).to_f32(),
    }
}

fn read<const N: usize>(bytes: &[u8], index: usize) -> [u8; N] {
    bytes.as_chunks::<N>().0.get(index).copied().unwrap_or([0; N])
}

/// `2^(e − 128)`, exactly (the two lowest are subnormal).
pub(crate) fn e8m0(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}

/// Half the UE4M3 number `s`; the top bit is ignored, 0 and 0x7f are 0.
pub(crate) fn ue4m3_half(s: u8) -> f32 {
    let s = s & 0x7f;
    let (e, man) = (s >> 3, f32::from(s & 7));
    if s == 0x7f {
        0.0
    } else if e == 0 {
        man / 1024.0
    } else {
        // (1 + man/8) · 2^(e − 7) / 2
        (8.0 + man) / 8.0 * f32::from_bits((u32::from(e) + 127 - 8) << 23)
    }
}

/// The number whose half is `d`: what [`ue4m3_half`] reads. Its bits are those of an f32 whose exponent is 119 less, moved down.
pub(crate) fn ue4m3_of_half(d: f32) -> u8 {
    ((d * f32::from_bits((127 - 119) << 23)).to_bits() >> 20) as u8
}

fn super_scale(layout: &Layout, group: &[u8], index: usize) -> f32 {
    match layout.super_scale {
        Super::F16 { factor } => f16::from_le_bytes(read(group, index)).to_f32() * factor,
        Super::F32 => f32::from_le_bytes(read(group, index)),
        Super::E8M0 => e8m0(group.get(index).copied().unwrap_or(0)),
        Super::Ue4m3 => ue4m3_half(group.get(index).copied().unwrap_or(0)),
    }
}

/// Scale and min of sub-block `j`, row `lane`, of a group of `elems` elements.
fn sub_scale(layout: &Layout, group: &[u8], elems: usize, j: usize, lane: usize) -> (f32, f32) {
    let at = layout.group(elems);
    let subs = elems / layout.sub;
    let block = j * layout.sub / layout.super_elems;
    let d = super_scale(layout, group, block * LANES + lane);
    let planes = |from: usize, bits: u32| {
        i32::from(read_planes(group.get(from..).unwrap_or(&[]), bits, subs, LANES, j, lane))
    };
    let sc = if layout.sc_bits == 0 { 1 } else { planes(at.sc, layout.sc_bits) - layout.sc_offset };
    let min = if layout.asymmetric {
        let dmin =
            f16::from_le_bytes(read(group.get(at.dmin..).unwrap_or(&[]), block * LANES + lane)).to_f32();
        let m = if layout.m_bits == 0 { 1 } else { planes(at.m, layout.m_bits) };
        dmin * m as f32
    } else {
        0.0
    };
    (d * sc as f32, min)
}

/// All scales of a group.
pub(crate) fn scales(layout: &Layout, group: &[u8], elems: usize, out: &mut Scales) {
    for (j, (scale, min)) in out.scale.iter_mut().zip(&mut out.min).take(elems / layout.sub).enumerate() {
        for (lane, (scale, min)) in scale.iter_mut().zip(min).enumerate() {
            (*scale, *min) = sub_scale(layout, group, elems, j, lane);
        }
    }
}

/// Unsigned codes of unit `unit` of a group: `[quad][row][element]`.
pub(crate) fn unit(
    layout: &Layout,
    group: &[u8],
    elems: usize,
    unit: usize,
    out: &mut [[u8; QUAD_BYTES]; QUADS],
) {
    let start = layout.group(elems).codes + unit * layout.unit_bytes();
    let planes = group.get(start..).unwrap_or(&[]);
    for (i, quad) in out.iter_mut().enumerate() {
        for (at, u) in quad.iter_mut().enumerate() {
            *u = stored(layout, planes, i, at);
        }
    }
}

/// The unsigned code of byte `at` of quad `i` of a unit.
#[inline]
fn stored(layout: &Layout, planes: &[u8], i: usize, at: usize) -> u8 {
    let q = read_planes(planes, layout.bits, QUADS, QUAD_BYTES, i, at);
    layout.table.map_or(q, |t| t[usize::from(q & 15)])
}

/// Values of row `lane` of a group, `out.len()` of them.
pub(crate) fn group_row(layout: &Layout, group: &[u8], lane: usize, out: &mut [f32]) {
    let elems = out.len();
    for (u, out) in out.chunks_mut(UNIT).enumerate() {
        let start = layout.group(elems).codes + u * layout.unit_bytes();
        let planes = group.get(start..).unwrap_or(&[]);
        for (s, out) in out.chunks_mut(layout.sub).enumerate() {
            let (scale, min) = sub_scale(layout, group, elems, u * UNIT / layout.sub + s, lane);
            for (t, out) in out.iter_mut().enumerate() {
                let k = s * layout.sub + t;
                let code = i32::from(stored(layout, planes, k / 4, 4 * lane + k % 4)) - layout.offset;
                let product = scale * code as f32;
                *out = if layout.asymmetric { product - min } else { product };
            }
        }
    }
}

/// Compares `read`, which is given a layout, a group of it (and its offsets and elements), with [`scales`], for all formats.
#[cfg(test)]
pub(super) fn check_scales(read: impl Fn(&Layout, &super::layout::GroupLayout, &[u8], usize, &mut Scales)) {
    use crate::numeric::{Random, weights};

    let pool = crate::pool::Pool::new(1).unwrap();
    let mut rng = Random(1);
    for &ty in hanzo_quant::QuantType::ALL {
        let format = ty.format();
        for k in [format.elems.max(32), 256] {
            let raw = weights(format, 16 * k, &mut rng);
            let w = super::PackedMatrix::pack(format, 16, k, &raw[..], &pool, None).unwrap();
            let super::Kind::Int(layout) = w.kind() else { continue };
            let at = layout.group(k);
            // SAFETY: one whole group.
            let group = unsafe { std::slice::from_raw_parts(w.tile(0, 0), at.bytes) };
            let (mut want, mut got) = (Scales::default(), Scales::default());
            scales(layout, group, k, &mut want);
            read(layout, &at, group, k, &mut got);
            assert_eq!((got.scale, got.min), (want.scale, want.min), "{ty} {k}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ue4m3_leads_back() {
        for s in 0..0x7f {
            assert_eq!(ue4m3_of_half(ue4m3_half(s)), s);
        }
    }
}
