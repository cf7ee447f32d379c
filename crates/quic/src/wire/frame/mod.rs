//! Frames (RFC 9000, sections 12.4 and 19): [`Frames`] reads the payload of a packet, the `put_…`
//! functions write one frame each.

mod ack;
mod write;

pub use ack::{AckFrame, AckRanges, EcnCounts, put_ack};
pub use write::*;

use super::connection_id::ConnectionId;
use super::cursor::{Reader, Truncated, VARINT_MAX, varint_len};
use super::error::{TransportError, TransportErrorCode};
use super::packet::PacketType;
use units::{Direction, StreamId};

/// Frame types (RFC 9000, section 12.4, table 3).
pub mod types {
    /// PADDING (section 19.1).
    pub const PADDING: u64 = 0x00;
    /// PING (section 19.2).
    pub const PING: u64 = 0x01;
    /// ACK without ECN counts (section 19.3).
    pub const ACK: u64 = 0x02;
    /// ACK with ECN counts (section 19.3).
    pub const ACK_ECN: u64 = 0x03;
    /// RESET_STREAM (section 19.4).
    pub const RESET_STREAM: u64 = 0x04;
    /// STOP_SENDING (section 19.5).
    pub const STOP_SENDING: u64 = 0x05;
    /// CRYPTO (section 19.6).
    pub const CRYPTO: u64 = 0x06;
    /// NEW_TOKEN (section 19.7).
    pub const NEW_TOKEN: u64 = 0x07;
    /// STREAM with none of its three bits set (section 19.8).
    pub const STREAM: u64 = 0x08;
    /// STREAM with all of its three bits set (section 19.8).
    pub const STREAM_LAST: u64 = 0x0f;
    /// MAX_DATA (section 19.9).
    pub const MAX_DATA: u64 = 0x10;
    /// MAX_STREAM_DATA (section 19.10).
    pub const MAX_STREAM_DATA: u64 = 0x11;
    /// MAX_STREAMS for bidirectional streams (section 19.11).
    pub const MAX_STREAMS_BIDI: u64 = 0x12;
    /// MAX_STREAMS for unidirectional streams (section 19.11).
    pub const MAX_STREAMS_UNI: u64 = 0x13;
    /// DATA_BLOCKED (section 19.12).
    pub const DATA_BLOCKED: u64 = 0x14;
    /// STREAM_DATA_BLOCKED (section 19.13).
    pub const STREAM_DATA_BLOCKED: u64 = 0x15;
    /// STREAMS_BLOCKED for bidirectional streams (section 19.14).
    pub const STREAMS_BLOCKED_BIDI: u64 = 0x16;
    /// STREAMS_BLOCKED for unidirectional streams (section 19.14).
    pub const STREAMS_BLOCKED_UNI: u64 = 0x17;
    /// NEW_CONNECTION_ID (section 19.15).
    pub const NEW_CONNECTION_ID: u64 = 0x18;
    /// RETIRE_CONNECTION_ID (section 19.16).
    pub const RETIRE_CONNECTION_ID: u64 = 0x19;
    /// PATH_CHALLENGE (section 19.17).
    pub const PATH_CHALLENGE: u64 = 0x1a;
    /// PATH_RESPONSE (section 19.18).
    pub const PATH_RESPONSE: u64 = 0x1b;
    /// CONNECTION_CLOSE by the transport (section 19.19).
    pub const CONNECTION_CLOSE: u64 = 0x1c;
    /// CONNECTION_CLOSE by the application (section 19.19).
    pub const APPLICATION_CLOSE: u64 = 0x1d;
    /// HANDSHAKE_DONE (section 19.20).
    pub const HANDSHAKE_DONE: u64 = 0x1e;
}

pub(in crate::wire) const OFF_BIT: u64 = 0x04;
pub(in crate::wire) const LEN_BIT: u64 = 0x02;
pub(in crate::wire) const FIN_BIT: u64 = 0x01;

/// The largest count of streams that identifiers exist for (RFC 9000, section 4.6).
pub const MAX_STREAMS_LIMIT: u64 = 1 << 60;

