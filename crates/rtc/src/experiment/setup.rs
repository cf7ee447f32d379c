//! Keys of platforms and schemes.

use core::time::Duration;

use links::Loss;
use serde::Deserialize;
use units::{Rate, parse_duration};

use crate::block::BlockRate;
use crate::calls::{Call, CallPath, Decoding, LossCount, Policy};
use crate::error::BadValue;
use crate::hairpin;
use crate::maker::{Engine, SchemeKeys};
use crate::ringmaster::{Conference, Parity, Protection, Tambur};
use crate::source::Source;
use crate::transfer::{BlockCode, Transfer};
use crate::webrtc_fec::{Mask, Version};

/// Longest file, in packets.
const MAX_FILE: u32 = 1_000_000;
/// Most packets of a call or conference, if all frames were key frames.
const MAX_PACKETS: f64 = 1e7;
const MIN_RATE: Rate = Rate::from_kbps(10);
const MAX_RATE: Rate = Rate::from_mbps(100_000);

/// Metrics of a run, by name.
pub type Metrics = Vec<(&'static str, f64)>;

/// Platform of an experiment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Platform {
    /// [`Call`].
    Call,
    /// [`Conference`].
    Conference,
    /// [`Transfer`].
    Transfer,
}

impl Platform {
    /// Names of the metrics, the most important first.
    pub fn metrics(self) -> &'static [&'static str] {
        match self {
            Self::Call => &["late", "redundancy", "overhead"],
            Self::Conference => &["frozen", "unshown", "key_frames", "redundancy", "overhead"],
            Self::Transfer => &["completion_ms", "failing", "redundancy", "overhead"],
        }
    }
}

/// Set-up of a run.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SetupKeys {
    rate: String,
    rtt: String,
    loss: String,
    /// Content of a trace file, and its name.
    trace: Option<String>,
    trace_name: String,
    fps: u32,
    packets: u32,
    key_factor: f64,
    key_every: u32,
    variation: f64,
    deadline: String,
    duration: String,
    key_after: String,
    /// Packets of a file.
    file: u32,
}

impl Default for SetupKeys {
    fn default() -> Self {
        Self {
            rate: "12mbps".to_owned(),
            rtt: "30ms".to_owned(),
            loss: "none".to_owned(),
            trace: None,
            trace_name: String::new(),
            fps: 60,
            packets: 6,
            key_factor: 1.0,
            key_every: 0,
            variation: 0.0,
            deadline: "100ms".to_owned(),
            duration: "60s".to_owned(),
            key_after: "1s".to_owned(),
            file: 1_000,
        }
    }
}

/// Allowed durations of a key.
struct Spans {
    key: &'static str,
    least: Duration,
    most: Duration,
    allowed: &'static str,
}

const RTT: Spans = Spans {
    key: "rtt",
    least: Duration::ZERO,
    most: Duration::from_secs(10),
    allowed: "a duration from 0ms to 10s",
};
const DEADLINE: Spans = Spans {
    key: "deadline",
    least: Duration::from_millis(1),
    most: Duration::from_secs(60),
    allowed: "a duration from 1ms to 60s",
};
const DURATION: Spans = Spans {
    key: "duration",
    least: Duration::from_secs(1),
    most: Duration::from_secs(3_600),
    allowed: "a duration from 1s to 3600s",
};
const KEY_AFTER: Spans = Spans {
    key: "key_after",
    least: Duration::from_millis(10),
    most: Duration::from_secs(3_600),
    allowed: "a duration from 10ms to 3600s",
};
const TIMEOUT: Spans = Spans {
    key: "timeout",
    least: Duration::from_micros(100),
    most: Duration::from_secs(10),
    allowed: "a duration from 100us to 10s",
};

impl Spans {
    fn parse(&self, text: &str) -> Result<Duration, BadValue> {
        let span = parse_duration(text).ok().filter(|s| (self.least..=self.most).contains(s));
        span.ok_or_else(|| BadValue::new(self.key, text, self.allowed))
    }
}

fn duration(key: &str, text: &str) -> Result<Duration, BadValue> {
    parse_duration(text).map_err(|_| BadValue::new(key, text, "a duration such as 30ms"))
}

impl SetupKeys {
    pub(super) fn check(&self, platform: Platform) -> Result<(), BadValue> {
        self.source().checked()?;
        self.call()?;
        KEY_AFTER.parse(&self.key_after)?;
        let mean = f64::from(self.fps * self.packets) * self.key_factor;
        let packets = self.length()?.as_secs_f64() * mean;
        if packets > MAX_PACKETS {
            let text = format!("{packets:.0} packets in {}", self.duration);
            return Err(BadValue::new("duration", text, "at most 10,000,000 packets"));
        }
        let is_sized = (1..=MAX_FILE).contains(&self.file);
        BadValue::unless(is_sized, "file", self.file, "1 to 1,000,000 packets")?;
        let is_traced = self.trace.is_some() && platform == Platform::Transfer;
        BadValue::unless(!is_traced, "trace", &self.trace_name, "none for a transfer").map(drop)
    }

