//! The client after the handshake: received data, sent packets, and the resulting limits of the
//! server.

use std::collections::HashMap;
use std::net::SocketAddr;

use mendcast_quic as quic;
use quic::crypto::null_tag;
use quic::ranges::RangeSet;
use quic::wire::{ConnectionId, EcnCounts, Frame, Frames, PacketType, expand_packet_number};
use units::{Direction, Ecn, Side, StreamId};

use super::pattern;
use super::setup::Parameters;

const TAG: usize = 16;
const KEY_PHASE: u8 = 0x04;

/// Appends a variable-length integer (RFC 9000, section 16).
pub fn varint(out: &mut Vec<u8>, value: u64) {
    match value {
        0..=0x3f => out.push(value as u8),
        0x40..=0x3fff => out.extend((value as u16 | 0x4000).to_be_bytes()),
        0x4000..=0x3fff_ffff => out.extend((value as u32 | 0x8000_0000).to_be_bytes()),
        _ => out.extend((value | 0xc000_0000_0000_0000).to_be_bytes()),
    }
}

/// Appends variable-length integers.
pub fn varints(out: &mut Vec<u8>, values: &[u64]) {
    values.iter().for_each(|&value| varint(out, value));
}

/// Data sent by the server on a stream.
#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    highest: u64,
    size: Option<u64>,
    reset: bool,
}

/// A stream on which the client sends.
#[derive(Clone, Copy, Debug)]
pub struct Sending {
    pub id: StreamId,
    pub offset: u64,
    pub over: bool,
}

pub struct Client {
    parameters: Parameters,
    /// IDs that the server may address the client by; none begins another.
    pub ids: Vec<Vec<u8>>,
    /// Sequence number of the next ID.
    pub sequence: u64,
    /// IDs of the server by sequence number, and the place of the one in use.
    pub server_ids: Vec<(u64, ConnectionId)>,
    pub active: usize,
    /// Number of the next packet.
    pub next: u64,
    expected: u64,
    pub received: RangeSet,
    /// Received, and never acknowledged.
    pub held: RangeSet,
    /// A byte of a stream: no packet that carries it is ever acknowledged.
    pub withheld: Option<(StreamId, u64)>,
    /// Packets received by their marks.
    pub marks: EcnCounts,
    /// Key updates of the packets that the client sends, modulo 256.
    generation: u8,
    /// Challenges that were not answered, and where they came to.
    pub challenges: Vec<([u8; 8], SocketAddr)>,
    pub sending: Vec<Sending>,
    /// Bidirectional streams that the client opens at most, all together.
    pub streams_allowed: u64,
    /// Bytes of STREAM and CRYPTO frames sent, counting small ones as 100.
    pub data_sent: u64,
    max_data: u64,
    max_stream_data: HashMap<StreamId, u64>,
    max_streams: [u64; 2],
    seen: HashMap<StreamId, Seen>,
    /// Bytes on all streams, by the highest offset of each.
    total: u64,
    pub closed_by_server: bool,
    /// The client sent arbitrary bytes, which may have opened streams, for example.
    pub wild: bool,
}

impl Client {
    pub fn new(parameters: Parameters, streams: u64, id: Vec<u8>, server_id: ConnectionId) -> Self {
        Self {
            max_data: parameters.max_data,
            max_streams: parameters.max_streams,
            parameters,
            ids: vec![id],
            sequence: 1,
            server_ids: vec![(0, server_id)],
            active: 0,
            // Higher than all packet numbers of the handshake.
            next: 100,
            expected: 0,
            received: RangeSet::new(),
            held: RangeSet::new(),
            withheld: None,
            marks: EcnCounts::default(),
            generation: 0,
            challenges: Vec::new(),
            sending: Vec::new(),
            data_sent: 0,
            streams_allowed: streams.min(6),
            max_stream_data: HashMap::new(),
            seen: HashMap::new(),
            total: 0,
            closed_by_server: false,
            wild: false,
        }
    }

