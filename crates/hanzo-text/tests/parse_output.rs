//! Replies of every family, and the three promises: cuts do not matter, what only looks like a call stays content, and
//! nothing is an error.

#![allow(clippy::unwrap_used)]

use hanzo_text::parse::{Event, Family, OutputParser, ParseOptions, Reply, Tools};
use proptest::prelude::*;
use serde_json::{Value, json};

fn tools() -> Tools {
    let tool = |name: &str, properties: Value| {
        json!({"type": "function", "function": {"name": name,
            "parameters": {"type": "object", "properties": properties}}})
    };
    Tools::from_json(&[
        tool("get_weather", json!({"city": {"type": "string"}, "days": {"type": "integer"}})),
        tool("add", json!({"a": {"type": "number"}, "b": {"type": "number"}})),
        tool("now", json!({})),
    ])
}

fn options(family: Family) -> ParseOptions {
    ParseOptions { family, tools: Some(tools()), ..ParseOptions::default() }
}

fn parse(family: Family, text: &str) -> Reply {
    OutputParser::parse(text, options(family))
}

/// The reply as one JSON value: `[reasoning, content, [[name, arguments], …]]`.
fn show(reply: &Reply) -> Value {
    let calls: Vec<Value> = reply.tool_calls.iter().map(|c| json!([c.name, c.arguments])).collect();
    json!([reply.reasoning, reply.content, calls])
}

fn weather() -> Value {
    json!(["get_weather", {"city": "Zürich"}])
}

