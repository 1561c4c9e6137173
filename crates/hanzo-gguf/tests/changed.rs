//! Case 12: a file truncated, rewritten or replaced after it was opened (and mapped).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]
#![cfg(unix)]

mod common;

use std::fs::{self, OpenOptions};
use std::path::PathBuf;

use common::Raw;
use hanzo_gguf::{Error, GgufFile};

/// Three megabytes of tensor, so that truncation takes away whole pages of the map.
fn big() -> (tempfile::TempDir, PathBuf, GgufFile) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("big.gguf");
    fs::write(&path, Raw::new().tensor("w", &[3 << 20], 24, 0).data(3 << 20).build()).unwrap();
    let file = GgufFile::open(&path).unwrap();
    (folder, path, file)
}

fn assert_changed(result: Result<impl std::fmt::Debug, Error>, what: &str) {
    let error = result.unwrap_err();
    assert!(matches!(error.root(), Error::Changed { .. }), "{error:?}");
    assert!(error.to_string().contains(what) && error.to_string().contains("big.gguf"), "{error}");
}

#[test]
fn case_12_truncated() {
    let (_folder, path, file) = big();
    let tensor = &file.tensors()[0];
    // Mapped and in use before.
    assert_eq!(file.tensor_bytes(tensor).unwrap()[255], 255);
    OpenOptions::new().write(true).open(&path).unwrap().set_len(4096).unwrap();
    let mut piece = [0; 64];
    assert_changed(file.tensor_bytes(tensor), "shrank");
    assert_changed(file.read_tensor_at(tensor, 2 << 20, &mut piece), "shrank");
    // A part that is still there is not believed either.
    assert_changed(file.read_tensor_at(tensor, 0, &mut piece), "shrank");
    assert_changed(file.read_tensor(tensor), "shrank");
    assert_changed(file.check_unchanged(), "shrank");
    // The process goes on.
    assert!(matches!(GgufFile::open(&path).unwrap_err().root(), Error::OutOfFile { .. }));
}

#[test]
fn case_12_rewritten_in_place() {
    let (_folder, path, file) = big();
    let tensor = &file.tensors()[0];
    // File systems stamp times in ticks of up to some milliseconds; set one that is surely another.
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&writer, &[9; 64], 1 << 20).unwrap();
    writer.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_changed(file.read_tensor(tensor), "written to");
    assert_changed(file.tensor_bytes(tensor), "written to");
    writer.set_len(4 << 20).unwrap();
    assert_changed(file.read_tensor(tensor), "grew");
}

#[test]
fn case_12_replaced() {
    let (folder, path, file) = big();
    let tensor = &file.tensors()[0];
    let other = folder.path().join("other");
    fs::write(&other, Raw::good().build()).unwrap();
    fs::rename(&other, &path).unwrap();
    // The handle keeps the old file, whole; whoever wants to know that the path leads elsewhere now can ask.
    assert_eq!(file.read_tensor(tensor).unwrap(), file.tensor_bytes(tensor).unwrap());
    assert_eq!(file.read_tensor(tensor).unwrap()[1000], (1000 % 256) as u8);
    assert_changed(file.check_unchanged(), "");
    fs::remove_file(&path).unwrap();
    assert_eq!(file.read_tensor(tensor).unwrap().len(), 3 << 20);
    assert!(matches!(file.check_unchanged().unwrap_err().root(), Error::Io { .. }));
}

#[test]
fn reads_stay_inside_the_tensor() {
    let (_folder, _path, file) = big();
    let tensor = &file.tensors()[0];
    let mut piece = [0; 64];
    file.read_tensor_at(tensor, (3 << 20) - 64, &mut piece).unwrap();
    assert_eq!(piece[63], 255);
    for offset in [(3 << 20) - 63, 3 << 20, u64::MAX - 63, u64::MAX] {
        let error = file.read_tensor_at(tensor, offset, &mut piece).unwrap_err();
        assert!(matches!(error, Error::ReadRange { .. }), "{error:?}");
    }
    file.read_tensor_at(tensor, 3 << 20, &mut []).unwrap();
    // A tensor of another file.
    let small = GgufFile::from_bytes(Raw::good().build()).unwrap();
    assert!(matches!(small.tensor_bytes(tensor), Err(Error::ReadRange { .. })));
    assert!(matches!(small.read_tensor_at(tensor, 0, &mut piece), Err(Error::ReadRange { .. })));
}

#[test]
fn a_stamp_is_another_once_the_file_was_written_to_whatever_its_times_say() {
    let (folder, path, file) = big();
    let source = file.parts().next().unwrap().file().unwrap();
    let stamp = source.stamp().unwrap();
    assert_eq!((stamp.path.as_path(), stamp.len), (fs::canonicalize(&path).unwrap().as_path(), source.len()));
    assert!(stamp.changed.is_some_and(|changed| changed <= std::time::SystemTime::now()));
    let reopened = || GgufFile::open(&path).unwrap().parts().next().unwrap().file().unwrap().stamp().unwrap();
    assert_eq!(reopened(), stamp);
    // By a link it is the same file.
    let link = folder.path().join("link.gguf");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let linked = GgufFile::open(&link).unwrap();
    assert_eq!(linked.parts().next().unwrap().file().unwrap().stamp().unwrap(), stamp);
    // Other bytes under the old time: the time of the last change tells, which nobody can set.
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    let writer = OpenOptions::new().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&writer, &[9; 64], 1 << 20).unwrap();
    writer.set_modified(modified).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), modified);
    assert_ne!(reopened(), stamp);
    // A copy in its place has another number.
    let copy = folder.path().join("copy.gguf");
    fs::copy(&path, &copy).unwrap();
    let before = reopened();
    fs::rename(&copy, &path).unwrap();
    assert_ne!(reopened().numbers[..2], before.numbers[..2]);
    assert!(
        GgufFile::from_bytes(fs::read(&path).unwrap()).unwrap().parts().all(|part| part.file().is_none())
    );
}
