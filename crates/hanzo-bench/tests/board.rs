//! From run folders to the board, on folders made here and on those that are committed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::fs;
use std::path::{Path, PathBuf};

use hanzo_bench::board::Board;
use hanzo_bench::samples::Phase;
use hanzo_bench::{readme, render, run};
use serde_json::{Value, json};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A run folder in the making.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new(tag: &str, gate: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("raw")).unwrap();
        let manifest = json!({
            "tag": tag, "backend": "cpu", "date": "2026-01-02", "threads": 2, "repetitions": 3, "hanzo_commit": "abc",
            "model": {"name": "m_1.gguf", "bytes": 1000, "sha256": "00"}, "cpu": "A & B <CPU>", "peer": {"name": "llama.cpp"},
        });
        fs::write(dir.path().join("manifest.json"), manifest.to_string()).unwrap();
        fs::write(dir.path().join("quiet-gate.txt"), gate).unwrap();
        Self(dir)
    }

    fn raw(self, name: &str, text: &str) -> Self {
        fs::write(self.0.path().join("raw").join(name), text).unwrap();
        self
    }

    fn hanzo(self, name: &str, cells: &Value) -> Self {
        self.raw(name, &json!({"manifest": {"engine": "hanzo"}, "cells": cells}).to_string())
    }

    fn llama(self, name: &str, prompt: u64, generate: u64, ns: &[u64]) -> Self {
        let entry = json!({"build_commit": "cafe", "build_number": 7, "n_prompt": prompt, "n_gen": generate, "n_depth": 0, "samples_ns": ns});
        self.raw(name, &json!([entry]).to_string())
    }

    fn read(&self) -> run::Run {
        run::read(self.0.path()).unwrap()
    }
}

/// Three of each in two turns: decode ten times as fast as the peer, prompts at half its speed.
fn full() -> Folder {
    let decode = |samples: Value| json!([{"phase": "decode", "n": 128, "batch": 1, "depth": 0, "step_bytes": 1e9, "samples": samples}]);
    let speculation = |gamma: u64, s: f64, sha: &str| {
        json!({"phase": "speculation", "workload": "novel", "gamma": gamma, "n": 64, "samples": [[9.0, 63], [s, 63], [s * 1.01, 63]],
            "sha256": sha, "drafts": [10 * gamma, 5 * gamma]})
    };
    let roofline = json!({"manifest": {"engine": "hanzo"}, "cells": [],
        "roofline": [{"threads": 2, "read_gb_s": [19.0, 20.0], "int8_gop_s": [], "f32_gflop_s": []}]});
    Folder::new("tiny_q4", "quiet 2026 before\n")
        .raw("00-roofline.json", &roofline.to_string())
        .hanzo("11-hanzo.json", &decode(json!([[99.0, 128], [8.0, 128], [8.1, 128]])))
        .hanzo("12-hanzo.json", &decode(json!([[99.0, 128], [7.9, 128]])))
        .llama("11-llama.json", 0, 128, &[80_000_000_000, 81_000_000_000])
        .llama("12-llama.json", 0, 128, &[79_000_000_000])
        .hanzo(
            "13-hanzo.json",
            &json!([{"phase": "prefill", "n": 512, "samples": [[9, 512], [4.0, 512], [4.01, 512]]}]),
        )
        .llama("13-llama.json", 512, 0, &[2_000_000_000, 2_005_000_000])
        .hanzo(
            "50-speculation.json",
            &json!([speculation(0, 4.0, "aa"), speculation(4, 2.0, "aa"), speculation(8, 3.0, "aa")]),
        )
}

#[test]
fn turns_are_put_together_and_compared() {
    let folder = full();
    let board = Board::of(&[folder.read()]);
    let run = &board.runs[0];
    assert!(!run.was_busy);
    let decode = run.find(Phase::Decode, 128).unwrap();
    let hanzo = decode.hanzo.as_ref().unwrap();
    assert_eq!((hanzo.n, decode.peer.as_ref().unwrap().n), (3, 3));
    assert!((decode.ratio.unwrap() - 10.0).abs() < 0.05);
    assert_eq!(decode.verdict, Some("WIN"));
    // 16 tokens a second of a gigabyte each; the better of two probes is the roof.
    assert!((hanzo.read_rate.unwrap() / 16e9 - 1.0).abs() < 0.001);
    assert!((hanzo.read_share.unwrap() / 0.8 - 1.0).abs() < 0.001);
    assert_eq!(run.find(Phase::Prefill, 512).unwrap().verdict, Some("LOSS"));
    let best = run.best_speculation("novel").unwrap();
    assert_eq!((best.gamma, best.same_reply, best.accepted), (4, Some(true), Some(0.5)));
    assert!((best.multiple - 2.0).abs() < 1e-9);
    // 63 tokens in 2.01 s against 128 in 80 s.
    assert!((best.over_peer.unwrap() / (63.0 / 2.01 / 1.6) - 1.0).abs() < 0.01);
}