/// Family, text, and what is in it.
fn replies() -> Vec<(Family, &'static str, Value)> {
    use Family::*;
    let w = weather;
    let add = || json!(["add", {"a": 1, "b": 2}]);
    vec![
        (Generic, "plain text \n", json!(["", "plain text \n", []])),
        (Generic, "", json!(["", "", []])),
        (Generic, " \n ", json!(["", " \n ", []])),
        (Hermes, "<think>\nhm\n\nhm \n</think>\n\nHello.", json!(["hm\n\nhm", "Hello.", []])),
        (Hermes, "<think>\n\n</think>\n\nHello. ", json!(["", "Hello. ", []])),
        (Hermes, "<think>cut off", json!(["cut off", "", []])),
        (Hermes, "I use <think> tags</think>", json!(["", "I use <think> tags</think>", []])),
        (
            Hermes,
            "<think>x</think>\n\nLet me see.\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_call>",
            json!(["x", "Let me see.", [w(), add()]]),
        ),
        (
            Hermes,
            "<tool_call>{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\": \\\"Zürich\\\"}\"}",
            json!(["", "", [w()]]),
        ),
        (
            Hermes,
            "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"</tool_call>\"}}</tool_call> done",
            json!(["", "done", [["get_weather", {"city": "</tool_call>"}]]]),
        ),
        (
            Hermes,
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>",
            json!(["", "", [["get_weather", {"city": "Zürich", "days": 3}]]]),
        ),
        (Hermes, "<function=now>\n</function>", json!(["", "", [["now", {}]]])),
        (Hermes, "{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}", json!(["", "", [add()]])),
        (
            Hermes,
            "So: {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}",
            json!(["", "So: {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}", []]),
        ),
        (Hermes, "<function=add>{\"a\": 1, \"b\": 2}</function>", json!(["", "", [add()]])),
        (
            Hermes,
            "<function name=\"get_weather\"><param name=\"city\"><![CDATA[Zürich]]></param></function>",
            json!(["", "", [w()]]),
        ),
        (
            Hermes,
            "<think>a</think><tool_call>{\"name\": \"now\"}</tool_call>\n<think>b</think>ok",
            json!(["ab", "ok", [["now", {}]]]),
        ),
        (
            Llama3,
            "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\"}}",
            json!(["", "", [w()]]),
        ),
        (
            Llama3,
            "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\"}}; {\"name\": \"add\", \"parameters\": {\"a\": 1, \"b\": 2}}<|eom_id|>",
            json!(["", "", [w(), add()]]),
        ),
        (Llama3, "<|python_tag|>get_weather.call(city=\"Zürich\")", json!(["", "", [w()]])),
        (Llama3, "[get_weather(city='Zürich'), add(a=1, b=2)]", json!(["", "", [w(), add()]])),
        (
            Llama3,
            "{\"name\": \"Bob\", \"parameters\": {}} is JSON",
            json!(["", "{\"name\": \"Bob\", \"parameters\": {}} is JSON", []]),
        ),
        (
            Llama3,
            "Use {\"name\": \"now\", \"parameters\": {}}.",
            json!(["", "Use {\"name\": \"now\", \"parameters\": {}}.", []]),
        ),
        (
            Mistral,
            "[TOOL_CALLS] [{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\"}}, {\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}, \"id\": \"abc\"}]",
            json!(["", "", [w(), add()]]),
        ),
        (
            Mistral,
            "[THINK]why[/THINK]Sure.[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Zürich\"}[TOOL_CALLS]add[CALL_ID]x1[ARGS]{\"a\": 1, \"b\": 2}",
            json!(["why", "Sure.", [w(), add()]]),
        ),
        (
            DeepSeek,
            "<think>x</think>Calling.\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Zürich\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1, \"b\": 2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            json!(["x", "Calling.", [w(), add()]]),
        ),
        (
            DeepSeek,
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Zürich\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1, \"b\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            json!(["", "", [w(), add()]]),
        ),
        (
            DeepSeek,
            "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Zürich</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"add\">\n<｜DSML｜parameter name=\"a\" string=\"false\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
            json!(["", "", [w(), add()]]),
        ),
        (
            Harmony,
            "<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Zürich\"}<|call|>",
            json!(["Need weather.", "One moment.", [w()]]),
        ),
        (
            Harmony,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant to=functions.get_weather<|channel|>commentary <|constrain|> json<|message|>{\"city\": \"Zürich\"}",
            json!(["a", "", [w()]]),
        ),
        (
            Harmony,
            "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>It is <b>.<|return|>",
            json!(["a", "It is <b>.", []]),
        ),
        (Harmony, " to=functions.now<|channel|>commentary<|message|>{}", json!(["", "", [["now", {}]]])),
        (
            Gemma,
            "<|channel>thought\nhm<channel|><|tool_call>call:get_weather{city:<|\"|>Zürich<|\"|>}<tool_call|><|tool_call>call:add{a:1,b:2}<tool_call|>",
            json!(["hm", "", [w(), add()]]),
        ),
        (
            Gemma,
            "<start_function_call>call:get_weather{city:<escape>Zürich<escape>}<end_function_call>",
            json!(["", "", [w()]]),
        ),
        (Gemma, "Sure:\n```tool_code\nget_weather(city=\"Zürich\")\n```", json!(["", "Sure:", [w()]])),
        (Granite, "<think>a</think><response>b</response>\n", json!(["a", "b", []])),
        (
            Granite,
            "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\"}}]",
            json!(["", "", [w()]]),
        ),
        (
            Phi,
            "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\"}}]<|/tool_call|>",
            json!(["", "", [w()]]),
        ),
        (
            Phi,
            "functools[{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}]",
            json!(["", "", [add()]]),
        ),
        (
            Glm,
            "<think>a</think>\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n</tool_call><tool_call>now</tool_call>",
            json!(["a", "", [w(), ["now", {}]]]),
        ),
        (
            Glm,
            "the <tool_call>word</tool_call> stays",
            json!(["", "the <tool_call>word</tool_call> stays", []]),
        ),
        (
            Kimi,
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Zürich\"}<|tool_call_end|><|tool_call_begin|>functions.add:1<|tool_call_argument_begin|>{\"a\": 1, \"b\": 2}<|tool_call_end|><|tool_calls_section_end|>",
            json!(["", "", [w(), add()]]),
        ),
        (
            Command,
            "<|START_THINKING|>a<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich\"}}\n]<|END_ACTION|>",
            json!(["a", "", [w()]]),
        ),
        (Command, "<|START_RESPONSE|>Hello.<|END_RESPONSE|>", json!(["", "Hello.", []])),
        (
            Lfm2,
            "<|tool_call_start|>[get_weather(city=\"Zürich\"), add(a=1, b=2)]<|tool_call_end|>Done.",
            json!(["", "Done.", [w(), add()]]),
        ),
        (
            Seed,
            "<seed:think>a</seed:think><seed:tool_call>\n<function=get_weather>\n<parameter=city>Zürich</parameter>\n</function>\n</seed:tool_call>",
            json!(["a", "", [w()]]),
        ),
        (
            MiniMax,
            "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich\"}}\n{\"name\": \"add\", \"arguments\": {\"a\": 1, \"b\": 2}}\n</tool_calls>",
            json!(["", "", [w(), add()]]),
        ),
        (
            MiniMax,
            "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Zürich</parameter>\n</invoke>\n</minimax:tool_call>",
            json!(["", "", [w()]]),
        ),
    ]
}

#[test]
fn every_family_is_read() {
    for (family, text, expected) in replies() {
        assert_eq!(show(&parse(family, text)), expected, "{family}: {text}");
    }
}

#[test]
fn what_only_looks_like_a_call_stays_content() {
    for text in [
        "<tool_call>",
        "<tool_call>\nnot JSON\n</tool_call>",
        "<tool_call>{\"name\": 5}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": [1]}</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": \"{\"}</tool_call>",
        "<tool_call>{\"name\": \"f\"} and more</tool_call>",
        "<tool_call>{\"name\": \"f\", \"arguments\": {",
        "<tool_call>[]</tool_call>",
        "the tags <tool_call> and </tool_call>.",
        "<function=now>",
        "<function=>x</function>",
        "<function=f><parameter=a>b</function>",
        "a < b, <, <t, <tool, {\"name\"",
        "  {\"name\": \"unknown\", \"arguments\": {\"a\": 1}}  ",
        "[1, 2, 3] and [f(x)]",
        "see </think> there",
    ] {
        assert_eq!(show(&parse(Family::Generic, text)), json!(["", text, []]), "{text}");
        assert_eq!(show(&parse(Family::Hermes, text)), json!(["", text, []]), "{text}");
    }
    // A real call after a false start is found.
    let text = "the <tool_call> tag: <tool_call>{\"name\": \"now\"}</tool_call>";
    assert_eq!(show(&parse(Family::Hermes, text)), json!(["", "the <tool_call> tag:", [["now", {}]]]));
}

