//! Block tables of sequences, over one pool a KV group.
//!
//! Groups differ in how long their blocks live: those of full attention as long as the sequence, those behind a
//! sliding window until the window has passed. A prefix can be reused where every group still has what the next
//! token will look at.
//!
//! One group, the lead, names prefixes: the first that sees everything, so that what is behind a window need not be
//! there for a name to be known. Pools of windowed groups are as large as their windows ask for ([`PoolSizes`]).

use hanzo_fusion::{BLOCK_TOKENS, KvLayer, StateSave};

use super::pool::{BlockPool, PrefixId};
use super::size::PoolSizes;
use super::states::{StatePool, StateSizes};

/// Marks a block that fell behind the window.
const GONE: u32 = u32::MAX;

/// The blocks of one sequence.
#[derive(Clone, Debug, Default)]
pub struct Tables {
    /// Per group, the physical block of each logical one.
    groups: Vec<Vec<u32>>,
    /// Per group, blocks at the front that were given back.
    gone: Vec<usize>,
    /// Names of the prefixes that end with each published block, by the lead group.
    published: Vec<PrefixId>,
    /// The empty prefix that its first block follows.
    root: PrefixId,
    recurrent: Recurrent,
}

/// The recurrent state of one sequence, of a model that has such.
#[derive(Clone, Debug, Default)]
struct Recurrent {
    /// Its slot.
    slot: Option<u32>,
    /// The checkpoint that it starts from.
    resume: Option<PrefixId>,
    /// Where the state after the next step's drafts goes.
    drafts: Option<u32>,
    /// States that the next step keeps: after so many tokens, in an extra slot.
    saves: Vec<Save>,
    /// The last checkpoint within the reply.
    latest: Option<PrefixId>,
}

#[derive(Clone, Copy, Debug)]
struct Save {
    tokens: usize,
    slot: u32,
    /// Takes the place of the one before.
    replaces: bool,
}

/// Where a step finds a sequence's recurrent state, and where it puts it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatePlan {
    /// The state before.
    pub from: u32,
    /// The state after all rows.
    pub to: u32,
    /// States on the way.
    pub saves: Vec<StateSave>,
}

impl Tables {
    /// Block tables, one a group, as a step wants them.
    pub fn slices(&self) -> impl Iterator<Item = &[u32]> {
        self.groups.iter().map(Vec::as_slice)
    }

    /// Tokens that the tables have room for.
    pub fn capacity(&self) -> usize {
        self.groups.iter().map(Vec::len).min().unwrap_or(0) * BLOCK_TOKENS
    }
}

/// Pools of all groups.
#[derive(Debug)]
pub struct KvManager {
    pools: Vec<BlockPool>,
    /// Widest window of each group; `None` where a layer sees everything.
    windows: Vec<Option<usize>>,
    /// The group that names prefixes.
    lead: usize,
    sizes: PoolSizes,
    prefix_cache: bool,
    /// Blocks that must be copied before the next step, per group.
    copies: Vec<Vec<(u32, u32)>>,
    roots: Roots,
    /// Of models with recurrent layers.
    states: Option<StatePool>,
    /// States that must be copied before the next step.
    state_copies: Vec<(u32, u32)>,
}

/// Adapters of a sequence, by id and the bits of their scales, in order.
type RootKey = [(u64, u32)];

/// Empty prefixes, one for each choice of adapters: keys and values depend on it, so prefixes under different ones never meet.
#[derive(Debug, Default)]
struct Roots {
    /// Those in use lately, the latest last.
    known: Vec<(Box<RootKey>, PrefixId)>,
    made: u64,
}

impl Roots {
    /// Choices that are remembered. What was cached under a forgotten one is not found again, and nothing else.
    const MOST: usize = 256;

