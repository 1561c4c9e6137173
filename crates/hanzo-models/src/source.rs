//! The file as a source of weights for a device: checked reads, never the map.

use hanzo_fusion::graph::WeightDecl;
use hanzo_fusion::{DeviceError, WeightSource};
use hanzo_gguf::GgufFile;

/// Reads weights from a [`GgufFile`].
#[derive(Clone, Copy, Debug)]
pub struct GgufWeights<'a>(pub &'a GgufFile);

impl WeightSource for GgufWeights<'_> {
    fn read(&self, weight: &WeightDecl, offset: u64, out: &mut [u8]) -> Result<(), DeviceError> {
        let fault = |reason: String| DeviceError::Weight { name: weight.name.clone(), reason };
        let info = self.0.tensor(&weight.name).ok_or_else(|| fault("is not in the file".to_owned()))?;
        self.0.read_tensor_at(info, offset, out).map_err(|e| fault(e.to_string()))
    }
}
