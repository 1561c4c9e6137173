//! `/api/pull`: fetches a model, if whoever started the server lets clients do that. Progress is told in lines of JSON.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::reply;
use crate::error::{ApiError, Dialect};
use crate::json::JsonBody;
use crate::pull::{PullError, Puller, Pulling};
use crate::respond::Json;
use crate::state::App;

/// Least time between two lines about the same download.
const BEAT: Duration = Duration::from_millis(100);
/// Lines that may wait for a client to read them; the pull waits with them.
const LINES: usize = 16;

#[derive(Debug, Deserialize)]
struct Request {
    #[serde(alias = "name")]
    model: String,
    stream: Option<bool>,
    #[serde(rename = "insecure")]
    _insecure: Option<serde::de::IgnoredAny>,
}

type Line = Result<Value, ApiError>;

pub(super) async fn create(State(app): State<Arc<App>>, mut body: JsonBody) -> Result<Response, ApiError> {
    let request: Request = body.read()?;
    drop(body);
    let Some(puller) = app.registry.puller() else {
        let message = "this server does not fetch models for its clients; whoever starts it can allow that (--allow-pull)";
        return Err(ApiError::new(StatusCode::FORBIDDEN, message));
    };
    let place = app.pulls.clone().try_acquire_owned().map_err(|_| ApiError {
        retry_after: Some(Duration::from_secs(10)),
        ..ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            "other models are being fetched; try again when they are here",
        )
    })?;
    let mut lines = begin(puller, request.model, place)?;
    // What is wrong from the beginning has a status of its own.
    let first = lines.recv().await.unwrap_or_else(|| Err(ApiError::internal("the pull failed")))?;
    if request.stream.unwrap_or(true) {
        let rest = stream::unfold(lines, |mut lines| async { lines.recv().await.map(|line| (line, lines)) });
        let all = stream::once(async { Ok(first) }).chain(rest);
        return Ok(reply::lines(all.map(|line| match line {
            Ok(value) => reply::line(&value),
            Err(error) => reply::line(&error.body(Dialect::Ollama)),
        })));
    }
    let mut last = first;
    while let Some(line) = lines.recv().await {
        last = line?;
    }
    Ok(Json(last).into_response())
}

/// Fetches on a thread of its own. When nobody reads the lines any more, it ends, and what came is kept.
fn begin(
    puller: Arc<dyn Puller>,
    name: String,
    place: OwnedSemaphorePermit,
) -> Result<mpsc::Receiver<Line>, ApiError> {
    let (sender, lines) = mpsc::channel(LINES);
    let work = move || {
        let mut teller = Teller { sender: &sender, name: name.clone(), told: None };
        let line = match puller.pull(&name, &mut |event| teller.tell(event)) {
            Ok(()) => Ok(json!({"status": "success"})),
            Err(error) => Err(error.into()),
        };
        let _ = sender.blocking_send(line);
        drop(place);
    };
    let thread = std::thread::Builder::new().name("pull".to_owned()).spawn(work);
    thread.map_err(|e| ApiError::internal(format!("there is no thread for it: {e}")))?;
    Ok(lines)
}

struct Teller<'s> {
    sender: &'s mpsc::Sender<Line>,
    name: String,
    /// When the last line about bytes was sent.
    told: Option<Instant>,
}

impl Teller<'_> {
    /// Sends what happens; `false` if nobody listens.
    fn tell(&mut self, event: Pulling<'_>) -> bool {
        let line = match event {
            Pulling::Idle => return !self.sender.is_closed(),
            Pulling::Chosen { name } => {
                self.name = name.to_owned();
                json!({"status": format!("pulling {name}")})
            }
            Pulling::Bytes { done, total } => {
                if done < total && self.told.is_some_and(|told| told.elapsed() < BEAT) {
                    return !self.sender.is_closed();
                }
                self.told = Some(Instant::now());
                // Ollama's clients tell downloads apart by this.
                json!({"status": format!("pulling {}", self.name), "digest": self.name, "total": total, "completed": done})
            }
            Pulling::Note(text) => json!({"status": text}),
        };
        self.sender.blocking_send(Ok(line)).is_ok()
    }
}

impl From<PullError> for ApiError {
    fn from(error: PullError) -> Self {
        match error {
            PullError::Name(why) => Self::at("/model", why),
            PullError::Missing(why) => {
                Self::new(StatusCode::NOT_FOUND, why).with_code("model_not_found").with_pointer("/model")
            }
            PullError::Failed(why) => Self::new(StatusCode::BAD_GATEWAY, why),
        }
    }
}
