//! What is known of a call before it is complete: its name, and its arguments as far as they have come.
//!
//! A call that a grammar holds is told from its first argument's bracket on. Any other is told once it is decided that it is one: it
//! names a tool that exists, and the value of a first argument begins that the tool has. From then on the text is no content any more,
//! however it goes on. The scanner that finds a call's end has checked every byte before it comes here, so this one only keeps its
//! place.

use serde_json::{Map, Value};

use super::matcher::tool_name;
use super::{Event, ToolCall, Tools};

/// Keys whose value is the call's name.
const NAMES: [&str; 3] = ["name", "tool_name", "function"];
/// Keys whose value is the call's arguments.
const ARGUMENTS: [&str; 3] = ["arguments", "parameters", "args"];

/// A call that was told, or is being told.
#[derive(Debug)]
struct Told {
    name: String,
    /// As far as they were told.
    arguments: String,
    closed: bool,
}

/// A reader of a piece at a time of `{"name": …, "arguments": {…}}`, one or several or an array of such, or of arguments alone.
#[derive(Debug, Default)]
pub(super) struct Partial {
    /// The text is that of the arguments alone.
    bare: bool,
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
    /// Whom the arguments are for that are being read but may still turn out to be text.
    candidate: Option<String>,
    /// Arguments that were read and not told.
    waiting: Vec<u8>,
    /// Where the first argument's name ends in `waiting`.
    first_key: Option<usize>,
    /// The arguments that are being read are told as they come.
    telling: bool,
    /// The call whose text is being read was told.
    this_told: bool,
    /// A call went by untold: it and what follows are told in order when all is complete.
    mute: bool,
    told: Vec<Told>,
    events: Vec<Event>,
}

impl Partial {
    /// A reader of the arguments of a call to this tool.
    pub(super) fn of_arguments(name: String) -> Self {
        Self { bare: true, name: Some(name), ..Self::default() }
    }

    /// Whether it reads arguments alone.
    pub(super) fn is_bare(&self) -> bool {
        self.bare
    }

    /// Whether a call was told, so that the text is no content any more.
    pub(super) fn has_begun(&self) -> bool {
        !self.told.is_empty()
    }

    /// The complete calls of a text, in order: those that were told as they were told, then `rest` of them.
    pub(super) fn complete(&mut self, calls: Vec<ToolCall>) -> Vec<Event> {
        let mut events = self.ended();
        events.extend(calls.into_iter().skip(self.told.len()).map(Event::ToolCall));
        events
    }

    /// The ends of the calls that were told whole.
    pub(super) fn ended(&self) -> Vec<Event> {
        let whole = |told: &Told| {
            let arguments: Map<String, Value> = serde_json::from_str(&told.arguments).ok()?;
            Some(Event::CallEnded(ToolCall { name: told.name.clone(), arguments }))
        };
        self.told.iter().filter(|told| told.closed).filter_map(whole).collect()
    }

    /// Gives out what became known.
    pub(super) fn give(&mut self, events: &mut Vec<Event>) {
        events.append(&mut self.events);
    }

    /// Reads on in a call's text, of which there may be more than before. `certain` if it is a call whatever comes.
    pub(super) fn advance(&mut self, text: &str, certain: bool, tools: &Tools) {
        for (at, byte) in text.bytes().enumerate().skip(self.seen) {
            let was_inside = self.outside.is_some();
            let kept = self.byte(text, at, byte);
            let is_inside = self.outside.is_some();
            if is_inside && !was_inside && !self.mute {
                self.candidate = self.name.take();
                self.first_key = None;
            }
            if kept && (is_inside || was_inside) && (self.telling || self.candidate.is_some()) {
                self.waiting.push(byte);
            }
            if self.candidate.is_some() {
                self.decide(certain, tools);
            }
            if was_inside && !is_inside {
                self.tell();
                self.telling = false;
                self.candidate = None;
                self.waiting.clear();
                if self.this_told
                    && let Some(told) = self.told.last_mut()
                {
                    told.closed = true;
                }
            }
        }
        self.tell();
        self.seen = text.len();
    }

