//! The seam between a connection's requests and its application protocol: one implementation of
//! [`Application`] per ALPN identifier. `h3` is HTTP/3, `http09` is for interoperability tests; another
//! protocol is another file and a line in [`requests`](super::requests).

use ::quic::Connection;
use ::quic::streams::StreamEvent;
use bytes::{Bytes, BytesMut};
use delivery::Framing;
use units::{StreamId, Timestamp};

use crate::http::{RequestHead, Response};
use crate::viewer::Protocol;

/// What a client wants.
pub(super) enum Asked {
    /// An answer on this stream.
    Request(StreamId, Request),
    /// Something that is refused with this status before it is looked at.
    Refused(StreamId, u16),
    /// Nothing more on this stream: the client gave the request up.
    Over(StreamId),
    /// Nothing at all: the connection was closed because it cancelled too many requests.
    Flooding,
}

/// A request with its body.
pub(super) struct Request {
    pub method: String,
    pub target: String,
    pub fields: Vec<(String, Bytes)>,
    pub body: BytesMut,
    pub protocol: Protocol,
}

impl Request {
    /// The request as all fronts have it in common.
    pub(super) fn head<'a>(&'a self, connection: &Connection) -> RequestHead<'a> {
        RequestHead {
            method: &self.method,
            target: &self.target,
            fields: self.fields.iter().map(|(name, value)| (&name[..], &value[..])).collect(),
            remote: connection.addresses().remote,
            protocol: self.protocol,
            cohort: None,
            tcp: None,
            body: &self.body,
        }
    }
}

/// An application protocol on one connection. The connection is lent to each call: it is the event
/// loop's.
pub(super) trait Application {
    /// What sends its bodies.
    fn framing(&mut self) -> &mut dyn Framing;

    /// Something happened on a stream.
    fn on_stream(&mut self, now: Timestamp, connection: &mut Connection, event: StreamEvent);

    /// The handshake is confirmed: what came in 0-RTT data is no replay.
    fn on_connected(&mut self) {}

    /// The next thing that the client wants. To be asked after each call above until there is nothing.
    fn poll(&mut self) -> Option<Asked>;

    /// When [`Application::on_timeout`] is due.
    fn deadline(&self) -> Option<Timestamp>;

    /// Ends requests, or the connection, that have taken too long by now.
    fn on_timeout(&mut self, now: Timestamp, connection: &mut Connection);

    /// Begins an answer; `is_empty` if no body follows. Returns whether its body is to be sent: not to
    /// a client that has given up, for example.
    fn respond(
        &mut self,
        now: Timestamp,
        connection: &mut Connection,
        id: StreamId,
        response: &Response,
        is_empty: bool,
    ) -> bool;

    /// Whether all responses were acknowledged, and the client knows which requests were taken.
    fn is_drained(&self) -> bool;

    /// Tells the client that no more requests are taken.
    fn go_away(&mut self, _now: Timestamp, _connection: &mut Connection) {}
}
