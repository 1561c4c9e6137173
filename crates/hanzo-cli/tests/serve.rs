//! `hanzo serve` as a process: what it says, how it starts and how it ends.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{hanzo, run};

/// A running server, killed when dropped.
struct Serving {
    child: Child,
    address: String,
    /// The rest of standard error.
    log: BufReader<std::process::ChildStderr>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server on a free port and waits until it is ready.
fn serve(args: &[&str]) -> Serving {
    let mut child = hanzo().args(["serve", "--port", "0"]).args(args).stderr(Stdio::piped()).spawn().unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let mut server = Serving { child, address: String::new(), log };
    let mut line = String::new();
    loop {
        line.clear();
        assert_ne!(server.log.read_line(&mut line).unwrap(), 0, "the server ended");
        if let Some((_, address)) = line.split_once("http://") {
            address
                .trim_end_matches(['\n', '"', '}'])
                .split('"')
                .next()
                .unwrap()
                .clone_into(&mut server.address);
            return server;
        }
    }
}

fn post(address: &str, path: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    write!(
        stream,
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    stream
}

fn rest(mut stream: TcpStream) -> String {
    let mut out = String::new();
    stream.read_to_string(&mut out).unwrap();
    out
}

#[test]
fn the_built_in_model_is_served_and_its_texts_are_not_logged() {
    let mut server = serve(&["--log-format", "json", "--verbose"]);
    let body = r#"{"messages": [{"role": "user", "content": "Sesame and a fox"}], "max_tokens": 8}"#;
    let answer = rest(post(&server.address, "/v1/chat/completions", body));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let wrong = rest(post(
        &server.address,
        "/v1/chat/completions",
        r#"{"messages": [{"role": "sesame", "content": "x"}]}"#,
    ));
    assert!(wrong.starts_with("HTTP/1.1 400"), "{wrong}");
    server.child.kill().unwrap();
    let mut log = String::new();
    server.log.read_to_string(&mut log).unwrap();
    for line in log.lines() {
        assert!(serde_json::from_str::<serde_json::Value>(line).unwrap()["level"].is_string(), "{line}");
    }
    assert!(log.contains("\"replied\""), "{log}");
    assert!(!log.to_lowercase().contains("sesame"), "{log}");
}

#[cfg(unix)]
#[test]
fn the_first_signal_lets_replies_end_and_the_second_does_not() {
    let body = |n| format!(r#"{{"prompt": "Once", "max_tokens": {n}, "ignore_eos": true, "stream": true}}"#);
    let signal = |server: &Serving, name: &str| {
        let pid = server.child.id().to_string();
        assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
    };
    let mut server = serve(&[]);
    let mut stream = post(&server.address, "/v1/completions", &body(600));
    stream.read_exact(&mut [0; 300]).unwrap();
    signal(&server, "-INT");
    assert!(rest(stream).contains("[DONE]"), "the reply was complete");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));

    let mut server = serve(&[]);
    let mut stream = post(&server.address, "/v1/completions", &body(8000));
    stream.read_exact(&mut [0; 300]).unwrap();
    signal(&server, "-TERM");
    let mut line = String::new();
    while !line.contains("stopping") {
        line.clear();
        server.log.read_line(&mut line).unwrap();
    }
    // The handler of the second is there a moment after the line.
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    signal(&server, "-INT");
    assert_eq!(server.child.wait().unwrap().code(), Some(130));
    assert!(began.elapsed() < Duration::from_secs(5));
}

#[test]
fn what_cannot_be_is_said_before_the_model_is_loaded() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    run(&["serve", "--port", &port]).fails(1, &["cannot listen", &port, "--port"]);
    run(&["serve", "nothing.gguf", "--port", "0"]).fails(1, &["nothing.gguf"]);
    run(&["serve", "--port", "0", "--threads", "0"]).fails(2, &["--threads"]);
    run(&["serve", "--port", "0", "--ctx", "0"]).fails(2, &["--ctx"]);
    run(&["serve", "--port", "0", "--api-key-file", "/nonexistent"]).fails(1, &["/nonexistent"]);
    run(&["serve", "--port", "0", "--tls-cert", "x"]).fails(2, &["--tls-key"]);
    run(&["serve", "--port", "0", "--tls-cert", "/nonexistent", "--tls-key", "y"])
        .fails(1, &["/nonexistent"]);
    run(&["serve", "--port", "0", "--cors-origin", "example.org"]).fails(1, &["example.org", "https://"]);
    for bad in ["http://box.lan", "box.lan:80", ""] {
        run(&["serve", "--port", "0", "--allowed-hosts", bad]).fails(1, &[bad, "no host"]);
    }
    run(&["serve", "--port", "0", "--output-format", "klingon"]).fails(2, &["klingon", "hermes"]);
}

