//! How many tokens of a prompt a step may take while others decode.
//!
//! A chunk of a prompt delays every reply that is running, so its size follows from what steps took so far: the step
//! shall not be longer than a given multiple of one that only decodes. Two estimates are kept, each of what was
//! observed lately: the time of a step that only decodes about so many rows, and the time that a prompt's token adds, at
//! chunks of about the present size and at the present depth. Only time depends on this, never a result.

use std::time::Duration;

/// Prompts advance by this much at least: rows that share a pass over the weights anyway.
const LEAST: usize = 4;
/// Weight of a step that only decodes, where it took longer than was thought and where it took less. What slows a step
/// down comes and goes; nothing makes one faster than it is.
const SLOWER: f64 = 0.0625;
const FASTER: f64 = 0.5;
/// Weight of the newest chunk. The cost of a token grows with its depth, so it is followed closely.
const NEWEST_CHUNK: f64 = 0.5;
/// An observation counts as so many times its estimate at most: a step that lost its core to another process says
/// nothing about the next one.
const OUTLIER: f64 = 2.0;
/// After so many steps with chunks, one goes without, to see again what decoding alone takes.
const LOOK_AGAIN: u32 = 32;
/// Numbers of rows that are told apart: powers of two.
const SIZES: usize = 8;

/// Estimates from the steps so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// A step with a chunk, to one that only decodes; without it chunks are not bounded.
    max_slowdown: Option<f64>,
    /// Of about so many rows.
    decode: [Decode; SIZES],
    /// Seconds that a prompt's token adds.
    prompt_token: Option<f64>,
}

/// Steps that only decode.
#[derive(Clone, Copy, Debug, Default)]
struct Decode {
    /// Seconds of one.
    seconds: f64,
    seen: u32,
    /// Steps with chunks since the last one.
    unseen: u32,
}

impl Decode {
    fn observe(&mut self, time: f64) {
        if self.seen == 0 {
            self.seconds = time;
        }
        let weight = if time > self.seconds { SLOWER } else { FASTER };
        self.seconds += weight * (time.min(self.seconds * OUTLIER) - self.seconds);
        (self.seen, self.unseen) = (self.seen.saturating_add(1), 0);
    }

    /// The estimate, unless it is old. A young one is looked at again sooner.
    fn known(&self) -> Option<f64> {
        let trusted = LOOK_AGAIN.min(4u32.saturating_pow(self.seen));
        (self.seen > 0 && self.unseen < trusted).then_some(self.seconds)
    }
}

impl Pace {
    /// Chunks shall make no step longer than `max_slowdown` times one that only decodes (`None`: they may).
    pub(crate) fn new(max_slowdown: Option<f64>) -> Self {
        let max_slowdown = max_slowdown.filter(|s| !s.is_nan());
        Self { max_slowdown, decode: [Decode::default(); SIZES], prompt_token: None }
    }

    /// Prompt tokens that a step with `n_decode` rows of replies may have. At least [`LEAST`], but for single steps that
    /// measure: none where decoding alone was not seen lately.
    pub(crate) fn allowance(&self, n_decode: usize) -> usize {
        let Some(max_slowdown) = self.max_slowdown.filter(|_| n_decode > 0) else { return usize::MAX };
        let decode = self.decode.get(size(n_decode)).and_then(Decode::known);
        match (decode, self.prompt_token) {
            (None, _) => 0,
            (Some(_), None) => LEAST,
            (Some(decode), Some(token)) => {
                let n = (max_slowdown - 1.0) * decode / token.max(f64::MIN_POSITIVE);
                (n as usize).max(LEAST)
            }
        }
    }

