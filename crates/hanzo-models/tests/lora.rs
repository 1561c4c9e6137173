//! Adapters against the merged model, PEFT's form against GGUF's, and adapters that must be refused.

#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;

use std::collections::HashMap;
use std::path::Path;

use common::{Sequence, max_distance, oracles};
use hanzo_fusion::KvType;
use hanzo_gguf::{GgufFile, GgufWriter, TensorType};
use hanzo_models::lora::{LoraFile, LoraFormat};
use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use serde_json::{Value, json};

/// A number between -1 and 1.
fn noise(seed: u64, i: usize) -> f32 {
    let mut h = (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    h = (h ^ h >> 30).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((h ^ h >> 31) >> 40) as f32 / (1 << 23) as f32 - 1.0
}

/// The low-rank update of one tensor: `a` is `[rank, n_in]`, `b` `[n_out, rank]`.
#[derive(Clone)]
struct Update {
    tensor: String,
    rank: usize,
    n_in: usize,
    n_out: usize,
    a: Vec<f32>,
    b: Vec<f32>,
}

impl Update {
    fn new(tensor: &str, rank: usize, n_in: usize, n_out: usize, seed: u64) -> Self {
        let a = (0..rank * n_in).map(|i| noise(seed, i) * 0.3).collect();
        let b = (0..rank * n_out).map(|i| noise(seed + 1, i) * 0.3).collect();
        Self { tensor: tensor.to_owned(), rank, n_in, n_out, a, b }
    }

    /// Element of `B · A`.
    fn at(&self, n: usize, k: usize) -> f64 {
        (0..self.rank)
            .map(|j| f64::from(self.b[n * self.rank + j]) * f64::from(self.a[j * self.n_in + k]))
            .sum()
    }
}

fn is_adapted(name: &str) -> bool {
    let parts = [
        "attn_q.",
        "attn_k.",
        "attn_v.",
        "attn_output.",
        "ffn_gate.",
        "ffn_up.",
        "ffn_down.",
        "ffn_gate_inp.",
    ];
    parts.iter().any(|p| name.contains(p)) || name == "output.weight"
}

/// Updates of all matrices of a model.
fn updates(model: &GgufFile, rank: usize, seed: u64) -> Vec<Update> {
    let adapted = model.tensors().iter().filter(|t| is_adapted(t.name()) && t.dims().len() == 2);
    let update = |(i, t): (usize, &hanzo_gguf::TensorInfo)| {
        Update::new(t.name(), rank, t.dims()[0] as usize, t.dims()[1] as usize, seed + 2 * i as u64)
    };
    adapted.enumerate().map(update).collect()
}

fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// An adapter as llama.cpp's converter writes it.
fn gguf_adapter(architecture: &str, alpha: f32, updates: &[Update]) -> (GgufWriter, Vec<Vec<u8>>) {
    let mut writer = GgufWriter::new();
    writer.set("general.type", "adapter").unwrap();
    writer.set("general.architecture", architecture).unwrap();
    writer.set("adapter.type", "lora").unwrap();
    writer.set("adapter.lora.alpha", alpha).unwrap();
    let mut data = Vec::new();
    for u in updates {
        let (rank, n_in, n_out) = (u.rank as u64, u.n_in as u64, u.n_out as u64);
        if u.tensor == "token_embd.weight" {
            writer.tensor(&format!("{}.lora_a", u.tensor), TensorType::F32, &[rank, n_in]).unwrap();
            let by_input: Vec<f32> =
                (0..u.n_in).flat_map(|k| (0..u.rank).map(move |j| u.a[j * u.n_in + k])).collect();
            data.push(bytes(&by_input));
        } else {
            writer.tensor(&format!("{}.lora_a", u.tensor), TensorType::F32, &[n_in, rank]).unwrap();
            data.push(bytes(&u.a));
        }
        writer.tensor(&format!("{}.lora_b", u.tensor), TensorType::F32, &[rank, n_out]).unwrap();
        data.push(bytes(&u.b));
    }
    (writer, data)
}

fn write_gguf(path: &Path, (writer, data): &(GgufWriter, Vec<Vec<u8>>)) {
    std::fs::write(path, writer.to_bytes(data).unwrap()).unwrap();
}

fn f32_tensor(file: &GgufFile, name: &str) -> Vec<f32> {
    let info = file.tensor(name).unwrap();
    let mut bytes = vec![0; info.n_bytes() as usize];
    file.read_tensor_at(info, 0, &mut bytes).unwrap();
    bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
}

/// The model with `scale · B · A` added to its weights. An update of a tied embedding is given to the embedding alone: the head
/// becomes a tensor of its own.
fn merged(model: &GgufFile, updates: &[Update], scale: f32) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer.copy_metadata(model.metadata()).unwrap();
    let mut data = Vec::new();
    let mut add = |name: &str, info: &hanzo_gguf::TensorInfo, content: Vec<u8>| {
        writer.tensor(name, info.ty(), info.dims()).unwrap();
        data.push(content);
    };
    for info in model.tensors() {
        let name = info.name();
        let mut raw = vec![0; info.n_bytes() as usize];
        model.read_tensor_at(info, 0, &mut raw).unwrap();
        let Some(u) = updates.iter().find(|u| u.tensor == name) else {
            add(name, info, raw);
            continue;
        };
        let is_embedding = name == "token_embd.weight";
        if is_embedding && model.tensor("output.weight").is_none() {
            add("output.weight", info, raw.clone());
        }
        let n_row = info.dims()[0] as usize;
        let mut values = f32_tensor(model, name);
        for (i, w) in values.iter_mut().enumerate() {
            let (row, col) = (i / n_row, i % n_row);
            let delta = if is_embedding { u.at(col, row) } else { u.at(row, col) };
            *w = (f64::from(*w) + f64::from(scale) * delta) as f32;
        }
        add(name, info, bytes(&values));
    }
    writer.to_bytes(&data).unwrap()
}

