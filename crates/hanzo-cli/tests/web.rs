//! The web page: its modules under node, and the page itself in a browser against `hanzo serve`.
//!
//! Both need node 20 and, the second, Chromium and `npm ci` in `crates/hanzo-server/tests/web`; `scripts/test.sh` gets these.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::Path;
use std::process::Command;

use common::server::{Server, has_node, skip, version};

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../hanzo-server/tests/web");

fn browser() -> Option<String> {
    let named = std::env::var("HANZO_CHROMIUM").ok();
    let known = ["chromium", "chromium-browser", "google-chrome"].map(str::to_owned);
    let found = named.into_iter().chain(known).find(|name| version(name).is_some())?;
    // The driver wants a path.
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(&found))
        .find(|file| file.is_file())
        .and_then(|file| file.to_str().map(str::to_owned))
        .or(Some(found))
}

#[track_caller]
fn node(args: &[&str], env: &[(&str, &str)]) {
    let mut command = Command::new("node");
    command.current_dir(TESTS).args(["--test", "--test-reporter=spec"]).args(args).envs(env.iter().copied());
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn modules_of_the_page() {
    if !has_node() {
        return skip("node 20");
    }
    node(&["markdown.test.mjs", "modules.test.mjs", "colours.test.mjs"], &[]);
}

#[test]
fn the_page_in_a_browser() {
    if !has_node() {
        return skip("node 20");
    }
    let Some(browser) = browser() else { return skip("Chromium") };
    if !Path::new(TESTS).join("node_modules/playwright-core").is_dir() {
        return skip("playwright-core (npm ci in crates/hanzo-server/tests/web)");
    }
    // Slowly: a person shall be in time to stop a reply.
    let mut slow = common::hanzo();
    slow.env("HANZO_CPU_ISA", "scalar").env("HANZO_DRAFT_MAX", "0");
    let server = Server::start_with(&mut slow, &[]);
    node(&["page.mjs"], &[("HANZO_URL", &server.url), ("HANZO_CHROMIUM", &browser)]);
}
