//! What is known of the transport under a session.

use std::time::Duration;

use recovery::{Latencies, OffTime};

/// What a front knows of the transport under a session. Round-trip times and the largest window and
/// flight are the connection's; counts are since the session began.
#[derive(Clone, Debug, Default)]
pub struct Transport {
    /// Smallest round-trip time.
    pub rtt_min: Duration,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Largest congestion window, in bytes.
    pub max_window: u64,
    /// Most bytes in flight.
    pub max_in_flight: u64,
    /// Loss recovery's counters.
    pub totals: recovery::Totals,
    /// Recovery latency of data whose first retransmission was lost.
    pub latencies: Latencies,
    /// Time with nothing to send but replicas.
    pub off_mode: OffTime,
    /// Mean of T_unit: from the first sending of content to its first sending again.
    pub t_unit: Option<Duration>,
    /// Why the recovery scheme sends as many replicas as it does: names and values.
    pub reasons: Vec<(&'static str, f64)>,
    /// The TLS session was resumed.
    pub resumed: bool,
    /// 0-RTT data was accepted.
    pub early_data: bool,
}