/// Logits with an adapter are those of the model with merged weights, which knows nothing of adapters.
#[test]
fn applied_is_merged() {
    for name in ["llama", "qwen2", "qwen3", "qwen3moe", "gemma3", "mixtral"] {
        let Some(folder) = oracles("logits").map(|o| o.join(name)) else { return };
        let path = folder.join(format!("{name}-f32.gguf"));
        let file = GgufFile::open(&path).unwrap();
        let architecture = file.metadata().required_str("general.architecture").unwrap().to_owned();
        let mut updates = updates(&file, 5, 7);
        let embd = file.tensor("token_embd.weight").unwrap().dims();
        updates.push(Update::new("token_embd.weight", 5, embd[1] as usize, embd[0] as usize, 99));
        let (alpha, scale) = (8.0, 0.6);

        let temp = tempfile::tempdir().unwrap();
        let adapter_path = temp.path().join("adapter.gguf");
        write_gguf(&adapter_path, &gguf_adapter(&architecture, alpha, &updates));
        let merged_path = temp.path().join("merged.gguf");
        std::fs::write(&merged_path, merged(&file, &updates, scale * alpha / 5.0)).unwrap();

        let ids: Vec<u32> = (0..40).map(|i| i * 37 % 500).collect();
        let want = Sequence::load(&merged_path, 2, KvType::F32).step(&ids);
        let mut sequence = Sequence::load(&path, 2, KvType::F32);
        let plain = sequence.step(&ids);
        let lora = LoraFile::open(&adapter_path).unwrap();
        assert_eq!((lora.format(), lora.max_rank()), (LoraFormat::Gguf, 5));
        let adapter = lora.bind(&hanzo_models::load(&file).unwrap()).unwrap();
        assert_eq!(adapter.n_updates(), updates.len());
        sequence.restart();
        sequence.adapters = vec![(adapter, scale)];
        let got = sequence.step(&ids);
        let (distance, moved) = (max_distance(&got, &want), max_distance(&got, &plain));
        println!("{name}: {distance:.2e} of {moved:.2e}");
        assert!(distance <= 2e-3 && moved > 100.0 * distance, "{name}: {distance}, moved by {moved}");
        sequence.restart();
        sequence.adapters.clear();
        assert_eq!(sequence.step(&ids), plain, "{name}: without the adapter nothing is left of it");
    }
}

