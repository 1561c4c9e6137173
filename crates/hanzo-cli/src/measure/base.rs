//! Saved log-probabilities of a text: what one model says, to hold others against.
//!
//! Two files, told apart by their first eight bytes; all numbers are little-endian, rows are those of [`logprob`](super::logprob).
//! Both hold the text as token ids, in windows of `ctx`, and rows for the positions `ctx / 2 .. ctx - 1` of each window.
//!
//! Ours:
//!
//! ```text
//! "HZLOGITS"  u32 version (1)  u32 vocab_size  u32 ctx  u32 windows  u32 bos (2³² - 1: none)  u32 (0)
//! [32] SHA-256 of the vocabulary: of every token its length (u32) and bytes
//! u32 tokens [windows · ctx]            as the text has them
//! [32] SHA-256 of all before
//! windows × { rows [ctx - 1 - ctx / 2],  [32] SHA-256 of the digest before and the rows }
//! ```
//!
//! llama.cpp's, which has no checksums and does not know its vocabulary:
//!
//! ```text
//! "_logits_"  i32 ctx  i32 vocab_size  i32 windows  i32 tokens [windows · ctx]  windows × { rows }
//! ```
//!
//! Files are written under another name and appear when they are complete. A file's length follows from its head, so one that
//! was cut off is refused when it is opened.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use hanzo_text::tokenizer::Tokenizer;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use super::logprob::encoded_len;

const OURS: &[u8; 8] = b"HZLOGITS";
const LLAMA: &[u8; 8] = b"_logits_";
const VERSION: u32 = 1;
const NO_BOS: u32 = u32::MAX;
const DIGEST: usize = 32;

type Digest = [u8; DIGEST];

/// Which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Ours: with checksums
    Hanzo,
    /// llama.cpp's
    #[value(name = "llama.cpp")]
    Llama,
}

/// What identifies a vocabulary: its size and a digest of its tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Vocabulary {
    /// Logits of a row.
    pub(crate) size: usize,
    digest: Digest,
}

impl Vocabulary {
    /// That of a model with `size` logits.
    pub(crate) fn of(tokenizer: &Tokenizer, size: usize) -> Self {
        let mut hash = Sha256::new();
        for id in 0..tokenizer.vocab_size() {
            let token = u32::try_from(id).ok().and_then(|id| tokenizer.token_bytes(id)).unwrap_or_default();
            // Tokens are shorter than 2^32 bytes by the tokenizer's own bound.
            hash.update((token.len() as u32).to_le_bytes());
            hash.update(token);
        }
        Self { size, digest: hash.finalize().into() }
    }
}

/// The text of a file and how it is cut.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text {
    /// Tokens of a window.
    pub(crate) ctx: usize,
    /// Whole windows, as the text has them.
    pub(crate) tokens: Vec<u32>,
    /// What takes the place of each window's first token.
    pub(crate) bos: Option<u32>,
}

impl Text {
    fn rows_of_window(&self) -> usize {
        self.ctx - 1 - self.ctx / 2
    }

    fn windows(&self) -> usize {
        self.tokens.len() / self.ctx.max(1)
    }
}

/// A file under way.
pub(crate) struct Writer {
    path: PathBuf,
    out: BufWriter<NamedTempFile>,
    /// Digest of what was written; none in llama.cpp's file.
    digest: Option<Digest>,
    windows_left: usize,
    window_len: usize,
}

