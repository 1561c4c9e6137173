//! What is written is what is read: any metadata, any tensors, in memory and on disk, whole and split.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use std::fs;

use hanzo_gguf::{Error, GgufFile, GgufWriter, MetadataValue, TensorType, Value, merge, split};
use proptest::collection::vec;
use proptest::prelude::*;

/// A value to write, and how it must look when it is read.
fn value() -> impl Strategy<Value = (MetadataValue, String)> {
    macro_rules! scalar_and_array {
        ($ty:ty, $variant:ident) => {
            prop_oneof![
                any::<$ty>().prop_map(|v| (v.into(), format!("{:?}", Value::$variant(v)))),
                vec(any::<$ty>(), 0..20).prop_map(|v| (
                    v.as_slice().into(),
                    v.iter().map(|v| format!("{:?};", Value::$variant(*v))).collect()
                )),
            ]
        };
    }
    prop_oneof![
        scalar_and_array!(u8, U8),
        scalar_and_array!(i8, I8),
        scalar_and_array!(u16, U16),
        scalar_and_array!(i16, I16),
        scalar_and_array!(u32, U32),
        scalar_and_array!(i32, I32),
        scalar_and_array!(u64, U64),
        scalar_and_array!(i64, I64),
        scalar_and_array!(f32, F32),
        scalar_and_array!(f64, F64),
        scalar_and_array!(bool, Bool),
        vec(any::<u8>(), 0..40)
            .prop_map(|v| (MetadataValue::byte_string(&v), format!("{:?}", Value::String(&v)))),
        vec(vec(any::<u8>(), 0..12), 0..40).prop_map(|v| {
            (MetadataValue::strings(&v), v.iter().map(|v| format!("{:?};", Value::String(v))).collect())
        }),
    ]
}

fn seen(value: Value<'_>) -> String {
    match value {
        Value::Array(array) => array.iter().map(|value| format!("{value:?};")).collect(),
        value => format!("{value:?}"),
    }
}

fn tensor() -> impl Strategy<Value = (TensorType, Vec<u64>)> {
    let shape = (1u64..4, vec(1u64..4, 0..4));
    (proptest::sample::select(TensorType::ALL), shape).prop_map(|(ty, (blocks, rest))| {
        (ty, std::iter::once(blocks * ty.block_elems()).chain(rest.into_iter().take(3)).collect())
    })
}

/// A file to write, its keys as they must be read, and the bytes of its tensors.
#[derive(Debug)]
struct Model {
    writer: GgufWriter,
    keys: Vec<(String, String)>,
    tensors: Vec<(TensorType, Vec<u64>)>,
    data: Vec<Vec<u8>>,
    version: u32,
    alignment: u32,
}

fn model() -> impl Strategy<Value = Model> {
    let keys = vec(("[a-z.]{1,12}|\\PC{1,8}", value()), 0..12);
    (keys, vec(tensor(), 0..8), 0u32..9, 2u32..=3).prop_map(|(entries, tensors, align_log2, version)| {
        let alignment = 1 << align_log2;
        let mut writer = GgufWriter::new();
        writer.set_version(version).unwrap().set_alignment(alignment).unwrap();
        let mut keys = vec![("general.alignment".to_owned(), format!("{:?}", Value::U32(alignment)))];
        for (key, (value, look)) in entries {
            writer.set(&key, value).unwrap();
            match keys.iter_mut().find(|(there, _)| *there == key) {
                Some((_, there)) => *there = look,
                None => keys.push((key, look)),
            }
        }
        let mut data = Vec::new();
        for (i, (ty, dims)) in tensors.iter().enumerate() {
            assert_eq!(writer.tensor(&format!("tensor {i}"), *ty, dims).unwrap(), i);
            data.push(vec![i as u8 + 1; ty.tensor_bytes(dims).unwrap() as usize]);
        }
        Model { writer, keys, tensors, data, version, alignment }
    })
}

proptest! {
    #[test]
    fn written_is_read(model in model()) {
        let file = GgufFile::from_bytes(model.writer.to_bytes(&model.data).unwrap()).unwrap();
        let keys: Vec<_> = file.metadata().iter().map(|item| (item.key.to_owned(), seen(item.value))).collect();
        prop_assert_eq!(keys, model.keys);
        prop_assert_eq!((file.version(), file.alignment()), (model.version, model.alignment));
        prop_assert_eq!(file.tensors().len(), model.tensors.len());
        for ((tensor, (ty, dims)), data) in file.tensors().iter().zip(&model.tensors).zip(&model.data) {
            prop_assert_eq!((tensor.ty(), tensor.dims()), (*ty, dims.as_slice()));
            prop_assert_eq!(tensor.offset() % u64::from(model.alignment), 0);
            prop_assert_eq!(file.tensor_bytes(tensor).unwrap(), data.as_slice());
        }
    }
}

