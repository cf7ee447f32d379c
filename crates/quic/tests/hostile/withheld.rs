//! Clients that withhold an acknowledgement, of a packet that they may well have: all that the server
//! sends afterwards is acknowledged, so it goes on. What it keeps for the one packet is bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mendcast_quic::wire::{Frame, Frames, PacketType, put_ping, put_stream_header};
use units::StreamId;

use crate::client;
use crate::raw::{Raw, ack_of, frames, generous};

/// Bytes whose release is counted.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

/// What a download without end came to.
struct Outcome {
    written: usize,
    /// The most bytes of what was written that were kept at a time, and the largest window.
    kept: usize,
    window: u64,
    close: Option<u64>,
}

/// Downloads up to `bytes` on stream 0 for at most `time`, in chunks of `chunk` bytes, as an application
/// that keeps little unsent; packets that `withheld` says so of are never acknowledged.
fn download(
    bytes: usize,
    chunk: usize,
    time: Duration,
    withheld: impl Fn(u64) -> bool,
) -> (Raw, Outcome) {
    let mut raw = client(&generous());
    raw.connect();
    raw.send(PacketType::OneRtt, &frames(|w| put_stream_header(w, StreamId(0), 0, Some(0), true)));
    let handle = raw.handle.expect("a connection");
    let alive = Arc::new(AtomicUsize::new(0));
    let mut outcome = Outcome { written: 0, kept: 0, window: 0, close: None };
    let end = raw.now + time;
    while outcome.written < bytes && raw.now < end {
        let connection = raw.server.connection(handle).expect("known");
        outcome.window = outcome.window.max(connection.window());
        while connection.unsent(StreamId(0)).is_some_and(|unsent| unsent < 128 << 10) {
            alive.fetch_add(chunk, Ordering::Relaxed);
            let chunk = Bytes::from_owner(Counted(vec![7; chunk], alive.clone()));
            outcome.written += chunk.len();
            connection.write(StreamId(0), chunk).expect("an open stream");
        }
        raw.collect();
        let numbers = raw.numbers(PacketType::OneRtt);
        let news = &numbers[numbers.len() - raw.received.len()..];
        let mut wanted: Vec<u64> = Vec::new();
        for (&number, payload) in news.iter().zip(&raw.received) {
            let is_withheld = Frames::new(payload).flatten().any(|frame| {
                matches!(frame, Frame::Stream { id: StreamId(0), offset, .. } if withheld(offset))
            });
            if !is_withheld {
                wanted.push(number);
            }
        }
        raw.received.clear();
        if !wanted.is_empty() {
            for part in wanted.chunks(200) {
                raw.send(PacketType::OneRtt, &ack_of(part));
            }
        }
        outcome.kept = outcome.kept.max(alive.load(Ordering::Relaxed));
        outcome.close = raw.close_by_server();
        if outcome.close.is_some() {
            break;
        }
        raw.wait(Duration::from_millis(5));
    }
    (raw, outcome)
}

#[test]
fn one_packet_that_is_never_acknowledged_keeps_no_more_than_two_windows() {
    let (_, outcome) = download(64 << 20, 64 << 10, Duration::from_secs(60), |offset| offset == 0);
    // Beside them the application's own store of unsent bytes.
    let limit = 2 * outcome.window as usize + (192 << 10);
    assert!(outcome.kept < limit, "{} kept, window {}", outcome.kept, outcome.window);
    assert_eq!((outcome.written >> 20, outcome.close), (64, None));
}

#[test]
fn one_packet_of_each_chunk_that_is_never_acknowledged_keeps_no_more_than_two_windows() {
    // A whole packet of every 64 kB.
    let withheld = |offset: u64| offset % (64 << 10) < 1_400;
    let (_, outcome) = download(32 << 20, 64 << 10, Duration::from_secs(25), withheld);
    let limit = 2 * outcome.window as usize + (192 << 10);
    assert!(outcome.kept < limit, "{} kept, window {}", outcome.kept, outcome.window);
    assert!(outcome.written > 4 << 20, "{}", outcome.written);
}

#[test]
fn who_acknowledges_everything_but_one_packet_for_long_is_shut_out() {
    let (_, outcome) =
        download(usize::MAX, 16 << 10, Duration::from_secs(120), |offset| offset == 0);
    // PROTOCOL_VIOLATION.
    assert_eq!(outcome.close, Some(0x0a));
}

#[test]
fn late_acknowledgements_let_no_more_than_the_limit_into_flight() {
    let mut raw = client(&generous());
    raw.connect();
    crate::download(&mut raw, 100 << 20);
    let handle = raw.handle.expect("a connection");
    let mut most = 0;
    // A path of ten seconds, which takes whatever comes.
    for _ in 0..40 {
        raw.wait(Duration::from_secs(10));
        let numbers = raw.numbers(PacketType::OneRtt).to_vec();
        raw.received.clear();
        for part in numbers[numbers.len().saturating_sub(40_000)..].chunks(200) {
            raw.send(PacketType::OneRtt, &ack_of(part));
        }
        raw.send(PacketType::OneRtt, &frames(put_ping));
        let connection = raw.server.connection(handle).expect("open");
        most = most.max(connection.in_flight());
        if raw.close_by_server().is_some() {
            break;
        }
    }
    assert!(most <= 16 << 20, "{most} in flight");
}
