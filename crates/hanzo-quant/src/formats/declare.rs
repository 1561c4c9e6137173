//! `quant_format!`: from one declaration to a [`Format`](crate::Format).
//!
//! A declaration says what the bytes are (`layout`), which integer an element is (`q`), and by which scale and min a
//! sub-block is multiplied (`scale`). All else follows: sizes, the integer view, and the decode, which evaluates
//!
//! ```text
//! value[i] = (d · sc) · code[i] − (dmin · m)
//! ```
//!
//! with every product and the difference rounded to f32. For all formats of GGUF these are the reference's bits:
//! where its order of operations differs, every product involved is exact.

use half::f16;

use crate::{Grid, GridModifier, SubScale};

/// A field of a block's layout: how many bytes it takes and what a declaration sees of it.
pub(super) trait Field<'a> {
    /// What the declaration's closures see.
    type View;
    /// Bytes of the field.
    const BYTES: usize;
    /// Splits the field off the front of `bytes`; `None` where they are too short.
    fn take(bytes: &mut &'a [u8]) -> Option<Self::View>;
}

fn take_array<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (head, tail) = bytes.split_first_chunk::<N>()?;
    *bytes = tail;
    Some(head)
}

impl<'a, const N: usize> Field<'a> for [u8; N] {
    type View = &'a [u8; N];
    const BYTES: usize = N;
    #[inline(always)]
    fn take(bytes: &mut &'a [u8]) -> Option<Self::View> {
        take_array(bytes)
    }
}

impl<'a> Field<'a> for u8 {
    type View = u8;
    const BYTES: usize = 1;
    #[inline(always)]
    fn take(bytes: &mut &'a [u8]) -> Option<u8> {
        take_array::<1>(bytes).map(|&[byte]| byte)
    }
}

/// Seen as the f32 of the same value.
impl<'a> Field<'a> for f16 {
    type View = f32;
    const BYTES: usize = 2;
    #[inline(always)]
    fn take(bytes: &mut &'a [u8]) -> Option<f32> {
        take_array(bytes).map(|&b| crate::f16_to_f32(f16::from_le_bytes(b)))
    }
}

impl<'a> Field<'a> for f32 {
    type View = f32;
    const BYTES: usize = 4;
    #[inline(always)]
    fn take(bytes: &mut &'a [u8]) -> Option<f32> {
        take_array(bytes).map(|&b| f32::from_le_bytes(b))
    }
}

/// `value = scale · code − min` over a block, one sub-block of `SUB` elements after the other.
#[inline(always)]
pub(super) fn values<const SUB: usize>(
    codes: &[i8],
    asymmetric: bool,
    scale: impl Fn(usize) -> SubScale,
    out: &mut [f32],
) {
    let sub_blocks = codes.as_chunks::<SUB>().0.iter().zip(out.as_chunks_mut::<SUB>().0);
    for (j, (codes, out)) in sub_blocks.enumerate() {
        let s = scale(j);
        let (scale, min) = (s.scale(), s.min());
        for (&code, out) in codes.iter().zip(out) {
            let product = scale * f32::from(code);
            *out = if asymmetric { product - min } else { product };
        }
    }
}

/// The elements are codes that stand alone: element `i` is `code(i)`.
#[inline(always)]
pub(super) fn each_code<const N: usize>(out: &mut [i8; N], code: impl Fn(usize) -> i8) {
    // Sixteen at a time without a loop (nor `array::from_fn`, which stays one): the compiler then sees that `i / 16`,
    // and all that follows from it, is the same for the sixteen, and loads, shifts and masks them together.
    for (run, out) in out.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        macro_rules! sixteen {
            ($($t:literal)+) => { [$(code(16 * run + $t)),+] };
        }
        *out = sixteen!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
}

