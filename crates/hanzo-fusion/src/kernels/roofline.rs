//! What a device can do at most: kernels that read, multiply-add or dot, and do nothing else.
//!
//! Each leaves a word an invocation that depends on every load and every step, and that is known without a device ([`read_sum`],
//! [`f32_sum`], [`dot_sums`]): whoever measures compares it, so nothing can have been left out. No kernel here uses subgroups. The arithmetic is
//! that of vector units; matrix units are the GEMM's.

use crate::kernel::{Builder, Dot, IntoVal, Kernel, KernelError, Val};

/// Invocations of a workgroup.
pub const WORKGROUP: u32 = 256;
/// Words of a load.
pub const VECTOR: u32 = 4;
/// Loads of an invocation in a round of [`read`].
pub const LOADS: u32 = 8;
/// Chains of an invocation that wait for nothing but themselves: enough for the latency of one, few enough for the registers.
pub const CHAINS: u32 = 8;
/// Steps of each chain in a round.
pub const UNROLL: u32 = 16;
/// Invocations whose chains of dots begin differently; it repeats after them, so that what they come to can be had without a device.
pub const DOT_CLASSES: u32 = 32;
/// Four signed bytes by which no chain of [`int8_dot`] comes to rest: the lowest is 2 modulo 4, the others 0, so what is odd stays odd, and a dot
/// with it is 2 modulo 4 and never 0.
pub const FACTORS: u32 = 0x58b4_3c6e;

/// Memory is filled by multiples of this: not all alike, and their sums are known.
const MIX: u32 = 0x9e37_79b1;

/// Words that a workgroup of [`read`] reads in so many rounds.
pub const fn read_words(rounds: u32) -> u32 {
    VECTOR * WORKGROUP * LOADS * rounds
}

/// `x[i] = i · 0x9e3779b1`, `i` below `n`. Buffer: `x`. Parameter: `n`. Grid: any.
///
/// # Errors
/// Never for widths that exist.
pub fn fill(subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "Each invocation every n-th word, n those of the grid. Bound: bytes of x.";
    let k = Builder::new("roofline_fill", doc, WORKGROUP, subgroup);
    let (x, n) = (k.output::<u32>("x"), k.param::<u32>("n"));
    k.for_step(invocation(&k), n, k.num_workgroups(0) * WORKGROUP, |i| x.set(i, i * MIX));
    k.finish()
}

/// Sums words, wrapping. Workgroup `w` has the `rounds · LOADS · WORKGROUP` vectors of four words from its own multiple of as many on; invocation `t` of
/// it takes `t`, `t + WORKGROUP`, … of them. Buffers: `x`, [`read_words`] a workgroup; `sums`, one an invocation. Parameter: `rounds`. Grid: the workgroups.
///
/// # Errors
/// Never for widths that exist.
pub fn read(subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "A workgroup reads 32 KiB a round, its invocations side by side, all loads of a round before the first sum. Order: none (integers). Bound: \
               bytes of x.";
    let k = Builder::new("roofline_read", doc, WORKGROUP, subgroup);
    let (x, sums) = (k.input::<u32>("x"), k.output::<u32>("sums"));
    let rounds = k.param::<u32>("rounds");
    let sum = k.reg::<u32>(0);
    let first = k.workgroup_id(0) * rounds;
    k.for_range(0, rounds, |round| {
        let at = (first + round) * read_words(1) + k.local_id() * VECTOR;
        let loads: Vec<[Val<'_, u32>; VECTOR as usize]> =
            (0..LOADS).map(|load| x.wide(at + load * WORKGROUP * VECTOR)).collect();
        let all = loads.into_iter().flatten().fold(sum.get(), |sum, word| sum + word);
        sum.set(all);
    });
    sums.set(invocation(&k), sum.get());
    k.finish()
}

/// [`CHAINS`] chains of `acc = acc · factor + step`, `rounds ·` [`UNROLL`] times; chain `c` of invocation `t` of its workgroup begins at
/// `t · CHAINS + c`. Then each is cut to i32, and their wrapping sum is written. Buffer: `sums`, one an invocation. Parameters: `rounds`, `factor`, `step`;
/// with whole numbers below 2²⁴ all of it is exact. Grid: any.
///
/// # Errors
/// Never for widths that exist.
pub fn f32_fma(subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "8 chains an invocation, 16 steps of each a round. Order: each chain by itself. Bound: fused multiply-adds of f32.";
    let k = Builder::new("roofline_f32", doc, WORKGROUP, subgroup);
    let sums = k.output::<i32>("sums");
    let (rounds, factor, step) = (k.param::<u32>("rounds"), k.param::<f32>("factor"), k.param::<f32>("step"));
    let chains: Vec<_> = (0..CHAINS).map(|c| k.reg::<f32>((k.local_id() * CHAINS + c).f32())).collect();
    k.for_range(0, rounds, |_| {
        let mut all: Vec<_> = chains.iter().map(|c| c.get()).collect();
        for _ in 0..UNROLL {
            all.iter_mut().for_each(|acc| *acc = acc.fma(factor, step));
        }
        chains.iter().zip(all).for_each(|(c, acc)| c.set(acc));
    });
    let sum = chains.iter().fold(0.val(&k), |sum, c| sum + c.get().i32());
    sums.set(invocation(&k), sum);
    k.finish()
}

/// [`CHAINS`] chains of `acc = acc + Σ acc[i]·b[i]` over the four signed bytes of each, `rounds ·` [`UNROLL`] times: a dot with what the last one
/// made, so none can be done once for all. Chain `c` of invocation `t` of its workgroup begins at [`dot_start`]`(t, c)`. Their wrapping sum is written.
/// Buffer: `sums`, one an invocation. Parameters: `rounds`, `b`. Grid: any.
///
/// # Errors
/// Never for widths that exist.
pub fn int8_dot(subgroup: u32) -> Result<Kernel, KernelError> {
    let doc = "8 chains an invocation, 16 steps of each a round. Order: none (integers). Bound: packed dots of bytes.";
    let k = Builder::new("roofline_int8", doc, WORKGROUP, subgroup);
    let sums = k.output::<i32>("sums");
    let (rounds, b) = (k.param::<u32>("rounds"), k.param::<u32>("b"));
    let class = k.local_id() % DOT_CLASSES;
    let start = |c: u32| (((class * CHAINS + c + 1) * MIX) | 1).i32();
    let chains: Vec<_> = (0..CHAINS).map(|c| k.reg::<i32>(start(c))).collect();
    k.for_range(0, rounds, |_| {
        let mut all: Vec<_> = chains.iter().map(|c| c.get()).collect();
        for _ in 0..UNROLL {
            all.iter_mut().for_each(|acc| *acc = k.dot4(Dot::SignedSigned, acc.u32(), b, *acc));
        }
        chains.iter().zip(all).for_each(|(c, acc)| c.set(acc));
    });
    let sum = chains.iter().fold(0.val(&k), |sum, c| sum + c.get());
    sums.set(invocation(&k), sum);
    k.finish()
}

/// Its number in a launch along one axis.
fn invocation(k: &Builder) -> Val<'_, u32> {
    k.workgroup_id(0) * WORKGROUP + k.local_id()
}

