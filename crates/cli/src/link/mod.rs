//! `mendcast link`: a UDP relay that does to real traffic what a link model says, so that any
//! client can be tried against any server over a path that has a rate, a delay, a queue and losses.
//!
//! One thread and one clock. The clock starts with the first datagram of a client, which is what
//! `--blackhole` and traces count from. All clients share the path; each has a socket of its own
//! towards the server.

mod socket;

use core::time::Duration;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use clap::Args;
use links::{
    Delivered, Jitter, LinkConfig, Loss, LossPlace, Packet, Path, PathConfig, Probability, Queue,
    Reorder, Trace, UDP_IPV4_HEADERS, Window, parse_duration, parse_rate,
};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use socket::{MAX_PAYLOAD, Received, Run, Socket};
use units::{Ecn, Rate, Timestamp};

/// An IPv6 header is 20 bytes longer than an IPv4 header.
const UDP_IPV6_HEADERS: u32 = UDP_IPV4_HEADERS + 20;
/// Calls that take from one socket before the others have their turn.
const BATCH: usize = 64;
/// Clients' sockets that are heard of at a time.
const HEARD: usize = 256;
/// Clients at most; datagrams of further ones are dropped.
const MAX_CLIENTS: usize = 10_000;
/// Longest sleep.
const MAX_SLEEP: Duration = Duration::from_secs(60);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where clients connect; port 0 takes any free one, printed as `listening on ADDR`.
    #[arg(long, value_name = "ADDR")]
    listen: SocketAddr,
    /// The server.
    #[arg(long, value_name = "ADDR")]
    to: SocketAddr,
    /// The address of this machine that the server sees; otherwise the system chooses.
    #[arg(long, value_name = "IP")]
    from: Option<IpAddr>,
    /// Rate of the bottleneck, e.g. 12mbps.
    #[arg(long, value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Rate towards the server, instead of --rate.
    #[arg(long, value_parser = parse_rate)]
    rate_up: Option<Rate>,
    /// Round-trip propagation time, e.g. 60ms; half of it each way.
    #[arg(long, value_parser = parse_duration)]
    rtt: Option<Duration>,
    /// Variation of the delay, e.g. 5ms.
    #[arg(long)]
    jitter: Option<Jitter>,
    /// What waits for the bottleneck, e.g. 500kB.
    #[arg(long)]
    queue: Option<Queue>,
    /// Loss both ways, e.g. 5% or ge:p=0.2,r=0.8,good=1%,bad=40%,slot=30ms.
    #[arg(long)]
    loss: Option<Loss>,
    /// Loss towards the client, instead of --loss.
    #[arg(long)]
    loss_down: Option<Loss>,
    /// Loss towards the server, instead of --loss.
    #[arg(long)]
    loss_up: Option<Loss>,
    /// Whether packets are lost before-queue or after-queue.
    #[arg(long, default_value = "after-queue")]
    loss_place: LossPlace,
    /// Packets held back and overtaken, e.g. 1%,5ms.
    #[arg(long)]
    reorder: Option<Reorder>,
    /// Share of packets that arrive twice, e.g. 0.1%.
    #[arg(long)]
    duplicate: Option<Probability>,
    /// Share of packets that are damaged.
    #[arg(long)]
    corrupt: Option<Probability>,
    /// Largest packet in bytes, IP header included.
    #[arg(long, value_name = "BYTES")]
    mtu: Option<u32>,
    /// The clients' addresses change this often, as behind a forgetful NAT.
    #[arg(long, value_parser = parse_duration, value_name = "EVERY")]
    rebind_every: Option<Duration>,
    /// Everything vanishes from AT on, for FOR; may be repeated.
    #[arg(long, value_name = "AT,FOR")]
    blackhole: Vec<Window>,
    /// A recorded path: mahimahi delivery opportunities, or rows of time, rate, RTT and loss.
    #[arg(long, value_name = "FILE", value_parser = Trace::load)]
    trace: Option<Trace>,
    /// Same seed, same fate of the n-th packet.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print the counters as one JSON object at the end.
    #[arg(long)]
    json: bool,
}

