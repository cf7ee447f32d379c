//! The server, the clock and the network between it and the client, and what must hold after every
//! step: see [`World::settle`] and [`World::check`].

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use mendcast_quic as quic;
use quic::Transmit;
use quic::streams::StreamEvent;
use quic::wire::{Frame, Frames};
use quic::{Addresses, Connection, CopyAccounting, Datagram, Endpoint, Event, Handle, Outcome};
use units::{Ecn, StreamId, Timestamp};

use super::client::Client;
use super::handshake;
use super::memory::{self, counted};
use super::pattern;
use super::setup::Setup;
use super::shadow::{Bookkeeper, Shadow};

pub const HOME: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4_000);
/// Time-outs at one moment, until the deadline must have moved on.
const SAME_MOMENT: u32 = 16;
/// Maximum number of time-outs in a second of virtual time without an effect: nothing sent,
/// reported, declared lost or finished.
const IDLE_WAKEUPS: u32 = 10;
/// Datagrams of the server after which a run ends: enough for a few megabytes.
const MAX_DATAGRAMS: u64 = 6_000;
/// Maximum memory of a connection in bytes, plus an amount for each packet in the ledger (including
/// the newest 4,096 lost ones, in lists that double when full), and for each written piece of data,
/// without the data.
const BASE_MEMORY: u64 = 512 << 10;
const PER_PACKET: u64 = 450;
const PER_PIECE: u64 = 200;
/// Bytes that were written and sent once, and that may be kept beside two windows.
const MOST_KEPT: u64 = 1 << 20;

/// Written data that counts itself while it is alive.
struct Written {
    offset: u64,
    len: usize,
    alive: Arc<Alive>,
}

/// Written data that the transport holds: bytes and pieces.
#[derive(Default)]
struct Alive {
    bytes: AtomicU64,
    pieces: AtomicU64,
}

impl AsRef<[u8]> for Written {
    fn as_ref(&self) -> &[u8] {
        pattern(self.offset, self.len)
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        self.alive.bytes.fetch_sub(self.len as u64, Relaxed);
        self.alive.pieces.fetch_sub(1, Relaxed);
    }
}

/// Maxima of the bounded quantities, for the report on a run.
#[derive(Clone, Copy, Default, Debug)]
pub struct Most {
    pub memory: u64,
    pub span: u64,
    pub written_alive: u64,
    pub idle_wakeups: u32,
    pub transmits: u32,
    pub window: u64,
    /// Memory beyond what packets and data account for.
    pub over: u64,
    /// Written data that was sent and is kept.
    pub kept: u64,
}

pub struct World {
    pub server: Endpoint,
    pub handle: Handle,
    pub now: Timestamp,
    pub client: Client,
    pub setup: Setup,
    /// Where the client sends from.
    pub address: SocketAddr,
    pub shadow: Arc<Mutex<Shadow>>,
    /// Of the next datagrams of the server, from the low bit on, which get lost; it goes round.
    pub losses: u16,
    turn: u32,
    /// The network marks ECN-capable datagrams.
    pub congested: bool,
    /// Streams that the application knows of.
    pub streams: Vec<StreamId>,
    written: HashMap<StreamId, u64>,
    /// Streams that the application or the client stopped.
    pub given_up: HashSet<StreamId>,
    /// Written data that the transport still holds.
    alive: Arc<Alive>,
    /// UDP payload bytes from and to each address, and those that the client has proved.
    from: HashMap<SocketAddr, u64>,
    to: HashMap<SocketAddr, u64>,
    proved: HashSet<SocketAddr>,
    pub moved: bool,
    pub datagrams: u64,
    /// When the server told that the connection is over, and datagrams from and to it since.
    pub closed: Option<(Timestamp, u32, u32)>,
    pub most: Most,
    buffer: Vec<u8>,
}

