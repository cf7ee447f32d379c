//! `mendcast link`: a UDP relay that does to real traffic what a link model says, so that any
//! client can be tried against any server over a path that has a rate, a delay, a queue and losses.
//!
//! One thread and one clock. The clock starts with the first datagram of a client, which is what
//! `--blackhole` and traces count from. All clients share the path; each has a socket of its own
//! towards the server.

use core::time::Duration;
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use clap::Args;
use links::{
    Delivered, Jitter, LinkConfig, Loss, LossPlace, Packet, Path, PathConfig, Probability, Queue,
    Reorder, Trace, UDP_IPV4_HEADERS, Window, parse_duration, parse_rate,
};
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;
use units::{Ecn, Rate, Timestamp};

/// An IPv6 header is 20 bytes longer than an IPv4 header.
const UDP_IPV6_HEADERS: u32 = UDP_IPV4_HEADERS + 20;
/// Largest UDP payload.
const MAX_DATAGRAM: usize = 65_535;
/// Datagrams taken from one socket before the others have their turn.
const BATCH: usize = 64;
/// Clients at most; datagrams of further ones are dropped.
const MAX_CLIENTS: usize = 10_000;
/// Socket buffers that are asked for, in bytes.
const BUFFERS: usize = 4 << 20;
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
    upstream: UdpSocket,
}

/// A UDP relay over an emulated path.
#[derive(Debug)]
pub(crate) struct Relay {
    listener: UdpSocket,
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
        });
        path.up.rate = self.rate_up.or(path.up.rate);
        path.up.loss = self.loss_up.clone().or(path.up.loss);
        path.down.loss = self.loss_down.clone().or(path.down.loss);
        path
    }
}

/// A non-blocking socket with large buffers; the kernel may grant less.
fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    let options = socket2::SockRef::from(&socket);
    options.set_recv_buffer_size(BUFFERS)?;
    options.set_send_buffer_size(BUFFERS)?;
    Ok(socket)
}

/// Errors that say something about one datagram, or nothing: the relay goes on.
fn is_passing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::WouldBlock
            | ErrorKind::Interrupted
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
    )
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
        let listener = socket(listen).map_err(|e| format!("cannot listen on {listen}: {e}"))?;
        Ok(Self {
            listener,
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
        self.listener.local_addr().map_err(|e| e.to_string())
    }

    /// Relays until there is something to read from `stop`.
    ///
    /// # Errors
    /// A socket fails.
    pub(crate) fn serve(&mut self, stop: BorrowedFd<'_>) -> io::Result<()> {
        let mut buffer = vec![0; MAX_DATAGRAM];
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
        let watch = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let mut fds = vec![watch(stop), watch(self.listener.as_fd())];
        fds.extend(self.clients.iter().map(|client| watch(client.upstream.as_fd())));
        let next = self.path.next_event().unwrap_or(Timestamp::MAX).min(self.next_rebind);
        let sleep = next.since(self.now()).min(MAX_SLEEP);
        match ppoll(&mut fds, Some(TimeSpec::from_duration(sleep)), None) {
            Ok(_) => Ok(fds[0].any().unwrap_or(true)),
            Err(nix::errno::Errno::EINTR) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    fn take_from_clients(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for _ in 0..BATCH {
            let (len, address) = match self.listener.recv_from(buffer) {
                Ok(received) => received,
                Err(e) if is_passing(&e) => break,
                Err(e) => return Err(e),
            };
            if self.start.is_none() {
                self.start = Some(Instant::now());
                if let Some(every) = self.rebind_every {
                    self.next_rebind = Timestamp::ZERO + every;
                }
            }
            let client = match self.by_address.get(&address) {
                Some(&client) => client,
                None if self.clients.len() < MAX_CLIENTS => {
                    // Out of descriptors: this client is not served, the others are.
                    let Ok(upstream) = self.upstream() else { continue };
                    self.clients.push(Client { address, upstream });
                    self.by_address.insert(address, self.clients.len() - 1);
                    self.clients.len() - 1
                }
                None => continue,
            };
            let now = self.now();
            self.path.up.send(now, packet(client, &buffer[..len], self.server));
        }
        Ok(())
    }

    fn take_from_server(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        for client in 0..self.clients.len() {
            for _ in 0..BATCH {
                let len = match self.clients[client].upstream.recv(buffer) {
                    Ok(len) => len,
                    Err(e) if is_passing(&e) => break,
                    Err(e) => return Err(e),
                };
                let now = self.now();
                self.path.down.send(now, packet(client, &buffer[..len], self.server));
            }
        }
        Ok(())
    }

    /// Sends what has come out of the path. What a full socket does not take is lost.
    fn deliver(&mut self, now: Timestamp) -> io::Result<()> {
        while let Some(delivered) = self.path.up.poll(now) {
            let datagram = unpack(delivered);
            let sent = self.clients[datagram.client].upstream.send(&datagram.data);
            sent.map(drop).or_else(|e| if is_passing(&e) { Ok(()) } else { Err(e) })?;
        }
        while let Some(delivered) = self.path.down.poll(now) {
            let datagram = unpack(delivered);
            let address = self.clients[datagram.client].address;
            let sent = self.listener.send_to(&datagram.data, address);
            sent.map(drop).or_else(|e| if is_passing(&e) { Ok(()) } else { Err(e) })?;
        }
        Ok(())
    }

    /// A new socket towards the server: a new source port.
    fn upstream(&self) -> io::Result<UdpSocket> {
        let any = match self.server {
            SocketAddr::V4(_) => [0, 0, 0, 0].into(),
            SocketAddr::V6(_) => [0u16; 8].into(),
        };
        let upstream = socket((self.from.unwrap_or(any), 0).into())?;
        upstream.connect(self.server)?;
        Ok(upstream)
    }

    fn rebind(&mut self, now: Timestamp) -> io::Result<()> {
        for client in 0..self.clients.len() {
            self.clients[client].upstream = self.upstream()?;
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
            println!("{report}");
        }
        Ok(())
    }
}

fn packet(client: usize, data: &[u8], server: SocketAddr) -> Packet<Datagram> {
    let headers = if server.is_ipv6() { UDP_IPV6_HEADERS } else { UDP_IPV4_HEADERS };
    Packet {
        size: data.len() as u32 + headers,
        // The relay's own sockets do not carry the ECN field across.
        ecn: Ecn::NotEct,
        payload: Datagram { client, data: data.to_vec() },
    }
}

fn unpack(delivered: Delivered<Datagram>) -> Datagram {
    let mut datagram = delivered.packet.payload;
    if let Some(corruption) = delivered.corruption {
        corruption.apply(&mut datagram.data);
    }
    datagram
}
