//! Names and seeds that nobody chose.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::{SystemTime, UNIX_EPOCH};

/// 64 random bits: the standard library keys its hashers from the system's randomness.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A seed for draws. 32 bits, so that JSON's readers keep it exact and people can type it.
#[must_use]
pub fn random_seed() -> u64 {
    random() & 0xffff_ffff
}

/// A name that is used once, such as `chatcmpl-4f…`.
pub(crate) fn unique(prefix: &str) -> String {
    format!("{prefix}{:016x}{:08x}", random(), random() & 0xffff_ffff)
}

/// Seconds since 1970.
pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
}

/// Seconds since 1970 as RFC 3339 writes them, in UTC.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days to a civil date, by eras of 400 years that begin in March (Hinnant, "chrono-compatible low-level date algorithms").
    let z = days + 719_468;
    let (era, of_era) = (z / 146_097, z % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_796_083_199), "2026-11-30T23:59:59Z");
    }

    #[test]
    fn names_differ() {
        assert_ne!(unique("x-"), unique("x-"));
        assert_eq!(unique("x-").len(), 2 + 24);
    }
}
