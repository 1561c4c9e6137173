//! Templates from strangers: each must end in a typed error that says what was wrong, with bounded memory and stack,
//! and leave everything right for the next rendering.

#![allow(clippy::unwrap_used, clippy::print_stdout, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hanzo_text::chat::ChatMessage;
use hanzo_text::template::{ChatTemplate, RenderRequest, TemplateErrorKind as Kind};
use proptest::prelude::*;
use serde_json::json;

/// Counts the bytes that are allocated, and the most there ever were.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The tests of this file run one at a time: the allocator counts for all threads.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const MAX_GROWTH: usize = 64 << 20;
/// Half of the smallest stack that a caller is likely to have (a tokio worker's 2 MiB).
const STACK: usize = 1 << 20;

/// Compiles and renders on a small stack; the error's kind, or the length of the text.
fn run(source: &str) -> Result<usize, (Kind, String)> {
    let source = source.to_owned();
    let work = move || {
        let messages = [ChatMessage::system("be brief"), ChatMessage::user("hello")];
        let request =
            RenderRequest { messages: &messages, add_generation_prompt: true, ..RenderRequest::default() };
        let rendered = ChatTemplate::compile(&source, "<s>", "</s>").and_then(|t| t.render(&request));
        rendered.map(|text| text.len()).map_err(|e| (e.kind, e.to_string()))
    };
    std::thread::Builder::new().stack_size(STACK).spawn(work).unwrap().join().unwrap()
}

fn loops(depth: usize, body: &str) -> String {
    format!("{}{body}{}", "{% for i in range(100000) %}".repeat(depth), "{% endfor %}".repeat(depth))
}

fn nest(open: &str, inner: &str, close: &str, times: usize) -> String {
    format!("{}{inner}{}", open.repeat(times), close.repeat(times))
}

