//! Adapters over HTTP: by name as a model, by the `lora` field, loaded and unloaded while the server runs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::Path;

use common::{Running, load, start, start_model, tiny};
use hanzo_gguf::{GgufWriter, TensorType};
use hanzo_server::{Config, LoadSettings};
use serde_json::{Value, json};

/// An adapter of the small model; `sign` makes two of them that differ.
fn adapter(path: &Path, sign: f32) {
    let model = tiny();
    let mut writer = GgufWriter::new();
    for (key, value) in
        [("general.type", "adapter"), ("general.architecture", "qwen3"), ("adapter.type", "lora")]
    {
        writer.set(key, value).unwrap();
    }
    writer.set("adapter.lora.alpha", 4f32).unwrap();
    let mut data = Vec::new();
    for info in model.tensors().iter().filter(|t| t.name().ends_with("attn_v.weight")) {
        for (half, dims) in [("a", [info.dims()[0], 2]), ("b", [2, info.dims()[1]])] {
            writer.tensor(&format!("{}.lora_{half}", info.name()), TensorType::F32, &dims).unwrap();
            let values = (0..dims[0] * dims[1]).map(|i| sign * ((i % 7) as f32 * 0.1 - 0.3) + 0.02);
            data.push(values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>());
        }
    }
    std::fs::write(path, writer.to_bytes(&data).unwrap()).unwrap();
}

