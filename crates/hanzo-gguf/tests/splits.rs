//! Split models: any shard opens all, and every way in which a set of shards can be wrong has its error.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;

use std::fs;
use std::path::Path;

use hanzo_gguf::{Error, GgufFile, GgufWriter, TensorType, merge, parse_shard_name, shard_name, split};

const SHARDS: [&str; 3] = ["m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"];

/// A model of five tensors, whole, and cut into three shards.
fn model(folder: &Path) -> GgufFile {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama").unwrap();
    writer.set_alignment(64).unwrap();
    writer.set("zz.last", &[1u16, 2][..]).unwrap();
    let data: Vec<Vec<u8>> = (0..5u8).map(|i| vec![i; 4 * (8 + usize::from(i))]).collect();
    for i in 0..5u64 {
        writer.tensor(&format!("t{i}"), TensorType::F32, &[8 + i]).unwrap();
    }
    fs::write(folder.join("whole.gguf"), writer.to_bytes(&data).unwrap()).unwrap();
    let whole = GgufFile::open(folder.join("whole.gguf")).unwrap();
    let mut copied = 0;
    let paths = split(&whole, folder, "m", 90, |bytes| copied += bytes).unwrap();
    assert_eq!(copied, whole.tensor_bytes_total());
    assert_eq!(paths, SHARDS.map(|name| folder.join(name)));
    whole
}

fn open_error(path: &Path) -> Error {
    GgufFile::open(path).unwrap_err()
}

#[test]
fn any_shard_opens_the_whole_model() {
    let folder = tempfile::tempdir().unwrap();
    let whole = model(folder.path());
    for name in SHARDS {
        let file = GgufFile::open(folder.path().join(name)).unwrap();
        assert_eq!(file.parts().count(), 3);
        let names = |file: &GgufFile| file.tensors().iter().map(|t| t.name().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&file), names(&whole));
        for tensor in whole.tensors() {
            let here = file.tensor(tensor.name()).unwrap();
            assert_eq!(file.read_tensor(here).unwrap(), whole.read_tensor(tensor).unwrap());
            assert_eq!(file.tensor_bytes(here).unwrap(), whole.tensor_bytes(tensor).unwrap());
            assert_eq!(here.offset() % 64, 0);
        }
        assert_eq!(file.metadata().required_str("general.architecture").unwrap(), "llama");
    }
    assert_eq!(GgufFile::open_shards(folder.path(), &SHARDS).unwrap().tensors().len(), 5);
    assert_eq!(GgufFile::open_single(folder.path().join(SHARDS[1])).unwrap().parts().count(), 1);
}

#[test]
fn split_and_merged_is_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    model(folder.path());
    let shards = GgufFile::open(folder.path().join(SHARDS[2])).unwrap();
    let merged = folder.path().join("merged.gguf");
    merge(&shards, &merged, |_| ()).unwrap();
    assert_eq!(fs::read(merged).unwrap(), fs::read(folder.path().join("whole.gguf")).unwrap());
}

#[test]
fn case_11_a_shard_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    model(folder.path());
    fs::remove_file(folder.path().join(SHARDS[1])).unwrap();
    for name in [SHARDS[0], SHARDS[2]] {
        let error = open_error(&folder.path().join(name));
        assert!(matches!(error.root(), Error::SplitMissing { number: 2, count: 3, .. }), "{error:?}");
        assert!(error.to_string().contains(SHARDS[1]), "{error}");
    }
    let error = GgufFile::open_shards(folder.path(), &[SHARDS[0], SHARDS[2]]).unwrap_err();
    assert!(matches!(error.root(), Error::SplitCount { expected: 2, found: 3 }), "{error:?}");
}

#[test]
fn case_11_a_shard_is_repeated() {
    let folder = tempfile::tempdir().unwrap();
    model(folder.path());
    fs::copy(folder.path().join(SHARDS[0]), folder.path().join(SHARDS[1])).unwrap();
    let error = open_error(&folder.path().join(SHARDS[2]));
    assert!(matches!(error.root(), Error::SplitRepeated { number: 1, count: 3, .. }), "{error:?}");
    assert!(error.to_string().contains(SHARDS[0]) && error.to_string().contains(SHARDS[1]), "{error}");
    // Opened itself, it is at once seen to be another than its name says.
    let error = open_error(&folder.path().join(SHARDS[1]));
    assert!(matches!(error.root(), Error::SplitOrder { expected: 2, found: 1, count: 3 }), "{error:?}");
    let names = [SHARDS[0], SHARDS[0], SHARDS[2]];
    let error = GgufFile::open_shards(folder.path(), &names).unwrap_err();
    assert!(matches!(error.root(), Error::SplitRepeated { number: 1, .. }), "{error:?}");
}

#[test]
fn case_11_shards_out_of_order() {
    let folder = tempfile::tempdir().unwrap();
    model(folder.path());
    let path = |i: usize| folder.path().join(SHARDS[i]);
    let names = [SHARDS[0], SHARDS[2], SHARDS[1]];
    let error = GgufFile::open_shards(folder.path(), &names).unwrap_err();
    assert!(matches!(error.root(), Error::SplitOrder { expected: 2, found: 3, count: 3 }), "{error:?}");
    fs::rename(path(1), folder.path().join("x")).unwrap();
    fs::rename(path(2), path(1)).unwrap();
    fs::rename(folder.path().join("x"), path(2)).unwrap();
    let error = open_error(&path(0));
    assert!(matches!(error.root(), Error::SplitOrder { expected: 2, found: 3, count: 3 }), "{error:?}");
    assert!(error.to_string().contains(SHARDS[1]), "{error}");
}

