//! Models with recurrent layers: prefixes are taken up where the state was kept, with the same bytes as without, and slots
//! for states come back.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::sync::Arc;

use common::{Control, Controlled, Fault, Reply, cpu, engine, run, settle, tiny};
use hanzo_engine::{DraftModel, Engine, EngineError, EngineOptions, Request, SamplingParams, Speculation};

const NAMES: [&str; 2] = ["qwen3next", "qwen3_5"];

fn options() -> EngineOptions {
    EngineOptions {
        max_context: Some(256),
        kv_tokens: Some(1024),
        max_sequences: 4,
        speculation: Speculation::off(),
        ..EngineOptions::default()
    }
}

fn text(n: u32, family: u32) -> Vec<u32> {
    (0..n).map(|i| 10 + (i * 5 + i * i % (7 + family)) % 77).collect()
}

fn request(prompt: Vec<u32>, n: usize) -> Request {
    let sampling = SamplingParams { logprobs: Some(2), ..SamplingParams::greedy() };
    Request { ignore_eos: true, sampling, ..Request::new(prompt, n) }
}

/// The reply, which must be that of an engine without prefix cache, and how much of the prompt was found.
fn found(e: &Engine, reference: &Engine, request: Request) -> (Reply, usize) {
    let (reply, wanted) = (run(e, request.clone()), run(reference, request));
    assert_eq!((&reply.tokens, &reply.logprobs), (&wanted.tokens, &wanted.logprobs));
    assert_eq!(wanted.finished().cached_tokens, 0);
    let cached = reply.finished().cached_tokens;
    (reply, cached)
}

fn without_cache(name: &str) -> Option<Engine> {
    Some(engine(&tiny(name)?, 1, EngineOptions { prefix_cache: false, ..options() }))
}

/// What is found of a text: the last border of the same one, of one that goes on, of a conversation after the reply, and
/// regular ones of a text that only begins alike. Chunks do not matter.
#[test]
fn prefixes_are_taken_up_where_states_were_kept() {
    for (name, max_batch_tokens) in NAMES.into_iter().flat_map(|name| [(name, 512), (name, 7), (name, 16)]) {
        let Some(reference) = without_cache(name) else { return };
        let file = tiny(name).unwrap();
        let e = engine(&file, 2, EngineOptions { max_batch_tokens, ..options() });
        let ask = |prompt: Vec<u32>, n: usize| found(&e, &reference, request(prompt, n));
        let prompt = text(150, 0);
        let (reply, cached) = ask(prompt.clone(), 40);
        assert_eq!(cached, 0);
        assert_eq!(ask(prompt.clone(), 5).1, 144, "the same text");
        assert_eq!(ask([&prompt[..], &[3, 4, 5, 6]].concat(), 5).1, 144, "one that goes on");
        let talk = [&prompt[..], &reply.tokens, &text(20, 3)].concat();
        // The last token of the reply was never computed.
        assert_eq!(ask(talk, 5).1, 176, "a conversation");
        // States are 16.5 KiB and a token's keys and values 256 bytes: every 80 tokens.
        let alike = [&prompt[..140], &text(20, 5)].concat();
        assert_eq!(ask(alike, 5).1, 80, "one that begins alike");
        assert_eq!(ask(text(60, 9), 5).1, 0, "another");
        settle(&e);
        let m = e.metrics();
        assert_eq!(m.prefix_hits, 144 + 144 + 176 + 80);
        assert_eq!((m.states, e.info().states), (4 + 20, (4, 20)));
    }
}

/// As many whole blocks as there are tokens: the last must run, so its block is not taken up by the same text.
#[test]
fn whole_blocks() {
    let Some(reference) = without_cache("qwen3next") else { return };
    let e = engine(&tiny("qwen3next").unwrap(), 2, options());
    let ask = |prompt: Vec<u32>| found(&e, &reference, request(prompt, 3)).1;
    assert_eq!(ask(text(48, 0)), 0);
    assert_eq!(ask(text(48, 0)), 32);
    assert_eq!(ask([text(48, 0), vec![9]].concat()), 48);
    settle(&e);
}

/// Few or no slots for checkpoints: less is found, nothing else changes. Checkpoints go with the blocks of their prefix.
#[test]
fn checkpoints_are_bounded() {
    let Some(reference) = without_cache("qwen3next") else { return };
    let file = tiny("qwen3next").unwrap();
    for (spare, kv_tokens, again) in [(0, 1024, 0), (1, 1024, 0), (16, 1024, 32), (16, 80, 0)] {
        let e = engine(
            &file,
            2,
            EngineOptions {
                spare_states: Some(spare),
                kv_tokens: Some(kv_tokens),
                max_context: Some(64),
                ..options()
            },
        );
        for family in 0..4 {
            assert_eq!(found(&e, &reference, request(text(40, family), 4)).1, 0, "{spare}");
        }
        let last = found(&e, &reference, request(text(40, 3), 4)).1;
        assert_eq!(last, if spare > 0 { 32 } else { 0 }, "{spare} spare states, the last text");
        let first = found(&e, &reference, request(text(40, 0), 4)).1;
        assert_eq!(first, again, "{spare} spare states, {kv_tokens} tokens of blocks, the first text");
        settle(&e);
    }
}

/// Steps and copies that fail take their requests with them, and no slot.
#[test]
fn failed_steps_leave_no_slot_behind() {
    let Some(reference) = without_cache("qwen3next") else { return };
    let file = tiny("qwen3next").unwrap();
    let control = Arc::new(Control::default());
    let device = Controlled(cpu(2), Arc::clone(&control));
    let e = Engine::load(&file, &device, options(), &()).unwrap();
    let ask = || request(text(50, 0), 4);
    for fault in [Fault::Error, Fault::Panic] {
        control.fail_next(fault);
        assert!(run(&e, ask()).error.is_some());
        settle(&e);
    }
    assert_eq!(found(&e, &reference, ask()).1, 0, "nothing was kept of steps that failed");
    control.fail_next(Fault::CopyError);
    assert!(run(&e, ask()).error.is_some(), "the state could not be copied from the checkpoint");
    settle(&e);
    assert_eq!(found(&e, &reference, ask()).1, 48);
    settle(&e);
}

#[test]
fn what_does_not_fit_or_cannot_be_is_refused() {
    let Some(file) = tiny("qwen3next") else { return };
    let load = |options| Engine::load(&file, &cpu(1), options, &()).map(|e| e.info().clone());
    let state = 3 * (3 * 128 + 4 * 16 * 16) * 4;
    let sizes = |kv_bytes| EngineOptions { kv_bytes: Some(kv_bytes), kv_tokens: None, ..options() };
    match load(sizes(4 * state - 1)) {
        Err(EngineError::StatesTooLarge { sequences: 4, needed, available }) => {
            assert_eq!((needed, available), (4 * state, 4 * state - 1));
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(load(sizes(4 * state)), Err(EngineError::KvMemory { bytes: 0, .. })));
    let info = load(sizes(40 * state)).unwrap();
    assert_eq!(info.states, (4, 6), "a quarter of the memory");
    // Blocks of 16 tokens for four texts of 256, of two heads of 32 + 32 halves.
    assert_eq!(info.memory.kv, 10 * state + 64 * 16 * 2 * 64 * 2);
    let draft = DraftModel::load(&file, &cpu(1), 192, &());
    assert!(matches!(draft.err(), Some(EngineError::RecurrentDraft { architecture: "qwen3next" })));
}
