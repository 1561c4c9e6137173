//! Grammars and schemas as constraints, by `llguidance`.
//!
//! A [`GrammarCompiler`] is made once for a tokenizer; it compiles what requests bring. Sources come from strangers: their
//! length, their nesting and the work of compiling them are bounded, and compiling runs on a stack of its own.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};
use llguidance::api::{ParserLimits, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, SimpleVob, TokRxInfo, TokTrie, TokenizerEnv};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::{Constraint, ConstraintError, TokenMask, gbnf};

/// Longest source, in bytes.
pub const MAX_SOURCE: usize = 256 << 10;
/// Deepest nesting of brackets in a source.
pub const MAX_NESTING: usize = 128;
/// Most lines of a Lark grammar: rules can lead to each other, and the compiler follows them.
const MAX_LINES: usize = 2000;
/// Greatest number in a repetition's braces.
const MAX_REPEAT: u32 = 10_000;
/// Most white space in a row between the parts of a JSON value.
pub const MAX_SPACE: usize = 16;
/// Stack on which sources are compiled; only what is used of it takes memory.
const STACK: usize = 64 << 20;

/// What a reply shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// A JSON value that fits this JSON Schema (its text), with [`bounded_space`].
    JsonSchema(String),
    /// Any JSON object, with [`bounded_space`].
    JsonObject,
    /// A text that this regular expression matches as a whole.
    Regex(String),
    /// A grammar in llguidance's dialect of Lark.
    Lark(String),
    /// A grammar in llama.cpp's notation.
    Gbnf(String),
}

impl Grammar {
    fn kind(&self) -> &'static str {
        match self {
            Self::JsonSchema(_) | Self::JsonObject => "JSON schema",
            Self::Regex(_) => "regular expression",
            Self::Lark(_) => "Lark grammar",
            Self::Gbnf(_) => "GBNF grammar",
        }
    }

    fn source(&self) -> &str {
        match self {
            Self::JsonObject => "{\"type\":\"object\"}",
            Self::JsonSchema(s) | Self::Regex(s) | Self::Lark(s) | Self::Gbnf(s) => s,
        }
    }
}

/// Compiles grammars for one vocabulary.
#[derive(Clone)]
pub struct GrammarCompiler {
    factory: Arc<ParserFactory>,
    tokenizer: Arc<Tokenizer>,
}

impl std::fmt::Debug for GrammarCompiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GrammarCompiler")
    }
}

/// The vocabulary as the library sees it. Control tokens have no text there: no grammar can ask for them.
struct Vocabulary(TokTrie);

impl TokenizerEnv for Vocabulary {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<u32> {
        self.0.greedy_tokenize(bytes)
    }

    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}

fn compile_error(kind: &'static str, reason: &dyn ToString) -> ConstraintError {
    // Traces of the library's own faults are of no use to whoever wrote the grammar.
    let reason = reason.to_string();
    let reason = reason.split("\n<backtrace>").next().unwrap_or_default().trim().to_owned();
    ConstraintError::Compile { kind, reason }
}

fn panic_reason(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("the compiler failed").to_owned()
}

impl GrammarCompiler {
    /// A compiler for the vocabulary of `tokenizer`. Takes some time for a large one: make it once.
    ///
    /// # Errors
    /// [`ConstraintError::Compile`] for a vocabulary that grammars cannot work with.
    pub fn new(tokenizer: Arc<Tokenizer>) -> Result<Self, ConstraintError> {
        let kind = "vocabulary";
        let n = tokenizer.vocab_size();
        let control = |id: u32| tokenizer.is_control(id) || tokenizer.is_eog(id);
        let words: Vec<Vec<u8>> = (0..n as u32)
            .map(|id| match tokenizer.token_bytes(id) {
                // Longer ones than the library can hold are never allowed.
                Some(bytes) if !control(id) && bytes.len() < 1 << 12 => bytes.to_vec(),
                _ => Vec::new(),
            })
            .collect();
        let end = tokenizer.eog_ids().first().copied().or(tokenizer.eos()).unwrap_or(0);
        let build = || {
            let trie = TokTrie::from(&TokRxInfo::new(n as u32, end), &words);
            let environment: Arc<dyn TokenizerEnv + Sync> = Arc::new(Vocabulary(trie));
            ParserFactory::new(
                &environment,
                InferenceCapabilities::default(),
                &llguidance::earley::SlicedBiasComputer::general_slices(),
            )
        };
        let built = catch_unwind(AssertUnwindSafe(build))
            .map_err(|panic| compile_error(kind, &panic_reason(panic.as_ref())))?;
        let mut factory = built.map_err(|e| compile_error(kind, &e))?;
        factory.quiet();
        *factory.limits_mut() = ParserLimits {
            initial_lexer_fuel: 500_000,
            max_lexer_states: 50_000,
            max_grammar_size: 200_000,
            precompute_large_lexemes: false,
            verbose_errors: false,
            ..ParserLimits::default()
        };
        Ok(Self { factory: Arc::new(factory), tokenizer })
    }

