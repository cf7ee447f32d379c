//! Writers of all frames but ACK (RFC 9000, section 19). Each takes its room for granted: callers
//! compare [`Writer::remaining`] with [`max_len`] or one of the `…_len` functions first, and a
//! frame that does not fit panics. So does an integer above 2^62 − 1.

use super::super::connection_id::{ConnectionId, MAX_CID_LEN};
use super::super::cursor::{Writer, varint_len};
use super::super::error::TransportError;
use super::{FIN_BIT, LEN_BIT, OFF_BIT, types};
use units::{Direction, StreamId};

/// The most bytes that small frames can take.
pub mod max_len {
    use super::MAX_CID_LEN;

    /// Each frame of a stream's control; RESET_STREAM is the longest.
    pub const RESET_STREAM: usize = 1 + 3 * 8;
    /// Each frame of the connection's flow control, which has one number.
    pub const MAX_DATA: usize = 1 + 8;
    /// NEW_CONNECTION_ID.
    pub const NEW_CONNECTION_ID: usize = 1 + 2 * 8 + 1 + MAX_CID_LEN + 16;
    /// RETIRE_CONNECTION_ID.
    pub const RETIRE_CONNECTION_ID: usize = 1 + 8;
    /// HANDSHAKE_DONE.
    pub const HANDSHAKE_DONE: usize = 1;
}

#[inline]
fn put_integers<const N: usize>(w: &mut Writer<'_>, ty: u64, fields: [u64; N]) {
    w.varint(ty);
    fields.into_iter().for_each(|field| w.varint(field));
}

#[inline]
fn put_prefixed(w: &mut Writer<'_>, bytes: &[u8]) {
    w.varint(bytes.len() as u64);
    w.bytes(bytes);
}

#[inline]
const fn by_direction(direction: Direction, bidirectional: u64, unidirectional: u64) -> u64 {
    match direction {
        Direction::Bidirectional => bidirectional,
        Direction::Unidirectional => unidirectional,
    }
}

/// Writes a PING frame.
#[inline]
pub fn put_ping(w: &mut Writer<'_>) {
    w.varint(types::PING);
}

/// Writes a RESET_STREAM frame; `final_size` in bytes.
pub fn put_reset_stream(w: &mut Writer<'_>, id: StreamId, error_code: u64, final_size: u64) {
    put_integers(w, types::RESET_STREAM, [id.0, error_code, final_size]);
}

/// Writes a STOP_SENDING frame.
pub fn put_stop_sending(w: &mut Writer<'_>, id: StreamId, error_code: u64) {
    put_integers(w, types::STOP_SENDING, [id.0, error_code]);
}

/// Writes a CRYPTO frame; `offset` is the place of the first byte.
pub fn put_crypto(w: &mut Writer<'_>, offset: u64, data: &[u8]) {
    w.varint(types::CRYPTO);
    w.varint(offset);
    put_prefixed(w, data);
}

/// Bytes of a NEW_TOKEN frame with a token of `len` bytes.
#[inline]
pub const fn new_token_len(len: usize) -> usize {
    1 + varint_len(len as u64) + len
}

/// Writes a NEW_TOKEN frame; `token` is not empty.
pub fn put_new_token(w: &mut Writer<'_>, token: &[u8]) {
    debug_assert!(!token.is_empty(), "RFC 9000, section 19.7: the token MUST NOT be empty");
    w.varint(types::NEW_TOKEN);
    put_prefixed(w, token);
}

/// Bytes of a STREAM frame before its data; `len` as for [`put_stream_header`].
#[inline]
pub const fn stream_header_len(id: StreamId, offset: u64, len: Option<usize>) -> usize {
    let offset_len = if offset == 0 { 0 } else { varint_len(offset) };
    let length_len = match len {
        Some(len) => varint_len(len as u64),
        None => 0,
    };
    1 + varint_len(id.0) + offset_len + length_len
}

/// Writes the part of a STREAM frame before its data.
///
/// `len` is the length of the data in bytes. With `None` the frame has no Length field, and its
/// data must extend to the end of the packet, without padding after it.
#[inline]
pub fn put_stream_header(
    w: &mut Writer<'_>,
    id: StreamId,
    offset: u64,
    len: Option<usize>,
    fin: bool,
) {
    let bit = |on: bool, mask: u64| if on { mask } else { 0 };
    w.varint(
        types::STREAM | bit(offset != 0, OFF_BIT) | bit(len.is_some(), LEN_BIT) | bit(fin, FIN_BIT),
    );
    w.varint(id.0);
    if offset != 0 {
        w.varint(offset);
    }
    if let Some(len) = len {
        w.varint(len as u64);
    }
}

