//! Schema of a session record: one flat row, the same in JSON and Parquet.

use serde::Serialize;
use serde_json::{Map, Value};

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// Integer.
    Int,
    /// Floating-point number.
    Float,
}

/// Rust type of a column in [`Record`].
trait Column {
    const KIND: Kind;
}

impl Column for String {
    const KIND: Kind = Kind::Text;
}

impl Column for i64 {
    const KIND: Kind = Kind::Int;
}

impl Column for f64 {
    const KIND: Kind = Kind::Float;
}

macro_rules! record {
    ($($(#[doc = $doc:literal])+ $name:ident: $type:ty,)+) => {
        /// One viewer session. Unknown values are absent.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct Record {
            $($(#[doc = $doc])+ pub $name: Option<$type>,)+
        }

        /// Columns in order, with name and type.
        pub const COLUMNS: &[(&str, Kind)] =
            &[$((stringify!($name), <$type as Column>::KIND),)+];
    };
}

record! {
    /// Number of the session in its process.
    session: i64,
    /// Name chosen by the player.
    viewer: String,
    /// The stream's name.
    stream: String,
    /// "h3", "h2", "h1" or "rtmp".
    protocol: String,
    /// "flv", "hls" or "rtmp".
    format: String,
    /// Unit of assignment to cohorts: the same for all sessions of a viewer.
    unit: String,
    /// The viewer's cohort.
    cohort: String,
    /// Recovery scheme.
    scheme: String,
    /// The viewer's network: /24 or /48.
    prefix: String,
    /// User group: network type, place and AS.
    group: String,
    /// Access network ("wifi", "cellular", …); set by the testbed only.
    access: String,
    /// Start time, in milliseconds since 1970.
    started_ms: i64,
    /// Duration.
    duration_s: f64,
    /// Bytes of media passed to the transport.
    bytes: i64,
    /// Mean rate of these bytes.
    goodput_mbps: f64,
    /// Skips to a key frame because the viewer was too slow.
    skips: i64,
    /// Skipped media.
    skipped_ms: i64,
    /// Disposable frames dropped while the viewer was behind.
    thinned: i64,
    /// 1 if the TLS session was resumed.
    resumed: i64,
    /// 1 if 0-RTT data was accepted.
    early_data: i64,
    /// Time from the request to the acknowledgement of the first frame's last byte.
    first_frame_ms: f64,
    /// Bytes up to the end of the first frame, including preceding headers and audio.
    first_frame_bytes: i64,
    /// Startup mode, if the connection started with this session.
    start: String,
    /// Source of the saved path state: "token", "ticket", "http" or "history".
    start_cookie: String,
    /// Decided initial window; absent if the controller used its own.
    start_window: i64,
    /// Decided pacing rate.
    start_rate_mbps: f64,
    /// Outcome of a first flight beyond the initial window: "passed" or "failed".
    jump: String,
    /// AutoPlex arm: "explorer", "holdout", "control" or "treated"; absent if AutoPlex is off.
    autoplex: String,
    /// Published bit rate of the stream.
    stream_mbps: f64,
    /// Smallest pacing rate imposed by AutoPlex; absent if never capped.
    cap_mbps: f64,
    /// Congestion controller.
    congestion_controller: String,
    /// Smallest round-trip time.
    rtt_min_ms: f64,
    /// Smoothed round-trip time at the end.
    rtt_ms: f64,
    /// Largest congestion window, in bytes.
    max_window: i64,
    /// Maximum bytes in flight.
    max_in_flight: i64,
    /// Highest delivery rate; for low-rate streams, a lower bound of the bottleneck rate.
    max_bandwidth_mbps: f64,
    /// Highest delivery rate while not application-limited; a lower bound of the bottleneck rate.
    open_rate_mbps: f64,
    /// Lost packets, excluding spurious losses ÷ settled packets.
    loss_rate: f64,
    /// Packets acknowledged or declared lost.
    packets_settled: i64,
    /// Packets declared lost, excluding spurious losses.
    packets_lost: i64,
    /// Packets declared lost but acknowledged later.
    packets_spurious: i64,
    /// Loss bursts: runs of consecutive packets declared lost, including spurious losses.
    bursts: i64,
    /// Length of the longest burst, in packets.
    burst_longest: i64,
    /// Settled packets sent up to 1 ms after a lost one.
    after_1ms_sent: i64,
    /// Lost packets among them.
    after_1ms_lost: i64,
    /// Settled packets sent more than 1 and up to 5 ms after a lost one.
    after_5ms_sent: i64,
    /// Lost packets among them.
    after_5ms_lost: i64,
    /// Settled packets sent more than 5 and up to 20 ms after a lost one.
    after_20ms_sent: i64,
    /// Lost packets among them.
    after_20ms_lost: i64,
    /// Settled packets sent more than 20 and up to 50 ms after a lost one.
    after_50ms_sent: i64,
    /// Lost packets among them.
    after_50ms_lost: i64,
    /// Settled packets sent more than 50 and up to 100 ms after a lost one.
    after_100ms_sent: i64,
    /// Lost packets among them.
    after_100ms_lost: i64,
    /// Settled packets sent more than 100 and up to 200 ms after a lost one.
    after_200ms_sent: i64,
    /// Lost packets among them.
    after_200ms_lost: i64,
    /// First transmissions: ack-eliciting packets that are not copies.
    first_transmissions: i64,
    /// Bytes of first transmissions.
    first_bytes: i64,
    /// Retransmissions: the first copy of lost data in each round.
    retransmissions: i64,
    /// Retransmissions in round 2 and later.
    repeated_retransmissions: i64,
    /// Retransmissions ÷ first transmissions.
    retransmission_ratio: f64,
    /// Further copies of lost data.
    replicas: i64,
    /// Bytes of replicas.
    replica_bytes: i64,
    /// Replicas ÷ first transmissions.
    redundancy_cost: f64,
    /// Lost data that lost its first retransmission and arrived by a later copy.
    recovery_count: i64,
    /// Mean recovery latency of that data: from loss detection to sending the copy that arrived.
    recovery_mean_ms: f64,
    /// 95th percentile of the recovery latency.
    recovery_p95_ms: f64,
    /// Maximum recovery latency.
    recovery_max_ms: f64,
    /// Mean T_unit: time from the first transmission of lost data to its first retransmission.
    t_unit_ms: f64,
    /// Lost data that arrived.
    units_finished: i64,
    /// Lost data that arrived after two or more rounds.
    units_late: i64,
    /// Sum of rounds over the lost data that arrived.
    rounds: i64,
    /// Maximum rounds of any lost data.
    rounds_max: i64,
    /// `units_late` ÷ `units_finished`.
    recovery_deterioration: f64,
    /// Time with nothing but replicas to send, per second of session.
    off_mode_ms_per_s: f64,
    /// Starts of such periods, per second of session.
    off_mode_entries_per_s: f64,
    /// First-frame time reported by the player.
    player_first_frame_ms: f64,
    /// Played time reported by the player.
    player_played_s: f64,
    /// Freezes reported by the player.
    player_freezes: i64,
    /// Frozen time reported by the player.
    player_freeze_s: f64,
    /// Frames due at the player.
    player_frames: i64,
    /// Frames that were complete more than 400 ms after their capture.
    player_late_frames: i64,
    /// 1 if the player's report exceeded the session. It was clamped, and averages exclude it.
    report_clamped: i64,
}

impl Record {
    /// Returns the row as one line of JSON.
    pub fn json(&self) -> String {
        Value::from(self.object()).to_string()
    }

    /// Returns the row as a JSON object. Absent values are `null`.
    pub fn object(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut row)) = serde_json::to_value(self) else { return Map::new() };
        for value in row.values_mut().filter(|value| value.is_f64()) {
            // Six decimals suffice for ratios, and more than suffice for times and rates.
            *value = value.as_f64().map(|number| (number * 1e6).round() / 1e6).into();
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_documented_in_order() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate/records.md");
        let text = std::fs::read_to_string(path).expect("the documentation");
        let (_, section) = text.split_once("\n## Records\n").expect("a section about records");
        let section = section.split("\n## ").next().unwrap_or_default();
        let rows = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` | "));
        let documented: Vec<_> =
            rows.map(|(name, rest)| (name, rest.starts_with("text"))).collect();
        let columns = COLUMNS.iter().map(|(name, kind)| (*name, *kind == Kind::Text));
        assert_eq!(documented, columns.collect::<Vec<_>>());
    }
}