/// The elements are entries of a codebook: group `g` is entry `index(g).0`, modified by the bits `index(g).1`.
#[inline(always)]
pub(super) fn each_group(grid: &Grid, out: &mut [i8], index: impl Fn(usize) -> (u16, u8)) {
    match grid.group {
        8 => each_group_of::<8>(grid, out, index),
        _ => each_group_of::<4>(grid, out, index),
    }
}

#[inline(always)]
fn each_group_of<const GROUP: usize>(grid: &Grid, out: &mut [i8], index: impl Fn(usize) -> (u16, u8)) {
    let entries = grid.table.as_chunks::<GROUP>().0;
    for (g, out) in out.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
        let (entry, bits) = index(g);
        // The indices have as many bits as the table has entries: none is out of range.
        let Some(entry) = entries.get(usize::from(entry)) else { continue };
        // A group of 4 is one half of the eight elements that share the bits.
        let bits = bits >> (g * GROUP % 8);
        for (t, (out, &value)) in out.iter_mut().zip(entry).enumerate() {
            *out = match grid.modifier {
                GridModifier::Signs { .. } if bits >> t & 1 == 1 => -value,
                GridModifier::Signs { .. } => value,
                GridModifier::Shift if bits & 1 == 1 => value - 1,
                GridModifier::Shift => value + 1,
            };
        }
    }
}

