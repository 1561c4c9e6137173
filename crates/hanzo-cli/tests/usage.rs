//! What a user gets who asks for the impossible: a message that names it, and an exit code.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use common::{TINY, finish, hanzo, run, run_with_input};

const COMMANDS: &[&str] = &[
    "run",
    "inspect",
    "pull",
    "list",
    "rm",
    "quantize",
    "tokenize",
    "detokenize",
    "template",
    "logits",
    "bench",
    "explain",
    "perplexity",
    "imatrix",
    "eval",
    "kernels",
    "completions",
];

#[test]
fn every_command_has_help_with_examples() {
    for command in COMMANDS {
        let help = run(&[command, "--help"]).ok();
        assert!(help.text().contains("Example"), "{command}");
        assert!(help.text().contains(&format!("hanzo {command}")), "{command}");
    }
    let all = run(&["--help"]).ok();
    for command in COMMANDS {
        assert!(all.text().contains(&format!("\n  {command} ")), "{command}");
    }
    assert!(run(&["--version"]).ok().text().starts_with("hanzo 0."));
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for (args, parts) in [
        (&["frobnicate"][..], &["frobnicate"][..]),
        (&["run", "x", "--threads", "0"], &["--threads", "0"]),
        (&["run", "x", "--ctx", "0"], &["--ctx", "0"]),
        (&["run", "x", "--ctx", "-5"], &["--ctx", "-5"]),
        (&["run", "x", "--max-tokens", "0"], &["--max-tokens", "0"]),
        (&["run", "x", "--max-tokens", "99999999999999999999"], &["--max-tokens"]),
        (&["run", "x", "--temp", "nan"], &["temperature", "NaN"]),
        (&["run", "x", "--temp", "-1"], &["temperature", "-1"]),
        (&["run", "x", "--temp", "1e999"], &["temperature", "inf"]),
        (&["run", "x", "--top-p", "1.5"], &["top_p", "1.5"]),
        (&["run", "x", "--min-p", "-0.1"], &["min_p"]),
        (&["run", "x", "--seed", "-1"], &["--seed"]),
        (&["run", "x", "--kv", "q4"], &["--kv", "int8"]),
        (&["run", "x", "--stop", ""], &["stop string 0 is empty"]),
        (&["run", "x", "--raw", "--chat"], &["--raw", "--chat"]),
        (&["run", "x", "--json", "--interactive"], &["--json"]),
        (&["run", "tell", "me", "a", "story"], &["quotes", "tell me a story"]),
        (&["run", "x", "-p", "y", "-m", TINY], &["twice"]),
        (&["run", "   "], &["prompt is empty"]),
        (&["logits", TINY], &["--ids"]),
        (&["logits", TINY, "--ids", "1", "--threads", "0"], &["--threads"]),
        (&["logits", TINY, "--ids", "1", "--chunk", "0"], &["--chunk"]),
        (&["logits", TINY, "--ids", "-1"], &["--ids", "-1"]),
        (&["quantize", TINY, "out.gguf", "Q9_9"], &["Q9_9", "Q4_K_M"]),
        (&["quantize", TINY, "out.gguf", "Q8_0", "--threads", "0"], &["--threads"]),
        (&["bench"], &["--model"]),
        (&["bench", "-m", TINY, "--threads", "0"], &["thread"]),
        (&["bench", "-m", TINY, "-b", "0"], &["batches"]),
        (&["bench", "-m", TINY, "--device", "tpu"], &["tpu", "cpu"]),
        (&["bench", "-m", TINY, "-p", "99999999999"], &["tokens"]),
        (&["bench", "-m", TINY, "-p", "1000000"], &["1000000", "context"]),
        (&["bench", "-m", TINY, "--roofline"], &["--model"]),
        (&["explain", TINY, "-p", "0", "-n", "0"], &["nothing to explain"]),
        (&["explain", TINY, "--threads", "0"], &["thread"]),
        (
            &["quantize", TINY, "/tmp/never.gguf", "Q8_0", "--tensor-type", "nothing=Q4_0"],
            &["nothing", "no tensor"],
        ),
        (
            &["quantize", TINY, "/tmp/never.gguf", "Q8_0", "--tensor-type", "_norm=Q4_0"],
            &["stay as they are"],
        ),
        (&["completions", "tcsh"], &["tcsh", "bash"]),
    ] {
        run(args).fails(2, parts);
    }
}

