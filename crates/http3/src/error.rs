//! Error codes (RFC 9114, section 8.1; RFC 9204, section 6), and errors of requests and responses.

use quic::streams::WriteError;

/// Application error codes of HTTP/3 and QPACK.
pub mod code {
    /// No error; the connection or stream is closed regularly.
    pub const H3_NO_ERROR: u64 = 0x0100;
    /// A violation without a more specific code.
    pub const H3_GENERAL_PROTOCOL_ERROR: u64 = 0x0101;
    /// An internal error of the server.
    pub const H3_INTERNAL_ERROR: u64 = 0x0102;
    /// The peer created a stream that is not accepted.
    pub const H3_STREAM_CREATION_ERROR: u64 = 0x0103;
    /// A critical stream was closed.
    pub const H3_CLOSED_CRITICAL_STREAM: u64 = 0x0104;
    /// A frame is not permitted in this state or on this stream.
    pub const H3_FRAME_UNEXPECTED: u64 = 0x0105;
    /// A frame has an invalid layout or size.
    pub const H3_FRAME_ERROR: u64 = 0x0106;
    /// The peer's behaviour might generate excessive load.
    pub const H3_EXCESSIVE_LOAD: u64 = 0x0107;
    /// A stream or push identifier was used incorrectly.
    pub const H3_ID_ERROR: u64 = 0x0108;
    /// The payload of SETTINGS is invalid.
    pub const H3_SETTINGS_ERROR: u64 = 0x0109;
    /// The first frame of the control stream was not SETTINGS.
    pub const H3_MISSING_SETTINGS: u64 = 0x010a;
    /// The request was rejected without any processing and may be retried.
    pub const H3_REQUEST_REJECTED: u64 = 0x010b;
    /// The request or its response was cancelled.
    pub const H3_REQUEST_CANCELLED: u64 = 0x010c;
    /// The stream ended without a fully formed request.
    pub const H3_REQUEST_INCOMPLETE: u64 = 0x010d;
    /// A message is malformed.
    pub const H3_MESSAGE_ERROR: u64 = 0x010e;
    /// A field section could not be decompressed.
    pub const QPACK_DECOMPRESSION_FAILED: u64 = 0x0200;
    /// An instruction on the encoder stream is invalid.
    pub const QPACK_ENCODER_STREAM_ERROR: u64 = 0x0201;
    /// An instruction on the decoder stream is invalid.
    pub const QPACK_DECODER_STREAM_ERROR: u64 = 0x0202;
}

/// A violation that ends the connection (RFC 9114, section 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ConnectionError {
    /// The application error code.
    pub(crate) code: u64,
    /// Description for the peer's log.
    pub(crate) reason: &'static str,
}

impl ConnectionError {
    pub(crate) const fn new(code: u64, reason: &'static str) -> Self {
        Self { code, reason }
    }
}

/// Error of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestError {
    /// The connection is closed.
    Connection(ConnectionError),
    /// The stream is reset with this code.
    Stream(u64),
    /// The client reset the stream with this code.
    Reset(u64),
    /// The request is answered with this status, without the application.
    Answer(u16),
}

impl From<ConnectionError> for RequestError {
    fn from(error: ConnectionError) -> Self {
        Self::Connection(error)
    }
}

/// Error of sending a part of a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SendError {
    /// The request was cancelled by either side, is finished, or is unknown.
    #[error("the request has ended")]
    Gone,
    /// Content before the head, or a second head.
    #[error("response parts out of order")]
    OutOfOrder,
    /// The status is not final (200 to 999), or a field is not allowed in an HTTP/3 message (RFC
    /// 9114, section 4.2).
    #[error("status or field not allowed in a response")]
    Malformed,
    /// The field section is larger than the client's SETTINGS_MAX_FIELD_SECTION_SIZE.
    #[error("field section exceeds the client's limit")]
    TooLarge,
}

impl From<WriteError> for SendError {
    fn from(_: WriteError) -> Self {
        Self::Gone
    }
}
