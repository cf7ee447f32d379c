//! The neighbours' common means: a pace that no neighbour exceeds, and what an attempt needs to know.
//!
//! All run in one thread, so that they take one of the machine's processors at most.

use std::future::Future;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::tally::{Count, Tally};
use crate::client;

/// Nobody holds a connection for longer: with its rate this bounds what a neighbour holds.
const LONGEST: Duration = Duration::from_secs(90);

/// Why an attempt ended that did not end as planned.
pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Who is attacked.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Where viewers connect, on UDP and TCP.
    pub web: SocketAddr,
    /// Where publishers connect.
    pub rtmp: SocketAddr,
    /// Holds the certificate.
    pub dir: PathBuf,
}

/// One neighbour.
#[derive(Clone, Copy)]
pub(super) struct Neighbour {
    /// What it is called in the judgement.
    pub name: &'static str,
    /// Attempts per second: connections, or requests where there are many on a connection.
    pub per_second: f64,
    /// Attempts on one connection.
    pub at_once: u32,
    /// The third byte of its addresses, 127.0.NETWORK.x.
    pub network: u8,
    /// How many addresses it has.
    pub addresses: u8,
}

/// What one connection of a neighbour, with all attempts on it, is made with.
#[derive(Clone)]
pub(super) struct Strike {
    pub target: Arc<Target>,
    pub tally: Arc<Tally>,
    /// TLS with ALPN `http/1.1`, `h2` and `h3`.
    pub tls: [Arc<rustls::ClientConfig>; 3],
    /// The address that it comes from.
    pub from: Ipv4Addr,
    /// How many there were before it.
    pub number: u64,
    /// Attempts on it.
    pub attempts: u32,
}

impl Strike {
    /// Makes the attempts at the same time, as strikes of one attempt each.
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

/// All neighbours while they run.
pub(super) struct Crew {
    target: Arc<Target>,
    tls: [Arc<rustls::ClientConfig>; 3],
    /// A part of the names of those who may join.
    only: String,
    all: Vec<(Neighbour, Arc<Tally>)>,
}

impl Crew {
    pub(super) fn new(target: Target, only: &str) -> Result<Self, String> {
        let tls = |protocol| client::tls(&target.dir, protocol).map(Arc::new);
        Ok(Self {
            tls: [tls("http/1.1")?, tls("h2")?, tls("h3")?],
            target: Arc::new(target),
            only: only.to_owned(),
            all: Vec::new(),
        })
    }

    /// Has a neighbour strike at its pace from here on. To be called within a runtime.
    pub(super) fn add<F, O>(&mut self, neighbour: Neighbour, attack: F)
    where
        F: Fn(Strike) -> O + Send + 'static,
        O: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        if !neighbour.name.contains(&self.only) {
            return;
        }
        let tally = Arc::new(Tally::default());
        self.all.push((neighbour, tally.clone()));
        let (target, tls) = (self.target.clone(), self.tls.clone());
        tokio::spawn(async move {
            let each = f64::from(neighbour.at_once) / neighbour.per_second;
            let mut pace = interval(Duration::from_secs_f64(each));
            // What was missed while the machine was busy is not made up for.
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
                    match timeout(LONGEST, strike).await {
                        Ok(Ok(())) => {}
                        Ok(Err(e)) => tally.end(in_short(&e.to_string()), 1),
                        Err(_) => tally.end("given up", 1),
                    }
                });
            }
        });
    }

    /// Whether nobody has joined.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// What all have done in `time`.
    pub(super) fn counts(&self, time: Duration) -> Vec<Count> {
        let count = |(neighbour, tally): &(Neighbour, Arc<Tally>)| {
            tally.count(neighbour.name, neighbour.per_second, time)
        };
        self.all.iter().map(count).collect()
    }
}

/// Messages of errors without what differs from one to the next: numbers, and what follows a line's end.
fn in_short(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    line.chars().filter(|c| !c.is_ascii_digit()).take(60).collect()
}
