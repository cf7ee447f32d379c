//! In-memory servers: two sans-IO transports behind one trait, each against the same unmodified
//! `quinn-proto` client. A virtual clock advances by one millisecond per turn. Only time and heap
//! of the server's calls count.

mod client;
mod ours;
mod quinn_proto;
mod returning;
mod server;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng as _};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region};

use crate::Failure;
use crate::identity::Identity;
use crate::report::{BenchReport, PeerTarget, Samples};
use client::{MemoryClient, TURN, WINDOW};
use ours::Ours;
use quinn_proto::Quinn;
use server::{MemoryServer, Pool};

pub(crate) use returning::{measure as measure_returning, returning_visits};
pub(crate) use server::Setup;

/// Transports under comparison.
#[derive(Clone)]
pub(crate) enum Contestant {
    Ours(Setup),
    QuinnProto,
}

impl Contestant {
    /// Our transport with the features of `quinn-proto`.
    pub(crate) fn ours() -> Self {
        Self::Ours(Setup::default())
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Ours(_) => "mendcast",
            Self::QuinnProto => "quinn-proto",
        }
    }

    fn server(&self, identity: &Identity, epoch: Instant, answer: u64) -> Box<dyn MemoryServer> {
        match self {
            Self::Ours(setup) => Box::new(Ours::new(setup, identity, answer)),
            Self::QuinnProto => Box::new(Quinn::new(identity, epoch, answer)),
        }
    }
}

/// Path from server to client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemoryPath {
    /// A multiple of [`TURN`].
    pub delay: Duration,
    /// Loss rate, from 0 to below 1. The fate of the n-th datagram depends on n alone.
    pub loss: f64,
}

/// Datagrams in flight.
struct Pipe {
    path: MemoryPath,
    random: ChaCha8Rng,
    /// Datagrams and their arrival times.
    flying: VecDeque<(Duration, Vec<u8>)>,
}

impl Pipe {
    fn new(path: MemoryPath) -> Self {
        Self { path, random: ChaCha8Rng::seed_from_u64(7), flying: VecDeque::new() }
    }

    fn loses_next(&mut self) -> bool {
        let limit = (self.path.loss * f64::from(u32::MAX)) as u32;
        limit > 0 && self.random.next_u32() < limit
    }

    fn arrived(&mut self, now: Duration) -> Option<Vec<u8>> {
        self.flying.front().filter(|(at, _)| *at <= now)?;
        self.flying.pop_front().map(|(_, datagram)| datagram)
    }
}

/// Cost of a download.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Download {
    /// CPU time of the server's calls.
    pub server: Duration,
    /// Total CPU time.
    pub all: Duration,
    /// Datagrams in both directions.
    pub packets: u64,
    /// Server cost after the first quarter of the bytes.
    pub steady: Steady,
}

/// Server cost once connection and window are established.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Steady {
    /// CPU time of its calls.
    pub server: Duration,
    /// Datagrams sent, including lost ones.
    pub sent: u64,
    /// Datagrams lost by the pipe.
    pub lost: u64,
    /// Allocations and reallocations.
    pub allocations: u64,
    /// Turns with sent data.
    pub turns: u64,
}

/// Downloads `bytes` over `path`.
pub(crate) fn download(
    contestant: &Contestant,
    identity: &Identity,
    bytes: u64,
    path: MemoryPath,
) -> Result<Download, Failure> {
    let epoch = Instant::now();
    let mut server = contestant.server(identity, epoch, bytes);
    let mut client = MemoryClient::new(identity, epoch, 40_000, WINDOW);
    client.wants = true;
    let mut pipe = Pipe::new(path);
    let (mut pool, mut out) = (Pool::filled(), Vec::new());
    let mut to_server: Vec<Vec<u8>> = Vec::new();
    let (mut now, mut cost) = (Duration::ZERO, Download::default());
    let start = ThreadTime::now();
    while client.received < bytes {
        now += TURN;
        if now > Duration::from_secs(36_000) {
            let name = contestant.name();
            return Err(format!("{name}: {} of {bytes} bytes arrived", client.received).into());
        }
        let is_steady = client.received >= bytes / 4;
        let (begin, region) = (ThreadTime::now(), Region::new(&INSTRUMENTED_SYSTEM));
        for datagram in &mut to_server {
            server.on_datagram(now, client.address, datagram);
        }
        server.drive(now, &mut pool, &mut out);
        let (took, change) = (begin.elapsed(), region.change());
        to_server.clear();
        cost.server += took;
        if is_steady {
            cost.steady.server += took;
            cost.steady.allocations += (change.allocations + change.reallocations) as u64;
            cost.steady.turns += u64::from(!out.is_empty());
        }
        for batch in out.drain(..) {
            for datagram in batch.data[..batch.len].chunks(batch.segment) {
                let is_lost = pipe.loses_next();
                cost.packets += 1;
                cost.steady.sent += u64::from(is_steady);
                cost.steady.lost += u64::from(is_steady && is_lost);
                if is_lost {
                    continue;
                }
                if path.delay.is_zero() {
                    client.on_datagram(epoch + now, datagram);
                } else {
                    pipe.flying.push_back((now + path.delay, datagram.to_vec()));
                }
            }
            pool.0.push_back(batch.data);
        }
        while let Some(datagram) = pipe.arrived(now) {
            client.on_datagram(epoch + now, &datagram);
        }
        client.drive(epoch + now, |datagram| to_server.push(datagram));
    }
    cost.all = start.elapsed();
    cost.packets += client.packets;
    Ok(cost)
}