#[test]
fn a_bad_model_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (missing, text, folder) = (path("missing.gguf"), path("text.gguf"), path("folder.gguf"));
    std::fs::write(&text, "Once upon a time there was a file that was no model.").unwrap();
    std::fs::create_dir(&folder).unwrap();
    let cut = path("cut.gguf");
    let tiny = std::fs::read(TINY).unwrap();
    std::fs::write(&cut, &tiny[..tiny.len() / 2]).unwrap();
    for (model, why) in
        [(&missing, "No such file"), (&text, "GGUF"), (&folder, "a directory"), (&cut, "beyond the file")]
    {
        for command in [
            &["run", model, "x"][..],
            &["run", "-m", model, "-p", "x"],
            &["tokenize", model, "--text", "x"],
            &["logits", model, "--ids", "1"],
            &["template", model, "--messages", "-"],
            &["bench", "-m", model, "-p", "1", "-n", "0"],
            &["explain", model],
        ] {
            let said = run(command).fails(1, &[model, why]).err;
            assert_eq!(said.matches(why).count(), 1, "said twice: {said}");
        }
    }
    for model in [&missing, &text, &folder] {
        run(&["inspect", model]).fails(1, &[model]);
    }
    run(&["run", "nobody/nothing:Q4_K_M"])
        .fails(1, &["nobody/nothing:Q4_K_M", "hanzo pull nobody/nothing:Q4_K_M", "-p"]);
    run(&["inspect", "nothing"]).fails(1, &["nothing", "hanzo list"]);
    run(&["inspect", "qwen3:0.6b"]).fails(1, &["hanzo pull qwen3:0.6b", "Qwen/Qwen3-0.6B-GGUF:Q8_0"]);
    for args in
        [&["inspect", ""][..], &["run", "-m", "", "x"], &["run", "", "x"], &["tokenize", " ", "--text", "x"]]
    {
        run(args).fails(2, &["name is empty"]);
    }
}

#[cfg(unix)]
#[test]
fn a_named_pipe_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("pipe.gguf");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    run(&["run", pipe.to_str().unwrap(), "x"]).fails(1, &["pipe.gguf", "a named pipe"]);
    run(&["inspect", pipe.to_str().unwrap()]).fails(1, &["a named pipe"]);
}

#[test]
fn a_prompt_that_does_not_fit_is_never_cut() {
    let long = "once upon a time ".repeat(100);
    run(&["run", &long, "--ctx", "64"]).fails(1, &["tokens", "64"]);
    run(&["run", &long, "--ctx", "64", "--raw"]).fails(1, &["tokens", "64"]);
}

#[test]
fn input_that_is_not_text_is_an_error() {
    run_with_input(&["run"], b"\xff\xfe").fails(1, &["standard input", "UTF-8"]);
    run_with_input(&["tokenize"], b"\xff\xfe").fails(1, &["standard input", "UTF-8"]);
    run(&["run"]).fails(2, &["prompt is empty"]);
    run(&["run", "--file", "/nonexistent/prompt"]).fails(1, &["/nonexistent/prompt"]);
}

/// Nobody reads: the program ends, quietly and without an error.
#[test]
fn a_reader_that_has_gone_is_no_error() {
    for args in [
        &["run", "Once upon a time", "--temp", "0", "--quiet"][..],
        &["run", "Once upon a time", "--temp", "0", "--quiet", "--json"],
        &["inspect", "--tensors"],
        &["inspect", "--json"],
        &["list"],
        &["tokenize", "--text", "a b c"],
        &["detokenize", "--ids", "5,6"],
        &["logits", TINY, "--ids", "1,2"],
        &["bench", "-m", TINY, "-p", "4", "-n", "2", "-r", "1", "--json"],
        &["bench", "-m", TINY, "-p", "4", "-n", "2", "-r", "1"],
        &["explain", TINY, "-p", "4", "-n", "2", "--json"],
        &["completions", "bash"],
        &["--help"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let run = finish(hanzo().args(args).stdout(writer));
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{args:?}");
    }
}

/// A full disk is an error, unlike a reader that has gone.
#[cfg(target_os = "linux")]
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    finish(hanzo().args(["list"]).stdout(full())).fails(1, &["standard output"]);
    finish(hanzo().args(["run", "Hello", "-q"]).stdout(full())).fails(1, &["standard output"]);
}

