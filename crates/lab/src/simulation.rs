//! One run: server, path and client on one virtual clock.

use core::time::Duration;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use aws_lc_rs::digest::{Context, SHA256};
use links::{Packet, Path, PathConfig, UDP_IPV4_HEADERS};
use quic::{Addresses, Stats};
use units::{Ecn, Timestamp};

use crate::client::{Client, Request};
use crate::event_log::EventLog;
use crate::server::{Server, pattern};

const SERVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 443);
const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 40_000);
/// Turns without progress of the clock after which a run counts as stuck.
const MAX_TURNS: u32 = 200_000;

/// What is run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// Both directions.
    pub path: PathConfig,
    /// The server's congestion controller.
    pub congestion: congestion::Algorithm,
    /// Bytes that the client asks for.
    pub bytes: u64,
    /// The client's flow-control window in bytes.
    pub window: u64,
    /// Of everything random.
    pub seed: u64,
    /// Timers of both ends fire at multiples of this: what sockets would do to short schedules.
    pub timer_granularity: Duration,
    /// Virtual time at which the run is given up.
    pub limit: Duration,
    /// Start of the span over which goodput is taken, after the slow start.
    pub measure_from: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The whole answer arrived.
    pub completed: bool,
    /// What arrived is what was asked for.
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
}

fn round_up(at: Timestamp, granularity: Duration) -> Timestamp {
    let step = granularity.as_nanos() as u64;
    if step <= 1 { at } else { Timestamp::from_nanos(at.as_nanos().div_ceil(step) * step) }
}

/// Runs a scenario.
///
/// # Errors
/// The clock stands still (a loop in one of the ends), or the links' books do not balance.
pub fn run(scenario: &Scenario) -> Result<Outcome, String> {
    let log = EventLog::default();
    let mut server = Server::new(scenario.congestion, scenario.seed, &log);
    let request = Request { bytes: scenario.bytes, window: scenario.window, seed: scenario.seed };
    let mut client = Client::new(SERVER, request);
    let mut path: Path<Vec<u8>> = Path::new(&scenario.path, scenario.seed, "path");
    let mut spare: Vec<Vec<u8>> = Vec::new();
    let addresses = Addresses { remote: CLIENT, local: None };
    let end = Timestamp::ZERO + scenario.limit;
    let measure_from = Timestamp::ZERO + scenario.measure_from;
    let mut before_measuring = (0, Timestamp::ZERO);
    let mut now = Timestamp::ZERO;
    let mut turns = 0;

    let packet = |spare: &mut Vec<Vec<u8>>, ecn: Ecn, data: &[u8]| {
        let mut payload = spare.pop().unwrap_or_default();
        payload.clear();
        payload.extend_from_slice(data);
        Packet { size: data.len() as u32 + UDP_IPV4_HEADERS, ecn, payload }
    };
    loop {
        client.drive(now, |ecn, data| path.up.send(now, packet(&mut spare, ecn, data)));
        server.drive(now, |ecn, data| path.down.send(now, packet(&mut spare, ecn, data)));
        if client.finished || client.failed.is_some() {
            break;
        }
        let granularity = scenario.timer_granularity;
        let server_at = server.deadline().map(|at| round_up(at, granularity));
        let client_at = client.deadline().map(|at| round_up(at, granularity));
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
            before_measuring = (client.received, now);
        }
        if client_at.is_some_and(|at| at <= now) {
            client.on_timeout(now);
        }
        if server_at.is_some_and(|at| at <= now) {
            server.on_timeout(now);
        }
        while let Some(delivered) = path.up.poll(now) {
            let mut data = delivered.packet.payload;
            if let Some(corruption) = delivered.corruption {
                corruption.apply(&mut data);
            }
            let reply = server.on_datagram(now, addresses, delivered.packet.ecn, &mut data);
            if let Some(reply) = reply {
                path.down.send(now, packet(&mut spare, Ecn::NotEct, reply));
            }
            spare.push(data);
        }
        while let Some(delivered) = path.down.poll(now) {
            let mut data = delivered.packet.payload;
            if let Some(corruption) = delivered.corruption {
                corruption.apply(&mut data);
            }
            client.on_datagram(now, delivered.packet.ecn, &data);
            spare.push(data);
        }
    }
    path.up.check_conservation().map_err(|e| e.to_string())?;
    path.down.check_conservation().map_err(|e| e.to_string())?;
    Ok(Outcome {
        completed: client.finished && client.received == scenario.bytes,
        intact: client.digest() == expected(client.received),
        failed: client.failed.clone(),
        duration: now.since(Timestamp::ZERO),
        received: client.received,
        measured: (client.received - before_measuring.0, now.since(before_measuring.1)),
        wire_bytes: path.down.counters().delivered.bytes,
        packets: path.down.counters().sent.packets + path.up.counters().sent.packets,
        event_log: log.digest(),
        stats: server.stats,
    })
}

/// SHA-256 of the first `bytes` bytes of an answer.
fn expected(bytes: u64) -> Vec<u8> {
    let pattern = pattern();
    let mut hash = Context::new(&SHA256);
    let mut left = bytes;
    while left > 0 {
        let len = left.min(pattern.len() as u64) as usize;
        hash.update(&pattern[..len]);
        left -= len as u64;
    }
    hash.finish().as_ref().to_vec()
}

#[cfg(test)]
mod tests;
