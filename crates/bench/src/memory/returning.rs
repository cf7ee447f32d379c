//! What a transport cookie costs in the handshakes of clients who come back: they bring a session ticket and an address
//! token in any case, with the cookie in both or with nothing of ours.

use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use quic::Connection;
use startup::cookie::Rules;
use startup::decision::{Known, Limits, Mode};
use startup::{Carrier, Cookie};

use super::ours::Ours;
use super::server::{Pool, Server as _, Setup};
use super::{Client, TURN, WINDOW};
use crate::identity::Identity;
use crate::report::{Report, Target};

/// Connections of a server: with many, serving those that are over would be what is measured.
const VISITS: usize = 50;
/// Turns of a visit: handshake, ticket, token.
const TURNS: usize = 8;
/// The servers' wall clock: Unix seconds.
const NOW: u64 = 1_800_000_000;
const VIEWER: u64 = 7;

/// What a server does with clients who come back.
pub(super) struct Returning {
    cookies: bool,
    /// Tokens that clients brought, and cookies in them that were accepted.
    tokens: usize,
    accepted: usize,
}

impl Returning {
    pub(super) fn on_ready(&mut self, connection: &mut Connection) {
        let info = connection.take_handshake_info().unwrap_or_default();
        let Some(own) = info.returned_token else { return };
        self.tokens += 1;
        if !self.cookies {
            return;
        }
        let client = connection.addresses().remote.ip();
        let cookie = Cookie::decode(&own);
        let past = cookie.and_then(|c| c.accept(Carrier::Token, client, NOW, &Rules::default()));
        self.accepted += usize::from(past.is_ok());
        let known = Known { first_frame: Some(43_000), past: past.ok(), handshake_rtt: None };
        delivery::start(connection, Mode::Steady, &known, &Limits::default());
    }

    /// What the client is to bring next time.
    pub(super) fn own(&self, connection: &Connection) -> Vec<u8> {
        if !self.cookies {
            return Vec::new();
        }
        // Nobody has had media, so that nothing is measured yet: what a connection with media would say.
        let learned = delivery::learned(connection, None, NOW, VIEWER);
        let rate = units::Rate::from_mbps(8);
        let min_rtt = Duration::from_millis(50);
        let cookie = Cookie { min_rtt, max_rate: rate, usual_rate: rate, samples: 10, ..learned };
        cookie.encode().to_vec()
    }
}

/// CPU seconds of the server for each of [`VISITS`] visits of one client but the first.
fn visits(identity: &Identity, cookies: bool) -> Result<f64, String> {
    let epoch = Instant::now();
    let mut server = Ours::new(&Setup::default(), identity, 0);
    server.returning = Some(Returning { cookies, tokens: 0, accepted: 0 });
    let config = Client::config(identity, WINDOW);
    let (mut pool, mut out) = (Pool::filled(), Vec::new());
    let (mut now, mut cost) = (Duration::ZERO, Duration::ZERO);
    for visit in 0..=VISITS {
        let mut client = Client::with(config.clone(), epoch + now, 1_000 + visit as u16);
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
            return Err(format!("visit {visit} did not come about"));
        }
    }
    let came = server.returning.map_or((0, 0), |all| (all.tokens, all.accepted));
    if came != (VISITS, if cookies { VISITS } else { 0 }) {
        return Err(format!("{} tokens and {} cookies came of {VISITS}", came.0, came.1));
    }
    Ok(cost.as_secs_f64() / VISITS as f64)
}

/// `rounds` rounds of about `times` visits each, with cookies and without in turns.
pub(crate) fn measure(report: &mut Report, rounds: usize, times: usize) -> Result<(), String> {
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
    let target = Target::RatioAtMost(1.05);
    report.add_pairs(("handshake_with_cookie", "us"), "without cookie", &pairs, target);
    Ok(())
}