/// Hugging Face's name of a tensor of a layer.
fn hf_name(architecture: &str, tensor: &str) -> Option<String> {
    if tensor == "output.weight" {
        return Some("lm_head".to_owned());
    }
    let mut parts = tensor.strip_prefix("blk.")?.split('.');
    let layer = parts.next()?;
    let part = match parts.next()? {
        "attn_q" => "self_attn.q_proj",
        "attn_k" => "self_attn.k_proj",
        "attn_v" => "self_attn.v_proj",
        "attn_output" => "self_attn.o_proj",
        "ffn_gate" => "mlp.gate_proj",
        "ffn_up" => "mlp.up_proj",
        "ffn_down" => "mlp.down_proj",
        "ffn_gate_inp" if architecture == "qwen3moe" => "mlp.gate",
        other => panic!("{other}"),
    };
    Some(format!("model.layers.{layer}.{part}"))
}

/// Row of Hugging Face's weight that is row `i` of the tensor: found by comparing the two files' values.
fn rows_of(hf: &[f32], gguf: &[f32], n_in: usize) -> Vec<usize> {
    let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let places: HashMap<Vec<u32>, usize> = hf.chunks(n_in).map(bits).zip(0..).collect();
    assert_eq!(places.len(), hf.len() / n_in, "rows are different from each other");
    gguf.chunks(n_in).map(|row| places[&bits(row)]).collect()
}

fn safetensors_f32(tensors: &SafeTensors<'_>, name: &str) -> Vec<f32> {
    let view = tensors.tensor(name).unwrap();
    match view.dtype() {
        Dtype::F32 => view.data().as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect(),
        other => panic!("{name} is {other:?}"),
    }
}

/// Writes a folder as PEFT does.
fn write_peft(folder: &Path, config: &Value, tensors: &[(String, Vec<usize>, Vec<f32>)]) {
    let data: Vec<Vec<u8>> = tensors.iter().map(|(_, _, x)| bytes(x)).collect();
    let views = tensors.iter().zip(&data).map(|((name, shape, _), data)| {
        (name.clone(), TensorView::new(Dtype::F32, shape.clone(), data).unwrap())
    });
    std::fs::create_dir_all(folder).unwrap();
    let weights = safetensors::serialize(views.collect::<Vec<_>>(), None).unwrap();
    std::fs::write(folder.join("adapter_model.safetensors"), weights).unwrap();
    std::fs::write(folder.join("adapter_config.json"), config.to_string()).unwrap();
}

/// A folder of PEFT's gives the same adapter as the GGUF file that was made of it. Which rows of q and k go where is not taken from
/// our code but from a model that exists in both forms.
#[test]
fn peft_is_gguf() {
    for name in ["llama", "qwen3", "qwen3moe", "gemma3"] {
        let Some(folder) = oracles("logits").map(|o| o.join(name)) else { return };
        let file = GgufFile::open(folder.join(format!("{name}-f32.gguf"))).unwrap();
        let hf_bytes = std::fs::read(folder.join("model.safetensors")).unwrap();
        let hf = SafeTensors::deserialize(&hf_bytes).unwrap();
        let architecture = file.metadata().required_str("general.architecture").unwrap().to_owned();
        let trained = updates(&file, 4, 31);
        let mut tensors = Vec::new();
        let mut converted = Vec::new();
        for u in &trained {
            let module = hf_name(&architecture, &u.tensor).unwrap();
            let weight = safetensors_f32(&hf, &format!("{module}.weight"));
            let rows = rows_of(&weight, &f32_tensor(&file, &u.tensor), u.n_in);
            let b = rows.iter().flat_map(|&r| u.b[r * u.rank..][..u.rank].to_vec()).collect();
            converted.push(Update { b, ..u.clone() });
            let full = format!("base_model.model.{module}");
            tensors.push((format!("{full}.lora_A.weight"), vec![u.rank, u.n_in], u.a.clone()));
            tensors.push((format!("{full}.lora_B.weight"), vec![u.n_out, u.rank], u.b.clone()));
        }
        let embd = file.tensor("token_embd.weight").unwrap().dims();
        let e = Update::new("token_embd.weight", 4, embd[1] as usize, embd[0] as usize, 77);
        let full = "base_model.model.model.embed_tokens";
        tensors.push((format!("{full}.lora_embedding_A"), vec![e.rank, e.n_in], e.a.clone()));
        tensors.push((format!("{full}.lora_embedding_B"), vec![e.n_out, e.rank], e.b.clone()));
        converted.push(e);

        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("adapter.gguf");
        write_gguf(&path, &gguf_adapter(&architecture, 16.0, &converted));
        let peft = temp.path().join("peft");
        let config = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 16, "bias": "none"});
        write_peft(&peft, &config, &tensors);

        let model = hanzo_models::load(&file).unwrap();
        let a = LoraFile::open(&path).unwrap().bind(&model).unwrap();
        let b = LoraFile::open(&peft).unwrap().bind(&model).unwrap();
        assert!(a == b, "{name}");
        let by_file = LoraFile::open(peft.join("adapter_model.safetensors")).unwrap();
        assert!(by_file.format() == LoraFormat::Peft && by_file.bind(&model).unwrap() == b);
    }
}

