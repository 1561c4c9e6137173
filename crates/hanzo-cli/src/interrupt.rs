//! Ctrl-C: ends the reply that is running; with none, or a second time, the program.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hanzo_engine::Cancel;

use crate::out;

/// What a Ctrl-C would end.
enum Target {
    /// Nothing but the program.
    Program,
    /// A reply.
    Reply(Cancel),
    /// A reply that was told to end already.
    Ending,
}

static TARGET: Mutex<Target> = Mutex::new(Target::Program);

fn target() -> MutexGuard<'static, Target> {
    // Nothing that holds the lock can leave it half changed.
    TARGET.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes charge of Ctrl-C from now on.
pub(crate) fn init() {
    let installed = ctrlc::set_handler(|| {
        let mut target = target();
        match std::mem::replace(&mut *target, Target::Ending) {
            Target::Reply(cancel) => cancel.cancel(),
            Target::Program | Target::Ending => std::process::exit(130),
        }
    });
    if let Err(error) = installed {
        out::warning(format_args!("Ctrl-C will end the program, not the reply: {error}"));
    }
}

/// While this lives, Ctrl-C ends the reply instead of the program.
pub(crate) struct DuringReply(());

impl DuringReply {
    /// For the reply that `cancel` ends.
    pub(crate) fn new(cancel: Cancel) -> Self {
        *target() = Target::Reply(cancel);
        Self(())
    }
}

impl Drop for DuringReply {
    fn drop(&mut self) {
        *target() = Target::Program;
    }
}
