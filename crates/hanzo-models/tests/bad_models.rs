//! Files whose container is sound and whose model is not: each fault is a typed error that names the key or tensor.
#![allow(clippy::unwrap_used, clippy::panic)]

use hanzo_gguf::{GgufFile, GgufWriter, TensorType};
use hanzo_models::{ModelError, load};

const N_EMBD: u32 = 64;

/// A tiny qwen3 model; `change` may alter metadata and the tensor list before it is written.
fn model(arch: &str, change: impl FnOnce(&mut GgufWriter, &mut Vec<(String, Vec<u64>)>)) -> GgufFile {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", arch).unwrap();
    let key = |name: &str| format!("{arch}.{name}");
    for (name, value) in [
        ("block_count", 2u32),
        ("context_length", 128),
        ("embedding_length", N_EMBD),
        ("feed_forward_length", 96),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("attention.key_length", 32),
        ("attention.value_length", 32),
    ] {
        writer.set(&key(name), value).unwrap();
    }
    writer.set(&key("attention.layer_norm_rms_epsilon"), 1e-6f32).unwrap();
    let n_embd = u64::from(N_EMBD);
    let mut tensors = vec![
        ("token_embd.weight".to_owned(), vec![n_embd, 128]),
        ("output_norm.weight".to_owned(), vec![n_embd]),
    ];
    let mut layer =
        |i: usize, name: &str, dims: &[u64]| tensors.push((format!("blk.{i}.{name}.weight"), dims.to_vec()));
    for i in 0..2 {
        layer(i, "attn_norm", &[n_embd]);
        layer(i, "attn_q", &[n_embd, 128]);
        layer(i, "attn_k", &[n_embd, 64]);
        layer(i, "attn_v", &[n_embd, 64]);
        layer(i, "attn_output", &[128, n_embd]);
        layer(i, "attn_q_norm", &[32]);
        layer(i, "attn_k_norm", &[32]);
        layer(i, "ffn_norm", &[n_embd]);
        layer(i, "ffn_gate", &[n_embd, 96]);
        layer(i, "ffn_up", &[n_embd, 96]);
        layer(i, "ffn_down", &[96, n_embd]);
    }
    change(&mut writer, &mut tensors);
    let mut data = Vec::new();
    for (name, dims) in &tensors {
        writer.tensor(name, TensorType::F32, dims).unwrap();
        data.push(vec![0u8; dims.iter().product::<u64>() as usize * 4]);
    }
    GgufFile::from_bytes(writer.to_bytes(&data).unwrap()).unwrap()
}

fn fault(change: impl FnOnce(&mut GgufWriter, &mut Vec<(String, Vec<u64>)>)) -> String {
    match load(&model("qwen3", change)) {
        Ok(_) => panic!("the model was accepted"),
        Err(e) => e.to_string(),
    }
}

#[test]
fn a_sound_model_loads() {
    let model = load(&model("qwen3", |_, _| {})).unwrap();
    assert_eq!(model.graph.vocab_size, 128);
    assert_eq!(model.graph.kv_layers.len(), 2);
    assert_eq!(model.context_length, 128);
}

#[test]
fn tensors_missing_extra_transposed() {
    let text = fault(|_, t| t.retain(|(name, _)| name != "blk.1.ffn_up.weight"));
    assert_eq!(text, "tensor `blk.1.ffn_up.weight` is missing; expected shape [64, 96]");
    let text = fault(|_, t| t.push(("blk.0.attn_q.bias".to_owned(), vec![128])));
    assert!(text.contains("1 tensors are not used") && text.contains("`blk.0.attn_q.bias`"), "{text}");
    let text = fault(|_, t| {
        t.iter_mut().filter(|(n, _)| n == "blk.0.ffn_down.weight").for_each(|(_, d)| d.reverse())
    });
    assert_eq!(text, "tensor `blk.0.ffn_down.weight` has shape [64, 96]; expected [96, 64]");
    let text = fault(|_, t| t.retain(|(name, _)| name != "token_embd.weight"));
    assert!(text.contains("`token_embd.weight` is missing"), "{text}");
}

#[test]
fn vocabulary_larger_than_the_embedding() {
    let tokens: Vec<String> = (0..129).map(|i| i.to_string()).collect();
    let text = fault(|w, _| {
        w.set("tokenizer.ggml.tokens", tokens.as_slice()).unwrap();
    });
    assert!(text.contains("array of 129") && text.contains("128 rows"), "{text}");
}