/// Heap per connection on the server's side, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heap {
    /// Of `count` connections, all but one idle for a minute. Without the keys' expanded forms,
    /// which AWS-LC allocates itself: 3 x 592 B for either contestant.
    pub idle: f64,
    /// Additional heap per connection when one payload of a megabyte is queued on all of them.
    pub queued: f64,
}

/// Establishes `count` connections, leaves them idle, then requests 1 MB on each while the client
/// accepts a tenth of it.
pub(crate) fn heap(contestant: &Contestant, count: u16) -> Result<Heap, Failure> {
    const ANSWER: u64 = 1 << 20;
    let identity = Identity::new();
    let epoch = Instant::now();
    let mut server = contestant.server(&identity, epoch, ANSWER);
    // The configuration, and tables allocated by the first connection, do not belong to any
    // connection.
    let mut held = 0i64;
    let (mut pool, mut out) = (Pool::default(), Vec::new());
    let mut clients: Vec<MemoryClient> = Vec::new();
    let mut now = Duration::ZERO;
    let mut turn =
        |clients: &mut Vec<MemoryClient>, server: &mut Box<dyn MemoryServer>, now: Duration| {
            let mut to_server = Vec::new();
            for client in clients.iter_mut() {
                let from = client.address;
                client.drive(epoch + now, |datagram| to_server.push((from, datagram)));
            }
            let region = Region::new(&INSTRUMENTED_SYSTEM);
            for (from, datagram) in &mut to_server {
                server.on_datagram(now, *from, datagram);
            }
            server.drive(now, &mut pool, &mut out);
            let change = region.change();
            let mut delta = change.bytes_allocated as i64 - change.bytes_deallocated as i64;
            // Buffers of datagrams in flight are not the server's.
            let buffers = out.iter().map(|batch| &batch.data).chain(&pool.0);
            delta -= buffers.map(|buffer| buffer.capacity() as i64).sum::<i64>();
            for batch in out.drain(..) {
                let index = usize::from(batch.to.port() - 1);
                if let Some(client) = clients.get_mut(index) {
                    for datagram in batch.data[..batch.len].chunks(batch.segment) {
                        client.on_datagram(epoch + now, datagram);
                    }
                }
            }
            pool.0.clear();
            delta
        };
    for port in 1..=count {
        if port == count {
            // The last client comes when the others have been idle for a minute.
            for _ in 0..60_000 / 50 {
                now += 50 * TURN;
                held += turn(&mut clients, &mut server, now);
            }
        }
        clients.push(MemoryClient::new(&identity, epoch, port, (ANSWER / 10) as u32));
        for _ in 0..4 {
            now += TURN;
            held += turn(&mut clients, &mut server, now);
        }
    }
    let alive =
        clients.iter().filter(|c| !c.connection.is_handshaking() && !c.connection.is_closed());
    if alive.count() != usize::from(count) {
        let name = contestant.name();
        return Err(format!("{name}: not all of {count} connections were established").into());
    }
    let idle = held as f64 / f64::from(count);
    clients.iter_mut().for_each(|client| client.wants = true);
    let mut queued = 0;
    for _ in 0..20 {
        now += 50 * TURN;
        queued += turn(&mut clients, &mut server, now);
    }
    if clients.iter().any(|client| client.received == 0) {
        let name = contestant.name();
        return Err(format!("{name}: not all of {count} connections were served").into());
    }
    Ok(Heap { idle, queued: queued as f64 / f64::from(count) })
}

/// Measures `rounds` downloads of `bytes` from each contestant, alternating.
pub(crate) fn measure_cpu(
    report: &mut BenchReport,
    rounds: usize,
    bytes: u64,
) -> Result<(), Failure> {
    let gbit = bytes as f64 * 8.0 / 1e9;
    let identity = Identity::new();
    let (mut ours, mut peer) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        for (contestant, samples) in
            [(Contestant::ours(), &mut ours), (Contestant::QuinnProto, &mut peer)]
        {
            let cost = download(&contestant, &identity, bytes, MemoryPath::default())?;
            samples.push(cost.server.as_secs_f64() / gbit);
        }
    }
    report.add(
        ("server_cpu_per_gbit", "s/Gbit"),
        &ours,
        ("quinn-proto", &peer),
        PeerTarget::RatioAtMost(0.5),
    );
    Ok(())
}

/// Measures the heap of `count` connections. Allocations are exact, so one round suffices.
pub(crate) fn measure_heap(report: &mut BenchReport, count: u16) -> Result<(), Failure> {
    let (ours, peer) = (heap(&Contestant::ours(), count)?, heap(&Contestant::QuinnProto, count)?);
    let one = Samples::of;
    report.add(
        ("idle_connection_heap", "B"),
        &one(ours.idle),
        ("quinn-proto", &one(peer.idle)),
        PeerTarget::AtMost(6_144.0),
    );
    // A copy of the payload would be a megabyte.
    report.add(
        ("shared_payload_heap", "B per viewer"),
        &one(ours.queued),
        ("quinn-proto", &one(peer.queued)),
        PeerTarget::AtMost(65_536.0),
    );
    Ok(())
}
