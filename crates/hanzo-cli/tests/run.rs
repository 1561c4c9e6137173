//! `hanzo run` on the built-in model.

mod common;

use common::{TINY, run, run_with_input};

const STORY: &str = "Once upon a time";

#[test]
fn a_greedy_reply_is_the_same_on_any_number_of_threads() {
    let one = run(&["run", STORY, "--temp", "0", "--threads", "1"]).ok();
    let two = run(&["run", STORY, "--temp", "0", "--threads", "2"]).ok();
    let three = run(&["run", STORY, "--temp", "0", "--threads", "3", "--kv", "f16"]).ok();
    assert_eq!(one.text(), two.text());
    assert_eq!(one.text(), three.text());
    assert!(one.text().starts_with(STORY), "{}", one.text());
    assert!(one.text().split_whitespace().count() > 20, "{}", one.text());
    assert!(one.text().ends_with('\n'));
}

#[test]
fn what_is_said_beside_the_reply() {
    let said = run(&["run", "Hello", "--seed", "5"]).ok().err;
    for part in ["hanzo-tiny", "demo", "hanzo run MODEL.gguf", "tok/s", "seed 5"] {
        assert!(said.contains(part), "no `{part}` in {said}");
    }
    let said = run(&["run", "Hello", "--no-speed"]).ok().err;
    assert!(said.contains("demo") && !said.contains("tok/s"), "{said}");
    assert_eq!(run(&["run", "Hello", "--quiet"]).ok().err, "");
    let said = run(&["run", "Hello", "--verbose"]).ok().err;
    assert!(said.contains("KV cache") && said.contains("cpu ("), "{said}");
}

#[test]
fn json_is_one_object_with_everything() {
    let first = run(&["run", "Hello", "--json", "--seed", "11"]).ok().json();
    let again = run(&["run", "Hello", "--json", "--seed", "11", "--threads", "1"]).ok().json();
    assert_eq!(first["text"], again["text"]);
    assert_eq!(first["ids"], again["ids"]);
    assert_eq!(first["seed"], 11);
    assert_eq!(first["finish_reason"], "stop");
    assert_eq!(first["model"]["name"], "hanzo-tiny");
    assert_eq!(first["model"]["architecture"], "qwen3");
    let usage = &first["usage"];
    let ids = first["ids"].as_array().unwrap().len();
    // The end token is counted, not shown.
    assert_eq!(usage["completion_tokens"], ids + 1);
    assert_eq!(
        usage["total_tokens"].as_u64().unwrap(),
        usage["prompt_tokens"].as_u64().unwrap() + usage["completion_tokens"].as_u64().unwrap()
    );
    assert!(first["timings"]["prompt_s"].as_f64().unwrap() > 0.0);
    let random = |_| run(&["run", STORY, "--json", "--temp", "2"]).ok().json()["seed"].as_u64().unwrap();
    let seeds: Vec<u64> = (0..3).map(random).collect();
    assert!(seeds[0] != seeds[1] || seeds[1] != seeds[2], "{seeds:?}");
}

#[test]
fn a_reply_ends_where_it_is_told_to() {
    let whole = run(&["run", STORY, "--temp", "0", "--json"]).ok().json();
    let whole = whole["text"].as_str().unwrap().to_owned();
    let sentence = whole.split_once('.').unwrap().0;
    let stopped =
        run(&["run", STORY, "--temp", "0", "--json", "--stop", ".", "--stop", "\\n\\n"]).ok().json();
    assert_eq!(stopped["text"], sentence);
    assert_eq!((&stopped["finish_reason"], &stopped["stop"]), (&"stop".into(), &".".into()));
    // Over the borders of tokens.
    let (start, end) = (sentence.len() - 3, sentence.len() + 2);
    let across = run(&["run", STORY, "--temp", "0", "--quiet", "--stop", &whole[start..end]]).ok();
    assert_eq!(across.text().trim_end_matches('\n'), &whole[..start]);

    let short = run(&["run", STORY, "--temp", "0", "--max-tokens", "5", "--json"]).ok().json();
    assert_eq!(
        (&short["finish_reason"], &short["usage"]["completion_tokens"]),
        (&"length".into(), &5.into())
    );
    assert!(whole.starts_with(short["text"].as_str().unwrap()));
    let said = run(&["run", STORY, "--temp", "0", "--max-tokens", "5"]).ok().err;
    assert!(said.contains("--max-tokens"), "{said}");
}

#[test]
fn a_full_context_ends_the_reply_with_a_word_about_it() {
    let full = run(&["run", STORY, "--temp", "0", "--ctx", "24"]).ok();
    assert!(full.err.contains("context of 24 tokens is full") && full.err.contains("--ctx"), "{}", full.err);
    let json = run(&["run", STORY, "--temp", "0", "--ctx", "24", "--json"]).ok().json();
    assert_eq!(json["finish_reason"], "context_full");
    assert_eq!(json["usage"]["total_tokens"], 24);
}

