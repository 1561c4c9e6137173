//! What measures a device.

use super::super::roofline::{self, FACTORS, WORKGROUP, read_words};
use super::super::variants::Variants;
use super::{Instance, Launch};

/// Rounds of each: a GiB is read, and the arithmetic takes a large device some milliseconds.
const READ_ROUNDS: u32 = 4;
const ROUNDS: u32 = 128;
/// Words that are read.
const WORDS: u32 = 1 << 28;
/// Workgroups of the arithmetic.
const GROUPS: u32 = 16_384;

pub(super) fn all(subgroup: u32, _: &Variants) -> Vec<Instance> {
    let one = |name, kernel, shape: String, groups, params| {
        Instance::new(name, kernel, Launch { shape, grid: [groups, 1, 1], params, reads: vec![] })
    };
    let steps = format!("{GROUPS} workgroups of {WORKGROUP}, {ROUNDS} rounds");
    let float = 1f32.to_bits();
    vec![
        one("roofline_fill", roofline::fill(subgroup), "1 GiB".to_owned(), 4096, vec![("n", WORDS)]),
        one(
            "roofline_read",
            roofline::read(subgroup),
            "1 GiB".to_owned(),
            WORDS / read_words(READ_ROUNDS),
            vec![("rounds", READ_ROUNDS)],
        ),
        one(
            "roofline_int8",
            roofline::int8_dot(subgroup),
            steps.clone(),
            GROUPS,
            vec![("rounds", ROUNDS), ("b", FACTORS)],
        ),
        one(
            "roofline_f32",
            roofline::f32_fma(subgroup),
            steps,
            GROUPS,
            vec![("rounds", ROUNDS), ("factor", float), ("step", float)],
        ),
    ]
}