impl World {
    /// A connection after an honest handshake.
    pub fn new(mut setup: Setup) -> Self {
        memory::reset();
        let shadow = Arc::new(Mutex::new(Shadow::default()));
        let books = shadow.clone();
        setup.transport.observer =
            Some(Arc::new(move |_, _, _| Some(Box::new(Bookkeeper(books.clone())))));
        let mut server = Endpoint::new(setup.endpoint(), [3; 32]);
        let id = client_id(0, setup.parameters.id_len);
        let done = handshake::connect(
            &mut server,
            &setup.parameters,
            &id,
            HOME,
            setup.rtt,
            setup.handshake_losses,
        );
        let mut client = Client::new(
            setup.parameters.clone(),
            setup.transport.limits.max_streams_bidi,
            id,
            done.server_id,
        );
        for (datagram, ecn) in &done.datagrams {
            client.take(datagram, HOME, *ecn);
        }
        Self {
            server,
            handle: done.handle,
            now: done.now,
            client,
            setup,
            address: HOME,
            shadow,
            losses: 0,
            turn: 0,
            congested: false,
            streams: done.stream.into_iter().collect(),
            written: done.stream.map(|id| (id, done.written)).into_iter().collect(),
            given_up: HashSet::new(),
            alive: Arc::default(),
            from: HashMap::from([(HOME, done.sent)]),
            to: HashMap::from([(HOME, done.received)]),
            proved: HashSet::from([HOME]),
            moved: false,
            datagrams: 0,
            closed: None,
            most: Most::default(),
            buffer: vec![0; 65_507],
        }
    }

    pub fn connection(&mut self) -> Option<&mut Connection> {
        self.server.connection(self.handle)
    }

    /// Whether the connection is neither closed nor closing.
    pub fn is_open(&mut self) -> bool {
        self.connection().is_some_and(|connection| connection.is_alive())
    }

    /// Returns true if the run has used up its budget.
    pub fn is_tired(&self) -> bool {
        self.datagrams > MAX_DATAGRAMS
    }

    /// Hands the server a datagram that comes from `from`.
    pub fn deliver(&mut self, datagram: &mut [u8], from: SocketAddr, ecn: Ecn) {
        *self.from.entry(from).or_default() += datagram.len() as u64;
        self.moved |= from != HOME;
        let size = datagram.len();
        let datagram = Datagram { addresses: Addresses::of(from), ecn, payload: datagram };
        let mut reply = Vec::with_capacity(100);
        let (server, now) = (&mut self.server, self.now);
        let outcome = counted(|| server.handle_datagram(now, datagram, &mut reply));
        match outcome {
            Outcome::Connection(handle) => assert_eq!(handle, self.handle),
            Outcome::Reply(len) => assert!(len < size, "a reset of {len} bytes for {size}"),
            Outcome::Dropped(_) | Outcome::Foreign(_) => {}
            Outcome::Accepted(_) => panic!("a connection without an Initial packet"),
        }
        if let Some((_, datagrams, _)) = &mut self.closed {
            *datagrams += 1;
        }
    }

    /// The client has answered a challenge that came to `address`.
    pub fn proves(&mut self, address: SocketAddr) {
        self.proved.insert(address);
    }

    /// Appends to a stream; the server holds the data without a copy.
    pub fn write(&mut self, id: StreamId, len: usize) -> bool {
        let offset = self.written.get(&id).copied().unwrap_or(0);
        self.alive.bytes.fetch_add(len as u64, Relaxed);
        self.alive.pieces.fetch_add(1, Relaxed);
        let data = Written { offset, len, alive: self.alive.clone() };
        let Some(connection) = self.server.connection(self.handle) else { return false };
        let taken = counted(|| connection.write(id, Bytes::from_owner(data)).is_ok());
        if taken {
            self.written.insert(id, offset + len as u64);
        }
        taken
    }

    /// Takes events and datagrams until there are none: both must end, at every moment.
    pub fn settle(&mut self) -> bool {
        let mut active = false;
        let mut events = 0;
        while let Some(event) = self.event() {
            active = true;
            events += 1;
            assert!(events < 100_000, "events without end, such as {event:?}");
        }
        let window = self.connection().map_or(0, |connection| connection.window());
        let mut transmits = 0;
        while self.transmit(65_507, 10) {
            active = true;
            transmits += 1;
            let bound = 300 + (window.min(1 << 32) / 500) as u32;
            assert!(transmits < bound, "{transmits} transmissions at one moment, {window} window");
        }
        self.most.transmits = self.most.transmits.max(transmits);
        self.check();
        active
    }