fn one_module(module: &str, rank: usize) -> Vec<(String, Vec<usize>, Vec<f32>)> {
    let name = |half: &str| format!("base_model.model.{module}.lora_{half}.weight");
    vec![
        (name("A"), vec![rank, 64], vec![0.5; rank * 64]),
        (name("B"), vec![128, rank], vec![0.5; 128 * rank]),
    ]
}

fn with(config: &Value, key: &str, value: Value) -> Value {
    let mut config = config.clone();
    config.as_object_mut().unwrap().insert(key.to_owned(), value);
    config
}

#[test]
fn scales_and_ranks_of_modules() {
    let temp = tempfile::tempdir().unwrap();
    let base = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 16});
    let scale = |config: &Value, rank: usize| {
        write_peft(temp.path(), config, &one_module("model.layers.1.self_attn.q_proj", rank));
        let file = LoraFile::open(temp.path()).unwrap();
        file.updates().next().unwrap().scale
    };
    assert_eq!(scale(&base, 4), 4.0);
    assert_eq!(scale(&with(&base, "use_rslora", json!(true)), 4), 8.0);
    assert_eq!(scale(&with(&base, "lora_alpha", json!(0)), 4), 0.0);
    assert_eq!(scale(&with(&base, "lora_alpha", json!(-2.5)), 4), -0.625);
    assert_eq!(scale(&with(&base, "rank_pattern", json!({"q_proj": 8})), 8), 2.0);
    assert_eq!(scale(&with(&base, "rank_pattern", json!({"k_proj": 8})), 4), 4.0);
    // `proj` is no end of a path's part.
    assert_eq!(scale(&with(&base, "rank_pattern", json!({"proj": 8})), 4), 4.0);
    assert_eq!(scale(&with(&base, "alpha_pattern", json!({r"layers\.[01]\..*": 32, "q_proj": 1})), 4), 8.0);
    assert_eq!(scale(&with(&base, "alpha_pattern", json!({r"layers\.[02]\..*": 32, "q_proj": 1})), 4), 0.25);
    let both = with(&base, "alpha_pattern", json!({"q_proj": 6}));
    let both = with(&with(&both, "rank_pattern", json!({"q_proj": 9})), "use_rslora", json!(true));
    assert_eq!(scale(&both, 9), 2.0);
    assert_eq!(scale(&with(&base, "fan_in_fan_out", json!(true)), 4), 4.0);

    write_peft(
        temp.path(),
        &with(&base, "use_novelty", json!(3)),
        &one_module("model.layers.1.self_attn.q_proj", 4),
    );
    assert_eq!(LoraFile::open(temp.path()).unwrap().unknown_keys(), ["use_novelty"]);
}

