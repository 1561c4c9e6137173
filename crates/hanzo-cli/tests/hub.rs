//! `hanzo pull`, `list` and `rm`, and models by name, against a Hub in this process.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;
#[path = "../../hanzo-hub/tests/common/mod.rs"]
mod fake;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{Run, TINY, finish, hanzo};
use fake::{FakeHub, Fault};

/// The command with a cache and a Hub of its own.
fn at(hub: &FakeHub, home: &Path, args: &[&str]) -> Command {
    let mut command = hanzo();
    command
        .env("HF_ENDPOINT", &hub.endpoint)
        .env("HF_HUB_CACHE", home.join("hub"))
        .env("HANZO_HOME", home.join("own"))
        .args(args);
    command
}

fn tiny() -> Vec<u8> {
    std::fs::read(TINY).unwrap()
}

#[test]
fn a_model_is_pulled_listed_run_and_removed() {
    let tiny = tiny();
    let hub = FakeHub::new(&[("tales-Q8_0.gguf", &tiny), ("tales-F16.gguf", b"never fetched")]);
    let home = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| -> Run { finish(&mut at(&hub, home.path(), args)) };
    here(&["run", "org/repo", "Hello"]).fails(1, &["hanzo pull org/repo"]);
    here(&["pull", "org/repo"]).fails(1, &["no Q4_K_M", "org/repo:F16", "Q8_0"]);
    let pulled = here(&["pull", "org/repo:q8_0"]).ok();
    assert!(pulled.text().contains("org/repo:Q8_0 is here"), "{}", pulled.text());
    assert!(pulled.err.contains("hanzo run org/repo:q8_0"), "{}", pulled.err);
    let again = here(&["pull", "org/repo:Q8_0", "--json"]).ok().json();
    assert_eq!((&again["fetched"], &again["bytes"]), (&0.into(), &tiny.len().into()));

    let list = here(&["list", "--json"]).ok().json();
    let names: Vec<&str> =
        list["models"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hanzo-tiny", "org/repo:Q8_0"]);
    assert_eq!(list["models"][1]["bytes"], tiny.len());
    assert!(here(&["models"]).ok().text().contains("org/repo:Q8_0"));
    for name in ["org/repo:Q8_0", "ORG/repo", "repo:q8_0", "tales-Q8_0", "hf.co/org/repo"] {
        let reply = here(&["run", name, "Hello", "--json", "--temp", "0"]).ok().json();
        assert!(reply["model"]["path"].as_str().unwrap().ends_with("tales-Q8_0.gguf"), "{name}");
    }
    here(&["run", "org/repo:Q4_0", "Hello"]).fails(1, &["Q4_0", "org/repo:Q8_0"]);
    assert_eq!(here(&["inspect", "repo", "--key", "general.architecture"]).ok().text(), "qwen3\n");

    here(&["rm", "hanzo-tiny"]).fails(1, &["part of the program"]);
    here(&["rm", TINY]).fails(2, &["is a file"]);
    here(&["rm", "nothing"]).fails(1, &["nothing"]);
    assert!(here(&["rm", "repo"]).ok().text().contains("removed org/repo:Q8_0"));
    assert_eq!(fake::tree(&home.path().join("hub")), [""; 0]);
    here(&["run", "org/repo", "Hello"]).fails(1, &["hanzo pull org/repo"]);
}

#[test]
fn a_split_model_is_run_from_the_cache() {
    let dir = tempfile::tempdir().unwrap();
    let file = hanzo_gguf::GgufFile::open(TINY).unwrap();
    let parts = hanzo_gguf::split(&file, dir.path(), "tiny-Q8_0", 2_000_000, |_| ()).unwrap();
    assert!(parts.len() > 1);
    let files: Vec<(String, Vec<u8>)> = parts
        .iter()
        .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap()))
        .collect();
    let files: Vec<(&str, &[u8])> =
        files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())).collect();
    let hub = FakeHub::new(&files);
    let home = tempfile::tempdir().unwrap();
    finish(&mut at(&hub, home.path(), &["pull", "org/repo"])).ok();
    let args = ["run", "org/repo", "Hello", "-q", "--temp", "0"];
    let split = finish(&mut at(&hub, home.path(), &args)).ok();
    assert_eq!(split.text(), common::run(&["run", "Hello", "-q", "--temp", "0"]).ok().text());
}