#[test]
fn without_tools_nothing_is_a_call() {
    let text = "<tool_call>{\"name\": \"now\"}</tool_call>";
    let found = OutputParser::parse(text, ParseOptions { family: Family::Hermes, ..ParseOptions::default() });
    assert_eq!(show(&found), json!(["", text, []]));
}

#[test]
fn reasoning_can_start_in_the_prompt_or_stay_in_the_content() {
    let start = |starts, split| ParseOptions {
        starts_in_reasoning: starts,
        split_reasoning: split,
        ..options(Family::Hermes)
    };
    let parse = |text: &str, starts, split| show(&OutputParser::parse(text, start(starts, split)));
    assert_eq!(parse("hm\n</think>\n\nHi", true, true), json!(["hm", "Hi", []]));
    assert_eq!(parse("<think>\nhm</think>Hi", true, true), json!(["hm", "Hi", []]));
    assert_eq!(parse("never closed\n", true, true), json!(["never closed", "", []]));
    assert_eq!(parse("<think>hm</think>\n\nHi", false, false), json!(["", "<think>hm</think>\n\nHi", []]));
}

#[test]
fn text_is_not_held_back_longer_than_needed() {
    let mut parser = OutputParser::new(options(Family::Hermes));
    let mut fed = |delta: &str| {
        let mut reply = Reply::default();
        parser.feed(delta).into_iter().for_each(|e| reply.push(e));
        (reply.reasoning, reply.content, reply.tool_calls.len())
    };
    let (r, c) = (|s: &str| (s.to_owned(), String::new(), 0), |s: &str| (String::new(), s.to_owned(), 0));
    assert_eq!(fed("<thi"), c(""));
    assert_eq!(fed("nk>some rea"), r("some rea"));
    assert_eq!(fed("soning </th"), r("soning"));
    assert_eq!(fed("e end</think>"), r(" </the end"));
    assert_eq!(fed("\n\nHello "), c("Hello"));
    assert_eq!(fed("world <"), c(" world"));
    assert_eq!(fed("b> <tool_call>{"), c(" <b>"));
    assert_eq!(fed("oops"), c(" <tool_call>{oops"));
    assert_eq!(fed("<tool_call>{\"name\": \"now\"}"), c(""));
    assert_eq!(fed("</tool_call>"), (String::new(), String::new(), 1));
}

