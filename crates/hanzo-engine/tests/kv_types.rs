//! The int8 cache against the default one: same greedy tokens, same recall, a small divergence; and the default cache
//! is none the wiser.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::sync::mpsc::channel;

use common::{engine, real, run, tiny};
use hanzo_engine::{
    Distribution, Engine, EngineError, EngineOptions, LogitsRequest, Request, SamplingParams, Speculation,
};
use hanzo_fusion::KvType;
use hanzo_text::detokenize::DecodeOptions;
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

fn options(kv_type: KvType, tokenizer: &Tokenizer) -> EngineOptions {
    EngineOptions {
        kv_type,
        max_context: Some(768),
        eog: tokenizer.eog_ids().to_vec(),
        speculation: Speculation::off(),
        ..EngineOptions::default()
    }
}

fn greedy(prompt: Vec<u32>, n: usize) -> Request {
    Request { sampling: SamplingParams::greedy(), ..Request::new(prompt, n) }
}

/// Twelve words in an order that only the prompt tells, among 256 tokens and more; the model must say them again, and both
/// caches give the same 128 tokens.
#[test]
fn recall_and_greedy_tokens_of_the_int8_cache() {
    let Some(file) = real("Qwen2.5-Coder-0.5B-Instruct-Q4_K_M.gguf") else { return };
    let tokenizer = Tokenizer::from_gguf(file.metadata()).unwrap();
    let [half, byte] = [KvType::F16, KvType::Int8].map(|t| engine(&file, 2, options(t, &tokenizer)));
    let items = [
        "walnut", "harbor", "magnet", "saddle", "pepper", "glacier", "violin", "candle", "tunnel", "falcon",
        "ribbon", "anchor",
    ];
    let filler = "The inventory was taken on a quiet morning, and nobody disturbed the clerk while the boxes were opened \
                  one by one and their contents written down with care. ";
    let text = format!(
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n{}The list is: {}.\n{}\
         Repeat the list, in order, separated by commas.<|im_end|>\n<|im_start|>assistant\nThe list is: ",
        filler.repeat(3),
        items.join(", "),
        filler.repeat(5),
    );
    let encode = |text: &str| {
        tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true }).unwrap()
    };
    let prompt = encode(&text);
    assert!(prompt.len() > 256, "{}", prompt.len());
    let decode = |tokens: &[u32]| tokenizer.decode(tokens, DecodeOptions::default()).unwrap();
    let request = |prompt: &[u32]| Request { ignore_eos: true, ..greedy(prompt.to_vec(), 128) };
    let [a, b] = [&half, &byte].map(|e| run(e, request(&prompt)));
    println!("f16:  {}\nint8: {}", decode(&a.tokens), decode(&b.tokens));
    let text = decode(&b.tokens);
    let at: Vec<_> = items.iter().map(|item| text.find(item)).collect();
    assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{text}");
    assert_eq!(a.tokens.len(), 128);
    assert_eq!(a.tokens, b.tokens, "the same 128 greedy tokens");
    let [bytes_half, bytes_byte] = [&half, &byte].map(|e| e.info().memory.kv);
    println!("KV bytes: {bytes_half} f16, {bytes_byte} int8");
    assert!(bytes_byte * 100 < bytes_half * 62, "an int8 cache is little more than half");

    // Where two tokens are nearly as likely, the cache's rounding may decide, and a greedy reply goes its own way from
    // there (so it does between f16 and f32); fed with the same tokens, the most likely ones agree.
    let text = "<|im_start|>user\nWrite a Python class for a bank account with deposit and withdraw.<|im_end|>\n\
                <|im_start|>assistant\n";
    let prompt = encode(text);
    let reply = run(&half, request(&prompt)).tokens;
    let Comparison { mean, margins } = compare(&half, &byte, &prompt, &reply);
    println!(
        "int8 against f16 over 128 positions: mean KLD {mean:.2e} nats; others, and by how much: {margins:?}"
    );
    assert!(mean < 2e-3, "{mean}");
    assert!(margins.len() <= 2 && margins.iter().all(|m| *m < 0.3), "{margins:?}");
}

struct Comparison {
    /// Mean Kullback-Leibler divergence of the next token's distributions, in nats.
    mean: f64,
    /// Where the most likely tokens differ: how much likelier the first of `a` was than its second, in nats.
    margins: Vec<f32>,
}

