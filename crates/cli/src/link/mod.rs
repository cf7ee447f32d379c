//! `mendcast link`: a UDP relay that applies a link model to real traffic. Any client and server
//! can be tested over a path with a given rate, delay, queue and loss.
//!
//! One thread and one clock. The clock starts with the first datagram of a client, which is what
//! `--blackhole` and traces count from. All clients share the path; each has a socket of its own
//! towards the server.

mod arguments;
mod socket;

use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

pub(crate) use arguments::Arguments;
use links::{Delivered, HeldAcks, Packet, Path, PathConfig, RareAcks, UDP_IPV4_HEADERS};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::time::TimeSpec;
use socket::{DatagramRun, MAX_PAYLOAD, Socket};
use units::{Ecn, Timestamp};

use crate::error::Error;

/// An IPv6 header is 20 bytes longer than an IPv4 header.
const UDP_IPV6_HEADERS: u32 = UDP_IPV4_HEADERS + 20;
/// Calls that take from one socket before the others have their turn.
const BATCH: usize = 64;
/// Maximum number of socket events per poll.
const MAX_EVENTS: usize = 256;
/// Exits of a client with two addresses.
const EXITS: usize = 2;
/// Clients at most; datagrams of further ones are dropped.
const MAX_CLIENTS: usize = 10_000;
/// Longest sleep.
const MAX_SLEEP: Duration = Duration::from_secs(60);

/// The clients' access before the path: their addresses towards the server, and their
/// acknowledgements.
#[derive(Clone, Debug, Default)]
pub(crate) struct ClientAccess {
    /// Addresses of this machine towards the server, one for each exit; the system chooses if
    /// empty.
    pub from: Vec<IpAddr>,
    /// Interval of changes of a client's ports, as by a NAT with short timeouts. Default: never.
    pub rebind_every: Option<Duration>,
    /// Period of changes between a client's two exits. Default: one exit.
    pub flap_every: Option<Duration>,
    /// How rarely clients acknowledge, and the path's round-trip time.
    pub acks: Option<(RareAcks, Duration)>,
}

impl ClientAccess {
    /// Exits of each client: sockets towards the server.
    fn exits(&self) -> usize {
        if self.flap_every.is_some() { EXITS } else { 1 }
    }

    /// The exit that packets take which leave a client at `now`.
    fn exit(&self, now: Timestamp) -> usize {
        let every = self.flap_every.map_or(1, |every| every.as_nanos().max(1));
        let flaps = now.since(Timestamp::ZERO).as_nanos() / every;
        (flaps % self.exits() as u128) as usize
    }
}

/// A datagram in transit, its client, and its exit towards the server.
#[derive(Clone, Debug)]
struct QueuedDatagram {
    client: usize,
    exit: usize,
    data: Vec<u8>,
}

/// A client, as the relay sees it.
#[derive(Debug)]
struct LinkClient {
    address: SocketAddr,
    /// Towards the server, one for each exit; replaced by a rebinding.
    upstreams: Vec<Socket>,
    /// The acknowledgements that it holds back.
    acks: Option<HeldAcks>,
}

/// A UDP relay over an emulated path.
#[derive(Debug)]
pub(crate) struct Relay {
    listener: Socket,
    /// Watches the clients' sockets; an event's data is the client and its exit.
    watched: Epoll,
    server: SocketAddr,
    access: ClientAccess,
    clients: Vec<LinkClient>,
    by_address: HashMap<SocketAddr, usize>,
    path: Path<QueuedDatagram>,
    /// When the first datagram came.
    start: Option<Instant>,
    next_rebind: Timestamp,
    rebindings: u64,
}

impl Relay {
    /// Takes the datagrams of clients from `listen` through their `access` and over `path` to
    /// `server`. `seed` decides the fate of the n-th packet.
    ///
    /// # Errors
    /// One line: the address cannot be had.
    pub(crate) fn open(
        listen: SocketAddr,
        server: SocketAddr,
        path: &PathConfig,
        access: ClientAccess,
        seed: u64,
    ) -> Result<Self, Error> {
        let listener =
            Socket::bind(listen).map_err(Error::at(format_args!("cannot listen on {listen}")))?;
        let watched = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(Error::at("epoll"))?;
        Ok(Self {
            listener,
            watched,
            server,
            access,
            clients: Vec::new(),
            by_address: HashMap::new(),
            path: Path::new(path, seed, "link"),
            start: None,
            next_rebind: Timestamp::MAX,
            rebindings: 0,
        })
    }

