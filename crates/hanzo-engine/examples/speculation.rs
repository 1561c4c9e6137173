//! What prompt lookup gains and costs: decode speed with it over decode speed without, on three workloads.
//!
//! `cargo run --release -p hanzo-engine --example speculation -- MODEL.gguf [threads] [tokens]`
//!
//! Both engines answer each prompt in turn, five times each; the ratio is that of the medians. Replies must be the same.

#![allow(clippy::print_stdout)]

use std::error::Error;
use std::time::Duration;

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_engine::{Engine, EngineOptions, Event, Finish, Request, SamplingParams, Speculation};
use hanzo_gguf::GgufFile;
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

const LIST: &str =
    "1. amber lantern\n2. copper kettle\n3. velvet curtain\n4. marble staircase\n5. silver compass\n";
const CODE: &str = "def merge(left, right):\n    result = []\n    i = j = 0\n    while i < len(left) and j < len(right):\n        \
                    if left[i] <= right[j]:\n            result.append(left[i])\n            i += 1\n        else:\n            \
                    result.append(right[j])\n            j += 1\n    result.extend(left[i:])\n    result.extend(right[j:])\n    \
                    return result\n";

fn chat(user: &str, reply: &str) -> String {
    format!("<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{reply}")
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("usage: speculation MODEL.gguf [threads] [tokens]")?;
    let threads = args.next().map(|a| a.parse()).transpose()?;
    let n: usize = args.next().map_or(Ok(128), |a| a.parse())?;
    let file = GgufFile::open(std::path::Path::new(&path))?;
    let tokenizer = Tokenizer::from_gguf(file.metadata())?;
    let device = CpuDevice::new(&CpuConfig { threads, ..CpuConfig::default() })?;
    let load = |speculation| {
        let options = EngineOptions { max_context: Some(2048), speculation, ..EngineOptions::default() };
        Engine::load(&file, &device, options, &())
    };
    let engines = [load(Speculation::prompt_lookup())?, load(Speculation::off())?];
    let workloads = [
        ("sustained reuse", chat(&format!("Repeat this list ten times, exactly:\n{LIST}"), &LIST.repeat(2))),
        (
            "code copy",
            chat(
                &format!("Return this function whole, with a docstring:\n```python\n{CODE}```"),
                "```python\n",
            ),
        ),
        ("novel", chat("Tell me a long story about a lighthouse keeper who finds a letter.", "")),
    ];
    println!("{}, {n} tokens a reply", engines[0].info().device);
    println!(
        "{:16} {:>9} {:>9} {:>7} {:>9} {:>9}",
        "workload", "on tok/s", "off tok/s", "ratio", "drafted", "accepted"
    );
    for (name, text) in workloads {
        let prompt = tokenizer.encode(&text, EncodeOptions { add_special: true, parse_special: true })?;
        let mut speeds = [Vec::new(), Vec::new()];
        let mut replies = [Vec::new(), Vec::new()];
        let mut last = None;
        for _ in 0..5 {
            for (i, engine) in engines.iter().enumerate() {
                let mut request = Request::new(prompt.clone(), n);
                request.sampling = SamplingParams::greedy();
                request.ignore_eos = true;
                let (tokens, finish) = answer(engine, request)?;
                speeds[i].push(
                    (tokens.len() - 1) as f64
                        / finish.generation_time.max(Duration::from_nanos(1)).as_secs_f64(),
                );
                replies[i] = tokens;
                last = if i == 0 { Some(finish) } else { last };
            }
        }
        if replies[0] != replies[1] {
            return Err(format!("{name}: the replies differ").into());
        }
        let [on, off] = speeds.map(|mut s| {
            s.sort_by(f64::total_cmp);
            s[s.len() / 2]
        });
        let finish = last.ok_or("no reply")?;
        let (drafted, accepted) = (finish.drafted_tokens, finish.accepted_tokens);
        println!("{name:16} {on:9.1} {off:9.1} {:7.2} {drafted:9} {accepted:9}", on / off);
    }
    Ok(())
}

fn answer(engine: &Engine, request: Request) -> Result<(Vec<u32>, Finish), Box<dyn Error>> {
    let mut tokens = Vec::new();
    for event in engine.generate(request)? {
        match event {
            Event::Token(token) => tokens.push(token.id),
            Event::Finished(finish) => return Ok((tokens, finish)),
            Event::Failed(error) => return Err(error.into()),
        }
    }
    Err("the engine stopped".into())
}
