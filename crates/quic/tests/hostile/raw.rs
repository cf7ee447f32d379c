//! A client made by hand: an honest TLS handshake (rustls) under packets that a test writes frame
//! by frame, in any packet number space, in virtual time against the endpoint.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use mendcast_quic as quic;
use quic::wire::{
    ConnectionId, Frame, Frames, Header, PacketType, RETRY_INTEGRITY_TAG_LEN, Writer,
    expand_packet_number, parse_header, put_crypto,
};
use quic::{Addresses, Endpoint, Event, Handle, Outcome};
use rustls::Side;
use rustls::quic::{ClientConnection, DirectionalKeys, KeyChange, Keys, Secrets, Version};
use units::{Ecn, Timestamp};

pub const ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4_000);
/// Our source connection ID.
pub const SCID: [u8; 8] = [0xc1; 8];
const TAG: usize = 16;

/// Identifiers of transport parameters (RFC 9000, section 18.2).
pub mod id {
    pub const ORIGINAL_DESTINATION_CONNECTION_ID: u64 = 0x00;
    pub const STATELESS_RESET_TOKEN: u64 = 0x02;
    pub const MAX_UDP_PAYLOAD_SIZE: u64 = 0x03;
    pub const INITIAL_MAX_DATA: u64 = 0x04;
    pub const INITIAL_MAX_STREAM_DATA_BIDI_LOCAL: u64 = 0x05;
    pub const INITIAL_MAX_STREAMS_BIDI: u64 = 0x08;
    pub const ACK_DELAY_EXPONENT: u64 = 0x0a;
    pub const MAX_ACK_DELAY: u64 = 0x0b;
    pub const PREFERRED_ADDRESS: u64 = 0x0d;
    pub const ACTIVE_CONNECTION_ID_LIMIT: u64 = 0x0e;
    pub const INITIAL_SOURCE_CONNECTION_ID: u64 = 0x0f;
    pub const RETRY_SOURCE_CONNECTION_ID: u64 = 0x10;
}

/// Parameters as identifier and value.
pub type Parameters = Vec<(u64, Vec<u8>)>;

/// A variable-length integer (RFC 9000, section 16).
pub fn varint(value: u64) -> Vec<u8> {
    let mut buffer = [0; 8];
    let mut w = Writer::new(&mut buffer);
    w.varint(value);
    w.written_mut().to_vec()
}

/// Frames written by `write`.
pub fn frames(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut buffer = [0; 1_100];
    let mut w = Writer::new(&mut buffer);
    write(&mut w);
    w.written_mut().to_vec()
}

/// An ACK frame for `smallest..=largest` (RFC 9000, section 19.3).
pub fn ack(smallest: u64, largest: u64) -> Vec<u8> {
    let fields = [largest, 0, 0, largest - smallest].map(varint).concat();
    [vec![0x02], fields].concat()
}

/// One ACK frame of these numbers, ascending.
pub fn ack_of(numbers: &[u64]) -> Vec<u8> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for &number in numbers.iter().rev() {
        match ranges.last_mut() {
            Some((start, _)) if *start == number + 1 => *start = number,
            _ => ranges.push((number, number)),
        }
    }
    let (start, end) = ranges[0];
    let mut out = vec![0x02];
    for field in [end, 0, ranges.len() as u64 - 1, end - start] {
        out.extend(varint(field));
    }
    for pair in ranges.windows(2) {
        out.extend(varint(pair[0].0 - pair[1].1 - 2));
        out.extend(varint(pair[1].1 - pair[1].0));
    }
    out
}

/// A client with unlimited flow control.
pub fn generous() -> Parameters {
    let mut parameters = honest();
    for (parameter, value) in &mut parameters {
        if [id::INITIAL_MAX_DATA, id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL].contains(parameter) {
            *value = varint(1 << 50);
        }
    }
    parameters
}

/// What an honest client says.
pub fn honest() -> Parameters {
    vec![
        (id::INITIAL_SOURCE_CONNECTION_ID, SCID.to_vec()),
        (id::INITIAL_MAX_DATA, varint(1 << 20)),
        (id::INITIAL_MAX_STREAM_DATA_BIDI_LOCAL, varint(1 << 20)),
    ]
}

fn encoded(parameters: &Parameters) -> Vec<u8> {
    let mut out = Vec::new();
    for (id, value) in parameters {
        out.extend(varint(*id));
        out.extend(varint(value.len() as u64));
        out.extend(value);
    }
    out
}

/// Content of the server's CONNECTION_CLOSE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    pub code: u64,
    pub reason: String,
}

