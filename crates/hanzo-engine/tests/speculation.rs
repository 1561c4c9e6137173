//! Speculation changes when tokens come, never which: the same bytes with it and without.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::fmt::Write as _;
use std::sync::Arc;

use common::{Reply, Rng, engine, real, run, settle, tiny};
use hanzo_engine::{DraftModel, EngineOptions, Proposer, Request, SamplingParams, Speculation};
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};
use sha2::{Digest, Sha256};

fn digest(reply: &Reply) -> String {
    let mut hash = Sha256::new();
    reply.tokens.iter().for_each(|t| hash.update(t.to_le_bytes()));
    reply.logprobs.iter().for_each(|l| hash.update(l.as_bytes()));
    hash.finalize().iter().fold(String::new(), |mut s, b| {
        let _ = write!(s, "{b:02x}");
        s
    })
}

/// Knows what the reply will be, and lies about one token in four.
struct Liar {
    truth: Arc<Vec<u32>>,
    rng: Rng,
}

impl Proposer for Liar {
    fn propose(&mut self, tokens: &[u32], most: usize, drafts: &mut Vec<u32>) {
        let n = self.rng.below(most + 1);
        for &right in self.truth.iter().skip(tokens.len()).take(n) {
            let lie = self.rng.below(4) == 0;
            drafts.push(if lie { self.rng.below(500) as u32 } else { right });
        }
    }

    fn observe(&mut self, tried: usize, accepted: usize) {
        assert!(accepted <= tried && tried <= Speculation::MOST);
    }
}

fn settings() -> Vec<SamplingParams> {
    let seeded = SamplingParams { seed: 11, temperature: 1.1, ..SamplingParams::default() };
    vec![
        SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() },
        SamplingParams { logprobs: Some(0), ..seeded.clone() },
        SamplingParams {
            repeat_penalty: 1.2,
            presence_penalty: 0.3,
            dry_multiplier: 0.8,
            logit_bias: vec![(20, 3.0), (21, -3.0)],
            ..seeded.clone()
        },
        SamplingParams { mirostat: hanzo_engine::Mirostat::V2, ..seeded },
    ]
}

/// Right and wrong drafts in every pattern: replies, log-probabilities, ends and counts are those without drafts, and what
/// the prefix cache keeps of it is right.
#[test]
fn wrong_drafts_leave_no_trace() {
    for name in ["llama", "gemma3", "qwen3next", "qwen3_5"] {
        let Some(file) = tiny(name) else { return };
        let plain = EngineOptions {
            max_context: Some(192),
            kv_tokens: Some(400),
            eog: vec![7, 300],
            speculation: Speculation::off(),
            ..EngineOptions::default()
        };
        let reference = engine(&file, 1, EngineOptions { prefix_cache: false, ..plain.clone() });
        for (i, sampling) in settings().into_iter().enumerate() {
            let mut request = Request::new((0..21).map(|t| 10 + t * 5 % 71).collect(), 120);
            request.sampling = sampling;
            request.min_tokens = 40;
            let wanted = run(&reference, request.clone());
            let mut truth = request.prompt.clone();
            truth.extend(&wanted.tokens);
            let known = Arc::new(truth.clone());
            for seed in 0..3 {
                let known = Arc::clone(&known);
                let make = move || {
                    let liar = Liar { truth: Arc::clone(&known), rng: Rng(seed) };
                    Box::new(liar) as Box<dyn Proposer>
                };
                let e = engine(
                    &file,
                    2,
                    EngineOptions { speculation: Speculation::with(8, make), ..plain.clone() },
                );
                let got = run(&e, request.clone());
                assert_eq!(got.tokens, wanted.tokens, "{name}, settings {i}, seed {seed}");
                assert_eq!(digest(&got), digest(&wanted), "{name}, settings {i}, seed {seed}");
                let (finish, other) = (got.finished(), wanted.finished());
                assert_eq!((finish.reason, finish.generated_tokens), (other.reason, other.generated_tokens));
                assert!(finish.accepted_tokens > 0 && finish.accepted_tokens < finish.drafted_tokens);
                // Goes on from what is cached of the reply.
                let mut more = Request::new(truth.clone(), 10);
                more.sampling = SamplingParams { logprobs: Some(3), ..SamplingParams::greedy() };
                let (a, b) = (run(&e, more.clone()), run(&reference, more));
                assert_eq!(
                    (a.tokens, a.logprobs.clone()),
                    (b.tokens, b.logprobs),
                    "{name}, {i}, {seed}: cache"
                );
                settle(&e);
            }
        }
    }
}

