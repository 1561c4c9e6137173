//! What a model's reply says: reasoning, content and tool calls, told apart while the text arrives.
//!
//! One state machine serves all families; what differs is a table ([`Family`]). Three promises hold for every text:
//!
//! * the result does not depend on how the text was cut into deltas;
//! * text that only looks like a call stays content, byte for byte, and no text is an error;
//! * what is held back is only what may still become a mark or a call.
//!
//! A call is given out as it comes once it is decided that it is one: at once where a grammar holds it
//! ([`ParseOptions::held_calls`]), else when it has named a tool that exists and begun the value of a first argument that the tool has.
//! Until then it may turn out to be text; from then on it may only turn out to be cut off, and what cannot be a part of it is content again.
//! Arguments between tags come one by one. Calls without arguments, of unknown tools, or in syntax that is not JSON's (Python's, and Gemma's
//! braces) are given out when they are complete. White space between the parts (after reasoning, before and between calls) belongs to the
//! format and is dropped.
//!
//! The text must contain the marks: the detokenizer has to render special tokens (`<tool_call>`, `[TOOL_CALLS]`, …).

mod family;
mod literal;
mod matcher;
mod partial;
mod scan;

use std::collections::HashMap;

use serde_json::{Map, Value};

pub use family::{Family, UnknownFamily};
use family::{Rule, Step, Syntax};
use matcher::{Matcher, Outcome};

/// A call of a tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// The arguments, in the order that the model wrote them.
    pub arguments: Map<String, Value>,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// More reasoning.
    Reasoning(String),
    /// More content.
    Content(String),
    /// A call begins, and will not turn out to be text: its name. Its arguments follow, and [`Event::CallEnded`] if it is complete.
    CallBegan(String),
    /// More of the arguments of the call that began last: JSON, without white space between its tokens.
    Arguments(String),
    /// A call that was told is complete: what was told, once more.
    CallEnded(ToolCall),
    /// A complete call of which nothing was told before.
    ToolCall(ToolCall),
}

/// A whole reply.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Reply {
    /// The reasoning; empty if there was none.
    pub reasoning: String,
    /// The content; empty if there was none.
    pub content: String,
    /// The complete calls, in order.
    pub tool_calls: Vec<ToolCall>,
}

impl Reply {
    /// Adds a part.
    pub fn push(&mut self, event: Event) {
        match event {
            Event::Reasoning(text) => self.reasoning.push_str(&text),
            Event::Content(text) => self.content.push_str(&text),
            // What was said of a call before its end is said again then.
            Event::CallBegan(_) | Event::Arguments(_) => {}
            Event::CallEnded(call) | Event::ToolCall(call) => self.tool_calls.push(call),
        }
    }
}

/// The tools of a request, as far as parsing needs them.
#[derive(Debug, Clone, Default)]
pub struct Tools {
    parameters: HashMap<String, Map<String, Value>>,
}

impl Tools {
    /// Reads tools in OpenAI's form (`{"type": "function", "function": {…}}`), with or without the wrapper. What is not
    /// in this form is left out.
    pub fn from_json(tools: &[Value]) -> Self {
        let function = |tool: &Value| {
            let function = tool.get("function").unwrap_or(tool);
            let name = function.get("name")?.as_str()?.to_owned();
            let properties = function.get("parameters").and_then(|p| p.get("properties"));
            Some((name, properties.and_then(Value::as_object).cloned().unwrap_or_default()))
        };
        Self { parameters: tools.iter().filter_map(function).collect() }
    }

    /// Whether there is a tool of that name.
    pub fn has(&self, name: &str) -> bool {
        self.parameters.contains_key(name)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.parameters.is_empty()
    }

    /// Whether there is a tool of that name that has, or may have, an argument of that name.
    fn takes(&self, tool: &str, argument: &str) -> bool {
        let properties = self.parameters.get(tool);
        properties.is_some_and(|properties| properties.is_empty() || properties.contains_key(argument))
    }

    fn parameter(&self, tool: &str, name: &str) -> Option<&Value> {
        self.parameters.get(tool)?.get(name)
    }
}

