//! A pool of equal blocks: reference counts, an LRU list of free ones, and the prefix index over full ones.

use std::collections::HashMap;

use hanzo_fusion::BLOCK_TOKENS;

/// Names the content of a published block and of all blocks before it. Two sequences with the same tokens meet in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PrefixId(u64);

impl PrefixId {
    /// The empty prefix.
    pub const ROOT: Self = Self(0);

    /// The `n`-th other empty prefix, `n` from 1. Blocks are numbered from the other end, so the two never meet.
    pub(super) fn root(n: u64) -> Self {
        Self(u64::MAX - n)
    }
}

/// Exact key of a full block: nothing is hashed away, so two prefixes can never be confused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    parent: PrefixId,
    tokens: [u32; BLOCK_TOKENS],
}

#[derive(Clone, Copy, Debug, Default)]
struct Block {
    refs: u32,
    published: Option<(Key, PrefixId)>,
    // Neighbours in the free list, valid while `refs == 0`.
    prev: Option<u32>,
    next: Option<u32>,
}

/// Fixed blocks, free ones in order of their last use. A published block that becomes free keeps its content until it is
/// allocated anew, and a lookup revives it.
#[derive(Debug)]
pub struct BlockPool {
    blocks: Vec<Block>,
    oldest: Option<u32>,
    newest: Option<u32>,
    n_free: usize,
    index: HashMap<Key, (u32, PrefixId)>,
    next_id: u64,
}

impl BlockPool {
    /// A pool of `n` free blocks.
    pub fn new(n: usize) -> Self {
        let n = n.min(u32::MAX as usize - 1);
        let mut pool = Self {
            blocks: vec![Block::default(); n],
            oldest: None,
            newest: None,
            n_free: 0,
            index: HashMap::new(),
            next_id: 1,
        };
        (0..n as u32).for_each(|block| pool.push_free(block));
        pool
    }

    /// All blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether the pool has no block at all.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Blocks that can be allocated.
    pub fn n_free(&self) -> usize {
        self.n_free
    }

    /// Takes the block that has been free for longest; what it held is forgotten.
    pub fn allocate(&mut self) -> Option<u32> {
        self.replace().map(|(block, _)| block)
    }

    /// As [`BlockPool::allocate`], with the name of the prefix that ended with what the block held.
    pub fn replace(&mut self) -> Option<(u32, Option<PrefixId>)> {
        let block = self.oldest?;
        self.unlink(block);
        let entry = self.blocks.get_mut(block as usize)?;
        entry.refs = 1;
        let forgotten = entry.published.take().map(|(key, id)| {
            self.index.remove(&key);
            id
        });
        Some((block, forgotten))
    }

    /// One more user of a block.
    pub fn retain(&mut self, block: u32) {
        let Some(entry) = self.blocks.get_mut(block as usize) else { return };
        entry.refs += 1;
        if entry.refs == 1 {
            self.unlink(block);
        }
    }

    /// One user less; without users the block is free, its content kept for a while.
    pub fn release(&mut self, block: u32) {
        let Some(entry) = self.blocks.get_mut(block as usize) else { return };
        debug_assert!(entry.refs > 0, "block {block} released once too often");
        entry.refs = entry.refs.saturating_sub(1);
        if entry.refs == 0 {
            self.push_free(block);
        }
    }

    /// Users of a block.
    pub fn refs(&self, block: u32) -> u32 {
        self.blocks.get(block as usize).map_or(0, |b| b.refs)
    }

    /// The block that holds `tokens` after the prefix `parent`, if it is still there. Takes no reference.
    pub fn lookup(&self, parent: PrefixId, tokens: &[u32; BLOCK_TOKENS]) -> Option<(u32, PrefixId)> {
        self.index.get(&Key { parent, tokens: *tokens }).copied()
    }

    /// Makes a full block findable. Returns the name of its prefix: that of an equal block published before, if any.
    pub fn publish(&mut self, block: u32, parent: PrefixId, tokens: &[u32; BLOCK_TOKENS]) -> PrefixId {
        let key = Key { parent, tokens: *tokens };
        if let Some(&(_, id)) = self.index.get(&key) {
            return id;
        }
        let id = PrefixId(self.next_id);
        let Some(entry) = self.blocks.get_mut(block as usize) else { return PrefixId::ROOT };
        if let Some((_, id)) = entry.published {
            return id;
        }
        self.next_id += 1;
        entry.published = Some((key, id));
        self.index.insert(key, (block, id));
        id
    }

    /// Forgets all content of free blocks and makes used ones unfindable.
    pub fn forget(&mut self) {
        self.index.clear();
        self.blocks.iter_mut().for_each(|b| b.published = None);
    }

    fn push_free(&mut self, block: u32) {
        let newest = self.newest.replace(block);
        if let Some(entry) = self.blocks.get_mut(block as usize) {
            (entry.prev, entry.next) = (newest, None);
        }
        match newest.and_then(|n| self.blocks.get_mut(n as usize)) {
            Some(n) => n.next = Some(block),
            None => self.oldest = Some(block),
        }
        self.n_free += 1;
    }

    fn unlink(&mut self, block: u32) {
        let Some(&Block { prev, next, .. }) = self.blocks.get(block as usize) else { return };
        match prev.and_then(|p| self.blocks.get_mut(p as usize)) {
            Some(p) => p.next = next,
            None => self.oldest = next,
        }
        match next.and_then(|n| self.blocks.get_mut(n as usize)) {
            Some(n) => n.prev = prev,
            None => self.newest = prev,
        }
        self.n_free -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_free_block_goes_first_and_forgets_its_content() {
        let mut pool = BlockPool::new(2);
        let a = pool.allocate().unwrap();
        let tokens = [7; BLOCK_TOKENS];
        let id = pool.publish(a, PrefixId::ROOT, &tokens);
        pool.release(a);
        assert_eq!(pool.lookup(PrefixId::ROOT, &tokens), Some((a, id)));
        let b = pool.allocate().unwrap();
        assert_ne!(a, b, "the never used block is older than the one just released");
        assert_eq!(pool.allocate(), Some(a));
        assert_eq!(pool.lookup(PrefixId::ROOT, &tokens), None);
        assert_eq!(pool.allocate(), None);
    }

    #[test]
    fn a_free_published_block_is_revived() {
        let mut pool = BlockPool::new(1);
        let a = pool.allocate().unwrap();
        pool.publish(a, PrefixId::ROOT, &[1; BLOCK_TOKENS]);
        pool.release(a);
        assert_eq!(pool.n_free(), 1);
        pool.retain(a);
        assert_eq!(pool.n_free(), 0);
        assert_eq!(pool.allocate(), None);
        pool.release(a);
        assert_eq!(pool.n_free(), 1);
    }

    #[test]
    fn equal_content_has_one_name() {
        let mut pool = BlockPool::new(2);
        let (a, b) = (pool.allocate().unwrap(), pool.allocate().unwrap());
        let tokens = [3; BLOCK_TOKENS];
        assert_eq!(pool.publish(a, PrefixId::ROOT, &tokens), pool.publish(b, PrefixId::ROOT, &tokens));
        assert_eq!(pool.lookup(PrefixId::ROOT, &tokens).unwrap().0, a);
    }
}
