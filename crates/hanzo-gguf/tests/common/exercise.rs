//! Everything that a reader does with a file, on any bytes: shared by the fuzz target, the replay of its corpus
//! and the mutation test. Must not panic, whatever the bytes are.

use hanzo_gguf::{Error, GgufFile, GgufWriter, Value, check_bytes, check_contents, scan_values};

/// Opens `bytes` and, where that succeeds, reads all there is and writes it again; whether it succeeded.
pub(crate) fn exercise(bytes: &[u8]) -> bool {
    let opened = GgufFile::from_bytes(bytes.to_vec());
    validated(bytes, opened.as_ref().err());
    let Ok(file) = opened else { return false };
    for item in file.metadata().iter() {
        assert!(item.offset <= bytes.len() as u64);
        let _ = format!("{} {}", item.key, item.value);
        let _ = (file.metadata().get_u32(item.key), file.metadata().get_str(item.key));
        assert!(file.metadata().contains(item.key));
        if let Value::Array(array) = item.value {
            array_agrees(array, 0);
        }
    }
    for tensor in file.tensors() {
        let view = file.tensor_bytes(tensor).ok();
        assert_eq!(view, file.read_tensor(tensor).ok().as_deref());
        assert_eq!(view.map(|view| view.len() as u64), Some(tensor.n_bytes()));
        assert_eq!(file.tensor(tensor.name()), Some(tensor));
        assert_eq!(tensor.row_bytes() * tensor.n_rows(), tensor.n_bytes());
    }
    let _ = check_contents(&file);
    let _ = scan_values(&file, |_| ());
    written_and_read_again(&file);
    true
}

/// The validator goes on where opening ends, and never finds less.
fn validated(bytes: &[u8], error: Option<&Error>) {
    let report = check_bytes(bytes.to_vec());
    if let Some(error) = error {
        let first = report.problems.first().map(|problem| problem.message.as_str());
        assert_eq!(first, Some(error.to_string().as_str()));
    }
    let Some(file) = report.file else { return };
    for item in file.metadata().iter() {
        let _ = format!("{} {}", item.key, item.value);
    }
    for tensor in file.tensors() {
        assert!(file.tensor(tensor.name()).is_some());
        assert!(file.tensor_bytes(tensor).is_ok());
    }
}

fn array_agrees(array: hanzo_gguf::ArrayRef<'_>, depth: usize) {
    assert!(depth < hanzo_gguf::limits::MAX_ARRAY_DEPTH);
    assert_eq!(array.iter().count(), array.len());
    let _ = (array.to_u32_vec(), array.to_f32_vec(), array.to_bool_vec());
    if let Ok(strings) = array.strings() {
        assert_eq!(strings.iter().count(), strings.len());
        // Random access in an inner array is linear, so sample.
        for i in (0..strings.len()).step_by(1 + strings.len() / 16) {
            assert_eq!(strings.get(i), strings.iter().nth(i));
            assert!(strings.get_str(i).map_or(true, |text| text.is_some()));
        }
        let _ = strings.iter_str().filter(Result::is_err).count();
    }
    for value in array.iter().take(64) {
        if let Value::Array(inner) = value {
            array_agrees(inner, depth + 1);
        }
    }
}

/// What the reader accepts, the writer can write, and it comes back the same.
fn written_and_read_again(file: &GgufFile) {
    let mut writer = GgufWriter::new();
    let data: Vec<_> = file.tensors().iter().filter_map(|tensor| file.tensor_bytes(tensor).ok()).collect();
    let announced =
        file.tensors().iter().all(|tensor| writer.tensor(tensor.name(), tensor.ty(), tensor.dims()).is_ok());
    assert!(announced && writer.set_version(file.version()).is_ok());
    assert!(writer.copy_metadata(file.metadata()).is_ok());
    let again = writer.to_bytes(&data).ok().and_then(|bytes| GgufFile::from_bytes(bytes).ok());
    assert!(again.is_some());
    let Some(again) = again else { return };
    let items = |file: &GgufFile| {
        file.metadata().iter().map(|item| format!("{} {:#}", item.key, item.value)).collect::<Vec<_>>()
    };
    assert_eq!(items(&again), items(file));
    for (old, new) in file.tensors().iter().zip(again.tensors()) {
        assert_eq!((old.name(), old.dims(), old.ty()), (new.name(), new.dims(), new.ty()));
        assert_eq!(again.tensor_bytes(new).ok(), file.tensor_bytes(old).ok());
    }
}