/// A datagram on its way, and the client that it belongs to.
#[derive(Clone, Debug)]
struct Datagram {
    client: usize,
    data: Vec<u8>,
}

/// A client, as the relay sees it.
#[derive(Debug)]
struct Client {
    address: SocketAddr,
    /// Towards the server; replaced by a rebinding.
    upstream: Socket,
}

/// A UDP relay over an emulated path.
#[derive(Debug)]
pub(crate) struct Relay {
    listener: Socket,
    /// Watches the clients' sockets; an event's data is the client.
    watched: Epoll,
    server: SocketAddr,
    from: Option<IpAddr>,
    clients: Vec<Client>,
    by_address: HashMap<SocketAddr, usize>,
    path: Path<Datagram>,
    /// When the first datagram came.
    start: Option<Instant>,
    rebind_every: Option<Duration>,
    next_rebind: Timestamp,
    rebindings: u64,
}

impl Arguments {
    pub(crate) fn run(self) -> Result<(), String> {
        // Blocked before anything else, so that no signal is missed and each ends the loop.
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGINT);
        ends.add(Signal::SIGTERM);
        ends.thread_block().map_err(|e| format!("signals: {e}"))?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let signals = SignalFd::with_flags(&ends, flags).map_err(|e| format!("signals: {e}"))?;

        let (path, every) = (self.path(), self.rebind_every);
        let mut relay = Relay::open(self.listen, self.to, self.from, &path, every, self.seed)?;
        eprintln!("listening on {}", relay.address()?);
        relay.serve(signals.as_fd()).map_err(|e| format!("link: {e}"))?;
        relay.report(self.json)
    }

    fn path(&self) -> PathConfig {
        let mut path = PathConfig::both(LinkConfig {
            rate: self.rate,
            queue: self.queue.unwrap_or_default(),
            delay: self.rtt.map(|rtt| rtt / 2),
            jitter: self.jitter,
            loss: self.loss.clone(),
            loss_place: self.loss_place,
            reorder: self.reorder,
            duplicate: self.duplicate.unwrap_or_default(),
            corrupt: self.corrupt.unwrap_or_default(),
            mtu: self.mtu,
            blackhole: self.blackhole.clone(),
            trace: self.trace.clone(),
            ..LinkConfig::default()
        });
        path.up.rate = self.rate_up.or(path.up.rate);
        path.up.loss = self.loss_up.clone().or(path.up.loss);
        path.down.loss = self.loss_down.clone().or(path.down.loss);
        path
    }
}

impl Relay {
    /// Takes what clients send to `listen` over `path` to `server`, `from` an address of this machine.
    /// The clients' ports change each time that `rebind_every` has passed; `seed` decides the fate of
    /// the n-th packet.
    ///
    /// # Errors
    /// One line: the address cannot be had.
    pub(crate) fn open(
        listen: SocketAddr,
        server: SocketAddr,
        from: Option<IpAddr>,
        path: &PathConfig,
        rebind_every: Option<Duration>,
        seed: u64,
    ) -> Result<Self, String> {
        let listener =
            Socket::bind(listen).map_err(|e| format!("cannot listen on {listen}: {e}"))?;
        let watched =
            Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).map_err(|e| format!("epoll: {e}"))?;
        Ok(Self {
            listener,
            watched,
            server,
            from,
            clients: Vec::new(),
            by_address: HashMap::new(),
            path: Path::new(path, seed, "link"),
            start: None,
            rebind_every,
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
    pub(crate) fn address(&self) -> Result<SocketAddr, String> {
        self.listener.local_address().map_err(|e| e.to_string())
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
        let next = self.path.next_event().unwrap_or(Timestamp::MAX).min(self.next_rebind);
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
                if let Some(every) = self.rebind_every {
                    self.next_rebind = Timestamp::ZERO + every;
                }
            }
            let client = match self.by_address.get(&received.from) {
                Some(&client) => client,
                None if self.clients.len() < MAX_CLIENTS => {
                    let client = self.clients.len();
                    // Out of descriptors: this client is not served, the others are.
                    let Ok(upstream) = self.upstream(client) else { continue };
                    self.clients.push(Client { address: received.from, upstream });
                    self.by_address.insert(received.from, client);
                    client
                }
                None => continue,
            };
            let now = self.now();
            for packet in packets(client, &received, self.server) {
                self.path.up.send(now, packet);
            }
        }
        Ok(())
    }

