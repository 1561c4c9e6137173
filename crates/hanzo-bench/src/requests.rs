//! Samples through the whole engine: what a caller sees of a request, and of many at once.

use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Instant;

use hanzo_cpu::exec::CpuDevice;
use hanzo_cpu::isa::CpuConfig;
use hanzo_engine::{Engine, EngineError, EngineOptions, Event, Request, SamplingParams, Speculation};
use hanzo_gguf::GgufFile;

use crate::error::BenchError;
use crate::sample::Listener;
use crate::samples::{Cell, Phase, Sample, Shape};

/// An engine that takes requests, with all that would spare it work turned off.
pub struct BenchEngine {
    engine: Engine,
}

/// What came of some requests that were submitted together.
struct Arrivals {
    submitted: Vec<Instant>,
    /// Stream and time of every token, in order of arrival.
    tokens: Vec<(usize, Instant)>,
}

impl BenchEngine {
    /// Loads a file for `streams` requests of at most `context` tokens, prompt and reply together.
    ///
    /// # Errors
    /// What is wrong with the file, or what the device lacks.
    pub fn load(
        path: &Path,
        config: &CpuConfig,
        streams: usize,
        context: usize,
        chunk: usize,
    ) -> Result<Self, BenchError> {
        let file = GgufFile::open(path)?;
        let device = CpuDevice::new(config)?;
        let options = EngineOptions {
            max_context: Some(context),
            kv_tokens: Some(context.next_multiple_of(16).saturating_mul(streams)),
            max_batch_tokens: chunk,
            max_sequences: streams,
            max_waiting: streams.max(256),
            prefix_cache: false,
            speculation: Speculation::off(),
            ..EngineOptions::default()
        };
        Ok(Self { engine: Engine::load(&file, &device, options, &())? })
    }

    /// Submits `streams` requests at once and waits for all their tokens, by our own clock.
    fn run(&self, streams: usize, prompt: usize, n: usize) -> Result<Arrivals, BenchError> {
        let vocab = self.engine.info().vocab_size.max(2) as u64;
        let (sender, receiver) = channel();
        let mut submitted = Vec::new();
        for stream in 0..streams {
            let ids =
                (0..prompt as u64).map(|i| ((i * 7919 + stream as u64 * 104_729) % vocab) as u32).collect();
            let request =
                Request { sampling: SamplingParams::greedy(), ignore_eos: true, ..Request::new(ids, n) };
            let sender = sender.clone();
            submitted.push(Instant::now());
            self.engine.submit(
                request,
                Box::new(move |event| {
                    let news = match event {
                        Event::Token(_) => Ok(Some((stream, Instant::now()))),
                        Event::Finished(_) => Ok(None),
                        Event::Failed(error) => Err(error),
                    };
                    sender.send(news).is_ok()
                }),
            )?;
        }
        drop(sender);
        let mut tokens = Vec::new();
        for news in receiver {
            tokens.extend(news?);
        }
        if tokens.len() != streams * n {
            return Err(EngineError::Stopped.into());
        }
        Ok(Arrivals { submitted, tokens })
    }

    /// A request with a prompt of `n` tokens, from submission to its first token; `repetitions` after the warm-up.
    ///
    /// # Errors
    /// The engine's.
    pub fn first_token(
        &self,
        n: usize,
        repetitions: usize,
        listener: &mut dyn Listener,
    ) -> Result<Cell, BenchError> {
        let mut cell = Cell::new(Shape::new(Phase::Request, n as u64));
        listener.begin(&cell.shape, repetitions + 1);
        for _ in 0..=repetitions {
            let arrivals = self.run(1, n, 1)?;
            cell.samples.extend(arrivals.first_tokens(n as u64));
            listener.repetition();
        }
        listener.cell(&cell);
        Ok(cell)
    }

    /// `streams` requests at once: times to first tokens, and times between the later tokens of each. The first of two rounds warms up.
    ///
    /// # Errors
    /// The engine's.
    pub fn under_load(
        &self,
        streams: usize,
        prompt: usize,
        n: usize,
        listener: &mut dyn Listener,
    ) -> Result<[Cell; 2], BenchError> {
        let shape = |phase, n: usize| Shape { batch: streams as u64, ..Shape::new(phase, n as u64) };
        let mut first = Cell::new(shape(Phase::Request, prompt));
        let mut gaps = Cell::new(shape(Phase::InterToken, n));
        listener.begin(&gaps.shape, 2);
        for round in 0..2 {
            if round == 1 {
                first.warm_up = first.samples.len();
                gaps.warm_up = gaps.samples.len();
            }
            let arrivals = self.run(streams, prompt, n)?;
            first.samples.extend(arrivals.first_tokens(prompt as u64));
            gaps.samples.extend(arrivals.gaps());
            listener.repetition();
        }
        listener.cell(&first);
        listener.cell(&gaps);
        Ok([first, gaps])
    }
}

impl Arrivals {
    fn of(&self, stream: usize) -> impl Iterator<Item = Instant> + '_ {
        self.tokens.iter().filter(move |t| t.0 == stream).map(|t| t.1)
    }

    fn first_tokens(&self, prompt: u64) -> Vec<Sample> {
        let firsts = self.submitted.iter().enumerate();
        firsts
            .filter_map(|(stream, at)| Some(Sample(seconds(*at, self.of(stream).next()?), prompt)))
            .collect()
    }

    fn gaps(&self) -> Vec<Sample> {
        let mut gaps = Vec::new();
        for stream in 0..self.submitted.len() {
            gaps.extend(self.of(stream).zip(self.of(stream).skip(1)).map(|(a, b)| Sample(seconds(a, b), 1)));
        }
        gaps
    }
}

/// At least a nanosecond: two events of one step may carry the same time.
fn seconds(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64().max(1e-9)
}