    fn of(&mut self, key: &RootKey) -> PrefixId {
        if key.is_empty() {
            return PrefixId::ROOT;
        }
        let entry = match self.known.iter().position(|(k, _)| **k == *key) {
            Some(at) => self.known.remove(at),
            None => {
                self.made += 1;
                (key.into(), PrefixId::root(self.made))
            }
        };
        let id = entry.1;
        if self.known.len() == Self::MOST {
            self.known.remove(0);
        }
        self.known.push(entry);
        id
    }
}

impl KvManager {
    /// Pools for each group that `layers` name.
    pub fn new(layers: &[KvLayer], sizes: PoolSizes, prefix_cache: bool) -> Self {
        let n_groups = layers.iter().map(|l| l.group + 1).max().unwrap_or(0);
        let window = |group: usize| {
            let mut widest = Some(0);
            for layer in layers.iter().filter(|l| l.group == group) {
                widest = widest.zip(layer.window).map(|(a, b)| a.max(b as usize));
            }
            widest
        };
        let windows: Vec<Option<usize>> = (0..n_groups).map(window).collect();
        let lead = windows.iter().position(Option::is_none).unwrap_or(0);
        let n = |window: &Option<usize>| if window.is_some() { sizes.window } else { sizes.full };
        Self {
            pools: windows.iter().map(|w| BlockPool::new(n(w))).collect(),
            windows,
            lead,
            sizes,
            prefix_cache,
            copies: vec![Vec::new(); n_groups],
            roots: Roots::default(),
            states: None,
            state_copies: Vec::new(),
        }
    }

    /// The same for a model with recurrent states.
    #[must_use]
    pub fn with_states(self, sizes: Option<StateSizes>) -> Self {
        Self { states: sizes.map(StatePool::new), ..self }
    }

    /// Slots for recurrent states that no sequence has; those of checkpoints count.
    pub fn n_free_states(&self) -> usize {
        self.states.as_ref().map_or(0, StatePool::n_free)
    }

    /// Blocks of the lead group's pool: what all sequences together can hold.
    pub fn n_blocks(&self) -> usize {
        self.pools.get(self.lead).map_or(0, BlockPool::len)
    }

    /// Free blocks of the lead group's pool.
    pub fn n_free(&self) -> usize {
        self.pools.get(self.lead).map_or(0, BlockPool::n_free)
    }

    /// The empty prefix of sequences that use these adapters (id and bits of the scale, in order).
    pub fn prefix_root(&mut self, adapters: &[(u64, u32)]) -> PrefixId {
        self.roots.of(adapters)
    }

    /// Tables for a sequence of `tokens` under an empty prefix, with as many leading tokens as the prefix cache holds; returns their
    /// number, a multiple of the block size and less than `tokens.len()` (the last token must run to give logits).
    pub fn admit(&mut self, root: PrefixId, tokens: &[u32]) -> (Tables, usize) {
        let n_groups = self.pools.len();
        let mut tables = Tables {
            groups: vec![Vec::new(); n_groups],
            gone: vec![0; n_groups],
            published: Vec::new(),
            root,
            recurrent: Recurrent::default(),
        };
        if !self.prefix_cache {
            return (tables, 0);
        }
        let usable = tokens.len().saturating_sub(1) / BLOCK_TOKENS;
        let (chunks, _) = tokens.as_chunks::<BLOCK_TOKENS>();
        let chunks = chunks.get(..usable).unwrap_or_default();
        let Some(lead) = self.pools.get(self.lead) else { return (tables, 0) };
        let named = chain(lead, root, chunks);
        let found: Vec<Vec<Option<u32>>> =
            (0..n_groups).map(|g| self.find(g, root, chunks, &named)).collect();
        let n = self.longest_reusable(&found, &named);
        if self.states.is_some() {
            tables.recurrent.resume = n.checked_sub(1).and_then(|i| named.get(i)).map(|(_, id)| *id);
        }
        for (group, found) in found.iter().enumerate() {
            let first = self.first_needed(group, n * BLOCK_TOKENS).min(n);
            tables.groups[group].resize(first, GONE);
            for block in found.iter().take(n).skip(first).flatten() {
                self.pools[group].retain(*block);
                tables.groups[group].push(*block);
            }
            tables.gone[group] = first;
        }
        tables.published = named.into_iter().take(n).map(|(_, id)| id).collect();
        (tables, n * BLOCK_TOKENS)
    }

