//! A shortened soak: callers come and go at random for some seconds, and nothing is left behind. `HANZO_SOAK_SECONDS`
//! makes it longer.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Control, Controlled, Fault, Rng, cpu, run, settle, tiny};
use hanzo_engine::{
    EmbedRequest, Engine, EngineError, EngineOptions, Event, Pooling, Request, SamplingParams, ScoreRequest,
};

/// A text that is scored or embedded, now and then with a deadline.
fn read_something(e: &Engine, rng: &mut Rng) -> Result<(), EngineError> {
    let tokens: Vec<u32> = (0..2 + rng.below(150)).map(|i| 10 + (i % (2 + rng.below(3))) as u32).collect();
    let deadline = (rng.below(10) == 0).then(|| Instant::now() + Duration::from_millis(rng.next() % 50));
    if rng.below(2) == 0 {
        let first = 1 + rng.below(tokens.len() - 1);
        return e.score(ScoreRequest { first, deadline, ..ScoreRequest::new(tokens) }).map(drop);
    }
    let pooling = Some(Pooling::ALL[rng.below(3)]);
    e.embed(EmbedRequest { pooling, deadline, ..EmbedRequest::new(tokens) }).map(drop)
}

#[test]
fn callers_come_and_go() {
    let Some(file) = tiny("gemma3") else { return };
    let seconds = std::env::var("HANZO_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(8);
    let control = Arc::new(Control::default());
    let options = EngineOptions {
        max_context: Some(160),
        kv_tokens: Some(400),
        max_sequences: 6,
        max_waiting: 10,
        max_batch_tokens: 48,
        eog: vec![3],
        ..EngineOptions::default()
    };
    let e = Engine::load(&file, &Controlled(cpu(2), Arc::clone(&control)), options, &()).unwrap();
    let probe = || {
        let mut request = Request::new((10..50).collect(), 30);
        request.sampling = SamplingParams { seed: 4, ..SamplingParams::default() };
        request
    };
    let expected = run(&e, probe()).tokens;
    let [ended, failed, left, busy] = [const { AtomicU64::new(0) }; 4];
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|scope| {
        for caller in 0..6 {
            let (e, control) = (&e, &control);
            let (ended, failed, left, busy) = (&ended, &failed, &left, &busy);
            scope.spawn(move || {
                let mut rng = Rng(caller);
                while Instant::now() < until {
                    if rng.below(4) == 0 {
                        let outcome = read_something(e, &mut rng);
                        match outcome {
                            Ok(()) => ended,
                            Err(EngineError::Busy { .. }) => busy,
                            Err(EngineError::Step(_)) => failed,
                            Err(EngineError::Incomplete(_)) => left,
                            Err(error) => panic!("{error}"),
                        }
                        .fetch_add(1, Ordering::Relaxed);
                        continue;
                    }
                    let n = 1 + rng.below(120);
                    let mut request = Request::new(
                        (0..n).map(|i| 10 + (i % (3 + n % 40)) as u32).collect(),
                        1 + rng.below(60),
                    );
                    request.priority = rng.below(3) as i32;
                    request.sampling.seed = rng.next();
                    if rng.below(10) == 0 {
                        request.deadline = Some(Instant::now() + Duration::from_millis(rng.next() % 50));
                    }
                    if rng.below(300) == 0 {
                        control.fail_next(if rng.below(2) == 0 { Fault::Error } else { Fault::Panic });
                    }
                    let patience = if rng.below(3) == 0 { rng.below(20) } else { usize::MAX };
                    let mut events = match e.generate(request) {
                        Ok(events) => events,
                        Err(EngineError::Busy { .. }) => {
                            busy.fetch_add(1, Ordering::Relaxed);
                            std::thread::sleep(Duration::from_millis(2));
                            continue;
                        }
                        Err(error) => panic!("{error}"),
                    };
                    let mut heard = 0;
                    loop {
                        if heard >= patience {
                            left.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                        match events.next() {
                            Some(Event::Token(_)) => heard += 1,
                            Some(Event::Finished(_)) => {
                                ended.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            Some(Event::Failed(_)) => {
                                failed.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                            None => panic!("a request heard no end"),
                        }
                    }
                }
            });
        }
    });
    settle(&e);
    let m = e.metrics();
    println!("ended {ended:?}, failed {failed:?}, left {left:?}, busy {busy:?}; {m:?}");
    assert!(ended.into_inner() > 0 && left.into_inner() > 0);
    assert_eq!(m.restarts, 0);
    // A fault may still be due.
    let _ = run(&e, probe());
    assert_eq!(run(&e, probe()).tokens, expected, "after all that the engine says what it said before");
}