    /// Takes an argument that is said between tags: it is complete.
    pub(super) fn tagged(&mut self, name: &str, key: &str, value: &Value, tools: &Tools) {
        if self.told.is_empty() {
            if self.mute || !tools.takes(name, key) {
                // Nothing of this call is told before its end.
                self.mute = true;
                return;
            }
            self.begin(name.to_owned());
            self.waiting.push(b'{');
        } else {
            self.waiting.push(b',');
        }
        self.waiting.extend(Value::from(key).to_string().bytes());
        self.waiting.push(b':');
        self.waiting.extend(value.to_string().bytes());
        self.tell();
    }

    /// The arguments between tags are complete.
    pub(super) fn close_tagged(&mut self) {
        if self.telling {
            self.waiting.push(b'}');
            self.tell();
            self.telling = false;
            if let Some(told) = self.told.last_mut() {
                told.closed = true;
            }
        }
    }

    fn begin(&mut self, name: String) {
        self.events.push(Event::CallBegan(name.clone()));
        self.told.push(Told { name, arguments: String::new(), closed: false });
        (self.telling, self.this_told) = (true, true);
    }

    /// Tells what waits of the arguments. Texts are cut between characters, so it is whole.
    fn tell(&mut self) {
        if self.telling && !self.waiting.is_empty() {
            let text = String::from_utf8_lossy(&self.waiting).into_owned();
            self.waiting.clear();
            if let Some(told) = self.told.last_mut() {
                told.arguments.push_str(&text);
            }
            self.events.push(Event::Arguments(text));
        }
    }

    /// Whether what is being read is a call, if that can be said by now.
    fn decide(&mut self, certain: bool, tools: &Tools) {
        let name = self.candidate.as_deref().unwrap_or("");
        let is_call = if certain {
            true
        } else {
            // `{"key":` and the first byte of the value.
            let Some(end) = self.first_key.filter(|end| self.waiting.len() > end + 1) else { return };
            let key: Option<String> =
                self.waiting.get(1..end).and_then(|key| serde_json::from_slice(key).ok());
            key.is_some_and(|key| tools.takes(name, &key))
        };
        match self.candidate.take() {
            Some(name) if is_call => self.begin(name),
            _ => {
                self.mute = true;
                self.waiting.clear();
            }
        }
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
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => {
                self.stack.pop();
                if self.outside == Some(self.stack.len()) {
                    self.outside = None;
                } else if byte == b'}' && matches!(self.stack.as_slice(), [] | [b'[']) {
                    self.mute |= !self.this_told;
                }
            }
            b',' => self.wants_key = self.at_call(),
            b':' => self.wants_key = false,
            _ => {}
        }
        true
    }

    fn open(&mut self, byte: u8) {
        let begins = if self.bare {
            self.stack.is_empty()
        } else {
            let named = self.name.is_some() && self.at_call() && !self.wants_key;
            named && self.outside.is_none() && ARGUMENTS.contains(&self.key.as_str())
        };
        if byte == b'{' && begins {
            self.outside = Some(self.stack.len());
        }
        self.stack.push(byte);
        self.wants_key = byte == b'{' && self.at_call();
        if self.wants_key {
            // Another call.
            (self.this_told, self.name) = (false, None);
        }
    }

    /// Whether this is the level of a call's own keys.
    fn at_call(&self) -> bool {
        !self.bare && matches!(self.stack.as_slice(), [b'{'] | [b'[', b'{'])
    }

    fn end_string(&mut self, text: &str) {
        if self.outside.is_some_and(|outside| self.stack.len() == outside + 1) && self.first_key.is_none() {
            // With the quote that comes behind it.
            self.first_key = Some(self.waiting.len() + 1);
        }
        if !self.at_call() {
            return;
        }
        if self.wants_key {
            self.key = text.to_owned();
        } else if !self.this_told
            && (self.key == "name" || self.name.is_none() && NAMES.contains(&self.key.as_str()))
        {
            let name: Option<String> = serde_json::from_str(&format!("\"{text}\"")).ok();
            self.name = name.map(|name| tool_name(&name).to_owned());
        }
    }
}