    /// The first logical block that a token at `position` looks at.
    fn first_needed(&self, group: usize, position: usize) -> usize {
        match self.windows.get(group) {
            Some(&Some(window)) => (position + 1).saturating_sub(window) / BLOCK_TOKENS,
            _ => 0,
        }
    }

    /// The blocks of a group that follow the prefixes which the lead group has named.
    fn find(
        &self,
        group: usize,
        root: PrefixId,
        chunks: &[[u32; BLOCK_TOKENS]],
        named: &[(u32, PrefixId)],
    ) -> Vec<Option<u32>> {
        if group == self.lead {
            return named.iter().map(|(block, _)| Some(*block)).collect();
        }
        let parents = std::iter::once(root).chain(named.iter().map(|(_, id)| *id));
        let pool = self.pools.get(group);
        let lookup = |(parent, chunk)| Some(pool?.lookup(parent, chunk)?.0);
        parents.zip(chunks).take(named.len()).map(lookup).collect()
    }

    /// Leading blocks, of those that are named, after which every group has what the next token looks at, and the recurrent state
    /// was kept if there is one.
    fn longest_reusable(&self, found: &[Vec<Option<u32>>], named: &[(u32, PrefixId)]) -> usize {
        let whole = |group: usize, blocks: &[Option<u32>], n: usize| {
            let first = self.first_needed(group, n * BLOCK_TOKENS).min(n);
            blocks.get(first..n).is_some_and(|b| b.iter().all(Option::is_some))
        };
        let kept = |n: usize| {
            let states = self.states.as_ref();
            states.is_none_or(|states| named.get(n - 1).is_some_and(|(_, id)| states.has(*id)))
        };
        let reusable =
            |n: &usize| kept(*n) && found.iter().enumerate().all(|(group, blocks)| whole(group, blocks, *n));
        (1..=named.len()).rev().find(reusable).unwrap_or(0)
    }

    /// Whether the tables could grow to `n_tokens` tokens, the first `n_computed` of which are cached.
    pub fn has_room(&self, tables: &Tables, n_computed: usize, n_tokens: usize) -> bool {
        let wanted = n_tokens.div_ceil(BLOCK_TOKENS);
        let state = |states: &StatePool| tables.recurrent.slot.is_some() || states.has_running();
        self.states.as_ref().is_none_or(state)
            && (0..self.pools.len()).all(|group| {
                let have = tables.groups.get(group).map_or(0, Vec::len);
                let copied = usize::from(self.shared(tables, group, n_computed).is_some());
                let more = wanted.saturating_sub(have) + copied;
                // On the way there, a windowed group gives blocks back.
                let held = have - tables.gone.get(group).map_or(0, |gone| (*gone).min(have));
                let most = self.sizes.window_sequence.saturating_sub(held);
                let more = if self.is_small(group) { more.min(most) } else { more };
                self.pools.get(group).is_some_and(|p| p.n_free() >= more)
            })
    }

    /// Whether the group's pool is one of the smaller kind.
    fn is_small(&self, group: usize) -> bool {
        group != self.lead && self.windows.get(group).is_some_and(Option::is_some)
    }

    /// The logical block that the token at `n_computed` would be written to, if others use it too. Only a block that is
    /// partly full can be: full ones are never written again.
    fn shared(&self, tables: &Tables, group: usize, n_computed: usize) -> Option<usize> {
        let at = n_computed / BLOCK_TOKENS;
        let block = *tables.groups.get(group)?.get(at)?;
        (self.pools.get(group)?.refs(block) > 1).then_some(at)
    }