    fn now(&self) -> Timestamp {
        self.start.map_or(Timestamp::ZERO, |start| Timestamp::ZERO + start.elapsed())
    }

    /// Where clients connect.
    ///
    /// # Errors
    /// One line, from the system.
    pub(crate) fn address(&self) -> Result<SocketAddr, Error> {
        self.listener.local_address().map_err(Error::new)
    }

    /// Relays until there is something to read from `stop`.
    ///
    /// # Errors
    /// A socket fails.
    pub(crate) fn serve(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let mut buffer = vec![0; MAX_PAYLOAD];
        loop {
            if self.wait(stop)? {
                return Ok(());
            }
            self.take_from_clients(&mut buffer)?;
            self.take_from_server(&mut buffer)?;
            let now = self.now();
            self.release_acks(now);
            if now >= self.next_rebind {
                self.rebind(now)?;
            }
            self.deliver(now)?;
        }
    }

    /// Sleeps until something arrives or is due. Returns whether it is `stop` that can be read.
    fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<bool> {
        let mut fds = [stop, self.listener.as_fd(), self.watched.0.as_fd()]
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let held = self.clients.iter().filter_map(|client| client.acks.as_ref()?.until());
        let next = self.path.next_event().into_iter().chain(held).min();
        let next = next.unwrap_or(Timestamp::MAX).min(self.next_rebind);
        let sleep = next.since(self.now()).min(MAX_SLEEP);
        match ppoll(&mut fds, Some(TimeSpec::from_duration(sleep)), None) {
            Ok(_) => Ok(fds[0].any().unwrap_or(true)),
            Err(Errno::EINTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn take_from_clients(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let Some(received) = self.listener.receive(buffer)? else { break };
            if self.start.is_none() {
                self.start = Some(Instant::now());
                if let Some(every) = self.access.rebind_every {
                    self.next_rebind = Timestamp::ZERO + every;
                }
            }
            let Some(client) = self.client(received.from) else { continue };
            let now = self.now();
            let mut send = sender(&mut self.path, now, client, self.access.exit(now), self.server);
            let acks = &mut self.clients[client].acks;
            received.datagrams().for_each(|data| match acks {
                Some(acks) => acks.take(now, received.ecn, data, &mut send),
                None => send(received.ecn, data),
            });
        }
        Ok(())
    }

    /// The client with this address, perhaps a new one; `None` if it cannot be served.
    fn client(&mut self, address: SocketAddr) -> Option<usize> {
        if let Some(&client) = self.by_address.get(&address) {
            return Some(client);
        }
        if self.clients.len() >= MAX_CLIENTS {
            return None;
        }
        let client = self.clients.len();
        // Out of descriptors: this client is not served, the others are.
        let upstreams = self.upstreams(client).ok()?;
        let acks = self.access.acks.map(|(rule, rtt)| HeldAcks::new(rule, rtt));
        self.clients.push(LinkClient { address, upstreams, acks });
        self.by_address.insert(address, client);
        Some(client)
    }

    /// Sends the acknowledgements that have been held back long enough.
    fn release_acks(&mut self, now: Timestamp) {
        let exit = self.access.exit(now);
        for (client, LinkClient { acks, .. }) in self.clients.iter_mut().enumerate() {
            if let Some(acks) = acks {
                acks.release_due(now, &mut sender(&mut self.path, now, client, exit, self.server));
            }
        }
    }

    fn take_from_server(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); MAX_EVENTS];
        let heard = match self.watched.wait(&mut events, EpollTimeout::ZERO) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        for event in &events[..heard] {
            let (client, exit) = (event.data() as usize / EXITS, event.data() as usize % EXITS);
            for _ in 0..BATCH {
                let upstream = &self.clients[client].upstreams[exit];
                let Some(received) = upstream.receive(buffer)? else { break };
                let now = self.now();
                for data in received.datagrams() {
                    let packet = packet(client, exit, received.ecn, data, self.server);
                    self.path.down.send(now, packet);
                }
            }
        }
        Ok(())
    }

