//! Times of a step's launches, for steps that are asked for them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hanzo_fusion::StepTimes;

/// Taken at the barriers: whichever thread arrives last notes the time.
pub(super) struct Clock {
    called: Instant,
    /// Nanoseconds from the call to the first launch.
    entered: AtomicU64,
    /// Nanoseconds from the call to the end of each launch.
    ends: Vec<AtomicU64>,
}

impl Clock {
    /// A clock that starts now.
    pub(super) fn new(launches: usize) -> Self {
        let ends = (0..launches).map(|_| AtomicU64::new(0)).collect();
        Self { called: Instant::now(), entered: AtomicU64::new(0), ends }
    }

    fn now(&self) -> u64 {
        self.called.elapsed().as_nanos() as u64
    }

    /// The launches begin.
    pub(super) fn enter(&self) {
        self.entered.store(self.now(), Ordering::Relaxed);
    }

    /// Launch `at` is done.
    pub(super) fn done(&self, at: usize) {
        if let Some(end) = self.ends.get(at) {
            end.store(self.now(), Ordering::Relaxed);
        }
    }

    /// What was noted, once the step has returned.
    pub(super) fn times(self) -> StepTimes {
        let total = self.now();
        let entered = self.entered.into_inner();
        let mut last = entered;
        let mut since_last = |end: u64| {
            let took = end.saturating_sub(last);
            last = last.max(end);
            Duration::from_nanos(took)
        };
        let launches = self.ends.into_iter().map(|end| since_last(end.into_inner())).collect();
        StepTimes { prepare: Duration::from_nanos(entered), launches, finish: since_last(total) }
    }
}
