//! CPU time of the most expensive datagrams that an established client can send. Each is measured
//! from its arrival until the server has answered. The minimum of several runs counts, because
//! machines are shared. Datagrams with TLS handshakes are excluded; receivers budget them.
//!
//! In an optimised build, `MENDCAST_COSTS=1` checks the limit and prints the table:
//! `MENDCAST_COSTS=1 cargo test --release -p mendcast-quic --test hostile costs -- --nocapture`

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use bytes::Bytes;
use mendcast_quic::Connection;
use mendcast_quic::wire::{
    ConnectionId, PacketType, put_max_stream_data, put_new_connection_id, put_path_challenge,
    put_ping, put_reset_stream, put_retire_connection_id, put_stop_sending, put_stream_header,
};
use units::StreamId;

use crate::raw::{Raw, ack, ack_of, frames, generous};
use crate::{client, connected, download_of, downloading};

/// Payload bytes of a large datagram.
const ROOM: usize = 1_350;
/// Bytes in flight at most, by default.
const FLIGHT: u64 = 8 << 20;
/// IDs that a client may have retired without an acknowledgement.
const RETIRED: u64 = 16;
/// The limit in an optimised build.
const LIMIT: Duration = Duration::from_micros(100);
/// Limit in any build, as a multiple of the cost of 1,350 PINGs.
const RATIO: u32 = 60;

/// Fills a payload with frames, the first `n` for as many as fit.
fn filled(mut frame: impl FnMut(u64) -> Vec<u8>) -> Vec<u8> {
    let mut out = Vec::new();
    for n in 0.. {
        let next = frame(n);
        if out.len() + next.len() > ROOM {
            return out;
        }
        out.extend(next);
    }
    out
}

/// An ACK frame of `count` ranges of one number each, every second one downwards from `largest`.
fn every_second(largest: u64, count: u64) -> Vec<u8> {
    let mut numbers: Vec<u64> = (0..count).map(|n| largest - 2 * n).collect();
    numbers.reverse();
    ack_of(&numbers)
}

/// A client to which as much of a long answer is on its way as may be: some thousand packets, and
/// nothing waits.
fn with_in_flight() -> Raw {
    // Kept, because giving memory back to the system is what would be measured.
    static BODY: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(vec![7; FLIGHT as usize]));
    let mut raw = client(&generous());
    raw.connect();
    download_of(&mut raw, BODY.slice(..1 << 20));
    let mut arrived = 1;
    for _ in 0..400 {
        raw.wait(Duration::from_millis(50));
        let (in_flight, unsent) = (connection(&mut raw).in_flight(), unsent(&mut raw));
        if unsent == 0 && in_flight > FLIGHT - FLIGHT / 10 {
            return raw;
        }
        // Packets received within the 50 ms before.
        let numbers = raw.numbers(PacketType::OneRtt).to_vec();
        raw.send(PacketType::OneRtt, &ack_of(&numbers[..arrived]));
        arrived = numbers.len();
        raw.received.clear();
        let flying = connection(&mut raw).in_flight() + self::unsent(&mut raw);
        let more = (FLIGHT - FLIGHT / 20).saturating_sub(flying) as usize;
        connection(&mut raw).write(StreamId(0), BODY.slice(..more)).expect("an open stream");
        raw.collect();
    }
    panic!("no more than {} bytes come into flight", connection(&mut raw).in_flight());
}

fn connection(raw: &mut Raw) -> &mut Connection {
    let handle = raw.handle.expect("a connection");
    raw.server.connection(handle).expect("open")
}

fn unsent(raw: &mut Raw) -> u64 {
    connection(raw).unsent(StreamId(0)).expect("an open stream")
}

/// Ack-eliciting packets that are open.
fn open(raw: &mut Raw) -> u64 {
    connection(raw).in_flight() / 1_452
}

/// A client with 4,000 packets, all but the newest just declared lost.
fn with_losses() -> Raw {
    let mut raw = connected();
    let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
    raw.send(PacketType::OneRtt, &ack(0, largest.min(3)));
    for _ in 0..4_000 {
        raw.skip_numbers(PacketType::OneRtt, 1);
        raw.send(PacketType::OneRtt, &frames(put_ping));
    }
    let largest = raw.largest(PacketType::OneRtt).expect("1-RTT packets");
    raw.send(PacketType::OneRtt, &ack(largest, largest));
    // Losses are declared in passes, each due at once.
    while open(&mut raw) > 0 {
        raw.wait(Duration::from_micros(1));
    }
    assert_eq!(raw.close, None);
    raw
}

/// From the arrival of a payload until nothing more is said to it.
fn cost(raw: &mut Raw, payload: &[u8]) -> Duration {
    let mut packet = raw.packet(PacketType::OneRtt, payload);
    let handle = raw.handle.expect("a connection");
    let mut buffer = vec![0; 65_507];
    let begin = Instant::now();
    raw.outcome_alone(&mut packet);
    while raw.server.poll_transmit(handle, raw.now, &mut buffer, 10).is_some() {}
    let time = begin.elapsed();
    assert_eq!(raw.close_by_server(), None);
    time
}

/// A way to make a client and a payload of it.
struct Case {
    name: &'static str,
    client: fn() -> Raw,
    payload: fn(&mut Raw) -> Vec<u8>,
    /// Packets of the server's own that the payload settles.
    settles: fn(&mut Raw) -> u64,
}

