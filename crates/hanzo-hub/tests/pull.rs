//! Pulls that go well: layout, selection, shards, a second time, two at once, offline, mirrors and tokens.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{COMMIT, FakeHub, Fault, Witness, noise, sha256, tree};
use hanzo_hub::{Error, Hub, Name, Store};

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

#[test]
fn a_model_lies_where_huggingface_hub_would_put_it() {
    let content = noise(700_000);
    let hub = FakeHub::new(&[("README.md", b"hi"), ("m-Q4_K_M.gguf", &content), ("m-Q8_0.gguf", b"no")]);
    let cache = tempfile::tempdir().unwrap();
    let watch = Witness::default();
    let pulled = hub.hub(cache.path()).pull(&name("org/repo"), &watch).unwrap();
    assert_eq!(pulled.name, "org/repo:Q4_K_M");
    assert_eq!((pulled.bytes, pulled.fetched), (700_000, 700_000));
    watch.saw("selected org/repo:Q4_K_M 1 700000 0");
    let digest = sha256(&content);
    assert_eq!(
        tree(cache.path()),
        [
            format!(".locks/models--org--repo/{digest}.lock"),
            format!("models--org--repo/blobs/{digest}"),
            "models--org--repo/refs/main".to_owned(),
            format!("models--org--repo/snapshots/{COMMIT}/m-Q4_K_M.gguf"),
        ]
    );
    let root = cache.path().join("models--org--repo");
    assert_eq!(std::fs::read_to_string(root.join("refs/main")).unwrap(), COMMIT);
    assert_eq!(pulled.path, root.join(format!("snapshots/{COMMIT}/m-Q4_K_M.gguf")));
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    #[cfg(unix)]
    assert_eq!(std::fs::read_link(&pulled.path).unwrap().to_str().unwrap(), format!("../../blobs/{digest}"));

    hub.requests("");
    let again = hub.hub(cache.path()).pull(&name("org/repo:q4_k_m"), &Witness::default()).unwrap();
    assert_eq!((again.path, again.fetched), (pulled.path, 0));
    assert_eq!(hub.requests("GET /cdn"), [""; 0]);
}

#[test]
fn every_shard_comes_from_folders_too() {
    let parts: Vec<(String, Vec<u8>)> =
        (1..=3).map(|n| (format!("Q8 0/big-Q8_0-{n:05}-of-00003.gguf"), noise(1000 * n))).collect();
    let files: Vec<(&str, &[u8])> =
        parts.iter().map(|(path, bytes)| (path.as_str(), bytes.as_slice())).collect();
    let hub = FakeHub::new(&files);
    let cache = tempfile::tempdir().unwrap();
    let watch = Witness::default();
    let pulled = hub.hub(cache.path()).pull(&name("org/repo:Q8_0"), &watch).unwrap();
    watch.saw("selected org/repo:Q8_0 3 6000 0");
    assert!(pulled.path.ends_with("Q8 0/big-Q8_0-00001-of-00003.gguf"), "{}", pulled.path.display());
    let stored = Store::new(Some(cache.path().to_owned()), None).find("org/repo:Q8_0").unwrap().unwrap();
    assert_eq!((stored.files.len(), stored.bytes, stored.path), (3, 6000, pulled.path));
    for (file, (_, bytes)) in stored.files.iter().zip(&parts) {
        assert_eq!(&std::fs::read(file).unwrap(), bytes);
    }
}

#[test]
fn a_repository_without_all_shards_is_refused() {
    let hub = FakeHub::new(&[("m-Q8_0-00001-of-00002.gguf", b"one")]);
    let cache = tempfile::tempdir().unwrap();
    let error = hub.hub(cache.path()).pull(&name("org/repo"), &Witness::default()).unwrap_err().to_string();
    assert!(error.contains("of the 2 files") && error.contains("only 1"), "{error}");
}

#[test]
fn what_is_unclear_is_listed_with_sizes() {
    let hub = FakeHub::new(&[("m-Q8_0.gguf", &noise(2_000_000)), ("m-Q5_0.gguf", b"x")]);
    let cache = tempfile::tempdir().unwrap();
    let error = hub.hub(cache.path()).pull(&name("org/repo"), &Witness::default()).unwrap_err().to_string();
    for part in ["org/repo has no Q4_K_M", "org/repo:Q5_0", "Q8_0 (2 MB)"] {
        assert!(error.contains(part), "{error}");
    }
    assert_eq!(tree(cache.path()), [""; 0]);
}