/// What is hostile, its name, and the kind of error it must end in.
fn hostile() -> Vec<(&'static str, String, Kind)> {
    let ns = "{% set ns = namespace(x='0123456789abcdef', l=[1]) %}";
    let mut cases = vec![
        // Time.
        ("loops of 10^10", loops(2, "x"), Kind::Limit),
        ("empty loops of 10^15", loops(3, ""), Kind::Limit),
        ("range of 10^9", "{% for i in range(10**9) %}{% endfor %}".into(), Kind::Limit),
        ("range of 10^30", "{{ range(10**30)|list }}".into(), Kind::Limit),
        ("recursive loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}".into(), Kind::Limit),
        ("macro that calls itself", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}".into(), Kind::Limit),
        (
            "two macros that call each other",
            "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{{ a() }}{% endmacro %}{{ a() }}".into(),
            Kind::Limit,
        ),
        (
            "caller that calls its macro",
            "{% macro m() %}{{ caller() }}{% endmacro %}{% macro r() %}{% call m() %}{{ r() }}{% endcall %}{% endmacro %}{{ r() }}".into(),
            Kind::Limit,
        ),
        ("filters of filters", format!("{{{{ ['a']|map({}'list')|list }}}}", "'map',".repeat(1500)), Kind::Limit),
        ("needle in a haystack, often", format!("{{% set s = 'a' * 1000000 %}}{}", loops(1, "{{ 'ab' in s }}")), Kind::Limit),
        ("list compared, often", format!("{{% set l = range(100000)|list %}}{}", loops(1, "{{ l == l }}")), Kind::Limit),
        ("doubly shared list printed", format!("{ns}{}{{{{ ns.l }}}}", "{% set ns.l = [ns.l, ns.l] %}".repeat(60)), Kind::Limit),
        ("doubly shared list as JSON", format!("{ns}{}{{{{ ns.l|tojson }}}}", "{% set ns.l = [ns.l, ns.l] %}".repeat(60)), Kind::Limit),
        ("doubly shared lists compared", format!("{ns}{0}{{% set ns.y = [1] %}}{1}{{{{ ns.l == ns.y }}}}", "{% set ns.l = [ns.l, ns.l] %}".repeat(60), "{% set ns.y = [ns.y, ns.y] %}".repeat(60)), Kind::Limit),
        ("arguments unpacked, often", format!("{{% macro m() %}}{{{{ varargs|length }}}}{{% endmacro %}}{}", loops(1, "{{ m(*range(100000)) }}")), Kind::Limit),
        ("sorts, often", loops(1, "{{ range(100000)|sort|length }}"), Kind::Limit),
        // Memory.
        ("string times 10^9", "{{ 'a' * 10**9 }}".into(), Kind::Limit),
        ("string times 10^8", "{{ ('a' * 99999999)|length }}".into(), Kind::Limit),
        ("list times 10^9", "{{ ([1] * 10**9)|length }}".into(), Kind::Limit),
        ("string doubled by a loop", format!("{ns}{}", loops(1, "{% set ns.x = ns.x ~ ns.x %}")), Kind::Limit),
        ("list doubled by a loop", format!("{ns}{}", loops(1, "{% set ns.l = ns.l + ns.l %}")), Kind::Limit),
        ("text grown by a loop", format!("{ns}{}", loops(2, "{% set ns.x = ns.x + 'y' %}")), Kind::Limit),
        ("output without end", loops(2, &"z".repeat(1000)), Kind::Limit),
        ("captured output without end", format!("{{% set x %}}{}{{% endset %}}", loops(2, &"z".repeat(1000))), Kind::Limit),
        ("replace that multiplies", "{{ ('a' * 1000000)|replace('a', 'a' * 1000) }}".into(), Kind::Limit),
        ("replace of nothing", "{{ ('a' * 1000000).replace('', 'b' * 1000) }}".into(), Kind::Limit),
        ("join that multiplies", "{{ range(100000)|join('a' * 10000) }}".into(), Kind::Limit),
        ("indent that multiplies", "{{ ('\n' * 100000)|indent('x' * 10000, true, true) }}".into(), Kind::Limit),
        ("wide indent", "{{ 'a\nb'|indent(10**12) }}".into(), Kind::Limit),
        ("JSON with a wide indent", format!("{{{{ {}|tojson(indent=10**9) }}}}", nest("[", "1", "]", 40)), Kind::Value),
        ("wide field", "{{ '%999999999d' % 1 }}".into(), Kind::Value),
        ("wide field by argument", "{{ '%*d' % (999999999, 1) }}".into(), Kind::Value),
        ("wide format", "{{ '{:>999999999}'.format(1) }}".into(), Kind::Value),
        ("wide format by argument", "{{ '{:>{w}}'.format(1, w=999999999) }}".into(), Kind::Value),
        ("wide center", "{{ 'a'.center(10**12) }}".into(), Kind::Limit),
        ("wider than an address", "{{ 'a'.center(10**30) }}".into(), Kind::Limit),
        ("wide zfill", "{{ 'a'.zfill(10**12) }}".into(), Kind::Limit),
        ("batch filled up", "{{ [1]|batch(10**9, 1)|list }}".into(), Kind::Limit),
        ("slices of nothing", "{{ []|slice(10**9)|list }}".into(), Kind::Limit),
        ("large power", "{{ 10 ** 10 ** 10 }}".into(), Kind::Value),
        ("scopes kept by macros", format!("{ns}{}", loops(2, "{% macro m() %}{% endmacro %}")), Kind::Limit),
        ("splits", format!("{{% set s = 'a ' * 100000 %}}{}", loops(1, "{% set x = s.split() %}")), Kind::Limit),
        ("dates", "{{ strftime_now('%c' * 5000000) }}".into(), Kind::Limit),
        ("characters of a long string", "{{ ('a' * 9000000)|list|length }}".into(), Kind::Limit),
        // Depth of values.
        ("list in list by a loop", format!("{ns}{}", loops(1, "{% set ns.l = [ns.l] %}")), Kind::Limit),
        ("dict in dict by a loop", format!("{ns}{}", loops(1, "{% set ns.l = {'k': ns.l} %}")), Kind::Limit),
        ("generator in generator", format!("{ns}{}", loops(1, "{% set ns.l = [ns.l]|select %}")), Kind::Limit),
        ("namespace in namespace", format!("{ns}{}", loops(1, "{% set ns.l = namespace(p=ns.l) %}")), Kind::Unsupported),
        ("namespace in itself", format!("{ns}{{% set ns.x = ns %}}{{{{ ns }}}}"), Kind::Unsupported),
        ("namespace in itself, wrapped", format!("{ns}{{% set ns.x = [{{'a': ns}}] %}}"), Kind::Unsupported),
        ("loop in its own memory", "{% for x in [1, 2] %}{{ loop.changed(loop) }}{% endfor %}".into(), Kind::Unsupported),
        // The way out of the sandbox.
        ("class of a string", "{{ ''.__class__ }}".into(), Kind::Security),
        ("class by filter", "{{ ''|attr('__class__') }}".into(), Kind::Security),
        ("class by subscript", "{{ ''['__class__'] }}".into(), Kind::Security),
        ("class by format", "{{ '{0.__class__}'.format('') }}".into(), Kind::Value),
        ("class by map", "{{ ['']|map(attribute='__class__')|list }}".into(), Kind::Security),
        ("globals of a function", "{{ raise_exception.__globals__ }}".into(), Kind::Security),
        ("globals of a macro", "{% macro m() %}{% endmacro %}{{ m.__globals__ }}".into(), Kind::Security),
        ("mutated list", "{{ messages.append(1) }}".into(), Kind::Security),
        ("file", "{% include '/etc/passwd' %}".into(), Kind::Unsupported),
        ("import", "{% import 'os' as os %}".into(), Kind::Unsupported),
        ("self", "{{ self.x }}".into(), Kind::Undefined),
        // The template's own refusal, and what the request lacks.
        ("refusal", "{{ raise_exception('only user and assistant roles') }}".into(), Kind::Raised),
        ("missing variable", "{{ functions | tojson }}".into(), Kind::Undefined),
        ("missing field", "{{ messages[0].tool_calls[0].name }}".into(), Kind::Undefined),
        ("missing tools", "{% for t in tools %}{% endfor %}".into(), Kind::Type),
        ("no template", "  \n ".into(), Kind::Missing),
        // What panics in other engines.
        ("cycle of nothing", "{% for x in [1] %}{{ loop.cycle() }}{% endfor %}".into(), Kind::Type),
        ("remainder by zero", "{{ 1 % 0 }}".into(), Kind::Value),
        ("smallest integer", "{{ -170141183460469231731687303715884105727 - 2 }}".into(), Kind::Value),
        ("smallest integer divided", "{{ (-170141183460469231731687303715884105727 - 1) // -1 }}".into(), Kind::Value),
        ("slices with wild bounds", "{{ 'abc'[10**30:-(10**30):-(10**30)] ~ raise_exception('done') }}".into(), Kind::Raised),
        ("order without order", "{{ [1, 'a', none]|sort }}".into(), Kind::Type),
    ];
    // A megabyte of nesting, and as much as the source's limit lets through.
    for bytes in [1 << 20, 250_000] {
        for (open, close) in [
            ("{% if x %}", "{% endif %}"),
            ("{% for i in x %}", "{% endfor %}"),
            ("{% macro m() %}", "{% endmacro %}"),
            ("{% set x %}", "{% endset %}"),
            ("{% filter upper %}", "{% endfilter %}"),
            ("{% with %}", "{% endwith %}"),
            ("{% call m() %}", "{% endcall %}"),
        ] {
            cases.push((
                "nested blocks",
                nest(open, "", close, bytes / (open.len() + close.len())),
                Kind::Limit,
            ));
        }
        for (open, close) in [
            ("(", ")"),
            ("[", "]"),
            ("{1:", "}"),
            ("f(", ")"),
            ("x[", "]"),
            ("x|f(", ")"),
            ("x is f(", ")"),
            ("1 if 1 else ", ""),
            ("{'a':[", "]}"),
            ("-(", ")"),
            ("not (", ")"),
        ] {
            let inner = nest(open, "1", close, bytes / (open.len() + close.len()) - 10);
            cases.push(("nested brackets", format!("{{{{ {inner} }}}}"), Kind::Limit));
        }
        // Cut off in the middle.
        for open in ["{{", "{%", "{#", "{% if (", "{{ '", "{% raw %}"] {
            let kind = if bytes > 262_144 { Kind::Limit } else { Kind::Syntax };
            cases.push(("cut off", open.repeat(bytes / open.len()), kind));
        }
    }
    cases
}

