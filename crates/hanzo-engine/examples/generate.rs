//! Continues a text: `cargo run --release -p hanzo-engine --example generate -- MODEL.gguf "Once upon a time"`

#![allow(clippy::print_stdout)]

use std::io::Write as _;

use hanzo_engine::{Engine, Request};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("usage: generate MODEL.gguf [PROMPT]")?;
    let prompt = args.next().unwrap_or_else(|| "Once upon a time".to_owned());
    let engine = Engine::builder(model).context(1024).build()?;
    print!("{prompt}");
    for text in engine.reply(Request::new(engine.encode(&prompt)?, 64))?.texts() {
        print!("{}", text?);
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}
