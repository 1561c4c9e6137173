//! A loaded model, and its steps.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use hanzo_fusion::graph::{Op, RopeSpec, Value, Weight};
use hanzo_fusion::step::KvLayer;
use hanzo_fusion::{
    DeviceError, Launch, LaunchKind, LoadOptions, MemoryReport, Observer, Plan, Progress, StateUse, Step,
    WeightSource,
};

use super::adapters::{self, Updates};
use super::arena::{Arena, Counts, View};
use super::clock::Clock;
use super::contract::{self, Output};
use super::pack_cache::PackCache;
use super::step::{Inputs, group_windows};
use super::weights::Held;
use super::{load_error, observe, recurrent, rows};
use crate::CpuError;
use crate::attention::kv::LayerPool;
use crate::attention::{Attention, Items, Out, Scratch};
use crate::contract::Routes;
use crate::ops::rope::RopeTable;
use crate::pool::{Ctx, Pool};
use crate::recurrent::{Share, Slots};

/// A model on the CPU.
pub(super) struct Model {
    pool: Arc<Pool>,
    plan: Plan,
    options: LoadOptions,
    weights: Vec<Held>,
    kv: Vec<LayerPool>,
    /// Recurrent states, an entry a recurrent op.
    states: Vec<Slots>,
    /// Tokens that the state in each slot has seen; `None` where it is undefined.
    seen: Vec<Option<usize>>,
    windows: Vec<Option<u32>>,
    arena: Arena,
    /// Rows of outputs whose hidden states the last step was asked for.
    hidden: Range<usize>,
    /// Results of each contraction launch; empty for others.
    outputs: Vec<Vec<Output>>,
    ropes: Vec<(RopeSpec, RopeTable)>,
    /// Partial results of attention, grown as needed.
    partials: Vec<f32>,
    /// Projections of low-rank updates, grown as needed.
    projected: Vec<f32>,
    locals: Vec<Local>,
    /// Sees the inputs of contractions; the plan is then [`Plan::observed`].
    observer: Option<Arc<dyn Observer>>,
}

/// What belongs to one thread during a step.
#[derive(Default)]
struct Local(UnsafeCell<LocalState>);

#[derive(Default)]
struct LocalState {
    strip: Vec<f32>,
    attention: Scratch,
    /// A block of a recurrent state.
    recurrent: Vec<f32>,
    /// Rows whose low-rank projections are being computed.
    rows: Vec<f32>,
    routes: Routes,
    /// The ids that `routes` are of, in this step.
    routed: Option<Value>,
}

// SAFETY: a thread touches its own entry only.
unsafe impl Sync for Local {}

/// What all threads see of a step.
pub(super) struct Running<'a> {
    pub(super) view: View<'a>,
    pub(super) inputs: &'a Inputs<'a>,
    pub(super) kv: &'a [LayerPool],
    pub(super) states: &'a [Slots],
    pub(super) ropes: &'a [(RopeSpec, RopeTable)],
    weights: &'a [Held],
    /// Pieces of each kind of attention layer.
    items: &'a [(ItemsKey, Items)],
    partials: *mut f32,
    /// What adapters add to each launch; nothing at all where no row uses one.
    updates: &'a [Updates<'a>],
    pub(super) projected: *mut f32,
}

// SAFETY: `partials` and `projected` are written in disjoint parts (see `Attention` and `adapters`); the rest is shared or Sync.
unsafe impl Sync for Running<'_> {}

/// What the split of an attention depends on, beside the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ItemsKey {
    kv_heads: usize,
    group: usize,
    window: Option<u32>,
    v_stride: usize,
    kv_group: usize,
}

impl Running<'_> {
    pub(super) fn weight(&self, w: Weight) -> &Held {
        self.weights.get(w.index()).unwrap_or(&Held::Unused)
    }
}

