//! A reply as an asynchronous stream: `cargo run --release -p hanzo-engine --example chat -- MODEL.gguf "Who are you?"`
//!
//! Any runtime polls [`hanzo_engine::EventStream`]; to need none, this program parks its thread until it is woken.

#![allow(clippy::print_stdout)]

use std::future::poll_fn;
use std::io::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use futures_core::Stream;
use hanzo_engine::{ChatMessage, Engine, Request, TextEvent, TextOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let model = args.next().ok_or("usage: chat MODEL.gguf [QUESTION]")?;
    let question = args.next().unwrap_or_else(|| "Who are you?".to_owned());
    let engine = Engine::builder(model).context(2048).build()?;
    block_on(answer(&engine, &question))
}

async fn answer(engine: &Engine, question: &str) -> Result<(), Box<dyn std::error::Error>> {
    let request = Request::new(engine.chat_prompt(&[ChatMessage::user(question)])?, 256);
    let mut events = engine.stream_text(request, Arc::clone(engine.tokenizer()?), &TextOptions::default())?;
    // With the futures or tokio-stream crate this is `while let Some(event) = events.next().await`.
    while let Some(event) = poll_fn(|context| Pin::new(&mut events).poll_next(context)).await {
        match event {
            TextEvent::Token { text, .. } => print!("{text}"),
            TextEvent::Finished(end) => {
                println!("{}\n({} tokens)", end.text, end.finish.generated_tokens);
            }
            TextEvent::Failed(error) => return Err(error.into()),
        }
        std::io::stdout().flush()?;
    }
    Ok(())
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}
