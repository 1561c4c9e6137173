//! Two hundred clients, some of which go away: alone in its process, so that its memory can be told.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Running, start_with};
use hanzo_server::{Config, LoadSettings};
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

async fn connect(server: &Running, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

/// Bytes of memory that the process holds.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

/// Number `i` of the requests of the crowd.
fn of_the_crowd(i: usize) -> Value {
    let subjects = ["fox", "bear", "river", "girl", "old king", "small boat", "cloud", "cat"];
    json!({
        "prompt": format!("Once upon a time there was a {}", subjects[i % subjects.len()]),
        "max_tokens": 16 + i % 17,
        "seed": i / 2,
        "temperature": if i.is_multiple_of(3) { 0.0 } else { 0.9 },
        "stream": true,
    })
}

fn text_of(answer: &common::Answer) -> String {
    let text = |m: &Value| m["choices"][0]["text"].as_str().map(str::to_owned);
    answer.messages().iter().filter_map(text).collect()
}

/// `HANZO_SOAK_SECONDS` makes it longer.
#[tokio::test(flavor = "multi_thread")]
async fn a_crowd_with_random_cancels_gets_the_replies_that_each_would_get_alone() {
    let settings = LoadSettings { max_waiting: 1000, kv_tokens: Some(16_384), ..LoadSettings::default() };
    let server = Arc::new(start_with(Config::default(), &settings).await);
    let kinds = 48;
    let mut alone = Vec::new();
    for i in 0..kinds {
        alone.push(text_of(&server.post("/v1/completions", &of_the_crowd(i)).await));
    }
    let alone = Arc::new(alone);
    let seconds = std::env::var("HANZO_SOAK_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(4);
    let end = Instant::now() + Duration::from_secs(seconds);
    let base = resident();
    let streams = 200;
    let tasks: Vec<_> = (0..streams)
        .map(|s| {
            let (server, alone) = (Arc::clone(&server), Arc::clone(&alone));
            tokio::spawn(async move {
                let (mut i, mut finished, mut cancelled) = (s * 7, 0u32, 0u32);
                while Instant::now() < end || finished + cancelled == 0 {
                    i += 1;
                    let body = of_the_crowd(i % kinds);
                    if i.is_multiple_of(4) {
                        // Gone after a part of the reply, or before its first byte.
                        let mut stream = connect(&server, &head(&body.to_string())).await;
                        let wait = Duration::from_millis((i as u64 * 37) % 60);
                        let _ = tokio::time::timeout(wait, stream.read(&mut [0; 512])).await;
                        cancelled += 1;
                        continue;
                    }
                    let answer = server.post("/v1/completions", &body).await;
                    assert_eq!(answer.status, 200, "{answer:?}");
                    assert_eq!(text_of(&answer), alone[i % kinds], "request {i}");
                    finished += 1;
                }
                (finished, cancelled)
            })
        })
        .collect();
    let (mut finished, mut cancelled) = (0, 0);
    for task in tasks {
        let (f, c) = task.await.unwrap();
        (finished, cancelled) = (finished + f, cancelled + c);
    }
    println!(
        "{finished} finished as alone, {cancelled} cancelled; {} kB grown",
        resident().saturating_sub(base) / 1024
    );
    assert!(finished >= streams as u32 / 2 && cancelled > 0);
    assert!(server.becomes_idle(SOON).await, "every block and place is free again");
    assert!(resident().saturating_sub(base) < 64 << 20, "memory does not grow with requests");
}
