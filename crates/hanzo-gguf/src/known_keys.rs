//! The types that the specification gives to well-known metadata keys. Only the validator asks: readers of a key
//! get their error from the accessor.

#![forbid(unsafe_code)]

use std::fmt;

use crate::value::{Value, ValueType};

/// What a key should hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    Text,
    Count,
    Number,
    Flag,
    Texts,
    Integers,
    Numbers,
    /// One for all layers, or one for each.
    CountPerLayer,
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "string",
            Self::Count => "unsigned integer",
            Self::Number => "f32",
            Self::Flag => "bool",
            Self::Texts => "array of string",
            Self::Integers => "array of i32",
            Self::Numbers => "array of f32",
            Self::CountPerLayer => "unsigned integer or array of them",
        })
    }
}

/// Keys by their full name.
const FULL: &[(&str, Expected)] = &[
    ("general.alignment", Expected::Count),
    ("general.architecture", Expected::Text),
    ("general.author", Expected::Text),
    ("general.basename", Expected::Text),
    ("general.description", Expected::Text),
    ("general.file_type", Expected::Count),
    ("general.finetune", Expected::Text),
    ("general.languages", Expected::Texts),
    ("general.license", Expected::Text),
    ("general.name", Expected::Text),
    ("general.organization", Expected::Text),
    ("general.quantization_version", Expected::Count),
    ("general.quantized_by", Expected::Text),
    ("general.size_label", Expected::Text),
    ("general.tags", Expected::Texts),
    ("general.type", Expected::Text),
    ("general.url", Expected::Text),
    ("general.version", Expected::Text),
    ("split.count", Expected::Count),
    ("split.no", Expected::Count),
    ("split.tensors.count", Expected::Count),
    ("tokenizer.chat_template", Expected::Text),
    ("tokenizer.ggml.add_bos_token", Expected::Flag),
    ("tokenizer.ggml.add_eos_token", Expected::Flag),
    ("tokenizer.ggml.add_space_prefix", Expected::Flag),
    ("tokenizer.ggml.bos_token_id", Expected::Count),
    ("tokenizer.ggml.eos_token_id", Expected::Count),
    ("tokenizer.ggml.eot_token_id", Expected::Count),
    ("tokenizer.ggml.merges", Expected::Texts),
    ("tokenizer.ggml.model", Expected::Text),
    ("tokenizer.ggml.padding_token_id", Expected::Count),
    ("tokenizer.ggml.pre", Expected::Text),
    ("tokenizer.ggml.scores", Expected::Numbers),
    ("tokenizer.ggml.token_type", Expected::Integers),
    ("tokenizer.ggml.tokens", Expected::Texts),
    ("tokenizer.ggml.unknown_token_id", Expected::Count),
];

/// Keys after the name of the architecture and a dot.
const OF_ARCHITECTURE: &[(&str, Expected)] = &[
    ("attention.head_count", Expected::CountPerLayer),
    ("attention.head_count_kv", Expected::CountPerLayer),
    ("attention.key_length", Expected::Count),
    ("attention.layer_norm_epsilon", Expected::Number),
    ("attention.layer_norm_rms_epsilon", Expected::Number),
    ("attention.value_length", Expected::Count),
    ("block_count", Expected::Count),
    ("context_length", Expected::Count),
    ("embedding_length", Expected::Count),
    ("expert_count", Expected::CountPerLayer),
    ("expert_used_count", Expected::CountPerLayer),
    ("feed_forward_length", Expected::CountPerLayer),
    ("rope.dimension_count", Expected::Count),
    ("rope.freq_base", Expected::Number),
    ("rope.scaling.factor", Expected::Number),
    ("rope.scaling.original_context_length", Expected::Count),
    ("rope.scaling.type", Expected::Text),
    ("vocab_size", Expected::Count),
];

/// What `key` should hold in a file of this architecture; `None` for keys that are not in the tables.
pub(crate) fn expected(key: &str, architecture: Option<&str>) -> Option<Expected> {
    let find = |table: &[(&str, Expected)], key: &str| {
        table
            .binary_search_by(|(name, _)| (*name).cmp(key))
            .ok()
            .and_then(|i| table.get(i))
            .map(|entry| entry.1)
    };
    let of_architecture = || find(OF_ARCHITECTURE, key.strip_prefix(architecture?)?.strip_prefix('.')?);
    find(FULL, key).or_else(of_architecture)
}

/// Whether `value` is what is expected.
pub(crate) fn holds(expected: Expected, value: &Value<'_>) -> bool {
    let count = || value.as_integer().is_some_and(|n| n >= 0);
    let element = match value {
        Value::Array(array) => Some(array.element()),
        _ => None,
    };
    match expected {
        Expected::Text => value.ty() == ValueType::String,
        Expected::Count => count(),
        Expected::Number => value.as_float().is_some(),
        Expected::Flag => value.ty() == ValueType::Bool,
        Expected::Texts => element == Some(ValueType::String),
        Expected::Integers => element.is_some_and(is_integer),
        Expected::Numbers => matches!(element, Some(ValueType::F32 | ValueType::F64)),
        Expected::CountPerLayer => count() || element.is_some_and(is_integer),
    }
}

fn is_integer(ty: ValueType) -> bool {
    use ValueType::{I8, I16, I32, I64, U8, U16, U32, U64};
    matches!(ty, U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_in_order_and_found() {
        for table in [FULL, OF_ARCHITECTURE] {
            assert!(table.is_sorted_by(|a, b| a.0 < b.0));
        }
        assert_eq!(expected("general.name", None), Some(Expected::Text));
        assert_eq!(expected("qwen3.block_count", Some("qwen3")), Some(Expected::Count));
        assert_eq!(expected("qwen3.block_count", Some("llama")), None);
        assert_eq!(expected("block_count", Some("")), None);
    }
}
