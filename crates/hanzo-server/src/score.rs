//! How likely a prompt's own tokens are: what `echo` with `logprobs` tells.

use std::sync::Arc;

use hanzo_engine::{Cancel, EngineError, FinishReason, ScoreEvent, ScoreRequest, TokenScore};
use tokio::sync::mpsc;

use crate::error::ApiError;
use crate::model::LoadedModel;

/// Cancels a request when it is dropped: the client is gone.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Scores of all tokens but the first, which nothing comes before; none for a single token.
///
/// # Errors
/// As the engine's: too long, a full queue, a step that failed.
pub(crate) async fn prompt(
    model: &Arc<LoadedModel>,
    tokens: Vec<u32>,
    top: usize,
) -> Result<Vec<TokenScore>, ApiError> {
    let n = tokens.len().saturating_sub(1);
    if n == 0 {
        return Ok(Vec::new());
    }
    // One event a token and the end: as many as the prompt, which is bounded.
    let (sender, mut receiver) = mpsc::channel(n + 1);
    let request = ScoreRequest { top, ..ScoreRequest::new(tokens) };
    let cancel = model.engine.submit_score(request, move |event| sender.try_send(event).is_ok())?;
    let _cancel = CancelOnDrop(cancel);
    let mut scores = Vec::with_capacity(n);
    while let Some(event) = receiver.recv().await {
        match event {
            ScoreEvent::Token(score) => scores.push(score),
            ScoreEvent::Finished(finish) if finish.reason == FinishReason::Stop => return Ok(scores),
            ScoreEvent::Finished(finish) => return Err(EngineError::Incomplete(finish.reason).into()),
            ScoreEvent::Failed(error) => return Err(error.into()),
        }
    }
    Err(EngineError::Stopped.into())
}
