//! Many requests at once: `cargo run --release -p hanzo-engine --example batch -- MODEL.gguf`
//!
//! All of them share each step of the model; each reply is the one that the request would get alone.

#![allow(clippy::print_stdout)]

use hanzo_engine::{Engine, Request, SamplingParams};

const BEGINNINGS: [&str; 6] = [
    "The cat sat on",
    "A long time ago, in a village by the sea,",
    "My favourite colour is",
    "When the rain stopped,",
    "The old clock",
    "She opened the box and found",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("usage: batch MODEL.gguf")?;
    let engine = Engine::builder(model).context(512).sequences(BEGINNINGS.len()).build()?;
    let mut replies = Vec::new();
    for (seed, beginning) in (1..).zip(BEGINNINGS) {
        let mut request = Request::new(engine.encode(beginning)?, 24);
        request.sampling = SamplingParams { seed, ..SamplingParams::default() };
        replies.push((beginning, engine.reply(request)?));
    }
    for (beginning, reply) in replies {
        println!("{beginning}{}", reply.texts().collect::<Result<String, _>>()?);
    }
    let metrics = engine.metrics();
    println!("{} tokens in {} steps", metrics.generated_tokens, metrics.steps);
    Ok(())
}