    fn event(&mut self) -> Option<Event> {
        let (server, handle) = (&mut self.server, self.handle);
        let event = counted(|| server.poll_event(handle))?;
        match &event {
            Event::Stream(StreamEvent::Opened(id)) => self.streams.push(*id),
            Event::Stream(StreamEvent::Closed(id)) => self.streams.retain(|known| known != id),
            Event::Stream(StreamEvent::Stopped { id, .. }) => {
                self.given_up.insert(*id);
            }
            Event::Closed(_) => {
                assert!(self.closed.is_none(), "closed twice");
                self.closed = Some((self.now, 0, 0));
            }
            _ => {}
        }
        Some(event)
    }

    /// Takes one transmission in a buffer of this size; whether there was one.
    pub fn transmit(&mut self, room: usize, max_segments: usize) -> bool {
        let mut buffer = core::mem::take(&mut self.buffer);
        let (server, handle, now) = (&mut self.server, self.handle, self.now);
        let place = &mut buffer[..room.min(65_507)];
        let sent = counted(|| server.poll_transmit(handle, now, place, max_segments));
        if let Some(sent) = sent {
            self.check_size(&sent, room, max_segments);
            for datagram in buffer[..sent.len].chunks(sent.segment) {
                self.receive(datagram, &sent);
            }
        }
        self.buffer = buffer;
        sent.is_some()
    }

    fn check_size(&self, sent: &Transmit, room: usize, max_segments: usize) {
        let Transmit { len, segment, .. } = *sent;
        assert!(len > 0 && segment > 0, "an empty transmission");
        assert!(len <= room, "{len} bytes in a buffer of {room}");
        let count = len.div_ceil(segment);
        assert!(count <= max_segments.max(1), "{count} datagrams, {max_segments} wanted");
        let payload = self.setup.parameters.max_udp_payload;
        let largest = u64::from(self.setup.transport.max_mtu).min(payload);
        assert!(segment as u64 <= largest, "a datagram of {segment} bytes, {largest} is the limit");
    }

    /// The network's effect on a datagram of the server.
    fn receive(&mut self, datagram: &[u8], sent: &Transmit) {
        let remote = sent.addresses.remote;
        self.datagrams += 1;
        let to = self.to.entry(remote).or_default();
        *to += datagram.len() as u64;
        let from = self.from.get(&remote).copied().unwrap_or(0);
        // RFC 9000, section 8.1.
        assert!(
            self.proved.contains(&remote) || *to <= 3 * from,
            "{to} bytes went to {remote}, from where {from} came and which is not validated"
        );
        if let Some((at, datagrams, answers)) = &mut self.closed {
            *answers += 1;
            let allowed = 2 + datagrams.checked_ilog2().map_or(0, |log| log + 1);
            assert!(*answers <= allowed, "{answers} datagrams after the close at {at:?}");
        }
        let lost = self.losses >> (self.turn % 16) & 1 == 1;
        self.turn += 1;
        let ecn = match sent.ecn {
            Ecn::Ect0 | Ecn::Ect1 if self.congested => Ecn::Ce,
            ecn => ecn,
        };
        if lost {
            return;
        }
        let taken = self.client.take(datagram, remote, ecn);
        if let (Some(_), Some((_, payload))) = (self.closed, taken) {
            for frame in Frames::new(payload).flatten() {
                let closes = matches!(
                    frame,
                    Frame::ConnectionClose { .. } | Frame::ApplicationClose { .. } | Frame::Padding
                );
                assert!(closes, "{frame:?} after the close");
            }
        }
    }

