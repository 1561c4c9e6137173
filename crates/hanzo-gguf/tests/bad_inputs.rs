//! The robustness list for containers, case by case. Each file is tried from memory and from disk, and must give
//! the same typed error both ways.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use common::{Raw, array, string};
use hanzo_gguf::{Error, GgufFile, limits};

/// The error of opening `bytes`, from memory and from a file alike.
fn refused(bytes: &[u8]) -> Error {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bad.gguf");
    std::fs::write(&path, bytes).unwrap();
    let from_file = GgufFile::open(&path).unwrap_err();
    assert!(from_file.to_string().contains("bad.gguf"), "no file name: {from_file}");
    let from_memory = GgufFile::from_bytes(bytes.to_vec()).unwrap_err();
    assert_eq!(from_memory.to_string(), from_file.root().to_string());
    from_memory
}

macro_rules! assert_refused {
    ($bytes:expr, $pattern:pat $(if $guard:expr)?) => {{
        let error = refused($bytes.as_ref());
        assert!(matches!(&error, $pattern $(if $guard)?), "{error:?}");
        error.to_string()
    }};
}

#[test]
fn the_good_file_is_good() {
    let file = GgufFile::from_bytes(Raw::good().build()).unwrap();
    assert_eq!(file.metadata().len(), 6);
    assert_eq!(file.tensors().len(), 2);
}

#[test]
fn case_01_short_files_and_every_cut_of_the_header() {
    assert_refused!(b"", Error::TooShort { len: 0 });
    assert_refused!(b"GGUF", Error::TooShort { len: 4 });
    assert_refused!(&Raw::good().build()[..23], Error::TooShort { len: 23 });
    let good = Raw::good();
    let (whole, header) = (good.build(), good.header().len());
    for len in 0..header {
        let error = refused(&whole[..len]);
        let right = match len {
            0..24 => matches!(error, Error::TooShort { .. }),
            _ => matches!(error, Error::Truncated { .. } | Error::ImpossibleCount { .. }),
        };
        assert!(right, "cut at {len}: {error:?}");
    }
    // Cut in the data: the tensor that is not whole is named.
    for len in header..whole.len() {
        assert_refused!(&whole[..len], Error::OutOfFile { .. });
    }
}

#[test]
fn case_02_magic_and_version() {
    for (magic, name) in [(b"GGML", "GGML"), (b"lmgg", "GGML"), (b"GGJT", "GGJT"), (b"tjgg", "GGJT")] {
        let bad = Raw { magic: *magic, ..Raw::good() };
        let message = assert_refused!(bad.build(), Error::BadMagic { .. });
        assert!(message.contains(name), "{message}");
    }
    for version in [0, 1, 4, u32::MAX] {
        let bad = Raw { version: version.to_le_bytes(), ..Raw::good() };
        assert_refused!(bad.build(), Error::UnsupportedVersion { version: v } if *v == version);
    }
    for version in [2, 3u32] {
        let bad = Raw { version: version.to_be_bytes(), ..Raw::good() };
        let message = assert_refused!(bad.build(), Error::BigEndian { version: v } if *v == version);
        assert!(message.contains("big-endian"));
        let good = Raw { version: version.to_le_bytes(), ..Raw::good() };
        assert_eq!(GgufFile::from_bytes(good.build()).unwrap().version(), version);
    }
}

#[test]
fn case_03_impossible_counts() {
    for count in [1 << 63, 1 << 32, u64::MAX, limits::MAX_TENSORS + 1] {
        let bad = Raw { n_tensors: Some(count), ..Raw::good() };
        assert_refused!(bad.build(), Error::Limit { offset: 8, value, .. } if *value == count);
        let bad = Raw { n_keys: Some(count), ..Raw::good() };
        assert_refused!(bad.build(), Error::Limit { offset: 16, value, .. } if *value == count);
    }
    let size = Raw::good().build().len() as u64;
    let bad = Raw { n_tensors: Some(size / 33), ..Raw::good() };
    assert_refused!(bad.build(), Error::ImpossibleCount { what: "tensors", offset: 8, .. });
    let bad = Raw { n_keys: Some(size / 14), ..Raw::good() };
    assert_refused!(bad.build(), Error::ImpossibleCount { what: "metadata keys", offset: 16, .. });
    // One more than there are, in a file that could hold them: the next thing read makes no sense.
    let bad = Raw { n_keys: Some(7), ..Raw::good() };
    refused(&bad.build());
}