#[test]
fn hostile_templates_end_in_typed_errors() {
    let _alone = alone();
    let mut slowest = (0.0, "");
    let mut largest = (0, "");
    for (name, source, kind) in hostile() {
        let before = LIVE.load(Relaxed);
        PEAK.store(before, Relaxed);
        let started = Instant::now();
        let result = run(&source);
        let (seconds, growth) = (started.elapsed().as_secs_f64(), PEAK.load(Relaxed).saturating_sub(before));
        if seconds > slowest.0 {
            slowest = (seconds, name);
        }
        if growth > largest.0 {
            largest = (growth, name);
        }
        match result {
            Err((found, message)) => assert_eq!(found, kind, "{name}: {message}"),
            Ok(len) => panic!("{name}: rendered {len} bytes"),
        }
        assert!(growth < MAX_GROWTH, "{name}: grew by {growth} bytes");
    }
    println!("slowest: {slowest:?} s; largest growth: {largest:?} bytes");
    // Still right afterwards.
    assert_eq!(run("{% for m in messages %}{{ m.role }} {% endfor %}"), Ok("system user ".len()));
}

/// Long but flat: chains have no depth.
#[test]
fn long_flat_templates_are_fine() {
    let _alone = alone();
    for (source, len) in [
        (format!("{{{{ 1{} }}}}", "+1".repeat(100_000)), 6),
        (format!("{{{{ {}1 }}}}", "not ".repeat(50_001)), 5),
        (format!("{{{{ {}1 }}}}", "- ".repeat(50_001)), 2),
        (format!("{{{{ ''{} }}}}", "~'a'".repeat(50_000)), 50_000),
        (format!("{{{{ 'A'{} }}}}", "|lower".repeat(40_000)), 1),
        (format!("{{{{ 1{} }}}}", " and 1".repeat(40_000)), 1),
        (format!("{{{{ 1{} }}}}", " == 1".repeat(40_000)), 4),
        (format!("{{{{ [{}]|length }}}}", "1,".repeat(50_000)), 5),
        (format!("{{% if 0 %}}{}{{% else %}}ok{{% endif %}}", "{% elif 0 %}".repeat(20_000)), 2),
    ] {
        let head: String = source.chars().take(40).collect();
        assert_eq!(run(&source), Ok(len), "{head}…");
    }
}