impl Writer {
    /// Starts a file that is to appear at `path`.
    ///
    /// # Errors
    /// When the folder cannot be written to, or the text is too large for the format.
    pub(crate) fn create(path: &Path, format: Format, vocabulary: &Vocabulary, text: &Text) -> Result<Self> {
        let what = || format!("cannot write {}", path.display());
        ensure!(path.file_name().is_some(), "{}: the path names no file", what());
        ensure!(
            std::fs::metadata(path).map_or(true, |there| there.is_file()),
            "{}: something that is not a regular file is there",
            what()
        );
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = NamedTempFile::with_prefix_in(".hanzo-", folder).with_context(what)?;
        let row = encoded_len(vocabulary.size).context("the vocabulary is too large")?;
        let number = |n: usize| u32::try_from(n).context("too large for the format").with_context(what);
        let (size, ctx, windows) = (number(vocabulary.size)?, number(text.ctx)?, number(text.windows())?);
        let mut head = Vec::with_capacity(text.tokens.len() * 4 + 128);
        match format {
            Format::Hanzo => {
                head.extend(OURS);
                for n in [VERSION, size, ctx, windows, text.bos.unwrap_or(NO_BOS), 0] {
                    head.extend(n.to_le_bytes());
                }
                head.extend(vocabulary.digest);
            }
            Format::Llama => {
                head.extend(LLAMA);
                for n in [ctx, size, windows] {
                    ensure!(i32::try_from(n).is_ok(), "{}: {n} is too large for the format", what());
                    head.extend(n.to_le_bytes());
                }
            }
        }
        text.tokens.iter().for_each(|token| head.extend(token.to_le_bytes()));
        let mut writer = Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(1 << 20, file),
            digest: None,
            windows_left: text.windows(),
            window_len: row.checked_mul(text.rows_of_window()).context("a window is too large")?,
        };
        writer.write(&head)?;
        if format == Format::Hanzo {
            writer.seal(Sha256::digest(&head).into())?;
        }
        Ok(writer)
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).with_context(|| format!("cannot write {}", self.path.display()))
    }

    fn seal(&mut self, digest: Digest) -> Result<()> {
        self.digest = Some(digest);
        self.write(&digest)
    }

    /// Writes a window's rows.
    ///
    /// # Errors
    /// When they cannot be written, or are not those of a window.
    pub(crate) fn window(&mut self, rows: &[u8]) -> Result<()> {
        ensure!(rows.len() == self.window_len && self.windows_left > 0, "rows of no window");
        self.windows_left -= 1;
        self.write(rows)?;
        match self.digest {
            Some(before) => self.seal(chained(&before, rows)),
            None => Ok(()),
        }
    }

    /// Puts the file in its place.
    ///
    /// # Errors
    /// When windows are missing, or it cannot be written.
    pub(crate) fn finish(mut self) -> Result<()> {
        ensure!(self.windows_left == 0, "{} windows were not written", self.windows_left);
        let what = || format!("cannot write {}", self.path.display());
        self.out.flush().with_context(what)?;
        let file = self.out.into_inner().map_err(|e| e.into_error()).with_context(what)?;
        file.as_file().sync_all().with_context(what)?;
        file.persist(&self.path).map_err(|e| e.error).with_context(what)?;
        Ok(())
    }
}

fn chained(before: &Digest, rows: &[u8]) -> Digest {
    Sha256::new().chain_update(before).chain_update(rows).finalize().into()
}

/// A file that was written before.
pub(crate) struct Reader {
    path: PathBuf,
    file: BufReader<File>,
    text: Text,
    vocab_size: usize,
    vocabulary: Option<Digest>,
    digest: Option<Digest>,
    window_len: usize,
    next: usize,
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("path", &self.path).field("windows", &self.windows()).finish()
    }
}

