//! Tests of the wire codecs: the vectors of RFC 9000, round trips, arbitrary bytes, and a
//! third-party codec as oracle.

mod cursor;
mod frame;
mod oracle;
mod packet;
mod params;

use super::*;
use crate::ranges::RangeSet;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use units::{Direction, StreamId};

/// The same cases in every run; proptest prints the smallest that fails.
fn config() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(9000),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Integers with a wire encoding, all four lengths and their edges equally likely.
fn varint() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..=0x3fu64,
        0x40..=0x3fffu64,
        0x4000..=0x3fff_ffffu64,
        0x4000_0000..=VARINT_MAX,
        prop::sample::select(vec![0x3f, 0x40, 0x3fff, 0x4000, 0x3fff_ffff, VARINT_MAX]),
    ]
}

fn bytes(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), len)
}

fn connection_id() -> impl Strategy<Value = ConnectionId> {
    bytes(0..=MAX_CID_LEN).prop_map(|id| ConnectionId::new(&id).expect("at most 20 bytes"))
}

/// What `write` writes into a buffer of `room` bytes.
fn written_in(room: usize, write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buf = vec![0xee; room];
    let mut w = Writer::new(&mut buf);
    write(&mut w);
    w.written_mut().to_vec()
}

fn written(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    written_in(4_096, write)
}

/// Fields of every frame type, so that one strategy serves all.
#[derive(Clone, Debug)]
struct Fields {
    ty: u64,
    a: u64,
    b: u64,
    c: u64,
    data: Vec<u8>,
    array: [u8; 16],
    ranges: RangeSet,
}

fn ack_ranges() -> impl Strategy<Value = RangeSet> {
    let steps = prop::collection::vec((1u64..300, 1u64..300), 1..100);
    (steps, 0..VARINT_MAX - 100_000).prop_map(|(steps, mut at)| {
        let mut set = RangeSet::new();
        for (gap, len) in steps {
            set.insert(at + gap..at + gap + len);
            at += gap + len;
        }
        set
    })
}

fn fields() -> impl Strategy<Value = Fields> {
    (
        types::PADDING..=types::HANDSHAKE_DONE,
        (varint(), varint(), varint()),
        bytes(0..80),
        any::<[u8; 16]>(),
        ack_ranges(),
    )
        .prop_map(|(ty, (a, b, c), data, array, ranges)| Fields {
            ty,
            a,
            b,
            c,
            data,
            array,
            ranges,
        })
}

impl Fields {
    fn id(&self) -> StreamId {
        StreamId(self.a)
    }

    /// An offset that leaves room for the data and is not 0, which needs no field.
    fn offset(&self) -> u64 {
        self.b.clamp(1, VARINT_MAX - self.data.len() as u64)
    }

    fn direction(&self) -> Direction {
        if self.ty & 1 == 0 { Direction::Bidirectional } else { Direction::Unidirectional }
    }

    fn path_data(&self) -> [u8; 8] {
        self.c.to_be_bytes()
    }

    fn token(&self) -> &[u8] {
        if self.data.is_empty() { &self.array } else { &self.data }
    }

    fn connection_id(&self) -> ConnectionId {
        let len = (self.c % 16) as usize + 1;
        ConnectionId::new(&self.array[..len]).expect("at most 16 bytes")
    }

    fn error(&self) -> TransportError {
        TransportError::new(TransportErrorCode(self.a), self.b, "a reason")
    }

    fn ecn(&self) -> Option<EcnCounts> {
        (self.ty == types::ACK_ECN).then_some(EcnCounts { ect0: self.a, ect1: self.b, ce: self.c })
    }