#[test]
fn hostile_replies_end() {
    for family in Family::names().map(|n| n.parse::<Family>().unwrap()) {
        for unit in [
            "<tool_call>",
            "<tool_call>{\"a\":",
            "<tool_call>[",
            "{",
            "[",
            "<function=a><parameter=b>",
            "<think>",
            "<function=a>",
            "[TOOL_CALLS]a",
            "<tool_call>a<arg_key>",
            "<|channel|>",
            "<｜tool▁calls▁begin｜>",
            "<",
            "<|tool_call>call:a{",
            " ",
            "\"",
            "```tool_code\nf(",
            "<tool_call>{\"name\": \"f\"}",
        ] {
            let text = unit.repeat(60_000 / unit.len());
            let whole = parse(family, &text);
            let mut parser = OutputParser::new(options(family));
            let mut cut = Reply::default();
            for piece in text.as_bytes().chunks(1000) {
                let piece = String::from_utf8_lossy(piece);
                if piece.contains('\u{fffd}') {
                    continue;
                }
                parser.feed(&piece).into_iter().for_each(|e| cut.push(e));
            }
            parser.finish().into_iter().for_each(|e| cut.push(e));
            if text.is_ascii() {
                assert_eq!(whole, cut, "{family} {unit}");
            }
        }
    }
}

#[test]
fn families_are_found_in_templates() {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/oracles/templates");
    for (name, family) in [
        ("Qwen-Qwen3-0.6B", Family::Hermes),
        ("Qwen3.5-4B", Family::Hermes),
        ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", Family::Hermes),
        ("meta-llama-Llama-3.2-3B-Instruct", Family::Llama3),
        ("lenml-llama3_1", Family::Llama3),
        ("mistralai-Mistral-Nemo-Instruct-2407", Family::Mistral),
        ("unsloth-mistral-Devstral-Small-2507", Family::Mistral),
        ("deepseek-ai-DeepSeek-V3.1", Family::DeepSeek),
        ("deepseek-ai-DeepSeek-R1-Distill-Llama-8B", Family::DeepSeek),
        ("deepseek-ai-DeepSeek-V4-Flash-0731", Family::DeepSeek),
        ("lenml-deepseek_v3", Family::DeepSeek),
        ("llm-jp-llm-jp-4.1-8b-thinking", Family::Harmony),
        ("google-gemma-4-31B-it-interleaved", Family::Gemma),
        ("ibm-granite-granite-3.3-2B-Instruct", Family::Granite),
        ("microsoft-Phi-3.5-mini-instruct", Family::Phi),
        ("GLM-4.6", Family::Glm),
        ("Kimi-K2-Thinking", Family::Kimi),
        ("LFM2-8B-A1B", Family::Lfm2),
        ("ByteDance-Seed-OSS", Family::Seed),
        ("MiniMax-M1", Family::MiniMax),
        ("gguf-smollm2", Family::Generic),
    ] {
        let Ok(text) = std::fs::read_to_string(format!("{dir}/{name}.json")) else {
            assert!(!std::env::var("HANZO_REQUIRE").is_ok_and(|v| v == "all"), "{name} is missing");
            continue;
        };
        let file: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(Family::detect(file["template"].as_str().unwrap()), family, "{name}");
    }
    assert_eq!("GPT-OSS".parse(), Ok(Family::Harmony));
    assert!("nonsense".parse::<Family>().unwrap_err().to_string().contains("hermes"));
}

/// Pieces that replies are made of, in and out of place.
const PIECES: &[&str] = &[
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<function=now>",
    "</function>",
    "<parameter=city>",
    "</parameter>",
    "{\"name\": \"now\"}",
    "{\"name\": \"add\", \"arguments\": {\"a\": 1}}",
    "{\"name\": \"x",
    "\"}",
    "{",
    "}",
    "[",
    "]",
    "[TOOL_CALLS]",
    "[ARGS]",
    "now",
    "get_weather",
    "(city='x')",
    "<|channel|>",
    "analysis",
    "final",
    "commentary",
    " to=functions.now",
    "<|message|>",
    "<|end|>",
    "<|start|>assistant",
    "<|call|>",
    "<|python_tag|>",
    "<|tool_call|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "```json",
    "```",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|tool_call>call:now{",
    "<tool_call|>",
    "<response>",
    "</response>",
    ";",
    " ",
    "\n",
    "\n\n",
    "text",
    "é",
    "日本",
    "<",
    "\"",
    "\\",
    "<tool_calls>",
    "</tool_calls>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "functools",
    ",",
];

