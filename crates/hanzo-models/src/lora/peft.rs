//! Adapters as PEFT saves them: a folder with `adapter_config.json` and `adapter_model.safetensors`.
//!
//! What the description asks for is done or refused by the name of its key: a key that would change the result and is left out
//! silently would give replies of another adapter.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use hanzo_fusion::adapter::LowRankShape;
use hanzo_gguf::FileSource;
use hanzo_quant::QuantType;
use regex_lite::{Regex, RegexBuilder};
use safetensors::tensor::{Dtype, Metadata};
use serde_json::{Map, Value};

use super::{Data, LoraError, LoraFile, LoraFormat, Pair, Result, Stored, Target};

pub(super) const CONFIG: &str = "adapter_config.json";
pub(super) const WEIGHTS: &str = "adapter_model.safetensors";
/// Largest description, in bytes.
const MAX_CONFIG: u64 = 4 << 20;
/// Largest file of weights, in bytes.
const MAX_WEIGHTS: u64 = 16 << 30;
/// Longest header of such a file, in bytes: some hundred bytes a matrix.
const MAX_HEADER: u64 = 16 << 20;
/// Most patterns of ranks or alphas.
const MAX_PATTERNS: usize = 4096;

/// Keys that ask for something that is not done, if they are set, and what that is.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("use_dora", "DoRA"),
    ("lora_bias", "a bias of the updates"),
    ("modules_to_save", "replacing whole modules"),
    ("trainable_token_indices", "replacing rows of the embedding"),
    ("target_parameters", "updating parameters that are no module's weight"),
    ("layer_replication", "repeating layers"),
    ("use_qalora", "QALoRA"),
    ("use_bdlora", "BD-LoRA"),
    ("alora_invocation_tokens", "an adapter that begins at an invocation (aLoRA)"),
    ("arrow_config", "Arrow routing"),
];

/// Keys that do not change what is computed, or that are read elsewhere.
///
/// `fan_in_fan_out` says how the base layer keeps its weight; GGUF has one way, and `A` and `B` are kept alike in both.
const KNOWN: &[&str] = &[
    "peft_type",
    "task_type",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
    "r",
    "lora_alpha",
    "lora_dropout",
    "bias",
    "use_rslora",
    "rank_pattern",
    "alpha_pattern",
    "fan_in_fan_out",
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "init_lora_weights",
    "loftq_config",
    "eva_config",
    "corda_config",
    "megatron_config",
    "megatron_core",
    "qalora_group_size",
    "runtime_config",
    "peft_version",
    "ensure_weight_tying",
];

/// Initializations that take a part out of the base weights: on the original model their adapters are not what was trained.
const CHANGES_BASE: &[&str] = &["pissa", "olora", "corda", "loftq", "lora_ga"];

/// A safetensors file: its table, and its tensors as they are asked for. Opening reads the header alone, so whoever has a
/// limit can look at the sizes first.
#[derive(Debug)]
pub(super) struct Tensors {
    file: FileSource,
    /// Where the data begin.
    start: u64,
    table: Metadata,
}

impl Tensors {
    fn open(path: PathBuf) -> Result<Self> {
        let file = FileSource::open(&path)?;
        let bytes = file.len();
        if bytes > MAX_WEIGHTS {
            return Err(LoraError::TooLarge { path, bytes, limit: MAX_WEIGHTS });
        }
        let malformed = |reason: String| LoraError::Malformed {
            path: path.clone(),
            reason: format!("no safetensors file: {reason}"),
        };
        let mut length = [0; 8];
        if bytes < length.len() as u64 {
            return Err(malformed(format!("it has {bytes} bytes")));
        }
        read_at(&file, 0, &mut length)?;
        let length = u64::from_le_bytes(length);
        if length > MAX_HEADER || length > bytes - 8 {
            return Err(malformed(format!("it has {bytes} bytes and gives its header {length}")));
        }
        let mut header = vec![0; length as usize];
        read_at(&file, 8, &mut header)?;
        // This checks that the tensors lie one after the other without holes, each as long as its shape says.
        let table: Metadata = serde_json::from_slice(&header).map_err(|e| malformed(e.to_string()))?;
        let (start, data) = (8 + length, table.data_len() as u64);
        if data != bytes - start {
            return Err(malformed(format!("its tensors take {data} bytes and there are {}", bytes - start)));
        }
        Ok(Self { file, start, table })
    }

