//! Buffers of values, and how threads reach them during a step.

use hanzo_fusion::graph::{Elem, Graph, Rows, Value};
use hanzo_fusion::{Domain, LaunchKind, LoadOptions, Plan};

use crate::CpuError;
use crate::activations::Activations;
use crate::epilogue::SEGMENT;

/// Where a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Never stored: it passes from a contraction to its epilogue, or has no columns.
    Nowhere,
    /// The step's result.
    Logits,
    /// A slot of the arena.
    Slot(usize),
    /// A thread's strip, at this many elements a row of the strip.
    Strip(usize),
}

/// What a slot holds.
#[derive(Debug)]
enum Buffer {
    /// f32 or u32 (as its bits), and how many. Pages are taken as they are first written.
    Words(memmap2::MmapMut, usize),
    Quantized(Activations),
}

/// All buffers.
#[derive(Debug)]
pub(super) struct Arena {
    buffers: Vec<Buffer>,
    places: Vec<Place>,
    /// Elements a row of the domain that strips of each launch need.
    pub(super) strip_widths: Vec<usize>,
}

/// Rows of each kind.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    pub(super) tokens: usize,
    /// Rows of which logits or hidden states are wanted.
    pub(super) outputs: usize,
    /// Of these, the first ones: rows whose logits are wanted.
    pub(super) logits: usize,
}

impl Counts {
    fn most(options: &LoadOptions) -> Self {
        let (tokens, outputs) = (options.max_tokens, options.max_outputs);
        Self { tokens, outputs, logits: outputs }
    }

    /// Rows of a value; `None` where that overflows.
    fn rows(self, rows: Rows) -> Option<usize> {
        match rows {
            Rows::Tokens => Some(self.tokens),
            Rows::Slots(k) => self.tokens.checked_mul(k),
            Rows::Outputs => Some(self.outputs),
            Rows::Logits => Some(self.logits),
        }
    }
}

/// Rows of a value to one row of its domain.
pub(super) fn rows_a_row(rows: Rows) -> usize {
    if let Rows::Slots(k) = rows { k } else { 1 }
}

impl Arena {
    pub(super) fn new(plan: &Plan, options: &LoadOptions) -> Result<Self, CpuError> {
        let refused = |bytes| CpuError::Memory { what: "activations", bytes };
        let mut buffers = Vec::with_capacity(plan.slots.len());
        for slot in &plan.slots {
            let mut words = 0usize;
            for shape in &slot.shapes {
                let rows = Counts::most(options).rows(shape.rows);
                let n = rows.and_then(|r| r.checked_mul(shape.cols)).ok_or(refused(usize::MAX))?;
                words = words.max(n);
            }
            buffers.push(match (slot.elem, slot.shapes.first()) {
                (Elem::Quantized, Some(shape)) => {
                    let rows = Counts::most(options).rows(shape.rows).unwrap_or(0);
                    Buffer::Quantized(Activations::new(rows, shape.cols)?)
                }
                _ => {
                    let bytes = words.checked_mul(4).ok_or(refused(usize::MAX))?;
                    let data = memmap2::MmapMut::map_anon(bytes.max(1)).map_err(|_| refused(bytes))?;
                    Buffer::Words(data, words)
                }
            });
        }
        let (places, strip_widths) = places(plan);
        Ok(Arena { buffers, places, strip_widths })
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let of = |b: &Buffer| match b {
            Buffer::Words(_, words) => words * 4,
            Buffer::Quantized(a) => a.bytes(),
        };
        self.buffers.iter().map(of).sum()
    }

    /// Elements `range` of a value's buffer, as the last step left them; none where it has no buffer of words.
    pub(super) fn words(&self, v: Value, range: std::ops::Range<usize>) -> &[f32] {
        let Some(&Place::Slot(slot)) = self.places.get(v.index()) else { return &[] };
        let Some(Buffer::Words(data, words)) = self.buffers.get(slot) else { return &[] };
        // SAFETY: the mapping holds that many words; any bits are an f32; no step runs while the arena is borrowed.
        let all = unsafe { std::slice::from_raw_parts(data.as_ptr().cast::<f32>(), *words) };
        all.get(range).unwrap_or_default()
    }

