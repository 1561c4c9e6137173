//! How long it takes to open a file whose header holds a vocabulary of 262 144 tokens and 514 906 merges, and to
//! walk the tokens: `cargo run --release -p hanzo-gguf --example vocabulary_load [TOKENS [MERGES]]`.

#![allow(clippy::print_stdout, reason = "a measurement prints")]

use std::time::{Duration, Instant};

use hanzo_gguf::{GgufFile, GgufWriter, MetadataValue};

const REPETITIONS: usize = 21;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let n_tokens = args.next().transpose()?.unwrap_or(262_144);
    let n_merges = args.next().transpose()?.unwrap_or(514_906);

    // Lengths as in real vocabularies: 2 to 15 bytes, 7 on average.
    let token =
        |i: usize| format!("{:0width$x}", i.wrapping_mul(0x9e37_79b9) % 0xfff_ffff, width = 2 + i % 9);
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama")?;
    writer.set("tokenizer.ggml.tokens", MetadataValue::strings((0..n_tokens).map(token)))?;
    writer.set("tokenizer.ggml.scores", vec![-1f32; n_tokens].as_slice())?;
    writer.set("tokenizer.ggml.token_type", vec![1i32; n_tokens].as_slice())?;
    let merge = |i: usize| format!("{} {}", token(i / 2), token(i / 3));
    writer.set("tokenizer.ggml.merges", MetadataValue::strings((0..n_merges).map(merge)))?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("vocabulary.gguf");
    writer.create(&path)?.finish()?;
    println!("{n_tokens} tokens, {n_merges} merges, {} bytes of header", std::fs::metadata(&path)?.len());

    // Borrowed for as long as the program runs, as a model compiled into it would be.
    let bytes: &'static [u8] = Vec::leak(std::fs::read(&path)?);
    println!("times: median, least");
    println!("open the file           {:?}", median(|| GgufFile::open(&path).map(drop))?);
    println!("open from memory        {:?}", median(|| GgufFile::from_bytes(bytes).map(drop))?);
    let file = GgufFile::open(&path)?;
    let tokens = file.metadata().required_strings("tokenizer.ggml.tokens")?;
    let mut sum = 0;
    let walk = || {
        sum += tokens.iter().map(<[u8]>::len).sum::<usize>();
        Ok::<_, hanzo_gguf::Error>(())
    };
    println!("walk the tokens         {:?}", median(walk)?);
    let check = || tokens.iter_str().try_for_each(|text| text.map(drop));
    println!("and check that all are text {:?}", median(check)?);
    let mut hits = 0;
    let look_up = || {
        hits += (0..tokens.len())
            .filter(|i| tokens.get(i.wrapping_mul(7919) % n_tokens.max(1)).is_some())
            .count();
        Ok::<_, hanzo_gguf::Error>(())
    };
    println!("look up each, scattered {:?}", median(look_up)?);
    assert!(sum > 0 || n_tokens == 0);
    Ok(())
}

/// The median and the least time of some repetitions.
fn median<E>(mut run: impl FnMut() -> Result<(), E>) -> Result<(Duration, Duration), E> {
    let mut times = Vec::with_capacity(REPETITIONS);
    for _ in 0..REPETITIONS {
        let start = Instant::now();
        run()?;
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let nth = |i: usize| times.get(i).copied().unwrap_or_default();
    Ok((nth(REPETITIONS / 2), nth(0)))
}
