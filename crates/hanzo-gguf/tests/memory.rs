//! No file, good or bad, costs 64 MiB to open: measured as growth of the process's peak of resident memory, so
//! this is the only test of its program.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![cfg(target_os = "linux")]

mod common;

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

use common::string;
use hanzo_gguf::{Error, GgufFile, check, limits};

/// Peak of resident memory so far, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Begins a file with these counts; it is written in small pieces, so that the test itself needs no memory.
fn begin(path: &Path, n_tensors: u64, n_keys: u64) -> BufWriter<File> {
    let mut out = BufWriter::new(File::create(path).unwrap());
    out.write_all(b"GGUF\x03\0\0\0").unwrap();
    out.write_all(&n_tensors.to_le_bytes()).unwrap();
    out.write_all(&n_keys.to_le_bytes()).unwrap();
    out
}

fn array(out: &mut impl Write, key: &str, element: u32, len: u64) {
    out.write_all(&string(key)).unwrap();
    out.write_all(&9u32.to_le_bytes()).unwrap();
    out.write_all(&element.to_le_bytes()).unwrap();
    out.write_all(&len.to_le_bytes()).unwrap();
}

/// Makes the file a terabyte long without writing it.
fn stretch(out: BufWriter<File>) {
    out.into_inner().unwrap().set_len(1 << 40).unwrap();
}

#[test]
fn opening_any_file_takes_less_than_64_mib() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("huge.gguf");
    // Warm up, so that the program's own pages are not counted.
    std::fs::write(&path, common::Raw::good().build()).unwrap();
    GgufFile::open(&path).unwrap();
    let before = peak();
    let assert_limit = |what: &str| {
        let error = GgufFile::open(&path).unwrap_err();
        assert!(matches!(error.root(), Error::Limit { .. }), "{what}: {error}");
        assert!(!check(&path).problems.is_empty());
        let grown = (peak() - before) >> 10;
        assert!(grown < 64, "{what}: {grown} MiB");
    };

    // Each count and length is covered by the length of the file.
    let mut out = begin(&path, 0, 1);
    array(&mut out, "k", 8, 1 << 36);
    stretch(out);
    assert_limit("strings by count");

    // Empty strings (the rest of a stretched file is zeros), nearly as many as a header may have.
    let mut out = begin(&path, 0, 2);
    array(&mut out, "k", 8, (limits::MAX_HEADER_BYTES >> 3) - 32);
    stretch(out);
    let error = GgufFile::open(&path).unwrap_err();
    assert!(!matches!(error.root(), Error::Io { .. }), "{error}");
    assert!((peak() - before) >> 10 < 64, "empty strings: {} KiB", peak() - before);

    let mut out = begin(&path, 0, 1);
    array(&mut out, "k", 9, 1 << 30);
    stretch(out);
    assert_limit("arrays by count");

    let mut out = begin(&path, 0, 1);
    out.write_all(&string("k")).unwrap();
    out.write_all(&8u32.to_le_bytes()).unwrap();
    out.write_all(&(1u64 << 39).to_le_bytes()).unwrap();
    stretch(out);
    assert_limit("a string");

    // As many strings of the largest size as fit, and one more.
    let mut out = begin(&path, 0, 9);
    for i in 0..9 {
        out.write_all(&string(format!("k{i}"))).unwrap();
        out.write_all(&8u32.to_le_bytes()).unwrap();
        out.write_all(&limits::MAX_STRING_BYTES.to_le_bytes()).unwrap();
        out.flush().unwrap();
        out.seek(SeekFrom::Current(limits::MAX_STRING_BYTES as i64)).unwrap();
    }
    stretch(out);
    assert_limit("large strings");

    // Valid to the end: the most keys, and the most tensors with the longest names.
    let mut out = begin(&path, limits::MAX_TENSORS, limits::MAX_KEYS);
    for i in 0..limits::MAX_KEYS {
        out.write_all(&string(format!("key.{i:0280}"))).unwrap();
        out.write_all(&[0, 0, 0, 0, 1]).unwrap();
    }
    for i in 0..limits::MAX_TENSORS {
        out.write_all(&string(format!("t{i:0127}"))).unwrap();
        out.write_all(&1u32.to_le_bytes()).unwrap();
        out.write_all(&1u64.to_le_bytes()).unwrap();
        out.write_all(&[0; 4]).unwrap();
        out.write_all(&(i * 32).to_le_bytes()).unwrap();
    }
    stretch(out);
    let file = GgufFile::open(&path).unwrap();
    assert_eq!(file.tensors().len() as u64, limits::MAX_TENSORS);
    let grown = (peak() - before) >> 10;
    assert!(grown < 64, "the most keys and tensors: {grown} MiB");
}