#[test]
fn bad_peft_folders() {
    let Some(folder) = oracles("logits").map(|o| o.join("llama")) else { return };
    let model = hanzo_models::load(&GgufFile::open(folder.join("llama-f32.gguf")).unwrap()).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let fault = |config: &Value, tensors: &[(String, Vec<usize>, Vec<f32>)]| {
        write_peft(temp.path(), config, tensors);
        match LoraFile::open(temp.path()).and_then(|f| f.bind(&model)) {
            Ok(_) => panic!("accepted: {config}"),
            Err(e) => e.to_string(),
        }
    };
    let base = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 16});
    let q = "model.layers.1.self_attn.q_proj";
    let good = one_module(q, 4);
    for (key, value, why) in [
        ("peft_type", json!("IA3"), "`peft_type` is \"IA3\"; expected \"LORA\""),
        ("use_dora", json!(true), "`use_dora` is true: DoRA"),
        ("bias", json!("lora_only"), "`bias` is \"lora_only\": a trained bias"),
        ("lora_bias", json!(true), "`lora_bias`"),
        ("modules_to_save", json!(["lm_head"]), "`modules_to_save` is [\"lm_head\"]"),
        ("layer_replication", json!([[0, 4], [2, 5]]), "`layer_replication`"),
        ("target_parameters", json!(["mlp.experts.gate_up_proj"]), "`target_parameters`"),
        ("trainable_token_indices", json!([1]), "`trainable_token_indices`"),
        ("init_lora_weights", json!("pissa_niter_16"), "`init_lora_weights` is \"pissa_niter_16\""),
        ("r", json!(0), "`r` is 0; expected a rank"),
        ("r", json!(-4), "`r` is -4"),
        ("r", json!(u64::MAX), "`r` is 18446744073709551615"),
        ("r", json!(8), "has 4 rows; `adapter_config.json` gives it rank 8"),
        ("lora_alpha", json!("16"), "`lora_alpha` is \"16\"; expected a finite number"),
        ("lora_alpha", Value::Null, "`lora_alpha` is absent"),
        ("lora_alpha", json!(1e300), "`lora_alpha`"),
        ("use_rslora", json!(1), "`use_rslora` is 1"),
        ("rank_pattern", json!([1]), "`rank_pattern` is [1]"),
        ("rank_pattern", json!({"q_proj": 0}), "`rank_pattern.q_proj` is 0"),
        ("alpha_pattern", json!({"(?=x)": 1}), "`alpha_pattern` is \"(?=x)\"; expected module names"),
        ("alpha_pattern", json!({"(": 1}), "`alpha_pattern`"),
        ("alpha_pattern", json!({"((a{1000}){1000}){1000}": 1}), "`alpha_pattern`"),
    ] {
        let error = fault(&with(&base, key, value.clone()), &good);
        assert!(error.contains(why), "{key} {value}: {error}");
    }

    let shaped = |module: &str, a: [usize; 2], b: [usize; 2]| {
        let name = |half: &str| format!("base_model.model.{module}.lora_{half}.weight");
        vec![(name("A"), a.to_vec(), vec![0.5; a[0] * a[1]]), (name("B"), b.to_vec(), vec![0.5; b[0] * b[1]])]
    };
    let mut nan = good.clone();
    nan[1].2[77] = f32::NAN;
    let mut three = good.clone();
    three[0].1 = vec![1, 4, 64];
    let extra =
        |name: &str, n: usize| [good.clone(), vec![(name.to_owned(), vec![n], vec![0.0; n])]].concat();
    let twice = [
        good.clone(),
        vec![(format!("base_model.model.{q}.lora_A.default.weight"), vec![4, 64], vec![0.0; 256])],
    ]
    .concat();
    let m = |part: &str| format!("base_model.model.{q}.{part}");
    for (tensors, why) in [
        (vec![], "updates nothing"),
        (good[..1].to_vec(), "its other half is missing"),
        (nan, "lora_B.weight`: element 77 is not a finite number"),
        (three, "has shape [1, 4, 64]; a matrix is expected"),
        (shaped(q, [4, 32], [128, 4]), "it maps 32 inputs to 128 outputs, the weight 64 to 128"),
        (shaped(q, [4, 64], [96, 4]), "it maps 64 inputs to 96 outputs"),
        (shaped(q, [4, 64], [97, 4]), "97 rows of B are not whole heads of 32"),
        (shaped(q, [4, 64], [128, 5]), "has 5 columns; `adapter_config.json` gives it rank 4"),
        (
            shaped("model.layers.9.self_attn.q_proj", [4, 64], [128, 4]),
            "the model has no `blk.9.attn_q.weight`",
        ),
        (shaped("model.layers.0.self_attn.qkv", [4, 64], [128, 4]), "the architecture has no such module"),
        (shaped("model.layers.0.mlp.experts.0.up_proj", [4, 64], [128, 4]), "updates of experts"),
        (shaped("vision_tower.layers.0.self_attn.q_proj", [4, 64], [128, 4]), "module `vision_tower"),
        (extra(&m("lora_magnitude_vector"), 128), "belongs to DoRA"),
        (extra(&m("lora_B.bias"), 128), "is a bias"),
        (extra("base_model.model.model.norm.weight", 64), "is a whole norm"),
        (extra("base_model.model.lm_head.modules_to_save.weight", 64), "is a whole weight"),
        (twice, "is there twice"),
    ] {
        let error = fault(&base, &tensors);
        assert!(error.contains(why), "{why}: {error}");
    }

    write_peft(temp.path(), &base, &good);
    let weights = std::fs::read(temp.path().join("adapter_model.safetensors")).unwrap();
    for (name, content, why) in [
        ("adapter_config.json", &b"{"[..], "adapter_config.json: EOF"),
        ("adapter_config.json", b"[]", "it is no JSON object"),
        ("adapter_model.safetensors", &weights[..weights.len() - 1], "no safetensors file"),
        ("adapter_model.safetensors", &[&weights[..], &[0]].concat(), "no safetensors file"),
        ("adapter_model.safetensors", &weights[..4], "no safetensors file"),
        ("adapter_model.safetensors", &weights[..200], "no safetensors file"),
        ("adapter_model.safetensors", &[0xff; 64], "no safetensors file"),
        (
            "adapter_model.safetensors",
            &[&[2, 0, 0, 0, 0, 0, 0, 0], &b"[]"[..]].concat(),
            "no safetensors file",
        ),
    ] {
        write_peft(temp.path(), &base, &good);
        std::fs::write(temp.path().join(name), content).unwrap();
        let error = LoraFile::open(temp.path()).err().unwrap().to_string();
        assert!(error.contains(why), "{why}: {error}");
    }
    std::fs::remove_file(temp.path().join("adapter_config.json")).unwrap();
    assert!(LoraFile::open(temp.path()).err().unwrap().to_string().contains("cannot read"));
}