    /// Reads a tensor's bytes. `out` is as long as the tensor.
    pub(super) fn read(&self, name: &str, out: &mut [u8]) -> Result<()> {
        let range = self.table.info(name).map(|info| info.data_offsets);
        match range.filter(|(from, to)| to.checked_sub(*from) == Some(out.len())) {
            Some((from, _)) => read_at(&self.file, self.start + from as u64, out),
            None => Err(LoraError::Tensor {
                name: name.to_owned(),
                reason: format!("its bytes are not in {}", self.file.path().display()),
            }),
        }
    }

    fn stored(&self, name: &str) -> Result<Stored> {
        let refuse = |reason: String| LoraError::Tensor { name: name.to_owned(), reason };
        let info = self.table.info(name).ok_or_else(|| refuse("is not in the file".to_owned()))?;
        let ty = match info.dtype {
            Dtype::F32 => QuantType::F32,
            Dtype::F16 => QuantType::F16,
            Dtype::BF16 => QuantType::BF16,
            other => return Err(refuse(format!("has type {other:?}; F32, F16 and BF16 can be read"))),
        };
        match info.shape[..] {
            [rows, cols] => Ok(Stored { name: name.to_owned(), rows, cols, ty }),
            _ => Err(refuse(format!("has shape {:?}; a matrix is expected", info.shape))),
        }
    }
}

/// Fills `out` from byte `at` on; an error names the file.
fn read_at(file: &FileSource, at: u64, out: &mut [u8]) -> Result<()> {
    file.read_at(at, out).map_err(|source| {
        let path = file.path().to_owned();
        hanzo_gguf::Error::InFile { path, source: Box::new(source) }.into()
    })
}

/// Reads a whole file of at most `limit` bytes.
fn read(path: &Path, limit: u64) -> Result<Vec<u8>> {
    let fault = |source| LoraError::Io { path: path.to_owned(), source };
    let file = std::fs::File::open(path).map_err(fault)?;
    let bytes = file.metadata().map_err(fault)?.len();
    if bytes > limit {
        return Err(LoraError::TooLarge { path: path.to_owned(), bytes, limit });
    }
    let mut out = Vec::new();
    file.take(limit).read_to_end(&mut out).map_err(fault)?;
    Ok(out)
}

pub(super) fn open(folder: &Path) -> Result<LoraFile> {
    let path = folder.join(CONFIG);
    let malformed = |reason: String| LoraError::Malformed { path: path.clone(), reason };
    let json: Value =
        serde_json::from_slice(&read(&path, MAX_CONFIG)?).map_err(|e| malformed(e.to_string()))?;
    let Value::Object(json) = json else { return Err(malformed("it is no JSON object".to_owned())) };
    let config = Config::new(&json)?;
    let tensors = Tensors::open(folder.join(WEIGHTS))?;
    let pairs = pairs(&tensors, &config)?;
    let unknown_keys =
        json.iter().filter(|(k, v)| is_set(v) && !is_known(k)).map(|(k, _)| k.clone()).collect();
    let base_model = json.get("base_model_name_or_path").and_then(Value::as_str).map(str::to_owned);
    Ok(LoraFile {
        path: folder.to_owned(),
        format: LoraFormat::Peft,
        architecture: None,
        base_model,
        unknown_keys,
        pairs,
        data: Data::Peft(Box::new(tensors)),
    })
}

