//! What the machine can: read bandwidth, int8 dots and f32 multiply-adds, by loops that do nothing else.
//!
//! Speeds of kernels are judged as shares of these. The loops use the instruction set of the [`Pool`] and all its threads.
//! Arithmetic runs on registers alone; where there is no loop for an instruction set the answer is `None`, never a guess.
#![allow(unsafe_code)]

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use crate::CpuError;
#[cfg(target_arch = "x86_64")]
use crate::isa::Vectors;
use crate::pool::Pool;

/// Words that a thread claims at a time when memory is read.
const CHUNK: usize = 16 << 10;
/// Rounds of the arithmetic loops: tens of milliseconds.
const ROUNDS: usize = 2_000_000;

/// Memory to read, on huge pages where the system gives them, as weights are.
#[derive(Debug)]
pub struct Memory(memmap2::MmapMut);

impl Memory {
    /// Reserves and touches `bytes` (rounded up to 128 kB).
    ///
    /// # Errors
    /// [`CpuError::Memory`] where there is not as much.
    pub fn new(bytes: usize) -> Result<Self, CpuError> {
        let bytes = bytes.max(1).next_multiple_of(8 * CHUNK);
        let out = |_| CpuError::Memory { what: "the bandwidth probe", bytes };
        let mut map = memmap2::MmapMut::map_anon(bytes).map_err(out)?;
        #[cfg(target_os = "linux")]
        // A hint: without huge pages the probe reads a little slower, as weights would.
        let _ = map.advise(memmap2::Advice::HugePage);
        map.iter_mut().step_by(4096).for_each(|b| *b = 1);
        Ok(Self(map))
    }

    fn words(&self) -> &[u64] {
        // SAFETY: a mapping is page-aligned, its length is a multiple of 8, and any bits are a u64.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() / 8) }
    }
}

/// Bytes a second that all threads together read: contiguous shares, the best of three prefetch distances.
///
/// # Errors
/// As [`Pool::run`].
pub fn read_bandwidth(pool: &Pool, memory: &Memory) -> Result<f64, CpuError> {
    let memory = memory.words();
    let mut best = 0.0f64;
    for (near, far) in [(0, 0), (2 << 10, 8 << 10), (3 << 10, 12 << 10)] {
        let start = Instant::now();
        pool.run(|ctx| {
            let mut sum = [0u64; 16];
            ctx.claim(memory.len() / CHUNK, |i| {
                for lines in memory[i * CHUNK..(i + 1) * CHUNK].as_chunks::<16>().0 {
                    prefetch(lines, near, far);
                    for (s, v) in sum.iter_mut().zip(lines) {
                        *s |= *v;
                    }
                }
            });
            black_box(sum);
        })?;
        best = best.max(memory.len() as f64 * 8.0 / start.elapsed().as_secs_f64());
    }
    Ok(best)
}

#[inline(always)]
fn prefetch(at: &[u64; 16], near: usize, far: usize) {
    #[cfg(target_arch = "x86_64")]
    if near > 0 {
        use std::arch::x86_64::*;
        let at = at.as_ptr().cast::<i8>();
        for line in [0, 64] {
            // SAFETY: a prefetch never faults.
            unsafe {
                _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(near + line));
                _mm_prefetch::<_MM_HINT_T2>(at.wrapping_add(far + line));
            }
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (at, near, far);
}

/// Integer operations a second (multiply and add are two) of int8 dots, all threads together. With AMX it is the vector units' rate all
/// the same: tiles multiply faster than floats can follow, so theirs bounds nothing.
///
/// # Errors
/// As [`Pool::run`].
pub fn int8_rate(pool: &Pool) -> Result<Option<f64>, CpuError> {
    #[cfg(target_arch = "x86_64")]
    return match pool.isa().vectors() {
        // SAFETY: the pool has checked the instruction set.
        Vectors::Avx512 => rate(pool, 20 * 128, |n| unsafe { x86::vnni_zmm(n) }),
        // SAFETY: as above.
        Vectors::Avx2 { vnni: true } => rate(pool, 12 * 64, |n| unsafe { x86::vnni_ymm(n) }),
        // SAFETY: as above.
        Vectors::Avx2 { vnni: false } => rate(pool, 6 * 64, |n| unsafe { x86::maddubs_ymm(n) }),
        Vectors::Portable => Ok(None),
    };
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = pool;
        Ok(None)
    }
}

/// Floating-point operations a second (multiply and add are two) of f32 multiply-adds, all threads together.
///
/// # Errors
/// As [`Pool::run`].
pub fn f32_rate(pool: &Pool) -> Result<Option<f64>, CpuError> {
    #[cfg(target_arch = "x86_64")]
    return match pool.isa().vectors() {
        // SAFETY: the pool has checked the instruction set.
        Vectors::Avx512 => rate(pool, 20 * 32, |n| unsafe { x86::fma_zmm(n) }),
        // SAFETY: as above.
        Vectors::Avx2 { .. } => rate(pool, 12 * 16, |n| unsafe { x86::fma_ymm(n) }),
        Vectors::Portable => Ok(None),
    };
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = pool;
        Ok(None)
    }
}

/// Seconds that the threads take to meet once.
///
/// # Errors
/// As [`Pool::run`].
pub fn barrier_seconds(pool: &Pool) -> Result<f64, CpuError> {
    const MEETINGS: usize = 20_000;
    let start = Instant::now();
    pool.run(|ctx| (0..MEETINGS).for_each(|_| ctx.barrier()))?;
    Ok(start.elapsed().as_secs_f64() / MEETINGS as f64)
}