impl Model {
    pub(super) fn load(
        pool: Arc<Pool>,
        plan: Plan,
        source: &dyn WeightSource,
        options: LoadOptions,
        cache: Option<&PackCache>,
        progress: &dyn Progress,
    ) -> Result<Self, DeviceError> {
        let unsupported = |what: String| DeviceError::Unsupported { device: "cpu", what };
        if plan.graph.kv_layers.iter().any(|l| l.window == Some(0) || l.k_head_dim == 0 || l.v_head_dim == 0)
        {
            return Err(unsupported("an attention layer of no size".to_owned()));
        }
        recurrent::check(&plan.graph).map_err(unsupported)?;
        let windows = group_windows(&plan.graph);
        let pool_of = |layer: &KvLayer| {
            let window = windows.get(layer.group).copied().flatten();
            LayerPool::new(layer, options.kv.kv_type, options.kv.blocks(window))
        };
        let kv: Result<Vec<_>, _> = plan.graph.kv_layers.iter().map(pool_of).collect();
        let kv = kv.map_err(|e| load_error("KV pool", e))?;
        let states = plan.graph.states.iter().map(|layer| Slots::new(*layer, options.kv.n_states));
        let states: Result<Vec<_>, _> = states.collect();
        let states = states.map_err(|e| load_error("recurrent states", e))?;
        let arena = Arena::new(&plan, &options).map_err(|e| load_error("activations", e))?;
        let weights = Held::load_all(&plan.graph, source, &pool, cache, progress)?;
        let outputs = plan.launches.iter().map(|l| contract::outputs(&plan.graph, l)).collect();
        let ropes = plan.graph.ropes.iter().map(|spec| (spec.clone(), RopeTable::default())).collect();
        let width = arena.strip_widths.iter().copied().max().unwrap_or(0);
        let block = recurrent::scratch_len(&plan.graph);
        let locals = (0..pool.threads())
            .map(|_| {
                let state = LocalState {
                    strip: vec![0.0; rows::strip_memory(width)],
                    recurrent: vec![0.0; block],
                    ..LocalState::default()
                };
                Local(UnsafeCell::new(state))
            })
            .collect();
        Ok(Model {
            pool,
            plan,
            options,
            weights,
            kv,
            seen: vec![None; if states.is_empty() { 0 } else { options.kv.n_states }],
            states,
            windows,
            arena,
            hidden: 0..0,
            outputs,
            ropes,
            partials: Vec::new(),
            projected: Vec::new(),
            locals,
            observer: None,
        })
    }

