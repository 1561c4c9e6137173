//! Adapters in the engine: each request has the bytes of its own adapters whatever runs beside it, prefixes are kept apart, and
//! adapters come and go while requests run.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Control, Controlled, Reply, collect, cpu, engine, run, settle, tiny};
use hanzo_engine::{
    AdapterError, AdapterId, AdapterLimits, Engine, EngineError, EngineOptions, Request, SamplingParams,
    Speculation,
};
use hanzo_gguf::{GgufFile, GgufWriter, TensorType};

/// A number between -1 and 1.
fn noise(seed: u64, i: usize) -> f32 {
    let mut h = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ h >> 30).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((h ^ h >> 31) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// Writes a random adapter for all projections of a model.
fn adapter(folder: &Path, model: &GgufFile, seed: u64, rank: u64) -> PathBuf {
    let mut writer = GgufWriter::new();
    writer.set("general.type", "adapter").unwrap();
    writer
        .set("general.architecture", model.metadata().required_str("general.architecture").unwrap())
        .unwrap();
    writer.set("adapter.type", "lora").unwrap();
    writer.set("adapter.lora.alpha", 8f32).unwrap();
    let mut data = Vec::new();
    for info in model.tensors().iter().filter(|t| t.name().contains("attn_") && t.dims().len() == 2) {
        for (half, dims) in [("a", [info.dims()[0], rank]), ("b", [rank, info.dims()[1]])] {
            writer.tensor(&format!("{}.lora_{half}", info.name()), TensorType::F32, &dims).unwrap();
            let n = (dims[0] * dims[1]) as usize;
            let salt = seed * 1000 + data.len() as u64;
            data.push((0..n).flat_map(|i| (0.4 * noise(salt, i)).to_le_bytes()).collect::<Vec<u8>>());
        }
    }
    let path = folder.join(format!("adapter-{seed}-{rank}.gguf"));
    std::fs::write(&path, writer.to_bytes(&data).unwrap()).unwrap();
    path
}

fn options() -> EngineOptions {
    EngineOptions { max_context: Some(128), eog: vec![3], ..EngineOptions::default() }
}

fn request(seed: u64, n: usize, adapters: &[(AdapterId, f32)]) -> Request {
    let prompt = (0..n).map(|i| 10 + (seed as u32 * 31 + i as u32 * 7) % 90).collect();
    let sampling = match seed % 2 {
        0 => SamplingParams::greedy(),
        _ => SamplingParams { seed, ..SamplingParams::default() },
    };
    Request { sampling, ignore_eos: true, adapters: adapters.to_vec(), ..Request::new(prompt, 24) }
}

/// The choices of adapters that requests make, by index into those that are loaded.
const CHOICES: [&[(usize, f32)]; 6] =
    [&[], &[(0, 1.0)], &[(1, 1.0)], &[(0, 0.5)], &[(0, 1.0), (1, -1.0)], &[(1, -1.0), (0, 1.0)]];

fn chosen(ids: &[AdapterId], choice: &[(usize, f32)]) -> Vec<(AdapterId, f32)> {
    choice.iter().map(|&(i, scale)| (ids[i], scale)).collect()
}

#[test]
fn every_request_has_its_own_bytes() {
    let Some(file) = tiny("llama") else { return };
    let temp = tempfile::tempdir().unwrap();
    let paths = [adapter(temp.path(), &file, 1, 4), adapter(temp.path(), &file, 2, 20)];
    let load = |engine: &Engine| -> Vec<AdapterId> {
        ["one", "two"]
            .iter()
            .zip(&paths)
            .map(|(name, path)| engine.load_adapter(name, path).unwrap())
            .collect()
    };
    let alone =
        EngineOptions { max_sequences: 1, prefix_cache: false, speculation: Speculation::off(), ..options() };
    let reference = engine(&file, 1, alone.clone());
    let ids = load(&reference);
    let n = 24;
    let length = |i: usize| 5 + i * 13 % 60;
    let ask = |ids: &[AdapterId], i: usize| {
        // Prompts repeat, so that prefixes would be found under the wrong adapter.
        request(
            (i / CHOICES.len()) as u64,
            length(i / CHOICES.len()),
            &chosen(ids, CHOICES[i % CHOICES.len()]),
        )
    };
    let want: Vec<Vec<u32>> = (0..n).map(|i| run(&reference, ask(&ids, i)).tokens).collect();
    let plain = engine(&file, 1, alone);
    for i in (0..n).step_by(CHOICES.len()) {
        assert_eq!(run(&plain, ask(&[], i)).tokens, want[i], "an engine without adapters says the same");
    }
    let different = want.chunks(CHOICES.len()).filter(|w| w[0] != w[1] && w[1] != w[2] && w[1] != w[3]);
    assert!(different.count() >= 2, "adapters change replies");

    for (threads, kv_tokens, max_batch_tokens, speculation) in [
        (1, 320, 512, Speculation::default()),
        (2, 256, 16, Speculation::default()),
        (2, 4096, 64, Speculation::off()),
    ] {
        let o = EngineOptions {
            kv_tokens: Some(kv_tokens),
            max_batch_tokens,
            max_sequences: 12,
            speculation,
            ..options()
        };
        let crowd = engine(&file, threads, o);
        let ids = load(&crowd);
        for round in 0..2 {
            let events: Vec<_> = (0..n).map(|i| crowd.generate(ask(&ids, i)).unwrap()).collect();
            for (i, events) in events.into_iter().enumerate() {
                let got = collect(events);
                got.finished();
                assert_eq!(got.tokens, want[i], "request {i}, round {round}, {threads} threads, {kv_tokens}");
            }
        }
        let m = crowd.metrics();
        assert!(kv_tokens > 1000 || m.preemptions > 0, "the pool is small enough: {m:?}");
        assert!(kv_tokens < 1000 || m.prefix_hits > 0, "{m:?}");
        settle(&crowd);
    }
}

#[test]
fn continuations_share_a_prompt_and_its_adapters() {
    let Some(file) = tiny("qwen3") else { return };
    let temp = tempfile::tempdir().unwrap();
    let engine = engine(&file, 2, options());
    let id = engine.load_adapter("one", adapter(temp.path(), &file, 1, 4)).unwrap();
    let ask = || request(1, 40, &[(id, 1.0)]);
    let want = run(&engine, ask()).tokens;
    let (send, receive) = std::sync::mpsc::channel();
    let sinks = (0..3).map(|i| -> hanzo_engine::Sink {
        let send = send.clone();
        Box::new(move |event| send.send((i, event)).is_ok())
    });
    let _cancel = engine.submit_continuations(ask(), sinks.collect()).unwrap();
    drop(send);
    let mut replies = [Reply::default(), Reply::default(), Reply::default()];
    receive.into_iter().for_each(|(i, event): (usize, _)| replies[i].take(event));
    assert_eq!(replies[0].tokens, want);
    replies.iter().for_each(|r| assert_eq!(r.finished().generated_tokens, 24));
}

#[test]
fn prefixes_are_kept_apart() {
    let Some(file) = tiny("llama") else { return };
    let temp = tempfile::tempdir().unwrap();
    let paths = [adapter(temp.path(), &file, 1, 4), adapter(temp.path(), &file, 2, 4)];
    let engine = engine(&file, 1, EngineOptions { kv_tokens: Some(1024), ..options() });
    let one = engine.load_adapter("one", &paths[0]).unwrap();
    let cached = |adapters: &[(AdapterId, f32)]| {
        let reply = run(&engine, request(2, 64, adapters));
        (reply.finished().cached_tokens, reply.tokens)
    };
    let (first, plain) = cached(&[]);
    let (second, adapted) = cached(&[(one, 1.0)]);
    assert_eq!((first, second), (0, 0));
    assert_eq!((cached(&[]), cached(&[(one, 1.0)])), ((48, plain.clone()), (48, adapted.clone())));
    assert_eq!(cached(&[(one, 0.5)]).0, 0, "another scale is another prefix");
    assert_eq!(cached(&[(one, 0.0)]), (48, plain), "a scale of 0 is no adapter");
    // The same name, and other content.
    engine.unload_adapter("one").unwrap();
    let again = engine.load_adapter("one", &paths[1]).unwrap();
    assert_ne!(one, again);
    let (n, other) = cached(&[(again, 1.0)]);
    assert_eq!(n, 0);
    assert_ne!(other, adapted);
}

#[test]
fn adapters_come_and_go_while_requests_run() {
    let Some(file) = tiny("llama") else { return };
    let temp = tempfile::tempdir().unwrap();
    let path = adapter(temp.path(), &file, 1, 4);
    let control = Arc::new(Control::default());
    let one_at_a_time = EngineOptions { max_sequences: 1, ..options() };
    let engine = Engine::load(&file, &Controlled(cpu(1), Arc::clone(&control)), one_at_a_time, &()).unwrap();
    let id = engine.load_adapter("one", &path).unwrap();
    let want = run(&engine, request(2, 20, &[(id, 1.0)])).tokens;
    let mut events = engine.generate(request(2, 20, &[(id, 1.0)])).unwrap();
    let mut reply = Reply::default();
    reply.take(events.next().unwrap());
    engine.unload_adapter("one").unwrap();
    assert!(engine.adapters().is_empty());
    let gone = engine.generate(request(2, 20, &[(id, 1.0)])).err().unwrap();
    assert!(matches!(gone, EngineError::Adapter(AdapterError::Unloaded)), "{gone}");
    events.for_each(|event| reply.take(event));
    assert_eq!(reply.tokens, want, "a running request keeps its adapter");
    settle(&engine);
    let until = Instant::now() + Duration::from_secs(30);
    while engine.adapter_bytes() > 0 {
        assert!(Instant::now() < until, "the last user's end gives the memory back");
        std::thread::yield_now();
    }

    let id = engine.load_adapter("two", &path).unwrap();
    assert_eq!(engine.adapter("two").unwrap(), id);
    let info = engine.adapters().remove(0);
    assert_eq!((info.id, info.name.as_str(), info.rank, &info.path), (id, "two", 4, &path));
    assert!(info.bytes > 0 && info.bytes == engine.adapter_bytes() && info.n_updates > 0);
    let steps = control.steps.lock().unwrap().len();
    let until = Instant::now() + Duration::from_secs(30);
    control.hold();
    let first = engine.generate(request(4, 60, &[(id, 1.0)])).unwrap();
    control.wait_blocked();
    let second = engine.generate(request(4, 60, &[(id, 0.5)])).unwrap();
    control.permit(1);
    // The next step wants to run: the second request has come, and waits.
    while control.steps.lock().unwrap().len() < steps + 1 || engine.adapters()[0].waiting == 0 {
        assert!(Instant::now() < until, "the waiting request is counted");
        std::thread::yield_now();
    }
    assert_eq!((engine.adapters()[0].waiting, engine.adapters()[0].running), (1, 1));
    control.release();
    for events in [first, second] {
        collect(events).finished();
    }
    settle(&engine);
    assert_eq!((engine.adapters()[0].waiting, engine.adapters()[0].running), (0, 0));
}

#[test]
fn what_is_refused() {
    let Some(file) = tiny("llama") else { return };
    let temp = tempfile::tempdir().unwrap();
    let path = adapter(temp.path(), &file, 1, 4);
    let limits = AdapterLimits { count: 2, rank: 8, per_request: 1, ..AdapterLimits::default() };
    let engine = engine(&file, 1, EngineOptions { adapters: limits, ..options() });
    let id = engine.load_adapter("one", &path).unwrap();
    let other = tiny("qwen3").map(|model| adapter(temp.path(), &model, 5, 4)).unwrap();
    let load = |name: &str, path: &Path| engine.load_adapter(name, path).err().unwrap().to_string();
    for (error, why) in [
        (load("one", &path), "`one` is loaded already"),
        (load("", &path), "\"\" is no name"),
        (load("a\nb", &path), "is no name"),
        (load(&"x".repeat(300), &path), "is no name"),
        (load("two", &temp.path().join("none.gguf")), "adapter `two`: "),
        (load("two", &other), "for architecture `qwen3`, the model is `llama`"),
        (load("two", &adapter(temp.path(), &file, 1, 9)), "has rank 9; the limit is 8"),
        (
            engine.unload_adapter("two").err().unwrap().to_string(),
            "no adapter `two` is loaded; there is: one",
        ),
        (engine.adapter("two").err().unwrap().to_string(), "no adapter `two`"),
    ] {
        assert!(error.contains(why), "{why}: {error}");
    }
    let two = engine.load_adapter("two", &path).unwrap();
    assert!(load("three", &path).contains("2 adapters are loaded, which is the limit"));
    let ask =
        |adapters: &[(AdapterId, f32)]| engine.generate(request(2, 5, adapters)).err().unwrap().to_string();
    for (error, why) in [
        (ask(&[(id, f32::NAN)]), "NaN is no scale"),
        (ask(&[(id, f32::INFINITY)]), "inf is no scale"),
        (ask(&[(id, 1e9)]), "is no scale"),
        (ask(&[(id, 1.0), (two, 1.0)]), "2 adapters in one request; the limit is 1"),
    ] {
        assert!(error.contains(why), "{why}: {error}");
    }
    drop(engine);

    let tight = AdapterLimits { bytes: 1000, ..AdapterLimits::default() };
    let small = common::engine(&file, 1, EngineOptions { adapters: tight, ..options() });
    let error = small.load_adapter("one", &path).err().unwrap().to_string();
    assert!(error.contains("1000 of 1000 are left for adapters"), "{error}");
    let roomy = common::engine(&file, 1, options());
    let one = roomy.load_adapter("one", &path).unwrap();
    let twice = roomy.generate(request(2, 5, &[(one, 1.0), (one, 1.0)])).err().unwrap().to_string();
    assert!(twice.contains("`one` is there twice"), "{twice}");
}