    /// Checks values that exclude each other.
    pub(super) fn check_with(&self, scheme: &SchemeTable) -> Result<(), BadValue> {
        let largest = self.source().largest();
        let is_allowed = !scheme.masks || largest <= Mask::MAX_DATA;
        let allowed = "at most 48 packets per frame with masks";
        BadValue::unless(is_allowed, "packets", largest, allowed).map(drop)
    }

    fn path(&self) -> Result<CallPath, BadValue> {
        let rate = self.rate.parse::<Rate>().ok();
        let rate = rate.filter(|rate| (MIN_RATE..=MAX_RATE).contains(rate));
        let rate =
            rate.ok_or_else(|| BadValue::new("rate", &self.rate, "a rate from 10kbps to 100gbps"))?;
        let loss =
            self.loss.parse::<Loss>().map_err(|why| BadValue::new("loss", &self.loss, why))?;
        let trace = self.trace.as_deref();
        let trace = trace.map(|text| crate::trace::parse(&self.trace_name, text)).transpose()?;
        Ok(CallPath { rate, rtt: RTT.parse(&self.rtt)?, loss, trace })
    }

    fn source(&self) -> Source {
        Source {
            fps: self.fps,
            packets: self.packets,
            key_factor: self.key_factor,
            key_every: self.key_every,
            variation: self.variation,
        }
    }

    fn length(&self) -> Result<Duration, BadValue> {
        DURATION.parse(&self.duration)
    }

    fn call(&self) -> Result<Call, BadValue> {
        let deadline = DEADLINE.parse(&self.deadline)?;
        let source = self.source();
        Ok(Call { path: self.path()?, source, deadline, duration: self.length()? })
    }

    pub(super) fn run(
        &self,
        platform: Platform,
        scheme: &SchemeTable,
        seed: u64,
    ) -> Result<Metrics, BadValue> {
        match platform {
            Platform::Call => {
                let outcome = self.call()?.run(&scheme.policy()?, seed)?;
                Ok(vec![
                    ("late", outcome.deadlines.rate().unwrap_or(f64::NAN)),
                    ("redundancy", outcome.sent.redundancy()),
                    ("overhead", outcome.sent.overhead()),
                ])
            }
            Platform::Conference => {
                let conference = Conference {
                    path: self.path()?,
                    source: self.source(),
                    duration: self.length()?,
                    key_after: KEY_AFTER.parse(&self.key_after)?,
                };
                let outcome = conference.run(&scheme.protection()?, seed)?;
                Ok(vec![
                    ("frozen", outcome.frozen),
                    ("unshown", outcome.unshown),
                    ("key_frames", outcome.key_frames as f64),
                    ("redundancy", outcome.sent.redundancy()),
                    ("overhead", outcome.sent.overhead()),
                ])
            }
            Platform::Transfer => {
                let transfer = Transfer { path: self.path()?, packets: self.file };
                let outcome = transfer.run(scheme.file_engine()?.as_ref(), scheme.code()?, seed)?;
                let completion = outcome.completion.map_or(f64::INFINITY, |t| t.as_secs_f64());
                Ok(vec![
                    ("completion_ms", completion * 1e3),
                    ("failing", f64::from(u8::from(outcome.has_failed()))),
                    ("redundancy", outcome.sent.redundancy()),
                    ("overhead", outcome.sent.overhead()),
                ])
            }
        }
    }
}

/// Keys of a scheme. `scheme` is a name of the crate `recovery`, or `webrtc-14`, `webrtc-now`,
/// `hairpin`, `tambur`, `clairvoyant` or `reactive`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct SchemeTable {
    scheme: String,
    latency: Option<String>,
    cost: Option<f64>,
    goodput: Option<f64>,
    price: Option<String>,
    patience: Option<String>,
    patient_above: Option<f64>,
    max_redundancy: Option<f64>,
    /// λ of Hairpin.
    lambda: Option<f64>,
    /// Whether Hairpin counts losses rather than retransmissions.
    counts_losses: bool,
    /// Repair packets of WebRTC by XOR masks.
    masks: bool,
    /// τ, share of parity (none for one packet per frame), and rules of Tambur.
    tau: Option<u32>,
    parity: Option<f64>,
    retransmits: bool,
    key_behind: bool,
    /// Block code: data packets, repair packets, and time-out. Default: 9, 1 and 5 ms.
    data: Option<u32>,
    repair: Option<u32>,
    timeout: Option<String>,
    block: bool,
}

