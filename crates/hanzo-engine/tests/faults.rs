//! What goes wrong stays with the request that it happened to: full queues, deadlines, cancellation, failing steps,
//! panics.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::{Control, Controlled, Fault, Reply, collect, cpu, engine, run, settle, tiny};
use hanzo_engine::{
    Engine, EngineError, EngineOptions, Event, FinishReason, Proposer, Request, SamplingParams, Speculation,
};

fn controlled(options: EngineOptions) -> Option<(Engine, Arc<Control>)> {
    let file = tiny("llama")?;
    let control = Arc::new(Control::default());
    let device = Controlled(cpu(2), Arc::clone(&control));
    let options = EngineOptions { max_context: Some(160), speculation: Speculation::off(), ..options };
    Some((Engine::load(&file, &device, options, &()).unwrap(), control))
}

fn request(first: u32, prompt: u32, max_tokens: usize) -> Request {
    let mut request = Request::new((0..prompt).map(|i| 10 + (first + i * 3) % 90).collect(), max_tokens);
    request.sampling = SamplingParams::greedy();
    request.ignore_eos = true;
    request
}

#[test]
fn invalid_requests_are_refused_by_name() {
    let Some((e, _)) = controlled(EngineOptions { kv_tokens: Some(64), ..EngineOptions::default() }) else {
        return;
    };
    let error = |r: Request| e.generate(r).unwrap_err();
    assert!(matches!(error(Request::new(vec![], 1)), EngineError::EmptyPrompt));
    // The pool is smaller than the context asked for, so it is the context.
    let long = error(request(0, 64, 1));
    assert!(matches!(long, EngineError::PromptTooLong { prompt: 64, context: 64 }), "{long}");
    assert!(matches!(error(Request::new(vec![1, 1 << 20], 1)), EngineError::TokenId { id: 1_048_576, .. }));
    let mut bad = request(0, 4, 1);
    bad.sampling.top_p = f32::NAN;
    assert!(matches!(error(bad), EngineError::Param(_)));
    assert_eq!(run(&e, request(0, 63, 5)).tokens.len(), 1, "one token fits behind 63");
}

#[test]
fn a_full_queue_says_busy() {
    let options = EngineOptions { max_waiting: 3, max_sequences: 1, ..EngineOptions::default() };
    let Some((e, control)) = controlled(options) else { return };
    control.hold();
    let first = e.generate(request(0, 8, 2)).unwrap();
    control.wait_blocked();
    let waiting: Vec<_> = (1..4).map(|i| e.generate(request(i, 8, 2)).unwrap()).collect();
    let busy = e.generate(request(9, 8, 2)).unwrap_err();
    assert!(matches!(busy, EngineError::Busy { waiting: 3 }), "{busy}");
    assert_eq!(e.load_now().0, 3);
    control.release();
    for events in std::iter::once(first).chain(waiting) {
        assert_eq!(collect(events).tokens.len(), 2);
    }
    settle(&e);
    assert_eq!(run(&e, request(9, 8, 2)).tokens.len(), 2);
}

#[test]
fn deadlines_end_replies() {
    let Some((e, control)) = controlled(EngineOptions::default()) else { return };
    let mut late = request(0, 8, 50);
    late.deadline = Some(Instant::now());
    let reply = run(&e, late);
    assert_eq!((reply.finished().reason, reply.tokens.len()), (FinishReason::Deadline, 0));
    control.hold();
    let mut soon = request(0, 8, 50);
    soon.deadline = Some(Instant::now() + Duration::from_millis(300));
    let events = e.generate(soon).unwrap();
    control.permit(4);
    std::thread::sleep(Duration::from_millis(350));
    control.permit(1);
    let reply = collect(events);
    assert_eq!(reply.finished().reason, FinishReason::Deadline);
    assert!((1..=5).contains(&reply.tokens.len()), "{}", reply.tokens.len());
    control.release();
    settle(&e);
}