#[test]
fn case_04_lengths_of_keys_and_strings() {
    let base = Raw::new().header().len() as u64;
    for len in [u64::MAX, 1 << 63, 1 << 30] {
        let key = [&len.to_le_bytes()[..], &[b'k'; 60]].concat();
        assert_refused!(
            Raw::new().raw_key(&key).build(),
            Error::Truncated { what: "a metadata key", offset, need, .. } if *offset == base + 8 && *need == len
        );
        let value = [&len.to_le_bytes()[..], b"text"].concat();
        assert_refused!(
            Raw::new().key("k", 8, &value).build(),
            Error::Truncated { what: "a metadata string", need, .. } if *need == len
        );
        let strings = array(8, 2, &value);
        assert_refused!(
            Raw::new().key("k", 9, &[strings, vec![0; 16]].concat()).build(),
            Error::Truncated { .. }
        );
    }
    // One byte more than remains.
    let mut bytes = Raw::new().key("k", 8, &string("text")).header();
    let at = bytes.len() - 12;
    bytes[at] += 1;
    assert_refused!(bytes, Error::Truncated { need: 5, have: 4, .. });
    // A length that the file could hold but no key has.
    let key = vec![b'k'; limits::MAX_KEY_BYTES as usize + 1];
    let message = assert_refused!(Raw::new().key(&key, 0, &[1]).build(), Error::Limit { .. });
    assert!(message.contains("a metadata key at byte 24 is 65536; the limit is 65535"), "{message}");
    let name = vec![b'n'; limits::MAX_TENSOR_NAME_BYTES as usize + 1];
    assert_refused!(
        Raw::new().tensor(&name, &[1], 0, 0).data(4).build(),
        Error::Limit { what: "a tensor name", value: 129, limit: 128, .. }
    );
}

#[test]
fn case_05_arrays() {
    for ty in [0, 1, 4, 8, 9, 12] {
        assert_refused!(
            Raw::new().key("k", 9, &array(ty, 1 << 62, &[0; 64])).build(),
            Error::ImpossibleCount { what: "array elements", count: 0x4000_0000_0000_0000, .. }
        );
    }
    // Nested 10 000 deep.
    let mut nested = Vec::new();
    for _ in 0..10_000 {
        nested.extend(array(9, 1, &[]));
    }
    nested.extend(array(0, 0, &[]));
    assert_refused!(Raw::new().key("deep", 9, &nested).build(), Error::ArrayDepth { key, .. } if key == "deep");
    for ty in [13, 14, 99, u32::MAX] {
        assert_refused!(Raw::new().key("k", ty, &[0; 16]).build(), Error::BadValueType { id, .. } if *id == ty);
        assert_refused!(
            Raw::new().key("k", 9, &array(ty, 1, &[0; 16])).build(),
            Error::BadValueType { id, offset: 37, .. } if *id == ty
        );
        let inner = array(ty, 1, &[0; 16]);
        assert_refused!(Raw::new().key("k", 9, &array(9, 1, &inner)).build(), Error::BadValueType { .. });
    }
    // As deep as is allowed is well.
    let mut nested = array(4, 1, &7u32.to_le_bytes());
    for _ in 1..limits::MAX_ARRAY_DEPTH {
        nested = array(9, 1, &nested);
    }
    let file = GgufFile::from_bytes(Raw::new().key("k", 9, &nested).build()).unwrap();
    assert_eq!(file.metadata().get("k").unwrap().to_string(), "[[[[7]]]]");
    assert_refused!(Raw::new().key("k", 9, &array(9, 1, &nested)).build(), Error::ArrayDepth { .. });
    assert_refused!(Raw::new().key("k", 7, &[2]).build(), Error::BadBool { value: 2, .. });
    assert_refused!(
        Raw::new().key("k", 9, &array(7, 3, &[0, 1, 255])).build(),
        Error::BadBool { value: 255, offset: 51, .. }
    );
}

