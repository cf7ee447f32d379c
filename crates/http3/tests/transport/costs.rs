//! Processing time of the most expensive known datagrams, from arrival to the last event, with an
//! application that answers at once. Run manually on an idle machine:
//!
//! `cargo test --release -p mendcast-http3 --test transport costs -- --ignored --nocapture`

use std::time::{Duration, Instant};

use mendcast_quic::Datagram;
use mendcast_quic::wire::{put_reset_stream, put_stop_sending};

use super::*;

/// Bytes of frames per datagram.
const ROOM: usize = 1_350;
/// Number of datagrams per case.
const ROUNDS: u64 = 200;
/// Maximum number of concurrent requests of the server in these tests.
const REQUESTS: u64 = 100;

fn id(n: u64) -> StreamId {
    StreamId(4 * n)
}

/// Fills a datagram with copies of `part`.
fn full(part: &[u8]) -> Vec<u8> {
    part.repeat(ROOM / part.len())
}

/// Returns `data` as consecutive STREAM frames, each for a separate datagram.
fn pieces(id: StreamId, from: u64, data: &[u8]) -> Vec<Vec<u8>> {
    let frames = data.chunks(1_000).zip(0..);
    frames.map(|(piece, n)| stream(id, from + 1_000 * n, piece, false)).collect()
}

/// Returns a STREAM frame that extends to the end of the datagram.
fn filling(id: StreamId, offset: u64, data: &[u8], fin: bool) -> Vec<u8> {
    let header = frames(|w| put_stream_header(w, id, offset, None, fin));
    [header, data.to_vec()].concat()
}

/// Returns a HEADERS frame with `value`, already encoded, as its last field.
fn head(value: &[u8], huffman: bool) -> Vec<u8> {
    let mut section = GET[2..].to_vec();
    // Literal with a name of the static table: 95, user-agent.
    section.extend([0x5f, 80]);
    let (flag, length) = (if huffman { 0x80 } else { 0 }, value.len());
    section.push(flag | 0x7f);
    let mut rest = length - 0x7f;
    while rest >= 0x80 {
        section.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    section.push(rest as u8);
    section.extend_from_slice(value);
    [vec![0x01], varint(section.len() as u64), section].concat()
}

/// Returns `length` bytes of random Huffman codes from a list of code values and lengths (RFC 7541,
/// section 5.2).
fn huffman(codes: &[(u64, u32)], length: usize) -> Vec<u8> {
    let (mut out, mut queue, mut queued, mut random) = (Vec::new(), 0, 0, 0x9e37_79b9_u64);
    while out.len() < length - 4 {
        // Marsaglia's xorshift64.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let (code, bits) = codes[(random >> 32) as usize % codes.len()];
        queue = queue << bits | code;
        queued += bits;
        while queued >= 8 {
            queued -= 8;
            out.push((queue >> queued) as u8);
        }
        queue &= (1 << queued) - 1;
    }
    out.push((queue << (8 - queued)) as u8 | 0xff >> queued);
    out
}

impl Pair {
    /// Returns the server's processing time of a datagram with this payload.
    fn time(&mut self, payload: &[u8]) -> Duration {
        let mut packet = self.raw.packet(PacketType::OneRtt, payload);
        let addresses = Addresses::of(self.raw.address);
        let (now, handle) = (self.raw.now, self.raw.handle.expect("a connection"));
        let mut reply = Vec::new();
        let start = Instant::now();
        let datagram = Datagram { addresses, ecn: Ecn::NotEct, payload: &mut packet[..] };
        self.raw.server.handle_datagram(now, datagram, &mut reply);
        while let Some(event) = self.raw.server.poll_event(handle) {
            let QuicEvent::Stream(event) = event else { continue };
            let connection = self.raw.server.connection(handle).expect("open");
            let t = &mut OverQuic::new(connection, now);
            self.server.on_stream_event(t, event);
            while let Some(event) = self.server.poll_event() {
                match event {
                    Event::Request { id, end: true, .. } => {
                        self.server.respond(t, id, 204, &[], true).expect("in order");
                    }
                    Event::BodyReadable(id) => {
                        while let http3::BodyRead::Data(_) = self.server.read_body(t, id, 65_536) {}
                    }
                    _ => {}
                }
            }
        }
        let time = start.elapsed();
        assert_eq!(self.raw.close_by_server(), None);
        self.send(&[0x01]);
        time
    }
}

/// Prints the median processing time of a datagram. `datagram` builds it from the round's number,
/// and `before` builds the datagrams that precede it.
fn measure(what: &str, before: impl Fn(u64) -> Vec<Vec<u8>>, datagram: impl Fn(u64) -> Vec<u8>) {
    let mut pair = Pair::new();
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            before(round).iter().for_each(|payload| {
                pair.time(payload);
            });
            pair.time(&datagram(round))
        })
        .collect();
    times.sort_unstable();
    println!("{:7.1} µs  {what}", times[times.len() / 2].as_nanos() as f64 / 1e3);
}

