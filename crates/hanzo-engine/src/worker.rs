//! The engine's thread: takes requests, runs one step after the other, hands out what it brought.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use hanzo_fusion::{AdapterUse, DeviceError, KvLayer, LoadedModel, SequenceStep, StateUse, Step};

use crate::EngineError;
use crate::adapters;
use crate::constraint::ahead::Ahead;
use crate::engine::Shared;
use crate::kv::{KvManager, PoolSizes, StatePlan, StateSizes};
use crate::metrics::Metrics;
use crate::pace::Pace;
use crate::read::Rows;
use crate::request::FinishReason;
use crate::scheduler::{Scheduler, StepLimits, Work};
use crate::sequence::{ModelLimits, Sequence, SequenceId};
use crate::speculate::Speculation;

/// What the KV pools are made of.
#[derive(Clone, Debug)]
pub(crate) struct KvSetup {
    pub(crate) layers: Vec<KvLayer>,
    pub(crate) sizes: PoolSizes,
    /// Of models with recurrent states.
    pub(crate) states: Option<StateSizes>,
    pub(crate) prefix_cache: bool,
}

impl KvSetup {
    fn manager(&self) -> KvManager {
        KvManager::new(&self.layers, self.sizes, self.prefix_cache).with_states(self.states)
    }
}

/// All that the thread owns.
pub(crate) struct Worker {
    model: Box<dyn LoadedModel>,
    scheduler: Scheduler,
    kv: KvSetup,
    step_limits: StepLimits,
    model_limits: ModelLimits,
    speculation: Speculation,
    pace: Pace,
    ahead: Ahead,
    logits: Vec<f32>,
    vocab_size: usize,
    /// Hidden states that the last step was asked for.
    hidden: Vec<f32>,
    hidden_size: usize,
    totals: Metrics,
    shared: Arc<Shared>,
}

impl Worker {
    pub(crate) fn new(
        model: Box<dyn LoadedModel>,
        kv: KvSetup,
        (step_limits, pace): (StepLimits, Pace),
        model_limits: ModelLimits,
        speculation: Speculation,
        (vocab_size, hidden_size): (usize, usize),
        shared: Arc<Shared>,
    ) -> Self {
        let mut worker = Self {
            model,
            scheduler: Scheduler::new(kv.manager(), step_limits),
            kv,
            step_limits,
            model_limits,
            speculation,
            pace,
            ahead: Ahead::default(),
            logits: Vec::new(),
            vocab_size,
            hidden: Vec::new(),
            hidden_size,
            totals: Metrics::default(),
            shared,
        };
        worker.publish();
        worker
    }

