//! Prompt lookup: what followed the last few tokens when they occurred before (Saxena 2023, "prompt lookup decoding").
//!
//! An index knows where each 3-, 2- and 1-gram was last followed by something: three entries a token, each found and
//! made in constant time. The longest match is looked back along, since a long one is far better evidence than a
//! short one; how often drafts of each length of match were right decides how many are proposed next time.

use std::collections::HashMap;

use super::Proposer;

/// Longest n-gram of the index.
const LONGEST: usize = 3;
/// Matches are followed back this far.
const LOOK_BACK: usize = 16;
/// What a row of a step costs, as a share of a step with one row. A draft pays while its chance to be right is greater.
const ROW_COST: f32 = 0.45;
/// Weight of the newest outcome in a class's rate of right drafts.
const NEWEST: f32 = 0.2;
/// Where drafts of a class do not pay, one in so many chances is tried with a single draft.
const PROBE_EVERY: u32 = 32;

/// Drafts from the sequence's own past.
#[derive(Clone, Debug)]
pub struct PromptLookup {
    /// Position after the last occurrence of each n-gram that something followed.
    index: HashMap<Gram, u32>,
    /// Tokens whose n-grams are in the index.
    indexed: usize,
    classes: [Class; 5],
    /// Class of the drafts last proposed.
    last: usize,
}

/// An n-gram: its tokens and their number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Gram([u32; LONGEST], u8);

/// Matches of about the same length.
#[derive(Clone, Copy, Debug)]
struct Class {
    /// Estimated chance that a draft is right when all before it were.
    rate: f32,
    /// Chances that passed while it did not pay.
    passed: u32,
}

impl Default for PromptLookup {
    fn default() -> Self {
        let class = |rate| Class { rate, passed: 0 };
        let classes = [class(0.2), class(0.3), class(0.5), class(0.75), class(0.9)];
        Self { index: HashMap::new(), indexed: 0, classes, last: 0 }
    }
}

impl Gram {
    /// The `n` tokens before `end`.
    fn before(tokens: &[u32], end: usize, n: usize) -> Option<Self> {
        let mut gram = [0; LONGEST];
        gram.get_mut(..n)?.copy_from_slice(tokens.get(end.checked_sub(n)?..end)?);
        Some(Self(gram, n as u8))
    }
}

/// Class of a match of `length` tokens.
fn class_of(length: usize) -> usize {
    match length {
        0..=1 => 0,
        2 => 1,
        3 => 2,
        4..=7 => 3,
        _ => 4,
    }
}

impl PromptLookup {
    /// Where the end of `tokens` occurred before: the position after it, and how many tokens agree.
    fn find(&self, tokens: &[u32]) -> Option<(usize, usize)> {
        let end = tokens.len();
        let (at, n) = (1..=LONGEST).rev().find_map(|n| {
            let &at = self.index.get(&Gram::before(tokens, end, n)?)?;
            Some((at as usize, n))
        })?;
        let agrees = |k: &usize| match (at.checked_sub(k + 1), end.checked_sub(k + 1)) {
            (Some(a), Some(b)) => tokens.get(a) == tokens.get(b),
            _ => false,
        };
        Some((at, n + (n..LOOK_BACK).take_while(agrees).count()))
    }
}

impl Class {
    /// Drafts worth proposing: those whose chance to be reached and right exceeds their cost.
    fn drafts(&mut self, most: usize) -> usize {
        let (mut chance, mut n) = (self.rate, 0);
        while n < most && chance >= ROW_COST {
            (chance, n) = (chance * self.rate, n + 1);
        }
        if n == 0 {
            self.passed += 1;
            if self.passed >= PROBE_EVERY {
                (self.passed, n) = (0, most.min(1));
            }
        }
        n
    }
}

impl Proposer for PromptLookup {
    fn propose(&mut self, tokens: &[u32], most: usize, drafts: &mut Vec<u32>) {
        // The n-grams that end with the last token are not followed by anything yet.
        for end in self.indexed + 1..tokens.len() {
            for n in 1..=LONGEST {
                if let Some(gram) = Gram::before(tokens, end, n) {
                    self.index.insert(gram, end as u32);
                }
            }
            self.indexed = end;
        }
        let Some((at, length)) = self.find(tokens) else { return };
        self.last = class_of(length);
        let n = self.classes.get_mut(self.last).map_or(0, |class| class.drafts(most));
        let first = drafts.len();
        for i in 0..n {
            // Beyond the end the text repeats itself with the drafts.
            let past = (at + i).checked_sub(tokens.len());
            let next = past.map_or_else(|| tokens.get(at + i), |i| drafts.get(first + i)).copied();
            drafts.extend(next);
        }
    }

    fn observe(&mut self, tried: usize, accepted: usize) {
        let Some(class) = self.classes.get_mut(self.last) else { return };
        let accepted = accepted.min(tried);
        for right in (0..accepted).map(|_| 1.0).chain((accepted < tried).then_some(0.0)) {
            class.rate += NEWEST * (right - class.rate);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn propose(p: &mut PromptLookup, tokens: &[u32], most: usize) -> Vec<u32> {
        let mut drafts = Vec::new();
        p.propose(tokens, most, &mut drafts);
        drafts
    }

    #[test]
    fn what_followed_before_is_proposed() {
        let mut p = PromptLookup::default();
        let text = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6];
        assert_eq!(propose(&mut p, &text, 2), [7, 8]);
        assert_eq!(p.last, class_of(6));
        assert!(propose(&mut PromptLookup::default(), &[1, 2, 3], 16).is_empty());
        assert!(propose(&mut PromptLookup::default(), &[], 16).is_empty());
    }

    #[test]
    fn the_latest_occurrence_wins_and_a_longer_match_before_it() {
        let mut p = PromptLookup::default();
        // "1 2 3" was followed by 4, later by 5; "2 3" alone even later by 6.
        assert_eq!(propose(&mut p, &[1, 2, 3, 4, 1, 2, 3, 5, 0, 2, 3, 6, 1, 2, 3], 1), [5]);
    }

    #[test]
    fn a_period_is_continued_beyond_the_end() {
        let mut p = PromptLookup::default();
        let text: Vec<u32> = (0..24).map(|i| i % 3).collect();
        p.classes.iter_mut().for_each(|c| c.rate = 1.0);
        assert_eq!(propose(&mut p, &text, 7), [0, 1, 2, 0, 1, 2, 0]);
    }

    #[test]
    fn the_index_grows_by_three_entries_a_token() {
        let mut p = PromptLookup::default();
        let text: Vec<u32> = (0..10_000).collect();
        for n in (0..=text.len()).step_by(100) {
            propose(&mut p, &text[..n], 16);
        }
        assert_eq!(p.index.len(), 3 * (text.len() - 1) - 3);
    }

    #[test]
    fn wrong_drafts_stand_down_and_right_ones_come_back() {
        let mut p = PromptLookup::default();
        let text: Vec<u32> = (0..20).chain(0..9).collect();
        let mut wasted = 0;
        for _ in 0..200 {
            let n = propose(&mut p, &text, 16).len();
            wasted += n;
            p.observe(n, 0);
        }
        assert!(wasted < 40, "{wasted} drafts of 200 steps were tried in vain");
        for _ in 0..200 {
            let n = propose(&mut p, &text, 16).len();
            p.observe(n, n);
        }
        assert_eq!(propose(&mut p, &text, 16).len(), 16);
    }
}