/// A peer built of a source archive says build 0: what the run's manifest knows stands in its place, and nothing is made up.
#[test]
fn a_peer_that_does_not_know_its_build_is_named_by_the_manifest() {
    let named = |peer: Value, build: u64, commit: &str| {
        let folder = Folder::new("m", "quiet\n");
        let at = folder.0.path().join("manifest.json");
        let mut manifest: Value = serde_json::from_str(&fs::read_to_string(&at).unwrap()).unwrap();
        manifest["peer"] = peer;
        fs::write(at, manifest.to_string()).unwrap();
        let entry = json!({"build_commit": commit, "build_number": build, "n_prompt": 0, "n_gen": 8, "n_depth": 0, "samples_ns": [1e9]});
        let batched = r#"{"pp": 16, "tg": 8, "pl": 4, "t_tg": 1.0}"#;
        let folder = folder.raw("11-llama.json", &json!([entry]).to_string()).raw("21-llama.jsonl", batched);
        Board::of(&[folder.read()]).runs[0].engines.1.clone().unwrap()
    };
    let known = json!({"name": "llama.cpp", "version": "b11434"});
    assert_eq!(named(known.clone(), 0, "unknown"), "llama.cpp b11434");
    assert_eq!(named(known, 9000, "cafe"), "llama.cpp b9000 (cafe)");
    let nothing = "llama.cpp (its build is not on record)";
    assert_eq!(named(json!({"name": "llama.cpp"}), 0, "unknown"), nothing);
    assert_eq!(named(json!({"name": "llama.cpp", "version": ""}), 0, "unknown"), nothing);
}

