//! `hanzo perplexity`, `hanzo imatrix` and `hanzo eval` against computations of their own in f64.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::path::{Path, PathBuf};

use common::{TINY, read_f32, run, run_with_input, shared};
use hanzo_gguf::GgufFile;
use hanzo_quant::decode_row;
use serde_json::Value;

const STORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/story.txt");
const QUESTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/questions.jsonl");

/// A folder for a test's files.
struct Dir(tempfile::TempDir);

impl Dir {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        std::fs::write(self.0.path().join(name), contents).unwrap();
        self.path(name)
    }
}

#[track_caller]
fn near(what: &str, got: &Value, want: f64, bound: f64) {
    let got = got.as_f64().unwrap_or_else(|| panic!("{what}: {got}"));
    assert!((got - want).abs() <= bound, "{what}: {got}, expected {want}");
}

/// Log-probabilities of a row.
fn ln_p(logits: &[f32]) -> Vec<f64> {
    let max = logits.iter().copied().map(f64::from).fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = logits.iter().map(|&x| (f64::from(x) - max).exp()).sum();
    logits.iter().map(|&x| f64::from(x) - max - sum.ln()).collect()
}

fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
    (mean, (variance / (n - 1.0)).sqrt())
}

/// The built-in model's tokens of a text, without BOS, and its BOS if it wants one.
fn tokens(text: &str) -> (Vec<u32>, Option<u32>) {
    let ids = |args: &[&str]| -> Vec<u32> {
        let out = run_with_input(&[&["tokenize", TINY, "--ids"], args].concat(), text.as_bytes()).ok();
        out.text().split_whitespace().map(|id| id.parse().unwrap()).collect()
    };
    let (bare, full) = (ids(&["--no-bos"]), ids(&[]));
    let bos = (full.len() > bare.len()).then(|| full[0]);
    (bare, bos)
}

/// The built-in model's logits of ids, a row each.
fn logits(dir: &Dir, ids: &[u32]) -> Vec<Vec<f32>> {
    let out = dir.path("logits.f32");
    let list = ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    run(&["logits", TINY, "--ids", &list, "--kv", "f16", "--out", &out]).ok();
    let all = read_f32(out.as_ref());
    all.chunks_exact(all.len() / ids.len()).map(<[f32]>::to_vec).collect()
}

/// Windows, the second half of each scored, BOS in place of first tokens: recomputed from `tokenize` and `logits`.
#[test]
fn perplexity_is_that_of_the_logits() {
    let dir = Dir::new();
    let story = std::fs::read_to_string(STORY).unwrap();
    let (bare, bos) = tokens(story.trim_end());
    let ids: Vec<u32> = bos.into_iter().chain(bare).collect();
    for ctx in [32, 33, 100] {
        let mut nlls = Vec::new();
        for window in ids.chunks_exact(ctx) {
            let mut window = window.to_vec();
            if let Some(bos) = bos {
                window[0] = bos;
            }
            let rows = logits(&dir, &window);
            nlls.extend((ctx / 2..ctx - 1).map(|i| -ln_p(&rows[i])[window[i + 1] as usize]));
        }
        let (nll, error) = mean_and_error(&nlls);
        let ctx_arg = ctx.to_string();
        for threads in ["1", "2"] {
            let said = run(&["perplexity", TINY, STORY, "--ctx", &ctx_arg, "--json", "--threads", threads])
                .ok()
                .json();
            assert_eq!(said["tokens_scored"].as_u64().unwrap() as usize, nlls.len());
            assert_eq!(said["windows"].as_u64().unwrap() as usize, ids.len() / ctx);
            assert_eq!(said["complete"], true);
            near("nll", &said["nll"], nll, 1e-6);
            near("nll_error", &said["nll_error"], error, 1e-6);
            near("perplexity", &said["perplexity"], nll.exp(), 1e-5 * nll.exp());
            near("perplexity_error", &said["perplexity_error"], nll.exp() * error, 1e-5 * nll.exp());
        }
    }
    // One window of four, and the text from standard input.
    let first = run(&["perplexity", TINY, STORY, "--ctx", "32", "--chunks", "1", "--json"]).ok().json();
    let piped = run_with_input(
        &["perplexity", TINY, "-", "--ctx", "32", "--chunks", "1", "--json"],
        story.as_bytes(),
    );
    assert_eq!(first["nll"], piped.ok().json()["nll"]);
    assert_eq!(first["windows"], 1);
}

