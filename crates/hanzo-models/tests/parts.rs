//! The files of a model, as a device sees them that keeps what it made of them.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use hanzo_fusion::WeightSource;
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hanzo-cli/assets/hanzo-tiny.gguf");

#[test]
fn a_split_model_has_all_its_files_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let whole = GgufFile::open(TINY).unwrap();
    let paths =
        hanzo_gguf::split(&whole, dir.path(), "tiny", whole.tensor_bytes_total() / 3, |_| {}).unwrap();
    assert!(paths.len() > 2);
    let file = GgufFile::open(&paths[1]).unwrap();
    let source = GgufWeights(&file);
    let parts = source.parts().unwrap();
    assert_eq!(parts.len(), paths.len());
    for (i, (part, path)) in parts.iter().zip(&paths).enumerate() {
        let want = fs::read(path).unwrap();
        assert_eq!(Path::new(&part.name), fs::canonicalize(path).unwrap());
        assert_eq!(part.len, want.len() as u64);
        let mut got = vec![0; want.len() - 3];
        source.read_part(i, 3, &mut got).unwrap();
        assert!(got == want[3..]);
        let error = source.read_part(i, part.len - 1, &mut [0; 2]).unwrap_err();
        assert!(error.to_string().contains(part.name.rsplit('/').next().unwrap()), "{error}");
    }
    assert!(source.read_part(parts.len(), 0, &mut [0]).unwrap_err().to_string().contains("there is none"));
    // In memory there are none.
    let file = GgufFile::from_bytes(fs::read(TINY).unwrap()).unwrap();
    assert_eq!(GgufWeights(&file).parts().unwrap(), []);
}

/// Names that are no text, alike but for what cannot be shown.
#[cfg(target_os = "linux")]
#[test]
fn no_two_files_have_one_name() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let dir = tempfile::tempdir().unwrap();
    let names = [&b"x\xff"[..], b"x\xfe", b"x\\xff"].map(|name| {
        let path = dir.path().join(OsStr::from_bytes(name));
        fs::copy(TINY, &path).unwrap();
        GgufWeights(&GgufFile::open(&path).unwrap()).parts().unwrap().remove(0).name
    });
    let mut distinct = names.to_vec();
    distinct.sort();
    distinct.dedup();
    assert_eq!(distinct.len(), names.len(), "{names:?}");
}
