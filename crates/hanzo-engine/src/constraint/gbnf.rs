//! GBNF, llama.cpp's grammar notation, parsed and rewritten in Lark's.
//!
//! A rule that no rule leads back to describes a regular language and becomes a terminal, so that its text is matched as
//! one piece whatever its parts look like; the others become rules. Depth, size and repetition are bounded.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

/// Deepest nesting of groups.
const MAX_DEPTH: usize = 64;
/// Most rules.
const MAX_RULES: usize = 2000;
/// Greatest number of a repetition.
const MAX_REPEAT: u32 = 2000;

/// What a rule says.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Text(String),
    /// A class, as a regular expression.
    Class(String),
    Rule(usize),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    Repeat(Box<Node>, u32, Option<u32>),
}

/// The grammar in Lark's notation, its first rule `start`.
pub(super) fn to_lark(source: &str) -> Result<String, String> {
    let rules = Parser::new(source).grammar()?;
    let names: Vec<String> = (0..rules.len()).map(|i| format!("r{i}")).collect();
    let recursive = recursive(&rules);
    let writer = Writer { recursive, names };
    Ok(writer.write(&rules))
}

/// Parses a grammar; rule 0 is `root`.
struct Parser<'a> {
    source: &'a str,
    at: usize,
    depth: usize,
    ids: HashMap<&'a str, usize>,
    /// Names in order of their ids, with the place of their first mention.
    mentioned: Vec<(&'a str, usize)>,
}

