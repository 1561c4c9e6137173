//! Times steps of models of a given shape with random weights: prefill, decode, decode at a depth, several sequences.
//!
//! ```text
//! shapes SHAPE FORMAT [pp512] [tg] [tg@4096] [batch8] ...       SHAPE: 0.6b, 1.7b, or attn-1.7b (no contractions)
//! ```
//!
//! `FORMAT` is `q4_k_m` or `q8_0`, and `kv=f16|int8|f32` may follow. Times are the best of several steps; beside them stand the
//! bytes of weights and cache that a step reads, and the machine's read bandwidth measured in the same run. With
//! `HANZO_CPU_THREADS=1` they are times on a core.
#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::time::Instant;

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_fusion::graph::{AttentionSpec, Builder, Graph, RopeSpec, RopeStyle, WeightDecl};
use hanzo_fusion::step::{KvConfig, KvLayer, KvType, SequenceStep, Step};
use hanzo_fusion::{BLOCK_TOKENS, Device, DeviceError, LoadOptions, LoadedModel, Value, WeightSource};
use hanzo_quant::QuantType;

/// Blocks of the KV pool.
const N_BLOCKS: usize = 600;

struct Shape {
    vocab: usize,
    width: usize,
    ffn: usize,
    layers: u32,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    matrices: bool,
    q8: bool,
}

impl Shape {
    fn attention(&self, g: &mut Builder, q: Value, k: Value, v: Value) -> Value {
        let kv = g.kv_layer(KvLayer {
            n_kv_heads: self.kv_heads,
            k_head_dim: self.head_dim,
            v_head_dim: self.head_dim,
            window: None,
            group: 0,
        });
        let scale = (self.head_dim as f32).powf(-0.5);
        g.attention(q, k, v, kv, AttentionSpec { n_heads: self.heads, scale, softcap: None, sinks: None })
    }

    fn graph(&self) -> Graph {
        let (q4, q6) =
            if self.q8 { (QuantType::Q8_0, QuantType::Q8_0) } else { (QuantType::Q4_K, QuantType::Q6_K) };
        let (qn, kn) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        if !self.matrices {
            let mut g = Builder::new(32);
            let embd = g.matrix("embd", 32, qn + 2 * kn, QuantType::Q8_0);
            let x = g.embed(embd);
            let (q, k, v) = (g.slice_cols(x, 0, qn), g.slice_cols(x, qn, kn), g.slice_cols(x, qn + kn, kn));
            let mut out = q;
            for l in 0..self.layers {
                g.set_layer(Some(l));
                out = self.attention(&mut g, out, k, v);
            }
            let head = g.matrix("head", 32, qn, QuantType::Q8_0);
            let x = g.select_outputs(out);
            let logits = g.matmul(x, head);
            return g.finish(logits).unwrap();
        }
        let mut g = Builder::new(self.vocab);
        let embd = g.matrix("embd", self.vocab, self.width, q6);
        let inv_freq =
            (0..self.head_dim / 2).map(|i| 1e6f64.powf(-2.0 * i as f64 / self.head_dim as f64)).collect();
        let table = g.rope_table(RopeSpec { style: RopeStyle::Halves, inv_freq, magnitude: 1.0 });
        let mut x = g.embed(embd);
        for l in 0..self.layers {
            g.set_layer(Some(l));
            let more = l < self.layers / 8 || l >= self.layers * 7 / 8 || l % 3 == 2;
            let rich = if more { q6 } else { q4 };
            let w = |g: &mut Builder, n: &str, rows, cols, ty| {
                g.matrix(&format!("blk.{l}.{n}.weight"), rows, cols, ty)
            };
            let norm = g.vector(&format!("blk.{l}.norm"), self.width, QuantType::F32);
            let head_norm = g.vector(&format!("blk.{l}.head_norm"), self.head_dim, QuantType::F32);
            let h = g.rms_norm(x, norm, 1e-6);
            let (wq, wk, wv) = (
                w(&mut g, "q", qn, self.width, q4),
                w(&mut g, "k", kn, self.width, q4),
                w(&mut g, "v", kn, self.width, rich),
            );
            let (wo, gate, up, down) = (
                w(&mut g, "o", self.width, qn, q4),
                w(&mut g, "gate", self.ffn, self.width, q4),
                w(&mut g, "up", self.ffn, self.width, q4),
                w(&mut g, "down", self.width, self.ffn, rich),
            );
            let q = g.matmul(h, wq);
            let q = g.rms_norm_heads(q, head_norm, 1e-6);
            let q = g.rope(q, self.head_dim, table);
            let k = g.matmul(h, wk);
            let k = g.rms_norm_heads(k, head_norm, 1e-6);
            let k = g.rope(k, self.head_dim, table);
            let v = g.matmul(h, wv);
            let a = self.attention(&mut g, q, k, v);
            let a = g.matmul(a, wo);
            x = g.add(x, a);
            let h = g.rms_norm(x, norm, 1e-6);
            let (a, b) = (g.matmul(h, gate), g.matmul(h, up));
            let a = g.silu(a);
            let h = g.mul(a, b);
            let h = g.matmul(h, down);
            x = g.add(x, h);
        }
        let norm = g.vector("norm", self.width, QuantType::F32);
        let x = g.rms_norm(x, norm, 1e-6);
        let x = g.select_outputs(x);
        let logits = g.matmul(x, embd);
        g.finish(logits).unwrap()
    }
}

