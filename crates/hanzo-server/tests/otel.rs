//! Traces, as a collector in this process gets them by OTLP (feature `otel`).
#![cfg(feature = "otel")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use std::time::Duration;

use common::{post, start};
use hanzo_server::otel::Traces;
use serde_json::{Value, json};

/// A collector: its address, and the bodies that it gets.
fn collector() -> (String, mpsc::Receiver<(String, Vec<u8>)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (sender, bodies) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut reader = BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            loop {
                let mut line = String::new();
                if reader.read_line(&mut line).unwrap_or(0) == 0 || line.trim().is_empty() {
                    break;
                }
                if let Some(n) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = n.trim().parse().unwrap();
                }
                head.push_str(&line);
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            let _ = reader.get_mut().write_all(answer.as_bytes());
            if sender.send((head, body)).is_err() {
                return;
            }
        }
    });
    (url, bodies)
}

fn attribute<'v>(span: &'v Value, name: &str) -> &'v Value {
    let all = span["attributes"].as_array().unwrap();
    &all.iter().find(|a| a["key"] == name).unwrap_or_else(|| panic!("no {name} in {span}"))["value"]
}

fn time(span: &Value, name: &str) -> u64 {
    span[name].as_str().map_or_else(|| span[name].as_u64().unwrap(), |text| text.parse().unwrap())
}

/// One test, as the tracer is the process's: a reply with its parts, in the client's trace; and a client that went away.
#[tokio::test(flavor = "multi_thread")]
async fn requests_are_traced() {
    let (url, bodies) = collector();
    let traces = Traces::start(&url).unwrap();
    let server = start().await;
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let chat = json!({"messages": [{"role": "user", "content": "sesame"}], "max_tokens": 8, "temperature": 0, "ignore_eos": true});
    let mut request = post("/v1/chat/completions", chat.to_string());
    request.headers_mut().insert("traceparent", format!("00-{trace}-b7ad6b7169203331-01").parse().unwrap());
    request.headers_mut().insert("x-request-id", "mine".parse().unwrap());
    assert_eq!(server.send(request).await.status, 200);

    let endless = json!({"prompt": "Once", "max_tokens": 4000, "ignore_eos": true, "stream": true});
    let mut sender = server.connect().await;
    let response = sender.send_request(post("/v1/completions", endless.to_string())).await.unwrap();
    drop((response, sender));
    assert!(server.becomes_idle(Duration::from_secs(10)).await);
    assert_eq!(server.stop().await, 0);
    tokio::task::spawn_blocking(move || traces.stop().unwrap()).await.unwrap();

    let mut spans = Vec::new();
    while let Ok((head, body)) = bodies.recv_timeout(Duration::from_secs(2)) {
        assert!(head.starts_with("POST /v1/traces "), "{head}");
        assert!(!String::from_utf8_lossy(&body).contains("sesame"), "texts are not traced");
        let body: Value = serde_json::from_slice(&body).unwrap();
        let resource = &body["resourceSpans"][0];
        assert!(resource["resource"].to_string().contains("hanzo"), "{resource}");
        spans.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().clone());
    }
    let in_trace = |span: &&Value| span["traceId"] == trace;
    let root = spans.iter().filter(in_trace).find(|s| s["name"] == "generate hanzo-tiny").unwrap();
    assert_eq!(root["parentSpanId"], "b7ad6b7169203331");
    assert_eq!(attribute(root, "hanzo.request.id")["stringValue"], "mine");
    assert_eq!(attribute(root, "gen_ai.usage.output_tokens")["intValue"].as_str(), Some("8"));
    assert_eq!(attribute(root, "gen_ai.response.finish_reason")["stringValue"], "length");
    let mut at = time(root, "startTimeUnixNano");
    for name in ["queue", "prefill", "decode"] {
        let part = spans.iter().filter(in_trace).find(|s| s["name"] == name).unwrap();
        assert_eq!(part["parentSpanId"], root["spanId"], "{name}");
        let (from, to) = (time(part, "startTimeUnixNano"), time(part, "endTimeUnixNano"));
        assert!(at <= from && from <= to && to <= time(root, "endTimeUnixNano"), "{name}: {part} in {root}");
        at = to;
    }
    let gone = spans.iter().find(|s| s["status"]["message"] == "the client went away");
    assert!(gone.is_some_and(|s| s["traceId"] != trace), "{spans:?}");
}
