//! Activations to int8, as [`hanzo_quant::canonical::quantize_group`] does it: the same bits.

use hanzo_quant::canonical::TINY;

use crate::kernel::{Builder, Kernel, KernelError, Val};

/// `codes[row, k/4]`, `d[row, k/32]` of `x[row, k]`; `n_groups` groups in all, rows one after the other.
///
/// # Errors
/// Never for widths that exist.
pub fn quantize_q8(subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "Eight lanes a group of 32, four elements a lane, one packed word each. Order: none (a maximum of bit patterns). \
               Bound: bytes of x, of which a quarter comes back as codes.";
    let k = Builder::new("quantize_q8", doc, subgroup * (256 / subgroup), subgroup);
    let (x, codes, d) = (k.input::<f32>("x"), k.output::<u32>("codes"), k.output::<f32>("d"));
    let n_groups = k.param::<u32>("n_groups");
    let word = k.workgroup_id(0) * k.workgroup() + k.local_id();
    let group = word >> 3;
    // Lanes beyond the last group compute the last one again, so that all take part in the maximum.
    let inside = group.lt(n_groups);
    let from = inside.select(word, (n_groups << 3) - 8 + (word & 7));
    let v = x.wide::<4>(from << 2);
    let (packed, scale) = quantize_word(v);
    k.when(inside, || {
        codes.set(word, packed);
        k.when((word & 7).eq(0), || d.set(group, scale));
    });
    k.finish()
}

/// Four elements of a group whose others the lanes of the same octet have, packed, and the group's scale. All of the subgroup take part.
#[track_caller]
pub(super) fn quantize_word(v: [Val<'_, f32>; 4]) -> (Val<'_, u32>, Val<'_, f32>) {
    let magnitude = |i: usize| v[i].bits() & 0x7fff_ffff;
    let mut amax = magnitude(0).max(magnitude(1)).max(magnitude(2).max(magnitude(3)));
    for mask in [4, 2, 1] {
        amax = amax.max(amax.shuffle_xor(mask));
    }
    let amax = amax.as_f32();
    let finite = amax.bits().lt(f32::INFINITY.to_bits());
    let zero = amax.lt(TINY) | !finite;
    let inv = zero.select(0.0, 127.0) / zero.select(1.0, amax);
    let code = |i: usize| {
        let q = zero.select(0.0, (v[i] * inv).round_even());
        q.i32().u32() & 0xff
    };
    let packed = (code(0) | (code(1) << 8)) | ((code(2) << 16) | (code(3) << 24));
    (packed, finite.select(zero.select(0.0, amax / 127.0), f32::NAN))
}
