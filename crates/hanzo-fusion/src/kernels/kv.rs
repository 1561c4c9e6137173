//! The paged KV cache: how keys and values lie, and how a step's are written.
//!
//! A block holds [`BLOCK_TOKENS`] tokens of every head:
//!
//! ```text
//! keys      [block][kv head][k_head_dim][16 tokens]    transposed: neighbouring invocations have neighbouring keys
//! values    [block][kv head][16 tokens][v_head_dim]    neighbouring invocations have neighbouring elements
//! scales    [block][kv head][16 tokens]                f32, of int8 keys and values each
//! ```

use hanzo_quant::canonical::TINY;
use hanzo_quant::f16;

use crate::kernel::{Array, Builder, Combine, Elem, F16, IntoVal, Kernel, KernelError, Val};
use crate::step::{BLOCK_TOKENS, KvType};

/// Tokens of a block.
pub(super) const TOKENS: u32 = BLOCK_TOKENS as u32;

/// Invocations of a workgroup.
const WORKGROUP: u32 = 64;

/// The slot of a token that is not to be written.
pub const NO_SLOT: u32 = u32::MAX;

/// The shape of a layer's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvShape {
    /// Elements.
    pub kv_type: KvType,
    /// Heads of keys and values.
    pub n_kv_heads: u32,
    /// Elements of a key.
    pub k_dim: u32,
    /// Elements of a value.
    pub v_dim: u32,
}

/// What kernels do with a type of the cache.
pub(super) trait Kind: Copy {
    /// As kernels' names have it.
    fn name(self) -> &'static str;
    /// A cache that is only read.
    fn input<'k>(self, k: &'k Builder, name: &str) -> Cache<'k>;
    /// A cache that is written.
    fn output<'k>(self, k: &'k Builder, name: &str) -> Cache<'k>;
}

impl Kind for KvType {
    fn name(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Int8 => "int8",
            Self::F32 => "f32",
        }
    }

    fn input<'k>(self, k: &'k Builder, name: &str) -> Cache<'k> {
        match self {
            Self::F16 => Cache::Half(k.input(name)),
            Self::Int8 => Cache::Byte(k.input_small(name, Elem::U8)),
            Self::F32 => Cache::Float(k.input(name)),
        }
    }

    fn output<'k>(self, k: &'k Builder, name: &str) -> Cache<'k> {
        match self {
            Self::F16 => Cache::Half(k.output(name)),
            Self::Int8 => Cache::Byte(k.output_small(name, Elem::U8)),
            Self::F32 => Cache::Float(k.output(name)),
        }
    }
}

