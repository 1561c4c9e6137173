//! Several models: loaded when asked for, unloaded when memory is needed, by requests as clients make them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use common::{Running, load, start_registry};
use hanzo_server::registry::{Catalog, ModelSource, Offer};
use hanzo_server::{Config, LoadSettings, LoadedModel, Registry};
use http_body_util::BodyExt;
use serde_json::{Value, json};

/// The small model under a name of its own.
struct Tiny {
    name: String,
    loads: AtomicUsize,
    fails: AtomicBool,
}

impl Tiny {
    fn new(name: &str) -> Arc<Self> {
        Arc::new(Self { name: name.to_owned(), loads: AtomicUsize::new(0), fails: AtomicBool::new(false) })
    }

    fn offer(self: &Arc<Self>) -> Offer {
        let source: Arc<dyn ModelSource> = Arc::<Self>::clone(self);
        Offer {
            name: self.name.clone(),
            aliases: vec![format!("alias-of-{}", self.name)],
            keep_alive: None,
            source,
        }
    }

    fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }
}

fn settings() -> LoadSettings {
    LoadSettings { context: Some(256), kv_tokens: Some(1024), ..LoadSettings::default() }
}

/// Bytes that the model takes.
fn size() -> u64 {
    static SIZE: OnceLock<u64> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let memory = load("size", &settings()).engine.info().memory;
        memory.weights + memory.kv + memory.arena
    })
}

impl ModelSource for Tiny {
    fn estimate(&self) -> Result<u64, String> {
        Ok(size())
    }

    fn load(&self) -> Result<LoadedModel, String> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        if self.fails.load(Ordering::SeqCst) {
            return Err("weight `x`: it is broken".to_owned());
        }
        Ok(load(&self.name, &settings()))
    }
}

/// What lies in a folder: found when it is asked for.
struct Folder(Vec<Arc<Tiny>>);

impl Catalog for Folder {
    fn find(&self, name: &str) -> Result<Option<Offer>, String> {
        Ok(self.0.iter().find(|tiny| tiny.name == name).map(Tiny::offer))
    }

    fn all(&self) -> Result<Vec<Offer>, String> {
        Ok(self.0.iter().map(Tiny::offer).collect())
    }
}

async fn start(budget: Option<u64>, models: &[&Arc<Tiny>]) -> Running {
    let folder = Folder(models.iter().map(|tiny| Arc::clone(tiny)).collect());
    let registry = Registry::new(budget, Some(Arc::new(folder)));
    start_registry(Config::default(), Arc::new(registry)).await
}

