//! Recognizing a call: a rule's steps, taken as far as the text allows and resumed when there is more.
//!
//! Nothing is looked at twice: a matcher keeps its step, its place in the text and, inside JSON or Python, the scanner's
//! state. The outcome depends on the text alone, not on how it was cut.

use serde_json::{Map, Value};

use super::family::{Pairs, Rule, Step};
use super::literal::{brace_arguments, python_calls, typed};
use super::partial::Partial;
use super::scan::{JsonScan, PythonScan, Step as Scan};
use super::{Event, ToolCall, Tools};

/// Longest call. What is longer is text.
const MAX_CALL_BYTES: usize = 1 << 20;
/// Longest name of a tool or a parameter.
const MAX_NAME_BYTES: usize = 128;
const MAX_SKIP_BYTES: usize = 128;

/// How far a matcher came.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It needs more text.
    More,
    /// The text is no call, or is one no longer from the byte `end` on, if a part of it was told. `starved` if it only lacks more text, and
    /// there is none.
    Fail { starved: bool, end: usize },
    /// These calls, in so many bytes; [`Matcher::complete`] makes events of them.
    Done(usize, Vec<ToolCall>),
}

/// What a step found.
enum Found {
    /// It ends at this offset.
    At(usize),
    More,
    Fail,
}

#[derive(Debug, Clone)]
enum Scanner {
    None,
    Json(JsonScan),
    Python(PythonScan),
}

#[derive(Debug)]
pub(super) struct Matcher {
    rule: Rule,
    /// The call must be to a tool that exists.
    known_only: bool,
    step: usize,
    /// Where the current step begins.
    from: usize,
    /// How far the current step has looked.
    seen: usize,
    scanner: Scanner,
    /// In [`Step::Calls`]: behind a call, before what follows it.
    between: bool,
    name: String,
    arguments: Map<String, Value>,
    calls: Vec<ToolCall>,
    /// Where the JSON of a call begins, and where it ends as far as it was found right.
    json: Option<(usize, usize)>,
    partial: Partial,
}

impl Matcher {
    pub(super) fn new(rule: Rule, known_only: bool) -> Self {
        Self {
            rule,
            known_only,
            step: 0,
            from: 0,
            seen: 0,
            scanner: Scanner::None,
            between: false,
            name: String::new(),
            arguments: Map::new(),
            calls: Vec::new(),
            json: None,
            partial: Partial::default(),
        }
    }

    /// Gives out what is known by now of a call that is said in JSON or between tags. The text is that of the last
    /// [`Matcher::advance`]; `certain` if it is a call whatever comes.
    pub(super) fn partial(&mut self, text: &str, certain: bool, tools: &Tools, events: &mut Vec<Event>) {
        if let Some(json) = self.json.and_then(|(from, to)| text.get(from..to)) {
            self.partial.advance(json, certain, tools);
        }
        self.partial.give(events);
    }

    /// Whether the call has no mark.
    pub(super) fn is_bare(&self) -> bool {
        self.known_only
    }

    /// Whether a part of a call was given out.
    pub(super) fn has_begun(&self) -> bool {
        self.partial.has_begun()
    }

    /// The events of complete calls, of which some were given out as they came.
    pub(super) fn complete(&mut self, calls: Vec<ToolCall>) -> Vec<Event> {
        self.partial.complete(calls)
    }

    /// The ends of the calls that were given out whole.
    pub(super) fn ended(&self) -> Vec<Event> {
        self.partial.ended()
    }

    /// Goes on with the text from the rule's beginning; `last` if there will be no more of it.
    pub(super) fn advance(&mut self, text: &str, last: bool, tools: &Tools) -> Outcome {
        loop {
            let Some(&step) = self.rule.get(self.step) else {
                return self.finish(tools);
            };
            // Judged by the place that was reached, not by how much text has come: cuts must not matter.
            if self.from > MAX_CALL_BYTES {
                return self.fail(self.from);
            }
            match self.take(step, text, last, tools) {
                Found::At(end) => {
                    self.step += 1;
                    self.from = end;
                    self.seen = end;
                    self.scanner = Scanner::None;
                }
                Found::More if text.len() > MAX_CALL_BYTES => return self.fail(self.right()),
                Found::More if last => {
                    self.end_tags();
                    return Outcome::Fail { starved: true, end: text.len() };
                }
                Found::More => return Outcome::More,
                Found::Fail => return self.fail(self.right()),
            }
        }
    }

