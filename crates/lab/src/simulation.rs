//! One run: server, path and client on one virtual clock.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use congestion::Algorithm;
use links::{Counters, Packet, Path, PathConfig, UDP_IPV4_HEADERS};
use quic::detection::Detection;
use quic::{Addresses, Stats};
use recovery::Guard;
use units::{Ecn, Rate, Timestamp};

use crate::client::{self, ClientKind, Request, Viewer};
use crate::event_log::EventLog;
use crate::live::LiveOutcome;
use crate::makers::{ControllerMaker, SchemeMaker};
use crate::recovered::{Diary, Recovered};
use crate::server::Server;
use crate::traffic::Traffic;

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
/// The clients' addresses.
const CLIENTS: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3))];
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
    pub congestion: ControllerMaker,
    /// The server's rules of loss detection.
    pub detection: Detection,
    /// The server's recovery scheme.
    pub scheme: SchemeMaker,
    /// What bounds its replicas.
    pub guard: Option<Guard>,
    /// What the client asks for.
    pub traffic: Traffic,
    /// How often the client asks for it, one after the other on the same connection: from 1, and more
    /// only for downloads.
    pub times: u32,
    /// A second server and client on the same path: this controller, scheme and traffic, otherwise
    /// as the first.
    pub rival: Option<(ControllerMaker, SchemeMaker, Traffic)>,
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
    /// Virtual time at which the run is given up, or at which it ends if its traffic is endless.
    pub limit: Duration,
    /// Start of the span over which goodput is taken, after the slow start.
    pub measure_from: Duration,
    /// Keeps the event log; without it [`Outcome::event_log`] is that of no events.
    pub log_events: bool,
    /// Takes the time that the client's code needs, at the price of reading clocks.
    pub time_client: bool,
    /// Keeps the first server's units and decisions.
    pub diary: Option<Diary>,
    /// Takes a [`Sample`] this often.
    pub sample_every: Option<Duration>,
}

impl Default for Scenario {
    /// 1 MB over an ideal path.
    fn default() -> Self {
        Self {
            path: PathConfig::default(),
            client: ClientKind::Quinn,
            cipher: Cipher::Real,
            congestion: Algorithm::Cubic.into(),
            detection: Detection::default(),
            scheme: SchemeMaker::default(),
            guard: None,
            traffic: Traffic::Download { bytes: 1_000_000 },
            times: 1,
            rival: None,
            window: 16 << 20,
            seed: 1,
            rebind_every: None,
            timer_granularity: Duration::ZERO,
            limit: Duration::from_secs(3_600),
            measure_from: Duration::ZERO,
            log_events: true,
            time_client: false,
            diary: None,
            sample_every: None,
        }
    }
}

/// The state of the first sender, for plots over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub at: Timestamp,
    /// Congestion window in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Pacing rate, if there is one.
    pub pacing_rate: Option<Rate>,
    /// Stream bytes that the client has received.
    pub received: u64,
    /// Bytes that wait for the bottleneck.
    pub queued: u64,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The whole answer arrived; of endless traffic, all that arrived did so until the limit.
    pub completed: bool,
    /// Every byte that arrived is the one that was asked for.
    pub intact: bool,
    /// Why the client gave up, if it did.
    pub failed: Option<String>,
    /// Virtual time until the last byte arrived.
    pub duration: Duration,
    /// Stream bytes received.
    pub received: u64,
    /// When the server had each request.
    pub asked: Vec<Timestamp>,
    /// When the client had each answer.
    pub answered: Vec<Timestamp>,
    /// Stream bytes received after [`Scenario::measure_from`], and in how much time.
    pub measured: (u64, Duration),
    /// Bytes on the wire towards the clients, headers included, that were delivered.
    pub wire_bytes: u64,
    /// Packets offered to both links.
    pub packets: u64,
    /// What became of the packets towards the clients.
    pub down: Counters,
    /// SHA-256 of the event log, and its lines.
    pub event_log: (String, u64),
    /// The server's counters.
    pub stats: Stats,
    /// The server's loss recovery after [`Scenario::measure_from`].
    pub recovery: Recovered,
    /// The server's smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Wall time spent in the clients' code, if [`Scenario::time_client`].
    pub client_time: Duration,
    /// What came of a live view.
    pub live: Option<LiveOutcome>,
    /// What came of the second server and client; packets and links are counted in the first only.
    pub rival: Option<Box<Outcome>>,
    /// The first sender over time, if [`Scenario::sample_every`].
    pub samples: Vec<Sample>,
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