    /// Makes room for `n_tokens` tokens, those from `n_computed` on to be written by the next step: a block that others use
    /// too is copied first (see [`KvManager::take_copies`]). On failure nothing has changed.
    ///
    /// # Errors
    /// [`NoBlocks`] when a pool has not enough free blocks.
    pub fn grow(&mut self, tables: &mut Tables, n_computed: usize, n_tokens: usize) -> Result<(), NoBlocks> {
        let wanted = n_tokens.div_ceil(BLOCK_TOKENS);
        if !self.has_room(tables, n_computed, n_tokens) {
            return Err(NoBlocks);
        }
        self.place_state(tables, n_computed)?;
        for group in 0..self.pools.len() {
            let shared = self.shared(tables, group, n_computed);
            let pool = self.pools.get_mut(group).ok_or(NoBlocks)?;
            let states = self.states.as_mut().filter(|_| group == self.lead);
            let table = tables.groups.get_mut(group).ok_or(NoBlocks)?;
            let mut forgotten = Vec::new();
            let mut allocate = || {
                let (block, prefix) = pool.replace()?;
                forgotten.extend(prefix);
                Some(block)
            };
            let mut left = None;
            if let Some(entry) = shared.and_then(|at| table.get_mut(at)) {
                let own = allocate().ok_or(NoBlocks)?;
                let from = std::mem::replace(entry, own);
                left = Some(from);
                self.copies.get_mut(group).ok_or(NoBlocks)?.push((from, own));
            }
            while table.len() < wanted {
                table.push(allocate().ok_or(NoBlocks)?);
            }
            if let Some(block) = left {
                pool.release(block);
            }
            // A checkpoint goes with the block that its prefix ends with.
            if let Some(states) = states {
                forgotten.into_iter().for_each(|prefix| states.forget(prefix));
            }
        }
        Ok(())
    }

    /// Gives a sequence that starts its slot, with the state that it starts from.
    fn place_state(&mut self, tables: &mut Tables, n_computed: usize) -> Result<(), NoBlocks> {
        let Some(states) = self.states.as_mut().filter(|_| tables.recurrent.slot.is_none()) else {
            return Ok(());
        };
        let resume = tables.recurrent.resume.and_then(|prefix| states.hit(prefix));
        if n_computed > 0 && resume.is_none() {
            return Err(NoBlocks);
        }
        let slot = states.take_running().ok_or(NoBlocks)?;
        self.state_copies.extend(resume.map(|from| (from, slot)));
        tables.recurrent = Recurrent { slot: Some(slot), ..Recurrent::default() };
        Ok(())
    }

    /// Room for the recurrent state after a sequence's drafts; false where there is none. True for models without.
    pub fn reserve_drafts(&mut self, tables: &mut Tables) -> bool {
        let Some(states) = &mut self.states else { return true };
        if tables.recurrent.drafts.is_none() {
            tables.recurrent.drafts = states.take_draft();
        }
        tables.recurrent.drafts.is_some()
    }

    /// Of drafts that ran, the first `accepted` were right. Returns how many of them count as computed: all that were accepted,
    /// but with recurrent states none if any was wrong, since the state after the right ones was not kept.
    pub fn settle_drafts(&mut self, tables: &mut Tables, n_drafts: usize, accepted: usize) -> usize {
        let Some(states) = &mut self.states else { return accepted };
        let Some(after) = tables.recurrent.drafts.take() else { return 0 };
        let all = n_drafts > 0 && accepted == n_drafts;
        match tables.recurrent.slot.as_mut().filter(|_| all) {
            Some(slot) => {
                states.give_draft(std::mem::replace(slot, after));
                accepted
            }
            None => {
                states.give_draft(after);
                0
            }
        }
    }

    /// Chooses which recurrent states the next step keeps for prefixes: it computes tokens `from .. to` for certain, of `n` that
    /// there are; `decodes` where they are a reply's last ones.
    pub fn plan_saves(&mut self, tables: &mut Tables, from: usize, to: usize, n: usize, decodes: bool) {
        let Some(states) = self.states.as_mut().filter(|_| self.prefix_cache) else { return };
        for tokens in states.borders(from, to, n) {
            let Some(slot) = states.take_extra() else { break };
            tables.recurrent.saves.push(Save { tokens, slot, replaces: decodes });
        }
        tables.recurrent.saves.sort_unstable_by_key(|save| save.tokens);
    }

