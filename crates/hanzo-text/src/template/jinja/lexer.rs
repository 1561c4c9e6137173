//! Source text to tokens, with Jinja's white-space rules as chat templates are rendered everywhere: `trim_blocks` and
//! `lstrip_blocks` on, one trailing newline of the source dropped, `\r\n` read as `\n`.

use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Tok<'s> {
    Text(&'s str),
    BlockBegin,
    BlockEnd,
    VarBegin,
    VarEnd,
    Name(&'s str),
    Str(String),
    Int(i128),
    Float(f64),
    Op(&'static str),
    Eof,
}

#[derive(Debug, Clone)]
pub(super) struct Token<'s> {
    pub(super) tok: Tok<'s>,
    pub(super) line: u32,
}

/// Longest first, so that `**` is not read as two `*`.
const OPERATORS: [&str; 25] = [
    "**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<",
    "=", ".", ":", "|", ",",
];

/// Line endings as Jinja sees them, and the source without its last newline.
pub(super) fn normalize(source: &str) -> String {
    let mut text = source.replace("\r\n", "\n").replace('\r', "\n");
    if text.ends_with('\n') {
        text.pop();
    }
    text
}

/// Splits a normalized source into tokens, the last of which is [`Tok::Eof`].
pub(super) fn tokenize(source: &str) -> TemplateResult<Vec<Token<'_>>> {
    Lexer { src: source, pos: 0, line: 1, line_start: true, out: Vec::new() }.run()
}

struct Lexer<'s> {
    src: &'s str,
    pos: usize,
    line: u32,
    /// Whether the text that follows begins a line (as far as `lstrip_blocks` is concerned).
    line_start: bool,
    out: Vec<Token<'s>>,
}