    /// The constraint that a reply is of `grammar`.
    ///
    /// # Errors
    /// [`ConstraintError`] when the source is too large or does not compile.
    pub fn compile(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, ConstraintError> {
        let (kind, source) = (grammar.kind(), grammar.source());
        check(kind, source, grammar)?;
        let top = match grammar {
            Grammar::JsonSchema(_) | Grammar::JsonObject => {
                let schema = serde_json::from_str(source).map_err(|e| compile_error(kind, &e))?;
                TopLevelGrammar::from_json_schema(bounded_space(schema))
            }
            Grammar::Regex(_) => TopLevelGrammar::from_regex(source),
            Grammar::Lark(_) => TopLevelGrammar::from_lark(source.to_owned()),
            Grammar::Gbnf(_) => {
                let lark = gbnf::to_lark(source).map_err(|e| compile_error(kind, &e))?;
                TopLevelGrammar::from_lark(lark)
            }
        };
        let factory = Arc::clone(&self.factory);
        let ends = self.tokenizer.eog_ids().to_vec();
        let compile = move || {
            let mut matcher = Matcher::new(factory.create_parser(top));
            if let Some(error) = matcher.get_error() {
                return Err(error);
            }
            // Its first tokens are asked for here, where a fault is the request's and not yet the reply's.
            let first = if matcher.is_stopped() { None } else { Some(matcher.compute_mask()) };
            match first.transpose().map_err(|e| e.to_string())? {
                Some(mask) if matcher.is_accepting().is_ok() && !only_ends(&mask, &ends) => Ok(matcher),
                _ => Err("no text but the empty one fits it".to_owned()),
            }
        };
        let thread = std::thread::Builder::new().stack_size(STACK).spawn(move || {
            catch_unwind(AssertUnwindSafe(compile)).unwrap_or_else(|panic| Err(panic_reason(panic.as_ref())))
        });
        let thread = thread.map_err(|e| compile_error(kind, &e))?;
        let compiled = thread.join().unwrap_or_else(|panic| Err(panic_reason(panic.as_ref())));
        let matcher = compiled.map_err(|e| compile_error(kind, &e))?;
        Ok(Box::new(Guided { matcher, tokenizer: Arc::clone(&self.tokenizer) }))
    }
}

/// The schema with a bound on white space between the parts of a value: [`MAX_SPACE`] characters, unless the schema says
/// itself what may stand there (`whitespace_pattern` or `whitespace_flexible` in its `x-guidance`). JSON allows any amount,
/// and a weak model would fill its reply with it. [`Grammar::JsonSchema`] does this by itself; a schema inside a Lark grammar
/// (`%json`) needs it said.
#[must_use]
pub fn bounded_space(schema: Value) -> Value {
    let mut schema = match schema {
        Value::Bool(true) => json!({}),
        other => other,
    };
    let options = schema.as_object_mut().map(|fields| fields.entry("x-guidance").or_insert(json!({})));
    if let Some(options) = options.and_then(Value::as_object_mut)
        && options.get("whitespace_flexible") != Some(&Value::Bool(false))
    {
        let pattern = format!("[\\x20\\x0A\\x0D\\x09]{{1,{MAX_SPACE}}}");
        options.entry("whitespace_pattern").or_insert(pattern.into());
    }
    schema
}

/// Whether a mask admits nothing but end tokens.
fn only_ends(mask: &SimpleVob, ends: &[u32]) -> bool {
    let mut mask = mask.clone();
    let n = mask.len();
    ends.iter().filter(|&&id| (id as usize) < n).for_each(|&id| mask.disallow_token(id));
    mask.is_zero()
}

/// Bounds that hold before anything is parsed.
fn check(kind: &'static str, source: &str, grammar: &Grammar) -> Result<(), ConstraintError> {
    let limit = |unit, found, most| match found > most {
        true => Err(ConstraintError::TooLarge { kind, unit, found, most }),
        false => Ok(()),
    };
    limit("bytes", source.len(), MAX_SOURCE)?;
    if source.trim().is_empty() {
        return Err(compile_error(kind, &"it is empty"));
    }
    // Brackets in strings count too: a source that is refused for them is a strange one.
    let (mut depth, mut deepest) = (0usize, 0);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    limit("levels of nesting", deepest, MAX_NESTING)?;
    if matches!(grammar, Grammar::Lark(_)) {
        limit("lines", source.lines().count(), MAX_LINES)?;
    }
    let repetitions = match grammar {
        Grammar::Lark(_) | Grammar::Regex(_) => greatest_repetition(source),
        Grammar::JsonSchema(_) => {
            let schema = serde_json::from_str(source).map_err(|e| compile_error(kind, &e))?;
            greatest_in_patterns(&schema)
        }
        Grammar::JsonObject | Grammar::Gbnf(_) => 0,
    };
    limit("repetitions", repetitions as usize, MAX_REPEAT as usize)
}

/// The greatest repetition of the regular expressions in a schema. Text that only looks like one counts too. Its nesting was checked.
fn greatest_in_patterns(schema: &Value) -> u32 {
    match schema {
        Value::Object(fields) => {
            let pattern = |(key, value): (&String, &Value)| match (key.as_str(), value) {
                ("pattern" | "whitespace_pattern", Value::String(pattern)) => greatest_repetition(pattern),
                ("patternProperties", Value::Object(inner)) => {
                    let keys = inner.keys().map(|key| greatest_repetition(key)).max();
                    keys.unwrap_or(0).max(greatest_in_patterns(value))
                }
                _ => greatest_in_patterns(value),
            };
            fields.iter().map(pattern).max().unwrap_or(0)
        }
        Value::Array(items) => items.iter().map(greatest_in_patterns).max().unwrap_or(0),
        _ => 0,
    }
}

/// The greatest number that stands in braces or after a tilde (Lark's other way to write a repetition).
fn greatest_repetition(source: &str) -> u32 {
    let (mut greatest, mut inside) = (0, false);
    for part in source.split_inclusive(|c: char| !c.is_ascii_digit()) {
        let digits = part.trim_end_matches(|c: char| !c.is_ascii_digit());
        if inside && !digits.is_empty() {
            greatest = greatest.max(digits.parse().unwrap_or(u32::MAX));
        }
        inside = match part.chars().next_back() {
            Some('{' | '~') => true,
            Some(',' | '.' | ' ') => inside,
            _ => false,
        };
    }
    greatest
}

/// A grammar on its way through one reply.
struct Guided {
    matcher: Matcher,
    tokenizer: Arc<Tokenizer>,
}

impl Constraint for Guided {
    fn mask(&mut self, vocab_size: usize) -> Result<TokenMask, String> {
        let mask = self.matcher.compute_mask().map_err(|e| e.to_string())?;
        let mut mask = TokenMask::from_words(mask.as_slice(), vocab_size);
        self.tokenizer.eog_ids().iter().for_each(|&id| mask.forbid(id));
        Ok(mask)
    }

