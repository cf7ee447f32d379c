//! Clients that withhold the acknowledgement of one packet and acknowledge all later ones, so that
//! the transfer continues. The server's memory for the one packet must be bounded.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use mendcast_quic::wire::{Frame, Frames, PacketType, put_max_data, put_stream_header};
use mendcast_quic::{Connection, EcnFault, Endpoint, TransportConfig};
use units::{Ecn, Mark, StreamId};

use crate::raw::{Parameters, Raw, ack_of, frames, generous, id, varint};
use crate::{client, client_tls, config};

/// A buffer that counts its release.
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

/// Result of an endless download.
struct Outcome {
    written: usize,
    /// Maximum of written bytes kept at a time, and largest window.
    kept: usize,
    window: u64,
    close: Option<u64>,
}

/// Downloads up to `bytes` on stream 0 for at most `time`, in chunks of `chunk` bytes, like an
/// application that keeps little unsent data. Never acknowledges packets selected by `withheld`.
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
    println!("{} bytes kept at most, largest window {}", outcome.kept, outcome.window);
    assert!(outcome.kept < limit);
    assert_eq!((outcome.written >> 20, outcome.close), (64, None));
}

#[test]
fn one_packet_of_each_chunk_that_is_never_acknowledged_keeps_no_more_than_two_windows() {
    // A whole packet of every 64 kB.
    let withheld = |offset: u64| offset % (64 << 10) < 1_400;
    let (_, outcome) = download(32 << 20, 64 << 10, Duration::from_secs(25), withheld);
    let limit = 2 * outcome.window as usize + (192 << 10);
    println!("{} bytes kept at most, largest window {}", outcome.kept, outcome.window);
    assert!(outcome.kept < limit);
    assert!(outcome.written > 6 * outcome.window as usize, "{}", outcome.written);
}

#[test]
fn who_acknowledges_everything_but_one_packet_for_long_is_shut_out() {
    let (_, outcome) =
        download(usize::MAX, 16 << 10, Duration::from_secs(120), |offset| offset == 0);
    // PROTOCOL_VIOLATION.
    assert_eq!(outcome.close, Some(0x0a));
}

/// A client of a server with this limit on bytes in flight.
fn client_of(max_in_flight: u64, parameters: &Parameters) -> Raw {
    let mut config = config();
    config.transport = Arc::new(TransportConfig { max_in_flight, ..TransportConfig::default() });
    let mut raw = Raw::new(Endpoint::new(config, [3; 32]), client_tls(b"test"), parameters);
    raw.connect();
    raw
}

fn connection(raw: &mut Raw) -> &mut Connection {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open")
}

#[test]
fn late_acknowledgements_let_no_more_than_the_limit_into_flight() {
    let mut raw = client_of(1 << 20, &generous());
    crate::download(&mut raw, 20 << 20);
    // A path that takes whatever comes; an acknowledgement comes after 50 to 100 ms.
    let (mut most, mut arrived) = (0, 1);
    while connection(&mut raw).unsent(StreamId(0)) != Some(0) {
        raw.wait(Duration::from_millis(50));
        most = most.max(connection(&mut raw).in_flight());
        raw.received.clear();
        let numbers = raw.numbers(PacketType::OneRtt).to_vec();
        raw.send(PacketType::OneRtt, &ack_of(&numbers[..arrived]));
        arrived = numbers.len();
        assert_eq!(raw.close, None);
    }
    assert!((1_000 << 10..=1 << 20).contains(&most), "{most} in flight");
}

#[test]
fn credit_byte_by_byte_lets_no_more_packets_into_flight_than_large_ones() {
    let limit = 100;
    let mut parameters = generous();
    parameters.retain(|(parameter, _)| *parameter != id::INITIAL_MAX_DATA);
    let mut raw = client_of(1_200 * limit, &parameters);
    crate::download(&mut raw, 1 << 20);
    for credit in 1..=3 * limit {
        raw.send(PacketType::OneRtt, &frames(|w| put_max_data(w, credit)));
        raw.wait(Duration::from_micros(50));
    }
    let counts =
        |frame: Frame<'_>| matches!(frame, Frame::Stream { .. } | Frame::DataBlocked { .. });
    let sent = raw.opened.iter().filter(|p| Frames::new(&p.payload).flatten().any(counts));
    let sent = sent.count();
    assert!((90..=100).contains(&sent), "{sent} packets");
    assert!(connection(&mut raw).unsent(StreamId(0)) > Some((1 << 20) - limit));
}

/// Bytes of a frame of a live stream of 2 Mbps.
const FRAME: usize = 10_000;

