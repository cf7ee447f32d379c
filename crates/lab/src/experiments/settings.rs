//! Settings of a run: flat keys, so that a sweep or a scheme can set any of them.

use recovery::catalog::{Choice, Takes};
use recovery::spare;
use serde::{Deserialize, Serialize};

use crate::client::ClientKind;
use crate::ends::Cipher;

/// Data source at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// Frames of equal size.
    Frames,
    /// Endless data.
    Unbounded,
    /// A file.
    Download,
    /// A stream with key frames through the product's relay.
    Live,
}

/// Table of keys: type and default, numeric range, and the scheme parameter for keys that only
/// schemes read.
macro_rules! settings {
    ($($(#[doc = $doc:literal])* $key:ident: $type:ty = $default:expr
        $(, in $low:expr => $high:expr)? $(, for $takes:ident)?;)*) => {
        /// Settings of a run. Defaults: AutoRec's testbed where its paper states it.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub(crate) struct Settings {
            $($(#[doc = $doc])* pub $key: $type,)*
        }

        impl Default for Settings {
            fn default() -> Self {
                Self { $($key: $default,)* }
            }
        }

        /// Keys that only schemes read, with the parameter that each sets.
        const KEYS: &[(&str, Takes)] = &[$($((stringify!($key), Takes::$takes),)?)*];

        impl Settings {
            /// Checks that all numbers are within range.
            ///
            /// # Errors
            /// One line that names the key out of range.
            pub(super) fn check(&self) -> Result<(), String> {
                $($(within(stringify!($key), self.$key as f64, $low, f64::from($high))?;)?)*
                within("measure_from_seconds", self.measure_from_seconds, 0.0, self.seconds)
            }
        }
    };
}

fn within(key: &str, value: f64, low: f64, high: f64) -> Result<(), String> {
    match (low..=high).contains(&value) {
        true => Ok(()),
        false => Err(format!("`{key}` is {value}; it may be {low} to {high}")),
    }
}

settings! {
    /// Bottleneck rate towards the client, in Mbps.
    rate_mbps: f64 = 12.0, in 0.01 => 100_000.0;
    /// Round-trip time without queues, in milliseconds, half of it in each direction.
    rtt_ms: f64 = 60.0, in 0.0 => 60_000.0;
    /// Mean loss rate towards the client, in per cent. `loss_up` sets the other direction.
    loss_percent: f64 = 5.0, in 0.0 => 99.0;
    /// `independent`, or a loss model of `links` with `{}` in place of `loss_percent`.
    loss_model: String = "independent".to_owned();
    /// Loss model of `links` for the return path (`5%`); no loss if empty.
    loss_up: String = String::new();
    /// Capacity of the bottleneck queue: drop-tail unless `codel` is set.
    queue_bytes: u64 = 500_000, in 1_500.0 => 1e12;
    /// Queue capacity in bandwidth-delay products, at least two packets; 0 leaves it to
    /// `queue_bytes`.
    queue_bdp: f64 = 0.0, in 0.0 => 1_000.0;
    /// Whether CoDel manages the queue (RFC 8289, 5 ms and 100 ms).
    codel: bool = false;
    /// Queue of `links` that overrides the three keys above (`500kB,mark=100kB`,
    /// `codel:limit=500kB,target=5ms`); none if empty.
    queue: String = String::new();
    /// Share of packets overtaken by later ones, and their extra delay: `1%,20ms`; none if empty.
    reorder: String = String::new();
    /// Whether the return path has the same rate and queue. Otherwise it only adds delay.
    symmetric: bool = false;
    /// Rate of the return path (`2mbps`), with the same queue; `symmetric` decides if empty.
    rate_up: String = String::new();
    /// Place of losses towards the client: `before-queue` or `after-queue`.
    loss_place: String = "after-queue".to_owned();
    /// Delay variation in both directions: `5ms`, `gauss:5ms`, `5ms,reorder`; none if empty.
    jitter: String = String::new();
    /// Share of duplicated packets in both directions: `0.1%`; none if empty.
    duplicate: String = String::new();
    /// Share of corrupted packets in both directions: `0.1%`; none if empty. Needs `cipher =
    /// "real"`, which detects corruption.
    corrupt: String = String::new();
    /// Path MTU in bytes including the IP header, in both directions; no limit if 0.
    mtu: u32 = 0, in 0.0 => 65_535.0;
    /// Outages of both directions: `2s,500ms`, several separated by `;`; none if empty.
    blackhole: String = String::new();
    /// Link-layer wake-ups that packets to the client wait for: `200ms`, `300ms,awake=30ms`; none
    /// if empty.
    bunches: String = String::new();
    /// The same for the return path.
    bunches_up: String = String::new();
    /// Round-trip times that replace `rtt_ms` from the given virtual times on: `8s:200ms,20s:20ms`;
    /// none if empty.
    rtt_steps: String = String::new();
    /// ECN treatment of packets to the client: `bleach`, `drop`, `drop:50%`, `remark`, `mark:5%`,
    /// also with `,from=5s`; none if empty.
    ecn: String = String::new();
    /// The same for the return path.
    ecn_up: String = String::new();
    /// Token bucket in front of the queue that drops the excess: `2mbps,burst=20kB`; none if empty.
    policer: String = String::new();
    /// The same for the return path.
    policer_up: String = String::new();
    /// Period at which a NAT changes the client's port and forgets the old one, from the first byte
    /// on; 0 for never.
    rebind_ms: f64 = 0.0, in 0.0 => 1e6;
    /// Period at which the client alternates between two valid addresses, from the first byte on; 0
    /// for one address.
    flap_ms: f64 = 0.0, in 0.0 => 1e6;
    /// File with recorded conditions that replaces `rate_mbps`; none if empty. Its loss rates apply
    /// only with `loss_percent = 0`; otherwise `loss_model` alone decides (`none` for no loss). Its
    /// round-trip times are ignored: `rtt_ms` sets them.
    trace: String = String::new();
    /// The same for the return path, which is unlimited if empty.
    trace_up: String = String::new();
    /// Congestion controller: `bbr`, `cubic`, and so on.
    congestion: String = "bbr".to_owned();
    /// Startup mode of a live view: `iw10`, `fixed` (`usual_window_bytes` over the round trip),
    /// `wira-ff`, `wira-hx`, `wira`, `steady`, `rapid`, `careful`.
    start: String = "iw10".to_owned();
    /// Delivery rate in the cookie of the viewer's last visit, in Mbps; no cookie if 0.
    past_mbps: f64 = 0.0, in 0.0 => 10_000.0;
    /// Usual rate in the cookie, which `steady` and `careful` use; `past_mbps` if 0.
    past_usual_mbps: f64 = 0.0, in 0.0 => 10_000.0;
    /// Round-trip time in the cookie.
    past_rtt_ms: f64 = 50.0, in 0.05 => 10_000.0;
    /// Whether the request arrived in 0-RTT data. Startup then has no round-trip sample, only the
    /// cookie's or the usual value.
    early: bool = false;
    /// Initial window of unknown viewers: `[startup] usual_window` of the edge.
    usual_window_bytes: u64 = 43_100, in 2_400.0 => 1e9;
    /// Round-trip time of unknown viewers: `[startup] usual_rtt` of the edge.
    usual_rtt_ms: f64 = 50.0, in 0.05 => 10_000.0;
    /// Largest first flight.
    max_jump_bytes: u64 = 256 << 10, in 2_400.0 => 1e9;
    /// Loss detection: `lsquic` (AutoRec's base), `rfc9002`, or `live` (the edge's own, where the
    /// probe timeout stops doubling).
    detection: String = "lsquic".to_owned();
    /// Maximum probe timeout; 0 leaves it to `detection`.
    longest_probe_ms: f64 = 0.0, in 0.0 => 60_000.0;
    /// Whether a PING reveals the loss of a frame's last packet (`detection = "live"` only).
    tail: bool = true;
    /// The client's library: `quinn` or `noq`.
    client: ClientKind = ClientKind::Quinn;
    /// Acknowledgement frequency of the client: `each=32,within=250ms`, also with `,after=100`, or
    /// `chromium` (after 100 packets, every tenth packet, within 25 ms or a quarter of the
    /// round-trip time). Every second packet if empty.
    acks: String = String::new();
    /// Same as `acks = "chromium"`.
    sparse_acks: bool = false;
    /// Packet protection at both ends: `null`, which costs no time, or `real`, which `noq` needs.
    cipher: Cipher = Cipher::Null;
    /// Flow-control window of the client, limited by its library. 0: four bandwidth-delay products
    /// and two queues, at least 1 MiB.
    window_bytes: u64 = 16 << 20, in 0.0 => 1e12;
    /// `frames`, `unbounded`, `download`, or `live` (an encoder's stream or a file through the
    /// product's relay, for `seconds`).
    source: Source = Source::Frames;
    /// Rate of the frames or the stream, sound included, in Mbps.
    stream_mbps: f64 = 4.0, in 0.001 => 100_000.0;
    /// Frames (pictures) per second. Usual for streams: 15 to 60.
    fps: f64 = 30.0, in 0.1 => 10_000.0;
    /// `live`: seconds per group of pictures, each starting with a key frame. Usual: 1 to 4;
    /// platforms ask encoders for 2.
    group_seconds: f64 = 2.0, in 0.01 => 60.0;
    /// `live`: size ratio of a key frame to a P-frame. Usual: 3 to 10. Test Model 5 of MPEG-2
    /// starts at 2.7; WebRTC's encoder allows at most 9 times the mean frame.
    key_ratio: f64 = 6.0, in 0.1 => 1_000.0;
    /// `live`: standard deviation of the logarithm of frame sizes; 0 for one size per frame type.
    /// The rate per group of pictures stays exact. Sizes are lognormal (Krunz and Tripathi,
    /// SIGMETRICS 1997). The width depends on the content: we chose 0.2 for a talk and 0.6 for
    /// sport.
    size_variation: f64 = 0.0, in 0.0 => 2.0;
    /// `live`: correlation of that logarithm between consecutive frames. Usual within a scene: 0.5
    /// to 0.9 (our choice).
    size_correlation: f64 = 0.0, in 0.0 => 0.999;
    /// `live`: mean seconds between scene changes, where a P-frame is as large as a key frame; none
    /// if 0.
    scene_seconds: f64 = 0.0, in 0.0 => 100_000.0;
    /// `live`: consecutive B-frames. They delay capture by one interval more than their number.
    /// Usual: 0 (x264's `zerolatency`) to 3 (its default).
    b_frames: u32 = 0, in 0.0 => 16.0;
    /// `live`: rate of the sound (AAC, frames of 1,024 samples at 48 kHz), in kbps, part of
    /// `stream_mbps`; none if 0. Usual: 64 to 160.
    audio_kbps: f64 = 0.0, in 0.0 => 1_000.0;
    /// `live`: FLV file to publish in a loop instead of an encoder's frames. The encoder's keys,
    /// `stream_mbps` and `fps` are then ignored. None if empty.
    flv: String = String::new();
    /// Data already cached when a request arrives, in seconds of the stream (`frames` and `live`).
    cached_seconds: f64 = 0.0, in 0.0 => 3_600.0;
    /// `live`: lag above which a viewer receives no disposable pictures: `[live] thin_lag` of the
    /// edge.
    thin_lag_ms: f64 = relay::Settings::default().lags.thin.into(), in 100.0 => 60_000.0;
    /// The viewer's player: a `qoe` preset (`low-latency`, `mobile`, `cautious`), or one with a
    /// target buffer, `buffer:300ms` (100 ms to 10 s).
    player: String = "low-latency".to_owned();
    /// Whether the player reports its buffer level to the server every 5 s.
    reports: bool = false;
    /// Size of a download, in bytes.
    bytes: u64 = 1_000_000, in 1.0 => 1e12;
    /// Minimum size of a download, as transfer time at `rate_mbps`.
    bytes_seconds: f64 = 0.0, in 0.0 => 100_000.0;
    /// Consecutive downloads, each on a new connection or all on one.
    requests: u32 = 1, in 1.0 => 10_000.0;
    /// Whether all requests share one connection and its learned state.
    same_connection: bool = false;
    /// Virtual duration of streams and endless sources; timeout of downloads.
    seconds: f64 = 60.0, in 0.1 => 100_000.0;
    /// Virtual time at which measurement of goodput and loss recovery starts.
    measure_from_seconds: f64 = 0.0;
    /// Recovery scheme of a second sender on the bottleneck with the same source; none if empty.
    rival: String = String::new();
    /// The rival's source: `unbounded` for an endless download; the first sender's if empty.
    rival_source: String = String::new();
    /// The rival's congestion controller; the first sender's if empty.
    rival_congestion: String = String::new();
    /// Startup mode of the rival's live view; the first sender's if empty.
    rival_start: String = String::new();
    /// Virtual time at which the rival starts. The first sender starts at 0.
    rival_from_seconds: f64 = 0.0, in 0.0 => 100_000.0;
    /// Whether each run is made twice with a full event log, for the metrics `event_log` and
    /// `same_log`.
    twice: bool = false;
    /// Loss recovery scheme; see `recovery::catalog`.
    scheme: String = "arq".to_owned();
    /// Knowledge of packet fates, for bounds on achievable results: none if empty, `copies-arrive`
    /// (copies of lost data always arrive), `after-detection` (on detecting a loss, sends the first
    /// copy that will arrive), `from-start` (the same from the first transmission on).
    oracle: String = String::new();
    /// Whether replicas are sent only when no other data waits.
    when_idle: bool = false;
    /// `spare`: replicas per round.
    copies: u32 = 1, in 0.0 => spare::MAX_COPIES, for Copies;
    /// `spare`: minimum spacing of copies in time.
    apart_ms: f64 = 20.0, in 0.0 => 10_000.0, for Apart;
    /// `spare`: minimum spacing of copies in round-trip times; the larger one applies.
    apart_rtts: f64 = 0.25, in 0.0 => 10.0, for Apart;
    /// Guard: budget of replicas, in per cent of the bytes of first transmissions. None if 0.
    guard_percent: f64 = 0.0, in 0.0 => 10_000.0;
    /// Replicas allowed beyond the guard, in packets; 0 for the edge's default.
    guard_burst: u32 = 0;
    /// `deadline`: reduction in expected lateness that justifies a copy.
    price_ms: f64 = 2.0, in 0.0 => 1_000.0, for Deadline;
    /// `deadline`: age up to which data is useful to the player.
    patience_ms: f64 = 350.0, in 0.0 => 1e6, for Deadline;
    /// `deadline`: whether data is sent once more when its acknowledgement is overdue.
    overdue: bool = true, for Deadline;
    /// `deadline`: source of the loss correlation: `measured`, `expected` (prior only), or
    /// `nothing` (independent losses).
    together: String = "measured".to_owned(), for Deadline;
    /// `deadline`: loss rate above which players without reports are assumed to buffer more; 100
    /// for none.
    patient_above_percent: f64 = 5.0, in 1.0 => 100.0, for Deadline;
    /// AutoRec's α.
    alpha_ms: f64 = 30.0, in 0.0 => 1e6, for Tolerances;
    /// AutoRec's β.
    beta_percent: f64 = 30.0, in 0.0 => 1_000.0, for Tolerances;
    /// AutoRec's γ.
    gamma_percent: f64 = 20.0, in 0.0 => 100.0, for Tolerances;
    /// Level of `autorec-fixed`, or R of `fixed`.
    level: u32 = 0, in 0.0 => 10.0, for Level;
    /// Whether replicas are sent at once in off-mode.
    off_mode: bool = true, for Occasions;
    /// Whether replicas are sent when a unit was silent for T_thres.
    opportunistic: bool = true, for Occasions;
    /// MM'24: α of the sigmoid.
    sigmoid: f64 = 0.1, for Utility;
    /// MM'24: Θ.
    theta_ms: f64 = 50.0, in 0.0 => 1e6, for Utility;
    /// MM'24: R_nor.
    r_nor_percent: f64 = 3.0, for Utility;
    /// MM'24: highest level.
    max_level: u32 = 4, for Utility;
    /// MM'24: whether an E_waiting below Θ disables replicas.
    gate: bool = true, for Utility;
    /// MM'24: length of a decision interval in round-trip times.
    interval_rtts: u32 = 5, for Utility;
    /// Reading of R: `extra` copies, or `copies` including the retransmission.
    reading: String = "extra".to_owned(), for Reading;
    /// ART: L_queue.
    queue_length: u32 = 10, in 1.0 => 10_000.0, for Queue;
    /// ART and `fixed`: replicas are sent `at-once`, or at random within the `escape-space` or the
    /// smallest `round-trip` time; the scheme's own if empty.
    spread: String = String::new(), for Spread;
    /// α of the escape space.
    escape_alpha: f64 = 1.0, in 1.0 => 1e6, for Spread;
    /// Bandits and DQN: training downloads before the first measured one. Knowledge is then kept
    /// between the downloads of a run. With 0 every connection starts untrained.
    warm_up: u32 = 0, in 0.0 => 10_000.0, for Arms;
    /// Bandits, and the DQN in training: penalty of a lost round, as `quotient` of rounds and R
    /// (paper) or as their `product` (authors' code).
    penalty: String = "quotient".to_owned(), for Arms;
    /// DQN: file with weights; the project's if empty.
    dqn: String = String::new(), for Network;
}

/// Returns whether a scheme reads this key.
fn is_used(scheme: &str, key: &str) -> bool {
    let Ok(choice) = scheme.parse::<Choice>() else { return false };
    let learns =
        choice.entry.takes.contains(&Takes::Network) && ["warm_up", "penalty"].contains(&key);
    let mut own = KEYS.iter().filter(|(known, _)| *known == key);
    learns || own.any(|(_, takes)| choice.entry.takes.contains(takes))
}

/// Looks up the meaning of a key's value.
pub(super) fn word<T: Clone>(key: &str, text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| value.clone()).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("`{key}` is `{text}`; it may be {}", names.join(", "))
    })
}

