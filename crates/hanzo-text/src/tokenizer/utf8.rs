//! UTF-8 decoding on byte slices that is total: a malformed sequence reads as one replacement character a byte.
//!
//! The scanners work on bytes because slicing a `str` re-checks boundaries at every cut; their input comes from a
//! `str`, so the malformed case never happens, but nothing may depend on that.

/// U+FFFD, what a malformed byte reads as.
pub(crate) const REPLACEMENT: u32 = 0xFFFD;

/// The code point at `pos` and its length in bytes; `None` at the end.
#[inline]
pub(crate) fn decode(text: &[u8], pos: usize) -> Option<(u32, usize)> {
    let rest = text.get(pos..)?;
    let &b0 = rest.first()?;
    if b0 < 0x80 {
        return Some((u32::from(b0), 1));
    }
    Some(decode_multibyte(rest, b0))
}

#[inline]
fn decode_multibyte(rest: &[u8], b0: u8) -> (u32, usize) {
    let cont = |i: usize| rest.get(i).filter(|&&b| b & 0xC0 == 0x80).map(|&b| u32::from(b & 0x3F));
    let b0 = u32::from(b0);
    let decoded = match b0 {
        0xC2..=0xDF => cont(1).map(|b1| ((b0 & 0x1F) << 6 | b1, 2)),
        0xE0..=0xEF => match (cont(1), cont(2)) {
            (Some(b1), Some(b2)) => Some(((b0 & 0x0F) << 12 | b1 << 6 | b2, 3)),
            _ => None,
        },
        0xF0..=0xF4 => match (cont(1), cont(2), cont(3)) {
            (Some(b1), Some(b2), Some(b3)) => Some(((b0 & 0x07) << 18 | b1 << 12 | b2 << 6 | b3, 4)),
            _ => None,
        },
        _ => None,
    };
    decoded.unwrap_or((REPLACEMENT, 1))
}

/// Length of the sequence at `pos` as [`decode`] would take it, at least 1.
#[inline]
pub(crate) fn len_at(text: &[u8], pos: usize) -> usize {
    decode(text, pos).map_or(1, |(_, len)| len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn agrees_with_std_on_text(s in ".*") {
            let mut pos = 0;
            for c in s.chars() {
                prop_assert_eq!(decode(s.as_bytes(), pos), Some((c as u32, c.len_utf8())));
                pos += c.len_utf8();
            }
            prop_assert_eq!(decode(s.as_bytes(), pos), None);
        }

        #[test]
        fn is_total_on_bytes(b in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut pos = 0;
            while let Some((_, len)) = decode(&b, pos) {
                prop_assert!((1..=4).contains(&len));
                pos += len;
            }
            prop_assert_eq!(pos, b.len());
        }
    }
}
