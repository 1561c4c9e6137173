//! The thread pool: one set of threads for the life of the device, entered once a step.
//!
//! [`Pool::run`] executes one closure on every thread at once (single program, multiple data); inside, threads meet at
//! [`Ctx::barrier`] and share work by [`Ctx::claim`]. Every thread must make the same sequence of `barrier` and `claim` calls.
//!
//! ```
//! # use hanzo_cpu::pool::Pool;
//! # use std::sync::atomic::{AtomicUsize, Ordering};
//! let pool = Pool::new(2)?;
//! let sum = AtomicUsize::new(0);
//! pool.run(|ctx| {
//!     ctx.claim(100, |i| {
//!         sum.fetch_add(i, Ordering::Relaxed);
//!     });
//!     ctx.barrier();
//!     assert_eq!(sum.load(Ordering::Relaxed), 4950);
//! })?;
//! # Ok::<(), hanzo_cpu::CpuError>(())
//! ```
#![allow(unsafe_code)]

mod barrier;
mod claim;
mod crew;

use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::CpuError;
use crate::isa::{CpuConfig, Isa};
use barrier::{Barrier, Gate, Poisoned};
use claim::Claims;
use crew::Crew;

/// How long a thread spins at a barrier before it sleeps: several times the longest imbalance of a step on a quiet machine.
const BARRIER_PATIENCE: Duration = Duration::from_micros(60);
/// How long a worker spins for the next run: covers the sampling between two decode steps.
const IDLE_PATIENCE: Duration = Duration::from_micros(300);

