//! Digests as the Hub announces them: in the `ETag` of a file.

use sha1::Sha1;
use sha2::{Digest as _, Sha256};

/// What a file's digest must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Expected {
    /// Large files: SHA-256 of the content.
    Sha256(String),
    /// Small files, which lie in the Git repository: SHA-1 of the blob, which is `blob LENGTH\0` and the content.
    GitBlob(String),
}

impl Expected {
    /// From an `ETag`: hexadecimal digits, in quotes, perhaps weak (`W/`). `None` for anything else, which then never
    /// becomes part of a path.
    pub(crate) fn from_etag(etag: &str) -> Option<Self> {
        let bare = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"');
        let hex = bare.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        match bare.len() {
            64 if hex => Some(Self::Sha256(bare.to_owned())),
            40 if hex => Some(Self::GitBlob(bare.to_owned())),
            _ => None,
        }
    }

    /// The digits, by which the cache names the file.
    pub(crate) fn hex(&self) -> &str {
        match self {
            Self::Sha256(hex) | Self::GitBlob(hex) => hex,
        }
    }

    /// A digest of the same kind to feed a file of `len` bytes to.
    pub(crate) fn start(&self, len: u64) -> Running {
        match self {
            Self::Sha256(_) => Running::Sha256(Box::new(Sha256::new())),
            Self::GitBlob(_) => Running::GitBlob(Sha1::new_with_prefix(format!("blob {len}\0"))),
        }
    }
}

/// A digest that is being made.
pub(crate) enum Running {
    Sha256(Box<Sha256>),
    GitBlob(Sha1),
}

impl Running {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(digest) => digest.update(bytes),
            Self::GitBlob(digest) => digest.update(bytes),
        }
    }

    pub(crate) fn hex(self) -> String {
        match self {
            Self::Sha256(digest) => hex(&digest.finalize()),
            Self::GitBlob(digest) => hex(&digest.finalize()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etags_are_digests_or_nothing() {
        let sha256 = "a".repeat(64);
        assert_eq!(Expected::from_etag(&format!("\"{sha256}\"")), Some(Expected::Sha256(sha256.clone())));
        assert!(matches!(
            Expected::from_etag(&format!("W/\"{}\"", "0".repeat(40))),
            Some(Expected::GitBlob(_))
        ));
        for bad in ["", "\"\"", "../../etc/passwd", &"g".repeat(64), &"A".repeat(64), &"a".repeat(63)] {
            assert_eq!(Expected::from_etag(bad), None, "{bad}");
        }
    }

    /// Values of `sha256sum` and `git hash-object`.
    #[test]
    fn digests_are_those_of_the_usual_tools() {
        for (expected, value) in [
            (
                Expected::Sha256(String::new()),
                "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03",
            ),
            (Expected::GitBlob(String::new()), "ce013625030ba8dba906f756967f9e9ca394464a"),
        ] {
            let mut running = expected.start(6);
            running.update(b"hel");
            running.update(b"lo\n");
            assert_eq!(running.hex(), value);
        }
    }
}
