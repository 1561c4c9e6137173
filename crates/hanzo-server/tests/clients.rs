//! Official clients against a server in this process. They need Python with the packages of `clients/requirements.txt`, which
//! `scripts/test.sh` installs; `HANZO_TEST_PYTHON` names another one. Skipped without, unless `HANZO_REQUIRE=all`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::start_with;
use hanzo_server::{Config, LoadSettings};

/// A Python that has `package`.
fn python_with(package: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-cache/venv/bin/python");
    let python = std::env::var_os("HANZO_TEST_PYTHON").map_or(own, PathBuf::from);
    let has = Command::new(&python).args(["-c", &format!("import {package}")]).output();
    if has.is_ok_and(|out| out.status.success()) {
        return Some(python);
    }
    let missing = format!("{} with the package {package} is missing", python.display());
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{missing}");
    println!("skipped: {missing}");
    None
}

/// Runs `clients/SCRIPT BASE_URL`, which must end well.
async fn run(python: PathBuf, script: &str, path: &str) {
    let config = Config { api_keys: vec!["sesame".to_owned()], ..Config::default() };
    let server = start_with(config, &LoadSettings::default()).await;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
    let url = format!("http://{}{path}", server.address);
    let out =
        tokio::task::spawn_blocking(move || Command::new(python).arg(script).arg(url).output().unwrap());
    let out = out.await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    print!("{}", text(&out.stdout));
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_for_python() {
    if let Some(python) = python_with("openai") {
        run(python, "openai_client.py", "/v1").await;
    }
}
