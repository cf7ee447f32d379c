//! The settings of a run as specifications state them: flat keys, so that any of them can be swept or
//! belong to a scheme.

use recovery::catalog::{Choice, Takes};
use recovery::spare;
use serde::{Deserialize, Serialize};

/// All keys, with their defaults: the set-up of AutoRec's testbed where its paper states it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Settings {
    /// Rate of the bottleneck towards the client, in Mbps.
    pub rate_mbps: f64,
    /// Round-trip time without queues; half of it in each direction.
    pub rtt_ms: f64,
    /// Mean loss towards the client, in per cent. Nothing is lost on the way back.
    pub loss_percent: f64,
    /// `independent`, or a loss model of `links` in which `{}` stands for `loss_percent`.
    pub loss_model: String,
    /// Drop-tail queue at the bottleneck.
    pub queue_bytes: u64,
    /// A file with recorded conditions, in place of `rate_mbps`; none if empty.
    pub trace: String,
    /// The same of the way back, which is without limit if this is empty.
    pub trace_up: String,
    /// `bbr`, `cubic`, and so on.
    pub congestion: String,
    /// `lsquic` or `rfc9002`.
    pub detection: String,
    /// The client's flow-control window.
    pub window_bytes: u64,
    /// `frames`, `unbounded`, `download`, or `live`: a stream with key frames through the product's
    /// relay, which ends after `seconds`.
    pub source: String,
    /// Rate of the frames or the stream, in Mbps.
    pub stream_mbps: f64,
    /// Frames per second.
    pub fps: f64,
    /// What a server with frames or a stream holds already when it is asked, in seconds of the stream.
    pub cached_seconds: f64,
    /// The viewer's player of a stream: a preset of `qoe`, `low-latency`, `mobile` or `cautious`.
    pub player: String,
    /// Size of a download.
    pub bytes: u64,
    /// Downloads one after the other, each on a fresh connection or all on the same.
    pub requests: u32,
    /// Whether all requests share one connection, and what it has learned.
    pub same_connection: bool,
    /// Virtual time of frames and unbounded sources; of downloads, the time at which they are given
    /// up.
    pub seconds: f64,
    /// Virtual time from which on goodput and loss recovery are measured.
    pub measure_from_seconds: f64,
    /// Another sender on the same bottleneck, with the same source and this scheme; none if empty.
    pub rival: String,
    /// The rival's congestion controller; the first one's if empty.
    pub rival_congestion: String,
    /// How losses are recovered from; see `recovery::catalog`.
    pub scheme: String,
    /// Whether the scheme's replicas leave only when nothing else waits.
    pub when_idle: bool,
    /// `spare`: replicas of a round.
    pub copies: u32,
    /// `spare`: least distance of copies in time.
    pub apart_ms: f64,
    /// `spare`: distance of copies in round-trip times, where that is more.
    pub apart_rtts: f64,
    /// The share of first transmissions' bytes that replicas may have, in per cent: the guard of the
    /// edge. None if 0.
    pub guard_percent: f64,
    /// AutoRec's α.
    pub alpha_ms: f64,
    /// AutoRec's β.
    pub beta_percent: f64,
    /// AutoRec's γ.
    pub gamma_percent: f64,
    /// The level of `autorec-fixed`, or R of `fixed`.
    pub level: u32,
    /// Whether replicas leave at once in off-mode.
    pub off_mode: bool,
    /// Whether replicas leave when a unit was silent for T_thres.
    pub opportunistic: bool,
    /// MM'24: α of the sigmoid.
    pub sigmoid: f64,
    /// MM'24: Θ.
    pub theta_ms: f64,
    /// MM'24: R_nor.
    pub r_nor_percent: f64,
    /// MM'24: highest level.
    pub max_level: u32,
    /// MM'24: whether an E_waiting below Θ turns replicas off.
    pub gate: bool,
    /// MM'24: length of a decision interval.
    pub interval_rtts: u32,
    /// What R counts: `extra` copies, or `copies` with the retransmission as one of them.
    pub reading: String,
    /// ART: L_queue.
    pub queue_length: u32,
    /// ART and `fixed`: `at-once`, `escape-space`, `round-trip`; the scheme's own if empty.
    pub spread: String,
    /// α of the escape space.
    pub escape_alpha: f64,
    /// Bandits and DQN: downloads before the first one that counts, in which they learn; what they know
    /// is then kept from each download of the run to the next. With 0 each connection begins anew.
    pub warm_up: u32,
    /// Bandits, and the DQN while it learns: what a lost round costs. `quotient` of rounds and R as in the
    /// paper, or `product` of them as in its code.
    pub penalty: String,
    /// DQN: a file with weights; those of the project if empty.
    pub dqn: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate_mbps: 12.0,
            rtt_ms: 60.0,
            loss_percent: 5.0,
            loss_model: "independent".to_owned(),
            queue_bytes: 500_000,
            trace: String::new(),
            trace_up: String::new(),
            congestion: "bbr".to_owned(),
            detection: "lsquic".to_owned(),
            window_bytes: 16 << 20,
            source: "frames".to_owned(),
            stream_mbps: 4.0,
            fps: 30.0,
            cached_seconds: 0.0,
            player: "low-latency".to_owned(),
            bytes: 1_000_000,
            requests: 1,
            same_connection: false,
            seconds: 60.0,
            measure_from_seconds: 0.0,
            rival: String::new(),
            rival_congestion: String::new(),
            scheme: "arq".to_owned(),
            when_idle: false,
            copies: 1,
            apart_ms: 20.0,
            apart_rtts: 0.25,
            guard_percent: 0.0,
            alpha_ms: 30.0,
            beta_percent: 30.0,
            gamma_percent: 20.0,
            level: 0,
            off_mode: true,
            opportunistic: true,
            sigmoid: 0.1,
            theta_ms: 50.0,
            r_nor_percent: 3.0,
            max_level: 4,
            gate: true,
            interval_rtts: 5,
            reading: "extra".to_owned(),
            queue_length: 10,
            spread: String::new(),
            escape_alpha: 1.0,
            warm_up: 0,
            penalty: "quotient".to_owned(),
            dqn: String::new(),
        }
    }
}

