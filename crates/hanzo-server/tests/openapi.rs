//! `/openapi.json` against what the server does and what its documents say: each example fits its schema, each reply fits
//! its own, and a body's fields are those that are read.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;
#[path = "common/schema.rs"]
mod schema;

use std::collections::BTreeSet;

use common::{Answer, Running, start};
use schema::Description;
use serde_json::{Map, Value, json};

const DOCS: [&str; 2] = ["api.md", "dialects.md"];

async fn description(server: &Running) -> Description {
    Description(server.get("/openapi.json").await.json())
}

/// What is described: method, path, and the operation.
fn operations(d: &Description) -> Vec<(String, String, Value)> {
    let paths = d.0["paths"].as_object().unwrap();
    let of = |(path, methods): (&String, &Value)| {
        let methods = methods.as_object().unwrap().clone();
        methods.into_iter().map(|(method, op)| (method, path.clone(), op)).collect::<Vec<_>>()
    };
    paths.iter().flat_map(of).collect()
}

fn body_schema(operation: &Value) -> Option<&Value> {
    operation.pointer("/requestBody/content/application~1json/schema")
}

fn example(operation: &Value) -> Value {
    operation.pointer("/requestBody/content/application~1json/example").unwrap().clone()
}

/// A reply is what is described for its status and content type.
#[track_caller]
fn fits(d: &Description, path: &str, operation: &Value, answer: &Answer) {
    let described = if answer.status == 200 { "200" } else { "default" };
    if described == "default" && (path.starts_with("/api/") || path.starts_with("/v1/messages")) {
        // In the form of another's API.
        return;
    }
    let kind = answer.header("content-type").unwrap().split(';').next().unwrap();
    let mut response = &operation["responses"][described];
    if let Some(name) = response["$ref"].as_str() {
        response = d.0.pointer(name.strip_prefix('#').unwrap()).unwrap();
    }
    let content = &response["content"][kind];
    assert!(content.is_object(), "{path}: {kind} is not described for {described}: {answer:?}");
    let values = match kind {
        "application/json" => vec![answer.json()],
        "text/event-stream" => answer.data(),
        "application/x-ndjson" => {
            answer.body.split(|b| *b == b'\n').filter_map(|l| serde_json::from_slice(l).ok()).collect()
        }
        _ => Vec::new(),
    };
    let schema = if kind == "application/json" { content.get("schema") } else { content.get("x-message") };
    for value in values {
        let faults = schema.map_or_else(Vec::new, |schema| d.faults(schema, &value));
        assert!(faults.is_empty(), "{path}: {faults:?} in {value}");
    }
}

/// Every operation is described whole, and does what is described with its example, as one reply and as a stream.
#[tokio::test(flavor = "multi_thread")]
async fn every_example_is_answered_as_described() {
    let server = start().await;
    let d = description(&server).await;
    for (method, path, operation) in operations(&d) {
        assert!(operation["summary"].as_str().is_some_and(|s| !s.is_empty()), "{method} {path}");
        assert_eq!(
            operation["responses"]["default"]["$ref"], "#/components/responses/Error",
            "{method} {path}"
        );
        let real = path.replace("{id}", "nothing").replace("{*model}", "hanzo-tiny");
        let Some(schema) = body_schema(&operation) else {
            let answer = server.send_empty(&method.to_uppercase(), &real).await;
            fits(&d, &path, &operation, &answer);
            continue;
        };
        let example = example(&operation);
        let faults = d.faults(schema, &example);
        assert!(faults.is_empty(), "{path}: {faults:?} in {example}");
        let answer = server.post(&real, &example).await;
        // What this server lacks: a second model, fill-in tokens, a folder of adapters.
        let lacking =
            ["/api/pull", "/models/unload", "/infill", "/v1/load_lora_adapter", "/v1/unload_lora_adapter"];
        assert_eq!(answer.status == 200, !lacking.contains(&path.as_str()), "{path}: {answer:?}");
        fits(&d, &path, &operation, &answer);
        let kinds = operation["responses"]["200"]["content"].as_object().unwrap();
        if kinds.len() > 1 && answer.status == 200 {
            let mut streamed = example.clone();
            streamed["stream"] = true.into();
            let answer = server.post(&real, &streamed).await;
            assert!(
                answer.status == 200 && answer.header("content-type") != Some("application/json"),
                "{path}"
            );
            fits(&d, &path, &operation, &answer);
        }
    }
}