/// Strided windows: `--ctx` and half a stride, rounded up to 256; the last tokens of each scored; no BOS but the text's own.
#[test]
fn strided_windows_see_more() {
    let dir = Dir::new();
    let story = std::fs::read_to_string(STORY).unwrap().repeat(3);
    let path = dir.write("long.txt", &story);
    let (bare, bos) = tokens(story.trim_end());
    let ids: Vec<u32> = bos.into_iter().chain(bare).collect();
    let (len, stride) = (256, 100);
    let mut nlls = Vec::new();
    for i in 0..2 {
        let window = &ids[i * stride..][..len];
        let rows = logits(&dir, window);
        nlls.extend((len - stride - 1..len - 1).map(|i| -ln_p(&rows[i])[window[i + 1] as usize]));
    }
    let args = ["perplexity", TINY, &path, "--ctx", "128", "--stride", "100", "--chunks", "2", "--json"];
    let said = run(&args).ok().json();
    assert_eq!((said["ctx"].as_u64(), said["tokens_scored"].as_u64()), (Some(256), Some(200)));
    near("nll", &said["nll"], mean_and_error(&nlls).0, 1e-6);
}

/// A window of a reference model in llama.cpp's file of saved logits, written here by its layout.
fn saved(tokens: &[u32], rows: &[Vec<f64>]) -> Vec<u8> {
    let mut out = b"_logits_".to_vec();
    let vocab = rows[0].len();
    for n in [tokens.len() as i32, vocab as i32, 1] {
        out.extend(n.to_le_bytes());
    }
    tokens.iter().for_each(|t| out.extend((*t as i32).to_le_bytes()));
    for row in &rows[tokens.len() / 2..tokens.len() - 1] {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let min = row.iter().copied().fold(f64::INFINITY, f64::min).max(max - 16.0);
        let step = (max - min) / 65535.0;
        out.extend((step as f32).to_le_bytes());
        out.extend((min as f32).to_le_bytes());
        row.iter().for_each(|x| out.extend((((x.max(min) - min) / step).round() as u16).to_le_bytes()));
        if vocab % 2 == 1 {
            out.extend([0, 0]);
        }
    }
    out
}

/// Reference models, whose logits come from another implementation: perplexity and divergence of ours against theirs.
#[test]
fn perplexity_and_divergence_of_reference_models() {
    for arch in ["llama", "qwen2", "qwen3", "qwen3moe", "gemma3"] {
        let Some(folder) = shared(&format!("oracles/logits/{arch}")) else { return };
        let oracle: Value =
            serde_json::from_slice(&std::fs::read(folder.join("oracle.json")).unwrap()).unwrap();
        let tokens: Vec<u32> =
            oracle["prompt"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u32).collect();
        let all = read_f32(&folder.join("logits.f32"));
        let vocab = all.len() / tokens.len();
        let rows: Vec<&[f32]> = all.chunks_exact(vocab).collect();
        let model = folder.join(format!("{arch}-f32.gguf"));
        let model = model.to_str().unwrap();
        // Where the vocabulary wants BOS in front of a window, the prompt begins with it.
        let truth: Vec<Vec<f64>> = rows.iter().map(|row| ln_p(row)).collect();
        // The base's logits times 0.7: a flatter distribution, whose divergence is computed here.
        let flat: Vec<Vec<f64>> =
            rows.iter().map(|row| ln_p(&row.iter().map(|x| 0.7 * x).collect::<Vec<_>>())).collect();
        let scored = tokens.len() / 2..tokens.len() - 1;
        let nll = |ln_p: &[Vec<f64>]| -> f64 {
            let sum: f64 = scored.clone().map(|i| -ln_p[i][tokens[i + 1] as usize]).sum();
            sum / scored.len() as f64
        };
        let dir = Dir::new();
        for (base, bound) in [(&truth, 3e-5), (&flat, 1e-4)] {
            let path = dir.write("base.logits", saved(&tokens, base));
            let args = ["perplexity", model, "--kl-divergence", &path, "--kv", "f32", "--json"];
            let said = run(&args).ok().json();
            near(arch, &said["nll"], nll(&truth), 1e-4);
            near(arch, &said["base_perplexity"], nll(base).exp(), 3e-4 * nll(base).exp());
            near(arch, &said["ln_ratio"], nll(&truth) - nll(base), 3e-4);
            let klds: Vec<f64> = scored
                .clone()
                .map(|i| base[i].iter().zip(&truth[i]).map(|(p, q)| p.exp() * (p - q)).sum())
                .collect();
            let (mean, error) = mean_and_error(&klds);
            near(arch, &said["kld"]["mean"], mean, bound);
            near(arch, &said["kld"]["error"], error, bound);
            let max = klds.iter().copied().fold(0.0, f64::max);
            near(arch, &said["kld"]["max"], max, 10.0 * bound);
            // Scaling keeps the order.
            near(arch, &said["same_top"], 1.0, 0.0);
        }
    }
}