fn is_known(key: &str) -> bool {
    KNOWN.contains(&key) || UNSUPPORTED.iter().any(|(k, _)| *k == key)
}

fn is_set(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(items) => !items.is_empty(),
        _ => true,
    }
}

/// What of a description matters here.
#[derive(Debug)]
struct Config {
    rank: usize,
    alpha: f64,
    /// Divide alpha by the square root of the rank.
    rank_stabilized: bool,
    ranks: Vec<(Regex, usize)>,
    alphas: Vec<(Regex, f64)>,
}

impl Config {
    fn new(json: &Map<String, Value>) -> Result<Self> {
        let get = |key: &str| json.get(key).unwrap_or(&Value::Null);
        let kind = get("peft_type");
        if kind.as_str() != Some("LORA") {
            return Err(wrong("peft_type", kind, "\"LORA\""));
        }
        for (key, what) in UNSUPPORTED {
            if is_set(get(key)) {
                return Err(unsupported(key, get(key), what));
            }
        }
        let bias = get("bias");
        if is_set(bias) && bias.as_str() != Some("none") {
            return Err(unsupported("bias", bias, "a trained bias"));
        }
        let init = get("init_lora_weights");
        if init.as_str().is_some_and(|s| CHANGES_BASE.iter().any(|c| s.to_ascii_lowercase().starts_with(c))) {
            let what = "an adapter to weights that its initialization changed (convert it to a plain one)";
            return Err(unsupported("init_lora_weights", init, what));
        }
        let rank_stabilized = match get("use_rslora") {
            Value::Null => false,
            Value::Bool(b) => *b,
            other => return Err(wrong("use_rslora", other, "true or false")),
        };
        Ok(Self {
            rank: rank("r", get("r"))?,
            alpha: alpha("lora_alpha", get("lora_alpha"))?,
            rank_stabilized,
            ranks: patterns("rank_pattern", get("rank_pattern"), rank)?,
            alphas: patterns("alpha_pattern", get("alpha_pattern"), alpha)?,
        })
    }

    fn rank_of(&self, module: &str) -> usize {
        self.ranks.iter().find(|(p, _)| p.is_match(module)).map_or(self.rank, |(_, r)| *r)
    }

    fn scale_of(&self, module: &str) -> f32 {
        let rank = self.rank_of(module) as f64;
        let alpha = self.alphas.iter().find(|(p, _)| p.is_match(module)).map_or(self.alpha, |(_, a)| *a);
        (alpha / if self.rank_stabilized { rank.sqrt() } else { rank }) as f32
    }
}

fn wrong(key: &str, found: &Value, expected: &'static str) -> LoraError {
    let found = if found.is_null() { "absent".to_owned() } else { shown(found) };
    LoraError::Key { key: key.to_owned(), found, expected }
}

fn unsupported(key: &str, found: &Value, what: &'static str) -> LoraError {
    LoraError::Unsupported { key: key.to_owned(), found: shown(found), what }
}

/// A value, but not all of a long one.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

fn rank(key: &str, value: &Value) -> Result<usize> {
    let rank = value.as_u64().and_then(|r| usize::try_from(r).ok()).filter(|r| (1..=1 << 20).contains(r));
    rank.ok_or_else(|| wrong(key, value, "a rank of at least 1"))
}

fn alpha(key: &str, value: &Value) -> Result<f64> {
    let alpha = value.as_f64().filter(|a| a.is_finite() && a.abs() <= f64::from(f32::MAX));
    alpha.ok_or_else(|| wrong(key, value, "a finite number"))
}

