//! Hash tables of the tokenizers: token spellings to ids, and pairs of ids to merges.
//!
//! Both are open-addressed with linear probing and built once. The hash is a folded multiply under a seed drawn per
//! table, so that a vocabulary cannot be crafted to collide.

use super::vocab::TokenList;
use std::hash::{BuildHasher, RandomState};

const K: u64 = 0x9E37_79B9_7F4A_7C15;

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let p = u128::from(a).wrapping_mul(u128::from(b));
    (p as u64) ^ ((p >> 64) as u64)
}

fn seed() -> u64 {
    RandomState::new().hash_one(K) | 1
}

/// Eight bytes that, with the length, determine a string of up to eight bytes; of a longer one, its first eight.
#[inline]
fn word(bytes: &[u8]) -> u64 {
    if let Some(head) = bytes.first_chunk::<8>() {
        return u64::from_le_bytes(*head);
    }
    match (bytes.first_chunk::<4>(), bytes.last_chunk::<4>()) {
        (Some(head), Some(tail)) => {
            u64::from(u32::from_le_bytes(*head)) | u64::from(u32::from_le_bytes(*tail)) << 32
        }
        _ => match *bytes {
            [a, b, c] => u64::from(a) | u64::from(b) << 8 | u64::from(c) << 16,
            [a, b] => u64::from(a) | u64::from(b) << 8,
            [a] => u64::from(a),
            _ => 0,
        },
    }
}

/// Hash of a byte string under `seed`.
#[inline]
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    hash_with_word(seed, bytes, word(bytes))
}

#[inline]
fn hash_with_word(seed: u64, bytes: &[u8], word: u64) -> u64 {
    let mut h = fold(word ^ seed, (bytes.len() as u64).wrapping_mul(K) ^ K ^ seed.rotate_left(32));
    if let Some((_, rest)) = bytes.split_first_chunk::<8>() {
        let (chunks, _) = rest.as_chunks::<8>();
        for c in chunks {
            h = fold(h ^ u64::from_le_bytes(*c), K ^ seed);
        }
        // What is left overlaps the chunk before it.
        if let Some(tail) = bytes.last_chunk::<8>() {
            h = fold(h ^ u64::from_le_bytes(*tail), K ^ seed);
        }
    }
    h
}

/// Spelling → id. Strings of up to eight bytes, nearly all that are looked up, are compared inside their slot; longer ones
/// in the list that the table was built from.
#[derive(Debug)]
pub(crate) struct ByteMap {
    seed: u64,
    mask: usize,
    slots: Vec<Slot>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    word: u64,
    /// Upper 24 bits of the hash, and the length, at most 255.
    tag: u32,
    /// Id + 1, 0 when free.
    id: u32,
}

#[inline]
fn tag(hash: u64, len: usize) -> u32 {
    (hash >> 40 << 8) as u32 | len.min(255) as u32
}

impl ByteMap {
    /// A table with room for `n` keys.
    pub(crate) fn with_capacity(n: usize) -> Self {
        let size = (n.max(4) + n / 3).next_power_of_two();
        Self { seed: seed(), mask: size - 1, slots: vec![Slot::default(); size] }
    }

    /// Inserts `list[id]`, which must be called at most as often as the capacity says. Returns the id that already
    /// has this spelling, if any, and then changes nothing.
    pub(crate) fn insert(&mut self, list: &TokenList, id: u32) -> Option<u32> {
        let key = list.get(id as usize)?;
        let word = word(key);
        let h = hash_with_word(self.seed, key, word);
        let tag = tag(h, key.len());
        let mut i = h as usize & self.mask;
        for _ in 0..=self.mask {
            let slot = self.slots.get_mut(i)?;
            if slot.id == 0 {
                *slot = Slot { word, tag, id: id + 1 };
                return None;
            }
            if slot.tag == tag && slot.word == word && is_key(slot, list, key) {
                return Some(slot.id - 1);
            }
            i = (i + 1) & self.mask;
        }
        None
    }

    /// Id of `key`.
    #[inline]
    pub(crate) fn get(&self, list: &TokenList, key: &[u8]) -> Option<u32> {
        let word = word(key);
        let h = hash_with_word(self.seed, key, word);
        let tag = tag(h, key.len());
        let mut i = h as usize & self.mask;
        for _ in 0..=self.mask {
            let slot = self.slots.get(i)?;
            if slot.tag == tag && slot.word == word && is_key(slot, list, key) {
                return Some(slot.id - 1);
            }
            if slot.id == 0 {
                return None;
            }
            i = (i + 1) & self.mask;
        }
        None
    }
}