/// One server and its client. An end acts only after something happened to it.
struct Flow {
    server: Server,
    client: Box<dyn Viewer>,
    traffic: Traffic,
    times: u32,
    address: SocketAddr,
    rebind_at: Option<Timestamp>,
    is_client_due: bool,
    is_server_due: bool,
    client_at: Option<Timestamp>,
    server_at: Option<Timestamp>,
    /// Stream bytes received before measuring begins, when it does, and the loss recovery until then.
    before_measuring: Option<(u64, Timestamp, Recovered)>,
}

impl Flow {
    fn new(scenario: &Scenario, address: IpAddr, log: &EventLog) -> Result<Self, String> {
        let client = client::start(Request {
            kind: scenario.client,
            cipher: scenario.cipher,
            server: SERVER,
            traffic: scenario.traffic,
            times: scenario.times,
            window: scenario.window,
            seed: scenario.seed,
            // A viewer that only receives has nothing to say from its new address otherwise.
            keep_alive: scenario.rebind_every.map(|every| every.min(Duration::from_secs(2)) / 2),
        })?;
        Ok(Self {
            server: Server::new(scenario, log),
            client,
            traffic: scenario.traffic,
            times: scenario.times,
            address: SocketAddr::new(address, FIRST_PORT),
            rebind_at: None,
            is_client_due: true,
            is_server_due: false,
            client_at: None,
            server_at: None,
            before_measuring: None,
        })
    }

    fn is_over(&self) -> bool {
        let download = self.client.download();
        download.finished || download.failed.is_some()
    }

    /// Gives the client another port when it is time.
    fn rebind(&mut self, now: Timestamp, every: Duration) {
        if self.client.download().received == 0 {
            self.rebind_at = Some(now + every);
        } else if self.rebind_at.is_some_and(|at| now >= at) {
            let port = self.address.port().checked_add(1).unwrap_or(FIRST_PORT);
            self.address.set_port(port);
            self.rebind_at = Some(now + every);
        }
    }

    fn outcome(
        &mut self,
        now: Timestamp,
        path: &Path<Datagram>,
        log: &EventLog,
        client_time: Duration,
    ) -> Outcome {
        let (recovery, smoothed_rtt) = (self.server.recovered(now), self.server.smoothed_rtt());
        let download = self.client.download();
        let live = self.server.source.as_ref().map(|source| LiveOutcome {
            arrivals: download.arrivals().to_vec(),
            skips: source.skips,
            most_unsent: source.most_unsent,
        });
        let all = match self.traffic {
            Traffic::Download { bytes } => {
                download.finished && download.received == bytes * u64::from(self.times)
            }
            Traffic::Live(_) => download.finished,
            Traffic::Frames { .. } | Traffic::Unbounded => download.failed.is_none(),
        };
        let (received, since, earlier) = self.before_measuring.take().unwrap_or_default();
        Outcome {
            completed: all,
            intact: download.intact,
            failed: download.failed.clone(),
            duration: now.since(Timestamp::ZERO),
            received: download.received,
            asked: self.server.asked.clone(),
            answered: download.completed.clone(),
            measured: (download.received - received, now.since(since)),
            wire_bytes: path.down.counters().delivered.bytes,
            packets: path.down.counters().sent.packets + path.up.counters().sent.packets,
            down: *path.down.counters(),
            event_log: log.digest(),
            stats: self.server.stats,
            recovery: recovery.since(&earlier),
            smoothed_rtt,
            client_time,
            live,
            rival: None,
            samples: Vec::new(),
        }
    }
}

