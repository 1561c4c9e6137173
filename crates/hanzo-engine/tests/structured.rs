//! Structured output: replies are of the grammar, whatever the model would rather say; hostile grammars are refused.

#![cfg(feature = "grammar")]
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{Control, Controlled, cpu, engine, real, run, settle, tiny};
use hanzo_engine::constraint::{Constraint, Grammar, GrammarCompiler, MAX_SPACE, TokenMask};
use hanzo_engine::{Engine, EngineOptions, FinishReason, Request, SamplingParams, Speculation};
use hanzo_gguf::GgufFile;
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

/// A vocabulary without a model: enough to compile grammars and follow them.
fn vocabulary() -> Option<Arc<Tokenizer>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/oracles/tokenizers");
    let path = folder.join("ggml-vocab-qwen2.gguf");
    if !path.exists() {
        assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is missing", path.display());
        println!("skipped: {} is missing", path.display());
        return None;
    }
    Some(Arc::new(Tokenizer::from_gguf(GgufFile::open(&path).unwrap().metadata()).unwrap()))
}

/// Whether the grammar takes the text as a whole.
fn takes(compiler: &GrammarCompiler, tokenizer: &Tokenizer, grammar: &Grammar, text: &str) -> bool {
    let mut c = compiler.compile(grammar).unwrap();
    for id in tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: false }).unwrap() {
        if c.must_end() || !c.mask(tokenizer.vocab_size()).unwrap().allows(id) {
            return false;
        }
        assert_eq!(c.admissible(&[id]), 1);
        c.accept(id).unwrap();
    }
    c.may_end().unwrap()
}