impl<'s> Lexer<'s> {
    fn run(mut self) -> TemplateResult<Vec<Token<'s>>> {
        while let Some((at, opener)) = self.next_tag() {
            self.tag(at, opener)?;
        }
        self.push_text(self.rest());
        self.push(Tok::Eof);
        Ok(self.out)
    }

    fn rest(&self) -> &'s str {
        self.src.get(self.pos..).unwrap_or("")
    }

    fn push(&mut self, tok: Tok<'s>) {
        self.out.push(Token { tok, line: self.line });
    }

    fn push_text(&mut self, text: &'s str) {
        if !text.is_empty() {
            self.push(Tok::Text(text));
        }
    }

    /// Moves on by `len` bytes, counting lines.
    fn advance(&mut self, len: usize) {
        let passed = self.rest().get(..len).unwrap_or("");
        self.line += passed.bytes().filter(|&b| b == b'\n').count() as u32;
        self.pos += passed.len();
    }

    fn error(&self, message: impl Into<String>) -> TemplateError {
        TemplateError::at(Kind::Syntax, self.line, message)
    }

    /// Offset from here of the next `{{`, `{%` or `{#`, and its second character.
    fn next_tag(&self) -> Option<(usize, u8)> {
        let bytes = self.rest().as_bytes();
        bytes.windows(2).enumerate().find_map(|(i, pair)| match *pair {
            [b'{', second @ (b'{' | b'%' | b'#')] => Some((i, second)),
            _ => None,
        })
    }

    fn tag(&mut self, at: usize, opener: u8) -> TemplateResult<()> {
        let text = self.rest().get(..at).unwrap_or("");
        let sign = self.rest().as_bytes().get(at + 2).copied().filter(|b| matches!(b, b'-' | b'+'));
        let kept = self.strip_before(text, sign, opener != b'{');
        self.push_text(kept);
        self.advance(at + 2 + usize::from(sign.is_some()));
        match opener {
            b'#' => self.comment(),
            b'{' => {
                self.push(Tok::VarBegin);
                self.inside(false)
            }
            _ => {
                if let Some(len) = raw_tag(self.rest(), "raw") {
                    self.raw(len)
                } else {
                    self.push(Tok::BlockBegin);
                    self.inside(true)
                }
            }
        }
    }

    /// What is left of the text before a tag: `-` strips all white space, otherwise a block or comment strips the
    /// spaces between the line's start and itself, unless it has a `+`.
    fn strip_before(&self, text: &'s str, sign: Option<u8>, is_block: bool) -> &'s str {
        if sign == Some(b'-') {
            return text.trim_end();
        }
        if sign.is_none() && is_block {
            let line_at = text.rfind('\n').map_or(0, |i| i + 1);
            let tail = text.get(line_at..).unwrap_or("");
            if (line_at > 0 || self.line_start) && tail.chars().all(char::is_whitespace) {
                return text.get(..line_at).unwrap_or("");
            }
        }
        text
    }

    /// Passes over a tag's end: `-` eats all white space that follows, a block's or comment's plain end one newline.
    fn close(&mut self, sign: Option<u8>, eats_newline: bool) {
        self.advance(2 + usize::from(sign.is_some()));
        let from = self.pos;
        if sign == Some(b'-') {
            let rest = self.rest();
            self.advance(rest.len() - rest.trim_start().len());
        } else if sign.is_none() && eats_newline && self.rest().starts_with('\n') {
            self.advance(1);
        }
        self.line_start = self.src.get(from..self.pos).is_some_and(|s| s.ends_with('\n'));
    }

    fn comment(&mut self) -> TemplateResult<()> {
        let Some(end) = self.rest().find("#}") else {
            return Err(self.error("a comment ({# …) is never closed"));
        };
        let sign = end
            .checked_sub(1)
            .and_then(|i| self.rest().as_bytes().get(i).copied())
            .filter(|b| matches!(b, b'-' | b'+'));
        self.advance(end - usize::from(sign.is_some()));
        self.close(sign, true);
        Ok(())
    }

    /// `len` bytes lead to the end of the opening tag; everything up to `{% endraw %}` is text.
    fn raw(&mut self, len: usize) -> TemplateResult<()> {
        let strips = self.rest().as_bytes().get(len.saturating_sub(3)) == Some(&b'-');
        self.advance(len);
        if strips {
            let rest = self.rest();
            self.advance(rest.len() - rest.trim_start().len());
        }
        self.line_start = false;
        let (mut from, body) = (0, self.rest());
        let (at, sign, tag_len) = loop {
            let Some(at) = body.get(from..).and_then(|b| b.find("{%")).map(|i| i + from) else {
                return Err(self.error("{% raw %} is never closed by {% endraw %}"));
            };
            let sign = body.as_bytes().get(at + 2).copied().filter(|b| matches!(b, b'-' | b'+'));
            let inner = at + 2 + usize::from(sign.is_some());
            if let Some(n) = body.get(inner..).and_then(|b| raw_tag(b, "endraw")) {
                break (at, sign, inner + n);
            }
            from = at + 2;
        };
        let text = body.get(..at).unwrap_or("");
        let kept = self.strip_before(text, sign, true);
        self.push_text(kept);
        let close_sign =
            body.as_bytes().get(tag_len.saturating_sub(3)).copied().filter(|b| matches!(b, b'-' | b'+'));
        self.advance(tag_len - 2 - usize::from(close_sign.is_some()));
        self.close(close_sign, true);
        Ok(())
    }

    /// Tokens of one tag, up to and with its end.
    fn inside(&mut self, block: bool) -> TemplateResult<()> {
        let (end, name) = if block { ("%}", "%}") } else { ("}}", "}}") };
        let opened_at = self.line;
        let mut brackets: Vec<&'static str> = Vec::new();
        loop {
            let rest = self.rest();
            let skipped = rest.len() - rest.trim_start().len();
            self.advance(skipped);
            let rest = self.rest();
            let Some(first) = rest.chars().next() else {
                return Err(TemplateError::at(
                    Kind::Syntax,
                    opened_at,
                    format!("a tag is never closed by `{name}`"),
                ));
            };
            if brackets.is_empty() {
                let sign = matches!(first, '-' | '+').then_some(first as u8).filter(|_| {
                    // `+}}` does not exist: there the plus is an operator.
                    (block || first == '-') && rest.get(1..).is_some_and(|r| r.starts_with(end))
                });
                if sign.is_some() || rest.starts_with(end) {
                    self.push(if block { Tok::BlockEnd } else { Tok::VarEnd });
                    self.close(sign, block);
                    return Ok(());
                }
            }
            if first.is_ascii_digit() {
                self.number()?;
            } else if first == '\'' || first == '"' {
                self.string(first)?;
            } else if first == '_' || first.is_alphabetic() {
                let len = rest.find(|c: char| c != '_' && !c.is_alphanumeric()).unwrap_or(rest.len());
                self.push(Tok::Name(rest.get(..len).unwrap_or("")));
                self.advance(len);
            } else {
                self.operator(rest, &mut brackets)?;
            }
        }
    }

    fn operator(&mut self, rest: &str, brackets: &mut Vec<&'static str>) -> TemplateResult<()> {
        let Some(op) = OPERATORS.iter().find(|op| rest.starts_with(**op)) else {
            let found = rest.chars().next().unwrap_or(' ');
            return Err(self.error(format!("unexpected character {found:?}")));
        };
        match *op {
            "(" => brackets.push(")"),
            "[" => brackets.push("]"),
            "{" => brackets.push("}"),
            ")" | "]" | "}" => match brackets.pop() {
                Some(expected) if expected == *op => {}
                Some(expected) => return Err(self.error(format!("unexpected `{op}`, expected `{expected}`"))),
                None => return Err(self.error(format!("unexpected `{op}`"))),
            },
            _ => {}
        }
        self.push(Tok::Op(op));
        self.advance(op.len());
        Ok(())
    }

    fn number(&mut self) -> TemplateResult<()> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        let radix = match bytes.get(..2) {
            Some(b"0x" | b"0X") => 16,
            Some(b"0o" | b"0O") => 8,
            Some(b"0b" | b"0B") => 2,
            _ => 10,
        };
        let digits =
            |from: usize| bytes.iter().skip(from).take_while(|b| b.is_ascii_digit() || **b == b'_').count();
        if radix != 10 {
            let len =
                2 + bytes.iter().skip(2).take_while(|b| b.is_ascii_alphanumeric() || **b == b'_').count();
            let text = rest.get(2..len).unwrap_or("").replace('_', "");
            let value = i128::from_str_radix(&text, radix)
                .map_err(|_| self.error(format!("`{}` is not a number", rest.get(..len).unwrap_or(""))))?;
            self.push(Tok::Int(value));
            self.advance(len);
            return Ok(());
        }
        let mut len = digits(0);
        // A number right after a dot is an index (`x.0.1`), never a float.
        let after_dot = matches!(self.out.last(), Some(Token { tok: Tok::Op("."), .. }));
        let mut float = false;
        if !after_dot {
            if bytes.get(len) == Some(&b'.') && digits(len + 1) > 0 {
                len += 1 + digits(len + 1);
                float = true;
            }
            if matches!(bytes.get(len), Some(b'e' | b'E')) {
                let sign = usize::from(matches!(bytes.get(len + 1), Some(b'+' | b'-')));
                let n = digits(len + 1 + sign);
                if n > 0 {
                    len += 1 + sign + n;
                    float = true;
                }
            }
        }
        let text = rest.get(..len).unwrap_or("").replace('_', "");
        let tok = if float {
            text.parse().map(Tok::Float).map_err(|_| self.error(format!("`{text}` is not a number")))
        } else {
            text.parse().map(Tok::Int).map_err(|_| self.error(format!("the number {text} is too large")))
        };
        self.push(tok?);
        self.advance(len);
        Ok(())
    }

    fn string(&mut self, quote: char) -> TemplateResult<()> {
        let rest = self.rest();
        let mut escaped = false;
        let end = rest.char_indices().skip(1).find(|&(_, c)| {
            let closes = c == quote && !escaped;
            escaped = c == '\\' && !escaped;
            closes
        });
        let Some((end, _)) = end else {
            return Err(self.error("a string is never closed"));
        };
        let text = unescape(rest.get(1..end).unwrap_or("")).map_err(|m| self.error(m))?;
        self.push(Tok::Str(text));
        self.advance(end + 1);
        Ok(())
    }
}