    fn may_end(&mut self) -> Result<bool, String> {
        self.matcher.is_accepting().map_err(|e| e.to_string())
    }

    fn must_end(&mut self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        self.matcher.consume_token(token).map_err(|e| e.to_string())
    }

    fn admissible(&mut self, drafts: &[u32]) -> usize {
        // An error stays with the matcher, and the next mask reports it.
        self.matcher.validate_tokens(drafts).unwrap_or(0).min(drafts.len())
    }

    fn forced(&mut self) -> Vec<u32> {
        let bytes = self.matcher.compute_ff_bytes();
        let Ok(text) = std::str::from_utf8(&bytes) else { return Vec::new() };
        if text.is_empty() {
            return Vec::new();
        }
        // Guesses, like any draft: the model may split the text into other tokens.
        let plain = EncodeOptions { add_special: false, parse_special: false };
        self.tokenizer.encode(text, plain).unwrap_or_default()
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(Self { matcher: self.matcher.deep_clone(), tokenizer: Arc::clone(&self.tokenizer) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_found() {
        assert_eq!(greatest_repetition("a{1,1000000000}"), 1_000_000_000);
        assert_eq!(greatest_repetition("x{99999999999999}"), u32::MAX);
        assert_eq!(greatest_repetition("a{3} [0-9]{2, 7} 12345"), 7);
        assert_eq!(greatest_repetition("r: x~3..900"), 900);
        assert_eq!(greatest_repetition("\\x{7F} 8192"), 7);
    }
}