/// How a reply is to be read.
#[derive(Debug, Clone)]
pub struct ParseOptions {
    /// The model's format.
    pub family: Family,
    /// The tools that may be called; with `None` nothing is a call.
    pub tools: Option<Tools>,
    /// Reasoning is told apart; otherwise its marks are content.
    pub split_reasoning: bool,
    /// A grammar holds the calls of this reply, once their mark is there (calls without a mark only in the generic format): they
    /// cannot turn out to be text, and are given out from their first bracket on. One that the reply's end cuts off stays without
    /// [`Event::CallEnded`].
    pub held_calls: bool,
    /// The prompt ended inside reasoning (see [`Capabilities::opens_reasoning`](crate::template::Capabilities)).
    pub starts_in_reasoning: bool,
}

impl Default for ParseOptions {
    fn default() -> Self {
        Self {
            family: Family::Generic,
            tools: None,
            split_reasoning: true,
            held_calls: false,
            starts_in_reasoning: false,
        }
    }
}

/// Calls that may fail for want of text at a reply's end before the rest is taken as content.
const MAX_STARVED: u32 = 32;

#[derive(Debug, Clone, Copy)]
enum Mode {
    Content,
    Reasoning { open: &'static str, close: &'static str, fresh: bool },
}

/// What may stand at a place of the content.
#[derive(Debug, Clone, Copy)]
enum Mark {
    Reasoning(&'static str, &'static str),
    Noise(&'static str),
    /// Dropped at the reply's end only.
    Closer(&'static str),
    /// Dropped right after a call.
    Trailer(&'static str),
    /// Dropped where nothing was said yet.
    Opener(&'static str),
    Call {
        opening: &'static str,
        bare: bool,
    },
}

impl Mark {
    fn text(self) -> &'static str {
        match self {
            Mark::Reasoning(open, _) => open,
            Mark::Noise(text) | Mark::Closer(text) | Mark::Trailer(text) | Mark::Opener(text) => text,
            Mark::Call { opening, .. } => opening,
        }
    }
}

/// The state machine. Feed it the reply's deltas and take the events.
#[derive(Debug)]
pub struct OutputParser {
    syntax: &'static Syntax,
    tools: Tools,
    held_calls: bool,
    holds_bare: bool,
    mode: Mode,
    /// Text that is not decided yet, from `passed` on.
    pending: String,
    /// Bytes at the beginning of `pending` that are dealt with.
    passed: usize,
    /// White space that is content only if content follows.
    blank: String,
    /// Nothing but white space since the beginning, the reasoning or the last call.
    at_start: bool,
    /// Nothing but white space since the last call.
    after_call: bool,
    /// Blank text at this point belongs to the format.
    trim: bool,
    /// Content was given out.
    spoke: bool,
    /// Readings of the pending text as a call.
    attempts: Vec<Matcher>,
    starved: u32,
    /// Marks that are possible in content, longest first.
    marks: Vec<Mark>,
}

impl OutputParser {
    /// A parser for one reply.
    pub fn new(options: ParseOptions) -> Self {
        let syntax = options.family.syntax();
        let mut marks: Vec<Mark> = syntax.noise.iter().map(|text| Mark::Noise(text)).collect();
        if let Some((open, close)) = syntax.wrapper {
            marks.extend([Mark::Opener(open), Mark::Closer(close)]);
        }
        if options.split_reasoning {
            marks.extend(syntax.reasoning.iter().map(|(open, close)| Mark::Reasoning(open, close)));
        }
        if options.tools.is_some() {
            marks.extend(syntax.trailers.iter().map(|text| Mark::Trailer(text)));
            for (rules, bare) in [(syntax.rules, false), (syntax.bare, true)] {
                marks.extend(rules.iter().map(|rule| Mark::Call { opening: opening(rule), bare }));
            }
        }
        marks.sort_by_key(|mark| std::cmp::Reverse(mark.text().len()));
        let mode = match syntax.reasoning.first() {
            Some(&(open, close)) if options.starts_in_reasoning && options.split_reasoning => {
                Mode::Reasoning { open, close, fresh: true }
            }
            _ => Mode::Content,
        };
        Self {
            syntax,
            tools: options.tools.unwrap_or_default(),
            held_calls: options.held_calls,
            holds_bare: options.family == Family::Generic,
            mode,
            pending: String::new(),
            passed: 0,
            blank: String::new(),
            at_start: true,
            after_call: false,
            trim: false,
            spoke: false,
            attempts: Vec::new(),
            starved: 0,
            marks,
        }
    }

    /// Reads a whole text.
    pub fn parse(text: &str, options: ParseOptions) -> Reply {
        let mut parser = Self::new(options);
        let mut reply = Reply::default();
        parser.feed(text).into_iter().for_each(|event| reply.push(event));
        parser.finish().into_iter().for_each(|event| reply.push(event));
        reply
    }

    /// Takes more text; gives what is decided by it.
    pub fn feed(&mut self, delta: &str) -> Vec<Event> {
        self.pending.push_str(delta);
        let mut events = Vec::new();
        self.run(false, &mut events);
        events
    }

    /// Ends the reply: what was still undecided is content, or reasoning if the reply ends inside it.
    pub fn finish(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        self.run(true, &mut events);
        if matches!(self.mode, Mode::Content) && !self.trim {
            let blank = std::mem::take(&mut self.blank);
            push_text(&mut events, Event::Content, &blank);
        }
        self.blank.clear();
        events
    }

    fn run(&mut self, last: bool, events: &mut Vec<Event>) {
        loop {
            let progressed = if !self.attempts.is_empty() {
                self.attempt(last, events)
            } else {
                match self.mode {
                    Mode::Reasoning { open, close, fresh } => {
                        self.reasoning(open, close, fresh, last, events)
                    }
                    Mode::Content => self.content(last, events),
                }
            };
            if !progressed {
                break;
            }
        }
        self.pending.drain(..self.passed);
        self.passed = 0;
    }

    /// The text that is not decided yet.
    fn rest(&self) -> &str {
        self.pending.get(self.passed..).unwrap_or("")
    }

    /// Takes the next `len` bytes of it.
    fn take(&mut self, len: usize) -> String {
        let text = self.rest().get(..len).unwrap_or("").to_owned();
        self.passed += len;
        text
    }

    /// Goes on with the readings of the pending text as a call. The first rule that holds wins, in the table's order.
    fn attempt(&mut self, last: bool, events: &mut Vec<Event>) -> bool {
        while let Some(matcher) = self.attempts.first_mut() {
            let text = self.pending.get(self.passed..).unwrap_or("");
            let outcome = matcher.advance(text, last, &self.tools);
            let certain = self.held_calls && (!matcher.is_bare() || self.holds_bare);
            matcher.partial(text, certain, &self.tools, events);
            let (len, ends) = match outcome {
                Outcome::More => return false,
                // What was given out as a call is not text too; what comes behind it is looked at afresh.
                Outcome::Fail { end, .. } if matcher.has_begun() => (end, matcher.ended()),
                Outcome::Fail { starved, .. } => {
                    self.attempts.remove(0);
                    self.starved += u32::from(starved);
                    continue;
                }
                Outcome::Done(len, calls) => (len, matcher.complete(calls)),
            };
            events.extend(ends);
            self.attempts.clear();
            self.passed += len;
            self.blank.clear();
            (self.at_start, self.trim, self.after_call) = (true, true, true);
            return true;
        }
        // No call: its first character is text, and what follows is looked at afresh.
        let first = self.rest().chars().next().map_or(0, char::len_utf8);
        let len = if self.starved >= MAX_STARVED { self.rest().len() } else { first };
        let text = self.take(len);
        self.say(&text, events);
        true
    }

    fn reasoning(
        &mut self,
        open: &'static str,
        close: &'static str,
        fresh: bool,
        last: bool,
        events: &mut Vec<Event>,
    ) -> bool {
        if fresh {
            // White space, and the opening mark if the model repeats it.
            self.passed += self.rest().len() - self.rest().trim_start().len();
            if self.rest().starts_with(open) {
                self.passed += open.len();
                return true;
            }
            if self.rest().is_empty() || (open.starts_with(self.rest()) && !last) {
                return false;
            }
            self.mode = Mode::Reasoning { open, close, fresh: false };
            return true;
        }
        let found = self.rest().find(close);
        let kept = if last { 0 } else { overlap(self.rest(), close) };
        let text = self.take(found.unwrap_or(self.rest().len() - kept));
        let solid = text.trim_end().len();
        if solid > 0 {
            let out = std::mem::take(&mut self.blank) + text.get(..solid).unwrap_or("");
            push_text(events, Event::Reasoning, &out);
        }
        self.blank.push_str(text.get(solid..).unwrap_or(""));
        if found.is_some() {
            self.passed += close.len();
            self.blank.clear();
            self.mode = Mode::Content;
            (self.at_start, self.trim) = (true, true);
        }
        found.is_some()
    }

    /// The next piece of content, up to and with a mark if there is one.
    fn content(&mut self, last: bool, events: &mut Vec<Event>) -> bool {
        let (at, mark) = self.next_mark(last);
        let text = self.take(at);
        self.say(&text, events);
        let Some(mark) = mark else { return false };
        match mark {
            Mark::Noise(text) | Mark::Closer(text) | Mark::Trailer(text) | Mark::Opener(text) => {
                self.passed += text.len();
                (self.at_start, self.trim) = (true, true);
            }
            Mark::Reasoning(open, close) => {
                self.passed += open.len();
                self.blank.clear();
                self.mode = Mode::Reasoning { open, close, fresh: true };
            }
            Mark::Call { opening: text, .. } => {
                for (rules, bare) in [(self.syntax.rules, false), (self.syntax.bare, true)] {
                    let here = rules.iter().filter(|rule| opening(rule) == text);
                    self.attempts
                        .extend(here.filter(|_| !bare || self.at_start).map(|rule| Matcher::new(rule, bare)));
                }
            }
        }
        true
    }

    /// Where the pending text has its first mark, or may have one when more has come (then without the mark).
    fn next_mark(&self, last: bool) -> (usize, Option<Mark>) {
        let mut blank = self.at_start;
        let text = self.rest();
        for (at, c) in text.char_indices() {
            let rest = text.get(at..).unwrap_or("");
            let possible = self.marks.iter().filter(|mark| self.allowed(**mark, blank));
            for mark in possible {
                // Longest first: a longer mark that may still come is waited for.
                if let Some(after) = rest.strip_prefix(mark.text()) {
                    match mark {
                        Mark::Closer(_) if !after.trim_start().is_empty() => continue,
                        Mark::Closer(_) if !last => return (at, None),
                        _ => return (at, Some(*mark)),
                    }
                }
                if !last && mark.text().starts_with(rest) {
                    return (at, None);
                }
            }
            blank &= c.is_whitespace();
        }
        (text.len(), None)
    }

    /// Whether a mark counts where `blank` says that nothing was said yet.
    fn allowed(&self, mark: Mark, blank: bool) -> bool {
        match mark {
            Mark::Reasoning(..) => blank || self.syntax.reasoning_anywhere,
            Mark::Noise(_) | Mark::Closer(_) => true,
            Mark::Trailer(_) => blank && self.after_call,
            Mark::Opener(_) => blank,
            Mark::Call { bare, .. } => blank || !bare,
        }
    }

    /// Gives out content, but for white space at its end, which may turn out to belong to the format.
    fn say(&mut self, text: &str, events: &mut Vec<Event>) {
        let kept = text.trim_end().len();
        if kept > 0 {
            let mut out = std::mem::take(&mut self.blank);
            let text = text.get(..kept).unwrap_or("");
            if self.trim && !self.spoke {
                out.clear();
                out.push_str(text.trim_start());
            } else {
                out.push_str(text);
            }
            (self.at_start, self.after_call, self.trim, self.spoke) = (false, false, false, true);
            push_text(events, Event::Content, &out);
        }
        self.blank.push_str(text.get(kept..).unwrap_or(""));
    }
}

/// Length of the longest end of the text that the mark may begin with.
fn overlap(text: &str, mark: &str) -> usize {
    let ends = mark.char_indices().map(|(i, _)| i).rev();
    ends.filter(|&n| n > 0 && n <= text.len())
        .find(|&n| mark.get(..n).is_some_and(|m| text.ends_with(m)))
        .unwrap_or(0)
}

/// The text that a rule begins with.
fn opening(rule: Rule) -> &'static str {
    match rule.first() {
        Some(Step::Lit(text) | Step::Peek(text)) => text,
        _ => "",
    }
}

fn push_text(events: &mut Vec<Event>, event: fn(String) -> Event, text: &str) {
    if !text.is_empty() {
        events.push(event(text.to_owned()));
    }
}
