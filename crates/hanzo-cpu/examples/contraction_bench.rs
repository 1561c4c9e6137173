//! How close the contraction cores come to the machine: read bandwidth and int8 dot peak are measured in the same run, interleaved with
//! the cores, and every figure is a share of them.
//!
//! `cargo run --release -p hanzo-cpu --example contraction_bench -- [decode|batch|gemm|hot|pack|model|barrier]… [threads=N] [isa=NAME] [formats=A,B] [rows=1,8]`
#![allow(clippy::print_stdout, clippy::unwrap_used, unsafe_code)]

use std::hint::black_box;
use std::time::Instant;

use hanzo_cpu::activations::Activations;
use hanzo_cpu::contract::{self, Rows};
use hanzo_cpu::epilogue::{RowsMut, Store};
use hanzo_cpu::isa::Isa;
use hanzo_cpu::packed::PackedMatrix;
use hanzo_cpu::pool::Pool;
use hanzo_cpu::probe::{self, Memory};
use hanzo_quant::{Format, QuantType};

/// Random bytes are good weights for timing, but for their super-scales: any value costs the same.
fn raw(format: &Format, elems: usize) -> Vec<u8> {
    let mut state = 0x1234_5678_9abc_def0u64;
    let words = (elems / format.elems * format.bytes).div_ceil(8);
    let mut out = Vec::with_capacity(8 * words);
    for _ in 0..words {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        // Keeps f16 and f32 scales finite and small: clears the top exponent bit of every 16-bit word.
        out.extend((state & 0xbfff_bfff_bfff_bfff).to_le_bytes());
    }
    out.truncate(elems / format.elems * format.bytes);
    out
}

fn pack(ty: QuantType, n: usize, k: usize, pool: &Pool) -> PackedMatrix {
    PackedMatrix::pack(ty.format(), n, k, &raw(ty.format(), n * k)[..], pool, None).unwrap()
}

/// One matrix, several rows: seconds a call.
fn matmul(pool: &Pool, w: &[&PackedMatrix], m: usize) -> f64 {
    let (k, n) = (w[0].n_in(), w[0].n_out());
    let x: Vec<f32> = (0..m * k).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
    let mut out = vec![1.0; m * n]; // touched: page faults are not what is measured
    let mut a = Activations::new(m, k).unwrap();
    x.chunks(k).enumerate().for_each(|(m, x)| a.quantize_row(pool.isa(), m, x));
    let store = Store(RowsMut::new(&mut out, n));
    let start = Instant::now();
    pool.run(|ctx| {
        for w in w {
            let rows =
                if w.takes_quantized() { Rows::Quantized(&a) } else { Rows::Float { data: &x, stride: k } };
            contract::matmul(ctx, w, rows, m, &store).unwrap();
            ctx.barrier();
        }
    })
    .unwrap();
    start.elapsed().as_secs_f64() / w.len() as f64
}

fn median(mut v: Vec<f64>) -> f64 {
    v.sort_by(f64::total_cmp);
    v[v.len() / 2]
}

struct Bench {
    pool: Pool,
    memory: Memory,
    formats: Vec<QuantType>,
    rows: Option<Vec<usize>>,
}

impl Bench {
    /// GB/s of reading.
    fn bandwidth(&self) -> f64 {
        probe::read_bandwidth(&self.pool, &self.memory).unwrap() / 1e9
    }

    /// Gop/s of int8 dots.
    fn dot_peak(&self) -> f64 {
        probe::int8_rate(&self.pool).unwrap().map_or(f64::NAN, |rate| rate / 1e9)
    }

    /// Share of bandwidth at one row, over shapes of a 1.7B model.
    fn decode(&self) {
        println!("matvec, M = 1, share of read bandwidth (file bytes; packed bytes)");
        for &ty in &self.formats {
            print!("{:8}", ty.name());
            for (n, k) in [(2048, 2048), (6144, 2048), (2048, 6144), (1024, 2048)] {
                // Enough copies that none is in a cache when its turn comes again.
                let w = pack(ty, n, k, &self.pool);
                let copies: Vec<PackedMatrix> =
                    (0..(512 << 20) / w.bytes() / 2).map(|_| pack_copy(&w, ty, &self.pool)).collect();
                let list: Vec<&PackedMatrix> = copies.iter().collect();
                let file = ty.row_bytes(k).unwrap() * n;
                let shares: Vec<f64> = (0..7)
                    .map(|_| {
                        let roof = self.bandwidth();
                        let t = matmul(&self.pool, &list, 1);
                        let roof = roof.max(self.bandwidth());
                        w.bytes() as f64 / t / 1e9 / roof
                    })
                    .collect();
                let share = median(shares);
                print!(
                    "  {n}x{k}: {:5.1} {:5.1}",
                    100.0 * share * file as f64 / w.bytes() as f64,
                    100.0 * share
                );
            }
            println!();
        }
    }