/// Both engines read prompt and reply; the rows that the reply's tokens were drawn from are compared.
fn compare(a: &Engine, b: &Engine, prompt: &[u32], reply: &[u32]) -> Comparison {
    let rows = |engine: &Engine| {
        let tokens = [prompt, reply].concat();
        let request =
            LogitsRequest { rows: prompt.len() - 1..tokens.len() - 1, ..LogitsRequest::new(tokens) };
        let (sender, receiver) = channel();
        engine.submit_logits(request, move |_, row| sender.send(row.to_vec()).is_ok(), |_| {}).unwrap();
        receiver.iter().collect::<Vec<_>>()
    };
    let (mut sum, mut margins) = (0.0, Vec::new());
    for (p, q) in rows(a).iter().zip(rows(b)) {
        let (p, q) = (Distribution::new(p), Distribution::new(&q));
        sum += p.divergence(&q).unwrap().kld;
        let best = p.top(2);
        if best[0].id != q.top(1)[0].id {
            margins.push(best[0].logprob - best[1].logprob);
        }
    }
    Comparison { mean: sum / reply.len() as f64, margins }
}

/// On the small models every cache type gives a whole reply, f16 and f32 nearly the same one.
#[test]
fn all_types_work_and_repeat_themselves() {
    for name in ["llama", "gemma3", "qwen3"] {
        let Some(file) = tiny(name) else { return };
        for kv_type in [KvType::F16, KvType::F32, KvType::Int8] {
            let o = EngineOptions { kv_type, max_context: Some(128), ..EngineOptions::default() };
            let request = || Request { ignore_eos: true, ..greedy((10..60).collect(), 40) };
            let e = engine(&file, 2, o.clone());
            let alone = run(&e, request());
            assert_eq!(alone.tokens.len(), 40);
            // From the prefix cache, with chunks, on another number of threads.
            assert_eq!(run(&e, request()).tokens, alone.tokens, "{name} {kv_type:?}");
            let chunked = engine(&file, 1, EngineOptions { max_batch_tokens: 7, max_sequences: 2, ..o });
            assert_eq!(run(&chunked, request()).tokens, alone.tokens, "{name} {kv_type:?}");
        }
    }
}

#[test]
fn the_pool_is_sized_by_bytes() {
    let Some(file) = tiny("llama") else { return };
    let load = |bytes, kv_type| {
        let o = EngineOptions {
            kv_bytes: Some(bytes),
            kv_type,
            max_context: Some(128),
            ..EngineOptions::default()
        };
        Engine::load(&file, &common::cpu(1), o, &())
    };
    let small = load(10, KvType::F16).map(|_| ()).unwrap_err();
    let EngineError::KvMemory { bytes: 10, block } = small else { panic!("{small}") };
    let e = load(block * 5 + 1, KvType::F16).unwrap();
    assert_eq!((e.info().kv_tokens, e.info().max_context), (80, 80));
    assert!(e.info().memory.kv <= block * 5 + block, "{} for {block}", e.info().memory.kv);
    assert_eq!(load(block * 5, KvType::F32).unwrap().info().kv_tokens, 32);
    // More than all sequences could use is not taken.
    assert_eq!(load(u64::MAX, KvType::F16).unwrap().info().kv_tokens, 128 * 64);
}

/// The pool of windowed layers follows from the sequences that can run, their window and the chunks; replies do not, from the
/// prefix cache or not.
#[test]
fn windowed_layers_leave_memory_to_the_others() {
    let Some(file) = tiny("gemma3") else { return };
    let load = |o: EngineOptions| {
        let o = EngineOptions { max_context: Some(512), speculation: Speculation::off(), ..o };
        engine(&file, 2, o)
    };
    let by_tokens = |max_sequences, max_batch_tokens| {
        let kv_tokens = Some(8192);
        load(EngineOptions { kv_tokens, max_sequences, max_batch_tokens, ..EngineOptions::default() })
    };
    let (small, large) = (by_tokens(1, 16), by_tokens(200, 512));
    assert_eq!((small.info().kv_tokens, large.info().kv_tokens), (8192, 8192));
    let [bytes, more] = [&small, &large].map(|e| e.info().memory.kv);
    println!("{bytes} bytes for one sequence, {more} for 200");
    assert!(bytes * 10 < more * 6);
    let request = || Request { ignore_eos: true, ..greedy((0..300).map(|i| 10 + i % 90).collect(), 60) };
    let alone = run(&large, request()).tokens;
    for _ in 0..2 {
        assert_eq!(run(&small, request()).tokens, alone);
    }
    let again = run(&small, request());
    assert_eq!((again.tokens, again.finish.unwrap().cached_tokens > 200), (alone, true));
    // The same bytes give the layers that see everything more where windows need less.
    let by_bytes = |max_sequences, max_batch_tokens| {
        let kv_bytes = Some(bytes);
        load(EngineOptions { kv_bytes, max_sequences, max_batch_tokens, ..EngineOptions::default() })
    };
    let (a, b) = (by_bytes(20, 16), by_bytes(200, 512));
    assert!(a.info().kv_tokens > b.info().kv_tokens, "{} {}", a.info().kv_tokens, b.info().kv_tokens);
    assert!(a.info().memory.kv <= bytes && b.info().memory.kv <= bytes);
}
