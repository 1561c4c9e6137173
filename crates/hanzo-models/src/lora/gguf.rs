//! Adapters in GGUF: `NAME.lora_a` and `NAME.lora_b` for each tensor `NAME` of the model, and one alpha for all.

use std::collections::BTreeMap;
use std::path::Path;

use hanzo_fusion::adapter::LowRankShape;
use hanzo_gguf::{GgufFile, TensorInfo};
use hanzo_quant::QuantType;

use super::names::EMBEDDING;
use super::{Data, LoraError, LoraFile, LoraFormat, Pair, Result, Stored, Target};

pub(super) fn open(path: &Path) -> Result<LoraFile> {
    let file = GgufFile::open(path)?;
    let meta = file.metadata();
    for (key, expected) in [("general.type", "adapter"), ("adapter.type", "lora")] {
        let found = meta.get_str(key)?;
        if found != Some(expected) {
            let found = found.map_or("absent".to_owned(), |f| format!("{f:?}"));
            return Err(LoraError::NotAnAdapter { path: path.to_owned(), key, found, expected });
        }
    }
    const ALORA: &str = "adapter.alora.invocation_tokens";
    if let Some(value) = meta.get(ALORA) {
        let what = "an adapter that begins at an invocation (aLoRA)";
        return Err(LoraError::Unsupported { key: ALORA.to_owned(), found: value.to_string(), what });
    }
    const ALPHA: &str = "adapter.lora.alpha";
    let alpha = meta.required_f32(ALPHA)?;
    if !alpha.is_finite() {
        let expected = "a finite number";
        return Err(LoraError::Key { key: ALPHA.to_owned(), found: alpha.to_string(), expected });
    }
    let architecture = meta.required_str("general.architecture")?.to_owned();
    let base_model = meta.get_str("general.base_model.0.name")?.map(str::to_owned);
    let pairs = pairs(&file, alpha)?;
    Ok(LoraFile {
        path: path.to_owned(),
        format: LoraFormat::Gguf,
        architecture: Some(architecture),
        base_model,
        unknown_keys: Vec::new(),
        pairs,
        data: Data::Gguf(Box::new(file)),
    })
}

fn pairs(file: &GgufFile, alpha: f32) -> Result<Vec<Pair>> {
    let mut halves: BTreeMap<&str, [Option<&TensorInfo>; 2]> = BTreeMap::new();
    for info in file.tensors() {
        let name = info.name();
        let half = [(".lora_a", 0), (".lora_b", 1)]
            .into_iter()
            .find_map(|(ending, half)| name.strip_suffix(ending).map(|target| (target, half)));
        let Some((target, half)) = half else {
            let norm = name.contains("_norm");
            let what = if norm {
                "whole norms in adapters are not supported"
            } else {
                "is neither a lora_a nor a lora_b"
            };
            return Err(LoraError::Tensor { name: name.to_owned(), reason: what.to_owned() });
        };
        if let Some(slot) = halves.entry(target).or_default().get_mut(half) {
            *slot = Some(info);
        }
    }
    if halves.is_empty() {
        return Err(LoraError::Empty);
    }
    let pair = |(target, halves): (&str, [Option<&TensorInfo>; 2])| {
        let missing = |ending| LoraError::Tensor {
            name: format!("{target}.{ending}"),
            reason: "is missing; its other half is there".to_owned(),
        };
        let [a, b] = halves;
        let (a, b) =
            (stored(a.ok_or_else(|| missing("lora_a"))?)?, stored(b.ok_or_else(|| missing("lora_b"))?)?);
        // An embedding's A lies by token, so that a token's row can be looked up.
        let a_by_input = target == EMBEDDING;
        let (rank, n_in) = if a_by_input { (a.cols, a.rows) } else { (a.rows, a.cols) };
        if b.cols != rank {
            let reason = format!("has rank {}, its `lora_a` {rank}", b.cols);
            return Err(LoraError::Tensor { name: b.name, reason });
        }
        let shape = LowRankShape { rank, n_in, n_out: b.rows };
        // As llama.cpp has it: no alpha, no division by the rank.
        let scale = if alpha == 0.0 { 1.0 } else { alpha / rank as f32 };
        Ok(Pair { target: Target::Tensor(target.to_owned()), shape, scale, a, a_by_input, b })
    };
    halves.into_iter().map(pair).collect()
}

fn stored(info: &TensorInfo) -> Result<Stored> {
    let refuse = |reason: String| LoraError::Tensor { name: info.name().to_owned(), reason };
    let dims = info.dims();
    let [cols, rest @ ..] = dims else { return Err(refuse("has no dimensions".to_owned())) };
    if rest.iter().skip(1).any(|&n| n != 1) {
        return Err(refuse(format!("has shape {dims:?}: updates of experts are not supported")));
    }
    let size = |n: u64| usize::try_from(n).map_err(|_| refuse(format!("has shape {dims:?}")));
    let ty = QuantType::from_id(info.ty().id())
        .ok_or_else(|| refuse(format!("has type {}, which is not a weight format", info.ty())))?;
    let rows = rest.first().copied().unwrap_or(1);
    Ok(Stored { name: info.name().to_owned(), rows: size(rows)?, cols: size(*cols)?, ty })
}