impl<'a> Parser<'a> {
    fn new(source: &'a str) -> Self {
        Self { source, at: 0, depth: 0, ids: HashMap::new(), mentioned: Vec::new() }
    }

    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += if found { c.len_utf8() } else { 0 };
        found
    }

    fn error<T>(&self, what: &str) -> Result<T, String> {
        self.error_at(self.at, what)
    }

    fn error_at<T>(&self, at: usize, what: &str) -> Result<T, String> {
        let line = self.source.get(..at).unwrap_or_default().matches('\n').count() + 1;
        Err(format!("line {line}: {what}"))
    }

    /// Skips blanks and comments; line ends too, where the present rule goes on.
    fn space(&mut self, lines: bool) {
        loop {
            let rest = self.rest();
            let blank = |c: char| c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'));
            self.at += rest.len() - rest.trim_start_matches(blank).len();
            if self.peek() != Some('#') {
                return;
            }
            self.at += self.rest().find('\n').unwrap_or(self.rest().len());
        }
    }

    fn name(&mut self) -> Option<&'a str> {
        let rest = self.rest();
        let n =
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).unwrap_or(rest.len());
        self.at += n;
        rest.get(..n).filter(|n| !n.is_empty())
    }

    fn id(&mut self, name: &'a str, at: usize) -> usize {
        let next = self.mentioned.len();
        let id = *self.ids.entry(name).or_insert(next);
        if id == next {
            self.mentioned.push((name, at));
        }
        id
    }

    fn grammar(mut self) -> Result<Vec<Node>, String> {
        self.id("root", 0);
        let mut rules: HashMap<usize, Node> = HashMap::new();
        loop {
            self.space(true);
            if self.rest().is_empty() {
                break;
            }
            let at = self.at;
            let Some(name) = self.name() else { return self.error("expected the name of a rule") };
            self.space(false);
            if !self.rest().starts_with("::=") {
                return self.error(&format!("expected `::=` after `{name}`"));
            }
            self.at += 3;
            let id = self.id(name, at);
            let node = self.choice()?;
            self.space(false);
            if !(self.rest().is_empty() || self.take('\n') || self.take('\r')) {
                return self.error(&format!("`{name}`: expected the end of the rule"));
            }
            if rules.insert(id, node).is_some() {
                return self.error_at(at, &format!("rule `{name}` is there twice"));
            }
            if self.mentioned.len() > MAX_RULES {
                return self.error(&format!("more than {MAX_RULES} rules"));
            }
        }
        let mut out = Vec::with_capacity(self.mentioned.len());
        for (id, &(name, at)) in self.mentioned.iter().enumerate() {
            match rules.remove(&id) {
                Some(node) => out.push(node),
                None => return self.error_at(at, &format!("rule `{name}` is not defined")),
            }
        }
        Ok(out)
    }

    fn choice(&mut self) -> Result<Node, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.error(&format!("groups are nested deeper than {MAX_DEPTH}"));
        }
        let mut choices = vec![self.sequence()?];
        loop {
            self.space(self.depth > 1);
            let before = self.at;
            // A choice may go on in the next line.
            self.space(true);
            if !self.take('|') {
                self.at = before;
                break;
            }
            self.space(true);
            choices.push(self.sequence()?);
        }
        self.depth -= 1;
        Ok(if choices.len() == 1 { choices.remove(0) } else { Node::Choice(choices) })
    }

    fn sequence(&mut self) -> Result<Node, String> {
        let mut items = Vec::new();
        loop {
            self.space(self.depth > 1);
            let at = self.at;
            let item = match self.peek() {
                Some('"') => Node::Text(self.text()?),
                Some('[') => Node::Class(self.class()?),
                Some('.') => {
                    self.at += 1;
                    Node::Class("(?s:.)".to_owned())
                }
                Some('(') => {
                    self.at += 1;
                    let node = self.choice()?;
                    self.space(true);
                    if !self.take(')') {
                        return self.error("expected `)`");
                    }
                    node
                }
                Some(c) if c.is_ascii_alphanumeric() || c == '_' => {
                    let name = self.name().unwrap_or_default();
                    Node::Rule(self.id(name, at))
                }
                _ => break,
            };
            items.push(self.repeated(item)?);
        }
        Ok(if items.len() == 1 { items.remove(0) } else { Node::Sequence(items) })
    }

    fn repeated(&mut self, mut item: Node) -> Result<Node, String> {
        let mut n_operators = 0;
        loop {
            let (least, most) = match self.peek() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => (0, Some(0)),
                _ => return Ok(item),
            };
            self.at += 1;
            let (least, most) = if most == Some(0) { self.bounds()? } else { (least, most) };
            n_operators += 1;
            if n_operators > MAX_DEPTH {
                return self.error("too many repetitions of one item");
            }
            item = Node::Repeat(Box::new(item), least, most);
        }
    }

    fn bounds(&mut self) -> Result<(u32, Option<u32>), String> {
        let least = self.number()?;
        self.space(false);
        let most = if self.take(',') {
            self.space(false);
            if self.peek() == Some('}') { None } else { Some(self.number()?) }
        } else {
            Some(least)
        };
        self.space(false);
        if !self.take('}') {
            return self.error("expected `}` after a repetition's bounds");
        }
        if most.is_some_and(|most| most < least) {
            return self.error("a repetition's bounds are the wrong way round");
        }
        Ok((least, most))
    }

    fn number(&mut self) -> Result<u32, String> {
        let rest = self.rest();
        let n = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let value = rest.get(..n).and_then(|digits| digits.parse::<u32>().ok());
        match value.filter(|&v| v <= MAX_REPEAT) {
            Some(value) => {
                self.at += n;
                Ok(value)
            }
            None => self.error(&format!("expected a number of repetitions up to {MAX_REPEAT}")),
        }
    }

    fn text(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut text = String::new();
        loop {
            if self.take('"') {
                return Ok(text);
            }
            text.push(self.character()?);
        }
    }

    fn class(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut out = String::from(if self.take('^') { "[^" } else { "[" });
        let mut empty = true;
        while !self.take(']') {
            let first = self.character()?;
            let mut last = first;
            if self.rest().starts_with('-') && !self.rest().starts_with("-]") {
                self.at += 1;
                last = self.character()?;
            }
            if last < first {
                return self.error("a range of characters is the wrong way round");
            }
            let _ = write!(out, "\\x{{{:X}}}-\\x{{{:X}}}", first as u32, last as u32);
            empty = false;
        }
        if empty {
            return self.error("a class of no characters");
        }
        out.push(']');
        Ok(out)
    }

    fn character(&mut self) -> Result<char, String> {
        let Some(c) = self.peek().filter(|c| *c != '\n') else {
            return self.error("a string or class has no end");
        };
        self.at += c.len_utf8();
        if c != '\\' {
            return Ok(c);
        }
        let Some(escape) = self.peek() else { return self.error("an escape has no end") };
        self.at += escape.len_utf8();
        let digits = match escape {
            'n' => return Ok('\n'),
            'r' => return Ok('\r'),
            't' => return Ok('\t'),
            '\\' | '"' | '[' | ']' | '-' | '^' | '/' => return Ok(escape),
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => return self.error(&format!("unknown escape `\\{escape}`")),
        };
        let code = self.rest().get(..digits).and_then(|hex| u32::from_str_radix(hex, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                self.at += digits;
                Ok(c)
            }
            None => self.error("an escape does not name a character"),
        }
    }
}

