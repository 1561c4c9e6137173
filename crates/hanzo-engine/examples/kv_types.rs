//! What the element type of the KV cache costs: how the next token's distribution differs from that with an f16 cache,
//! teacher-forced over the reply that the f16 cache gives to a prompt.
//!
//! `cargo run --release -p hanzo-engine --example kv_types -- MODEL.gguf PROMPT_FILE [tokens]`
//!
//! One line of JSON a cache type: mean and greatest Kullback-Leibler divergence in nats; at how many positions the most likely token
//! is the same; for those where it is not, how much likelier the reference's token was than its second, in nats; how many tokens
//! of its own greedy reply are the reference's; bytes of the cache a token.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::mpsc::{Receiver, sync_channel};

use hanzo_engine::{
    Distribution, Engine, EngineError, EngineOptions, Event, LogitsRequest, Request, SamplingParams,
    Speculation,
};
use hanzo_fusion::KvType;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let usage = "usage: kv_types MODEL.gguf PROMPT_FILE [tokens]";
    let (model, text) = (args.next().ok_or(usage)?, std::fs::read_to_string(args.next().ok_or(usage)?)?);
    let n: usize = args.next().map_or(Ok(128), |n| n.parse())?;
    let engine = |kv_type| {
        let options = EngineOptions {
            max_context: Some(4096),
            max_sequences: 1,
            prefix_cache: false,
            speculation: Speculation::off(),
            kv_type,
            ..EngineOptions::default()
        };
        Engine::builder(model.as_str()).options(options).build()
    };
    let reference = engine(KvType::F16)?;
    let prompt = reference.encode(&text)?;
    let reply = greedy(&reference, &prompt, n)?;
    for (name, kv_type) in [("f32", KvType::F32), ("int8", KvType::Int8)] {
        let other = engine(kv_type)?;
        let bytes = other.info().memory.kv as f64 / other.info().kv_tokens as f64;
        let result = compare(&reference, &other, &prompt, &reply)?;
        let own = greedy(&other, &prompt, n)?;
        println!(
            "{}",
            serde_json::json!({
                "kv": name, "prompt": prompt.len(), "tokens": reply.len(),
                "mean_kld": result.sum / reply.len() as f64, "max_kld": result.greatest,
                "same_top": result.same, "margins_of_others": result.margins,
                "same_reply": own.iter().zip(&reply).take_while(|(a, b)| a == b).count(),
                "bytes_per_token": bytes,
            })
        );
    }
    Ok(())
}

fn greedy(engine: &Engine, prompt: &[u32], n: usize) -> Result<Vec<u32>, EngineError> {
    let request =
        Request { sampling: SamplingParams::greedy(), ignore_eos: true, ..Request::new(prompt.to_vec(), n) };
    let mut tokens = Vec::new();
    for event in engine.generate(request)? {
        match event {
            Event::Token(token) => tokens.push(token.id),
            Event::Finished(_) => {}
            Event::Failed(error) => return Err(error),
        }
    }
    Ok(tokens)
}

#[derive(Default)]
struct Comparison {
    sum: f64,
    greatest: f64,
    same: usize,
    margins: Vec<f32>,
}

/// Both engines read the text at once; a row of each waits until the other's is there.
fn compare(a: &Engine, b: &Engine, prompt: &[u32], reply: &[u32]) -> Result<Comparison, Box<dyn Error>> {
    let rows = |engine: &Engine| -> Result<Receiver<Vec<f32>>, EngineError> {
        let (sender, receiver) = sync_channel(1);
        let tokens = [prompt, reply].concat();
        let rows = prompt.len() - 1..tokens.len() - 1;
        let request = LogitsRequest { rows, ..LogitsRequest::new(tokens) };
        engine.submit_logits(request, move |_, row| sender.send(row.to_vec()).is_ok(), |_| {})?;
        Ok(receiver)
    };
    let (all_p, all_q) = (rows(a)?, rows(b)?);
    let mut result = Comparison::default();
    for _ in reply {
        let (p, q) = (all_p.recv()?, all_q.recv()?);
        let (p, q) = (Distribution::new(&p), Distribution::new(&q));
        let divergence = p.divergence(&q).ok_or("the logits are no distribution")?.kld;
        result.sum += divergence;
        result.greatest = result.greatest.max(divergence);
        let (best, other) = (p.top(2), q.top(1));
        match (&best[..], &other[..]) {
            ([a, ..], [b]) if a.id == b.id => result.same += 1,
            ([a, second], _) => result.margins.push(a.logprob - second.logprob),
            _ => {}
        }
    }
    Ok(result)
}