/// A datagram of the server.
pub struct SentDatagram {
    pub to: SocketAddr,
    pub ecn: Ecn,
    pub bytes: Vec<u8>,
}

/// A packet of the server that the client could open.
pub struct Opened {
    pub at: Timestamp,
    pub to: SocketAddr,
    pub ty: PacketType,
    pub number: u64,
    /// The first byte of the header, its protection removed.
    pub first: u8,
    pub payload: Vec<u8>,
}

/// Keys and packet numbers of a space.
#[derive(Default)]
struct Level {
    keys: Option<Keys>,
    next: u64,
    expected: u64,
    /// Received.
    numbers: Vec<u64>,
    /// Bytes of CRYPTO sent and received.
    sent: u64,
    received: u64,
}

pub struct Raw {
    pub server: Endpoint,
    pub handle: Option<Handle>,
    pub now: Timestamp,
    pub address: SocketAddr,
    pub tls: Option<ClientConnection>,
    levels: [Level; 3],
    early: Option<DirectionalKeys>,
    /// Of what TLS says next.
    level: PacketType,
    pending: VecDeque<(PacketType, Vec<u8>)>,
    dcid: Vec<u8>,
    pub close: Option<Close>,
    pub confirmed: bool,
    pub server_events: Vec<String>,
    /// Payloads of 1-RTT packets that the server sent.
    pub received: VecDeque<Vec<u8>>,
    /// All that the server sent, and what of it could be opened.
    pub datagrams: Vec<SentDatagram>,
    pub opened: Vec<Opened>,
    /// UDP payload bytes that the server sent.
    pub server_bytes: usize,
    pub server_datagrams: usize,
    /// `server_bytes` by address.
    pub bytes_to: HashMap<SocketAddr, usize>,
    /// Flipped in the first byte of the packets that are sent, before protection.
    pub flip: u8,
    /// From the server's newest NEW_TOKEN frame.
    pub token_of_server: Option<Vec<u8>>,
    /// In the headers of long packets.
    pub scid: [u8; 8],
    /// In the headers of Initial packets.
    pub token: Vec<u8>,
    /// Whether Initial packets are padded to 1,200 bytes.
    pub pads: bool,
    /// ECN codepoint of sent datagrams.
    pub ecn: Ecn,
    /// The keys of the phases to come, and the present phase.
    secrets: Option<Secrets>,
    phase: bool,
}

fn initial_keys(dcid: &[u8]) -> Keys {
    let suite = rustls::crypto::aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = suite.tls13().expect("a suite of TLS 1.3");
    let algorithm = suite.quic.expect("a suite for QUIC");
    Keys::initial(Version::V1, suite, algorithm, dcid, Side::Client)
}

fn place(ty: PacketType) -> usize {
    match ty {
        PacketType::Initial => 0,
        PacketType::Handshake => 1,
        PacketType::ZeroRtt | PacketType::OneRtt => 2,
    }
}

impl Raw {
    /// A client that has sent nothing yet.
    pub fn new(
        server: Endpoint,
        config: Arc<rustls::ClientConfig>,
        parameters: &Parameters,
    ) -> Self {
        let name = "server".try_into().expect("a name");
        let tls = ClientConnection::new(config, Version::V1, name, encoded(parameters));
        let mut raw = Self::without_tls(server);
        raw.tls = Some(tls.expect("a configuration for TLS 1.3"));
        raw
    }

    /// A client that has only Initial keys.
    pub fn without_tls(server: Endpoint) -> Self {
        Self::with_id(server, [0xd0; 8])
    }

    /// The same with a destination connection ID of its choice.
    pub fn with_id(server: Endpoint, dcid: [u8; 8]) -> Self {
        let mut levels: [Level; 3] = Default::default();
        levels[0].keys = Some(initial_keys(&dcid));
        Self {
            server,
            handle: None,
            now: Timestamp::from_millis(1),
            address: ADDRESS,
            tls: None,
            levels,
            early: None,
            level: PacketType::Initial,
            pending: VecDeque::new(),
            dcid: dcid.to_vec(),
            close: None,
            confirmed: false,
            server_events: Vec::new(),
            received: VecDeque::new(),
            datagrams: Vec::new(),
            opened: Vec::new(),
            server_bytes: 0,
            server_datagrams: 0,
            bytes_to: HashMap::new(),
            flip: 0,
            token_of_server: None,
            scid: SCID,
            token: Vec::new(),
            pads: true,
            ecn: Ecn::NotEct,
            secrets: None,
            phase: false,
        }
    }

