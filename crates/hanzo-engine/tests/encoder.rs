//! Embeddings of all-MiniLM-L6-v2 against those of the original (`sentence-transformers`' recipe, f32), texts and all.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::Path;

use common::{cpu, real, settle};
use hanzo_engine::{EmbedRequest, Engine, EngineError, EngineOptions, Pooling, Request, ScoreRequest};

const MODEL: &str = "all-MiniLM-L6-v2-F32.gguf";

/// A text, its ids and its vector.
type Original = (String, Vec<u32>, Vec<f32>);

/// The texts with their ids and vectors. `None`, with a printed line, where the oracles are not there.
fn oracle() -> Option<Vec<Original>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracles/embed");
    let Ok(text) = std::fs::read_to_string(folder.join("minilm.json")) else {
        assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is missing", folder.display());
        println!("skipped: {} is missing", folder.display());
        return None;
    };
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let bytes = std::fs::read(folder.join("minilm.f32")).unwrap();
    let values: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
    let items = json["items"].as_array().unwrap();
    let item = |(item, vector): (&serde_json::Value, &[f32])| {
        let ids = item["ids"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        (item["text"].as_str().unwrap().to_owned(), ids, vector.to_vec())
    };
    Some(items.iter().zip(values.chunks_exact(values.len() / items.len())).map(item).collect())
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

#[test]
fn minilm_embeds_as_the_original_does() {
    let (Some(file), Some(oracle)) = (real(MODEL), oracle()) else { return };
    let engine =
        |threads, options| Engine::builder(&file).device(&cpu(threads)).options(options).build().unwrap();
    let e = engine(2, EngineOptions::default());
    assert_eq!((e.info().pooling, e.info().hidden_size, e.info().generates), (Pooling::Mean, 384, false));
    // All at once on one thread, two at a time: the same bits.
    let few = EngineOptions { max_sequences: 2, max_batch_tokens: 16, ..EngineOptions::default() };
    let crowded = engine(1, few);
    let (sender, receiver) = std::sync::mpsc::channel();
    for (i, (_, ids, _)) in oracle.iter().enumerate() {
        let sender = sender.clone();
        let done = move |outcome: Result<_, _>| sender.send((i, outcome)).unwrap();
        crowded.submit_embed(EmbedRequest::new(ids.clone()), done).unwrap();
    }
    drop(sender);
    let mut together = vec![Vec::new(); oracle.len()];
    receiver.into_iter().for_each(|(i, outcome)| together[i] = outcome.unwrap().vector);
    for ((text, ids, wanted), together) in oracle.iter().zip(&together) {
        assert_eq!(&e.encode_whole(text).unwrap(), ids, "{text}");
        let vector = e.embed(EmbedRequest::new(ids.clone())).unwrap().vector;
        assert_eq!(&vector, together, "{text}");
        let alike = cosine(&vector, wanted);
        println!("{alike:.7} {text}");
        // The cache holds keys and values in half precision.
        assert!(alike > 0.99999, "{text}: {alike}");
        let length: f32 = vector.iter().map(|x| x * x).sum();
        assert!((length - 1.0).abs() < 1e-5);
    }
    settle(&e);
    settle(&crowded);
    let refused = e.generate(Request::new(vec![101, 102], 1)).unwrap_err();
    assert!(matches!(refused, EngineError::NoLogits { architecture: "bert" }), "{refused}");
    assert!(matches!(e.score(ScoreRequest::new(vec![101, 102])), Err(EngineError::NoLogits { .. })));
    assert!(matches!(e.embed(EmbedRequest::new(vec![101; 513])), Err(EngineError::TextTooLong { .. })));
    assert_eq!(e.embed(EmbedRequest::new(vec![101; 512])).unwrap().vector.len(), 384);
}