    /// The same, shown to an observer. The plan must be [`Plan::observed`].
    pub(super) fn observed_by(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    pub(super) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(super) fn report(&self) -> MemoryReport {
        let strips: usize = self
            .locals
            .iter()
            // SAFETY: no step runs while the model is borrowed here.
            .map(|l| unsafe { &*l.0.get() })
            .map(|l| (l.strip.len() + l.rows.capacity() + l.recurrent.len()) * 4 + l.attention.bytes())
            .sum();
        MemoryReport {
            weights: self.weights.iter().map(|w| w.bytes() as u64).sum(),
            kv: self
                .kv
                .iter()
                .map(LayerPool::bytes)
                .chain(self.states.iter().map(Slots::bytes))
                .sum::<usize>() as u64,
            arena: (self.arena.bytes() + strips + (self.partials.capacity() + self.projected.capacity()) * 4)
                as u64,
        }
    }

    pub(super) fn copy(&mut self, group: usize, pairs: &[(u32, u32)]) -> Result<(), DeviceError> {
        let Some(&window) = self.windows.get(group) else {
            return Err(DeviceError::InvalidStep(format!("KV group {group} of {}", self.windows.len())));
        };
        let n = self.options.kv.blocks(window);
        if let Some((from, to)) = pairs.iter().find(|(from, to)| *from as usize >= n || *to as usize >= n) {
            return Err(DeviceError::InvalidStep(format!("copy of block {from} to {to}, of {n}")));
        }
        for (layer, pool) in
            self.plan.graph.kv_layers.iter().zip(&mut self.kv).filter(|(l, _)| l.group == group)
        {
            debug_assert_eq!(layer.group, group);
            for &(from, to) in pairs {
                pool.copy_block(from as usize, to as usize);
            }
        }
        Ok(())
    }

    /// Copies recurrent states from slot to slot.
    pub(super) fn copy_slots(&mut self, pairs: &[(u32, u32)]) -> Result<(), DeviceError> {
        let n = self.seen.len();
        if let Some((from, to)) = pairs.iter().find(|(from, to)| *from as usize >= n || *to as usize >= n) {
            return Err(DeviceError::InvalidStep(format!("copy of recurrent state {from} to {to}, of {n}")));
        }
        for slots in &mut self.states {
            pairs.iter().for_each(|&(from, to)| slots.copy(from, to));
        }
        for &(from, to) in pairs {
            self.seen[to as usize] = self.seen[from as usize];
        }
        Ok(())
    }

    /// Runs a step. With a clock, the thread that arrives last at each barrier notes the time there.
    pub(super) fn run(
        &mut self,
        step: &Step<'_>,
        states: &[StateUse<'_>],
        logits: &mut [f32],
        clock: Option<&Clock>,
    ) -> Result<(), DeviceError> {
        self.hidden = 0..0;
        let inputs = Inputs::new(
            step,
            states,
            &self.plan.graph,
            &self.windows,
            &self.options,
            &self.seen,
            logits.len(),
        )?;
        let tokens = inputs.tokens.len();
        if tokens == 0 {
            return Ok(());
        }
        let kept: Vec<(u32, usize)> = inputs.shares.iter().flat_map(Share::kept).collect();
        // Until the step has succeeded.
        kept.iter().for_each(|(slot, _)| self.seen[*slot as usize] = None);
        for (spec, table) in &mut self.ropes {
            table.resize(spec, tokens);
            for (row, &position) in inputs.positions.iter().enumerate() {
                table.fill(spec, row, position);
            }
        }
        let items = self.items(&inputs);
        let partials = items.iter().map(|(_, i)| i.partial_len).max().unwrap_or(0);
        if self.partials.len() < partials {
            self.partials.resize(partials, 0.0);
        }
        let plan = &self.plan;
        let updates: Vec<Updates<'_>> = if inputs.adapters.is_empty() {
            Vec::new()
        } else {
            let launches = plan.launches.iter().zip(&self.outputs);
            launches.map(|(l, o)| Updates::new(&plan.graph, l, o, &inputs.adapters)).collect()
        };
        let projected = updates.iter().map(|u| u.len).max().unwrap_or(0);
        if self.projected.len() < projected {
            self.projected.resize(projected, 0.0);
        }
        let counts = Counts { tokens, outputs: inputs.outputs.len(), logits: inputs.n_logits };
        let running = Running {
            view: self.arena.view(&plan.graph, logits, counts),
            inputs: &inputs,
            kv: &self.kv,
            states: &self.states,
            ropes: &self.ropes,
            weights: &self.weights,
            items: &items,
            partials: self.partials.as_mut_ptr(),
            updates: &updates,
            projected: self.projected.as_mut_ptr(),
        };
        let widths = running.view.strip_widths();
        let fault: Mutex<Option<CpuError>> = Mutex::new(None);
        let (locals, outputs, observer) = (&self.locals, &self.outputs, self.observer.as_deref());
        if let Some(clock) = clock {
            clock.enter();
        }
        let run = self.pool.run(|ctx| {
            let Some(local) = locals.get(ctx.index()) else { return };
            // SAFETY: this thread's own entry.
            let local = unsafe { &mut *local.0.get() };
            local.routed = None;
            let n = plan.launches.len();
            let note = |i: usize| {
                if let Some(clock) = clock {
                    clock.done(i);
                }
            };
            let single = |i: usize| plan.launches.get(i).is_some_and(|l| rows::is_single(&running, l));
            let mut at = 0;
            while at < n {
                let mut next = at;
                if !single(at) {
                    // SAFETY: all threads walk the same launches, with a barrier between any two.
                    let done = unsafe {
                        let updates = running.updates.get(at).filter(|u| !u.is_empty());
                        running.launch(ctx, &plan.launches[at], &outputs[at], updates, widths[at], local)
                    };
                    if let Err(e) = done {
                        // All threads fail alike.
                        fault.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
                        return;
                    }
                    next += 1;
                }
                // What one thread does alone follows without a barrier of its own.
                let first = next;
                while single(next) {
                    next += 1;
                }
                ctx.barrier_then(|| {
                    if first > at {
                        note(at);
                    }
                    if let (Some(observer), Some(launch)) = (observer, plan.launches.get(at)) {
                        // SAFETY: the other threads wait.
                        unsafe { observe::launch(observer, plan, &running, launch) };
                    }
                    for (i, launch) in (first..).zip(&plan.launches[first..next]) {
                        // SAFETY: the other threads wait.
                        unsafe { rows::run_single(ctx, &running, launch, local.strip.as_mut_ptr()) };
                        note(i);
                    }
                });
                at = next;
            }
        });
        let fault = fault.into_inner().unwrap_or_else(PoisonError::into_inner);
        if let Some(e) = run.err().or(fault) {
            return Err(DeviceError::StepFailed(e.to_string()));
        }
        kept.iter().for_each(|(slot, seen)| self.seen[*slot as usize] = Some(*seen));
        self.hidden = counts.logits..counts.outputs;
        Ok(())
    }

    /// Hidden states that the last step was asked for.
    pub(super) fn hidden_states(&self) -> &[f32] {
        let Some(value) = self.plan.graph.hidden else { return &[] };
        let n = self.plan.graph.hidden_size();
        self.arena.words(value, self.hidden.start * n..self.hidden.end * n)
    }

    /// The pieces of every kind of attention layer in this step.
    fn items(&self, inputs: &Inputs<'_>) -> Vec<(ItemsKey, Items)> {
        let mut all: Vec<(ItemsKey, Items)> = Vec::new();
        for node in &self.plan.graph.nodes {
            if let Op::Attention { kv, ref spec, .. } = node.op
                && let Some(key) = items_key(&self.plan, &self.kv, kv, spec.n_heads)
                && !all.iter().any(|(k, _)| *k == key)
                && let Some(sequences) = inputs.groups.get(key.kv_group)
            {
                let threads = self.pool.threads();
                let items = Items::new(sequences, key.kv_heads, key.group, key.window, key.v_stride, threads);
                all.push((key, items));
            }
        }
        all
    }
}

fn items_key(plan: &Plan, kv: &[LayerPool], layer: usize, n_heads: usize) -> Option<ItemsKey> {
    let (decl, pool) = (plan.graph.kv_layers.get(layer)?, kv.get(layer)?);
    Some(ItemsKey {
        kv_heads: decl.n_kv_heads,
        group: n_heads / decl.n_kv_heads,
        window: decl.window,
        v_stride: pool.record.v_stride,
        kv_group: decl.group,
    })
}

impl Running<'_> {
    /// # Safety
    /// All threads of the run call it together for the same launch, with a barrier before and after.
    unsafe fn launch(
        &self,
        ctx: &Ctx<'_>,
        launch: &Launch,
        outputs: &[Output],
        updates: Option<&Updates<'_>>,
        width: usize,
        local: &mut LocalState,
    ) -> Result<(), CpuError> {
        // SAFETY: the caller's promise.
        unsafe {
            match launch.kind {
                LaunchKind::Rows(domain) => {
                    rows::run(ctx, self, launch, domain, width, local.strip.as_mut_ptr());
                }
                LaunchKind::Contract { x, ids, .. } => {
                    if let Some(ids) = ids
                        && local.routed != Some(ids)
                    {
                        let experts = outputs.iter().find_map(|o| self.experts(o)).unwrap_or(0);
                        local.routes.build(self.view.ids(ids), experts);
                        local.routed = Some(ids);
                    }
                    if let Some(updates) = updates {
                        adapters::project(ctx, self, x, updates, &mut local.rows);
                    }
                    contract::run(ctx, self, launch, outputs, updates, &local.routes)?;
                }
                LaunchKind::Recurrent => {
                    if let Some(&v) = launch.nodes.first() {
                        recurrent::run(ctx, self, v, local.recurrent.as_mut_ptr());
                    }
                }
                LaunchKind::Attention => {
                    if let [v, quantized @ ..] = &launch.nodes[..] {
                        self.attention(ctx, *v, quantized.first().copied(), &mut local.attention);
                    }
                }
            }
        }
        Ok(())
    }