/// One frame, borrowed from the packet's payload. Integers are at most 2^62 − 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Frame<'a> {
    /// PADDING: a run of it.
    Padding,
    /// PING.
    Ping,
    /// ACK.
    Ack(AckFrame<'a>),
    /// RESET_STREAM.
    ResetStream {
        /// The stream.
        id: StreamId,
        /// Application protocol error code.
        error_code: u64,
        /// The stream's size in bytes.
        final_size: u64,
    },
    /// STOP_SENDING.
    StopSending {
        /// The stream.
        id: StreamId,
        /// Application protocol error code.
        error_code: u64,
    },
    /// CRYPTO; `offset` + length is at most 2^62 − 1.
    Crypto {
        /// Place of the first byte in the handshake data of this packet number space.
        offset: u64,
        /// The bytes.
        data: &'a [u8],
    },
    /// NEW_TOKEN; only servers send it.
    NewToken {
        /// The token, not empty.
        token: &'a [u8],
    },
    /// STREAM; `offset` + length is at most 2^62 − 1.
    Stream {
        /// The stream.
        id: StreamId,
        /// Place of the first byte in the stream.
        offset: u64,
        /// The bytes, possibly none.
        data: &'a [u8],
        /// The stream ends after `data`.
        fin: bool,
    },
    /// MAX_DATA: bytes on all streams together.
    MaxData(u64),
    /// MAX_STREAM_DATA.
    MaxStreamData {
        /// The stream.
        id: StreamId,
        /// Bytes that may be sent on it.
        max: u64,
    },
    /// MAX_STREAMS.
    MaxStreams {
        /// Direction of the streams.
        direction: Direction,
        /// Maximum number of streams over the connection's life, at most 2^60.
        max: u64,
    },
    /// DATA_BLOCKED: the connection's limit that blocks the peer, in bytes.
    DataBlocked(u64),
    /// STREAM_DATA_BLOCKED.
    StreamDataBlocked {
        /// The stream.
        id: StreamId,
        /// The stream's limit that blocks the peer, in bytes.
        limit: u64,
    },
    /// STREAMS_BLOCKED.
    StreamsBlocked {
        /// Direction of the streams.
        direction: Direction,
        /// The limit that blocks the peer, at most 2^60.
        limit: u64,
    },
    /// NEW_CONNECTION_ID.
    NewConnectionId {
        /// Sequence number of the connection ID.
        sequence: u64,
        /// Connection IDs with smaller sequence numbers must be retired; at most `sequence`.
        retire_prior_to: u64,
        /// The connection ID, 1 to 20 bytes.
        id: ConnectionId,
        /// Its stateless reset token.
        reset_token: [u8; 16],
    },
    /// RETIRE_CONNECTION_ID.
    RetireConnectionId {
        /// Sequence number of the connection ID.
        sequence: u64,
    },
    /// PATH_CHALLENGE.
    PathChallenge([u8; 8]),
    /// PATH_RESPONSE.
    PathResponse([u8; 8]),
    /// CONNECTION_CLOSE of type 0x1c.
    ConnectionClose {
        /// Transport error code (section 20.1).
        error_code: u64,
        /// Type of the frame that triggered it; 0 if unknown.
        frame_type: u64,
        /// Reason phrase; should be UTF-8, may be anything.
        reason: &'a [u8],
    },
    /// CONNECTION_CLOSE of type 0x1d.
    ApplicationClose {
        /// Application protocol error code.
        error_code: u64,
        /// Reason phrase; should be UTF-8, may be anything.
        reason: &'a [u8],
    },
    /// HANDSHAKE_DONE; only servers send it.
    HandshakeDone,
}

impl Frame<'_> {
    /// Whether the frame makes its packet ack-eliciting (RFC 9000, section 13.2; RFC 9002,
    /// section 2).
    #[inline]
    pub fn is_ack_eliciting(&self) -> bool {
        !matches!(
            self,
            Self::Padding
                | Self::Ack(_)
                | Self::ConnectionClose { .. }
                | Self::ApplicationClose { .. }
        )
    }

    /// Whether the frame may stand in a packet of this type (RFC 9000, section 12.4, table 3, and
    /// for 0-RTT the stricter list of section 12.5). Otherwise the error is PROTOCOL_VIOLATION.
    #[inline]
    pub fn allowed_in(&self, packet: PacketType) -> bool {
        match packet {
            PacketType::OneRtt => true,
            PacketType::Initial | PacketType::Handshake => matches!(
                self,
                Self::Padding
                    | Self::Ping
                    | Self::Ack(_)
                    | Self::Crypto { .. }
                    | Self::ConnectionClose { .. }
            ),
            PacketType::ZeroRtt => !matches!(
                self,
                Self::Ack(_)
                    | Self::Crypto { .. }
                    | Self::NewToken { .. }
                    | Self::RetireConnectionId { .. }
                    | Self::PathResponse(_)
                    | Self::HandshakeDone
            ),
        }
    }

    /// Whether it is a probing frame: a packet of only such frames does not migrate the
    /// connection (RFC 9000, section 9.1).
    #[inline]
    pub fn is_probing(&self) -> bool {
        matches!(
            self,
            Self::Padding
                | Self::PathChallenge(_)
                | Self::PathResponse(_)
                | Self::NewConnectionId { .. }
        )
    }
}

