//! `hanzo run --pack-cache`: the second load reads what the first one packed, and says the same.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::server::Server;
use common::{Run, TINY, finish, hanzo, run};

/// A model that is old enough to be kept, and an empty folder.
fn setup() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("model.gguf");
    fs::copy(TINY, &model).unwrap();
    rest();
    let cache = dir.path().join("cache");
    (dir, model, cache)
}

/// Until a file that was just written is old enough.
fn rest() {
    std::thread::sleep(Duration::from_millis(2200));
}

fn reply(model: &Path, cache: &str) -> Run {
    run(&["run", model.to_str().unwrap(), "Once upon a time", "--temp", "0", "-v", cache]).ok()
}

fn entries(cache: &Path, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(cache).unwrap().map(|file| file.unwrap().path());
    all.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

#[test]
fn the_second_load_reads_what_the_first_has_packed() {
    let (_dir, model, cache) = setup();
    let flag = format!("--pack-cache={}", cache.display());
    let plain = run(&["run", model.to_str().unwrap(), "Once upon a time", "--temp", "0"]).ok();
    let first = reply(&model, &flag);
    assert!(first.err.contains("packed weights were written to"), "{}", first.err);
    let second = reply(&model, &flag);
    assert!(second.err.contains("packed weights were read from"), "{}", second.err);
    assert!(!second.err.contains("warning"), "{}", second.err);
    assert_eq!((first.text(), second.text()), (plain.text(), plain.text()));

    // Damaged.
    let [entry] = entries(&cache, ".pack").try_into().unwrap();
    let mut bytes = fs::read(&entry).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&entry, bytes).unwrap();
    let damaged = reply(&model, &flag);
    assert!(damaged.err.contains("is damaged") && damaged.err.contains("written to"), "{}", damaged.err);
    assert_eq!(damaged.text(), plain.text());

    // Another model under the same name, of the same length.
    let mut bytes = fs::read(&model).unwrap();
    let at = bytes.len() - 1000;
    bytes[at] ^= 1;
    fs::write(&model, bytes).unwrap();
    let early = reply(&model, &flag);
    assert!(early.err.contains("changed just now"), "{}", early.err);
    rest();
    let stale = reply(&model, &flag);
    assert!(stale.err.contains("stale") && stale.err.contains("written to"), "{}", stale.err);
    assert_eq!(stale.text(), early.text());
    assert_ne!(entries(&cache, ".pack"), [entry]);
    assert!(reply(&model, &flag).err.contains("read from"));
    assert_eq!((entries(&cache, ".pack").len(), entries(&cache, ".tmp").len()), (1, 0));
}

#[test]
fn the_cache_is_where_it_is_told_to_be() {
    let (dir, model, _) = setup();
    let model = model.to_str().unwrap();
    let home = dir.path().join("home");
    let args = ["run", "--pack-cache", model, "Hello", "--temp", "0", "-v", "--max-tokens", "1"];
    let said = finish(hanzo().args(args).env("HANZO_HOME", &home)).ok().err;
    assert!(said.contains("written to"), "{said}");
    assert_eq!(entries(&home.join("packed"), ".pack").len(), 1);
    // Not asked for: nothing is kept.
    let other = dir.path().join("other");
    let args = ["run", model, "Hello", "--temp", "0", "-v", "--max-tokens", "1"];
    let said = finish(hanzo().args(args).env("HANZO_HOME", &other)).ok().err;
    assert!(!said.contains("packed weights") && !other.exists(), "{said}");
    run(&["run", "--pack-cache=", model, "Hello"]).fails(2, &["--pack-cache"]);
    let nowhere = ["HANZO_HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "HOME"];
    let mut command = hanzo();
    for name in nowhere {
        command.env_remove(name);
    }
    finish(command.args(["run", "--pack-cache", model, "Hello"]))
        .fails(2, &["names no home", "give a folder"]);
}

#[test]
fn where_nothing_can_be_kept_a_line_says_so_and_the_reply_is_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let flag = format!("--pack-cache={}", dir.path().display());
    let args = ["run", "Once upon a time", "--temp", "0"];
    let plain = run(&args).ok();
    let built_in = run(&[&args[..], &[&flag]].concat()).ok();
    assert!(built_in.err.contains("lies in no file"), "{}", built_in.err);
    assert_eq!(built_in.text(), plain.text());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);

    let (_dir, model, cache) = setup();
    fs::write(&cache, b"a file").unwrap();
    let args = ["run", model.to_str().unwrap(), "Once upon a time", "--temp", "0"];
    let flag = format!("--pack-cache={}", cache.display());
    let refused = run(&[&args[..], &[&flag]].concat()).ok();
    assert!(refused.err.contains("not kept") || refused.err.contains("is not used"), "{}", refused.err);
    assert_eq!(refused.text(), plain.text());
    assert_eq!(fs::read(&cache).unwrap(), b"a file");
}

/// A system that would end the process for a long file, and a folder whose name is no text.
#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_files_costs_a_line_and_any_name_is_taken() {
    use std::os::unix::ffi::OsStringExt;
    let (_dir, model, cache) = setup();
    let args = ["run", model.to_str().unwrap(), "Once upon a time", "--temp", "0"];
    let plain = run(&args).ok();
    let mut flag = std::ffi::OsString::from("--pack-cache=").into_vec();
    flag.extend(cache.as_os_str().as_encoded_bytes());
    flag.push(0xff);
    let flag = std::ffi::OsString::from_vec(flag);
    let mut limited = std::process::Command::new("sh");
    limited.args(["-c", "ulimit -f 1; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_hanzo")]);
    let limited = finish(limited.args(args).arg(&flag)).ok();
    assert!(limited.err.contains("not kept") && limited.err.contains("ulimit -f"), "{}", limited.err);
    let kept = finish(hanzo().args(args).args(["-v"]).arg(&flag)).ok();
    assert!(kept.err.contains("written to"), "{}", kept.err);
    assert_eq!((limited.text(), kept.text()), (plain.text(), plain.text()));
}

#[test]
fn a_server_is_told_by_its_environment() {
    let (_dir, model, cache) = setup();
    let server = Server::start_with(hanzo().env("HANZO_PACK_CACHE", &cache), &[model.to_str().unwrap()]);
    assert!(server.url.starts_with("http"));
    assert_eq!((entries(&cache, ".pack").len(), entries(&cache, ".stamp").len()), (1, 1));
    // `hanzo run` reads what the server has packed.
    let said = reply(&model, &format!("--pack-cache={}", cache.display())).err;
    assert!(said.contains("read from"), "{said}");
}
