//! The file as a source of weights for a device: checked reads, never the map, and no value that is NaN or infinite.

use std::path::Path;

use hanzo_fusion::graph::WeightDecl;
use hanzo_fusion::{DeviceError, SourcePart, WeightSource};
use hanzo_gguf::{GgufFile, TensorInfo};
use hanzo_quant::FiniteCheck;

/// Reads weights from a [`GgufFile`].
///
/// A weight that is NaN or infinite makes every logit NaN, and the reply nonsense without a word: it is an error of the read
/// that meets it. Every block is looked at when its first byte is read.
#[derive(Clone, Copy, Debug)]
pub struct GgufWeights<'a>(pub &'a GgufFile);

impl WeightSource for GgufWeights<'_> {
    fn read(&self, weight: &WeightDecl, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Weight { name: weight.name.clone(), reason };
        let info = self.0.tensor(&weight.name).ok_or_else(|| fault("is not in the file".to_owned()))?;
        let read =
            |at, out: &mut [u8]| self.0.read_tensor_at(info, at, out).map_err(|e| fault(e.to_string()));
        read(offset, out)?;
        let block = weight.ty.block_bytes() as u64;
        let first = offset.next_multiple_of(block);
        let blocks =
            usize::try_from(first - offset).ok().and_then(|skip| out.get(skip..)).unwrap_or_default();
        let check = FiniteCheck::of(weight.ty.format());
        if let Some(index) = check.first_fault(blocks) {
            return Err(fault(not_finite(weight, info, first / block + index as u64)));
        }
        // A block that this read ends inside of.
        let cut = blocks.len() % weight.ty.block_bytes();
        if cut > 0 {
            let start = first + (blocks.len() - cut) as u64;
            let mut whole = vec![0; weight.ty.block_bytes()];
            read(start, &mut whole)?;
            if check.first_fault(&whole).is_some() {
                return Err(fault(not_finite(weight, info, start / block)));
            }
        }
        Ok(())
    }

    fn parts(&self) -> Result<Vec<SourcePart>, DeviceError> {
        let mut parts = Vec::new();
        for part in self.0.parts() {
            // A model in memory has one part, and that no file.
            let Some(file) = part.file() else { return Ok(Vec::new()) };
            let stamp = file.stamp().map_err(|e| unreadable(file.path(), &e))?;
            parts.push(SourcePart {
                name: name_of(&stamp.path),
                len: stamp.len,
                stamp: stamp.numbers,
                changed: stamp.changed,
            });
        }
        Ok(parts)
    }

    fn read_part(&self, part: usize, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let file = self.0.parts().nth(part).and_then(|part| part.file());
        let file = file.ok_or_else(|| DeviceError::Weight {
            name: format!("file {part} of the model"),
            reason: "there is none".to_owned(),
        })?;
        file.read_at(offset, out).map_err(|e| unreadable(file.path(), &e))
    }
}

/// A name that no other path has: a NUL, which no path can have, tells those that are no text.
fn name_of(path: &Path) -> String {
    path.to_str().map_or_else(
        || format!("\0{}", path.as_os_str().as_encoded_bytes().escape_ascii()),
        ToOwned::to_owned,
    )
}

fn unreadable(path: &Path, error: &hanzo_gguf::Error) -> DeviceError {
    DeviceError::Weight { name: path.display().to_string(), reason: error.to_string() }
}

/// What is wrong with the block of this index.
fn not_finite(weight: &WeightDecl, info: &TensorInfo, block: u64) -> String {
    let (ty, elements) = (weight.ty, weight.ty.block_elems() as u64);
    let (row, column) = {
        let element = block.saturating_mul(elements);
        let columns = info.row_elems().max(1);
        (element / columns, element % columns)
    };
    let what =
        if ty.is_float() { "the value".to_owned() } else { format!("a scale of the {elements} values") };
    format!(
        "{what} at row {row}, column {column} is NaN or infinite: the file is damaged, or was made wrongly"
    )
}