    /// Sends the path's output. Datagrams that a full socket rejects are lost.
    fn deliver(&mut self, now: Timestamp) -> io::Result<()> {
        let clients = &self.clients;
        runs(core::iter::from_fn(|| self.path.up.poll(now)), |client, exit, run| {
            clients[client].upstreams[exit].send(None, run)
        })?;
        runs(core::iter::from_fn(|| self.path.down.poll(now)), |client, _, run| {
            self.listener.send(Some(clients[client].address), run)
        })
    }

    /// New sockets of `client` towards the server, one for each exit: new source ports.
    fn upstreams(&self, client: usize) -> io::Result<Vec<Socket>> {
        let any = match self.server {
            SocketAddr::V4(_) => [0, 0, 0, 0].into(),
            SocketAddr::V6(_) => [0u16; 8].into(),
        };
        let open = |exit: usize| {
            let from = self.access.from.get(exit).or(self.access.from.last());
            let mut upstream = Socket::bind((from.copied().unwrap_or(any), 0).into())?;
            upstream.connect(self.server)?;
            let event = EpollEvent::new(EpollFlags::EPOLLIN, (client * EXITS + exit) as u64);
            self.watched.add(&upstream, event)?;
            Ok(upstream)
        };
        (0..self.access.exits()).map(open).collect()
    }

    fn rebind(&mut self, now: Timestamp) -> io::Result<()> {
        for client in 0..self.clients.len() {
            // The old sockets close, and so are no longer watched.
            self.clients[client].upstreams = self.upstreams(client)?;
            self.rebindings += 1;
        }
        let every = self.access.rebind_every.unwrap_or(MAX_SLEEP).max(Duration::from_millis(1));
        while self.next_rebind <= now {
            self.next_rebind += every;
        }
        Ok(())
    }

    fn report(&self, json: bool) -> Result<(), Error> {
        for link in [&self.path.up, &self.path.down] {
            link.check_conservation().map_err(Error::new)?;
        }
        if json {
            let report = serde_json::json!({
                "clients": self.clients.len(),
                "rebindings": self.rebindings,
                "up": self.path.up.counters(),
                "down": self.path.down.counters(),
            });
            print_line!("{report}");
        }
        Ok(())
    }
}

/// Returns a function that sends datagrams of `client` over the path to the server.
fn sender(
    path: &mut Path<QueuedDatagram>,
    now: Timestamp,
    client: usize,
    exit: usize,
    server: SocketAddr,
) -> impl FnMut(Ecn, &[u8]) {
    move |ecn, data| path.up.send(now, packet(client, exit, ecn, data, server))
}

/// A datagram as a packet of the path.
fn packet(
    client: usize,
    exit: usize,
    ecn: Ecn,
    data: &[u8],
    server: SocketAddr,
) -> Packet<QueuedDatagram> {
    let headers = if server.is_ipv6() { UDP_IPV6_HEADERS } else { UDP_IPV4_HEADERS };
    let size = data.len() as u32 + headers;
    Packet { size, ecn, payload: QueuedDatagram { client, exit, data: data.to_vec() } }
}

/// Gives `send` the delivered datagrams, in their order and in runs for one client and exit with
/// one ECN field.
fn runs(
    all: impl Iterator<Item = Delivered<QueuedDatagram>>,
    mut send: impl FnMut(usize, usize, &DatagramRun) -> io::Result<()>,
) -> io::Result<()> {
    let (mut of, mut run) = ((0, 0), DatagramRun::new(Ecn::NotEct));
    for (ecn, QueuedDatagram { client, exit, data }) in all.map(unpack) {
        if (client, exit) != of || !run.takes(ecn, &data) {
            let full = core::mem::replace(&mut run, DatagramRun::new(ecn));
            if !full.is_empty() {
                send(of.0, of.1, &full)?;
            }
            of = (client, exit);
        }
        run.push(data);
    }
    if run.is_empty() { Ok(()) } else { send(of.0, of.1, &run) }
}

/// The ECN field and the datagram that have come out of the path.
fn unpack(delivered: Delivered<QueuedDatagram>) -> (Ecn, QueuedDatagram) {
    let mut datagram = delivered.packet.payload;
    if let Some(corruption) = delivered.corruption {
        corruption.apply(&mut datagram.data);
    }
    (delivered.packet.ecn, datagram)
}