/// What is nested as deep as it may be works on a small stack, parsed, evaluated and dropped.
#[test]
fn allowed_depth_fits_a_small_stack() {
    let _alone = alone();
    let lists = nest("[", "1", "]", 45);
    assert_eq!(run(&format!("{{{{ {lists} }}}}")), Ok(91));
    assert_eq!(run(&format!("{{{{ {} }}}}", nest("(", "1", ")", 30))), Ok(1));
    assert_eq!(run(&nest("{% if 1 %}", "x", "{% endif %}", 90)), Ok(1));
    let deep = "{% set ns = namespace(l=1) %}{% for i in range(250) %}{% set ns.l = [ns.l] %}{% endfor %}";
    assert_eq!(run(&format!("{deep}{{{{ ns.l|tojson|length }}}}{{{{ ns.l == ns.l }}}}")), Ok(3 + 4));
    let recursion =
        "{% macro m(n) %}{% if n %}{% for i in [1] %}{{ m(n - 1) }}{% endfor %}{% endif %}.{% endmacro %}";
    assert_eq!(run(&format!("{recursion}{{{{ m(50) }}}}")), Ok(51));
}

/// A long conversation is no attack.
#[test]
fn large_requests_have_room() {
    let _alone = alone();
    let template = "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] | trim }}{% if m.content.split('x')|length > 1 and 'zz' not in m.content %}{{ m.content.replace('y', 'z') }}{% endif %}{% endfor %}";
    let template = ChatTemplate::compile(template, "", "").unwrap();
    let long = "x y\n".repeat(500_000);
    let mut messages = vec![ChatMessage::user(&long)];
    messages.extend((0..5000).map(|i| ChatMessage::user(&format!("message {i} xx"))));
    let request = RenderRequest { messages: &messages, ..RenderRequest::default() };
    assert!(template.render(&request).unwrap().len() > 4_000_000);
    let tools: Vec<_> = (0..400)
        .map(|i| json!({"type": "function", "function": {"name": format!("tool{i}"), "description": "x".repeat(1000)}}))
        .collect();
    let source = "{% set ns = namespace(t='') %}{% for t in tools %}{% set ns.t = ns.t ~ (t|tojson) ~ '\n' %}{% endfor %}{{ ns.t }}";
    let template = ChatTemplate::compile(source, "", "").unwrap();
    let request = RenderRequest { tools: Some(&tools), ..RenderRequest::default() };
    assert!(template.render(&request).unwrap().len() > 400_000);
    let tools: Vec<_> =
        (0..10_000).map(|i| json!({"type": "function", "function": {"name": format!("tool{i}")}})).collect();
    let template =
        ChatTemplate::compile("{% for t in tools %}{{ t|tojson(indent=2) }}{% endfor %}", "", "").unwrap();
    let request = RenderRequest { tools: Some(&tools), ..RenderRequest::default() };
    assert!(template.render(&request).unwrap().len() > 500_000);
}

