//! The client's half of an honest handshake, optionally over a lossy network. It ends with the
//! server's confirmation and passes on the 1-RTT packets sent until then.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use mendcast_quic as quic;
use quic::ranges::RangeSet;
use quic::wire::{
    ConnectionId, Frame, Frames, Header, PacketType, Writer, expand_packet_number, parse_header,
    put_ack, put_crypto, put_long_header,
};
use quic::{Addresses, Datagram, Endpoint, Event, Handle, Outcome};
use rustls::Side;
use rustls::quic::{ClientConnection, KeyChange, Keys, Version};
use units::{Direction, Ecn, StreamId, Timestamp};

use super::memory::counted;
use super::pattern;
use super::setup::{Parameters, client_tls};

const TAG: usize = 16;

/// One packet number space of the handshake.
#[derive(Default)]
struct Level {
    keys: Option<Keys>,
    next: u64,
    expected: u64,
    /// Handshake bytes: those received in order, and all received ones.
    received: u64,
    /// Packets received.
    numbers: RangeSet,
}

/// Result of the handshake.
pub struct Established {
    pub handle: Handle,
    pub now: Timestamp,
    /// The server's connection ID.
    pub server_id: ConnectionId,
    /// Datagrams with 1-RTT packets, and their marks.
    pub datagrams: Vec<(Vec<u8>, Ecn)>,
    /// UDP payload bytes that the client sent and received.
    pub sent: u64,
    pub received: u64,
    /// A stream that the application opened before the handshake was confirmed.
    pub stream: Option<StreamId>,
    pub written: u64,
}

struct Handshake<'a> {
    server: &'a mut Endpoint,
    address: SocketAddr,
    now: Timestamp,
    tls: ClientConnection,
    levels: [Level; 2],
    /// Of what TLS says next; 2 when it has said everything.
    level: usize,
    id: Vec<u8>,
    server_id: ConnectionId,
    handle: Option<Handle>,
    datagrams: Vec<(Vec<u8>, Ecn)>,
    sent: u64,
    received: u64,
    /// The client's sent messages, kept for retransmission.
    said: Vec<(usize, Vec<u8>)>,
    /// Number of the next 1-RTT packet.
    early: u64,
    /// The application opens a stream as early as possible; and its written data.
    eager: bool,
    written: u64,
    /// Of the datagrams of both sides, from the low bit on, which get lost.
    losses: u32,
    stream: Option<StreamId>,
}

/// Rounds of a handshake that goes through losses.
const ROUNDS: u32 = 200;

/// Completes a handshake with round-trip time `rtt`. The low 31 bits of `losses` select lost
/// datagrams. The last bit makes the application send as early as possible.
pub fn connect(
    server: &mut Endpoint,
    parameters: &Parameters,
    id: &[u8],
    address: SocketAddr,
    rtt: Duration,
    losses: u32,
) -> Established {
    let first_id = [0xd0; 8];
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = suite.tls13().expect("a suite of TLS 1.3");
    let algorithm = suite.quic.expect("a suite for QUIC");
    let name = "server".try_into().expect("a name");
    let tls = ClientConnection::new(client_tls(), Version::V1, name, parameters.encoded(id));
    let mut levels: [Level; 2] = Default::default();
    levels[0].keys = Some(Keys::initial(Version::V1, suite, algorithm, &first_id, Side::Client));
    let mut handshake = Handshake {
        server,
        address,
        now: Timestamp::from_millis(1),
        tls: tls.expect("a configuration for TLS 1.3"),
        levels,
        level: 0,
        id: id.to_vec(),
        server_id: ConnectionId::new(&first_id).expect("a short ID"),
        handle: None,
        datagrams: Vec::new(),
        sent: 0,
        received: 0,
        said: Vec::new(),
        early: 0,
        eager: losses & 1 << 31 != 0,
        written: 0,
        losses: losses & !(1 << 31),
        stream: None,
    };
    // A client that loses something repeats it soon enough for every idle time-out.
    let soon = Duration::from_millis(50);
    let pause = if losses == 0 { rtt } else { rtt.clamp(soon, 4 * soon) };
    let mut confirmed = false;
    for round in 0..ROUNDS {
        handshake.send_flight();
        confirmed |= handshake.take_answers();
        if confirmed {
            break;
        }
        confirmed |= handshake.wait(pause);
        if losses > 0 && round > 0 {
            handshake.repeat();
        }
    }
    assert!(confirmed, "an honest handshake ends");
    Established {
        handle: handshake.handle.expect("a connection"),
        now: handshake.now,
        server_id: handshake.server_id,
        datagrams: handshake.datagrams,
        sent: handshake.sent,
        received: handshake.received,
        stream: handshake.stream,
        written: handshake.written,
    }
}

