#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use std::path::{Path, PathBuf};

use clap::Parser;
use hanzo_gguf::{GgufFile, GgufWriter, TensorType};
use hanzo_quant::{QuantType, decode_row};
use tempfile::TempDir;

use super::{Args, Recipe, Report, quantize};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn run(input: &Path, output: &Path, rest: &[&str]) -> anyhow::Result<Report> {
    let paths = [Path::new("quantize"), input, output].map(|path| path.to_str().unwrap());
    let cli = Cli::try_parse_from(paths.iter().chain(rest)).unwrap();
    quantize(&cli.args, &|_, _| Ok(()))
}

fn fails(input: &Path, output: &Path, rest: &[&str]) -> String {
    let error = run(input, output, rest).unwrap_err();
    assert!(!output.exists(), "a failure leaves nothing behind");
    format!("{error:#}")
}

/// Seeded numbers around 0, roughly Gaussian.
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    };
    (0..n).map(|_| 0.1 * (uniform() + uniform() + uniform())).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

const LAYERS: usize = 8;

/// Names and dims of a llama of eight layers, rows of 256 and 512, whose down projection can be taken from experts.
fn shapes(experts: u64) -> Vec<(String, Vec<u64>)> {
    let mut shapes = vec![
        ("token_embd.weight".to_owned(), vec![256, 16]),
        ("output_norm.weight".to_owned(), vec![256]),
        ("output.weight".to_owned(), vec![256, 16]),
    ];
    for layer in 0..LAYERS {
        let mut add =
            |name: &str, dims: &[u64]| shapes.push((format!("blk.{layer}.{name}.weight"), dims.to_vec()));
        add("attn_norm", &[256]);
        add("attn_q", &[256, 32]);
        add("attn_k", &[256, 8]);
        add("attn_v", &[256, 8]);
        add("attn_output", &[256, 32]);
        if experts > 0 {
            add("ffn_gate_inp", &[256, experts]);
            add("ffn_down_exps", &[256, 8, experts]);
        } else {
            add("ffn_down", &[512, 32]);
        }
    }
    shapes
}

fn write_model(path: &Path, experts: u64, spoil: impl Fn(&str, &mut Vec<f32>)) {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama").unwrap();
    writer.set("llama.attention.head_count", 4u32).unwrap();
    writer.set("llama.attention.head_count_kv", 2u32).unwrap();
    writer.set("llama.expert_count", experts as u32).unwrap();
    writer.set("general.file_type", 0u32).unwrap();
    writer.set("tokenizer.ggml.scores", [0.5f32, -1.5].as_slice()).unwrap();
    let shapes = shapes(experts);
    for (name, dims) in &shapes {
        writer.tensor(name, TensorType::F32, dims).unwrap();
    }
    let mut out = writer.create(path).unwrap();
    for (i, (name, dims)) in shapes.iter().enumerate() {
        let mut values = numbers(i as u64, dims.iter().product::<u64>() as usize);
        spoil(name, &mut values);
        out.append(i, &bytes(&values)).unwrap();
    }
    out.finish().unwrap();
}

fn values(file: &GgufFile, name: &str) -> Vec<f32> {
    let tensor = file.required_tensor(name).unwrap();
    let mut out = vec![0.0; tensor.n_elements() as usize];
    decode_row(QuantType::from_id(tensor.ty().id()).unwrap(), &file.read_tensor(tensor).unwrap(), &mut out)
        .unwrap();
    out
}

fn ty(file: &GgufFile, name: &str) -> TensorType {
    file.required_tensor(name).unwrap().ty()
}

fn relative_error(x: &[f32], y: &[f32], w: impl Fn(usize) -> f32) -> f64 {
    let sum = |f: &dyn Fn(usize) -> f32| {
        (0..x.len()).map(|i| f64::from(w(i)) * f64::from(f(i)).powi(2)).sum::<f64>()
    };
    (sum(&|i| x[i] - y[i]) / sum(&|i| x[i])).sqrt()
}

/// The relative error that so many bits may leave: floats of 16 bits spend some on their exponent.
fn bound(bits: f64) -> f64 {
    match bits as u32 {
        32 => 0.0,
        16 => 0.5f64.powi(8),
        _ => 2.5 * (-bits).exp2(),
    }
}

struct Setup {
    dir: TempDir,
    input: PathBuf,
}

