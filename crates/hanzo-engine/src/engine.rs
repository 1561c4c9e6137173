//! The engine as its callers see it: a loaded model that takes requests. The thread behind it is in `worker`.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use hanzo_fusion::graph::WeightDecl;
use hanzo_fusion::{
    BLOCK_TOKENS, Device, Graph, KvConfig, KvLayer, KvType, LoadOptions, MemoryReport, Progress,
};
use hanzo_gguf::GgufFile;
use hanzo_models::{GgufWeights, Pooling};

use crate::EngineError;
use crate::adapters::{AdapterCount, AdapterId, AdapterInfo, AdapterLimits, Registry};
use crate::kv::{
    KvDemand, PoolSizes, StateSizes, block_bytes, kv_pool_default, kv_pool_fits, smaller_window,
};
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::read::Reader;
use crate::request::{Event, Request, Sink};
use crate::scheduler::StepLimits;
use crate::sequence::{ModelLimits, Sequence};
use crate::speculate::Speculation;
use crate::text::ModelText;
use crate::worker::{KvSetup, Worker};

/// Drafts of a step.
const MAX_DRAFTS: usize = 64;
/// Rows of a step that readers take at most, and bytes of logits that these may be.
const MAX_READS: usize = 128;
const MAX_READ_BYTES: usize = 64 << 20;

/// Sizes of an engine.
#[derive(Clone, Debug)]
pub struct EngineOptions {
    /// Longest sequence in tokens; the model's own context length when `None`.
    pub max_context: Option<usize>,
    /// Tokens that the KV pool holds, over all sequences. When `None`: what [`kv_pool_default`] makes of `memory`, or one
    /// longest sequence where that is `None` too.
    pub kv_tokens: Option<usize>,
    /// Bytes that the KV pool may take, over all layers, recurrent states included; goes before `kv_tokens`.
    pub kv_bytes: Option<u64>,
    /// Of models with recurrent states: how many are kept beside those of running sequences, for prefixes and for drafts.
    /// When `None`: 16 more than there are sequences. Fewer where these and those of running sequences together would exceed a
    /// quarter of a bounded memory.
    pub spare_states: Option<usize>,
    /// Bytes that weights and cache may take together (see [`crate::available_memory`]). A cache that does not fit is
    /// [`EngineError::KvTooLarge`]; not checked when `None`.
    pub memory: Option<u64>,
    /// Element type of the cache.
    pub kv_type: KvType,
    /// Tokens of a step: the most that a prompt's chunk can be.
    pub max_batch_tokens: usize,
    /// How long a step with a prompt's chunk may take beside replies that are running, as a multiple of one without:
    /// chunks are as small as that needs. `None` gives prompts all of `max_batch_tokens`, however long others wait.
    pub max_slowdown: Option<f64>,
    /// Sequences that run at once.
    pub max_sequences: usize,
    /// Requests that may wait before [`EngineError::Busy`].
    pub max_waiting: usize,
    /// Whether equal prefixes share their blocks.
    pub prefix_cache: bool,
    /// Whether and how tokens are guessed ahead. Changes no byte of any reply.
    pub speculation: Speculation,
    /// What adapters may take.
    pub adapters: AdapterLimits,
    /// Tokens that end a reply.
    pub eog: Vec<u32>,
}

