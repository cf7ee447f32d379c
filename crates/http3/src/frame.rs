//! Framing layer (RFC 9114, section 7): frame types, and readers of headers and payloads that may
//! arrive in pieces.

use bytes::{Buf as _, Bytes};
use quic::streams::{ReadOutcome, UnknownStream, WriteError};
use quic::wire::{Reader, Writer};
use units::StreamId;

use crate::error::{ConnectionError, code};
use crate::transport::Transport;

/// Content of a message.
pub(crate) const DATA: u64 = 0x00;
/// A field section.
pub(crate) const HEADERS: u64 = 0x01;
/// Cancels a push.
pub(crate) const CANCEL_PUSH: u64 = 0x03;
/// Settings of the connection.
pub(crate) const SETTINGS: u64 = 0x04;
/// Announces a push; sent only by servers.
pub(crate) const PUSH_PROMISE: u64 = 0x05;
/// Starts a graceful shutdown.
pub(crate) const GOAWAY: u64 = 0x07;
/// Allows pushes.
pub(crate) const MAX_PUSH_ID: u64 = 0x0d;
/// New priority of a request stream (RFC 9218, section 7.2).
pub(crate) const PRIORITY_UPDATE_REQUEST: u64 = 0xf0700;
/// New priority of a push stream (RFC 9218, section 7.2).
pub(crate) const PRIORITY_UPDATE_PUSH: u64 = 0xf0701;

/// Number of bytes read from a stream at once. Several small frames are parsed from one chunk,
/// because a read of the transport costs more than a frame of two bytes.
const CHUNK: usize = 4096;

/// Whether a frame type is reserved because HTTP/2 uses it without a counterpart in HTTP/3 (RFC
/// 9114, section 11.2.1).
pub(crate) const fn is_reserved_by_http2(kind: u64) -> bool {
    matches!(kind, 0x02 | 0x06 | 0x08 | 0x09)
}

/// Writes a frame with the payload `head` followed by `payload`. Type, length and `head` form a
/// small chunk; `payload` is not copied.
///
/// # Errors
/// [`WriteError`] if the stream can no longer be written.
pub(crate) fn write_frame(
    t: &mut impl Transport,
    id: StreamId,
    kind: u64,
    head: &[u8],
    payload: Bytes,
) -> Result<(), WriteError> {
    let mut header = [0; 16];
    let mut w = Writer::new(&mut header);
    w.varint(kind);
    w.varint((head.len() + payload.len()) as u64);
    t.write(id, [&*w.written_mut(), head].concat().into())?;
    if payload.is_empty() { Ok(()) } else { t.write(id, payload) }
}

/// Reason for which reading stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// No data is available.
    Blocked,
    /// The stream ended.
    Finished,
    /// The peer reset the stream with this code.
    Reset(u64),
}

/// Reads once, and enforces the contract of [`Transport::read`].
fn read(t: &mut impl Transport, id: StreamId, max: usize) -> Result<Bytes, Pause> {
    match t.read(id, max) {
        Ok(ReadOutcome::Data(data)) if !data.is_empty() && data.len() <= max => Ok(data),
        Ok(ReadOutcome::Data(_) | ReadOutcome::Blocked) | Err(UnknownStream) => Err(Pause::Blocked),
        Ok(ReadOutcome::Finished) => Err(Pause::Finished),
        Ok(ReadOutcome::Reset(code)) => Err(Pause::Reset(code)),
    }
}

/// Unparsed bytes of a stream.
#[derive(Debug, Default)]
pub(crate) struct StreamInput {
    chunk: Bytes,
    /// Bytes read from the stream.
    taken: u64,
}

impl StreamInput {
    /// Returns the number of bytes read from the stream, including unparsed ones.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the next bytes of the stream, at least one, without consuming them.
    fn peek(&mut self, t: &mut impl Transport, id: StreamId) -> Result<&[u8], Pause> {
        if self.chunk.is_empty() {
            self.chunk = read(t, id, CHUNK)?;
            self.taken += self.chunk.len() as u64;
        }
        Ok(&self.chunk)
    }