impl Node {
    /// Rules that this node names.
    fn rules(&self, out: &mut Vec<usize>) {
        match self {
            Self::Text(_) | Self::Class(_) => {}
            Self::Rule(id) => out.push(*id),
            Self::Sequence(nodes) | Self::Choice(nodes) => nodes.iter().for_each(|n| n.rules(out)),
            Self::Repeat(node, ..) => node.rules(out),
        }
    }
}

/// Rules that lead to themselves, or to one that does: what is left when, again and again, rules are taken away that only
/// name rules taken away before.
fn recursive(rules: &[Node]) -> HashSet<usize> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); rules.len()];
    let mut open = vec![0usize; rules.len()];
    for (i, rule) in rules.iter().enumerate() {
        let mut named = Vec::new();
        rule.rules(&mut named);
        named.sort_unstable();
        named.dedup();
        open[i] = named.len();
        named.into_iter().for_each(|n| users[n].push(i));
    }
    let mut left: HashSet<usize> = (0..rules.len()).collect();
    let mut ready: Vec<usize> = (0..rules.len()).filter(|&i| open[i] == 0).collect();
    while let Some(rule) = ready.pop() {
        left.remove(&rule);
        for &user in &users[rule] {
            open[user] -= 1;
            if open[user] == 0 {
                ready.push(user);
            }
        }
    }
    left
}

struct Writer {
    recursive: HashSet<usize>,
    names: Vec<String>,
}

impl Writer {
    fn write(&self, rules: &[Node]) -> String {
        let mut out = format!("start: {}\n", self.name(0));
        let mut pieces = Vec::new();
        for (i, rule) in rules.iter().enumerate() {
            let mut body = String::new();
            let terminal = !self.recursive.contains(&i);
            self.node(rule, terminal, &mut pieces, &mut body);
            let _ = writeln!(out, "{}: {body}", self.name(i));
        }
        for (i, piece) in pieces.iter().enumerate() {
            let _ = writeln!(out, "P{i}: {piece}");
        }
        out
    }

    fn name(&self, rule: usize) -> String {
        let name = self.names.get(rule).cloned().unwrap_or_default();
        if self.recursive.contains(&rule) { name } else { name.to_uppercase() }
    }

    fn is_regular(&self, node: &Node) -> bool {
        let mut rules = Vec::new();
        node.rules(&mut rules);
        rules.iter().all(|r| !self.recursive.contains(r))
    }

