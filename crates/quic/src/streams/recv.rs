//! The receiving part of a stream (RFC 9000, section 3.2): reassembly, the final size (section 4.5)
//! and the stream's flow-control window (section 4.1).

use bytes::Bytes;

use crate::wire::{TransportError, TransportErrorCode as Code, VARINT_MAX};

use super::assembler::Assembler;
use super::flow::FlowWindow;

/// What ended the receiving part, if anything did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ReceiveEnd {
    /// Nothing yet: data comes in, or waits for the application.
    #[default]
    Open,
    /// The application read everything and was told so ("Data Read").
    Read,
    /// The peer reset the stream with this application error code ("Reset Recvd").
    Reset(u64),
    /// The application wants no more: data is dropped as it comes in. The code is for STOP_SENDING.
    Stopped(u64),
}

/// The receiving part of one stream. Offsets in bytes from the start of the stream.
#[derive(Debug, Default)]
pub(super) struct RecvStream {
    pub(super) assembler: Assembler,
    pub(super) window: FlowWindow,
    /// One past the highest byte received.
    highest: u64,
    final_size: Option<u64>,
    pub(super) end: ReceiveEnd,
}

/// The outcome of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// The next bytes in order, at least one.
    Data(Bytes),
    /// Nothing to read now; a `Readable` event follows when there is.
    Blocked,
    /// All data was read: the peer finished the stream.
    Finished,
    /// The peer reset the stream with this application error code.
    Reset(u64),
}

impl RecvStream {
    pub(super) fn new(window: FlowWindow) -> Self {
        Self { window, ..Self::default() }
    }

    /// Returns true if the application may still receive more data.
    pub(super) fn wants_data(&self) -> bool {
        self.end == ReceiveEnd::Open && self.final_size.is_none()
    }

    /// Returns true if later frames of the peer no longer matter.
    pub(super) fn is_done(&self) -> bool {
        match self.end {
            ReceiveEnd::Open => false,
            ReceiveEnd::Read | ReceiveEnd::Reset(_) => true,
            ReceiveEnd::Stopped(_) => self.final_size.is_some(),
        }
    }

    /// Returns true if a read would not return `Blocked`.
    pub(super) fn is_readable(&self) -> bool {
        self.assembler.is_readable() || self.final_size == Some(self.assembler.position())
    }

    /// Returns true if every byte up to the final size has arrived ("Data Recvd").
    fn is_complete(&self) -> bool {
        self.final_size == Some(self.assembler.position() + self.assembler.buffered())
    }

    /// Checks a frame with data up to `end`, the final size if `is_final`, against the stream's
    /// known state and window. Returns the increase of the highest offset. Changes nothing.
    pub(super) fn check(&self, end: u64, is_final: bool) -> Result<u64, TransportError> {
        // RFC 9000, section 4.5: "Once a final size for a stream is known, it cannot change."
        let wrong_size = match self.final_size {
            Some(size) if end > size => Some("data beyond the final size"),
            Some(size) if is_final && end != size => Some("the final size changed"),
            None if is_final && end < self.highest => Some("final size below received data"),
            _ => None,
        };
        if let Some(reason) = wrong_size {
            return Err(TransportError::new(Code::FINAL_SIZE_ERROR, 0, reason));
        }
        if end > self.window.limit() || end > VARINT_MAX {
            let reason = "beyond the stream's limit";
            return Err(TransportError::new(Code::FLOW_CONTROL_ERROR, 0, reason));
        }
        Ok(end.saturating_sub(self.highest))
    }

    /// Takes over what [`check`](Self::check) has let pass; returns how many bytes the connection's
    /// window gets back at once because nobody will read them.
    pub(super) fn accept(&mut self, end: u64, is_final: bool) -> u64 {
        self.highest = self.highest.max(end);
        if is_final {
            self.final_size = Some(end);
        }
        match self.end {
            ReceiveEnd::Stopped(_) => self.assembler.discard(self.highest),
            _ => 0,
        }
    }

    /// The peer reset the stream, with a `final_size` that [`check`](Self::check) has let pass;
    /// returns whether the application should know, and how many bytes the connection's window gets
    /// back.
    pub(super) fn on_reset(&mut self, code: u64, final_size: u64) -> (bool, u64) {
        let complete = self.is_complete();
        let freed = self.accept(final_size, true);
        // RFC 9000, section 3.2: a reset that comes after all of the data may be ignored.
        if self.end != ReceiveEnd::Open || complete {
            return (false, freed);
        }
        self.end = ReceiveEnd::Reset(code);
        (true, self.assembler.discard(self.highest))
    }

    /// The application wants no more; returns how many bytes the connection's window gets back.
    pub(super) fn stop(&mut self, code: u64) -> u64 {
        self.end = ReceiveEnd::Stopped(code);
        self.assembler.discard(self.highest)
    }

    /// Reads at most `max` bytes; `None` if the application stopped the stream.
    pub(super) fn read(&mut self, max: usize) -> Option<ReadOutcome> {
        match self.end {
            ReceiveEnd::Reset(code) => Some(ReadOutcome::Reset(code)),
            ReceiveEnd::Read => Some(ReadOutcome::Finished),
            ReceiveEnd::Stopped(_) => None,
            ReceiveEnd::Open => Some(match self.assembler.read(max) {
                Some(data) => ReadOutcome::Data(data),
                None if self.final_size == Some(self.assembler.position()) => {
                    self.end = ReceiveEnd::Read;
                    ReadOutcome::Finished
                }
                None => ReadOutcome::Blocked,
            }),
        }
    }
}
