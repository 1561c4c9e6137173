//! Synthetic models: the shapes of real ones with random weights, since throughput does not depend on their values.
//!
//! Blocks are encoded from a seeded Gaussian once a type and then laid out in pseudo-random order, so that scales, codes
//! and mins have the statistics of real weights and a file of gigabytes takes seconds.

use std::collections::HashMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use hanzo_gguf::{GgufFile, GgufWriter, TensorType};
use hanzo_quant::QuantType;
use hanzo_quant::encode::encode_rows;

/// Blocks of a type that are encoded; the file repeats them in changing order.
const POOL_BLOCKS: usize = 512;
/// Bytes written at a time.
const CHUNK: usize = 1 << 22;

/// Write a synthetic model
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:
  hanzo-bench synth --shape qwen3-1.7b --type q4_k_m --vocab vocab.gguf out.gguf")]
pub struct Args {
    /// Shape
    #[arg(long, value_enum)]
    shape: Shape,
    /// Block format of the matrices, or q4_k_m: Q4_K with Q6_K for the output and half of v and down
    #[arg(long = "type", value_name = "TYPE")]
    ty: String,
    /// A GGUF file whose tokenizer is copied, for engines that demand one
    #[arg(long, value_name = "FILE")]
    vocab: Option<PathBuf>,
    /// Where the model goes
    out: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Shape {
    #[value(name = "qwen3-0.6b")]
    Qwen3Small,
    #[value(name = "qwen3-1.7b")]
    Qwen3Medium,
}

/// Dimensions of a Qwen3 model with tied embeddings.
struct Dims {
    n_layers: u32,
    n_embd: u32,
    n_ff: u32,
}

const N_HEADS: u32 = 16;
const N_KV_HEADS: u32 = 8;
const HEAD_DIM: u32 = 128;
const VOCAB: u32 = 151_936;

impl Shape {
    fn dims(self) -> Dims {
        match self {
            Self::Qwen3Small => Dims { n_layers: 28, n_embd: 1024, n_ff: 3072 },
            Self::Qwen3Medium => Dims { n_layers: 28, n_embd: 2048, n_ff: 6144 },
        }
    }
}

/// The type of each matrix.
#[derive(Clone, Copy)]
enum Types {
    All(QuantType),
    Q4KM,
}

impl Types {
    fn parse(name: &str) -> Result<Self> {
        if name.eq_ignore_ascii_case("q4_k_m") {
            return Ok(Self::Q4KM);
        }
        let ty = QuantType::from_name(&name.to_ascii_uppercase());
        ty.map(Self::All).with_context(|| format!("`{name}` is not a block format"))
    }

    /// `more` where the mix spends more bits.
    fn of(self, more: bool) -> QuantType {
        match (self, more) {
            (Self::All(ty), _) => ty,
            (Self::Q4KM, true) => QuantType::Q6_K,
            (Self::Q4KM, false) => QuantType::Q4_K,
        }
    }
}

/// A seeded stream of pseudo-random numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Nearly Gaussian: a sum of twelve uniforms, scaled to weights' usual spread.
    fn weight(&mut self) -> f32 {
        let sum: f32 = (0..12).map(|_| (self.next() >> 40) as f32 / (1u64 << 24) as f32).sum();
        (sum - 6.0) * 0.02
    }
}