    /// Aggregate speed of M rows against one.
    fn batch(&self) {
        println!("aggregate of M rows against 1 (2048 x 2048)");
        for &ty in &self.formats {
            let (n, k) = (2048, 2048);
            let w = pack(ty, n, k, &self.pool);
            let copies: Vec<PackedMatrix> =
                (0..(256 << 20) / w.bytes()).map(|_| pack_copy(&w, ty, &self.pool)).collect();
            let list: Vec<&PackedMatrix> = copies.iter().collect();
            print!("{:8}", ty.name());
            for m in [2, 3, 4, 6, 8, 12, 16, 24, 32] {
                let ratio = median(
                    (0..5).map(|_| matmul(&self.pool, &list, 1) / matmul(&self.pool, &list, m)).collect(),
                );
                print!("  {m}: {:4.1}", ratio * m as f64);
            }
            println!();
        }
    }

    fn gemm(&self) {
        println!("GEMM, share of int8 dot peak (M = 512, 500, 64)");
        for &ty in &self.formats {
            print!("{:8}", ty.name());
            for (n, k) in [(2048, 2048), (6144, 2048), (2048, 6144)] {
                let w = pack(ty, n, k, &self.pool);
                print!("  {n}x{k}:");
                for m in [512, 500, 64] {
                    let shares = (0..5).map(|_| {
                        let peak = self.dot_peak();
                        let t = matmul(&self.pool, &[&w], m).min(matmul(&self.pool, &[&w], m));
                        (2 * m * n * k) as f64 / t / 1e9 / peak
                    });
                    print!(" {:5.1}", 100.0 * median(shares.collect()));
                }
            }
            println!();
        }
    }

    /// Time in the core alone: a matrix that stays in the second-level cache, the least of many short calls, so that neighbours on the
    /// machine do not count. One thread.
    fn hot(&self) {
        let (n, k) = (128, 2048);
        let pool = Pool::with_isa(1, self.pool.isa()).unwrap();
        let rows = self.rows.as_deref().unwrap_or(&[1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 512]);
        println!("ns a unit (32 elements of 16 outputs) and row, by rows: {rows:?}");
        for &ty in &self.formats {
            let w = pack(ty, n, k, &pool);
            print!("{:8}", ty.name());
            for &m in rows {
                let x: Vec<f32> = (0..m * k).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
                let mut out = vec![1.0; m * n];
                let mut a = Activations::new(m, k).unwrap();
                x.chunks(k).enumerate().for_each(|(m, x)| a.quantize_row(pool.isa(), m, x));
                let store = Store(RowsMut::new(&mut out, n));
                let mut least = f64::INFINITY;
                let start = Instant::now();
                while start.elapsed().as_millis() < 60 {
                    let once = Instant::now();
                    pool.run(|ctx| {
                        let rows = if w.takes_quantized() {
                            Rows::Quantized(&a)
                        } else {
                            Rows::Float { data: &x, stride: k }
                        };
                        contract::matmul(ctx, &w, rows, m, &store).unwrap();
                    })
                    .unwrap();
                    least = least.min(once.elapsed().as_secs_f64());
                }
                print!(" {:6.2}", least * 1e9 / (n / 16 * k / 32 * m) as f64);
            }
            println!();
        }
    }

    fn pack(&self) {
        println!("packing, GB/s of file bytes ({} threads)", self.pool.threads());
        for &ty in &self.formats {
            let (n, k) = (8192, 4096);
            let bytes = raw(ty.format(), n * k);
            let speeds = (0..3).map(|_| {
                let start = Instant::now();
                black_box(PackedMatrix::pack(ty.format(), n, k, &bytes[..], &self.pool, None).unwrap());
                bytes.len() as f64 / start.elapsed().as_secs_f64() / 1e9
            });
            println!("{:8} {:.2}", ty.name(), median(speeds.collect()));
        }
    }

