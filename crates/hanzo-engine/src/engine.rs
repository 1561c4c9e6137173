//! The engine: a thread that owns the model and runs one step after the other; a handle that submits requests to it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use hanzo_fusion::{
    BLOCK_TOKENS, Device, KvConfig, KvType, LoadOptions, LoadedModel, MemoryReport, Progress,
};
use hanzo_fusion::{SequenceStep, Step};
use hanzo_gguf::GgufFile;
use hanzo_models::{GgufWeights, Model};

use crate::EngineError;
use crate::kv::KvManager;
use crate::request::{Event, Request, Sink, Token};
use crate::scheduler::{Scheduler, StepLimits, Work};
use crate::sequence::Sequence;

/// Sizes of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Longest sequence in tokens; the model's own context length when `None`.
    pub max_context: Option<usize>,
    /// Tokens that the KV pool holds, over all sequences; one longest sequence when `None`.
    pub kv_tokens: Option<usize>,
    /// Element type of the cache.
    pub kv_type: KvType,
    /// Tokens of a step: the most that a prompt's chunk can be.
    pub max_batch_tokens: usize,
    /// Sequences that run at once.
    pub max_sequences: usize,
    /// Requests that may wait before [`EngineError::Busy`].
    pub max_waiting: usize,
    /// Whether equal prefixes share their blocks.
    pub prefix_cache: bool,
    /// Tokens that end a reply.
    pub eog: Vec<u32>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_context: None,
            kv_tokens: None,
            kv_type: KvType::F16,
            max_batch_tokens: 512,
            max_sequences: 64,
            max_waiting: 256,
            prefix_cache: true,
            eog: Vec::new(),
        }
    }
}

/// A loaded model that answers requests. Dropping it ends its thread; running requests are cancelled.
pub struct Engine {
    commands: Option<Sender<Sequence>>,
    thread: Option<JoinHandle<()>>,
    shared: Arc<Shared>,
    info: EngineInfo,
    max_waiting: usize,
}

/// What is known of an engine once it is loaded.
#[derive(Clone, Debug)]
pub struct EngineInfo {
    /// The model's architecture.
    pub architecture: &'static str,
    /// Where it runs.
    pub device: String,
    /// Token ids below this exist.
    pub vocab_size: usize,
    /// Longest sequence, in tokens.
    pub max_context: usize,
    /// Context that the model was made for.
    pub trained_context: usize,
    /// Bytes held.
    pub memory: MemoryReport,
    /// The plan, one line a launch.
    pub plan: String,
}

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    running: AtomicUsize,
    next_id: AtomicU64,
    stop: AtomicBool,
}