/// Random codes under small scales.
struct Noise;

impl WeightSource for Noise {
    fn read(&self, weight: &WeightDecl, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let mut h = (offset ^ weight.name.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        if weight.ty == QuantType::F32 {
            out.chunks_exact_mut(4).for_each(|b| b.copy_from_slice(&1.0f32.to_le_bytes()));
            return Ok(());
        }
        for b in out.chunks_mut(8) {
            h ^= h << 13;
            h ^= h >> 7;
            h ^= h << 17;
            b.copy_from_slice(&h.to_le_bytes()[..b.len()]);
        }
        let small = hanzo_quant::f16::from_f32(1e-4).to_le_bytes();
        let places: &[usize] = match weight.ty {
            QuantType::Q6_K => &[208],
            QuantType::Q4_K => &[0, 2],
            _ => &[0],
        };
        for block in out.chunks_exact_mut(weight.ty.block_bytes()) {
            for &p in places {
                block[p..p + 2].copy_from_slice(&small);
            }
        }
        Ok(())
    }
}

fn bandwidth(threads: usize) -> f64 {
    let data = vec![1u64; 32 << 20];
    let mut best = 0f64;
    for _ in 0..4 {
        let start = Instant::now();
        std::thread::scope(|s| {
            for part in data.chunks(data.len() / threads) {
                s.spawn(move || {
                    std::hint::black_box(part.iter().fold([0u64; 8], |mut a, x| {
                        a[0] = a[0].wrapping_add(*x);
                        a
                    }))
                });
            }
        });
        best = best.max(data.len() as f64 * 8e-9 / start.elapsed().as_secs_f64());
    }
    best
}

/// Seconds that the calling thread was on a core (Linux; elsewhere wall time). With one thread it is the step's own time,
/// whatever else the machine does.
fn on_core() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? * 1e-9)
}

