//! One run: server, path and client on one virtual clock.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use links::{Packet, Path, PathConfig, UDP_IPV4_HEADERS};
use quic::{Addresses, Stats};
use units::{Ecn, Timestamp};

use crate::client::{self, ClientKind, Request};
use crate::event_log::EventLog;
use crate::live::{Live, LiveOutcome};
use crate::server::Server;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2));
/// The client's first port; each rebinding takes the next.
const FIRST_PORT: u16 = 40_000;
/// Turns without progress of the clock after which a run counts as stuck.
const MAX_TURNS: u32 = 200_000;

/// Protection of 1-RTT packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// What TLS negotiated.
    Real,
    /// None, with a tag of the same length: same packets, less time.
    Null,
}

/// What is run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Both directions.
    pub path: PathConfig,
    /// The viewer's library.
    pub client: ClientKind,
    /// Protection of 1-RTT packets, at both ends.
    pub cipher: Cipher,
    /// The server's congestion controller.
    pub congestion: congestion::Algorithm,
    /// Bytes that the client asks for, if it does not ask for a live stream.
    pub bytes: u64,
    /// The live stream that the client asks for.
    pub live: Option<Live>,
    /// The client's flow-control window in bytes.
    pub window: u64,
    /// Of everything random.
    pub seed: u64,
    /// From the first byte on, a NAT before the client gives it another port each time that this
    /// much has passed, and forgets the old one. During the handshake addresses are stable: "The
    /// design of QUIC relies on endpoints retaining a stable address for the duration of the
    /// handshake" (RFC 9000, section 9).
    pub rebind_every: Option<Duration>,
    /// Timers of both ends fire at multiples of this: what sockets would do to short schedules.
    pub timer_granularity: Duration,
    /// Virtual time at which the run is given up.
    pub limit: Duration,
    /// Start of the span over which goodput is taken, after the slow start.
    pub measure_from: Duration,
    /// Keeps the event log; without it [`Outcome::event_log`] is that of no events.
    pub log_events: bool,
    /// Takes the time that the client's code needs, at the price of reading clocks.
    pub time_client: bool,
}

