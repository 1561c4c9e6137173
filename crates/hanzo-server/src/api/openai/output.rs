//! What chat and completions write alike: usage, reasons, log-probabilities.

use hanzo_engine::{Token, TokenLogprob};
use hanzo_text::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::generate::{End, EndReason, Usage};

/// Why a reply ended, in OpenAI's words.
pub(crate) fn finish_reason(end: &End) -> &'static str {
    match end.reason {
        EndReason::Stop => "stop",
        EndReason::Length => "length",
        EndReason::Calls => "tool_calls",
    }
}

/// The tokens that a request took.
pub(crate) fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning,
            "accepted_prediction_tokens": usage.accepted,
            "rejected_prediction_tokens": usage.rejected,
        },
    })
}

/// A token's text; what is no valid UTF-8 on its own becomes U+FFFD (its bytes are told beside).
pub(crate) fn token_text(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap_or_default()).into_owned()
}

/// JSON has no infinities; OpenAI writes the impossible as this.
pub(crate) fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}

/// A token as an entry of `logprobs.content`.
pub(crate) fn logprobs_entry(tokenizer: &Tokenizer, token: &Token) -> Option<Value> {
    let (chosen, others) = token.logprobs.as_ref()?;
    let entry = |t: &TokenLogprob| {
        json!({
            "token": token_text(tokenizer, t.id),
            "logprob": finite(t.logprob),
            "bytes": tokenizer.token_bytes(t.id).unwrap_or_default(),
        })
    };
    let mut out = entry(chosen);
    if let Some(fields) = out.as_object_mut() {
        fields.insert("top_logprobs".to_owned(), others.iter().map(entry).collect());
    }
    Some(out)
}