    /// Writes the frame; one without LEN must be the last of its packet.
    fn put(&self, w: &mut Writer<'_>) {
        let Self { ty, a, b, data, .. } = self;
        match *ty {
            types::PADDING => w.fill(0, 1 + data.len()),
            types::PING => put_ping(w),
            types::ACK | types::ACK_ECN => {
                assert_eq!(put_ack(w, &self.ranges, *a, self.ecn(), usize::MAX), self.ranges.len());
            }
            types::RESET_STREAM => put_reset_stream(w, self.id(), *b, self.c),
            types::STOP_SENDING => put_stop_sending(w, self.id(), *b),
            types::CRYPTO => put_crypto(w, self.offset(), data),
            types::NEW_TOKEN => put_new_token(w, self.token()),
            types::STREAM..=types::STREAM_LAST => {
                let offset = if ty & OFF_BIT == 0 { 0 } else { self.offset() };
                let len = (ty & LEN_BIT != 0).then_some(data.len());
                let start = w.position();
                put_stream_header(w, self.id(), offset, len, ty & FIN_BIT != 0);
                assert_eq!(w.position() - start, stream_header_len(self.id(), offset, len));
                w.bytes(data);
            }
            types::MAX_DATA => put_max_data(w, *a),
            types::MAX_STREAM_DATA => put_max_stream_data(w, self.id(), *b),
            types::MAX_STREAMS_BIDI | types::MAX_STREAMS_UNI => {
                put_max_streams(w, self.direction(), a % (MAX_STREAMS_LIMIT + 1));
            }
            types::DATA_BLOCKED => put_data_blocked(w, *a),
            types::STREAM_DATA_BLOCKED => put_stream_data_blocked(w, self.id(), *b),
            types::STREAMS_BLOCKED_BIDI | types::STREAMS_BLOCKED_UNI => {
                put_streams_blocked(w, self.direction(), a % (MAX_STREAMS_LIMIT + 1));
            }
            types::NEW_CONNECTION_ID => {
                let id = self.connection_id();
                put_new_connection_id(w, *a, *a.min(b), &id, &self.array);
            }
            types::RETIRE_CONNECTION_ID => put_retire_connection_id(w, *a),
            types::PATH_CHALLENGE => put_path_challenge(w, self.path_data()),
            types::PATH_RESPONSE => put_path_response(w, self.path_data()),
            types::CONNECTION_CLOSE => put_connection_close(w, &self.error()),
            types::APPLICATION_CLOSE => put_application_close(w, *a, "a reason"),
            types::HANDSHAKE_DONE => put_handshake_done(w),
            ty => unreachable!("{ty:#x} is no frame type"),
        }
    }

    /// Whether `frame` is what [`put`](Self::put) wrote.
    fn matches(&self, frame: &Frame<'_>) -> bool {
        let Self { ty, a, b, c, data, array, .. } = self;
        let (id, offset, direction) = (self.id(), self.offset(), self.direction());
        let max = a % (MAX_STREAMS_LIMIT + 1);
        *frame
            == match *ty {
                types::PADDING => Frame::Padding,
                types::PING => Frame::Ping,
                types::ACK | types::ACK_ECN => {
                    let Frame::Ack(ack) = frame else { return false };
                    let ours = self.ranges.iter().rev().map(|r| r.start..=r.end - 1);
                    return ack.ranges().eq(ours)
                        && Some(ack.largest + 1) == self.ranges.last().map(|range| range.end)
                        && ack.delay == *a
                        && ack.ecn == self.ecn();
                }
                types::RESET_STREAM => Frame::ResetStream { id, error_code: *b, final_size: *c },
                types::STOP_SENDING => Frame::StopSending { id, error_code: *b },
                types::CRYPTO => Frame::Crypto { offset, data },
                types::NEW_TOKEN => Frame::NewToken { token: self.token() },
                types::STREAM..=types::STREAM_LAST => {
                    let offset = if ty & OFF_BIT == 0 { 0 } else { offset };
                    Frame::Stream { id, offset, data, fin: ty & FIN_BIT != 0 }
                }
                types::MAX_DATA => Frame::MaxData(*a),
                types::MAX_STREAM_DATA => Frame::MaxStreamData { id, max: *b },
                types::MAX_STREAMS_BIDI | types::MAX_STREAMS_UNI => {
                    Frame::MaxStreams { direction, max }
                }
                types::DATA_BLOCKED => Frame::DataBlocked(*a),
                types::STREAM_DATA_BLOCKED => Frame::StreamDataBlocked { id, limit: *b },
                types::STREAMS_BLOCKED_BIDI | types::STREAMS_BLOCKED_UNI => {
                    Frame::StreamsBlocked { direction, limit: max }
                }
                types::NEW_CONNECTION_ID => Frame::NewConnectionId {
                    sequence: *a,
                    retire_prior_to: *a.min(b),
                    id: self.connection_id(),
                    reset_token: *array,
                },
                types::RETIRE_CONNECTION_ID => Frame::RetireConnectionId { sequence: *a },
                types::PATH_CHALLENGE => Frame::PathChallenge(self.path_data()),
                types::PATH_RESPONSE => Frame::PathResponse(self.path_data()),
                types::CONNECTION_CLOSE => {
                    Frame::ConnectionClose { error_code: *a, frame_type: *b, reason: b"a reason" }
                }
                types::APPLICATION_CLOSE => {
                    Frame::ApplicationClose { error_code: *a, reason: b"a reason" }
                }
                _ => Frame::HandshakeDone,
            }
    }

    /// Whether no other frame can follow: STREAM without LEN takes the rest of the packet.
    fn is_open_ended(&self) -> bool {
        matches!(self.ty, types::STREAM..=types::STREAM_LAST) && self.ty & LEN_BIT == 0
    }
}