/// Cancels its request when told to. Dropping it does nothing.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends the request before its next step.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Engine {
    /// Loads a model file onto a device.
    ///
    /// # Errors
    /// [`EngineError`] naming what is wrong with the file or what the device lacks.
    pub fn load(
        file: &GgufFile,
        device: &dyn Device,
        options: EngineOptions,
        progress: &dyn Progress,
    ) -> Result<Self, EngineError> {
        let model = hanzo_models::load(file)?;
        let max_context = options.max_context.unwrap_or(model.context_length).max(2);
        let n_blocks = options.kv_tokens.unwrap_or(max_context).div_ceil(BLOCK_TOKENS).max(1);
        let max_context = max_context.min(n_blocks * BLOCK_TOKENS);
        let max_tokens = options.max_batch_tokens.max(options.max_sequences).max(1);
        let load = LoadOptions {
            max_tokens,
            max_outputs: options.max_sequences.max(1),
            kv: KvConfig { n_blocks, kv_type: options.kv_type },
        };
        let loaded = device.load(Arc::clone(&model.graph), &GgufWeights(file), load, progress)?;
        let info = EngineInfo {
            architecture: model.architecture,
            device: device.describe(),
            vocab_size: model.graph.vocab_size,
            max_context,
            trained_context: model.context_length,
            memory: loaded.memory(),
            plan: loaded.plan_text(),
        };
        Ok(Self::start(loaded, &model, info, options, max_tokens, n_blocks))
    }

    fn start(
        loaded: Box<dyn LoadedModel>,
        model: &Model,
        info: EngineInfo,
        options: EngineOptions,
        max_tokens: usize,
        n_blocks: usize,
    ) -> Self {
        let shared = Arc::new(Shared::default());
        let kv = KvManager::new(&model.graph.kv_layers, n_blocks, options.prefix_cache);
        let limits = StepLimits { max_tokens, max_sequences: options.max_sequences.max(1) };
        let mut worker = Worker {
            model: loaded,
            scheduler: Scheduler::new(kv, limits),
            logits: Vec::new(),
            vocab_size: info.vocab_size,
            max_context: info.max_context,
            eog: options.eog,
            shared: Arc::clone(&shared),
        };
        let (sender, receiver) = channel();
        let thread =
            std::thread::Builder::new().name("hanzo-engine".to_owned()).spawn(move || worker.run(&receiver));
        // Without a thread the channel is closed, and every submission says so.
        let thread =
            thread.map_err(|e| tracing::error!("the engine's thread could not be started: {e}")).ok();
        Self { commands: Some(sender), thread, shared, info, max_waiting: options.max_waiting }
    }

    /// What is loaded.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Requests that wait and that run.
    pub fn load_now(&self) -> (usize, usize) {
        (self.shared.waiting.load(Ordering::Relaxed), self.shared.running.load(Ordering::Relaxed))
    }

    /// Queues a request; its events go to `sink`, from the engine's thread.
    ///
    /// # Errors
    /// [`EngineError`] when the request is invalid, too long for the context, or the queue is full.
    pub fn submit(&self, request: Request, sink: Sink) -> Result<Cancel, EngineError> {
        let (n, context, vocab_size) = (request.prompt.len(), self.info.max_context, self.info.vocab_size);
        if n == 0 {
            return Err(EngineError::EmptyPrompt);
        }
        if n >= context {
            return Err(EngineError::PromptTooLong { prompt: n, context });
        }
        if let Some(&id) = request.prompt.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(EngineError::TokenId { id, vocab_size });
        }
        request.sampling.check(vocab_size)?;
        let waiting = self.shared.waiting.load(Ordering::Relaxed);
        if waiting >= self.max_waiting {
            return Err(EngineError::Busy { waiting });
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let sequence = Sequence::new(id, request, Arc::clone(&cancelled), sink);
        let sender = self.commands.as_ref().ok_or(EngineError::Stopped)?;
        self.shared.waiting.fetch_add(1, Ordering::Relaxed);
        sender.send(sequence).map_err(|_| EngineError::Stopped)?;
        Ok(Cancel(cancelled))
    }

    /// Queues a request and gives its events as an iterator that blocks for the next.
    ///
    /// # Errors
    /// As [`Engine::submit`].
    pub fn generate(&self, request: Request) -> Result<Events, EngineError> {
        let (sender, receiver) = channel();
        let cancel = self.submit(request, Box::new(move |event| sender.send(event).is_ok()))?;
        Ok(Events { receiver, cancel })
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.commands = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported where it happened.
            let _ = thread.join();
        }
    }
}

/// Events of one request; dropping it cancels the request.
#[derive(Debug)]
pub struct Events {
    receiver: Receiver<Event>,
    cancel: Cancel,
}

impl Events {
    /// A handle that cancels the request from elsewhere.
    pub fn cancel_handle(&self) -> Cancel {
        self.cancel.clone()
    }
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        self.receiver.recv().ok()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

/// The thread's side.
struct Worker {
    model: Box<dyn LoadedModel>,
    scheduler: Scheduler,
    logits: Vec<f32>,
    vocab_size: usize,
    max_context: usize,
    eog: Vec<u32>,
    shared: Arc<Shared>,
}

impl Worker {
    fn run(&mut self, commands: &Receiver<Sequence>) {
        while self.receive(commands) {
            self.scheduler.reap(Instant::now());
            let work = self.scheduler.plan();
            if !work.is_empty() {
                self.step(&work);
            }
            self.shared.waiting.store(self.scheduler.n_waiting(), Ordering::Relaxed);
            self.shared.running.store(self.scheduler.n_running(), Ordering::Relaxed);
        }
        for mut sequence in self.scheduler.drain() {
            sequence.fail(EngineError::Stopped);
        }
    }

