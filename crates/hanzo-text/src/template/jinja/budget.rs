//! What one rendering may spend. Templates come from strangers: every loop turn, call and byte is paid for, and
//! nothing is paid back, so that neither time nor memory can grow past what the budget says.

use std::cell::Cell;

use crate::template::error::{TemplateError, TemplateErrorKind as Kind, TemplateResult};

/// Steps of evaluation whatever the request; a template on a long conversation takes a few hundred thousand.
const BASE_STEPS: u64 = 3_000_000;
/// Further steps per byte of the request.
const STEPS_PER_BYTE: u64 = 32;
/// Bytes that all values made during a rendering may take together, whatever the request. Growing a buffer may hold
/// up to three times that for a moment.
const BASE_BYTES: u64 = 14 << 20;
/// Further bytes per byte of the request: each message is copied a few times.
const BYTES_PER_BYTE: u64 = 48;
/// Most further bytes for templates that append each message or tool to one growing text.
const MAX_APPENDED_BYTES: u64 = 128 << 20;
/// Deepest recursion of the evaluator. One level of a recursive macro takes eight to twelve.
const MAX_DEPTH: u32 = 600;
/// Bytes touched that count as one step.
const BYTES_PER_STEP: u64 = 64;

#[derive(Debug)]
pub(crate) struct Budget {
    steps: Cell<u64>,
    bytes: Cell<u64>,
    depth: Cell<u32>,
}

impl Budget {
    /// The budget for a request of so many bytes, in so many messages and tools.
    pub(crate) fn for_request(request_bytes: usize, items: usize) -> Self {
        let size = request_bytes as u64;
        let appended = size.saturating_mul(items as u64).min(MAX_APPENDED_BYTES);
        let bytes = BASE_BYTES.saturating_add(size.saturating_mul(BYTES_PER_BYTE)).saturating_add(appended);
        Self {
            steps: Cell::new(BASE_STEPS.saturating_add(size.saturating_mul(STEPS_PER_BYTE))),
            bytes: Cell::new(bytes),
            depth: Cell::new(0),
        }
    }

    /// Runs `inner` one level of recursion deeper, if that level may exist.
    pub(crate) fn nested<T>(&self, inner: impl FnOnce() -> TemplateResult<T>) -> TemplateResult<T> {
        self.enter()?;
        let result = inner();
        self.leave();
        result
    }

    /// Goes one level of recursion deeper.
    pub(crate) fn enter(&self) -> TemplateResult<()> {
        if self.depth.get() >= MAX_DEPTH {
            let message = format!("macros, loops and expressions recurse more than {MAX_DEPTH} levels deep");
            return Err(TemplateError::new(Kind::Limit, message));
        }
        self.depth.set(self.depth.get() + 1);
        Ok(())
    }

    /// Comes back from [`enter`](Self::enter).
    pub(crate) fn leave(&self) {
        self.depth.set(self.depth.get().saturating_sub(1));
    }

    /// Pays for `n` steps.
    pub(crate) fn steps(&self, n: u64) -> TemplateResult<()> {
        match self.steps.get().checked_sub(n) {
            Some(left) => {
                self.steps.set(left);
                Ok(())
            }
            None => {
                Err(TemplateError::new(Kind::Limit, "the template takes too many steps for this request"))
            }
        }
    }

    /// Pays for reading `n` bytes.
    pub(crate) fn read(&self, n: usize) -> TemplateResult<()> {
        self.steps(n as u64 / BYTES_PER_STEP)
    }

    /// Pays for making a value of `n` bytes; called before the value is made.
    pub(crate) fn bytes(&self, n: usize) -> TemplateResult<()> {
        self.read(n)?;
        match self.bytes.get().checked_sub(n as u64) {
            Some(left) => {
                self.bytes.set(left);
                Ok(())
            }
            None => {
                Err(TemplateError::new(Kind::Limit, "the template takes too much memory for this request"))
            }
        }
    }

    /// Pays for a list of `n` values.
    pub(crate) fn items(&self, n: usize) -> TemplateResult<()> {
        self.bytes(n.saturating_mul(size_of::<super::value::Value>()))
    }

    /// Pays for a dict of `n` entries.
    pub(crate) fn entries(&self, n: usize) -> TemplateResult<()> {
        self.bytes(n.saturating_mul(3 * size_of::<super::value::Value>()))
    }
}
