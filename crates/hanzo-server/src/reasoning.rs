//! Reasoning and constraints: a grammar binds what comes after the reasoning, and a budget ends it.

use std::sync::Arc;

use hanzo_engine::Constraint;
use hanzo_engine::constraint::TokenMask;
use hanzo_text::tokenizer::Tokenizer;

/// Where a reply is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing but white space so far: the next may open reasoning.
    Start,
    /// Inside it.
    Reasoning,
    /// The budget is spent: the closing mark comes, token by token.
    Closing { next: usize },
    /// After it, or there was none.
    Content,
}

/// Lets reasoning pass freely, ends it after a number of tokens, and holds what follows to another constraint.
pub(crate) struct AfterReasoning {
    tokenizer: Arc<Tokenizer>,
    marks: (&'static str, &'static str),
    /// The closing mark in tokens.
    close_ids: Arc<[u32]>,
    phase: Phase,
    /// Tokens of reasoning that are left.
    budget: Option<usize>,
    /// The end of the text so far, as much as a mark may take.
    tail: Vec<u8>,
    inner: Option<Box<dyn Constraint>>,
}

impl AfterReasoning {
    /// For a reply that begins inside reasoning or not. Where it does not, and a constraint is given, that holds from the
    /// beginning.
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        marks: (&'static str, &'static str),
        close_ids: Vec<u32>,
        starts_inside: bool,
        budget: Option<usize>,
        inner: Option<Box<dyn Constraint>>,
    ) -> Self {
        let phase = match (starts_inside, &inner) {
            (true, _) => Phase::Reasoning,
            (false, None) => Phase::Start,
            (false, Some(_)) => Phase::Content,
        };
        let mut this =
            Self { tokenizer, marks, close_ids: close_ids.into(), phase, budget, tail: Vec::new(), inner };
        this.spend(0);
        this
    }

    /// Takes tokens of reasoning from the budget.
    fn spend(&mut self, n: usize) {
        if self.phase != Phase::Reasoning {
            return;
        }
        if let Some(left) = &mut self.budget {
            *left = left.saturating_sub(n);
            if *left == 0 && !self.close_ids.is_empty() {
                self.phase = Phase::Closing { next: 0 };
            }
        }
    }

    /// The text goes on with `bytes`; returns the phase and what of the bytes follows the mark.
    fn read(&mut self, bytes: &[u8]) -> usize {
        let before = self.tail.len();
        self.tail.extend_from_slice(bytes);
        let mark = if self.phase == Phase::Start { self.marks.0 } else { self.marks.1 };
        let found = find(&self.tail, mark.as_bytes());
        match (&self.phase, found) {
            (Phase::Start, Some(end)) => {
                self.phase = Phase::Reasoning;
                self.tail.drain(..end);
                0
            }
            (Phase::Start, None) => {
                let text = self.tail.trim_ascii_start();
                if !text.is_empty() && !mark.as_bytes().starts_with(text) {
                    self.phase = Phase::Content;
                }
                0
            }
            (_, Some(end)) => {
                self.phase = Phase::Content;
                let rest = self.tail.len().saturating_sub(end);
                self.tail.clear();
                rest
            }
            (_, None) => {
                let keep = (mark.len().saturating_sub(1)).min(before + bytes.len());
                self.tail.drain(..self.tail.len() - keep);
                0
            }
        }
    }
}

/// Where the first `needle` ends.
fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    if needle.is_empty() {
        return None;
    }
    text.windows(needle.len()).position(|w| w == needle).map(|at| at + needle.len())
}

fn all(vocab_size: usize) -> TokenMask {
    TokenMask::from_words(&vec![u32::MAX; vocab_size.div_ceil(32)], vocab_size)
}

impl Constraint for AfterReasoning {
    fn mask(&mut self, vocab_size: usize) -> Result<TokenMask, String> {
        match (&self.phase, &mut self.inner) {
            (Phase::Closing { next }, _) => {
                let mut mask = TokenMask::new(vocab_size);
                self.close_ids.get(*next).iter().for_each(|&&id| mask.allow(id));
                Ok(mask)
            }
            (Phase::Content, Some(inner)) => inner.mask(vocab_size),
            _ => {
                let mut mask = all(vocab_size);
                self.tokenizer.eog_ids().iter().for_each(|&id| mask.forbid(id));
                Ok(mask)
            }
        }
    }