/// Cancelled in the queue, in the prompt and in the reply: the next step is without it, and its blocks are free.
#[test]
fn cancellation_takes_effect_within_a_step() {
    let options = EngineOptions { max_batch_tokens: 16, max_sequences: 2, ..EngineOptions::default() };
    let Some((e, control)) = controlled(options) else { return };
    for phase in ["queue", "prompt", "reply"] {
        control.hold();
        let steps_before = control.steps.lock().unwrap().len();
        let other = e.generate(request(1, 4, 12)).unwrap();
        control.wait_blocked();
        let n_prompt = if phase == "prompt" { 100 } else { 8 };
        let blocker = (phase == "queue").then(|| e.generate(request(2, 4, 12)).unwrap());
        let (sender, receiver) = channel();
        let victim =
            e.submit(request(3, n_prompt, 40), Box::new(move |event| sender.send(event).is_ok())).unwrap();
        // Prompts advance by 15 or 16 a step here: the victim is in the phase that is meant.
        control.permit(if phase == "reply" { 5 } else { 3 });
        while control.steps.lock().unwrap().len() < steps_before + if phase == "reply" { 5 } else { 3 } {
            std::thread::sleep(Duration::from_millis(1));
        }
        control.wait_blocked();
        victim.cancel();
        // The step that is about to run was planned before; the one after it must not know the victim.
        control.permit(2);
        let end =
            receiver.iter().find_map(|event| if let Event::Finished(f) = event { Some(f) } else { None });
        assert_eq!(end.unwrap().reason, FinishReason::Cancelled, "{phase}");
        control.release();
        assert_eq!(collect(other).tokens.len(), 12, "{phase}");
        if let Some(blocker) = blocker {
            assert_eq!(collect(blocker).tokens.len(), 12);
        }
        settle(&e);
        if phase == "prompt" {
            let steps = control.steps.lock().unwrap()[steps_before..].to_vec();
            let with_chunks = steps.iter().filter(|s| s.iter().any(|n| *n > 1)).count();
            assert!(with_chunks <= 1 + 4, "chunks of the victim ran on: {steps:?}");
        }
    }
}

#[test]
fn dropped_events_and_refusing_sinks_cancel() {
    let Some((e, _)) = controlled(EngineOptions::default()) else { return };
    drop(e.generate(request(0, 30, 100)).unwrap());
    let mut events = e.generate(request(1, 30, 100)).unwrap();
    assert!(matches!(events.next(), Some(Event::Token(_))));
    drop(events);
    let _cancel = e.submit(request(2, 30, 100), Box::new(|_| false)).unwrap();
    settle(&e);
    assert!(e.metrics().generated_tokens < 300);
}

/// A step that fails or panics ends the requests in it; those that wait, and all later ones, are none the wiser.
#[test]
fn a_failing_step_fails_its_requests_only() {
    let options = EngineOptions { max_sequences: 2, ..EngineOptions::default() };
    let Some((e, control)) = controlled(options) else { return };
    let expected: Vec<Reply> = (0..4).map(|i| run(&e, request(i, 20, 10))).collect();
    for (fault, text) in [(Fault::Error, "a kernel failed"), (Fault::Panic, "a worker panicked")] {
        control.hold();
        let all: Vec<_> = (0..4).map(|i| e.generate(request(i, 20, 10)).unwrap()).collect();
        control.wait_blocked();
        control.permit(4);
        while control.steps.lock().unwrap().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        control.fail_next(fault);
        control.release();
        let replies: Vec<Reply> = all.into_iter().map(collect).collect();
        let failed: Vec<_> = replies.iter().filter_map(|r| r.error.clone()).collect();
        assert!((1..=2).contains(&failed.len()), "{failed:?}");
        assert!(failed.iter().all(|f| f.contains(text)), "{failed:?}");
        for (reply, expected) in replies.iter().zip(&expected) {
            assert_eq!(reply.tokens, expected.tokens[..reply.tokens.len()]);
            assert!(reply.error.is_some() || reply.tokens.len() == 10);
        }
        settle(&e);
        // The prefix cache holds nothing that the failed step wrote.
        for (i, expected) in expected.iter().enumerate() {
            assert_eq!(run(&e, request(i as u32, 20, 10)).tokens, expected.tokens);
        }
    }
    assert_eq!((e.metrics().failed_steps, e.metrics().restarts), (2, 0));
}