    /// What the next step does with the sequence's recurrent state: `n_tokens` rows from token `n_computed` on, the last
    /// `n_drafts` of which are drafts. `None` for models without.
    pub fn state_plan(
        &self,
        tables: &Tables,
        n_computed: usize,
        n_tokens: usize,
        n_drafts: usize,
    ) -> Option<StatePlan> {
        let recurrent = &tables.recurrent;
        let slot = recurrent.slot?;
        let save = |s: &Save| StateSave { after: s.tokens.saturating_sub(n_computed), slot: s.slot };
        let mut saves: Vec<StateSave> = recurrent.saves.iter().map(save).collect();
        let to = match recurrent.drafts.filter(|_| n_drafts > 0) {
            None => slot,
            Some(after) => {
                saves.push(StateSave { after: n_tokens - n_drafts, slot });
                after
            }
        };
        Some(StatePlan { from: slot, to, saves })
    }

    /// Recurrent states `(from, to)` that must be copied before the next step, in this order.
    pub fn take_state_copies(&mut self) -> Vec<(u32, u32)> {
        std::mem::take(&mut self.state_copies)
    }

    /// Tables of another sequence with the same tokens so far, which shares all blocks and has a copy of the recurrent state;
    /// `None` where there is no slot for one.
    pub fn fork(&mut self, tables: &Tables) -> Option<Tables> {
        let mut recurrent = Recurrent::default();
        if let Some(states) = &mut self.states {
            let slot = states.take_running()?;
            self.state_copies.extend(tables.recurrent.slot.map(|from| (from, slot)));
            recurrent.slot = Some(slot);
        }
        for ((pool, table), gone) in self.pools.iter_mut().zip(&tables.groups).zip(&tables.gone) {
            table.iter().skip(*gone).for_each(|&block| pool.retain(block));
        }
        Some(Tables { recurrent, ..tables.clone() })
    }

    /// Blocks `(from, to)` of each group that must be copied before the next step, in this order.
    pub fn take_copies(&mut self) -> Vec<Vec<(u32, u32)>> {
        let none = vec![Vec::new(); self.copies.len()];
        std::mem::replace(&mut self.copies, none)
    }

    /// After a step: `tokens` are cached. Publishes blocks that became full and gives back those that fell behind
    /// every window.
    pub fn commit(&mut self, tables: &mut Tables, tokens: &[u32]) {
        if self.prefix_cache {
            self.publish(tables, tokens);
        }
        self.keep_states(tables);
        for group in 0..self.pools.len() {
            let first = self.first_needed(group, tokens.len());
            for i in tables.gone[group]..first.min(tables.groups[group].len()) {
                let block = std::mem::replace(&mut tables.groups[group][i], GONE);
                self.pools[group].release(block);
                tables.gone[group] = i + 1;
            }
        }
    }

    /// Names the states that the step kept by the prefixes that they follow.
    fn keep_states(&mut self, tables: &mut Tables) {
        let Some(states) = &mut self.states else { return };
        for save in std::mem::take(&mut tables.recurrent.saves) {
            let named = (save.tokens / BLOCK_TOKENS).checked_sub(1).and_then(|i| tables.published.get(i));
            let Some(&prefix) = named else {
                states.give_extra(save.slot);
                continue;
            };
            states.keep(prefix, save.slot);
            if save.replaces
                && let Some(before) = tables.recurrent.latest.replace(prefix)
                && before != prefix
            {
                states.outdate(before);
            }
        }
    }