fn ask(model: &str) -> Value {
    json!({"model": model, "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 6})
}

async fn statuses(server: &Running) -> Vec<(String, String)> {
    let list = server.get("/models").await.json();
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    let models = list["data"].as_array().unwrap().iter();
    models.map(|model| (word(&model["id"]), word(&model["status"]["value"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_is_loaded_once_when_it_is_asked_for() {
    let (a, b) = (Tiny::new("a"), Tiny::new("b"));
    let server = start(None, &[&a, &b]).await;
    let pair = |name: &str, status: &str| (name.to_owned(), status.to_owned());
    assert_eq!(statuses(&server).await, [pair("a", "unloaded"), pair("b", "unloaded")]);
    let request = ask("a");
    let replies =
        futures_util::future::join_all((0..8).map(|_| server.post("/v1/chat/completions", &request))).await;
    for reply in &replies {
        assert_eq!(reply.status, 200, "{reply:?}");
        assert_eq!(reply.json()["model"], "a");
    }
    assert_eq!((a.loads(), b.loads()), (1, 0));
    assert_eq!(statuses(&server).await, [pair("a", "loaded"), pair("b", "unloaded")]);
    let names = server.get("/v1/models").await.json();
    assert_eq!(names["data"].as_array().unwrap().len(), 2);
    // Looking at one does not load it; an alias is as good as a name.
    assert_eq!(server.get("/v1/models/b").await.json()["id"], "b");
    assert_eq!(b.loads(), 0);
    assert_eq!(server.post("/v1/chat/completions", &ask("ALIAS-of-b")).await.json()["model"], "b");
    server.post("/v1/chat/completions", &ask("c")).await.fails(404, Some("/model"));
}

#[tokio::test(flavor = "multi_thread")]
async fn models_are_loaded_and_unloaded_by_hand() {
    let a = Tiny::new("a");
    let server = start(None, &[&a]).await;
    let which = json!({"model": "a"});
    assert_eq!(server.post("/models/unload", &which).await.json()["was_loaded"], false);
    assert_eq!(server.post("/models/load", &which).await.json()["success"], true);
    assert_eq!(a.loads(), 1);
    assert_eq!(server.post("/models/unload", &which).await.json()["was_loaded"], true);
    assert_eq!(statuses(&server).await[0].1, "unloaded");
    server.post("/models/load", &json!({"model": "b"})).await.fails(404, Some("/model"));
    server.post("/models/load", &json!({})).await.fails(400, Some("/model"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_running_reply_keeps_its_model() {
    let a = Tiny::new("a");
    let server = start(None, &[&a]).await;
    let body = json!({"model": "a", "prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true});
    let request = common::post("/v1/completions", body.to_string());
    let response = server.connect().await.send_request(request).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(server.post("/models/unload", &json!({"model": "a"})).await.json()["was_loaded"], true);
    assert_eq!(statuses(&server).await[0].1, "unloaded");
    let text = response.into_body().collect().await.unwrap().to_bytes();
    let text = std::str::from_utf8(&text).unwrap();
    assert!(text.contains("\"finish_reason\":\"length\"") && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert_eq!(server.post("/v1/chat/completions", &ask("a")).await.status, 200);
    assert_eq!(a.loads(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn ollama_lists_all_and_shows_what_is_in_memory() {
    let (a, b) = (Tiny::new("a"), Tiny::new("b"));
    let server = start(None, &[&a, &b]).await;
    assert_eq!(server.post("/models/load", &json!({"model": "b"})).await.status, 200);
    let names = |list: Value| -> Vec<String> {
        list["models"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(names(server.get("/api/tags").await.json()), ["a", "b"]);
    assert_eq!(names(server.get("/api/ps").await.json()), ["b"]);
    assert_eq!((a.loads(), b.loads()), (0, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_cannot_be_loaded_harms_nobody_else() {
    let (good, bad) = (Tiny::new("good"), Tiny::new("bad"));
    bad.fails.store(true, Ordering::SeqCst);
    let server = start(None, &[&good, &bad]).await;
    let (ours, theirs) = (ask("good"), ask("bad"));
    let (ours, theirs) = tokio::join!(
        server.post("/v1/chat/completions", &ours),
        server.post("/v1/chat/completions", &theirs)
    );
    assert_eq!(ours.status, 200, "{ours:?}");
    theirs.fails(500, None);
    assert!(theirs.json()["error"]["message"].as_str().unwrap().contains("it is broken"));
    let list = server.get("/models").await.json();
    assert!(list["data"][0]["status"]["error"].as_str().unwrap().contains("it is broken"), "{list}");
    bad.fails.store(false, Ordering::SeqCst);
    assert_eq!(server.post("/v1/chat/completions", &ask("bad")).await.status, 200);
}

/// Room for two of three: the third takes the place of the one that was asked for longest ago.
#[tokio::test(flavor = "multi_thread")]
async fn the_least_recently_used_model_makes_room() {
    let (a, b, c) = (Tiny::new("a"), Tiny::new("b"), Tiny::new("c"));
    let server = start(Some(2 * size() + size() / 2), &[&a, &b, &c]).await;
    for name in ["a", "b", "a", "c", "a"] {
        let reply = server.post("/v1/chat/completions", &ask(name)).await;
        assert_eq!((reply.status, &reply.json()["model"]), (200, &name.into()));
        assert!(server.becomes_idle(Duration::from_secs(5)).await);
    }
    assert_eq!((a.loads(), b.loads(), c.loads()), (1, 1, 1));
    let loaded = statuses(&server).await.into_iter().filter(|(_, status)| status == "loaded");
    assert_eq!(loaded.map(|(name, _)| name).collect::<Vec<_>>(), ["a", "c"]);
    let small = start(Some(size() / 2), &[&a]).await;
    let error = small.post("/v1/chat/completions", &ask("a")).await;
    error.fails(503, None);
    assert_eq!(error.json()["error"]["code"], "model_too_large");
}

#[tokio::test(flavor = "multi_thread")]
async fn ollama_says_how_long_a_model_stays() {
    let a = Tiny::new("a");
    let server = start(None, &[&a]).await;
    let registry = Arc::clone(&server.app.registry);
    tokio::spawn(registry.tend());
    let chat = |keep: Value| json!({"model": "a", "messages": [{"role": "user", "content": "Hi"}], "stream": false, "keep_alive": keep, "options": {"num_predict": 2}});
    let expires = || async {
        let running = server.get("/api/ps").await.json();
        running["models"][0]["expires_at"].as_str().map(str::to_owned)
    };
    let never = Some("9999-12-31T23:59:59Z".to_owned());
    // A request without a prompt loads, and unloads where it keeps the model for no time.
    let load = server.post("/api/generate", &json!({"model": "a", "keep_alive": "10m"})).await.json();
    assert_eq!((&load["done_reason"], a.loads()), (&json!("load"), 1));
    assert!(expires().await.is_some_and(|at| Some(at) != never));
    assert_eq!(server.post("/api/chat", &chat(json!(-1))).await.status, 200);
    assert_eq!(expires().await, never);
    let unload =
        server.post("/api/chat", &json!({"model": "a", "messages": [], "keep_alive": 0})).await.json();
    assert_eq!((&unload["done"], &unload["done_reason"]), (&json!(true), &json!("unload")));
    assert_eq!(statuses(&server).await[0].1, "unloaded");
    // What a request wanted ends with the model.
    assert_eq!(server.post("/models/load", &json!({"model": "a"})).await.status, 200);
    assert_eq!(expires().await, never);
    // A reply comes first.
    let reply = server.post("/api/chat", &chat(json!("0s"))).await.json();
    assert_eq!(reply["eval_count"], 2, "{reply}");
    let unloaded = async {
        while statuses(&server).await[0].1 != "unloaded" {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), unloaded).await.unwrap();
    let embed = json!({"model": "a", "input": "x", "keep_alive": "soon"});
    let refused = server.post("/api/embed", &embed).await;
    assert_eq!(refused.status, 400);
    assert!(refused.json()["error"].as_str().unwrap().starts_with("keep_alive: "), "{refused:?}");
    assert_eq!(statuses(&server).await[0].1, "unloaded", "a request that is refused loads nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_stays_is_not_unloaded() {
    let server = common::start().await;
    let body = json!({"model": "hanzo-tiny", "prompt": "Once", "stream": false, "keep_alive": 0, "options": {"num_predict": 1}});
    let reply = server.post("/api/generate", &body).await;
    assert!(reply.header("x-hanzo-warning").is_some_and(|w| w.starts_with("keep_alive: ")), "{reply:?}");
    let refused = server.post("/api/generate", &json!({"model": "hanzo-tiny", "keep_alive": 0})).await;
    assert_eq!(refused.status, 409, "{refused:?}");
}

/// Totals go on where they were when the model is loaded again, and never fall.
#[tokio::test(flavor = "multi_thread")]
async fn totals_outlive_the_model() {
    let (a, b) = (Tiny::new("a"), Tiny::new("b"));
    let server = start(None, &[&a, &b]).await;
    let value = |text: &str, name: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.starts_with(name) && line.contains("model_name=\"a\""))?;
        line.rsplit(' ').next()?.parse().ok()
    };
    let metrics = || async {
        let answer = server.get("/metrics").await;
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(!text.contains("model_name=\"b\""), "b was never loaded");
        let of = |name: &str| value(&text, name);
        (
            of("vllm:generation_tokens_total"),
            of("vllm:e2e_request_latency_seconds_count"),
            of("vllm:cache_config_info"),
            of("vllm:num_requests_running"),
        )
    };
    assert_eq!(metrics().await, (None, None, None, None));
    for round in 1..=3 {
        assert_eq!(server.post("/v1/chat/completions", &ask("a")).await.status, 200);
        assert!(server.becomes_idle(Duration::from_secs(5)).await);
        let tokens = 6.0 * f64::from(round);
        assert_eq!(metrics().await, (Some(tokens), Some(f64::from(round)), Some(1.0), Some(0.0)));
        assert_eq!(server.post("/models/unload", &json!({"model": "a"})).await.json()["was_loaded"], true);
        let gone = async {
            while metrics().await.2.is_some() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.unwrap();
        // The engine ends its thread after it is out of sight.
        let kept = async {
            while metrics().await != (Some(tokens), Some(f64::from(round)), None, Some(0.0)) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), kept).await.unwrap();
    }
    assert_eq!(a.loads(), 3);
}