#[test]
fn a_request_can_do_without() {
    let Some(file) = tiny("llama") else { return };
    let e = engine(&file, 1, EngineOptions { max_context: Some(192), ..EngineOptions::default() });
    let mut request = Request::new(vec![5; 30], 60);
    request.sampling = SamplingParams::greedy();
    request.speculate = false;
    let off = run(&e, request.clone());
    assert_eq!(off.finished().drafted_tokens, 0);
    request.speculate = true;
    assert_eq!(run(&e, request).tokens, off.tokens);
}

/// A draft model that is the model itself is right nearly always, another one seldom; with a pool that is too small it is
/// silent. Replies are the same, and the draft model's blocks come back.
#[test]
fn draft_models_change_no_byte() {
    let (Some(file), Some(other)) = (tiny("llama"), tiny("qwen3")) else { return };
    let options =
        EngineOptions { max_context: Some(192), speculation: Speculation::off(), ..EngineOptions::default() };
    let reference = engine(&file, 1, options.clone());
    let request = |seed: u32, sampling: SamplingParams| {
        let prompt = (0..30).map(|t| 10 + (t * 5 + seed * 3) % 71).collect();
        Request { sampling, ignore_eos: true, ..Request::new(prompt, 60) }
    };
    let accepted = |draft: &hanzo_gguf::GgufFile, kv_tokens: usize| {
        let draft = DraftModel::load(draft, &common::cpu(1), kv_tokens, &()).unwrap();
        let e = engine(&file, 2, EngineOptions { speculation: draft.speculation(6), ..options.clone() });
        let mut accepted = 0;
        for seed in 0..6 {
            let seeded = SamplingParams { seed: u64::from(seed), ..SamplingParams::default() };
            for sampling in [SamplingParams::greedy(), seeded] {
                let (a, b) =
                    (run(&e, request(seed, sampling.clone())), run(&reference, request(seed, sampling)));
                assert_eq!(a.tokens, b.tokens);
                accepted += a.finished().accepted_tokens;
            }
        }
        settle(&e);
        accepted
    };
    // 12 replies of 60 tokens, half of them greedy. A pool for one sequence serves them all, one after the other.
    assert!(accepted(&file, 192) > 200);
    accepted(&other, 192);
    assert_eq!(accepted(&file, 16), 0);
}

/// The workloads: what is asked of a real model, from the most repetitive to the least.
pub const WORKLOADS: [(&str, &str); 3] = [
    (
        "sustained reuse",
        "<|im_start|>user\nRepeat this list three times, exactly:\n1. amber lantern\n2. copper kettle\n3. velvet curtain\n\
         4. marble staircase\n5. silver compass<|im_end|>\n<|im_start|>assistant\n1. amber lantern\n2. copper kettle\n",
    ),
    (
        "code copy",
        "<|im_start|>user\nAdd a docstring to this function and return it whole:\n```python\ndef merge(left, right):\n    \
         result = []\n    i = j = 0\n    while i < len(left) and j < len(right):\n        if left[i] <= right[j]:\n            \
         result.append(left[i])\n            i += 1\n        else:\n            result.append(right[j])\n            j += 1\n    \
         result.extend(left[i:])\n    result.extend(right[j:])\n    return result\n```<|im_end|>\n<|im_start|>assistant\n",
    ),
    (
        "novel",
        "<|im_start|>user\nTell me a short story about a lighthouse keeper who finds a letter.<|im_end|>\n\
         <|im_start|>assistant\n",
    ),
];

#[test]
fn real_replies_have_the_same_digest() {
    let Some(file) = real(common::SMOLLM) else { return };
    let tokenizer = Tokenizer::from_gguf(file.metadata()).unwrap();
    let options = EngineOptions {
        max_context: Some(768),
        kv_tokens: Some(2048),
        eog: tokenizer.eog_ids().to_vec(),
        ..EngineOptions::default()
    };
    let on = engine(&file, 2, options.clone());
    let off = engine(&file, 2, EngineOptions { speculation: Speculation::off(), ..options });
    for (name, text) in WORKLOADS {
        let prompt =
            tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true }).unwrap();
        for sampling in [SamplingParams::greedy(), SamplingParams { seed: 3, ..SamplingParams::default() }] {
            let request = Request { sampling, ..Request::new(prompt.clone(), 96) };
            let (a, b) = (run(&on, request.clone()), run(&off, request));
            let (x, y) = (a.finished(), b.finished());
            println!(
                "{name}: {} tokens, {} of {} drafts right",
                x.generated_tokens, x.accepted_tokens, x.drafted_tokens
            );
            assert_eq!(digest(&a), digest(&b), "{name}");
            assert_eq!((x.reason, x.generated_tokens, y.drafted_tokens), (y.reason, y.generated_tokens, 0));
            if name == "sustained reuse" && x.generated_tokens > 40 {
                assert!(x.accepted_tokens * 3 > x.generated_tokens, "{name}: {x:?}");
            }
        }
    }
}
