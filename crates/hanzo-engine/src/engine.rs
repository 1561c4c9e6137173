//! The engine as its callers see it: a loaded model that takes requests. The thread behind it is in `worker`.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use hanzo_fusion::{BLOCK_TOKENS, Device, KvConfig, KvType, LoadOptions, MemoryReport, Progress};
use hanzo_gguf::GgufFile;
use hanzo_models::GgufWeights;

use crate::EngineError;
use crate::kv::block_bytes;
use crate::metrics::Metrics;
use crate::request::{Event, Request, Sink};
use crate::scheduler::StepLimits;
use crate::sequence::{ModelLimits, Sequence};
use crate::speculate::Speculation;
use crate::worker::{KvSetup, Worker};

/// Rows of a step beyond one a sequence whose logits can be had: what drafts share.
const DRAFT_OUTPUTS: usize = 64;

/// Sizes of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Longest sequence in tokens; the model's own context length when `None`.
    pub max_context: Option<usize>,
    /// Tokens that the KV pool holds, over all sequences; one longest sequence when `None`.
    pub kv_tokens: Option<usize>,
    /// Bytes that the KV pool may take, over all layers; goes before `kv_tokens`.
    pub kv_bytes: Option<u64>,
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
    /// Whether and how tokens are guessed ahead. Changes no byte of any reply.
    pub speculation: Speculation,
    /// Tokens that end a reply.
    pub eog: Vec<u32>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_context: None,
            kv_tokens: None,
            kv_bytes: None,
            kv_type: KvType::F16,
            max_batch_tokens: 512,
            max_sequences: 64,
            max_waiting: 256,
            prefix_cache: true,
            speculation: Speculation::default(),
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
    max_sequences: usize,
    speculation: Speculation,
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
    /// Tokens that the KV pool holds, over all sequences.
    pub kv_tokens: usize,
    /// Bytes held.
    pub memory: MemoryReport,
    /// The plan, one line a launch.
    pub plan: String,
}

/// What the handle and the thread both see.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Requests on their way to the thread.
    sent: AtomicUsize,
    /// Requests that wait for their first step.
    waiting: AtomicUsize,
    next_id: AtomicU64,
    stop: AtomicBool,
    metrics: Mutex<Metrics>,
}

impl Shared {
    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A request has reached the thread, where `waiting` wait now.
    pub(crate) fn received(&self, waiting: usize) {
        self.waiting.store(waiting, Ordering::Relaxed);
        self.sent.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn publish(&self, metrics: Metrics) {
        self.waiting.store(metrics.waiting, Ordering::Relaxed);
        *self.metrics.lock().unwrap_or_else(PoisonError::into_inner) = metrics;
    }
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
        let layers = &model.graph.kv_layers;
        let max_context = options.max_context.unwrap_or(model.context_length).max(2);
        let n_blocks = match options.kv_bytes {
            Some(bytes) => match (bytes / block_bytes(layers, options.kv_type).max(1)) as usize {
                0 => {
                    return Err(EngineError::KvMemory { bytes, block: block_bytes(layers, options.kv_type) });
                }
                // More than that is never used.
                n => n.min(max_context.div_ceil(BLOCK_TOKENS).saturating_mul(options.max_sequences.max(1))),
            },
            None => options.kv_tokens.unwrap_or(max_context).div_ceil(BLOCK_TOKENS).max(1),
        };
        let max_context = max_context.min(n_blocks * BLOCK_TOKENS);
        let max_sequences = options.max_sequences.max(1);
        let max_tokens = options.max_batch_tokens.max(max_sequences);
        let step_limits =
            StepLimits { max_tokens, max_sequences, max_outputs: max_sequences + DRAFT_OUTPUTS };
        let load = LoadOptions {
            max_tokens,
            max_outputs: step_limits.max_outputs,
            kv: KvConfig { n_blocks, kv_type: options.kv_type },
        };
        let loaded = device.load(Arc::clone(&model.graph), &GgufWeights(file), load, progress)?;
        let info = EngineInfo {
            architecture: model.architecture,
            device: device.describe(),
            vocab_size: model.graph.vocab_size,
            max_context,
            trained_context: model.context_length,
            kv_tokens: n_blocks * BLOCK_TOKENS,
            memory: loaded.memory(),
            plan: loaded.plan_text(),
        };
        let shared = Arc::new(Shared::default());
        let kv = KvSetup { layers: layers.clone(), n_blocks, prefix_cache: options.prefix_cache };
        let model_limits =
            ModelLimits { eog: options.eog, max_context, max_drafts: options.speculation.most() };
        let speculation = options.speculation;
        let mut worker = Worker::new(
            loaded,
            kv,
            step_limits,
            model_limits,
            speculation.clone(),
            info.vocab_size,
            Arc::clone(&shared),
        );
        let (sender, receiver) = channel();
        let thread = std::thread::Builder::new()
            .name("hanzo-engine".to_owned())
            .spawn(move || worker.supervise(&receiver))
            .map_err(|e| EngineError::Thread(e.to_string()))?;
        Ok(Self {
            commands: Some(sender),
            thread: Some(thread),
            shared,
            info,
            max_waiting: options.max_waiting,
            max_sequences,
            speculation,
        })
    }