/// Kind of a malformed frame's error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum FrameErrorKind {
    /// The payload is empty: PROTOCOL_VIOLATION (RFC 9000, section 12.4).
    NoFrames,
    /// The type is not encoded in the fewest bytes: PROTOCOL_VIOLATION (section 12.4).
    NonMinimalType,
    /// The type is not one that we know: FRAME_ENCODING_ERROR (section 12.4).
    Unknown,
    /// The payload ends inside the frame: FRAME_ENCODING_ERROR.
    Truncated,
    /// A field has a value that section 19 forbids: FRAME_ENCODING_ERROR.
    Invalid,
}

impl From<Truncated> for FrameErrorKind {
    fn from(Truncated: Truncated) -> Self {
        Self::Truncated
    }
}

/// A frame that could not be read; closes the connection, see [`TransportError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameError {
    /// Its type; 0 if that could not be read.
    pub frame_type: u64,
    /// Kind of error.
    pub kind: FrameErrorKind,
}

impl From<FrameError> for TransportError {
    fn from(error: FrameError) -> Self {
        use TransportErrorCode as Code;
        let (code, reason) = match error.kind {
            FrameErrorKind::NoFrames => (Code::PROTOCOL_VIOLATION, "a packet without frames"),
            FrameErrorKind::NonMinimalType => {
                (Code::PROTOCOL_VIOLATION, "a frame type in more bytes than it needs")
            }
            FrameErrorKind::Unknown => (Code::FRAME_ENCODING_ERROR, "an unknown frame type"),
            FrameErrorKind::Truncated => (Code::FRAME_ENCODING_ERROR, "a truncated frame"),
            FrameErrorKind::Invalid => (Code::FRAME_ENCODING_ERROR, "an invalid field in a frame"),
        };
        Self::new(code, error.frame_type, reason)
    }
}

/// Iterator over the frames of a packet's payload.
///
/// A run of PADDING comes as one frame. After an error it ends. An empty payload gives
/// [`FrameErrorKind::NoFrames`].
#[derive(Clone, Debug)]
pub struct Frames<'a> {
    reader: Reader<'a>,
    frame_type: u64,
    failed: bool,
}

impl<'a> Frames<'a> {
    /// Starts at the first frame of `payload`, which is a packet's plaintext behind its header.
    #[inline]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { reader: Reader::new(payload), frame_type: types::PADDING, failed: false }
    }

    /// The type of the frame returned last, for CONNECTION_CLOSE; 0 before the first.
    #[inline]
    pub const fn frame_type(&self) -> u64 {
        self.frame_type
    }

    #[inline]
    fn parse(&mut self) -> Result<Frame<'a>, FrameErrorKind> {
        let r = &mut self.reader;
        let start = r.position();
        // Until the type is known an error has none.
        self.frame_type = types::PADDING;
        let ty = r.varint()?;
        self.frame_type = ty;
        // RFC 9000, section 12.4: "the frame type field uses the shortest possible encoding"; a
        // longer one MAY be treated as PROTOCOL_VIOLATION.
        if r.position() - start != varint_len(ty) {
            return Err(FrameErrorKind::NonMinimalType);
        }
        match ty {
            types::STREAM..=types::STREAM_LAST => {
                let id = StreamId(r.varint()?);
                let offset = if ty & OFF_BIT != 0 { r.varint()? } else { 0 };
                let data = if ty & LEN_BIT != 0 { r.prefixed()? } else { r.rest() };
                check_end(offset, data)?;
                Ok(Frame::Stream { id, offset, data, fin: ty & FIN_BIT != 0 })
            }
            types::ACK | types::ACK_ECN => {
                Ok(Frame::Ack(AckFrame::parse(r, ty == types::ACK_ECN)?))
            }
            types::PADDING => {
                r.skip_zeros();
                Ok(Frame::Padding)
            }
            types::PING => Ok(Frame::Ping),
            types::CRYPTO => {
                let offset = r.varint()?;
                let data = r.prefixed()?;
                check_end(offset, data)?;
                Ok(Frame::Crypto { offset, data })
            }
            types::RESET_STREAM
            | types::STOP_SENDING
            | types::MAX_DATA..=types::STREAMS_BLOCKED_UNI => parse_stream_control(r, ty),
            _ => parse_connection_control(r, ty),
        }
    }
}