#[test]
fn all_forms_say_what_was_measured_and_what_was_not() {
    let folder = full();
    let board = Board::of(&[folder.read()]);
    let text = render::markdown::board(&board);
    for part in [
        "| decode 128 |",
        "**WIN**",
        "WIN",
        "LOSS",
        "± ",
        "80 % read",
        "llama.cpp b7 (cafe)",
        "| novel | 4 | 2.00 ×",
        "| yes |",
    ] {
        assert!(part == "**WIN**" || text.contains(part), "{part} in\n{text}");
    }
    let data = render::tex::data(&board);
    for backend in ["Cpu", "Cuda", "Metal", "Rocm", "Vulkan"] {
        for role in ["Decode", "Prefill", "PrefillRagged", "PrefillLong", "PrefillMax"] {
            for field in ["H", "Hci", "L", "R", "V"] {
                let name = format!("\\def\\r{backend}{role}{field}{{");
                assert_eq!(data.matches(&name).count(), 1, "{name}");
                let pending = data.contains(&format!("{name}\\runpending{{}}}}"));
                assert_eq!(pending, !(backend == "Cpu" && matches!(role, "Decode" | "Prefill")), "{name}");
            }
        }
    }
    assert!(data.contains("\\def\\rCpuDecodeV{WIN}") && data.contains("\\def\\rCpuProcessor{A \\& B <CPU>}"));
    assert!(data.contains("\\def\\rCpuModel{tiny\\_q4}"));
    let spec = render::tex::speculation(&board);
    assert!(
        spec.contains("\\def\\rSpecNovelMult{2.00}") && spec.contains("\\def\\rSpecCodeMult{\\runpending{}}")
    );
    let table = render::tex::board(&board);
    assert!(
        table.contains("tiny\\_q4 & ") && table.contains("& 3, 3 & ") && table.contains("WIN"),
        "{table}"
    );
    for svg in [render::chart::ratios(&board).unwrap(), render::chart::bandwidth(&board).unwrap()] {
        // Whole tags only, and nothing that is not a number.
        assert!(
            svg.starts_with("<svg")
                && svg.ends_with("</svg>\n")
                && !svg.contains("NaN")
                && !svg.contains("inf")
        );
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
    let json = serde_json::to_value(&board).unwrap();
    assert_eq!(json["runs"][0]["rows"][0]["unit"], "tok/s");
}

#[test]
fn nothing_measured_reads_run_pending() {
    let board = Board::of(&[]);
    assert!(render::markdown::summary(&board, Some("x.svg")).contains("run pending"));
    assert!(render::tex::data(&board).contains("\\def\\rCpuDecodeH{\\runpending{}}"));
    assert!(render::tex::board(&board).contains("\\runpending"));
    assert_eq!(render::chart::ratios(&board), None);
    // One side alone is no comparison.
    let folder = Folder::new("alone", "quiet\n")
        .hanzo("1.json", &json!([{"phase": "decode", "n": 128, "samples": [[1, 1], [2, 128], [2, 128]]}]));
    let board = Board::of(&[folder.read()]);
    let row = &board.runs[0].rows[0];
    assert_eq!((row.ratio, row.verdict), (None, None));
    assert!(render::markdown::board(&board).contains("| run pending | run pending | run pending |"));
}

#[test]
fn a_busy_machine_and_two_replies_do_not_pass_in_silence() {
    let folder = Folder::new("busy", "quiet 1\nBUSY 2 before decode: process rustc\n")
        .hanzo("1.json", &json!([{"phase": "decode", "n": 8, "samples": [[1, 8], [2, 8]]}]));
    let board = Board::of(&[folder.read()]);
    assert!(board.runs[0].was_busy);
    assert!(render::markdown::board(&board).contains("busy"));
    assert!(render::markdown::summary(&board, Some("x")).contains("busy"));
    assert!(render::tex::board(&board).contains("busy \\emph{busy}"));
    let cell = |sha: &str| json!([{"phase": "speculation", "workload": "novel", "gamma": 4, "n": 8, "sha256": sha, "samples": [[1, 7], [1, 7]]}]);
    let folder = Folder::new("differ", "quiet\n").hanzo("1.json", &cell("aa")).hanzo("2.json", &cell("bb"));
    assert!(run::read(folder.0.path()).unwrap_err().to_string().contains("another"));
}

/// What callers feel: load, times under load with the warm-up round left out, and memory.
#[test]
fn load_latencies_and_memory_are_rendered() {
    let cells = json!([
        {"phase": "request", "n": 64, "batch": 4, "warm_up": 4,
         "samples": [[9, 64], [9, 64], [9, 64], [9, 64], [0.1, 64], [0.2, 64], [0.3, 64], [0.4, 64]]},
        {"phase": "inter_token", "n": 3, "batch": 4, "warm_up": 1, "samples": [[9, 1], [0.01, 1], [0.02, 1], [0.03, 1]]},
        {"phase": "inter_token", "n": 3, "batch": 1, "warm_up": 1, "samples": [[9, 1], [0.005, 1]]},
    ]);
    let load = |engine: &str, s: f64, bytes: u64| {
        json!({"manifest": {"engine": engine, "peak_rss_bytes": bytes},
            "cells": [{"phase": "load", "n": 1, "workload": "cold", "warm_up": 0, "samples": [[s, 1], [s * 1.01, 1]]}]})
    };
    let folder = Folder::new("m", "quiet\n")
        .hanzo("40-hanzo.json", &cells)
        .raw("30-hanzo-load.json", &load("hanzo", 1.0, 2_000_000_000).to_string())
        .raw("30-llama-load.json", &load("llama.cpp", 2.0, 3_000_000_000).to_string());
    let board = Board::of(&[folder.read()]);
    let text = render::markdown::board(&board);
    for part in [
        "To the first token with 4 streams at once, prompts of 64 (4 samples): p50 250.0 ms",
        "longest 400.0 ms",
        "Between tokens with 4 streams (3 samples): p50 20.0 ms",
        "Between tokens with 1 stream (1 samples): p50 5.0 ms",
        "| start to first token, file cold | 1.00",
        "**2.00**",
        "Peak resident memory: hanzo 2.00 GB, peer 3.00 GB.",
    ] {
        assert!(text.contains(part), "{part} in\n{text}");
    }
    // A mean of requests that waited for each other stands nowhere.
    assert!(!text.contains("first token, prompt of 64"), "{text}");
}

#[test]
fn the_size_sweep_separates_what_a_request_costs() {
    let mut cells = Vec::new();
    for n in [256u64, 512, 1024, 2048] {
        let pure = 1e-3 * n as f64;
        let whole = pure + 0.004 + 2e-6 * n as f64;
        cells.push(json!({"phase": "prefill", "n": n, "samples": [[9, n], [pure, n], [pure, n]]}));
        cells.push(json!({"phase": "request", "n": n, "samples": [[9, n], [whole, n], [whole, n]]}));
    }
    let file = json!({"manifest": {"engine": "hanzo", "through_engine": true}, "cells": cells});
    let folder = Folder::new("requests", "quiet\n").raw("40.json", &file.to_string());
    let board = Board::of(&[folder.read()]);
    let overhead = board.runs[0].overhead.as_ref().unwrap();
    assert!((overhead.fixed_s.unwrap() - 0.004).abs() < 1e-9);
    assert!((overhead.per_token_s.unwrap() - 2e-6).abs() < 1e-12);
    // Prompts that were not taken in turn with the peer are no row of the board.
    assert!(board.runs[0].rows.iter().all(|r| r.shape.phase == Phase::Request));
}

#[test]
fn what_is_no_run_is_refused_in_words() {
    let dir = tempfile::tempdir().unwrap();
    let error = |path: &Path| run::read(path).unwrap_err().to_string();
    assert!(error(dir.path()).contains("manifest.json"));
    assert!(error(&dir.path().join("nowhere")).contains("nowhere"));
    let empty = Folder::new("empty", "");
    assert!(error(empty.0.path()).contains("no samples"));
    let bad = Folder::new("bad", "").raw("1.json", "{\"cells\": 3}");
    assert!(error(bad.0.path()).contains("1.json"));
    let bad = Folder::new("bad", "").raw("1.json", "");
    assert!(error(bad.0.path()).contains("empty"));
    fs::write(bad.0.path().join("manifest.json"), "{\"tag\": 1}").unwrap();
    assert!(error(bad.0.path()).contains("manifest.json"));
}

#[test]
fn the_readme_is_what_the_committed_samples_give() {
    let path = root().join("README.md");
    let text = fs::read_to_string(&path).unwrap();
    let board = Board::of(&readme::committed_runs(&root()).unwrap());
    let made = readme::with_board(&path, &text, &board).unwrap();
    assert_eq!(made, text, "run `hanzo-bench stats --readme README.md` and commit what it writes");
    for (name, svg) in
        [("board.svg", render::chart::ratios(&board)), ("bandwidth.svg", render::chart::bandwidth(&board))]
    {
        let committed = fs::read_to_string(root().join("docs").join(name)).ok();
        assert_eq!(committed, svg, "docs/{name} is not what the committed samples give");
    }
}

/// Boards of other machines, and by format.
#[test]
fn pages_are_what_their_committed_samples_give() {
    let mut pages = 0;
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().starts_with("board-") {
            let text = fs::read_to_string(&path).unwrap();
            let made = readme::with_parts(&path, &text).unwrap();
            assert_eq!(
                made,
                text,
                "run `hanzo-bench stats --page {}` and commit what it writes",
                path.display()
            );
            pages += 1;
        }
    }
    assert!(pages > 0);
}

