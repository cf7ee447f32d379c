//! Common parts of neighbours: pacing and the context of an attempt.
//!
//! All neighbours run in one thread and thus use at most one processor.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::tally::{Count, NeighbourTally};
use crate::Failure;
use crate::client;

/// Maximum duration of a connection. With its rate this limits the number of connections of a
/// neighbour.
const MAX_CONNECTION_TIME: Duration = Duration::from_secs(90);

/// Target of the attacks.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Address for viewers, on UDP and TCP.
    pub web: SocketAddr,
    /// Address for publishers.
    pub rtmp: SocketAddr,
    /// Directory with the certificate.
    pub dir: PathBuf,
}

/// A neighbour.
#[derive(Clone, Copy)]
pub(super) struct Neighbour {
    /// Name in the verdict.
    pub name: &'static str,
    /// Attempts per second: connections, or requests if a connection has several.
    pub per_second: f64,
    /// Attempts on one connection.
    pub at_once: u32,
    /// Third byte of its addresses, 127.0.NETWORK.x.
    pub network: u8,
    /// Number of addresses.
    pub addresses: u8,
}

/// Context of one connection of a neighbour, with all attempts on it.
#[derive(Clone)]
pub(super) struct Strike {
    pub target: Arc<Target>,
    pub tally: Arc<NeighbourTally>,
    /// TLS with ALPN `http/1.1`, `h2` and `h3`.
    pub tls: [Arc<rustls::ClientConfig>; 3],
    /// Source address.
    pub from: Ipv4Addr,
    /// Index of the connection.
    pub number: u64,
    /// Attempts on the connection.
    pub attempts: u32,
}

impl Strike {
    /// Makes the attempts concurrently, as strikes of one attempt each.
    pub(super) async fn at_once<F, O>(self, attack: F) -> Result<(), Failure>
    where
        F: Fn(Self) -> O,
        O: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let mut attempts = JoinSet::new();
        for nth in 0..u64::from(self.attempts) {
            let number = self.number * u64::from(self.attempts) + nth;
            attempts.spawn(attack(Self { number, attempts: 1, ..self.clone() }));
        }
        while let Some(attempt) = attempts.join_next().await {
            if let Err(e) = attempt? {
                self.tally.end(in_short(&e.to_string()), 1);
            }
        }
        Ok(())
    }
}

/// All running neighbours.
pub(super) struct Crew {
    target: Arc<Target>,
    tls: [Arc<rustls::ClientConfig>; 3],
    /// Filter on the names.
    only: String,
    all: Vec<(Neighbour, Arc<NeighbourTally>)>,
}

impl Crew {
    pub(super) fn new(target: Target, only: &str) -> Result<Self, Failure> {
        let tls = |protocol| client::tls(&target.dir, protocol).map(Arc::new);
        Ok(Self {
            tls: [tls("http/1.1")?, tls("h2")?, tls("h3")?],
            target: Arc::new(target),
            only: only.to_owned(),
            all: Vec::new(),
        })
    }

    /// Starts a neighbour. Requires a runtime.
    pub(super) fn add<F, O>(&mut self, neighbour: Neighbour, attack: F)
    where
        F: Fn(Strike) -> O + Send + 'static,
        O: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        if !neighbour.name.contains(&self.only) {
            return;
        }
        let tally = Arc::new(NeighbourTally::default());
        self.all.push((neighbour, tally.clone()));
        let (target, tls) = (self.target.clone(), self.tls.clone());
        tokio::spawn(async move {
            let each = f64::from(neighbour.at_once) / neighbour.per_second;
            let mut pace = interval(Duration::from_secs_f64(each));
            // Attempts missed while the machine was busy are not made up for.
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            for number in 0.. {
                pace.tick().await;
                let host = 1 + (number % u64::from(neighbour.addresses)) as u8;
                let strike = attack(Strike {
                    target: target.clone(),
                    tally: tally.clone(),
                    tls: tls.clone(),
                    from: Ipv4Addr::new(127, 0, neighbour.network, host),
                    number,
                    attempts: neighbour.at_once,
                });
                let tally = tally.clone();
                tokio::spawn(async move {
                    match timeout(MAX_CONNECTION_TIME, strike).await {
                        Ok(Ok(())) => {}
                        Ok(Err(e)) => tally.end(in_short(&e.to_string()), 1),
                        Err(_) => tally.end("given up", 1),
                    }
                });
            }
        });
    }

    /// Returns whether no neighbour was added.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Returns the counters after `time`.
    pub(super) fn counts(&self, time: Duration) -> Vec<Count> {
        let count = |(neighbour, tally): &(Neighbour, Arc<NeighbourTally>)| {
            tally.count(neighbour.name, neighbour.per_second, time)
        };
        self.all.iter().map(count).collect()
    }
}

/// Removes the variable parts of an error message: numbers, and everything after a line break.
fn in_short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
}
