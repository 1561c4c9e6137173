//! Random mixes of requests: whatever else runs, however the prompt is cut and the cache is short, each request says
//! what it says alone, and every block comes back.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Reply, Rng, engine, run, settle, tiny};
use hanzo_engine::{Engine, EngineOptions, FinishReason, Mirostat, Request, SamplingParams, Speculation};
use hanzo_fusion::KvType;

/// Longest sequence in these tests; the smallest pool holds just one of them.
const CONTEXT: usize = 96;

/// Models with recurrent layers.
const RECURRENT: [&str; 2] = ["qwen3next", "qwen3_5"];

fn options() -> EngineOptions {
    EngineOptions { max_context: Some(CONTEXT), eog: vec![3], ..EngineOptions::default() }
}

/// Prompts share beginnings and repeat themselves, so that the prefix cache and prompt lookup have something to find.
fn prompt(rng: &mut Rng) -> Vec<u32> {
    let shared = rng.below(60);
    let own = 1 + rng.below(30);
    let family = rng.below(2) as u32;
    let base = (0..shared as u32).map(|i| 10 + (i * i + family) % 23);
    let alphabet = 2 + rng.below(40);
    let mut tail: Vec<u32> = Vec::new();
    (0..own).for_each(|_| tail.push(40 + rng.below(alphabet) as u32));
    base.chain(tail).collect()
}

fn sampling(rng: &mut Rng) -> SamplingParams {
    let seed = rng.next();
    let some = SamplingParams { seed, ..SamplingParams::default() };
    match rng.below(7) {
        0 | 1 => SamplingParams::greedy(),
        2 => SamplingParams { logprobs: Some(3), temperature: 1.2, ..some },
        3 => SamplingParams {
            repeat_penalty: 1.3,
            frequency_penalty: 0.2,
            dry_multiplier: 0.5,
            logit_bias: vec![(50, 2.0), (60, -5.0)],
            ..some
        },
        4 => SamplingParams { mirostat: Mirostat::V2, ..some },
        5 => SamplingParams { mirostat: Mirostat::V1, mirostat_tau: 3.0, ..some },
        _ => SamplingParams { xtc_probability: 0.5, typical_p: 0.9, top_n_sigma: 2.0, ..some },
    }
}

fn request(rng: &mut Rng) -> Request {
    let mut request = Request::new(prompt(rng), 1 + rng.below(40));
    request.sampling = sampling(rng);
    request.priority = rng.below(3) as i32 - 1;
    request.min_tokens = rng.below(4) * 3;
    request.ignore_eos = rng.below(3) == 0;
    request
}

/// How a caller loses interest.
#[derive(Clone, Copy, Debug)]
enum Leave {
    Never,
    /// The sink says no after so many tokens.
    Sink(usize),
    /// The handle is used after so many tokens, from another thread.
    Handle(usize),
    /// The events are dropped after so many.
    Drop(usize),
}

fn leave(rng: &mut Rng) -> Leave {
    match rng.below(8) {
        0 => Leave::Sink(rng.below(10)),
        1 => Leave::Handle(rng.below(10)),
        2 => Leave::Drop(rng.below(10)),
        _ => Leave::Never,
    }
}

/// Submits a request and listens on a thread of its own.
fn listen(engine: &Engine, request: Request, leave: Leave) -> std::thread::JoinHandle<Reply> {
    if let Leave::Sink(n) = leave {
        let reply = Arc::new(Mutex::new(Reply::default()));
        let (done, end) = std::sync::mpsc::channel();
        let shared = Arc::clone(&reply);
        let sink = move |event: hanzo_engine::Event| {
            let is_token = matches!(event, hanzo_engine::Event::Token(_));
            let mut reply = shared.lock().unwrap();
            reply.take(event);
            if !is_token {
                let _ = done.send(());
            }
            reply.tokens.len() <= n
        };
        let _cancel = engine.submit(request, Box::new(sink)).unwrap();
        return std::thread::spawn(move || {
            end.recv_timeout(Duration::from_secs(120)).unwrap();
            std::mem::take(&mut *reply.lock().unwrap())
        });
    }
    let mut events = engine.generate(request).unwrap();
    std::thread::spawn(move || {
        let mut reply = Reply::default();
        loop {
            match leave {
                Leave::Handle(n) if reply.tokens.len() >= n => events.cancel_handle().cancel(),
                Leave::Drop(n) if reply.tokens.len() >= n => return reply,
                _ => {}
            }
            match events.next() {
                Some(event) => reply.take(event),
                None => return reply,
            }
        }
    })
}