    fn take_from_server(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); HEARD];
        let heard = match self.watched.wait(&mut events, EpollTimeout::ZERO) {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        for event in &events[..heard] {
            let client = event.data() as usize;
            for _ in 0..BATCH {
                let Some(received) = self.clients[client].upstream.receive(buffer)? else { break };
                let now = self.now();
                for packet in packets(client, &received, self.server) {
                    self.path.down.send(now, packet);
                }
            }
        }
        Ok(())
    }

    /// Sends what has come out of the path. What a full socket does not take is lost.
    fn deliver(&mut self, now: Timestamp) -> io::Result<()> {
        let clients = &self.clients;
        runs(core::iter::from_fn(|| self.path.up.poll(now)), |client, run| {
            clients[client].upstream.send(None, run)
        })?;
        runs(core::iter::from_fn(|| self.path.down.poll(now)), |client, run| {
            self.listener.send(Some(clients[client].address), run)
        })
    }

    /// A new socket of `client` towards the server: a new source port.
    fn upstream(&self, client: usize) -> io::Result<Socket> {
        let any = match self.server {
            SocketAddr::V4(_) => [0, 0, 0, 0].into(),
            SocketAddr::V6(_) => [0u16; 8].into(),
        };
        let upstream = Socket::bind((self.from.unwrap_or(any), 0).into())?;
        upstream.connect(self.server)?;
        self.watched.add(&upstream, EpollEvent::new(EpollFlags::EPOLLIN, client as u64))?;
        Ok(upstream)
    }

    fn rebind(&mut self, now: Timestamp) -> io::Result<()> {
        for client in 0..self.clients.len() {
            // The old socket closes, and so is no longer watched.
            self.clients[client].upstream = self.upstream(client)?;
            self.rebindings += 1;
        }
        let every = self.rebind_every.unwrap_or(MAX_SLEEP).max(Duration::from_millis(1));
        while self.next_rebind <= now {
            self.next_rebind += every;
        }
        Ok(())
    }

    fn report(&self, json: bool) -> Result<(), String> {
        for link in [&self.path.up, &self.path.down] {
            link.check_conservation().map_err(|e| e.to_string())?;
        }
        if json {
            let report = serde_json::json!({
                "clients": self.clients.len(),
                "rebindings": self.rebindings,
                "up": self.path.up.counters(),
                "down": self.path.down.counters(),
            });
            say!("{report}");
        }
        Ok(())
    }
}

/// What was received, as packets of the path.
fn packets(
    client: usize,
    received: &Received<'_>,
    server: SocketAddr,
) -> impl Iterator<Item = Packet<Datagram>> {
    let headers = if server.is_ipv6() { UDP_IPV6_HEADERS } else { UDP_IPV4_HEADERS };
    received.datagrams().map(move |data| Packet {
        size: data.len() as u32 + headers,
        // The relay's own sockets do not carry the ECN field across.
        ecn: Ecn::NotEct,
        payload: Datagram { client, data: data.to_vec() },
    })
}

/// Gives `send` what was delivered, in its order and in runs of datagrams for one client.
fn runs(
    all: impl Iterator<Item = Delivered<Datagram>>,
    mut send: impl FnMut(usize, &Run) -> io::Result<()>,
) -> io::Result<()> {
    let (mut of, mut run) = (0, Run::default());
    for Datagram { client, data } in all.map(unpack) {
        if !run.is_empty() && (client != of || !run.takes(&data)) {
            send(of, &core::mem::take(&mut run))?;
        }
        of = client;
        run.push(data);
    }
    if run.is_empty() { Ok(()) } else { send(of, &run) }
}

fn unpack(delivered: Delivered<Datagram>) -> Datagram {
    let mut datagram = delivered.packet.payload;
    if let Some(corruption) = delivered.corruption {
        corruption.apply(&mut datagram.data);
    }
    datagram
}
