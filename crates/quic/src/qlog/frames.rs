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
    let (name, numbers): (&str, &[(&str, u64)]) = match frame {
        Frame::Padding => ("padding", &[]),
        Frame::Ping => ("ping", &[]),
        Frame::Ack(_) => ("ack", &[]),
        Frame::ResetStream { id, error_code, final_size } => (
            "reset_stream",
            &[("stream_id", id.0), ("error_code", *error_code), ("final_size", *final_size)],
        ),
        Frame::StopSending { id, error_code } => {
            ("stop_sending", &[("stream_id", id.0), ("error_code", *error_code)])
        }
        Frame::Crypto { offset, data } => {
            ("crypto", &[("offset", *offset), ("length", data.len() as u64)])
        }
        Frame::NewToken { .. } => ("new_token", &[]),
        Frame::Stream { id, offset, data, .. } => {
            ("stream", &[("stream_id", id.0), ("offset", *offset), ("length", data.len() as u64)])
        }
        Frame::MaxData(max) => ("max_data", &[("maximum", *max)]),
        Frame::MaxStreamData { id, max } => {
            ("max_stream_data", &[("stream_id", id.0), ("maximum", *max)])
        }
        Frame::MaxStreams { max, .. } => ("max_streams", &[("maximum", *max)]),
        Frame::DataBlocked(limit) => ("data_blocked", &[("limit", *limit)]),
        Frame::StreamDataBlocked { id, limit } => {
            ("stream_data_blocked", &[("stream_id", id.0), ("limit", *limit)])
        }
        Frame::StreamsBlocked { limit, .. } => ("streams_blocked", &[("limit", *limit)]),
        Frame::NewConnectionId { sequence, retire_prior_to, .. } => (
            "new_connection_id",
            &[("sequence_number", *sequence), ("retire_prior_to", *retire_prior_to)],
        ),
        Frame::RetireConnectionId { sequence } => {
            ("retire_connection_id", &[("sequence_number", *sequence)])
        }
        Frame::PathChallenge(_) => ("path_challenge", &[]),
        Frame::PathResponse(_) => ("path_response", &[]),
        Frame::ConnectionClose { error_code, frame_type, .. } => (
            "connection_close",
            &[("error_code", *error_code), ("trigger_frame_type", *frame_type)],
        ),
        Frame::ApplicationClose { error_code, .. } => {
            ("connection_close", &[("error_code", *error_code)])
        }
        Frame::HandshakeDone => ("handshake_done", &[]),
    };
    let _ = write!(line, "{{\"frame_type\":\"{name}\"");
    for (name, value) in numbers {
        let _ = write!(line, ",\"{name}\":{value}");
    }
    match frame {
        Frame::Ack(frame) => ack(line, frame),
        Frame::NewToken { token } => {
            let _ = write!(line, ",\"token\":{{\"raw\":{{\"length\":{}}}}}", token.len());
        }
        Frame::Stream { fin, .. } => {
            let _ = write!(line, ",\"fin\":{fin}");
        }
        Frame::MaxStreams { direction, .. } | Frame::StreamsBlocked { direction, .. } => {
            stream_type(line, *direction);
        }
        Frame::PathChallenge(data) | Frame::PathResponse(data) => {
            line.push_str(",\"data\":\"");
            hex(line, data);
            line.push('"');
        }
        Frame::ConnectionClose { reason, .. } => close(line, "transport", reason),
        Frame::ApplicationClose { reason, .. } => close(line, "application", reason),
        _ => {}
    }
    line.push('}');
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
