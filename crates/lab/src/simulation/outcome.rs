//! The outcome of a run.

use core::time::Duration;

use delivery::{Started, Transport};
use links::Counters;
use quic::Stats;
use startup::Cookie;
use units::{Rate, Timestamp};

use crate::event_log::Digest;
use crate::live::LiveOutcome;
use crate::recovered::Recovered;

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

/// Stream bytes that a client received in a span of time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// How many.
    pub bytes: u64,
    /// The length of the span.
    pub time: Duration,
}

/// The outcome of a run.
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
    /// Stream bytes received after [`Scenario::measure_from`](crate::Scenario::measure_from).
    pub measured: Received,
    /// Bytes on the wire towards the clients, headers included, that were delivered.
    pub wire_bytes: u64,
    /// Packets offered to both links.
    pub packets: u64,
    /// The fates of the packets towards the clients.
    pub down: Counters,
    /// Hash and length of the event log.
    pub event_log: Digest,
    /// The server's counters.
    pub stats: Stats,
    /// The server's loss recovery after [`Scenario::measure_from`](crate::Scenario::measure_from).
    pub recovery: Recovered,
    /// The server's connection at the end, as session records have it.
    pub transport: Transport,
    /// The server's smoothed round-trip time.
    pub smoothed_rtt: Duration,
    /// Wall time spent in the clients' code, if [`Scenario::time_client`](crate::Scenario::time_client).
    pub client_time: Duration,
    /// How the server's connection started, if it served a live stream.
    pub started: Option<Started>,
    /// The smallest rate that it was held to; `None` if to none.
    pub cap: Option<Rate>,
    /// What it learned about its path, as its next cookie would say it.
    pub learned: Option<Cookie>,
    /// What the client saw of a live stream.
    pub live: Option<LiveOutcome>,
    /// The second server and client; packets and links are counted in the first only.
    pub rival: Option<Box<Outcome>>,
    /// The first sender over time, if [`Scenario::sample_every`](crate::Scenario::sample_every).
    pub samples: Vec<Sample>,
}
