//! Measures one vocabulary on one thread: time to load, time to encode a text, and time for hostile texts.
//!
//! `tokenizer_speed MODEL.gguf TEXT_FILE [REPETITIONS]` prints one JSON object with every sample in seconds.
#![allow(clippy::print_stdout, reason = "a command-line tool")]

use hanzo_text::tokenizer::{EncodeOptions, Tokenizer, Vocab};
use std::error::Error;
use std::sync::LazyLock;
use std::time::Instant;

/// Seconds that this thread has run, where the system tells (Linux), so that a busy machine disturbs less; else wall time.
fn now() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let on_cpu = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let on_cpu = on_cpu.and_then(|s| s.split(' ').next()?.parse::<f64>().ok());
    on_cpu.map_or_else(|| START.elapsed().as_secs_f64(), |ns| ns * 1e-9)
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [model, text, rest @ ..] = &args[..] else {
        return Err("usage: tokenizer_speed MODEL.gguf TEXT_FILE [REPETITIONS]".into());
    };
    let repetitions: usize = rest.first().map_or(Ok(5), |r| r.parse())?;
    let text = std::fs::read_to_string(text)?;
    let options = EncodeOptions { add_special: false, parse_special: false };

    let mut open = Vec::new();
    let mut collect = Vec::new();
    let mut load = Vec::new();
    let mut encode = Vec::new();
    let mut n_tokens = 0;
    let mut tokenizer = None;
    for _ in 0..repetitions {
        let start = now();
        let file = hanzo_gguf::GgufFile::open(model)?;
        open.push(now() - start);
        let start = now();
        let vocab = Vocab::from_gguf(file.metadata())?;
        collect.push(now() - start);
        let start = now();
        tokenizer = Some(Tokenizer::new(vocab)?);
        load.push(now() - start);
    }
    let Some(tokenizer) = tokenizer else { return Err("no repetitions".into()) };
    for _ in 0..repetitions {
        let start = now();
        n_tokens = tokenizer.encode(&text, options)?.len();
        encode.push(now() - start);
    }
    let mut hostile = serde_json::Map::new();
    let shapes = [
        ("letter", "a".to_owned()),
        ("space", " ".to_owned()),
        ("line_feed", "\n".to_owned()),
        ("digit", "7".to_owned()),
        ("punctuation", "!".to_owned()),
        ("mark", "e\u{301}".to_owned()),
        ("capital", "A".to_owned()),
        ("chinese", "\u{4e2d}".to_owned()),
        ("bracket", "<|".to_owned()),
        ("apostrophe", "'".to_owned()),
    ];
    for (name, unit) in shapes {
        for size in [1 << 18, 1 << 20] {
            let text = unit.repeat(size / unit.len());
            let start = now();
            tokenizer.encode(&text, options)?;
            hostile.insert(format!("{name}_{}k", size >> 10), (now() - start).into());
        }
    }
    let out = serde_json::json!({
        "bytes": text.len(), "tokens": n_tokens, "vocabulary": tokenizer.vocab_size(),
        "open_s": open, "collect_s": collect, "load_s": load, "encode_s": encode, "hostile_s": hostile,
    });
    println!("{out}");
    Ok(())
}
