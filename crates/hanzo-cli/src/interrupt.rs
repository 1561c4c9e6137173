//! Ctrl-C: ends what is running; with nothing running, or when asked again, the program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hanzo_engine::Cancel;

use crate::out;

/// Further Ctrl-C that a chat bears while a reply ends: a step of a long prompt takes a while to hear of the first.
const PATIENCE_IN_CHAT: u32 = 1;

/// What a Ctrl-C would end.
enum Target {
    /// Nothing but the program.
    Program,
    /// A reply, or other work that can be ended; and how many more are borne after that.
    Work(Box<dyn FnOnce() + Send>, u32),
    /// What was told to end already; and how many more are borne.
    Ending(u32),
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
        match std::mem::replace(&mut *target, Target::Ending(0)) {
            Target::Work(end, patience) => {
                *target = Target::Ending(patience);
                end();
            }
            Target::Ending(patience) if patience > 0 => {
                *target = Target::Ending(patience - 1);
                out::aside(format_args!("(the reply is ending; Ctrl-C once more leaves)"));
            }
            Target::Program | Target::Ending(_) => std::process::exit(130),
        }
    });
    if let Err(error) = installed {
        out::warning(format_args!("Ctrl-C will end the program at once: {error}"));
    }
}

/// While this lives, Ctrl-C ends some work instead of the program.
pub(crate) struct During(());

impl During {
    /// For the reply that `cancel` ends; `chatting` if the program should outlive it.
    pub(crate) fn reply(cancel: Cancel, chatting: bool) -> Self {
        let patience = if chatting { PATIENCE_IN_CHAT } else { 0 };
        *target() = Target::Work(Box::new(move || cancel.cancel()), patience);
        Self(())
    }

    /// For work that looks at a flag now and then.
    pub(crate) fn work() -> (Self, Stop) {
        let stop = Stop::default();
        let flag = Arc::clone(&stop.0);
        *target() = Target::Work(Box::new(move || flag.store(true, Ordering::Relaxed)), 0);
        (Self(()), stop)
    }
}

impl Drop for During {
    fn drop(&mut self) {
        *target() = Target::Program;
    }
}

/// Whether the user wants the work to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(crate) fn is_wanted(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
