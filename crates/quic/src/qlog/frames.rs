//! Frames as qlog's QUIC events describe them (draft-ietf-quic-qlog-quic-events-01, appendix A.8).

use core::fmt::Write as _;

use units::Direction;

use super::json::{hex, string};
use crate::wire::{AckFrame, Frame, Frames};

/// The default of `ack_delay_exponent` (RFC 9000, section 18.2): what we send under, and what
/// clients are taken to use.
const ACK_DELAY_EXPONENT: u32 = 3;

/// The frames of `payload`, with commas between them.
pub(super) fn write(line: &mut String, payload: &[u8]) {
    for (index, frame) in Frames::new(payload).enumerate() {
        if index > 0 {
            line.push(',');
        }
        match frame {
            Ok(frame) => one(line, &frame),
            Err(error) => {
                let ty = error.frame_type;
                let _ = write!(line, "{{\"frame_type\":\"unknown\",\"raw_frame_type\":{ty}}}");
            }
        }
    }
}

fn one(line: &mut String, frame: &Frame<'_>) {
    let _ = write!(line, "{{\"frame_type\":\"{}\"", name(frame));
    let mut number = |name: &str, value: u64| {
        let _ = write!(line, ",\"{name}\":{value}");
    };
    match frame {
        Frame::Padding | Frame::Ping | Frame::HandshakeDone => {}
        Frame::Ack(frame) => ack(line, frame),
        Frame::ResetStream { id, error_code, final_size } => {
            number("stream_id", id.0);
            number("error_code", *error_code);
            number("final_size", *final_size);
        }
        Frame::StopSending { id, error_code } => {
            number("stream_id", id.0);
            number("error_code", *error_code);
        }
        Frame::Crypto { offset, data } => {
            number("offset", *offset);
            number("length", data.len() as u64);
        }
        Frame::NewToken { token } => {
            let _ = write!(line, ",\"token\":{{\"raw\":{{\"length\":{}}}}}", token.len());
        }
        Frame::Stream { id, offset, data, fin } => {
            number("stream_id", id.0);
            number("offset", *offset);
            number("length", data.len() as u64);
            let _ = write!(line, ",\"fin\":{fin}");
        }
        Frame::MaxData(maximum) => number("maximum", *maximum),
        Frame::MaxStreamData { id, max } => {
            number("stream_id", id.0);
            number("maximum", *max);
        }
        Frame::MaxStreams { direction, max } => {
            number("maximum", *max);
            stream_type(line, *direction);
        }
        Frame::DataBlocked(limit) => number("limit", *limit),
        Frame::StreamDataBlocked { id, limit } => {
            number("stream_id", id.0);
            number("limit", *limit);
        }
        Frame::StreamsBlocked { direction, limit } => {
            number("limit", *limit);
            stream_type(line, *direction);
        }
        Frame::NewConnectionId { sequence, retire_prior_to, .. } => {
            number("sequence_number", *sequence);
            number("retire_prior_to", *retire_prior_to);
        }
        Frame::RetireConnectionId { sequence } => number("sequence_number", *sequence),
        Frame::PathChallenge(data) | Frame::PathResponse(data) => {
            line.push_str(",\"data\":\"");
            hex(line, data);
            line.push('"');
        }
        Frame::ConnectionClose { error_code, frame_type, reason } => {
            number("error_code", *error_code);
            number("trigger_frame_type", *frame_type);
            close(line, "transport", reason);
        }
        Frame::ApplicationClose { error_code, reason } => {
            number("error_code", *error_code);
            close(line, "application", reason);
        }
    }
    line.push('}');
}

fn name(frame: &Frame<'_>) -> &'static str {
    match frame {
        Frame::Padding => "padding",
        Frame::Ping => "ping",
        Frame::Ack(_) => "ack",
        Frame::ResetStream { .. } => "reset_stream",
        Frame::StopSending { .. } => "stop_sending",
        Frame::Crypto { .. } => "crypto",
        Frame::NewToken { .. } => "new_token",
        Frame::Stream { .. } => "stream",
        Frame::MaxData(_) => "max_data",
        Frame::MaxStreamData { .. } => "max_stream_data",
        Frame::MaxStreams { .. } => "max_streams",
        Frame::DataBlocked(_) => "data_blocked",
        Frame::StreamDataBlocked { .. } => "stream_data_blocked",
        Frame::StreamsBlocked { .. } => "streams_blocked",
        Frame::NewConnectionId { .. } => "new_connection_id",
        Frame::RetireConnectionId { .. } => "retire_connection_id",
        Frame::PathChallenge(_) => "path_challenge",
        Frame::PathResponse(_) => "path_response",
        Frame::ConnectionClose { .. } | Frame::ApplicationClose { .. } => "connection_close",
        Frame::HandshakeDone => "handshake_done",
    }
}

fn ack(line: &mut String, frame: &AckFrame<'_>) {
    let micros = frame.delay.saturating_mul(1 << ACK_DELAY_EXPONENT);
    let _ = write!(line, ",\"ack_delay\":{},\"acked_ranges\":[", micros as f64 / 1e3);
    for (index, range) in frame.ranges().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(line, "{comma}[{},{}]", range.start(), range.end());
    }
    line.push(']');
    if let Some(ecn) = &frame.ecn {
        let _ = write!(line, ",\"ect0\":{},\"ect1\":{},\"ce\":{}", ecn.ect0, ecn.ect1, ecn.ce);
    }
}

fn stream_type(line: &mut String, direction: Direction) {
    let ty = match direction {
        Direction::Bidirectional => "bidirectional",
        Direction::Unidirectional => "unidirectional",
    };
    let _ = write!(line, ",\"stream_type\":\"{ty}\"");
}

fn close(line: &mut String, space: &str, reason: &[u8]) {
    let _ = write!(line, ",\"error_space\":\"{space}\",\"reason\":");
    string(line, &String::from_utf8_lossy(reason));
}