/// The closure of a run, with its lifetime erased; valid while the run lasts.
type Job = *const (dyn Fn(&Ctx<'_>) + Sync);

struct Shared {
    threads: usize,
    /// Number of the current run (that of `start`) and of its threads, the first so many: `run << 32 | threads`.
    active: AtomicU64,
    isa: Isa,
    barrier: Barrier,
    claims: Claims,
    /// Advanced at the start of every run; workers wait on it.
    start: Gate,
    /// Where all threads meet at the end of a run.
    end: Barrier,
    job: UnsafeCell<Option<Job>>,
    shutdown: AtomicBool,
    /// First panic of the current run.
    panic: Mutex<Option<String>>,
}

// SAFETY: `job` is written only by the thread inside `Pool::run` while all workers wait at `start`, whose release/acquire pair orders
// the write before their reads; everything else is Sync by itself.
unsafe impl Sync for Shared {}
// SAFETY: the job pointer is to a `Sync` closure and is only dereferenced during the run that set it.
unsafe impl Send for Shared {}

/// A persistent set of threads. The thread that calls [`Pool::run`] takes part as thread 0, so a pool of one has no workers.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Held during a run: runs of several callers follow one another.
    turn: Mutex<Crew>,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("threads", &self.shared.threads).finish()
    }
}

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What a thread sees of the pool during a run.
#[derive(Debug)]
pub struct Ctx<'a> {
    index: usize,
    threads: usize,
    shared: &'a Shared,
    /// Loops claimed from so far; the same on all threads.
    seq: Cell<u32>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Pool {
    /// A pool of `threads` threads (at least 1), the caller's included.
    ///
    /// # Errors
    /// [`CpuError::Spawn`] where the system refuses a thread.
    pub fn new(threads: usize) -> Result<Self, CpuError> {
        Self::with_isa(threads, Isa::best())
    }

    /// As [`Pool::new`], with an instruction set other than the machine's best.
    ///
    /// # Errors
    /// As [`Pool::new`]; [`CpuError::Isa`] where the machine lacks it.
    pub fn with_isa(threads: usize, isa: Isa) -> Result<Self, CpuError> {
        Isa::named(isa.name())?;
        let threads = threads.clamp(1, 1024);
        let shared = Arc::new(Shared {
            threads,
            active: AtomicU64::new(0),
            isa,
            barrier: Barrier::default(),
            claims: Claims::new(threads),
            start: Gate::default(),
            end: Barrier::default(),
            job: UnsafeCell::new(None),
            shutdown: AtomicBool::new(false),
            panic: Mutex::new(None),
        });
        let mut pool = Pool { shared, workers: Vec::new(), turn: Mutex::new(Crew::new(threads)) };
        for index in 1..threads {
            let shared = Arc::clone(&pool.shared);
            let worker = std::thread::Builder::new()
                .name(format!("hanzo-cpu-{index}"))
                .spawn(move || worker(&shared, index))
                .map_err(CpuError::Spawn)?;
            pool.workers.push(worker);
        }
        Ok(pool)
    }

    /// As the configuration says; by default one thread a core that this process may use.
    ///
    /// # Errors
    /// As [`Pool::with_isa`].
    pub fn configured(config: &CpuConfig) -> Result<Self, CpuError> {
        let threads =
            config.threads.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        Self::with_isa(threads, config.isa.unwrap_or_else(Isa::best))
    }

    /// The instruction set that its threads use.
    pub fn isa(&self) -> Isa {
        self.shared.isa
    }

    /// Number of threads that take part in a run, at most: fewer do while another program has a core.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs `work` on all threads and returns when all are done.
    ///
    /// # Errors
    /// [`CpuError::WorkerPanic`] where `work` panicked on any thread (the others are released from their barriers and unwind too;
    /// the pool stays usable, the data that was being written does not), [`CpuError::NestedRun`] from inside a run.
    pub fn run<F: Fn(&Ctx<'_>) + Sync>(&self, work: F) -> Result<(), CpuError> {
        if INSIDE.replace(true) {
            return Err(CpuError::NestedRun);
        }
        let mut crew = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = &*self.shared;
        let begin = Instant::now();
        let active = crew.begin(begin);
        shared.claims.reset();
        shared.barrier.reset(active as u32);
        shared.end.reset(active as u32);
        let run = shared.start.value().wrapping_add(1);
        shared.active.store(u64::from(run) << 32 | active as u64, Ordering::Relaxed);
        let job: &(dyn Fn(&Ctx<'_>) + Sync) = &work;
        // SAFETY: only the lifetime changes. The pointer is read by workers between `start` and `end` of this run, and we do not
        // return (or unwind: `enter` catches) before all of them have passed `end`.
        let job: Job = unsafe { std::mem::transmute(job) };
        // SAFETY: all workers wait at `start`; see `Sync for Shared`.
        unsafe { *shared.job.get() = Some(job) };
        shared.start.advance();
        enter(shared, 0, active, job);
        let _ = shared.end.wait(BARRIER_PATIENCE);
        // SAFETY: as above; all workers have passed `end`.
        unsafe { *shared.job.get() = None };
        let panic = shared.panic.lock().unwrap_or_else(PoisonError::into_inner).take();
        let now = Instant::now();
        // Waiting at the end does not count: work without a barrier, such as packing a matrix, has no even pace.
        crew.end(now, now - begin, shared.barrier.slept());
        drop(crew);
        INSIDE.set(false);
        panic.map_or(Ok(()), |message| Err(CpuError::WorkerPanic(message)))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.shutdown.store(true, Ordering::SeqCst);
        self.shared.start.advance();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

fn worker(shared: &Shared, index: usize) {
    INSIDE.set(true);
    let (mut seen, mut patience) = (0, IDLE_PATIENCE);
    loop {
        shared.start.wait(seen, patience);
        seen = shared.start.value();
        if shared.shutdown.load(Ordering::SeqCst) {
            return;
        }
        // Whoever is left out of a run may come so late that the next one is being prepared: a run waits for its own threads only.
        let active = shared.active.load(Ordering::Relaxed);
        let threads = (active & u64::from(u32::MAX)) as usize;
        if active >> 32 != u64::from(seen) || index >= threads {
            patience = Duration::ZERO;
            continue;
        }
        patience = IDLE_PATIENCE;
        // SAFETY: written before `start` advanced, not changed before `end`.
        if let Some(job) = unsafe { *shared.job.get() } {
            enter(shared, index, threads, job);
        }
        let _ = shared.end.wait(BARRIER_PATIENCE);
    }
}

/// Runs the job on this thread; a panic releases the others and is noted.
fn enter(shared: &Shared, index: usize, threads: usize, job: Job) {
    let ctx = Ctx { index, threads, shared, seq: Cell::new(0) };
    // SAFETY: the pointer is valid for the run (see `Pool::run`).
    let result = catch_unwind(AssertUnwindSafe(|| unsafe { (*job)(&ctx) }));
    if let Err(payload) = result {
        if !payload.is::<Poisoned>() {
            let mut first = shared.panic.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| message(payload.as_ref()));
        }
        shared.barrier.poison();
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "(no message)".to_owned())
}

impl Ctx<'_> {
    /// This thread's number, 0 for the one that called [`Pool::run`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// Number of threads in this run.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The instruction set to compute with.
    pub fn isa(&self) -> Isa {
        self.shared.isa
    }

    /// Waits for all threads; what each wrote before is visible to all after.
    pub fn barrier(&self) {
        self.barrier_then(|| ());
    }

    /// As [`barrier`](Self::barrier); whichever thread arrives last does `work` before it releases the others: what is too small to be shared
    /// costs no barrier of its own.
    pub fn barrier_then(&self, work: impl FnOnce()) {
        if self.threads == 1 {
            work();
        } else if self.shared.barrier.wait_then(BARRIER_PATIENCE, work).is_err() {
            resume_unwind(Box::new(Poisoned));
        }
    }

    /// Calls `work(i)` for chunks `i` of `0..chunks` until none is left; over all threads every chunk is done once. Own chunks come in
    /// ascending order, then those of slower threads. No barrier at the end: a following `claim` may overlap with this one.
    pub fn claim(&self, chunks: usize, mut work: impl FnMut(usize)) {
        let seq = self.seq.get();
        self.seq.set(seq + 1);
        debug_assert!(chunks <= claim::MAX_CHUNKS);
        while let Some(chunk) = self.shared.claims.next(seq, chunks, self.index, self.threads) {
            work(chunk);
        }
    }

    /// This thread's contiguous share of `0..n`, for work that must be split the same way every time.
    pub fn share(&self, n: usize) -> Range<usize> {
        Claims::share(n, self.index, self.threads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// A pool that no neighbour takes threads from.
    fn pinned(threads: usize) -> Pool {
        let pool = Pool::new(threads).unwrap();
        pool.turn.lock().unwrap().set_active(threads);
        pool
    }

    #[test]
    fn every_chunk_is_done_once_and_barriers_order_phases() {
        for threads in 1..=4 {
            let pool = Pool::new(threads).unwrap();
            for round in 0..20 {
                let done: Vec<AtomicUsize> = (0..37).map(|_| AtomicUsize::new(0)).collect();
                pool.run(|ctx| {
                    for phase in 1..=50 {
                        ctx.claim(done.len(), |i| {
                            done[i].fetch_add(1, Ordering::Relaxed);
                        });
                        ctx.barrier();
                        assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == phase), "round {round}");
                        ctx.barrier();
                    }
                })
                .unwrap();
            }
        }
    }

    #[test]
    fn loops_without_a_barrier_between_them() {
        let pool = Pool::new(3).unwrap();
        let done: Vec<AtomicUsize> = (0..5000).map(|_| AtomicUsize::new(0)).collect();
        pool.run(|ctx| {
            for l in 0..1000 {
                ctx.claim(5, |i| {
                    done[5 * l + i].fetch_add(1, Ordering::Relaxed);
                });
            }
        })
        .unwrap();
        assert!(done.iter().all(|d| d.load(Ordering::Relaxed) == 1));
    }

    #[test]
    fn a_panic_is_an_error_and_the_pool_lives_on() {
        for threads in 1..=3 {
            let pool = pinned(threads);
            for guilty in 0..threads {
                let err = pool.run(|ctx| {
                    assert!(ctx.index() != guilty, "thread {guilty} fell");
                    ctx.barrier();
                });
                assert!(matches!(err, Err(CpuError::WorkerPanic(m)) if m.contains("fell")));
                let n = AtomicUsize::new(0);
                pool.run(|ctx| {
                    ctx.barrier();
                    n.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
                assert_eq!(n.into_inner(), threads);
            }
        }
    }

    #[test]
    fn the_last_to_arrive_works_alone() {
        for threads in 1..=3 {
            let pool = Pool::new(threads).unwrap();
            let n = AtomicUsize::new(0);
            pool.run(|ctx| {
                for round in 1..100 {
                    ctx.barrier_then(|| {
                        n.fetch_add(1, Ordering::Relaxed);
                    });
                    assert_eq!(n.load(Ordering::Relaxed), round);
                    ctx.barrier();
                }
            })
            .unwrap();
            let err = pool.run(|ctx| ctx.barrier_then(|| panic!("the last fell")));
            assert!(matches!(err, Err(CpuError::WorkerPanic(m)) if m.contains("fell")));
            pool.run(|ctx| ctx.barrier()).unwrap();
        }
    }

    #[test]
    fn runs_of_any_number_of_threads_follow_one_another() {
        let pool = Pool::new(4).unwrap();
        for round in 0..400 {
            // As if neighbours came and went.
            let active = 1 + (round * 7 + round / 5) % 4;
            pool.turn.lock().unwrap().set_active(active);
            let (n, chunks) = (AtomicUsize::new(0), AtomicUsize::new(0));
            pool.run(|ctx| {
                assert_eq!(ctx.threads(), active);
                n.fetch_add(1, Ordering::Relaxed);
                ctx.claim(23, |_| _ = chunks.fetch_add(1, Ordering::Relaxed));
                ctx.barrier();
                assert_eq!((n.load(Ordering::Relaxed), chunks.load(Ordering::Relaxed)), (active, 23));
            })
            .unwrap();
        }
    }

    #[test]
    fn nested_runs_are_refused() {
        let pool = Pool::new(2).unwrap();
        pool.run(|_| assert!(matches!(pool.run(|_| ()), Err(CpuError::NestedRun)))).unwrap();
        pool.run(|_| ()).unwrap();
    }

    #[test]
    fn callers_from_several_threads_take_turns() {
        let pool = Pool::new(2).unwrap();
        let n = AtomicUsize::new(0);
        std::thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    for _ in 0..50 {
                        pool.run(|ctx| ctx.claim(10, |_| _ = n.fetch_add(1, Ordering::Relaxed))).unwrap();
                    }
                });
            }
        });
        assert_eq!(n.into_inner(), 1500);
    }
}