impl Default for EngineOptions {
    fn default() -> Self {
        Self {
            max_context: None,
            kv_tokens: None,
            kv_bytes: None,
            spare_states: None,
            memory: None,
            kv_type: KvType::F16,
            max_batch_tokens: 512,
            max_slowdown: Some(2.5),
            max_sequences: 64,
            max_waiting: 256,
            prefix_cache: true,
            speculation: Speculation::default(),
            adapters: AdapterLimits::default(),
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
    /// The model's side of text, or why there is none.
    text: Result<ModelText, String>,
    adapters: Registry,
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
    /// Elements of an embedding; 0 where the model gives none.
    pub hidden_size: usize,
    /// How embeddings are made unless a request says otherwise: as the file says, else from the last token, or of all where
    /// attention goes both ways.
    pub pooling: Pooling,
    /// Whether the model continues texts. One that does not only embeds them.
    pub generates: bool,
    /// Whether every token sees the whole text.
    pub bidirectional: bool,
    /// Longest sequence, in tokens.
    pub max_context: usize,
    /// Context that the model was made for.
    pub trained_context: usize,
    /// Tokens that the KV pool holds, over all sequences.
    pub kv_tokens: usize,
    /// Slots for recurrent states: of running sequences, and others for prefixes and drafts. (0, 0) where the model has no
    /// such states.
    pub states: (usize, usize),
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
    adapters: Mutex<Vec<AdapterCount>>,
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

    /// Requests of each adapter in use, as of now.
    pub(crate) fn publish_adapters(&self, counts: Vec<AdapterCount>) {
        *self.adapters.lock().unwrap_or_else(PoisonError::into_inner) = counts;
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
        // A text that is seen as a whole is computed in one step.
        let bidirectional = model.graph.bidirectional;
        let max_sequences = options.max_sequences.max(1);
        let max_tokens = options.max_batch_tokens.max(max_sequences);
        let max_tokens = if bidirectional { max_tokens.max(max_context) } else { max_tokens };
        let available = options.memory.map(|m| m.saturating_sub(weight_bytes(&model.graph)));
        let states = state_sizes(&options, &model.graph, available, max_sequences)?;
        let n_states = states.map_or(0, |s| s.slots());
        let taken = model.graph.state_bytes().saturating_mul(n_states as u64);
        let available = available.map(|a| a.saturating_sub(taken));
        let options =
            EngineOptions { kv_bytes: options.kv_bytes.map(|b| b.saturating_sub(taken)), ..options };
        let sizes = pool_sizes(&options, layers, available, max_context, max_sequences, max_tokens)?;
        let n_blocks = sizes.full;
        let max_context = max_context.min(n_blocks * BLOCK_TOKENS);
        let max_reads = (MAX_READ_BYTES / 4 / model.graph.vocab_size.max(1)).clamp(1, MAX_READS);
        let max_reads = if model.graph.logits.is_none() { max_tokens } else { max_reads };
        let step_limits = StepLimits { max_tokens, max_sequences, max_drafts: MAX_DRAFTS, max_reads };
        let load = LoadOptions {
            max_tokens,
            max_outputs: step_limits.max_outputs(),
            kv: KvConfig { n_blocks, n_window_blocks: sizes.window, n_states, kv_type: options.kv_type },
        };
        let loaded = device.load(Arc::clone(&model.graph), &GgufWeights(file), load, progress)?;
        let info = EngineInfo {
            architecture: model.architecture,
            device: device.describe(),
            vocab_size: model.graph.vocab_size,
            hidden_size: model.graph.hidden_size(),
            pooling: model.pooling.unwrap_or(if bidirectional { Pooling::Mean } else { Pooling::Last }),
            generates: model.graph.logits.is_some(),
            bidirectional,
            max_context,
            trained_context: model.context_length,
            kv_tokens: n_blocks * BLOCK_TOKENS,
            states: states.map_or((0, 0), |s| (s.running, s.extra)),
            memory: loaded.memory(),
            plan: loaded.plan_text(),
        };
        let shared = Arc::new(Shared::default());
        let kv = KvSetup {
            layers: layers.clone(),
            sizes,
            states,
            prefix_cache: options.prefix_cache && !bidirectional,
        };
        let model_limits =
            ModelLimits { eog: options.eog, max_context, max_drafts: options.speculation.most() };
        let speculation = options.speculation;
        let mut worker = Worker::new(
            loaded,
            kv,
            (step_limits, Pace::new(options.max_slowdown)),
            model_limits,
            speculation.clone(),
            (info.vocab_size, info.hidden_size),
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
            text: Err("the engine was loaded without it; `Engine::builder` loads it".to_owned()),
            adapters: Registry::new(model, options.adapters),
        })
    }

    /// The same engine with the model's side of text, or why there is none.
    pub(crate) fn with_text(mut self, text: Result<ModelText, String>) -> Self {
        self.text = text;
        self
    }

    pub(crate) fn text(&self) -> Result<&ModelText, EngineError> {
        self.text.as_ref().map_err(|why| EngineError::NoText(why.clone()))
    }

    /// What is loaded.
    pub fn info(&self) -> &EngineInfo {
        &self.info
    }

    /// Sequences that can run at once.
    pub fn max_sequences(&self) -> usize {
        self.max_sequences
    }

    /// Loads a LoRA adapter (a GGUF file, or a folder that PEFT saved) under a name of its own, while requests run.
    ///
    /// # Errors
    /// [`EngineError::Adapter`] where the name is taken, a limit is reached, or the file is at fault or not for this model.
    pub fn load_adapter(&self, name: &str, path: impl AsRef<Path>) -> Result<AdapterId, EngineError> {
        Ok(self.adapters.load(name, path.as_ref())?)
    }

    /// Makes an adapter unavailable for new requests. Those that use it go on; its memory goes with the last of them.
    ///
    /// # Errors
    /// [`EngineError::Adapter`] where no adapter has that name.
    pub fn unload_adapter(&self, name: &str) -> Result<(), EngineError> {
        Ok(self.adapters.unload(name)?)
    }

    /// The id of a loaded adapter.
    ///
    /// # Errors
    /// As [`Engine::unload_adapter`].
    pub fn adapter(&self, name: &str) -> Result<AdapterId, EngineError> {
        Ok(self.adapters.find(name)?)
    }

    /// The adapters that are loaded, in order of their loading, with how many requests use them.
    pub fn adapters(&self) -> Vec<AdapterInfo> {
        let counts = self.shared.adapters.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.adapters.infos(&counts)
    }

    /// What adapters may take.
    pub fn adapter_limits(&self) -> AdapterLimits {
        self.adapters.limits()
    }

    /// Bytes that adapters hold, those included that are unloaded and still in use.
    pub fn adapter_bytes(&self) -> u64 {
        self.adapters.bytes()
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
        let (n, context) = (request.prompt.len(), self.info.max_context);
        if n >= context {
            return Err(EngineError::PromptTooLong { prompt: n, context });
        }
        self.must_generate()?;
        request.sampling.check(self.info.vocab_size)?;
        let (n_sinks, most) = (sinks.len(), self.max_sequences);
        if sinks.is_empty() || n_sinks > most {
            return Err(EngineError::Continuations { n: n_sinks, most });
        }
        let siblings = sinks.split_off(1);
        let sink = sinks.pop().ok_or(EngineError::Continuations { n: n_sinks, most })?;
        let proposer = self.speculation.proposer();
        self.queue(request, |id, request, cancelled| {
            Sequence::new(id, request, proposer, cancelled, sink, siblings)
        })
    }

    /// Queues a text of which `reader` takes rows; nothing is drawn, and `sink` hears the end.
    ///
    /// # Errors
    /// As [`Engine::submit`]; a text may be as long as the context.
    pub(crate) fn submit_reading(
        &self,
        request: Request,
        reader: Reader,
        sink: Sink,
    ) -> Result<Cancel, EngineError> {
        let (n, context) = (request.prompt.len(), self.info.max_context);
        if n > context {
            return Err(EngineError::TextTooLong { tokens: n, context });
        }
        self.queue(request, |id, request, cancelled| {
            Sequence::new(id, request, None, cancelled, sink, Vec::new())
                .reading(reader, self.info.bidirectional)
        })
    }

    /// Refuses what needs logits where the model gives none.
    pub(crate) fn must_generate(&self) -> Result<(), EngineError> {
        if self.info.generates {
            return Ok(());
        }
        Err(EngineError::NoLogits { architecture: self.info.architecture })
    }

    fn queue(
        &self,
        request: Request,
        sequence: impl FnOnce(u64, Request, Arc<AtomicBool>) -> Sequence,
    ) -> Result<Cancel, EngineError> {
        if request.prompt.is_empty() {
            return Err(EngineError::EmptyPrompt);
        }
        let vocab_size = self.info.vocab_size;
        if let Some(&id) = request.prompt.iter().find(|&&id| id as usize >= vocab_size) {
            return Err(EngineError::TokenId { id, vocab_size });
        }
        let adapters = self.adapters.lease(&request.adapters)?;
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
        let sequence = sequence(id, request, Arc::clone(&cancelled)).with_adapters(adapters);
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

/// Slots for the recurrent states of a model that has such.
fn state_sizes(
    options: &EngineOptions,
    graph: &Graph,
    available: Option<u64>,
    max_sequences: usize,
) -> Result<Option<StateSizes>, EngineError> {
    let state = graph.state_bytes();
    if state == 0 {
        return Ok(None);
    }
    let memory = options.kv_bytes.into_iter().chain(available).min();
    let block = block_bytes(&graph.kv_layers, options.kv_type);
    match StateSizes::new(max_sequences, options.spare_states, state, block, memory) {
        Some(sizes) => Ok(Some(sizes)),
        None => Err(EngineError::StatesTooLarge {
            sequences: max_sequences,
            needed: state.saturating_mul(max_sequences as u64),
            available: memory.unwrap_or(u64::MAX),
        }),
    }
}

/// Blocks of the pools that the options ask for. Groups behind a window get what their windows need, and the others the memory
/// that this leaves, where it is enough for more blocks than that; else all get as many.
fn pool_sizes(
    options: &EngineOptions,
    layers: &[KvLayer],
    available: Option<u64>,
    max_context: usize,
    max_sequences: usize,
    max_tokens: usize,
) -> Result<PoolSizes, EngineError> {
    let demand = |layers: &[KvLayer]| KvDemand {
        block_bytes: block_bytes(layers, options.kv_type),
        max_context,
        max_sequences,
    };
    if let Some(window) = smaller_window(layers) {
        let sees_all = |l: &&KvLayer| layers.iter().any(|o| o.group == l.group && o.window.is_none());
        let (full, windowed): (Vec<&KvLayer>, Vec<&KvLayer>) = layers.iter().partition(sees_all);
        let [full, windowed] = [full, windowed].map(|l| demand(&l.into_iter().copied().collect::<Vec<_>>()));
        let needs = PoolSizes::needs(window, max_sequences, max_tokens);
        let taken = windowed.block_bytes.saturating_mul(needs as u64);
        let rest =
            EngineOptions { kv_bytes: options.kv_bytes.map(|b| b.saturating_sub(taken)), ..options.clone() };
        let cached = windowed.block_bytes.div_ceil(PoolSizes::CACHED as u64);
        let both = KvDemand { block_bytes: full.block_bytes.saturating_add(cached), ..full };
        let n = pool_blocks(&rest, both, available.map(|a| a.saturating_sub(taken)));
        let sizes = n.map(|n| PoolSizes::new(n, window, max_sequences, max_tokens));
        if let Ok(sizes) = sizes
            && sizes.window < sizes.full
        {
            return Ok(sizes);
        }
    }
    Ok(PoolSizes::equal(pool_blocks(options, demand(layers), available)?))
}

/// Blocks of a pool that the options ask for.
fn pool_blocks(
    options: &EngineOptions,
    demand: KvDemand,
    available: Option<u64>,
) -> Result<usize, EngineError> {
    let block = demand.block_bytes.max(1);
    let tokens = |n: usize| n.div_ceil(BLOCK_TOKENS).max(1) as u64;
    let n = match (options.kv_bytes, options.kv_tokens, available) {
        (Some(bytes), ..) if bytes < block => return Err(EngineError::KvMemory { bytes, block }),
        (Some(bytes), ..) => (bytes / block).min(demand.most()),
        (None, Some(n), _) => tokens(n),
        (None, None, Some(available)) => kv_pool_default(available, demand)?,
        (None, None, None) => tokens(demand.max_context),
    };
    if let Some(available) = available {
        kv_pool_fits(n, block, available)?;
    }
    usize::try_from(n).map_err(|_| EngineError::KvMemory { bytes: u64::MAX, block })
}

/// Bytes of a model's weights in the file, which is what they take on a device, give or take padding.
fn weight_bytes(graph: &Graph) -> u64 {
    let bytes = |w: &WeightDecl| {
        let row = w.ty.row_bytes(w.n_in).unwrap_or(0) as u64;
        row.saturating_mul(w.n_out as u64).saturating_mul(w.n_stack as u64)
    };
    graph.weights.iter().map(bytes).fold(0, u64::saturating_add)
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
