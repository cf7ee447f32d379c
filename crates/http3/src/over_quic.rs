//! Implementation of [`Transport`] for a [`quic::Connection`].

use bytes::Bytes;
use quic::Connection;
use quic::streams::{Priority, ReadOutcome, StreamEvent, UnknownStream, WriteError};
use units::{Direction, Mark, StreamId, Timestamp};

use crate::server::Server;
use crate::transport::Transport;

/// A connection, borrowed for one call.
pub struct OverQuic<'a> {
    connection: &'a mut Connection,
    now: Timestamp,
    mark: Option<Mark>,
}

impl<'a> OverQuic<'a> {
    /// Wraps `connection` at the time `now`.
    pub fn new(connection: &'a mut Connection, now: Timestamp) -> Self {
        Self { connection, now, mark: None }
    }

    /// Marks all data written through this wrapper, so that loss recovery recognises it
    /// ([`Connection::write_marked`]).
    #[must_use]
    pub fn marked(self, mark: Option<Mark>) -> Self {
        Self { mark, ..self }
    }
}

impl Transport for OverQuic<'_> {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn request_limit(&self) -> u64 {
        self.connection.peer_stream_limit(Direction::Bidirectional)
    }

    fn open_uni(&mut self) -> Option<StreamId> {
        self.connection.open(Direction::Unidirectional)
    }

    fn write(&mut self, id: StreamId, data: Bytes) -> Result<(), WriteError> {
        self.connection.write_marked(id, data, self.mark)
    }

    // Errors mean that the stream is already closed, so the three calls below ignore them.

    fn finish(&mut self, id: StreamId) {
        let _ = self.connection.finish(id);
    }

    fn reset(&mut self, id: StreamId, code: u64) {
        let _ = self.connection.reset(id, code);
    }

    fn stop_sending(&mut self, id: StreamId, code: u64) {
        let _ = self.connection.stop_sending(id, code);
    }

    fn read(&mut self, id: StreamId, max: usize) -> Result<ReadOutcome, UnknownStream> {
        self.connection.read(id, max)
    }

    fn unsent(&self, id: StreamId) -> u64 {
        self.connection.unsent(id).unwrap_or(0)
    }

    fn set_priority(&mut self, id: StreamId, priority: Priority) {
        self.connection.set_priority(id, priority);
    }

    fn close(&mut self, code: u64, reason: &'static str) {
        self.connection.close(self.now, code, reason);
    }

    fn is_early(&self) -> bool {
        self.connection.is_early()
    }
}

impl Server {
    /// Handles an event of a stream of the transport.
    pub fn on_stream_event(&mut self, t: &mut OverQuic<'_>, event: StreamEvent) {
        match event {
            StreamEvent::Opened(_) | StreamEvent::Writable(_) => {}
            StreamEvent::Readable(id) => self.on_readable(t, id),
            StreamEvent::Reset { id, code } => self.on_reset(t, id, code),
            StreamEvent::Stopped { id, code } => self.on_stopped(t, id, code),
            StreamEvent::Finished(id) => self.on_delivered(t, id),
            StreamEvent::Closed(id) => self.on_stream_closed(t, id),
        }
    }
}