/// What one run saves, another compares with: nothing differs from itself, in both formats; a coarser model differs.
#[test]
fn saved_logits_are_compared_with() {
    let dir = Dir::new();
    let coarse = dir.path("coarse.gguf");
    run(&["quantize", TINY, &coarse, "Q2_K", "--allow-requantize"]).ok();
    for format in ["hanzo", "llama.cpp"] {
        let base = dir.path("base.logits");
        let args = [
            "perplexity",
            TINY,
            STORY,
            "--ctx",
            "64",
            "--save-logits",
            &base,
            "--logits-format",
            format,
            "--json",
        ];
        let saved = run(&args).ok();
        assert!(saved.err.contains("wrote"), "{}", saved.err);
        let saved = saved.json();
        let own = run(&["perplexity", TINY, "--kl-divergence", &base, "--json"]).ok().json();
        assert_eq!(own["nll"], saved["nll"]);
        assert_eq!(own["windows"], saved["windows"]);
        near("kld", &own["kld"]["mean"], 0.0, 1e-5);
        // Half a step of the codes.
        near("kld", &own["kld"]["max"], 0.0, 1.3e-4);
        near("same_top", &own["same_top"], 1.0, 0.0);
        // Tokens further than 16 below the likeliest are saved as 16 below: the base seems no worse than it is.
        let (ours, base_ppl) =
            (own["perplexity"].as_f64().unwrap(), own["base_perplexity"].as_f64().unwrap());
        assert!(base_ppl < 1.0001 * ours && base_ppl > 0.5 * ours, "{base_ppl} {ours}");
        // Against itself it is no worse, whatever of both is cut off.
        near("ln_ratio", &own["ln_ratio"], 0.0, 1e-4);
        assert_eq!(own["floored"], own["base_floored"]);
        // The text may be given again, and must be the same.
        run(&["perplexity", TINY, STORY, "--kl-divergence", &base]).ok();
        let other = dir.write("other.txt", "A completely different text. ".repeat(50));
        run(&["perplexity", TINY, &other, "--kl-divergence", &base]).fails(1, &["another text", "other.txt"]);
        let other = run(&["perplexity", &coarse, "--kl-divergence", &base, "--json"]).ok().json();
        assert!(other["kld"]["mean"].as_f64().unwrap() > 1e-3, "{other}");
        assert!(other["kld"]["p99.9"].as_f64().unwrap() <= other["kld"]["max"].as_f64().unwrap());
        let text = run(&["perplexity", &coarse, "--kl-divergence", &base]).ok();
        for word in
            ["perplexity of the base", "divergence, mean", "divergence, p99.9", "same most likely token"]
        {
            assert!(text.text().contains(word), "{}", text.text());
        }
        // Damage, a cut, and a file of something else.
        let good = std::fs::read(&base).unwrap();
        let cut = dir.write("cut.logits", &good[..good.len() - 1]);
        run(&["perplexity", TINY, "--kl-divergence", &cut]).fails(1, &["cut.logits", "cut off"]);
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        if format == "hanzo" {
            let bad = dir.write("bad.logits", &bad);
            run(&["perplexity", TINY, "--kl-divergence", &bad]).fails(1, &["bad.logits", "checksum"]);
        }
    }
    // A text of another kind, many of whose tokens the model is sure not to see.
    let strange = concat!(env!("CARGO_MANIFEST_DIR"), "/../../LICENSE-APACHE");
    let base = dir.path("strange.logits");
    run(&["perplexity", TINY, strange, "--ctx", "64", "--chunks", "20", "--save-logits", &base]).ok();
    let own = run(&["perplexity", TINY, "--kl-divergence", &base, "--json"]).ok().json();
    let (own_ppl, base_ppl) = (own["perplexity"].as_f64().unwrap(), own["base_perplexity"].as_f64().unwrap());
    assert!(own["base_floored"].as_u64().unwrap() > 0 && base_ppl < 0.999 * own_ppl, "{own}");
    near("ln_ratio", &own["ln_ratio"], 0.0, 1e-4);
    near("ln_ratio_error", &own["ln_ratio_error"], 0.0, 1e-4);
    let text = run(&["perplexity", TINY, "--kl-divergence", &base]).ok();
    assert!(text.text().contains("less likely than is saved"), "{}", text.text());
    run(&["perplexity", TINY, "--kl-divergence", STORY]).fails(1, &["story.txt", "--save-logits"]);
    run(&["perplexity", TINY, "--kl-divergence", "/nonexistent"]).fails(1, &["/nonexistent"]);
    if let Some(other) = shared("oracles/logits/qwen3/qwen3-f16.gguf") {
        let base = dir.path("base.logits");
        run(&["perplexity", other.to_str().unwrap(), "--kl-divergence", &base]).fails(1, &["vocabulary of"]);
    }
}

