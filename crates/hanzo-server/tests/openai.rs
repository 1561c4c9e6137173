//! OpenAI's endpoints, as bytes.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::start;
use serde_json::{Value, json};

const CHAT: &str = "/v1/chat/completions";

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

/// What is minus one is all, or any, as other servers' clients say it.
#[tokio::test(flavor = "multi_thread")]
async fn minus_one_is_no_bound() {
    let server = start().await;
    let plain = server.post(CHAT, &hello(json!({"seed": 5, "temperature": 1, "top_k": 0}))).await;
    let off = server.post(CHAT, &hello(json!({"seed": 5, "temperature": 1, "top_k": -1}))).await;
    assert_eq!(off.json()["choices"], plain.json()["choices"], "top_k -1 is off");
    let any = hello(json!({"seed": -1, "temperature": 1, "repeat_last_n": -1, "dry_penalty_last_n": -1}));
    let first = server.post("/v1/chat/completions", &any).await.json();
    let mut others = Vec::new();
    for _ in 0..4 {
        others.push(server.post("/v1/chat/completions", &any).await.json()["choices"].clone());
    }
    assert!(others.iter().any(|choices| *choices != first["choices"]), "{first}");
}

/// A call that a grammar holds comes as it is written, in every dialect, and joined it is the whole.
#[tokio::test(flavor = "multi_thread")]
async fn arguments_of_calls_come_piece_by_piece() {
    let server = start().await;
    let parameters = json!({
        "type": "object", "required": ["city", "days"], "additionalProperties": false,
        "properties": {"city": {"type": "string", "minLength": 8, "maxLength": 24}, "days": {"enum": [1, 2, 3]}},
    });
    let tools = json!([{"type": "function", "function": {"name": "weather", "parameters": parameters}}]);
    let body = |more: Value| {
        let mut body = hello(json!({
            "tools": tools, "tool_choice": "required", "parallel_tool_calls": false, "max_tokens": 600,
        }));
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let whole = server.post(CHAT, &body(json!({}))).await.json();
    let call = &whole["choices"][0]["message"]["tool_calls"][0];
    let arguments = call["function"]["arguments"].as_str().unwrap();
    let value: Value = serde_json::from_str(arguments).unwrap();
    assert_eq!(arguments, value.to_string(), "no white space between tokens");
    let parts = |answer: &common::Answer, pointer: &str| -> Vec<String> {
        let messages = answer.data();
        messages.iter().filter_map(|m| m.pointer(pointer)?.as_str().map(str::to_owned)).collect()
    };
    let chat = server.post(CHAT, &body(json!({"stream": true}))).await;
    let pieces = parts(&chat, "/choices/0/delta/tool_calls/0/function/arguments");
    assert!(pieces.len() > 4, "{pieces:?}");
    assert_eq!(pieces.concat(), arguments);
    let names = parts(&chat, "/choices/0/delta/tool_calls/0/function/name");
    assert_eq!(names, ["weather"]);

    // Cut off: a beginning, and the reason.
    let short = server.post(CHAT, &body(json!({"stream": true, "max_tokens": 40}))).await;
    let reasons = parts(&short, "/choices/0/finish_reason");
    let beginning = parts(&short, "/choices/0/delta/tool_calls/0/function/arguments").concat();
    assert!(reasons == ["length"] && arguments.starts_with(&beginning), "{beginning} {reasons:?}");
    let short = server.post(CHAT, &body(json!({"max_tokens": 40}))).await.json();
    let same = &short["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"];
    assert_eq!(same.as_str().unwrap_or_default(), beginning);

    let anthropic = json!({
        "model": "hanzo-tiny", "max_tokens": 600, "temperature": 0, "stream": true, "messages": [{"role": "user", "content": "Once upon a time"}],
        "tools": [{"name": "weather", "input_schema": parameters}], "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
    });
    let pieces = parts(&server.post("/v1/messages", &anthropic).await, "/delta/partial_json");
    assert!(pieces.len() > 4, "{pieces:?}");
    assert_eq!(pieces.concat(), arguments);

    let responses = json!({
        "input": "Once upon a time", "max_output_tokens": 600, "temperature": 0, "stream": true, "tool_choice": "required",
        "parallel_tool_calls": false, "tools": [{"type": "function", "name": "weather", "parameters": parameters}],
    });
    let answer = server.post("/v1/responses", &responses).await;
    let events = answer.data();
    let deltas: Vec<&str> = events
        .iter()
        .filter(|e| e["type"] == "response.function_call_arguments.delta")
        .filter_map(|e| e["delta"].as_str())
        .collect();
    assert!(deltas.len() > 4, "{deltas:?}");
    assert_eq!(deltas.concat(), arguments);
    let done = events.iter().find(|e| e["type"] == "response.function_call_arguments.done").unwrap();
    assert_eq!(done["arguments"], arguments);
    let numbers: Vec<u64> = events.iter().filter_map(|e| e["sequence_number"].as_u64()).collect();
    assert!(numbers.iter().copied().eq(0..events.len() as u64), "{numbers:?}");
}