#[test]
fn a_closed_standard_error_harms_nobody() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let run = finish(hanzo().args(["run", "Once upon a time", "--temp", "0"]).stderr(writer));
    assert_eq!(run.code, 0);
    assert!(!run.out.is_empty());
}

/// Names and templates of strangers cannot write to the terminal.
#[test]
fn messages_have_no_control_characters() {
    let evil = "no\x1b[2Jsuch\u{9b}1m";
    for args in [
        &["inspect", evil][..],
        &["run", "-m", evil, "x"],
        &["run", "x", "--file", evil],
        &["inspect", "--key", evil],
    ] {
        let said = run(args).fails(1, &["such"]).err;
        assert!(!said.contains(['\x1b', '\u{9b}']), "{said:?}");
    }
    let template = br#"[{"role": "user", "content": "Hi"}]"#;
    let dir = tempfile::tempdir().unwrap();
    let jinja = dir.path().join("evil.jinja");
    std::fs::write(&jinja, "{{ raise_exception('\x1b[2Jgone') }}").unwrap();
    let said = run_with_input(&["template", jinja.to_str().unwrap(), "--messages", "-"], template)
        .fails(1, &["gone"]);
    assert!(!said.err.contains('\x1b'), "{:?}", said.err);
}

#[test]
fn json_keys_that_stand_twice_are_an_error() {
    let twice = br#"[{"role": "user", "content": "Hi", "content": "Ho"}]"#;
    run_with_input(&["template", TINY, "--messages", "-"], twice).fails(1, &["content", "twice", "line 1"]);
}

/// A model of which nothing is known: its architecture is the reason, not the vocabulary that it lacks too.
#[test]
fn what_cannot_be_run_is_told_first() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mamba.gguf");
    let mut writer = hanzo_gguf::GgufWriter::new();
    writer.set("general.architecture", "mamba").unwrap();
    std::fs::write(&path, writer.to_bytes::<Vec<u8>>(&[]).unwrap()).unwrap();
    let path = path.to_str().unwrap();
    for args in [&["run", path, "x"][..], &["logits", path, "--ids", "1"]] {
        run(args).fails(1, &["mamba"]);
    }
}

/// Ctrl-C in the middle: exit code 130, and nothing is left beside the output.
#[cfg(unix)]
#[test]
fn an_interrupted_quantize_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (input, output) = (dir.path().join("in.gguf"), dir.path().join("out/out.gguf"));
    std::fs::create_dir(dir.path().join("out")).unwrap();
    let mut writer = hanzo_gguf::GgufWriter::new();
    writer.set("general.architecture", "llama").unwrap();
    writer.tensor("blk.0.ffn_down.weight", hanzo_gguf::TensorType::F16, &[4096, 8192]).unwrap();
    let values = (0..4096u32 * 8192).map(|i| (0x3000 + (i.wrapping_mul(2_654_435_761) >> 22)) as u16);
    let bytes: Vec<u8> = values.flat_map(u16::to_le_bytes).collect();
    std::fs::write(&input, writer.to_bytes(&[bytes]).unwrap()).unwrap();
    let mut command = hanzo();
    command.args(["quantize", input.to_str().unwrap(), output.to_str().unwrap(), "Q3_K_M", "--threads", "1"]);
    let child =
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let left = || std::fs::read_dir(dir.path().join("out")).unwrap().count();
    let started = std::time::Instant::now();
    while left() == 0 {
        assert!(started.elapsed().as_secs() < 20, "it never began");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let kill = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(kill.success());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_eq!(left(), 0);
}