#[test]
fn impossible_measurements_are_refused() {
    let dir = Dir::new();
    let empty = dir.write("empty.txt", " \n");
    let short = dir.write("short.txt", "Once upon a time");
    let binary = dir.write("binary.txt", b"ab\xff\xfe");
    for command in ["perplexity", "imatrix"] {
        run(&[command, TINY, &empty]).fails(1, &["empty.txt", "empty"]);
        run(&[command, TINY, &short, "--ctx", "64"]).fails(1, &["tokens", "128", "--ctx"]);
        run(&[command, TINY, &binary]).fails(1, &["binary.txt", "UTF-8", "byte 2"]);
        run(&[command, TINY, "/nonexistent.txt"]).fails(1, &["/nonexistent.txt"]);
        run(&[command, TINY, STORY, "--ctx", "3"]).fails(2, &["--ctx"]);
        run(&[command, TINY, STORY, "--chunks", "0"]).fails(2, &["--chunks"]);
        let long = dir.write("long.txt", "Once upon a time. ".repeat(20_000));
        run(&[command, TINY, &long, "--ctx", "20000"]).fails(1, &["20000", "context"]);
        // Nothing is left behind by a failure.
        let out = dir.path("out");
        let flag = if command == "perplexity" { "--save-logits" } else { "--output" };
        run(&[command, TINY, &short, flag, &out, "--ctx", "64"]).fails(1, &["tokens"]);
        assert!(!Path::new(&out).exists());
        run(&[command, TINY, STORY, flag, "/nonexistent/out", "--ctx", "64"]).fails(1, &["/nonexistent/out"]);
        let model = dir.path("model.gguf");
        std::fs::copy(TINY, &model).unwrap();
        run(&[command, &model, STORY, flag, &model, "--ctx", "64"]).fails(1, &["model itself"]);
    }
    run(&["perplexity", TINY]).fails(2, &["a text"]);
    run(&["perplexity", TINY, STORY, "--stride", "0"]).fails(2, &["--stride"]);
    run(&["perplexity", TINY, STORY, "--stride", "9000"]).fails(1, &["tokens"]);
    run(&["perplexity", TINY, STORY, "--stride", "64", "--save-logits", "x"]).fails(2, &["--save-logits"]);
}