/// Writes a frame of a live stream each 40 ms for `time`. The client acknowledges everything each
/// `every`. Returns the most bytes in flight and the largest window.
fn live(raw: &mut Raw, frame: &mut u32, time: Duration, every: Duration) -> (u64, u64) {
    let (end, mut due, mut acknowledged) = (raw.now + time, raw.now + every, 0);
    let (mut in_flight, mut window) = (0, 0);
    while raw.now < end {
        *frame += 1;
        let media_time = Some(Duration::from_millis(40) * *frame);
        let mark = Mark { media_time, deadline: None, catching_up: None };
        let data = Bytes::from(vec![7; FRAME]);
        connection(raw).write_marked(StreamId(0), data, Some(mark)).expect("an open stream");
        raw.collect();
        raw.wait(Duration::from_millis(20));
        if raw.now >= due {
            due = raw.now + every;
            let numbers = raw.numbers(PacketType::OneRtt)[acknowledged..].to_vec();
            acknowledged += numbers.len();
            raw.received.clear();
            for part in numbers.chunks(200) {
                raw.send(PacketType::OneRtt, &ack_of(part));
            }
        }
        in_flight = in_flight.max(connection(raw).in_flight());
        window = window.max(connection(raw).window());
        raw.wait(Duration::from_millis(20));
        assert_eq!(raw.close, None);
    }
    (in_flight, window)
}

#[test]
fn acknowledgements_of_a_live_stream_withheld_for_seconds_gain_no_more_than_the_limit() {
    const LIMIT: u64 = 256 << 10;
    // Two datagrams for each probe time-out do not ask the window (RFC 9002, section 7.5).
    const PROBES: u64 = 2 * 5 * 1_452;
    for silence in [400, 1_000, 2_000, 5_000].map(Duration::from_millis) {
        let mut raw = client_of(LIMIT, &generous());
        crate::download(&mut raw, 1);
        let mut frame = 0;
        live(&mut raw, &mut frame, Duration::from_secs(5), Duration::from_millis(20));
        let (in_flight, window) = live(&mut raw, &mut frame, 6 * silence, silence);
        println!("{silence:?}: {in_flight} in flight, window {window}");
        assert!(window <= LIMIT && in_flight <= LIMIT + PROBES, "{silence:?}: {in_flight}");
        // The window does grow.
        assert!(in_flight >= LIMIT / 4, "{silence:?}: {in_flight}");
    }
}

/// Downloads for two seconds over a path that drops marked packets if `drops`. The client
/// acknowledges the others, and claims the counts that `forge` makes of the number of marked
/// packets that were sent. Returns the faults of the path and how many of its last 100 packets are
/// marked.
fn forged(drops: bool, forge: fn(u64) -> u64) -> ([u64; 4], usize) {
    let mut raw = client_of(64 << 10, &generous());
    let (mut datagrams, mut opened) = (raw.datagrams.len(), raw.opened.len());
    crate::download(&mut raw, 4 << 20);
    let (mut marked, mut last) = (0, Vec::new());
    for _ in 0..100 {
        raw.wait(Duration::from_millis(20));
        let news = raw.datagrams[datagrams..].iter().zip(&raw.opened[opened..]);
        let news: Vec<(u64, bool)> =
            news.map(|(datagram, packet)| (packet.number, datagram.ecn == Ecn::Ect0)).collect();
        (datagrams, opened) = (raw.datagrams.len(), raw.opened.len());
        marked += news.iter().filter(|(_, is_marked)| *is_marked).count() as u64;
        let heard = news.iter().filter(|(_, is_marked)| !(drops && *is_marked));
        let numbers: Vec<u64> = heard.map(|(number, _)| *number).collect();
        last.extend(news);
        for part in numbers.chunks(200) {
            let mut frame = ack_of(part);
            // The type with counts: ECT(0), ECT(1), CE.
            frame[0] = 0x03;
            [forge(marked), 0, 0].map(varint).iter().for_each(|count| frame.extend(count));
            raw.send(PacketType::OneRtt, &frame);
        }
    }
    assert_eq!(raw.close, None);
    let last = last.iter().rev().take(100).filter(|(_, is_marked)| *is_marked).count();
    let stats = *connection(&mut raw).stats();
    (EcnFault::ALL.map(|fault| stats.ecn_failed[fault]), last)
}

#[test]
fn forged_ecn_counts_do_not_keep_a_path_marked() {
    let [dropped, miscounted] = [[1, 0, 0, 0], [0, 0, 0, 1]];
    // Marked packets do not arrive, and the client claims that all of them did.
    assert_eq!(forged(true, |marked| marked), (dropped, 0));
    // More than were sent, or fewer than were acknowledged.
    assert_eq!(forged(false, |marked| marked + (1 << 40)), (miscounted, 0));
    assert_eq!(forged(false, |_| 0), (miscounted, 0));
    // Counts that add up keep the marks.
    assert_eq!(forged(false, |marked| marked), ([0; 4], 100));
}