    /// Does as a Retry packet says (RFC 9000, section 17.2.5.2): its token and its ID from now on.
    pub fn follow(&mut self, retry: &[u8]) {
        assert_eq!(retry[0] & 0xf0, 0xf0, "a Retry packet");
        let scid_at = 6 + usize::from(retry[5]) + 1;
        let scid_end = scid_at + usize::from(retry[scid_at - 1]);
        self.dcid = retry[scid_at..scid_end].to_vec();
        self.token = retry[scid_end..retry.len() - RETRY_INTEGRITY_TAG_LEN].to_vec();
        self.levels[0].keys = Some(initial_keys(&self.dcid));
        self.levels[0].sent = 0;
    }

    /// Lets TLS speak: its messages wait in `pending`, its keys are installed.
    fn advance(&mut self) {
        while let Some(tls) = &mut self.tls {
            let mut data = Vec::new();
            let change = tls.write_hs(&mut data);
            if data.is_empty() && change.is_none() {
                return;
            }
            if !data.is_empty() {
                self.pending.push_back((self.level, data));
            }
            match change {
                Some(KeyChange::Handshake { keys }) => {
                    self.levels[1].keys = Some(keys);
                    self.level = PacketType::Handshake;
                }
                Some(KeyChange::OneRtt { keys, next }) => {
                    self.levels[2].keys = Some(keys);
                    self.secrets = Some(next);
                    self.level = PacketType::OneRtt;
                }
                None => {}
            }
        }
    }

    /// The hello, not sent yet.
    pub fn hello(&mut self) -> Vec<u8> {
        self.advance();
        self.pending.pop_front().expect("TLS begins").1
    }

    /// Sends what TLS has to say, until neither side has more.
    pub fn handshake(&mut self) {
        self.advance();
        while let Some((ty, data)) = self.pending.pop_front() {
            self.send_crypto(ty, &data);
        }
    }

    /// Goes through the whole handshake.
    pub fn connect(&mut self) {
        self.handshake();
        assert!(self.confirmed, "no handshake: {:?}, {:?}", self.close, self.server_events);
    }

    /// Sends handshake data at the next offset.
    pub fn send_crypto(&mut self, ty: PacketType, data: &[u8]) {
        for piece in data.chunks(1_000) {
            let level = &mut self.levels[place(ty)];
            let offset = level.sent;
            level.sent += piece.len() as u64;
            let payload = frames(|w| put_crypto(w, offset, piece));
            self.send(ty, &payload);
        }
    }

    /// Sends a hello from its beginning, in as many Initial packets as it needs; the answer without
    /// state that came last.
    pub fn initial(&mut self, hello: &[u8]) -> Option<Vec<u8>> {
        let mut last = None;
        self.levels[0].sent = 0;
        for piece in hello.chunks(900) {
            let offset = self.levels[0].sent;
            self.levels[0].sent += piece.len() as u64;
            let mut packet =
                self.packet(PacketType::Initial, &frames(|w| put_crypto(w, offset, piece)));
            last = self.deliver(&mut packet).or(last);
        }
        last
    }

    /// Takes the 0-RTT keys; whether TLS has some.
    pub fn take_early_keys(&mut self) -> bool {
        self.early = self.tls.as_ref().and_then(|tls| tls.zero_rtt_keys());
        self.early.is_some()
    }

    /// Changes the 1-RTT keys of both directions (RFC 9001, section 6).
    pub fn update_keys(&mut self) {
        let next = self.secrets.as_mut().expect("the handshake is over").next_packet_keys();
        let keys = self.levels[2].keys.as_mut().expect("the handshake is over");
        keys.local.packet = next.local;
        keys.remote.packet = next.remote;
        self.phase = !self.phase;
    }

    /// Largest packet number seen from the server.
    pub fn largest(&self, ty: PacketType) -> Option<u64> {
        self.levels[place(ty)].expected.checked_sub(1)
    }

    /// The packet numbers that were received.
    pub fn numbers(&self, ty: PacketType) -> &[u64] {
        &self.levels[place(ty)].numbers
    }

    /// Names the connection by another of the server's IDs.
    pub fn set_dcid(&mut self, id: &[u8]) {
        self.dcid = id.to_vec();
    }

    /// Leaves out packet numbers.
    pub fn skip_numbers(&mut self, ty: PacketType, count: u64) {
        self.levels[place(ty)].next += count;
    }

    /// Uses packet numbers again that were left out.
    pub fn rewind_numbers(&mut self, ty: PacketType, count: u64) {
        self.levels[place(ty)].next -= count;
    }