fn ask(model: &str, more: Value) -> Value {
    let mut body = json!({"model": model, "prompt": "Once upon a time", "temperature": 0, "max_tokens": 16});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

async fn text(server: &Running, model: &str, more: Value) -> String {
    let answer = server.post("/v1/completions", &ask(model, more)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let json = answer.json();
    assert_eq!(json["model"], model, "the reply names what was asked for");
    json["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_is_a_model_and_a_field() {
    let temp = tempfile::tempdir().unwrap();
    let [one, two] = [("one", 1.0), ("two", -1.0)].map(|(name, sign)| {
        let path = temp.path().join(format!("{name}.gguf"));
        adapter(&path, sign);
        path
    });
    let model = load("hanzo-tiny", &LoadSettings::default());
    model.engine.load_adapter("one", &one).unwrap();
    model.engine.load_adapter("two", &two).unwrap();
    let server = start_model(Config::default(), model).await;
    let plain = text(&server, "hanzo-tiny", json!({})).await;
    let first = text(&server, "one", json!({})).await;
    let second = text(&server, "two", json!({})).await;
    assert!(plain != first && first != second && plain != second, "{plain:?} {first:?} {second:?}");

    let field = |entries: Value| json!({"lora": entries});
    let named = |entries| text(&server, "hanzo-tiny", field(entries));
    assert_eq!(named(json!([{"id": 0, "scale": 1.0}])).await, first);
    assert_eq!(named(json!([{"id": "two", "scale": 1}])).await, second);
    assert_eq!(named(json!([])).await, plain);
    assert_eq!(named(json!([{"id": 0, "scale": 0}])).await, plain);

    // Scales of requests that do not say.
    let set = server.post_bytes("/lora-adapters", r#"[{"id": 1, "scale": 1.0}]"#).await;
    assert_eq!(set.status, 200, "{set:?}");
    let list = server.get("/lora-adapters").await.json();
    assert_eq!((&list[0]["scale"], &list[1]["scale"]), (&json!(0.0), &json!(1.0)));
    assert_eq!((&list[0]["id"], &list[1]["name"]), (&json!(0), &json!("two")));
    assert_eq!(text(&server, "hanzo-tiny", json!({})).await, second);
    assert_eq!(text(&server, "one", json!({})).await, first, "a name means that adapter alone");
    assert_eq!(named(json!([])).await, plain, "a request's own choice goes before");
    server.post_bytes("/lora-adapters", "[]").await;
    assert_eq!(text(&server, "hanzo-tiny", json!({})).await, plain);

    // In chats and streams the same.
    let chat = json!({"model": "one", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "stream": true});
    let chunks = server.post("/v1/chat/completions", &chat).await.messages();
    assert!(chunks.iter().all(|c| c["model"] == "one"), "{chunks:?}");

    let models = server.get("/v1/models").await.json();
    let ids: Vec<&str> =
        models["data"].as_array().unwrap().iter().map(|m| m["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["hanzo-tiny", "one", "two"]);
    assert_eq!(server.get("/v1/models/one").await.json()["parent"], "hanzo-tiny");
    let metrics = server.get("/metrics").await;
    let metrics = std::str::from_utf8(&metrics.body).unwrap();
    assert!(
        metrics.contains("vllm:lora_requests_info{model_name=\"hanzo-tiny\",max_lora=\"64\""),
        "{metrics}"
    );

    let completions = "/v1/completions";
    for (model, entries, pointer) in [
        ("hanzo-tiny", json!([{"id": 7, "scale": 1}]), "/lora/0/id"),
        ("hanzo-tiny", json!([{"id": 0, "scale": 1}, {"id": "one", "scale": 1}]), "/lora/1/id"),
        ("hanzo-tiny", json!([{"id": 0, "scale": 1e300}]), "/lora/0/scale"),
        ("hanzo-tiny", json!([{"id": -1, "scale": 1}]), "/lora/0/id"),
        ("hanzo-tiny", json!([{"id": 0, "scale": "1"}]), "/lora/0/scale"),
        ("hanzo-tiny", json!({"id": 0}), "/lora"),
        ("one", json!([{"id": 1, "scale": 1}]), "/lora"),
    ] {
        server.post(completions, &ask(model, field(entries))).await.fails(400, Some(pointer));
    }
    let huge = server.post(completions, &ask("hanzo-tiny", field(json!([{"id": 0, "scale": 1e9}])))).await;
    huge.fails(400, None);
    server.post(completions, &ask("three", json!({}))).await.fails(404, Some("/model"));
    server.post_bytes("/lora-adapters", "{}").await.fails(400, Some(""));
    assert!(server.stop().await == 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_are_loaded_from_one_folder_only() {
    let temp = tempfile::tempdir().unwrap();
    let folder = temp.path().join("adapters");
    std::fs::create_dir(&folder).unwrap();
    adapter(&folder.join("one.gguf"), 1.0);
    adapter(&temp.path().join("outside.gguf"), 1.0);
    std::fs::write(folder.join("noise.gguf"), b"noise").unwrap();
    let config = Config { lora_dir: Some(folder.clone()), ..Config::default() };
    let server = start_model(config, load("hanzo-tiny", &LoadSettings::default())).await;
    let request = |name: &str, path: &str| json!({"lora_name": name, "lora_path": path});
    let load_it = |name: &'static str, path: String| {
        let body = request(name, &path);
        let server = &server;
        async move { server.post("/v1/load_lora_adapter", &body).await }
    };
    let whole = folder.join("one.gguf").display().to_string();
    let outside = temp.path().join("outside.gguf").display().to_string();
    for path in ["../outside.gguf", &outside, "none.gguf", ".", "/etc/passwd", ""] {
        load_it("x", path.to_owned()).await.fails(404, Some("/lora_path"));
    }
    load_it("x", "noise.gguf".to_owned()).await.fails(400, None);
    load_it("hanzo-tiny", "one.gguf".to_owned()).await.fails(409, Some("/lora_name"));
    load_it("", "one.gguf".to_owned()).await.fails(400, None);
    let loaded = load_it("one", "one.gguf".to_owned()).await;
    assert_eq!(loaded.status, 200, "{loaded:?}");
    load_it("one", whole).await.fails(409, Some("/lora_name"));
    let adapted = text(&server, "one", json!({})).await;
    assert_ne!(adapted, text(&server, "hanzo-tiny", json!({})).await);

    let unload = |name: &'static str| {
        let server = &server;
        async move { server.post("/v1/unload_lora_adapter", &json!({"lora_name": name})).await }
    };
    unload("two").await.fails(404, Some("/lora_name"));
    assert_eq!(unload("one").await.status, 200);
    server.post("/v1/completions", &ask("one", json!({}))).await.fails(404, Some("/model"));
    assert_eq!(load_it("one", "one.gguf".to_owned()).await.json()["id"], 1, "ids are never used twice");
    assert_eq!(text(&server, "one", json!({})).await, adapted);

    let closed = start().await;
    closed.post("/v1/load_lora_adapter", &request("one", "one.gguf")).await.fails(403, None);
    closed.post("/v1/unload_lora_adapter", &json!({"lora_name": "one"})).await.fails(403, None);
}
