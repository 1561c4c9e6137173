//! What prompt lookup gains and costs: decode speed with it over decode speed without, on three workloads and for several γ.
//!
//! `cargo run --release -p hanzo-engine --example speculation -- MODEL.gguf [--threads N] [-n TOKENS] [-r REPETITIONS] [--gamma 4,8,16] [--json]`
//!
//! One engine a γ, and one without; they answer each prompt in turn, once to warm up and then as often as asked. Times are taken by
//! the caller's clock from the first token to the last. Replies must be the same, byte for byte: their SHA-256 is compared
//! and written beside the samples. `--json` is a sample file for `hanzo-bench stats`.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Instant;

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_engine::{
    Engine, EngineOptions, Event, Finish, PromptLookup, Request, SamplingParams, Speculation,
};
use hanzo_gguf::GgufFile;
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const LIST: &str =
    "1. amber lantern\n2. copper kettle\n3. velvet curtain\n4. marble staircase\n5. silver compass\n";
const CODE: &str = "def merge(left, right):\n    result = []\n    i = j = 0\n    while i < len(left) and j < len(right):\n        \
                    if left[i] <= right[j]:\n            result.append(left[i])\n            i += 1\n        else:\n            \
                    result.append(right[j])\n            j += 1\n    result.extend(left[i:])\n    result.extend(right[j:])\n    \
                    return result\n";

/// Tokens of a prompt and reply together.
const CONTEXT: usize = 4096;

fn chat(user: &str, reply: &str) -> String {
    format!("<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{reply}")
}

struct Args {
    model: String,
    threads: Option<usize>,
    tokens: usize,
    repetitions: usize,
    gammas: Vec<usize>,
    json: bool,
}

fn args() -> Result<Args, Box<dyn Error>> {
    let usage =
        "usage: speculation MODEL.gguf [--threads N] [-n TOKENS] [-r REPETITIONS] [--gamma 4,8,16] [--json]";
    let mut parsed = Args {
        model: String::new(),
        threads: None,
        tokens: 128,
        repetitions: 5,
        gammas: vec![4, 8, 16],
        json: false,
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(usage);
        match arg.as_str() {
            "--threads" => parsed.threads = Some(value()?.parse()?),
            "-n" => parsed.tokens = value()?.parse()?,
            "-r" => parsed.repetitions = value()?.parse()?,
            "--gamma" => parsed.gammas = value()?.split(',').map(str::parse).collect::<Result<_, _>>()?,
            "--json" => parsed.json = true,
            _ if arg.starts_with('-') || !parsed.model.is_empty() => return Err(usage.into()),
            _ => parsed.model = arg,
        }
    }
    let right = !parsed.model.is_empty()
        && (2..=CONTEXT / 2).contains(&parsed.tokens)
        && parsed.gammas.iter().all(|g| (1..=Speculation::MOST).contains(g));
    if right { Ok(parsed) } else { Err(usage.into()) }
}

