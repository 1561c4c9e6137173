//! What is known of a call before it is complete: its name, and its arguments as far as they have come.
//!
//! For calls that a grammar holds, which cannot turn out to be text. The scanner that finds a call's end has checked every byte
//! before it comes here, so this one only keeps its place.

use super::Event;
use super::matcher::tool_name;

/// Keys whose value is the call's arguments.
const ARGUMENTS: [&str; 3] = ["arguments", "parameters", "args"];

/// A reader of `{"name": …, "arguments": {…}}`, or of an array of such, a piece at a time.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// Bytes that were looked at.
    seen: usize,
    /// Opening brackets that are not closed yet.
    stack: Vec<u8>,
    /// Where the string begins that the last byte is in, behind its quote.
    string: Option<usize>,
    escaped: bool,
    /// The next string of a call's own level is a key.
    wants_key: bool,
    key: String,
    name: Option<String>,
    /// Brackets that were open before the arguments that are being read.
    outside: Option<usize>,
    has_begun: bool,
}

impl Partial {
    /// Whether a call was given out, so that the text is no content any more.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Reads on in a call's text, of which there may be more than before; what became known is given out.
    pub(super) fn advance(&mut self, text: &str, events: &mut Vec<Event>) {
        let mut arguments = Vec::new();
        for (at, byte) in text.bytes().enumerate().skip(self.seen) {
            let was_inside = self.outside.is_some();
            let kept = self.byte(text, at, byte);
            let is_inside = self.outside.is_some();
            if is_inside && !was_inside {
                self.has_begun = true;
                events.push(Event::CallBegan(self.name.take().unwrap_or_default()));
            }
            if kept && (is_inside || was_inside) {
                arguments.push(byte);
            }
            if was_inside && !is_inside {
                give(&mut arguments, events);
            }
        }
        give(&mut arguments, events);
        self.seen = text.len();
    }

    /// Takes a byte; `false` for white space between tokens.
    fn byte(&mut self, text: &str, at: usize, byte: u8) -> bool {
        if let Some(from) = self.string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => {
                    self.string = None;
                    self.end_string(text.get(from..at).unwrap_or(""));
                }
                _ => {}
            }
            return true;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => return false,
            b'"' => self.string = Some(at + 1),
            b'{' | b'[' => {
                let named = self.name.is_some() && self.at_call() && !self.wants_key;
                if byte == b'{' && named && self.outside.is_none() && ARGUMENTS.contains(&self.key.as_str()) {
                    self.outside = Some(self.stack.len());
                }
                self.stack.push(byte);
                self.wants_key = byte == b'{' && self.at_call();
            }
            b'}' | b']' => {
                self.stack.pop();
                if self.outside == Some(self.stack.len()) {
                    self.outside = None;
                }
            }
            b',' => self.wants_key = self.at_call(),
            b':' => self.wants_key = false,
            _ => {}
        }
        true
    }

    /// Whether this is the level of a call's own keys.
    fn at_call(&self) -> bool {
        matches!(self.stack.as_slice(), [b'{'] | [b'[', b'{'])
    }

    fn end_string(&mut self, text: &str) {
        if !self.at_call() {
            return;
        }
        if self.wants_key {
            self.key = text.to_owned();
        } else if self.key == "name" {
            let name: Option<String> = serde_json::from_str(&format!("\"{text}\"")).ok();
            self.name = name.map(|name| tool_name(&name).to_owned());
        }
    }
}

/// Gives out more of the arguments. Texts are cut between characters, so these are whole.
fn give(arguments: &mut Vec<u8>, events: &mut Vec<Event>) {
    if !arguments.is_empty() {
        let text = String::from_utf8_lossy(arguments).into_owned();
        events.push(Event::Arguments(text));
        arguments.clear();
    }
}
