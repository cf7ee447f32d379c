//! Frames of a schedule's packets (RFC 9000, section 19): mostly well-formed and valid in the
//! connection's state, to reach deep states, mixed with arbitrary ones.

use mendcast_quic::wire::{EcnCounts, types};
use units::{Direction, StreamId};

use super::client::{Client, varint, varints};
use super::pattern;
use super::script::Script;
use super::world::client_id;

/// Kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Ping,
    Padding,
    Ack,
    Stream,
    AnyStream,
    Reset,
    StopSending,
    MaxData,
    MaxStreamData,
    MaxStreams,
    NewId,
    AnyNewId,
    RetireId,
    AnyRetireId,
    Challenge,
    Response,
    WrongResponse,
    Blocked,
    Crypto,
    AnyAck,
    Close,
    Anything,
}

/// What lawful clients send, by weight.
pub const LAWFUL: &[(Kind, u8)] = &[
    (Kind::Ping, 6),
    (Kind::Padding, 2),
    (Kind::Ack, 12),
    (Kind::Stream, 10),
    (Kind::Reset, 2),
    (Kind::StopSending, 3),
    (Kind::MaxData, 3),
    (Kind::MaxStreamData, 3),
    (Kind::MaxStreams, 2),
    (Kind::NewId, 3),
    (Kind::RetireId, 6),
    (Kind::Challenge, 3),
    (Kind::Response, 4),
    (Kind::WrongResponse, 2),
    (Kind::Blocked, 2),
];

/// What others send besides, by weight.
pub const LAWLESS: &[(Kind, u8)] = &[
    (Kind::AnyStream, 4),
    (Kind::AnyNewId, 4),
    (Kind::AnyRetireId, 2),
    (Kind::Crypto, 2),
    (Kind::AnyAck, 3),
    (Kind::Close, 1),
    (Kind::Anything, 2),
];

/// Appends a frame. Returns its description for the log.
pub fn put(out: &mut Vec<u8>, kind: Kind, client: &mut Client, script: &mut Script<'_>) -> String {
    let from = out.len();
    client.data_sent += 100;
    match kind {
        Kind::Ping => out.push(0x01),
        Kind::Padding => out.extend(std::iter::repeat_n(0, 1 + usize::from(script.byte()))),
        Kind::Ack => put_ack(out, client, script),
        Kind::Stream => put_stream(out, client, script),
        // A client without an ID of its own may not give out others (RFC 9000, section 19.15).
        Kind::NewId if client.ids[0].is_empty() => out.push(0x01),
        Kind::NewId => {
            let sequence = client.sequence;
            let kept = script.below(4);
            client.sequence += 1;
            let len = client.ids[0].len().max(3);
            put_new_id(out, client, sequence, sequence.saturating_sub(u64::from(kept)), len);
        }
        Kind::RetireId => {
            // Not the ID that the packet itself is addressed to.
            let others = client.server_ids.len() - 1;
            let place = if others == 0 { 0 } else { usize::from(script.byte()) % others };
            let place = if place >= client.active { place + 1 } else { place };
            match client.server_ids.get(place).filter(|_| others > 0) {
                Some(&(sequence, _)) => {
                    client.server_ids.remove(place);
                    client.active -= usize::from(place < client.active);
                    integers(out, types::RETIRE_CONNECTION_ID, &[sequence]);
                }
                None => out.push(0x01),
            }
        }
        Kind::Challenge => {
            out.push(0x1a);
            out.extend([script.byte(); 8]);
        }
        Kind::Response | Kind::WrongResponse => {
            let known = client.challenges.last().filter(|_| kind == Kind::Response);
            let data = known.map_or([script.byte(); 8], |(data, _)| *data);
            out.push(0x1b);
            out.extend(data);
        }
        Kind::AnyStream
        | Kind::AnyNewId
        | Kind::AnyRetireId
        | Kind::Crypto
        | Kind::AnyAck
        | Kind::Close
        | Kind::Anything => put_lawless(out, kind, client, script),
        _ => put_about_streams(out, kind, client, script),
    }
    format!("{kind:?}{:02x?}", &out[from..out.len().min(from + 24)])
}