/// Writes a MAX_DATA frame; `max` in bytes.
pub fn put_max_data(w: &mut Writer<'_>, max: u64) {
    put_integers(w, types::MAX_DATA, [max]);
}

/// Writes a MAX_STREAM_DATA frame; `max` in bytes.
pub fn put_max_stream_data(w: &mut Writer<'_>, id: StreamId, max: u64) {
    put_integers(w, types::MAX_STREAM_DATA, [id.0, max]);
}

/// Writes a MAX_STREAMS frame; `max` is at most 2^60.
pub fn put_max_streams(w: &mut Writer<'_>, direction: Direction, max: u64) {
    let ty = by_direction(direction, types::MAX_STREAMS_BIDI, types::MAX_STREAMS_UNI);
    put_integers(w, ty, [max]);
}

/// Writes a DATA_BLOCKED frame; `limit` in bytes.
pub fn put_data_blocked(w: &mut Writer<'_>, limit: u64) {
    put_integers(w, types::DATA_BLOCKED, [limit]);
}

/// Writes a STREAM_DATA_BLOCKED frame; `limit` in bytes.
pub fn put_stream_data_blocked(w: &mut Writer<'_>, id: StreamId, limit: u64) {
    put_integers(w, types::STREAM_DATA_BLOCKED, [id.0, limit]);
}

/// Writes a STREAMS_BLOCKED frame; `limit` is at most 2^60.
pub fn put_streams_blocked(w: &mut Writer<'_>, direction: Direction, limit: u64) {
    let ty = by_direction(direction, types::STREAMS_BLOCKED_BIDI, types::STREAMS_BLOCKED_UNI);
    put_integers(w, ty, [limit]);
}

/// Writes a NEW_CONNECTION_ID frame; `id` is not empty, `retire_prior_to` is at most `sequence`.
pub fn put_new_connection_id(
    w: &mut Writer<'_>,
    sequence: u64,
    retire_prior_to: u64,
    id: &ConnectionId,
    reset_token: &[u8; 16],
) {
    put_integers(w, types::NEW_CONNECTION_ID, [sequence, retire_prior_to]);
    put_prefixed(w, id.as_slice());
    w.bytes(reset_token);
}

/// Writes a RETIRE_CONNECTION_ID frame.
pub fn put_retire_connection_id(w: &mut Writer<'_>, sequence: u64) {
    put_integers(w, types::RETIRE_CONNECTION_ID, [sequence]);
}

/// Writes a PATH_CHALLENGE frame.
pub fn put_path_challenge(w: &mut Writer<'_>, data: [u8; 8]) {
    w.varint(types::PATH_CHALLENGE);
    w.bytes(&data);
}

/// Writes a PATH_RESPONSE frame.
pub fn put_path_response(w: &mut Writer<'_>, data: [u8; 8]) {
    w.varint(types::PATH_RESPONSE);
    w.bytes(&data);
}

/// Writes a CONNECTION_CLOSE frame of type 0x1c, its reason cut to the room that is left.
pub fn put_connection_close(w: &mut Writer<'_>, error: &TransportError) {
    put_integers(w, types::CONNECTION_CLOSE, [error.code.0, error.frame_type]);
    put_reason(w, error.reason);
}

/// Writes a CONNECTION_CLOSE frame of type 0x1d, its reason cut to the room that is left. It
/// belongs into 0-RTT and 1-RTT packets only (RFC 9000, section 10.2.3).
pub fn put_application_close(w: &mut Writer<'_>, error_code: u64, reason: &str) {
    put_integers(w, types::APPLICATION_CLOSE, [error_code]);
    put_reason(w, reason);
}

/// Writes as much of `reason` as fits, in whole characters, behind its length.
fn put_reason(w: &mut Writer<'_>, reason: &str) {
    let fits = |end: &usize| {
        reason.is_char_boundary(*end) && varint_len(*end as u64) + end <= w.remaining()
    };
    // The empty reason is the last to be tried; without room even for that, the write panics.
    let end = (1..=reason.len().min(w.remaining())).rev().find(fits).unwrap_or(0);
    put_prefixed(w, &reason.as_bytes()[..end]);
}

/// Writes a HANDSHAKE_DONE frame.
pub fn put_handshake_done(w: &mut Writer<'_>) {
    w.varint(types::HANDSHAKE_DONE);
}
