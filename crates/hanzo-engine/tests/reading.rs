//! Texts that are only read: their scores and rows are those of the model run alone on them, bit for bit, whatever else
//! runs and however they are cut.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::sync::{Arc, Mutex};

use common::{Rng, cpu, engine, run, settle, tiny};
use hanzo_engine::{
    Distribution, Engine, EngineError, EngineOptions, LogitsRequest, Request, SamplingParams, ScoreEvent,
    ScoreRequest,
};
use hanzo_fusion::{Device, KvConfig, KvType, LoadOptions, SequenceStep, Step};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;

const CONTEXT: usize = 96;

fn options() -> EngineOptions {
    EngineOptions { max_context: Some(CONTEXT), eog: vec![3], ..EngineOptions::default() }
}

fn text(seed: usize, n: usize) -> Vec<u32> {
    (0..n).map(|i| 10 + ((i * i + i * seed) % 83) as u32).collect()
}

/// All rows of logits of a text, in one step of the device itself.
fn device_logits(file: &GgufFile, tokens: &[u32]) -> Vec<Vec<f32>> {
    let model = hanzo_models::load(file).unwrap();
    let n = tokens.len();
    let load = LoadOptions {
        max_tokens: n,
        max_outputs: n,
        kv: KvConfig { n_blocks: n.div_ceil(16), kv_type: KvType::F16 },
    };
    let vocab = model.graph.vocab_size;
    let groups = model.graph.n_kv_groups();
    let mut loaded = cpu(1).load(Arc::clone(&model.graph), &GgufWeights(file), load, &()).unwrap();
    let blocks: Vec<u32> = (0..n.div_ceil(16) as u32).collect();
    let tables = vec![blocks.as_slice(); groups];
    let sequence = SequenceStep { n_tokens: n, context_len: n, block_tables: &tables, adapters: &[] };
    let outputs: Vec<u32> = (0..n as u32).collect();
    let mut logits = vec![0.0; n * vocab];
    loaded
        .step(&Step { tokens, sequences: &[sequence], outputs: &outputs, hidden: &[] }, &mut logits)
        .unwrap();
    logits.chunks_exact(vocab).map(<[f32]>::to_vec).collect()
}

/// What a crowded engine may be like.
fn crowd(rng: &mut Rng) -> EngineOptions {
    EngineOptions {
        kv_tokens: Some([CONTEXT, 128, 208, 2000][rng.below(4)]),
        max_batch_tokens: [4, 7, 16, 40, 512][rng.below(5)],
        max_sequences: [1, 3, 4, 16][rng.below(4)],
        prefix_cache: rng.below(3) > 0,
        ..options()
    }
}

/// Replies that keep an engine busy while texts are read.
fn chatter(engine: &Engine, rng: &mut Rng) -> Vec<hanzo_engine::Events> {
    let request = |rng: &mut Rng| Request {
        sampling: SamplingParams { seed: rng.next(), ..SamplingParams::default() },
        ignore_eos: true,
        ..Request::new(text(rng.below(9), 1 + rng.below(40)), 5 + rng.below(40))
    };
    (0..5).map(|_| engine.generate(request(rng)).unwrap()).collect()
}

#[test]
fn scores_are_those_of_the_model_in_any_mix() {
    for (name, seeds) in [("llama", 0..6), ("gemma3", 6..9)] {
        let Some(file) = tiny(name) else { return };
        for seed in seeds {
            let mut rng = Rng(seed);
            let o = crowd(&mut rng);
            let threads = 1 + rng.below(3);
            let what = format!("{name}, seed {seed}, {threads} threads, {o:?}");
            let e = engine(&file, threads, o);
            let busy = chatter(&e, &mut rng);
            let texts: Vec<Vec<u32>> = (0..4).map(|i| text(i, 2 + rng.below(CONTEXT - 1))).collect();
            let (sender, receiver) = std::sync::mpsc::channel();
            for (i, tokens) in texts.iter().enumerate() {
                let sender = sender.clone();
                let mut request = ScoreRequest::new(tokens.clone());
                (request.first, request.top) = (1 + rng.below(tokens.len() - 1), rng.below(4));
                request.priority = rng.below(3) as i32 - 1;
                let asked = request.clone();
                e.submit_score(request, move |event| sender.send((i, asked.clone(), event)).is_ok()).unwrap();
            }
            drop(sender);
            let mut scored = vec![Vec::new(); texts.len()];
            let mut ended = 0;
            for (i, asked, event) in receiver {
                match event {
                    ScoreEvent::Token(token) => scored[i].push(token),
                    ScoreEvent::Finished(finish) => {
                        assert_eq!(finish.prompt_tokens, texts[i].len());
                        assert_eq!(scored[i].len(), texts[i].len() - asked.first, "text {i}; {what}");
                        ended += 1;
                        let logits = device_logits(&file, &texts[i]);
                        for (position, score) in (asked.first..).zip(&scored[i]) {
                            let d = Distribution::new(&logits[position - 1]);
                            let id = texts[i][position];
                            assert_eq!(score.position, position, "text {i}; {what}");
                            assert_eq!(score.token, d.token(id), "text {i} at {position}; {what}");
                            assert_eq!(score.rank, d.rank(id), "text {i} at {position}; {what}");
                            assert_eq!(score.top, d.top(asked.top), "text {i} at {position}; {what}");
                        }
                    }
                    ScoreEvent::Failed(error) => panic!("{error}; {what}"),
                }
            }
            assert_eq!(ended, texts.len(), "{what}");
            busy.into_iter().for_each(|events| assert!(common::collect(events).error.is_none()));
            settle(&e);
        }
    }
}

