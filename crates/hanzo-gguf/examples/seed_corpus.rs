//! Writes the seeds of the parser's fuzz corpus: `cargo run -p hanzo-gguf --example seed_corpus -- FOLDER`.

#![allow(clippy::unwrap_used, reason = "a tool for developers")]

#[path = "../tests/common/mod.rs"]
mod common;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: seed_corpus FOLDER")?;
    std::fs::create_dir_all(&folder)?;
    for (name, bytes) in common::seeds() {
        std::fs::write(std::path::Path::new(&folder).join(name), bytes)?;
    }
    Ok(())
}