    /// The largest packet number received.
    pub fn largest(&self) -> u64 {
        self.received.last().map_or(0, |range| range.end - 1)
    }

    /// A 1-RTT packet with these frames, padded with zeros up to `size` bytes.
    pub fn packet(&mut self, payload: &[u8], size: usize) -> Vec<u8> {
        let phase = if self.generation & 1 == 1 { KEY_PHASE } else { 0 };
        let mut out = Vec::with_capacity(1_500);
        out.push(0x40 | phase | 3);
        let (_, id) = &self.server_ids[self.active.min(self.server_ids.len() - 1)];
        out.extend(id.as_slice());
        out.extend((self.next as u32).to_be_bytes());
        self.next += 1;
        out.extend(payload);
        if out.len() + TAG < size {
            out.resize(size - TAG, 0);
        }
        out.extend(null_tag(self.generation));
        out
    }

    /// Starts a key update (RFC 9001, section 6), whether it is allowed or not.
    pub fn update_keys(&mut self) {
        self.generation = self.generation.wrapping_add(1);
    }

    /// The server may use streams and data up to these limits from now on.
    pub fn allow_data(&mut self, max: u64) {
        self.max_data = self.max_data.max(max);
    }

    pub fn allow_stream_data(&mut self, id: StreamId, max: u64) {
        let limit = self.stream_limit(id).max(max);
        self.max_stream_data.insert(id, limit);
    }

    pub fn allow_streams(&mut self, direction: Direction, max: u64) {
        let limit = &mut self.max_streams[usize::from(direction == Direction::Unidirectional)];
        *limit = (*limit).max(max);
    }

    fn stream_limit(&self, id: StreamId) -> u64 {
        let initial = self.parameters.max_stream_data[(id.0 & 3) as usize];
        self.max_stream_data.get(&id).copied().unwrap_or(initial)
    }