/// One mix on one engine against the same requests alone.
fn mix(name: &str, seed: u64) {
    let Some(file) = tiny(name) else { return };
    let mut rng = Rng(seed);
    let alone = EngineOptions {
        prefix_cache: false,
        speculation: Speculation::off(),
        kv_type: KvType::F16,
        ..options()
    };
    let reference = engine(&file, 1, alone);
    let threads = 1 + rng.below(3);
    let recurrent = RECURRENT.contains(&name);
    let crowd = EngineOptions {
        kv_tokens: Some([CONTEXT, 128, 208, 2000][rng.below(4)]),
        max_batch_tokens: [4, 7, 16, 40, 512][rng.below(5)],
        max_sequences: [1, 3, 4, 16][rng.below(4)],
        prefix_cache: rng.below(3) > 0,
        speculation: if rng.below(3) > 0 { Speculation::prompt_lookup() } else { Speculation::off() },
        // Fewer checkpoints than prefixes, and fewer places for drafts than sequences.
        spare_states: if recurrent { [None, Some(0), Some(1), Some(5)][rng.below(4)] } else { None },
        ..options()
    };
    let what = format!("{name}, seed {seed}, {threads} threads, {crowd:?}");
    let crowd = engine(&file, threads, crowd);
    let requests: Vec<(Request, Leave)> =
        (0..12 + rng.below(8)).map(|_| (request(&mut rng), leave(&mut rng))).collect();
    let listeners: Vec<_> = requests
        .iter()
        .map(|(request, leave)| {
            if rng.below(3) == 0 {
                std::thread::sleep(Duration::from_micros(rng.next() % 3000));
            }
            listen(&crowd, request.clone(), *leave)
        })
        .collect();
    let mut expected: HashMap<String, Reply> = HashMap::new();
    for (i, ((request, leave), listener)) in requests.into_iter().zip(listeners).enumerate() {
        let reply = listener.join().unwrap();
        let wanted = expected.entry(format!("{request:?}")).or_insert_with(|| run(&reference, request));
        let n = reply.tokens.len();
        assert_eq!(reply.tokens, wanted.tokens[..n], "request {i} ({leave:?}): tokens; {what}");
        assert_eq!(reply.logprobs, wanted.logprobs[..n], "request {i} ({leave:?}): logprobs; {what}");
        assert_eq!(reply.error, None, "request {i}; {what}");
        match (leave, reply.finish) {
            (Leave::Drop(_), _) => {}
            (_, Some(f)) if f.reason == FinishReason::Cancelled => {
                assert!(!matches!(leave, Leave::Never), "request {i} was not cancelled; {what}");
            }
            (_, finish) => {
                let (finish, wanted_finish) = (finish.unwrap(), wanted.finished());
                assert_eq!(finish.reason, wanted_finish.reason, "request {i}; {what}");
                assert_eq!(finish.generated_tokens, wanted_finish.generated_tokens, "request {i}; {what}");
                assert_eq!(n, wanted.tokens.len(), "request {i} is incomplete; {what}");
            }
        }
    }
    settle(&crowd);
}

#[test]
fn mixes_on_full_attention() {
    (0..9).for_each(|seed| mix("llama", seed));
}

#[test]
fn mixes_on_sliding_windows() {
    (100..105).for_each(|seed| mix("gemma3", seed));
}

#[test]
fn mixes_on_recurrent_layers() {
    (300..308).for_each(|seed| mix("qwen3next", seed));
    (320..326).for_each(|seed| mix("qwen3_5", seed));
}

#[test]
fn mixes_on_experts() {
    (200..202).for_each(|seed| mix("qwen3moe", seed));
}

/// A pool for one and a half sequences: the younger gives way, again and again, and nothing is lost.
#[test]
fn preemption_loses_and_repeats_nothing() {
    ["llama", "qwen3next"].into_iter().for_each(preemption);
}

fn preemption(name: &str) {
    let Some(file) = tiny(name) else { return };
    let reference = engine(&file, 1, EngineOptions { prefix_cache: false, ..options() });
    for prefix_cache in [false, true] {
        let o = EngineOptions { kv_tokens: Some(144), prefix_cache, ..options() };
        let crowd = engine(&file, 2, o);
        let requests: Vec<Request> = (0..6)
            .map(|i| {
                let mut r = Request::new((0..20).map(|t| 10 + (t * 7 + i) % 90).collect(), 70);
                r.sampling = SamplingParams { seed: u64::from(i), ..SamplingParams::default() };
                r.ignore_eos = true;
                r
            })
            .collect();
        let listeners: Vec<_> = requests.iter().map(|r| listen(&crowd, r.clone(), Leave::Never)).collect();
        for (request, listener) in requests.into_iter().zip(listeners) {
            assert_eq!(listener.join().unwrap().tokens, run(&reference, request).tokens);
        }
        settle(&crowd);
        assert!(crowd.metrics().preemptions > 0, "the pool was meant to be too small");
    }
}

