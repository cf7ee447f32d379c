//! Ranges of stream data.

use units::StreamId;

/// A range of stream data that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamRange {
    /// Where the stream lives. Slots are used again; `id` tells whether the stream is still there.
    pub slot: u32,
    /// The stream; identifiers are never used again.
    pub id: StreamId,
    /// Offset of the first byte in the stream.
    pub offset: u64,
    /// Length in bytes; 0 only together with `fin`.
    pub len: u16,
    /// The stream ends after the range.
    pub fin: bool,
}

impl StreamRange {
    pub(super) fn bytes(&self) -> core::ops::Range<u64> {
        self.offset..self.offset + u64::from(self.len)
    }

    /// Takes the range that follows this one in the stream, if it is that and there is room for it.
    #[inline]
    pub(crate) fn join(&mut self, next: &Self) -> bool {
        let follows = (self.slot, self.id, self.offset + u64::from(self.len), self.fin)
            == (next.slot, next.id, next.offset, false);
        match self.len.checked_add(next.len) {
            Some(len) if follows => {
                (self.len, self.fin) = (len, next.fin);
                true
            }
            _ => false,
        }
    }
}
