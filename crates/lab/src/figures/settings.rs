//! The settings of a run as specifications state them: flat keys, so that any of them can be swept or
//! belong to a scheme.

use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use congestion::Algorithm;
use links::{LinkConfig, LossPlace, PathConfig, Queue, Trace};
use quic::detection::Detection;
use recovery::art::dqn::Network;
use recovery::art::dqn::train::{self, Learner, Phase};
use recovery::art::{self, Penalty, SharedArms, Spread};
use recovery::autorec::{
    self, FixedLife, Occasions, Options as UtilityOptions, ReinjectionController, Tolerances,
};
use recovery::fixed::{self, Reading};
use recovery::{Arq, Guard, Scheme};
use serde::{Deserialize, Serialize};
use units::Rate;

use crate::recovered::SchemeMaker;
use crate::simulation::{Cipher, Scenario};
use crate::traffic::Traffic;

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
    /// `frames`, `unbounded`, or `download`.
    pub source: String,
    /// Rate of the frames, in Mbps.
    pub stream_mbps: f64,
    /// Frames per second.
    pub fps: f64,
    /// What a server with frames holds already when it is asked, in seconds of the stream.
    pub cached_seconds: f64,
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
    /// How losses are recovered from; see [`SCHEMES`].
    pub scheme: String,
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
            bytes: 1_000_000,
            requests: 1,
            same_connection: false,
            seconds: 60.0,
            measure_from_seconds: 0.0,
            rival: String::new(),
            rival_congestion: String::new(),
            scheme: "arq".to_owned(),
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

/// The trained network of the project, made by `mendcast lab train`.
const WEIGHTS: &[u8] = include_bytes!("../../../../experiments/weights/art-dqn.mdqn");

/// What schemes that learn know.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learnt {
    arms: SharedArms,
    /// Of a network that goes on learning.
    learner: Option<Arc<Mutex<Learner>>>,
}

impl Learnt {
    /// From here on the network decides as well as it can, and learns no more. Bandits do both at once.
    pub(crate) fn judge(&self) {
        if let Some(learner) = &self.learner {
            learner.lock().unwrap_or_else(PoisonError::into_inner).set_phase(Phase::Judge);
        }
    }
}