fn setup(experts: u64) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let input = dir.path().join("in.gguf");
    write_model(&input, experts, |_, _| ());
    Setup { dir, input }
}

impl Setup {
    fn out(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn quantized(&self, rest: &[&str]) -> GgufFile {
        let out = self.out("out.gguf");
        run(&self.input, &out, rest).unwrap();
        GgufFile::open(out).unwrap()
    }
}

#[test]
fn every_recipe_makes_a_file_that_opens_again() {
    let setup = setup(0);
    let original = GgufFile::open(&setup.input).unwrap();
    for &recipe in Recipe::ALL {
        let file = setup.quantized(&[recipe.name()]);
        assert_eq!(file.metadata().required_u32("general.file_type").unwrap(), recipe.file_type());
        assert_eq!(file.metadata().required_u32("general.quantization_version").unwrap(), 2);
        for item in original.metadata().iter().filter(|item| item.key != "general.file_type") {
            let now = file.metadata().get(item.key).unwrap();
            assert_eq!(format!("{now:#}"), format!("{:#}", item.value), "{}", item.key);
        }
        assert_eq!(file.tensors().len(), original.tensors().len());
        for (old, new) in original.tensors().iter().zip(file.tensors()) {
            assert_eq!((old.name(), old.dims()), (new.name(), new.dims()));
            if old.name().contains("norm") {
                assert_eq!(new.ty(), TensorType::F32);
            }
            let bits = QuantType::from_id(new.ty().id()).unwrap().bits_per_weight();
            let error = relative_error(&values(&original, old.name()), &values(&file, new.name()), |_| 1.0);
            assert!(error <= bound(bits), "{}, {} as {}: {error}", recipe.name(), new.name(), new.ty());
        }
    }
}

#[test]
fn rows_that_fit_no_block_fall_back_and_say_so() {
    let input = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/oracles/logits/llama/llama-f32.gguf"
    ));
    if !input.exists() {
        assert_ne!(std::env::var("HANZO_REQUIRE").as_deref(), Ok("all"), "{} is missing", input.display());
        println!("skipped: no {}", input.display());
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let original = GgufFile::open(&input).unwrap();
    for &recipe in Recipe::ALL {
        let out = dir.path().join("out.gguf");
        let report = run(&input, &out, &[recipe.name()]).unwrap();
        let file = GgufFile::open(&out).unwrap();
        // Rows have 64 and 128 elements; Q4_0 and its like have their output in Q6_K.
        let fits = recipe.base().is_float() || matches!(recipe, Recipe::Q8_0 | Recipe::MXFP4_MOE);
        let said = report.notes.iter().any(|note| note.contains("instead of"));
        assert_eq!(said, !fits, "{}: {:?}", recipe.name(), report.notes);
        for tensor in original.tensors() {
            let bits = QuantType::from_id(ty(&file, tensor.name()).id()).unwrap().bits_per_weight();
            let error =
                relative_error(&values(&original, tensor.name()), &values(&file, tensor.name()), |_| 1.0);
            assert!(error <= bound(bits), "{}, {}: {error}", recipe.name(), tensor.name());
        }
    }
}

#[test]
fn exceptions_wishes_and_pure_files() {
    let setup = setup(0);
    let file = setup.quantized(&["Q4_K_M"]);
    let down: Vec<_> = (0..LAYERS).map(|layer| ty(&file, &format!("blk.{layer}.ffn_down.weight"))).collect();
    use TensorType::{Q4_K, Q6_K};
    assert_eq!(down, [Q6_K, Q4_K, Q4_K, Q6_K, Q4_K, Q4_K, Q6_K, Q6_K]);
    assert_eq!(ty(&file, "output.weight"), Q6_K);
    assert_eq!(ty(&file, "token_embd.weight"), Q4_K);

    let file = setup.quantized(&["q4_k_m", "--pure"]);
    let matrices = || file.tensors().iter().filter(|tensor| tensor.dims().len() == 2);
    assert!(matrices().all(|tensor| tensor.ty() == Q4_K));

    let wishes = ["Q4_K_M", "--output-tensor-type", "q8_0", "--token-embedding-type", "F16"];
    let by_name = ["--tensor-type", r"blk\.[0-3]\.attn_v=q5_k", "--tensor-type", "attn_v=Q2_K"];
    let file = setup.quantized(&[&wishes[..], &by_name].concat());
    assert_eq!(ty(&file, "output.weight"), TensorType::Q8_0);
    assert_eq!(ty(&file, "token_embd.weight"), TensorType::F16);
    assert_eq!(ty(&file, "blk.3.attn_v.weight"), TensorType::Q5_K);
    assert_eq!(ty(&file, "blk.4.attn_v.weight"), TensorType::Q2_K);
}