    /// Takes all requests that have come, waiting for one when there is nothing to do. False ends the thread.
    fn receive(&mut self, commands: &Receiver<Sequence>) -> bool {
        if self.shared.stop.load(Ordering::Relaxed) {
            return false;
        }
        if self.scheduler.is_idle() {
            match commands.recv() {
                Ok(sequence) => self.scheduler.enqueue(sequence),
                Err(_) => return false,
            }
        }
        loop {
            match commands.try_recv() {
                Ok(sequence) => self.scheduler.enqueue(sequence),
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return !self.scheduler.is_idle(),
            }
        }
    }

    /// Runs one step and hands out what it brought. A step that fails fails the requests in it and no others.
    fn step(&mut self, work: &[Work]) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.forward(work)));
        let fault = match outcome {
            Ok(Ok(())) => return self.advance(work),
            Ok(Err(e)) => e.to_string(),
            Err(panic) => panic_text(panic.as_ref()),
        };
        tracing::error!("step failed: {fault}");
        for w in work {
            if let Some(mut sequence) = self.scheduler.remove(w.id) {
                sequence.fail(EngineError::Step(fault.clone()));
            }
        }
    }

    /// The device's part of a step: logits of every sequence whose tokens are all through with it.
    fn forward(&mut self, work: &[Work]) -> Result<(), hanzo_fusion::DeviceError> {
        let parts: Vec<(&Sequence, usize)> =
            work.iter().filter_map(|w| Some((self.scheduler.running(w.id)?, w.n_tokens))).collect();
        let tables: Vec<Vec<&[u32]>> = parts.iter().map(|(s, _)| s.tables.slices().collect()).collect();
        let (mut tokens, mut sequences, mut outputs) = (Vec::new(), Vec::new(), Vec::new());
        for ((sequence, n_tokens), tables) in parts.iter().zip(&tables) {
            let context_len = sequence.n_computed + n_tokens;
            tokens
                .extend_from_slice(sequence.tokens.get(sequence.n_computed..context_len).unwrap_or_default());
            sequences.push(SequenceStep { n_tokens: *n_tokens, context_len, block_tables: tables });
            if context_len == sequence.tokens.len() {
                outputs.push(tokens.len() as u32 - 1);
            }
        }
        self.logits.resize(outputs.len() * self.vocab_size, 0.0);
        self.model.step(&Step { tokens: &tokens, sequences: &sequences, outputs: &outputs }, &mut self.logits)
    }

    /// The host's part: cached tokens are counted, tokens drawn, replies ended.
    fn advance(&mut self, work: &[Work]) {
        let mut rows = self.logits.chunks_exact(self.vocab_size.max(1));
        for w in work {
            let Some((sequence, kv)) = self.scheduler.running_mut(w.id) else { continue };
            sequence.n_computed += w.n_tokens;
            let computed = sequence.tokens.get(..sequence.n_computed).unwrap_or_default();
            kv.commit(&mut sequence.tables, computed);
            if sequence.pending() > 0 {
                continue;
            }
            let Some(logits) = rows.next() else { continue };
            let banned = sequence.banned(&self.eog);
            let id = sequence.sampler.sample(logits, &sequence.tokens, banned);
            let alternatives = sequence.sampler.params().logprobs;
            let logprobs = alternatives.map(|n| sequence.sampler.logprobs(logits, id, n));
            if let Some(reason) = sequence.push(Token { id, logprobs }, &self.eog, self.max_context)
                && let Some(mut sequence) = self.scheduler.remove(w.id)
            {
                sequence.finish(reason);
            }
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}