impl Handshake<'_> {
    /// Sends what TLS has to say.
    fn send_flight(&mut self) {
        loop {
            let mut data = Vec::new();
            let change = self.tls.write_hs(&mut data);
            let over = data.is_empty() && change.is_none();
            if !data.is_empty() && self.level < 2 {
                self.send(self.level, &data, 0);
                self.said.push((self.level, data));
            }
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    self.levels[1].keys = Some(keys);
                    self.level = 1;
                }
                // The null cipher takes the place of these keys.
                Some(KeyChange::OneRtt { .. }) => self.level = 2,
                None => {}
            }
            if over {
                return;
            }
        }
    }

    /// Says everything again, and, when TLS has come to its end, something in a 1-RTT packet.
    fn repeat(&mut self) {
        for (place, data) in self.said.clone() {
            self.send(place, &data, 0);
        }
        if self.level == 2 {
            let mut packet = vec![0x43];
            packet.extend(self.server_id.as_slice());
            packet.extend((self.early as u32).to_be_bytes());
            packet.push(0x01);
            packet.extend(quic::crypto::null_tag(0));
            self.early += 1;
            self.deliver(&mut packet);
        }
    }

    /// Lets time pass, timer by timer; whether the handshake is confirmed.
    fn wait(&mut self, time: Duration) -> bool {
        let handle = self.handle;
        let end = self.now + time;
        let mut confirmed = false;
        for turn in 0.. {
            let Some(handle) = handle else { break };
            let deadline = self.server.connection(handle).and_then(|c| c.deadline());
            let Some(at) = deadline.filter(|at| *at <= end) else { break };
            assert!(turn < 1_000, "time stands still in the handshake: {at:?}");
            self.now = self.now.max(at);
            counted(|| self.server.handle_timeout(handle, self.now));
            confirmed |= self.take_answers();
        }
        self.now = end;
        confirmed
    }

    /// Sends handshake bytes with an acknowledgement of everything, in packets of 1,200 bytes.
    fn send(&mut self, place: usize, data: &[u8], from: u64) {
        for (count, piece) in data.chunks(900).enumerate() {
            let level = &mut self.levels[place];
            let (number, offset) = (level.next, from + 900 * count as u64);
            level.next += 1;
            let mut buffer = [0; 1_200];
            let mut w = Writer::new(&mut buffer[..1_200 - TAG]);
            let ty = [PacketType::Initial, PacketType::Handshake][place];
            let id = ConnectionId::new(&self.id).expect("a short ID");
            let length_at = put_long_header(&mut w, ty, &self.server_id, &id, &[], 4);
            let number_at = w.position();
            w.u32(number as u32);
            let payload_at = w.position();
            put_ack(&mut w, &level.numbers, 0, None, 1_000);
            put_crypto(&mut w, offset, piece);
            w.fill(0, w.remaining());
            w.set_varint2(length_at, (1_200 - number_at) as u64);
            let keys = &level.keys.as_ref().expect("keys of this level").local;
            let (header, body) = buffer.split_at_mut(payload_at);
            let plain = body.len() - TAG;
            let (payload, tag) = body.split_at_mut(plain);
            let sealed = keys.packet.encrypt_in_place(number, header, payload).expect("short");
            tag.copy_from_slice(sealed.as_ref());
            let sample: [u8; 16] =
                buffer[number_at + 4..number_at + 20].try_into().expect("a sample");
            let (first, rest) = buffer.split_at_mut(1);
            let number = &mut rest[number_at - 1..number_at + 3];
            keys.header.encrypt_in_place(&sample, &mut first[0], number).expect("a sample");
            self.deliver(&mut buffer);
        }
    }

    /// Whether the next datagram gets lost.
    fn is_lost(&mut self) -> bool {
        let lost = self.losses & 1 == 1;
        self.losses >>= 1;
        lost
    }

    fn deliver(&mut self, datagram: &mut [u8]) {
        if self.is_lost() {
            return;
        }
        self.sent += datagram.len() as u64;
        let addresses = Addresses::of(self.address);
        let datagram = Datagram { addresses, ecn: Ecn::NotEct, payload: datagram };
        let (server, now) = (&mut *self.server, self.now);
        let outcome = counted(|| server.handle_datagram(now, datagram, &mut Vec::new()));
        match outcome {
            Outcome::Accepted(handle) => self.handle = Some(handle),
            Outcome::Connection(_) => {}
            other => panic!("an honest handshake is refused: {other:?}"),
        }
    }

    /// Takes the server's answers. Returns true once the handshake is confirmed.
    fn take_answers(&mut self) -> bool {
        let Some(handle) = self.handle else { return false };
        let mut confirmed = false;
        while let Some(event) = counted(|| self.server.poll_event(handle)) {
            confirmed |= event == Event::Connected;
            assert!(!matches!(event, Event::Closed(_)), "an honest handshake fails: {event:?}");
            if event == Event::Ready && self.eager {
                let connection = self.server.connection(handle).expect("open");
                self.stream = counted(|| connection.open(Direction::Unidirectional));
            }
        }
        if let (false, Some(id)) = (confirmed, self.stream) {
            let connection = self.server.connection(handle).expect("open");
            let data = Bytes::from_static(pattern(self.written, 3_000));
            self.written += 3_000;
            counted(|| connection.write(id, data)).expect("an open stream");
        }
        let mut buffer = vec![0; 20_000];
        let (now, mut datagrams) = (self.now, Vec::new());
        while let Some(sent) = counted(|| self.server.poll_transmit(handle, now, &mut buffer, 10)) {
            self.received += sent.len as u64;
            let pieces = buffer[..sent.len].chunks(sent.segment);
            datagrams.extend(pieces.map(|datagram| (datagram.to_vec(), sent.ecn)));
        }
        // RFC 9000, section 8.1: a Handshake packet proves the address.
        let (sent, received) = (self.sent, self.received);
        let proved = self.levels[1].next > 0;
        assert!(proved || received <= 3 * sent, "{received} bytes for {sent} in the handshake");
        for (mut datagram, ecn) in datagrams {
            if self.is_lost() {
                continue;
            }
            if datagram[0] & 0x80 == 0 {
                self.datagrams.push((datagram, ecn));
            } else {
                self.open(&mut datagram);
            }
        }
        confirmed
    }

    /// Opens the packets of a datagram.
    fn open(&mut self, mut rest: &mut [u8]) {
        while !rest.is_empty() {
            let Ok(Header::Long { ty, scid, pn_offset, end, .. }) =
                parse_header(rest, self.id.len())
            else {
                return;
            };
            self.server_id = scid;
            let place = usize::from(ty != PacketType::Initial);
            let (packet, more) = rest.split_at_mut(end);
            self.open_packet(place, packet, pn_offset);
            rest = more;
        }
    }

    fn open_packet(&mut self, place: usize, packet: &mut [u8], number_at: usize) {
        let level = &mut self.levels[place];
        let Some(keys) = level.keys.as_ref().map(|keys| &keys.remote) else { return };
        let sample: [u8; 16] = packet[number_at + 4..number_at + 20].try_into().expect("a sample");
        let (first, rest) = packet.split_at_mut(1);
        let number = &mut rest[number_at - 1..number_at + 3];
        keys.header.decrypt_in_place(&sample, &mut first[0], number).expect("a sample");
        let len = usize::from(first[0] & 3) + 1;
        let truncated = packet[number_at..number_at + len]
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte));
        let number = expand_packet_number(truncated, len, level.expected);
        let (header, payload) = packet.split_at_mut(number_at + len);
        let plain = keys.packet.decrypt_in_place(number, header, payload).expect("authentic");
        level.expected = level.expected.max(number + 1);
        level.numbers.insert(number..number + 1);
        let ty = [PacketType::Initial, PacketType::Handshake][place];
        for frame in Frames::new(plain) {
            let frame = frame.expect("the server's frames are well formed");
            assert!(frame.allowed_in(ty), "{frame:?} in {ty:?}");
            if let Frame::Crypto { offset, data } = frame
                && offset <= level.received
                && offset + data.len() as u64 > level.received
            {
                let new = &data[(level.received - offset) as usize..];
                level.received += new.len() as u64;
                self.tls.read_hs(new).expect("the server's handshake is in order");
            }
        }
        // The next packet of the datagram may need keys from this one.
        self.install_keys();
    }

    /// Installs new TLS keys once available, and keeps TLS output for the flight.
    fn install_keys(&mut self) {
        if self.level != 0 {
            return;
        }
        let mut data = Vec::new();
        if let Some(KeyChange::Handshake { keys }) = self.tls.write_hs(&mut data) {
            self.levels[1].keys = Some(keys);
            self.level = 1;
        }
        assert!(data.is_empty(), "a client says nothing between its hello and its end");
    }
}
