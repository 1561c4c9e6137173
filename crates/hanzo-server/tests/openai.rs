//! OpenAI's endpoints, as bytes.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::start;
use serde_json::{Value, json};

fn hello(more: Value) -> Value {
    let mut body = json!({
        "model": "hanzo-tiny",
        "messages": [{"role": "user", "content": "Once upon a time"}],
        "temperature": 0,
        "max_tokens": 12,
    });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_says_what_a_whole_reply_says() {
    let server = start().await;
    let whole = server.post("/v1/chat/completions", &hello(json!({}))).await;
    assert_eq!(whole.status, 200, "{whole:?}");
    let whole = whole.json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap();
    assert!(!text.is_empty());
    assert_eq!(whole["usage"]["completion_tokens"], 12);
    assert_eq!(whole["choices"][0]["finish_reason"], "length");

    let request = hello(json!({"stream": true, "stream_options": {"include_usage": true}}));
    let streamed = server.post("/v1/chat/completions", &request).await;
    assert_eq!(streamed.header("content-type"), Some("text/event-stream; charset=utf-8"));
    let chunks = streamed.messages();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let pieces: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(pieces, text);
    let usage = &chunks.last().unwrap()["usage"];
    assert_eq!(usage["completion_tokens"], 12);
    assert!(usage["prompt_tokens_details"]["cached_tokens"].is_u64(), "{usage}");
    let reasons: Vec<_> = chunks.iter().filter_map(|c| c["choices"][0]["finish_reason"].as_str()).collect();
    assert_eq!(reasons, ["length"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn models_and_health_are_told() {
    let server = start().await;
    for path in ["/health", "/ready", "/version", "/server_info", "/model_info", "/openapi.json"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        assert!(answer.json().is_object(), "{path}");
    }
    let models = server.get("/v1/models").await.json();
    assert_eq!(models["data"][0]["id"], "hanzo-tiny");
    assert_eq!(server.get("/v1/models/hanzo-tiny").await.json()["object"], "model");
    server.get("/v1/models/other").await.fails(404, Some("/model"));
    server.get("/nothing").await.fails(404, None);
    server.get("/v1/chat/completions").await.fails(405, None);
    let metrics = server.get("/metrics").await;
    let text = std::str::from_utf8(&metrics.body).unwrap();
    for name in [
        "num_requests_running",
        "kv_cache_usage_perc",
        "time_to_first_token_seconds_bucket",
        "cache_config_info",
    ] {
        assert!(text.contains(&format!("vllm:{name}{{model_name=\"hanzo-tiny\"")), "{name}: {text}");
    }
}