impl Default for Scenario {
    /// 1 MB over an ideal path.
    fn default() -> Self {
        Self {
            path: PathConfig::default(),
            client: ClientKind::Quinn,
            cipher: Cipher::Real,
            congestion: congestion::Algorithm::Cubic,
            bytes: 1_000_000,
            live: None,
            window: 16 << 20,
            seed: 1,
            rebind_every: None,
            timer_granularity: Duration::ZERO,
            limit: Duration::from_secs(3_600),
            measure_from: Duration::ZERO,
            log_events: true,
            time_client: false,
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The whole answer arrived.
    pub completed: bool,
    /// Every byte that arrived is the one that was asked for.
    pub intact: bool,
    /// Why the client gave up, if it did.
    pub failed: Option<String>,
    /// Virtual time until the last byte arrived.
    pub duration: Duration,
    /// Stream bytes received.
    pub received: u64,
    /// Stream bytes received after [`Scenario::measure_from`], and in how much time.
    pub measured: (u64, Duration),
    /// Bytes on the wire towards the client, headers included, that were delivered.
    pub wire_bytes: u64,
    /// Packets offered to both links.
    pub packets: u64,
    /// SHA-256 of the event log, and its lines.
    pub event_log: (String, u64),
    /// The server's counters.
    pub stats: Stats,
    /// Wall time spent in the client's code, if [`Scenario::time_client`].
    pub client_time: Duration,
    /// What came of a live view.
    pub live: Option<LiveOutcome>,
}

fn round_up(at: Timestamp, granularity: Duration) -> Timestamp {
    let step = granularity.as_nanos() as u64;
    if step <= 1 { at } else { Timestamp::from_nanos(at.as_nanos().div_ceil(step) * step) }
}

/// A datagram with the client's address as the NAT shows it to the server.
#[derive(Clone)]
struct Datagram {
    client: SocketAddr,
    data: Vec<u8>,
}

/// Sums up the time of what runs under it.
struct Stopwatch {
    is_on: bool,
    total: Duration,
}

impl Stopwatch {
    fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        if !self.is_on {
            return work();
        }
        let start = Instant::now();
        let result = work();
        self.total += start.elapsed();
        result
    }
}

/// Runs a scenario.
///
/// # Errors
/// The client cannot do what is asked, the clock stands still (a loop in one of the ends), or the
/// links' books do not balance.
pub fn run(scenario: &Scenario) -> Result<Outcome, String> {
    let log = EventLog::default();
    let mut server = Server::new(scenario, &log);
    let mut client = client::start(Request {
        kind: scenario.client,
        cipher: scenario.cipher,
        server: SERVER,
        bytes: scenario.bytes,
        live: scenario.live,
        window: scenario.window,
        seed: scenario.seed,
        // A viewer that only receives has nothing to say from its new address otherwise.
        keep_alive: scenario.rebind_every.map(|every| every.min(Duration::from_secs(2)) / 2),
    })?;
    let mut path: Path<Datagram> = Path::new(&scenario.path, scenario.seed, "path");
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut stopwatch = Stopwatch { is_on: scenario.time_client, total: Duration::ZERO };
    let granularity = scenario.timer_granularity;
    let end = Timestamp::ZERO + scenario.limit;
    let measure_from = Timestamp::ZERO + scenario.measure_from;
    let mut before_measuring = (0, Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    let mut turns = 0;
    // An end acts only after something happened to it.
    let (mut is_client_due, mut is_server_due) = (true, false);
    let (mut client_at, mut server_at) = (None, None);
    let mut sent = Vec::new();
    let mut address = SocketAddr::new(CLIENT, FIRST_PORT);
    let mut rebind_at = None;

    let packet = |spare: &mut Vec<Vec<u8>>, client: SocketAddr, ecn: Ecn, data: &[u8]| {
        let mut buffer = spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        let size = data.len() as u32 + UDP_IPV4_HEADERS;
        Packet { size, ecn, payload: Datagram { client, data: buffer } }
    };
    loop {
        if client.download().received == 0 {
            rebind_at = scenario.rebind_every.map(|every| now + every);
        } else if let (Some(at), Some(every)) = (rebind_at, scenario.rebind_every)
            && now >= at
        {
            let port = address.port().checked_add(1).unwrap_or(FIRST_PORT);
            address.set_port(port);
            rebind_at = Some(now + every);
        }
        if is_client_due {
            stopwatch.time(|| {
                client.drive(now, &mut |ecn, data| {
                    sent.push(packet(&mut spare, address, ecn, data));
                });
            });
            sent.drain(..).for_each(|packet| path.up.send(now, packet));
            client_at = client.deadline().map(|at| round_up(at, granularity));
        }
        if is_server_due {
            server.drive(now, |remote, ecn, data| {
                path.down.send(now, packet(&mut spare, remote, ecn, data));
            });
            server_at = server.deadline().map(|at| round_up(at, granularity));
        }
        (is_client_due, is_server_due) = (false, false);
        if client.download().finished || client.download().failed.is_some() {
            break;
        }
        let next = [path.next_event(), server_at, client_at].into_iter().flatten().min();
        let Some(next) = next.filter(|&at| at <= end) else { break };
        turns = if next > now { 0 } else { turns + 1 };
        if turns > MAX_TURNS {
            return Err(format!(
                "the clock stands still at {now:?} (seed {}): links {:?}, server {server_at:?}, \
                 client {client_at:?}",
                scenario.seed,
                path.next_event(),
            ));
        }
        now = now.max(next);
        if now < measure_from {
            before_measuring = (client.download().received, now);
        }
        if client_at.is_some_and(|at| at <= now) {
            stopwatch.time(|| client.on_timeout(now));
            is_client_due = true;
        }
        if server_at.is_some_and(|at| at <= now) {
            server.on_timeout(now);
            is_server_due = true;
        }
        while let Some(delivered) = path.up.poll(now) {
            let Datagram { client, mut data } = delivered.packet.payload;
            if let Some(corruption) = delivered.corruption {
                corruption.apply(&mut data);
            }
            let addresses = Addresses { remote: client, local: None };
            let reply = server.on_datagram(now, addresses, delivered.packet.ecn, &mut data);
            if let Some(reply) = reply {
                path.down.send(now, packet(&mut spare, client, Ecn::NotEct, reply));
            }
            spare.push(data);
            is_server_due = true;
        }
        while let Some(delivered) = path.down.poll(now) {
            let Datagram { client: to, mut data } = delivered.packet.payload;
            if let Some(corruption) = delivered.corruption {
                corruption.apply(&mut data);
            }
            if to == address {
                stopwatch.time(|| client.on_datagram(now, delivered.packet.ecn, &data));
                is_client_due = true;
            }
            spare.push(data);
        }
    }
    path.up.check_conservation().map_err(|e| e.to_string())?;
    path.down.check_conservation().map_err(|e| e.to_string())?;
    let download = client.download();
    let live = server.source.as_ref().map(|source| LiveOutcome {
        arrivals: download.arrivals().to_vec(),
        skips: source.skips,
        most_unsent: source.most_unsent,
    });
    Ok(Outcome {
        completed: download.finished && (live.is_some() || download.received == scenario.bytes),
        intact: download.intact,
        failed: download.failed.clone(),
        duration: now.since(Timestamp::ZERO),
        received: download.received,
        measured: (download.received - before_measuring.0, now.since(before_measuring.1)),
        wire_bytes: path.down.counters().delivered.bytes,
        packets: path.down.counters().sent.packets + path.up.counters().sent.packets,
        event_log: log.digest(),
        stats: server.stats,
        client_time: stopwatch.total,
        live,
    })
}

#[cfg(test)]
mod tests;