/// Length of `raw %}`, `raw -%}` or the same with `endraw` at the start of `s`.
fn raw_tag(s: &str, word: &str) -> Option<usize> {
    let after = s.trim_start().strip_prefix(word)?.trim_start();
    let tail = after.strip_prefix(['-', '+']).unwrap_or(after).strip_prefix("%}")?;
    Some(s.len() - tail.len())
}

/// A string literal's text with Python's escapes resolved; an unknown escape keeps its backslash, as in Python.
fn unescape(s: &str) -> Result<String, String> {
    let mut out = String::with_capacity(s.len());
    let mut chars = s.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let Some(e) = chars.next() else {
            out.push('\\');
            break;
        };
        let hex = match e {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        match e {
            '\n' => {}
            '\\' | '\'' | '"' => out.push(e),
            'a' => out.push('\u{7}'),
            'b' => out.push('\u{8}'),
            'f' => out.push('\u{c}'),
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'v' => out.push('\u{b}'),
            '0'..='7' => {
                let mut code = e as u32 - '0' as u32;
                for _ in 0..2 {
                    match chars.peek().and_then(|c| c.to_digit(8)) {
                        Some(d) => code = code * 8 + d,
                        None => break,
                    }
                    chars.next();
                }
                out.push(char::from_u32(code).unwrap_or('\u{fffd}'));
            }
            'x' | 'u' | 'U' => {
                let mut code = 0u32;
                for _ in 0..hex {
                    let digit = chars.next().and_then(|c| c.to_digit(16));
                    let digit = digit.ok_or_else(|| format!("a string has a truncated \\{e} escape"))?;
                    code = code.wrapping_mul(16).wrapping_add(digit);
                }
                // Lone surrogates cannot be written to UTF-8: Python would fail later, when it encodes the text.
                out.push(char::from_u32(code).ok_or_else(|| format!("\\{e}{code:x} is not a character"))?);
            }
            'N' => return Err("\\N{…} escapes are not supported".into()),
            other => {
                out.push('\\');
                out.push(other);
            }
        }
    }
    Ok(out)
}
