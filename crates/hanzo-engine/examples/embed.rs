//! Texts as vectors, and how likely a text is: `cargo run --release -p hanzo-engine --example embed -- MODEL.gguf`

#![allow(clippy::print_stdout)]

use hanzo_engine::{EmbedRequest, Engine, Pooling, ScoreRequest};

const TEXTS: [&str; 3] =
    ["The dog chased the ball.", "A puppy ran after a toy.", "Interest rates rose in March."];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("usage: embed MODEL.gguf")?;
    let engine = Engine::builder(model).context(512).build()?;
    let mut vectors = Vec::new();
    for text in TEXTS {
        let request =
            EmbedRequest { pooling: Some(Pooling::Mean), ..EmbedRequest::new(engine.encode_whole(text)?) };
        vectors.push(engine.embed(request)?.vector);
    }
    for (text, vector) in TEXTS.iter().zip(&vectors) {
        let alike: f32 = vectors[0].iter().zip(vector).map(|(a, b)| a * b).sum();
        if !engine.info().generates {
            println!("{alike:6.3} like the first: {text}");
            continue;
        }
        let scores = engine.score(ScoreRequest::new(engine.encode(text)?))?;
        let each = scores.logprob() / scores.tokens.len() as f64;
        println!("{alike:6.3} like the first; {each:6.2} nats a token: {text}");
    }
    Ok(())
}
