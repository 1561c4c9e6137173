//! Packed weights from the cache are those that packing gives, whatever lies in the folder.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use hanzo_fusion::graph::Builder;
use hanzo_fusion::{Progress, WeightSource};
use hanzo_quant::QuantType;
use tempfile::TempDir;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::*;
use crate::numeric::{Random, weights};

const WIDTH: usize = 512;
const VOCAB: usize = 48;

/// A model whose contractions have these types: a ragged matrix and a stack of experts of each.
fn graph(types: &[QuantType]) -> Graph {
    let mut g = Builder::new(VOCAB);
    let table = g.matrix("embd", VOCAB, WIDTH, QuantType::Q8_0);
    let mut x = g.embed(table);
    for ty in types {
        let name = |n: &str| format!("{ty}.{n}");
        let norm = g.vector(&name("norm"), WIDTH, QuantType::F32);
        let h = g.rms_norm(x, norm, 1e-5);
        // 40 rows are not whole strips.
        let gate = g.matrix(&name("gate"), 40, WIDTH, *ty);
        let ids = g.matmul(h, gate);
        let ids = g.top_k(ids, 2);
        let experts = g.experts(&name("experts"), 3, WIDTH, WIDTH, *ty);
        let e = g.moe_matmul(h, experts, ids);
        let by = g.matmul(h, gate);
        let by = g.gather_cols(by, ids);
        let e = g.combine_slots(e, by);
        x = g.add(x, e);
    }
    let x = g.select_outputs(x);
    let head = g.matrix("head", VOCAB, WIDTH, QuantType::F16);
    let logits = g.matmul(x, head);
    g.finish(logits).unwrap()
}

/// A file with random weights, which counts what is read of it.
struct Model {
    graph: Graph,
    weights: Vec<Vec<u8>>,
    part: SourcePart,
    /// What [`WeightSource::parts`] adds to the stamp each time it is asked: a file that is being written to.
    restless: bool,
    contracted: AtomicU64,
    digested: AtomicU64,
}

impl Model {
    fn new(types: &[QuantType], seed: u64) -> Self {
        let (graph, mut rng) = (graph(types), Random(seed));
        let bytes =
            |decl: &WeightDecl| weights(decl.ty.format(), decl.n_stack * decl.n_out * decl.n_in, &mut rng);
        let weights: Vec<Vec<u8>> = graph.weights.iter().map(bytes).collect();
        let part = SourcePart {
            name: "/models/some.gguf".to_owned(),
            len: weights.iter().map(|w| w.len() as u64).sum(),
            stamp: vec![1, 2, seed],
            changed: Some(SystemTime::UNIX_EPOCH),
        };
        Self { graph, weights, part, restless: false, contracted: 0.into(), digested: 0.into() }
    }

    /// Bytes of contracted weights, and of files for their digest, that were read since this was asked last.
    fn reads(&self) -> (u64, u64) {
        (self.contracted.swap(0, Ordering::Relaxed), self.digested.swap(0, Ordering::Relaxed))
    }
}

impl WeightSource for Model {
    fn read(&self, weight: &WeightDecl, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let at = self.graph.weights.iter().position(|w| w.name == weight.name).unwrap();
        if weight.n_out > 1 && weight.name != "embd" {
            self.contracted.fetch_add(out.len() as u64, Ordering::Relaxed);
        }
        out.copy_from_slice(&self.weights[at][offset as usize..][..out.len()]);
        Ok(())
    }

    fn parts(&self) -> Result<Vec<SourcePart>, DeviceError> {
        static ASKED: AtomicU64 = AtomicU64::new(0);
        let mut part = self.part.clone();
        if self.restless {
            part.stamp.push(ASKED.fetch_add(1, Ordering::Relaxed));
        }
        Ok(vec![part])
    }