/// What lawful clients say about streams, beside their data.
fn put_about_streams(out: &mut Vec<u8>, kind: Kind, client: &mut Client, script: &mut Script<'_>) {
    match kind {
        Kind::Reset => {
            let stream = client.stream(client_stream(client, script.byte()));
            let (id, offset, over) = (stream.id, stream.offset, stream.over);
            stream.over = true;
            let beyond = if over { 0 } else { u64::from(script.below(3)) };
            integers(out, types::RESET_STREAM, &[id.0, script.number(), offset + beyond]);
            client.stream(id).offset += beyond;
        }
        Kind::StopSending => {
            let id =
                if script.one_in(40) { any_stream(script) } else { server_stream(client, script) };
            client.stream(id);
            integers(out, types::STOP_SENDING, &[id.0, script.number()]);
        }
        Kind::MaxData => {
            let max = limit(script);
            client.allow_data(max);
            integers(out, types::MAX_DATA, &[max]);
        }
        Kind::MaxStreamData => {
            let (id, max) = (server_stream(client, script), limit(script));
            client.allow_stream_data(id, max);
            integers(out, types::MAX_STREAM_DATA, &[id.0, max]);
        }
        Kind::MaxStreams => {
            let (unidirectional, max) = (script.byte() & 1, u64::from(script.byte()));
            let direction = [Direction::Bidirectional, Direction::Unidirectional];
            client.allow_streams(direction[usize::from(unidirectional)], max);
            integers(out, types::MAX_STREAMS_BIDI + u64::from(unidirectional), &[max]);
        }
        Kind::Blocked => match script.below(4) {
            0 => integers(out, types::DATA_BLOCKED, &[script.number()]),
            1 => {
                let id = client_stream(client, script.byte());
                client.stream(id);
                integers(out, types::STREAM_DATA_BLOCKED, &[id.0, script.number()]);
            }
            kind => {
                let max = script.number().min(1 << 60);
                integers(out, types::STREAMS_BLOCKED_BIDI + u64::from(kind & 1), &[max]);
            }
        },
        _ => unreachable!("{kind:?} is not about streams"),
    }
}

/// What no lawful client sends, or only at its end.
fn put_lawless(out: &mut Vec<u8>, kind: Kind, client: &mut Client, script: &mut Script<'_>) {
    match kind {
        Kind::AnyStream => {
            let fin = script.byte() & 1;
            let (id, offset) = (any_stream(script), script.number());
            let data = pattern(offset, usize::from(script.below(60)));
            put_data(out, id, offset.min((1 << 62) - 100), data, fin == 1);
            client.stream(id);
        }
        Kind::AnyNewId => {
            let sequence = u64::from(script.byte());
            let prior = if script.one_in(4) { script.number() } else { sequence };
            let len = usize::from(3 + script.below(18));
            client.sequence = client.sequence.max(sequence + 1);
            put_new_id(out, client, sequence, prior, len);
        }
        Kind::AnyRetireId => {
            integers(out, types::RETIRE_CONNECTION_ID, &[u64::from(script.byte())]);
        }
        Kind::Crypto => {
            let offset = script.number();
            integers(out, types::CRYPTO, &[offset.min((1 << 62) - 100), 10]);
            out.extend([script.byte(); 10]);
        }
        Kind::AnyAck => {
            let largest = client.largest().saturating_add(script.number()).saturating_sub(4);
            let count = script.below(4);
            let first = script.number();
            integers(out, types::ACK, &[largest.min(1 << 61), 0, u64::from(count), first]);
            (0..2 * count).for_each(|_| varint(out, script.number()));
        }
        Kind::Close => {
            let application = script.byte() & 1;
            integers(out, types::CONNECTION_CLOSE + u64::from(application), &[script.number()]);
            if application == 0 {
                varint(out, 0);
            }
            varint(out, 5);
            out.extend(b"enoug");
        }
        Kind::Anything => {
            client.wild = true;
            let len = 1 + script.below(12);
            (0..len).for_each(|_| out.push(script.byte()));
        }
        _ => unreachable!("{kind:?} is lawful"),
    }
}

fn integers(out: &mut Vec<u8>, ty: u64, fields: &[u64]) {
    varint(out, ty);
    varints(out, fields);
}

/// A limit that the client may announce: in steps, so that the server meets it now and then.
fn limit(script: &mut Script<'_>) -> u64 {
    match script.byte() {
        small @ 0..=99 => u64::from(small) * 1_000,
        middle @ 100..=199 => u64::from(middle) << 14,
        _ => (1 << 62) - 1,
    }
}

/// A stream that the client opens, within the server's limits.
pub fn client_stream(client: &Client, byte: u8) -> StreamId {
    match byte {
        bidirectional @ 0..=199 => StreamId(u64::from(bidirectional) % client.streams_allowed * 4),
        unidirectional => StreamId(u64::from(unidirectional % 4) * 4 + 2),
    }
}

/// A stream that the server sends on.
fn server_stream(client: &mut Client, script: &mut Script<'_>) -> StreamId {
    let byte = script.byte();
    let opened = client.opened_by_server();
    if byte & 3 == 0 && !opened.is_empty() {
        return opened[usize::from(byte >> 2) % opened.len()];
    }
    // Whatever is said of a stream of the client opens it.
    let id = client_stream(client, byte % 200);
    client.stream(id);
    id
}

fn any_stream(script: &mut Script<'_>) -> StreamId {
    if script.one_in(4) { StreamId(script.number()) } else { StreamId(u64::from(script.below(40))) }
}