impl Settings {
    /// Returns the names of all keys.
    pub(crate) fn keys() -> Vec<String> {
        let table = serde_json::to_value(Self::default()).expect("plain values");
        table.as_object().expect("a table").keys().cloned().collect()
    }

    /// Resets keys that the scheme does not read. The run stays the same.
    pub(crate) fn normalised(&self) -> Self {
        let mut table = serde_json::to_value(self).expect("plain values");
        let default = serde_json::to_value(Self::default()).expect("plain values");
        for (key, _) in KEYS {
            if !is_used(&self.scheme, key) && !is_used(&self.rival, key) {
                table[*key] = default[*key].clone();
            }
        }
        serde_json::from_value(table).expect("the keys are known")
    }

    /// Returns a key's value as text, for tables.
    pub(crate) fn text_of(&self, key: &str) -> String {
        let table = serde_json::to_value(self).expect("plain values");
        match &table[key] {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// Returns a key's value if it is a number.
    pub(crate) fn number_of(&self, key: &str) -> Option<f64> {
        serde_json::to_value(self).ok()?.get(key)?.as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_keys_do_not_change_a_run() {
        let arq = Settings { alpha_ms: 7.0, level: 3, ..Settings::default() };
        assert_eq!(arq.normalised(), Settings::default());
        let autorec = Settings { scheme: "autorec".to_owned(), ..arq };
        assert_eq!(autorec.normalised().alpha_ms, 7.0);
        assert_eq!(autorec.normalised().level, 0);
    }
}