    fn experts(&self, output: &Output) -> Option<usize> {
        output.first_weight().and_then(|w| self.weight(w).matrix()).map(|m| m.experts())
    }

    /// # Safety
    /// As [`Running::launch`].
    unsafe fn attention(&self, ctx: &Ctx<'_>, v: Value, quantized: Option<Value>, scratch: &mut Scratch) {
        let Op::Attention { q, kv, spec, .. } = self.view.graph.nodes[v.index()].op else { return };
        let (Some(layer), Some(pool)) = (self.view.graph.kv_layers.get(kv), self.kv.get(kv)) else { return };
        let key = ItemsKey {
            kv_heads: layer.n_kv_heads,
            group: spec.n_heads / layer.n_kv_heads,
            window: layer.window,
            v_stride: pool.record.v_stride,
            kv_group: layer.group,
        };
        let Some((_, items)) = self.items.iter().find(|(k, _)| *k == key) else { return };
        let Some(sequences) = self.inputs.groups.get(layer.group) else { return };
        let attention = Attention {
            pool,
            n_heads: spec.n_heads,
            group: key.group,
            window: layer.window,
            scale: spec.scale,
            softcap: spec.softcap,
            sinks: spec.sinks.and_then(|w| self.weight(w).vector()),
            q: self.view.words(q, 0, self.view.counts.tokens).0,
            out: match quantized {
                Some(v) => Out::Quantized(self.view.quantized(v)),
                None => Out::Rows(self.view.words(v, 0, self.view.counts.tokens).0),
            },
            partials: self.partials,
        };
        ctx.claim(items.items.len(), |i| {
            // SAFETY: an item is claimed once; queries, keys and values were made by earlier launches.
            unsafe { attention.run(ctx.isa(), sequences, items, &items.items[i], scratch) };
        });
    }
}