/// The schemes, and the keys that mean something to each.
const SCHEMES: &[(&str, &[&str])] = &[
    ("arq", &[]),
    ("autorec", &["alpha_ms", "beta_percent", "gamma_percent", "off_mode", "opportunistic"]),
    ("autorec-fixed", &["level", "off_mode", "opportunistic"]),
    (
        "autorec-mm24",
        &[
            "sigmoid",
            "theta_ms",
            "r_nor_percent",
            "max_level",
            "gate",
            "interval_rtts",
            "off_mode",
            "opportunistic",
        ],
    ),
    ("fixed", &["level", "reading", "spread", "escape_alpha"]),
    ("or3", &["reading", "spread", "escape_alpha"]),
    ("or3-code", &["reading", "spread", "escape_alpha"]),
    ("2n+1", &["reading", "spread", "escape_alpha"]),
    ("art-paper", &["reading", "queue_length", "spread", "escape_alpha"]),
    ("art-code", &["reading", "queue_length", "spread", "escape_alpha"]),
    ("art-egreedy", &["reading", "spread", "escape_alpha", "warm_up", "penalty"]),
    ("art-ucb", &["reading", "spread", "escape_alpha", "warm_up", "penalty"]),
    ("art-dqn", &["reading", "spread", "escape_alpha", "warm_up", "penalty", "dqn"]),
];

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
        let is_used = |key: &str| {
            let mut own =
                SCHEMES.iter().filter(|(name, _)| *name == self.scheme || *name == self.rival);
            own.any(|(_, keys)| keys.contains(&key))
        };
        for key in SCHEMES.iter().flat_map(|(_, keys)| *keys).filter(|key| !is_used(key)) {
            table[*key] = default[*key].clone();
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

    fn check(&self) -> Result<(), String> {
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

    fn reading(&self) -> Result<Reading, String> {
        match &*self.reading {
            "extra" => Ok(Reading::Extra),
            "copies" => Ok(Reading::Copies),
            other => Err(format!("`reading` is `{other}`; it may be extra or copies")),
        }
    }

    fn escape_space(&self) -> Spread {
        Spread::EscapeSpace { alpha: self.escape_alpha }
    }

    fn spread(&self) -> Result<Option<Spread>, String> {
        Ok(Some(match &*self.spread {
            "" => return Ok(None),
            "at-once" => Spread::AtOnce,
            "escape-space" => self.escape_space(),
            "round-trip" => Spread::RoundTrip,
            other => {
                return Err(format!(
                    "`spread` is `{other}`; it may be at-once, escape-space or round-trip"
                ));
            }
        }))
    }

    /// What a lost round costs if its factor is this.
    fn penalty(&self, factor: f64) -> Result<Penalty, String> {
        match &*self.penalty {
            "quotient" => Ok(Penalty::Quotient(factor)),
            "product" => Ok(Penalty::Product(factor)),
            other => Err(format!("`penalty` is `{other}`; it may be quotient or product")),
        }
    }

    fn network(&self) -> Result<Network, String> {
        let bad = |why: String| format!("`dqn`: {}: {why}", self.dqn);
        let bytes = match &*self.dqn {
            "" => WEIGHTS.to_vec(),
            path => std::fs::read(path).map_err(|e| bad(e.to_string()))?,
        };
        Network::from_bytes(&bytes).map_err(|e| bad(e.to_string()))
    }

    /// What schemes know at the beginning of a run.
    ///
    /// # Errors
    /// One line that names the key whose value makes no sense.
    pub(crate) fn learnt(&self, seed: u64) -> Result<Learnt, String> {
        let mut learnt = Learnt::default();
        if self.scheme == "art-dqn" && self.warm_up > 0 {
            let penalty = self.penalty(art::GAMMA)?;
            let options = train::Options { penalty, ..train::Options::default() };
            let learner = Learner::of(self.network()?, options, seed);
            learnt.learner = Some(Arc::new(Mutex::new(learner)));
        }
        Ok(learnt)
    }

    /// The scheme called `name` with these parameters and this knowledge.
    fn maker(&self, name: &str, learnt: &Learnt) -> Result<SchemeMaker, String> {
        if !SCHEMES.iter().any(|(known, _)| *known == name) {
            let known: Vec<&str> = SCHEMES.iter().map(|(known, _)| *known).collect();
            return Err(format!("`scheme` is `{name}`; it may be {}", known.join(", ")));
        }
        let ms = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        let (reading, spread) = (self.reading()?, self.spread()?);
        let escape_space = self.escape_space();
        let occasions = Occasions { off_mode: self.off_mode, opportunistic: self.opportunistic };
        let tolerances = Tolerances {
            latency: ms(self.alpha_ms),
            cost: self.beta_percent / 100.0,
            goodput: self.gamma_percent / 100.0,
        };
        let tolerances = tolerances.checked().map_err(|e| e.to_string())?;
        let level = self.level;
        let life = FixedLife::new(level).map_err(|e| e.to_string())?;
        let options = UtilityOptions {
            a: self.sigmoid,
            theta: ms(self.theta_ms),
            r_nor: self.r_nor_percent / 100.0,
            max: self.max_level,
            gate: self.gate,
            off_above: None,
            interval_rtts: self.interval_rtts,
        };
        let options = options.checked().map_err(|e| e.to_string())?;
        if name == "fixed" && fixed::fixed(level, reading).is_none() {
            return Err(format!("`level` is {level}; R of `fixed` may be 1 to 10"));
        }
        let queue = self.queue_length as usize;
        let network = Arc::new(self.network()?);
        let (penalty, learnt) = (self.penalty(art::ETA)?, learnt.clone());
        let name = name.to_owned();
        Ok(SchemeMaker::new(move |seed| {
            let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let reinjecting = |scheme: Scheme| Scheme {
                scheduler: Box::new(ReinjectionController::new(occasions)),
                ..scheme
            };
            let spreading = |scheme: Scheme| match spread {
                Some(spread) => art::with_schedule(scheme, spread, seed),
                None => scheme,
            };
            let art = |options: art::Options, own: Spread| {
                let options = art::Options { queue, ..options };
                art::with_options("art", options, spread.unwrap_or(own), seed)
            };
            match &*name {
                "autorec" => reinjecting(autorec::scheme(tolerances)),
                "autorec-fixed" => reinjecting(autorec::fixed(life)),
                "autorec-mm24" => reinjecting(autorec::scheme_mm24(options, seed)),
                "fixed" => spreading(fixed::fixed(level, reading).unwrap_or_else(Arq::scheme)),
                "or3" => spreading(fixed::or3(reading)),
                "or3-code" => spreading(fixed::or3_code(reading)),
                "2n+1" => spreading(fixed::odd(reading)),
                "art-paper" => art(art::Options::paper(reading), escape_space),
                "art-code" => art(art::Options::code(reading), Spread::RoundTrip),
                "art-egreedy" => {
                    spreading(art::egreedy(reading, learnt.arms.clone(), penalty, seed))
                }
                "art-ucb" => spreading(art::ucb(reading, learnt.arms.clone(), penalty, seed)),
                "art-dqn" => spreading(match &learnt.learner {
                    Some(learner) => train::scheme(learner.clone(), reading, seed),
                    None => art::dqn(network.clone(), reading, seed),
                }),
                _ => Arq::scheme(),
            }
        }))
    }

    fn algorithm(name: &str, key: &str) -> Result<Algorithm, String> {
        name.parse().map_err(|_| {
            let known: Vec<&str> = Algorithm::ALL.iter().map(|a| a.name()).collect();
            format!("`{key}` is `{name}`; it may be {}", known.join(", "))
        })
    }

    fn path(&self) -> Result<PathConfig, String> {
        let loss = match (&*self.loss_model, self.loss_percent) {
            (_, 0.0) => None,
            ("independent", percent) => Some(format!("{percent}%")),
            (model, percent) => Some(model.replace("{}", &format!("{percent}%"))),
        };
        let loss =
            loss.map(|text| text.parse().map_err(|e| format!("`loss_model`: {e}"))).transpose()?;
        let load = |key: &str, path: &str| match path {
            "" => Ok(None),
            path => Trace::load(path).map(Some).map_err(|e| format!("`{key}`: {path}: {e}")),
        };
        let (trace, trace_up) = (load("trace", &self.trace)?, load("trace_up", &self.trace_up)?);
        let delay = Some(Duration::from_secs_f64(self.rtt_ms / 2e3));
        let rate = Rate::from_kbps((self.rate_mbps * 1e3).round() as u64);
        let down = LinkConfig {
            rate: trace.is_none().then_some(rate),
            queue: Queue::drop_tail(self.queue_bytes),
            delay,
            loss,
            loss_place: LossPlace::AfterQueue,
            trace,
            ..LinkConfig::default()
        };
        let up = match trace_up {
            None => LinkConfig { delay, ..LinkConfig::default() },
            trace => LinkConfig {
                queue: Queue::drop_tail(self.queue_bytes),
                delay,
                trace,
                ..LinkConfig::default()
            },
        };
        Ok(PathConfig { down, up })
    }

    /// The run of these settings with this seed, of which nothing is known yet.
    ///
    /// # Errors
    /// One line that names the key whose value makes no sense.
    pub(crate) fn scenario(&self, seed: u64) -> Result<Scenario, String> {
        self.scenario_after(seed, &Learnt::default())
    }

    /// The run of these settings with this seed by schemes that know this, and go on to learn.
    ///
    /// # Errors
    /// As [`Settings::scenario`].
    pub(crate) fn scenario_after(&self, seed: u64, learnt: &Learnt) -> Result<Scenario, String> {
        self.check()?;
        let congestion = Self::algorithm(&self.congestion, "congestion")?;
        let detection = match &*self.detection {
            "lsquic" => Detection::LSQUIC,
            "rfc9002" => Detection::RFC9002,
            other => {
                return Err(format!("`detection` is `{other}`; it may be lsquic or rfc9002"));
            }
        };
        let traffic = match &*self.source {
            "frames" => Traffic::Frames {
                rate: Rate::from_kbps((self.stream_mbps * 1e3).round() as u64),
                fps: self.fps,
                cached: Duration::from_secs_f64(self.cached_seconds),
            },
            "unbounded" => Traffic::Unbounded,
            "download" => Traffic::Download { bytes: self.bytes },
            other => {
                return Err(format!(
                    "`source` is `{other}`; it may be frames, unbounded or download"
                ));
            }
        };
        if self.same_connection && self.source != "download" {
            return Err("`same_connection` is for downloads only".to_owned());
        }
        let rival = match &*self.rival {
            "" => None,
            name => {
                let congestion = match &*self.rival_congestion {
                    "" => congestion,
                    name => Self::algorithm(name, "rival_congestion")?,
                };
                Some((congestion, self.maker(name, &Learnt::default())?, traffic))
            }
        };
        Ok(Scenario {
            path: self.path()?,
            cipher: Cipher::Null,
            congestion,
            detection,
            scheme: self.maker(&self.scheme, learnt)?,
            guard: (self.guard_percent > 0.0).then(|| Guard::new(self.guard_percent / 100.0, None)),
            traffic,
            times: if self.same_connection { self.requests } else { 1 },
            rival,
            window: self.window_bytes,
            seed,
            limit: Duration::from_secs_f64(self.seconds),
            measure_from: Duration::from_secs_f64(self.measure_from_seconds),
            log_events: false,
            ..Scenario::default()
        })
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

    #[test]
    fn settings_that_make_no_sense_are_refused_by_name() {
        let refused = |change: &dyn Fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            settings.scenario(1).expect_err("refused")
        };
        assert!(refused(&|s| s.fps = 0.0).contains("`fps`"));
        assert!(refused(&|s| s.alpha_ms = f64::NAN).contains("`alpha_ms`"));
        assert!(refused(&|s| s.level = 11).contains("`level`"));
        assert!(refused(&|s| s.scheme = "x".to_owned()).contains("`scheme`"));
        assert!(refused(&|s| s.congestion = "x".to_owned()).contains("`congestion`"));
        assert!(refused(&|s| s.sigmoid = -1.0).contains("`a`"));
        assert!(refused(&|s| s.same_connection = true).contains("`same_connection`"));
        assert!(refused(&|s| s.penalty = "x".to_owned()).contains("`penalty`"));
        assert!(refused(&|s| s.dqn = "/nowhere".to_owned()).contains("`dqn`: /nowhere"));
        assert!(refused(&|s| s.trace_up = "/nowhere".to_owned()).contains("`trace_up`"));
        assert!(refused(&|s| s.loss_model = "x:{}".to_owned()).contains("`loss_model`"));
    }
}