fn id(n: u64) -> StreamId {
    StreamId(4 * n)
}

fn largest(raw: &Raw) -> u64 {
    raw.largest(PacketType::OneRtt).expect("1-RTT packets")
}

fn none(_: &mut Raw) -> u64 {
    0
}

/// 1,350 PINGs, to compare with.
fn pings(_: &mut Raw) -> Vec<u8> {
    vec![1; ROOM]
}

const CASES: [Case; 12] = [
    Case {
        name: "one-byte STREAM frames on one stream, backwards, with gaps",
        client: connected,
        payload: |_| {
            filled(|n| {
                frames(|w| {
                    put_stream_header(w, id(0), 3 * (500 - n), Some(1), false);
                    w.bytes(b"x");
                })
            })
        },
        settles: none,
    },
    Case {
        name: "100 streams opened by empty STREAM frames",
        client: connected,
        payload: |_| {
            filled(|n| match n {
                0..100 => frames(|w| put_stream_header(w, id(n), 0, Some(0), false)),
                _ => vec![1],
            })
        },
        settles: none,
    },
    Case {
        name: "100 streams opened, reset and stopped, the last first",
        client: connected,
        payload: |_| {
            filled(|n| match n {
                0..100 => frames(|w| {
                    put_reset_stream(w, id(99 - n), 1, 0);
                    put_stop_sending(w, id(99 - n), 1);
                }),
                _ => vec![1],
            })
        },
        settles: none,
    },
    Case {
        name: "MAX_STREAM_DATA, rising by a byte, for a blocked stream",
        client: || downloading(&crate::raw::honest(), 4 << 20),
        payload: |_| filled(|n| frames(|w| put_max_stream_data(w, id(0), (2 << 20) + n))),
        settles: none,
    },
    Case {
        name: "16 NEW_CONNECTION_IDs that retire each other, and the last again",
        client: connected,
        payload: |_| {
            filled(|n| {
                let n = (n + 1).min(RETIRED);
                let id = ConnectionId::new(&n.to_be_bytes()).expect("eight bytes");
                frames(|w| put_new_connection_id(w, n, n, &id, &[1; 16]))
            })
        },
        settles: none,
    },
    Case {
        name: "RETIRE_CONNECTION_ID of the same number",
        client: connected,
        payload: |_| filled(|_| frames(|w| put_retire_connection_id(w, 1))),
        settles: none,
    },
    Case {
        name: "150 PATH_CHALLENGE frames",
        client: connected,
        payload: |_| filled(|n| frames(|w| put_path_challenge(w, n.to_be_bytes()))),
        settles: none,
    },
    Case {
        name: "ACK of one old loss, settled, 225 times",
        client: with_losses,
        payload: |raw| {
            let old = largest(raw) - 3_500;
            raw.send(PacketType::OneRtt, &ack(old, old));
            filled(|_| ack(old, old))
        },
        settles: none,
    },
    Case {
        name: "ACK of 660 ranges, all settled",
        client: with_losses,
        payload: |raw| {
            let largest = largest(raw);
            raw.send(PacketType::OneRtt, &every_second(largest, 660));
            every_second(largest, 660)
        },
        settles: none,
    },
    Case {
        name: "ACK of 660 ranges, each an old loss",
        client: with_losses,
        payload: |raw| every_second(largest(raw), 660),
        settles: |_| 660,
    },
    Case {
        name: "ACK that settles all in flight",
        client: with_in_flight,
        payload: |raw| ack_of(raw.numbers(PacketType::OneRtt)),
        settles: open,
    },
    Case {
        name: "ACK of the newest in flight: all else is lost",
        client: with_in_flight,
        payload: |raw| ack(largest(raw), largest(raw)),
        settles: none,
    },
];

#[test]
fn the_dearest_datagrams_have_a_limit() {
    let strict = std::env::var_os("MENDCAST_COSTS").is_some();
    let rounds = if strict { 12 } else { 3 };
    let least =
        |client: fn() -> Raw, payload: fn(&mut Raw) -> Vec<u8>, settles: fn(&mut Raw) -> u64| {
            let times = (0..rounds).map(|_| {
                let mut raw = client();
                let settled = settles(&mut raw);
                let payload = payload(&mut raw);
                (cost(&mut raw, &payload), settled)
            });
            times.min().expect("a round at least")
        };
    let (plain, _) = least(connected, pings, none);
    println!("{:8.1} µs  1,350 PING frames", plain.as_secs_f64() * 1e6);
    for case in &CASES {
        let (time, settled) = least(case.client, case.payload, case.settles);
        let per_packet = (time / settled.max(1) as u32).as_nanos();
        let packets = match settled {
            0 => String::new(),
            _ => format!(" ({settled} packets, {per_packet} ns each)"),
        };
        println!("{:8.1} µs  {}{packets}", time.as_secs_f64() * 1e6, case.name);
        let packets = settled as u32;
        // Debug builds on busy machines vary; only wrong orders of growth show.
        assert!(packets > 0 || time < RATIO * plain, "{}: {time:?}, PING {plain:?}", case.name);
        assert!(!strict || time < LIMIT, "{}: {time:?}", case.name);
    }
}
