//! The dialects beside OpenAI's chat and completions, as bytes. What each says is what the others say.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{Answer, start};
use serde_json::{Value, json};

const STORY: &str = "Once upon a time";

fn events(answer: &Answer) -> Vec<(String, Value)> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = std::str::from_utf8(&answer.body).unwrap();
    let message = |m: &str| {
        let (name, data) = m.split_once('\n').unwrap();
        let (name, data) = (name.strip_prefix("event: ").unwrap(), data.strip_prefix("data: ").unwrap());
        let data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["type"], name);
        (name.to_owned(), data)
    };
    text.split("\n\n").filter(|m| !m.is_empty() && !m.starts_with(':')).map(message).collect()
}

fn lines(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let text = std::str::from_utf8(&answer.body).unwrap();
    text.lines().map(|l| serde_json::from_str(l).unwrap()).collect()
}

/// The greedy reply of twelve tokens to the story, by way of OpenAI's chat.
async fn openai(server: &common::Running) -> String {
    let body = json!({"messages": [{"role": "user", "content": STORY}], "temperature": 0, "max_tokens": 12});
    let answer = server.post("/v1/chat/completions", &body).await.json();
    answer["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn anthropic_messages() {
    let server = start().await;
    let want = openai(&server).await;
    let body = json!({
        "model": "hanzo-tiny", "max_tokens": 12, "temperature": 0.0,
        "messages": [{"role": "user", "content": [{"type": "text", "text": STORY}]}],
    });
    let whole = server.post("/v1/messages", &body).await.json();
    assert_eq!(whole["content"][0]["text"], want.as_str(), "{whole}");
    assert_eq!((&whole["type"], &whole["stop_reason"]), (&json!("message"), &json!("max_tokens")));
    assert_eq!(whole["usage"]["output_tokens"], 12);

    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let all = events(&server.post("/v1/messages", &streamed).await);
    let names: Vec<&str> = all.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(names[..2], ["message_start", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let text: String = all.iter().filter_map(|(_, d)| d["delta"]["text"].as_str()).collect();
    assert_eq!(text, want);
    let last = &all[all.len() - 2].1;
    assert_eq!(last["delta"]["stop_reason"], "max_tokens");
    let told = &all[0].1["message"]["usage"]["input_tokens"];
    let counted = server.post("/v1/messages/count_tokens", &body).await.json();
    assert_eq!(told, &counted["input_tokens"]);

    let count = server.post("/v1/messages/count_tokens", &body).await.json();
    let usage = &whole["usage"];
    let prompt = usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(count["input_tokens"], prompt);

    // A call that breaks off is not in a whole reply: a header says so. A stream has what there is of it.
    let letters = json!({"type": "string", "pattern": "^[a-z]{400}$"});
    let schema = json!({"type": "object", "properties": {"title": letters}, "required": ["title"]});
    let mut calls = body.clone();
    calls["max_tokens"] = 160.into();
    calls["tools"] = json!([{"name": "paint", "input_schema": schema}]);
    calls["tool_choice"] = json!({"type": "tool", "name": "paint"});
    let answer = server.post("/v1/messages", &calls).await;
    let said = "calls that broke off are left out: paint";
    assert!(answer.header("x-hanzo-warning").unwrap().contains(said), "{answer:?}");
    let whole = answer.json();
    assert_eq!((&whole["content"], &whole["stop_reason"]), (&json!([]), &json!("max_tokens")));
    calls["stream"] = true.into();
    let answer = server.post("/v1/messages", &calls).await;
    assert!(!answer.header("x-hanzo-warning").unwrap().contains(said), "{answer:?}");
    assert!(events(&answer).iter().any(|(_, d)| d["content_block"]["name"] == "paint"), "{answer:?}");

    for (change, status, place) in [
        (json!({"max_tokens": null}), 400, "max_tokens: "),
        (json!({"messages": [{"role": "robot", "content": "x"}]}), 400, "messages[0].role: "),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "image"}]}]}),
            400,
            "messages[0].content[0].type: ",
        ),
        (json!({"model": "other"}), 404, "model: "),
        (json!({"tool_choice": {"type": "maybe"}}), 400, "tool_choice.type: "),
    ] {
        let mut bad = body.clone();
        bad.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let answer = server.post("/v1/messages", &bad).await;
        assert_eq!(answer.status, status, "{answer:?}");
        let error = answer.json();
        assert_eq!(error["type"], "error");
        assert!(error["error"]["message"].as_str().unwrap().starts_with(place), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ollama_chat_and_generate() {
    let server = start().await;
    let want = openai(&server).await;
    let options = json!({"temperature": 0, "num_predict": 12});
    let body =
        json!({"model": "hanzo-tiny", "messages": [{"role": "user", "content": STORY}], "options": options});
    let all = lines(&server.post("/api/chat", &body).await);
    let text: String = all.iter().filter_map(|l| l["message"]["content"].as_str()).collect();
    assert_eq!(text, want);
    let last = all.last().unwrap();
    assert_eq!(
        (&last["done"], &last["done_reason"], &last["eval_count"]),
        (&json!(true), &json!("length"), &json!(12))
    );
    assert!(all.iter().rev().skip(1).all(|l| l["done"] == false));

    let mut whole = body.clone();
    whole["stream"] = false.into();
    assert_eq!(server.post("/api/chat", &whole).await.json()["message"]["content"], want.as_str());
    let generate = json!({"model": "hanzo-tiny", "prompt": STORY, "options": options, "stream": false});
    assert_eq!(server.post("/api/generate", &generate).await.json()["response"], want.as_str());
    let load = server.post("/api/generate", &json!({"model": "hanzo-tiny"})).await.json();
    assert_eq!((&load["done"], &load["done_reason"]), (&json!(true), &json!("load")));

    let schema = json!({"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["n"], "additionalProperties": false});
    let formatted = json!({"model": "hanzo-tiny", "prompt": "A number.", "format": schema, "stream": false, "options": {"temperature": 0, "num_predict": 64}});
    let reply = server.post("/api/generate", &formatted).await.json();
    let value: Value = serde_json::from_str(reply["response"].as_str().unwrap()).unwrap();
    assert!((1..=9).contains(&value["n"].as_i64().unwrap()), "{value}");

    for (path, pointer) in [("/api/tags", "/models/0/name"), ("/api/ps", "/models/0/model")] {
        assert_eq!(server.get(path).await.json().pointer(pointer).unwrap(), "hanzo-tiny");
    }
    let show = server.post("/api/show", &json!({"model": "hanzo-tiny"})).await.json();
    assert_eq!(show["details"]["format"], "gguf");
    assert!(server.get("/api/version").await.json()["version"].is_string());
    let bad = json!({"model": "hanzo-tiny", "prompt": "x", "options": {"top_p": 7}});
    let answer = server.post("/api/generate", &bad).await;
    assert_eq!(answer.status, 400);
    assert!(answer.json()["error"].as_str().unwrap().starts_with("options.top_p: "), "{answer:?}");
    let told = server
        .post("/api/generate", &json!({"prompt": "x", "options": {"num_ctx": 8, "num_predict": 1}}))
        .await;
    assert!(told.header("x-hanzo-warning").unwrap().contains("num_ctx"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn llamacpp_endpoints() {
    let server = start().await;
    let tokens = server.post("/tokenize", &json!({"content": STORY})).await.json();
    let back = server.post("/detokenize", &tokens).await.json();
    assert_eq!(back["content"].as_str().unwrap().trim_start(), STORY);
    let pieces = server.post("/tokenize", &json!({"content": STORY, "with_pieces": true})).await.json();
    assert_eq!(pieces["tokens"].as_array().unwrap().len(), tokens["tokens"].as_array().unwrap().len());
    server.post("/detokenize", &json!({"tokens": [0, -1]})).await.fails(400, Some("/tokens/1"));
    let messages = json!({"messages": [{"role": "user", "content": STORY}]});
    let prompt =
        server.post("/apply-template", &messages).await.json()["prompt"].as_str().unwrap().to_owned();
    assert!(prompt.contains(STORY));

    let body = json!({"prompt": prompt, "n_predict": 12, "temperature": 0});
    let whole = server.post("/completion", &body).await.json();
    assert_eq!(whole["content"], openai(&server).await.as_str());
    assert_eq!((&whole["stop_type"], &whole["tokens_predicted"]), (&json!("limit"), &json!(12)));
    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let answer = server.post("/completion", &streamed).await;
    let text = std::str::from_utf8(&answer.body).unwrap();
    let chunks: Vec<Value> = text
        .lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .map(|d| serde_json::from_str(d).unwrap())
        .collect();
    let said: String = chunks.iter().filter_map(|c| c["content"].as_str()).collect();
    assert_eq!(said, whole["content"].as_str().unwrap());
    assert_eq!(chunks.last().unwrap()["stop"], true);
    let probabilities =
        server.post("/completion", &json!({"prompt": "a", "n_predict": 2, "n_probs": 3})).await.json();
    assert_eq!(probabilities["completion_probabilities"][0]["top_logprobs"].as_array().unwrap().len(), 3);
    let grammar = json!({"prompt": "a", "n_predict": 8, "grammar": "root ::= \"yes\" | \"no\""});
    let reply = server.post("/completion", &grammar).await.json();
    assert!(matches!(reply["content"].as_str(), Some("yes" | "no")), "{reply}");
    assert!(server.get("/props").await.json()["total_slots"].as_u64().unwrap() > 0);
    assert!(server.becomes_idle(std::time::Duration::from_secs(10)).await);
    assert_eq!(server.get("/slots").await.json()[0]["is_processing"], false);
    // The small model's vocabulary has no tokens for it.
    let infill = json!({"input_prefix": "a", "input_suffix": "b"});
    server.post("/infill", &infill).await.fails(400, Some("/input_suffix"));
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_are_kept_and_go_on() {
    let server = start().await;
    let want = openai(&server).await;
    let body = json!({"model": "hanzo-tiny", "input": STORY, "temperature": 0, "max_output_tokens": 12});
    let whole = server.post("/v1/responses", &body).await.json();
    assert_eq!(whole["output"][0]["content"][0]["text"], want.as_str(), "{whole}");
    assert_eq!(
        (&whole["status"], &whole["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_output_tokens"))
    );
    let id = whole["id"].as_str().unwrap();
    let path = format!("/v1/responses/{id}");
    assert_eq!(server.get(&path).await.json(), whole);

    let mut streamed = body.clone();
    streamed["stream"] = true.into();
    let all = events(&server.post("/v1/responses", &streamed).await);
    let numbers: Vec<u64> = all.iter().map(|(_, d)| d["sequence_number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (0..all.len() as u64).collect::<Vec<_>>());
    let text: String = all
        .iter()
        .filter(|(n, _)| n == "response.output_text.delta")
        .filter_map(|(_, d)| d["delta"].as_str())
        .collect();
    assert_eq!(text, want);
    let (name, last) = all.last().unwrap();
    assert_eq!(name, "response.incomplete");
    assert_eq!(last["response"]["output"][0]["content"][0]["text"], want.as_str());

    // What goes on from it is what the whole conversation gives.
    let next =
        json!({"input": "And then?", "previous_response_id": id, "temperature": 0, "max_output_tokens": 8});
    let next = server.post("/v1/responses", &next).await.json();
    let messages = json!([
        {"role": "user", "content": STORY}, {"role": "assistant", "content": want}, {"role": "user", "content": "And then?"},
    ]);
    let chat = json!({"messages": messages, "temperature": 0, "max_tokens": 8});
    let chat = server.post("/v1/chat/completions", &chat).await.json();
    assert_eq!(next["output"][0]["content"][0]["text"], chat["choices"][0]["message"]["content"]);

    assert_eq!(server.send_empty("DELETE", &path).await.json()["deleted"], true);
    server.get(&path).await.fails(404, None);
    let forgotten = json!({"input": "x", "previous_response_id": id});
    server.post("/v1/responses", &forgotten).await.fails(404, Some("/previous_response_id"));
    server
        .post("/v1/responses", &json!({"input": [{"type": "file"}]}))
        .await
        .fails(400, Some("/input/0/type"));
    server
        .post("/v1/responses", &json!({"input": "x", "tools": [{"type": "web_search"}]}))
        .await
        .fails(400, Some("/tools/0/type"));
}

#[tokio::test(flavor = "multi_thread")]
async fn embeddings_and_rerank() {
    let server = start().await;
    let one = server.post("/v1/embeddings", &json!({"input": STORY})).await.json();
    let vector: Vec<f64> =
        one["data"][0]["embedding"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    let length = vector.iter().map(|v| v * v).sum::<f64>().sqrt();
    assert!((length - 1.0).abs() < 1e-5, "{length}");
    // The same text has the same vector in company, and through Ollama.
    let many = server.post("/v1/embeddings", &json!({"input": ["A dog.", STORY, "A cat."]})).await.json();
    assert_eq!(many["data"][1]["embedding"], one["data"][0]["embedding"]);
    let ollama = server.post("/api/embed", &json!({"input": [STORY]})).await.json();
    assert_eq!(ollama["embeddings"][0], one["data"][0]["embedding"]);
    let older = server.post("/api/embeddings", &json!({"prompt": STORY})).await.json();
    assert_eq!(older["embedding"], one["data"][0]["embedding"]);
    let coded = server
        .post("/v1/embeddings", &json!({"input": STORY, "encoding_format": "base64", "dimensions": 8}))
        .await
        .json();
    assert_eq!(coded["data"][0]["embedding"].as_str().unwrap().len(), 44);
    server.post("/v1/embeddings", &json!({"input": ["a", ""]})).await.fails(400, Some("/input/1"));
    server.post("/v1/embeddings", &json!({"input": [1, -1]})).await.fails(400, Some("/input/1"));
    server
        .post("/v1/embeddings", &json!({"input": "a", "dimensions": 0}))
        .await
        .fails(400, Some("/dimensions"));

    let rerank = json!({"query": STORY, "documents": ["The dog ran.", STORY, {"text": "A big red ball."}], "top_n": 2, "return_documents": true});
    let results = server.post("/v1/rerank", &rerank).await.json();
    let results = results["results"].as_array().unwrap();
    assert_eq!(
        (results.len(), &results[0]["index"], &results[0]["document"]["text"]),
        (2, &json!(1), &json!(STORY))
    );
    assert!((results[0]["relevance_score"].as_f64().unwrap() - 1.0).abs() < 1e-5);
    server.post("/v1/rerank", &json!({"query": "a", "documents": []})).await.fails(400, Some("/documents"));
}