    /// A step with `n_decode` rows of replies and `n_prompt` of prompts took `time`.
    pub(crate) fn observe(&mut self, n_decode: usize, n_prompt: usize, time: Duration) {
        let (time, allowed) = (time.as_secs_f64(), self.allowance(n_decode));
        let (Some(max_slowdown), Some(decode)) = (self.max_slowdown, self.decode.get_mut(size(n_decode)))
        else {
            return;
        };
        if n_decode == 0 {
            return;
        }
        if n_prompt == 0 {
            return decode.observe(time);
        }
        decode.unseen = decode.unseen.saturating_add(1);
        // The end of a prompt: what a step costs besides its tokens would be laid on the few.
        if decode.seen == 0 || n_prompt < LEAST.max(allowed / 2) {
            return;
        }
        // A few rows more can be free. That allows chunks about twice as large, not any.
        let n = n_prompt as f64;
        let least = (max_slowdown - 1.0) * decode.seconds / (n * OUTLIER + LEAST as f64);
        let observed = ((time - decode.seconds) / n).max(least);
        self.prompt_token = Some(self.prompt_token.map_or(observed, |token| {
            token + NEWEST_CHUNK * (observed.clamp(token / OUTLIER, token * OUTLIER) - token)
        }));
    }
}

/// Which estimate is for steps with so many rows.
fn size(n_decode: usize) -> usize {
    let power = n_decode.checked_next_power_of_two().map_or(SIZES, |n| n.trailing_zeros() as usize);
    power.min(SIZES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What steps take on a made-up device, in seconds, and a little noise with outliers.
    struct Machine {
        step: f64,
        row: f64,
        chunk: f64,
        token: f64,
        depth: f64,
        outliers: bool,
        seed: u64,
    }

    impl Machine {
        fn of(seed: u64) -> Self {
            let mut machine = Self {
                step: 0.0,
                row: 0.0,
                chunk: 0.0,
                token: 0.0,
                depth: 0.0,
                outliers: seed.is_multiple_of(2),
                seed,
            };
            machine.step = 1e-3 * 100f64.powf(machine.random());
            machine.row = machine.step * 0.1 * machine.random();
            machine.chunk = machine.step * 0.5 * machine.random();
            machine.token = machine.step * 0.2 * 0.01f64.powf(machine.random());
            machine.depth = machine.token / 1000.0 * machine.random();
            machine
        }

        /// Uniform in 0..1.
        fn random(&mut self) -> f64 {
            self.seed =
                self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.seed >> 11) as f64 / (1u64 << 53) as f64
        }

        fn exact(&self, n_decode: usize, n_prompt: usize, depth: usize) -> f64 {
            let chunk = if n_prompt > 0 { self.chunk } else { 0.0 };
            let token = self.token + self.depth * depth as f64;
            self.step + self.row * n_decode as f64 + chunk + token * n_prompt as f64
        }

        fn take(&mut self, n_decode: usize, n_prompt: usize, depth: usize) -> Duration {
            let noise = 0.95 + 0.1 * self.random();
            let outlier = if self.outliers && self.random() < 0.03 { 12.0 } else { 1.0 };
            Duration::from_secs_f64(self.exact(n_decode, n_prompt, depth) * noise * outlier)
        }
    }

    const SLOWDOWN: f64 = 2.5;

    /// Runs a prompt of `length` beside `n_decode` streams, with the decode-only steps that are asked for. Gives each chunk,
    /// its depth and the estimate of the slowdown that it really had.
    fn prompt(
        pace: &mut Pace,
        machine: &mut Machine,
        n_decode: usize,
        length: usize,
    ) -> Vec<(usize, usize, f64)> {
        let (mut chunks, mut depth, mut measured) = (Vec::new(), 0, 0);
        while depth < length {
            let n = pace.allowance(n_decode).min(length - depth).min(512);
            pace.observe(n_decode, n, machine.take(n_decode, n, depth));
            measured = if n == 0 { measured + 1 } else { 0 };
            assert!(measured <= 1, "a prompt waits for one step that measures, not for more");
            if n > 0 {
                let slowdown = machine.exact(n_decode, n, depth) / machine.exact(n_decode, 0, 0);
                chunks.push((n, depth, slowdown));
            }
            depth += n;
        }
        chunks
    }

    #[test]
    fn chunks_fill_the_time_and_no_more() {
        for seed in 0..200 {
            let mut machine = Machine::of(seed);
            let mut pace = Pace::new(Some(SLOWDOWN));
            for n_decode in [4, 1, 16] {
                for _ in 0..20 {
                    pace.observe(n_decode, 0, machine.take(n_decode, 0, 0));
                }
                let chunks = prompt(&mut pace, &mut machine, n_decode, 8192);
                let (mut over, mut under, mut n) = (0, 0, 0);
                // Once it has settled, and without the end of the prompt.
                for &(chunk, depth, slowdown) in chunks.get(20..chunks.len() - 1).unwrap_or_default() {
                    n += 1;
                    let larger = machine.exact(n_decode, 2 * chunk, depth);
                    over += usize::from(chunk > LEAST && slowdown > SLOWDOWN * 1.2);
                    under +=
                        usize::from(chunk < 480 && larger < 0.9 * SLOWDOWN * machine.exact(n_decode, 0, 0));
                }
                assert!(over * 50 <= n, "{seed}: {over} of {n} steps are too long");
                assert!(under * 6 <= n, "{seed}: {under} of {n} chunks could be twice as large");
            }
        }
    }

    #[test]
    fn the_first_chunks_are_small_and_grow() {
        let mut machine = Machine { outliers: false, ..Machine::of(6) };
        machine.token = machine.step / 1000.0;
        machine.depth = 0.0;
        let mut pace = Pace::new(Some(SLOWDOWN));
        assert_eq!(pace.allowance(4), 0, "decoding alone is looked at first");
        pace.observe(4, 0, machine.take(4, 0, 0));
        assert_eq!(pace.allowance(4), LEAST);
        let chunks = prompt(&mut pace, &mut machine, 4, 8192);
        assert!(chunks.windows(2).all(|c| c[1].0 <= c[0].0 * 2 + LEAST), "{chunks:?}");
        assert!(chunks.iter().position(|c| c.0 > 256).is_some_and(|at| at < 20), "{chunks:?}");
    }

    /// One wild step changes little, and for a short time.
    #[test]
    fn outliers_pass() {
        let mut machine = Machine { outliers: false, ..Machine::of(10) };
        machine.depth = 0.0;
        let mut pace = Pace::new(Some(SLOWDOWN));
        (0..20).for_each(|_| pace.observe(4, 0, machine.take(4, 0, 0)));
        prompt(&mut pace, &mut machine, 4, 4096);
        let before = pace.allowance(4);
        assert!(before > 4 * LEAST);
        for (n_prompt, low, high) in [(0, 1.0, 1.2), (before, 0.6, 1.0)] {
            let mut pace = pace;
            pace.observe(4, n_prompt, Duration::from_secs(60));
            let share = pace.allowance(4) as f64 / before as f64;
            assert!((low - 0.1..high + 0.1).contains(&share), "{n_prompt}: {share}");
            prompt(&mut pace, &mut machine, 4, before * 8);
            let share = pace.allowance(4) as f64 / before as f64;
            assert!((0.8..1.3).contains(&share), "{share}");
        }
    }

    #[test]
    fn nothing_starves_and_nothing_overflows() {
        for slowdown in [f64::NEG_INFINITY, -1.0, 0.0, 1.0, 2.5, f64::INFINITY] {
            let mut pace = Pace::new(Some(slowdown));
            for time in [0, 1, u64::MAX] {
                for _ in 0..200 {
                    pace.observe(3, 0, Duration::from_nanos(time));
                    assert!(pace.allowance(3) >= LEAST);
                    let n = pace.allowance(3).min(512);
                    pace.observe(3, n, Duration::from_nanos(time));
                    assert!(pace.allowance(3) >= LEAST, "{slowdown} {time}");
                }
            }
        }
        assert_eq!(Pace::new(None).allowance(4), usize::MAX, "a budget that nobody bounds");
        assert_eq!(Pace::new(Some(2.5)).allowance(0), usize::MAX, "nobody to delay");
    }

    /// What many rows take says nothing about what few do, and the other way round.
    #[test]
    fn numbers_of_rows_are_told_apart() {
        let mut pace = Pace::new(Some(SLOWDOWN));
        let ms = Duration::from_millis;
        pace.observe(40, 0, ms(100));
        pace.observe(40, 4, ms(104));
        assert!(pace.allowance(40) > LEAST && pace.allowance(64) > LEAST);
        assert_eq!([pace.allowance(32), pace.allowance(1)], [0; 2], "not seen yet");
        pace.observe(1, 0, ms(10));
        assert!(pace.allowance(1) < pace.allowance(40));
        assert_eq!(
            [size(1), size(2), size(3), size(4), size(5), size(200), size(usize::MAX)],
            [0, 1, 2, 2, 3, 7, 7]
        );
    }
}
