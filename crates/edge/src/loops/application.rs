//! The interface between a connection's requests and its application protocol, with one
//! implementation of [`Application`] per ALPN identifier: `h3` is HTTP/3, `http09` is for
//! interoperability tests. Another protocol needs another file and a line in
//! [`requests`](super::requests).

use ::quic::Connection;
use ::quic::streams::StreamEvent;
use bytes::{Bytes, BytesMut};
use delivery::Framing;
use units::{StreamId, Timestamp};

use crate::http::{RequestHead, Response};
use crate::viewer::Protocol;

/// A client's action.
pub(super) enum ClientAction {
    /// A request that needs a response on this stream.
    Request(StreamId, ReceivedRequest),
    /// A request rejected early with this status.
    Refused(StreamId, u16),
    /// The client cancelled the request on this stream.
    Over(StreamId),
    /// The connection was closed because of too many cancelled requests.
    Flooding,
}

/// A request with its body.
pub(super) struct ReceivedRequest {
    pub method: String,
    pub authority: String,
    pub target: String,
    pub fields: Vec<(String, Bytes)>,
    pub body: BytesMut,
    pub protocol: Protocol,
}

impl ReceivedRequest {
    /// Returns the request in the form common to all fronts.
    pub(super) fn head<'a>(&'a self, connection: &Connection) -> RequestHead<'a> {
        let remote = connection.addresses().remote;
        RequestHead {
            authority: &self.authority,
            fields: self.fields.iter().map(|(name, value)| (&name[..], &value[..])).collect(),
            body: &self.body,
            ..RequestHead::new(&self.method, &self.target, remote, self.protocol)
        }
    }
}

/// An application protocol on one connection. The event loop owns the connection and lends it to
/// each call.
pub(super) trait Application {
    /// Returns the framing of response bodies.
    fn framing(&mut self) -> &mut dyn Framing;

    /// Handles a stream event.
    fn on_stream(&mut self, now: Timestamp, connection: &mut Connection, event: StreamEvent);

    /// Notes that the handshake is confirmed, so 0-RTT data was no replay.
    fn on_connected(&mut self) {}

    /// Returns the client's next action. Call after each method above until it returns `None`.
    fn poll(&mut self) -> Option<ClientAction>;

    /// Returns when [`Application::on_timeout`] is due.
    fn deadline(&self) -> Option<Timestamp>;

    /// Ends timed-out requests, or the connection.
    fn on_timeout(&mut self, now: Timestamp, connection: &mut Connection);

    /// Starts a response; `is_empty` if no body follows. Returns whether to send the body: false,
    /// for example, after a cancellation.
    fn respond(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        response: &Response,
        is_empty: bool,
    ) -> bool;

    /// Whether all responses were acknowledged and the client knows which requests were accepted.
    fn is_drained(&self) -> bool;

    /// Tells the client that no more requests are accepted.
    fn go_away(&mut self, _now: Timestamp, _connection: &mut Connection) {}
}