    /// Access for the threads of one step.
    pub(super) fn view<'a>(
        &'a mut self,
        graph: &'a Graph,
        logits: &'a mut [f32],
        counts: Counts,
    ) -> View<'a> {
        let slots = self
            .buffers
            .iter_mut()
            .map(|b| match b {
                Buffer::Words(data, words) => {
                    SlotView { words: data.as_mut_ptr().cast(), len: *words, quantized: None }
                }
                Buffer::Quantized(a) => SlotView { words: std::ptr::null_mut(), len: 0, quantized: Some(a) },
            })
            .collect();
        View {
            graph,
            places: &self.places,
            strip_widths: &self.strip_widths,
            slots,
            logits: SlotView { words: logits.as_mut_ptr(), len: logits.len(), quantized: None },
            counts,
        }
    }
}

/// Places of all values, and widths of strips.
fn places(plan: &Plan) -> (Vec<Place>, Vec<usize>) {
    let mut places = vec![Place::Nowhere; plan.graph.nodes.len()];
    let mut widths = Vec::with_capacity(plan.launches.len());
    for launch in &plan.launches {
        let mut width = 0;
        for v in &launch.nodes {
            let shape = plan.graph.nodes[v.index()].shape;
            places[v.index()] = if shape.cols == 0 {
                Place::Nowhere
            } else if plan.graph.logits == Some(*v) {
                Place::Logits
            } else if let Some(slot) = plan.slot_of[v.index()] {
                Place::Slot(slot)
            } else if matches!(launch.kind, LaunchKind::Rows(_)) {
                let at = width;
                width += shape.cols * rows_a_row(shape.rows);
                Place::Strip(at)
            } else {
                Place::Nowhere
            };
        }
        widths.push(width);
    }
    (places, widths)
}

#[derive(Clone, Copy)]
struct SlotView<'a> {
    words: *mut f32,
    len: usize,
    quantized: Option<&'a Activations>,
}

/// The buffers during a step, shared by all threads.
pub(super) struct View<'a> {
    pub(super) graph: &'a Graph,
    places: &'a [Place],
    strip_widths: &'a [usize],
    slots: Vec<SlotView<'a>>,
    logits: SlotView<'a>,
    pub(super) counts: Counts,
}

// SAFETY: access to the elements is by unsafe methods, whose callers keep writes disjoint between two barriers.
unsafe impl Sync for View<'_> {}

/// A thread's strip: rows `first .. first + n` of a domain, and memory for values that live only here.
#[derive(Clone, Copy)]
pub(super) struct Strip {
    pub(super) first: usize,
    pub(super) n: usize,
    pub(super) memory: *mut f32,
}

impl<'a> View<'a> {
    /// Rows of the domain in this step.
    pub(super) fn rows(&self, domain: Domain) -> usize {
        match domain {
            Domain::Tokens => self.counts.tokens,
            Domain::Outputs => self.counts.outputs,
            Domain::Logits => self.counts.logits,
        }
    }