/// What an adapter takes is known before its matrices are read, so a file of any size costs no memory until somebody agrees.
#[test]
fn a_large_peft_file_is_not_read_to_tell_its_size() {
    let temp = tempfile::tempdir().unwrap();
    let config = json!({"peft_type": "LORA", "r": 4, "lora_alpha": 16});
    write_peft(temp.path(), &config, &one_module("model.layers.0.self_attn.q_proj", 4));
    let path = temp.path().join("adapter_model.safetensors");
    // 6 GiB that the system does not keep anywhere.
    let n_in = 400_000_000usize;
    let half = |shape: [usize; 2], from: usize| {
        json!({
            "dtype": "F32", "shape": shape, "data_offsets": [from, from + 4 * shape[0] * shape[1]],
        })
    };
    let name = |half| format!("base_model.model.model.layers.0.self_attn.q_proj.lora_{half}.weight");
    let header = json!({ name("A"): half([4, n_in], 0), name("B"): half([128, 4], 16 * n_in) }).to_string();
    let mut content = (header.len() as u64).to_le_bytes().to_vec();
    content.extend_from_slice(header.as_bytes());
    std::fs::write(&path, &content).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_len((content.len() + 16 * n_in + 4 * 128 * 4) as u64).unwrap();
    let before = resident_peak();
    let adapter = LoraFile::open(temp.path()).unwrap();
    assert!(adapter.memory() > 16 * n_in as u64);
    let (Some(before), Some(after)) = (before, resident_peak()) else { return };
    assert!(after - before < 1 << 30, "{} bytes more", after - before);
    // A file that changes after that is noticed.
    file.set_len(100).unwrap();
    let Some(folder) = oracles("logits").map(|o| o.join("llama")) else { return };
    let model = hanzo_models::load(&GgufFile::open(folder.join("llama-f32.gguf")).unwrap()).unwrap();
    let error = adapter.bind(&model).err().unwrap().to_string();
    assert!(!error.is_empty());
}

/// The most memory that this process had at once, where the system tells.
fn resident_peak() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

