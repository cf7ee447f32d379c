//! Events of a connection for the application.

use bytes::Bytes;
use units::StreamId;

use crate::qpack::Field;
use crate::request::RequestHead;

/// Event of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request has arrived.
    Request {
        /// Stream of the request.
        id: StreamId,
        /// Head of the request.
        head: Box<RequestHead>,
        /// Whether the request is complete, without content or trailers. No [`Event::RequestEnd`]
        /// follows then. Otherwise the application reads the content as it arrives, or calls
        /// [`crate::Server::discard_body`].
        end: bool,
    },
    /// Content is readable with [`crate::Server::read_body`], until it returns
    /// [`BodyRead::Blocked`].
    BodyReadable(StreamId),
    /// The trailer section of a request. All of its content has been read.
    Trailers {
        /// Stream of the request.
        id: StreamId,
        /// Fields in the order of arrival.
        fields: Vec<Field>,
    },
    /// The request is complete, and all of its content has been read.
    RequestEnd(StreamId),
    /// A delivered request has ended early: the client cancelled it, it was malformed, or it timed
    /// out. Nothing more can be read or sent.
    Cancelled {
        /// Stream of the request.
        id: StreamId,
        /// Error code of the client or the server.
        code: u64,
    },
    /// The client sent GOAWAY. No action is needed, because the server never pushes.
    GoAway,
}

/// Result of [`crate::Server::read_body`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyRead {
    /// The next bytes of the content, at least one.
    Data(Bytes),
    /// No data is available; [`Event::BodyReadable`] or [`Event::RequestEnd`] follows.
    Blocked,
    /// All content has been read.
    End,
    /// The request has ended or is unknown.
    Gone,
}
