//! The settings of a run as specifications state them: flat keys, so that any of them can be swept or
//! belong to a scheme.

use recovery::catalog::{Choice, Takes};
use recovery::spare;
use serde::{Deserialize, Serialize};

use crate::client::ClientKind;
use crate::ends::Cipher;

/// What the server has to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Source {
    /// Frames of the same size.
    Frames,
    /// Data without end.
    Unbounded,
    /// A file.
    Download,
    /// A stream with key frames through the product's relay.
    Live,
}

/// A table of keys: type and default, the range of a number, and the parameter of a scheme that a key
/// belongs to if only schemes look at it.
macro_rules! settings {
    ($($(#[doc = $doc:literal])* $key:ident: $type:ty = $default:expr
        $(, in $low:expr => $high:expr)? $(, for $takes:ident)?;)*) => {
        /// All keys, with their defaults: the set-up of AutoRec's testbed where its paper states it.
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

        /// The keys that only schemes look at, and the parameter that each belongs to.
        const KEYS: &[(&str, Takes)] = &[$($((stringify!($key), Takes::$takes),)?)*];

        impl Settings {
            /// Numbers are within their ranges.
            ///
            /// # Errors
            /// One line that names the key of one that is not.
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
    /// Rate of the bottleneck towards the client, in Mbps.
    rate_mbps: f64 = 12.0, in 0.01 => 100_000.0;
    /// Round-trip time without queues; half of it in each direction.
    rtt_ms: f64 = 60.0, in 0.0 => 60_000.0;
    /// Mean loss towards the client, in per cent. What is lost on the way back `loss_up` says.
    loss_percent: f64 = 5.0, in 0.0 => 99.0;
    /// `independent`, or a loss model of `links` in which `{}` stands for `loss_percent`.
    loss_model: String = "independent".to_owned();
    /// What is lost on the way back: a loss model of `links` (`5%`); nothing if empty.
    loss_up: String = String::new();
    /// What the queue at the bottleneck holds: drop-tail, unless `codel` says otherwise.
    queue_bytes: u64 = 500_000, in 1_500.0 => 1e12;
    /// The same in bandwidth-delay products, at least two packets; 0 leaves it to `queue_bytes`.
    queue_bdp: f64 = 0.0, in 0.0 => 1_000.0;
    /// Whether the queue is managed by CoDel (RFC 8289, 5 ms and 100 ms).
    codel: bool = false;
    /// A queue of `links` in place of the three keys above (`500kB,mark=100kB`,
    /// `codel:limit=500kB,target=5ms`); none if empty.
    queue: String = String::new();
    /// Packets that come later than those behind them, and how much later: `1%,20ms`; none if empty.
    reorder: String = String::new();
    /// Whether the way back has the same rate and queue; otherwise it only takes its time.
    symmetric: bool = false;
    /// Rate of the way back (`2mbps`), with the same queue; left to `symmetric` if empty.
    rate_up: String = String::new();
    /// Place of the losses towards the client: `before-queue` or `after-queue`.
    loss_place: String = "after-queue".to_owned();
    /// Variation of the delay in both directions: `5ms`, `gauss:5ms`, `5ms,reorder`; none if empty.
    jitter: String = String::new();
    /// Share of packets that arrive twice, in both directions: `0.1%`; none if empty.
    duplicate: String = String::new();
    /// Share of packets that are damaged, in both directions: `0.1%`; none if empty. With the
    /// `cipher` real only, which detects damage.
    corrupt: String = String::new();
    /// Largest packet in bytes with its IP header, in both directions; no limit if 0.
    mtu: u32 = 0, in 0.0 => 65_535.0;
    /// Windows in which both directions lose everything: `2s,500ms`, several with `;` between them;
    /// none if empty.
    blackhole: String = String::new();
    /// Wake-ups of the link layer, for which packets to the client wait: `200ms`,
    /// `300ms,awake=30ms`; none if empty.
    bunches: String = String::new();
    /// The same of the way back.
    bunches_up: String = String::new();
    /// Round-trip times in place of `rtt_ms` from virtual times on: `8s:200ms,20s:20ms`; none if
    /// empty.
    rtt_steps: String = String::new();
    /// What the network does to the ECN field of packets to the client: `bleach`, `drop`,
    /// `drop:50%`, `remark`, `mark:5%`, also with `,from=5s`; nothing if empty.
    ecn: String = String::new();
    /// The same of the way back.
    ecn_up: String = String::new();
    /// Token bucket before the queue, which drops the excess: `2mbps,burst=20kB`; none if empty.
    policer: String = String::new();
    /// The same of the way back.
    policer_up: String = String::new();
    /// From the first byte on, a NAT gives the client another port this often and forgets the old
    /// one; 0 for never.
    rebind_ms: f64 = 0.0, in 0.0 => 1e6;
    /// From the first byte on, the client's packets come from two addresses in turn, each for this
    /// long; both stay open. 0 for one address.
    flap_ms: f64 = 0.0, in 0.0 => 1e6;
    /// A file with recorded conditions, in place of `rate_mbps`; none if empty. Where it has loss rates of its own,
    /// they hold with a `loss_percent` of 0 only: with another, `loss_model` alone says what is lost
    /// (`none` for nothing). Of its round-trip times nothing is taken: `rtt_ms` has its own.
    trace: String = String::new();
    /// The same of the way back, which is without limit if this is empty.
    trace_up: String = String::new();
    /// `bbr`, `cubic`, and so on.
    congestion: String = "bbr".to_owned();
    /// How the connection of a live view starts: `iw10`, `fixed` (`usual_window_bytes` over the round trip), `wira-ff`,
    /// `wira-hx`, `wira`, `steady`, `rapid`, `careful`.
    start: String = "iw10".to_owned();
    /// The delivery rate that a cookie of the viewer's last visit says, in Mbps; no cookie if 0.
    past_mbps: f64 = 0.0, in 0.0 => 10_000.0;
    /// The rate that it says is usual, which `steady` and `careful` go by; `past_mbps` if 0.
    past_usual_mbps: f64 = 0.0, in 0.0 => 10_000.0;
    /// The round-trip time that it says.
    past_rtt_ms: f64 = 50.0, in 0.05 => 10_000.0;
    /// Whether the request came in 0-RTT data, so that the start knows no round trip but the cookie's or the usual one.
    early: bool = false;
    /// The window of viewers of whom nothing is known: `[startup] usual_window` of the edge.
    usual_window_bytes: u64 = 43_100, in 2_400.0 => 1e9;
    /// Their round-trip time: `[startup] usual_rtt` of the edge.
    usual_rtt_ms: f64 = 50.0, in 0.05 => 10_000.0;
    /// The largest first flight.
    max_jump_bytes: u64 = 256 << 10, in 2_400.0 => 1e9;
    /// Rules of loss detection: those of `lsquic`, on which AutoRec was built, of `rfc9002`, or the edge's own
    /// (`live`), whose probes stop doubling.
    detection: String = "lsquic".to_owned();
    /// The longest that probes are apart while nothing is heard; 0 leaves that to `detection`.
    longest_probe_ms: f64 = 0.0, in 0.0 => 60_000.0;
    /// Whether a PING reveals the loss of a frame's last packet, where `detection` has that (`live`).
    tail: bool = true;
    /// The client's library: `quinn` or `noq`.
    client: ClientKind = ClientKind::Quinn;
    /// How rarely the client acknowledges: `each=32,within=250ms`, also with `,after=100`, or
    /// `chromium` (after 100 packets, each tenth packet, within 25 ms or a quarter of the
    /// round-trip time); each second packet if empty.
    acks: String = String::new();
    /// The same as `acks = "chromium"`.
    sparse_acks: bool = false;
    /// Protection of packets at both ends: `null`, which costs no time, or `real`, which `noq` needs.
    cipher: Cipher = Cipher::Null;
    /// The client's flow-control window, as far as its library bears it. 0: four bandwidth-delay
    /// products and two queues, at least 1 MiB.
    window_bytes: u64 = 16 << 20, in 0.0 => 1e12;
    /// `frames`, `unbounded`, `download`, or `live`: the stream of an encoder or a file through the product's relay,
    /// which ends after `seconds`.
    source: Source = Source::Frames;
    /// Rate of the frames or the stream, sound included, in Mbps.
    stream_mbps: f64 = 4.0, in 0.001 => 100_000.0;
    /// Frames, or pictures, per second. What is usual for streams: 15 to 60.
    fps: f64 = 30.0, in 0.1 => 10_000.0;
    /// `live`: seconds of a group of pictures; each begins with a key frame. What is usual: 1 to 4 (2 is what platforms
    /// ask encoders for).
    group_seconds: f64 = 2.0, in 0.01 => 60.0;
    /// `live`: size of a key frame against that of a P-frame. What is usual: 3 to 10; Test Model 5 of MPEG-2 begins with
    /// 2.7, and WebRTC's encoder stops at 9 times the mean frame.
    key_ratio: f64 = 6.0, in 0.1 => 1_000.0;
    /// `live`: standard deviation of the logarithm of frame sizes; 0 for sizes that only go by frame type. Each group
    /// of pictures has exactly its share of `stream_mbps` all the same. Sizes are lognormal (Krunz and Tripathi,
    /// SIGMETRICS 1997); how wide goes by the content: 0.2 for a talk, 0.6 for sport are a choice.
    size_variation: f64 = 0.0, in 0.0 => 2.0;
    /// `live`: correlation of that logarithm from a frame to the next. What is usual within a scene: 0.5 to 0.9, a
    /// choice.
    size_correlation: f64 = 0.0, in 0.0 => 0.999;
    /// `live`: mean seconds between changes of scene, at which a P-frame is as large as a key frame; none if 0.
    scene_seconds: f64 = 0.0, in 0.0 => 100_000.0;
    /// `live`: B-frames between two others. They delay frames by as many intervals and one, which is part of the
    /// delay from capture. What is usual: 0 (x264's `zerolatency`) to 3 (its default).
    b_frames: u32 = 0, in 0.0 => 16.0;
    /// `live`: rate of the sound (AAC, frames of 1,024 samples at 48 kHz), in kbps, a part of `stream_mbps`; none if 0.
    /// What is usual: 64 to 160.
    audio_kbps: f64 = 0.0, in 0.0 => 1_000.0;
    /// `live`: an FLV file that is published from its beginning, as often as it takes, in place of an encoder's frames;
    /// the keys of the encoder, `stream_mbps` and `fps` then say nothing. None if empty.
    flv: String = String::new();
    /// What a server with frames or a stream holds already when it is asked, in seconds of the stream.
    cached_seconds: f64 = 0.0, in 0.0 => 3_600.0;
    /// `live`: how far behind a viewer gets no pictures any more that no other needs: `[live] thin_lag` of the edge.
    thin_lag_ms: f64 = relay::Settings::default().lags.thin.into(), in 100.0 => 60_000.0;
    /// The viewer's player of a stream: a preset of `qoe`, `low-latency`, `mobile` or `cautious`, or one that aims at a
    /// buffer, `buffer:300ms` (100 ms to 10 s).
    player: String = "low-latency".to_owned();
    /// Whether that player tells the server each 5 s what it has buffered.
    reports: bool = false;
    /// Size of a download.
    bytes: u64 = 1_000_000, in 1.0 => 1e12;
    /// A download is at least as large as what `rate_mbps` carries in this time.
    bytes_seconds: f64 = 0.0, in 0.0 => 100_000.0;
    /// Downloads one after the other, each on a fresh connection or all on the same.
    requests: u32 = 1, in 1.0 => 10_000.0;
    /// Whether all requests share one connection, and what it has learned.
    same_connection: bool = false;
    /// Virtual time of frames and unbounded sources; of downloads, the time at which they are given
    /// up.
    seconds: f64 = 60.0, in 0.1 => 100_000.0;
    /// Virtual time from which on goodput and loss recovery are measured.
    measure_from_seconds: f64 = 0.0;
    /// Another sender on the same bottleneck, with the same source and this scheme; none if empty.
    rival: String = String::new();
    /// What the rival sends: `unbounded` for a download without end; the same as the first one if empty.
    rival_source: String = String::new();
    /// The rival's congestion controller; the first one's if empty.
    rival_congestion: String = String::new();
    /// How the rival's connection of a live view starts; as the first one's if empty.
    rival_start: String = String::new();
    /// Virtual time at which the rival comes. The first sender is there from the beginning.
    rival_from_seconds: f64 = 0.0, in 0.0 => 100_000.0;
    /// Whether each run is made twice, with a log of all events: the metrics `event_log` and `same_log`.
    twice: bool = false;
    /// How losses are recovered from; see `recovery::catalog`.
    scheme: String = "arq".to_owned();
    /// What the sender knows of the fates of its packets, for bounds of what schemes can reach: nothing if empty,
    /// or `copies-arrive` (copies of lost data are never lost), `after-detection` (from the detection of a loss
    /// on it sends the first copy that arrives), `from-start` (from the first sending on).
    oracle: String = String::new();
    /// Whether the scheme's replicas leave only when nothing else waits.
    when_idle: bool = false;
    /// `spare`: replicas of a round.
    copies: u32 = 1, in 0.0 => spare::MAX_COPIES, for Copies;
    /// `spare`: least distance of copies in time.
    apart_ms: f64 = 20.0, in 0.0 => 10_000.0, for Apart;
    /// `spare`: distance of copies in round-trip times, where that is more.
    apart_rtts: f64 = 0.25, in 0.0 => 10.0, for Apart;
    /// The share of first transmissions' bytes that replicas may have, in per cent: the guard of the
    /// edge. None if 0.
    guard_percent: f64 = 0.0, in 0.0 => 10_000.0;
    /// Packets that replicas may have beyond that; 0 for as many as at the edge.
    guard_burst: u32 = 0;
    /// `deadline`: the time that a copy has to take off how late data is expected to be.
    price_ms: f64 = 2.0, in 0.0 => 1_000.0, for Deadline;
    /// `deadline`: how long after its first sending data is of use to the player.
    patience_ms: f64 = 350.0, in 0.0 => 1e6, for Deadline;
    /// `deadline`: whether data leaves once more when its acknowledgement is overdue.
    overdue: bool = true, for Deadline;
    /// `deadline`: what says how losses come together: `measured`, `expected` (only what is known at the beginning), or
    /// `nothing` (each packet is lost as any other).
    together: String = "measured".to_owned(), for Deadline;
    /// `deadline`: the loss above which players that do not report are taken to keep more; 100 for none.
    patient_above_percent: f64 = 5.0, in 1.0 => 100.0, for Deadline;
    /// AutoRec's α.
    alpha_ms: f64 = 30.0, in 0.0 => 1e6, for Tolerances;
    /// AutoRec's β.
    beta_percent: f64 = 30.0, in 0.0 => 1_000.0, for Tolerances;
    /// AutoRec's γ.
    gamma_percent: f64 = 20.0, in 0.0 => 100.0, for Tolerances;
    /// The level of `autorec-fixed`, or R of `fixed`.
    level: u32 = 0, in 0.0 => 10.0, for Level;
    /// Whether replicas leave at once in off-mode.
    off_mode: bool = true, for Occasions;
    /// Whether replicas leave when a unit was silent for T_thres.
    opportunistic: bool = true, for Occasions;
    /// MM'24: α of the sigmoid.
    sigmoid: f64 = 0.1, for Utility;
    /// MM'24: Θ.
    theta_ms: f64 = 50.0, in 0.0 => 1e6, for Utility;
    /// MM'24: R_nor.
    r_nor_percent: f64 = 3.0, for Utility;
    /// MM'24: highest level.
    max_level: u32 = 4, for Utility;
    /// MM'24: whether an E_waiting below Θ turns replicas off.
    gate: bool = true, for Utility;
    /// MM'24: length of a decision interval.
    interval_rtts: u32 = 5, for Utility;
    /// What R counts: `extra` copies, or `copies` with the retransmission as one of them.
    reading: String = "extra".to_owned(), for Reading;
    /// ART: L_queue.
    queue_length: u32 = 10, in 1.0 => 10_000.0, for Queue;
    /// ART and `fixed`: replicas leave `at-once`, at random within the `escape-space` or the smallest
    /// `round-trip` time; as the scheme itself has it if empty.
    spread: String = String::new(), for Spread;
    /// α of the escape space.
    escape_alpha: f64 = 1.0, in 1.0 => 1e6, for Spread;
    /// Bandits and DQN: downloads before the first one that counts, in which they learn; what they know
    /// is then kept from each download of the run to the next. With 0 each connection begins anew.
    warm_up: u32 = 0, in 0.0 => 10_000.0, for Arms;
    /// Bandits, and the DQN while it learns: what a lost round costs. `quotient` of rounds and R as in the
    /// paper, or `product` of them as in its code.
    penalty: String = "quotient".to_owned(), for Arms;
    /// DQN: a file with weights; those of the project if empty.
    dqn: String = String::new(), for Network;
}

/// Whether a scheme looks at this key.
fn is_used(scheme: &str, key: &str) -> bool {
    let Ok(choice) = scheme.parse::<Choice>() else { return false };
    let learns =
        choice.entry.takes.contains(&Takes::Network) && ["warm_up", "penalty"].contains(&key);
    let mut own = KEYS.iter().filter(|(known, _)| *known == key);
    learns || own.any(|(_, takes)| choice.entry.takes.contains(takes))
}

/// What a word stands for that is the value of a key.
pub(super) fn word<T: Clone>(key: &str, text: &str, known: &[(&str, T)]) -> Result<T, String> {
    let found = known.iter().find(|(name, _)| *name == text);
    found.map(|(_, value)| value.clone()).ok_or_else(|| {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        format!("`{key}` is `{text}`; it may be {}", names.join(", "))
    })
}

impl Settings {
    /// The names of all keys.
    pub(crate) fn keys() -> Vec<String> {
        let table = serde_json::to_value(Self::default()).expect("plain values");
        table.as_object().expect("a table").keys().cloned().collect()
    }

    /// The same run: what its scheme does not look at is as by default.
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

    /// The value of a key as text, for tables.
    pub(crate) fn text_of(&self, key: &str) -> String {
        let table = serde_json::to_value(self).expect("plain values");
        match &table[key] {
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }

    /// The value of a key, if it is a number.
    pub(crate) fn number_of(&self, key: &str) -> Option<f64> {
        serde_json::to_value(self).ok()?.get(key)?.as_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_scheme_does_not_look_at_makes_no_other_run() {
        let arq = Settings { alpha_ms: 7.0, level: 3, ..Settings::default() };
        assert_eq!(arq.normalised(), Settings::default());
        let autorec = Settings { scheme: "autorec".to_owned(), ..arq };
        assert_eq!(autorec.normalised().alpha_ms, 7.0);
        assert_eq!(autorec.normalised().level, 0);
    }
}
