//! Pulls that meet trouble: interruptions, wrong bytes, refusals, hostile answers, disks.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{COMMIT, FakeHub, Fault, Witness, noise, sha256, tree};
use hanzo_hub::{Error, Hub, HubConfig, Name, Pulled, Store};

fn pull(hub: &FakeHub, cache: &Path) -> Result<Pulled, Error> {
    hub.hub(cache).pull(&name(), &Witness::default())
}

fn name() -> Name {
    Name::parse("org/repo").unwrap()
}

fn impatient(hub: &FakeHub, cache: &Path) -> HubConfig {
    let mut config = hub.config(cache);
    config.retry.attempts = 1;
    config
}

fn blobs(cache: &Path) -> Vec<String> {
    tree(&cache.join("models--org--repo/blobs"))
}

#[test]
fn an_interrupted_pull_goes_on_where_it_ended() {
    let content = noise(900_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    let cache = tempfile::tempdir().unwrap();
    hub.fault(Fault::CutAfter(300_000));
    let error = Hub::new(impatient(&hub, cache.path())).pull(&name(), &Witness::default()).unwrap_err();
    assert!(matches!(error, Error::Network { .. }), "{error}");
    assert_eq!(blobs(cache.path()), [format!("{}.incomplete", sha256(&content))]);
    let store = Store::new(Some(cache.path().to_owned()), None);
    assert_eq!((store.find("org/repo").unwrap(), store.unfinished().unwrap()), (None, 300_000));
    hub.requests("");
    let watch = Witness::default();
    let pulled = hub.hub(cache.path()).pull(&name(), &watch).unwrap();
    watch.saw("selected org/repo:m 1 900000 300000");
    assert_eq!(pulled.fetched, 600_000);
    assert_eq!(hub.requests("GET /cdn"), ["GET /cdn/m.gguf from 300000"]);
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    assert_eq!(blobs(cache.path()), [sha256(&content)]);
}

/// Within one pull: cut connections, silence, a busy server.
#[test]
fn what_may_pass_is_tried_again() {
    let content = noise(900_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    hub.change(|state| state.api_faults.push_back(Fault::Status(503, "")));
    hub.fault(Fault::CutAfter(100_000)).fault(Fault::Status(500, ""));
    let cache = tempfile::tempdir().unwrap();
    let watch = Witness::default();
    let pulled = hub.hub(cache.path()).pull(&name(), &watch).unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    watch.saw("answers 503 (it says: says the hub)");
    watch.saw("answers 500");

    let other = tempfile::tempdir().unwrap();
    hub.fault(Fault::StallAfter(50_000));
    let mut config = hub.config(other.path());
    config.timeout = Duration::from_millis(300);
    let watch = Witness::default();
    let pulled = Hub::new(config).pull(&name(), &watch).unwrap();
    assert_eq!((std::fs::read(&pulled.path).unwrap(), pulled.fetched), (content, 900_000));
    watch.saw("retrying");
}

#[test]
fn what_does_not_pass_ends_after_some_tries() {
    let hub = FakeHub::new(&[("m.gguf", &noise(900_000))]);
    for _ in 0..3 {
        hub.fault(Fault::Status(503, ""));
    }
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&hub, cache.path()).unwrap_err();
    assert!(matches!(error, Error::Status { status: 503, .. }), "{error}");
    assert_eq!(hub.requests("GET /cdn").len(), 3);
}

#[test]
fn a_server_that_cannot_resume_starts_over() {
    let content = noise(500_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    hub.fault(Fault::CutAfter(200_000)).fault(Fault::NoRange);
    let cache = tempfile::tempdir().unwrap();
    let pulled = pull(&hub, cache.path()).unwrap();
    assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
    hub.fault(Fault::CutAfter(200_000)).fault(Fault::OtherRange);
    let other = tempfile::tempdir().unwrap();
    let error = pull(&hub, other.path()).unwrap_err();
    assert!(matches!(error, Error::BadAnswer { .. }), "{error}");
}

#[test]
fn a_damaged_beginning_is_fetched_anew() {
    let content = noise(500_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    let cache = tempfile::tempdir().unwrap();
    for damaged in
        [noise(400_000).iter().map(|b| b ^ 1).collect(), noise(500_000).split_off(1), vec![0; 600_000]]
    {
        let incomplete =
            cache.path().join(format!("models--org--repo/blobs/{}.incomplete", sha256(&content)));
        std::fs::create_dir_all(incomplete.parent().unwrap()).unwrap();
        std::fs::write(&incomplete, &damaged).unwrap();
        let watch = Witness::default();
        let pulled = hub.hub(cache.path()).pull(&name(), &watch).unwrap();
        assert_eq!(std::fs::read(&pulled.path).unwrap(), content);
        if damaged.len() < content.len() {
            watch.saw("restarting m.gguf");
        }
        Store::new(Some(cache.path().to_owned()), None).remove("org/repo").unwrap().unwrap();
    }
}

#[test]
fn wrong_bytes_are_never_put_in_place() {
    let content = noise(500_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    hub.fault(Fault::Damage);
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&hub, cache.path()).unwrap_err();
    let Error::WrongDigest { expected, got, .. } = &error else { panic!("{error}") };
    assert!(*expected == sha256(&content) && expected != got);
    assert_eq!(blobs(cache.path()), [""; 0]);
    assert_eq!(Store::new(Some(cache.path().to_owned()), None).list().unwrap(), []);
}

#[test]
fn wrong_sizes_are_told() {
    let content = noise(5000);
    for (announced, shown) in [(6000, 6000), (4000, 4000)] {
        let hub = FakeHub::new(&[("m.gguf", &content)]);
        hub.fault(Fault::Announce(announced));
        let cache = tempfile::tempdir().unwrap();
        let error = pull(&hub, cache.path()).unwrap_err();
        assert!(matches!(error, Error::WrongSize { expected: 5000, got, .. } if got == shown), "{error}");
        assert_eq!(blobs(cache.path()), [""; 0]);
    }
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    hub.change(|state| state.size = Some(1 << 60));
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&hub, cache.path()).unwrap_err();
    assert!(matches!(error, Error::WrongSize { expected: 5000, .. }), "{error}");
    assert_eq!(tree(cache.path()), [""; 0]);
}

#[test]
fn refusals_say_what_to_do() {
    let cases: &[(u16, &str, &[&str])] = &[
        (
            401,
            "X-Error-Message: Invalid username or password.",
            &["does not give model `org/repo`", "HF_TOKEN"],
        ),
        (403, "X-Error-Code: GatedRepo", &["says the hub", "accept its terms", "HF_TOKEN"]),
        (404, "X-Error-Code: RepoNotFound", &["has no model `org/repo`"]),
        (429, "Retry-After: 7200", &["asks to wait 7200 s", "too many requests", "HF_TOKEN"]),
        (418, "", &["answers 418", "says the hub"]),
    ];
    for (status, header, parts) in cases {
        let hub = FakeHub::new(&[("m.gguf", b"x")]);
        hub.change(|state| state.api_faults.push_back(Fault::Status(*status, header)));
        let cache = tempfile::tempdir().unwrap();
        let error = pull(&hub, cache.path()).unwrap_err().to_string();
        for part in *parts {
            assert!(error.contains(part), "no `{part}` in {error}");
        }
        assert_eq!(hub.requests("/api/").len(), 1, "asked again after {status}");
    }
    let hub = FakeHub::new(&[("m.gguf", b"x")]);
    hub.change(|state| state.api_faults.push_back(Fault::Status(429, "Retry-After: 1")));
    let cache = tempfile::tempdir().unwrap();
    let started = std::time::Instant::now();
    pull(&hub, cache.path()).unwrap();
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[test]
fn answers_that_would_do_harm_are_refused() {
    let sibling = |path: &str| format!(r#"{{"sha": "{COMMIT}", "siblings": [{{"rfilename": {path:?}}}]}}"#);
    let description = [
        sibling("../../../../evil.gguf"),
        sibling("/tmp/evil.gguf"),
        sibling("a\\..\\evil.gguf"),
        sibling("evil\u{0}.gguf"),
        r#"{"sha": "../../../evil", "siblings": []}"#.to_owned(),
        "<html>".to_owned(),
        "[".repeat(100_000),
        "{}".to_owned(),
    ];
    for api in description {
        let hub = FakeHub::new(&[]);
        hub.change(|state| state.api = Some(api.clone()));
        let cache = tempfile::tempdir().unwrap();
        let error = pull(&hub, &cache.path().join("hub")).unwrap_err();
        assert!(matches!(error, Error::BadAnswer { .. }), "{error}");
        assert!(!error.to_string().contains(['\0', '\x1b']));
        assert_eq!(tree(cache.path()), [""; 0], "{api:.80}");
    }
    for etag in ["../../../../evil", "", "abc"] {
        let hub = FakeHub::new(&[("m.gguf", b"x")]);
        hub.change(|state| state.etag = Some(etag.to_owned()));
        let cache = tempfile::tempdir().unwrap();
        let error = pull(&hub, cache.path()).unwrap_err().to_string();
        assert!(error.contains("digest"), "{error}");
    }
    for location in ["/org/repo/resolve/loop", "file:///etc/passwd", "nowhere"] {
        let hub = FakeHub::new(&[("m.gguf", b"x")]);
        hub.change(|state| state.location = Some(location.to_owned()));
        let cache = tempfile::tempdir().unwrap();
        pull(&hub, cache.path()).unwrap_err();
    }
    let hub = FakeHub::new(&[("m.gguf", b"x")]);
    let round = format!("/org/repo/resolve/{COMMIT}/m.gguf");
    hub.change(|state| state.location = Some(round));
    let cache = tempfile::tempdir().unwrap();
    let error = pull(&hub, cache.path()).unwrap_err().to_string();
    assert!(error.contains("more than 10 redirects"), "{error}");
}

#[test]
fn no_network_is_told_as_such() {
    let hub = FakeHub::new(&[]);
    let cache = tempfile::tempdir().unwrap();
    let mut config = hub.config(cache.path());
    config.endpoint = "http://127.0.0.1:1".to_owned();
    let error = Hub::new(config).pull(&name(), &Witness::default()).unwrap_err().to_string();
    assert!(error.contains("http://127.0.0.1:1/") && error.contains("refused"), "{error}");
}

#[test]
fn what_stops_a_pull_keeps_what_came() {
    let content = noise(2_000_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    let cache = tempfile::tempdir().unwrap();
    let watch = Witness { stop_at: Some(700_000), ..Witness::default() };
    let error = hub.hub(cache.path()).pull(&name(), &watch).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    let kept = Store::new(Some(cache.path().to_owned()), None).unfinished().unwrap();
    assert!((700_000..2_000_000).contains(&kept), "{kept}");
    let pulled = pull(&hub, cache.path()).unwrap();
    assert_eq!((std::fs::read(&pulled.path).unwrap(), pulled.fetched), (content, 2_000_000 - kept));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_with_figures() {
    let content = noise(500_000);
    let hub = FakeHub::new(&[("m.gguf", &content)]);
    let cache = tempfile::tempdir().unwrap();
    let blobs = cache.path().join("models--org--repo/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    std::os::unix::fs::symlink("/dev/full", blobs.join(format!("{}.incomplete", sha256(&content)))).unwrap();
    let error = pull(&hub, cache.path()).unwrap_err();
    assert!(matches!(error, Error::DiskFull { missing: 500_000, .. }), "{error}");
    assert!(error.to_string().contains("disk is full"), "{error}");
}

#[test]
fn a_cache_that_cannot_be_written_is_named() {
    let hub = FakeHub::new(&[("m.gguf", b"content")]);
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    std::fs::write(&cache, "a file").unwrap();
    let error = pull(&hub, &cache).unwrap_err();
    assert!(matches!(error, Error::Cache { .. }), "{error}");
    assert!(error.to_string().contains(cache.to_str().unwrap()), "{error}");
}

/// What is here already is found without a write, so a read-only cache serves.
#[cfg(unix)]
#[test]
fn a_read_only_cache_serves_what_it_has() {
    use std::os::unix::fs::PermissionsExt;
    let hub = FakeHub::new(&[("m.gguf", b"content")]);
    let cache = tempfile::tempdir().unwrap();
    let pulled = pull(&hub, cache.path()).unwrap();
    let set = |mode| {
        for dir in ["", "models--org--repo", "models--org--repo/blobs", "models--org--repo/refs", ".locks"] {
            std::fs::set_permissions(cache.path().join(dir), std::fs::Permissions::from_mode(mode)).unwrap();
        }
    };
    set(0o555);
    let again = pull(&hub, cache.path()).unwrap();
    assert_eq!((again.path, again.fetched), (pulled.path, 0));
    hub.change(|state| state.files.push(("n-Q4_K_M.gguf".to_owned(), b"other".to_vec())));
    let outcome = pull(&hub, cache.path());
    set(0o755);
    // Permissions do not bind the superuser.
    match outcome {
        Err(error) => assert!(error.to_string().contains("HF_HUB_CACHE can name another place"), "{error}"),
        Ok(pulled) => assert_eq!(std::fs::read(pulled.path).unwrap(), b"other"),
    }
}
