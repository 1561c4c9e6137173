//! Waiting: spin a little, then sleep. A barrier among the threads of a pool, and the gate that idle workers wait at.
//!
//! A plan has a few hundred barriers a step, and with all threads on cores of their own each wait is below a microsecond: so waiters
//! spin. But a spinning waiter on a machine that something else is using keeps the thread it waits for off its core. So the spin
//! is bounded by time, and what comes after is a real sleep that gives the core away.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A counter that threads wait on until it changes: spinning at first, asleep after `patience`.
#[derive(Debug, Default)]
pub(super) struct Gate {
    value: AtomicU32,
    sleepers: AtomicU32,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Gate {
    pub(super) fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Changes the value and wakes whoever sleeps on it.
    pub(super) fn advance(&self) {
        // SeqCst here and on `sleepers`: either the waiter sees the new value before it sleeps, or we see the sleeper.
        self.value.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.wake.notify_all();
        }
    }

    /// Returns once the value is not `old`, with what was written before it changed visible; says how long it slept.
    pub(super) fn wait(&self, old: u32, patience: Duration) -> Duration {
        let start = Instant::now();
        loop {
            for _ in 0..64 {
                if self.value() != old {
                    return Duration::ZERO;
                }
                std::hint::spin_loop();
            }
            if start.elapsed() > patience {
                break;
            }
        }
        let asleep = Instant::now();
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        while self.value.load(Ordering::SeqCst) == old {
            guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        drop(guard);
        asleep.elapsed()
    }
}

/// What a poisoned barrier answers: some thread of this run panicked and will never arrive.
#[derive(Debug)]
pub(super) struct Poisoned;

/// A reusable barrier.
#[derive(Debug, Default)]
pub(super) struct Barrier {
    /// Threads that meet.
    threads: AtomicU32,
    /// Nanoseconds that they have slept here.
    slept: AtomicU64,
    arrived: AtomicU32,
    poisoned: AtomicBool,
    gate: Gate,
}

impl Barrier {
    pub(super) fn wait(&self, patience: Duration) -> Result<(), Poisoned> {
        self.wait_then(patience, || ())
    }

    /// As [`wait`](Self::wait); the thread that arrives last does `work` before it releases the others. Where it panics, the
    /// barrier must be poisoned.
    pub(super) fn wait_then(&self, patience: Duration, work: impl FnOnce()) -> Result<(), Poisoned> {
        let generation = self.gate.value();
        if self.poisoned.load(Ordering::Acquire) {
            return Err(Poisoned);
        }
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads.load(Ordering::Relaxed) {
            work();
            self.arrived.store(0, Ordering::Relaxed);
            self.gate.advance();
        } else {
            let slept = self.gate.wait(generation, patience);
            if !slept.is_zero() {
                self.slept.fetch_add(slept.as_nanos() as u64, Ordering::Relaxed);
            }
        }
        if self.poisoned.load(Ordering::Acquire) { Err(Poisoned) } else { Ok(()) }
    }

    /// Releases all waiters with an error, and all who come later.
    pub(super) fn poison(&self) {
        self.poisoned.store(true, Ordering::SeqCst);
        self.gate.advance();
    }

    /// How long threads have slept here since the last [`reset`](Self::reset), all together.
    pub(super) fn slept(&self) -> Duration {
        Duration::from_nanos(self.slept.load(Ordering::Relaxed))
    }

    /// Makes it, poisoned or not, a barrier of `threads` threads; only while none is inside.
    pub(super) fn reset(&self, threads: u32) {
        self.threads.store(threads, Ordering::Relaxed);
        self.slept.store(0, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.poisoned.store(false, Ordering::SeqCst);
    }
}