fn family() -> impl Strategy<Value = Family> {
    let names: Vec<&str> = Family::names().collect();
    proptest::sample::select(names).prop_map(|n| n.parse().unwrap())
}

fn reply_text() -> impl Strategy<Value = String> {
    let known: Vec<String> = replies().into_iter().map(|(_, text, _)| text.to_owned()).collect();
    let pieces: Vec<String> = PIECES.iter().map(|p| (*p).to_owned()).collect();
    let piece = prop_oneof![6 => proptest::sample::select(pieces), 1 => proptest::sample::select(known), 1 => ".{0,4}"];
    proptest::collection::vec(piece, 0..14).prop_map(|v| v.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, failure_persistence: None, ..ProptestConfig::default() })]

    /// However a text is cut, the reply is the same.
    #[test]
    fn cuts_do_not_matter(
        family in family(),
        text in reply_text(),
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..24),
        starts in any::<bool>(),
        with_tools in any::<bool>(),
    ) {
        let options = ParseOptions {
            starts_in_reasoning: starts,
            tools: with_tools.then(tools),
            ..options(family)
        };
        let (told, whole) = hear(options.clone(), std::iter::once(text.as_str()));
        let ends: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|c| ends[c.index(ends.len())]).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        prop_assert_eq!(&(told.clone(), whole.clone()), &hear(options.clone(), pieces), "{} {:?}", family, text);
        // A character at a time too.
        let characters = ends.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        prop_assert_eq!(&(told.clone(), whole.clone()), &hear(options, characters), "{} {:?}", family, text);
        // Of what was told, the complete calls are those of the reply.
        let complete = told.iter().filter_map(|(name, text)| Some((name, serde_json::from_str::<Value>(text).ok()?)));
        let calls: Vec<(&String, Value)> =
            whole.tool_calls.iter().map(|call| (&call.name, Value::Object(call.arguments.clone()))).collect();
        prop_assert_eq!(complete.collect::<Vec<_>>(), calls, "{} {:?}", family, text);
    }

    /// Where nothing is to be told apart, content is the text.
    #[test]
    fn text_is_kept(text in reply_text()) {
        let options = ParseOptions { family: Family::Hermes, split_reasoning: false, ..ParseOptions::default() };
        prop_assert_eq!(OutputParser::parse(&text, options).content, text);
    }

    /// The arguments of a call that a grammar holds come piece by piece: joined, they are those of the whole call, however
    /// the text is cut; and a reply that ends early has told a beginning of them, and no content.
    #[test]
    fn held_calls_come_as_they_are_written(
        calls in proptest::collection::vec(held_call(), 1..4),
        manner in 0..4usize,
        cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..24),
        end in any::<prop::sample::Index>(),
    ) {
        let (family, text) = written(&calls, manner);
        let options = ParseOptions { held_calls: true, ..options(family) };
        let ends: Vec<usize> = text.char_indices().map(|(i, _)| i).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|c| ends[c.index(ends.len())]).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let pieces = cuts.windows(2).map(|pair| &text[pair[0]..pair[1]]);
        let (told, reply) = hear(options.clone(), pieces);
        let wanted: Vec<(String, String)> =
            calls.iter().map(|(name, arguments)| (name.clone(), arguments.to_string())).collect();
        prop_assert_eq!(&told, &wanted, "{:?}", text);
        prop_assert_eq!(&reply, &parse(family, &text), "the same calls as without deltas: {:?}", text);
        prop_assert_eq!(&reply.content, "");

        let early = &text[..ends[end.index(ends.len())]];
        let (told, reply) = hear(options, early.split_inclusive(' '));
        prop_assert!(told.len() <= wanted.len());
        for (i, (name, arguments)) in told.iter().enumerate() {
            prop_assert_eq!(name, &wanted[i].0);
            prop_assert!(wanted[i].1.starts_with(arguments.as_str()), "{:?}: {:?}", early, arguments);
        }
        // Text is at most what began like another call, and nothing of one that was told.
        prop_assert!(early.ends_with(&reply.content), "{:?}: {:?}", early, reply.content);
        if let Some(i) = told.len().checked_sub(1).filter(|&i| told[i] != wanted[i]) {
            prop_assert_eq!(&reply.content, "", "{:?}: {:?}", early, told[i]);
        }
    }
}

