//! One prompt, one reply.

use anyhow::Result;
use hanzo_engine::FinishReason;
use hanzo_server::model::Prompt;
use hanzo_text::chat::ChatMessage;
use serde_json::{Value, json};

use super::{Manner, show};
use crate::failure::{Interrupted, usage};
use crate::model::Source;
use crate::out;
use crate::session::{Reply, Session, Settings};

/// Replies to `text` and prints the reply.
///
/// # Errors
/// A prompt that cannot be made or does not fit, a step that failed, standard output that cannot be written;
/// [`Interrupted`] after Ctrl-C.
pub(super) fn run(
    session: &Session,
    settings: &Settings,
    manner: Manner,
    system: Option<&str>,
    text: &str,
    as_chat: bool,
) -> Result<()> {
    let prompt = if as_chat {
        let mut messages: Vec<ChatMessage> = system.map(ChatMessage::system).into_iter().collect();
        messages.push(ChatMessage::user(text));
        session.chat_prompt(&messages)?
    } else {
        if system.is_some() {
            return Err(usage("--system needs a chat format, which this model does not have"));
        }
        session.text_prompt(text)?
    };
    if !manner.quiet {
        super::conversation::say_changes(&prompt.changes);
    }
    let reply = if manner.json {
        session.reply(&prompt, settings, &mut |_| Ok(()))?
    } else {
        let mut printer = show::Printer::new(&prompt);
        let reply = session.reply(&prompt, settings, &mut |text| printer.push(text))?;
        printer.finish()?;
        reply
    };
    if manner.json {
        out::json(&as_json(session, &prompt, &reply))?;
    } else if let Some(ending) = show::ending(&reply, session.engine().info().max_context)
        && !manner.quiet
    {
        out::aside(format_args!("{ending}"));
    }
    if manner.speed {
        out::aside(format_args!("{}", show::speed_line(&reply)));
    }
    if reply.was_interrupted() { Err(anyhow::Error::new(Interrupted)) } else { Ok(()) }
}

/// The reply as the object that `--json` prints.
fn as_json(session: &Session, prompt: &Prompt, reply: &Reply) -> Value {
    let finish = &reply.end.finish;
    let (reasoning, text) = show::parts(reply, prompt);
    let (prompt_rate, generation_rate) = show::rates(finish);
    let seconds = |d: std::time::Duration| (d.as_secs_f64() * 1e6).round() / 1e6;
    let path = match &session.source {
        Source::BuiltIn => Value::Null,
        Source::File(path) => Value::from(path.display().to_string()),
    };
    let info = session.engine().info();
    let reason = match finish.reason {
        FinishReason::Stop => "stop",
        FinishReason::Length if reply.context_full => "context_full",
        FinishReason::Length => "length",
        FinishReason::Cancelled => "cancelled",
        FinishReason::Deadline => "deadline",
    };
    json!({
        "model": {
            "name": session.source.name(),
            "path": path,
            "architecture": info.architecture,
            "type": session.file_type,
            "context": info.max_context,
        },
        "text": text,
        "reasoning": reasoning,
        "ids": reply.ids,
        "finish_reason": reason,
        "stop": reply.end.stop,
        "chat": prompt.chat.is_some(),
        "seed": reply.seed,
        "usage": {
            "prompt_tokens": finish.prompt_tokens,
            "completion_tokens": finish.generated_tokens,
            "total_tokens": finish.prompt_tokens + finish.generated_tokens,
        },
        "timings": {
            "load_s": seconds(session.load_time),
            "prompt_s": seconds(finish.prompt_time),
            "generation_s": seconds(finish.generation_time),
            "prompt_tok_per_s": prompt_rate,
            "generation_tok_per_s": generation_rate,
        },
        "device": info.device,
    })
}