/// Runs a scenario.
///
/// # Errors
/// The client cannot do what is asked, the clock stands still (a loop in one of the ends), or the
/// links' books do not balance.
pub fn run(scenario: &Scenario) -> Result<Outcome, String> {
    let log = EventLog::default();
    let mut flows = vec![Flow::new(scenario, CLIENTS[0], &log)?];
    if let Some((congestion, scheme, traffic)) = &scenario.rival {
        let rival = Scenario {
            congestion: congestion.clone(),
            scheme: scheme.clone(),
            traffic: *traffic,
            seed: scenario.seed.wrapping_add(1 << 32),
            diary: None,
            rival: None,
            ..scenario.clone()
        };
        flows.push(Flow::new(&rival, CLIENTS[1], &log)?);
    }
    let mut path: Path<Datagram> = Path::new(&scenario.path, scenario.seed, "path");
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let mut stopwatch = Stopwatch { is_on: scenario.time_client, total: Duration::ZERO };
    let granularity = scenario.timer_granularity;
    let end = Timestamp::ZERO + scenario.limit;
    let measure_from = Timestamp::ZERO + scenario.measure_from;
    let mut now = Timestamp::ZERO;
    let mut turns = 0;
    let mut sent = Vec::new();
    let mut samples = Vec::new();
    let mut sample_at = scenario.sample_every.map(|_| Timestamp::ZERO);

    let packet = |spare: &mut Vec<Vec<u8>>, client: SocketAddr, ecn: Ecn, data: &[u8]| {
        let mut buffer = spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(data);
        let size = data.len() as u32 + UDP_IPV4_HEADERS;
        Packet { size, ecn, payload: Datagram { client, data: buffer } }
    };
    loop {
        for flow in &mut flows {
            if let Some(every) = scenario.rebind_every {
                flow.rebind(now, every);
            }
            if flow.is_client_due {
                let address = flow.address;
                stopwatch.time(|| {
                    flow.client.drive(now, &mut |ecn, data| {
                        sent.push(packet(&mut spare, address, ecn, data));
                    });
                });
                sent.drain(..).for_each(|packet| path.up.send(now, packet));
                flow.client_at = flow.client.deadline().map(|at| round_up(at, granularity));
            }
            if flow.is_server_due {
                flow.server.drive(now, |remote, ecn, data| {
                    path.down.send(now, packet(&mut spare, remote, ecn, data));
                });
                flow.server_at = flow.server.deadline().map(|at| round_up(at, granularity));
            }
            (flow.is_client_due, flow.is_server_due) = (false, false);
        }
        if let (Some(at), Some(every)) = (sample_at, scenario.sample_every)
            && now >= at
        {
            sample_at = Some(at + every);
            if let Some((window, in_flight, pacing_rate)) = flows[0].server.sending() {
                let received = flows[0].client.download().received;
                let queued = path.down.queued_bytes();
                samples.push(Sample { at: now, window, in_flight, pacing_rate, received, queued });
            }
        }
        if flows.iter().all(Flow::is_over) {
            break;
        }
        let timers = flows.iter().flat_map(|flow| [flow.server_at, flow.client_at]);
        let next = timers.chain([path.next_event()]).flatten().min();
        let Some(next) = next.filter(|&at| at <= end) else { break };
        turns = if next > now { 0 } else { turns + 1 };
        if turns > MAX_TURNS {
            return Err(format!(
                "the clock stands still at {now:?} (seed {}): links {:?}, server {:?}, client {:?}",
                scenario.seed,
                path.next_event(),
                flows[0].server_at,
                flows[0].client_at,
            ));
        }
        now = now.max(next);
        for flow in &mut flows {
            if now >= measure_from && flow.before_measuring.is_none() {
                let received = flow.client.download().received;
                flow.before_measuring = Some((received, now, flow.server.recovered(now)));
            }
            if flow.client_at.is_some_and(|at| at <= now) {
                stopwatch.time(|| flow.client.on_timeout(now));
                flow.is_client_due = true;
            }
            if flow.server_at.is_some_and(|at| at <= now) {
                flow.server.on_timeout(now);
                flow.is_server_due = true;
            }
        }
        while let Some(delivered) = path.up.poll(now) {
            let Datagram { client, mut data } = delivered.packet.payload;
            if let Some(corruption) = delivered.corruption {
                corruption.apply(&mut data);
            }
            let addresses = Addresses::of(client);
            if let Some(flow) = flows.iter_mut().find(|flow| flow.address.ip() == client.ip()) {
                let ecn = delivered.packet.ecn;
                let reply = flow.server.on_datagram(now, addresses, ecn, &mut data);
                if let Some(reply) = reply {
                    path.down.send(now, packet(&mut spare, client, Ecn::NotEct, reply));
                }
                flow.is_server_due = true;
            }
            spare.push(data);
        }
        while let Some(delivered) = path.down.poll(now) {
            let Datagram { client: to, mut data } = delivered.packet.payload;
            if let Some(corruption) = delivered.corruption {
                corruption.apply(&mut data);
            }
            if let Some(flow) = flows.iter_mut().find(|flow| flow.address == to) {
                stopwatch.time(|| flow.client.on_datagram(now, delivered.packet.ecn, &data));
                flow.is_client_due = true;
            }
            spare.push(data);
        }
    }
    path.up.check_conservation().map_err(|e| e.to_string())?;
    path.down.check_conservation().map_err(|e| e.to_string())?;
    if flows.iter().any(|flow| flow.traffic.is_endless()) {
        now = now.max(end);
    }
    let mut outcomes = flows.iter_mut().map(|f| f.outcome(now, &path, &log, stopwatch.total));
    let first = outcomes.next().expect("there is a first flow");
    let rival = outcomes.next().map(Box::new);
    drop(outcomes);
    Ok(Outcome { rival, samples, ..first })
}

#[cfg(test)]
mod tests;
