//! Outcome of a run.

use core::time::Duration;

use delivery::{Started, TransportStats};
use links::Counters;
use quic::Stats;
use startup::Cookie;
use units::{Rate, Timestamp};

use crate::dash::DashOutcome;
use crate::event_log::Digest;
use crate::live::LiveOutcome;
use crate::recovered::Recovered;

/// State of the first sender, for plots over time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SenderSample {
    /// Time of the sample.
    pub at: Timestamp,
    /// Congestion window in bytes.
    pub window: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Pacing rate, if any.
    pub pacing_rate: Option<Rate>,
    /// Stream bytes received by the client.
    pub received: u64,
    /// Bytes queued at the bottleneck.
    pub queued: u64,
}

/// Stream bytes that a client received in a time span.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceivedBytes {
    /// Number of bytes.
    pub bytes: u64,
    /// Length of the span.
    pub time: Duration,
}

/// Outcome of a run.
#[derive(Clone, Debug)]
pub struct RunOutcome {
    /// Whether the whole answer arrived. For endless traffic, whether it ran until the limit.
    pub completed: bool,
    /// Whether every received byte was the requested one.
    pub intact: bool,
    /// Reason for which the client gave up.
    pub failed: Option<String>,
    /// Virtual time until the last byte arrived.
    pub duration: Duration,
    /// Stream bytes received.
    pub received: u64,
    /// Arrival of each request at the server.
    pub asked: Vec<Timestamp>,
    /// Arrival of each complete answer at the client.
    pub answered: Vec<Timestamp>,
    /// Stream bytes received after [`Scenario::measure_from`](crate::Scenario::measure_from).
    pub measured: ReceivedBytes,
    /// Bytes delivered to clients on the wire, including headers.
    pub wire_bytes: u64,
    /// Packets offered to both links.
    pub packets: u64,
    /// Fates of packets towards the clients.
    pub down: Counters,
    /// Hash and length of the event log.
    pub event_log: Digest,
    /// Counters of the server.
    pub stats: Stats,
    /// Loss recovery of the server after [`Scenario::measure_from`](crate::Scenario::measure_from).
    pub recovery: Recovered,
    /// Final transport statistics of the server, as in session records.
    pub transport: TransportStats,
    /// Smoothed round-trip time at the server.
    pub smoothed_rtt: Duration,
    /// Wall time spent in the clients' code, with
    /// [`Scenario::time_client`](crate::Scenario::time_client).
    pub client_time: Duration,
    /// Startup of the server's connection, for live streams.
    pub started: Option<Started>,
    /// Lowest cap applied; `None` if uncapped.
    pub cap: Option<Rate>,
    /// Path state that its next cookie would save.
    pub learned: Option<Cookie>,
    /// Live stream as received by the client.
    pub live: Option<LiveOutcome>,
    /// Playback of a video at the client.
    pub dash: Option<DashOutcome>,
    /// The second server and client. Packets and links are counted in the first outcome only.
    pub rival: Option<Box<RunOutcome>>,
    /// States of the first sender, with [`Scenario::sample_every`](crate::Scenario::sample_every).
    pub samples: Vec<SenderSample>,
}