#[test]
fn a_failing_copy_fails_its_continuations_only() {
    let Some((e, control)) = controlled(EngineOptions::default()) else { return };
    control.fail_next(Fault::CopyError);
    let (sender, receiver) = channel();
    let sinks = (0..3)
        .map(|_| {
            let sender = sender.clone();
            let sink: hanzo_engine::Sink = Box::new(move |event| sender.send(event).is_ok());
            sink
        })
        .collect();
    let _cancel = e.submit_continuations(request(0, 20, 10), sinks).unwrap();
    drop(sender);
    let failed = receiver.iter().filter(|event| matches!(event, Event::Failed(_))).count();
    assert_eq!(failed, 3);
    settle(&e);
    assert_eq!(run(&e, request(0, 20, 10)).tokens.len(), 10);
}

#[test]
fn a_panicking_listener_ends_its_request_only() {
    let Some((e, _)) = controlled(EngineOptions::default()) else { return };
    let other = e.generate(request(0, 20, 30)).unwrap();
    let sink = |event| match event {
        Event::Token(_) => panic!("the listener is broken"),
        _ => true,
    };
    let _cancel = e.submit(request(1, 20, 30), Box::new(sink)).unwrap();
    assert_eq!(collect(other).tokens.len(), 30);
    settle(&e);
    assert_eq!(e.metrics().restarts, 0);
}

/// Panics in the engine's own thread.
struct Bomb;

impl Proposer for Bomb {
    fn propose(&mut self, tokens: &[u32], _most: usize, _drafts: &mut Vec<u32>) {
        assert!(!tokens.ends_with(&[77]), "the proposer is broken");
    }

    fn observe(&mut self, _tried: usize, _accepted: usize) {}
}

#[test]
fn a_panic_of_the_engines_thread_is_survived() {
    let Some(file) = tiny("llama") else { return };
    let options = EngineOptions {
        max_context: Some(160),
        max_sequences: 2,
        speculation: Speculation::with(4, || Box::new(Bomb)),
        ..EngineOptions::default()
    };
    let e = engine(&file, 2, options);
    let before = run(&e, request(5, 20, 8)).tokens;
    let mut bomb = request(0, 20, 40);
    // The token that sets it off is drawn for certain.
    bomb.sampling.logit_bias = vec![(77, 1e6)];
    let all: Vec<_> = [request(0, 20, 140), bomb, request(2, 20, 140), request(3, 20, 140)]
        .map(|r| e.generate(r).unwrap())
        .into_iter()
        .map(collect)
        .collect();
    let errors: Vec<_> = all.iter().filter_map(|r| r.error.clone()).collect();
    assert!(!errors.is_empty() && errors.iter().all(|e| e.contains("the proposer is broken")), "{errors:?}");
    assert!(all.iter().all(|r| r.error.is_some() || r.tokens.len() == 140), "every request hears its end");
    assert!(all[1].error.is_some());
    assert_eq!(e.metrics().restarts, 1);
    assert_eq!(run(&e, request(5, 20, 8)).tokens, before);
    settle(&e);
}

#[test]
fn dropping_the_engine_ends_its_requests() {
    let Some((e, _)) = controlled(EngineOptions::default()) else { return };
    let events = e.generate(request(0, 20, 140)).unwrap();
    drop(e);
    let reply = collect(events);
    assert!(reply.finish.is_some() || reply.error == Some("the engine has stopped".to_owned()));
}
