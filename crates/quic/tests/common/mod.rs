//! In-memory pair: our endpoint and an unmodified `quinn-proto` client in virtual time, joined by
//! paths of `links` that a test can make slow, lossy or hostile.

pub mod server;

use bytes::{Bytes, BytesMut};
use links::{Delivered, LinkConfig, Packet, Path, PathConfig};
use quic::{
    Addresses, Datagram, Endpoint, EndpointConfig, Event, Handle, Outcome, TransportConfig,
};
use quinn_proto as client;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use units::{Ecn, Mark, Rate, Timestamp};

use mendcast_quic as quic;

pub const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 443);
pub const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2)), 4_000);

/// Both sides' configurations.
pub struct Setup {
    pub server: EndpointConfig,
    pub client: client::ClientConfig,
    pub seed: u64,
}

impl Setup {
    pub fn new(seed: u64) -> Self {
        Self::with_keep_alive(seed, None)
    }

    /// The client sends a PING after this much silence.
    pub fn with_keep_alive(seed: u64, keep_alive: Option<Duration>) -> Self {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let tls = server::client_tls(provider, b"test");
        let tls = client::crypto::rustls::QuicClientConfig::try_from(tls).expect("a suite");
        let mut config = client::ClientConfig::new(Arc::new(tls));
        let mut transport = client::TransportConfig::default();
        transport.stream_receive_window(client::VarInt::from_u32(16 << 20));
        transport.receive_window(client::VarInt::from_u32(16 << 20));
        // A client that only receives learns of a new address of its own by talking.
        transport.keep_alive_interval(keep_alive);
        config.transport_config(Arc::new(transport));
        Self { server: server::config(), client: config, seed }
    }

    pub fn transport(&mut self, change: impl FnOnce(&mut TransportConfig)) {
        let mut config = (*self.server.transport).clone();
        change(&mut config);
        self.server.transport = Arc::new(config);
    }
}

/// A setting of a link, as `links` reads it from text.
pub fn read<T: FromStr<Err = links::ParseError>>(text: &str) -> T {
    text.parse().expect("a setting")
}

/// Callback after the server's handshake is confirmed.
pub type OnConnected = Box<dyn FnMut(&mut Endpoint, Handle, Timestamp)>;

/// Codepoint of a datagram after a node; `None` if the node drops it.
pub type EcnNode = Box<dyn FnMut(Timestamp, Ecn) -> Option<Ecn>>;

/// Both endpoints and the links between them.
pub struct Pair {
    pub now: Timestamp,
    epoch: Instant,
    pub server: Endpoint,
    pub client_endpoint: client::Endpoint,
    pub client: client::Connection,
    client_handle: client::ConnectionHandle,
    seed: u64,
    /// The path that datagrams take; see [`Self::both`].
    route: PathConfig,
    /// That path, and before it those on which datagrams are still under way.
    pub paths: Vec<Path<Vec<u8>>>,
    /// Decides on the loss of each datagram to the client, for tests that choose by content, which
    /// no loss model of `links` knows.
    pub loses: Box<dyn FnMut() -> bool>,
    /// What nodes on the way to the client, and on that to the server, do with ECN codepoints.
    pub ecn_down: EcnNode,
    pub ecn_up: EcnNode,
    /// Where the server sees the client.
    pub client_address: SocketAddr,
    /// Two addresses of the client. The second one uses the first of `paths`.
    pub detour: Option<[SocketAddr; 2]>,
    /// Other addresses at which the client is reached.
    pub other_addresses: Vec<SocketAddr>,
    pub handle: Option<Handle>,
    pub server_events: Vec<Event>,
    pub client_events: Vec<String>,
    /// Bytes that the server answers to each request stream.
    pub answer: Bytes,
    /// Size of each written chunk, in bytes. A chunk's mark is its number, in milliseconds.
    pub marked: usize,
    /// Uses the marks of a live stream.
    pub is_live: bool,
    /// The rate of the stream that the marks say.
    pub catching_up: Option<Rate>,
    pub on_connected: Option<OnConnected>,
    /// Marks of the datagrams that went to the client.
    pub ecn_to_client: Vec<Ecn>,
}