    /// Why the server says that it closed the connection, whether the client can read it or not.
    pub fn close_by_server(&mut self) -> Option<u64> {
        let connection = self.server.connection(self.handle?)?;
        connection.close_reason().map(|reason| reason.code_and_text().0)
    }

    /// A protected packet with these frames; Initial packets are padded to 1,200 bytes.
    pub fn packet(&mut self, ty: PacketType, payload: &[u8]) -> Vec<u8> {
        let level = &mut self.levels[place(ty)];
        let keys = match ty {
            PacketType::ZeroRtt => self.early.as_ref(),
            _ => level.keys.as_ref().map(|keys| &keys.local),
        };
        let keys = keys.expect("keys of this level");
        let number = level.next;
        level.next += 1;
        let long = match ty {
            PacketType::Initial => Some(0xc0),
            PacketType::ZeroRtt => Some(0xd0),
            PacketType::Handshake => Some(0xe0),
            PacketType::OneRtt => None,
        };
        let mut payload = payload.to_vec();
        let mut out = Vec::new();
        let token = [varint(self.token.len() as u64), self.token.clone()].concat();
        let overhead = 7 + self.dcid.len() + SCID.len() + token.len() + 2 + 4 + TAG;
        if self.pads && ty == PacketType::Initial && payload.len() + overhead < 1_200 {
            payload.resize(1_200 - overhead, 0);
        }
        // Four bytes of packet number make any payload long enough for header protection.
        if let Some(first) = long {
            out.push((first | 3) ^ self.flip);
            out.extend(1u32.to_be_bytes());
            out.push(self.dcid.len() as u8);
            out.extend(&self.dcid);
            out.push(self.scid.len() as u8);
            out.extend(self.scid);
            if ty == PacketType::Initial {
                out.extend(token);
            }
            let length = (4 + payload.len() + TAG) as u16;
            out.extend((length | 0x4000).to_be_bytes());
        } else {
            let phase = if self.phase { 0x04 } else { 0 };
            out.push((0x40 | phase | 3) ^ self.flip);
            out.extend(&self.dcid);
        }
        let pn_offset = out.len();
        out.extend((number as u32).to_be_bytes());
        let header_len = out.len();
        out.extend(&payload);
        let (header, body) = out.split_at_mut(header_len);
        let tag = keys.packet.encrypt_in_place(number, header, body).expect("short enough");
        out.extend(tag.as_ref());
        let sample: Vec<u8> = out[pn_offset + 4..pn_offset + 4 + 16].to_vec();
        let (first, rest) = out.split_at_mut(1);
        let number = &mut rest[pn_offset - 1..pn_offset + 3];
        keys.header.encrypt_in_place(&sample, &mut first[0], number).expect("a sample");
        out
    }

    /// Sends frames in one packet, and takes the server's answers.
    pub fn send(&mut self, ty: PacketType, payload: &[u8]) {
        let mut packet = self.packet(ty, payload);
        self.deliver(&mut packet);
    }

    /// Delivers a datagram and takes the server's answers. Returns a stateless answer.
    pub fn deliver(&mut self, datagram: &mut [u8]) -> Option<Vec<u8>> {
        let mut reply = Vec::new();
        let outcome = self.hand_over(datagram, &mut reply);
        self.collect();
        matches!(outcome, Outcome::Reply(_)).then_some(reply)
    }

    /// Gives the server a datagram and takes nothing in return.
    pub fn outcome_alone(&mut self, datagram: &mut [u8]) -> Outcome {
        self.hand_over(datagram, &mut Vec::new())
    }

    /// Gives the server a datagram; what became of it.
    pub fn outcome(&mut self, datagram: &mut [u8]) -> Outcome {
        let outcome = self.hand_over(datagram, &mut Vec::new());
        self.collect();
        outcome
    }

    /// Delivers a datagram without taking the answers.
    pub fn hand_over(&mut self, datagram: &mut [u8], reply: &mut Vec<u8>) -> Outcome {
        let addresses = Addresses::of(self.address);
        let datagram = quic::Datagram { addresses, ecn: self.ecn, payload: datagram };
        let outcome = self.server.handle_datagram(self.now, datagram, reply);
        if let Outcome::Accepted(handle) = outcome {
            self.handle = Some(handle);
        }
        outcome
    }

    /// Lets time pass, timer by timer.
    pub fn wait(&mut self, time: Duration) {
        let end = self.now + time;
        let mut turns = (self.now, 0);
        while let Some(handle) = self.handle
            && let Some(at) = self.server.connection(handle).and_then(|c| c.deadline())
            && at <= end
        {
            self.now = self.now.max(at);
            turns = if turns.0 == self.now { (self.now, turns.1 + 1) } else { (self.now, 0) };
            assert!(turns.1 < 1_000, "time stands still at {:?}", self.now);
            self.server.handle_timeout(handle, self.now);
            self.collect();
        }
        self.now = end;
    }

