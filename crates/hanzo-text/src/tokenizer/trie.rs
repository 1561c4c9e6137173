//! A trie over token bytes: all tokens that start at a position, in one walk.
//!
//! Nodes lie in breadth-first order, so the children of node `i` are the nodes `first[i]..first[i + 1]`, sorted by label:
//! nine bytes a node and no pointers. Built from the sorted tokens in one pass.

use super::TokenizerError;
use super::vocab::TokenList;

/// Longer tokens are left out: no text is tokenized into them, and they would only cost memory.
pub(crate) const MAX_DEPTH: usize = 1024;
const MAX_NODES: usize = 1 << 25;
const NONE: u32 = u32::MAX;

/// The trie.
#[derive(Debug)]
pub(crate) struct Trie {
    labels: Vec<u8>,
    values: Vec<u32>,
    first: Vec<u32>,
    /// Children of the root by label, 0 for none.
    root: Box<[u32; 256]>,
}

impl Trie {
    /// A trie over `tokens[id]` for the given ids. Of equal tokens the lowest id is kept; empty ones are left out.
    pub(crate) fn new(tokens: &TokenList, ids: impl Iterator<Item = u32>) -> Result<Self, TokenizerError> {
        let get = |id: u32| tokens.get(id as usize).unwrap_or_default();
        let mut sorted: Vec<(u64, u32)> = ids
            .filter(|&id| (1..=MAX_DEPTH).contains(&get(id).len()))
            .map(|id| (prefix(get(id)), id))
            .collect();
        sorted
            .sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| get(a.1).cmp(get(b.1))).then(a.1.cmp(&b.1)));
        sorted.dedup_by(|b, a| get(a.1) == get(b.1));

        let mut trie = Self { labels: vec![0], values: vec![NONE], first: vec![1], root: Box::new([0; 256]) };
        // Each node's tokens: a range of `sorted`, all sharing the node's prefix.
        let mut level: Vec<(u32, u32)> = vec![(0, sorted.len() as u32)];
        for depth in 0..=MAX_DEPTH {
            let mut next = Vec::new();
            for &(lo, hi) in &level {
                let mut lo = lo as usize;
                while lo < hi as usize {
                    let Some(&(_, id)) = sorted.get(lo) else { break };
                    let Some(&label) = get(id).get(depth) else {
                        lo += 1; // the token that ends at this node
                        continue;
                    };
                    let same = |&(_, id): &(u64, u32)| get(id).get(depth) == Some(&label);
                    let rest = sorted.get(lo..hi as usize).unwrap_or_default();
                    let count = rest.partition_point(same).max(1);
                    let ends_here = get(id).len() == depth + 1;
                    trie.labels.push(label);
                    trie.values.push(if ends_here { id } else { NONE });
                    next.push((lo as u32, (lo + count) as u32));
                    lo += count;
                }
                trie.first.push(trie.labels.len() as u32);
            }
            if trie.labels.len() > MAX_NODES {
                return Err(TokenizerError::TooLarge {
                    what: "number of trie nodes",
                    found: trie.labels.len(),
                    limit: MAX_NODES,
                });
            }
            if next.is_empty() {
                break;
            }
            level = next;
        }
        let (begin, end) = trie.children(0);
        for node in begin..end {
            let label = usize::from(trie.labels.get(node as usize).copied().unwrap_or(0));
            if let Some(slot) = trie.root.get_mut(label) {
                *slot = node;
            }
        }
        Ok(trie)
    }

    #[inline]
    fn children(&self, node: u32) -> (u32, u32) {
        let at = |i: usize| self.first.get(i).copied().unwrap_or(self.labels.len() as u32);
        (at(node as usize), at(node as usize + 1))
    }

    #[inline]
    fn child(&self, node: u32, label: u8) -> Option<u32> {
        let (begin, end) = self.children(node);
        let labels = self.labels.get(begin as usize..end as usize)?;
        let i = if labels.len() <= 8 {
            labels.iter().position(|&l| l == label)?
        } else {
            labels.binary_search(&label).ok()?
        };
        Some(begin + i as u32)
    }

    /// Calls `found(length, id)` for every token that `text` starts with, shortest first.
    #[inline]
    pub(crate) fn prefixes(&self, text: &[u8], mut found: impl FnMut(usize, u32)) {
        let Some((&b0, rest)) = text.split_first() else { return };
        let mut node = self.root.get(usize::from(b0)).copied().unwrap_or(0);
        if node == 0 {
            return;
        }
        let mut len = 1;
        let mut rest = rest.iter();
        loop {
            let value = self.values.get(node as usize).copied().unwrap_or(NONE);
            if value != NONE {
                found(len, value);
            }
            let Some(next) = rest.next().and_then(|&b| self.child(node, b)) else { return };
            node = next;
            len += 1;
        }
    }

    /// Id of the token with exactly these bytes.
    pub(crate) fn get(&self, bytes: &[u8]) -> Option<u32> {
        let mut id = None;
        self.prefixes(bytes, |len, found| {
            if len == bytes.len() {
                id = Some(found);
            }
        });
        id
    }
}

/// The first eight bytes, such that numbers order as strings do where they differ.
fn prefix(s: &[u8]) -> u64 {
    let mut w = [0u8; 8];
    for (d, s) in w.iter_mut().zip(s) {
        *d = *s;
    }
    u64::from_be_bytes(w)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_scan_finds(
            words in proptest::collection::vec(proptest::collection::vec(prop_oneof![0u8..3, any::<u8>()], 0..12), 0..60),
            text in proptest::collection::vec(prop_oneof![0u8..3, any::<u8>()], 0..16),
        ) {
            let list = TokenList::from_strings(words.iter().map(Vec::as_slice)).unwrap();
            let trie = Trie::new(&list, 0..list.len() as u32).unwrap();
            let mut got = Vec::new();
            trie.prefixes(&text, |len, id| got.push((len, id)));
            let mut want = Vec::new();
            for len in 1..=text.len() {
                if let Some(id) = words.iter().position(|w| w[..] == text[..len]) {
                    want.push((len, id as u32));
                }
            }
            prop_assert_eq!(got, want);
            for w in words.iter().filter(|w| !w.is_empty()) {
                prop_assert_eq!(trie.get(w), words.iter().position(|v| v == w).map(|i| i as u32));
            }
        }
    }
}
