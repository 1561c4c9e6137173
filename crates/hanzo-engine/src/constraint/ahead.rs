//! Masks ahead of time: while the device runs a step, a thread finds out what the replies that draw after it may go on
//! with. What a constraint allows next follows from the tokens that are there, so nothing of the step is needed for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{Constraint, TokenMask};
use crate::sequence::SequenceId;
use crate::worker::panic_text;

/// What a reply may go on with.
#[derive(Clone, Debug)]
pub(crate) struct Allowed {
    /// Tokens, end tokens aside.
    pub(crate) mask: TokenMask,
    /// Whether it may end.
    pub(crate) may_end: bool,
}

impl Allowed {
    /// Asks the constraint.
    pub(crate) fn by(constraint: &mut dyn Constraint, vocab_size: usize) -> Result<Self, String> {
        Ok(Self { mask: constraint.mask(vocab_size)?, may_end: constraint.may_end()? })
    }
}

/// A reply's constraint, on its way.
pub(crate) struct Lent {
    pub(crate) id: SequenceId,
    pub(crate) constraint: Box<dyn Constraint>,
    /// The answer, on the way back.
    pub(crate) allowed: Option<Result<Allowed, String>>,
}

/// The thread, started when it is first needed, and what it works on.
#[derive(Default)]
pub(crate) struct Ahead {
    thread: Option<(Sender<Lent>, Receiver<Lent>)>,
    /// Constraints that have not come back.
    away: usize,
}

impl Ahead {
    /// Starts to ask a constraint. Where no thread can be had it is asked later, by whoever needs the answer.
    pub(crate) fn ask(&mut self, lent: Lent, vocab_size: usize) -> Result<(), Lent> {
        if self.thread.is_none() {
            self.thread = start(vocab_size);
        }
        let Some((jobs, _)) = &self.thread else { return Err(lent) };
        jobs.send(lent).map_err(|e| {
            self.thread = None;
            e.0
        })?;
        self.away += 1;
        Ok(())
    }

    /// Waits for all answers.
    pub(crate) fn answers(&mut self) -> Vec<Lent> {
        let n = std::mem::take(&mut self.away);
        let Some((_, done)) = &self.thread else { return Vec::new() };
        done.iter().take(n).collect()
    }
}

/// The thread ends when its jobs' sender is dropped.
fn start(vocab_size: usize) -> Option<(Sender<Lent>, Receiver<Lent>)> {
    let (jobs, inbox) = channel::<Lent>();
    let (outbox, done) = channel();
    let work = move || {
        for mut lent in inbox {
            let asked = catch_unwind(AssertUnwindSafe(|| Allowed::by(&mut *lent.constraint, vocab_size)));
            lent.allowed = Some(asked.unwrap_or_else(|panic| Err(panic_text(panic.as_ref()))));
            if outbox.send(lent).is_err() {
                return;
            }
        }
    };
    let spawned = std::thread::Builder::new().name("hanzo-masks".to_owned()).spawn(work);
    if let Err(e) = &spawned {
        tracing::warn!("no thread for masks, they are computed between steps: {e}");
    }
    spawned.ok().map(|_| (jobs, done))
}
