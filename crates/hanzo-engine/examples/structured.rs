//! A reply that is what a JSON schema says: `cargo run --release -p hanzo-engine --example structured -- MODEL.gguf`

#![allow(clippy::print_stdout)]

use std::sync::Arc;

use hanzo_engine::constraint::{Grammar, GrammarCompiler};
use hanzo_engine::{Engine, Request, SamplingParams};

const SCHEMA: &str = r#"{
    "type": "object",
    "properties": {
        "name": { "type": "string", "maxLength": 20 },
        "legs": { "type": "integer", "minimum": 0, "maximum": 8 },
        "tame": { "type": "boolean" }
    },
    "required": ["name", "legs", "tame"],
    "additionalProperties": false
}"#;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = std::env::args().nth(1).ok_or("usage: structured MODEL.gguf")?;
    let engine = Engine::builder(model).context(512).build()?;
    let grammars = GrammarCompiler::new(Arc::clone(engine.tokenizer()?))?;
    let mut request = Request::new(engine.encode("An animal, as JSON:\n")?, 128);
    request.sampling = SamplingParams::greedy();
    request.constraint = Some(grammars.compile(&Grammar::JsonSchema(SCHEMA.to_owned()))?);
    let text = engine.reply(request)?.texts().collect::<Result<String, _>>()?;
    let animal: serde_json::Value = serde_json::from_str(&text)?;
    println!("{} has {} legs", animal["name"], animal["legs"]);
    Ok(())
}
