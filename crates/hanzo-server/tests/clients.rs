//! Official clients against a server in this process. They need Python with the packages of `clients/requirements.txt`
//! (`HANZO_TEST_PYTHON` names another one), and node 20 with `npm ci` in `clients`; `scripts/test.sh` gets these. Skipped without,
//! unless `HANZO_REQUIRE=all`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::start_with;
use hanzo_server::{Config, LoadSettings};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");

/// Whether a command ends well.
fn works(program: &Path, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|out| out.status.success())
}

fn skip<T>(missing: &str) -> Option<T> {
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{missing}");
    println!("skipped: {missing}");
    None
}

/// A Python that has `package`.
fn python_with(package: &str) -> Option<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/test-cache/venv/bin/python");
    let python = std::env::var_os("HANZO_TEST_PYTHON").map_or(own, PathBuf::from);
    if works(&python, &["-c", &format!("import {package}")]) {
        return Some(python);
    }
    skip(&format!("{} with the package {package} is missing", python.display()))
}

/// A Node that has `package`.
fn node_with(package: &str) -> Option<PathBuf> {
    let node = PathBuf::from("node");
    let new = "process.exit(Number(process.versions.node.split('.')[0]) < 20 ? 1 : 0)";
    if works(&node, &["-e", new]) && Path::new(CLIENTS).join("node_modules").join(package).is_dir() {
        return Some(node);
    }
    skip(&format!("node 20 with {package} (npm ci in crates/hanzo-server/tests/clients) is missing"))
}

/// Runs `SCRIPT BASE_URL`, which must end well.
async fn run(interpreter: PathBuf, script: &str, path: &str) {
    run_with(interpreter, &[script], path).await;
}

/// Runs a program with a server whose address and key it gets as its last argument and by the names that the examples read. Returns what
/// it said.
async fn run_with(program: PathBuf, args: &[&str], path: &str) -> String {
    let config = Config { api_keys: vec!["sesame".to_owned()], ..Config::default() };
    let server = start_with(config, &LoadSettings::default()).await;
    let url = format!("http://{}", server.address);
    let mut command = Command::new(program);
    command.args(args).arg(format!("{url}{path}")).env("HANZO_URL", &url).env("HANZO_API_KEY", "sesame");
    // No bytecode beside the sources.
    command.current_dir(CLIENTS).env("PYTHONDONTWRITEBYTECODE", "1");
    let out = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(out.status.success(), "{}{}", text(&out.stdout), text(&out.stderr));
    print!("{}", text(&out.stdout));
    text(&out.stdout)
}

/// The examples end well, and end with a colour.
#[tokio::test(flavor = "multi_thread")]
async fn the_examples_work() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let path = |name: &str| examples.join(name).to_str().unwrap().to_owned();
    let mut said = Vec::new();
    if works(Path::new("curl"), &["--version"]) {
        said.push(run_with("bash".into(), &[&path("chat.sh")], "").await);
    } else {
        skip::<()>("curl is missing");
    }
    if let Some(python) = python_with("openai") {
        said.push(run_with(python, &[&path("chat.py")], "").await);
    }
    if let Some(node) = node_with("openai") {
        // As text, so that its packages are those of this folder.
        let script = std::fs::read_to_string(path("chat.mjs")).unwrap();
        said.push(run_with(node, &["--input-type=module", "--eval", &script], "").await);
    }
    for text in said {
        let last = text.trim_end().lines().last().unwrap_or_default();
        assert!(["red", "green", "blue"].iter().any(|colour| last.contains(colour)), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_for_python() {
    if let Some(python) = python_with("openai") {
        run(python, "openai_client.py", "/v1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_for_node() {
    if let Some(node) = node_with("openai") {
        run(node, "openai_client.mjs", "/v1").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropic_for_python() {
    if let Some(python) = python_with("anthropic") {
        run(python, "anthropic_client.py", "").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ollama_for_python() {
    if let Some(python) = python_with("ollama") {
        run(python, "ollama_client.py", "").await;
    }
}