/// Parses frames that end streams, and flow-control frames.
fn parse_stream_control<'a>(r: &mut Reader<'a>, ty: u64) -> Result<Frame<'a>, FrameErrorKind> {
    Ok(match ty {
        types::RESET_STREAM => Frame::ResetStream {
            id: StreamId(r.varint()?),
            error_code: r.varint()?,
            final_size: r.varint()?,
        },
        types::STOP_SENDING => {
            Frame::StopSending { id: StreamId(r.varint()?), error_code: r.varint()? }
        }
        types::MAX_DATA => Frame::MaxData(r.varint()?),
        types::MAX_STREAM_DATA => {
            Frame::MaxStreamData { id: StreamId(r.varint()?), max: r.varint()? }
        }
        types::MAX_STREAMS_BIDI | types::MAX_STREAMS_UNI => Frame::MaxStreams {
            direction: direction(ty, types::MAX_STREAMS_BIDI),
            max: stream_count(r)?,
        },
        types::DATA_BLOCKED => Frame::DataBlocked(r.varint()?),
        types::STREAM_DATA_BLOCKED => {
            Frame::StreamDataBlocked { id: StreamId(r.varint()?), limit: r.varint()? }
        }
        types::STREAMS_BLOCKED_BIDI | types::STREAMS_BLOCKED_UNI => Frame::StreamsBlocked {
            direction: direction(ty, types::STREAMS_BLOCKED_BIDI),
            limit: stream_count(r)?,
        },
        _ => return Err(FrameErrorKind::Unknown),
    })
}

/// The frames of tokens, connection IDs, paths, and the beginning and end of the connection.
fn parse_connection_control<'a>(r: &mut Reader<'a>, ty: u64) -> Result<Frame<'a>, FrameErrorKind> {
    Ok(match ty {
        types::NEW_TOKEN => {
            let token = r.prefixed()?;
            // RFC 9000, section 19.7: an empty token MUST be a FRAME_ENCODING_ERROR.
            check(!token.is_empty())?;
            Frame::NewToken { token }
        }
        types::NEW_CONNECTION_ID => {
            let sequence = r.varint()?;
            let retire_prior_to = r.varint()?;
            let len = r.u8()?;
            // RFC 9000, section 19.15: lengths below 1 or above 20, and a Retire Prior To
            // above the Sequence Number, MUST be FRAME_ENCODING_ERRORs.
            check(retire_prior_to <= sequence && len != 0)?;
            let id =
                ConnectionId::new(r.bytes(usize::from(len))?).ok_or(FrameErrorKind::Invalid)?;
            Frame::NewConnectionId { sequence, retire_prior_to, id, reset_token: r.array()? }
        }
        types::RETIRE_CONNECTION_ID => Frame::RetireConnectionId { sequence: r.varint()? },
        types::PATH_CHALLENGE => Frame::PathChallenge(r.array()?),
        types::PATH_RESPONSE => Frame::PathResponse(r.array()?),
        types::CONNECTION_CLOSE => Frame::ConnectionClose {
            error_code: r.varint()?,
            frame_type: r.varint()?,
            reason: r.prefixed()?,
        },
        types::APPLICATION_CLOSE => {
            Frame::ApplicationClose { error_code: r.varint()?, reason: r.prefixed()? }
        }
        types::HANDSHAKE_DONE => Frame::HandshakeDone,
        _ => return Err(FrameErrorKind::Unknown),
    })
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let nothing_left = self.reader.is_empty();
        if self.failed || nothing_left && self.reader.position() != 0 {
            return None;
        }
        // RFC 9000, section 12.4: "an endpoint MUST treat receipt of a packet containing no
        // frames as a connection error of type PROTOCOL_VIOLATION".
        let result = if nothing_left { Err(FrameErrorKind::NoFrames) } else { self.parse() };
        self.failed = result.is_err();
        Some(result.map_err(|kind| FrameError { frame_type: self.frame_type, kind }))
    }
}

impl core::iter::FusedIterator for Frames<'_> {}

#[inline]
fn check(valid: bool) -> Result<(), FrameErrorKind> {
    if valid { Ok(()) } else { Err(FrameErrorKind::Invalid) }
}

/// RFC 9000, sections 19.6 and 19.8: offset and length together "cannot exceed 2^62-1".
#[inline]
fn check_end(offset: u64, data: &[u8]) -> Result<(), FrameErrorKind> {
    check(offset + data.len() as u64 <= VARINT_MAX)
}

/// RFC 9000, sections 19.11 and 19.14: counts above 2^60 are FRAME_ENCODING_ERRORs.
#[inline]
fn stream_count(r: &mut Reader<'_>) -> Result<u64, FrameErrorKind> {
    let count = r.varint()?;
    check(count <= MAX_STREAMS_LIMIT)?;
    Ok(count)
}

#[inline]
fn direction(ty: u64, bidirectional: u64) -> Direction {
    if ty == bidirectional { Direction::Bidirectional } else { Direction::Unidirectional }
}
