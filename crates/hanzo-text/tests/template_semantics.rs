//! The template language against Python's Jinja2: `template_semantics/cases.json` is what `generate.py` beside it made
//! with Jinja2 3.1.6, a line of language features a case.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::fmt::Write as _;

use hanzo_text::template::{ChatTemplate, DateTime, RenderRequest};
use serde_json::Value;

#[test]
fn language_matches_jinja2() {
    let text = include_str!("template_semantics/cases.json");
    let file: Value = serde_json::from_str(text).unwrap();
    let mut kwargs = file["context"].as_object().unwrap().clone();
    // The request sets this name itself; the cases only need some list of messages.
    let messages: Vec<_> = serde_json::from_value(kwargs.remove("messages").unwrap()).unwrap();
    let (mut equal, mut failed, mut wrong) = (0, 0, String::new());
    for case in file["cases"].as_array().unwrap() {
        let template = case["template"].as_str().unwrap();
        let found = ChatTemplate::compile(template, "", "").and_then(|t| {
            t.render(&RenderRequest {
                messages: &messages,
                kwargs: Some(&kwargs),
                now: Some(DateTime::from_unix(0, 0)),
                ..RenderRequest::default()
            })
        });
        match (case["expected"].as_str(), found) {
            (Some(expected), Ok(found)) if expected == found => equal += 1,
            (None, Err(error)) => {
                assert!(error.line.is_some() && !error.message.is_empty(), "{template}: {error}");
                failed += 1;
            }
            (Some(expected), Ok(found)) => {
                writeln!(wrong, "{template}\n  expected {expected:?}\n  found    {found:?}").unwrap();
            }
            (Some(expected), Err(error)) => {
                writeln!(wrong, "{template}\n  expected {expected:?}\n  failed   {error}").unwrap();
            }
            (None, Ok(found)) => {
                writeln!(wrong, "{template}\n  expected {}\n  found    {found:?}", case["error"]).unwrap();
            }
        }
    }
    println!("{equal} equal, {failed} fail in both");
    assert!(wrong.is_empty(), "{wrong}");
    assert!(equal >= 111 && failed >= 90, "{equal} {failed}");
}