fn put_data(out: &mut Vec<u8>, id: StreamId, offset: u64, data: &[u8], fin: bool) {
    varint(out, 0x0e | u64::from(fin));
    varints(out, &[id.0, offset, data.len() as u64]);
    out.extend(data);
}

/// The next bytes of a stream of the client, sometimes with a gap before, or earlier ones again.
fn put_stream(out: &mut Vec<u8>, client: &mut Client, script: &mut Script<'_>) {
    let stream = client.stream(client_stream(client, script.byte()));
    let shape = script.byte();
    let len: u64 = match shape & 3 {
        0 => 0,
        1 => 1,
        2 => 40,
        _ => 600,
    };
    let offset = match shape >> 2 & 3 {
        _ if stream.over => stream.offset.saturating_sub(len),
        0 | 1 => stream.offset,
        2 => stream.offset + u64::from(script.byte()),
        _ => stream.offset.saturating_sub(u64::from(script.byte())),
    };
    let end = offset + if stream.over { len.min(stream.offset) } else { len };
    let fin = shape & 0x70 == 0x70 && end >= stream.offset && !stream.over;
    stream.over |= fin;
    stream.offset = stream.offset.max(end);
    let id = stream.id;
    client.data_sent += end - offset;
    put_data(out, id, offset, pattern(offset, (end - offset) as usize), fin);
}

fn put_new_id(out: &mut Vec<u8>, client: &mut Client, sequence: u64, prior: u64, len: usize) {
    let id = client_id(sequence, len);
    integers(out, types::NEW_CONNECTION_ID, &[sequence, prior.min(sequence), len as u64]);
    out.extend(&id);
    out.extend(reset_token(sequence));
    // A client without an ID of its own may not give out others.
    let known = client.ids.contains(&id);
    if !client.ids[0].is_empty() && !known {
        client.ids.push(id);
    }
}

/// The token of a stateless reset for the client's ID with this number.
pub fn reset_token(sequence: u64) -> [u8; 16] {
    [sequence as u8; 16]
}

/// Writes an ACK of some received packets, except withheld ones.
fn put_ack(out: &mut Vec<u8>, client: &Client, script: &mut Script<'_>) {
    let shape = script.byte();
    let ranges = acknowledged(client, shape, script);
    let counts = match shape >> 4 & 7 {
        0..=3 => None,
        4 | 5 => Some(client.marks),
        6 => Some(EcnCounts { ce: client.marks.ce + 3, ..client.marks }),
        _ => Some(EcnCounts { ect0: u64::from(script.byte()), ect1: 1, ce: 0 }),
    };
    let delay = if shape & 0x80 == 0 { 0 } else { script.number() };
    put_ranges(out, &ranges, delay, counts);
}

/// Ranges of received packet numbers, in descending order, by their ends.
pub fn acknowledged(client: &Client, shape: u8, script: &mut Script<'_>) -> Vec<(u64, u64)> {
    let mut known = client.received.clone();
    for held in client.held.iter() {
        known.remove(held.clone());
    }
    let all = known.iter().rev().map(|range| (range.start, range.end - 1));
    let newest = known.last().map_or(0, |range| range.end - 1);
    match shape & 15 {
        0..=4 => all.take(64).collect(),
        5 | 6 => vec![(newest, newest)],
        7 => {
            let below = newest.saturating_sub(u64::from(script.byte()));
            vec![(below, below)]
        }
        8 => {
            let below = newest.saturating_sub(u64::from(script.byte()));
            all.filter(|(low, _)| *low <= below)
                .map(|(low, high)| (low, high.min(below)))
                .take(64)
                .collect()
        }
        9 => all.take(1).map(|(low, high)| (low.max(high.saturating_sub(2)), high)).collect(),
        10 => all.skip(1).take(64).collect(),
        every => {
            let step = u64::from(every - 9);
            let most = 1 + u64::from(script.byte());
            let numbers = (0..most).map_while(|n| newest.checked_sub(n * step));
            numbers.filter(|&n| known.contains(n)).map(|n| (n, n)).collect()
        }
    }
}

/// An ACK frame (RFC 9000, section 19.3); a PING if there is nothing to acknowledge.
pub fn put_ranges(out: &mut Vec<u8>, ranges: &[(u64, u64)], delay: u64, counts: Option<EcnCounts>) {
    let Some(&(low, high)) = ranges.first() else { return out.push(0x01) };
    varint(out, if counts.is_some() { types::ACK_ECN } else { types::ACK });
    varints(out, &[high, delay, ranges.len() as u64 - 1, high - low]);
    for pair in ranges.windows(2) {
        let [(above, _), (low, high)] = [pair[0], pair[1]];
        varints(out, &[above - high - 2, high - low]);
    }
    if let Some(EcnCounts { ect0, ect1, ce }) = counts {
        varints(out, &[ect0, ect1, ce]);
    }
}