    /// Makes blocks that became full findable in every group, under the lead group's names.
    fn publish(&mut self, tables: &mut Tables, tokens: &[u32]) {
        let (chunks, _) = tokens.as_chunks::<BLOCK_TOKENS>();
        for (i, chunk) in chunks.iter().enumerate().skip(tables.published.len()) {
            let parent = tables.published.last().copied().unwrap_or(tables.root);
            let mut name = None;
            for (group, (pool, table)) in self.pools.iter_mut().zip(&tables.groups).enumerate() {
                let Some(&block) = table.get(i) else { return };
                let id = pool.publish(block, parent, chunk);
                if group == self.lead {
                    name = Some(id);
                }
            }
            let Some(name) = name else { return };
            tables.published.push(name);
        }
    }

    /// Gives back all blocks of a sequence, its last block first, so that prefixes outlive their ends.
    pub fn release(&mut self, tables: Tables) {
        for ((pool, table), gone) in self.pools.iter_mut().zip(&tables.groups).zip(&tables.gone) {
            table.iter().skip(*gone).rev().for_each(|&block| pool.release(block));
        }
        if let Some(states) = &mut self.states {
            let Recurrent { slot, drafts, saves, .. } = tables.recurrent;
            slot.into_iter().for_each(|slot| states.give_running(slot));
            drafts.into_iter().for_each(|slot| states.give_draft(slot));
            saves.into_iter().for_each(|save| states.give_extra(save.slot));
        }
    }

    /// Forgets all cached prefixes.
    pub fn forget_prefixes(&mut self) {
        self.pools.iter_mut().for_each(BlockPool::forget);
        if let Some(states) = &mut self.states {
            states.forget_all();
        }
    }
}

/// Not enough free blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBlocks;

