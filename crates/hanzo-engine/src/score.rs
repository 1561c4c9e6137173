//! Scoring: how likely a text is under the model, token by token, and the rows of logits for whoever wants more.
//!
//! The text runs through the scheduler like a prompt, some rows of logits a step; each row is used and forgotten, so a
//! text of `n` tokens never takes `[n, vocab]` memory. Values are those that generation would see at the same place.

use std::ops::Range;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use crate::engine::{Cancel, Engine};
use crate::error::EngineError;
use crate::read::{Reader, Rows};
use crate::request::{Event, Finish, FinishReason, Request};
use crate::sampler::{Distribution, TokenLogprob};

/// A text whose tokens are scored.
#[derive(Clone, Debug)]
pub struct ScoreRequest {
    /// Token ids, special tokens included.
    pub tokens: Vec<u32>,
    /// Position of the first token that is scored, at least 1: nothing comes before token 0. What is before it is context.
    pub first: usize,
    /// How many of the most likely tokens are told at each position.
    pub top: usize,
    /// Greater goes first; equal in order of arrival.
    pub priority: i32,
    /// The request ends here at the latest.
    pub deadline: Option<Instant>,
}

impl ScoreRequest {
    /// All tokens but the first, without alternatives.
    pub fn new(tokens: Vec<u32>) -> Self {
        Self { tokens, first: 1, top: 0, priority: 0, deadline: None }
    }
}

/// How likely a token is after those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    /// Where it stands in the text.
    pub position: usize,
    /// The token and its log-probability.
    pub token: TokenLogprob,
    /// How many tokens were more likely; 0 where a greedy reply would have said it.
    pub rank: usize,
    /// The most likely tokens there, the most likely first.
    pub top: Vec<TokenLogprob>,
}

/// What happens to a request for scores.
#[derive(Debug)]
pub enum ScoreEvent {
    /// The next token's score.
    Token(TokenScore),
    /// All tokens were scored, or the request was cut short: the reason says it.
    Finished(Finish),
    /// The request failed; nothing follows.
    Failed(EngineError),
}

/// Scores of a whole text.
#[derive(Clone, Debug)]
pub struct Scores {
    /// One a scored token, in order.
    pub tokens: Vec<TokenScore>,
    /// Counts and times.
    pub finish: Finish,
}

impl Scores {
    /// The log-probability of all scored tokens together.
    pub fn logprob(&self) -> f64 {
        self.tokens.iter().map(|t| f64::from(t.token.logprob)).sum()
    }
}

/// A text whose rows of logits are wanted.
#[derive(Clone, Debug)]
pub struct LogitsRequest {
    /// Token ids, special tokens included.
    pub tokens: Vec<u32>,
    /// Positions: row `p` is what the model says of token `p + 1`, having seen tokens `0 ..= p`.
    pub rows: Range<usize>,
    /// Greater goes first; equal in order of arrival.
    pub priority: i32,
    /// The request ends here at the latest.
    pub deadline: Option<Instant>,
}

impl LogitsRequest {
    /// The rows of all tokens.
    pub fn new(tokens: Vec<u32>) -> Self {
        Self { rows: 0..tokens.len(), tokens, priority: 0, deadline: None }
    }
}

/// A request whose text is read and not continued.
pub(crate) fn to_read(tokens: Vec<u32>, priority: i32, deadline: Option<Instant>) -> Request {
    Request { priority, deadline, speculate: false, ..Request::new(tokens, 0) }
}

