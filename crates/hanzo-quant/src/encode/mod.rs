//! Encoders: f32 rows to blocks of a format.
//!
//! Every encoder minimizes `Σᵢ wᵢ (xᵢ − x̂ᵢ)²` over its block, where `x̂` is what the crate's decode makes of the bytes and
//! `w` is the importance of the element's column (1 without importance). The searches are deterministic, run one block
//! at a time and know nothing of other rows: a caller threads by handing out slices of rows.
//!
//! One family a file; what they share is in `scale` (symmetric codes), `affine` (codes with an offset), `envelope` and `grid`
//! (codebooks of vectors). Files, mixes of types and progress are the caller's.

mod affine;
mod block;
mod bytes;
mod envelope;
mod error;
mod fp4;
mod grid;
mod iq;
mod iq4;
mod k;
mod legacy;
mod scale;
mod table;
mod ternary;

use crate::{QuantType, bf16, f16};
use bytes::Writer;
pub use error::EncodeError;

/// Encodes one block: as many values (and weights) as the format's block has, into as many bytes. For F32, F16 and BF16,
/// any number of values.
type EncodeBlock = fn(&[f32], Option<&[f32]>, &mut Writer<'_>);

/// How a format is encoded, and the largest magnitude that it holds whatever the signs of its neighbours.
struct Encoder {
    block: EncodeBlock,
    limit: f32,
}

/// The encoder of a format.
fn encoder(ty: QuantType) -> Option<Encoder> {
    const F16_MAX: f32 = 65504.0;
    let scaled = |block: EncodeBlock, reach: f32| Some(Encoder { block, limit: reach * F16_MAX });
    match ty {
        QuantType::F32 => Some(Encoder { block: float_32, limit: f32::MAX }),
        // The largest numbers that do not round to infinity.
        QuantType::F16 => Some(Encoder { block: float_16, limit: 65520f32.next_down() }),
        QuantType::BF16 => Some(Encoder { block: bfloat_16, limit: f32::from_bits(0x7f7f_7fff) }),
        QuantType::Q4_0 => scaled(legacy::q4_0, 7.0),
        QuantType::Q4_1 => scaled(legacy::q4_1, 1.0),
        QuantType::Q5_0 => scaled(legacy::q5_0, 15.0),
        QuantType::Q5_1 => scaled(legacy::q5_1, 1.0),
        QuantType::Q8_0 => scaled(legacy::q8_0, 127.0),
        QuantType::Q2_K => scaled(k::q2_k, 15.0),
        QuantType::Q3_K => scaled(k::q3_k, 31.0 * 3.0),
        QuantType::Q4_K => scaled(k::q4_k, 63.0),
        QuantType::Q5_K => scaled(k::q5_k, 63.0),
        QuantType::Q6_K => scaled(k::q6_k, 127.0 * 31.0),
        QuantType::IQ1_S => scaled(iq::iq1_s, 7.0 / 8.0 * 15.0),
        QuantType::IQ1_M => scaled(iq::iq1_m, 7.0 / 8.0 * 15.0),
        QuantType::IQ2_XXS => scaled(iq::iq2_xxs, 43.0 / 8.0 * 31.0),
        QuantType::IQ2_XS => scaled(iq::iq2_xs, 43.0 / 8.0 * 31.0),
        QuantType::IQ2_S => scaled(iq::iq2_s, 43.0 / 8.0 * 31.0),
        QuantType::IQ3_XXS => scaled(iq::iq3_xxs, 62.0 / 4.0 * 31.0),
        QuantType::IQ3_S => scaled(iq::iq3_s, 15.0 * 31.0),
        QuantType::IQ4_NL => scaled(legacy::iq4_nl, 113.0),
        QuantType::IQ4_XS => scaled(iq4::iq4_xs, 31.0 * 113.0),
        QuantType::TQ1_0 => scaled(ternary::tq1_0, 1.0),
        QuantType::TQ2_0 => scaled(ternary::tq2_0, 1.0),
        QuantType::MXFP4 => Some(Encoder { block: fp4::mxfp4, limit: f32::MAX }),
        QuantType::NVFP4 => Some(Encoder { block: fp4::nvfp4, limit: 448.0 * 6.0 }),
        QuantType::Q1_0 => scaled(legacy::q1_0, 1.0),
        QuantType::Q2_0 => scaled(legacy::q2_0, 1.0),
        _ => None,
    }
}

/// Whether [`encode_rows`] can produce this format.
pub fn encodable(ty: QuantType) -> bool {
    encoder(ty).is_some()
}

/// Whether a model in this format is usually poor unless its encoder knew the importance of each column (formats of fewer
/// than 2.5 bits a weight whose codes come from a codebook). Encoding works without.
pub fn wants_importance(ty: QuantType) -> bool {
    matches!(ty, QuantType::IQ1_S | QuantType::IQ1_M | QuantType::IQ2_XXS | QuantType::IQ2_XS)
}

/// Encodes rows of `n_per_row` values each, one row after the other, into `out`.
///
/// `importance`, one weight a column, says how much the squared error of an element counts; only ratios within a block
/// matter. `out` must have exactly the bytes of all rows ([`QuantType::row_bytes`] times the number of rows).
///
/// # Errors
/// Any [`EncodeError`]; all input is checked before the first byte is written.
pub fn encode_rows(
    ty: QuantType,
    values: &[f32],
    n_per_row: usize,
    importance: Option<&[f32]>,
    out: &mut [u8],
) -> Result<(), EncodeError> {
    let encoder = encoder(ty).ok_or(EncodeError::NotEncodable { ty })?;
    let (elems, bytes) = (ty.block_elems(), ty.block_bytes());
    if !n_per_row.is_multiple_of(elems) {
        return Err(EncodeError::RaggedRow { ty, n_per_row, block: elems });
    }
    if !values.len().is_multiple_of(n_per_row) {
        return Err(EncodeError::PartialRow { len: values.len(), n_per_row });
    }
    let expected = ty.row_bytes(values.len()).unwrap_or(usize::MAX);
    if out.len() != expected {
        return Err(EncodeError::OutputLength { ty, expected, found: out.len() });
    }
    check(ty, values, n_per_row, importance, encoder.limit)?;
    // Plain numbers have no blocks: a row is as good.
    let (elems, bytes) =
        if ty.is_float() { (n_per_row.max(1), n_per_row.max(1) * bytes) } else { (elems, bytes) };
    for (i, (x, block)) in values.chunks_exact(elems).zip(out.chunks_exact_mut(bytes)).enumerate() {
        let column = i * elems % n_per_row;
        let mut writer = Writer::new(block);
        (encoder.block)(x, importance.map(|w| &w[column..column + elems]), &mut writer);
        debug_assert_eq!(writer.left(), 0, "{ty}");
    }
    Ok(())
}

fn check(
    ty: QuantType,
    values: &[f32],
    n_per_row: usize,
    importance: Option<&[f32]>,
    limit: f32,
) -> Result<(), EncodeError> {
    if let Some(index) = values.iter().position(|v| !v.is_finite() || v.abs() > limit) {
        let value = values[index];
        return Err(if value.is_finite() {
            EncodeError::OutOfRange { ty, index, value, limit }
        } else {
            EncodeError::NotFinite { index, value }
        });
    }
    let Some(importance) = importance else { return Ok(()) };
    if importance.len() != n_per_row {
        return Err(EncodeError::ImportanceLength { expected: n_per_row, found: importance.len() });
    }
    match importance.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
        Some(index) => Err(EncodeError::ImportanceValue { index, value: importance[index] }),
        None => Ok(()),
    }
}

fn float_32(x: &[f32], _: Option<&[f32]>, out: &mut Writer<'_>) {
    for v in x {
        out.bytes(&v.to_le_bytes());
    }
}

fn float_16(x: &[f32], _: Option<&[f32]>, out: &mut Writer<'_>) {
    for &v in x {
        out.bytes(&f16::from_f32(v).to_le_bytes());
    }
}

fn bfloat_16(x: &[f32], _: Option<&[f32]>, out: &mut Writer<'_>) {
    for &v in x {
        out.bytes(&bf16::from_f32(v).to_le_bytes());
    }
}