#[test]
fn thread_count_does_not_change_a_byte() {
    let setup = setup(0);
    let files: Vec<Vec<u8>> = ["1", "2", "7"]
        .iter()
        .map(|threads| {
            setup.quantized(&["IQ2_XS", "--threads", threads]);
            std::fs::read(setup.out("out.gguf")).unwrap()
        })
        .collect();
    assert!(files.windows(2).all(|pair| pair[0] == pair[1]));
}

/// An importance file for the tensors of `shapes`: column `c` of matrix `m` has importance `weight(c, m)`.
fn write_importance(path: &Path, shapes: &[(String, Vec<u64>)], weight: impl Fn(usize, usize) -> f32) {
    const INPUTS: f32 = 10.0;
    let mut writer = GgufWriter::new();
    writer.set("general.type", "imatrix").unwrap();
    writer.set("imatrix.chunk_count", 3u32).unwrap();
    writer.set("imatrix.datasets", ["letters.txt"].as_slice()).unwrap();
    let mut data = Vec::new();
    for (name, dims) in shapes {
        let (columns, matrices) = (dims[0] as usize, dims.get(2).copied().unwrap_or(1) as usize);
        writer
            .tensor(&format!("{name}.in_sum2"), TensorType::F32, &[columns as u64, matrices as u64])
            .unwrap();
        writer.tensor(&format!("{name}.counts"), TensorType::F32, &[1, matrices as u64]).unwrap();
        let sums = (0..columns * matrices).map(|i| INPUTS * weight(i % columns, i / columns));
        data.push(bytes(&sums.collect::<Vec<_>>()));
        data.push(bytes(&vec![INPUTS; matrices]));
    }
    std::fs::write(path, writer.to_bytes(&data).unwrap()).unwrap();
}

#[test]
fn importance_is_used_for_each_expert() {
    let setup = setup(8);
    let name = "blk.5.ffn_down_exps.weight";
    let shape = (name.to_owned(), vec![256, 8, 8]);
    // The columns that matter differ from expert to expert.
    let weight = |column: usize, expert: usize| if column % 8 == expert { 50.0 } else { 0.1 };
    write_importance(&setup.out("imatrix.gguf"), &[shape], weight);

    let original = GgufFile::open(&setup.input).unwrap();
    let x = values(&original, name);
    let at = |i: usize| weight(i % 256, i / (256 * 8));
    let plain = setup.quantized(&["IQ3_S"]);
    let path = setup.out("imatrix.gguf");
    let weighted = setup.quantized(&["IQ3_S", "--imatrix", path.to_str().unwrap()]);
    assert_eq!(ty(&plain, name), ty(&weighted, name));
    assert_eq!(ty(&weighted, "blk.5.ffn_gate_inp.weight"), TensorType::F32, "routers stay");
    let (plain, with) =
        (relative_error(&x, &values(&plain, name), at), relative_error(&x, &values(&weighted, name), at));
    assert!(with < 0.7 * plain, "{with} with importance, {plain} without");
    assert_eq!(weighted.metadata().required_str("quantize.imatrix.file").unwrap(), "imatrix.gguf");
    assert_eq!(weighted.metadata().required_str("quantize.imatrix.dataset").unwrap(), "letters.txt");
    assert_eq!(weighted.metadata().required_u32("quantize.imatrix.entries_count").unwrap(), 1);
    assert_eq!(weighted.metadata().required_u32("quantize.imatrix.chunks_count").unwrap(), 3);

    let report =
        run(&setup.input, &setup.out("out.gguf"), &["IQ3_S", "--imatrix", path.to_str().unwrap()]).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("does not know")), "{:?}", report.notes);
}

