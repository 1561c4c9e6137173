//! No bytes make the reader panic: the fuzzer's corpus replayed, and files spoiled at random (with a fixed seed).

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

mod common;
#[path = "common/exercise.rs"]
mod exercise;

use std::path::Path;

use exercise::exercise;

/// splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n.max(1) as u64) as usize
    }
}

/// Numbers at which counts and lengths tend to break.
const EDGES: [u64; 12] = [
    0,
    1,
    2,
    9,
    13,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

fn spoil(bytes: &mut Vec<u8>, random: &mut Random) {
    let at = random.below(bytes.len() + 1);
    match random.below(7) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, random.below(256) as u8),
        2 => drop(bytes.splice(at..at, bytes.clone().into_iter().take(64))),
        3 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
        4 if at < bytes.len() => drop(bytes.remove(at)),
        _ => {
            let edge = EDGES[random.below(EDGES.len())].wrapping_add(random.below(3) as u64).wrapping_sub(1);
            let width = [1, 2, 4, 8][random.below(4)];
            for (byte, new) in bytes.iter_mut().skip(at).zip(&edge.to_le_bytes()[..width]) {
                *byte = *new;
            }
        }
    }
}

#[test]
fn spoiled_files_never_panic() {
    let mut random = Random(20);
    let mut opened = 0;
    for (_, seed) in common::seeds() {
        for _ in 0..3000 {
            let mut bytes = seed.clone();
            for _ in 0..=random.below(3) {
                spoil(&mut bytes, &mut random);
            }
            opened += usize::from(exercise(&bytes));
        }
    }
    // Otherwise only the refusals were tried.
    assert!(opened > 1000, "only {opened} opened");
}

#[test]
fn corpus_of_the_fuzzer() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/gguf");
    let mut opened = 0;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        opened += usize::from(exercise(&std::fs::read(&path).unwrap()));
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    for (name, _) in common::seeds() {
        assert!(names.iter().any(|there| there == name), "{name} is not in {}", folder.display());
    }
    assert!(opened >= 7, "only {opened} opened");
}