/// Cached elements in memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cache<'k> {
    Half(Array<'k, F16>),
    Byte(Array<'k, u32>),
    Float(Array<'k, f32>),
}

impl<'k> Cache<'k> {
    /// Element `index` as f32; of bytes without their scale.
    #[track_caller]
    pub(super) fn at(self, index: Val<'k, u32>) -> Val<'k, f32> {
        match self {
            Self::Half(a) => a.at(index).f32(),
            Self::Byte(a) => ((a.at(index) << 24).i32() >> 24).f32(),
            Self::Float(a) => a.at(index),
        }
    }
}

/// Writes a step's keys and values into their blocks.
///
/// Buffers: `k` `[T, n_kv_heads · k_dim]`, `v` `[T, n_kv_heads · v_dim]`, `slots` `[T]` (block · 16 + place in it; [`NO_SLOT`] for none),
/// `keys`, `values`, and of int8 `key_scales` and `value_scales`. Grid: `[n_kv_heads, T]`.
///
/// Halves are rounded to nearest even, the largest one standing for what is beyond it. Bytes are `round(x · 127 / amax)` of a head with scale
/// `amax / 127`; zero where amax counts as zero, and a NaN scale where it is not finite.
///
/// # Errors
/// Never for widths that exist.
pub fn kv_write(shape: KvShape, subgroup: u32) -> Result<Kernel, KernelError> {
    let KvShape { kv_type, n_kv_heads, k_dim, v_dim } = shape;
    let doc =
        "One workgroup a token's head. Order: none (a maximum of bit patterns). Bound: bytes of k and v.";
    let k = Builder::new(&format!("kv_write_{}", kv_type.name()), doc, WORKGROUP, subgroup);
    let (new_k, new_v, slots) = (k.input::<f32>("k"), k.input::<f32>("v"), k.input::<u32>("slots"));
    let (keys, values) = (kv_type.output(&k, "keys"), kv_type.output(&k, "values"));
    let scales = (kv_type == KvType::Int8).then(|| {
        let most = k.shared::<u32>("most", 2 * (WORKGROUP / subgroup));
        (k.output::<f32>("key_scales"), k.output::<f32>("value_scales"), most)
    });
    let (head, token) = (k.workgroup_id(0), k.workgroup_id(1));
    let slot = slots.at(token);
    k.when(slot.ne(NO_SLOT), || {
        let (block, place) = (slot / TOKENS, slot % TOKENS);
        let (record, from) = (block * n_kv_heads + head, token * n_kv_heads + head);
        let scale = |i: u32| {
            let (key, value, most) = scales?;
            let scales = if i == 0 { key } else { value };
            Some(Scale { to: scales, at: record * TOKENS + place, most, first: i * (WORKGROUP / subgroup) })
        };
        let first = record * (k_dim * TOKENS) + place;
        write_head(&k, (new_k, from * k_dim), k_dim, (keys, first, TOKENS), scale(0));
        let first = (record * TOKENS + place) * v_dim;
        write_head(&k, (new_v, from * v_dim), v_dim, (values, first, 1), scale(1));
    });
    k.finish()
}

/// Where the scale of a head goes, and workgroup memory for finding it.
struct Scale<'k> {
    to: Array<'k, f32>,
    at: Val<'k, u32>,
    most: Array<'k, u32>,
    first: u32,
}

/// `to[first + d·stride] = x[from + d]`.
fn write_head<'k>(
    k: &'k Builder,
    (x, from): (Array<'k, f32>, Val<'k, u32>),
    dim: u32,
    (to, first, stride): (Cache<'k>, Val<'k, u32>, u32),
    scale: Option<Scale<'k>>,
) {
    let at = |d: Val<'k, u32>| first + d * stride;
    match (to, scale) {
        (Cache::Float(to), _) => k.each(dim, |d| to.set(at(d), x.at(from + d))),
        (Cache::Half(to), _) => {
            let limit = f32::from(f16::MAX);
            k.each(dim, |d| {
                let v = (-limit).val(k).max(limit.val(k).min(x.at(from + d)));
                to.set(at(d), v.f16());
            });
        }
        (Cache::Byte(to), Some(scale)) => {
            let most = k.reg::<u32>(0);
            k.each(dim, |d| most.set(most.get().max(x.at(from + d).bits() & 0x7fff_ffff)));
            let amax = greatest(k, most.get(), &scale).as_f32();
            let finite = amax.bits().lt(f32::INFINITY.to_bits());
            let zero = amax.lt(TINY) | !finite;
            let inv = zero.select(0.0, 127.0) / zero.select(1.0, amax);
            k.each(dim, |d| {
                let code = zero.select(0.0, (x.at(from + d) * inv).round_even());
                to.set(at(d), code.i32().u32());
            });
            k.when(k.local_id().eq(0), || {
                scale.to.set(scale.at, finite.select(zero.select(0.0, amax / 127.0), f32::NAN));
            });
        }
        (Cache::Byte(_), None) => {}
    }
}

/// The greatest of the workgroup's values. One barrier.
fn greatest<'k>(k: &'k Builder, v: Val<'k, u32>, scale: &Scale<'k>) -> Val<'k, u32> {
    let v = v.subgroup(Combine::Max);
    k.when(k.lane().eq(0), || scale.most.set(k.subgroup_id() + scale.first, v));
    k.barrier();
    (0..k.workgroup() / k.subgroup()).fold(0.val(k), |most, i| most.max(scale.most.at(scale.first + i)))
}