#[test]
#[ignore = "a measurement"]
fn costs() {
    let none = |_| Vec::new();
    measure("PINGs", none, |_| full(&[0x01]));

    let empty = full(&[0x21, 0x00]);
    let size = empty.len() as u64;
    measure("empty unknown frames on a request stream", none, |n| {
        filling(id(0), n * size, &empty, false)
    });
    measure("empty unknown frames on the control stream", none, |n| {
        filling(CONTROL, 3 + n * size, &empty, false)
    });
    let mut start = GET.to_vec();
    start[4] = 0xc0 | 20;
    let post = start.clone();
    let single = full(&[0x00, 0x01, 0x07]);
    measure("DATA frames of one byte", none, |n| match n {
        0 => stream(id(0), 0, &post, false),
        _ => filling(id(0), GET.len() as u64 + (n - 1) * single.len() as u64, &single, false),
    });
    let opened = |n| if n == 0 { vec![stream(id(0), 0, &[0x01], false)] } else { Vec::new() };
    let update = full(&[0x80, 0x0f, 0x07, 0x00, 0x01, 0x00]);
    measure("PRIORITY_UPDATE for an open request", opened, |n| {
        filling(CONTROL, 3 + n * update.len() as u64, &update, false)
    });
    let mut updates = Vec::new();
    for n in (0..REQUESTS).filter(|n| 4 * n < 64).cycle().take(ROOM / 6) {
        updates.extend([0x80, 0x0f, 0x07, 0x00, 0x01, 4 * n as u8]);
    }
    measure("PRIORITY_UPDATE for requests to come", none, |n| {
        filling(CONTROL, 3 + n * updates.len() as u64, &updates, false)
    });
    measure("unknown unidirectional streams", none, |n| {
        let ids = (0..5).map(|i| StreamId(CONTROL.0 + 4 * (1 + 5 * n + i)));
        ids.flat_map(|id| stream(id, 0, &[0x21], true)).collect()
    });
    let many = ROOM as u64 / 15;
    measure("requests", none, |n| {
        (0..many).flat_map(|i| stream(id(many * n + i), 0, &GET, true)).collect()
    });
    measure("requests that are cancelled before they arrive", none, |n| {
        let ids = (0..REQUESTS).map(|i| id(REQUESTS * n + i));
        ids.flat_map(|id| frames(|w| put_reset_stream(w, id, 0x10c, 0))).collect()
    });
    let open = |n| {
        let ids = (0..many).map(|i| id(many * n + i));
        vec![ids.flat_map(|id| stream(id, 0, &GET, false)).collect()]
    };
    measure("requests that are cancelled twice", open, |n| {
        let ids = (0..many).map(|i| id(many * n + i));
        ids.flat_map(|id| {
            frames(|w| {
                put_reset_stream(w, id, 0x10c, GET.len() as u64);
                put_stop_sending(w, id, 0x10c);
            })
        })
        .collect()
    });
    let dripping = |n: u64| {
        let open = (0..REQUESTS).map(|i| stream(id(i), 0, &[0x01, 0x7f, 0x00], false));
        if n == 0 { vec![open.collect::<Vec<_>>().concat()] } else { Vec::new() }
    };
    measure("heads that grow by a byte", dripping, |n| {
        // The bytes after the head form an unknown frame.
        (0..REQUESTS).flat_map(|i| stream(id(i), 3 + n, &[0x00], false)).collect()
    });
    let short = [(0x00, 5), (0x14, 6), (0x5d, 7), (0xfb, 8)];
    let long = [(0x03ff_ffee, 26), (0x3ffa, 14)];
    for (what, codes) in [("five-bit", &short[..1]), ("short", &short), ("long", &long)] {
        let whole = head(&huffman(codes, 1_200), true);
        measure(&format!("a head of {what} Huffman codes"), none, |n| {
            filling(id(n), 0, &whole, true)
        });
    }
    let large = head(&huffman(&short, 9_500), true);
    let (last, rest) = large.split_last().expect("not empty");
    measure(
        "the last byte of a head of 9.5 kB",
        |n| pieces(id(n), 0, rest),
        |n| stream(id(n), rest.len() as u64, &[*last], true),
    );
    measure(
        "the last bytes of six such heads",
        |n| (0..6).flat_map(|i| pieces(id(6 * n + i), 0, rest)).collect(),
        |n| (0..6).flat_map(|i| stream(id(6 * n + i), rest.len() as u64, &[*last], true)).collect(),
    );
    let cookies = |_| {
        let mut section = GET[2..].to_vec();
        section.extend([0x55, 0x01, b'a'].repeat(400));
        [vec![0x01], varint(section.len() as u64), section].concat()
    };
    measure("a head of 400 cookies", none, |n| filling(id(n), 0, &cookies(n), true));
}