/// A file that is no model, and a folder of the user's own.
#[test]
fn models_of_the_users_own_have_names() {
    let hub = FakeHub::new(&[]);
    let home = tempfile::tempdir().unwrap();
    let repo = home.path().join("own/models/Someone/Tales-GGUF");
    std::fs::create_dir_all(&repo).unwrap();
    std::fs::copy(TINY, repo.join("tales-Q8_0.gguf")).unwrap();
    std::fs::write(home.path().join("own/models/broken.gguf"), "GGUF").unwrap();
    let here = |args: &[&str]| -> Run { finish(&mut at(&hub, home.path(), args)) };
    let list = here(&["list", "--json"]).ok().json();
    let names: Vec<&str> =
        list["models"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["hanzo-tiny", "broken", "Someone/Tales-GGUF:Q8_0"]);
    assert!(list["models"][1]["problem"].is_string());
    let text = here(&["list"]).ok();
    assert!(text.text().contains("Someone/Tales-GGUF:Q8_0") && text.text().contains("cannot be used"));
    for name in ["Someone/Tales-GGUF:Q8_0", "someone/tales-gguf", "Tales-GGUF", "tales-q8_0"] {
        let reply = here(&["run", name, "Hello", "--json", "--temp", "0"]).ok().json();
        assert!(reply["model"]["path"].as_str().unwrap().ends_with("tales-Q8_0.gguf"));
    }
    assert!(here(&["rm", "tales-gguf"]).ok().text().contains("Someone/Tales-GGUF:Q8_0"));
    assert!(!repo.join("tales-Q8_0.gguf").exists());
}

#[test]
fn what_cannot_be_pulled_is_said() {
    let hub = FakeHub::new(&[("m.gguf", b"x")]);
    let home = tempfile::tempdir().unwrap();
    let with = |args: &[&str], var: (&str, &str)| finish(at(&hub, home.path(), args).env(var.0, var.1));
    with(&["pull", "org/repo"], ("HF_HUB_OFFLINE", "1")).fails(1, &["org/repo", "HF_HUB_OFFLINE"]);
    with(&["pull", "org/repo"], ("HF_ENDPOINT", "nonsense")).fails(1, &["HF_ENDPOINT", "nonsense"]);
    with(&["pull", "../../etc"], ("X", "")).fails(1, &["`../../etc` names no model"]);
    with(&["pull", "org/other"], ("X", "")).fails(1, &["org/other"]);
    hub.change(|state| state.api_faults.push_back(Fault::Status(401, "X-Error-Message: No.")));
    with(&["pull", "org/repo"], ("X", "")).fails(1, &["it says: No.", "HF_TOKEN"]);
    // What is here but no model is fetched, and said to be none.
    let said = with(&["pull", "org/repo"], ("X", "")).ok().err;
    assert!(said.contains("cannot be used"), "{said}");
    assert!(finish(&mut at(&hub, home.path(), &["list", "--aliases"])).ok().text().contains("qwen3:0.6b"));
}

/// Two processes: one fetches, the other waits and has it too.
#[test]
fn two_processes_pull_one_model_once() {
    let hub = FakeHub::new(&[("m.gguf", &tiny())]);
    hub.fault(Fault::StallAfter(100_000));
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let mut command = at(&hub, home.path(), &["pull", "org/repo"]);
        command.env("HF_HUB_DOWNLOAD_TIMEOUT", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let (one, two) = (start(), start());
    let outputs = [one.wait_with_output().unwrap(), two.wait_with_output().unwrap()];
    let said: Vec<String> =
        outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{said:?}");
    assert_eq!(said.iter().filter(|said| said.contains("another process")).count(), 1, "{said:?}");
    assert_eq!(hub.requests("GET /cdn").len(), 2, "one that stalled, one that went on");
}

/// Ctrl-C: exit code 130, the part is kept, and the next pull goes on from there.
#[cfg(unix)]
#[test]
fn an_interrupted_pull_is_kept() {
    let content = fake::noise(2_000_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    hub.fault(Fault::StallAfter(500_000));
    let home = tempfile::tempdir().unwrap();
    let mut command = at(&hub, home.path(), &["pull", "org/repo"]);
    command.env("HF_HUB_DOWNLOAD_TIMEOUT", "1").stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let incomplete =
        home.path().join(format!("hub/models--org--repo/blobs/{}.incomplete", fake::sha256(&content)));
    let started = Instant::now();
    while std::fs::metadata(&incomplete).map_or(0, |meta| meta.len()) < 500_000 {
        assert!(started.elapsed() < Duration::from_secs(20), "nothing came");
        std::thread::sleep(Duration::from_millis(10));
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(interrupt.success());
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("goes on from there"), "{said}");
    let list = finish(&mut at(&hub, home.path(), &["list"])).ok().err;
    assert!(list.contains("500.0 kB of interrupted pulls"), "{list}");
    let pulled = finish(&mut at(&hub, home.path(), &["pull", "org/repo", "--json"])).ok().json();
    assert_eq!(pulled["fetched"], 1_500_000);
}