/// Values of a tensor.
fn tensor(file: &GgufFile, name: &str) -> Vec<f32> {
    let info = file.required_tensor(name).unwrap();
    let mut out = vec![0.0; info.n_elements() as usize];
    let ty = hanzo_quant::QuantType::ALL.iter().copied().find(|t| t.name() == info.ty().name()).unwrap();
    decode_row(ty, &file.read_tensor(info).unwrap(), &mut out).unwrap();
    out
}

fn imatrix(dir: &Dir, model: &str, args: &[&str]) -> (PathBuf, GgufFile) {
    let out = PathBuf::from(dir.path("imatrix.gguf"));
    let fixed = ["imatrix", model, STORY, "--output", out.to_str().unwrap(), "--ctx", "64", "--chunks", "2"];
    run(&[&fixed[..], args].concat()).ok();
    let file = GgufFile::open(&out).unwrap();
    (out, file)
}

/// The first layer's sums, recomputed: norms of the embeddings of the tokens that were run.
#[test]
fn importance_is_the_mean_square_of_inputs() {
    let dir = Dir::new();
    let (path, file) = imatrix(&dir, TINY, &[]);
    let meta = file.metadata();
    assert_eq!(meta.get_str("general.type").unwrap(), Some("imatrix"));
    assert_eq!(meta.get_u32("imatrix.chunk_count").unwrap(), Some(2));
    assert_eq!(meta.get_u32("imatrix.chunk_size").unwrap(), Some(64));
    let model = GgufFile::open(TINY).unwrap();
    let (embd, norm) = (tensor(&model, "token_embd.weight"), tensor(&model, "blk.0.attn_norm.weight"));
    let n = norm.len();
    let eps_key = format!(
        "{}.attention.layer_norm_rms_epsilon",
        model.metadata().required_str("general.architecture").unwrap()
    );
    let eps = match model.metadata().get(&eps_key).unwrap() {
        hanzo_gguf::Value::F32(eps) => f64::from(eps),
        other => panic!("{other:?}"),
    };
    let (bare, bos) = tokens(std::fs::read_to_string(STORY).unwrap().trim_end());
    let ids: Vec<u32> = bos.into_iter().chain(bare).collect();
    let mut want = vec![0.0; n];
    for window in ids.chunks_exact(64).take(2) {
        for (i, &id) in window.iter().enumerate() {
            let id = if i == 0 { bos.unwrap_or(id) } else { id };
            let row: Vec<f64> = embd[id as usize * n..][..n].iter().map(|&x| f64::from(x)).collect();
            let mean = row.iter().map(|x| x * x).sum::<f64>() / n as f64;
            for ((want, x), w) in want.iter_mut().zip(&row).zip(&norm) {
                *want += (x * f64::from(*w)).powi(2) / (mean + eps);
            }
        }
    }
    let got = tensor(&file, "blk.0.attn_q.weight.in_sum2");
    assert_eq!(got.len(), n);
    for (got, want) in got.iter().zip(&want) {
        assert!((f64::from(*got) - want).abs() < 1e-4 * want.max(1e-3), "{got} {want}");
    }
    assert_eq!(got, tensor(&file, "blk.0.attn_k.weight.in_sum2"));
    for info in model.tensors().iter().filter(|t| t.name().starts_with("blk.") && t.dims().len() == 2) {
        let counts = tensor(&file, &format!("{}.counts", info.name()));
        assert_eq!(counts, [128.0], "{}", info.name());
    }
    assert!(file.required_tensor("output.weight.counts").is_err());
    assert!(file.required_tensor("token_embd.weight.counts").is_err());

    // Quantizing takes it, and its figures do not depend on threads.
    let quantized = dir.path("q.gguf");
    let imatrix_file = path.to_str().unwrap();
    let args = ["quantize", TINY, &quantized, "IQ4_NL", "--allow-requantize", "--imatrix", imatrix_file];
    run(&args).ok();
    let meta = GgufFile::open(&quantized).unwrap();
    assert_eq!(meta.metadata().get_u32("quantize.imatrix.chunks_count").unwrap(), Some(2));
    let first = std::fs::read(&path).unwrap();
    imatrix(&dir, TINY, &["--threads", "1"]);
    assert_eq!(first, std::fs::read(&path).unwrap());
    // With the output.
    let (_, file) = imatrix(&dir, TINY, &["--process-output"]);
    let head =
        if model.tensors().iter().any(|t| t.name() == "output.weight") { "output" } else { "token_embd" };
    assert_eq!(tensor(&file, &format!("{head}.weight.counts")), [128.0]);
}

