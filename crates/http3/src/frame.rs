//! The framing layer (RFC 9114, section 7): variable-length integers (RFC 9000, section 16), frame
//! types, and readers that take headers and payloads from a stream, in whatever pieces they arrive.

use bytes::{Buf as _, BufMut, Bytes, BytesMut};
use quic::streams::{ReadOutcome, UnknownStream, WriteError};
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
/// Announces a push; only servers send it.
pub(crate) const PUSH_PROMISE: u64 = 0x05;
/// Begins a graceful shutdown.
pub(crate) const GOAWAY: u64 = 0x07;
/// Allows pushes.
pub(crate) const MAX_PUSH_ID: u64 = 0x0d;
/// New priority of a request stream (RFC 9218, section 7.2).
pub(crate) const PRIORITY_UPDATE_REQUEST: u64 = 0xf0700;
/// New priority of a push stream (RFC 9218, section 7.2).
pub(crate) const PRIORITY_UPDATE_PUSH: u64 = 0xf0701;

/// The largest variable-length integer, 2^62 − 1.
pub(crate) const VARINT_MAX: u64 = (1 << 62) - 1;

/// Bytes that are taken from a stream at once. Small frames are parsed from such a chunk: a read of
/// the transport costs more than a frame of two bytes.
const CHUNK: usize = 4096;

/// Frame types of HTTP/2 that HTTP/3 has no counterpart for (RFC 9114, section 11.2.1).
pub(crate) const fn is_reserved_by_http2(kind: u64) -> bool {
    matches!(kind, 0x02 | 0x06 | 0x08 | 0x09)
}

/// Takes a variable-length integer off the front of `input`; `None` if it is cut short.
pub(crate) fn take_varint(input: &mut &[u8]) -> Option<u64> {
    let length = 1 << (input.first()? >> 6);
    let (encoded, rest) = input.split_at_checked(length)?;
    *input = rest;
    let value = encoded.iter().fold(0, |value, &byte| value << 8 | u64::from(byte));
    Some(value & (u64::MAX >> (66 - 8 * length)))
}

/// Appends `value` (at most [`VARINT_MAX`]) as a variable-length integer of the shortest length.
pub(crate) fn put_varint(out: &mut impl BufMut, value: u64) {
    debug_assert!(value <= VARINT_MAX);
    match value {
        0..0x40 => out.put_u8(value as u8),
        0x40..0x4000 => out.put_u16(value as u16 | 0x4000),
        0x4000..0x4000_0000 => out.put_u32(value as u32 | 0x8000_0000),
        _ => out.put_u64(value | 0xc000_0000_0000_0000),
    }
}

/// Writes a frame whose payload is `head` and `payload`: a small chunk of type, length and `head`, then the
/// payload itself, not copied.
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
    let mut free = &mut header[..];
    put_varint(&mut free, kind);
    put_varint(&mut free, (head.len() + payload.len()) as u64);
    let length = 16 - free.len();
    let mut begin = BytesMut::with_capacity(length + head.len());
    begin.extend_from_slice(&header[..length]);
    begin.extend_from_slice(head);
    t.write(id, begin.freeze())?;
    if payload.is_empty() { Ok(()) } else { t.write(id, payload) }
}

/// Why a reader could not go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pause {
    /// Nothing to read now.
    Blocked,
    /// The stream ended.
    Finished,
    /// The peer reset the stream with this code.
    Reset(u64),
}

/// One read, with the promises of [`Transport::read`] enforced.
fn read(t: &mut impl Transport, id: StreamId, max: usize) -> Result<Bytes, Pause> {
    match t.read(id, max) {
        Ok(ReadOutcome::Data(data)) if !data.is_empty() && data.len() <= max => Ok(data),
        Ok(ReadOutcome::Data(_) | ReadOutcome::Blocked) | Err(UnknownStream) => Err(Pause::Blocked),
        Ok(ReadOutcome::Finished) => Err(Pause::Finished),
        Ok(ReadOutcome::Reset(code)) => Err(Pause::Reset(code)),
    }
}

