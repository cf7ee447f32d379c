//! How pieces become bytes of a stream.

use http3::{OverQuic, Server, code};
use quic::Connection;
use units::{Mark, StreamId, Timestamp};

use crate::Piece;

/// The part of an application protocol that sends bodies. The connection is lent to each call.
pub trait Framing {
    /// Sends a piece of a body. Returns whether the client still wants the answer.
    fn send(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        piece: Piece,
        mark: Option<Mark>,
    ) -> bool;

    /// Ends an answer.
    fn finish(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId);

    /// Breaks an answer off that cannot be completed.
    fn abort(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId);
}

/// HTTP/3 (RFC 9114, section 4.1): a DATA frame for each piece.
impl Framing for Server {
    fn send(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        piece: Piece,
        mark: Option<Mark>,
    ) -> bool {
        let (own, shared) = piece.into_inner();
        let t = &mut OverQuic::new(connection, now).marked(mark);
        self.send_data_behind(t, id, &own, shared).is_ok()
    }

    fn finish(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId) {
        // A stream that the client gave up is over as well.
        let _ = Server::finish(self, &mut OverQuic::new(connection, now), id);
    }

    fn abort(&mut self, now: Timestamp, connection: &mut Connection, id: StreamId) {
        self.cancel(&mut OverQuic::new(connection, now), id, code::H3_INTERNAL_ERROR);
    }
}