    /// What holds at every moment.
    fn check(&mut self) {
        let held = memory::held();
        let alive = self.alive.bytes.load(Relaxed);
        let shadow = self.shadow.lock().expect("one thread");
        let (span, all) = (shadow.span(), shadow.plain + shadow.copies + shadow.validating);
        let certain = match self.setup.transport.accounting {
            CopyAccounting::Every => shadow.plain + shadow.copies,
            CopyAccounting::Newest => shadow.plain,
        };
        // Memory is kept for future packets.
        let known = self.most.span.max(span) + shadow.counts.lost.min(4_096);
        drop(shadow);
        self.most.memory = self.most.memory.max(held);
        self.most.written_alive = self.most.written_alive.max(alive);
        self.most.span = self.most.span.max(span);
        let moved = self.moved;
        let Some(connection) = self.server.connection(self.handle) else { return };
        self.most.window = self.most.window.max(connection.window());
        if !connection.is_alive() {
            return;
        }
        let in_flight = connection.in_flight();
        assert!(in_flight <= all, "{in_flight} bytes in flight, {all} are open");
        if !moved {
            assert!(in_flight >= certain, "{in_flight} bytes in flight, {certain} are open");
        }
        let (data, pieces) = (self.client.data_sent, self.alive.pieces.load(Relaxed));
        let bound = BASE_MEMORY + PER_PACKET * known + 4 * data + PER_PIECE * pieces;
        self.most.over = self.most.over.max(held.saturating_sub(bound - BASE_MEMORY));
        assert!(held <= bound, "{held} bytes of memory for {known} packets, more than {bound}");
        let unsent: u64 = self.streams.iter().filter_map(|id| connection.unsent(*id)).sum();
        let kept = alive.saturating_sub(unsent);
        self.most.kept = self.most.kept.max(kept);
        let bound = MOST_KEPT + 2 * self.most.window;
        assert!(kept <= bound, "{kept} bytes that were sent are kept, more than {bound}");
        if let Some(deadline) = connection.deadline() {
            assert!(deadline < Timestamp::MAX, "a connection without an end");
        }
    }

    /// Tells the server that time has passed.
    pub fn time_out(&mut self) {
        let (server, handle, now) = (&mut self.server, self.handle, self.now);
        counted(|| server.handle_timeout(handle, now));
    }

    /// Packets that the server has given up for lost, and what of them it still has to repair.
    fn repairs(&mut self) -> (u64, usize) {
        let lost = self.shadow.lock().expect("one thread").counts.lost;
        (lost, self.connection().map_or(0, |connection| connection.lost_units()))
    }

    /// Lets time pass, timer by timer: the server may not wake up for nothing, again and again.
    pub fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        let (mut moment, mut same) = (self.now, 0);
        let (mut second, mut idle) = (self.now, 0);
        while let Some(at) = self.connection().and_then(|connection| connection.deadline())
            && at <= end
            && !self.is_tired()
        {
            self.now = self.now.max(at);
            (moment, same) = if moment == self.now { (moment, same + 1) } else { (self.now, 0) };
            assert!(same < SAME_MOMENT, "time stands still: the deadline remains {at:?}");
            if self.now.since(second) >= Duration::from_secs(1) {
                (second, idle) = (self.now, 0);
            }
            let before = self.repairs();
            self.time_out();
            if self.repairs().0 > before.0 {
                // Losses are declared in passes, each due at once.
                same = 0;
            }
            if self.settle() || self.repairs() != before {
                (second, idle) = (self.now, 0);
                continue;
            }
            idle += 1;
            self.most.idle_wakeups = self.most.idle_wakeups.max(idle);
            assert!(idle < IDLE_WAKEUPS, "{idle} times within a second awake for nothing");
        }
        self.now = end;
    }

    /// The connection must end by itself when nothing comes any more, and leave nothing behind.
    pub fn end(&mut self) {
        self.datagrams = 0;
        let began = self.now;
        // Three probe time-outs, or the idle time-out and the probes before it: a peer chooses its
        // delays, and late acknowledgements make the round-trip time as long as the run was.
        let bound = 64 * (began.since(Timestamp::ZERO) + Duration::from_secs(1_000));
        self.advance(bound);
        let drained = self.connection().is_none_or(|connection| connection.is_drained());
        assert!(drained || self.is_tired(), "the connection does not end within {bound:?}");
        let (server, handle) = (&mut self.server, self.handle);
        counted(|| server.remove(handle));
        assert!(self.server.is_empty());
        let held = memory::held();
        assert!(held < 16_384, "{held} bytes are held after the end");
        let alive = self.alive.bytes.load(Relaxed);
        assert_eq!(alive, 0, "written data is held after the end");
    }
}

/// The client's ID with this sequence number; from three bytes on, none begins another.
pub fn client_id(sequence: u64, len: usize) -> Vec<u8> {
    let mut id = vec![0xc1; len];
    let [high, low] = (sequence as u16).to_be_bytes();
    let start = [high, low, len as u8];
    let at = len.min(3);
    id[..at].copy_from_slice(&start[..at]);
    id
}
