//! Which tokens are scored, and what they see: the windows of a text.
//!
//! The rules are those of llama.cpp's perplexity tool (b11434), so that figures can be compared:
//!
//! * *plain*: the text is cut into windows of `ctx` tokens, and what is left over is dropped. The tokens of a window's second half
//!   are scored, each with the window up to it as context. Where the vocabulary wants BOS, it takes the place of each window's
//!   first token.
//! * *strided*: windows of `ctx + stride / 2` tokens, rounded up to a multiple of 256, begin every `stride` tokens; the last `stride`
//!   tokens of each are scored. Windows begin with the text's own token: BOS stands at the beginning of the text only.
//!
//! Both want a text of at least two windows.

use std::ops::Range;

use anyhow::{Result, bail};

/// Strided windows are a multiple of this long.
const STRIDED_UNIT: usize = 256;

/// How a text is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Windows {
    /// Tokens of a window.
    pub(crate) len: usize,
    /// Tokens from one window's beginning to the next.
    step: usize,
    /// Positions in a window whose next tokens are scored.
    scored: (usize, usize),
    /// Number of windows.
    pub(crate) n: usize,
    /// Whether BOS takes the place of a window's first token.
    bos: Option<u32>,
}

impl Windows {
    /// Plain windows of a text of `n_tokens`, at most `limit` of them.
    ///
    /// # Errors
    /// When the text is too short.
    pub(crate) fn plain(n_tokens: usize, ctx: usize, bos: Option<u32>, limit: Option<usize>) -> Result<Self> {
        enough(n_tokens, ctx)?;
        Ok(Self::saved(ctx, bos, (n_tokens / ctx).min(limit.unwrap_or(usize::MAX))))
    }

    /// Plain windows of a text that was cut before: the first `n`.
    pub(crate) fn saved(ctx: usize, bos: Option<u32>, n: usize) -> Self {
        Self { len: ctx, step: ctx, scored: (ctx / 2, ctx - 1), n, bos }
    }

    /// Strided windows.
    ///
    /// # Errors
    /// When the text is too short, or the stride as long as a window.
    pub(crate) fn strided(n_tokens: usize, ctx: usize, stride: usize, limit: Option<usize>) -> Result<Self> {
        let len = Self::strided_len(ctx, stride);
        if stride >= len {
            bail!(
                "a stride of {stride} leaves no context in windows of {len} tokens; give a smaller --stride"
            );
        }
        enough(n_tokens, len)?;
        let n = (n_tokens - len).div_ceil(stride).min(limit.unwrap_or(usize::MAX));
        Ok(Self { len, step: stride, scored: (len - stride - 1, len - 1), n, bos: None })
    }

    /// Length of strided windows.
    pub(crate) fn strided_len(ctx: usize, stride: usize) -> usize {
        (ctx + stride / 2).next_multiple_of(STRIDED_UNIT)
    }

    /// Positions in a window whose next tokens are scored.
    pub(crate) fn scored(&self) -> Range<usize> {
        self.scored.0..self.scored.1
    }

    /// The tokens of window `i` of `text`, as the model sees them; empty where there is none.
    pub(crate) fn tokens(&self, text: &[u32], i: usize) -> Vec<u32> {
        let from = i.saturating_mul(self.step);
        let mut tokens = text.get(from..from.saturating_add(self.len)).unwrap_or_default().to_vec();
        if let (Some(bos), Some(first)) = (self.bos, tokens.first_mut()) {
            *first = bos;
        }
        tokens
    }
}

fn enough(n_tokens: usize, len: usize) -> Result<()> {
    if n_tokens < len.saturating_mul(2) {
        bail!(
            "the text has {n_tokens} tokens; windows of {len} need at least {}: give a longer text or a smaller --ctx",
            len.saturating_mul(2)
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(n: u32) -> Vec<u32> {
        (0..n).collect()
    }

    #[test]
    fn plain_windows_score_their_second_half() {
        let w = Windows::plain(27, 8, Some(99), None).unwrap();
        assert_eq!((w.n, w.scored()), (3, 4..7));
        assert_eq!(w.tokens(&text(27), 1), [99, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(Windows::plain(27, 9, None, Some(2)).unwrap().n, 2);
        // Nine: positions 4 to 7 predict tokens 5 to 8.
        assert_eq!(Windows::plain(27, 9, None, None).unwrap().scored(), 4..8);
    }

    #[test]
    fn strided_windows_score_their_last_stride() {
        let w = Windows::strided(1600, 512, 128, None).unwrap();
        assert_eq!((w.len, w.scored()), (768, 639..767));
        assert_eq!(w.n, (1600 - 768usize).div_ceil(128));
        assert_eq!(w.tokens(&text(1600), 2)[0], 256);
        // The last window is whole.
        assert_eq!(w.tokens(&text(1600), w.n - 1).len(), 768);
    }

    #[test]
    fn short_texts_are_refused_with_both_numbers() {
        let error = Windows::plain(15, 8, None, None).unwrap_err().to_string();
        assert!(error.contains("15 tokens") && error.contains("16"), "{error}");
        assert!(Windows::plain(16, 8, None, None).is_ok());
        assert!(Windows::strided(500, 256, 64, None).is_err());
        assert!(Windows::strided(5000, 4, 600, None).unwrap_err().to_string().contains("600"));
    }
}