/// Of a server on a loopback address without keys, others are told only where the flag or its variable names them.
#[test]
fn hosts_are_those_of_this_machine_and_those_that_were_named() {
    let ask = |server: &Serving, host: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(stream, "GET /v1/models HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n").unwrap();
        rest(stream).split(' ').nth(1).unwrap().to_owned()
    };
    let plain = serve(&[]);
    assert_eq!(ask(&plain, "localhost"), "200");
    assert_eq!(ask(&plain, &plain.address), "200");
    assert_eq!(ask(&plain, "box.lan"), "403");
    let told = serve(&["--allowed-hosts", "box.lan,*.example.org", "--allowed-hosts", "10.0.0.1"]);
    for host in ["box.lan", "a.example.org", "10.0.0.1", "127.0.0.1"] {
        assert_eq!(ask(&told, host), "200", "{host}");
    }
    assert_eq!(ask(&told, "evil.example"), "403");
    assert_eq!(ask(&serve(&["--allowed-hosts", "*"]), "evil.example"), "200");
    assert_eq!(ask(&serve(&["--api-key", "sesame"]), "evil.example"), "401");
}

#[test]
fn models_of_a_folder_are_loaded_when_they_are_named() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::copy(common::TINY, dir.path().join("one.gguf")).unwrap();
    std::fs::copy(common::TINY, dir.path().join("two.gguf")).unwrap();
    std::fs::write(dir.path().join("settings.toml"), "[one]\nalias = [\"first\"]\nctx = 128\n").unwrap();
    let (folder, settings) = (dir.path().to_str().unwrap(), dir.path().join("settings.toml"));
    let server = serve(&["--models-dir", folder, "--models-config", settings.to_str().unwrap()]);
    let get = |path: &str| {
        let mut stream = TcpStream::connect(&server.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let answer = rest(stream);
        serde_json::from_str::<serde_json::Value>(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    };
    let status = |n: usize| get("/models")["data"][n]["status"]["value"].as_str().unwrap().to_owned();
    assert_eq!((status(0), status(1)), ("unloaded".to_owned(), "unloaded".to_owned()));
    let body = r#"{"model": "first", "prompt": "Once", "max_tokens": 4}"#;
    let answer = rest(post(&server.address, "/v1/completions", body));
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("\"model\":\"one\""), "{answer}");
    assert_eq!((status(0), status(1)), ("loaded".to_owned(), "unloaded".to_owned()));
    assert_eq!(get("/v1/models/one")["max_model_len"], 128);
    // What is put there later is found.
    std::fs::write(dir.path().join("noise.gguf"), "noise").unwrap();
    let noise = rest(post(&server.address, "/v1/completions", r#"{"model": "noise", "prompt": "x"}"#));
    assert!(noise.starts_with("HTTP/1.1 500") && noise.contains("model_load_failed"), "{noise}");
    let answer = rest(post(&server.address, "/v1/completions", body));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[test]
fn flags_of_several_models_are_not_ignored() {
    let empty = tempfile::tempdir().unwrap();
    let folder = empty.path().to_str().unwrap();
    run(&["serve", "--port", "0", "--models-memory", "1G"]).fails(2, &["--models-memory", "--on-demand"]);
    run(&["serve", "--port", "0", "--models-dir", "/nonexistent"])
        .fails(1, &["--models-dir", "/nonexistent"]);
    run(&["serve", "--port", "0", "--models-dir", folder]).fails(2, &["no model", "hanzo pull"]);
    run(&["serve", "--port", "0", "--models-dir", folder, "--on-demand"]).fails(2, &["--on-demand"]);
    run(&["serve", "--port", "0", "--models-dir", folder, "--name", "x"]).fails(2, &["--name"]);
    run(&["serve", "--port", "0", "--on-demand", "--models-keep-alive", "soon"]).fails(2, &["soon", "10m"]);
    let settings = empty.path().join("settings.toml");
    std::fs::write(&settings, "[a]\nctxx = 1\n").unwrap();
    run(&["serve", "--port", "0", "--on-demand", "--models-config", settings.to_str().unwrap()])
        .fails(1, &["settings.toml", "ctxx"]);
}