impl Reader {
    /// Opens a file and checks its head.
    ///
    /// # Errors
    /// When it is no such file, damaged, cut off or too long.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        Self::open_bare(path).with_context(|| format!("cannot use the saved logits {}", path.display()))
    }

    fn open_bare(path: &Path) -> Result<Self> {
        let meta = std::fs::metadata(path)?;
        ensure!(meta.is_file(), "it is not a regular file");
        let mut file = BufReader::with_capacity(1 << 20, File::open(path)?);
        let mut head = vec![0; 8];
        file.read_exact(&mut head).context("it is too short to be one")?;
        let ours = head == OURS;
        if !ours && head != LLAMA {
            bail!("it does not begin as saved logits do; `hanzo perplexity --save-logits` writes them");
        }
        let mut number = || -> Result<u32> {
            let mut bytes = [0; 4];
            file.read_exact(&mut bytes).context("it ends in its head")?;
            head.extend(bytes);
            Ok(u32::from_le_bytes(bytes))
        };
        let (vocab_size, ctx, windows, bos);
        if ours {
            let version = number()?;
            ensure!(version == VERSION, "it has version {version}; this program reads {VERSION}");
            (vocab_size, ctx, windows, bos) = (number()?, number()?, number()?, number()?);
            number()?;
        } else {
            (ctx, vocab_size, windows, bos) = (number()?, number()?, number()?, NO_BOS);
        }
        ensure!((4..=1 << 20).contains(&ctx), "it says that windows have {ctx} tokens");
        ensure!((1..=1 << 24).contains(&vocab_size), "it says that there are {vocab_size} tokens");
        ensure!((1..=1 << 24).contains(&windows), "it says that there are {windows} windows");
        // The bounds above keep these from overflowing.
        let rows = u64::from(ctx - 1 - ctx / 2);
        let window_len = rows * (u64::from(vocab_size).next_multiple_of(2) * 2 + 8);
        let n_tokens = u64::from(windows) * u64::from(ctx);
        let seals = if ours { DIGEST as u64 } else { 0 };
        let expected =
            head.len() as u64 + 2 * seals + 4 * n_tokens + u64::from(windows) * (window_len + seals);
        ensure!(
            meta.len() == expected,
            "it has {} bytes, and its head tells of {expected}: it was cut off or damaged",
            meta.len()
        );
        let mut vocabulary = None;
        if ours {
            let mut digest = [0; DIGEST];
            file.read_exact(&mut digest)?;
            head.extend(digest);
            vocabulary = Some(digest);
        }
        let mut bytes = vec![0; usize::try_from(4 * n_tokens)?];
        file.read_exact(&mut bytes)?;
        let tokens: Vec<u32> = bytes.as_chunks::<4>().0.iter().map(|c| u32::from_le_bytes(*c)).collect();
        let mut digest = None;
        if ours {
            let mut saved = [0; DIGEST];
            file.read_exact(&mut saved)?;
            head.extend(&bytes);
            ensure!(saved == Digest::from(Sha256::digest(&head)), "its head is damaged (wrong checksum)");
            digest = Some(saved);
        }
        if let Some(token) = tokens.iter().find(|&&token| token >= vocab_size) {
            bail!("it has token {token} of a vocabulary of {vocab_size}");
        }
        Ok(Self {
            path: path.to_owned(),
            file,
            text: Text { ctx: ctx as usize, tokens, bos: (bos != NO_BOS).then_some(bos) },
            vocab_size: vocab_size as usize,
            vocabulary,
            digest,
            window_len: usize::try_from(window_len)?,
            next: 0,
        })
    }

    /// The text.
    pub(crate) fn text(&self) -> &Text {
        &self.text
    }

    /// Number of windows.
    pub(crate) fn windows(&self) -> usize {
        self.text.windows()
    }

    /// Checks that rows of a model with this vocabulary can be held against the file's.
    ///
    /// # Errors
    /// Where it cannot.
    pub(crate) fn check(&self, vocabulary: &Vocabulary, bos: Option<u32>) -> Result<()> {
        let path = self.path.display();
        ensure!(
            vocabulary.size == self.vocab_size,
            "the saved logits {path} are of a vocabulary of {} tokens, the model's has {}",
            self.vocab_size,
            vocabulary.size
        );
        if let Some(digest) = &self.vocabulary {
            ensure!(
                *digest == vocabulary.digest,
                "the saved logits {path} are of another vocabulary of the same size"
            );
            ensure!(
                self.text.bos == bos,
                "the saved logits {path} were made {} BOS in front of windows, which this model has otherwise",
                if self.text.bos.is_some() { "with a" } else { "without" }
            );
        }
        Ok(())
    }

    /// The rows of the next window.
    ///
    /// # Errors
    /// When they cannot be read, or are damaged.
    pub(crate) fn window(&mut self, rows: &mut Vec<u8>) -> Result<()> {
        self.next += 1;
        let what = || format!("cannot read window {} of {}", self.next, self.path.display());
        rows.resize(self.window_len, 0);
        self.file.read_exact(rows).with_context(what)?;
        if let Some(before) = self.digest {
            let mut saved = [0; DIGEST];
            self.file.read_exact(&mut saved).with_context(what)?;
            ensure!(saved == chained(&before, rows), "{}: it is damaged (wrong checksum)", what());
            self.digest = Some(saved);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const VOCAB: Vocabulary = Vocabulary { size: 5, digest: [7; DIGEST] };

    fn text() -> Text {
        Text { ctx: 6, tokens: (0..12).map(|i| i % 5).collect(), bos: Some(1) }
    }

    fn window(i: u8) -> Vec<u8> {
        // Two rows of a window of 6.
        vec![i; 2 * encoded_len(5).unwrap()]
    }

    fn write(path: &Path, format: Format) {
        let mut writer = Writer::create(path, format, &VOCAB, &text()).unwrap();
        writer.window(&window(1)).unwrap();
        writer.window(&window(2)).unwrap();
        assert!(!path.exists());
        writer.finish().unwrap();
    }

    #[test]
    fn what_was_written_is_read() {
        let dir = tempfile::tempdir().unwrap();
        for format in [Format::Hanzo, Format::Llama] {
            let path = dir.path().join("x.logits");
            let _ = std::fs::remove_file(&path);
            write(&path, format);
            let mut reader = Reader::open(&path).unwrap();
            let bos = (format == Format::Hanzo).then_some(1);
            assert_eq!(*reader.text(), Text { bos, ..text() });
            let mut rows = Vec::new();
            for i in 1..=2 {
                reader.window(&mut rows).unwrap();
                assert_eq!(rows, window(i));
            }
            assert!(reader.window(&mut rows).is_err());
            reader.check(&VOCAB, Some(1)).unwrap();
            let other = Vocabulary { size: 6, ..VOCAB };
            assert!(reader.check(&other, Some(1)).unwrap_err().to_string().contains("5 tokens"));
            let other = Vocabulary { digest: [8; DIGEST], ..VOCAB };
            assert_eq!(reader.check(&other, Some(1)).is_ok(), format == Format::Llama);
            assert_eq!(reader.check(&VOCAB, None).is_ok(), format == Format::Llama);
        }
    }

    #[test]
    fn unfinished_files_leave_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.logits");
        let mut writer = Writer::create(&path, Format::Hanzo, &VOCAB, &text()).unwrap();
        writer.window(&window(1)).unwrap();
        assert!(writer.window(&[1, 2]).is_err());
        assert!(writer.finish().is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(Writer::create(dir.path(), Format::Hanzo, &VOCAB, &text()).is_err());
    }

    /// Every byte of ours is under a checksum; a cut is found at once in both.
    #[test]
    fn damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.logits");
        write(&path, Format::Hanzo);
        let good = std::fs::read(&path).unwrap();
        let read = |bytes: &[u8]| -> Result<()> {
            std::fs::write(&path, bytes)?;
            let mut reader = Reader::open(&path)?;
            let mut rows = Vec::new();
            (0..reader.windows()).try_for_each(|_| reader.window(&mut rows))
        };
        read(&good).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x10;
            assert!(read(&bad).is_err(), "byte {at}");
            assert!(read(&good[..at]).is_err(), "cut at {at}");
        }
        let longer: Vec<u8> = good.iter().copied().chain([0]).collect();
        assert!(read(&longer).is_err());
        std::fs::remove_file(&path).unwrap();
        write(&path, Format::Llama);
        let good = std::fs::read(&path).unwrap();
        for at in 0..good.len() {
            assert!(read(&good[..at]).is_err(), "cut at {at}");
        }
        // Counts that a hostile head may tell.
        for head in [[i32::MAX; 3], [-1; 3], [0; 3], [4, 1 << 20, 1 << 20]] {
            let mut bad = LLAMA.to_vec();
            head.iter().for_each(|n| bad.extend(n.to_le_bytes()));
            assert!(read(&bad).is_err(), "{head:?}");
        }
    }
}
