//! What is kept of a session: one flat row, the same in JSON and Parquet.

use serde::Serialize;
use serde_json::{Map, Value};

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Text.
    Text,
    /// A whole number.
    Int,
    /// A number.
    Float,
}

/// The types that columns have in [`Record`].
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
        /// One viewer session. What is not known is absent.
        #[derive(Clone, Debug, Default, PartialEq, Serialize)]
        pub struct Record {
            $($(#[doc = $doc])+ pub $name: Option<$type>,)+
        }

        /// The columns in order: name and kind.
        pub const COLUMNS: &[(&str, Kind)] =
            &[$((stringify!($name), <$type as Column>::KIND),)+];
    };
}

record! {
    /// Number of the session in its process.
    session: i64,
    /// The player's name for itself.
    viewer: String,
    /// The stream's name.
    stream: String,
    /// "h3", "h2", "h1" or "rtmp".
    protocol: String,
    /// "flv", "hls" or "rtmp".
    format: String,
    /// What the viewer was divided into its cohort by: the same for all its sessions.
    unit: String,
    /// The viewer's cohort.
    cohort: String,
    /// The recovery scheme that was in force.
    scheme: String,
    /// The viewer's network: /24 or /48.
    prefix: String,
    /// The viewer's user group: network type, place and AS, as whoever groups viewers names it.
    group: String,
    /// How the viewer reaches the network ("wifi", "cellular", …); only the testbed knows.
    access: String,
    /// When it began, in milliseconds since 1970.
    started_ms: i64,
    /// How long it lasted.
    duration_s: f64,
    /// Bytes of media handed to the transport.
    bytes: i64,
    /// The same as a rate over the session.
    goodput_mbps: f64,
    /// Times that the viewer was too slow and skipped to a key frame.
    skips: i64,
    /// Milliseconds of media that it skipped.
    skipped_ms: i64,
    /// Pictures that no other needs and that the viewer did not get because it was behind.
    thinned: i64,
    /// 1 if the TLS session was resumed.
    resumed: i64,
    /// 1 if 0-RTT data was accepted.
    early_data: i64,
    /// From the request to the acknowledgement of the first frame's last byte.
    first_frame_ms: f64,
    /// Bytes of the stream up to the end of the first frame, headers and sound before it included.
    first_frame_bytes: i64,
    /// How the connection started, if it began with this session.
    start: String,
    /// What brought the path's past along: "token", "ticket", "http" or "history".
    start_cookie: String,
    /// The window that was decided on; absent where the controller began with its own.
    start_window: i64,
    /// The pacing rate that was decided on.
    start_rate_mbps: f64,
    /// What became of a first flight beyond the initial window: "passed" or "failed".
    jump: String,
    /// The session's part in AutoPlex: "explorer", "holdout", "control" or "treated"; absent where that is off.
    autoplex: String,
    /// Bit rate of the stream as it was published.
    stream_mbps: f64,
    /// Smallest pacing rate that AutoPlex held the session to; absent if to none.
    cap_mbps: f64,
    /// The congestion controller.
    congestion_controller: String,
    /// Smallest round-trip time.
    rtt_min_ms: f64,
    /// Smoothed round-trip time at the end.
    rtt_ms: f64,
    /// Largest congestion window, in bytes.
    max_window: i64,
    /// Most bytes in flight.
    max_in_flight: i64,
    /// Largest delivery rate of any flight; a lower bound of the bottleneck's where the stream needs less.
    max_bandwidth_mbps: f64,
    /// Largest delivery rate of flights that the application did not limit; a lower bound of the bottleneck's.
    open_rate_mbps: f64,
    /// Packets declared lost, spurious losses taken out, ÷ packets whose fate was settled.
    loss_rate: f64,
    /// Packets whose fate was settled.
    packets_settled: i64,
    /// Packets declared lost, spurious losses taken out.
    packets_lost: i64,
    /// Packets declared lost that were acknowledged later.
    packets_spurious: i64,
    /// Runs of consecutive packets that were declared lost, spurious losses included.
    bursts: i64,
    /// Packets of the longest run of the connection.
    burst_longest: i64,
    /// Packets sent at most 1 ms after a lost one whose fate was settled.
    after_1ms_sent: i64,
    /// Those of them that were lost.
    after_1ms_lost: i64,
    /// Packets sent more than 1, at most 5 ms after a lost one.
    after_5ms_sent: i64,
    /// Those of them that were lost.
    after_5ms_lost: i64,
    /// Packets sent more than 5, at most 20 ms after a lost one.
    after_20ms_sent: i64,
    /// Those of them that were lost.
    after_20ms_lost: i64,
    /// Packets sent more than 20, at most 50 ms after a lost one.
    after_50ms_sent: i64,
    /// Those of them that were lost.
    after_50ms_lost: i64,
    /// Packets sent more than 50, at most 100 ms after a lost one.
    after_100ms_sent: i64,
    /// Those of them that were lost.
    after_100ms_lost: i64,
    /// Packets sent more than 100, at most 200 ms after a lost one.
    after_200ms_sent: i64,
    /// Those of them that were lost.
    after_200ms_lost: i64,
    /// Packets sent that were no copies of others and ask for an acknowledgement.
    first_transmissions: i64,
    /// Their bytes.
    first_bytes: i64,
    /// First copies of lost data, in every round.
    retransmissions: i64,
    /// Those of round 2 and later: retransmissions of retransmissions.
    repeated_retransmissions: i64,
    /// Retransmissions ÷ first transmissions.
    retransmission_ratio: f64,
    /// Further copies.
    replicas: i64,
    /// Their bytes.
    replica_bytes: i64,
    /// Replicas ÷ first transmissions.
    redundancy_cost: f64,
    /// Lost data whose first retransmission was lost and that arrived by a later copy.
    recovery_count: i64,
    /// Its recovery latency, from the detection of the loss to the sending of that copy: mean.
    recovery_mean_ms: f64,
    /// 95th percentile.
    recovery_p95_ms: f64,
    /// Maximum.
    recovery_max_ms: f64,
    /// Mean of T_unit: from the first sending of lost data to its first sending again.
    t_unit_ms: f64,
    /// Lost data that arrived.
    units_finished: i64,
    /// Lost data that arrived and needed a second round or more.
    units_late: i64,
    /// Sum of the rounds of lost data that arrived.
    rounds: i64,
    /// Most rounds that any lost data of the connection needed.
    rounds_max: i64,
    /// Lost data that needed a second round or more ÷ all lost data that arrived.
    recovery_deterioration: f64,
    /// Time with nothing to send but replicas, per second of session.
    off_mode_ms_per_s: f64,
    /// How often such time began, per second of session.
    off_mode_entries_per_s: f64,
    /// The player's own first-frame time.
    player_first_frame_ms: f64,
    /// Seconds played, by the player.
    player_played_s: f64,
    /// Freezes, by the player.
    player_freezes: i64,
    /// Seconds frozen, by the player.
    player_freeze_s: f64,
    /// Frames that were due at the player.
    player_frames: i64,
    /// Those that were there later than 400 ms after their capture.
    player_late_frames: i64,
    /// 1 if the player reported more than the session has room for: its numbers were cut, and
    /// averages leave them out.
    report_clamped: i64,
}

impl Record {
    /// The row as one line of JSON.
    pub fn json(&self) -> String {
        Value::from(self.object()).to_string()
    }

    /// The row as a JSON object; what is absent is `null`.
    pub fn object(&self) -> Map<String, Value> {
        let Ok(Value::Object(mut row)) = serde_json::to_value(self) else { return Map::new() };
        for value in row.values_mut().filter(|value| value.is_f64()) {
            // Three digits after the point are enough of milliseconds, seconds and Mbps; ratios get six.
            *value = value.as_f64().map(|number| (number * 1e6).round() / 1e6).into();
        }
        row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_documented_in_the_order_of_the_rows() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/operate.md");
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
