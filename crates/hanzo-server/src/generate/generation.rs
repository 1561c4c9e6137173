//! A request on its way: the engine's text read into typed events, counted and logged.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use hanzo_engine::{Cancel, Finish, FinishReason, TextEvent};
use hanzo_text::parse::{Event as Parsed, OutputParser};
use serde_json::Value;

use super::event::{Call, End, EndReason, Event, Part, Reply, Usage};
use super::mailbox::Mail;
use crate::context::RequestId;
use crate::error::ApiError;
use crate::ids;
use crate::model::LoadedModel;

#[derive(Debug)]
struct Choice {
    /// `None` for plain text.
    parser: Option<OutputParser>,
    /// Calls that began.
    calls: usize,
    /// Of these, those that are whole.
    complete: usize,
    ended: bool,
}

impl Choice {
    fn read(&mut self, text: &str, last: bool) -> Vec<Part> {
        let Some(parser) = &mut self.parser else {
            return if text.is_empty() { Vec::new() } else { vec![Part::Content(text.to_owned())] };
        };
        let mut parsed = parser.feed(text);
        if last {
            parsed.extend(parser.finish());
        }
        let mut parts = Vec::new();
        parsed.into_iter().for_each(|event| self.part(event, &mut parts));
        parts
    }

    fn part(&mut self, event: Parsed, parts: &mut Vec<Part>) {
        match event {
            Parsed::Reasoning(text) => parts.push(Part::Reasoning(text)),
            Parsed::Content(text) => parts.push(Part::Content(text)),
            Parsed::CallBegan(name) => parts.push(self.call(name)),
            Parsed::Arguments(text) => parts.push(self.arguments(text)),
            // All of it was told as it came.
            Parsed::CallEnded(_) => self.complete += 1,
            Parsed::ToolCall(call) => {
                self.complete += 1;
                parts.push(self.call(call.name));
                parts.push(self.arguments(Value::Object(call.arguments).to_string()));
            }
        }
    }

    fn call(&mut self, name: String) -> Part {
        let index = self.calls;
        self.calls += 1;
        Part::Call(Call { index, id: ids::unique("call_"), name, arguments: String::new() })
    }

    fn arguments(&self, text: String) -> Part {
        Part::Arguments { call: self.calls.saturating_sub(1), text }
    }
}

/// A running request. Dropping it cancels the request.
#[derive(Debug)]
pub(crate) struct Generation {
    mail: Mail,
    cancel: Cancel,
    choices: Vec<Choice>,
    usage: Usage,
    log: Log,
}

impl Generation {
    /// A request that the engine has taken; of each choice, what reads its text (`None` for plain text).
    pub(super) fn new(mail: Mail, cancel: Cancel, parsers: Vec<Option<OutputParser>>, log: Log) -> Self {
        let choices = parsers
            .into_iter()
            .map(|parser| Choice { parser, calls: 0, complete: 0, ended: false })
            .collect();
        Self { mail, cancel, choices, usage: Usage::default(), log }
    }

    /// Replies of this request.
    pub(super) fn choices(&self) -> usize {
        self.choices.len()
    }

    /// The next event; `None` after the last choice's end, or after an error.
    pub(crate) async fn next(&mut self) -> Option<Result<Event, ApiError>> {
        if self.choices.iter().all(|c| c.ended) {
            return None;
        }
        let event = match self.mail.next().await {
            Some((choice, event)) => self.read(choice, event),
            None => Err(ApiError::internal("the engine dropped the request")),
        };
        if let Err(error) = &event {
            self.choices.iter_mut().for_each(|c| c.ended = true);
            self.log.failed(error);
        }
        Some(event)
    }

    fn read(&mut self, choice: usize, event: Result<TextEvent, ApiError>) -> Result<Event, ApiError> {
        let state = self.choices.get_mut(choice).ok_or_else(|| ApiError::internal("no such choice"))?;
        match event? {
            TextEvent::Token { token, text } => {
                let parts = state.read(&text, false);
                self.log.reply(&text);
                let reasons = parts.iter().any(|p| matches!(p, Part::Reasoning(_)));
                self.usage.reasoning += usize::from(reasons);
                Ok(Event { choice, parts, token: Some(token), end: None })
            }
            TextEvent::Finished(end) => {
                let parts = state.read(&end.text, true);
                state.ended = true;
                let reason = match end.finish.reason {
                    // Nobody shall carry out what went wrong.
                    FinishReason::Stop if state.complete > 0 => EndReason::Calls,
                    FinishReason::Stop => EndReason::Stop,
                    FinishReason::Length => EndReason::Length,
                    FinishReason::Cancelled => return Err(ApiError::internal("the request was cancelled")),
                    FinishReason::Deadline => {
                        let message = "the reply took longer than this server allows";
                        return Err(ApiError::new(StatusCode::GATEWAY_TIMEOUT, message));
                    }
                };
                self.count(&end.finish);
                let end = End { reason, stop: end.stop, finish: end.finish };
                self.log.ended(choice, &end);
                Ok(Event { choice, parts, token: None, end: Some(end) })
            }
            TextEvent::Failed(error) => Err(error.into()),
        }
    }

