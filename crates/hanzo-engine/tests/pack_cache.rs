//! `EngineBuilder::pack_cache`: the second engine of a file reads what the first one packed, and replies the same.
#![allow(clippy::unwrap_used)]
#![cfg(feature = "cpu")]

use std::fs;
use std::path::Path;
use std::time::Duration;

use hanzo_engine::{Engine, Event, Request};

const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hanzo-cli/assets/hanzo-tiny.gguf");

fn reply(model: &Path, cache: Option<&Path>) -> Vec<u32> {
    let mut builder = Engine::builder(model).context(64).threads(2);
    if let Some(folder) = cache {
        builder = builder.pack_cache(folder);
    }
    let engine = builder.build().unwrap();
    let prompt = engine.encode("Once upon a time").unwrap();
    let events = engine.generate(Request::new(prompt, 24)).unwrap();
    let token = |event: Event| match event {
        Event::Token(token) => Some(token.id),
        _ => None,
    };
    events.filter_map(token).collect()
}

#[test]
fn packed_weights_are_kept_in_the_folder_that_is_given() {
    let dir = tempfile::tempdir().unwrap();
    let (model, cache) = (dir.path().join("model.gguf"), dir.path().join("cache"));
    fs::copy(TINY, &model).unwrap();
    std::thread::sleep(Duration::from_millis(2200));
    let plain = reply(&model, None);
    assert!(!plain.is_empty());
    let written = || {
        let entries = fs::read_dir(&cache).unwrap().map(|file| file.unwrap());
        let [entry] = entries
            .filter(|file| file.path().extension().is_some_and(|e| e == "pack"))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        let metadata = entry.metadata().unwrap();
        (metadata.len(), metadata.modified().unwrap())
    };
    assert_eq!(reply(&model, Some(&cache)), plain);
    let first = written();
    assert_eq!(reply(&model, Some(&cache)), plain);
    // Read, not written anew.
    assert_eq!(written(), first);
}