/// What replies have only where a request asks for it is described too.
#[tokio::test(flavor = "multi_thread")]
async fn rarer_replies_are_as_described() {
    let server = start().await;
    let d = description(&server).await;
    let story = json!([{"role": "user", "content": "Once upon a time"}]);
    let parameters = json!({"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": false});
    let tool = json!({"type": "function", "function": {"name": "f", "parameters": parameters}});
    for (path, body) in [
        (
            "/v1/chat/completions",
            json!({"messages": story, "max_tokens": 4, "logprobs": true, "top_logprobs": 2, "n": 2}),
        ),
        (
            "/v1/chat/completions",
            json!({"messages": story, "max_tokens": 400, "tools": [tool], "tool_choice": "required", "seed": 1}),
        ),
        (
            "/v1/completions",
            json!({"prompt": ["a", "b"], "max_tokens": 2, "logprobs": 1, "echo": true, "stop": ["x"]}),
        ),
        ("/v1/embeddings", json!({"input": "a", "encoding_format": "base64"})),
        ("/v1/rerank", json!({"query": "a", "documents": ["b"], "return_documents": true})),
        (
            "/v1/messages",
            json!({"messages": story, "max_tokens": 400, "tools": [{"name": "f", "input_schema": parameters}], "tool_choice": {"type": "any"}}),
        ),
        (
            "/v1/responses",
            json!({"input": "a", "max_output_tokens": 400, "tool_choice": "required", "tools": [{"type": "function", "name": "f", "parameters": parameters}]}),
        ),
        ("/api/chat", json!({"messages": [], "stream": false})),
        ("/api/generate", json!({"prompt": "", "stream": false})),
        ("/completion", json!({"prompt": "a", "n_predict": 2, "n_probs": 2})),
        ("/tokenize", json!({"content": "a b", "with_pieces": true})),
    ] {
        let operation = &d.0["paths"][path]["post"];
        let faults = d.faults(body_schema(operation).unwrap(), &body);
        assert!(faults.is_empty(), "{path}: {faults:?} in {body}");
        for stream in [false, true] {
            let mut body = body.clone();
            if d.properties(body_schema(operation).unwrap()).contains_key("stream") {
                body["stream"] = stream.into();
            }
            let answer = server.post(path, &body).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
            fits(&d, path, operation, &answer);
        }
    }
    let refused = server.post("/v1/chat/completions", &json!({"messages": story, "top_p": 3})).await;
    fits(&d, "/v1/chat/completions", &d.0["paths"]["/v1/chat/completions"]["post"], &refused);
}

/// The server reads the fields that are described for a path, and none else that is described anywhere.
#[tokio::test(flavor = "multi_thread")]
async fn the_fields_that_are_read_are_those_that_are_described() {
    let server = start().await;
    let d = description(&server).await;
    let posts: Vec<(String, Value)> = operations(&d)
        .into_iter()
        .filter_map(|(_, path, operation)| body_schema(&operation).map(|_| (path, operation.clone())))
        .filter(|(_, operation)| example(operation).is_object())
        .collect();
    let mut names = BTreeSet::from(["nonsense".to_owned()]);
    names.extend(
        posts.iter().flat_map(|(_, op)| d.properties(body_schema(op).unwrap()).into_iter().map(|(n, _)| n)),
    );
    let names: Vec<String> = names.into_iter().collect();
    for (path, operation) in posts {
        let (described, example) = (d.properties(body_schema(&operation).unwrap()), example(&operation));
        // A few at a time: the header that names the ignored ones has a bound.
        for some in names.chunks(30) {
            let mut body: Map<String, Value> = some.iter().map(|name| (name.clone(), Value::Null)).collect();
            // The other name of a field that is there already.
            for (alias, name) in [
                ("name", "model"),
                ("repetition_penalty", "repeat_penalty"),
                ("thinking_budget", "reasoning_budget"),
            ] {
                if described.contains_key(alias) && body.contains_key(alias) {
                    body.remove(name);
                    if example.get(name).is_some() {
                        body.remove(alias);
                    }
                }
            }
            body.extend(example.as_object().unwrap().clone());
            let answer = server.post(&path, &Value::Object(body.clone())).await;
            let ignored: BTreeSet<&str> =
                answer.header("x-hanzo-ignored").unwrap_or_default().split(',').collect();
            for name in body.keys() {
                let unread = ignored.contains(name.as_str());
                assert_eq!(unread, !described.contains_key(name), "{path}: {name}: {answer:?}");
            }
        }
    }
}

/// Requests in the documents: of `curl URL … -d 'BODY'`, over several lines or on one, path and body.
fn curls(text: &str) -> Vec<(String, Value)> {
    let request = |command: &str| {
        let command = command.split("\n\n").next()?;
        let (_, after) = command.split_once("http://127.0.0.1:8080")?;
        let (path, rest) = after.split_once(char::is_whitespace)?;
        let (_, body) = rest.split_once("-d '")?;
        let (body, _) = body.split_once('\'')?;
        Some((path.to_owned(), serde_json::from_str(body).unwrap_or_else(|e| panic!("{e}: {body}"))))
    };
    text.split("    curl ").skip(1).filter_map(request).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_the_documents_is_as_described() {
    let server = start().await;
    let d = description(&server).await;
    let mut found = BTreeSet::new();
    for name in DOCS {
        let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        for (path, body) in curls(&text) {
            let operation = &d.0["paths"][&path]["post"];
            let schema = body_schema(operation).unwrap_or_else(|| panic!("{name}: {path} is not described"));
            let faults = d.faults(schema, &body);
            assert!(faults.is_empty(), "{name}: {path}: {faults:?} in {body}");
            let answer = server.post(&path, &body).await;
            assert_eq!(answer.status, 200, "{name}: {path}: {answer:?}");
            assert_eq!(answer.header("x-hanzo-ignored"), None, "{name}: {path}");
            fits(&d, &path, operation, &answer);
            found.insert(path);
        }
    }
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/embeddings",
        "/v1/messages",
        "/api/chat",
    ] {
        assert!(found.contains(path), "there is no example of {path}");
    }
}