/// What has been taken from a stream and is still to be parsed.
#[derive(Debug, Default)]
pub(crate) struct Input {
    chunk: Bytes,
    /// Bytes taken from the stream so far.
    taken: u64,
}

impl Input {
    /// Bytes taken from the stream so far, those still to be parsed included.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// The next bytes of the stream, at least one.
    fn peek(&mut self, t: &mut impl Transport, id: StreamId) -> Result<&[u8], Pause> {
        if self.chunk.is_empty() {
            self.chunk = read(t, id, CHUNK)?;
            self.taken += self.chunk.len() as u64;
        }
        Ok(&self.chunk)
    }

    /// Leaves out the next `length` bytes, which were peeked at.
    fn consume(&mut self, length: usize) {
        if length == self.chunk.len() {
            // An empty slice would hold on to the memory.
            self.chunk = Bytes::new();
        } else {
            self.chunk.advance(length);
        }
    }

    /// The next bytes of the stream, from 1 to `max` (at least 1) of them.
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

    /// Reads and drops `remaining` bytes of a payload.
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

    /// Bytes on the heap.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.chunk.len()
    }
}

/// Reads `N` (1 or 2) variable-length integers: a stream type, or the type and length of a frame.
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

    /// Takes the integers off the front of `input`; `None` if they are cut short.
    fn parse(input: &mut &[u8]) -> Option<[u64; N]> {
        let mut values = [0; N];
        for value in &mut values {
            *value = take_varint(input)?;
        }
        Some(values)
    }

    /// Reads on; resets itself when the integers are complete.
    pub(crate) fn poll(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        input: &mut Input,
    ) -> Result<[u64; N], Pause> {
        loop {
            let chunk = input.peek(t, id)?;
            if self.length == 0 {
                let mut rest = chunk;
                if let Some(values) = Self::parse(&mut rest) {
                    let length = chunk.len() - rest.len();
                    input.consume(length);
                    return Ok(values);
                }
            }
            // They come in pieces: at most 16 bytes, and any of them may be the last.
            self.bytes[usize::from(self.length)] = chunk[0];
            self.length += 1;
            input.consume(1);
            if let Some(values) = Self::parse(&mut &self.bytes[..usize::from(self.length)]) {
                self.length = 0;
                return Ok(values);
            }
        }
    }
}

/// Collects a payload whose length was checked against a limit beforehand. Memory grows with what
/// has arrived, not with what was announced.
#[derive(Debug)]
pub(crate) struct Collect {
    collected: Vec<u8>,
    length: usize,
}

impl Collect {
    /// Collects `length` bytes.
    pub(crate) fn new(length: usize) -> Self {
        Self { collected: Vec::new(), length }
    }

    /// Reads on; gives the whole payload once, without a copy if it arrives in one piece.
    pub(crate) fn poll(
        &mut self,
        t: &mut impl Transport,
        id: StreamId,
        input: &mut Input,
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

    /// Bytes collected so far.
    pub(crate) fn len(&self) -> usize {
        self.collected.len()
    }

    /// Bytes on the heap.
    #[cfg(test)]
    pub(crate) fn heap(&self) -> usize {
        self.collected.capacity()
    }
}

/// The error for a stream that ended inside a frame.
pub(crate) const fn truncated() -> ConnectionError {
    // RFC 9114, section 7.1: a truncated last frame "MUST be treated as a connection error of type
    // H3_FRAME_ERROR".
    ConnectionError::new(code::H3_FRAME_ERROR, "the stream ended inside a frame")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_match_the_examples_of_rfc_9000_appendix_a_1() {
        for (encoded, value) in [
            (&[0x25][..], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
        ] {
            let mut input = encoded;
            assert_eq!(take_varint(&mut input), Some(value));
            assert!(input.is_empty());
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out, encoded);
            assert_eq!(take_varint(&mut &encoded[..encoded.len() - 1]), None);
        }
    }

    #[test]
    fn integers_survive_at_every_length_boundary() {
        for value in [0, 63, 64, 16_383, 16_384, (1 << 30) - 1, 1 << 30, VARINT_MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(take_varint(&mut &out[..]), Some(value));
        }
    }
}