/// A call with arguments as a grammar makes them.
fn held_call() -> impl Strategy<Value = (String, Value)> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        "[a-zé\"\\\\{}\\[\\]:, \n]{0,8}".prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::vec(("(name|arguments|k\"?)", inner), 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    let arguments = proptest::collection::vec(("(name|arguments|city|days)", value), 0..3)
        .prop_map(|fields| Value::Object(fields.into_iter().collect()));
    (proptest::sample::select(vec!["get_weather".to_owned(), "add".to_owned(), "now".to_owned()]), arguments)
}

/// Calls as the grammars of `tool_choice` let them be written, and the family that reads them.
fn written(calls: &[(String, Value)], manner: usize) -> (Family, String) {
    let spaced = manner % 2 == 1;
    let text = |value: &Value| match spaced {
        true => serde_json::to_string_pretty(value).unwrap(),
        false => value.to_string(),
    };
    let calls: Vec<Value> =
        calls.iter().map(|(name, arguments)| json!({"name": name, "arguments": arguments})).collect();
    match manner / 2 {
        0 => {
            let calls: Vec<String> =
                calls.iter().map(|call| format!("<tool_call>\n{}\n</tool_call>", text(call))).collect();
            (Family::Hermes, calls.join("\n"))
        }
        _ => (Family::Generic, text(&Value::from(calls))),
    }
}

/// What was told of the calls, in order: names and joined arguments; and the whole reply.
fn hear<'t>(options: ParseOptions, pieces: impl Iterator<Item = &'t str>) -> (Vec<(String, String)>, Reply) {
    let (mut told, mut reply) = (Vec::<(String, String)>::new(), Reply::default());
    let mut parser = OutputParser::new(options);
    let mut take = |events: Vec<Event>| {
        for event in events {
            match &event {
                Event::CallBegan(name) => told.push((name.clone(), String::new())),
                Event::Arguments(more) => told.last_mut().unwrap().1.push_str(more),
                Event::ToolCall(call) => {
                    told.push((call.name.clone(), Value::Object(call.arguments.clone()).to_string()));
                }
                _ => {}
            }
            reply.push(event);
        }
    };
    pieces.for_each(|piece| take(parser.feed(piece)));
    take(parser.finish());
    (told, reply)
}

/// The events of a text that comes a character at a time, joined where they continue one another: `name(`, arguments, `)` at the end of
/// one that was told, `!name` of one that was not, other text as it is.
fn script(family: Family, text: &str) -> Vec<String> {
    let mut parser = OutputParser::new(options(family));
    let mut out: Vec<String> = Vec::new();
    let mut feed: Vec<Event> = Vec::new();
    for c in text.chars() {
        feed.extend(parser.feed(c.encode_utf8(&mut [0; 4])));
    }
    feed.extend(parser.finish());
    for event in feed {
        match event {
            Event::CallBegan(name) => out.push(format!("{name}(")),
            Event::Arguments(text) => out.push(text),
            Event::CallEnded(_) => out.push(")".to_owned()),
            Event::ToolCall(call) => out.push(format!("!{}", call.name)),
            Event::Content(text) | Event::Reasoning(text) => match out.last_mut() {
                Some(last) if last.starts_with('=') => last.push_str(&text),
                _ => out.push(format!("={text}")),
            },
        }
    }
    out
}

/// Without a grammar, a call is told as it is written from the moment on that it cannot be text any more.
#[test]
fn calls_are_told_as_they_are_written_in_every_family_whose_syntax_allows() {
    use Family::*;
    for (family, text, told) in replies().into_iter().map(|(f, t, v)| (f, t, v[2].as_array().unwrap().len()))
    {
        let events = script(family, text);
        let began = events.iter().filter(|e| e.ends_with('(')).count();
        let whole = events.iter().filter(|e| e.starts_with('!')).count();
        assert_eq!(began + whole, told, "{family}: {text}: {events:?}");
        // What is told when it is complete: Python, Gemma's braces, arguments that are a string of JSON, and calls without any.
        let late = ["(city", "(a=", "call:", "\\\"city", "now"].iter().any(|mark| text.contains(mark));
        assert!(whole == 0 || late, "{family}: {text}: {events:?}");
        // Letter by letter, but for what stands between tags.
        if began > 0 {
            let pieces =
                events.iter().filter(|e| !e.ends_with('(') && !e.starts_with(['=', '!', ')'])).count();
            assert!(pieces > began, "{family}: {text}: {events:?}");
        }
    }
    let long = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zü\\u0041\", \"days\": 3}}</tool_call>";
    let wanted = [
        "get_weather(",
        "{\"city\":\"",
        "Z",
        "ü",
        "\\",
        "u",
        "0",
        "0",
        "4",
        "1",
        "\"",
        ",",
        "\"",
        "d",
        "a",
        "y",
        "s",
        "\"",
        ":",
        "3",
        "}",
        ")",
    ];
    assert_eq!(script(Hermes, long), wanted);
    let tags =
        "<function=get_weather><parameter=city>\nZü\n</parameter><parameter=days>3</parameter></function>";
    assert_eq!(script(Hermes, tags), ["get_weather(", "{\"city\":\"Zü\"", ",\"days\":3", "}", ")"]);
}