#[test]
fn hyper_parameters_out_of_bounds() {
    let cases: &[(&str, u32)] = &[
        ("block_count", 0),
        ("block_count", 513),
        ("block_count", 1 << 31),
        ("embedding_length", 0),
        ("attention.head_count", 0),
        ("attention.head_count", 3),
        ("attention.head_count_kv", 0),
        ("attention.head_count_kv", 8),
        ("attention.head_count_kv", 3),
        ("attention.key_length", 0),
        ("attention.key_length", 7),
        ("attention.value_length", u32::MAX),
        ("rope.dimension_count", 33),
        ("rope.dimension_count", 64),
        ("context_length", 0),
        ("feed_forward_length", 0),
    ];
    for (name, value) in cases {
        let key = format!("qwen3.{name}");
        let text = fault(|w, _| {
            w.set(&key, *value).unwrap();
        });
        assert!(text.contains(name) || text.contains("head_count_kv"), "{name} = {value}: {text}");
    }
    let text = fault(|w, _| {
        w.set("qwen3.block_count", "two").unwrap();
    });
    assert!(text.contains("qwen3.block_count"), "{text}");
    for eps in [f32::NAN, f32::INFINITY, -1.0] {
        let text = fault(|w, _| {
            w.set("qwen3.attention.layer_norm_rms_epsilon", eps).unwrap();
        });
        assert!(text.contains("layer_norm_rms_epsilon"), "{text}");
    }
    let text = fault(|w, _| {
        w.set("qwen3.attention.head_count", [4u32].as_slice()).unwrap();
    });
    assert!(text.contains("an element for each of 2 layers"), "{text}");
}

#[test]
fn rope_scaling_unknown_or_out_of_bounds() {
    let text = fault(|w, _| {
        w.set("qwen3.rope.scaling.type", "spiral").unwrap();
    });
    assert!(text.contains("spiral"), "{text}");
    let text = fault(|w, _| {
        w.set("qwen3.rope.freq_base", f32::NAN).unwrap();
    });
    assert!(text.contains("freq_base"), "{text}");
}

#[test]
fn more_experts_used_than_there_are() {
    let file = model("qwen3moe", |w, _| {
        w.set("qwen3moe.expert_count", 4u32).unwrap();
        w.set("qwen3moe.expert_used_count", 5u32).unwrap();
        w.set("qwen3moe.expert_feed_forward_length", 32u32).unwrap();
    });
    let text = load(&file).unwrap_err().to_string();
    assert_eq!(text, "`qwen3moe.expert_used_count` is 5; expected at most the 4 experts");
}

#[test]
fn unknown_architecture_is_named_with_the_known_ones() {
    let error = load(&model("wombat", |_, _| {})).unwrap_err();
    assert!(matches!(error, ModelError::UnknownArchitecture { .. }));
    let text = error.to_string();
    assert!(text.contains("wombat") && text.contains("qwen3moe"), "{text}");
}

/// A model with recurrent layers, whose metadata is at fault.
fn hybrid_fault(changed: &str, value: u32) -> String {
    let file = model("qwen35", |writer, _| {
        for (name, sound) in [
            ("full_attention_interval", 2),
            ("ssm.conv_kernel", 4),
            ("ssm.state_size", 16),
            ("ssm.group_count", 2),
            ("ssm.time_step_rank", 4),
            ("ssm.inner_size", 64),
        ] {
            writer.set(&format!("qwen35.{name}"), if name == changed { value } else { sound }).unwrap();
        }
    });
    load(&file).err().unwrap().to_string()
}

#[test]
fn recurrent_layers_are_checked() {
    for (key, value, wanted) in [
        ("full_attention_interval", 3, "one with attention at least"),
        ("full_attention_interval", 0, "expected 1 to 512"),
        ("ssm.conv_kernel", 17, "expected 1 to 16"),
        ("ssm.conv_kernel", 0, "expected 1 to 16"),
        ("ssm.state_size", 0, "expected 1 to 1024"),
        ("ssm.group_count", 3, "`qwen35.ssm.time_step_rank` is 4; expected a multiple of the 3 key heads"),
        ("ssm.time_step_rank", u32::MAX, "expected 1 to 4096"),
        ("ssm.inner_size", 62, "`qwen35.ssm.inner_size` is 62; expected 4 heads of at most 1024"),
        ("ssm.inner_size", 1 << 20, "expected 4 heads of at most 1024"),
        ("none", 0, "`blk.0.post_attention_norm.weight` is missing"),
    ] {
        let fault = hybrid_fault(key, value);
        assert!(fault.contains(wanted), "{key} = {value}: {fault}");
    }
}
