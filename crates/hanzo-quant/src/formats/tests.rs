//! Every format against the reference's values, and its integer view against its decode.

use std::path::PathBuf;

use proptest::prelude::*;

use crate::{Codes, GridModifier, QuantType, SuperScale, decode_row};

/// Encoded blocks and the values that the reference decodes them to (see `tests/data/README.md`).
fn oracle(name: &str) -> Option<(Vec<u8>, Vec<u32>)> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name.to_lowercase());
    let bytes = std::fs::read(path.with_extension("bin")).ok()?;
    let values = std::fs::read(path.with_extension("f32")).unwrap();
    Some((bytes, values.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect()))
}

fn decode(ty: QuantType, bytes: &[u8]) -> Vec<f32> {
    let mut out = vec![f32::NAN; bytes.len() / ty.block_bytes() * ty.block_elems()];
    decode_row(ty, bytes, &mut out).unwrap();
    out
}

/// How many elements differ in their bits: those that are numbers, and those that are NaN on both sides.
fn differences(got: &[f32], expected: &[u32]) -> (usize, usize) {
    assert_eq!(got.len(), expected.len());
    let differing = got.iter().zip(expected).filter(|&(g, &e)| g.to_bits() != e);
    let (nans, bad): (Vec<_>, Vec<_>) =
        differing.partition(|&(g, &e)| g.is_nan() && f32::from_bits(e).is_nan());
    (bad.len(), nans.len())
}

fn check_against_reference(ty: QuantType) {
    let Some((bytes, expected)) = oracle(ty.name()) else {
        // F32 is its own reference; the reference has no decoder of Q8_1, an activation format.
        assert!(matches!(ty.name(), "F32" | "Q8_1"), "{ty}: no reference values");
        return;
    };
    assert!(!expected.is_empty());
    assert_eq!(differences(&decode(ty, &bytes), &expected), (0, 0), "{ty}");
    check_view(ty, &bytes);
}

/// The integer view of whole blocks says what decode says, and keeps the promises that packers rely on.
fn check_view(ty: QuantType, bytes: &[u8]) {
    let Some(view) = ty.format().int else { return };
    let (elems, sub) = (ty.block_elems(), view.sub_block);
    assert!(sub == 16 || sub == 32, "{ty}");
    assert_eq!(elems % sub, 0, "{ty}");
    for (block, expected) in bytes.chunks_exact(ty.block_bytes()).zip(decode(ty, bytes).chunks_exact(elems)) {
        let mut codes = vec![0x55; elems];
        (view.read_codes)(block, &mut codes);
        let mut values = vec![0.0; elems];
        for (i, value) in values.iter_mut().enumerate() {
            let s = (view.sub_scale)(block, i / sub);
            *value = s.scale() * f32::from(codes[i]);
            if view.asymmetric {
                *value -= s.min();
            }
        }
        let expected: Vec<u32> = expected.iter().map(|v| v.to_bits()).collect();
        // Where a super-scale is NaN or infinite, compilers may choose the sign and payload of the NaN.
        let (bad, _nans) = differences(&values, &expected);
        assert_eq!(bad, 0, "{ty}: view and decode");
        check_scales(ty, block);
        check_codes(ty, block, &codes);
    }
}

fn check_scales(ty: QuantType, block: &[u8]) {
    let view = ty.format().int.unwrap();
    let first = (view.sub_scale)(block, 0);
    for j in 0..ty.block_elems() / view.sub_block {
        let s = (view.sub_scale)(block, j);
        if view.super_scale != SuperScale::Ue4m3 {
            assert_eq!(s.d.to_bits(), first.d.to_bits(), "{ty}: one d a block");
        }
        assert_eq!(s.dmin.to_bits(), first.dmin.to_bits(), "{ty}: one dmin a block");
        if view.sc_bits == 0 {
            assert_eq!(s.sc, 1, "{ty}");
        } else {
            assert!(
                (0..1 << view.sc_bits).contains(&(s.sc + i16::from(view.sc_offset))),
                "{ty}: sc {}",
                s.sc
            );
        }
        match (view.asymmetric, view.m_bits) {
            (false, _) => assert_eq!((s.dmin, s.m), (0.0, 0), "{ty}"),
            (true, 0) => assert_eq!(s.m, 1, "{ty}"),
            (true, bits) => assert!(u16::from(s.m) < 1 << bits, "{ty}"),
        }
    }
}

fn check_codes(ty: QuantType, block: &[u8], codes: &[i8]) {
    let view = ty.format().int.unwrap();
    match view.codes {
        Codes::Linear { bits, offset } => {
            let q = |c: i8| i16::from(c) + i16::from(offset);
            assert!(codes.iter().all(|&c| (0..1 << bits).contains(&q(c))), "{ty}: codes within {bits} bits");
        }
        Codes::Table { bits, table } => {
            assert!(codes.iter().all(|c| table[..1 << bits].contains(c)), "{ty}: codes of the table");
            assert!(table[1 << bits..].iter().all(|&v| v == table[0]), "{ty}: padding of the table");
        }
        Codes::Grid(grid) => {
            let group = usize::from(grid.group);
            assert_eq!(grid.table.len(), group << grid.index_bits, "{ty}");
            for (i, &code) in codes.iter().enumerate() {
                let (index, bits) = (view.grid_index)(block, i / group);
                assert!(u32::from(index) < 1 << grid.index_bits, "{ty}");
                let entry = grid.table[usize::from(index) * group + i % group];
                let expected = match grid.modifier {
                    GridModifier::Signs { free } => {
                        assert!(free || bits.count_ones() % 2 == 0, "{ty}: parity");
                        if bits >> (i % 8) & 1 == 1 { -entry } else { entry }
                    }
                    GridModifier::Shift if bits & 1 == 1 => entry - 1,
                    GridModifier::Shift => entry + 1,
                };
                assert_eq!(code, expected, "{ty}: element {i}");
            }
        }
    }
}

macro_rules! per_format {
    ($($name:ident)+) => {
        $(
            #[allow(non_snake_case)]
            mod $name {
                use super::*;

                #[test]
                fn decodes_as_the_reference() {
                    check_against_reference(QuantType::$name);
                }

                #[test]
                fn view_holds_for_extreme_bytes() {
                    let bytes = QuantType::$name.block_bytes();
                    for byte in [0x00, 0xff, 0x7f, 0x80, 0x55, 0xaa] {
                        check_view(QuantType::$name, &vec![byte; bytes]);
                    }
                }

                proptest! {
                    #[test]
                    fn view_holds_for_any_bytes(
                        bytes in prop::collection::vec(any::<u8>(), 4 * QuantType::$name.block_bytes())
                    ) {
                        check_view(QuantType::$name, &bytes);
                    }
                }
            }
        )+
    };
}
crate::for_each_quant!(per_format);