/// Module names or regular expressions of them, each with a value. As in PEFT, one stands for the end of a module's path, and the first
/// that fits counts.
fn patterns<T>(
    key: &str,
    value: &Value,
    read: impl Fn(&str, &Value) -> Result<T>,
) -> Result<Vec<(Regex, T)>> {
    let items = match value {
        Value::Null => return Ok(Vec::new()),
        Value::Object(items) if items.len() <= MAX_PATTERNS => items,
        other => return Err(wrong(key, other, "an object of at most 4096 patterns")),
    };
    let compile = |pattern: &str| {
        let whole = format!(r"^(?:.*\.)?(?:{pattern})$");
        RegexBuilder::new(&whole).size_limit(1 << 20).build()
    };
    let mut out = Vec::with_capacity(items.len());
    for (pattern, value) in items {
        let name = format!("{key}.{pattern}");
        let Ok(regex) = compile(pattern) else {
            return Err(LoraError::Key {
                key: key.to_owned(),
                found: shown(&Value::from(pattern.as_str())),
                expected: "module names or regular expressions without look-around",
            });
        };
        out.push((regex, read(&name, value)?));
    }
    Ok(out)
}

/// `A` or `B`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    A,
    B,
}

/// The module and half that a tensor's name stands for.
fn parse(name: &str) -> Result<(&str, Half)> {
    let refuse = |reason: &str| LoraError::Tensor { name: name.to_owned(), reason: reason.to_owned() };
    let path = name.strip_prefix("base_model.model.").unwrap_or(name);
    for (infix, half) in [
        (".lora_A", Half::A),
        (".lora_B", Half::B),
        (".lora_embedding_A", Half::A),
        (".lora_embedding_B", Half::B),
    ] {
        // `.weight`, or `.default.weight` with the name that the adapter had in training; embeddings have no `.weight`.
        if let Some((module, rest)) = path.rsplit_once(infix)
            && (rest.is_empty() || rest.starts_with('.'))
            && !rest.ends_with(".bias")
        {
            return Ok((module, half));
        }
    }
    Err(refuse(if path.contains("lora_magnitude_vector") {
        "belongs to DoRA, which is not supported"
    } else if path.ends_with(".bias") {
        "is a bias, which adapters here cannot have"
    } else if path.contains("norm") {
        "is a whole norm, which adapters here cannot have"
    } else {
        "is a whole weight, not a low-rank update of one (see `modules_to_save`)"
    }))
}

fn pairs(tensors: &Tensors, config: &Config) -> Result<Vec<Pair>> {
    let mut halves: BTreeMap<String, [Option<Stored>; 2]> = BTreeMap::new();
    let mut names: Vec<String> = tensors.table.tensors().into_keys().collect();
    names.sort_unstable();
    for name in names {
        let (module, half) = parse(&name)?;
        let stored = tensors.stored(&name)?;
        let entry = halves.entry(module.to_owned()).or_default();
        let [a, b] = entry;
        let slot = if half == Half::A { a } else { b };
        if let Some(other) = slot.replace(stored) {
            return Err(LoraError::Tensor { name, reason: format!("is there twice: `{}`", other.name) });
        }
    }
    if halves.is_empty() {
        return Err(LoraError::Empty);
    }
    halves.into_iter().map(|(module, halves)| pair(module, halves, config)).collect()
}

fn pair(module: String, halves: [Option<Stored>; 2], config: &Config) -> Result<Pair> {
    let (a, b) = match halves {
        [Some(a), Some(b)] => (a, b),
        [Some(one), None] | [None, Some(one)] => {
            return Err(LoraError::Tensor { name: one.name, reason: "its other half is missing".to_owned() });
        }
        [None, None] => return Err(LoraError::Empty),
    };
    let rank = config.rank_of(&module);
    for (stored, found, which) in [(&a, a.rows, "rows"), (&b, b.cols, "columns")] {
        if found != rank {
            let reason = format!("has {found} {which}; `{CONFIG}` gives it rank {rank}");
            return Err(LoraError::Tensor { name: stored.name.clone(), reason });
        }
    }
    let shape = LowRankShape { rank, n_in: a.cols, n_out: b.rows };
    let scale = config.scale_of(&module);
    Ok(Pair { target: Target::Module(module), shape, scale, a, a_by_input: false, b })
}