    fn read_part(&self, part: usize, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        assert_eq!(part, 0);
        self.digested.fetch_add(out.len() as u64, Ordering::Relaxed);
        let bytes = self.weights.concat();
        out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
        Ok(())
    }
}

/// The same weights in memory: they lie in no file.
struct InMemory(Model);

impl WeightSource for InMemory {
    fn read(&self, weight: &WeightDecl, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        self.0.read(weight, offset, out)
    }
}

/// Messages from warnings on, and `info`.
#[derive(Clone, Default)]
struct Heard(Arc<Mutex<Vec<String>>>);

impl Subscriber for Heard {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("hanzo_cpu")
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        struct Text(String);
        impl Visit for Text {
            fn record_debug(&mut self, _: &Field, value: &dyn std::fmt::Debug) {
                self.0.push_str(&format!("{value:?}"));
            }
        }
        let mut text = Text(format!("{} ", event.metadata().level()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// The last progress that was told of.
#[derive(Default)]
struct Last(Mutex<(u64, u64)>);

impl Progress for Last {
    fn update(&self, done: u64, total: u64) {
        let mut last = self.0.lock().unwrap();
        last.0 = last.0.max(done);
        last.1 = total;
    }
}

/// Loads, and gives the packed bytes of every weight, and what was said.
#[track_caller]
fn load(model: &Model, source: &dyn WeightSource, folder: Option<&Path>) -> (Vec<Vec<u8>>, Vec<String>) {
    let (heard, progress) = (Heard::default(), Last::default());
    let pool = Pool::new(2).unwrap();
    let cache = folder.map(PackCache::new);
    let held = tracing::subscriber::with_default(heard.clone(), || {
        Held::load_all(&model.graph, source, &pool, cache.as_ref(), &progress).unwrap()
    });
    let (done, total) = *progress.0.lock().unwrap();
    let bytes = |held: &Held| held.matrix().map(|m| m.data().to_vec()).unwrap_or_default();
    let said = heard.0.lock().unwrap().clone();
    // What was given up is not done.
    assert!(
        done == total || said.iter().any(|line| line.contains("not kept")),
        "{done} of {total}: {said:?}"
    );
    (held.iter().map(bytes).collect(), said)
}

#[track_caller]
fn cached(model: &Model, folder: &TempDir) -> (Vec<Vec<u8>>, Vec<String>) {
    load(model, model, Some(folder.path()))
}

fn packed(model: &Model) -> Vec<Vec<u8>> {
    load(model, model, None).0
}

/// The files of a folder with this ending.
fn files(folder: &TempDir, ending: &str) -> Vec<PathBuf> {
    let all = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    all.filter(|path| path.to_str().unwrap().ends_with(ending)).collect()
}

#[track_caller]
fn one_entry(folder: &TempDir) -> PathBuf {
    let [path] = files(folder, ".pack").try_into().unwrap();
    assert_eq!(files(folder, ".tmp"), Vec::<PathBuf>::new());
    path
}

/// How many messages are warnings; each must have one of these parts.
#[track_caller]
fn warnings(said: &[String], parts: &[&str]) -> usize {
    let warned: Vec<&String> = said.iter().filter(|line| line.starts_with("WARN")).collect();
    for line in &warned {
        assert!(parts.iter().any(|part| line.contains(part)), "{line}");
    }
    warned.len()
}

#[track_caller]
fn says(said: &[String], part: &str) {
    assert!(said.iter().any(|line| line.contains(part)), "no `{part}` in {said:?}");
}

#[test]
fn every_format_comes_back_as_it_was_packed() {
    let model = Model::new(QuantType::ALL, 1);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    model.reads();
    let (first, said) = cached(&model, &folder);
    assert!(first == want);
    assert_eq!(warnings(&said, &[]), 0);
    says(&said, "written to");
    let (packed, digested) = model.reads();
    assert!(packed > 0 && digested == model.part.len);
    for _ in 0..2 {
        let (again, said) = cached(&model, &folder);
        assert!(again == want);
        assert_eq!(warnings(&said, &[]), 0);
        says(&said, "read from");
        // Neither packed nor digested.
        assert_eq!(model.reads(), (0, 0));
    }
    one_entry(&folder);
}

#[test]
fn a_file_that_was_touched_or_moved_keeps_its_entry() {
    let mut model = Model::new(&[QuantType::Q4_K], 2);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    cached(&model, &folder);
    for moved in [false, true] {
        if moved {
            model.part.name = "/other/name".to_owned();
        } else {
            model.part.stamp[1] += 1;
        }
        model.reads();
        let (again, said) = cached(&model, &folder);
        assert!(again == want && warnings(&said, &[]) == 0);
        says(&said, "read from");
        assert_eq!(model.reads(), (0, model.part.len));
        // Its looks are known from now on.
        assert!(cached(&model, &folder).0 == want);
        assert_eq!(model.reads(), (0, 0));
    }
    one_entry(&folder);
}

#[test]
fn an_entry_of_what_the_file_was_before_is_stale() {
    let (old, mut new) = (Model::new(&[QuantType::Q6_K], 3), Model::new(&[QuantType::Q6_K], 4));
    new.part.stamp = vec![1, 2, 99];
    let folder = tempfile::tempdir().unwrap();
    cached(&old, &folder);
    let before = one_entry(&folder);
    let (got, said) = cached(&new, &folder);
    assert!(got == packed(&new) && got != packed(&old));
    assert_eq!(warnings(&said, &["stale"]), 1);
    says(&said, "written to");
    // It took the other's place.
    assert_ne!(one_entry(&folder), before);
    let (again, said) = cached(&new, &folder);
    assert!(again == got && warnings(&said, &[]) == 0);
    says(&said, "read from");
}

/// A model put in the place of another, both of them known: nothing is packed, and the second load is as quick as any.
#[test]
fn a_file_that_became_another_known_one_is_stamped_anew() {
    let (old, mut new) = (Model::new(&[QuantType::Q6_K], 3), Model::new(&[QuantType::Q6_K], 4));
    let folder = tempfile::tempdir().unwrap();
    cached(&old, &folder);
    let before = one_entry(&folder);
    new.part.name = "/models/other.gguf".to_owned();
    cached(&new, &folder);
    new.part.name.clone_from(&old.part.name);
    new.part.stamp = vec![1, 2, 99];
    let want = packed(&new);
    for digested in [new.part.len, 0] {
        new.reads();
        let (got, said) = cached(&new, &folder);
        assert!(got == want && warnings(&said, &[]) == 0, "{said:?}");
        assert_eq!(new.reads(), (0, digested));
    }
    // Nothing leads to what it was.
    assert_ne!(one_entry(&folder), before);
}

#[test]
fn an_entry_that_another_path_leads_to_stays() {
    let (old, mut new) = (Model::new(&[QuantType::Q6_K], 3), Model::new(&[QuantType::Q6_K], 4));
    let mut copy = Model::new(&[QuantType::Q6_K], 3);
    copy.part.name = "/models/copy.gguf".to_owned();
    new.part.stamp = vec![1, 2, 99];
    let folder = tempfile::tempdir().unwrap();
    cached(&old, &folder);
    cached(&copy, &folder);
    cached(&new, &folder);
    assert_eq!(files(&folder, ".pack").len(), 2);
    copy.reads();
    assert!(cached(&copy, &folder).0 == packed(&old));
    assert_eq!(copy.reads(), (0, 0));
}

#[test]
fn nothing_is_kept_of_what_may_change_unseen() {
    let mut model = Model::new(&[QuantType::Q4_0], 5);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    for changed in [None, Some(SystemTime::now()), Some(SystemTime::now() + Duration::from_secs(9999))] {
        model.part.changed = changed;
        let (got, said) = cached(&model, &folder);
        assert!(got == want);
        assert_eq!(warnings(&said, &["changed just now"]), 1);
    }
    model.part.changed = Some(SystemTime::UNIX_EPOCH);
    model.restless = true;
    let (got, said) = cached(&model, &folder);
    assert!(got == want);
    assert_eq!(warnings(&said, &["changed meanwhile"]), 1);
    assert_eq!((files(&folder, ".pack").len(), files(&folder, ".tmp").len()), (0, 0));
    let model = InMemory(model);
    let (got, said) = load(&model.0, &model, Some(folder.path()));
    assert!(got == want);
    assert_eq!(warnings(&said, &["lies in no file"]), 1);
}

/// Loads from a folder whose one entry was made `damaged`; afterwards it must be as it was.
#[track_caller]
fn heals(model: &Model, want: &[Vec<u8>], folder: &TempDir, sound: &[u8], damaged: &[u8], reasons: &[&str]) {
    let path = one_entry(folder);
    fs::write(&path, damaged).unwrap();
    let (got, said) = cached(model, folder);
    assert!(got == want);
    assert_eq!(warnings(&said, reasons), 1, "{said:?}");
    says(&said, "written to");
    assert!(fs::read(one_entry(folder)).unwrap() == sound);
}

#[test]
fn a_damaged_entry_is_refused_and_written_anew() {
    let model = Model::new(&[QuantType::Q4_K, QuantType::F32], 6);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    cached(&model, &folder);
    let sound = fs::read(one_entry(&folder)).unwrap();
    let table = Table::new(&model.graph, &|i| {
        let decl = &model.graph.weights[i];
        decl.n_out > 1 && decl.name != "embd"
    })
    .unwrap();
    assert_eq!(table.file_len(), sound.len() as u64);
    // Every byte that means something: all of the head, some of each matrix, its first and its last.
    let mut places: Vec<usize> = (0..FIXED_AND_TABLE).step_by(3).collect();
    let mut rng = Random(7);
    for slot in (0..model.graph.weights.len()).filter_map(|i| table.slot(i)) {
        let (start, len) = (slot.start(), slot.len as usize);
        places.extend([start, start + len - 1, start + rng.next() as usize % len]);
    }
    let reasons = ["damaged", "version", "no file of packed weights"];
    for at in places {
        let mut bytes = sound.clone();
        bytes[at] ^= 1 << (rng.next() % 8);
        heals(&model, &want, &folder, &sound, &bytes, &reasons);
    }
    let lengths = [0, 1, 8, 71, 72, 73, 200, 4095, 4096, sound.len() / 2, sound.len() - 1];
    for len in lengths.into_iter().chain((0..8).map(|_| rng.next() as usize % sound.len())) {
        heals(&model, &want, &folder, &sound, &sound[..len], &["damaged"]);
    }
    heals(&model, &want, &folder, &sound, &[&sound[..], &[0]].concat(), &["damaged"]);
    heals(&model, &want, &folder, &sound, &vec![0; sound.len()], &["no file of packed weights"]);
    heals(&model, &want, &folder, &sound, &[0xff; 100], &["no file of packed weights"]);
}

/// Enough of the head to have all of its fixed part and the first matrices of the table.
const FIXED_AND_TABLE: usize = 300;

#[test]
fn a_head_that_lies_is_refused() {
    let model = Model::new(&[QuantType::Q4_K], 8);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    cached(&model, &folder);
    let sound = fs::read(one_entry(&folder)).unwrap();
    let number = |at: usize| u64::from_le_bytes(sound[at..at + 8].try_into().unwrap()) as usize;
    let table_len = number(24);
    let pieces: usize = want.iter().map(|w| w.len().div_ceil(entry::PIECE)).sum();
    // Changed as a liar would: with a checksum that fits.
    let lie = |at: usize, bytes: &[u8]| {
        let mut lied = sound.clone();
        lied[at..at + bytes.len()].copy_from_slice(bytes);
        let mut seal = Xxh3::new();
        seal.update(&lied[..64]);
        seal.update(&lied[72..72 + table_len + 8 * pieces]);
        lied[64..72].copy_from_slice(&seal.digest().to_le_bytes());
        lied
    };
    assert!(lie(0, &sound[..8]) == sound);
    for huge in [0, 1, 1 << 20, u64::MAX / 2, u64::MAX] {
        let huge = huge.to_le_bytes();
        heals(&model, &want, &folder, &sound, &lie(16, &huge), &["damaged"]);
        heals(&model, &want, &folder, &sound, &lie(24, &huge), &["another plan"]);
        // The end of the table is the place and the length of the last matrix.
        heals(&model, &want, &folder, &sound, &lie(72 + table_len - 16, &huge), &["another model"]);
        heals(&model, &want, &folder, &sound, &lie(72 + table_len - 8, &huge), &["another model"]);
    }
    // Of another file.
    heals(&model, &want, &folder, &sound, &lie(32, &[9; 32]), &["another model"]);
    // Of a machine whose numbers begin at the other end; of another version.
    heals(&model, &want, &folder, &sound, &lie(8, &[0, 0, 0, 1]), &["version"]);
    heals(&model, &want, &folder, &sound, &lie(12, &[2, 0, 0, 0]), &["version 1.2"]);
    // A checksum of a piece that is another, under a seal that fits.
    let sum = xxh3_64(b"other").to_le_bytes();
    heals(&model, &want, &folder, &sound, &lie(72 + table_len, &sum), &["damaged: the checksum of"]);
}

#[test]
fn a_damaged_stamp_costs_a_digest() {
    let model = Model::new(&[QuantType::Q4_0], 9);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    cached(&model, &folder);
    let [path] = files(&folder, ".stamp").try_into().unwrap();
    let sound = fs::read(&path).unwrap();
    let flipped = |at: usize| {
        let mut bytes = sound.clone();
        bytes[at] ^= 4;
        bytes
    };
    let all = (0..sound.len()).map(flipped).chain([Vec::new(), sound[..79].to_vec(), vec![1; 1 << 20]]);
    for bytes in all {
        fs::write(&path, bytes).unwrap();
        model.reads();
        let (got, said) = cached(&model, &folder);
        assert!(got == want && warnings(&said, &[]) == 0);
        assert_eq!(model.reads(), (0, model.part.len));
        assert!(fs::read(&path).unwrap() == sound);
    }
}

#[test]
fn a_folder_that_cannot_be_written_to_costs_a_warning() {
    let model = Model::new(&[QuantType::Q4_0], 10);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    // Below a file.
    let file = folder.path().join("file");
    fs::write(&file, b"").unwrap();
    for place in [file.clone(), file.join("below")] {
        let (got, said) = load(&model, &model, Some(&place));
        assert!(got == want);
        assert!(warnings(&said, &["not kept", "is not used"]) >= 1, "{said:?}");
    }
    // Where the entry should be is a folder, which nothing can be renamed over.
    cached(&model, &folder);
    let entry = one_entry(&folder);
    fs::remove_file(&entry).unwrap();
    fs::create_dir(&entry).unwrap();
    let (got, said) = cached(&model, &folder);
    assert!(got == want);
    assert_eq!(warnings(&said, &["no regular file", "cannot rename"]), 2);
    assert_eq!(files(&folder, ".tmp"), Vec::<PathBuf>::new());
    fs::remove_dir(&entry).unwrap();
    // No room.
    let writing = draft::Writing::begin(folder.path()).unwrap();
    assert!(writing.draft(&entry, u64::MAX).is_err());
    assert!(writing.draft(&entry, i64::MAX as u64).is_err() || !entry.exists());
    assert_eq!(files(&folder, ".tmp"), Vec::<PathBuf>::new());
}

#[cfg(unix)]
#[test]
fn pipes_in_the_folder_are_not_waited_for() {
    let model = Model::new(&[QuantType::Q4_0], 12);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    cached(&model, &folder);
    let sound = one_entry(&folder);
    let pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        let made = std::process::Command::new("mkfifo").arg(path).status().unwrap();
        assert!(made.success());
    };
    let stamp = files(&folder, ".stamp").remove(0);
    for path in [folder.path().join(".lock"), stamp, sound] {
        pipe(&path);
        let (got, said) = cached(&model, &folder);
        assert!(got == want, "{said:?}");
        assert!(said.iter().all(|line| !line.contains("No such device")), "{said:?}");
        let _ = fs::remove_file(path);
    }
}

#[cfg(unix)]
#[test]
fn what_is_kept_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt;
    let model = Model::new(&[QuantType::Q4_0], 13);
    let above = tempfile::tempdir().unwrap();
    let folder = above.path().join("new");
    load(&model, &model, Some(&folder));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    for file in fs::read_dir(&folder).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
}

#[test]
fn who_writes_keeps_others_from_it_and_clears_away_what_was_left() {
    let model = Model::new(&[QuantType::Q4_0], 11);
    let (want, folder) = (packed(&model), tempfile::tempdir().unwrap());
    let left = folder.path().join(".hanzo-pack-1-0.tmp");
    let strange = folder.path().join("mine.tmp");
    let writing = draft::Writing::begin(folder.path()).unwrap();
    fs::write(&left, b"half").unwrap();
    fs::write(&strange, b"mine").unwrap();
    let (got, said) = cached(&model, &folder);
    assert!(got == want);
    assert_eq!(warnings(&said, &["another load is writing"]), 1);
    assert!(left.exists() && files(&folder, ".pack").is_empty());
    // However the writer ends, its right ends with it.
    drop(writing);
    let (got, said) = cached(&model, &folder);
    assert!(got == want && warnings(&said, &[]) == 0);
    assert!(!left.exists() && strange.exists());
    assert_eq!(files(&folder, ".pack").len(), 1);
    // A load that only reads clears away too.
    fs::write(&left, b"half").unwrap();
    says(&cached(&model, &folder).1, "read from");
    assert!(!left.exists() && strange.exists());
}

#[test]
fn loads_at_the_same_time_do_not_harm_each_other() {
    let models: Vec<Model> = (0..2)
        .map(|i| {
            let mut model = Model::new(&[QuantType::Q4_K, QuantType::Q8_0], 12 + i);
            model.part.name = format!("/models/{i}.gguf");
            model
        })
        .collect();
    let want: Vec<_> = models.iter().map(packed).collect();
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for i in 0..6 {
            let (model, want, folder) = (&models[i % 2], &want[i % 2], &folder);
            scope.spawn(move || {
                for _ in 0..4 {
                    let (got, said) = cached(model, folder);
                    assert!(got == *want);
                    warnings(&said, &["another load is writing"]);
                }
            });
        }
    });
    for (model, want) in models.iter().zip(&want) {
        cached(model, &folder);
        model.reads();
        assert!(cached(model, &folder).0 == *want);
        assert_eq!(model.reads(), (0, 0));
    }
    assert_eq!((files(&folder, ".pack").len(), files(&folder, ".tmp").len()), (2, 0));
}

/// The packed bytes of every format. Where they have changed, `LAYOUT_VERSION` must be another, or weights that were kept before would be
/// read as something else.
#[test]
fn the_layout_is_that_of_its_version() {
    let model = Model::new(QuantType::ALL, 42);
    let mut all = Xxh3::new();
    packed(&model).iter().for_each(|bytes| all.update(bytes));
    let known = [(1, 7_354_989_412_967_409_125)];
    assert_eq!(
        (crate::packed::LAYOUT_VERSION, all.digest()),
        known[known.len() - 1],
        "the packed bytes have changed: raise LAYOUT_VERSION, and add it here with its digest"
    );
}
