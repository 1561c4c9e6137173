//! Running the binary.
// Not every test uses all of it, and all of it is for tests.
#![allow(dead_code, clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

pub mod server;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The built-in model, as a file.
pub const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/assets/hanzo-tiny.gguf");

/// What a run left behind.
pub struct Run {
    pub code: i32,
    pub out: Vec<u8>,
    pub err: String,
}

impl Run {
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.out).unwrap()
    }

    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e}: {}\n{}", self.text(), self.err))
    }

    /// The run did what it was asked to.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }

    /// The run ended with this code and a message that has all these parts.
    #[track_caller]
    pub fn fails(self, code: i32, parts: &[&str]) -> Self {
        assert_eq!(self.code, code, "{}", self.err);
        for part in parts {
            assert!(self.err.contains(part), "no `{part}` in: {}", self.err);
        }
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }
}

/// The command, with an empty cache and nothing on standard input.
pub fn hanzo() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_hanzo"));
    command
        .env("HANZO_HOME", "/nonexistent/hanzo")
        .env("HF_HUB_CACHE", "/nonexistent/hub")
        .stdin(Stdio::null());
    for name in [
        "HANZO_CPU_ISA",
        "HANZO_CPU_THREADS",
        "HANZO_FUSE",
        "HANZO_PACK_CACHE",
        "HANZO_PLAN",
        "HANZO_QGEMM_FALLBACK",
        "HANZO_QGEMM_TILE_FALLBACK",
        "HANZO_QMATVEC_FALLBACK",
        "HANZO_ATTENTION_FALLBACK",
        "HF_ENDPOINT",
        "HF_HOME",
        "HF_TOKEN",
        "HF_HUB_OFFLINE",
    ] {
        command.env_remove(name);
    }
    command
}

/// Runs a command to its end.
#[track_caller]
pub fn finish(command: &mut Command) -> Run {
    let output = command.output().unwrap();
    let code = output.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", output.status));
    Run { code, out: output.stdout, err: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// Runs the binary with arguments.
#[track_caller]
pub fn run(args: &[&str]) -> Run {
    finish(hanzo().args(args))
}

/// Runs the binary with something on standard input.
#[track_caller]
pub fn run_with_input(args: &[&str], input: &[u8]) -> Run {
    let mut command = hanzo();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // The program may have ended without reading.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    let code = output.status.code().unwrap();
    Run { code, out: output.stdout, err: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// A path under the folder of reference values, or `None` (with a line) where that is absent.
pub fn shared(path: &str) -> Option<PathBuf> {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared"));
    if root.is_dir() {
        return Some(root.join(path));
    }
    assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is absent", root.display());
    println!("skipped: {} is absent", root.display());
    None
}

/// Little-endian f32.
pub fn read_f32(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|c| f32::from_le_bytes(*c)).collect()
}