proptest! {
    // Each case waits for the disk a dozen times.
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn streamed_cut_and_merged_it_is_the_same(model in model()) {
        let Model { writer, data, version, .. } = model;
        let bytes = writer.to_bytes(&data).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.gguf");
        let mut out = writer.create(&path).unwrap();
        for part in 0..3 {
            for (i, data) in data.iter().enumerate().rev() {
                let cut = |k: usize| data.len() * k / 3;
                out.append(i, &data[cut(part)..cut(part + 1)]).unwrap();
            }
        }
        prop_assert!(!path.exists());
        out.finish().unwrap();
        prop_assert_eq!(&fs::read(&path).unwrap(), &bytes);
        prop_assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);

        let shards = split(&GgufFile::open(&path).unwrap(), folder.path(), "s", 1 << 12, |_| ()).unwrap();
        merge(&GgufFile::open(shards.last().unwrap()).unwrap(), &path, |_| ()).unwrap();
        let mut merged = fs::read(&path).unwrap();
        // Merged files are written as version 3.
        merged[4] = version as u8;
        prop_assert_eq!(merged, bytes);
    }
}

#[test]
fn an_array_of_arrays_passes_through() {
    let inner = |n: u32| {
        let head = [&4u32.to_le_bytes()[..], &1u64.to_le_bytes(), &n.to_le_bytes()];
        head.concat()
    };
    // Only a file can hold one; the writer copies it.
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend([0u64.to_le_bytes(), 1u64.to_le_bytes()].concat());
    bytes.extend([&1u64.to_le_bytes()[..], b"k", &9u32.to_le_bytes(), &9u32.to_le_bytes()].concat());
    bytes.extend([&2u64.to_le_bytes()[..], &inner(5), &inner(6)].concat());
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    let file = GgufFile::from_bytes(bytes.clone()).unwrap();
    let mut writer = GgufWriter::new();
    writer.copy_metadata(file.metadata()).unwrap();
    assert_eq!(writer.to_bytes::<&[u8]>(&[]).unwrap(), bytes);
}

#[test]
fn an_unfinished_file_leaves_nothing_and_harms_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    fs::write(&path, "old").unwrap();
    let mut writer = GgufWriter::new();
    let w = writer.tensor("w", TensorType::F32, &[4]).unwrap();
    let mut out = writer.create(&path).unwrap();
    out.append(w, &[0; 12]).unwrap();
    let error = out.finish().unwrap_err();
    assert!(matches!(error.root(), Error::Unwritable { .. }), "{error:?}");
    assert!(error.to_string().contains("12 bytes given; it has 16"), "{error}");
    drop(writer.create(&path).unwrap());
    let mut out = writer.create(&path).unwrap();
    assert!(out.append(w, &[0; 17]).is_err());
    assert!(out.append(1, &[]).is_err());
    drop(out);
    assert_eq!(fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    // Into a folder that is not there, or onto one that is.
    assert!(writer.create(folder.path().join("no/m.gguf")).is_err());
    assert!(writer.create(folder.path()).is_err());
    assert!(writer.create("/").is_err());
}

#[test]
fn what_no_reader_would_take_is_not_written() {
    let mut writer = GgufWriter::new();
    for key in ["", "a\0", &"k".repeat(1 << 16)] {
        assert!(matches!(writer.set(key, 1u8), Err(Error::Unwritable { .. })));
    }
    for alignment in [0, 3, 1 << 31] {
        assert!(writer.set_alignment(alignment).is_err());
    }
    assert!(writer.set("general.alignment", 32u64).is_err());
    assert!(writer.set_version(1).is_err());
    for (name, dims) in
        [("", &[1][..]), ("a\0", &[1]), (&"n".repeat(129), &[1]), ("a", &[]), ("a", &[1; 5]), ("a", &[0])]
    {
        assert!(matches!(writer.tensor(name, TensorType::F32, dims), Err(Error::Unwritable { .. })));
    }
    assert!(writer.tensor("a", TensorType::Q4_0, &[33]).is_err());
    assert!(writer.tensor("a", TensorType::F32, &[u64::MAX, 2]).is_err());
    writer.tensor("a", TensorType::I8, &[1 << 62]).unwrap();
    writer.tensor("b", TensorType::I8, &[1 << 62]).unwrap();
    assert!(writer.tensor("a", TensorType::I8, &[1]).is_err());
    assert!(writer.create("x.gguf").is_err());

    let mut writer = GgufWriter::new();
    writer.set("long", "x".repeat(33 << 20)).unwrap();
    assert!(writer.to_bytes::<&[u8]>(&[]).is_err());
}

#[test]
fn keys_can_be_replaced_and_removed_in_place() {
    let mut writer = GgufWriter::new();
    for key in ["a", "b", "c", "d"] {
        writer.set(key, key).unwrap();
    }
    assert!(writer.remove("b") && !writer.remove("b"));
    writer.set("c", 7u8).unwrap().set("b", 1i64).unwrap().set("a", 2u8).unwrap();
    assert_eq!(writer.keys().collect::<Vec<_>>(), ["a", "c", "d", "b"]);
    let file = GgufFile::from_bytes(writer.to_bytes::<&[u8]>(&[]).unwrap()).unwrap();
    assert_eq!(file.metadata().required_u8("c").unwrap(), 7);
    assert_eq!(file.metadata().required_str("d").unwrap(), "d");
}
