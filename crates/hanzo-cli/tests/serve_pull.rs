//! `POST /api/pull`: clients of `hanzo serve --allow-pull` fetch models from a Hub in this process, and use them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;
#[path = "../../hanzo-hub/tests/common/mod.rs"]
mod fake;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use common::server::Server;
use common::{TINY, hanzo, run};
use fake::{FakeHub, Fault};
use serde_json::{Value, json};

fn serve(hub: &FakeHub, dir: &Path, more: &[&str]) -> Server {
    let mut command = hanzo();
    command.env("HF_ENDPOINT", &hub.endpoint);
    let folder = ["--models-dir", dir.to_str().unwrap()];
    Server::start_with(&mut command, &[&folder, more].concat())
}

fn send(server: &Server, path: &str, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let body = body.to_string();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json"
    );
    write!(stream, "{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).unwrap();
    stream
}

/// Status and lines of an answer. Whatever stands between the chunks of a body is no JSON object.
fn read(mut stream: TcpStream) -> (u16, Vec<Value>) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let lines = body.lines().filter(|line| line.starts_with('{'));
    (status, lines.map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn post(server: &Server, path: &str, body: &Value) -> (u16, Vec<Value>) {
    read(send(server, path, body))
}

fn text<'v>(value: &'v Value, name: &str) -> &'v str {
    value[name].as_str().unwrap_or_else(|| panic!("no {name} in {value}"))
}

#[test]
fn a_model_is_fetched_and_used() {
    let tiny = std::fs::read(TINY).unwrap();
    let hub = FakeHub::new(&[("tales-Q8_0.gguf", &tiny), ("tales-F16.gguf", b"never fetched")]);
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&hub, dir.path(), &["--allow-pull"]);
    let complete = json!({"model": "org/repo:Q8_0", "prompt": "Once", "max_tokens": 2});
    assert_eq!(post(&server, "/v1/completions", &complete).0, 404);

    // The connection breaks once, and the pull goes on from there.
    hub.fault(Fault::CutAfter(tiny.len() / 2));
    let (status, lines) = post(&server, "/api/pull", &json!({"model": "org/repo:Q8_0"}));
    assert_eq!(status, 200, "{lines:?}");
    assert_eq!(text(&lines[0], "status"), "pulling org/repo:Q8_0");
    assert!(lines.iter().any(|line| text(line, "status").contains("trying again")), "{lines:?}");
    let counts: Vec<u64> = lines.iter().filter_map(|line| line["completed"].as_u64()).collect();
    assert!(counts.is_sorted() && counts.last() == Some(&(tiny.len() as u64)), "{counts:?}");
    assert!(lines.iter().all(|line| line.get("total").is_none_or(|total| *total == tiny.len())), "{lines:?}");
    assert_eq!(lines.last(), Some(&json!({"status": "success"})));
    assert_eq!(hub.requests("F16").len(), 0);

    assert_eq!(post(&server, "/v1/completions", &complete).0, 200);
    let again = json!({"name": "org/repo:q8_0", "stream": false});
    assert_eq!(post(&server, "/api/pull", &again), (200, vec![json!({"status": "success"})]));
    drop(server);
    // It stays when clients may not fetch any more.
    let server = serve(&hub, dir.path(), &[]);
    assert_eq!(post(&server, "/v1/completions", &complete).0, 200);
    let (status, lines) = post(&server, "/api/pull", &again);
    assert!(status == 403 && text(&lines[0], "error").contains("--allow-pull"), "{lines:?}");
}

#[test]
fn what_cannot_be_fetched_is_said() {
    let hub = FakeHub::new(&[("a-Q8_0.gguf", b"x"), ("a-F16.gguf", b"y")]);
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&hub, dir.path(), &["--allow-pull"]);
    for (model, status, says) in [
        ("../../etc/passwd", 400, "model: "),
        ("", 400, "model: "),
        ("org/repo", 400, "org/repo:F16"),
        ("org/repo:Q2_K", 400, "Q2_K"),
        ("org/other", 404, "model: "),
    ] {
        for stream in [false, true] {
            let (found, lines) = post(&server, "/api/pull", &json!({"model": model, "stream": stream}));
            assert_eq!(found, status, "{model}: {lines:?}");
            assert!(text(&lines[0], "error").contains(says), "{model}: {lines:?}");
        }
    }
    assert_eq!(post(&server, "/api/pull", &json!({})).0, 400);
    // Content that is not what the Hub said it is.
    hub.change(|state| state.etag = Some("0".repeat(64)));
    let (status, lines) = post(&server, "/api/pull", &json!({"model": "org/repo:Q8_0"}));
    assert_eq!(status, 200, "it had begun: {lines:?}");
    assert!(text(lines.last().unwrap(), "error").contains("a-Q8_0.gguf"), "{lines:?}");
    run(&["serve", "--port", "0", "--allow-pull"]).fails(2, &["--allow-pull", "--models-dir"]);
}

/// A few pulls at once, and no more; clients that go away give their places back.
#[test]
fn clients_that_leave_end_their_pulls() {
    let content = fake::noise(1 << 20);
    let hub = FakeHub::new(&[("a-Q8_0.gguf", &content)]);
    let dir = tempfile::tempdir().unwrap();
    let server = serve(&hub, dir.path(), &["--allow-pull"]);
    hub.fault(Fault::StallAfter(1000));
    let body = json!({"model": "org/repo:Q8_0"});
    let waiting: Vec<TcpStream> = (0..4)
        .map(|_| {
            let mut stream = send(&server, "/api/pull", &body);
            stream.read_exact(&mut [0; 100]).unwrap();
            stream
        })
        .collect();
    let (status, lines) = post(&server, "/api/pull", &body);
    assert_eq!(status, 429, "{lines:?}");
    drop(waiting);
    let began = Instant::now();
    loop {
        let (status, lines) = post(&server, "/api/pull", &body);
        if status == 200 {
            assert_eq!(lines.last(), Some(&json!({"status": "success"})));
            break;
        }
        assert!(status == 429 && began.elapsed() < Duration::from_secs(60), "{status}: {lines:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}
