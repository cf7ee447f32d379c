//! Cost of transport cookies in the handshakes of returning clients. Clients always bring a session
//! ticket and an address token, either both with the cookie or both without.

use std::time::{Duration, Instant};

use cpu_time::ThreadTime;

use super::client::{MemoryClient, TURN, WINDOW};
use super::ours::{Ours, Returning};
use super::server::{MemoryServer as _, Pool, Setup};
use crate::Failure;
use crate::identity::Identity;
use crate::report::{BenchReport, PeerTarget};

/// Connections per server. With more, handling finished connections would dominate the result.
const VISITS: usize = 50;
/// Turns of a visit: handshake, ticket, token.
const TURNS: usize = 8;

/// Returns the server's CPU seconds per visit for [`VISITS`] visits of one client, without the
/// first one.
fn visits(identity: &Identity, cookies: bool) -> Result<f64, Failure> {
    let epoch = Instant::now();
    let mut server = Ours::new(&Setup::default(), identity, 0);
    server.returning = Some(Returning { cookies, tokens: 0, accepted: 0 });
    let config = MemoryClient::config(identity, WINDOW);
    let (mut pool, mut out) = (Pool::filled(), Vec::new());
    let (mut now, mut cost) = (Duration::ZERO, Duration::ZERO);
    for visit in 0..=VISITS {
        let mut client = MemoryClient::with(config.clone(), epoch + now, 1_000 + visit as u16);
        let mut to_server: Vec<Vec<u8>> = Vec::new();
        for _ in 0..TURNS {
            now += TURN;
            client.drive(epoch + now, |datagram| to_server.push(datagram));
            let begin = ThreadTime::now();
            for mut datagram in to_server.drain(..) {
                server.on_datagram(now, client.address, &mut datagram);
            }
            server.drive(now, &mut pool, &mut out);
            cost += if visit > 0 { begin.elapsed() } else { Duration::ZERO };
            for batch in out.drain(..) {
                if batch.to == client.address {
                    for datagram in batch.data[..batch.len].chunks(batch.segment) {
                        client.on_datagram(epoch + now, datagram);
                    }
                }
                pool.0.push_back(batch.data);
            }
        }
        if client.connection.is_handshaking() {
            return Err(format!("visit {visit} failed").into());
        }
    }
    let came = server.returning.map_or((0, 0), |all| (all.tokens, all.accepted));
    if came != (VISITS, if cookies { VISITS } else { 0 }) {
        return Err(format!("{} tokens and {} cookies received of {VISITS}", came.0, came.1).into());
    }
    Ok(cost.as_secs_f64() / VISITS as f64)
}

/// Runs [`VISITS`] visits with cookies. Returns the server's CPU seconds per visit.
pub(crate) fn returning_visits(identity: &Identity) -> Result<f64, Failure> {
    visits(identity, true)
}

/// Measures `rounds` rounds of about `times` visits each, with and without cookies alternating.
pub(crate) fn measure(
    report: &mut BenchReport,
    rounds: usize,
    times: usize,
) -> Result<(), Failure> {
    let identity = Identity::new();
    let mut pairs = Vec::new();
    for _ in 0..rounds {
        let (mut with, mut without, servers) = (0.0, 0.0, (times / VISITS).max(1));
        for _ in 0..servers {
            with += visits(&identity, true)? * 1e6 / servers as f64;
            without += visits(&identity, false)? * 1e6 / servers as f64;
        }
        pairs.push((with, without));
    }
    let target = PeerTarget::RatioAtMost(1.05);
    report.add_pairs(("handshake_with_cookie", "us"), "without cookie", &pairs, target);
    Ok(())
}