impl Engine {
    /// Queues a text to be scored; `sink` hears of each token in order, from the engine's thread, and returns false when
    /// nobody listens any more, which cancels the request.
    ///
    /// # Errors
    /// As [`Engine::submit`], and [`EngineError::NoRows`] where no token can be scored.
    pub fn submit_score(
        &self,
        request: ScoreRequest,
        sink: impl FnMut(ScoreEvent) -> bool + Send + 'static,
    ) -> Result<Cancel, EngineError> {
        self.must_generate()?;
        let ScoreRequest { mut tokens, first, top, priority, deadline } = request;
        let n = tokens.len();
        if first == 0 || first >= n {
            return Err(EngineError::NoRows { what: "scores of tokens", first, end: n, tokens: n });
        }
        let vocab_size = self.info().vocab_size;
        if let Some(&id) = tokens.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(EngineError::TokenId { id, vocab_size });
        }
        // The last token is scored by the row before it, and its own is not wanted.
        let targets = tokens.split_off(first);
        tokens.extend(targets.iter().take(n - 1 - first));
        let sink = Arc::new(Mutex::new(sink));
        let tell = {
            let sink = Arc::clone(&sink);
            move |event| (*sink.lock().unwrap_or_else(PoisonError::into_inner))(event)
        };
        let tell_end = tell.clone();
        let mut targets = targets.into_iter();
        let read = move |position: usize, logits: &[f32]| {
            let distribution = Distribution::new(logits);
            if !distribution.is_finite() {
                return Err(EngineError::NotFinite { what: "logits", position });
            }
            let Some(id) = targets.next() else { return Ok(false) };
            Ok(tell(ScoreEvent::Token(TokenScore {
                position: position + 1,
                token: distribution.token(id),
                rank: distribution.rank(id),
                top: distribution.top(top),
            })))
        };
        self.submit_reading(
            to_read(tokens, priority, deadline),
            Reader::new(Rows::Logits, first - 1..n - 1, Box::new(read)),
            Box::new(move |event| match event {
                Event::Token(_) => true,
                Event::Finished(finish) => {
                    tell_end(ScoreEvent::Finished(Finish { prompt_tokens: n, ..finish }))
                }
                Event::Failed(error) => tell_end(ScoreEvent::Failed(error)),
            }),
        )
    }

    /// Scores a text, and waits for it.
    ///
    /// # Errors
    /// As [`Engine::submit_score`], what failed meanwhile, and [`EngineError::Incomplete`] after the deadline.
    pub fn score(&self, request: ScoreRequest) -> Result<Scores, EngineError> {
        let (sender, receiver) = channel();
        self.submit_score(request, move |event| sender.send(event).is_ok())?;
        let mut tokens = Vec::new();
        for event in receiver {
            match event {
                ScoreEvent::Token(token) => tokens.push(token),
                ScoreEvent::Finished(finish) if finish.reason == FinishReason::Stop => {
                    return Ok(Scores { tokens, finish });
                }
                ScoreEvent::Finished(finish) => return Err(EngineError::Incomplete(finish.reason)),
                ScoreEvent::Failed(error) => return Err(error),
            }
        }
        Err(EngineError::Stopped)
    }

    /// Queues a text whose rows of logits go to `take`, in order: the position and its row (`[vocab]`), on the engine's thread,
    /// so it must be quick. It returns false to end the request there; it is dropped before `done` hears of the end.
    ///
    /// This is what a Kullback-Leibler divergence between two engines, a perplexity over a sliding window, or a dump of
    /// logits is made of.
    ///
    /// # Errors
    /// As [`Engine::submit`], and [`EngineError::NoRows`] for rows that are not of the text.
    pub fn submit_logits(
        &self,
        request: LogitsRequest,
        mut take: impl FnMut(usize, &[f32]) -> bool + Send + 'static,
        done: impl FnOnce(Result<Finish, EngineError>) + Send + 'static,
    ) -> Result<Cancel, EngineError> {
        self.must_generate()?;
        let LogitsRequest { mut tokens, rows, priority, deadline } = request;
        if rows.is_empty() || rows.end > tokens.len() {
            let (first, end, tokens) = (rows.start, rows.end, tokens.len());
            return Err(EngineError::NoRows { what: "logits of rows", first, end, tokens });
        }
        tokens.truncate(rows.end);
        let read = move |position: usize, logits: &[f32]| Ok(take(position, logits));
        let mut done = Some(done);
        let end = move |event| {
            let outcome = match event {
                Event::Token(_) => return true,
                Event::Finished(finish) => Ok(finish),
                Event::Failed(error) => Err(error),
            };
            if let Some(done) = done.take() {
                done(outcome);
            }
            true
        };
        let reader = Reader::new(Rows::Logits, rows, Box::new(read));
        self.submit_reading(to_read(tokens, priority, deadline), reader, Box::new(end))
    }

    /// Takes rows of logits of a text into `state` (see [`Engine::submit_logits`]), and waits for the end.
    ///
    /// # Errors
    /// As [`Engine::submit_logits`], what failed meanwhile, and [`EngineError::Incomplete`] after the deadline.
    pub fn fold_logits<S: Send + 'static>(
        &self,
        request: LogitsRequest,
        state: S,
        mut take: impl FnMut(&mut S, usize, &[f32]) -> bool + Send + 'static,
    ) -> Result<(S, Finish), EngineError> {
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let (sender, receiver) = channel();
        self.submit_logits(
            request,
            move |position, row| {
                take(&mut shared.lock().unwrap_or_else(PoisonError::into_inner), position, row)
            },
            move |outcome| {
                // Whoever does not wait any more does not want it.
                let _ = sender.send(outcome);
            },
        )?;
        let finish = receiver.recv().unwrap_or(Err(EngineError::Stopped))?;
        if finish.reason == FinishReason::Deadline {
            return Err(EngineError::Incomplete(finish.reason));
        }
        // The reader is gone by the time that the end is told.
        let state = Arc::into_inner(state).ok_or(EngineError::Stopped)?;
        Ok((state.into_inner().unwrap_or_else(PoisonError::into_inner), finish))
    }
}
