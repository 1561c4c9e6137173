//! Showing a reply as it comes: reasoning apart from the answer, dimmed on a terminal, and the speed afterwards.

use anyhow::Result;
use hanzo_engine::Finish;
use hanzo_server::model::Prompt;
use hanzo_text::parse::{Event, OutputParser};

use crate::out;
use crate::session::{Reply, parse_options};

/// Which part of a reply a text belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Reasoning,
    Answer,
}

/// Reasoning, if there is any, and answer of a whole reply.
pub(super) fn parts(reply: &Reply, prompt: &Prompt) -> (Option<String>, String) {
    let Some(options) = parse_options(prompt) else { return (None, reply.text.clone()) };
    let parsed = OutputParser::parse(&reply.text, options);
    let reasoning = Some(parsed.reasoning.trim().to_owned()).filter(|r| !r.is_empty());
    (reasoning, parsed.content)
}

/// Prints a reply as it comes. On a terminal, reasoning is dimmed and control characters are made visible; elsewhere
/// reasoning stands between `<think>` and `</think>`. What is no chat is printed as it is.
pub(super) struct Printer {
    parser: Option<OutputParser>,
    shown: Option<Part>,
    ends_line: bool,
}

impl Printer {
    pub(super) fn new(prompt: &Prompt) -> Self {
        Self { parser: parse_options(prompt).map(OutputParser::new), shown: None, ends_line: true }
    }

    /// Prints a piece.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub(super) fn push(&mut self, text: &str) -> Result<()> {
        match &mut self.parser {
            None => self.print(Part::Answer, text),
            Some(parser) => {
                let events = parser.feed(text);
                self.events(events)
            }
        }
    }

    /// Ends the reply, with a line break if it has none.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub(super) fn finish(&mut self) -> Result<()> {
        if let Some(parser) = &mut self.parser {
            let events = parser.finish();
            self.events(events)?;
        }
        if self.shown == Some(Part::Reasoning) {
            self.close_reasoning()?;
        }
        if self.ends_line { Ok(()) } else { out::print("\n") }
    }

    fn events(&mut self, events: Vec<Event>) -> Result<()> {
        for event in events {
            match event {
                Event::Reasoning(text) => self.print(Part::Reasoning, &text)?,
                Event::Content(text) => self.print(Part::Answer, &text)?,
                // None were offered, so none are parsed.
                Event::CallBegan(_) | Event::Arguments(_) | Event::CallEnded(_) | Event::ToolCall(_) => {}
            }
        }
        Ok(())
    }

    fn print(&mut self, part: Part, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let terminal = out::to_terminal();
        if self.shown != Some(part) {
            match part {
                Part::Reasoning if !terminal => out::print("<think>\n")?,
                Part::Answer if self.shown == Some(Part::Reasoning) => {
                    self.close_reasoning()?;
                    out::print("\n")?;
                }
                _ => {}
            }
            self.shown = Some(part);
        }
        self.ends_line = text.ends_with('\n');
        match (terminal, part) {
            (false, _) => out::print(text),
            (true, Part::Reasoning) => out::print(&out::dim(&out::for_terminal(text))),
            (true, Part::Answer) => out::print(&out::for_terminal(text)),
        }
    }

    /// Ends the line that reasoning is on, and the reasoning.
    fn close_reasoning(&mut self) -> Result<()> {
        if !self.ends_line {
            out::print("\n")?;
        }
        self.ends_line = true;
        if out::to_terminal() { Ok(()) } else { out::print("</think>\n") }
    }
}

/// Tokens a second, of a count and its time; `None` where nothing was measured.
pub(super) fn rate(tokens: usize, seconds: f64) -> Option<f64> {
    (tokens > 0 && seconds > 0.0).then(|| tokens as f64 / seconds)
}

/// Tokens a second of prompt and reply. What the prefix cache held was not computed; the first token comes with the
/// prompt.
pub(super) fn rates(finish: &Finish) -> (Option<f64>, Option<f64>) {
    let computed = finish.prompt_tokens.saturating_sub(finish.cached_tokens);
    let later = finish.generated_tokens.saturating_sub(1);
    (rate(computed, finish.prompt_time.as_secs_f64()), rate(later, finish.generation_time.as_secs_f64()))
}

/// How fast it was, and the seed that would make it again if chance was in it.
pub(super) fn speed_line(reply: &Reply) -> String {
    let finish = &reply.end.finish;
    let (prompt, generation) = rates(finish);
    let speed = |rate: Option<f64>| rate.map_or(String::new(), |r| format!(", {r:.1} tok/s"));
    let cached = match finish.cached_tokens {
        0 => String::new(),
        n => format!(" ({n} cached)"),
    };
    let seed = reply.seed.map_or(String::new(), |seed| format!(" · seed {seed}"));
    format!(
        "prompt {} tokens{cached}{} · reply {} tokens{}{seed}",
        finish.prompt_tokens,
        speed(prompt),
        finish.generated_tokens,
        speed(generation),
    )
}

/// What the user should know about how the reply ended.
pub(super) fn ending(reply: &Reply, context: usize) -> Option<String> {
    use hanzo_engine::FinishReason;
    match reply.end.finish.reason {
        FinishReason::Length if reply.context_full => Some(format!(
            "The context of {context} tokens is full: the reply is cut off. A larger --ctx holds more."
        )),
        FinishReason::Length => {
            Some(format!("Stopped after {} tokens; --max-tokens allows more.", reply.max_tokens))
        }
        FinishReason::Cancelled => Some("Interrupted.".to_owned()),
        FinishReason::Stop | FinishReason::Deadline => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_nothing_are_not_numbers() {
        assert_eq!(rate(0, 1.0), None);
        assert_eq!(rate(3, 0.0), None);
        assert_eq!(rate(3, 1.5), Some(2.0));
    }
}
