//! Clients that go away, stop reading, or come in crowds: places and memory come back, and replies stay what they are.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::time::{Duration, Instant};

use common::{Running, start_with};
use hanzo_server::{Config, Limits, LoadSettings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(5);

fn head(body: &str) -> String {
    let length = body.len();
    format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

fn long(more: Value) -> String {
    let mut body =
        json!({"prompt": "Once upon a time", "max_tokens": 8000, "ignore_eos": true, "temperature": 0});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    head(&body.to_string())
}

async fn connect(server: &Running, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Waits until so many run and wait.
async fn until(server: &Running, running: usize, waiting: usize) {
    let model = server.app.registry.list().remove(0);
    let began = Instant::now();
    loop {
        let m = model.engine.metrics();
        if m.running == running && m.waiting == waiting {
            return;
        }
        assert!(began.elapsed() < SOON, "{} run, {} wait", m.running, m.waiting);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

fn one_place() -> LoadSettings {
    LoadSettings { max_sequences: 1, context: Some(8192), ..LoadSettings::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_frees_its_place_in_every_phase() {
    let server = start_with(Config::default(), &one_place()).await;
    for stream in [false, true] {
        let request = long(json!({"stream": stream}));
        // While it writes.
        let decoding = connect(&server, &request).await;
        until(&server, 1, 0).await;
        // While it waits.
        let queued = connect(&server, &request).await;
        until(&server, 1, 1).await;
        drop(queued);
        until(&server, 1, 0).await;
        drop(decoding);
        assert!(server.becomes_idle(SOON).await, "decode, stream: {stream}");
        // While its prompt is read: one that takes many steps.
        let prompt = "and then the fox and the bear went on ".repeat(700);
        let reading =
            connect(&server, &long(json!({"stream": stream, "prompt": prompt, "max_tokens": 100}))).await;
        until(&server, 1, 0).await;
        drop(reading);
        assert!(server.becomes_idle(SOON).await, "prefill, stream: {stream}");
    }
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_half_closes_is_gone() {
    let server = start_with(Config::default(), &one_place()).await;
    let mut stream = connect(&server, &long(json!({"stream": true}))).await;
    until(&server, 1, 0).await;
    stream.shutdown().await.unwrap();
    assert!(server.becomes_idle(SOON).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_does_not_read_is_bounded_and_let_go() {
    // Log-probabilities make the stream large enough for the kernel's buffers to fill.
    let request = long(json!({"stream": true, "logprobs": 20}));
    let limits = Limits { unread_bytes: 64 << 10, write_time: Duration::from_secs(60), ..Limits::default() };
    let server = start_with(Config { limits, ..Config::default() }, &one_place()).await;
    let mut blocked = connect(&server, &request).await;
    until(&server, 1, 0).await;
    assert!(server.becomes_idle(Duration::from_secs(60)).await, "what is unread has a bound");
    // What it reads at last ends with the reason.
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), async {
        let mut part = vec![0; 1 << 16];
        while let Ok(n @ 1..) = blocked.read(&mut part).await {
            rest.extend_from_slice(&part[..n]);
            if rest.windows(15).any(|w| w == b"client_too_slow") {
                return;
            }
        }
    });
    read.await.unwrap();
    assert!(rest.windows(15).any(|w| w == b"client_too_slow"));

    // With patience for what is unread, but none for a write that does not get on.
    let limits =
        Limits { unread_bytes: 1 << 30, write_time: Duration::from_millis(300), ..Limits::default() };
    let server = start_with(Config { limits, ..Config::default() }, &one_place()).await;
    let blocked = connect(&server, &request).await;
    until(&server, 1, 0).await;
    assert!(server.becomes_idle(Duration::from_secs(60)).await, "a write that waits has a bound");
    drop(blocked);
    // One that goes away while it is blocked.
    let limits = Limits { unread_bytes: 1 << 30, write_time: Duration::from_secs(600), ..Limits::default() };
    let server = start_with(Config { limits, ..Config::default() }, &one_place()).await;
    let blocked = connect(&server, &request).await;
    until(&server, 1, 0).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    drop(blocked);
    assert!(server.becomes_idle(SOON).await, "gone while blocked");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_limit_are_closed() {
    let limits = Limits { connections: 2, header_time: Duration::from_millis(300), ..Limits::default() };
    let server = start_with(Config { limits, ..Config::default() }, &one_place()).await;
    let first = TcpStream::connect(server.address).await.unwrap();
    let _second = TcpStream::connect(server.address).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let mut third = TcpStream::connect(server.address).await.unwrap();
    assert_eq!(tokio::time::timeout(SOON, third.read(&mut [0; 16])).await.unwrap().unwrap_or(0), 0);
    // Those that send nothing have to go.
    drop(first);
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_told_to_stop_finishes_what_runs() {
    let server = start_with(Config::default(), &one_place()).await;
    let body = json!({"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": true, "stream": true});
    let mut running = connect(&server, &head(&body.to_string())).await;
    let idle = TcpStream::connect(server.address).await.unwrap();
    until(&server, 1, 0).await;
    let address = server.address;
    let stopping = tokio::spawn(server.stop());
    let mut all = Vec::new();
    running.read_to_end(&mut all).await.unwrap();
    let all = String::from_utf8_lossy(&all);
    assert!(all.contains("[DONE]"), "the reply was complete");
    assert_eq!(stopping.await.unwrap(), 0, "nothing was cut off");
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
    drop(idle);

    let limits = Limits { drain_time: Duration::from_millis(100), ..Limits::default() };
    let server = start_with(Config { limits, ..Config::default() }, &one_place()).await;
    let _running = connect(&server, &long(json!({"stream": true}))).await;
    until(&server, 1, 0).await;
    assert_eq!(server.stop().await, 1, "what takes too long is cut off");
}