#[test]
fn importance_of_another_model_is_refused() {
    let setup = setup(0);
    let (path, out) = (setup.out("imatrix.gguf"), setup.out("out.gguf"));
    write_importance(&path, &[("blk.0.attn_q.weight".to_owned(), vec![512, 256])], |_, _| 1.0);
    let error = fails(&setup.input, &out, &["Q4_K_M", "--imatrix", path.to_str().unwrap()]);
    assert!(error.contains("of another model") && error.contains("blk.0.attn_q.weight"), "{error}");
    let error = fails(&setup.input, &out, &["Q4_K_M", "--imatrix", setup.input.to_str().unwrap()]);
    assert!(error.contains("not `imatrix`"), "{error}");
    write_importance(&path, &[("blk.0.attn_q.weight".to_owned(), vec![256, 256])], |_, _| f32::NAN);
    let error = fails(&setup.input, &out, &["Q4_K_M", "--imatrix", path.to_str().unwrap()]);
    assert!(error.contains("in_sum2") && error.contains("NaN"), "{error}");
}

#[test]
fn poor_choices_are_pointed_out() {
    let setup = setup(0);
    let report = run(&setup.input, &setup.out("out.gguf"), &["IQ2_XXS", "--dry-run"]).unwrap();
    assert!(!setup.out("out.gguf").exists());
    assert!(report.notes.iter().any(|note| note.contains("importance matrix")), "{:?}", report.notes);
    let text = report.to_string();
    assert!(text.contains("IQ2_XXS") && text.contains("dry run"), "{text}");
}

#[test]
fn quantizing_twice_must_be_insisted_on() {
    let setup = setup(0);
    setup.quantized(&["Q8_0"]);
    let (once, twice) = (setup.out("out.gguf"), setup.out("twice.gguf"));
    let error = fails(&once, &twice, &["Q4_K_M"]);
    assert!(error.contains("--allow-requantize"), "{error}");
    let report = run(&once, &twice, &["Q4_K_M", "--allow-requantize"]).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("a second time")), "{:?}", report.notes);
    // What stays as it is is no second time.
    run(&once, &twice, &["Q8_0"]).unwrap();
    let data = |path: &Path, name: &str| {
        let file = GgufFile::open(path).unwrap();
        file.read_tensor(file.required_tensor(name).unwrap()).unwrap()
    };
    assert_eq!(data(&once, "blk.0.attn_q.weight"), data(&twice, "blk.0.attn_q.weight"));
}

#[test]
fn values_that_are_no_numbers_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (input, out) = (dir.path().join("in.gguf"), dir.path().join("out.gguf"));
    write_model(&input, 0, |name, values| {
        if name == "blk.2.ffn_down.weight" {
            values[512 * 7 + 9] = f32::NAN;
            values[512 * 20] = f32::NAN;
        }
    });
    let error = fails(&input, &out, &["Q4_K_M", "--threads", "4"]);
    assert!(error.contains("blk.2.ffn_down.weight") && error.contains("row 7, column 9"), "{error}");
}

#[test]
fn split_models_become_one_file() {
    let setup = setup(0);
    let whole = GgufFile::open(&setup.input).unwrap();
    let shards = hanzo_gguf::split(&whole, setup.dir.path(), "part", 200_000, |_| ()).unwrap();
    assert!(shards.len() > 1);
    setup.quantized(&["Q5_K_S"]);
    let expected = std::fs::read(setup.out("out.gguf")).unwrap();
    run(&shards[1], &setup.out("joined.gguf"), &["Q5_K_S"]).unwrap();
    assert!(expected == std::fs::read(setup.out("joined.gguf")).unwrap());
}

#[test]
fn wrong_wishes_are_explained() {
    let setup = setup(0);
    let out = setup.out("out.gguf");
    let error = fails(&setup.input, &out, &["Q4"]);
    assert!(error.contains("Q4_K_M") && error.contains("`Q4`"), "{error}");
    let error = fails(&setup.input, &out, &["Q4_K_M", "--tensor-type", "attn_v"]);
    assert!(error.contains("PATTERN=TYPE"), "{error}");
    let error = fails(&setup.input, &out, &["Q4_K_M", "--tensor-type", "attn_v=Q8_K"]);
    assert!(error.contains("`Q8_K`"), "{error}");
    let error = fails(&setup.input, &out, &["Q4_K_M", "--tensor-type", "attn_(v=Q8_0"]);
    assert!(error.contains("attn_(v"), "{error}");
    let error = format!("{:#}", run(&setup.input, &setup.input, &["Q4_K_M"]).unwrap_err());
    assert!(error.contains("is the model itself"), "{error}");
    assert!(GgufFile::open(&setup.input).is_ok());
}
