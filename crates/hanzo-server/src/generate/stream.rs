//! Replies as they come, written as a dialect has them: the one way from a [`Generation`] to the bytes of a response.

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, Stream, StreamExt};

use super::event::{Event, Usage};
use super::generation::Generation;
use crate::error::ApiError;

/// How a dialect writes a streamed response. Each call adds messages to `out`.
pub(crate) trait Write: Send + 'static {
    /// What comes before the first event.
    fn begin(&mut self, _out: &mut Vec<Bytes>) {}

    /// What a step brought. Choices are numbered through where several requests are answered at once.
    fn event(&mut self, event: Event, out: &mut Vec<Bytes>);

    /// All choices have ended.
    fn end(&mut self, usage: &Usage, out: &mut Vec<Bytes>);

    /// A fault, after which nothing comes any more.
    fn failed(&mut self, error: &ApiError, out: &mut Vec<Bytes>);
}

/// What a request brings, in the order that it comes.
enum Item {
    Event(Result<Event, ApiError>),
    Ended(Usage),
}

/// The events of a request whose choices are numbered from `first` on, and its usage at the end.
fn items(generation: Generation, first: usize) -> BoxStream<'static, Item> {
    let next = move |state: Option<Generation>| async move {
        let mut generation = state?;
        match generation.next().await {
            Some(event) => {
                let event = event.map(|event| Event { choice: first + event.choice, ..event });
                Some((Item::Event(event), Some(generation)))
            }
            None => Some((Item::Ended(generation.usage()), None)),
        }
    };
    stream::unfold(Some(generation), next).boxed()
}

/// The messages of a response to one or several requests, which run at the same time. Dropping the stream cancels what still runs.
pub(crate) fn written(
    generations: impl IntoIterator<Item = Generation>,
    mut writer: impl Write,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let mut first = 0;
    let items = generations.into_iter().map(|generation| {
        let from = first;
        first += generation.choices();
        items(generation, from)
    });
    let items = stream::select_all(items);
    let mut begin = Vec::new();
    writer.begin(&mut begin);
    let rest = stream::unfold(Some((items, writer, Usage::default())), |state| async {
        let (mut items, mut writer, mut usage) = state?;
        let mut out = Vec::new();
        match items.next().await {
            Some(Item::Event(Ok(event))) => writer.event(event, &mut out),
            Some(Item::Ended(more)) => usage.add(&more),
            Some(Item::Event(Err(error))) => {
                writer.failed(&error, &mut out);
                return Some((out, None));
            }
            None => {
                writer.end(&usage, &mut out);
                return Some((out, None));
            }
        }
        Some((out, Some((items, writer, usage))))
    });
    stream::iter(begin).chain(rest.flat_map(stream::iter))
}