    /// What is loaded.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Requests that wait and that run.
    pub fn load_now(&self) -> (usize, usize) {
        (self.waiting(), self.metrics().running)
    }

    /// What the engine did so far, as of its last step.
    pub fn metrics(&self) -> Metrics {
        let metrics = *self.shared.metrics.lock().unwrap_or_else(PoisonError::into_inner);
        Metrics { waiting: self.waiting(), ..metrics }
    }

    fn waiting(&self) -> usize {
        self.shared.waiting.load(Ordering::Relaxed) + self.shared.sent.load(Ordering::Relaxed)
    }

    /// Queues a request; its events go to `sink`, from the engine's thread.
    ///
    /// # Errors
    /// [`EngineError`] when the request is invalid, too long for the context, or the queue is full.
    pub fn submit(&self, request: Request, sink: Sink) -> Result<Cancel, EngineError> {
        self.submit_continuations(request, vec![sink])
    }

    /// Queues a request for several continuations of one prompt, which is computed once; each has its own random stream and
    /// its own listener. The first is the same as when asked for alone.
    ///
    /// # Errors
    /// As [`Engine::submit`], and [`EngineError::Continuations`] for more than can run at once, or none.
    pub fn submit_continuations(
        &self,
        request: Request,
        mut sinks: Vec<Sink>,
    ) -> Result<Cancel, EngineError> {
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
        let (n_sinks, most) = (sinks.len(), self.max_sequences);
        if sinks.is_empty() || n_sinks > most {
            return Err(EngineError::Continuations { n: n_sinks, most });
        }
        let siblings = sinks.split_off(1);
        let sink = sinks.pop().ok_or(EngineError::Continuations { n: n_sinks, most })?;
        let sender = self.commands.as_ref().ok_or(EngineError::Stopped)?;
        // Counted before it is compared: two callers cannot both take the last place.
        self.shared.sent.fetch_add(1, Ordering::Relaxed);
        let waiting = self.waiting() - 1;
        if waiting >= self.max_waiting {
            self.shared.sent.fetch_sub(1, Ordering::Relaxed);
            return Err(EngineError::Busy { waiting });
        }
        let cancelled = Arc::new(AtomicBool::new(false));
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let proposer = self.speculation.proposer();
        let sequence = Sequence::new(id, request, proposer, Arc::clone(&cancelled), sink, siblings);
        if sender.send(sequence).is_err() {
            self.shared.sent.fetch_sub(1, Ordering::Relaxed);
            return Err(EngineError::Stopped);
        }
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
