//! Requests that cannot be right: each gets a 4xx in OpenAI's shape that names the place, and the next request is served.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::time::{Duration, Instant};

use common::{Running, post, start, start_with};
use hanzo_server::{Config, Limits, LoadSettings};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const CHAT: &str = "/v1/chat/completions";
const COMPLETE: &str = "/v1/completions";

fn user() -> Value {
    json!({"role": "user", "content": "hi"})
}

/// A chat request that is right but for `more`.
fn chat(more: Value) -> Value {
    let mut body = json!({"messages": [user()], "max_tokens": 2});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn complete(more: Value) -> Value {
    let mut body = json!({"prompt": "Once", "max_tokens": 2});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

/// The server answers as it should.
async fn lives(server: &Running) {
    assert_eq!(server.post(CHAT, &chat(json!({}))).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn values_out_of_bounds_are_named() {
    let server = start().await;
    for (path, body) in [(CHAT, chat as fn(Value) -> Value), (COMPLETE, complete)] {
        for name in [
            "max_tokens",
            "n",
            "top_k",
            "seed",
            "temperature",
            "top_p",
            "min_p",
            "typical_p",
            "min_tokens",
            "repeat_last_n",
            "repeat_penalty",
            "dry_multiplier",
            "dry_base",
            "xtc_probability",
            "mirostat",
            "mirostat_tau",
        ] {
            // Of some of them, −1 is all or any.
            for bad in [json!(-2), json!("1"), json!([1]), json!({"a": 1}), json!(true), json!(1e300)] {
                let began = Instant::now();
                let answer = server.post(path, &body(json!({name: bad}))).await;
                answer.fails(400, Some(&format!("/{name}")));
                assert!(began.elapsed() < Duration::from_secs(1));
            }
            // What is no JSON is refused where it stands.
            for bad in ["NaN", "1e999", "-Infinity", "01", "1."] {
                let text = body(json!({name: "HERE"})).to_string().replace("\"HERE\"", bad);
                let answer = server.post_bytes(path, text).await;
                assert_eq!(answer.status, 400, "{name}: {bad}: {answer:?}");
            }
        }
        for name in ["max_tokens", "n", "top_k", "seed", "min_tokens", "repeat_last_n", "mirostat"] {
            for bad in [json!(1u64 << 63), json!(u64::MAX), json!(1.5)] {
                server.post(path, &body(json!({name: bad}))).await.fails(400, Some(&format!("/{name}")));
            }
        }
    }
    server
        .post(CHAT, &chat(json!({"max_completion_tokens": 0})))
        .await
        .fails(400, Some("/max_completion_tokens"));
    server.post(CHAT, &chat(json!({"n": 100_000}))).await.fails(400, Some("/n"));
    server
        .post(CHAT, &chat(json!({"logprobs": true, "top_logprobs": 21})))
        .await
        .fails(400, Some("/top_logprobs"));
    server.post(CHAT, &chat(json!({"top_logprobs": 2}))).await.fails(400, Some("/top_logprobs"));
    server.post(CHAT, &chat(json!({"logprobs": 2}))).await.fails(400, Some("/logprobs"));
    server.post(COMPLETE, &complete(json!({"logprobs": -1}))).await.fails(400, Some("/logprobs"));
    server.post(CHAT, &chat(json!({"logit_bias": {"999999": 1}}))).await.fails(400, Some("/logit_bias"));
    server.post(CHAT, &chat(json!({"logit_bias": {"x": 1}}))).await.fails(400, Some("/logit_bias"));
    server.post(CHAT, &chat(json!({"samplers": ["top_k", "magic"]}))).await.fails(400, Some("/samplers/1"));
    lives(&server).await;
}

/// The same in the other dialects, in the words of each.
#[tokio::test(flavor = "multi_thread")]
async fn values_out_of_bounds_are_named_in_every_dialect() {
    let server = start().await;
    let prompt = json!({"prompt": "Once", "n_predict": 1});
    for (path, base, fields) in [
        (
            "/v1/messages",
            json!({"messages": [user()], "max_tokens": 1}),
            vec!["/max_tokens", "/temperature", "/top_p", "/top_k"],
        ),
        (
            "/v1/messages",
            json!({"messages": [user()], "max_tokens": 1, "thinking": {"type": "enabled"}}),
            vec!["/thinking/budget_tokens"],
        ),
        (
            "/v1/responses",
            json!({"input": "Once", "max_output_tokens": 1}),
            vec!["/max_output_tokens", "/temperature", "/top_p"],
        ),
        ("/v1/embeddings", json!({"input": "Once"}), vec!["/dimensions"]),
        ("/v1/rerank", json!({"query": "a", "documents": ["a"]}), vec!["/top_n"]),
        ("/completion", prompt, vec!["/n_predict", "/temperature", "/top_k", "/top_p", "/n_probs", "/seed"]),
        (
            "/api/chat",
            json!({"messages": [user()], "stream": false, "options": {"num_predict": 1}}),
            vec!["/options/num_predict", "/options/temperature", "/options/top_k", "/options/seed"],
        ),
        ("/api/embed", json!({"input": "Once"}), vec!["/dimensions"]),
    ] {
        assert_eq!(server.post(path, &base).await.status, 200, "{path}");
        for at in fields {
            // −1 and −2 mean something to some of them.
            for bad in [json!(-5), json!("1"), json!([1]), json!(1e300), json!(u64::MAX), json!(true)] {
                let mut body = base.clone();
                let (parent, name) = at.rsplit_once('/').unwrap();
                body.pointer_mut(parent).unwrap()[name] = bad.clone();
                let answer = server.post(path, &body).await;
                assert_eq!(answer.status, 400, "{path} {at}: {bad}: {answer:?}");
                let error = &answer.json()["error"];
                match error["pointer"].as_str() {
                    Some(pointer) => assert_eq!(pointer, at, "{path}: {bad}"),
                    None => {
                        let message = error["message"].as_str().or(error.as_str()).unwrap();
                        assert!(message.contains(name), "{path} {at}: {bad}: {message}");
                    }
                }
            }
            for bad in ["NaN", "1e999", "-Infinity"] {
                let mut body = base.clone();
                let (parent, name) = at.rsplit_once('/').unwrap();
                body.pointer_mut(parent).unwrap()[name] = "HERE".into();
                let answer = server.post_bytes(path, body.to_string().replace("\"HERE\"", bad)).await;
                assert_eq!(answer.status, 400, "{path} {at}: {bad}: {answer:?}");
            }
        }
    }
    for tokens in [json!([-1]), json!([1u64 << 40]), json!([1.5]), json!(["a"])] {
        server.post("/detokenize", &json!({"tokens": tokens})).await.fails(400, Some("/tokens/0"));
        server.post("/v1/embeddings", &json!({"input": [tokens]})).await.fails(400, Some("/input/0/0"));
    }
    // Nothing is fetched, whoever asks for it.
    for url in ["file:///etc/passwd", "http://169.254.169.254/latest/meta-data"] {
        let image = json!({"type": "image", "source": {"type": "url", "url": url}});
        let anthropic = json!({"max_tokens": 1, "messages": [{"role": "user", "content": [image]}]});
        assert_eq!(server.post("/v1/messages", &anthropic).await.status, 400);
        let image = json!({"type": "input_image", "image_url": url});
        let responses = json!({"input": [{"role": "user", "content": [image]}]});
        assert_eq!(server.post("/v1/responses", &responses).await.status, 400);
        let ollama = json!({"messages": [{"role": "user", "content": "x", "images": [url]}]});
        assert_eq!(server.post("/api/chat", &ollama).await.status, 400);
        assert_eq!(server.post("/api/generate", &json!({"prompt": "x", "images": [url]})).await.status, 400);
        assert_ne!(server.post("/api/pull", &json!({"model": url})).await.status, 200);
        let lora = json!({"lora_name": "x", "lora_path": url});
        assert_ne!(server.post("/v1/load_lora_adapter", &lora).await.status, 200);
    }
    lives(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_no_request_are_refused() {
    let server = start().await;
    let deep = format!("{{\"messages\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    for (body, status, pointer) in [
        (b"".to_vec(), 400, None),
        (b"{".to_vec(), 400, None),
        (b"[]".to_vec(), 400, Some("")),
        (b"null".to_vec(), 400, Some("")),
        (b"{} x".to_vec(), 400, None),
        (b"{\"messages\": \"\xff\"}".to_vec(), 400, None),
        (b"{\"n\": 1, \"n\": 2, \"messages\": []}".to_vec(), 400, Some("/n")),
        (
            br#"{"messages": [{"role": "user", "content": "a", "content": "b"}]}"#.to_vec(),
            400,
            Some("/messages/0/content"),
        ),
        (deep.into_bytes(), 400, None),
        (b"{}".to_vec(), 400, Some("/messages")),
        (br#"{"messages": 5}"#.to_vec(), 400, Some("/messages")),
        (br#"{"messages": []}"#.to_vec(), 400, Some("/messages")),
    ] {
        server.post_bytes(CHAT, body).await.fails(status, pointer);
    }
    for wrong in ["text/plain", "application/x-www-form-urlencoded", ""] {
        let mut request = post(CHAT, chat(json!({})).to_string());
        request.headers_mut().insert("content-type", wrong.parse().unwrap());
        server.send(request).await.fails(415, None);
    }
    lives(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conversations_that_make_no_sense_are_refused() {
    let server = start().await;
    let call = |id: Value, arguments: &str| {
        json!({"role": "assistant", "tool_calls":
            [{"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}}]})
    };
    let answer = json!({"role": "tool", "tool_call_id": "a", "content": "1"});
    let url =
        |url: &str| json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]);
    for (messages, pointer) in [
        (json!([{"role": "wizard", "content": "x"}]), "/messages/0/role"),
        (json!([user(), call(json!("a"), "{")]), "/messages/1/tool_calls/0/function/arguments"),
        (json!([user(), call(json!(null), "{}")]), "/messages/1/tool_calls/0/id"),
        (json!([user(), answer, call(json!("a"), "{}")]), "/messages/1/tool_call_id"),
        (json!([user(), {"role": "tool", "content": "1"}]), "/messages/1/tool_call_id"),
        (url("file:///etc/passwd"), "/messages/0/content/0/type"),
        (url("http://169.254.169.254/latest/meta-data"), "/messages/0/content/0/type"),
    ] {
        server.post(CHAT, &json!({"messages": messages})).await.fails(400, Some(pointer));
    }
    let tool = |i: usize| json!({"type": "function", "function": {"name": format!("f{i}")}});
    let tools: Vec<Value> = (0..10_000).map(tool).collect();
    server.post(CHAT, &chat(json!({"tools": tools}))).await.fails(400, Some("/tools"));
    server
        .post(CHAT, &chat(json!({"tools": [tool(1), tool(1)]})))
        .await
        .fails(400, Some("/tools/1/function/name"));
    server.post(CHAT, &chat(json!({"tool_choice": "required"}))).await.fails(400, Some("/tool_choice"));
    server.post(CHAT, &chat(json!({"stop": "x".repeat(1 << 20)}))).await.fails(400, Some("/stop"));
    server.post(CHAT, &chat(json!({"stop": vec!["x"; 1000]}))).await.fails(400, Some("/stop"));
    server.post(CHAT, &chat(json!({"stop": ["a", ""]}))).await.fails(400, Some("/stop"));
    server.post(CHAT, &chat(json!({"stop": ["a", 1]}))).await.fails(400, Some("/stop/1"));
    server.post(CHAT, &chat(json!({"model": "gpt-9"}))).await.fails(404, Some("/model"));
    server.post(CHAT, &chat(json!({"model": 9}))).await.fails(400, Some("/model"));
    server
        .post(CHAT, &chat(json!({"chat_template_kwargs": {"messages": []}})))
        .await
        .fails(400, Some("/messages"));
    lives(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_that_do_not_compile_are_refused() {
    let server = start().await;
    let schema = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}});
    for bad in [
        schema(json!({"type": "object", "properties": {"a": {"$ref": "http://169.254.169.254/x"}}})),
        schema(json!({"type": "strange"})),
        schema(json!({"type": "string", "pattern": "a{1,1000000000}"})),
        schema(json!({"type": "object", "patternProperties": {"^(a{1,1000000000})+$": {"type": "null"}}})),
        schema(json!({"enum": []})),
    ] {
        let answer = server.post(CHAT, &chat(bad.clone())).await;
        assert_eq!(
            (answer.status, answer.json()["error"]["code"].as_str()),
            (400, Some("invalid_grammar")),
            "{bad}"
        );
    }
    server.post(CHAT, &chat(schema(json!(5)))).await.fails(400, Some("/response_format/json_schema/schema"));
    // Large, and never written out: whichever the answer is, it comes at once.
    let began = Instant::now();
    let nested = schema(json!({"type": "string", "pattern": "((((a{99}){99}){99}){99}){99}"}));
    let answer = server.post(CHAT, &chat(nested)).await;
    assert!(matches!(answer.status, 200 | 400) && began.elapsed() < Duration::from_secs(5), "{answer:?}");
    lives(&server).await;
    server
        .post(CHAT, &chat(json!({"response_format": {"type": "yaml"}})))
        .await
        .fails(400, Some("/response_format/type"));
    server.post(CHAT, &chat(json!({"response_format": {}}))).await.fails(400, Some("/response_format/type"));
    lives(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_that_do_not_fit_are_refused_with_both_numbers() {
    let server =
        start_with(Config::default(), &LoadSettings { context: Some(64), ..LoadSettings::default() }).await;
    let long = "Once upon a time ".repeat(100);
    for answer in [
        server.post(COMPLETE, &complete(json!({"prompt": long}))).await,
        server.post(CHAT, &chat(json!({"messages": [{"role": "user", "content": long}]}))).await,
    ] {
        answer.fails(400, None);
        let error = &answer.json()["error"];
        assert_eq!(error["code"], "context_length_exceeded");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("64") && message.split(|c: char| !c.is_ascii_digit()).any(|n| n.len() >= 3),
            "{message}"
        );
    }
    for (prompt, pointer) in [
        (json!([1, -1]), Some("/prompt/1")),
        (json!([1, 1u64 << 40]), Some("/prompt/1")),
        (json!([[1], [9_999_999]]), Some("/prompt/1/0")),
        (json!([]), Some("/prompt")),
        (json!([[]]), Some("/prompt/0")),
        (json!({"a": 1}), Some("/prompt")),
        (json!([1.5]), Some("/prompt/0")),
        (json!(["a", 1]), Some("/prompt/1")),
        (json!(vec!["a"; 1000]), Some("/prompt")),
    ] {
        server.post(COMPLETE, &complete(json!({"prompt": prompt}))).await.fails(400, pointer);
    }
    server.post(COMPLETE, &complete(json!({"suffix": "end"}))).await.fails(400, Some("/suffix"));
    // More tokens than there is room for: the reply ends where the context does, and says so.
    let answer = server.post(COMPLETE, &complete(json!({"max_tokens": 1000, "ignore_eos": true}))).await;
    assert!(answer.header("x-hanzo-warning").is_some_and(|w| w.contains("1000")), "{answer:?}");
    assert_eq!(answer.json()["choices"][0]["finish_reason"], "length");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_understood_is_reported() {
    let server = start().await;
    let answer = server.post(CHAT, &chat(json!({"n_discard": -1, "stream_options": {"speed": 9}}))).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.header("x-hanzo-ignored"), Some("n_discard,stream_options.speed"));
    let tools = json!({"tools": [{"type": "function", "function": {"name": "f"}}]});
    let answer = server.post(CHAT, &chat(tools)).await;
    assert!(
        answer.header("x-hanzo-warning").is_some_and(|w| w.contains("does not show tools")),
        "{answer:?}"
    );
    let mut request = post(CHAT, chat(json!({})).to_string());
    request.headers_mut().insert("x-request-id", "mine-1".parse().unwrap());
    assert_eq!(server.send(request).await.header("x-request-id"), Some("mine-1"));
}

#[tokio::test(flavor = "multi_thread")]
async fn great_and_slow_bodies_are_refused() {
    let limits = Limits { body_bytes: 1 << 20, body_time: Duration::from_millis(300), ..Limits::default() };
    let server = start_with(Config { limits, ..Config::default() }, &LoadSettings::default()).await;
    server.post_bytes(CHAT, vec![b' '; (1 << 20) + 1]).await.fails(413, None);
    // A gigabyte that is only announced is not waited for.
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let answer = raw(&server, format!("{head}content-length: 1073741824\r\n\r\n{{")).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Chunks without end stop at the limit.
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..64 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 413"), "{}", String::from_utf8_lossy(&answer));
    // A body that trickles.
    let began = Instant::now();
    let answer = raw(&server, format!("{head}content-length: 100\r\n\r\n{{")).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(3));
    lives(&server).await;
}

/// A head that trickles, and a connection that never asks, are let go.
#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_are_not_waited_for() {
    let limits = Limits { header_time: Duration::from_millis(300), ..Limits::default() };
    let server = start_with(Config { limits, ..Config::default() }, &LoadSettings::default()).await;
    for head in
        ["", "GET", "GET /health HTTP/1.1\r\nhost: local", "GET /health HTTP/1.1\r\nhost: localhost\r\n"]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "{head}");
        assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 408"), "{head}: {answer:?}");
    }
    lives(&server).await;
}

/// Sends bytes and reads what comes back, for as long as the server wants to talk.
async fn raw(server: &Running, bytes: impl AsRef<[u8]>) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    // A server that has heard enough need not read the rest.
    let _ = stream.write_all(bytes.as_ref()).await;
    let mut out = Vec::new();
    let read = async {
        let mut part = [0; 4096];
        while let Ok(n @ 1..) = stream.read(&mut part).await {
            out.extend_from_slice(&part[..n]);
            // The head tells all that is asked here.
            if out.windows(4).any(|w| w == b"\r\n\r\n") {
                break;
            }
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(5), read).await;
    String::from_utf8_lossy(&out).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn shapes_that_smuggle_requests_are_refused() {
    let server = start().await;
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    for bad in [
        format!("{head}content-length: 2\r\ncontent-length: 3\r\n\r\n{{}}"),
        format!("{head}content-length: 2, 3\r\n\r\n{{}}"),
        format!("{head}content-length: -2\r\n\r\n{{}}"),
        format!("{head}content-length: 0x2\r\n\r\n{{}}"),
        format!("{head}content-length: 18446744073709551616\r\n\r\n{{}}"),
        format!("{head}transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n"),
        format!("{head}transfer-encoding: xchunked\r\n\r\n0\r\n\r\n"),
        format!("{head}transfer-encoding: chunked\r\n\r\nzz\r\n\r\n"),
        format!("{head}content-length : 2\r\n\r\n{{}}"),
        "GET /health HTTP/1.1\r\nhost: localhost\r\n folded: y\r\n\r\n".to_owned(),
        "GET /health\u{7f} HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
        "GET /health HTTP/9.9\r\nhost: localhost\r\n\r\n".to_owned(),
        format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(1 << 20)),
        format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "y".repeat(1 << 20)),
    ] {
        let answer = raw(&server, &bad).await;
        let shown: String = bad.chars().take(200).collect();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{shown}\n{answer}");
    }
    // Both lengths: the chunks count, and nothing after them on this connection is taken for a request.
    let both = format!(
        "{head}content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\nhost: localhost\r\n\r\n"
    );
    let answer = raw(&server, &both).await;
    assert!(!answer.contains("200 OK"), "{answer}");
    lives(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_and_origins_are_asked_for() {
    let config = Config {
        api_keys: vec!["sesame".to_owned()],
        cors_origins: vec!["https://good.example".to_owned()],
        ..Config::default()
    };
    let server = start_with(config, &LoadSettings::default()).await;
    let with = |name: &'static str, value: &str| {
        let mut request = post(CHAT, chat(json!({})).to_string());
        request.headers_mut().insert(name, value.parse().unwrap());
        request
    };
    server.post(CHAT, &chat(json!({}))).await.fails(401, None);
    server.send(with("authorization", "Bearer wrong")).await.fails(401, None);
    let long = server.send(with("authorization", &format!("Bearer {}", "x".repeat(16_000)))).await;
    long.fails(401, None);
    let huge = raw(
        &server,
        format!(
            "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\r\n",
            "x".repeat(1 << 20)
        ),
    );
    let huge = huge.await;
    assert!(huge.is_empty() || huge.starts_with("HTTP/1.1 431"), "{huge}");
    server.get("/v1/models").await.fails(401, None);
    server.get("/metrics").await.fails(401, None);
    assert_eq!(server.get("/health").await.status, 200);
    let good = server.send(with("authorization", "Bearer sesame")).await;
    assert_eq!(good.status, 200);
    assert_eq!(server.send(with("x-api-key", "sesame")).await.status, 200);

    for (origin, allowed) in
        [("https://good.example", true), ("https://evil.example", false), ("null", false)]
    {
        let request = hyper::Request::options(CHAT)
            .header("host", "localhost")
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .body(http_body_util::Full::default())
            .unwrap();
        let answer = server.send(request).await;
        assert_eq!(answer.header("access-control-allow-origin"), allowed.then_some(origin), "{origin}");
    }
}

/// A page whose own name leads to this machine sends requests that the browser takes for its own: they name its host.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_this_machine_alone_answers_to_no_other_name() {
    let server = start().await;
    let named = |mut request: hyper::Request<_>, host: &str| {
        request.headers_mut().insert("host", host.parse().unwrap());
        server.send(request)
    };
    let get = |path: &str| hyper::Request::get(path).body(http_body_util::Full::default()).unwrap();
    let story = json!({"messages": [user()], "prompt": "Once", "input": "Once", "max_tokens": 1, "stream": false,
        "query": "a", "documents": ["a"], "content": "a", "tokens": [1]});
    for path in [
        CHAT,
        COMPLETE,
        "/v1/responses",
        "/v1/embeddings",
        "/v1/rerank",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/api/chat",
        "/api/generate",
        "/api/embed",
        "/api/pull",
        "/api/show",
        "/completion",
        "/tokenize",
        "/detokenize",
        "/apply-template",
        "/models/load",
        "/models/unload",
        "/v1/load_lora_adapter",
        "/nothing",
    ] {
        let answer = named(post(path, story.to_string()), "evil.example:8080").await;
        assert_eq!(answer.status, 403, "{path}: {answer:?}");
        let error = answer.json();
        let message = match path {
            _ if path.starts_with("/v1/messages") => {
                assert_eq!(error["error"]["type"], "permission_error", "{error}");
                &error["error"]["message"]
            }
            _ if path.starts_with("/api/") => &error["error"],
            _ => {
                answer.fails(403, None);
                assert_eq!(error["error"]["code"], "host_not_allowed");
                &error["error"]["message"]
            }
        };
        let message = message.as_str().unwrap();
        for part in
            ["`evil.example:8080`", "--allowed-hosts", "HANZO_ALLOWED_HOSTS", &server.address.to_string()]
        {
            assert!(message.contains(part), "{message}");
        }
        assert!(
            answer.header("x-request-id").is_some() && answer.header("access-control-allow-origin").is_none()
        );
    }
    // What can be asked without a key is no exception, and neither is the page.
    for path in [
        "/",
        "/ui/x/icon.svg",
        "/health",
        "/version",
        "/metrics",
        "/v1/models",
        "/models",
        "/openapi.json",
        "/slots",
        "/api/tags",
    ] {
        assert_eq!(named(get(path), "evil.example").await.status, 403, "{path}");
        let local = named(get(path), "a.localhost:9").await.status;
        assert!(matches!(local, 200 | 404), "{path}: {local}");
    }
    // Versions and targets as no client of ours sends them.
    for (bytes, wanted) in [
        ("GET /health HTTP/1.0\r\n\r\n", "200"),
        ("GET /health HTTP/1.0\r\nhost: evil.example\r\n\r\n", "403"),
        ("GET /health HTTP/1.1\r\n\r\n", "400"),
        ("GET /health HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n", "400"),
        ("GET http://localhost/health HTTP/1.1\r\nhost: localhost\r\n\r\n", "200"),
        ("GET http://evil.example/health HTTP/1.1\r\nhost: localhost\r\n\r\n", "403"),
        ("GET http://localhost/health HTTP/1.1\r\nhost: evil.example\r\n\r\n", "403"),
        ("CONNECT evil.example:80 HTTP/1.1\r\nhost: localhost\r\n\r\n", "403"),
        ("GET /health HTTP/1.1\r\nhost:\r\n\r\n", "403"),
    ] {
        let answer = raw(&server, bytes).await;
        let status = answer.split(' ').nth(1);
        assert_eq!(status, Some(wanted), "{bytes}\n{answer}");
    }
    lives(&server).await;

    let config = Config { allowed_hosts: vec!["box.lan".to_owned()], ..Config::default() };
    let told = start_with(config, &LoadSettings::default()).await;
    for (host, wanted) in [("Box.lan:80", 200), ("evil.example", 403)] {
        let mut request = get("/v1/models");
        request.headers_mut().insert("host", host.parse().unwrap());
        assert_eq!(told.send(request).await.status, wanted, "{host}");
    }
    // A page knows no key.
    let config = Config { api_keys: vec!["sesame".to_owned()], ..Config::default() };
    let keyed = start_with(config, &LoadSettings::default()).await;
    let mut request = get("/v1/models");
    request.headers_mut().insert("host", "evil.example".parse().unwrap());
    keyed.send(request).await.fails(401, None);
}

/// What pages of other origins can send without asking first changes nothing, and what asks first is told no.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_origins_get_nowhere() {
    let server = start().await;
    for path in [
        CHAT,
        COMPLETE,
        "/v1/messages",
        "/api/chat",
        "/api/pull",
        "/models/load",
        "/models/unload",
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
    ] {
        for kind in [
            "text/plain",
            "text/plain; x=application/json",
            "text/plain;application/json",
            "multipart/form-data; boundary=application/json",
            "application/x-www-form-urlencoded",
            "application/x-www-form-urlencoded, application/json",
            "",
        ] {
            let mut request = post(path, chat(json!({"model": "hanzo-tiny"})).to_string());
            request.headers_mut().insert("content-type", kind.parse().unwrap());
            request.headers_mut().insert("origin", "https://evil.example".parse().unwrap());
            assert_eq!(server.send(request).await.status, 415, "{path}: {kind}");
        }
        let mut request = post(path, chat(json!({})).to_string());
        request.headers_mut().remove("content-type");
        assert_eq!(server.send(request).await.status, 415, "{path} without a type");
        for origin in ["https://evil.example", "null", "http://localhost.evil.example"] {
            let request = hyper::Request::options(path)
                .header("host", "localhost")
                .header("origin", origin)
                .header("access-control-request-method", "POST")
                .header("access-control-request-headers", "content-type")
                .body(http_body_util::Full::default())
                .unwrap();
            let answer = server.send(request).await;
            assert!(answer.header("access-control-allow-origin").is_none(), "{path}: {origin}: {answer:?}");
            assert!(answer.header("access-control-allow-headers").is_none(), "{path}: {origin}: {answer:?}");
        }
    }
    lives(&server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_says_when_to_come_back() {
    let settings = LoadSettings { max_sequences: 1, max_waiting: 1, ..LoadSettings::default() };
    let server = std::sync::Arc::new(start_with(Config::default(), &settings).await);
    let long = complete(json!({"max_tokens": 4000, "ignore_eos": true}));
    let tasks: Vec<_> = (0..6)
        .map(|_| {
            let (server, long) = (std::sync::Arc::clone(&server), long.clone());
            tokio::spawn(async move { server.post(COMPLETE, &long).await })
        })
        .collect();
    let mut busy = 0;
    for task in tasks {
        let answer = task.await.unwrap();
        if answer.status == 429 {
            busy += 1;
            answer.fails(429, None);
            assert_eq!(answer.header("retry-after"), Some("1"));
        } else {
            assert_eq!(answer.status, 200);
        }
    }
    assert!(busy >= 3, "{busy}");
}

/// Texts that are only read are bounded by the context as prompts are, and named.
#[tokio::test(flavor = "multi_thread")]
async fn texts_longer_than_the_context_are_refused() {
    let settings = LoadSettings { context: Some(64), kv_tokens: Some(256), ..LoadSettings::default() };
    let server = start_with(Config::default(), &settings).await;
    let long = "once upon a time ".repeat(200);
    for (path, body, pointer) in [
        ("/v1/embeddings", json!({"input": ["short", long]}), "/input/1"),
        ("/v1/rerank", json!({"query": long, "documents": ["a"]}), "/query"),
        ("/v1/rerank", json!({"query": "a", "documents": ["a", long]}), "/documents/1"),
    ] {
        let answer = server.post(path, &body).await;
        answer.fails(400, Some(pointer));
        assert_eq!(answer.json()["error"]["code"], "context_length_exceeded", "{answer:?}");
    }
    for path in ["/api/embed", "/api/embeddings"] {
        let answer = server.post(path, &json!({"input": long, "prompt": long})).await;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    // The prompt alone is echoed with its scores: it is only read.
    let body = complete(json!({"prompt": long, "echo": true, "logprobs": 1, "max_tokens": 0}));
    assert_eq!(server.post(COMPLETE, &body).await.status, 400);
}