#[test]
fn case_11_shards_disagree_about_their_number() {
    let folder = tempfile::tempdir().unwrap();
    model(folder.path());
    let other = tempfile::tempdir().unwrap();
    model(other.path());
    // Shard 2 of another cut of the model.
    let whole = GgufFile::open(other.path().join("whole.gguf")).unwrap();
    let paths = split(&whole, other.path(), "m", 1, |_| ()).unwrap();
    assert_eq!(paths.len(), 5);
    fs::copy(&paths[1], folder.path().join(SHARDS[1])).unwrap();
    let error = open_error(&folder.path().join(SHARDS[0]));
    assert!(matches!(error.root(), Error::SplitCount { expected: 3, found: 5 }), "{error:?}");
    let error = open_error(&folder.path().join(SHARDS[1]));
    assert!(matches!(error.root(), Error::SplitCount { expected: 3, found: 5 }), "{error:?}");
    // A shard by its name that is whole by its metadata.
    fs::copy(other.path().join("whole.gguf"), folder.path().join(SHARDS[1])).unwrap();
    for name in SHARDS {
        let error = open_error(&folder.path().join(name));
        assert!(matches!(error.root(), Error::SplitCount { expected: 3, found: 1 }), "{error:?}");
    }
}

#[test]
fn case_11_wrong_keys_names_and_totals() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m-00001-of-00002.gguf");
    let write = |name: &str, no: u16, count: u16, total: Option<i32>, tensor: &str| {
        let mut writer = GgufWriter::new();
        writer.set("split.no", no).unwrap().set("split.count", count).unwrap();
        if let Some(total) = total {
            writer.set("split.tensors.count", total).unwrap();
        }
        writer.tensor(tensor, TensorType::F32, &[1]).unwrap();
        fs::write(folder.path().join(name), writer.to_bytes(&[[0; 4]]).unwrap()).unwrap();
    };
    write("m-00001-of-00002.gguf", 0, 2, Some(3), "a");
    write("m-00002-of-00002.gguf", 1, 2, None, "b");
    let error = open_error(&path);
    assert!(matches!(error.root(), Error::SplitTensors { expected: 3, found: 2 }), "{error:?}");
    write("m-00001-of-00002.gguf", 0, 2, Some(2), "b");
    let error = open_error(&path);
    assert!(matches!(error.root(), Error::DuplicateTensor { tensor, .. } if tensor == "b"), "{error:?}");
    assert!(error.to_string().contains("m-00002"), "{error}");
    write("m-00001-of-00002.gguf", 0, 60_000, None, "a");
    assert!(matches!(open_error(&path).root(), Error::Limit { value: 60_000, .. }));
    write("m-00001-of-00002.gguf", 7, 2, None, "a");
    assert!(matches!(open_error(&path).root(), Error::SplitOrder { expected: 1, found: 8, .. }));
    write("model.gguf", 1, 2, None, "a");
    let error = open_error(&folder.path().join("model.gguf"));
    assert!(matches!(error.root(), Error::SplitName { number: 2, count: 2, .. }), "{error:?}");
    assert!(error.to_string().contains("-00002-of-00002.gguf"), "{error}");
    let bytes = fs::read(folder.path().join("m-00002-of-00002.gguf")).unwrap();
    let error = GgufFile::from_bytes(bytes).unwrap_err();
    assert!(matches!(error, Error::SplitInMemory { number: 2, count: 2 }), "{error:?}");
    // A model cut into one piece is whole.
    write("one-00001-of-00001.gguf", 0, 1, Some(1), "a");
    assert_eq!(GgufFile::open(folder.path().join("one-00001-of-00001.gguf")).unwrap().tensors().len(), 1);
}

#[test]
fn case_11_a_path_in_a_shard_name() {
    let folder = tempfile::tempdir().unwrap();
    model(folder.path());
    for name in ["../m-00002-of-00003.gguf", "/etc/passwd", "a\\b.gguf", "C:x.gguf", "..", "", "a\0b"] {
        let error = GgufFile::open_shards(folder.path(), &[SHARDS[0], name, SHARDS[2]]).unwrap_err();
        assert!(matches!(&error, Error::SplitPath { name: n } if n == name), "{error:?}");
    }
    assert!(matches!(shard_name("../up", 1, 2), Err(Error::SplitPath { .. })));
    let whole = GgufFile::open(folder.path().join("whole.gguf")).unwrap();
    let error = split(&whole, folder.path(), "../up", 80, |_| ()).unwrap_err();
    assert!(matches!(error, Error::SplitPath { .. }), "{error:?}");
}

#[test]
fn names_of_shards() {
    assert_eq!(shard_name("m", 1, 12).unwrap(), "m-00001-of-00012.gguf");
    assert_eq!(parse_shard_name("a-b-00003-of-00012.gguf"), Some(("a-b", 3, 12)));
    for name in
        ["m.gguf", "m-1-of-2.gguf", "m-00001-of-00002", "m-00001of-00002.gguf", "m-+0001-of-00002.gguf"]
    {
        assert_eq!(parse_shard_name(name), None, "{name}");
    }
}
