//! The roofline's kernels: whether they did all that they are paid for shows in what they wrote.

use hanzo_fusion::kernel::interpret::BufferData;
use hanzo_fusion::kernels::roofline::{self, CHAINS, LOADS, UNROLL, VECTOR, WORKGROUP};

use crate::harness::{Check, Rng, everywhere};

const GROUPS: u32 = 3;

/// The memory that `read` is given, word by word.
fn filled(n: u32) -> Vec<u32> {
    (0..n).map(|i| i.wrapping_mul(0x9e37_79b1)).collect()
}

/// What each invocation of `read` sums, by walking through its words.
fn sums_of(x: &[u32], rounds: u32) -> Vec<u32> {
    let mut sums = vec![0u32; (GROUPS * WORKGROUP) as usize];
    let block = (VECTOR * WORKGROUP * LOADS * rounds) as usize;
    for (group, block) in x.chunks_exact(block).enumerate() {
        for (vector, words) in block.chunks_exact(VECTOR as usize).enumerate() {
            let sum = &mut sums[group * WORKGROUP as usize + vector % WORKGROUP as usize];
            *sum = words.iter().fold(*sum, |sum, &w| sum.wrapping_add(w));
        }
    }
    sums
}

/// One chain of packed dots, a byte at a time.
fn chain(start: u32, b: u32, steps: u32) -> u32 {
    let mut acc = start.cast_signed();
    for _ in 0..steps {
        let products = acc.to_le_bytes().into_iter().zip(b.to_le_bytes());
        acc = products.fold(acc, |acc, (a, b)| acc.wrapping_add(i32::from(a as i8) * i32::from(b as i8)));
    }
    acc.cast_unsigned()
}

fn per_invocation(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..GROUPS * WORKGROUP).map(|i| f(i % WORKGROUP)).collect()
}

fn checks(subgroup: u32) -> Vec<Check> {
    let mut out = Vec::new();
    // Memory whose length is no multiple of anything.
    let n = 5 * WORKGROUP + 77;
    let fill = roofline::fill(subgroup).unwrap();
    let buffers = vec![("x", BufferData::empty(n as usize))];
    out.push(Check::new(&fill, [2, 1, 1], buffers, &[("n", n)], vec![("x", filled(n))]));

    let read = roofline::read(subgroup).unwrap();
    for rounds in [1, 3] {
        let n = roofline::read_words(rounds) * GROUPS;
        let mut rng = Rng(7);
        for x in [filled(n), (0..n).map(|_| rng.next() as u32).collect()] {
            let want = sums_of(&x, rounds);
            let buffers = vec![("x", BufferData::of(x)), ("sums", BufferData::empty(want.len()))];
            let grid = [GROUPS, 1, 1];
            out.push(Check::new(&read, grid, buffers, &[("rounds", rounds)], vec![("sums", want)]));
        }
    }

    let fma = roofline::f32_fma(subgroup).unwrap();
    for (rounds, factor, step) in [(0u32, 1f32, 1f32), (1, 1.0, 1.0), (4, 1.0, 3.0), (2, -1.0, 5.0)] {
        let want = per_invocation(|id| {
            let chains = (0..CHAINS).map(|c| {
                let start = (id * CHAINS + c) as f32;
                (0..rounds * UNROLL).fold(start, |acc, _| acc.mul_add(factor, step)) as i32
            });
            chains.sum::<i32>().cast_unsigned()
        });
        let buffers = vec![("sums", BufferData::empty(want.len()))];
        let params = [("rounds", rounds), ("factor", factor.to_bits()), ("step", step.to_bits())];
        out.push(Check::new(&fma, [GROUPS, 1, 1], buffers, &params, vec![("sums", want)]));
    }

    let dot = roofline::int8_dot(subgroup).unwrap();
    for (rounds, b) in [(0, 0x0102_0304), (1, 0x80ff_7f01), (3, roofline::FACTORS)] {
        let want = per_invocation(|id| {
            let chains = (0..CHAINS).map(|c| chain(roofline::dot_start(id, c), b, rounds * UNROLL));
            chains.fold(0, u32::wrapping_add)
        });
        let buffers = vec![("sums", BufferData::empty(want.len()))];
        let params = [("rounds", rounds), ("b", b)];
        out.push(Check::new(&dot, [GROUPS, 1, 1], buffers, &params, vec![("sums", want)]));
    }
    out
}

#[test]
fn roofline_numeric() {
    everywhere("roofline", 0, checks);
}

/// What a device's results are compared with, against walks through every step.
#[test]
fn what_results_must_be_is_known_without_computing_them() {
    for rounds in [1, 2, 5] {
        let n = roofline::read_words(rounds) * GROUPS;
        let want = sums_of(&filled(n), rounds);
        for (i, want) in want.iter().enumerate() {
            assert_eq!(roofline::read_sum(i as u32, rounds), *want, "{i}");
        }
    }
    for rounds in [0, 1, 1000] {
        for id in [0, 1, 77, WORKGROUP - 1] {
            let steps = rounds * UNROLL;
            let chains = (0..CHAINS).map(|c| (0..steps).fold((id * CHAINS + c) as f32, |acc, _| acc + 1.0));
            let want = chains.map(|c| c as i32).sum::<i32>().cast_unsigned();
            assert_eq!(roofline::f32_sum(id, rounds), want);
        }
    }
    let dots = roofline::dot_sums(20);
    for id in [0, 5, 31, 32, WORKGROUP - 1] {
        let chains = (0..CHAINS).map(|c| chain(roofline::dot_start(id, c), roofline::FACTORS, 20 * UNROLL));
        assert_eq!(dots[id as usize % dots.len()], chains.fold(0, u32::wrapping_add), "{id}");
    }
}

/// A chain that came to rest would say nothing of the dots after that.
#[test]
fn chains_of_dots_never_come_to_rest() {
    for class in 0..roofline::DOT_CLASSES {
        for c in 0..CHAINS {
            let mut acc = roofline::dot_start(class, c);
            for step in 0..20_000 {
                let next = chain(acc, roofline::FACTORS, 1);
                assert_ne!(next, acc, "chain {c} of {class} rests after {step} steps");
                acc = next;
            }
        }
    }
}