    fn may_end(&mut self) -> Result<bool, String> {
        match (&self.phase, &mut self.inner) {
            (Phase::Content, Some(inner)) => inner.may_end(),
            (Phase::Closing { .. }, _) => Ok(false),
            (_, inner) => Ok(inner.is_none()),
        }
    }

    fn must_end(&mut self) -> bool {
        match (&self.phase, &mut self.inner) {
            (Phase::Content, Some(inner)) => inner.must_end(),
            _ => false,
        }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        match (&mut self.phase, &mut self.inner) {
            (Phase::Content, Some(inner)) => return inner.accept(token),
            (Phase::Content, None) => return Ok(()),
            (Phase::Closing { next }, _) => {
                *next += 1;
                if *next >= self.close_ids.len() {
                    self.phase = Phase::Content;
                    self.tail.clear();
                }
                return Ok(());
            }
            (Phase::Start | Phase::Reasoning, _) => {}
        }
        let bytes = self.tokenizer.token_bytes(token).unwrap_or_default().to_vec();
        let rest = self.read(&bytes);
        self.spend(1);
        let rest = bytes.get(bytes.len().saturating_sub(rest)..).unwrap_or_default();
        // The constraint cannot follow half a token; white space after the mark is nobody's.
        if self.inner.is_some() && !rest.trim_ascii().is_empty() {
            return Err("a token goes on beyond the end of the reasoning".to_owned());
        }
        Ok(())
    }

    fn admissible(&mut self, drafts: &[u32]) -> usize {
        match (&self.phase, &mut self.inner) {
            (Phase::Content, Some(inner)) => inner.admissible(drafts),
            (Phase::Content, None) => drafts.len(),
            // One after the other, so that no draft passes over the end unseen.
            _ => 0,
        }
    }

    fn forced(&mut self) -> Vec<u32> {
        match (&self.phase, &mut self.inner) {
            (Phase::Content, Some(inner)) => inner.forced(),
            _ => Vec::new(),
        }
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            tokenizer: Arc::clone(&self.tokenizer),
            marks: self.marks,
            close_ids: Arc::clone(&self.close_ids),
            phase: self.phase.clone(),
            budget: self.budget,
            tail: self.tail.clone(),
            inner: self.inner.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use hanzo_text::tokenizer::{TokenList, Vocab};

    use super::*;

    const TOKENS: [&str; 8] = ["a", "<think>", "</think>", "</th", "ink>", "b", "Ċ", "c"];

    fn constraint(inside: bool, budget: Option<usize>) -> AfterReasoning {
        let tokens = TokenList::from_strings(TOKENS.map(str::as_bytes)).unwrap();
        let merges = TokenList::from_strings([&b"a b"[..]]).unwrap();
        let vocab =
            Vocab { model: "gpt2".into(), pre: Some("gpt-2".into()), tokens, merges, ..Vocab::default() };
        let tokenizer = Arc::new(Tokenizer::new(vocab).unwrap());
        AfterReasoning::new(tokenizer, ("<think>", "</think>"), vec![2], inside, budget, None)
    }

    fn phases(c: &mut AfterReasoning, ids: &[u32]) -> Vec<Phase> {
        ids.iter()
            .map(|&id| {
                c.accept(id).unwrap();
                c.phase.clone()
            })
            .collect()
    }

    #[test]
    fn marks_are_seen_across_tokens() {
        use Phase::{Content, Reasoning, Start};
        assert_eq!(
            phases(&mut constraint(true, None), &[0, 3, 4, 0]),
            [Reasoning, Reasoning, Content, Content]
        );
        assert_eq!(
            phases(&mut constraint(false, None), &[6, 1, 0, 2]),
            [Start, Reasoning, Reasoning, Content]
        );
        assert_eq!(phases(&mut constraint(false, None), &[0, 1]), [Content, Content]);
    }

    #[test]
    fn a_spent_budget_forces_the_mark() {
        let mut c = constraint(true, Some(2));
        c.accept(0).unwrap();
        assert!(c.mask(8).unwrap().allows(7));
        c.accept(0).unwrap();
        let mask = c.mask(8).unwrap();
        assert_eq!((0..8).filter(|&id| mask.allows(id)).collect::<Vec<_>>(), [2]);
        assert!(!c.may_end().unwrap());
        c.accept(2).unwrap();
        assert!(c.mask(8).unwrap().allows(7) && c.may_end().unwrap());
        let mut none = constraint(true, Some(0));
        assert!(!none.mask(8).unwrap().allows(0), "no reasoning at all");
    }
}