    /// Takes the server's pending datagrams.
    pub fn collect(&mut self) {
        let Some(handle) = self.handle else { return };
        while let Some(event) = self.server.poll_event(handle) {
            if event == Event::Connected {
                self.server.release_ticket(handle, self.now, &[]);
            }
            self.server_events.push(format!("{event:?}"));
        }
        let mut buffer = vec![0; 65_507];
        while let Some(transmit) = self.server.poll_transmit(handle, self.now, &mut buffer, 10) {
            *self.bytes_to.entry(transmit.addresses.remote).or_default() += transmit.len;
            for datagram in buffer[..transmit.len].chunks_mut(transmit.segment) {
                self.server_bytes += datagram.len();
                self.server_datagrams += 1;
                let to = transmit.addresses.remote;
                self.datagrams.push(SentDatagram {
                    to,
                    ecn: transmit.ecn,
                    bytes: datagram.to_vec(),
                });
                let before = self.opened.len();
                self.open(datagram);
                self.opened[before..].iter_mut().for_each(|packet| packet.to = to);
            }
        }
    }

    /// Opens the packets of a datagram while keys are available.
    pub fn open(&mut self, mut rest: &mut [u8]) {
        loop {
            let (ty, pn_offset, end) = match parse_header(rest, SCID.len()) {
                Ok(Header::Long { ty, scid, pn_offset, end, .. }) => {
                    self.dcid = ConnectionId::as_slice(&scid).to_vec();
                    assert_ne!(ty, PacketType::ZeroRtt, "servers send no 0-RTT packets");
                    (ty, pn_offset, end)
                }
                Ok(Header::Short { pn_offset, .. }) => (PacketType::OneRtt, pn_offset, rest.len()),
                _ => return,
            };
            let (packet, more) = rest.split_at_mut(end);
            if let Some(payload) = self.decrypt(ty, packet, pn_offset) {
                self.take(ty, &payload);
            }
            if more.is_empty() {
                return;
            }
            rest = more;
        }
    }

    fn decrypt(&mut self, ty: PacketType, packet: &mut [u8], pn_offset: usize) -> Option<Vec<u8>> {
        let level = &mut self.levels[place(ty)];
        let keys = level.keys.as_ref()?;
        let sample: Vec<u8> = packet.get(pn_offset + 4..pn_offset + 20)?.to_vec();
        let (first, rest) = packet.split_at_mut(1);
        let number = &mut rest[pn_offset - 1..pn_offset + 3];
        keys.remote.header.decrypt_in_place(&sample, &mut first[0], number).ok()?;
        let len = usize::from(first[0] & 3) + 1;
        let truncated = packet[pn_offset..pn_offset + len]
            .iter()
            .fold(0, |number, &byte| number << 8 | u64::from(byte));
        let number = expand_packet_number(truncated, len, level.expected);
        let (header, payload) = packet.split_at_mut(pn_offset + len);
        let plain = keys.remote.packet.decrypt_in_place(number, header, payload).ok()?;
        level.expected = level.expected.max(number + 1);
        level.numbers.push(number);
        let payload = plain.to_vec();
        let (at, to) = (self.now, self.address);
        self.opened.push(Opened { at, to, ty, number, first: header[0], payload: payload.clone() });
        Some(payload)
    }

    fn take(&mut self, ty: PacketType, payload: &[u8]) {
        for frame in Frames::new(payload) {
            match frame.expect("the server's frames are well formed") {
                Frame::Crypto { offset, data } => {
                    let level = &mut self.levels[place(ty)];
                    if offset == level.received {
                        level.received += data.len() as u64;
                        if let Some(tls) = &mut self.tls {
                            tls.read_hs(data).expect("the server's handshake is in order");
                        }
                        self.advance();
                    }
                }
                Frame::ConnectionClose { error_code, reason, .. } => {
                    let reason = String::from_utf8_lossy(reason).into_owned();
                    self.close.get_or_insert(Close { code: error_code, reason });
                }
                Frame::HandshakeDone => self.confirmed = true,
                Frame::NewToken { token } => self.token_of_server = Some(token.to_vec()),
                _ => {}
            }
        }
        if ty == PacketType::OneRtt {
            self.received.push_back(payload.to_vec());
        }
    }

    /// Error code of the server's close.
    pub fn code(&self) -> Option<u64> {
        self.close.as_ref().map(|close| close.code)
    }
}
