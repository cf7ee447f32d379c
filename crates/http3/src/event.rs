//! Events of a connection for the application.

use bytes::Bytes;
use units::StreamId;

use crate::qpack::Field;
use crate::request::RequestHead;

/// What happened on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A request has arrived.
    Request {
        /// Its stream.
        id: StreamId,
        /// Its head.
        head: Box<RequestHead>,
        /// Whether it is complete, with neither content nor trailers: no
        /// [`Event::RequestEnd`] follows. If it is not, the application reads the content as it
        /// comes, or calls [`crate::Server::discard_body`].
        end: bool,
    },
    /// Content is readable with [`crate::Server::read_body`], until it returns
    /// [`BodyRead::Blocked`].
    BodyReadable(StreamId),
    /// The trailer section of a request; all of its content has been read.
    Trailers {
        /// The request's stream.
        id: StreamId,
        /// The fields in their order.
        fields: Vec<Field>,
    },
    /// The request is complete and all of its content has been read.
    RequestEnd(StreamId),
    /// A request that was handed over is over: the client cancelled it, it turned out wrong, or the
    /// rest of it took too long. Nothing more can be read or sent.
    Cancelled {
        /// The request's stream.
        id: StreamId,
        /// The client's error code, or ours.
        code: u64,
    },
    /// The client sent GOAWAY. No action is needed, because the server never pushes.
    GoAway,
}

/// What [`crate::Server::read_body`] found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyRead {
    /// The next bytes of the content, at least 1.
    Data(Bytes),
    /// Nothing to read now; [`Event::BodyReadable`] or [`Event::RequestEnd`] follows.
    Blocked,
    /// All of the content has been read.
    End,
    /// The request is over or never was.
    Gone,
}