/// Pieces of templates, in and out of place.
const PIECES: &[&str] = &[
    "{{ ",
    " }}",
    "{% ",
    " %}",
    "{%- ",
    " -%}",
    "{#",
    "#}",
    "if ",
    "else",
    "elif ",
    "endif",
    "for x in ",
    "endfor",
    "set x = ",
    "set ",
    "endset",
    "macro m(a, b=1)",
    "endmacro",
    "call m()",
    "endcall",
    "filter upper",
    "endfilter",
    "with a=1",
    "endwith",
    "raw",
    "endraw",
    "break",
    "continue",
    "generation",
    "endgeneration",
    "messages",
    "x",
    "loop",
    "loop.index",
    "loop.cycle(1)",
    "m(1)",
    "caller()",
    "ns.x",
    "namespace(a=1)",
    "[1, 'a', none]",
    "{'k': 1}",
    "(1, 2)",
    "'str'",
    "\"\\u00e9\"",
    "1",
    "-1",
    "2.5",
    "1e400",
    "true",
    "none",
    "99999999999999999999999999999",
    " + ",
    " - ",
    " * ",
    " / ",
    " // ",
    " % ",
    " ** ",
    " ~ ",
    " == ",
    " < ",
    " in ",
    " not ",
    " and ",
    " or ",
    " is ",
    " if ",
    " else ",
    "|",
    "length",
    "join(',')",
    "map('upper')",
    "select",
    "sort",
    "tojson",
    "tojson(indent=2)",
    "default(1)",
    "int",
    "round(-38)",
    "round",
    "batch(2)",
    "slice(2)",
    "indent(3)",
    "center(5)",
    "format(1)",
    "truncate(3)",
    "groupby('role')",
    "dictsort",
    "first",
    "last",
    "reverse",
    "list",
    "unique",
    ".split()",
    ".strip('x')",
    ".format(1, a=2)",
    ".zfill(9)",
    ".items()",
    ".get('k')",
    ".x",
    "[0]",
    "[-1]",
    "[1:]",
    "[::-1]",
    "[10**38:]",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ",",
    ":",
    ".",
    "=",
    "range(5)",
    "range(-170141183460469231731687303715884105727, 1, 9)",
    "defined",
    "odd",
    "divisibleby(0)",
    "eq(1)",
    "strftime_now('%c')",
    "text",
    "\n",
    "  ",
    "é",
    "日",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a template is, it renders or fails; it never panics.
    #[test]
    fn no_template_panics(
        pieces in proptest::collection::vec(proptest::sample::select(PIECES), 0..24),
        expression in proptest::collection::vec(proptest::sample::select(PIECES), 1..8),
    ) {
        let _alone = alone();
        let messages = [ChatMessage::user("hello")];
        let request = RenderRequest { messages: &messages, ..RenderRequest::default() };
        for source in [pieces.concat(), format!("{{{{ {} }}}}", expression.concat())] {
            if let Ok(template) = ChatTemplate::compile(&source, "", "") {
                let _ = template.render(&request);
            }
        }
    }
}

#[test]
fn reserved_names_and_deep_json_are_refused() {
    let _alone = alone();
    let template = ChatTemplate::compile("{{ x }}", "", "").unwrap();
    let kwargs = json!({"messages": 1});
    let request = RenderRequest { kwargs: kwargs.as_object(), ..RenderRequest::default() };
    assert_eq!(template.render(&request).unwrap_err().kind, Kind::Request);
    let mut deep = json!(1);
    for _ in 0..300 {
        deep = json!([deep]);
    }
    let kwargs = json!({"x": deep});
    let request = RenderRequest { kwargs: kwargs.as_object(), ..RenderRequest::default() };
    assert_eq!(template.render(&request).unwrap_err().kind, Kind::Request);
}
