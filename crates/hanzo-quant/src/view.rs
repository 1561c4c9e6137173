//! What a block format is, to those who compute with it: its sizes, its exact decode, and its *integer view*.
//!
//! Every quantized format of GGUF is, per sub-block `j` of `sub_block` consecutive elements,
//!
//! ```text
//! value[i] = scale(j) · code[i] − min(j)        scale(j) = d · sc(j)      min(j) = dmin · m(j)
//! ```
//!
//! with small integers `code`, `sc`, `m` and one or two floating-point super-scales a block. A device that
//! multiplies integers needs nothing else: [`IntView`] says how wide the codes are and how they may be stored, and
//! hands out the parts. Devices are generic over this view; none of them names a format.

/// How the codes of a format are stored, which tells a device how it may pack them.
#[derive(Clone, Copy, Debug)]
pub enum Codes {
    /// `code = q − offset`, with `q` an unsigned integer of `bits` bits (1..=8).
    Linear {
        /// Bits of `q`.
        bits: u8,
        /// What is subtracted from `q`.
        offset: u8,
    },
    /// `code = table[q]`, with `q` an unsigned integer of `bits` bits (1..=4); unused entries repeat entry 0.
    Table {
        /// Bits of `q`.
        bits: u8,
        /// The codes that `q` stands for.
        table: &'static [i8; 16],
    },
    /// `code[i] = sign(i) · table[index(i / group)][i % group]`: a codebook of vectors.
    Grid(Grid),
}

/// A codebook of small vectors, addressed by an index a group, with signs or a shift beside it.
#[derive(Clone, Copy, Debug)]
pub struct Grid {
    /// Elements a table entry stands for: 4 or 8.
    pub group: u8,
    /// Bits of an index: 8 to 11.
    pub index_bits: u8,
    /// The table: entry `e`, element `t` is `table[e * group + t]`, the code's magnitude (or, with
    /// [`GridModifier::Shift`], the code before the shift).
    pub table: &'static [i8],
    /// What is applied to a table entry.
    pub modifier: GridModifier,
}

/// What turns a codebook entry into codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridModifier {
    /// One sign bit an element: `code = bit ? −entry : entry`. `free` is false where only 7 of 8 signs are stored
    /// and the eighth makes the parity of the eight even.
    Signs {
        /// Whether all eight signs of eight elements are independent.
        free: bool,
    },
    /// One bit an index group of 8: `code = entry + (bit ? −1 : +1)` (entries are multiples of 8: IQ1's delta of 1/8).
    Shift,
}

/// Where the super-scale `d` of a block comes from: what a device has to keep to rebuild it exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SuperScale {
    /// Little-endian f16 bits, times a power of two (`d = f16 · factor`; `factor` is exact in f32).
    F16 {
        /// A power of two.
        factor: f32,
    },
    /// f32 bits (Q8_K).
    F32,
    /// One E8M0 exponent byte (MXFP4): `d = 2^(e − 128)` with the codes doubled.
    E8M0,
    /// No block-wide `d`; every sub-block has its own UE4M3 byte (NVFP4), already halved.
    Ue4m3,
}

/// The scales of one sub-block, in parts: `scale = d·sc`, `min = dmin·m`, each product rounded once to f32.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SubScale {
    /// Super-scale, the block's (or for [`SuperScale::Ue4m3`] the sub-block's).
    pub d: f32,
    /// Integer scale (1 where the format has none).
    pub sc: i16,
    /// Super-scale of the mins; 0 for symmetric formats.
    pub dmin: f32,
    /// Integer min (1 for formats whose min is a float of its own, 0 for symmetric ones).
    pub m: u8,
}

impl SubScale {
    /// The scale `d·sc`, without a min.
    #[inline]
    pub const fn symmetric(d: f32, sc: i16) -> Self {
        Self { d, sc, dmin: 0.0, m: 0 }
    }
    /// The same scale, and the min `dmin·m`.
    #[inline]
    pub const fn with_min(self, dmin: f32, m: u8) -> Self {
        Self { dmin, m, ..self }
    }
    /// `d · sc`, rounded once.
    #[inline]
    pub fn scale(self) -> f32 {
        self.d * f32::from(self.sc)
    }
    /// `dmin · m`, rounded once.
    #[inline]
    pub fn min(self) -> f32 {
        self.dmin * f32::from(self.m)
    }
}

/// The integer view of a block format (see the module's doc).
#[derive(Clone, Copy, Debug)]
pub struct IntView {
    /// Elements of a sub-block: 16 or 32 (formats with one scale for 64, 128 or 256 elements declare 32).
    pub sub_block: usize,
    /// How codes are stored.
    pub codes: Codes,
    /// How the block's `d` (and `dmin`, always f16 with factor ±1 where present) is stored.
    pub super_scale: SuperScale,
    /// Whether there are mins (`value = d·sc·q − dmin·m`).
    pub asymmetric: bool,
    /// Bits that an integer sub-block scale needs: `sc + sc_offset` fits in `sc_bits` unsigned bits; 0 where `sc` is
    /// always 1. Mins, where asymmetric, need `m_bits` (0 where `m` is always 1).
    pub sc_bits: u8,
    /// Added to `sc` to make it unsigned.
    pub sc_offset: u8,
    /// Bits of the integer min.
    pub m_bits: u8,
    /// Writes the `elems` codes of a block (after table, signs, offset: the integers that are multiplied).
    pub read_codes: fn(block: &[u8], out: &mut [i8]),
    /// Scale and min of sub-block `j`.
    pub sub_scale: fn(block: &[u8], j: usize) -> SubScale,
    /// For [`Codes::Grid`]: the table index of group `g`, and the modifier bits of the *eight* elements that hold group
    /// `g` (8 sign bits, bit `t` for element `t` of the eight; or bit 0 set for a shift of −1). Others: returns (0, 0).
    pub grid_index: fn(block: &[u8], g: usize) -> (u16, u8),
}

/// A block format: sizes and exact decode. Listed by [`crate::for_each_quant!`]; found by [`crate::QuantType::format`].
#[derive(Clone, Copy, Debug)]
pub struct Format {
    /// Name as GGUF tools print it ("Q4_K").
    pub name: &'static str,
    /// GGUF type id.
    pub id: u32,
    /// Elements of a block.
    pub elems: usize,
    /// Bytes of a block.
    pub bytes: usize,
    /// What the format is, in a sentence.
    pub doc: &'static str,
    /// The fields of a block in file order, little-endian: "d: f16, qs: [u8; 16]".
    pub layout: &'static str,
    /// Exact decode of whole blocks (`to_float`, bit-exact against ggml's): `n·bytes` bytes to `n·elems` values.
    /// Lengths are the caller's promise; [`crate::decode_row`] is the checked way in.
    pub decode: fn(block: &[u8], out: &mut [f32]),
    /// `None` for F32, F16 and BF16, which are contracted in floating point.
    pub int: Option<IntView>,
}
