//! Aggregate decode speed by the number of streams, and what a long prompt does to those that run.
//!
//! `cargo run --release -p hanzo-engine --example throughput -- MODEL.gguf [threads] [tokens]`
//!
//! One line of JSON a number of streams. Then, in turn, with chunks of prompts that follow the running streams and with ones that
//! take the whole budget of a step: the times between tokens alone and while a long prompt is computed, and the time to
//! the prompt's first token.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_engine::{Engine, EngineOptions, Event, Request, SamplingParams, Speculation};
use hanzo_gguf::GgufFile;
use serde_json::json;

/// Tokens of the prompt that comes while others run.
const LONG: usize = 4096;
/// Streams that run meanwhile.
const RUNNING: usize = 4;
/// Times that both sizes of chunks are measured, in turn.
const ROUNDS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: throughput MODEL.gguf [threads] [tokens]")?;
    let threads = args.next().map(|a| a.parse()).transpose()?;
    let n: usize = args.next().map_or(Ok(64), |a| a.parse())?;
    let file = GgufFile::open(std::path::Path::new(&path))?;
    let device = CpuDevice::new(&CpuConfig { threads, ..CpuConfig::default() })?;
    let load = |max_slowdown| {
        let options = EngineOptions {
            max_context: Some(LONG + 256),
            kv_tokens: Some(16_384),
            prefix_cache: false,
            speculation: Speculation::off(),
            max_slowdown,
            ..EngineOptions::default()
        };
        Engine::load(&file, &device, options, &())
    };
    let engine = load(EngineOptions::default().max_slowdown)?;
    let mut one = None;
    for streams in [1, 2, 4, 8, 16, 32] {
        let speed = aggregate(&engine, streams, n)?;
        let base = *one.get_or_insert(speed);
        let ratio = speed / base;
        let device = &engine.info().device;
        println!(
            "{}",
            json!({ "streams": streams, "tokens_per_second": speed, "ratio": ratio, "device": device })
        );
    }
    let fixed = load(None)?;
    for _ in 0..ROUNDS {
        latency(&engine, "adaptive")?;
        latency(&fixed, "fixed")?;
    }
    Ok(())
}

/// A prompt of its own for each stream.
fn request(engine: &Engine, stream: usize, prompt: usize, max_tokens: usize) -> Request {
    let vocab = engine.info().vocab_size.max(1000) as u32 / 2;
    let tokens =
        (0..prompt as u32).map(|i| 200 + (i * 7919 + stream as u32 * 104_729) % (vocab - 200)).collect();
    Request { sampling: SamplingParams::greedy(), ignore_eos: true, ..Request::new(tokens, max_tokens) }
}

/// Submits and gives the times of tokens, each with its stream; the channel closes when all are through.
fn submit(engine: &Engine, requests: Vec<Request>) -> Result<Receiver<(usize, Instant)>, Box<dyn Error>> {
    let (sender, receiver) = channel();
    for (i, request) in requests.into_iter().enumerate() {
        let sender = sender.clone();
        engine.submit(
            request,
            Box::new(move |event| match event {
                Event::Token(_) => sender.send((i, Instant::now())).is_ok(),
                _ => true,
            }),
        )?;
    }
    Ok(receiver)
}

/// Tokens a second of all streams together, while all of them decode.
fn aggregate(engine: &Engine, streams: usize, n: usize) -> Result<f64, Box<dyn Error>> {
    let requests = (0..streams).map(|s| request(engine, s, 16, n)).collect();
    let times: Vec<(usize, Instant)> = submit(engine, requests)?.iter().collect();
    let of = |s: usize| times.iter().filter(move |t| t.0 == s).map(|t| t.1);
    let began = (0..streams).filter_map(|s| of(s).min()).max().ok_or("no token came")?;
    let ended = (0..streams).filter_map(|s| of(s).max()).min().ok_or("no token came")?;
    let count = times.iter().filter(|t| t.1 > began && t.1 <= ended).count();
    Ok(count as f64 / ended.duration_since(began).as_secs_f64())
}

/// Times between tokens of running streams, alone and while a long prompt is computed.
fn latency(engine: &Engine, chunk: &str) -> Result<(), Box<dyn Error>> {
    // Long enough to run on until the prompt is through.
    let requests = (0..RUNNING).map(|s| request(engine, s, 16, LONG)).collect();
    let running = submit(engine, requests)?;
    let mut idle = Gaps::default();
    while idle.all.len() < 200 * RUNNING {
        idle.take(running.recv()?);
    }
    let asked = Instant::now();
    let prompt = submit(engine, vec![request(engine, 99, LONG, 1)])?;
    let mut busy = Gaps::default();
    let first = loop {
        busy.take(running.recv()?);
        if let Ok((_, first)) = prompt.try_recv() {
            break first;
        }
    };
    // Waits until the streams are gone, so that the next measurement starts alone.
    drop((running, prompt));
    while engine.load_now() != (0, 0) {
        std::thread::yield_now();
    }
    let (a, b) = (idle.percentiles(), busy.percentiles());
    let line = json!({
        "chunk": chunk, "running": RUNNING, "prompt": LONG, "alone_ms": { "p50": a.0, "p99": a.1 },
        "while_prompt_ms": { "p50": b.0, "p99": b.1 }, "ratio": { "p50": b.0 / a.0, "p99": b.1 / a.1 },
        "first_token_s": first.duration_since(asked).as_secs_f64(),
    });
    println!("{line}");
    Ok(())
}

#[derive(Default)]
struct Gaps {
    last: [Option<Instant>; RUNNING],
    all: Vec<f64>,
}

impl Gaps {
    fn take(&mut self, (stream, at): (usize, Instant)) {
        if let Some(last) = self.last[stream].replace(at) {
            self.all.push(at.duration_since(last).as_secs_f64() * 1e3);
        }
    }

    fn percentiles(&mut self) -> (f64, f64) {
        self.all.sort_by(f64::total_cmp);
        let at = |p: f64| self.all.get((self.all.len() as f64 * p) as usize).copied().unwrap_or(f64::NAN);
        (at(0.5), at(0.99))
    }
}