/// Best and median of some steps of `n` rows for each of `sequences` sequences, after `depth` tokens.
fn time(
    model: &mut dyn LoadedModel,
    vocab: usize,
    sequences: usize,
    n: usize,
    depth: usize,
    single: bool,
) -> (f64, f64) {
    let per = (depth + n).div_ceil(BLOCK_TOKENS) as u32;
    let tables: Vec<Vec<u32>> = (0..sequences as u32).map(|s| (s * per..(s + 1) * per).collect()).collect();
    let groups: Vec<[&[u32]; 1]> = tables.iter().map(|t| [&t[..]]).collect();
    let seqs: Vec<SequenceStep<'_>> = groups
        .iter()
        .map(|g| SequenceStep { n_tokens: n, context_len: depth + n, block_tables: g, adapters: &[] })
        .collect();
    let tokens: Vec<u32> = (0..sequences * n).map(|i| (i * 7919 % vocab) as u32).collect();
    let outputs: Vec<u32> = (0..sequences as u32).map(|s| s * n as u32 + n as u32 - 1).collect();
    let mut logits = vec![0.0; outputs.len() * vocab];
    let mut times = Vec::new();
    let begin = Instant::now();
    while times.len() < 3 || begin.elapsed().as_secs_f64() < 2.0 && times.len() < 40 {
        let (start, core) = (Instant::now(), on_core());
        model
            .step(&Step { tokens: &tokens, sequences: &seqs, outputs: &outputs, hidden: &[] }, &mut logits)
            .unwrap();
        let wall = start.elapsed().as_secs_f64();
        let core = core.and_then(|c| Some(on_core()? - c));
        times.push(if single { core.unwrap_or(wall) } else { wall });
    }
    times.sort_by(f64::total_cmp);
    (times[0], times[times.len() / 2])
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let matrices = !args[1].starts_with("attn-");
    let q8 = args[2] == "q8_0";
    let shape = match args[1].trim_start_matches("attn-") {
        "0.6b" => Shape {
            vocab: 151_936,
            width: 1024,
            ffn: 3072,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            matrices,
            q8,
        },
        "1.7b" => Shape {
            vocab: 151_936,
            width: 2048,
            ffn: 6144,
            layers: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: 128,
            matrices,
            q8,
        },
        other => panic!("no shape {other}"),
    };
    let kv_type = match args.iter().find_map(|a| a.strip_prefix("kv=")) {
        Some("int8") => KvType::Int8,
        Some("f32") => KvType::F32,
        _ => KvType::F16,
    };
    let graph = shape.graph();
    let vocab = graph.vocab_size;
    let config = CpuConfig::from_env().unwrap();
    let threads = config.threads.unwrap_or(2);
    let device = CpuDevice::new(&config).unwrap();
    let options = LoadOptions { max_tokens: 2048, max_outputs: 32, kv: KvConfig::equal(N_BLOCKS, kv_type) };
    let start = Instant::now();
    let mut model = device.load(Arc::new(graph), &Noise, options, &()).unwrap();
    // Real keys and values in every block: memory that was never written is one page of zeros, and reads as if it were cached.
    let tokens: Vec<u32> = (0..BLOCK_TOKENS as u32).collect();
    let sequence = SequenceStep {
        n_tokens: BLOCK_TOKENS,
        context_len: BLOCK_TOKENS,
        block_tables: &[&[0]],
        adapters: &[],
    };
    model
        .step(&Step { tokens: &tokens, sequences: &[sequence], outputs: &[], hidden: &[] }, &mut [])
        .unwrap();
    let copies: Vec<(u32, u32)> = (1..N_BLOCKS as u32).map(|to| (0, to)).collect();
    model.copy_blocks(0, &copies).unwrap();
    let memory = model.memory();
    let read = bandwidth(threads);
    println!(
        "{}: loaded in {:.2} s, weights {:.3} GB, arena {:.3} GB; read bandwidth {read:.1} GB/s",
        device.describe(),
        start.elapsed().as_secs_f64(),
        memory.weights as f64 * 1e-9,
        memory.arena as f64 * 1e-9
    );
    let kv_token = match kv_type {
        KvType::F16 => 2.0,
        KvType::Int8 => 1.0 + 4.0 / shape.head_dim as f64,
        KvType::F32 => 4.0,
    } * 2.0
        * (shape.kv_heads * shape.head_dim) as f64
        * f64::from(shape.layers);
    for what in &args[3..] {
        let (name, depth) = what.split_once('@').unwrap_or((what, "0"));
        let depth: usize = depth.parse().unwrap_or(0);
        let number = |p: &str| name.strip_prefix(p).and_then(|n| n.parse::<usize>().ok());
        let (sequences, n) = match (number("pp"), number("batch"), name) {
            (Some(n), ..) => (1, n),
            (_, Some(b), _) => (b, 1),
            (.., "tg") => (1, 1),
            _ => continue,
        };
        let (best, median) = time(&mut *model, vocab, sequences, n, depth, threads == 1);
        let rows = (sequences * n) as f64;
        let bytes = memory.weights as f64 + kv_token * ((depth + n) * sequences) as f64;
        println!(
            "{what}: {:.1} tok/s best, {:.1} median; {:.3} ms; {:.1} % of the read bandwidth",
            rows / best,
            rows / median,
            best * 1e3,
            bytes * 1e-9 / best / read * 100.0
        );
    }
}
