//! What a repository of the Hub holds: its commit, its files, and what is needed to fetch one.

use serde::Deserialize;
use ureq::http::{HeaderMap, Method};

use crate::digest::Expected;
use crate::error::{Error, Result};
use crate::http::{Http, Question};
use crate::layout::is_commit;
use crate::name::Repo;

/// Longest path of a file.
const MAX_PATH: usize = 512;

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemoteFile {
    /// Where it is in the repository, with `/`.
    pub path: String,
    /// Bytes, where they are known.
    pub size: Option<u64>,
}

/// A repository at one commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// The commit, 40 hexadecimal digits.
    pub commit: String,
    /// Its GGUF files.
    pub files: Vec<RemoteFile>,
}

/// What is needed to fetch a file.
#[derive(Clone, Debug)]
pub(crate) struct FileFacts {
    pub(crate) url: String,
    pub(crate) digest: Expected,
    pub(crate) size: u64,
}

#[derive(Deserialize)]
struct ModelInfo {
    sha: String,
    #[serde(default)]
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
}

/// Whether a path from the Hub can only lead to a file below the folder that it is appended to, on every system.
pub(crate) fn safe_path(path: &str) -> bool {
    let plain = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && part.len() <= 255 && !part.ends_with([' ', '.'])
    };
    let harmless = |c: char| !c.is_control() && !"\\:*?\"<>|".contains(c);
    path.len() <= MAX_PATH && path.chars().all(harmless) && path.split('/').all(plain)
}

/// The list of a branch's GGUF files.
pub(crate) fn revision(http: &Http, repo: &Repo, branch: &str) -> Result<Revision> {
    let url = format!("{}/api/models/{repo}/revision/{branch}?blobs=true", http.config().endpoint);
    let what = format!("model `{repo}`");
    let question = Question { method: Method::GET, url, from: 0, what: &what };
    let answer = http.ask(&question, |_| false)?;
    let url = answer.url.clone();
    let bad = |why: String| Error::BadAnswer { url: url.clone(), why };
    let info: ModelInfo = serde_json::from_str(&answer.text()?)
        .map_err(|error| bad(format!("this is not how the Hub describes a model: {error}")))?;
    if !is_commit(&info.sha) {
        return Err(bad(format!("`{:?}` is no commit", info.sha)));
    }
    let mut files = Vec::new();
    for sibling in info.siblings {
        if !sibling.rfilename.ends_with(".gguf") {
            continue;
        }
        if !safe_path(&sibling.rfilename) {
            return Err(bad(format!(
                "a file may not be called {:?}; nothing was fetched",
                sibling.rfilename
            )));
        }
        files.push(RemoteFile { path: sibling.rfilename, size: sibling.size });
    }
    Ok(Revision { commit: info.sha, files })
}

/// Digest and size of a file: from the headers that the Hub sends before it redirects to where the content is.
pub(crate) fn file_facts(http: &Http, repo: &Repo, commit: &str, path: &str) -> Result<FileFacts> {
    let url = format!("{}/{repo}/resolve/{commit}/{}", http.config().endpoint, encoded(path));
    let what = format!("file `{path}` in `{repo}`");
    let question = Question { method: Method::HEAD, url: url.clone(), from: 0, what: &what };
    let answer = http.ask(&question, |headers: &HeaderMap| headers.contains_key("x-linked-etag"))?;
    let bad = |why: &str| Error::BadAnswer { url: url.clone(), why: why.to_owned() };
    let etag = answer.header("x-linked-etag").or_else(|| answer.header("etag"));
    let digest = etag.and_then(Expected::from_etag);
    let digest =
        digest.ok_or_else(|| bad("the Hub names no digest (ETag), so the file could not be checked"))?;
    let size = answer.number("x-linked-size").or_else(|| answer.number("content-length"));
    let size = size.ok_or_else(|| bad("the Hub names no size"))?;
    if answer.header("x-repo-commit").is_some_and(|found| found != commit) {
        return Err(bad("the Hub answers for another commit"));
    }
    Ok(FileFacts { url, digest, size })
}

/// A path as part of a URL.
fn encoded(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_lead_elsewhere_are_refused() {
        for path in ["a.gguf", "Q8_0/a-00001-of-00002.gguf", "a b.gguf", "é.gguf"] {
            assert!(safe_path(path), "{path}");
        }
        for path in [
            "",
            "/etc/x.gguf",
            "../x.gguf",
            "a/../../x.gguf",
            "a//x.gguf",
            "./x.gguf",
            "a\\x.gguf",
            "C:x.gguf",
            "x\0.gguf",
            "x\n.gguf",
            "x.gguf ",
            "x./y.gguf",
        ] {
            assert!(!safe_path(path), "{path:?}");
        }
        assert!(!safe_path(&"a/".repeat(300)));
    }

    #[test]
    fn paths_become_parts_of_urls() {
        assert_eq!(encoded("a b/ü?#%.gguf"), "a%20b/%C3%BC%3F%23%25.gguf");
    }
}
