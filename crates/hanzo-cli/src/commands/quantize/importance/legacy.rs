//! llama.cpp's importance matrices from before GGUF (`imatrix.dat`). Little-endian:
//!
//! ```text
//! i32 tensors
//! tensors × { i32 length, name,  i32 calls,  i32 n, f32 sums [n] }     importance = sum / calls
//! i32 chunks,  i32 length, name of the text                            both may be missing
//! ```

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, ensure};

use super::{Entry, Importance, check};

/// Longest name of a tensor or a text.
const MAX_NAME: u64 = 4096;

/// Reads a file.
///
/// # Errors
/// What is wrong with it, and where.
pub(super) fn read(path: &Path) -> Result<Importance> {
    let file = File::open(path)?;
    let mut input = Input { left: file.metadata()?.len(), file: BufReader::new(file) };
    let n = input.count("the number of tensors").context("it is neither GGUF nor the older form")?;
    let mut tensors = HashMap::new();
    for i in 0..n {
        let at = || format!("tensor {} of {n} (neither GGUF nor whole in the older form)", i + 1);
        let (name, entry) = tensor(&mut input).with_context(at)?;
        check(&name, &entry.sums)?;
        ensure!(tensors.insert(name.clone(), entry).is_none(), "tensor `{name}` is there twice");
    }
    // What follows was added over time.
    let chunks = input.number().ok().and_then(|n| u32::try_from(n).ok());
    let dataset = input.name().ok().filter(|name| !name.is_empty());
    Ok(Importance { tensors, datasets: dataset.into_iter().collect(), chunks })
}

fn tensor(input: &mut Input) -> Result<(String, Entry)> {
    let name = input.name()?;
    let calls = input.number()?;
    ensure!(calls >= 0, "`{name}`: {calls} calls");
    let n = input.count("the number of values")?;
    let bytes = input.bytes(n.checked_mul(4).context("too many values")?)?;
    let sums = bytes.as_chunks::<4>().0.iter().map(|&c| f32::from_le_bytes(c)).collect();
    // Files without calls hold the quotients themselves.
    Ok((name, Entry { sums, counts: vec![calls.max(1) as f32] }))
}

/// A file, and how much of it is left.
struct Input {
    file: BufReader<File>,
    left: u64,
}

impl Input {
    /// The next bytes; memory is taken only for what is there.
    fn bytes(&mut self, n: u64) -> Result<Vec<u8>> {
        self.left = self
            .left
            .checked_sub(n)
            .with_context(|| format!("{n} bytes are told of where {} are left", self.left))?;
        let mut bytes = vec![0; usize::try_from(n)?];
        self.file.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<i32> {
        let bytes = self.bytes(4)?;
        let bytes = bytes.first_chunk::<4>().context("four bytes")?;
        Ok(i32::from_le_bytes(*bytes))
    }

    fn count(&mut self, what: &str) -> Result<u64> {
        let n = self.number()?;
        u64::try_from(n).ok().filter(|n| *n > 0).with_context(|| format!("{what} is {n}"))
    }

    fn name(&mut self) -> Result<String> {
        let n = self.number()?;
        let n = u64::try_from(n)
            .ok()
            .filter(|n| *n <= MAX_NAME)
            .with_context(|| format!("a name of {n} bytes"))?;
        String::from_utf8(self.bytes(n)?).context("a name that is not UTF-8")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn put(out: &mut Vec<u8>, name: &str, calls: i32, sums: &[f32]) {
        out.extend((name.len() as i32).to_le_bytes());
        out.extend(name.as_bytes());
        out.extend(calls.to_le_bytes());
        out.extend((sums.len() as i32).to_le_bytes());
        sums.iter().for_each(|s| out.extend(s.to_le_bytes()));
    }

    fn good() -> (Vec<u8>, usize) {
        let mut out = 2i32.to_le_bytes().to_vec();
        put(&mut out, "blk.0.attn_q.weight", 4, &[2.0, 6.0]);
        put(&mut out, "blk.0.ffn_up_exps.weight", 2, &[1.0, 2.0, 3.0, 4.0]);
        let tensors = out.len();
        out.extend(9i32.to_le_bytes());
        out.extend(5i32.to_le_bytes());
        out.extend(b"a.txt");
        (out, tensors)
    }

    #[test]
    fn files_are_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("imatrix.dat");
        let (bytes, tensors) = good();
        std::fs::write(&path, &bytes).unwrap();
        let read = Importance::open(&path).unwrap();
        assert_eq!(
            (read.len(), read.chunks, read.datasets.as_slice()),
            (2, Some(9), &["a.txt".to_owned()][..])
        );
        let entry = &read.tensors["blk.0.attn_q.weight"];
        assert_eq!((entry.sums.as_slice(), entry.counts.as_slice()), (&[2.0, 6.0][..], &[4.0][..]));
        // Without its tail, as older programs wrote it; and cut in the tensors.
        std::fs::write(&path, &bytes[..tensors]).unwrap();
        assert_eq!(Importance::open(&path).unwrap().chunks, None);
        for at in 0..tensors {
            std::fs::write(&path, &bytes[..at]).unwrap();
            assert!(Importance::open(&path).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn counts_that_lie_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("imatrix.dat");
        let (bytes, _) = good();
        // The number of tensors, the length of a name, the number of values.
        for at in [0, 4, 4 + 4 + 19 + 4] {
            for lie in [i32::MAX, -1, i32::MIN] {
                let mut bad = bytes.clone();
                bad[at..at + 4].copy_from_slice(&lie.to_le_bytes());
                std::fs::write(&path, &bad).unwrap();
                assert!(Importance::open(&path).is_err(), "{lie} at {at}");
            }
        }
        let mut bad = bytes;
        bad[4 + 4 + 19 + 8..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
        std::fs::write(&path, &bad).unwrap();
        let error = format!("{:#}", Importance::open(&path).unwrap_err());
        assert!(error.contains("blk.0.attn_q.weight") && error.contains("NaN"), "{error}");
    }
}