#[cfg(target_arch = "x86_64")]
fn rate(pool: &Pool, ops_a_round: usize, run: impl Fn(usize) + Sync) -> Result<Option<f64>, CpuError> {
    let start = Instant::now();
    // A busy machine may run fewer threads than the pool has.
    let threads = AtomicUsize::new(0);
    pool.run(|_| {
        threads.fetch_add(1, Ordering::Relaxed);
        run(ROUNDS);
    })?;
    Ok(Some((ROUNDS * ops_a_round * threads.into_inner()) as f64 / start.elapsed().as_secs_f64()))
}

/// Loops of independent chains on registers: as many accumulators as hide the latency, two operands that never change.
/// In assembly, because a compiler would see through them.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::asm;

    macro_rules! zmm_loop {
        ($(#[$doc:meta])* $name:ident, $features:literal, $instruction:literal) => {
            $(#[$doc])*
            ///
            /// # Safety
            /// The machine has the instruction set.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(rounds: usize) {
                // SAFETY: registers only.
                unsafe {
                    asm!(
                        "vpxord zmm30, zmm30, zmm30", "vpxord zmm31, zmm31, zmm31",
                        ".irp r, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19",
                        "vpxord zmm\\r, zmm\\r, zmm\\r",
                        ".endr",
                        "2:",
                        ".irp r, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19",
                        concat!($instruction, " zmm\\r, zmm30, zmm31"),
                        ".endr",
                        "dec {n}", "jnz 2b",
                        n = inout(reg) rounds => _,
                        out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _, out("zmm4") _, out("zmm5") _,
                        out("zmm6") _, out("zmm7") _, out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
                        out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _, out("zmm16") _,
                        out("zmm17") _, out("zmm18") _, out("zmm19") _, out("zmm30") _, out("zmm31") _,
                        options(nostack, nomem)
                    );
                }
            }
        };
    }

    macro_rules! ymm_loop {
        ($(#[$doc:meta])* $name:ident, $features:literal, $instruction:literal) => {
            $(#[$doc])*
            ///
            /// # Safety
            /// The machine has the instruction set.
            #[target_feature(enable = $features)]
            pub(super) unsafe fn $name(rounds: usize) {
                // SAFETY: registers only.
                unsafe {
                    asm!(
                        ".irp r, 0,1,2,3,4,5,6,7,8,9,10,11,14,15",
                        "vpxor ymm\\r, ymm\\r, ymm\\r",
                        ".endr",
                        "2:",
                        ".irp r, 0,1,2,3,4,5,6,7,8,9,10,11",
                        concat!($instruction, " ymm\\r, ymm14, ymm15"),
                        ".endr",
                        "dec {n}", "jnz 2b",
                        n = inout(reg) rounds => _,
                        out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
                        out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                        out("ymm14") _, out("ymm15") _,
                        options(nostack, nomem)
                    );
                }
            }
        };
    }

    zmm_loop!(
        /// 20 dots of 64 pairs a round.
        vnni_zmm, "avx512f,avx512vnni", "vpdpbusd"
    );
    zmm_loop!(
        /// 20 multiply-adds of 16 a round.
        fma_zmm, "avx512f", "vfmadd231ps"
    );
    ymm_loop!(
        /// 12 dots of 32 pairs a round.
        vnni_ymm, "avx2,avxvnni", "{{vex}} vpdpbusd"
    );
    ymm_loop!(
        /// 12 multiply-adds of 8 a round.
        fma_ymm, "avx2,fma", "vfmadd231ps"
    );

    /// 6 dots of 32 pairs a round, in three instructions each: bytes to words, words to doublewords, the sum.
    ///
    /// # Safety
    /// The machine has AVX2.
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn maddubs_ymm(rounds: usize) {
        // SAFETY: registers only.
        unsafe {
            asm!(
                ".irp r, 0,1,2,3,4,5,13,14,15",
                "vpxor ymm\\r, ymm\\r, ymm\\r",
                ".endr",
                "2:",
                ".irp r, 6,7,8,9,10,11",
                "vpmaddubsw ymm\\r, ymm14, ymm15",
                "vpmaddwd ymm\\r, ymm\\r, ymm13",
                ".endr",
                "vpaddd ymm0, ymm0, ymm6", "vpaddd ymm1, ymm1, ymm7", "vpaddd ymm2, ymm2, ymm8",
                "vpaddd ymm3, ymm3, ymm9", "vpaddd ymm4, ymm4, ymm10", "vpaddd ymm5, ymm5, ymm11",
                "dec {n}", "jnz 2b",
                n = inout(reg) rounds => _,
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _, out("ymm4") _, out("ymm5") _,
                out("ymm6") _, out("ymm7") _, out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                out("ymm13") _, out("ymm14") _, out("ymm15") _,
                options(nostack, nomem)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::Isa;

    #[test]
    fn every_path_of_this_machine_has_plausible_roofs() {
        let memory = Memory::new(1 << 20).unwrap();
        for isa in Isa::available() {
            let pool = Pool::with_isa(2, isa).unwrap();
            assert!(read_bandwidth(&pool, &memory).unwrap() > 1e8);
            for rate in [int8_rate(&pool).unwrap(), f32_rate(&pool).unwrap()] {
                // Slower than 1 or faster than 100 000 Gop/s is no machine, but a wrong count.
                assert!(rate.is_none_or(|r| (1e9..1e14).contains(&r)), "{}: {rate:?}", isa.name());
                assert_eq!(rate.is_none(), isa == Isa::Scalar);
            }
        }
    }
}
