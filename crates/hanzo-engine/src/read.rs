//! Reading: a text goes through the model and nothing is drawn; rows of what the model says of it go to a reader.
//!
//! What scores and embeds share with what generates is everything else: the queue, the schedule, the blocks, the prefix
//! cache. Rows come in the order of their positions, each once, however the text is cut into steps and whatever
//! happens to its blocks meanwhile.

use std::ops::Range;

use crate::EngineError;

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rows {
    /// Logits, `[vocab]`.
    Logits,
    /// The final hidden state, `[n_embd]`.
    Hidden,
}

/// Takes the row of a position; false when nobody listens any more.
pub(crate) type ReadRow = Box<dyn FnMut(usize, &[f32]) -> Result<bool, EngineError> + Send>;

/// Which rows of a text are wanted, and who takes them.
pub(crate) struct Reader {
    kind: Rows,
    /// Positions whose rows are still to come.
    rows: Range<usize>,
    read: ReadRow,
}

impl Reader {
    pub(crate) fn new(kind: Rows, rows: Range<usize>, read: ReadRow) -> Self {
        Self { kind, rows, read }
    }

    /// What its rows are.
    pub(crate) fn kind(&self) -> Rows {
        self.kind
    }

    /// The first position whose row is still to come. What is before need not be computed again.
    pub(crate) fn first(&self) -> usize {
        self.rows.start
    }

    /// Positions of `chunk` whose rows are wanted.
    pub(crate) fn wanted(&self, chunk: Range<usize>) -> Range<usize> {
        let start = chunk.start.max(self.rows.start);
        start..chunk.end.min(self.rows.end).max(start)
    }

    /// Tokens of a chunk that begins at `first` and would have `n`, with `most` wanted rows at most.
    pub(crate) fn cut(&self, first: usize, n: usize, most: usize) -> usize {
        let wanted = self.wanted(first..first + n);
        if wanted.len() <= most { n } else { wanted.start + most - first }
    }

    /// Hands out the next row.
    ///
    /// # Errors
    /// What the reader says is wrong with it.
    pub(crate) fn take(&mut self, row: &[f32]) -> Result<bool, EngineError> {
        let position = self.rows.start;
        self.rows.start += 1;
        (self.read)(position, row)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_cut_where_rows_run_out() {
        let mut reader = Reader::new(Rows::Logits, 5..9, Box::new(|position, _| Ok(position < 6)));
        assert_eq!((reader.wanted(0..3), reader.wanted(0..7), reader.wanted(7..20)), (5..5, 5..7, 7..9));
        assert_eq!([reader.cut(0, 20, 4), reader.cut(0, 20, 3), reader.cut(0, 6, 1)], [20, 8, 6]);
        assert_eq!([reader.cut(0, 20, 0), reader.cut(5, 4, 0), reader.cut(9, 4, 0)], [5, 0, 4]);
        assert!(reader.take(&[]).unwrap() && !reader.take(&[]).unwrap());
        assert_eq!((reader.first(), reader.wanted(0..7)), (7, 7..7), "no row comes twice");
    }
}
