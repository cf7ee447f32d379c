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
use crate::webrtc_fec::Version;

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
    /// Data packets per repair packet of all codes, and data packets of a block.
    block_data: Option<u32>,
    block_repair: Option<u32>,
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
            block_data: None,
            block_repair: None,
        }
    }
}

fn duration(key: &str, text: &str) -> Result<Duration, BadValue> {
    parse_duration(text).map_err(|_| BadValue::new(key, text, "a duration such as 30ms"))
}

impl SetupKeys {
    pub(super) fn check(&self, platform: Platform) -> Result<(), BadValue> {
        self.path()?;
        self.source().checked()?;
        self.length()?;
        self.call()?;
        BadValue::unless(self.file > 0, "file", self.file, "1 packet and above")?;
        if let (Some(data), Some(repair)) = (self.block_data, self.block_repair) {
            BlockRate::new(data, repair)?;
        }
        let is_traced = self.trace.is_some() && platform == Platform::Transfer;
        BadValue::unless(!is_traced, "trace", &self.trace_name, "none for a transfer").map(drop)
    }

    fn path(&self) -> Result<CallPath, BadValue> {
        let rate = self
            .rate
            .parse::<Rate>()
            .map_err(|_| BadValue::new("rate", &self.rate, "a rate such as 12mbps"))?;
        BadValue::unless(rate > Rate::ZERO, "rate", &self.rate, "above 0")?;
        let loss =
            self.loss.parse::<Loss>().map_err(|why| BadValue::new("loss", &self.loss, why))?;
        let trace = self.trace.as_deref();
        let trace = trace.map(|text| crate::trace::parse(&self.trace_name, text)).transpose()?;
        Ok(CallPath { rate, rtt: duration("rtt", &self.rtt)?, loss, trace })
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
        duration("duration", &self.duration)
    }

    fn call(&self) -> Result<Call, BadValue> {
        let deadline = duration("deadline", &self.deadline)?;
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
                    ("late", outcome.deadlines.rate().unwrap_or(0.0)),
                    ("redundancy", outcome.sent.redundancy()),
                    ("overhead", outcome.sent.overhead()),
                ])
            }
            Platform::Conference => {
                let conference = Conference {
                    path: self.path()?,
                    source: self.source(),
                    duration: self.length()?,
                    key_after: duration("key_after", &self.key_after)?,
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
                let code = scheme.code(self.block_data, self.block_repair)?;
                let outcome = transfer.run(&scheme.engine()?, code, seed)?;
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
/// `hairpin`, `tambur` or `clairvoyant`.
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
    /// Block code: data and repair packets. Default: from the condition.
    data: Option<u32>,
    repair: Option<u32>,
    timeout: Option<String>,
    block: bool,
}

impl SchemeTable {
    pub(super) fn check(&self, platform: Platform) -> Result<(), BadValue> {
        match platform {
            Platform::Call => self.policy().and_then(|policy| match policy {
                Policy::Hairpin(lambda, _) => hairpin::Planner::new(lambda).map(drop),
                _ => Ok(()),
            }),
            Platform::Conference => self.protection().and_then(|protection| match protection {
                Protection::Tambur(tambur) => {
                    crate::streaming_code::checked_tau(tambur.tau).map(drop)
                }
                Protection::Engine(_) => Ok(()),
            }),
            Platform::Transfer => self.engine().and_then(|_| self.code(None, None)).map(drop),
        }
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
            _ => Protection::Engine(self.engine()?.into()),
        })
    }

    /// Returns the block code: with numbers of its own, or else from the condition.
    fn code(&self, data: Option<u32>, repair: Option<u32>) -> Result<Option<BlockCode>, BadValue> {
        if !self.block {
            return Ok(None);
        }
        let data = self.data.or(data).unwrap_or(9);
        let repair = self.repair.or(repair).unwrap_or(1);
        let timeout = self.timeout.as_deref().unwrap_or("5ms");
        let rate = BlockRate::new(data, repair)?;
        Ok(Some(BlockCode { rate, timeout: duration("timeout", timeout)? }))
    }
}
