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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        assert_ne!(unique("x-"), unique("x-"));
        assert_eq!(unique("x-").len(), 2 + 24);
    }
}
