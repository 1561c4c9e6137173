//! Tokenizes many texts with one vocabulary, for comparison with other tokenizers.
//!
//! `tokenize MODEL.gguf [--nfc] [--parse-special] < TEXTS.json > IDS.json`: an array of strings in, an array of arrays
//! of ids out. `tokenize --pieces NAME` gives the pieces of the pre-tokenizer of that name instead.
#![allow(clippy::print_stdout, reason = "a command-line tool")]

use hanzo_text::tokenizer::{EncodeOptions, Tokenizer, Vocab, pretokenize};
use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| args.iter().any(|a| a == flag);
    let input = std::io::read_to_string(std::io::stdin())?;
    let texts: Vec<String> = serde_json::from_str(&input)?;
    let Some(model) = args.iter().find(|a| !a.starts_with("--")) else {
        return Err("usage: tokenize (MODEL.gguf [--nfc] [--parse-special] | --pieces NAME)".into());
    };
    if has("--pieces") {
        let pieces = texts.iter().map(|t| pretokenize(model, t)).collect::<Result<Vec<_>, _>>()?;
        println!("{}", serde_json::to_string(&pieces)?);
        return Ok(());
    }
    let file = hanzo_gguf::GgufFile::open(model)?;
    let mut vocab = Vocab::from_gguf(file.metadata())?;
    vocab.nfc = has("--nfc");
    let tokenizer = Tokenizer::new(vocab)?;
    let options = EncodeOptions { add_special: false, parse_special: has("--parse-special") };
    let ids = texts.iter().map(|t| tokenizer.encode(t, options)).collect::<Result<Vec<_>, _>>()?;
    println!("{}", serde_json::to_string(&ids)?);
    Ok(())
}
