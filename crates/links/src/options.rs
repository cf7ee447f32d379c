//! The settings of a whole path as one flat list, the same on the command line and in experiment
//! files, and the readers of plain quantities.

use core::fmt;
use core::time::Duration;

use serde::{Deserialize, Deserializer};
use units::Rate;

use crate::config::{LinkConfig, LossPlace, Window};
use crate::delay::{Jitter, Reorder};
use crate::loss::Loss;
use crate::path::PathConfig;
use crate::queue::Queue;
use crate::random::Probability;
use crate::text::ParseError;
use crate::trace::Trace;

/// Both directions between a client and a server. "Down" is towards the client.
///
/// What has no direction in its name holds for both, except the trace, whose rate and loss shape
/// only the way down (its RTT is shared by both).
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PathOptions {
    /// Rate of the bottleneck.
    #[serde(deserialize_with = "optional_rate")]
    pub rate: Option<Rate>,
    /// Rate of the way up, instead of `rate`.
    #[serde(deserialize_with = "optional_rate")]
    pub rate_up: Option<Rate>,
    /// Round-trip propagation time; each direction takes half.
    #[serde(deserialize_with = "optional_duration")]
    pub rtt: Option<Duration>,
    /// Variation of the delay, per direction.
    pub jitter: Option<Jitter>,
    /// What waits for the bottleneck.
    pub queue: Queue,
    /// Loss in both directions.
    pub loss: Option<Loss>,
    /// Loss towards the client, instead of `loss`.
    pub loss_down: Option<Loss>,
    /// Loss towards the server, instead of `loss`.
    pub loss_up: Option<Loss>,
    /// Whether loss comes before or after the queue.
    pub loss_place: LossPlace,
    /// Packets held back and overtaken.
    pub reorder: Option<Reorder>,
    /// Share of packets that arrive twice.
    pub duplicate: Probability,
    /// Share of delivered packets that are damaged.
    pub corrupt: Probability,
    /// Largest packet in bytes, IP header included.
    pub mtu: Option<u32>,
    /// Times at which whatever is offered vanishes.
    pub blackhole: Vec<Window>,
    /// Recorded conditions; in a file of settings, the path of the trace's file.
    #[serde(deserialize_with = "optional_trace")]
    pub trace: Option<Trace>,
}

impl PathOptions {
    /// The two links that these options describe.
    pub fn path(&self) -> PathConfig {
        let down = LinkConfig {
            rate: self.rate,
            queue: self.queue,
            delay: self.rtt.map(|rtt| rtt / 2),
            jitter: self.jitter,
            loss: self.loss_down.clone().or_else(|| self.loss.clone()),
            loss_place: self.loss_place,
            reorder: self.reorder,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            mtu: self.mtu,
            blackhole: self.blackhole.clone(),
            trace: self.trace.clone(),
        };
        let up = LinkConfig {
            rate: Some(self.rate_up.or(self.rate).unwrap_or(Rate::MAX)),
            loss: Some(self.loss_up.clone().or_else(|| self.loss.clone()).unwrap_or_default()),
            ..down.clone()
        };
        PathConfig { down, up }
    }
}

/// Reads a time: `60ms`, `5s`, `1.5s`, `250us`, `100ns`, `2min`, or `0`.
///
/// # Errors
/// Without a unit, and for negative times or times beyond a year.
pub fn parse_duration(text: &str) -> Result<Duration, ParseError> {
    const UNITS: [(&str, f64); 6] =
        [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("min", 6e10), ("s", 1e9)];
    let nanos = quantity(text, &UNITS).filter(|nanos| *nanos <= 365.0 * 86_400.0 * 1e9);
    nanos
        .map(|nanos| Duration::from_nanos(nanos.round() as u64))
        .ok_or_else(|| ParseError::new(text, "a time like `60ms`, `5s` or `250us`"))
}

/// Reads a size in bytes: `500kB` (1,000 each), `64KiB` (1,024 each), `2MB`, `1MiB`, `1500B`, or
/// `unlimited`.
///
/// # Errors
/// Without a unit, and for negative sizes or sizes beyond 2^53.
pub fn parse_bytes(text: &str) -> Result<u64, ParseError> {
    const UNITS: [(&str, f64); 5] =
        [("kib", 1024.0), ("mib", 1_048_576.0), ("kb", 1e3), ("mb", 1e6), ("b", 1.0)];
    if text.trim() == "unlimited" {
        return Ok(u64::MAX / 2);
    }
    let bytes = quantity(&text.to_ascii_lowercase(), &UNITS).filter(|bytes| *bytes <= 9e15);
    bytes
        .map(|bytes| bytes.round() as u64)
        .ok_or_else(|| ParseError::new(text, "a size like `500kB`, `64KiB` or `1500B`"))
}

/// Reads a rate: what [`Rate`] reads, or `unlimited`.
///
/// # Errors
/// Without a unit, and for negative rates.
pub fn parse_rate(text: &str) -> Result<Rate, ParseError> {
    match text.trim() {
        "unlimited" => Ok(Rate::MAX),
        rate => {
            rate.parse().map_err(|_| ParseError::new(text, "a rate like `12mbps` or `unlimited`"))
        }
    }
}

/// A number that is not negative, times the unit behind it; zero needs no unit.
fn quantity(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    if text == "0" {
        return Some(0.0);
    }
    let (number, unit) =
        units.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, unit)))?;
    let number: f64 = number.trim().parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * unit)
}

/// Reads an optional setting from a string in a file.
fn optional<'de, D: Deserializer<'de>, V, E: fmt::Display>(
    from: D,
    read: impl FnOnce(&str) -> Result<V, E>,
) -> Result<Option<V>, D::Error> {
    let text = Option::<String>::deserialize(from)?;
    text.map(|text| read(&text).map_err(serde::de::Error::custom)).transpose()
}

pub(crate) fn optional_rate<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Rate>, D::Error> {
    optional(from, parse_rate)
}

pub(crate) fn optional_duration<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Duration>, D::Error> {
    optional(from, parse_duration)
}

pub(crate) fn optional_trace<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Trace>, D::Error> {
    optional(from, Trace::load)
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