#[test]
fn experts_have_importance_of_their_own() {
    let Some(model) = shared("oracles/logits/qwen3moe/qwen3moe-f32.gguf") else { return };
    let dir = Dir::new();
    let model = model.to_str().unwrap();
    let (path, file) = imatrix(&dir, model, &[]);
    let opened = GgufFile::open(model).unwrap();
    let used = opened.metadata().get_u32("qwen3moe.expert_used_count").unwrap().unwrap();
    for name in ["ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"] {
        let name = format!("blk.0.{name}.weight");
        let counts = tensor(&file, &format!("{name}.counts"));
        let info = opened.required_tensor(&name).unwrap();
        assert_eq!(counts.len() as u64, info.dims()[2]);
        assert_eq!(counts.iter().sum::<f32>(), (128 * used) as f32);
        let sums = tensor(&file, &format!("{name}.in_sum2"));
        for (sums, count) in sums.chunks_exact(info.dims()[0] as usize).zip(counts) {
            assert_eq!(sums.iter().all(|s| *s == 0.0), count == 0.0);
        }
    }
    let out = dir.path("q.gguf");
    let imatrix_file = path.to_str().unwrap();
    run(&["quantize", model, &out, "Q4_0", "--imatrix", imatrix_file]).ok();
    run(&["quantize", TINY, &out, "Q4_0", "--allow-requantize", "--imatrix", imatrix_file])
        .fails(1, &["another model"]);
}

