//! What a model file is, in a few words: its type, its size in weights.

use std::collections::BTreeMap;

use hanzo_gguf::{GgufFile, TensorType};

/// Names of `general.file_type`, by number, as GGUF's other tools use them.
const FILE_TYPES: &[(u32, &str)] = &[
    (0, "F32"),
    (1, "F16"),
    (2, "Q4_0"),
    (3, "Q4_1"),
    (7, "Q8_0"),
    (8, "Q5_0"),
    (9, "Q5_1"),
    (10, "Q2_K"),
    (11, "Q3_K_S"),
    (12, "Q3_K_M"),
    (13, "Q3_K_L"),
    (14, "Q4_K_S"),
    (15, "Q4_K_M"),
    (16, "Q5_K_S"),
    (17, "Q5_K_M"),
    (18, "Q6_K"),
    (19, "IQ2_XXS"),
    (20, "IQ2_XS"),
    (21, "Q2_K_S"),
    (22, "IQ3_XS"),
    (23, "IQ3_XXS"),
    (24, "IQ1_S"),
    (25, "IQ4_NL"),
    (26, "IQ3_S"),
    (27, "IQ3_M"),
    (28, "IQ2_S"),
    (29, "IQ2_M"),
    (30, "IQ4_XS"),
    (31, "IQ1_M"),
    (32, "BF16"),
    (36, "TQ1_0"),
    (37, "TQ2_0"),
    (38, "MXFP4"),
];

/// The tensors of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TypeTotal {
    pub(crate) tensors: u64,
    pub(crate) elements: u64,
    pub(crate) bytes: u64,
}

/// Totals for each type, in order of type ids.
pub(crate) fn totals(file: &GgufFile) -> BTreeMap<TensorType, TypeTotal> {
    let mut totals: BTreeMap<TensorType, TypeTotal> = BTreeMap::new();
    for tensor in file.tensors() {
        let total = totals.entry(tensor.ty()).or_default();
        total.tensors += 1;
        total.elements = total.elements.saturating_add(tensor.n_elements());
        total.bytes = total.bytes.saturating_add(tensor.n_bytes());
    }
    totals
}

/// Number of weights.
pub(crate) fn parameters(file: &GgufFile) -> u64 {
    file.tensors().iter().map(|t| t.n_elements()).fold(0, u64::saturating_add)
}

/// The type that the file says it has, or else the one that most of its bytes have.
pub(crate) fn file_type(file: &GgufFile) -> String {
    let said = file.metadata().get_u32("general.file_type").ok().flatten();
    let name = said.and_then(|n| FILE_TYPES.iter().find(|(known, _)| *known == n)).map(|(_, name)| *name);
    let most = || totals(file).into_iter().max_by_key(|(_, total)| total.bytes).map(|(ty, _)| ty.name());
    name.or_else(most).unwrap_or("none").to_owned()
}

/// Bits of a weight on average; `None` without weights.
pub(crate) fn bits_per_weight(file: &GgufFile) -> Option<f64> {
    let n = parameters(file);
    (n > 0).then(|| file.tensor_bytes_total() as f64 * 8.0 / n as f64)
}