#[test]
fn a_page_without_whole_parts_is_refused() {
    let run = full();
    let folder = run.0.path().file_name().unwrap().to_str().unwrap();
    let marker =
        |folder: &str| format!("<!-- board of {folder}: made by hanzo-bench stats --page; do not edit -->");
    let path = run.0.path().parent().unwrap().join("page.md");
    let none = tempfile::tempdir_in(run.0.path().parent().unwrap()).unwrap();
    let none = none.path().file_name().unwrap().to_str().unwrap();
    for (text, what) in [
        ("# nothing".to_owned(), "it has none"),
        ("<!-- board of x -->".to_owned(), "not whole"),
        (marker(folder), "no end"),
        (format!("{}<!-- end of board -->", marker(none)), "no runs"),
    ] {
        let error = readme::with_parts(&path, &text).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("page.md"), "{error}");
    }
}

#[test]
fn a_readme_without_its_markers_is_refused() {
    let board = Board::of(&[]);
    let path = Path::new("R.md");
    let once =
        readme::with_board(path, &fs::read_to_string(root().join("README.md")).unwrap(), &board).unwrap();
    assert_eq!(readme::with_board(path, &once, &board).unwrap(), once);
    for text in ["", "# nothing", &once.replace("<!-- end of board -->", ""), &once.repeat(2)] {
        assert!(readme::with_board(path, text, &board).unwrap_err().to_string().contains("R.md"));
    }
}