#[test]
fn rows_come_once_and_in_order_and_stop_when_told() {
    let Some(file) = tiny("qwen3") else { return };
    let e = engine(&file, 2, EngineOptions { max_batch_tokens: 7, max_sequences: 2, ..options() });
    let tokens = text(5, CONTEXT);
    let logits = device_logits(&file, &tokens);
    let collect = |rows: &mut Vec<(usize, Vec<f32>)>, position: usize, row: &[f32]| {
        rows.push((position, row.to_vec()));
        true
    };
    let all = LogitsRequest::new(tokens.clone());
    let (rows, finish) = e.fold_logits(all.clone(), Vec::new(), collect).unwrap();
    assert_eq!((rows.len(), finish.prompt_tokens, finish.cached_tokens), (CONTEXT, CONTEXT, 0));
    assert!(rows.iter().enumerate().all(|(i, (position, row))| *position == i && *row == logits[i]));
    // What is before the rows may come from the prefix cache, and says the same.
    let late = LogitsRequest { rows: 70..80, ..all.clone() };
    let (rows, finish) = e.fold_logits(late, Vec::new(), collect).unwrap();
    assert_eq!((rows.len(), finish.prompt_tokens, finish.cached_tokens), (10, 80, 64));
    assert!(rows.iter().all(|(position, row)| *row == logits[*position]));
    let few = |n: &mut usize, _: usize, _: &[f32]| {
        *n += 1;
        *n < 3
    };
    assert_eq!(e.fold_logits(all, 0, few).unwrap().0, 3);
    settle(&e);
}

/// What generation says of its own tokens, scoring says too.
#[test]
fn replies_score_as_they_were_drawn() {
    let Some(file) = tiny("llama") else { return };
    let e = engine(&file, 2, options());
    let mut request = Request::new(text(2, 30), 20);
    request.sampling = SamplingParams { logprobs: Some(2), seed: 9, ..SamplingParams::default() };
    request.ignore_eos = true;
    let prompt = request.prompt.clone();
    let reply = run(&e, request);
    let whole = [prompt.as_slice(), &reply.tokens].concat();
    let scores = e.score(ScoreRequest { first: prompt.len(), top: 2, ..ScoreRequest::new(whole) }).unwrap();
    let told: Vec<String> = scores.tokens.iter().map(|t| format!("{:?}", Some((t.token, &t.top)))).collect();
    assert_eq!(told, reply.logprobs);
    let sum: f64 = scores.tokens.iter().map(|t| f64::from(t.token.logprob)).sum();
    assert_eq!(scores.logprob(), sum);
}

#[test]
fn what_cannot_be_read_is_refused_by_name() {
    let Some(file) = tiny("llama") else { return };
    let e = engine(&file, 1, options());
    let score = |tokens: Vec<u32>, first| e.score(ScoreRequest { first, ..ScoreRequest::new(tokens) });
    let none = |first, tokens| score(text(0, tokens), first).unwrap_err().to_string();
    assert_eq!(none(0, 5), "scores of tokens 0 to 5 (exclusive) of a text of 5 tokens: there are none");
    assert!(none(5, 5).contains("5 to 5") && none(1, 1).contains("1 to 1") && none(1, 0).contains("1 to 0"));
    assert_eq!(score(text(0, CONTEXT + 1), 1).unwrap().tokens.len(), CONTEXT, "the last token need not run");
    let long = score(text(0, CONTEXT + 2), 1).unwrap_err();
    assert!(matches!(long, EngineError::TextTooLong { tokens: 97, context: 96 }), "{long}");
    assert!(matches!(score(vec![1, 2, 1 << 30], 1), Err(EngineError::TokenId { id: 1_073_741_824, .. })));
    let rows =
        |rows| e.fold_logits(LogitsRequest { rows, ..LogitsRequest::new(text(0, 9)) }, (), |_, _, _| true);
    assert!(matches!(rows(4..4), Err(EngineError::NoRows { first: 4, end: 4, tokens: 9, .. })));
    assert!(matches!(rows(4..10), Err(EngineError::NoRows { end: 10, .. })));
    let late = ScoreRequest { deadline: Some(std::time::Instant::now()), ..ScoreRequest::new(text(0, 9)) };
    assert!(matches!(e.score(late), Err(EngineError::Incomplete(_))));
    settle(&e);
}

#[test]
fn readers_that_leave_or_panic_end_alone() {
    let Some(file) = tiny("llama") else { return };
    let e = engine(&file, 2, EngineOptions { max_batch_tokens: 8, max_sequences: 4, ..options() });
    let heard = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&heard);
    e.submit_score(ScoreRequest::new(text(1, 80)), move |_| {
        *counter.lock().unwrap() += 1;
        false
    })
    .unwrap();
    e.submit_score(ScoreRequest::new(text(2, 80)), |event| match event {
        ScoreEvent::Token(_) => panic!("the listener is broken"),
        _ => true,
    })
    .unwrap();
    let bomb = e.fold_logits(LogitsRequest::new(text(3, 20)), (), |_, _, _| panic!("the reader is broken"));
    assert!(bomb.unwrap_err().to_string().contains("the reader is broken"));
    assert_eq!(e.score(ScoreRequest::new(text(4, 50))).unwrap().tokens.len(), 49);
    settle(&e);
    assert_eq!((*heard.lock().unwrap(), e.metrics().restarts), (2, 0), "a token, and the end");
}