/// Where it is decided that a text is a call, and what becomes of one that goes wrong before and after.
#[test]
fn a_call_that_was_told_is_no_text_and_text_is_no_call() {
    let call = |arguments: &str| {
        format!("<tool_call>{{\"name\": \"get_weather\", \"arguments\": {arguments}}}</tool_call> done")
    };
    let hermes = |text: &str| {
        let (told, reply) = hear(options(Family::Hermes), std::iter::once(text));
        (told, reply.tool_calls.len(), reply.content)
    };
    // Not decided yet: text, all of it.
    for arguments in ["{...}", "{\"city\": ...}", "{\"city\" \"x\"}", "{\"city\": }", "{city: 1}", "{", "{]"]
    {
        let text = call(arguments);
        assert_eq!(hermes(&text), (vec![], 0, text.clone()), "{arguments}");
    }
    // An argument that the tool does not have decides nothing before the end.
    let text = call("{\"town\": \"x\", oops}");
    assert_eq!(hermes(&text), (vec![], 0, text.clone()));
    assert_eq!(hermes(&call("{\"town\": \"x\"}")).1, 1);
    // Decided: a call that is cut off, and the rest is text.
    let told = |arguments: &str| vec![("get_weather".to_owned(), arguments.to_owned())];
    assert_eq!(
        hermes(&call("{\"city\": \"x\", oops}")),
        (told("{\"city\":\"x\","), 0, "oops}}</tool_call> done".to_owned())
    );
    assert_eq!(
        hermes("<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x"),
        (told("{\"city\":\"x"), 0, String::new())
    );
    // Its arguments are whole, and what should close it is missing.
    assert_eq!(
        hermes("<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"x\"}} and more"),
        (told("{\"city\":\"x\"}"), 1, "and more".to_owned())
    );
    assert_eq!(
        hermes("<function=get_weather><parameter=city>x</parameter>oops"),
        (told("{\"city\":\"x\"}"), 1, "oops".to_owned())
    );
    assert_eq!(
        hermes("<function=get_weather><parameter=city>x</parameter><parameter=da"),
        (told("{\"city\":\"x\""), 0, String::new())
    );
    // A number that is none is found at the end only: what was told stays what it is, and is no complete call.
    assert_eq!(hermes(&call("{\"city\": 1x}")), (told("{\"city\":1x}"), 0, "done".to_owned()));
    // Of an array, one after another; what was told first comes first.
    let mistral = |text: &str| hear(options(Family::Mistral), std::iter::once(text));
    let (heard, reply) =
        mistral("[TOOL_CALLS][{\"name\": \"now\"}, {\"name\": \"add\", \"arguments\": {\"a\": 1}}]");
    assert_eq!((heard[0].0.as_str(), heard[1].0.as_str(), reply.tool_calls.len()), ("now", "add", 2));
    let (heard, reply) = mistral(
        "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}}, {\"name\": \"other\", \"arguments\": \"{\\\"a\\\": 1}\"}]",
    );
    assert_eq!((heard[0].0.as_str(), heard[1].0.as_str(), reply.tool_calls.len()), ("add", "other", 2));
    // Said twice, the first counts: it was told.
    let (heard, reply) = mistral(
        "[TOOL_CALLS][{\"name\": \"add\", \"arguments\": {\"a\": 1}, \"name\": \"now\", \"arguments\": {}}]",
    );
    assert_eq!(heard, [("add".to_owned(), "{\"a\":1}".to_owned())]);
    assert_eq!(show(&reply), json!(["", "", [["add", {"a": 1}]]]));
}
