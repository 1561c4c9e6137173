//! A cursor over one output block.

use super::block::Snapped;

/// Writes a block's fields in file order.
pub(super) struct Writer<'a> {
    rest: &'a mut [u8],
}

impl<'a> Writer<'a> {
    pub(super) fn new(block: &'a mut [u8]) -> Self {
        Writer { rest: block }
    }

    /// Appends bytes. The encoders fill blocks exactly; a test encodes every format.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        debug_assert!(bytes.len() <= self.rest.len());
        if let Some((head, tail)) = std::mem::take(&mut self.rest).split_at_mut_checked(bytes.len()) {
            head.copy_from_slice(bytes);
            self.rest = tail;
        }
        self
    }

    /// Appends a scale as f16.
    pub(super) fn f16(&mut self, d: Snapped) -> &mut Self {
        self.bytes(&d.bits.to_le_bytes())
    }

    /// Bytes not yet written.
    pub(super) fn left(&self) -> usize {
        self.rest.len()
    }
}