#[test]
fn case_06_keys_and_names() {
    for (key, expected) in [
        (&b""[..], "is empty"),
        (b"\xff\xfe", "is not UTF-8"),
        (b"a\0b", "contains a NUL character"),
        (b"\0", "contains a NUL character"),
    ] {
        let bad = Raw::new().key(key, 0, &[1]).key("pad", 10, &[0; 8]);
        assert_refused!(bad.build(), Error::BadKey { index: 0, offset: 32, problem } if *problem == expected);
        let bad = Raw::new().tensor(key, &[8], 0, 0).data(32);
        assert_refused!(bad.build(), Error::BadTensorName { index: 0, problem, .. } if *problem == expected);
    }
    let bad = Raw::new().key("a", 0, &[1]).key("b", 0, &[1]).key("a", 1, &[2]);
    let message =
        assert_refused!(bad.build(), Error::DuplicateKey { key, offset: 60, first: 32 } if key == "a");
    assert!(message.contains("`a` at byte 60 repeats the one at byte 32"), "{message}");
}

#[test]
fn case_07_alignment() {
    let with =
        |ty, value: &[u8]| Raw::new().key("general.alignment", ty, value).tensor("t", &[1], 0, 0).data(4);
    for value in [0, 3, 24, 1 << 31, u32::MAX, limits::MAX_ALIGNMENT * 2] {
        let message = assert_refused!(with(4, &value.to_le_bytes()).build(), Error::BadAlignment { .. });
        assert!(message.contains(&format!("u32 {value}")), "{message}");
    }
    let wrong: [(u32, &[u8], &str); 5] = [
        (5, &32i32.to_le_bytes(), "i32 32"),
        (6, &32f32.to_le_bytes(), "f32 32"),
        (8, &string("32"), "string"),
        (9, &array(4, 1, &32u32.to_le_bytes()), "array"),
        (10, &32u64.to_le_bytes(), "u64 32"),
    ];
    for (ty, value, found) in wrong {
        let message = assert_refused!(with(ty, value).build(), Error::BadAlignment { .. });
        assert!(message.contains(found), "{message}");
    }
    for align in [1, 8, 64, 4096u32] {
        let good = Raw { align: align as usize, ..with(4, &align.to_le_bytes()) };
        let file = GgufFile::from_bytes(good.build()).unwrap();
        assert_eq!(file.alignment(), align);
        assert_eq!(file.tensor_bytes(&file.tensors()[0]).unwrap(), [0, 1, 2, 3]);
    }
}

#[test]
fn case_08_shapes() {
    for n in [0, 5, 6, u32::MAX] {
        let bad = Raw::new().tensor_n("t", n, &[1; 6], 0, 0).data(64);
        let message = assert_refused!(bad.build(), Error::BadShape { tensor, .. } if tensor == "t");
        assert!(message.contains(&format!("{n} dimensions")), "{message}");
    }
    let shape = |dims: &[u64], ty| Raw::new().tensor("t", dims, ty, 0).data(64).build();
    for dims in [&[0][..], &[4, 0], &[1, 1, 0, 1]] {
        let message = assert_refused!(shape(dims, 0), Error::BadShape { .. });
        assert!(message.contains("is 0"), "{message}");
    }
    for dims in [
        &[u64::MAX][..],
        &[1 << 63],
        &[1 << 32, 1 << 32],
        &[1 << 31, 1 << 31, 4],
        &[1 << 40, 1 << 40, 1 << 40],
    ] {
        let message = assert_refused!(shape(dims, 0), Error::BadShape { .. });
        assert!(message.contains("overflows"), "{message}");
    }
    // Elements fit in 63 bits, bytes do not.
    let message = assert_refused!(shape(&[1 << 62], 0), Error::BadShape { .. });
    assert!(message.contains("more bytes"), "{message}");
    for (row, ty, name) in [(31, 2, "Q4_0"), (33, 8, "Q8_0"), (128, 12, "Q4_K"), (32, 40, "NVFP4")] {
        let message = assert_refused!(shape(&[row, 4], ty), Error::BadShape { .. });
        assert!(message.contains(&format!("{row} elements")) && message.contains(name), "{message}");
    }
}

