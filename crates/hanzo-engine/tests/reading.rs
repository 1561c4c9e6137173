//! Texts that are only read: their scores and rows are those of the model run alone on them, bit for bit, whatever else
//! runs and however they are cut.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::sync::{Arc, Mutex};

use common::{Rng, cpu, engine, run, settle, tiny};
use hanzo_engine::{
    Distribution, EmbedRequest, Embedding, Engine, EngineError, EngineOptions, LogitsRequest, Pooling,
    Request, SamplingParams, ScoreEvent, ScoreRequest,
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

/// All rows of logits of a text, and its hidden states, in one step of the device itself.
fn device_rows(file: &GgufFile, tokens: &[u32]) -> (Vec<Vec<f32>>, Vec<Vec<f32>>) {
    let model = hanzo_models::load(file).unwrap();
    let n = tokens.len();
    let load =
        LoadOptions { max_tokens: n, max_outputs: 2 * n, kv: KvConfig::equal(n.div_ceil(16), KvType::F16) };
    let vocab = model.graph.vocab_size;
    let groups = model.graph.n_kv_groups();
    let mut loaded = cpu(1).load(Arc::clone(&model.graph), &GgufWeights(file), load, &()).unwrap();
    let blocks: Vec<u32> = (0..n.div_ceil(16) as u32).collect();
    let tables = vec![blocks.as_slice(); groups];
    let sequence = SequenceStep { n_tokens: n, context_len: n, block_tables: &tables, adapters: &[] };
    let outputs: Vec<u32> = (0..n as u32).collect();
    let mut logits = vec![0.0; n * vocab];
    let step = Step { tokens, sequences: &[sequence], outputs: &outputs, hidden: &outputs };
    loaded.step(&step, &mut logits).unwrap();
    let rows = |all: &[f32], n: usize| all.chunks_exact(n).map(<[f32]>::to_vec).collect();
    (rows(&logits, vocab), rows(loaded.hidden(), model.graph.hidden_size()))
}

fn device_logits(file: &GgufFile, tokens: &[u32]) -> Vec<Vec<f32>> {
    device_rows(file, tokens).0
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

/// An embedding the plain way.
fn pooled(rows: &[Vec<f32>], pooling: Pooling, dimensions: usize, normalize: bool) -> Vec<f32> {
    let counted = match pooling {
        Pooling::Mean => rows,
        Pooling::Cls => &rows[..1],
        Pooling::Last => &rows[rows.len() - 1..],
    };
    let sum: Vec<f64> = (0..dimensions).map(|i| counted.iter().map(|row| f64::from(row[i])).sum()).collect();
    let length = sum.iter().map(|x| x * x).sum::<f64>().sqrt();
    let by = if normalize { length } else { counted.len() as f64 };
    sum.iter().map(|x| (x / by) as f32).collect()
}

#[test]
fn embeddings_are_those_of_the_model_in_any_mix() {
    for (name, seeds) in [("llama", 0..5), ("gemma3", 5..8)] {
        let Some(file) = tiny(name) else { return };
        for seed in seeds {
            let mut rng = Rng(seed);
            let o = crowd(&mut rng);
            let threads = 1 + rng.below(3);
            let what = format!("{name}, seed {seed}, {threads} threads, {o:?}");
            let e = engine(&file, threads, o);
            let size = e.info().hidden_size;
            let busy = chatter(&e, &mut rng);
            let requests: Vec<EmbedRequest> = (0..5)
                .map(|i| EmbedRequest {
                    pooling: [None, Some(Pooling::Mean), Some(Pooling::Cls)][rng.below(3)],
                    dimensions: [None, Some(1 + rng.below(size))][rng.below(2)],
                    normalize: rng.below(2) == 0,
                    ..EmbedRequest::new(text(i, 1 + rng.below(CONTEXT)))
                })
                .collect();
            let (sender, receiver) = std::sync::mpsc::channel();
            for (i, request) in requests.iter().enumerate() {
                let sender = sender.clone();
                e.submit_embed(request.clone(), move |outcome| sender.send((i, outcome)).unwrap()).unwrap();
                // Scores of the same text run in the same steps.
                let twin = ScoreRequest::new([&request.tokens[..], &[9]].concat());
                e.submit_score(twin, |event| !matches!(event, ScoreEvent::Failed(_))).unwrap();
            }
            drop(sender);
            let mut ended = 0;
            for (i, outcome) in receiver {
                let (request, embedding) = (&requests[i], outcome.unwrap());
                let rows = device_rows(&file, &request.tokens).1;
                assert_eq!(rows.len(), request.tokens.len());
                let pooling = request.pooling.unwrap_or(e.info().pooling);
                let wanted = pooled(&rows, pooling, request.dimensions.unwrap_or(size), request.normalize);
                assert_eq!(embedding.vector, wanted, "text {i}; {what}");
                assert_eq!(embedding.finish.prompt_tokens, request.tokens.len());
                ended += 1;
            }
            assert_eq!(ended, requests.len(), "{what}");
            busy.into_iter().for_each(|events| assert!(common::collect(events).error.is_none()));
            settle(&e);
        }
    }
}

#[test]
fn embeddings_that_cannot_be_had_are_refused_by_name() {
    let Some(file) = tiny("llama") else { return };
    let e = engine(&file, 1, options());
    let size = e.info().hidden_size;
    assert_eq!(e.info().pooling, Pooling::Last, "the file says nothing of it");
    let embed = |n: usize, dimensions| {
        e.embed(EmbedRequest { dimensions, ..EmbedRequest::new(text(0, n)) }).map(|e| e.vector.len())
    };
    assert_eq!(embed(CONTEXT, None).unwrap(), size, "a text may fill the context");
    assert!(matches!(embed(0, None), Err(EngineError::EmptyPrompt)));
    assert!(matches!(embed(CONTEXT + 1, None), Err(EngineError::TextTooLong { .. })));
    let large = embed(3, Some(size + 1)).unwrap_err().to_string();
    assert_eq!(
        large,
        format!("{} dimensions were asked for; the model's embeddings have 1 to {size}", size + 1)
    );
    assert!(matches!(embed(3, Some(0)), Err(EngineError::Dimensions { asked: 0, .. })));
    settle(&e);
}

/// The last token's state may come from a prefix that is cached already.
#[test]
fn embeddings_use_the_prefix_cache_where_they_can() {
    let Some(file) = tiny("llama") else { return };
    let e = engine(&file, 2, options());
    let ask = |pooling| {
        let request = EmbedRequest { pooling: Some(pooling), ..EmbedRequest::new(text(1, 60)) };
        let Embedding { vector, finish } = e.embed(request).unwrap();
        (vector, finish.cached_tokens)
    };
    let ((a, miss), (b, hit)) = (ask(Pooling::Last), ask(Pooling::Last));
    assert_eq!((miss, hit), (0, 48));
    assert_eq!(a, b);
    assert_eq!(ask(Pooling::Mean).1, 0, "all states are wanted");
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
