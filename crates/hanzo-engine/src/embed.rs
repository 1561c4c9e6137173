//! Embeddings: a text as one vector, from the model's final hidden states (after the output norm).
//!
//! The text runs through the scheduler like a prompt. No logits are computed for it, and a hidden state is added up and
//! forgotten, in the order of positions, so the vector has the same bits however the text is cut into steps and whatever
//! else runs.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hanzo_models::Pooling;

use crate::engine::{Cancel, Engine};
use crate::error::EngineError;
use crate::read::{Reader, Rows};
use crate::request::{Event, Finish, FinishReason};
use crate::score::to_read;

/// A text to embed.
#[derive(Clone, Debug)]
pub struct EmbedRequest {
    /// Token ids, special tokens included.
    pub tokens: Vec<u32>,
    /// Which hidden states count; the model's own choice when `None` (see [`crate::EngineInfo::pooling`]).
    pub pooling: Option<Pooling>,
    /// The first so many elements only (Matryoshka, Kusupati et al. 2022); all when `None`.
    pub dimensions: Option<usize>,
    /// Whether the vector is scaled to length 1, after it was cut.
    pub normalize: bool,
    /// Greater goes first; equal in order of arrival.
    pub priority: i32,
    /// The request ends here at the latest.
    pub deadline: Option<Instant>,
}

impl EmbedRequest {
    /// The model's own pooling, all elements, length 1.
    pub fn new(tokens: Vec<u32>) -> Self {
        Self { tokens, pooling: None, dimensions: None, normalize: true, priority: 0, deadline: None }
    }
}

/// A text as a vector.
#[derive(Clone, Debug)]
pub struct Embedding {
    /// Its elements.
    pub vector: Vec<f32>,
    /// Counts and times.
    pub finish: Finish,
}

/// Hidden states added up.
#[derive(Debug, Default)]
struct Sum {
    elements: Vec<f64>,
    rows: usize,
}

impl Sum {
    /// Adds a row, unless an element is no finite number.
    fn add(&mut self, row: &[f32]) -> bool {
        self.elements.resize(row.len(), 0.0);
        self.elements.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        self.rows += 1;
        row.iter().all(|x| x.is_finite())
    }

    /// The mean, cut to `dimensions` elements; of length 1 if it is to be and has a length.
    fn vector(&self, dimensions: usize, normalize: bool) -> Vec<f32> {
        let kept = || self.elements.iter().take(dimensions);
        let length = kept().map(|x| x * x).sum::<f64>().sqrt();
        let by = if normalize && length > 0.0 { length } else { self.rows.max(1) as f64 };
        kept().map(|x| (x / by) as f32).collect()
    }
}

impl Engine {
    /// Queues a text to be embedded; `done` hears of the vector, or why there is none, from the engine's thread.
    ///
    /// # Errors
    /// As [`Engine::submit`] (a text may be as long as the context), [`EngineError::NoHidden`] where the model has no
    /// hidden states to give, and [`EngineError::Dimensions`] for more elements than they have, or none.
    pub fn submit_embed(
        &self,
        request: EmbedRequest,
        done: impl FnOnce(Result<Embedding, EngineError>) + Send + 'static,
    ) -> Result<Cancel, EngineError> {
        let EmbedRequest { mut tokens, pooling, dimensions, normalize, priority, deadline } = request;
        let size = self.info().hidden_size;
        if size == 0 {
            return Err(EngineError::NoHidden { architecture: self.info().architecture });
        }
        let asked = dimensions.unwrap_or(size);
        if asked == 0 || asked > size {
            return Err(EngineError::Dimensions { asked, size });
        }
        let n = tokens.len();
        let rows = match pooling.unwrap_or(self.info().pooling) {
            Pooling::Mean => 0..n,
            Pooling::Cls => 0..n.min(1),
            Pooling::Last => n.saturating_sub(1)..n,
        };
        if !self.info().bidirectional {
            // What comes after the last row that counts has no part in it.
            tokens.truncate(rows.end);
        }
        let sum = Arc::new(Mutex::new(Sum::default()));
        let shared = Arc::clone(&sum);
        let read = move |position: usize, row: &[f32]| {
            let finite = shared.lock().unwrap_or_else(PoisonError::into_inner).add(row);
            if finite { Ok(true) } else { Err(EngineError::NotFinite { what: "hidden states", position }) }
        };
        let mut done = Some(done);
        let end = move |event| {
            let outcome = match event {
                Event::Token(_) => return true,
                Event::Failed(error) => Err(error),
                Event::Finished(finish) if finish.reason == FinishReason::Stop => {
                    let sum = sum.lock().unwrap_or_else(PoisonError::into_inner);
                    let finish = Finish { prompt_tokens: n, ..finish };
                    Ok(Embedding { vector: sum.vector(asked, normalize), finish })
                }
                Event::Finished(finish) => Err(EngineError::Incomplete(finish.reason)),
            };
            if let Some(done) = done.take() {
                done(outcome);
            }
            true
        };
        let reader = Reader::new(Rows::Hidden, rows, Box::new(read));
        self.submit_reading(to_read(tokens, priority, deadline), reader, Box::new(end))
    }

    /// Embeds a text, and waits for it.
    ///
    /// # Errors
    /// As [`Engine::submit_embed`], what failed meanwhile, and [`EngineError::Incomplete`] after the deadline.
    pub fn embed(&self, request: EmbedRequest) -> Result<Embedding, EngineError> {
        let (sender, receiver) = channel();
        self.submit_embed(request, move |outcome| {
            // Whoever does not wait any more does not want it.
            let _ = sender.send(outcome);
        })?;
        receiver.recv().unwrap_or(Err(EngineError::Stopped))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_by_hand() {
        let mut sum = Sum::default();
        assert!(sum.add(&[1.0, 6.0, 0.5]) && sum.add(&[5.0, 2.0, 0.5]));
        assert_eq!(sum.vector(3, false), [3.0, 4.0, 0.5]);
        assert_eq!(sum.vector(2, true), [0.6, 0.8], "cut first, then of length 1");
        assert_eq!(sum.vector(1, false), [3.0]);
        let mut zero = Sum::default();
        assert!(zero.add(&[0.0, 0.0]));
        assert_eq!(zero.vector(2, true), [0.0, 0.0], "what has no direction stays what it is");
        assert!(!zero.add(&[f32::NAN, 0.0]));
    }
}
