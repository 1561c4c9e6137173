//! How many tokens of a prompt a step may take while others decode.
//!
//! A chunk of a prompt delays every reply that is running, so its size follows from what steps took so far: the step
//! shall not be longer than [`MAX_SLOWDOWN`] times one that only decodes. Only time depends on this, never a result.

use std::time::Duration;

/// A step with a chunk of a prompt, to one that only decodes.
const MAX_SLOWDOWN: f64 = 2.5;
/// Prompts advance by this much at least, and by multiples of it.
const LEAST: usize = 16;
/// Weight of the newest observation.
const NEWEST: f64 = 0.2;

/// Estimates from the steps so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Seconds of a step that only decodes.
    decode: Option<f64>,
    /// Seconds that a prompt's token adds.
    prompt_token: Option<f64>,
}

impl Pace {
    /// A step with `n_decode` rows of replies and `n_prompt` of prompts took `time`.
    pub(crate) fn observe(&mut self, n_decode: usize, n_prompt: usize, time: Duration) {
        let time = time.as_secs_f64();
        match (n_decode, n_prompt) {
            (_, 0) => blend(&mut self.decode, time),
            (0, n) => blend(&mut self.prompt_token, time / n as f64),
            (_, n) => {
                let Some(decode) = self.decode else { return };
                blend(&mut self.prompt_token, (time - decode).max(0.0) / n as f64);
            }
        }
    }

    /// Prompt tokens that a step with replies in it may have.
    pub(crate) fn allowance(&self) -> usize {
        let Some((decode, token)) = self.decode.zip(self.prompt_token) else { return LEAST };
        let n = (MAX_SLOWDOWN - 1.0) * decode / token.max(1e-9);
        (n as usize / LEAST * LEAST).max(LEAST)
    }
}

fn blend(estimate: &mut Option<f64>, observed: f64) {
    *estimate = Some(estimate.map_or(observed, |e| e + NEWEST * (observed - e)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_from_the_times_of_steps() {
        let mut pace = Pace::default();
        assert_eq!(pace.allowance(), LEAST);
        for _ in 0..50 {
            pace.observe(4, 0, Duration::from_millis(40));
            pace.observe(0, 512, Duration::from_millis(512));
        }
        // One and a half steps of 40 ms, at 1 ms a token.
        assert_eq!(pace.allowance(), 48);
        for _ in 0..50 {
            pace.observe(4, 48, Duration::from_millis(40 + 480));
        }
        assert_eq!(pace.allowance(), LEAST, "tokens turned out slower");
    }
}
