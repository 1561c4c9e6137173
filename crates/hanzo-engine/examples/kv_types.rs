//! What the element type of the KV cache costs: the divergence of the next token's distribution from that of an f32 cache,
//! teacher-forced over a text.
//!
//! `cargo run --release -p hanzo-engine --example kv_types -- MODEL.gguf TEXT_FILE [tokens]`
//!
//! One line of JSON a cache type: mean and greatest Kullback-Leibler divergence in nats, how many of the most likely tokens
//! are the same, bytes of the cache a token.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::mpsc::{Receiver, sync_channel};

use hanzo_engine::{Distribution, Engine, EngineError, EngineOptions, LogitsRequest, Speculation};
use hanzo_fusion::KvType;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: kv_types MODEL.gguf TEXT_FILE [tokens]";
    let (model, text) = (args.next().ok_or(usage)?, std::fs::read_to_string(args.next().ok_or(usage)?)?);
    let n: usize = args.next().map_or(Ok(512), |n| n.parse())?;
    let engine = |kv_type| {
        let options = EngineOptions {
            max_context: Some(n + 16),
            max_sequences: 1,
            prefix_cache: false,
            speculation: Speculation::off(),
            kv_type,
            ..EngineOptions::default()
        };
        Engine::builder(model.as_str()).options(options).build()
    };
    let reference = engine(KvType::F32)?;
    let mut tokens = reference.encode(&text)?;
    tokens.truncate(n);
    for (name, kv_type) in [("f16", KvType::F16), ("int8", KvType::Int8)] {
        let other = engine(kv_type)?;
        let bytes = other.info().memory.kv as f64 / other.info().kv_tokens as f64;
        let result = compare(&reference, &other, &tokens)?;
        println!(
            "{}",
            serde_json::json!({
                "kv": name, "tokens": tokens.len(), "mean_kld": result.sum / tokens.len() as f64,
                "max_kld": result.greatest, "same_top": result.same, "bytes_per_token": bytes,
            })
        );
    }
    Ok(())
}

#[derive(Default)]
struct Divergence {
    sum: f64,
    greatest: f64,
    same: usize,
}

/// Both engines read the text at once; a row of each waits until the other's is there.
fn compare(a: &Engine, b: &Engine, tokens: &[u32]) -> Result<Divergence, Box<dyn Error>> {
    let rows = |engine: &Engine| -> Result<Receiver<Vec<f32>>, EngineError> {
        let (sender, receiver) = sync_channel(1);
        let request = LogitsRequest::new(tokens.to_vec());
        engine.submit_logits(request, move |_, row| sender.send(row.to_vec()).is_ok(), |_| {})?;
        Ok(receiver)
    };
    let (all_p, all_q) = (rows(a)?, rows(b)?);
    let mut result = Divergence::default();
    for _ in tokens {
        let (p, q) = (all_p.recv()?, all_q.recv()?);
        let (p, q) = (Distribution::new(&p), Distribution::new(&q));
        let of = |id: u32| p.logprob(id).exp() * (p.logprob(id) - q.logprob(id));
        let divergence: f64 = (0..a.info().vocab_size as u32).map(of).filter(|x| x.is_finite()).sum();
        result.sum += divergence;
        result.greatest = result.greatest.max(divergence);
        let best = |d: &Distribution<'_>| d.top(1).first().map(|t| t.id);
        result.same += usize::from(best(&p) == best(&q));
    }
    Ok(result)
}