    /// How far the text was found right: of JSON, up to the byte.
    fn right(&self) -> usize {
        self.json.map_or(self.from, |(_, end)| end.max(self.from))
    }

    fn fail(&mut self, end: usize) -> Outcome {
        self.end_tags();
        Outcome::Fail { starved: false, end }
    }

    /// Arguments between tags end with the step that reads them.
    fn end_tags(&mut self) {
        let before = self.rule.get(..self.step).unwrap_or_default();
        if before.iter().any(|step| matches!(step, Step::Pairs(_))) {
            self.partial.close_tagged();
        }
    }

    fn finish(&mut self, tools: &Tools) -> Outcome {
        self.end_tags();
        if !self.name.is_empty() {
            let name = std::mem::take(&mut self.name);
            self.calls.push(ToolCall { name, arguments: std::mem::take(&mut self.arguments) });
        }
        let calls = std::mem::take(&mut self.calls);
        // A word between tags is not yet a call: without arguments it must be the name of a tool that exists.
        // What follows one that was told is no text either.
        let told = self.has_begun();
        let plausible =
            |c: &ToolCall| told || tools.has(&c.name) || !(self.known_only || c.arguments.is_empty());
        if calls.is_empty() || !calls.iter().all(plausible) {
            return Outcome::Fail { starved: false, end: self.from };
        }
        Outcome::Done(self.from, calls)
    }

    fn take(&mut self, step: Step, text: &str, last: bool, tools: &Tools) -> Found {
        let rest = text.get(self.from..).unwrap_or("");
        match step {
            Step::Lit(literal) => self.literal(rest, literal),
            Step::Peek(literal) => match self.literal(rest, literal) {
                Found::At(_) => Found::At(self.from),
                other => other,
            },
            Step::End(literal) => match self.literal(rest, literal) {
                Found::More if last && rest.is_empty() => Found::At(self.from),
                other => other,
            },
            Step::Space => {
                let spaces = rest.len() - rest.trim_start().len();
                if spaces == rest.len() && !last { Found::More } else { Found::At(self.from + spaces) }
            }
            Step::Name => match self.word(rest, last) {
                Found::At(end) => {
                    self.name = tool_name(text.get(self.from..end).unwrap_or("")).to_owned();
                    if self.name.is_empty() { Found::Fail } else { Found::At(end) }
                }
                other => other,
            },
            Step::Word => self.word(rest, last),
            Step::Skip(literal) => match rest.find(literal) {
                Some(at) if at <= MAX_SKIP_BYTES => Found::At(self.from + at + literal.len()),
                None if rest.len() <= MAX_SKIP_BYTES + literal.len() => Found::More,
                _ => Found::Fail,
            },
            Step::Call => self.json(text, |this, json| this.add_calls(json)),
            Step::Args => {
                if !self.partial.is_bare() {
                    self.partial = Partial::of_arguments(self.name.clone());
                }
                self.json(text, |this, json| match json {
                    Value::Object(map) => {
                        this.arguments = map;
                        true
                    }
                    _ => false,
                })
            }
            Step::Calls => self.calls(text, last),
            Step::Python => self.python(text),
            Step::Pairs(pairs) => self.pairs(text, pairs, last, tools),
            Step::Braces { quote, close } => match find_from(text, &mut self.seen, self.from, close) {
                Some(at) => match brace_arguments(text.get(self.from..at).unwrap_or(""), quote) {
                    Some(map) => {
                        self.arguments = map;
                        Found::At(at)
                    }
                    None => Found::Fail,
                },
                None if rest.is_empty() || rest.starts_with('{') => Found::More,
                None => Found::Fail,
            },
        }
    }