impl Pair {
    pub fn new(setup: &Setup) -> Self {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&setup.seed.to_le_bytes());
        let mut config = client::EndpointConfig::default();
        config.rng_seed(Some(seed));
        let endpoint = client::Endpoint::new(Arc::new(config), None, true, Some(seed));
        let server = Endpoint::new(setup.server.clone(), seed);
        Self::with(setup, endpoint, server, Timestamp::from_millis(1))
    }

    /// A further connection of the same endpoints.
    pub fn again(self, setup: &Setup) -> Self {
        let now = self.now + Duration::from_secs(1);
        let mut server = self.server;
        if let Some(handle) = self.handle {
            server.remove(handle);
        }
        let epoch = self.epoch;
        let mut next = Self::with(setup, self.client_endpoint, server, now);
        next.epoch = epoch;
        next
    }

    fn with(
        setup: &Setup,
        mut endpoint: client::Endpoint,
        server: Endpoint,
        now: Timestamp,
    ) -> Self {
        let epoch = Instant::now();
        let at = epoch + now.since(Timestamp::ZERO);
        let (client_handle, client) =
            endpoint.connect(at, setup.client.clone(), SERVER, "server").expect("a connection");
        let mut pair = Self {
            now,
            epoch,
            server,
            client_endpoint: endpoint,
            client,
            client_handle,
            seed: setup.seed,
            route: PathConfig::default(),
            paths: Vec::new(),
            loses: Box::new(|| false),
            ecn_down: Box::new(|_, ecn| Some(ecn)),
            ecn_up: Box::new(|_, ecn| Some(ecn)),
            client_address: CLIENT,
            detour: None,
            other_addresses: Vec::new(),
            handle: None,
            server_events: Vec::new(),
            client_events: Vec::new(),
            answer: Bytes::new(),
            marked: usize::MAX,
            is_live: true,
            catching_up: None,
            on_connected: None,
            ecn_to_client: Vec::new(),
        };
        pair.both(|link| link.delay = Some(Duration::from_millis(10)));
        pair
    }

    /// Moves later datagrams to another path with changed links; datagrams in flight still arrive
    /// over the old one. A path counts its packets from 0. The first path only has a delay of 10 ms
    /// each way.
    pub fn both(&mut self, change: impl Fn(&mut LinkConfig)) {
        change(&mut self.route.up);
        self.down(change);
    }

    /// The same where only the link to the client differs.
    pub fn down(&mut self, change: impl FnOnce(&mut LinkConfig)) {
        change(&mut self.route.down);
        self.reroute();
    }

    /// The same where only the link to the server differs.
    pub fn up(&mut self, change: impl FnOnce(&mut LinkConfig)) {
        change(&mut self.route.up);
        self.reroute();
    }

    fn reroute(&mut self) {
        self.paths.retain(|path| path.next_event().is_some());
        self.paths.push(Path::new(&self.route, self.seed, "path"));
    }

    pub fn instant(&self) -> Instant {
        self.epoch + self.now.since(Timestamp::ZERO)
    }

    /// From here on the second of these addresses has a path of its own, which takes this long.
    pub fn split(&mut self, addresses: [SocketAddr; 2], delay: Duration) {
        self.detour = Some(addresses);
        let mut route = PathConfig::default();
        (route.up.delay, route.down.delay) = (Some(delay), Some(delay));
        self.paths.insert(0, Path::new(&route, self.seed, "detour"));
    }

    /// The path of datagrams to and from an address.
    fn path_of(&mut self, address: SocketAddr) -> &mut Path<Vec<u8>> {
        match self.detour {
            Some([_, far]) if far == address => self.paths.first_mut(),
            _ => self.paths.last_mut(),
        }
        .expect("a path")
    }

    fn send_down(&mut self, to: SocketAddr, ecn: Ecn, data: &[u8]) {
        self.ecn_to_client.push(ecn);
        if !(self.loses)()
            && let Some(ecn) = (self.ecn_down)(self.now, ecn)
        {
            let packet = Packet::datagram(data.len() as u32, ecn, data.to_vec());
            let now = self.now;
            self.path_of(to).down.send(now, packet);
        }
    }

    fn drive_client(&mut self) {
        let now = self.instant();
        loop {
            while let Some(event) = self.client.poll_endpoint_events() {
                if let Some(event) = self.client_endpoint.handle_event(self.client_handle, event) {
                    self.client.handle_event(event);
                }
            }
            while let Some(event) = self.client.poll() {
                self.client_events.push(format!("{event:?}"));
            }
            let mut buf = Vec::new();
            let Some(transmit) = self.client.poll_transmit(now, 1, &mut buf) else { break };
            let ecn = match transmit.ecn {
                None => Ecn::NotEct,
                Some(client::EcnCodepoint::Ect0) => Ecn::Ect0,
                Some(client::EcnCodepoint::Ect1) => Ecn::Ect1,
                Some(client::EcnCodepoint::Ce) => Ecn::Ce,
            };
            let Some(ecn) = (self.ecn_up)(self.now, ecn) else { continue };
            let packet = Packet::datagram(transmit.size as u32, ecn, buf);
            let (now, from) = (self.now, self.client_address);
            self.path_of(from).up.send(now, packet);
        }
    }

    fn drive_server(&mut self) {
        let Some(handle) = self.handle else { return };
        while let Some(event) = self.server.poll_event(handle) {
            self.on_server_event(handle, &event);
            self.server_events.push(event);
        }
        let mut buf = vec![0; 65_536];
        while let Some(transmit) = self.server.poll_transmit(handle, self.now, &mut buf, 10) {
            assert!(transmit.len > 0 && transmit.segment > 0);
            for datagram in buf[..transmit.len].chunks(transmit.segment) {
                let to = transmit.addresses.remote;
                if to == self.client_address || self.other_addresses.contains(&to) {
                    self.send_down(to, transmit.ecn, datagram);
                }
            }
        }
        if self.server.connection(handle).is_some_and(|c| c.is_drained()) {
            self.server.remove(handle);
        }
    }

    fn on_server_event(&mut self, handle: Handle, event: &Event) {
        if *event == Event::Connected
            && let Some(mut then) = self.on_connected.take()
        {
            then(&mut self.server, handle, self.now);
        }
        let Event::Stream(quic::streams::StreamEvent::Readable(id)) = event else { return };
        let Some(connection) = self.server.connection(handle) else { return };
        loop {
            match connection.read(*id, 65_536) {
                Ok(quic::streams::ReadOutcome::Data(_)) => {}
                Ok(quic::streams::ReadOutcome::Finished) => {
                    if id.direction() == units::Direction::Bidirectional {
                        for (number, chunk) in (0..).zip(self.answer.chunks(self.marked)) {
                            let chunk = self.answer.slice_ref(chunk);
                            let media_time = self.is_live.then(|| Duration::from_millis(number));
                            let mark = Some(Mark {
                                media_time,
                                deadline: None,
                                catching_up: self.catching_up,
                            });
                            connection.write_marked(*id, chunk, mark).expect("a writable stream");
                        }
                        connection.finish(*id).expect("a writable stream");
                    }
                    break;
                }
                _ => break,
            }
        }
    }

    /// Takes one step; `false` when nothing happens until `end`.
    pub fn step(&mut self, end: Timestamp) -> bool {
        self.drive_client();
        self.drive_server();
        let server_deadline =
            self.handle.and_then(|handle| self.server.connection(handle)?.deadline());
        let client_deadline = self
            .client
            .poll_timeout()
            .map(|at| Timestamp::ZERO + at.saturating_duration_since(self.epoch));
        let next = self.paths.iter().filter_map(Path::next_event);
        let next = next.chain(server_deadline).chain(client_deadline).min();
        let Some(next) = next.filter(|&next| next <= end) else {
            self.now = self.now.max(end);
            return false;
        };
        self.now = self.now.max(next);
        let now = self.instant();
        if client_deadline.is_some_and(|at| at <= self.now) {
            self.client.handle_timeout(now);
        }
        if let Some(handle) = self.handle
            && server_deadline.is_some_and(|at| at <= self.now)
        {
            self.server.handle_timeout(handle, self.now);
        }
        for at in 0..self.paths.len() {
            while let Some(datagram) = self.paths[at].down.poll(self.now) {
                self.hand_to_client(datagram);
            }
            while let Some(datagram) = self.paths[at].up.poll(self.now) {
                let from = match self.detour {
                    Some([near, far]) => [far, near][at.min(1)],
                    None => self.client_address,
                };
                self.hand_to_server(from, datagram);
            }
        }
        true
    }

    fn hand_to_client(&mut self, datagram: Delivered<Vec<u8>>) {
        let (ecn, data) = opened(datagram);
        let ecn = match ecn {
            Ecn::NotEct => None,
            Ecn::Ect0 => Some(client::EcnCodepoint::Ect0),
            Ecn::Ect1 => Some(client::EcnCodepoint::Ect1),
            Ecn::Ce => Some(client::EcnCodepoint::Ce),
        };
        let (now, data, mut reply) = (self.instant(), BytesMut::from(&data[..]), Vec::new());
        let event = self.client_endpoint.handle(now, SERVER, None, ecn, data, &mut reply);
        if let Some(client::DatagramEvent::ConnectionEvent(_, event)) = event {
            self.client.handle_event(event);
        }
    }

    fn hand_to_server(&mut self, from: SocketAddr, datagram: Delivered<Vec<u8>>) {
        let (ecn, mut data) = opened(datagram);
        let datagram = Datagram { addresses: Addresses::of(from), ecn, payload: &mut data[..] };
        let mut reply = Vec::new();
        match self.server.handle_datagram(self.now, datagram, &mut reply) {
            // A late duplicate of the first Initial opens a connection that nobody uses.
            Outcome::Accepted(handle) => {
                self.handle.get_or_insert(handle);
            }
            Outcome::Reply(len) => self.send_down(from, Ecn::NotEct, &reply[..len]),
            _ => {}
        }
    }

    /// Steps until `done`, for at most `limit` of virtual time.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&mut Self) -> bool) -> bool {
        let end = self.now + limit;
        let mut at = (self.now, 0u32);
        loop {
            if done(self) {
                return true;
            }
            if !self.step(end) {
                return done(self);
            }
            if at.0 == self.now {
                at.1 += 1;
                assert!(at.1 < 100_000, "time stands still at {:?}", self.now);
            } else {
                at = (self.now, 0);
            }
        }
    }

    pub fn connect(&mut self) {
        let done = |pair: &mut Self| {
            pair.client_events.iter().any(|e| e == "Connected")
                && pair.server_events.contains(&Event::Connected)
        };
        assert!(
            self.run_until(Duration::from_secs(20), done),
            "no handshake: {:?} {:?}",
            self.client_events,
            self.server_events
        );
    }

    /// Opens a request stream and asks for the answer.
    pub fn request(&mut self) -> client::StreamId {
        self.try_request().expect("a stream")
    }

    /// The same, unless the server's limit of streams is reached.
    pub fn try_request(&mut self) -> Option<client::StreamId> {
        let id = self.client.streams().open(client::Dir::Bi)?;
        self.client.send_stream(id).write(b"GET").expect("room");
        self.client.send_stream(id).finish().expect("an open stream");
        Some(id)
    }

    /// Reads available data. Returns true once the stream is finished.
    pub fn read(&mut self, id: client::StreamId, into: &mut Vec<u8>) -> bool {
        let mut stream = self.client.recv_stream(id);
        let Ok(mut chunks) = stream.read(true) else { return true };
        let finished = loop {
            match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => into.extend_from_slice(&chunk.bytes),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let _ = chunks.finalize();
        finished
    }

    /// Downloads the answer on a stream of its own.
    pub fn download(&mut self, limit: Duration) -> Vec<u8> {
        let id = self.request();
        self.receive(id, limit)
    }

    /// Returns the rest of the answer on this stream.
    pub fn receive(&mut self, id: client::StreamId, limit: Duration) -> Vec<u8> {
        let mut got = Vec::new();
        let mut finished = false;
        let done = self.run_until(limit, |pair| {
            finished = finished || pair.read(id, &mut got);
            finished
        });
        assert!(
            done,
            "got {} of {} bytes by {:?}; client {:?}; server {:?}",
            got.len(),
            self.answer.len(),
            self.now,
            self.client_events,
            self.server_events
        );
        got
    }

    pub fn connection(&mut self) -> &mut quic::Connection {
        let handle = self.handle.expect("a connection");
        self.server.connection(handle).expect("a connection")
    }
}

/// The mark and the data of a datagram, as the link has left them.
fn opened(arrived: Delivered<Vec<u8>>) -> (Ecn, Vec<u8>) {
    let mut data = arrived.packet.payload;
    if let Some(corruption) = arrived.corruption {
        corruption.apply(&mut data);
    }
    (arrived.packet.ecn, data)
}

/// A small generator for tests' schedules (splitmix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.roll() % 100 < percent
    }
}

/// Content that shows when bytes change places.
pub fn content(len: usize) -> Bytes {
    let mut dice = Dice(len as u64);
    (0..len.div_ceil(8)).flat_map(|_| dice.roll().to_le_bytes()).take(len).collect()
}