    /// Takes a datagram of the server that came to `address`. Returns the packet's number and its
    /// frames, if it is a 1-RTT packet that can be read.
    pub fn take<'a>(
        &mut self,
        datagram: &'a [u8],
        address: SocketAddr,
        ecn: Ecn,
    ) -> Option<(u64, &'a [u8])> {
        let first = datagram[0];
        if first & 0x80 != 0 {
            return None;
        }
        let id = self.ids.iter().find(|id| datagram[1..].starts_with(id));
        // Bytes that only the server understands may have given it another one.
        assert!(id.is_some() || self.wild, "the server uses no ID of the client");
        let number_at = 1 + id?.len();
        let len = usize::from(first & 3) + 1;
        let truncated = datagram[number_at..number_at + len]
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte));
        let number = expand_packet_number(truncated, len, self.expected);
        assert!(datagram.len() >= number_at + 20, "no sample for header protection");
        let (payload, tag) =
            datagram[number_at + len..].split_at(datagram.len() - number_at - len - TAG);
        let phase = u8::from(first & KEY_PHASE != 0);
        // The server's phase is the client's, the one before, or the next.
        let generation =
            [self.generation, self.generation.wrapping_add(1), self.generation.wrapping_sub(1)]
                .into_iter()
                .find(|&generation| generation & 1 == phase && null_tag(generation) == tag)?;
        if generation == self.generation.wrapping_add(1) {
            self.generation = generation;
        }
        assert!(!self.received.contains(number), "packet number {number} is used twice");
        self.expected = self.expected.max(number + 1);
        self.received.insert(number..number + 1);
        match ecn {
            Ecn::Ect0 => self.marks.ect0 += 1,
            Ecn::Ect1 => self.marks.ect1 += 1,
            Ecn::Ce => self.marks.ce += 1,
            Ecn::NotEct => {}
        }
        assert!(!payload.is_empty(), "a packet without frames");
        for frame in Frames::new(payload) {
            let frame = frame.expect("the server's frames are well formed");
            assert!(frame.allowed_in(PacketType::OneRtt), "{frame:?} in a 1-RTT packet");
            if let Frame::Stream { id, offset, data, .. } = frame
                && let Some((withheld, byte)) = self.withheld
                && id == withheld
                && (offset..offset + data.len() as u64).contains(&byte)
            {
                self.held.insert(number..number + 1);
            }
            self.on_frame(&frame, address);
        }
        Some((number, payload))
    }

    fn on_frame(&mut self, frame: &Frame<'_>, address: SocketAddr) {
        match *frame {
            Frame::Stream { id, offset, data, fin } => {
                let end = offset + data.len() as u64;
                assert_eq!(data, pattern(offset, data.len()), "wrong bytes of {id:?} at {offset}");
                self.on_data(id, end, fin.then_some(end), false);
            }
            Frame::ResetStream { id, final_size, .. } => {
                self.on_data(id, final_size, Some(final_size), true);
            }
            Frame::NewConnectionId { sequence, id, .. } => {
                match self.server_ids.iter().find(|(known, _)| *known == sequence) {
                    Some((_, known)) => assert_eq!(*known, id, "two IDs with one number"),
                    None => self.server_ids.push((sequence, id)),
                }
            }
            Frame::PathChallenge(data) if self.challenges.len() < 32 => {
                self.challenges.push((data, address));
            }
            Frame::ConnectionClose { .. } | Frame::ApplicationClose { .. } => {
                self.closed_by_server = true;
            }
            _ => {}
        }
    }

    /// Flow control and final sizes (RFC 9000, sections 4.1, 4.5 and 4.6).
    fn on_data(&mut self, id: StreamId, end: u64, size: Option<u64>, reset: bool) {
        if self.wild {
            return;
        }
        let index = usize::from(id.direction() == Direction::Unidirectional);
        match id.initiator() {
            Side::Server => {
                let limit = self.max_streams[index];
                assert!(id.index() < limit, "{id:?} is beyond the limit of {limit}");
            }
            Side::Client => {
                let known = self.sending.iter().any(|s| s.id.0 & 3 == 0 && s.id.0 >= id.0);
                assert!(index == 0 && known, "{id:?} was not opened, or is the client's alone");
            }
        }
        let limit = self.stream_limit(id);
        let seen = self.seen.entry(id).or_default();
        assert!(end <= limit, "{id:?} has {end} bytes, beyond its limit of {limit}");
        if let (Some(known), Some(size)) = (seen.size, size) {
            assert_eq!(known, size, "{id:?} has two final sizes");
        }
        seen.size = seen.size.or(size);
        self.total += end.saturating_sub(seen.highest);
        seen.highest = seen.highest.max(end);
        seen.reset |= reset;
        assert!(seen.size.is_none_or(|size| seen.highest <= size), "{id:?} goes on behind its end");
        let (total, max) = (self.total, self.max_data);
        assert!(total <= max, "{total} bytes on all streams, beyond the limit of {max}");
    }

    /// Streams of the server that the client has heard of.
    pub fn opened_by_server(&self) -> Vec<StreamId> {
        let mut ids: Vec<_> =
            self.seen.keys().copied().filter(|id| id.initiator() == Side::Server).collect();
        ids.sort();
        ids
    }

    /// Withholds all acknowledgements of the stream's next data.
    pub fn withhold(&mut self, id: StreamId) {
        self.withheld = Some((id, self.seen.get(&id).map_or(0, |seen| seen.highest)));
    }

    /// Whether the server gave a stream up.
    pub fn is_reset(&self, id: StreamId) -> bool {
        self.seen.get(&id).is_some_and(|seen| seen.reset)
    }

    /// The stream on which the client sends, opened if need be.
    pub fn stream(&mut self, id: StreamId) -> &mut Sending {
        let place = self.sending.iter().position(|sending| sending.id == id);
        let place = place.unwrap_or_else(|| {
            self.sending.push(Sending { id, offset: 0, over: false });
            self.sending.len() - 1
        });
        &mut self.sending[place]
    }
}
