//! A reply as text: ids become text as they arrive, and stop strings end it.
//!
//! This sits between the engine's events and whoever shows them (terminal, HTTP). It runs inside the request's sink, on
//! the engine's thread: a stop string therefore ends the request with the very token that completed it, and counts of
//! tokens never depend on how fast anybody reads.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use hanzo_text::detokenize::{DecodeOptions, StreamDecoder};
use hanzo_text::tokenizer::Tokenizer;

use crate::engine::{Cancel, Engine};
use crate::error::EngineError;
use crate::request::{Event, Finish, FinishReason, Request, Sink, Token};
use crate::stop::{StopScan, StopStrings};

/// How a reply becomes text.
#[derive(Clone, Debug, Default)]
pub struct TextOptions {
    /// Strings that end the reply; they are not part of its text.
    pub stop: StopStrings,
    /// Show control tokens by their names.
    pub render_special: bool,
}

/// What happens to a request, as text.
#[derive(Debug)]
pub enum TextEvent {
    /// A token, and the text that has become certain with it: possibly none (half a character, or what may be a stop
    /// string), possibly that of earlier tokens too.
    Token {
        /// The token.
        token: Token,
        /// Text to show.
        text: String,
    },
    /// The reply is complete.
    Finished(TextFinish),
    /// The request failed; nothing follows.
    Failed(EngineError),
}

/// The end of a reply.
#[derive(Clone, Debug)]
pub struct TextFinish {
    /// Text that had been held back.
    pub text: String,
    /// The stop string that ended it, if one did; the reason is [`FinishReason::Stop`] then.
    pub stop: Option<String>,
    /// Counts, times, and the reason.
    pub finish: Finish,
}

/// The sink of a request whose events go to `forward` as text. `forward` returns false when nobody listens any more,
/// which cancels the request.
pub fn text_sink(
    tokenizer: Arc<Tokenizer>,
    options: &TextOptions,
    mut forward: impl FnMut(TextEvent) -> bool + Send + 'static,
) -> Sink {
    // A reply continues its prompt, so a leading space is part of it.
    let decode = DecodeOptions { render_special: options.render_special, keep_leading_space: true };
    let mut decoder = StreamDecoder::new(tokenizer, decode);
    let mut scan = options.stop.scan();
    let mut failed = false;
    Box::new(move |event| match event {
        Event::Token(token) => match decoder.push(token.id) {
            Ok(text) => {
                let text = scan.push(text);
                forward(TextEvent::Token { token, text }) && scan.stop().is_none()
            }
            Err(error) => {
                failed = true;
                forward(TextEvent::Failed(EngineError::Text(error)));
                false
            }
        },
        // The failure was the last that the listener heard.
        Event::Finished(_) if failed => false,
        Event::Finished(finish) => forward(TextEvent::Finished(end(&mut decoder, &mut scan, finish))),
        Event::Failed(error) => forward(TextEvent::Failed(error)),
    })
}

fn end(decoder: &mut StreamDecoder<Arc<Tokenizer>>, scan: &mut StopScan, mut finish: Finish) -> TextFinish {
    let mut text = String::new();
    match scan.stop() {
        Some(_) => finish.reason = FinishReason::Stop,
        None => {
            text = scan.push(decoder.finish());
            text.push_str(&scan.finish());
        }
    }
    TextFinish { text, stop: scan.stop().map(str::to_owned), finish }
}

/// Text events of one request; dropping it cancels the request.
#[derive(Debug)]
pub struct TextEvents {
    receiver: Receiver<TextEvent>,
    cancel: Cancel,
}

impl TextEvents {
    /// A handle that cancels the request from elsewhere.
    #[must_use]
    pub fn cancel_handle(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl Iterator for TextEvents {
    type Item = TextEvent;

    fn next(&mut self) -> Option<TextEvent> {
        self.receiver.recv().ok()
    }
}

impl Drop for TextEvents {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

impl Engine {
    /// Queues a request and gives its events as text, as an iterator that blocks for the next.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn generate_text(
        &self,
        request: Request,
        tokenizer: Arc<Tokenizer>,
        options: &TextOptions,
    ) -> Result<TextEvents, EngineError> {
        let (sender, receiver) = channel();
        let sink = text_sink(tokenizer, options, move |event| sender.send(event).is_ok());
        let cancel = self.submit(request, sink)?;
        Ok(TextEvents { receiver, cancel })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hanzo_text::tokenizer::{TokenList, Vocab};

    use super::*;

    const FINISH: Finish = Finish {
        reason: FinishReason::Cancelled,
        prompt_tokens: 1,
        cached_tokens: 0,
        generated_tokens: 1,
        drafted_tokens: 0,
        accepted_tokens: 0,
        queue_time: Duration::ZERO,
        prompt_time: Duration::ZERO,
        generation_time: Duration::ZERO,
    };

    /// `é` is in two tokens, `\nUser:` in two others.
    const TOKENS: [&str; 6] = ["a", "Ã", "©", "ĊUs", "er:", "aa"];

    /// Feeds ids to a sink, then ends the request as the engine does. Returns what was heard.
    fn feed(ids: &[u32], stop: &[&str]) -> (Vec<TextEvent>, usize) {
        let tokens = TokenList::from_strings(TOKENS.map(str::as_bytes)).unwrap();
        let merges = TokenList::from_strings([&b"a a"[..]]).unwrap();
        let vocab =
            Vocab { model: "gpt2".into(), pre: Some("gpt-2".into()), tokens, merges, ..Vocab::default() };
        let tokenizer = Arc::new(Tokenizer::new(vocab).unwrap());
        let options = TextOptions { stop: StopStrings::new(stop).unwrap(), render_special: false };
        let (sender, receiver) = channel();
        let mut sink = text_sink(tokenizer, &options, move |event| sender.send(event).is_ok());
        let taken = ids.iter().take_while(|&&id| sink(Event::Token(Token { id, logprobs: None }))).count();
        sink(Event::Finished(FINISH));
        drop(sink);
        (receiver.iter().collect(), taken)
    }

    fn texts(events: &[TextEvent]) -> Vec<&str> {
        let text = |event| match event {
            &TextEvent::Token { ref text, .. } | &TextEvent::Finished(TextFinish { ref text, .. }) => {
                text.as_str()
            }
            TextEvent::Failed(_) => "failed",
        };
        events.iter().map(text).collect()
    }

    #[test]
    fn characters_and_stop_strings_come_whole() {
        let (events, taken) = feed(&[0, 1, 2, 3, 0, 3, 4, 0], &["\nUser:"]);
        assert_eq!(texts(&events), ["a", "", "é", "", "\nUsa", "", "", ""]);
        assert_eq!(taken, 6, "the token that completes a stop string is the last");
        let Some(TextEvent::Finished(end)) = events.last() else { panic!("no end") };
        assert_eq!((end.finish.reason, end.stop.as_deref()), (FinishReason::Stop, Some("\nUser:")));
    }

    #[test]
    fn what_was_held_back_comes_with_the_end() {
        let (events, taken) = feed(&[3, 1], &["\nUser:"]);
        assert_eq!(texts(&events), ["", "", "\nUs\u{FFFD}"]);
        assert_eq!(taken, 2);
    }

    #[test]
    fn an_id_without_a_token_fails_the_request_once() {
        let (events, taken) = feed(&[0, 99, 0], &[]);
        assert!(matches!(
            events.as_slice(),
            [TextEvent::Token { .. }, TextEvent::Failed(EngineError::Text(_))]
        ));
        assert_eq!(taken, 1);
    }
}