/// An engine, and what its replies to one prompt took.
struct Side {
    /// 0 for none.
    gamma: usize,
    engine: Engine,
    samples: Vec<(f64, usize)>,
    reply: Option<Vec<u32>>,
    finish: Option<Finish>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let args = args()?;
    let file = GgufFile::open(std::path::Path::new(&args.model))?;
    let tokenizer = Tokenizer::from_gguf(file.metadata())?;
    let device = CpuDevice::new(&CpuConfig { threads: args.threads, ..CpuConfig::default() })?;
    let mut sides = Vec::new();
    for gamma in std::iter::once(0).chain(args.gammas.iter().copied()) {
        let speculation = match gamma {
            0 => Speculation::off(),
            most => Speculation::with(most, || Box::new(PromptLookup::default())),
        };
        let options = EngineOptions { max_context: Some(CONTEXT), speculation, ..EngineOptions::default() };
        let engine = Engine::load(&file, &device, options, &())?;
        sides.push(Side { gamma, engine, samples: Vec::new(), reply: None, finish: None });
    }
    let workloads = [
        ("sustained-reuse", chat(&format!("Repeat this list ten times, exactly:\n{LIST}"), &LIST.repeat(2))),
        (
            "code-copy",
            chat(
                &format!("Return this function whole, with a docstring:\n```python\n{CODE}```"),
                "```python\n",
            ),
        ),
        ("novel", chat("Tell me a long story about a lighthouse keeper who finds a letter.", "")),
    ];
    let info = sides[0].engine.info().clone();
    if !args.json {
        println!("{}, {} tokens a reply", info.device, args.tokens);
        println!(
            "{:16} {:>5} {:>9} {:>7} {:>9} {:>9}",
            "workload", "gamma", "tok/s", "ratio", "drafted", "accepted"
        );
    }
    let mut cells: Vec<Value> = Vec::new();
    for (name, text) in workloads {
        let prompt = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: true })?;
        for side in &mut sides {
            (side.samples, side.reply) = (Vec::new(), None);
        }
        for _ in 0..=args.repetitions {
            for side in &mut sides {
                side.answer(&prompt, args.tokens).map_err(|e| format!("{name}: {e}"))?;
            }
        }
        let plain = sides[0].median();
        for side in &sides {
            let reply = side.reply.as_deref().unwrap_or_default();
            if Some(reply) != sides[0].reply.as_deref() {
                return Err(format!("{name}: the reply with γ {} is another", side.gamma).into());
            }
            let finish = side.finish.ok_or("no reply")?;
            let (drafted, accepted) = (finish.drafted_tokens, finish.accepted_tokens);
            if args.json {
                cells.push(json!({
                    "phase": "speculation", "workload": name, "gamma": side.gamma, "n": args.tokens, "batch": 1, "depth": 0,
                    "samples": side.samples, "sha256": sha256(reply), "drafts": [drafted, accepted],
                }));
            } else {
                let speed = side.median();
                println!(
                    "{name:16} {:5} {speed:9.1} {:7.2} {drafted:9} {accepted:9}",
                    side.gamma,
                    speed / plain
                );
            }
        }
    }
    if args.json {
        let model = std::path::Path::new(&args.model).file_name().map(|n| n.to_string_lossy().into_owned());
        let manifest = json!({
            "engine": "hanzo", "version": env!("CARGO_PKG_VERSION"), "device": info.device, "model": model, "sampler": "greedy",
            "speculation": "prompt lookup, n-grams of up to 3, drafts adapt down to none", "prefix_cache": true, "stop_at_eos": false,
        });
        println!("{:#}", json!({ "manifest": manifest, "cells": cells }));
    }
    Ok(())
}

/// Of the token ids, four little-endian bytes each.
fn sha256(reply: &[u32]) -> String {
    let mut hash = Sha256::new();
    reply.iter().for_each(|id| hash.update(id.to_le_bytes()));
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

impl Side {
    /// Takes one sample.
    fn answer(&mut self, prompt: &[u32], n: usize) -> Result<(), Box<dyn Error>> {
        let mut request = Request::new(prompt.to_vec(), n);
        request.sampling = SamplingParams::greedy();
        request.ignore_eos = true;
        let (mut tokens, mut times) = (Vec::new(), Vec::new());
        for event in self.engine.generate(request)? {
            match event {
                Event::Token(token) => {
                    times.push(Instant::now());
                    tokens.push(token.id);
                }
                Event::Finished(finish) => self.finish = Some(finish),
                Event::Failed(error) => return Err(error.into()),
            }
        }
        let (Some(first), Some(last)) = (times.first(), times.last()) else {
            return Err("no token came".into());
        };
        self.samples.push((last.duration_since(*first).as_secs_f64().max(1e-9), tokens.len() - 1));
        match &self.reply {
            Some(known) if *known != tokens => {
                Err(format!("γ {}: the same prompt, another reply", self.gamma).into())
            }
            _ => {
                self.reply = Some(tokens);
                Ok(())
            }
        }
    }

    /// Median speed after the warm-up, tokens a second.
    fn median(&self) -> f64 {
        let mut rates: Vec<f64> = self.samples.iter().skip(1).map(|(s, n)| *n as f64 / s).collect();
        rates.sort_by(f64::total_cmp);
        rates.get(rates.len() / 2).copied().unwrap_or(f64::NAN)
    }
}
