//! Every reference rendering of chat templates, byte for byte; where the reference fails, ours must fail too.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fmt::Write as _;
use std::path::PathBuf;

use hanzo_text::chat::ChatMessage;
use hanzo_text::template::{ChatTemplate, DateTime, RenderRequest};
use serde_json::{Map, Value};

/// The reference files; `None` (and a line) if they are not there and need not be.
fn oracles() -> Option<Vec<PathBuf>> {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/oracles/templates"));
    match std::fs::read_dir(&dir) {
        Ok(entries) => {
            let mut files: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
            files.retain(|p| p.extension().is_some_and(|e| e == "json"));
            files.sort();
            Some(files)
        }
        Err(_) => {
            let required = std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all");
            assert!(!required, "{} is missing", dir.display());
            println!("skipped: {} is missing", dir.display());
            None
        }
    }
}

fn render(file: &Value, case: &Value) -> Result<String, String> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let template =
        ChatTemplate::compile(&text(&file["template"]), &text(&file["bos_token"]), &text(&file["eos_token"]))
            .map_err(|e| e.to_string())?;
    let messages: Vec<ChatMessage> = serde_json::from_value(case["messages"].clone()).unwrap();
    let no_kwargs = Map::new();
    template
        .render(&RenderRequest {
            messages: &messages,
            tools: case["tools"].as_array().map(Vec::as_slice),
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            kwargs: Some(case["extra"].as_object().unwrap_or(&no_kwargs)),
            now: Some(DateTime::parse(&text(&file["now"])).unwrap()),
        })
        .map_err(|e| e.to_string())
}

/// The first line that differs, from both sides.
fn difference(expected: &str, found: &str) -> String {
    let at = expected.bytes().zip(found.bytes()).take_while(|(a, b)| a == b).count();
    let window = |s: &str| {
        let from = s.char_indices().map(|(i, _)| i).rfind(|&i| i <= at.saturating_sub(60)).unwrap_or(0);
        s[from..].chars().take(160).collect::<String>()
    };
    format!(
        "first difference at byte {at}\n  expected …{:?}\n  found    …{:?}",
        window(expected),
        window(found)
    )
}

#[test]
fn renderings_match_the_reference() {
    let Some(files) = oracles() else { return };
    let (mut rendered, mut failed, mut wrong) = (0, 0, String::new());
    for path in &files {
        let file: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let name = file["name"].as_str().unwrap();
        for (case_name, case) in file["cases"].as_object().unwrap() {
            let found = render(&file, case);
            match (case["expected"].as_str(), found) {
                (Some(expected), Ok(found)) if expected == found => rendered += 1,
                (None, Err(_)) => failed += 1,
                (Some(expected), Ok(found)) => {
                    writeln!(wrong, "{name}/{case_name}: {}", difference(expected, &found)).unwrap();
                }
                (Some(_), Err(error)) => writeln!(wrong, "{name}/{case_name}: failed: {error}").unwrap(),
                (None, Ok(found)) => {
                    let error = case["error"].as_str().unwrap_or("?");
                    writeln!(
                        wrong,
                        "{name}/{case_name}: the reference fails with {error}, ours gave {found:?}"
                    )
                    .unwrap();
                }
            }
        }
    }
    println!("{} templates: {rendered} renderings equal, {failed} fail as the reference does", files.len());
    assert!(wrong.is_empty(), "{wrong}");
    assert!(files.len() >= 38 && rendered >= 301 && failed >= 41, "cases are missing");
}