/// Declares one block format; see the module's doc and its neighbours for examples.
///
/// * `layout` lists the fields in file order: `u8`, `f16`, `f32` (seen as f32), `[u8; N]`.
/// * `linear(bits, offset)` or `table(bits, TABLE)`: `|b, i|` gives the unsigned integer `q` of element `i`.
///   `grid(GRID)`: `|b, g|` gives table index and modifier bits of group `g` ([`crate::IntView::grid_index`]).
/// * `scale(d: …, sc: (bits, offset), m: bits)`: `|b, j|` gives the [`SubScale`] of sub-block `j`.
macro_rules! quant_format {
    (
        $(#[doc = $doc:literal])+
        $name:ident = $id:literal, elems $elems:literal, sub_block $sub:literal,
        value = d * sc * q $(- dmin * $m:ident)?;
        layout { $($field:ident: $ty:ty),+ }
        scale(d: $super:expr, sc: ($sc_bits:literal, $sc_offset:literal), m: $m_bits:literal)
            |$sb:ident, $j:ident| $scale:expr;
        $kind:ident($($arg:tt)*) |$cb:ident, $i:ident| $code:expr;
    ) => {
        $(#[doc = $doc])+
        #[doc = concat!("\n\n`value = d·sc·q", $(" − dmin·", stringify!($m),)? "`; layout:")]
        #[doc = concat!($(" `", stringify!($field), ": ", stringify!($ty), "`"),+)]
        pub const $name: crate::Format = {
            use crate::formats::declare::Field;
            use crate::{Codes, SubScale, SuperScale};

            const BYTES: usize = 0 $(+ <$ty as Field<'static>>::BYTES)+;
            const LAYOUT: &str = concat!($(stringify!($field), ": ", stringify!($ty), ", "),+);
            const ASYMMETRIC: bool = crate::formats::declare::quant_format!(@present $($m)?);
            const CODES: Codes = crate::formats::declare::quant_format!(@codes $kind($($arg)*));

            #[allow(dead_code)] // a declaration need not read every field (Q8_K's and Q8_1's sums)
            struct Block<'a> {
                $($field: <$ty as Field<'a>>::View,)+
            }

            impl<'a> Block<'a> {
                #[inline(always)]
                fn read(mut bytes: &'a [u8]) -> Option<Self> {
                    if bytes.len() != BYTES {
                        debug_assert!(false, "a block of {BYTES} bytes, got {}", bytes.len());
                        return None;
                    }
                    Some(Block { $($field: <$ty as Field<'a>>::take(&mut bytes)?,)+ })
                }
            }

            #[inline(always)]
            fn scale_of($sb: &Block<'_>, $j: usize) -> SubScale {
                $scale
            }

            #[inline(always)]
            fn codes_of(block: &Block<'_>, out: &mut [i8; $elems]) {
                crate::formats::declare::quant_format!(@read $kind($($arg)*) block, out, |$cb, $i| $code)
            }

            fn read_codes(block: &[u8], out: &mut [i8]) {
                debug_assert_eq!(out.len(), $elems);
                if let (Some(block), Some(out)) = (Block::read(block), out.first_chunk_mut()) {
                    codes_of(&block, out);
                }
            }

            fn sub_scale(block: &[u8], j: usize) -> SubScale {
                debug_assert!(j < $elems / $sub);
                Block::read(block).map_or(SubScale::symmetric(0.0, 0), |block| scale_of(&block, j))
            }

            fn grid_index(block: &[u8], g: usize) -> (u16, u8) {
                crate::formats::declare::quant_format!(@index $kind Block<'_>, block, g, |$cb, $i| $code)
            }

            fn decode(bytes: &[u8], out: &mut [f32]) {
                debug_assert_eq!((bytes.len() / BYTES, bytes.len() % BYTES), (out.len() / $elems, out.len() % $elems));
                for (block, out) in bytes.chunks_exact(BYTES).zip(out.chunks_exact_mut($elems)) {
                    let Some(block) = Block::read(block) else { return };
                    let mut codes = [0i8; $elems];
                    codes_of(&block, &mut codes);
                    crate::formats::declare::values::<$sub>(&codes, ASYMMETRIC, |j| scale_of(&block, j), out);
                }
            }

            crate::Format {
                name: stringify!($name),
                id: $id,
                elems: $elems,
                bytes: BYTES,
                doc: concat!($($doc),+),
                layout: LAYOUT.split_at(LAYOUT.len() - 2).0,
                decode,
                int: Some(crate::IntView {
                    sub_block: $sub,
                    codes: CODES,
                    super_scale: $super,
                    asymmetric: ASYMMETRIC,
                    sc_bits: $sc_bits,
                    sc_offset: $sc_offset,
                    m_bits: $m_bits,
                    read_codes,
                    sub_scale,
                    grid_index,
                }),
            }
        };
    };

    (@present) => { false };
    (@present $m:ident) => { true };

    (@codes linear($bits:literal, $offset:literal)) => { Codes::Linear { bits: $bits, offset: $offset } };
    (@codes table($bits:literal, $table:path)) => { Codes::Table { bits: $bits, table: &$table } };
    (@codes grid($grid:path)) => { Codes::Grid($grid) };

    (@read linear($bits:literal, $offset:literal) $block:ident, $out:ident, |$b:ident, $i:ident| $code:expr) => {{
        let $b = $block;
        crate::formats::declare::each_code($out, |$i| {
            let q: u8 = $code;
            q.wrapping_sub($offset) as i8
        })
    }};
    (@read table($bits:literal, $table:path) $block:ident, $out:ident, |$b:ident, $i:ident| $code:expr) => {{
        let $b = $block;
        crate::formats::declare::each_code($out, |$i| {
            let q: u8 = $code;
            $table[usize::from(q & ((1 << $bits) - 1))]
        })
    }};
    (@read grid($grid:path) $block:ident, $out:ident, |$b:ident, $g:ident| $code:expr) => {{
        let $b = $block;
        const GRID: &crate::Grid = &$grid;
        crate::formats::declare::each_group(GRID, $out, |$g| $code)
    }};

    (@index grid $Block:ty, $block:ident, $g:ident, |$b:ident, $i:ident| $code:expr) => {{
        let Some(block) = <$Block>::read($block) else { return (0, 0) };
        let ($b, $i) = (&block, $g);
        $code
    }};
    (@index $kind:ident $Block:ty, $block:ident, $g:ident, |$b:ident, $i:ident| $code:expr) => {{
        let _ = ($block, $g);
        (0, 0)
    }};
}
pub(super) use quant_format;
