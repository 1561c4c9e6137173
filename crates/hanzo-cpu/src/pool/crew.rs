//! How many threads of a pool take part in a run: all, unless another program has taken a core.
//!
//! Threads that share a core with a busy neighbour reach a barrier late, and all others wait for them asleep. Where the waiting takes more of
//! the time than a core is worth, the run goes faster without one thread: results do not depend on the number. So the crew loses a
//! thread, rests so, tries again after a while, and rests longer each time that the trial fails.

use std::time::{Duration, Instant};

/// Runs are judged together until they have lasted so long.
const WINDOW: Duration = Duration::from_millis(10);
/// Share of the time asleep at barriers from which a thread is let go. A neighbour on one of two cores costs more than half; the worst
/// imbalance of a quiet machine is below a tenth.
const LOST: f64 = 0.35;
/// First and longest rest before a trial.
const REST: Duration = Duration::from_millis(100);
const LONGEST_REST: Duration = Duration::from_millis(1600);

/// The policy, without the threads.
#[derive(Debug)]
pub(super) struct Crew {
    full: usize,
    active: usize,
    wall: Duration,
    slept: Duration,
    rest: Duration,
    /// When the next trial is due, while the crew is not full.
    trial: Option<Instant>,
    /// Whether the window at hand is a trial.
    trying: bool,
    /// Whether the window before was lost, too: one alone may be a page fault or a short visitor.
    warned: bool,
}

impl Crew {
    pub(super) fn new(full: usize) -> Self {
        Crew {
            full,
            active: full,
            wall: Duration::ZERO,
            slept: Duration::ZERO,
            rest: REST,
            trial: None,
            trying: false,
            warned: false,
        }
    }

    /// Threads of a run that begins `now`.
    pub(super) fn begin(&mut self, now: Instant) -> usize {
        if self.trial.is_some_and(|at| now >= at) {
            (self.trial, self.trying) = (None, true);
            self.active += 1;
            (self.wall, self.slept) = (Duration::ZERO, Duration::ZERO);
        }
        self.active
    }

    /// A run is over: it ended `now` after `wall`, and its threads slept `slept` at barriers, all together.
    pub(super) fn end(&mut self, now: Instant, wall: Duration, slept: Duration) {
        if self.active < 2 {
            return self.rest_until_trial(now);
        }
        self.wall += wall;
        self.slept += slept / (self.active - 1) as u32;
        if self.wall < WINDOW {
            return;
        }
        let lost = self.slept.as_secs_f64() > LOST * self.wall.as_secs_f64();
        (self.wall, self.slept) = (Duration::ZERO, Duration::ZERO);
        let warned = std::mem::replace(&mut self.warned, lost);
        if lost && (warned || self.trying) {
            // A trial that failed: the next one comes later.
            self.rest = if self.trying { (2 * self.rest).min(LONGEST_REST) } else { REST };
            self.active -= 1;
            self.trial = Some(now + self.rest);
            self.warned = false;
        } else if self.trying {
            self.rest = REST;
        }
        self.trying = false;
        self.rest_until_trial(now);
    }

    #[cfg(test)]
    pub(super) fn set_active(&mut self, active: usize) {
        self.active = active;
        self.trial = Some(Instant::now() + Duration::from_secs(3600));
    }

    fn rest_until_trial(&mut self, now: Instant) {
        if self.active < self.full && self.trial.is_none() {
            self.trial = Some(now + self.rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: Duration = Duration::from_millis(3);

    /// Runs for `time`; `lost(threads)` is the share that sleepers lose. Gives the runs of each size.
    fn play(crew: &mut Crew, clock: &mut Instant, time: Duration, lost: impl Fn(usize) -> f64) -> Vec<usize> {
        let mut sizes = vec![0; crew.full + 1];
        let end = *clock + time;
        while *clock < end {
            let n = crew.begin(*clock);
            assert!((1..=crew.full).contains(&n));
            sizes[n] += 1;
            *clock += RUN;
            crew.end(*clock, RUN, RUN.mul_f64(lost(n)) * (n as u32 - 1));
        }
        sizes
    }

    #[test]
    fn a_quiet_machine_keeps_all_threads() {
        for full in 1..5 {
            let mut clock = Instant::now();
            let mut crew = Crew::new(full);
            let sizes = play(&mut crew, &mut clock, Duration::from_secs(5), |_| 0.3);
            assert!(sizes[..full].iter().all(|&n| n == 0), "{sizes:?}");
        }
    }

    #[test]
    fn a_neighbour_costs_one_thread_until_it_is_gone() {
        for full in 2..6 {
            let mut clock = Instant::now();
            let mut crew = Crew::new(full);
            let sizes =
                play(&mut crew, &mut clock, Duration::from_secs(20), |n| if n == full { 0.6 } else { 0.05 });
            let all: usize = sizes.iter().sum();
            assert!(sizes[full - 1] > all * 95 / 100, "{sizes:?}");
            // Trials go on, seldom.
            assert!(sizes[full] > 12, "{sizes:?}");
            play(&mut crew, &mut clock, LONGEST_REST + 20 * RUN, |_| 0.0);
            let sizes = play(&mut crew, &mut clock, Duration::from_secs(1), |_| 0.0);
            assert_eq!(sizes[full], sizes.iter().sum::<usize>());
        }
    }

    #[test]
    fn several_neighbours_cost_several_threads_and_one_is_left() {
        let mut clock = Instant::now();
        let mut crew = Crew::new(4);
        let sizes = play(&mut crew, &mut clock, Duration::from_secs(20), |n| if n > 1 { 0.9 } else { 0.0 });
        assert!(sizes[1] > sizes.iter().sum::<usize>() * 9 / 10, "{sizes:?}");
        play(&mut crew, &mut clock, Duration::from_secs(20), |_| 0.0);
        assert_eq!(crew.begin(clock), 4);
    }
}