#[test]
fn grammars_of_every_kind_take_what_they_should() {
    let Some(tokenizer) = vocabulary() else { return };
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer)).unwrap();
    let schema = r#"{"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0}},
        "required":["name","age"],"additionalProperties":false}"#;
    let json = "root ::= value\nvalue ::= object | array | string | number | \"true\" | \"null\"\n\
        object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n\
        array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n\
        string ::= \"\\\"\" [^\"\\\\\\n]* \"\\\"\" ws\nnumber ::= \"-\"? [0-9]+ (\".\" [0-9]+)? ws\nws ::= [ \\t\\n]*\n";
    let cases: [(Grammar, &[&str], &[&str]); 6] = [
        (
            Grammar::JsonSchema(schema.to_owned()),
            &[r#"{"name":"Ada","age":36}"#, r#"{"name": "", "age": 0}"#],
            &[r#"{"name":"Ada"}"#, r#"{"age":"x"}"#, r#"{"name":"Ada","age":-1}"#, "[]"],
        ),
        (Grammar::JsonObject, &["{}", r#"{"a":[1,2,{"b":null}]}"#], &["[1]", "1", r#"{"a"}"#]),
        (
            Grammar::Regex("(\\d{3})-[a-f]+".to_owned()),
            &["123-abc", "000-f"],
            &["12-abc", "123-", "123-xyz", " 123-abc"],
        ),
        (
            Grammar::Lark("start: \"yes\" | \"no\" NUM\nNUM: /[0-9]+/\n".to_owned()),
            &["yes", "no7", "no123"],
            &["maybe", "no", "yes1"],
        ),
        (
            Grammar::Gbnf("root ::= (\"yes\" | \"no\") [0-9]{2} # two digits\n".to_owned()),
            &["yes42", "no00"],
            &["yes4", "no421", "YES42"],
        ),
        (
            Grammar::Gbnf(json.to_owned()),
            &[r#"{"a": [1, -2.5, "x"], "b": {}}"#, "[]", "true", "\"t\""],
            &["{\"a\": }", "[1,]", "tru", "{'a': 1}"],
        ),
    ];
    for (grammar, good, bad) in &cases {
        for text in *good {
            assert!(takes(&compiler, &tokenizer, grammar, text), "{grammar:?} refuses {text}");
        }
        for text in *bad {
            assert!(!takes(&compiler, &tokenizer, grammar, text), "{grammar:?} takes {text}");
        }
    }
    // An expression with left recursion.
    let left = Grammar::Gbnf("root ::= sum\nsum ::= sum \"+\" [0-9] | [0-9]\n".to_owned());
    assert!(takes(&compiler, &tokenizer, &left, "1+2+3") && !takes(&compiler, &tokenizer, &left, "1+"));
}

/// White space between the parts of a JSON value ends somewhere, unless the schema says what it wants.
#[test]
fn white_space_in_json_is_bounded() {
    let Some(tokenizer) = vocabulary() else { return };
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer)).unwrap();
    let schema = |s: &str| Grammar::JsonSchema(s.to_owned());
    let spaced = |n: usize| format!("{{\"a\":{}[1,\n2]}}", " ".repeat(n));
    for grammar in [
        Grammar::JsonObject,
        schema("true"),
        schema("{}"),
        schema(r#"{"type":"object"}"#),
        schema(r#"{"type":"object","x-guidance":{"lenient":true}}"#),
    ] {
        for (n, taken) in [(0, true), (1, true), (MAX_SPACE, true), (MAX_SPACE + 1, false), (100, false)] {
            assert_eq!(takes(&compiler, &tokenizer, &grammar, &spaced(n)), taken, "{grammar:?}: {n}");
        }
    }
    let none = schema(r#"{"type":"object","x-guidance":{"whitespace_flexible":false}}"#);
    assert!(
        takes(&compiler, &tokenizer, &none, r#"{"a":[1,2]}"#)
            && !takes(&compiler, &tokenizer, &none, &spaced(1))
    );
    let other = schema(r#"{"type":"object","x-guidance":{"whitespace_pattern":"[ \\n]{1,40}"}}"#);
    assert!(
        takes(&compiler, &tokenizer, &other, &spaced(40))
            && !takes(&compiler, &tokenizer, &other, &spaced(41))
    );
}

/// Each gives an error that says what is wrong, or a constraint; none hangs, panics or takes the process down.
#[test]
fn hostile_sources() {
    let Some(tokenizer) = vocabulary() else { return };
    let compiler = GrammarCompiler::new(tokenizer).unwrap();
    let deep = |open: &str, close: &str| format!("{}a{}", open.repeat(60_000), close.repeat(60_000));
    let chain = |line: &dyn Fn(usize) -> String| (0..5000).fold(String::new(), |s, i| s + &line(i));
    let refused: Vec<(Grammar, &str)> = vec![
        (Grammar::Regex(deep("(", ")")), "levels of nesting"),
        (Grammar::Lark(format!("start: {}", deep("(", ")"))), "levels of nesting"),
        (Grammar::Gbnf(format!("root ::= {}", deep("(", ")"))), "levels of nesting"),
        (Grammar::JsonSchema(deep("{\"items\":", "}")), "bytes"),
        (Grammar::JsonSchema(format!("{}{}", "[".repeat(60_000), "]".repeat(60_000))), "levels of nesting"),
        (Grammar::Lark(chain(&|i| format!("r{i}: r{}\n", i + 1)) + "r5000: \"a\"\nstart: r0\n"), "lines"),
        (
            Grammar::Gbnf(
                "root ::= r0\n".to_owned()
                    + &chain(&|i| format!("r{i} ::= r{}\n", i + 1))
                    + "r5000 ::= \"a\"\n",
            ),
            "rules",
        ),
        (Grammar::Regex("a{1,1000000000}".to_owned()), "repetitions"),
        (Grammar::Lark("start: \"a\"{1,1000000000}".to_owned()), "repetitions"),
        (Grammar::Gbnf("root ::= \"a\"{1,1000000000}".to_owned()), "repetitions"),
        (Grammar::JsonSchema(r#"{"type":"string","pattern":"a{1,1000000000}"}"#.to_owned()), "repetitions"),
        (
            Grammar::JsonSchema(
                r#"{"items":[{"type":"object","patternProperties":{"^a{20000}$":{}}}]}"#.to_owned(),
            ),
            "repetitions",
        ),
        (Grammar::Regex("(".to_owned()), "regular expression"),
        (Grammar::Regex("(?=a)b".to_owned()), "regular expression"),
        (Grammar::Lark("start: other".to_owned()), "other"),
        (Grammar::Lark("start \"a\"".to_owned()), "Lark grammar"),
        (Grammar::JsonSchema("{".to_owned()), "JSON schema"),
        (Grammar::JsonSchema(r#"{"$ref":"https://example.com/schema.json"}"#.to_owned()), "JSON schema"),
        (Grammar::JsonSchema(r##"{"$ref":"#/$defs/missing"}"##.to_owned()), "JSON schema"),
        (Grammar::JsonSchema(r#"{"type":"array","uniqueItems":true}"#.to_owned()), "uniqueItems"),
        (Grammar::JsonSchema(r#"{"not":{"type":"string"}}"#.to_owned()), "not"),
        (Grammar::JsonSchema(r#"{"type":"tree"}"#.to_owned()), "tree"),
        (Grammar::JsonSchema(" ".repeat(300_000)), "bytes"),
        (Grammar::JsonSchema(String::new()), "empty"),
        (Grammar::Regex(String::new()), "empty"),
        (Grammar::Lark(" \n".to_owned()), "empty"),
        (Grammar::Gbnf(String::new()), "empty"),
        (Grammar::Gbnf("root ::= \"\"".to_owned()), "GBNF grammar"),
    ];
    for (grammar, says) in refused {
        let Err(error) = compiler.compile(&grammar) else {
            panic!("{:.80} was taken", format!("{grammar:?}"))
        };
        let text = error.to_string();
        assert!(text.contains(says), "{:.80}: {text}", format!("{grammar:?}"));
        assert!(text.len() < 2000, "the error is as long as its cause: {text:.200}");
    }
    // Strange, and possible or not: whichever it is, it is said at once, and what is taken can be used.
    let mut branches = String::from("start: ");
    (0..1000).for_each(|i| {
        let _ = write!(branches, "{}\"k{i}\"", if i > 0 { " | " } else { "" });
    });
    for grammar in [
        Grammar::Regex("(a*)*".to_owned()),
        Grammar::Regex("((a+)+)+b".to_owned()),
        Grammar::Regex("(a|aa)+(b|bb){1,5000}".to_owned()),
        Grammar::Regex("(.*a){40}".to_owned()),
        Grammar::Lark("start: a\na: a \"x\" | \"x\"\n".to_owned()),
        Grammar::Lark("start: start".to_owned()),
        Grammar::Lark("start: a\na: b\nb: a\n".to_owned()),
        Grammar::Lark("start: X**\nX: \"a\"\n".to_owned()),
        Grammar::Lark(branches),
        Grammar::Gbnf("root ::= \"a\"**".to_owned()),
        Grammar::Gbnf("root ::= root root | \"a\" | \"\"".to_owned()),
        Grammar::Gbnf("root ::= root".to_owned()),
        Grammar::JsonSchema(r##"{"$ref":"#"}"##.to_owned()),
        Grammar::JsonSchema(
            r##"{"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"}"##
                .to_owned(),
        ),
        Grammar::JsonSchema(r##"{"type":"object","properties":{"next":{"$ref":"#"}}}"##.to_owned()),
        Grammar::JsonSchema(r#"{"type":"string","minLength":1000000000}"#.to_owned()),
        Grammar::JsonSchema(r#"{"type":"array","items":{"type":"integer"},"minItems":1000000}"#.to_owned()),
        Grammar::JsonSchema(r#"{"enum":[]}"#.to_owned()),
        Grammar::JsonSchema("false".to_owned()),
        Grammar::JsonSchema("true".to_owned()),
    ] {
        match compiler.compile(&grammar) {
            Err(error) => assert!(error.to_string().len() < 2000, "{grammar:?}: {:.300}", error.to_string()),
            Ok(mut c) => {
                let _ = c.mask(1000).map(|mask| mask.is_empty());
            }
        }
    }
}

fn constrained(e: &hanzo_engine::Engine, c: Box<dyn Constraint>, sampling: SamplingParams) -> common::Reply {
    let mut request = Request::new((10..40).collect(), 60);
    request.sampling = sampling;
    request.constraint = Some(c);
    run(e, request)
}

/// A grammar over ids, for a model without a tokenizer: `a (b c)* d`.
#[derive(Clone)]
struct Pattern(usize);

impl Constraint for Pattern {
    fn mask(&mut self, vocab_size: usize) -> Result<TokenMask, String> {
        let mut mask = TokenMask::new(vocab_size);
        let next: &[u32] = [&[100][..], &[101, 103], &[102], &[]][self.0];
        next.iter().for_each(|&id| mask.allow(id));
        Ok(mask)
    }

    fn may_end(&mut self) -> Result<bool, String> {
        Ok(self.must_end())
    }

    fn must_end(&mut self) -> bool {
        self.0 == 3
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        self.0 = match (self.0, token) {
            (0, 100) | (2, 102) => 1,
            (1, 101) => 2,
            (1, 103) => 3,
            _ => return Err(format!("{token} was not allowed")),
        };
        Ok(())
    }

    fn admissible(&mut self, drafts: &[u32]) -> usize {
        let mut copy = self.clone();
        drafts.iter().take_while(|&&id| copy.accept(id).is_ok()).count()
    }

    fn forced(&mut self) -> Vec<u32> {
        if self.0 == 2 { vec![102, 101] } else { Vec::new() }
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

/// Fails at its third mask, or panics.
#[derive(Clone)]
struct Broken(usize, bool);

impl Constraint for Broken {
    fn mask(&mut self, vocab_size: usize) -> Result<TokenMask, String> {
        self.0 += 1;
        assert!(self.0 < 3 || !self.1, "the constraint is broken");
        if self.0 == 3 {
            return Err("out of fuel".to_owned());
        }
        let mut mask = TokenMask::new(vocab_size);
        (0..100).for_each(|id| mask.allow(id));
        Ok(mask)
    }

    fn may_end(&mut self) -> Result<bool, String> {
        Ok(false)
    }

    fn must_end(&mut self) -> bool {
        false
    }

    fn accept(&mut self, _token: u32) -> Result<(), String> {
        Ok(())
    }

    fn admissible(&mut self, _drafts: &[u32]) -> usize {
        0
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

#[test]
fn masks_hold_and_forced_tokens_are_drafts() {
    let Some(file) = tiny("llama") else { return };
    let options = EngineOptions { max_context: Some(192), eog: vec![3], ..EngineOptions::default() };
    let on = engine(&file, 2, options.clone());
    let off = engine(&file, 2, EngineOptions { speculation: Speculation::off(), ..options });
    for seed in 0..6 {
        let sampling = SamplingParams { seed, temperature: 2.0, ..SamplingParams::plain() };
        let a = constrained(&on, Box::new(Pattern(0)), sampling.clone());
        let b = constrained(&off, Box::new(Pattern(0)), sampling);
        assert_eq!(a.tokens, b.tokens);
        let mut check = Pattern(0);
        a.tokens.iter().for_each(|&id| check.accept(id).unwrap());
        let ended = a.finished().reason == FinishReason::Stop;
        assert_eq!(ended, check.must_end());
        assert!(ended || a.tokens.len() == 60);
        if a.tokens.len() > 4 {
            assert!(a.finished().accepted_tokens > 0, "what is forced costs no step");
        }
    }
    for (panics, says) in
        [(false, "the constraint failed at token 2 of the reply: out of fuel"), (true, "broken")]
    {
        let other = on.generate(Request::new((10..40).collect(), 30)).unwrap();
        let reply = constrained(&on, Box::new(Broken(0, panics)), SamplingParams::greedy());
        assert_eq!(reply.tokens.len(), 2);
        assert!(reply.error.clone().unwrap().contains(says), "{:?}", reply.error);
        assert!(common::collect(other).finish.is_some());
    }
    assert_eq!(on.metrics().restarts, 0);
    settle(&on);
}

/// Allows everything and counts how often it is asked.
#[derive(Clone)]
struct Counting(Arc<AtomicUsize>);

impl Constraint for Counting {
    fn mask(&mut self, vocab_size: usize) -> Result<TokenMask, String> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(TokenMask::from_words(&vec![u32::MAX; vocab_size.div_ceil(32)], vocab_size))
    }

    fn may_end(&mut self) -> Result<bool, String> {
        Ok(false)
    }

    fn must_end(&mut self) -> bool {
        false
    }

    fn accept(&mut self, _token: u32) -> Result<(), String> {
        Ok(())
    }

    fn admissible(&mut self, drafts: &[u32]) -> usize {
        drafts.len()
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(self.clone())
    }
}

/// While the device is busy with a step, the mask of the draw after it is made; and none for a step that draws nothing.
#[test]
fn masks_are_made_while_the_device_runs() {
    let Some(file) = tiny("llama") else { return };
    let control = Arc::new(Control::default());
    let device = Controlled(cpu(1), Arc::clone(&control));
    let options = EngineOptions {
        max_context: Some(192),
        max_batch_tokens: 16,
        max_sequences: 2,
        speculation: Speculation::off(),
        ..EngineOptions::default()
    };
    let e = Engine::load(&file, &device, options, &()).unwrap();
    control.hold();
    let asked = Arc::new(AtomicUsize::new(0));
    let constraint: Box<dyn Constraint> = Box::new(Counting(Arc::clone(&asked)));
    let request =
        Request { constraint: Some(constraint), ignore_eos: true, ..Request::new((10..40).collect(), 3) };
    let events = e.generate(request).unwrap();
    control.wait_blocked();
    assert_eq!(asked.load(Ordering::SeqCst), 0, "the prompt's first chunk draws nothing");
    for step in 1..=3 {
        control.permit(1);
        let until = Instant::now() + Duration::from_secs(60);
        while asked.load(Ordering::SeqCst) < step {
            assert!(Instant::now() < until, "no mask for step {step}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(control.steps.lock().unwrap().len(), step, "the step that draws has not run yet");
    }
    control.release();
    assert_eq!(common::collect(events).tokens.len(), 3);
    assert_eq!(asked.load(Ordering::SeqCst), 3, "once a draw");
    settle(&e);
}

#[test]
fn a_real_model_writes_json() {
    let Some(file) = real(common::SMOLLM) else { return };
    let tokenizer = Arc::new(Tokenizer::from_gguf(file.metadata()).unwrap());
    let compiler = GrammarCompiler::new(Arc::clone(&tokenizer)).unwrap();
    let options = EngineOptions {
        max_context: Some(512),
        eog: tokenizer.eog_ids().to_vec(),
        ..EngineOptions::default()
    };
    let on = engine(&file, 2, options.clone());
    let off = engine(&file, 2, EngineOptions { speculation: Speculation::off(), ..options });
    let schema = r#"{"type":"object","properties":{"city":{"type":"string","maxLength":20},
        "population":{"type":"integer","maximum":99999999},"coastal":{"type":"boolean"}},
        "required":["city","population","coastal"],"additionalProperties":false}"#;
    let text = "<|im_start|>user\nDescribe Lisbon as JSON.<|im_end|>\n<|im_start|>assistant\n";
    let prompt = tokenizer.encode(text, EncodeOptions { add_special: true, parse_special: true }).unwrap();
    for sampling in [SamplingParams::greedy(), SamplingParams { seed: 9, ..SamplingParams::default() }] {
        let ask = |e| {
            let constraint = compiler.compile(&Grammar::JsonSchema(schema.to_owned())).unwrap();
            let request = Request {
                sampling: sampling.clone(),
                constraint: Some(constraint),
                ..Request::new(prompt.clone(), 120)
            };
            run(e, request)
        };
        let (a, b) = (ask(&on), ask(&off));
        assert_eq!(a.tokens, b.tokens);
        let reply = tokenizer.decode(&a.tokens, Default::default()).unwrap();
        println!(
            "{reply} ({} of {} drafts right)",
            a.finished().accepted_tokens,
            a.finished().drafted_tokens
        );
        assert_eq!(a.finished().reason, FinishReason::Stop, "{reply}");
        let value: serde_json::Value = serde_json::from_str(&reply).unwrap();
        assert!(value["city"].is_string() && value["population"].is_i64() && value["coastal"].is_boolean());
    }
}
