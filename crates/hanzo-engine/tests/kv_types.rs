//! The int8 cache against the default one: same greedy tokens, same recall, a small divergence; and the default cache
//! is none the wiser.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{engine, real, run, tiny};
use hanzo_engine::{Engine, EngineError, EngineOptions, Request, SamplingParams, Speculation};
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

/// Twelve words in an order that only the prompt tells, among 256 tokens and more; the model must say them again.
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
    let [a, b] = [&half, &byte].map(|e| run(e, greedy(prompt.clone(), 60)));
    println!("f16:  {}\nint8: {}", decode(&a.tokens), decode(&b.tokens));
    for reply in [&a, &b] {
        let text = decode(&reply.tokens);
        let at: Vec<_> = items.iter().map(|item| text.find(item)).collect();
        assert!(at.iter().all(Option::is_some) && at.is_sorted(), "{text}");
    }
    let [bytes_half, bytes_byte] = [&half, &byte].map(|e| e.info().memory.kv);
    println!("KV bytes: {bytes_half} f16, {bytes_byte} int8");
    assert!(bytes_byte * 100 < bytes_half * 62, "an int8 cache is little more than half");

    let text = "<|im_start|>user\nWrite a Python class for a bank account with deposit and withdraw.<|im_end|>\n\
                <|im_start|>assistant\n";
    let request = || Request { ignore_eos: true, ..greedy(encode(text), 128) };
    let [a, b] = [&half, &byte].map(|e| run(e, request()));
    let same = a.tokens.iter().zip(&b.tokens).take_while(|(a, b)| a == b).count();
    println!("greedy: {same} of {} tokens are the same", a.tokens.len());
    let (kld, agree) = divergence(&half, &byte, &encode(text), &a.tokens[..64]);
    println!("int8 against f16 over 64 positions: mean KLD {kld:.2e} nats, {agree} tokens agree");
    assert!(kld < 5e-3, "{kld}");
    // Where two tokens are nearly as likely, the cache's rounding may decide, and a greedy reply goes its own way from
    // there; fed with the same tokens, the most likely ones agree.
    assert!(agree >= 60, "{agree} of 64");
}

/// Mean Kullback-Leibler divergence of the next token's distributions (all of the vocabulary), teacher-forced, and at
/// how many positions the most likely tokens agree.
fn divergence(a: &Engine, b: &Engine, prompt: &[u32], reply: &[u32]) -> (f64, usize) {
    let vocab_size = a.info().vocab_size;
    let (mut sum, mut agree) = (0.0, 0);
    for i in 0..reply.len() {
        let request = || {
            let mut request = greedy([prompt, &reply[..i]].concat(), 1);
            request.sampling.logprobs = Some(vocab_size);
            request
        };
        let all = |e: &Engine| {
            let mut by_id = vec![f64::NEG_INFINITY; vocab_size];
            for event in e.generate(request()).unwrap() {
                if let hanzo_engine::Event::Token(t) = event {
                    t.logprobs.unwrap().1.iter().for_each(|l| by_id[l.id as usize] = f64::from(l.logprob));
                }
            }
            by_id
        };
        let (p, q) = (all(a), all(b));
        let best = |p: &[f64]| (0..p.len()).max_by(|&i, &j| p[i].total_cmp(&p[j]));
        agree += usize::from(best(&p) == best(&q));
        sum += p.iter().zip(&q).filter(|(p, _)| p.is_finite()).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
    }
    (sum / reply.len() as f64, agree)
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
