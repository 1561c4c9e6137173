//! HTTPS: `hanzo serve --tls-cert --tls-key`, and a client that trusts nothing but its certificate.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use common::server::Server;
use common::{hanzo, run};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A certificate for localhost that signs itself, and its key; made for this test, valid until 2126:
/// `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500 -subj "/CN=hanzo test"
/// -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE`.
const CERT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls/cert.pem");
const KEY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/tls/key.pem");

fn client(trusted: &[&str]) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for path in trusted {
        roots.add(CertificateDer::from_pem_file(path).unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

/// The answer to a request, or why the connection did not come to be.
fn ask(server: &Server, config: Arc<ClientConfig>, name: &str, request: &str) -> std::io::Result<String> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let connection = ClientConnection::new(config, name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.address())?);
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    match stream.read_to_string(&mut answer) {
        // The server may close without saying so.
        Err(error) if error.kind() != ErrorKind::UnexpectedEof => Err(error),
        _ => Ok(answer),
    }
}

#[test]
fn requests_are_answered_over_tls() {
    let server = Server::start_with(&mut hanzo(), &["--tls-cert", CERT, "--tls-key", KEY]);
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let trusting = client(&[CERT]);
    let health = "GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    for name in ["localhost", "127.0.0.1"] {
        let answer = ask(&server, Arc::clone(&trusting), name, health).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    let body = r#"{"prompt": "Once", "max_tokens": 4, "stream": true}"#;
    let request = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = ask(&server, Arc::clone(&trusting), "localhost", &request).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("data: [DONE]"), "{answer}");

    // Clients can tell a stranger's server, and one that calls itself otherwise.
    assert!(ask(&server, client(&[]), "localhost", health).is_err());
    assert!(ask(&server, Arc::clone(&trusting), "example.org", health).is_err());
    // Who speaks no TLS gets no answer, and harms nobody.
    let mut plain = TcpStream::connect(server.address()).unwrap();
    plain.write_all(health.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP/"), "{answer:?}");
    assert!(ask(&server, trusting, "localhost", health).unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn files_that_do_not_fit_are_named() {
    let serve = |cert: &str, key: &str| run(&["serve", "--port", "0", "--tls-cert", cert, "--tls-key", key]);
    serve(KEY, KEY).fails(1, &["key.pem", "certificate"]);
    serve(CERT, CERT).fails(1, &["cert.pem", "private key"]);
    let other = tempfile::tempdir().unwrap();
    let broken = other.path().join("broken.pem");
    std::fs::write(&broken, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
    serve(CERT, broken.to_str().unwrap()).fails(1, &["cert.pem"]);
}