/// Whether the key of a slot whose tag and word are those of `key` is `key`.
#[inline]
fn is_key(slot: &Slot, list: &TokenList, key: &[u8]) -> bool {
    slot.id != 0 && (key.len() <= 8 || list.get(slot.id as usize - 1) == Some(key))
}

/// A merge over ids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Merge {
    pub(crate) left: u32,
    pub(crate) right: u32,
    pub(crate) rank: u32,
    pub(crate) merged: u32,
}

/// Pair of ids → (rank, merged id).
#[derive(Debug)]
pub(crate) struct PairMap {
    seed: u64,
    mask: usize,
    /// Key (left << 32 | right) and value (rank << 32 | merged id); key `EMPTY` marks a free slot.
    slots: Vec<(u64, u64)>,
}

const EMPTY: u64 = u64::MAX;

impl PairMap {
    /// The table of `merges`. Of equal pairs the first counts.
    ///
    /// The table outgrows the processor's caches, so merges are first brought into the order of the table's regions.
    pub(crate) fn new(merges: &[Merge]) -> Self {
        let n = merges.len();
        let size = (n.max(4) + n / 3).next_power_of_two();
        let mut map = Self { seed: seed(), mask: size - 1, slots: vec![(EMPTY, 0); size] };
        let region_bits = size.trailing_zeros().saturating_sub(12).min(8);
        let region = |start: usize| start >> (size.trailing_zeros() - region_bits);

        let mut ends = vec![0usize; (1 << region_bits) + 1];
        let slots: Vec<(u64, u64)> = merges
            .iter()
            .map(|&Merge { left, right, rank, merged }| {
                let key = u64::from(left) << 32 | u64::from(right);
                if let Some(end) = ends.get_mut(region(map.start(key)) + 1) {
                    *end += 1;
                }
                (key, u64::from(rank) << 32 | u64::from(merged))
            })
            .collect();
        for i in 1..ends.len() {
            ends[i] += ends[i - 1];
        }
        let mut ordered = vec![(EMPTY, 0); n];
        for slot in slots {
            if let Some(next) = ends.get_mut(region(map.start(slot.0))) {
                if let Some(place) = ordered.get_mut(*next) {
                    *place = slot;
                }
                *next += 1;
            }
        }
        for slot in ordered {
            map.insert(slot);
        }
        map
    }

    #[inline]
    fn start(&self, key: u64) -> usize {
        fold(key ^ self.seed, K) as usize & self.mask
    }

    fn insert(&mut self, new: (u64, u64)) {
        let mut i = self.start(new.0);
        for _ in 0..=self.mask {
            let Some(slot) = self.slots.get_mut(i) else { return };
            if slot.0 == EMPTY {
                *slot = new;
                return;
            }
            if slot.0 == new.0 {
                return;
            }
            i = (i + 1) & self.mask;
        }
    }

    /// Rank and merged id of a pair.
    #[inline]
    pub(crate) fn get(&self, left: u32, right: u32) -> Option<(u32, u32)> {
        let key = u64::from(left) << 32 | u64::from(right);
        let mut i = self.start(key);
        for _ in 0..=self.mask {
            let &(k, v) = self.slots.get(i)?;
            if k == EMPTY {
                return None;
            }
            if k == key {
                return Some(((v >> 32) as u32, v as u32));
            }
            i = (i + 1) & self.mask;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_first_wins() {
        let words: Vec<String> = (0..5000).map(|i| format!("w{}", i * i % 4001)).collect();
        let list = TokenList::from_strings(words.iter().map(|w| w.as_bytes())).unwrap();
        let mut map = ByteMap::with_capacity(list.len());
        for id in 0..list.len() as u32 {
            let first = words.iter().position(|w| *w == words[id as usize]).unwrap() as u32;
            assert_eq!(map.insert(&list, id), (first != id).then_some(first));
        }
        for w in &words {
            let first = words.iter().position(|v| v == w).unwrap() as u32;
            assert_eq!(map.get(&list, w.as_bytes()), Some(first));
        }
        assert_eq!(map.get(&list, b"absent"), None);
        assert_eq!(map.get(&list, b""), None);
    }

    #[test]
    fn pairs_round_trip_and_first_wins() {
        let merge = |left, rank, merged| Merge { left, right: left * 7 % 11, rank, merged };
        for n in [0, 1, 100, 3000, 40_000] {
            let mut merges: Vec<_> = (0..n).map(|i| merge(i, i, i + 1)).collect();
            merges.extend((0..n).map(|i| merge(i, n + i, 0)));
            let map = PairMap::new(&merges);
            for i in 0..n {
                assert_eq!(map.get(i, i * 7 % 11), Some((i, i + 1)));
                assert_eq!(map.get(i, 12), None);
            }
            assert_eq!(map.get(u32::MAX, u32::MAX), None);
        }
    }
}