/// Likelihoods of choices, recomputed from logits of the whole sequences.
#[test]
fn eval_answers_by_log_likelihood() {
    let dir = Dir::new();
    let details = dir.path("details.jsonl");
    let said = run(&["eval", TINY, QUESTIONS, "--json", "--details", &details]).ok().json();
    assert_eq!(said["questions"], 2);
    near("chance", &said["chance"], (1.0 / 3.0 + 1.0 / 2.0) / 2.0, 1e-12);
    let details = std::fs::read_to_string(&details).unwrap();
    let questions = std::fs::read_to_string(QUESTIONS).unwrap();
    let (mut right, mut right_norm) = (0, 0);
    for (question, detail) in questions.lines().zip(details.lines()) {
        let question: Value = serde_json::from_str(question).unwrap();
        let detail: Value = serde_json::from_str(detail).unwrap();
        let prompt = question["prompt"].as_str().unwrap();
        let (alone, bos) = tokens(prompt);
        let mut sums = Vec::new();
        for choice in question["choices"].as_array().unwrap() {
            let (all, _) = tokens(&format!("{prompt} {}", choice.as_str().unwrap()));
            assert_eq!(all[..alone.len()], alone);
            let ids: Vec<u32> = bos.into_iter().chain(all.iter().copied()).collect();
            let rows = logits(&dir, &ids);
            let first = ids.len() - (all.len() - alone.len());
            sums.push((first..ids.len()).map(|i| ln_p(&rows[i - 1])[ids[i] as usize]).sum::<f64>());
        }
        for (got, want) in detail["log_likelihoods"].as_array().unwrap().iter().zip(&sums) {
            near(prompt, got, *want, 1e-5);
        }
        let best = |values: &[f64]| {
            (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap() as u64
        };
        let normed: Vec<f64> = sums
            .iter()
            .zip(question["choices"].as_array().unwrap())
            .map(|(s, c)| s / c.as_str().unwrap().chars().count() as f64)
            .collect();
        assert_eq!(detail["chosen"], best(&sums));
        assert_eq!(detail["chosen_norm"], best(&normed));
        right += u32::from(question["answer"] == best(&sums));
        right_norm += u32::from(question["answer"] == best(&normed));
    }
    near("acc", &said["acc"], f64::from(right) / 2.0, 1e-12);
    near("acc_norm", &said["acc_norm"], f64::from(right_norm) / 2.0, 1e-12);
    // The model knows how its stories begin.
    assert!(details.lines().next().unwrap().contains("\"chosen\":0"), "{details}");
    let text = run(&["eval", TINY, QUESTIONS, "--limit", "1"]).ok();
    assert!(text.text().starts_with("acc       1.0000 ± 0.0000   1 of 1\n"), "{}", text.text());
}

#[test]
fn questions_that_cannot_be_asked_are_refused() {
    let dir = Dir::new();
    let good = "{\"prompt\": \"a\", \"choices\": [\"b\", \"c\"], \"answer\": 0}\n";
    let bad = dir.write("bad.jsonl", format!("{good}{good}{{\"prompt\": 1}}\n"));
    run(&["eval", TINY, &bad]).fails(1, &["bad.jsonl", "line 3", "`prompt`"]);
    let bad = dir.write("cut.jsonl", format!("{good}{{\"prompt\": "));
    run(&["eval", TINY, &bad]).fails(1, &["cut.jsonl", "line 2", "no JSON"]);
    let empty = dir.write("empty.jsonl", "\n");
    run(&["eval", TINY, &empty]).fails(1, &["empty.jsonl"]);
    let deep = dir.write("deep.jsonl", "[".repeat(100_000));
    run(&["eval", TINY, &deep]).fails(1, &["line 1", "no JSON"]);
    let long =
        format!("{{\"prompt\": \"{}\", \"choices\": [\"b\", \"c\"], \"answer\": 0}}\n", "a b ".repeat(9000));
    let long = dir.write("long.jsonl", long);
    run(&["eval", TINY, &long]).fails(1, &["line 1", "context"]);
    let odd = dir.write("odd.jsonl", good.replace("\"answer\"", "\"topic\": 1, \"answer\""));
    assert!(run(&["eval", TINY, &odd]).ok().err.contains("not used: topic"));
    run(&["eval", TINY, &odd, "--limit", "0"]).fails(2, &["--limit"]);
}

/// Ctrl-C ends after the window or question that is running: what there is is printed, half a file is not kept.
#[cfg(unix)]
#[test]
fn interrupted_measurements_tell_what_they_have() {
    let dir = Dir::new();
    let text = dir.write("long.txt", "Once upon a time, there was a little mouse. ".repeat(40_000));
    let question = std::fs::read_to_string(QUESTIONS).unwrap();
    let questions = dir.write("long.jsonl", question.repeat(20_000));
    let (base, details) = (dir.path("base.logits"), dir.path("details.jsonl"));
    let draft = || {
        let mut entries = std::fs::read_dir(dir.0.path()).unwrap().map(Result::unwrap);
        entries.find(|e| e.file_name().to_str().is_some_and(|n| n.starts_with(".hanzo-")))
    };
    // Enough of a file that windows, or a question, are done.
    let has_written = || {
        std::fs::metadata(&details).is_ok_and(|m| m.len() > 0)
            || draft().is_some_and(|e| e.metadata().is_ok_and(|m| m.len() > 8 << 20))
    };
    for args in [
        ["perplexity", TINY, &text, "--ctx", "64", "--save-logits", &base, "--json"],
        ["eval", TINY, &questions, "--threads", "2", "--details", &details, "--json"],
    ] {
        let mut command = common::hanzo();
        command.args(args).stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        let child = command.spawn().unwrap();
        while !has_written() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let pid = child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
        let said: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(said["complete"], false);
        assert!(!Path::new(&base).exists());
        assert!(draft().is_none());
    }
}
