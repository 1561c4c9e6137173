//! A constraint that sleeps until the reply writes a mark: free text, and calls that keep to their schema.

use std::sync::Arc;

use hanzo_engine::Constraint;
use hanzo_engine::constraint::TokenMask;
use hanzo_text::tokenizer::{EncodeOptions, Tokenizer};

/// Lets text pass freely; after each mark, what follows is held to a grammar until that is complete.
pub(crate) struct OnMark {
    tokenizer: Arc<Tokenizer>,
    mark: &'static str,
    /// Whether the reply ends with the first.
    once: bool,
    /// The end of the text so far, shorter than the mark.
    tail: Vec<u8>,
    /// The grammar at its beginning.
    fresh: Box<dyn Constraint>,
    /// The grammar on its way.
    active: Option<Box<dyn Constraint>>,
    ended: bool,
}

impl OnMark {
    /// Free text at first.
    pub(crate) fn new(
        tokenizer: Arc<Tokenizer>,
        mark: &'static str,
        once: bool,
        fresh: Box<dyn Constraint>,
    ) -> Self {
        Self { tokenizer, mark, once, tail: Vec::new(), fresh, active: None, ended: false }
    }

    /// Wakes the grammar if the text that goes on with `bytes` has the mark; what follows it is the grammar's.
    fn read(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.tail.extend_from_slice(bytes);
        let mark = self.mark.as_bytes();
        match self.tail.windows(mark.len().max(1)).position(|w| w == mark) {
            Some(at) => {
                let rest = self.tail.split_off(at + mark.len());
                self.tail.clear();
                let mut active = self.fresh.clone();
                let plain = EncodeOptions { add_special: false, parse_special: false };
                let rest = self.tokenizer.encode(&String::from_utf8_lossy(&rest), plain).unwrap_or_default();
                rest.into_iter().try_for_each(|id| active.accept(id))?;
                self.active = Some(active);
            }
            None => {
                let keep = self.tail.len().min(mark.len().saturating_sub(1));
                self.tail.drain(..self.tail.len() - keep);
            }
        }
        Ok(())
    }
}

impl Constraint for OnMark {
    fn mask(&mut self, vocab_size: usize) -> Result<TokenMask, String> {
        match &mut self.active {
            Some(active) => active.mask(vocab_size),
            None => Ok(TokenMask::from_words(&vec![u32::MAX; vocab_size.div_ceil(32)], vocab_size)),
        }
    }

    fn may_end(&mut self) -> Result<bool, String> {
        self.active.as_mut().map_or(Ok(true), |active| active.may_end())
    }

    fn must_end(&mut self) -> bool {
        self.ended
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        let Some(active) = &mut self.active else {
            let bytes = self.tokenizer.token_bytes(token).unwrap_or_default().to_vec();
            return self.read(&bytes);
        };
        active.accept(token)?;
        if active.must_end() {
            self.active = None;
            self.ended = self.once;
        }
        Ok(())
    }

    fn admissible(&mut self, drafts: &[u32]) -> usize {
        // In free text one after the other, so that no draft passes over a mark unseen.
        self.active.as_mut().map_or(0, |active| active.admissible(drafts))
    }

    fn forced(&mut self) -> Vec<u32> {
        self.active.as_mut().map_or_else(Vec::new, |active| active.forced())
    }

    fn boxed_clone(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            tokenizer: Arc::clone(&self.tokenizer),
            mark: self.mark,
            once: self.once,
            tail: self.tail.clone(),
            fresh: self.fresh.clone(),
            active: self.active.clone(),
            ended: self.ended,
        })
    }
}

#[cfg(test)]
mod tests {
    use hanzo_engine::constraint::{Grammar, GrammarCompiler};
    use hanzo_text::tokenizer::{TokenList, Vocab};

    use super::*;

    const TOKENS: [&str; 7] = ["<ca", "ll>", "x", "1", "2", ">", "<"];

    fn constraint(once: bool) -> OnMark {
        let tokens = TokenList::from_strings(TOKENS.map(str::as_bytes)).unwrap();
        let merges = TokenList::from_strings([&b"x x"[..]]).unwrap();
        let vocab =
            Vocab { model: "gpt2".into(), pre: Some("gpt-2".into()), tokens, merges, ..Vocab::default() };
        let tokenizer = Arc::new(Tokenizer::new(vocab).unwrap());
        let compiler = GrammarCompiler::new(Arc::clone(&tokenizer)).unwrap();
        let grammar = compiler.compile(&Grammar::Lark("start: \"12\" \">\"".to_owned())).unwrap();
        OnMark::new(tokenizer, "<call>", once, grammar)
    }

    fn allowed(c: &mut OnMark) -> Vec<u32> {
        let mask = c.mask(7).unwrap();
        (0..7).filter(|&id| mask.allows(id)).collect()
    }

    #[test]
    fn after_the_mark_only_the_grammar_counts() {
        let mut c = constraint(false);
        for id in [2, 0, 2, 0] {
            c.accept(id).unwrap();
            assert_eq!(allowed(&mut c).len(), 7, "text is free");
            assert!(c.may_end().unwrap());
        }
        c.accept(1).unwrap();
        assert_eq!(allowed(&mut c), [3]);
        assert!(!c.may_end().unwrap());
        for id in [3, 4, 5] {
            c.accept(id).unwrap();
        }
        assert_eq!((allowed(&mut c).len(), c.must_end()), (7, false));
    }

    #[test]
    fn one_call_can_be_all() {
        let mut c = constraint(true);
        [0, 1, 3, 4, 5].into_iter().for_each(|id| c.accept(id).unwrap());
        assert!(c.must_end());
    }
}