    /// Elements a row that strips of each launch need.
    pub(super) fn strip_widths(&self) -> &'a [usize] {
        self.strip_widths
    }

    /// Columns of a value.
    pub(super) fn cols(&self, v: Value) -> usize {
        self.graph.nodes[v.index()].shape.cols
    }

    /// Rows of a value in this step.
    pub(super) fn value_rows(&self, v: Value) -> usize {
        self.counts.rows(self.graph.nodes[v.index()].shape.rows).unwrap_or(0)
    }

    fn slot(&self, v: Value) -> Option<SlotView<'_>> {
        match self.places[v.index()] {
            Place::Slot(slot) => self.slots.get(slot).copied(),
            Place::Logits => Some(self.logits),
            Place::Nowhere | Place::Strip(_) => None,
        }
    }

    /// The quantized matrix of a value. Panics where there is none: a fault of the plan.
    pub(super) fn quantized(&self, v: Value) -> &Activations {
        let slot = self.slot(v).and_then(|s| s.quantized);
        slot.unwrap_or_else(|| misplaced(v))
    }

    /// Start and number of elements of `n` rows of a value from row `first` on. Panics where they are outside of its buffer.
    pub(super) fn words(&self, v: Value, first: usize, n: usize) -> (*mut f32, usize) {
        let cols = self.cols(v);
        let slot = self.slot(v).unwrap_or_else(|| misplaced(v));
        let end = first.checked_add(n).and_then(|end| end.checked_mul(cols));
        if end.is_none_or(|end| end > slot.len) {
            misplaced(v)
        }
        // SAFETY: inside the buffer by the check.
        (unsafe { slot.words.add(first * cols) }, n * cols)
    }

    /// Asks for the cache lines of columns `n0 ..` of a row, which need not exist.
    #[inline]
    pub(super) fn prefetch(&self, v: Value, row: usize, n0: usize) {
        let Some(slot) = self.slot(v) else { return };
        let (at, cols) = (slot.words.wrapping_add(row.wrapping_mul(self.cols(v)).wrapping_add(n0)), SEGMENT);
        let _ = (at, cols);
        #[cfg(target_arch = "x86_64")]
        for line in (0..cols).step_by(16) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            // SAFETY: a prefetch never faults.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(line).cast()) };
        }
    }

    /// All rows of a value.
    ///
    /// # Safety
    /// Nobody writes the value while the slice lives.
    pub(super) unsafe fn all(&self, v: Value) -> &[f32] {
        let (p, n) = self.words(v, 0, self.value_rows(v));
        // SAFETY: in bounds; the caller's promise.
        unsafe { std::slice::from_raw_parts(p, n) }
    }

    /// The ids of a value.
    ///
    /// # Safety
    /// As [`View::all`].
    pub(super) unsafe fn ids(&self, v: Value) -> &[u32] {
        let (p, n) = self.words(v, 0, self.value_rows(v));
        // SAFETY: in bounds; u32 and f32 have the same layout; the caller's promise.
        unsafe { std::slice::from_raw_parts(p.cast(), n) }
    }

    fn strip_words(&self, v: Value, strip: Strip) -> (*mut f32, usize) {
        let shape = self.graph.nodes[v.index()].shape;
        let k = rows_a_row(shape.rows);
        match self.places[v.index()] {
            // SAFETY: the strip's memory has the launch's width for each of its rows.
            Place::Strip(at) => (unsafe { strip.memory.add(at * strip.n) }, strip.n * k * shape.cols),
            _ => self.words(v, strip.first * k, strip.n * k),
        }
    }

    /// A value's rows of the strip.
    ///
    /// # Safety
    /// Nobody writes them while the slice lives; the strip's memory is large enough.
    pub(super) unsafe fn strip(&self, v: Value, strip: Strip) -> &[f32] {
        let (p, n) = self.strip_words(v, strip);
        // SAFETY: in bounds; the caller's promise.
        unsafe { std::slice::from_raw_parts(p, n) }
    }

    /// The same, to be written.
    ///
    /// # Safety
    /// Nobody else reads or writes them while the slice lives; the strip's memory is large enough.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn strip_mut(&self, v: Value, strip: Strip) -> &mut [f32] {
        let (p, n) = self.strip_words(v, strip);
        // SAFETY: in bounds; the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(p, n) }
    }
}

#[cold]
fn misplaced(v: Value) -> ! {
    // Reported as the panic of a worker: the step fails, the process does not.
    std::panic::resume_unwind(Box::new(format!("value {} is not where the plan says", v.index())))
}

/// Ids in a slice of words.
pub(super) fn as_ids(words: &[f32]) -> &[u32] {
    // SAFETY: u32 and f32 have the same size and alignment, and any bits are valid for both.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

/// The same, to be written.
pub(super) fn as_ids_mut(words: &mut [f32]) -> &mut [u32] {
    // SAFETY: as above; the borrow is exclusive.
    unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast(), words.len()) }
}