impl SchemeTable {
    pub(super) fn check(&self, platform: Platform) -> Result<(), BadValue> {
        self.check_keys()?;
        match platform {
            Platform::Call => self.policy().and_then(|policy| match policy {
                Policy::Hairpin(lambda, _) => hairpin::Planner::new(lambda).map(drop),
                _ => Ok(()),
            }),
            Platform::Conference => self.protection().and_then(|protection| match protection {
                Protection::Tambur(tambur) => tambur.check(),
                Protection::Engine(_) | Protection::Clairvoyant => Ok(()),
            }),
            Platform::Transfer => self.file_engine().and_then(|_| self.code()).map(drop),
        }
    }

    /// Rejects keys that the scheme does not have. They would have no effect.
    fn check_keys(&self) -> Result<(), BadValue> {
        let own = match &*self.scheme {
            "hairpin" => "hairpin",
            "webrtc-14" | "webrtc-now" => "webrtc",
            "tambur" => "tambur",
            "clairvoyant" | "reactive" => "bound",
            _ => "engine",
        };
        let block = if self.block { own } else { "block = true" };
        let keys = [
            ("latency", self.latency.is_some(), "engine"),
            ("cost", self.cost.is_some(), "engine"),
            ("goodput", self.goodput.is_some(), "engine"),
            ("price", self.price.is_some(), "engine"),
            ("patience", self.patience.is_some(), "engine"),
            ("patient_above", self.patient_above.is_some(), "engine"),
            ("max_redundancy", self.max_redundancy.is_some(), "engine"),
            ("block", self.block, "engine"),
            ("lambda", self.lambda.is_some(), "hairpin"),
            ("counts_losses", self.counts_losses, "hairpin"),
            ("masks", self.masks, "webrtc"),
            ("tau", self.tau.is_some(), "tambur"),
            ("parity", self.parity.is_some(), "tambur"),
            ("retransmits", self.retransmits, "tambur"),
            ("key_behind", self.key_behind, "tambur"),
            ("data", self.data.is_some(), block),
            ("repair", self.repair.is_some(), block),
            ("timeout", self.timeout.is_some(), block),
        ];
        match keys.iter().find(|(_, is_set, of)| *is_set && *of != own) {
            None => Ok(()),
            Some((key, _, of)) => {
                let value = format!("set for `{}`", self.scheme);
                Err(BadValue::new(key, value, format_args!("a key of `{of}`")))
            }
        }
    }

    fn file_engine(&self) -> Result<Option<Engine>, BadValue> {
        (self.scheme != "clairvoyant").then(|| self.engine()).transpose()
    }

    fn engine(&self) -> Result<Engine, BadValue> {
        let default = SchemeKeys::default();
        let span = |key, text: &Option<String>, default| {
            text.as_deref().map_or(Ok(default), |text| duration(key, text))
        };
        let keys = SchemeKeys {
            latency: span("latency", &self.latency, default.latency)?,
            cost: self.cost.unwrap_or(default.cost),
            goodput: self.goodput.unwrap_or(default.goodput),
            price: span("price", &self.price, default.price)?,
            patience: span("patience", &self.patience, default.patience)?,
            patient_above: self.patient_above.unwrap_or(default.patient_above),
            max_redundancy: self.max_redundancy,
        };
        Engine::new(&self.scheme, &keys)
    }

    fn policy(&self) -> Result<Policy, BadValue> {
        let count = if self.counts_losses { LossCount::Losses } else { LossCount::Retransmissions };
        let decoding = if self.masks { Decoding::Xor } else { Decoding::Mds };
        Ok(match self.scheme.as_str() {
            "webrtc-14" => Policy::WebRtc(Version::Of14, decoding),
            "webrtc-now" => Policy::WebRtc(Version::Now, decoding),
            "hairpin" => Policy::Hairpin(self.lambda.unwrap_or(hairpin::STANDARD), count),
            "clairvoyant" => Policy::Clairvoyant,
            "reactive" => Policy::Reactive,
            _ => Policy::Engine(self.engine()?.into()),
        })
    }

    fn protection(&self) -> Result<Protection, BadValue> {
        Ok(match self.scheme.as_str() {
            "tambur" => Protection::Tambur(Tambur {
                tau: self.tau.unwrap_or(3),
                parity: self.parity.map_or(Parity::One, Parity::Ratio),
                retransmits: self.retransmits,
                key_behind: self.key_behind,
            }),
            "clairvoyant" => Protection::Clairvoyant,
            _ => Protection::Engine(self.engine()?.into()),
        })
    }

    fn code(&self) -> Result<Option<BlockCode>, BadValue> {
        if !self.block {
            return Ok(None);
        }
        let rate = BlockRate::new(self.data.unwrap_or(9), self.repair.unwrap_or(1))?;
        let timeout = TIMEOUT.parse(self.timeout.as_deref().unwrap_or("5ms"))?;
        Ok(Some(BlockCode { rate, timeout }))
    }
}
