//! One server and its client. An end acts only after an event.

use core::time::Duration;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Instant;

use links::HeldAcks;
use units::Timestamp;

use super::outcome::{ReceivedBytes, RunOutcome};
use super::scenario::Scenario;
use super::wire::Wire;
use crate::client::{self, ClientRequest, VirtualClient};
use crate::error::ValueError;
use crate::event_log::EventLog;
use crate::live::{LiveOutcome, Reporter};
use crate::recovered::Recovered;
use crate::server::LabServer;
use crate::traffic::Traffic;

const SERVER: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(192, 0, 2, 1), 443);
/// The client's first port; each rebinding takes the next.
const FIRST_PORT: u16 = 40_000;

/// Accumulates the wall time of closures.
pub(super) struct Stopwatch {
    /// Whether clocks are read.
    pub is_on: bool,
    pub total: Duration,
}

impl Stopwatch {
    pub(super) fn time<R>(&mut self, work: impl FnOnce() -> R) -> R {
        if !self.is_on {
            return work();
        }
        let start = Instant::now();
        let result = work();
        self.total += start.elapsed();
        result
    }
}

/// State at the start of the measurement.
#[derive(Default)]
struct Mark {
    at: Timestamp,
    received: u64,
    recovered: Recovered,
}

pub(super) struct Flow {
    pub server: LabServer,
    pub client: Box<dyn VirtualClient>,
    scenario: Scenario,
    /// The client's addresses. The second one is for [`Scenario::flap_every`].
    addresses: [SocketAddrV4; 2],
    /// Arrival of the first byte, after which the client's addresses may change.
    received_at: Option<Timestamp>,
    rebind_at: Option<Timestamp>,
    /// Whether the client had an event since it last acted.
    pub is_client_due: bool,
    /// Whether the server had an event since it last acted.
    pub is_server_due: bool,
    /// Time of the client's next timer.
    pub client_at: Option<Timestamp>,
    /// Time of the server's next timer.
    pub server_at: Option<Timestamp>,
    /// Delays the client's acknowledgements, if configured.
    acks: Option<HeldAcks>,
    /// The player, if it reports to the server.
    reporter: Option<Reporter>,
    /// Start of the measurement.
    mark: Option<Mark>,
}

fn round_up(at: Timestamp, granularity: Duration) -> Timestamp {
    let step = granularity.as_nanos() as u64;
    if step <= 1 { at } else { Timestamp::from_nanos(at.as_nanos().div_ceil(step) * step) }
}

impl Flow {
    pub(super) fn new(
        scenario: Scenario,
        addresses: [Ipv4Addr; 2],
        log: &EventLog,
    ) -> Result<Self, ValueError> {
        let begins = Timestamp::ZERO + scenario.begins;
        let client = client::start(ClientRequest {
            kind: scenario.client,
            cipher: scenario.cipher,
            server: SocketAddr::V4(SERVER),
            traffic: scenario.traffic.clone(),
            times: scenario.times,
            window: scenario.window,
            seed: scenario.seed,
            begins,
            // Without it, a viewer that only receives would send nothing from its new address.
            keep_alive: scenario.rebind_every.map(|every| every.min(Duration::from_secs(2)) / 2),
        })?;
        Ok(Self {
            server: LabServer::new(&scenario, log),
            acks: scenario.acks.map(|rule| HeldAcks::new(rule, scenario.round_trip())),
            reporter: scenario.reports.map(|policy| Reporter::new(policy, begins)),
            client,
            scenario,
            addresses: addresses.map(|address| SocketAddrV4::new(address, FIRST_PORT)),
            received_at: None,
            rebind_at: None,
            is_client_due: false,
            is_server_due: false,
            client_at: Some(begins),
            server_at: None,
            mark: None,
        })
    }

    pub(super) fn is_over(&self) -> bool {
        let download = self.client.download();
        download.finished || download.failed.is_some()
    }

    /// Returns whether the run ends at its time limit.
    pub(super) fn is_endless(&self) -> bool {
        self.scenario.traffic.is_endless()
    }

    /// Returns whether this is one of the client's addresses, with any port.
    pub(super) fn is_at(&self, address: Ipv4Addr) -> bool {
        self.addresses.iter().any(|own| *own.ip() == address)
    }

    /// Returns whether datagrams to this address and port reach the client.
    pub(super) fn is_reached_at(&self, address: SocketAddrV4) -> bool {
        self.addresses.contains(&address)
    }

    /// Returns the client's source address at `now`.
    fn source(&self, now: Timestamp) -> SocketAddrV4 {
        let flaps = match (self.scenario.flap_every, self.received_at) {
            (Some(every), Some(since)) => now.since(since).as_nanos() / every.as_nanos().max(1),
            _ => 0,
        };
        self.addresses[usize::from(flaps % 2 == 1)]
    }

