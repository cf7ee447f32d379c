//! Behaviour of the streams of a connection, by side: sending, receiving, control frames, and
//! models that compare long random histories with plain vectors.

mod control;
mod model;
mod receiving;
mod sending;

use bytes::Bytes;
use proptest::test_runner::{Config as ProptestConfig, RngSeed};
use recovery::Content;

use super::*;
use crate::wire::{Frame, Frames, TransportError, TransportErrorCode, Writer};

/// The same cases in each run; 192 of them.
pub(super) fn cases() -> ProptestConfig {
    ProptestConfig {
        cases: 192,
        rng_seed: RngSeed::Fixed(0x6d65_6e64),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// State held for all streams.
#[derive(Debug, Default, PartialEq, Eq)]
struct StreamStats {
    /// Streams that exist, of both sides.
    open: usize,
    /// Bytes received and not yet read.
    buffered: u64,
    /// Bytes written and not yet sent once.
    unsent: u64,
}

impl Streams {
    fn stats(&self) -> StreamStats {
        let receiving = self.table.iter().filter_map(|(_, stream)| stream.recv.as_ref());
        StreamStats {
            open: self.table.iter().count(),
            buffered: receiving.map(|recv| recv.assembler.buffered()).sum(),
            unsent: self.unsent,
        }
    }
}

const SRTT: Duration = Duration::from_millis(50);

/// The first bidirectional streams of the peer.
const A: StreamId = StreamId(0);
const B: StreamId = StreamId(4);
const C: StreamId = StreamId(8);

/// A peer that lets us send `data` bytes in all and `stream` on each stream, and open 10 streams.
fn peer(data: u64, stream: u64) -> TransportParameters {
    TransportParameters {
        initial_max_data: data,
        initial_max_stream_data_bidi_local: stream,
        initial_max_stream_data_bidi_remote: stream,
        initial_max_stream_data_uni: stream,
        initial_max_streams_bidi: 10,
        initial_max_streams_uni: 10,
        ..TransportParameters::default()
    }
}

/// Streams with small windows for receiving and the given limits for sending.
fn streams(data: u64, stream: u64) -> Streams {
    let mut streams = Streams::new(&StreamLimits {
        max_data: 3000,
        max_stream_data_bidi_local: 1000,
        max_stream_data_bidi_remote: 1000,
        max_stream_data_uni: 1000,
        max_streams_bidi: 16,
        max_streams_uni: 2,
        connection_window_ceiling: 12_000,
        stream_window_ceiling: 4000,
        send_high_water: 1000,
    });
    streams.set_peer_limits(&peer(data, stream));
    streams
}

/// Streams that may send without limits, with the peer's streams `ids` open and their events told.
fn serving(ids: &[StreamId]) -> Streams {
    let mut streams = streams(1 << 40, 1 << 40);
    for id in ids {
        receive(&mut streams, *id, 0, b"", false).unwrap();
    }
    while streams.poll_event().is_some() {}
    streams
}

fn receive(
    streams: &mut Streams,
    id: StreamId,
    offset: u64,
    data: &[u8],
    fin: bool,
) -> Result<(), TransportError> {
    streams.on_stream(id, offset, data, fin, Timestamp::ZERO, SRTT)
}

fn code<T>(result: Result<T, TransportError>) -> Option<TransportErrorCode> {
    result.err().map(|error| error.code)
}

/// `len` bytes that tell their offset.
fn pattern(offset: u64, len: usize) -> Vec<u8> {
    (offset..offset + len as u64).map(|i| (i * 31 + i / 256) as u8).collect()
}

fn events(streams: &mut Streams) -> Vec<StreamEvent> {
    core::iter::from_fn(|| streams.poll_event()).collect()
}

/// Sends all that may be sent, in frames of at most `room` bytes.
fn send_all(streams: &mut Streams, room: usize) -> Vec<StreamRange> {
    core::iter::from_fn(|| streams.next_range(room)).collect()
}

fn unacked(streams: &Streams, range: &StreamRange) -> Vec<StreamRange> {
    let mut out = Vec::new();
    streams.missing(range, &mut out);
    out
}

fn content(streams: &Streams, range: &StreamRange) -> Option<Vec<u8>> {
    let mut out = vec![0; usize::from(range.len)];
    streams.copy(range, &mut out).then_some(out)
}

/// Writes due control frames into a packet of `room` bytes. Returns their tokens and their parsed
/// form.
fn control_in(streams: &mut Streams, room: usize) -> (Vec<ControlFrame>, Vec<String>) {
    let mut packet = vec![0; room];
    let mut tokens = Vec::new();
    let mut w = Writer::new(&mut packet);
    streams.write_control(&mut w, &mut |frame| tokens.push(frame));
    let frames = Some(&*w.written_mut()).filter(|payload| !payload.is_empty()).map(Frames::new);
    let frames: Vec<Frame<'_>> = frames.into_iter().flatten().map(|frame| frame.unwrap()).collect();
    assert_eq!(frames.len(), tokens.len());
    (tokens, frames.iter().map(|frame| format!("{frame:?}")).collect())
}

/// All control frames that are due, as the peer reads them.
fn control_frames(streams: &mut Streams) -> Vec<String> {
    let frames = control_in(streams, 1200).1;
    assert!(!streams.has_control());
    frames
}

const NO_FRAMES: [&str; 0] = [];

/// The debug text of a frame, to compare with.
fn shown(frame: Frame<'_>) -> String {
    format!("{frame:?}")
}

/// Ends both parts of a peer's stream after its sending part was acknowledged.
fn close(streams: &mut Streams, id: StreamId) {
    receive(streams, id, 0, b"", true).unwrap();
    assert_eq!(streams.read(id, 1), Ok(ReadOutcome::Finished));
    if id.direction() == Direction::Bidirectional {
        streams.finish(id).unwrap();
        for range in send_all(streams, 1200) {
            streams.on_acked(&range);
        }
    }
    events(streams);
}

#[test]
fn the_streams_of_an_idle_viewer_take_little_memory() {
    // HTTP/3: three unidirectional streams each way and a request.
    assert!(size_of::<Streams>() <= 1200, "{}", size_of::<Streams>());
    assert!(7 * size_of::<Stream>() <= 3500, "{}", size_of::<Stream>());
    let streams = serving(&[]);
    assert_eq!(streams.events.capacity() + streams.due_streams.capacity(), 0);
}
