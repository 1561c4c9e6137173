//! Where a JSON value or a Python call ends, found a byte at a time. A value that cannot become valid is noticed at the
//! first wrong byte, so that text which only begins like a call is not held back.

/// What a scanner says of one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The value goes on.
    More,
    /// The value ended with this byte.
    Done,
    /// No value begins like this.
    Fail,
}

/// Deepest nesting that is followed; JSON readers stop at 128.
const MAX_DEPTH: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// A value, or the end of an array that has none yet.
    ValueOrEnd,
    Value,
    KeyOrEnd,
    Key,
    Colon,
    CommaOrEnd,
}

/// A JSON object or array, validated but for the insides of numbers and words.
#[derive(Debug, Clone)]
pub(super) struct JsonScan {
    /// Closing brackets that are owed.
    stack: Vec<u8>,
    expect: Expect,
    in_string: bool,
    escaped: bool,
    /// In a number, `true`, `false` or `null`.
    in_word: bool,
}

impl JsonScan {
    pub(super) fn new() -> Self {
        Self { stack: Vec::new(), expect: Expect::Value, in_string: false, escaped: false, in_word: false }
    }

    pub(super) fn push(&mut self, byte: u8) -> Step {
        if self.in_string {
            return self.string(byte);
        }
        if self.in_word {
            if byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+') {
                return Step::More;
            }
            self.in_word = false;
            self.expect = Expect::CommaOrEnd;
        }
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => Step::More,
            b'"' => match self.expect {
                Expect::Key | Expect::KeyOrEnd => self.open_string(Expect::Colon),
                Expect::Value | Expect::ValueOrEnd if !self.stack.is_empty() => {
                    self.open_string(Expect::CommaOrEnd)
                }
                _ => Step::Fail,
            },
            b'{' | b'[' if matches!(self.expect, Expect::Value | Expect::ValueOrEnd) => {
                if self.stack.len() >= MAX_DEPTH {
                    return Step::Fail;
                }
                let object = byte == b'{';
                self.stack.push(if object { b'}' } else { b']' });
                self.expect = if object { Expect::KeyOrEnd } else { Expect::ValueOrEnd };
                Step::More
            }
            b'}' | b']' => {
                let allowed =
                    matches!(self.expect, Expect::CommaOrEnd | Expect::KeyOrEnd | Expect::ValueOrEnd);
                if !allowed || self.stack.pop() != Some(byte) {
                    return Step::Fail;
                }
                self.expect = Expect::CommaOrEnd;
                if self.stack.is_empty() { Step::Done } else { Step::More }
            }
            b':' if self.expect == Expect::Colon => {
                self.expect = Expect::Value;
                Step::More
            }
            b',' if self.expect == Expect::CommaOrEnd => {
                self.expect = if self.stack.last() == Some(&b'}') { Expect::Key } else { Expect::Value };
                Step::More
            }
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n'
                if matches!(self.expect, Expect::Value | Expect::ValueOrEnd) && !self.stack.is_empty() =>
            {
                self.in_word = true;
                Step::More
            }
            _ => Step::Fail,
        }
    }

    fn open_string(&mut self, next: Expect) -> Step {
        self.in_string = true;
        self.expect = next;
        Step::More
    }

    fn string(&mut self, byte: u8) -> Step {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => self.in_string = false,
            // JSON has no raw control characters in strings.
            0..=0x1f => return Step::Fail,
            _ => {}
        }
        Step::More
    }
}

/// `name(…)` or `[name(…), …]` in Python.
#[derive(Debug, Clone)]
pub(super) struct PythonScan {
    stack: Vec<u8>,
    quote: Option<u8>,
    escaped: bool,
    /// What began: a name that no bracket has followed yet.
    in_name: bool,
    listed: bool,
}

impl PythonScan {
    pub(super) fn new() -> Self {
        Self { stack: Vec::new(), quote: None, escaped: false, in_name: false, listed: false }
    }

    pub(super) fn push(&mut self, byte: u8) -> Step {
        if let Some(quote) = self.quote {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'\n' => return Step::Fail,
                _ if byte == quote => self.quote = None,
                _ => {}
            }
            return Step::More;
        }
        let calls_level = self.stack.len() == usize::from(self.listed);
        if calls_level {
            // Between calls there is nothing but names, their brackets, commas and white space.
            return match byte {
                b'[' if !self.listed && !self.in_name => {
                    self.listed = true;
                    self.stack.push(b']');
                    Step::More
                }
                b'(' if self.in_name => {
                    self.in_name = false;
                    self.stack.push(b')');
                    Step::More
                }
                b']' if self.listed && !self.in_name => Step::Done,
                b'A'..=b'Z' | b'a'..=b'z' | b'_' => {
                    self.in_name = true;
                    Step::More
                }
                b'0'..=b'9' | b'.' if self.in_name => Step::More,
                b' ' | b'\n' | b',' if self.listed && !self.in_name => Step::More,
                _ => Step::Fail,
            };
        }
        match byte {
            b'"' | b'\'' => self.quote = Some(byte),
            b'(' | b'[' | b'{' => {
                if self.stack.len() >= MAX_DEPTH {
                    return Step::Fail;
                }
                self.stack.push(match byte {
                    b'(' => b')',
                    b'[' => b']',
                    _ => b'}',
                });
            }
            b')' | b']' | b'}' => {
                if self.stack.pop() != Some(byte) {
                    return Step::Fail;
                }
                if self.stack.is_empty() {
                    return Step::Done;
                }
            }
            _ => {}
        }
        Step::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Option<usize> {
        let mut scan = JsonScan::new();
        for (i, byte) in text.bytes().enumerate() {
            match scan.push(byte) {
                Step::More => {}
                Step::Done => return Some(i + 1),
                Step::Fail => return None,
            }
        }
        Some(0)
    }

    #[test]
    fn json_ends_where_it_ends() {
        for text in [
            r#"{}"#,
            r#"[]"#,
            r#"{"a":[1,-2.5e+3,true,null,"x\"}]"],"b":{}}"#,
            "[ [ ] , { } ]",
            "{ \"a\" : \"é\" }",
        ] {
            assert_eq!(json(&format!("{text} tail")), Some(text.len()), "{text}");
            for cut in 0..text.len() {
                if text.is_char_boundary(cut) {
                    assert_eq!(json(&text[..cut]), Some(0), "{text} cut at {cut}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_json_fails_at_once() {
        for text in [
            "x",
            "\"a\"",
            "1",
            "{a",
            "{1",
            "{\"a\" \"",
            "{\"a\":}",
            "{,",
            "[,",
            "[1,]",
            "[1 2",
            "{]",
            "[}",
            "{\"a\":1,}",
            "[\"\n",
            "{\"a\":<",
        ] {
            assert_eq!(json(text), None, "{text}");
        }
        assert_eq!(json(&"[".repeat(200)), None);
    }
}