    /// Consumes `length` bytes, which must have been returned by `peek`.
    fn consume(&mut self, length: usize) {
        if length == self.chunk.len() {
            // An empty slice would keep the memory allocated.
            self.chunk = Bytes::new();
        } else {
            self.chunk.advance(length);
        }
    }

    /// Returns the next bytes of the stream, at least one and at most `max`.
    pub(crate) fn take(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        max: usize,
    ) -> Result<Bytes, Pause> {
        let length = self.peek(t, id)?.len();
        if length <= max {
            return Ok(core::mem::take(&mut self.chunk));
        }
        Ok(self.chunk.split_to(max))
    }

    /// Skips `remaining` bytes of a payload.
    pub(crate) fn skip(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        remaining: &mut u64,
    ) -> Result<(), Pause> {
        while *remaining > 0 {
            let length = (self.peek(t, id)?.len() as u64).min(*remaining);
            self.consume(length as usize);
            *remaining -= length;
        }
        Ok(())
    }

    /// Heap memory, in bytes.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.chunk.len()
    }
}

/// Parser of `N` (1 or 2) variable-length integers: a stream type, or the type and length of a
/// frame.
#[derive(Debug, Default)]
pub(crate) struct Varints<const N: usize> {
    bytes: [u8; 16],
    length: u8,
}

impl<const N: usize> Varints<N> {
    /// Whether a part has been read, so that the stream must not end here.
    pub(crate) fn has_begun(&self) -> bool {
        self.length > 0
    }

    /// Parses the integers at the start of `input`. Returns them and their length; `None` if they
    /// are incomplete.
    fn parse(input: &[u8]) -> Option<([u64; N], usize)> {
        let mut r = Reader::new(input);
        let mut values = [0; N];
        for value in &mut values {
            *value = r.varint().ok()?;
        }
        Some((values, r.position()))
    }

    /// Continues reading. Resets itself when the integers are complete.
    pub(crate) fn poll(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        input: &mut StreamInput,
    ) -> Result<[u64; N], Pause> {
        loop {
            let chunk = input.peek(t, id)?;
            if self.length == 0
                && let Some((values, length)) = Self::parse(chunk)
            {
                input.consume(length);
                return Ok(values);
            }
            // Chunks may be split anywhere: collect single bytes, at most 16.
            self.bytes[usize::from(self.length)] = chunk[0];
            self.length += 1;
            input.consume(1);
            if let Some((values, _)) = Self::parse(&self.bytes[..usize::from(self.length)]) {
                self.length = 0;
                return Ok(values);
            }
        }
    }
}

/// Collector of a payload whose length has passed a limit. Memory grows with received bytes, not
/// with the announced length.
#[derive(Debug)]
pub(crate) struct Collect {
    collected: Vec<u8>,
    length: usize,
}

impl Collect {
    /// Creates a collector of `length` bytes.
    pub(crate) fn new(length: usize) -> Self {
        Self { collected: Vec::new(), length }
    }

    /// Continues reading. Returns the whole payload once, without a copy if it arrived in one
    /// piece.
    pub(crate) fn poll(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        input: &mut StreamInput,
    ) -> Result<Bytes, Pause> {
        while self.collected.len() < self.length {
            let data = input.take(t, id, self.length - self.collected.len())?;
            if data.len() == self.length {
                return Ok(data);
            }
            self.collected.extend_from_slice(&data);
        }
        Ok(Bytes::from(core::mem::take(&mut self.collected)))
    }

    /// Returns the number of collected bytes.
    pub(crate) fn len(&self) -> usize {
        self.collected.len()
    }

    /// Heap memory, in bytes.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.collected.capacity()
    }
}

/// Returns the error for a stream that ended inside a frame.
pub(crate) const fn truncated() -> ConnectionError {
    // RFC 9114, section 7.1: a truncated last frame "MUST be treated as a connection error of type
    // H3_FRAME_ERROR".
    ConnectionError::new(code::H3_FRAME_ERROR, "stream ended inside a frame")
}