    /// Writes a node; in a rule (not a terminal), regular parts become terminals of their own in `pieces`.
    fn node(&self, node: &Node, terminal: bool, pieces: &mut Vec<String>, out: &mut String) {
        if !terminal && !matches!(node, Node::Rule(_)) && self.is_regular(node) {
            let mut piece = String::new();
            self.node(node, true, pieces, &mut piece);
            let _ = write!(out, "P{}", pieces.len());
            pieces.push(piece);
            return;
        }
        match node {
            Node::Text(text) => quote(text, out),
            Node::Class(regex) => {
                let _ = write!(out, "/{regex}/");
            }
            Node::Rule(id) => out.push_str(&self.name(*id)),
            Node::Sequence(items) if items.is_empty() => out.push_str("\"\""),
            Node::Sequence(items) => {
                out.push('(');
                let same = |a: &Node, b: &Node| {
                    !terminal && self.is_regular(a) == self.is_regular(b) && self.is_regular(a)
                };
                for (i, run) in items.chunk_by(same).enumerate() {
                    out.push_str(if i > 0 { " " } else { "" });
                    match run {
                        [item] => self.node(item, terminal, pieces, out),
                        run => self.node(&Node::Sequence(run.to_vec()), terminal, pieces, out),
                    }
                }
                out.push(')');
            }
            Node::Choice(choices) => {
                out.push('(');
                for (i, choice) in choices.iter().enumerate() {
                    out.push_str(if i > 0 { " | " } else { "" });
                    self.node(choice, terminal, pieces, out);
                }
                out.push(')');
            }
            Node::Repeat(item, least, most) => {
                out.push('(');
                self.node(item, terminal, pieces, out);
                out.push(')');
                let _ = match (least, most) {
                    (0, None) => write!(out, "*"),
                    (1, None) => write!(out, "+"),
                    (0, Some(1)) => write!(out, "?"),
                    (least, None) => write!(out, "{{{least},}}"),
                    (least, Some(most)) => write!(out, "{{{least},{most}}}"),
                };
            }
        }
    }
}

/// A string of Lark's, which are JSON's.
fn quote(text: &str, out: &mut String) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 || c == '\u{7f}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_regular_grammar_is_a_terminal() {
        let lark = to_lark("root ::= \"a\\n\" digit{2,3} # comment\ndigit ::= [0-9] | \"x\"\n").unwrap();
        assert_eq!(lark, "start: R0\nR0: (\"a\\u000a\" (R1){2,3})\nR1: (/[\\x{30}-\\x{39}]/ | \"x\")\n");
    }

    #[test]
    fn recursion_makes_rules_and_regular_runs_pieces() {
        let lark = to_lark("root ::= list\nlist ::= \"[\" [a-b]+ (\",\" list)? \"]\"").unwrap();
        assert_eq!(
            lark,
            "start: r0\nr0: r1\nr1: (P0 ((P1 r1))? P2)\nP0: (\"[\" (/[\\x{61}-\\x{62}]/)+)\nP1: \",\"\nP2: \"]\"\n"
        );
    }

    #[test]
    fn faults_are_named_with_their_line() {
        for (source, expected) in [
            ("", "line 1: rule `root` is not defined"),
            ("root ::= a\n", "line 1: rule `a` is not defined"),
            ("root ::= \"a\nroot ::= \"b\"", "line 1: a string or class has no end"),
            ("root ::= \"a\"\nroot ::= \"b\"", "line 2: rule `root` is there twice"),
            ("root ::= (\"a\"", "line 1: expected `)`"),
            ("root ::= [b-a]", "line 1: a range of characters is the wrong way round"),
            ("root ::= \"a\"{1,1000000000}", "line 1: expected a number of repetitions up to 2000"),
            ("root ::= \"\\q\"", "line 1: unknown escape `\\q`"),
            ("root = \"a\"", "line 1: expected `::=` after `root`"),
        ] {
            assert_eq!(to_lark(source).unwrap_err(), expected, "{source}");
        }
        let deep = format!("root ::= {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000));
        assert_eq!(to_lark(&deep).unwrap_err(), "line 1: groups are nested deeper than 64");
    }

    #[test]
    fn repeated_operators_and_line_breaks() {
        let lark = to_lark("root ::= (\n \"a\" |\n \"b\"\n)**\n").unwrap();
        assert_eq!(lark, "start: R0\nR0: (((\"a\" | \"b\"))*)*\n");
        assert!(to_lark("root ::= \"a\"\n  | \"b\"\n").is_ok());
    }
}