    /// All matmuls of Qwen3-1.7B Q4_K_M, in sequence.
    fn model(&self) {
        let (d, ff, kv, layers) = (2048, 6144, 1024, 28);
        let mut weights = Vec::new();
        for l in 0..layers {
            let more = l < layers / 8 || l >= 7 * layers / 8 || (l - layers / 8) % 3 == 2;
            let high = if more { QuantType::Q6_K } else { QuantType::Q4_K };
            for (n, k, ty) in [
                (d, d, QuantType::Q4_K),
                (kv, d, QuantType::Q4_K),
                (kv, d, high),
                (d, d, QuantType::Q4_K),
                (ff, d, QuantType::Q4_K),
                (ff, d, QuantType::Q4_K),
                (d, ff, high),
            ] {
                weights.push(pack(ty, n, k, &self.pool));
            }
        }
        weights.push(pack(QuantType::Q6_K, 151_936, d, &self.pool));
        let bytes: usize = weights.iter().map(PackedMatrix::bytes).sum();
        println!("Qwen3-1.7B Q4_K_M, all matmuls, {:.2} GB packed, a barrier each", bytes as f64 / 1e9);
        for m in [1, 4, 8, 16, 32, 48, 512] {
            let inputs: Vec<Activations> = [d, ff]
                .map(|k| {
                    let x: Vec<f32> = (0..k).map(|i| (i * 37 % 101) as f32 - 50.0).collect();
                    let mut a = Activations::new(m, k).unwrap();
                    (0..m).for_each(|m| a.quantize_row(self.pool.isa(), m, &x));
                    a
                })
                .into();
            let mut out = vec![1.0; m * ff.max(if m < 32 { 151_936 } else { 0 })];
            let rounds = if m == 512 { 3 } else { 9 };
            let mut shares = Vec::new();
            let mut rates = Vec::new();
            for _ in 0..rounds {
                let (roof, peak) = (self.bandwidth(), self.dot_peak());
                let start = Instant::now();
                self.pool
                    .run(|ctx| {
                        for w in &weights {
                            if w.n_out() > 100_000 && m >= 32 {
                                continue;
                            }
                            // SAFETY: each contraction writes its own; they are separated by barriers.
                            let rows = unsafe { RowsMut::from_raw(out.as_ptr().cast_mut(), m, w.n_out()) };
                            let x = &inputs[usize::from(w.n_in() == ff)];
                            contract::matmul(ctx, w, Rows::Quantized(x), m, &Store(rows)).unwrap();
                            ctx.barrier();
                        }
                    })
                    .unwrap();
                let t = start.elapsed().as_secs_f64();
                let roof = roof.max(self.bandwidth());
                let ops: usize = weights
                    .iter()
                    .filter(|w| w.n_out() < 100_000)
                    .map(|w| 2 * w.n_out() * w.n_in() * m)
                    .sum();
                rates.push(m as f64 / t);
                shares.push(if m == 512 {
                    ops as f64 / t / 1e9 / peak
                } else {
                    bytes as f64 / t / 1e9 / roof
                });
            }
            let of = if m == 512 { "dot peak (without output head)" } else { "read bandwidth" };
            println!("M = {m:3}: {:6.1} rows/s, {:5.1} % of {of}", median(rates), 100.0 * median(shares));
            black_box(&mut out);
        }
    }

    fn barrier(&self) {
        println!(
            "barrier of {} threads: {:.0} ns",
            self.pool.threads(),
            probe::barrier_seconds(&self.pool).unwrap() * 1e9
        );
    }
}

fn pack_copy(like: &PackedMatrix, ty: QuantType, pool: &Pool) -> PackedMatrix {
    // Equal weights cost the same as others, and need no random bytes; not zeros, which would make some formats' scales subnormal floats.
    let bytes = vec![0x38u8; ty.row_bytes(like.n_in()).unwrap() * like.n_out()];
    PackedMatrix::pack(ty.format(), like.n_out(), like.n_in(), &bytes[..], pool, None).unwrap()
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| args.iter().find_map(|a| a.strip_prefix(name));
    let threads = value("threads=").map_or(2, |n| n.parse().unwrap());
    let isa = value("isa=").map_or(Isa::best(), |n| Isa::named(n).unwrap());
    let formats = value("formats=").unwrap_or("Q4_K,Q6_K,Q8_0");
    let formats = match formats {
        "all" => QuantType::ALL.to_vec(),
        list => list.split(',').map(|n| QuantType::from_name(n).unwrap()).collect(),
    };
    let rows = value("rows=").map(|list| list.split(',').map(|m| m.parse().unwrap()).collect());
    let pool = Pool::with_isa(threads, isa).unwrap();
    let b = Bench { pool, memory: Memory::new(512 << 20).unwrap(), formats, rows };
    println!("{threads} threads, {}: {:.1} GB/s, {:.0} Gop/s int8", isa.name(), b.bandwidth(), b.dot_peak());
    for what in args.iter().filter(|a| !a.contains('=')) {
        match what.as_str() {
            "decode" => b.decode(),
            "batch" => b.batch(),
            "gemm" => b.gemm(),
            "hot" => b.hot(),
            "pack" => b.pack(),
            "model" => b.model(),
            "barrier" => b.barrier(),
            other => println!("unknown part {other}"),
        }
    }
    println!("{threads} threads, {}: {:.1} GB/s, {:.0} Gop/s int8", isa.name(), b.bandwidth(), b.dot_peak());
}
