//! Ten thousand clients that say nothing: alone in its process, so that its memory can be told.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::time::{Duration, Instant};

use common::start_with;
use hanzo_server::{Config, LoadSettings};
use serde_json::json;
use tokio::net::TcpStream;

const SOON: Duration = Duration::from_secs(5);

fn one_place() -> LoadSettings {
    LoadSettings { max_sequences: 1, context: Some(8192), ..LoadSettings::default() }
}

/// Bytes of memory that the process holds.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches("kB").trim().parse::<u64>().unwrap_or(0) * 1024
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_leave_room_for_others() {
    let may = hanzo_server::limits::raise_open_files().unwrap_or(1 << 20);
    // Both ends are in this process.
    let n = (may.saturating_sub(200) / 2).min(10_000) as usize;
    let server = start_with(Config::default(), &one_place()).await;
    let base = resident();
    let mut idle = Vec::with_capacity(n);
    for _ in 0..n {
        idle.push(TcpStream::connect(server.address).await.unwrap());
    }
    let grown = resident().saturating_sub(base);
    println!("{n} idle connections, {} bytes each", grown / n as u64);
    assert!(grown / n as u64 <= 32 << 10, "{grown} bytes for {n}");
    let began = Instant::now();
    assert_eq!(server.get("/health").await.status, 200);
    let answer = server.post("/v1/completions", &json!({"prompt": "Once", "max_tokens": 4})).await;
    assert_eq!(answer.status, 200);
    assert!(began.elapsed() < SOON);
    drop(idle);
}