/// The keys that only schemes look at, and the parameter that each belongs to.
const KEYS: &[(&str, Takes)] = &[
    ("copies", Takes::Copies),
    ("apart_ms", Takes::Apart),
    ("apart_rtts", Takes::Apart),
    ("alpha_ms", Takes::Tolerances),
    ("beta_percent", Takes::Tolerances),
    ("gamma_percent", Takes::Tolerances),
    ("off_mode", Takes::Occasions),
    ("opportunistic", Takes::Occasions),
    ("level", Takes::Level),
    ("sigmoid", Takes::Utility),
    ("theta_ms", Takes::Utility),
    ("r_nor_percent", Takes::Utility),
    ("max_level", Takes::Utility),
    ("gate", Takes::Utility),
    ("interval_rtts", Takes::Utility),
    ("reading", Takes::Reading),
    ("queue_length", Takes::Queue),
    ("spread", Takes::Spread),
    ("escape_alpha", Takes::Spread),
    ("warm_up", Takes::Arms),
    ("penalty", Takes::Arms),
    ("dqn", Takes::Network),
];

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

    /// Numbers are within their ranges.
    ///
    /// # Errors
    /// One line that names the key of one that is not.
    pub(super) fn check(&self) -> Result<(), String> {
        for (key, value, low, high) in [
            ("rate_mbps", self.rate_mbps, 0.01, 100_000.0),
            ("rtt_ms", self.rtt_ms, 0.0, 60_000.0),
            ("loss_percent", self.loss_percent, 0.0, 99.0),
            ("queue_bytes", self.queue_bytes as f64, 1_500.0, 1e12),
            ("window_bytes", self.window_bytes as f64, 1_500.0, 1e12),
            ("stream_mbps", self.stream_mbps, 0.001, 100_000.0),
            ("fps", self.fps, 0.1, 10_000.0),
            ("cached_seconds", self.cached_seconds, 0.0, 3_600.0),
            ("bytes", self.bytes as f64, 1.0, 1e12),
            ("requests", self.requests.into(), 1.0, 10_000.0),
            ("seconds", self.seconds, 0.1, 100_000.0),
            ("measure_from_seconds", self.measure_from_seconds, 0.0, self.seconds),
            ("guard_percent", self.guard_percent, 0.0, 10_000.0),
            ("alpha_ms", self.alpha_ms, 0.0, 1e6),
            ("beta_percent", self.beta_percent, 0.0, 1_000.0),
            ("gamma_percent", self.gamma_percent, 0.0, 100.0),
            ("level", self.level.into(), 0.0, 10.0),
            ("theta_ms", self.theta_ms, 0.0, 1e6),
            ("copies", self.copies.into(), 0.0, spare::MAX_COPIES.into()),
            ("apart_ms", self.apart_ms, 0.0, 10_000.0),
            ("apart_rtts", self.apart_rtts, 0.0, 10.0),
            ("queue_length", self.queue_length.into(), 1.0, 10_000.0),
            ("escape_alpha", self.escape_alpha, 1.0, 1e6),
            ("warm_up", self.warm_up.into(), 0.0, 10_000.0),
        ] {
            if !(low..=high).contains(&value) {
                return Err(format!("`{key}` is {value}; it may be {low} to {high}"));
            }
        }
        Ok(())
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