#[test]
fn the_prompt_comes_from_where_the_user_put_it() {
    let text = |args: &[&str]| run(&[&["run", "--temp", "0", "-q"], args].concat()).ok().out;
    let expected = text(&["What is 2 + 2?"]);
    assert_eq!(text(&["-p", "What is 2 + 2?"]), expected);
    assert_eq!(text(&["hanzo-tiny", "What is 2 + 2?"]), expected);
    assert_eq!(text(&[TINY, "What is 2 + 2?"]), expected);
    assert_eq!(text(&["-m", TINY, "What is 2 + 2?"]), expected);
    assert_eq!(text(&[TINY, "-p", "What is 2 + 2?"]), expected);
    assert_eq!(run_with_input(&["run", "--temp", "0", "-q"], b"What is 2 + 2?\n").ok().out, expected);
    assert_eq!(run_with_input(&["run", TINY, "--temp", "0", "-q"], b"What is 2 + 2?").ok().out, expected);
    assert_eq!(
        run_with_input(&["run", "--temp", "0", "-q", "-f", "-"], b"What is 2 + 2?").ok().out,
        expected
    );
}

#[test]
fn plain_text_and_chat_are_different_prompts() {
    let tokens = |args: &[&str]| {
        let json =
            run(&[&["run", "--json", "--temp", "0", "--max-tokens", "4", STORY], args].concat()).ok().json();
        (json["chat"].as_bool().unwrap(), json["usage"]["prompt_tokens"].as_u64().unwrap())
    };
    let (raw, chat, with_system) =
        (tokens(&["--raw"]), tokens(&["--chat"]), tokens(&["--system", "Be kind."]));
    assert!(!raw.0 && chat.0 && with_system.0);
    assert!(raw.1 < chat.1 && chat.1 < with_system.1);
}

#[test]
fn a_chat_goes_on_and_commands_do_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("chat.json");
    let script = format!(
        "Hello!\n/save {0}\n/set temp 0.5\n/set\n/nonsense\n/set top-p 7\n/system Be kind.\n/system\n/stats\n\
         \"\"\"\nWhat is\n2 + 2?\n\"\"\"\n/regen\n/clear\n/regen\n/load {0}\n/exit\nnever read\n",
        file.display()
    );
    let chat = run_with_input(&["run", "--interactive", "--temp", "0"], script.as_bytes()).ok();
    let hello = run(&["run", "Hello!", "--temp", "0", "-q"]).ok();
    assert!(chat.text().starts_with(hello.text()), "{}", chat.text());
    // Hello, the sum, and the sum again.
    assert_eq!(chat.err.lines().filter(|line| line.starts_with("prompt ")).count(), 3, "{}", chat.err);
    for part in [
        "2 messages saved",
        "temp            0.5",
        "no command /nonsense",
        "`top_p` is 7",
        "Be kind.",
        "model    hanzo-tiny",
        "The conversation is forgotten",
        "there is no reply yet",
        "2 messages loaded",
    ] {
        assert!(chat.err.contains(part), "no `{part}` in {}", chat.err);
    }
    let saved: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(saved["messages"][0]["content"], "Hello!");
    assert_eq!(saved["messages"][1]["role"], "assistant");
}

#[test]
fn a_conversation_that_has_become_too_long_is_not_cut() {
    let input = format!("Hello!\n{}\nHello!\n", "tell me a story ".repeat(40));
    let args = ["run", "--interactive", "--temp", "0", "--ctx", "100", "--no-speed"];
    let chat = run_with_input(&args, input.as_bytes()).ok();
    assert!(chat.err.contains("the context holds 100") && chat.err.contains("/clear"), "{}", chat.err);
    // The message that did not fit was not said, so the chat goes on.
    assert_eq!(chat.text().lines().count(), 2, "{}", chat.text());
}

#[test]
fn memory_of_the_cache_is_asked_for_and_bounded() {
    let story = run(&["run", STORY, "--temp", "0", "--kv-memory", "4M"]).ok();
    assert_eq!(story.text(), run(&["run", STORY, "--temp", "0"]).ok().text());
    run(&["run", STORY, "--kv-memory", "1"]).fails(1, &["1 bytes of KV memory do not hold a block"]);
    run(&["run", STORY, "--kv-memory", "256K", "--ctx", "512"]).fails(1, &["--ctx asks for 512"]);
    run(&["run", STORY, "--ctx", "16777216"])
        .fails(1, &["KV cache for 16777216 tokens takes", "are available", "a smaller --ctx"]);
    run(&["run", STORY, "--kv-memory", "lots"]).fails(2, &["expected a size such as 512M"]);
}

#[cfg(unix)]
#[test]
fn a_conversation_is_saved_to_files_only() {
    let script = "/save /dev/null\n/save /nonexistent/x.json\n/exit\n";
    let chat = run_with_input(&["run", "--interactive"], script.as_bytes()).ok();
    for part in
        ["cannot save to /dev/null: something that is not a regular file", "cannot save to /nonexistent"]
    {
        assert!(chat.err.contains(part), "no `{part}` in {}", chat.err);
    }
    use std::os::unix::fs::FileTypeExt;
    assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
}