#[test]
fn bad_gguf_files() {
    let Some(folder) = oracles("logits").map(|o| o.join("qwen3moe")) else { return };
    let model_path = folder.join("qwen3moe-f32.gguf");
    let file = GgufFile::open(&model_path).unwrap();
    let model = hanzo_models::load(&file).unwrap();
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("adapter.gguf");
    let dims = |name: &str| file.tensor(name).unwrap().dims().iter().map(|&d| d as usize).collect::<Vec<_>>();
    let q = "blk.0.attn_q.weight";
    let good = Update::new(q, 4, dims(q)[0], dims(q)[1], 1);
    let fault = |adapter: &(GgufWriter, Vec<Vec<u8>>)| {
        write_gguf(&path, adapter);
        match LoraFile::open(&path).and_then(|f| f.bind(&model)) {
            Ok(_) => panic!("accepted"),
            Err(e) => e.to_string(),
        }
    };
    let make = |update: &Update| gguf_adapter("qwen3moe", 8.0, std::slice::from_ref(update));
    let changed = |change: &dyn Fn(&mut GgufWriter)| {
        let mut adapter = make(&good);
        change(&mut adapter.0);
        fault(&adapter)
    };
    fn set(w: &mut GgufWriter, key: &str, value: impl Into<hanzo_gguf::MetadataValue>) {
        w.set(key, value).unwrap();
    }
    let with_tensor = |name: &str, dims: &[u64]| {
        let mut adapter = make(&good);
        adapter.0.tensor(name, TensorType::F32, dims).unwrap();
        adapter.1.push(vec![0; dims.iter().product::<u64>() as usize * 4]);
        fault(&adapter)
    };
    let mut nan = good.clone();
    nan.a[9] = f32::INFINITY;
    let embd = dims("token_embd.weight");
    let experts = "blk.0.ffn_up_exps.weight";
    for (error, why) in [
        (changed(&|w| set(w, "general.type", "model")), "`general.type` is \"model\", not adapter"),
        (changed(&|w| assert!(w.remove("general.type"))), "`general.type` is absent"),
        (changed(&|w| set(w, "adapter.type", "control_vector")), "`adapter.type`"),
        (changed(&|w| assert!(w.remove("adapter.lora.alpha"))), "adapter.lora.alpha"),
        (changed(&|w| set(w, "adapter.lora.alpha", f32::NAN)), "`adapter.lora.alpha` is NaN"),
        (changed(&|w| set(w, "adapter.alora.invocation_tokens", &[1u32, 2][..])), "aLoRA"),
        (
            changed(&|w| set(w, "general.architecture", "llama")),
            "the adapter is for architecture `llama`, the model is `qwen3moe`",
        ),
        (fault(&gguf_adapter("qwen3moe", 8.0, &[])), "updates nothing"),
        (fault(&make(&nan)), "lora_a`: element 9 is not a finite number"),
        (
            fault(&make(&Update::new("blk.99.attn_q.weight", 4, 64, 64, 1))),
            "the model has no `blk.99.attn_q.weight`",
        ),
        (fault(&make(&Update::new(q, 4, 32, dims(q)[1], 1))), "it maps 32 inputs"),
        (fault(&make(&Update::new(q, 4, dims(q)[0], 7, 1))), "to 7 outputs"),
        (fault(&make(&Update::new(experts, 4, 64, 64, 1))), "a stack of"),
        (fault(&make(&Update::new("blk.0.attn_norm.weight", 4, 64, 1, 1))), "it is not a matrix"),
        (
            fault(&make(&Update::new("token_embd.weight", 4, embd[1] + 1, embd[0], 1))),
            "`token_embd.weight`: it maps",
        ),
        (with_tensor("blk.0.attn_k.weight.lora_a", &[64, 4]), "`blk.0.attn_k.weight.lora_b`: is missing"),
        (with_tensor("blk.0.attn_k.weight.lora_b", &[4, 64]), "`blk.0.attn_k.weight.lora_a`: is missing"),
        (with_tensor("blk.0.attn_norm.weight", &[64]), "whole norms"),
        (with_tensor("blk.0.attn_k.weight", &[64, 64]), "neither a lora_a nor a lora_b"),
        (with_tensor("blk.0.ffn_up_exps.weight.lora_a", &[64, 4, 8]), "updates of experts are not supported"),
    ] {
        assert!(error.contains(why), "{why}: {error}");
    }
    let mut ragged = GgufWriter::new();
    ragged
        .copy_metadata(
            GgufFile::from_bytes(make(&good).0.to_bytes(&make(&good).1).unwrap()).unwrap().metadata(),
        )
        .unwrap();
    ragged.tensor("blk.0.attn_q.weight.lora_a", TensorType::F32, &[64, 4]).unwrap();
    ragged.tensor("blk.0.attn_q.weight.lora_b", TensorType::F32, &[5, 64]).unwrap();
    let error = fault(&(ragged, vec![vec![0; 64 * 4 * 4], vec![0; 5 * 64 * 4]]));
    assert!(error.contains("has rank 5, its `lora_a` 4"), "{error}");

    let error = LoraFile::open(&model_path).err().unwrap().to_string();
    assert!(error.contains("is no LoRA adapter: `general.type`"), "{error}");
    assert!(LoraFile::open(temp.path().join("none.gguf")).is_err());
}