    /// Runs until the engine is dropped. A panic outside of a step ends what is there, and the work goes on with what
    /// comes after.
    pub(crate) fn supervise(&mut self, commands: &Receiver<Sequence>) {
        loop {
            let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.run(commands))) else { return };
            let why = panic_text(panic.as_ref());
            tracing::error!("the engine's thread panicked and starts anew: {why}");
            let ended = self.scheduler.drain();
            let counts = self.scheduler.counts;
            self.scheduler = Scheduler::new(self.kv.manager(), self.step_limits);
            self.scheduler.counts = counts;
            self.totals.restarts += 1;
            // Whoever hears of the restart must find it counted.
            self.publish();
            for sequence in ended {
                sequence.fail(|| EngineError::Restarted(why.clone()));
            }
        }
    }

    fn run(&mut self, commands: &Receiver<Sequence>) {
        while self.receive(commands) {
            self.scheduler.reap(Instant::now());
            for sequence in self.scheduler.all_running() {
                sequence.propose(&self.model_limits);
            }
            let work = self.scheduler.plan(&self.pace);
            self.publish();
            if !work.is_empty() {
                self.step(&work);
            }
            if self.scheduler.is_idle() {
                self.publish();
            }
        }
        for sequence in self.scheduler.drain().into_iter().chain(commands.try_iter()) {
            sequence.fail(|| EngineError::Stopped);
        }
    }

    /// Takes all requests that have come, waiting for one when there is nothing to do. False ends the thread.
    fn receive(&mut self, commands: &Receiver<Sequence>) -> bool {
        if self.shared.stops() {
            return false;
        }
        if self.scheduler.is_idle() {
            match commands.recv() {
                Ok(sequence) => self.enqueue(sequence),
                Err(_) => return false,
            }
        }
        loop {
            match commands.try_recv() {
                Ok(sequence) => self.enqueue(sequence),
                Err(TryRecvError::Empty) => return !self.shared.stops(),
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn enqueue(&mut self, sequence: Sequence) {
        self.scheduler.enqueue(sequence);
        self.shared.received(self.scheduler.n_waiting());
    }

    fn publish(&mut self) {
        let counts = self.scheduler.counts;
        self.shared.publish_adapters(self.scheduler.adapter_counts());
        self.shared.publish(Metrics {
            waiting: self.scheduler.n_waiting(),
            running: self.scheduler.n_running(),
            kv_blocks: self.scheduler.kv.n_blocks(),
            kv_free: self.scheduler.kv.n_free(),
            states: self.kv.states.map_or(0, |s| s.slots()),
            states_free: self.scheduler.kv.n_free_states(),
            preemptions: counts.preemptions,
            prefix_queries: counts.prefix_queries,
            prefix_hits: counts.prefix_hits,
            ..self.totals
        });
    }

    /// Runs one step and hands out what it brought. A step that fails fails the requests in it and no others.
    fn step(&mut self, work: &[Work]) {
        let began = Instant::now();
        self.ask_ahead(work);
        let outcome = catch_unwind(AssertUnwindSafe(|| self.forward(work)));
        for lent in self.ahead.answers() {
            if let Some((sequence, _)) = self.scheduler.running_mut(lent.id) {
                sequence.take_back(lent);
            }
        }
        self.totals.steps += 1;
        let fault = match outcome {
            Ok(Ok(())) => {
                self.observe(work, began.elapsed());
                return self.advance(work);
            }
            Ok(Err(e)) => e.to_string(),
            Err(panic) => panic_text(panic.as_ref()),
        };
        tracing::error!("step failed: {fault}");
        self.totals.failed_steps += 1;
        for w in work {
            if let Some(sequence) = self.scheduler.remove(w.id) {
                sequence.fail(|| EngineError::Step(fault.clone()));
            }
        }
    }

    /// Has the constraints of those who draw after the step asked while it runs.
    fn ask_ahead(&mut self, work: &[Work]) {
        for w in work {
            let Some((sequence, _)) = self.scheduler.running_mut(w.id) else { continue };
            if let Some(lent) = sequence.lend_constraint(w.n_tokens, w.n_drafts)
                && let Err(lent) = self.ahead.ask(lent, self.vocab_size)
            {
                sequence.take_back(lent);
            }
        }
    }

    fn observe(&mut self, work: &[Work], time: Duration) {
        let rows = |decodes| work.iter().filter(|w| w.decodes == decodes).map(|w| w.n_tokens).sum();
        self.pace.observe(rows(true), rows(false), time);
        self.totals.prompt_tokens += rows(false) as u64;
    }

    /// The device's part of a step: logits of every sequence whose tokens are all through with it, at its last token and
    /// its drafts, and the rows that readers take.
    fn forward(&mut self, work: &[Work]) -> Result<(), DeviceError> {
        for (group, pairs) in self.scheduler.kv.take_copies().iter().enumerate() {
            if !pairs.is_empty() {
                self.model.copy_blocks(group, pairs)?;
            }
        }
        self.copy_states()?;
        let parts: Vec<(&Sequence, &Work)> =
            work.iter().filter_map(|w| Some((self.scheduler.running(w.id)?, w))).collect();
        let tables: Vec<Vec<&[u32]>> = parts.iter().map(|(s, _)| s.tables.slices().collect()).collect();
        let uses: Vec<Vec<AdapterUse<'_>>> = parts.iter().map(|(s, _)| adapters::uses(&s.adapters)).collect();
        let (mut tokens, mut sequences) = (Vec::new(), Vec::new());
        let mut states: Vec<StatePlan> = Vec::new();
        let (mut outputs, mut hidden) = (Vec::new(), Vec::new());
        for (((sequence, w), tables), adapters) in parts.iter().zip(&tables).zip(&uses) {
            let context_len = sequence.n_computed + w.n_tokens;
            let wanted = sequence.rows_wanted(w.n_tokens, w.n_drafts);
            let certain = sequence.n_computed..context_len - w.n_drafts;
            tokens.extend_from_slice(sequence.tokens.get(certain.clone()).unwrap_or_default());
            tokens.extend_from_slice(sequence.drafts.get(..w.n_drafts).unwrap_or_default());
            sequences.push(SequenceStep {
                n_tokens: w.n_tokens,
                context_len,
                block_tables: tables,
                adapters,
            });
            states.extend(self.scheduler.kv.state_plan(
                &sequence.tables,
                sequence.n_computed,
                w.n_tokens,
                w.n_drafts,
            ));
            let rows = if sequence.row_kind() == Rows::Hidden { &mut hidden } else { &mut outputs };
            rows.extend(wanted.map(|position| (tokens.len() + position - context_len) as u32));
        }
        self.logits.resize(outputs.len() * self.vocab_size, 0.0);
        let step = Step { tokens: &tokens, sequences: &sequences, outputs: &outputs, hidden: &hidden };
        if self.kv.states.is_some() {
            let uses = states.iter().map(|s| StateUse { from: s.from, to: s.to, saves: &s.saves });
            let states: Vec<StateUse<'_>> = uses.collect();
            self.model.step_states(&step, &states, &mut self.logits)?;
        } else {
            self.model.step(&step, &mut self.logits)?;
        }
        self.hidden.clear();
        if !hidden.is_empty() {
            self.hidden.extend_from_slice(self.model.hidden());
        }
        Ok(())
    }

    /// Copies the recurrent states of sequences that go on from a checkpoint or another sequence.
    fn copy_states(&mut self) -> Result<(), DeviceError> {
        let pairs = self.scheduler.kv.take_state_copies();
        if pairs.is_empty() { Ok(()) } else { self.model.copy_states(&pairs) }
    }

    /// The host's part: cached tokens are counted, tokens drawn, replies ended.
    fn advance(&mut self, work: &[Work]) {
        let (logits, hidden) = (std::mem::take(&mut self.logits), std::mem::take(&mut self.hidden));
        let mut logits_rows = logits.chunks_exact(self.vocab_size.max(1));
        let mut hidden_rows = hidden.chunks_exact(self.hidden_size.max(1));
        for w in work {
            let Some((sequence, kv)) = self.scheduler.running_mut(w.id) else { continue };
            let n_rows = sequence.rows_wanted(w.n_tokens, w.n_drafts).len();
            let rows = if sequence.row_kind() == Rows::Hidden { &mut hidden_rows } else { &mut logits_rows };
            let rows: Vec<&[f32]> = rows.take(n_rows).collect();
            sequence.advance(w.n_tokens - w.n_drafts);
            let computed = sequence.tokens.get(..sequence.n_computed).unwrap_or_default();
            kv.commit(&mut sequence.tables, computed);
            if sequence.is_reading() {
                self.read(w.id, &rows);
                continue;
            }
            if sequence.pending() > 0 {
                continue;
            }
            let ids = self.scheduler.split(w.id, &self.speculation);
            // Before the first of them goes on.
            let copied = self.copy_states();
            for id in ids {
                match &copied {
                    Err(e) if id != w.id => self.end_if(id, Err(EngineError::Step(e.to_string()))),
                    _ => self.verify(id, w.n_drafts, &rows),
                }
            }
        }
        (self.logits, self.hidden) = (logits, hidden);
    }

    /// Draws a token from each row of logits in turn, as long as the drafts that the next row saw are what was drawn.
    fn verify(&mut self, id: SequenceId, n_drafts: usize, rows: &[&[f32]]) {
        let Some((sequence, kv)) = self.scheduler.running_mut(id) else { return };
        let mut accepted = 0;
        let mut outcome = Ok(None);
        for row in rows {
            let drawn = catch_unwind(AssertUnwindSafe(|| sequence.draw(row, &self.model_limits)));
            outcome = drawn.unwrap_or_else(|panic| Err(EngineError::Step(panic_text(panic.as_ref()))));
            self.totals.generated_tokens += u64::from(outcome.is_ok());
            let right = sequence.drafts.get(accepted).filter(|_| accepted < n_drafts);
            if outcome.is_err() || right.is_none() || right != sequence.tokens.last() {
                break;
            }
            // Its keys and values are there already.
            accepted += 1;
            if !matches!(outcome, Ok(None)) {
                break;
            }
        }
        sequence.observe(n_drafts, accepted);
        self.totals.drafted_tokens += n_drafts as u64;
        self.totals.accepted_tokens += accepted as u64;
        let computed = kv.settle_drafts(&mut sequence.tables, n_drafts, accepted);
        sequence.n_computed += computed;
        sequence.replay = accepted - computed;
        if computed > 0 {
            let computed = sequence.tokens.get(..sequence.n_computed).unwrap_or_default();
            kv.commit(&mut sequence.tables, computed);
        }
        self.end_if(id, outcome);
    }

    /// Hands a reader its rows.
    fn read(&mut self, id: SequenceId, rows: &[&[f32]]) {
        let Some((sequence, _)) = self.scheduler.running_mut(id) else { return };
        let outcome = catch_unwind(AssertUnwindSafe(|| sequence.read(rows)));
        let outcome = outcome.unwrap_or_else(|panic| Err(EngineError::Step(panic_text(panic.as_ref()))));
        self.end_if(id, outcome);
    }

    /// Ends a sequence that is through or failed.
    fn end_if(&mut self, id: SequenceId, outcome: Result<Option<FinishReason>, EngineError>) {
        if matches!(outcome, Ok(None)) {
            return;
        }
        let Some(sequence) = self.scheduler.remove(id) else { return };
        match outcome {
            Ok(reason) => sequence.finish(reason.unwrap_or(FinishReason::Stop)),
            Err(error) => {
                tracing::warn!("request failed: {error}");
                sequence.fail_with(error);
            }
        }
    }
}

pub(crate) fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message").to_owned()
}
