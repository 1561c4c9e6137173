//! What the integration tests share: where the oracles are, and a plain builder of GGUF bytes, right or wrong.
#![allow(
    dead_code,
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "each test uses a part of this; a skipped test says so"
)]

use std::path::{Path, PathBuf};

/// The folder of oracles, or `None` (with a line saying so) where it is absent and not required.
pub(crate) fn oracles() -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracles");
    if folder.is_dir() {
        return Some(folder);
    }
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is absent", folder.display());
    eprintln!("skipped: {} is absent", folder.display());
    None
}

/// All files under `folder` that end in `.gguf`.
pub(crate) fn ggufs(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                _ if path.is_dir() => folders.push(path),
                Some(extension) if extension == "gguf" => found.push(path),
                _ => {}
            }
        }
    }
    found.sort();
    found
}
