//! Bringing a client's request into the form that a template understands, and saying what was changed.

use serde_json::{Map, Value as Json};

use super::jinja::budget::Budget;
use super::jinja::print::{JsonStyle, to_json};
use super::jinja::value::Value;
use super::{Capabilities, ChatTemplate, RenderRequest, TemplateResult};
use crate::chat::{ChatMessage, Content};

/// A change that was made to a request before it was rendered, or a part of it that the template does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Adaptation {
    /// Arguments of tool calls came as strings of JSON and were passed as objects.
    ArgumentsParsed,
    /// Arguments of tool calls came as objects and were passed as strings of JSON.
    ArgumentsSerialized,
    /// Content came in parts and was passed as a string.
    ContentJoined,
    /// Content came as a string and was passed in parts.
    ContentSplit,
    /// The template has no system role: the system message was put before the first user message.
    SystemMerged,
    /// The template does not show tools: the model does not see them.
    ToolsIgnored,
    /// The template fails without tools: it was given an empty list of them.
    EmptyTools,
}

/// A rendering and what had to be changed for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adapted {
    /// The prompt.
    pub text: String,
    /// Each kind of change once, in the order of [`Adaptation`].
    pub changes: Vec<Adaptation>,
}

impl ChatTemplate {
    /// Renders a request as an OpenAI client sends it, changed where the template needs it.
    ///
    /// # Errors
    /// As [`render`](Self::render).
    pub fn render_adapted(&self, request: &RenderRequest<'_>) -> TemplateResult<Adapted> {
        let mut messages = request.messages.to_vec();
        let mut changes = Vec::new();
        let mut note = |change: Adaptation| {
            if !changes.contains(&change) {
                changes.push(change);
            }
        };
        let capabilities = self.capabilities();
        for message in &mut messages {
            adapt_arguments(message, capabilities, &mut note);
            adapt_content(message, capabilities, &mut note);
        }
        if !capabilities.system_role {
            merge_system(&mut messages, &mut note);
        }
        if request.tools.is_some_and(|tools| !tools.is_empty()) && !capabilities.tools {
            note(Adaptation::ToolsIgnored);
        }
        let mut tools = request.tools;
        if tools.is_none() && capabilities.needs_tools {
            tools = Some(&[]);
            note(Adaptation::EmptyTools);
        }
        let text = self.render(&RenderRequest { messages: &messages, tools, ..request.clone() })?;
        Ok(Adapted { text, changes })
    }
}

fn adapt_arguments(
    message: &mut ChatMessage,
    capabilities: &Capabilities,
    note: &mut impl FnMut(Adaptation),
) {
    let Some(Json::Array(calls)) = message.fields_mut().get_mut("tool_calls") else { return };
    for call in calls {
        // Some clients leave the wrapper out.
        let function = match call.get_mut("function") {
            Some(Json::Object(function)) => function,
            _ => match call {
                Json::Object(call) => call,
                _ => continue,
            },
        };
        let Some(arguments) = function.get_mut("arguments") else { continue };
        match arguments {
            Json::String(text) if capabilities.object_arguments => {
                // What is no object stays a string: the template says whether it can live with it.
                let text = if text.trim().is_empty() { "{}" } else { text.as_str() };
                if let Ok(parsed @ Json::Object(_)) = serde_json::from_str::<Json>(text) {
                    *arguments = parsed;
                    note(Adaptation::ArgumentsParsed);
                }
            }
            Json::Object(_) if !capabilities.object_arguments && capabilities.string_arguments => {
                // With the spaces that Python writes and models were trained on.
                if let Some(text) = python_json(arguments) {
                    *arguments = Json::String(text);
                    note(Adaptation::ArgumentsSerialized);
                }
            }
            _ => {}
        }
    }
}

fn python_json(json: &Json) -> Option<String> {
    let budget = Budget::for_request(super::json_size(json), 1);
    let value = Value::from_json(json).ok()?;
    to_json(&value, &JsonStyle::default(), &budget).ok()
}

fn adapt_content(message: &mut ChatMessage, capabilities: &Capabilities, note: &mut impl FnMut(Adaptation)) {
    match message.content() {
        Content::Parts(parts)
            if !capabilities.parts_content && parts.iter().all(|p| p.get("text").is_some()) =>
        {
            let text = message.content_text();
            message.fields_mut().insert("content".into(), text.into());
            note(Adaptation::ContentJoined);
        }
        Content::Text(text) if !capabilities.string_content && capabilities.parts_content => {
            let part: Map<String, Json> =
                [("type".to_owned(), Json::from("text")), ("text".to_owned(), Json::from(text))]
                    .into_iter()
                    .collect();
            message.fields_mut().insert("content".into(), Json::Array(vec![Json::Object(part)]));
            note(Adaptation::ContentSplit);
        }
        _ => {}
    }
}

/// Puts the text of system messages before the first user message.
fn merge_system(messages: &mut Vec<ChatMessage>, note: &mut impl FnMut(Adaptation)) {
    let is_system = |m: &ChatMessage| matches!(m.role(), "system" | "developer");
    let Some(user) = messages.iter().position(|m| m.role() == "user") else { return };
    let texts: Vec<String> =
        messages.iter().filter(|m| is_system(m)).map(ChatMessage::content_text).collect();
    let Some(message) = messages.get_mut(user).filter(|_| !texts.is_empty()) else { return };
    let system = texts.join("\n\n");
    match message.content() {
        Content::Parts(parts) => {
            let mut merged = vec![serde_json::json!({"type": "text", "text": system + "\n\n"})];
            merged.extend(parts.iter().cloned());
            message.fields_mut().insert("content".into(), Json::Array(merged));
        }
        _ => {
            let text = format!("{system}\n\n{}", message.content_text());
            message.fields_mut().insert("content".into(), text.into());
        }
    }
    messages.retain(|m| !is_system(m));
    note(Adaptation::SystemMerged);
}
