//! The settings of a whole path as one flat list, the same on the command line and in experiment
//! files, and the readers of plain quantities.

use core::time::Duration;

use serde::Deserialize;
use units::Rate;

use crate::config::{LinkConfig, LossPlace};
use crate::delay::{Jitter, Reorder};
use crate::loss::Loss;
use crate::path::PathConfig;
use crate::queue::Queue;
use crate::random::Probability;
use crate::text::{optional_duration, optional_rate};
use crate::trace::{Trace, optional_trace};
use crate::window::Window;

pub use crate::text::{parse_bytes, parse_duration, parse_rate};

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

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