/// What chain `c` of invocation `local_id` of a workgroup of [`int8_dot`] begins with; odd.
pub const fn dot_start(local_id: u32, c: u32) -> u32 {
    (local_id % DOT_CLASSES * CHAINS + c + 1).wrapping_mul(MIX) | 1
}

/// What [`read`] leaves for an invocation of a launch over memory that [`fill`] filled.
pub fn read_sum(invocation: u32, rounds: u32) -> u32 {
    let (group, id) = (invocation / WORKGROUP, invocation % WORKGROUP);
    // Indices modulo 2³²: the words are their multiples.
    let loads = rounds.wrapping_mul(LOADS);
    let first = read_words(1).wrapping_mul(group.wrapping_mul(rounds)).wrapping_add(id * VECTOR);
    // Σ of `first + load · stride + lane`, over loads and lanes; one of two neighbours is even.
    let pairs = (u64::from(loads) * u64::from(loads).saturating_sub(1) / 2) as u32;
    let firsts = first.wrapping_mul(VECTOR).wrapping_add(VECTOR * (VECTOR - 1) / 2).wrapping_mul(loads);
    let strides = pairs.wrapping_mul(WORKGROUP * VECTOR).wrapping_mul(VECTOR);
    firsts.wrapping_add(strides).wrapping_mul(MIX)
}

/// What [`f32_fma`] leaves for an invocation of a workgroup with 1 for factor and step, as u32; its chains stay below 2²⁴.
pub fn f32_sum(local_id: u32, rounds: u32) -> u32 {
    let steps = rounds.wrapping_mul(UNROLL);
    let first = (local_id * CHAINS).wrapping_add(steps).wrapping_mul(CHAINS);
    first.wrapping_add(CHAINS * (CHAINS - 1) / 2)
}

/// What [`int8_dot`] leaves with [`FACTORS`] for the invocations of a workgroup, as u32; it repeats after these.
pub fn dot_sums(rounds: u32) -> [u32; DOT_CLASSES as usize] {
    let steps = u64::from(rounds) * u64::from(UNROLL);
    let bytes = |word: u32| word.to_le_bytes().map(|b| i32::from(b.cast_signed()));
    let [b0, b1, b2, b3] = bytes(FACTORS);
    let chain = |start: u32| {
        (0..steps).fold(start, |acc, _| {
            let [a0, a1, a2, a3] = bytes(acc);
            acc.wrapping_add((a0 * b0 + a1 * b1 + a2 * b2 + a3 * b3).cast_unsigned())
        })
    };
    let mut class = 0;
    [(); DOT_CLASSES as usize].map(|()| {
        let sum = (0..CHAINS).fold(0u32, |sum, c| sum.wrapping_add(chain(dot_start(class, c))));
        class += 1;
        sum
    })
}