    /// Changes the client's port when due.
    fn rebind(&mut self, now: Timestamp) {
        if self.received_at.is_none() && self.client.download().received > 0 {
            self.received_at = Some(now);
        }
        let Some(every) = self.scenario.rebind_every else { return };
        if self.client.download().received == 0 {
            self.rebind_at = Some(now + every);
        } else if self.rebind_at.is_some_and(|at| now >= at) {
            for address in &mut self.addresses {
                address.set_port(address.port().checked_add(1).unwrap_or(FIRST_PORT));
            }
            self.rebind_at = Some(now + every);
        }
    }

    /// Lets each end act that had an event.
    pub(super) fn act(&mut self, now: Timestamp, wire: &mut Wire, stopwatch: &mut Stopwatch) {
        let granularity = self.scenario.timer_granularity;
        self.rebind(now);
        if self.is_client_due {
            let source = self.source(now);
            let Self { client, acks, .. } = self;
            let mut send = |ecn, data: &[u8]| wire.queue_up(source, ecn, data);
            stopwatch.time(|| {
                client.drive(now, &mut |ecn, data| match acks {
                    Some(acks) => acks.take(now, ecn, data, &mut send),
                    None => send(ecn, data),
                });
            });
            let held = acks.as_mut().and_then(|acks| {
                acks.release_due(now, &mut send);
                acks.until()
            });
            wire.flush(now);
            let next = client.deadline().into_iter().chain(held).min();
            self.client_at = next.map(|at| round_up(at, granularity));
        }
        if self.is_server_due {
            let server = &mut self.server;
            // A report travels with acknowledgements: it shows the state half a round trip ago.
            let then = now - self.scenario.path.up.delay_at(now);
            let arrivals = self.client.download().arrivals();
            if let Some(reporter) = &mut self.reporter
                && let Some((source, _)) = &mut server.live
                && let Some(media) = reporter.report(then, arrivals)
            {
                source.heard(then, media);
            }
            server.drive(now, |remote, sent| {
                // The response uses IPv4 as well.
                if let SocketAddr::V4(remote) = remote {
                    wire.send_down(now, remote, sent);
                }
            });
            self.server_at = server.deadline().map(|at| round_up(at, granularity));
        }
        (self.is_client_due, self.is_server_due) = (false, false);
    }

    /// Starts the measurement, once.
    pub(super) fn begin_measuring(&mut self, now: Timestamp) {
        if self.mark.is_none() {
            let received = self.client.download().received;
            self.mark = Some(Mark { at: now, received, recovered: self.server.recovered(now) });
        }
    }

    /// Fires the timers that are due.
    pub(super) fn fire_timers(&mut self, now: Timestamp, stopwatch: &mut Stopwatch) {
        if self.client_at.is_some_and(|at| at <= now) {
            stopwatch.time(|| self.client.on_timeout(now));
            self.is_client_due = true;
        }
        if self.server_at.is_some_and(|at| at <= now) {
            self.server.on_timeout(now);
            self.is_server_due = true;
        }
    }

    fn is_complete(&self) -> bool {
        let download = self.client.download();
        match &self.scenario.traffic {
            Traffic::Download { bytes } => {
                download.finished && download.received == bytes * u64::from(self.scenario.times)
            }
            Traffic::Live(_) | Traffic::Dash(_) => download.finished,
            Traffic::Frames { .. } | Traffic::Unbounded => download.failed.is_none(),
        }
    }

    /// Returns the outcome of the flow.
    pub(super) fn outcome(
        &mut self,
        now: Timestamp,
        wire: &Wire,
        log: &EventLog,
        client_time: Duration,
    ) -> RunOutcome {
        let (recovered, smoothed_rtt) = (self.server.recovered(now), self.server.smoothed_rtt());
        let mark = self.mark.take().unwrap_or_default();
        let (download, path) = (self.client.download(), &wire.path);
        let live = self.server.live.as_ref().map(|(source, _)| LiveOutcome {
            arrivals: download.arrivals().to_vec(),
            ..source.served.clone()
        });
        RunOutcome {
            completed: self.is_complete(),
            intact: download.intact,
            failed: download.failed.clone(),
            duration: now.since(Timestamp::ZERO),
            received: download.received,
            asked: self.server.asked.clone(),
            answered: download.completed.clone(),
            measured: ReceivedBytes {
                bytes: download.received - mark.received,
                time: now.since(mark.at),
            },
            wire_bytes: path.down.counters().delivered.bytes,
            packets: path.down.counters().sent.packets + path.up.counters().sent.packets,
            down: *path.down.counters(),
            event_log: log.digest(),
            stats: self.server.stats(),
            recovery: recovered.since(&mark.recovered),
            transport: self.server.transport(now),
            smoothed_rtt,
            client_time,
            started: self.server.opening.started,
            cap: self.server.held.as_ref().and_then(|(capping, _)| capping.min_rate()),
            learned: self.server.learned(),
            live,
            dash: download.dash().cloned(),
            rival: None,
            samples: Vec::new(),
        }
    }
}