#[test]
fn case_09_removed_and_unknown_types() {
    let with = |ty| Raw::new().tensor("blk.0.w", &[256], ty, 0).data(1024).build();
    for (id, name) in [
        (4, "Q4_2"),
        (5, "Q4_3"),
        (31, "Q4_0_4_4"),
        (32, "Q4_0_4_8"),
        (33, "Q4_0_8_8"),
        (36, "IQ4_NL_4_4"),
        (37, "IQ4_NL_4_8"),
        (38, "IQ4_NL_8_8"),
    ] {
        let message = assert_refused!(with(id), Error::RemovedType { id: i, .. } if *i == id);
        assert!(
            message.contains(name) && message.contains("blk.0.w") && message.contains("removed"),
            "{message}"
        );
    }
    for id in [43, 100, 0x100, u32::MAX] {
        let message = assert_refused!(with(id), Error::UnknownType { id: i, .. } if *i == id);
        assert!(message.contains(&id.to_string()) && message.contains("blk.0.w"), "{message}");
    }
}

#[test]
fn case_10_offsets() {
    let with = |offset| Raw::new().tensor("a", &[8], 0, 0).tensor("b", &[8], 0, offset).data(96).build();
    assert!(GgufFile::from_bytes(with(32)).is_ok() && GgufFile::from_bytes(with(64)).is_ok());
    for offset in [1, 16, 33, 63] {
        assert_refused!(with(offset), Error::Unaligned { tensor, data_offset, alignment: 32, .. }
            if tensor == "b" && *data_offset == offset);
    }
    let last = u64::MAX - 31;
    for offset in [96, 128, 1 << 40, 1 << 63, last, last - 32, last - 64, last - 96, last - 128] {
        assert_refused!(with(offset), Error::OutOfFile { tensor, data_offset, have: 96, .. }
            if tensor == "b" && *data_offset == offset);
    }
    assert_refused!(with(0), Error::Overlap { tensor, other, .. } if tensor == "b" && other == "a");
    // A small one inside a large one, with another between them in order of offsets.
    let bad =
        Raw::new().tensor("big", &[64], 0, 0).tensor("x", &[1], 0, 32).tensor("y", &[1], 0, 128).data(256);
    assert_refused!(bad.build(), Error::Overlap { other, .. } if other == "big");
    // Sizes whose padding would wrap to 0.
    for n in [(1 << 61) - 1, (1 << 61) - 8] {
        let bad = Raw::new().tensor("a", &[n], 0, 0).data(96);
        assert_refused!(bad.build(), Error::OutOfFile { n_bytes, .. } if *n_bytes == n * 4);
    }
    // The largest alignment, in a file that ends before the padding does.
    let bad = Raw::new().key("general.alignment", 4, &limits::MAX_ALIGNMENT.to_le_bytes());
    assert_refused!(bad.tensor("a", &[1], 0, 0).data(96).build(), Error::OutOfFile { have: 0, .. });
}

#[test]
fn case_11_duplicate_tensor_names() {
    let bad = Raw::new().tensor("a", &[1], 0, 0).tensor("b", &[1], 0, 32).tensor("a", &[1], 0, 64).data(96);
    assert_refused!(bad.build(), Error::DuplicateTensor { tensor, offset: 90, first: 24 } if tensor == "a");
}

#[test]
fn directories_pipes_devices_and_absent_files() {
    let folder = tempfile::tempdir().unwrap();
    let kind = |path: &std::path::Path| match GgufFile::open(path).unwrap_err().root() {
        Error::NotAFile { kind } => *kind,
        other => panic!("{other:?}"),
    };
    assert_eq!(kind(folder.path()), "a directory");
    let error = GgufFile::open(folder.path().join("absent.gguf")).unwrap_err();
    assert!(matches!(error.root(), Error::Io { .. }) && error.to_string().contains("absent.gguf"), "{error}");
    #[cfg(unix)]
    {
        let pipe = folder.path().join("pipe.gguf");
        // With no writer, a plain open for reading would wait for ever.
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert_eq!(kind(&pipe), "a named pipe");
        assert_eq!(kind(std::path::Path::new("/dev/zero")), "a device");
    }
}
