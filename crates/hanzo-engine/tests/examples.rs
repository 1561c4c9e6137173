//! The examples run: on the small model that `hanzo` has built in, each to its end and with something to say.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::path::Path;
use std::process::Command;

/// What an example prints. `None`, with a printed line, where it was not built.
fn run(name: &str) -> Option<String> {
    // Cargo builds the examples beside the tests.
    let folder = std::env::current_exe().unwrap().parent().unwrap().parent().unwrap().join("examples");
    let program = folder.join(name).with_extension(std::env::consts::EXE_EXTENSION);
    if !program.exists() {
        assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is missing", program.display());
        println!("skipped: {} is missing; `cargo test` without `--test` builds it", program.display());
        return None;
    }
    let model = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hanzo-cli/assets/hanzo-tiny.gguf");
    let output = Command::new(program).arg(model).env("HANZO_CPU_THREADS", "1").output().unwrap();
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
    assert!(output.status.success(), "{name}: {err}");
    println!("{name}:\n{out}");
    Some(out)
}

#[test]
fn generate_continues() {
    let Some(out) = run("generate") else { return };
    assert!(out.len() > "Once upon a time\n".len() + 20);
}

#[test]
fn chat_streams() {
    let Some(out) = run("chat") else { return };
    assert!(out.contains(" tokens)"));
}

#[test]
fn batch_answers_all_together() {
    let Some(out) = run("batch") else { return };
    assert!(out.lines().count() >= 7, "{out}");
    let last: Vec<usize> =
        out.lines().last().unwrap().split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(last[0] > last[1], "steps are shared: {last:?}");
}

#[test]
fn structured_output_is_json() {
    let Some(out) = run("structured") else { return };
    assert!(out.contains(" legs"));
}

#[test]
fn embed_compares_and_scores() {
    let Some(out) = run("embed") else { return };
    assert!(out.starts_with(" 1.000 like the first;"), "{out}");
    assert_eq!(out.lines().count(), 3);
}