/// Blocks and names of the prefixes that a pool knows, from the first on.
fn chain(pool: &BlockPool, root: PrefixId, chunks: &[[u32; BLOCK_TOKENS]]) -> Vec<(u32, PrefixId)> {
    let mut parent = root;
    let mut found = Vec::new();
    for chunk in chunks {
        let Some(entry) = pool.lookup(parent, chunk) else { break };
        parent = entry.1;
        found.push(entry);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layer(window: Option<u32>, group: usize) -> KvLayer {
        KvLayer { n_kv_heads: 1, k_head_dim: 2, v_head_dim: 2, window, group }
    }

    #[test]
    fn a_prefix_is_found_again_and_shared() {
        let mut kv = KvManager::new(&[layer(None, 0)], PoolSizes::equal(8), true);
        let tokens: Vec<u32> = (0..40).collect();
        let (mut a, cached) = kv.admit(PrefixId::ROOT, &tokens);
        assert_eq!(cached, 0);
        kv.grow(&mut a, 0, 40).unwrap();
        kv.commit(&mut a, &tokens);
        let (b, cached) = kv.admit(PrefixId::ROOT, &tokens);
        assert_eq!(cached, 32);
        assert_eq!(b.groups[0][..2], a.groups[0][..2]);
        kv.release(a);
        kv.release(b);
        assert_eq!(kv.n_free(), 8);
        let (c, cached) = kv.admit(PrefixId::ROOT, &tokens[..32]);
        assert_eq!(cached, 16, "the last token must run, so its block is not reused");
        kv.release(c);
        assert_eq!(kv.n_free(), 8);
    }

    #[test]
    fn prefixes_under_different_adapters_never_meet() {
        let mut kv = KvManager::new(&[layer(None, 0)], PoolSizes::equal(16), true);
        let tokens: Vec<u32> = (0..40).collect();
        let choices: [&[(u64, u32)]; 5] = [&[], &[(0, 1)], &[(0, 2)], &[(1, 1)], &[(0, 1), (1, 1)]];
        for choice in choices {
            let root = kv.prefix_root(choice);
            let (mut a, cached) = kv.admit(root, &tokens);
            assert_eq!(cached, 0, "{choice:?}");
            kv.grow(&mut a, 0, 40).unwrap();
            kv.commit(&mut a, &tokens);
            kv.release(a);
        }
        for choice in choices {
            let root = kv.prefix_root(choice);
            let (a, cached) = kv.admit(root, &tokens);
            assert_eq!(cached, 32, "{choice:?}");
            kv.release(a);
        }
        let first = kv.prefix_root(choices[1]);
        for i in 0..Roots::MOST as u32 {
            kv.prefix_root(&[(7, i)]);
        }
        assert_ne!(kv.prefix_root(choices[1]), first, "forgotten, and not given to another");
        assert_eq!(kv.roots.known.len(), Roots::MOST);
    }

    #[test]
    fn blocks_behind_the_window_come_back() {
        let mut kv = KvManager::new(&[layer(None, 0), layer(Some(16), 1)], PoolSizes::equal(8), true);
        let tokens: Vec<u32> = (0..64).collect();
        let (mut a, _) = kv.admit(PrefixId::ROOT, &tokens);
        kv.grow(&mut a, 0, 64).unwrap();
        kv.commit(&mut a, &tokens);
        assert_eq!(kv.pools[0].n_free(), 4);
        // Token 64 sees 49 and later: block 3.
        assert_eq!(kv.pools[1].n_free(), 7);
        kv.release(a);
        assert_eq!((kv.pools[0].n_free(), kv.pools[1].n_free()), (8, 8));
    }

    /// Whatever chunks come, a windowed group has what the next rows look at and little more, and gives all of it back.
    #[test]
    fn windowed_groups_hold_their_window_only() {
        for (mut seed, window) in [(1usize, 1u32), (2, 16), (3, 37), (4, 100)] {
            let mut kv =
                KvManager::new(&[layer(None, 0), layer(Some(window), 1)], PoolSizes::equal(200), true);
            let most = (window as usize).div_ceil(BLOCK_TOKENS) + 1;
            for round in 0..6u32 {
                let tokens: Vec<u32> = (0..900).map(|i| i % (5 + round / 2)).collect();
                let (mut t, mut done) = kv.admit(PrefixId::ROOT, &tokens);
                while done < tokens.len() {
                    seed = (seed * 1_103_515_245 + 12_345) % (1 << 31);
                    let to = (done + 1 + (seed >> 8) % 70).min(tokens.len());
                    kv.grow(&mut t, done, to).unwrap();
                    let seen = kv.first_needed(1, done)..to.div_ceil(BLOCK_TOKENS);
                    assert!(t.groups[1][seen].iter().all(|b| *b != GONE), "{window}: {done} to {to}");
                    kv.commit(&mut t, &tokens[..to]);
                    done = to;
                    let held = t.groups[1].iter().filter(|b| **b != GONE).count();
                    assert!(held <= most, "{window}: {held} blocks at {done}");
                    assert_eq!(held, t.groups[1].len() - t.gone[1]);
                    assert_eq!(kv.pools[1].n_free(), 200 - held);
                }
                kv.release(t);
                assert_eq!((kv.pools[0].n_free(), kv.pools[1].n_free()), (200, 200));
            }
        }
    }

    /// Windowed pools of the size that their windows ask for are enough for any mix of chunks, and prefixes are found again
    /// as long as the last window of them is there.
    #[test]
    fn small_windowed_pools_never_run_out() {
        const SEQUENCES: usize = 3;
        const STEP: usize = 50;
        for (mut seed, window) in [(1usize, 1u32), (2, 16), (3, 37), (4, 100)] {
            let layers = [layer(Some(window), 0), layer(None, 1)];
            let needs = PoolSizes::needs(window as usize, SEQUENCES, STEP);
            assert!(needs < 60);
            // Nothing on top for prefixes.
            let sizes = PoolSizes { window: needs, ..PoolSizes::new(400, window as usize, SEQUENCES, STEP) };
            let mut kv = KvManager::new(&layers, sizes, true);
            assert_eq!((kv.n_blocks(), kv.pools[0].len()), (400, sizes.window));
            let mut random = |n: usize| {
                seed = (seed * 1_103_515_245 + 12_345) % (1 << 31);
                (seed >> 8) % n
            };
            let text = |kind: usize| (0..900u32).map(|i| i * (kind as u32 + 1) % 97).collect::<Vec<_>>();
            let mut running: Vec<(Vec<u32>, Tables, usize)> = Vec::new();
            let (mut ended, mut hits) = (0, 0);
            while ended < 40 {
                while running.len() < SEQUENCES {
                    let tokens = text(random(3));
                    let (tables, cached) = kv.admit(PrefixId::ROOT, &tokens);
                    assert!(kv.has_room(&tables, cached, tokens.len()), "{window}: {ended}");
                    hits += usize::from(cached > 0);
                    let seen = kv.first_needed(0, cached)..cached / BLOCK_TOKENS;
                    assert!(tables.groups[0][seen].iter().all(|b| *b != GONE));
                    running.push((tokens, tables, cached));
                }
                let mut budget = STEP;
                let mut grown = Vec::new();
                for (tokens, tables, done) in &mut running {
                    let to = (*done + random(budget + 1)).min(tokens.len());
                    budget -= to - *done;
                    kv.grow(tables, *done, to).unwrap();
                    grown.push(to);
                }
                for ((tokens, tables, done), to) in running.iter_mut().zip(grown) {
                    kv.commit(tables, &tokens[..to]);
                    *done = to;
                }
                for (_, tables, _) in running.extract_if(.., |(tokens, _, done)| *done == tokens.len()) {
                    ended += 1;
                    kv.release(tables);
                }
                let held =
                    |g: usize| running.iter().map(|r| r.1.groups[g].len() - r.1.gone[g]).sum::<usize>();
                assert!(kv.pools[0].n_free() + held(0) >= sizes.window, "blocks that are shared count once");
            }
            running.into_iter().for_each(|(_, tables, _)| kv.release(tables));
            assert_eq!((kv.pools[0].n_free(), kv.n_free()), (sizes.window, 400));
            assert!(hits > 10, "{window}: {hits} prefixes of {ended} were found");
        }
    }

    #[test]
    fn growing_beyond_the_pool_changes_nothing() {
        let mut kv = KvManager::new(&[layer(None, 0)], PoolSizes::equal(2), true);
        let (mut a, _) = kv.admit(PrefixId::ROOT, &[1, 2, 3]);
        assert_eq!(kv.grow(&mut a, 0, 33), Err(NoBlocks));
        assert_eq!(kv.n_free(), 2);
        assert_eq!(kv.grow(&mut a, 0, 32), Ok(()));
    }

    #[test]
    fn the_writer_of_a_shared_block_copies_it() {
        let mut kv = KvManager::new(&[layer(None, 0)], PoolSizes::equal(5), true);
        let tokens: Vec<u32> = (0..20).collect();
        let (mut a, _) = kv.admit(PrefixId::ROOT, &tokens);
        kv.grow(&mut a, 0, 20).unwrap();
        kv.commit(&mut a, &tokens);
        let (mut b, mut c) = (kv.fork(&a).unwrap(), kv.fork(&a).unwrap());
        assert_eq!(kv.n_free(), 3);
        for t in [&mut b, &mut c] {
            kv.grow(t, 20, 21).unwrap();
        }
        kv.grow(&mut a, 20, 21).unwrap();
        assert_eq!(kv.n_free(), 1, "the last user keeps the block");
        let copies = kv.take_copies();
        assert_eq!(copies[0].len(), 2);
        assert!(copies[0].iter().all(|c| c.0 == a.groups[0][1]));
        assert_eq!(copies[0][0].1, b.groups[0][1]);
        assert!(kv.take_copies()[0].is_empty());
        // The full block is shared still.
        assert!(a.groups[0][0] == b.groups[0][0] && b.groups[0][0] == c.groups[0][0]);
        [a, b, c].into_iter().for_each(|t| kv.release(t));
        assert_eq!(kv.n_free(), 5);
    }
}