/// Writes the model.
///
/// # Errors
/// For a type that is none, and files that cannot be read or written.
pub fn run(args: &Args) -> Result<()> {
    let types = Types::parse(&args.ty)?;
    let d = args.shape.dims();
    let mut w = GgufWriter::new();
    w.set("general.architecture", "qwen3")?;
    w.set("general.name", "synthetic")?;
    for (name, value) in [
        ("block_count", d.n_layers),
        ("context_length", 40_960),
        ("embedding_length", d.n_embd),
        ("feed_forward_length", d.n_ff),
        ("attention.head_count", N_HEADS),
        ("attention.head_count_kv", N_KV_HEADS),
        ("attention.key_length", HEAD_DIM),
        ("attention.value_length", HEAD_DIM),
        ("vocab_size", VOCAB),
    ] {
        w.set(&format!("qwen3.{name}"), value)?;
    }
    w.set("qwen3.rope.freq_base", 1e6f32)?;
    w.set("qwen3.attention.layer_norm_rms_epsilon", 1e-6f32)?;
    match &args.vocab {
        Some(path) => {
            let file = GgufFile::open(path).with_context(|| format!("cannot open {}", path.display()))?;
            for item in file.metadata().iter().filter(|i| i.key.starts_with("tokenizer.")) {
                w.set(item.key, item.value)?;
            }
        }
        None => {
            w.set("tokenizer.ggml.model", "no_vocab")?;
        }
    }

    let (embd, ff) = (u64::from(d.n_embd), u64::from(d.n_ff));
    let (q, kv) = (u64::from(N_HEADS * HEAD_DIM), u64::from(N_KV_HEADS * HEAD_DIM));
    let mut tensors: Vec<(String, QuantType, Vec<u64>)> = vec![
        ("token_embd.weight".to_owned(), types.of(true), vec![embd, u64::from(VOCAB)]),
        ("output_norm.weight".to_owned(), QuantType::F32, vec![embd]),
    ];
    for i in 0..d.n_layers {
        let eighth = d.n_layers / 8;
        let more = i < eighth || i >= 7 * eighth || (i - eighth) % 3 == 2;
        let mut add = |name: &str, ty: QuantType, dims: &[u64]| {
            tensors.push((format!("blk.{i}.{name}.weight"), ty, dims.to_vec()));
        };
        let (plain, more) = (types.of(false), types.of(more));
        add("attn_norm", QuantType::F32, &[embd]);
        add("attn_q", plain, &[embd, q]);
        add("attn_k", plain, &[embd, kv]);
        add("attn_v", more, &[embd, kv]);
        add("attn_output", plain, &[q, embd]);
        add("attn_q_norm", QuantType::F32, &[u64::from(HEAD_DIM)]);
        add("attn_k_norm", QuantType::F32, &[u64::from(HEAD_DIM)]);
        add("ffn_norm", QuantType::F32, &[embd]);
        add("ffn_gate", plain, &[embd, ff]);
        add("ffn_up", plain, &[embd, ff]);
        add("ffn_down", more, &[ff, embd]);
    }
    let mut indices = Vec::with_capacity(tensors.len());
    for (name, ty, dims) in &tensors {
        let ty = TensorType::from_id(ty.id()).with_context(|| format!("{name}: no such tensor type"))?;
        indices.push(w.tensor(name, ty, dims)?);
    }
    let mut random = Random(1);
    let mut pools: HashMap<QuantType, Vec<u8>> = HashMap::new();
    let mut out = w.create(&args.out)?;
    for (index, (name, ty, dims)) in indices.into_iter().zip(&tensors) {
        let n_elements = dims.iter().product::<u64>() as usize;
        if *ty == QuantType::F32 {
            out.append(index, &1f32.to_le_bytes().repeat(n_elements))?;
            continue;
        }
        let block = ty.block_bytes();
        let pool = match pools.entry(*ty) {
            std::collections::hash_map::Entry::Occupied(e) => e.into_mut(),
            std::collections::hash_map::Entry::Vacant(e) => e.insert(encoded_pool(*ty, &mut random)?),
        };
        if !n_elements.is_multiple_of(ty.block_elems()) {
            bail!("{name}: rows do not fill blocks of {ty}");
        }
        let mut left = n_elements / ty.block_elems();
        let mut buffer = Vec::with_capacity(CHUNK + block);
        while left > 0 {
            buffer.clear();
            while buffer.len() < CHUNK && left > 0 {
                let at = (random.next() as usize % POOL_BLOCKS) * block;
                buffer.extend_from_slice(pool.get(at..at + block).unwrap_or_default());
                left -= 1;
            }
            out.append(index, &buffer)?;
        }
    }
    out.finish()?;
    Ok(())
}

/// Blocks of a type, encoded from Gaussian values.
fn encoded_pool(ty: QuantType, random: &mut Random) -> Result<Vec<u8>> {
    let n = POOL_BLOCKS * ty.block_elems();
    let values: Vec<f32> = (0..n).map(|_| random.weight()).collect();
    let mut bytes = vec![0; POOL_BLOCKS * ty.block_bytes()];
    encode_rows(ty, &values, n, None, &mut bytes)?;
    Ok(bytes)
}
