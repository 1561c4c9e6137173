//! How the hidden states of a text's tokens become one vector.

use crate::Result;
use crate::hyper::Hyper;

/// Which hidden states an embedding is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The mean of all tokens'.
    Mean,
    /// The first token's (BERT's `[CLS]`).
    Cls,
    /// The last token's, which has seen all others where attention is causal.
    Last,
}

impl Pooling {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Mean, Self::Cls, Self::Last];

    /// Its name in requests and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Last => "last",
        }
    }

    /// The pooling of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|p| p.name() == name)
    }

    /// What `{arch}.pooling_type` says: 0 none, 1 mean, 2 cls, 3 last. 4, the score of a ranking model, is no embedding.
    pub(crate) fn from_metadata(h: &Hyper<'_>) -> Result<Option<Self>> {
        Ok(match h.opt_count("pooling_type", 0..=3)? {
            None | Some(0) => None,
            Some(1) => Some(Self::Mean),
            Some(2) => Some(Self::Cls),
            Some(_) => Some(Self::Last),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for pooling in Pooling::ALL {
            assert_eq!(Pooling::parse(pooling.name()), Some(pooling));
        }
        assert_eq!(Pooling::parse("rank"), None);
    }
}