    fn literal(&self, rest: &str, literal: &str) -> Found {
        if rest.starts_with(literal) {
            Found::At(self.from + literal.len())
        } else if literal.starts_with(rest) {
            Found::More
        } else {
            Found::Fail
        }
    }

    /// A run of characters that names are made of.
    fn word(&self, rest: &str, last: bool) -> Found {
        let len = rest
            .find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ':' | '/')))
            .unwrap_or(rest.len());
        if len > MAX_NAME_BYTES || (len == 0 && !rest.is_empty()) {
            Found::Fail
        } else if len == rest.len() && !last {
            Found::More
        } else {
            Found::At(self.from + len)
        }
    }

    /// A JSON object or array; `accept` says whether it is the right one.
    fn json(&mut self, text: &str, accept: impl FnOnce(&mut Self, Value) -> bool) -> Found {
        if !matches!(self.scanner, Scanner::Json(_)) {
            self.scanner = Scanner::Json(JsonScan::new());
        }
        let Scanner::Json(scan) = &mut self.scanner else { return Found::Fail };
        let begin = self.json.map_or(self.from, |(begin, _)| begin);
        for byte in text.bytes().skip(self.seen) {
            self.json = Some((begin, self.seen));
            // Between characters.
            if self.seen > MAX_CALL_BYTES && byte & 0xc0 != 0x80 {
                return Found::Fail;
            }
            self.seen += 1;
            match scan.push(byte) {
                Scan::More => {}
                Scan::Fail => return Found::Fail,
                Scan::Done => {
                    let end = self.seen;
                    self.json = Some((begin, end));
                    let json = text.get(self.from..end).and_then(|t| serde_json::from_str(t).ok());
                    let taken = json.is_some_and(|json| accept(self, json));
                    return if taken { Found::At(end) } else { Found::Fail };
                }
            }
        }
        self.json = Some((begin, self.seen));
        Found::More
    }

    /// One or more JSON values that say calls, with white space or commas between them.
    fn calls(&mut self, text: &str, last: bool) -> Found {
        loop {
            if self.between {
                let rest = text.get(self.from..).unwrap_or("");
                let next = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
                if next.is_empty() && !last {
                    return Found::More;
                }
                if !next.starts_with('{') {
                    return Found::At(self.from);
                }
                self.from = text.len() - next.len();
                self.seen = self.from;
                self.between = false;
            }
            match self.json(text, |this, json| this.add_calls(json)) {
                Found::At(end) => {
                    self.from = end;
                    self.seen = end;
                    self.scanner = Scanner::None;
                    self.between = true;
                }
                other => return other,
            }
        }
    }

    fn python(&mut self, text: &str) -> Found {
        if !matches!(self.scanner, Scanner::Python(_)) {
            self.scanner = Scanner::Python(PythonScan::new());
        }
        let Scanner::Python(scan) = &mut self.scanner else { return Found::Fail };
        for byte in text.bytes().skip(self.seen) {
            self.seen += 1;
            match scan.push(byte) {
                Scan::More => {}
                Scan::Fail => return Found::Fail,
                Scan::Done => {
                    let end = self.seen;
                    let Some(calls) = text.get(self.from..end).and_then(python_calls) else {
                        return Found::Fail;
                    };
                    for (name, arguments) in calls {
                        // Llama writes its built-in tools as methods.
                        let name = name.strip_suffix(".call").unwrap_or(&name).to_owned();
                        self.calls.push(ToolCall { name, arguments });
                    }
                    return Found::At(end);
                }
            }
        }
        Found::More
    }

    /// Any number of tagged arguments. `from` moves past each complete one.
    fn pairs(&mut self, text: &str, pairs: &Pairs, last: bool, tools: &Tools) -> Found {
        loop {
            let rest = text.get(self.from..).unwrap_or("");
            let trimmed = rest.trim_start();
            if !trimmed.starts_with(pairs.open) {
                // Another may begin here, or something else.
                let undecided = pairs.open.starts_with(trimmed) && !(trimmed.is_empty() && last);
                return if undecided { Found::More } else { Found::At(self.from) };
            }
            let key_at = text.len() - trimmed.len() + pairs.open.len();
            let after = text.get(key_at..).unwrap_or("");
            let Some(key_len) = after.find(pairs.key_end) else {
                let most = MAX_NAME_BYTES + pairs.key_end.len();
                return if after.len() > most { Found::Fail } else { Found::More };
            };
            if key_len > MAX_NAME_BYTES {
                return Found::Fail;
            }
            let key = after.get(..key_len).unwrap_or("");
            let opened = key_at + key_len + pairs.key_end.len();
            let head = text.get(opened..).unwrap_or("");
            let Some(value_at) = head.find(pairs.value_open) else {
                let most = MAX_SKIP_BYTES + pairs.value_open.len();
                return if head.len() > most { Found::Fail } else { Found::More };
            };
            if value_at > MAX_SKIP_BYTES {
                return Found::Fail;
            }
            let value_from = opened + value_at + pairs.value_open.len();
            let Some(close) = find_from(text, &mut self.seen, value_from, pairs.value_close) else {
                return Found::More;
            };
            let value = text.get(value_from..close).unwrap_or("");
            // The newlines next to the tags belong to the tags.
            let value = value.strip_prefix('\n').unwrap_or(value);
            let value = value.strip_suffix('\n').unwrap_or(value);
            // Judged before it is told, so that cuts do not matter.
            if close + pairs.value_close.len() > MAX_CALL_BYTES {
                return Found::Fail;
            }
            let value = typed(value, tools.parameter(&self.name, key));
            self.partial.tagged(&self.name, key, &value, tools);
            self.arguments.insert(key.to_owned(), value);
            self.from = close + pairs.value_close.len();
            self.seen = self.from;
        }
    }

    /// Takes `{"name": …, "arguments": …}`, the spellings of it that models use, or an array of such.
    fn add_calls(&mut self, json: Value) -> bool {
        match json {
            Value::Array(items) => !items.is_empty() && items.into_iter().all(|item| self.add_call(item)),
            other => self.add_call(other),
        }
    }

    fn add_call(&mut self, json: Value) -> bool {
        let Value::Object(mut object) = json else { return false };
        // OpenAI's form has the call inside `function`.
        if let Some(Value::Object(inner)) = object.get_mut("function") {
            object = std::mem::take(inner);
        }
        let name = ["name", "tool_name", "function"].iter().find_map(|key| match object.get(*key) {
            Some(Value::String(name)) => Some(tool_name(name).to_owned()),
            _ => None,
        });
        let Some(name) = name.filter(|n| !n.is_empty() && n.len() <= MAX_NAME_BYTES) else { return false };
        let arguments = ["arguments", "parameters", "args"].iter().find_map(|key| object.shift_remove(*key));
        let arguments = match arguments {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(map)) => map,
            Some(Value::String(text)) => match serde_json::from_str(&text) {
                Ok(Value::Object(map)) => map,
                _ => return false,
            },
            Some(_) => return false,
        };
        self.calls.push(ToolCall { name, arguments });
        true
    }
}

/// The name without the wrapping that Kimi and others put around it: `functions.f:0`.
pub(super) fn tool_name(name: &str) -> &str {
    let name = name.strip_prefix("functions.").unwrap_or(name);
    match name.rsplit_once(':') {
        Some((head, number)) if !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) => head,
        _ => name,
    }
}

/// Finds `what` in the text from `from` on, without looking again at what `seen` says was looked at.
fn find_from(text: &str, seen: &mut usize, from: usize, what: &str) -> Option<usize> {
    let mut start = from.max(seen.saturating_sub(what.len()));
    while !text.is_char_boundary(start) {
        start -= 1;
    }
    let found = text.get(start..)?.find(what).map(|at| at + start);
    *seen = text.len();
    found
}
