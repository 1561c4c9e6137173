//! A conversation to continue, however a dialect wrote it, as a job for the engine.

use std::sync::Arc;

use hanzo_engine::SamplingParams;
use hanzo_engine::constraint::Grammar;
use hanzo_text::chat::ChatMessage;
use serde_json::{Map, Value};

use super::openai::sampling::Length;
use super::openai::tools::ToolUse;
use crate::context::Notes;
use crate::error::ApiError;
use crate::generate::{Held, Job};
use crate::model::{Conversation, LoadedModel, Prompt};

/// What is asked, checked part by part.
#[derive(Debug, Default)]
pub(crate) struct Chat {
    pub(crate) messages: Vec<ChatMessage>,
    pub(crate) tools: Option<ToolUse>,
    /// What the reply must be.
    pub(crate) format: Option<Grammar>,
    /// Variables of the template.
    pub(crate) kwargs: Map<String, Value>,
    pub(crate) sampling: SamplingParams,
    pub(crate) length: Length,
    pub(crate) max_tokens: Option<usize>,
    /// Most tokens of reasoning.
    pub(crate) reasoning_budget: Option<usize>,
}

impl Chat {
    /// The prompt that the model's template makes.
    ///
    /// # Errors
    /// What the template says against the conversation.
    pub(crate) fn prompt(&self, model: &LoadedModel) -> Result<Prompt, ApiError> {
        let conversation = Conversation {
            messages: &self.messages,
            tools: self.tools.as_ref().map(|t| t.tools.as_slice()),
            kwargs: Some(&self.kwargs),
        };
        model.chat_prompt(&conversation).map_err(|e| ApiError::at("/messages", e.to_string()))
    }

    /// The request in the engine's terms.
    ///
    /// # Errors
    /// As [`Chat::prompt`], and where the parts contradict each other.
    pub(crate) fn job(self, model: Arc<LoadedModel>, notes: &Notes) -> Result<Job, ApiError> {
        let prompt = self.prompt(&model)?;
        let family = model.family();
        let mut job = Job { sampling: self.sampling, ..Job::new(model, prompt) };
        self.length.apply(&mut job)?;
        job.max_tokens = self.max_tokens;
        job.reasoning_budget = self.reasoning_budget;
        job.tools = self.tools.as_ref().and_then(ToolUse::for_parser);
        if let Some(forced) = self.tools.as_ref().and_then(|t| t.forced(family)) {
            (job.grammar, job.family) = (Some(Held::Whole(forced.grammar)), Some(forced.family));
            job.held_calls = true;
            return Ok(job);
        }
        if job.tools.is_some() && self.format.is_some() {
            let message = "a reply that may call tools cannot be held to a format too: set tool_choice to none or required";
            return Err(ApiError::at("/response_format", message));
        }
        job.grammar = self.format.map(Held::Whole);
        if let Some(tools) = self.tools.as_ref().filter(|t| t.is_strict()) {
            job.grammar = tools.held(family);
            job.held_calls = job.grammar.is_some();
            if job.grammar.is_none() {
                notes.warn(format!("with output format {family}, strict arguments are only held to with tool_choice required or a name"));
            }
        }
        Ok(job)
    }
}