#[test]
fn two_pulls_at_once_fetch_once() {
    let content = noise(3_000_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    // The first to come is held up, so that the second meets it.
    hub.fault(Fault::StallAfter(1_000_000));
    let cache = tempfile::tempdir().unwrap();
    let mut config = hub.config(cache.path());
    config.timeout = std::time::Duration::from_secs(1);
    let (one, two) = (Witness::default(), Witness::default());
    let pull = |watch: &Witness| Hub::new(config.clone()).pull(&name("org/repo"), watch).unwrap();
    let (a, b) = std::thread::scope(|scope| {
        let a = scope.spawn(|| pull(&one));
        let b = scope.spawn(|| pull(&two));
        (a.join().unwrap(), b.join().unwrap())
    });
    assert_eq!(a.path, b.path);
    assert_eq!(a.fetched + b.fetched, content.len() as u64, "{a:?} {b:?}");
    assert_eq!(std::fs::read(&a.path).unwrap(), content);
    let events = [one.events.lock().unwrap().clone(), two.events.lock().unwrap().clone()].concat();
    assert_eq!(events.iter().filter(|event| event.starts_with("waiting")).count(), 1, "{events:?}");
}

#[test]
fn offline_nothing_is_asked() {
    let hub = FakeHub::new(&[("m-Q4_K_M.gguf", b"content")]);
    let cache = tempfile::tempdir().unwrap();
    let offline = || Hub::new(hub.config_with(cache.path(), &[("HF_HUB_OFFLINE", "1")]));
    let error = offline().pull(&name("org/repo"), &Witness::default()).unwrap_err();
    assert!(matches!(error, Error::Offline { .. }), "{error}");
    let pulled = hub.hub(cache.path()).pull(&name("org/repo"), &Witness::default()).unwrap();
    hub.requests("");
    let again = offline().pull(&name("org/repo"), &Witness::default()).unwrap();
    assert_eq!((again.path, again.fetched), (pulled.path, 0));
    assert_eq!(hub.requests(""), [""; 0]);
}

#[test]
fn the_token_goes_to_the_hub_and_nowhere_else() {
    let hub = FakeHub::new(&[("m.gguf", b"content")]);
    let cache = tempfile::tempdir().unwrap();
    let config = hub.config_with(cache.path(), &[("HF_TOKEN", "hf_secret")]);
    Hub::new(config).pull(&name("org/repo"), &Witness::default()).unwrap();
    let log = hub.requests("");
    let (cdn, own): (Vec<_>, Vec<_>) = log.iter().partition(|line| line.contains("/cdn/"));
    assert!(own.len() >= 3 && own.iter().all(|line| line.contains("hf_secret")), "{log:?}");
    assert!(!cdn.is_empty() && !cdn.iter().any(|line| line.contains("hf_secret")), "{log:?}");
}

/// A newer commit of the repository: its file comes, the old one stays until it is removed.
#[test]
fn a_branch_that_moved_is_followed() {
    let hub = FakeHub::new(&[("m.gguf", b"old content")]);
    let cache = tempfile::tempdir().unwrap();
    hub.hub(cache.path()).pull(&name("org/repo"), &Witness::default()).unwrap();
    let newer = "f".repeat(40);
    hub.change(|state| {
        state.api = Some(format!(r#"{{"sha": "{newer}", "siblings": [{{"rfilename": "m.gguf"}}]}}"#));
    });
    // The server knows the first commit's address only.
    let error = hub.hub(cache.path()).pull(&name("org/repo"), &Witness::default()).unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    let store = Store::new(Some(cache.path().to_owned()), None);
    assert_eq!(std::fs::read(store.find("org/repo").unwrap().unwrap().path).unwrap(), b"old content");
    let removed = store.remove("org/repo").unwrap().unwrap();
    assert_eq!(removed.bytes, 11);
    assert_eq!(tree(cache.path()), [""; 0]);
}