    fn count(&mut self, finish: &Finish) {
        let usage = &mut self.usage;
        usage.prompt = finish.prompt_tokens;
        usage.cached = finish.cached_tokens;
        usage.completion += finish.generated_tokens;
        usage.accepted += finish.accepted_tokens;
        usage.rejected += finish.drafted_tokens.saturating_sub(finish.accepted_tokens);
    }

    /// Tokens so far, of the choices that have ended.
    pub(crate) fn usage(&self) -> Usage {
        self.usage
    }

    /// Waits for all choices.
    ///
    /// # Errors
    /// What ended the request early.
    pub(crate) async fn collect(mut self) -> Result<(Vec<Reply>, Usage), ApiError> {
        let mut replies: Vec<Reply> = self.choices.iter().map(|_| Reply::default()).collect();
        while let Some(event) = self.next().await {
            let event = event?;
            if let Some(reply) = replies.get_mut(event.choice) {
                reply.push(event);
            }
        }
        Ok((replies, self.usage))
    }
}

impl Drop for Generation {
    fn drop(&mut self) {
        self.cancel.cancel();
        if self.choices.iter().any(|c| !c.ended) {
            self.log.abandoned();
        }
    }
}

/// What the log says of a request: counts and times, and no text unless asked.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) id: RequestId,
    pub(super) model: Arc<LoadedModel>,
    pub(super) began: Instant,
    /// Texts too.
    pub(super) prompts: bool,
}

impl Log {
    fn ms(&self) -> f64 {
        self.began.elapsed().as_secs_f64() * 1e3
    }

    fn ended(&self, choice: usize, end: &End) {
        let f = &end.finish;
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        tracing::info!(
            id = &*self.id.text,
            model = self.model.name,
            choice,
            reason = ?end.reason,
            prompt_tokens = f.prompt_tokens,
            cached_tokens = f.cached_tokens,
            generated_tokens = f.generated_tokens,
            queue_ms = ms(f.queue_time),
            prompt_ms = ms(f.prompt_time),
            generation_ms = ms(f.generation_time),
            "replied"
        );
        #[cfg(feature = "otel")]
        crate::otel::replied(&self.id, &self.model.name, choice, self.began.elapsed(), end);
    }

    fn failed(&self, error: &ApiError) {
        tracing::warn!(
            id = &*self.id.text,
            model = self.model.name,
            ms = self.ms(),
            "failed: {}",
            error.message
        );
        // A message can quote the request.
        #[cfg(feature = "otel")]
        crate::otel::failed(
            &self.id,
            &self.model.name,
            self.began.elapsed(),
            error.status.as_str().to_owned(),
        );
    }

    fn abandoned(&self) {
        tracing::info!(id = &*self.id.text, model = self.model.name, ms = self.ms(), "the client went away");
        #[cfg(feature = "otel")]
        crate::otel::failed(&self.id, &self.model.name, self.began.elapsed(), "the client went away");
    }

    fn reply(&self, text: &str) {
        if self.prompts && !text.is_empty() {
            tracing::info!(id = &*self.id.text, text, "reply");
        }
    }
}

#[cfg(test)]
mod tests {
    use hanzo_text::parse::{Family, ParseOptions, Tools};
    use serde_json::json;

    use super::*;

    /// Without a grammar too, a call is told as it comes, once: and one that breaks off does not swallow the next.
    #[test]
    fn calls_are_told_once_whether_they_come_whole_or_piece_by_piece() {
        let properties = json!({"type": "object", "properties": {"city": {"type": "string"}}});
        let tools = [json!({"name": "weather", "parameters": properties}), json!({"name": "now"})];
        let options = ParseOptions {
            family: Family::Hermes,
            tools: Some(Tools::from_json(&tools)),
            ..ParseOptions::default()
        };
        let mut choice =
            Choice { parser: Some(OutputParser::new(options)), calls: 0, complete: 0, ended: false };
        let mut reply = Reply::default();
        let mut steps = Vec::new();
        for piece in [
            "Well. <tool_call>{\"name\": \"weather\", \"arguments\": {\"ci",
            "ty\": \"Zü",
            "rich\"}}</tool_call>",
            "<tool_call>{\"name\": \"weather\", \"arguments\": {\"city\": 1, oops",
            "<tool_call>{\"name\": \"now\"}</tool_call>",
        ] {
            let parts = choice.read(piece, false);
            steps.push(parts.len());
            reply.push(Event { choice: 0, parts, token: None, end: None });
        }
        let parts = choice.read("", true);
        reply.push(Event { choice: 0, parts, token: None, end: None });
        // "Well."; the call and what there is of its arguments; the rest of them; another, cut off, and text; the third, whole.
        assert_eq!(steps, [1, 2, 1, 3, 2]);
        let told: Vec<(usize, &str, &str)> =
            reply.calls.iter().map(|c| (c.index, c.name.as_str(), c.arguments.as_str())).collect();
        let wanted =
            [(0, "weather", "{\"city\":\"Zürich\"}"), (1, "weather", "{\"city\":1,"), (2, "now", "{}")];
        assert_eq!(told, wanted);
        assert_eq!((reply.content.as_str(), choice.complete), ("Well.oops", 2));
        assert_eq!((reply.calls[0].input().is_some(), reply.calls[1].input()), (true, None));
    }
}
