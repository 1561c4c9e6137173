//! What templates are found to understand, and requests brought into that form.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

use std::path::PathBuf;

use hanzo_text::chat::ChatMessage;
use hanzo_text::template::{Adaptation, ChatTemplate, DateTime, RenderRequest};
use serde_json::{Value, json};

fn oracle_files() -> Vec<Value> {
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/oracles/templates"));
    let Ok(entries) = std::fs::read_dir(&dir) else {
        assert!(!std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all"), "{} is missing", dir.display());
        println!("skipped: {} is missing", dir.display());
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.map(|e| e.unwrap().path()).collect();
    paths.sort();
    paths.iter().map(|p| serde_json::from_str(&std::fs::read_to_string(p).unwrap()).unwrap()).collect()
}

fn compile(file: &Value) -> ChatTemplate {
    let text = |key: &str| file[key].as_str().unwrap();
    ChatTemplate::compile(text("template"), text("bos_token"), text("eos_token")).unwrap()
}

/// Where the reference renders calls with objects but fails with strings, or the reverse, the probe must have found
/// out; and a client's string arguments must then render as the objects do.
#[test]
fn arguments_arrive_in_the_form_the_template_needs() {
    let mut adapted = 0;
    for file in oracle_files() {
        let template = compile(&file);
        let (name, cases) = (file["name"].as_str().unwrap(), &file["cases"]);
        let (object, string) = (&cases["tools_roundtrip"], &cases["tools_roundtrip_string_args"]);
        let capabilities = template.capabilities();
        println!("{name}: {capabilities:?}");
        let works = |case: &Value| case["expected"].is_string();
        if works(object) != works(string) {
            assert_eq!(capabilities.object_arguments, works(object), "{name}: {capabilities:?}");
            assert_eq!(capabilities.string_arguments, works(string), "{name}: {capabilities:?}");
        }
        if !capabilities.tools || !capabilities.tool_calls {
            continue;
        }
        // The reference's conversation in the form that suits the template, passed in the other form.
        let (case, change) = if capabilities.object_arguments {
            (object, Adaptation::ArgumentsParsed)
        } else {
            (string, Adaptation::ArgumentsSerialized)
        };
        let Some(expected) = case["expected"].as_str() else { continue };
        let mut messages: Vec<ChatMessage> = serde_json::from_value(case["messages"].clone()).unwrap();
        for message in &mut messages {
            let Some(calls) = message.fields_mut().get_mut("tool_calls") else { continue };
            for call in calls.as_array_mut().unwrap() {
                let arguments = &mut call["function"]["arguments"];
                *arguments = match arguments.as_str() {
                    Some(text) => serde_json::from_str(text).unwrap(),
                    None => json!(arguments.to_string()),
                };
            }
        }
        let request = RenderRequest {
            messages: &messages,
            tools: case["tools"].as_array().map(Vec::as_slice),
            add_generation_prompt: case["add_generation_prompt"].as_bool().unwrap(),
            kwargs: None,
            now: Some(DateTime::parse(file["now"].as_str().unwrap()).unwrap()),
        };
        let found = template.render_adapted(&request).unwrap();
        assert_eq!(found.text, expected, "{name}: {capabilities:?} {:?}", found.changes);
        let understood = capabilities.object_arguments || capabilities.string_arguments;
        assert_eq!(found.changes, if understood { vec![change] } else { vec![] }, "{name}");
        adapted += 1;
    }
    println!("{adapted} templates");
    assert!(adapted == 0 || adapted >= 20, "{adapted}");
}

fn render(source: &str, messages: &[ChatMessage], tools: Option<&[Value]>) -> (String, Vec<Adaptation>) {
    let template = ChatTemplate::compile(source, "", "").unwrap();
    let request = RenderRequest { messages, tools, ..RenderRequest::default() };
    let adapted = template.render_adapted(&request).unwrap();
    (adapted.text, adapted.changes)
}

const PLAIN: &str = "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}";

#[test]
fn what_suits_the_template_is_not_touched() {
    let messages = [ChatMessage::system("s"), ChatMessage::user("u")];
    assert_eq!(render(PLAIN, &messages, None), ("system:s;user:u;".into(), vec![]));
}

#[test]
fn parts_are_joined_for_templates_that_print_content() {
    let parts = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let messages = [ChatMessage::user("").with("content", parts)];
    assert_eq!(render(PLAIN, &messages, None), ("user:a\nb;".into(), vec![Adaptation::ContentJoined]));
}

#[test]
fn text_is_split_for_templates_that_walk_parts() {
    let source = "{% for m in messages %}{% for p in m.content %}{{ p.text }}{% endfor %}{% endfor %}";
    let found = render(source, &[ChatMessage::user("hello")], None);
    assert_eq!(found, ("hello".into(), vec![Adaptation::ContentSplit]));
}

#[test]
fn system_goes_into_the_first_user_message_where_there_is_no_system_role() {
    let source = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}{{ m.role }}:{{ m.content }};{% endfor %}";
    let messages = [ChatMessage::system("s"), ChatMessage::user("u"), ChatMessage::user("v")];
    assert_eq!(
        render(source, &messages, None),
        ("user:s\n\nu;user:v;".into(), vec![Adaptation::SystemMerged])
    );
}

#[test]
fn templates_that_loop_over_tools_get_an_empty_list() {
    let source = "{% for t in tools %}{{ t.function.name }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}";
    assert_eq!(render(source, &[ChatMessage::user("u")], None), ("u".into(), vec![Adaptation::EmptyTools]));
}

#[test]
fn ignored_tools_are_told() {
    let tools = [json!({"type": "function", "function": {"name": "f"}})];
    let found = render(PLAIN, &[ChatMessage::user("u")], Some(&tools));
    assert_eq!(found, ("user:u;".into(), vec![Adaptation::ToolsIgnored]));
}
