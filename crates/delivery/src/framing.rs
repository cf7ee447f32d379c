//! Framing of pieces into bytes of a stream.

use http3::{OverQuic, Server, code};
use units::StreamId;

use crate::Piece;

/// The sending side of an application protocol. Each call borrows the connection.
pub trait Framing {
    /// Sends a piece of a body, with the mark of `t`. Returns whether the client still wants the
    /// response.
    fn send(&mut self, t: &mut OverQuic<'_>, id: StreamId, piece: Piece) -> bool;

    /// Finishes a response.
    fn finish(&mut self, t: &mut OverQuic<'_>, id: StreamId);

    /// Aborts a response that cannot be completed.
    fn abort(&mut self, t: &mut OverQuic<'_>, id: StreamId);
}

/// HTTP/3 (RFC 9114, section 4.1): a DATA frame for each piece.
impl Framing for Server {
    fn send(&mut self, t: &mut OverQuic<'_>, id: StreamId, piece: Piece) -> bool {
        let (own, shared) = piece.into_inner();
        self.send_data_with_head(t, id, &own, shared).is_ok()
    }

    fn finish(&mut self, t: &mut OverQuic<'_>, id: StreamId) {
        // The client may have cancelled the stream, which ends it as well.
        let _ = Server::finish(self, t, id);
    }

    fn abort(&mut self, t: &mut OverQuic<'_>, id: StreamId) {
        self.cancel(t, id, code::H3_INTERNAL_ERROR);
    }
}
