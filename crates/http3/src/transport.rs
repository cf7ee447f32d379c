//! Interface to QUIC (RFC 9114, section 6; RFC 9000, section 2): streams that are opened, written,
//! read, reset and prioritised. The QUIC connection implements this trait; tests use a mock.

use bytes::Bytes;
use quic::streams::{Priority, ReadOutcome, UnknownStream, WriteError};
use units::{StreamId, Timestamp};

/// A QUIC connection. Error codes are application error codes ([`crate::code`]).
pub trait Transport {
    /// Returns the time of the call.
    fn now(&self) -> Timestamp;

    /// Returns the number of request streams that the client is allowed to open.
    fn request_limit(&self) -> u64;

    /// Opens a unidirectional stream; `None` if the peer's limit is reached.
    fn open_uni(&mut self) -> Option<StreamId>;

    /// Appends `data` to the stream's send buffer. All of it is accepted; the caller limits the
    /// amount by [`Transport::unsent`].
    ///
    /// # Errors
    /// [`WriteError`] if the sending part is closed.
    fn write(&mut self, id: StreamId, data: Bytes) -> Result<(), WriteError>;

    /// Ends the sending part after the written data.
    fn finish(&mut self, id: StreamId);

    /// Resets the sending part.
    fn reset(&mut self, id: StreamId, code: u64);

    /// Asks the peer to stop sending, and ends reading of the stream.
    fn stop_sending(&mut self, id: StreamId, code: u64);

    /// Reads up to `max` bytes (at least 1) in order, and returns their flow-control credit to the
    /// peer.
    ///
    /// # Errors
    /// [`UnknownStream`] if there is no such stream, or its receiving part was stopped by this
    /// endpoint.
    fn read(&mut self, id: StreamId, max: usize) -> Result<ReadOutcome, UnknownStream>;

    /// Returns the number of bytes of the stream that were never sent. Streamed responses check it
    /// before they write more.
    fn unsent(&self, id: StreamId) -> u64;

    /// Sets the stream's priority (RFC 9218, section 4).
    fn set_priority(&mut self, id: StreamId, priority: Priority);

    /// Closes the connection with an application error.
    fn close(&mut self, code: u64, reason: &'static str);

    /// Whether readable data may come from 0-RTT packets and be a replay (RFC 8470).
    fn is_early(&self) -> bool;
}