/// A request that needs nearly the whole pool is not overtaken for ever by small ones that came after it.
#[test]
fn a_large_request_is_not_starved() {
    let Some(file) = tiny("llama") else { return };
    let o = EngineOptions { kv_tokens: Some(112), max_sequences: 4, ..options() };
    let crowd = engine(&file, 2, o);
    let order = Arc::new(Mutex::new(Vec::new()));
    let submit = |name: usize, prompt: usize| {
        let order = Arc::clone(&order);
        let mut request =
            Request::new((0..prompt as u32).map(|i| 10 + (i * 3 + name as u32) % 50).collect(), 6);
        request.ignore_eos = true;
        let sink = move |event: hanzo_engine::Event| {
            if !matches!(event, hanzo_engine::Event::Token(_)) {
                order.lock().unwrap().push(name);
            }
            true
        };
        drop(crowd.submit(request, Box::new(sink)).unwrap());
    };
    (0..10).for_each(|i| submit(i, 12));
    submit(10, 88);
    (11..40).for_each(|i| submit(i, 12));
    settle(&crowd);
    let order = order.lock().unwrap();
    assert_eq!(order.len(), 40);
    assert_eq!(order.iter().position(|&n| n == 10), Some(10), "in order of arrival: {order:?}");
}

/// A hit and a miss in the prefix cache say the same, and the hit is reported.
#[test]
fn prefix_cache_hits_change_no_byte() {
    for name in ["llama", "gemma3", "qwen3next", "qwen3_5"] {
        let Some(file) = tiny(name) else { return };
        let o = EngineOptions { kv_tokens: Some(400), speculation: Speculation::off(), ..options() };
        let e = engine(&file, 2, o);
        let request =
            Request { ignore_eos: true, ..Request::new((0..50).map(|i| 10 + i * 5 % 77).collect(), 20) };
        let (miss, hit) = (run(&e, request.clone()), run(&e, request));
        assert_eq!((miss.finished().cached_tokens, hit.finished().cached_tokens), (0, 48), "{name}");
        assert_eq!(miss.tokens, hit.tokens);
        settle(&e);
        let m = e.metrics();
        assert_eq!((m.prefix_queries, m.prefix_hits, m.prompt_tokens), (100, 48, 52));
        assert_eq!((m.steps, m.generated_tokens), (2 * 20, 2 * 20));
    }
}

/// Several continuations of one prompt share its blocks, and each says what it says when its blocks are taken away.
#[test]
fn continuations_of_one_prompt() {
    ["llama", "qwen3next"].into_iter().for_each(continuations);
}

fn continuations(name: &str) {
    let Some(file) = tiny(name) else { return };
    let ask = |e: &Engine, n: usize| -> Vec<Reply> {
        let mut request = Request::new((0..37).map(|i| 10 + i * 7 % 80).collect(), 30);
        request.sampling = SamplingParams { seed: 5, temperature: 1.5, top_k: 0, ..SamplingParams::plain() };
        request.ignore_eos = true;
        let (sender, receiver) = std::sync::mpsc::channel();
        let sinks = (0..n)
            .map(|i| {
                let sender = sender.clone();
                let sink: hanzo_engine::Sink = Box::new(move |event| sender.send((i, event)).is_ok());
                sink
            })
            .collect();
        let _cancel = e.submit_continuations(request, sinks).unwrap();
        drop(sender);
        let mut replies: Vec<Reply> = (0..n).map(|_| Reply::default()).collect();
        receiver.iter().for_each(|(i, event)| replies[i].take(event));
        replies
    };
    let roomy = engine(&file, 2, EngineOptions { kv_tokens: Some(1000), ..options() });
    let four = ask(&roomy, 4);
    settle(&roomy);
    assert_eq!(roomy.metrics().prompt_tokens, 37, "the prompt ran once");
    let distinct: std::collections::HashSet<_> = four.iter().map(|r| r.tokens.clone()).collect();
    assert_eq!(distinct.len(), 4, "each has its own random stream");
    assert_eq!(ask(&roomy, 1)[0].tokens, four[0].tokens, "the first is what it is alone");
    // 5 blocks each at the end, 2 of them shared: 8 blocks hold two.
    let tight = engine(&file, 2, EngineOptions { kv_tokens: Some(128), ..options() });
    let again = ask(&tight, 4);
    assert!(tight.metrics().preemptions > 0);
    for (a, b) in four.iter().zip(&again) {
        assert_eq!(a.tokens, b.tokens);
        assert_eq!(b.finished().generated_tokens, 30);
    }
    settle(&tight);
    let few = engine(&file, 1, EngineOptions { max_sequences: 2, ..options() });
    let sinks = (0..3).map(|_| -> hanzo_engine::Sink { Box::new(|_| true) }).collect();
    let refused = few.submit_continuations(Request::new(vec![1], 1), sinks).unwrap_err();
    assert_eq!(refused.to_string(), "3 continuations were asked for; 1 to 2 can run at once");
}
