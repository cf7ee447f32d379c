//! What a link is made of: one direction's settings.

use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use units::{Rate, Timestamp};

use crate::bunches::Bunches;
use crate::delay::{Jitter, Reorder};
use crate::ecn::EcnPolicy;
use crate::loss::Loss;
use crate::policer::Policer;
use crate::queue::Queue;
use crate::random::Probability;
use crate::steps::Steps;
use crate::text::ParseError;
use crate::trace::{Rows, Trace};
use crate::window::Window;

/// One direction of a path. Everything left out is perfect: no limit, no delay, no loss.
///
/// Where a `trace` has rows, its columns stand for the settings left out: `rate`, `delay` (half the
/// RTT) and `loss`. A setting that is given wins over its column, so [`Rate::MAX`] or
/// [`Loss::None`] switches a column off.
///
/// ```
/// use mendcast_links::{LinkConfig, Queue};
/// use std::time::Duration;
///
/// let config = LinkConfig {
///     rate: Some("12mbps".parse().unwrap()),
///     delay: Some(Duration::from_millis(30)),
///     queue: Queue::drop_tail(500_000),
///     loss: Some("5%".parse().unwrap()),
///     ..LinkConfig::default()
/// };
/// ```
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// Rate of the bottleneck; [`Rate::MAX`] (`unlimited`) for none, and then no queue either.
    pub rate: Option<Rate>,
    /// What waits for the bottleneck. At least one packet must fit.
    pub queue: Queue,
    /// Propagation delay, one way.
    pub delay: Option<Duration>,
    /// Round-trip times that take the place of `delay` from points in time on.
    pub rtt_steps: Option<Steps>,
    /// Wake-ups of the link layer, for which packets wait behind the bottleneck.
    pub bunches: Option<Bunches>,
    /// Variation of the delay.
    pub jitter: Option<Jitter>,
    /// Which packets are lost.
    pub loss: Option<Loss>,
    /// Where they are lost.
    pub loss_place: LossPlace,
    /// Packets held back and overtaken.
    pub reorder: Option<Reorder>,
    /// Share of packets that arrive twice; the copy is made behind the bottleneck.
    pub duplicate: Probability,
    /// Share of delivered packets that are damaged; see [`crate::Corruption`].
    pub corrupt: Probability,
    /// Token bucket before the queue.
    pub policer: Option<Policer>,
    /// Treatment of packets by their ECN field, before the queue.
    pub ecn: Option<EcnPolicy>,
    /// Largest packet in bytes, IP header included.
    pub mtu: Option<u32>,
    /// Times at which whatever is offered vanishes.
    pub blackhole: Vec<Window>,
    /// Recorded conditions.
    pub trace: Option<Trace>,
}

impl LinkConfig {
    /// Returns the propagation delay of packets that set out at `at`, without jitter and a trace's.
    pub fn delay_at(&self, at: Timestamp) -> Duration {
        let step = self.rtt_steps.as_ref().and_then(|steps| steps.delay(steps.count(at)));
        step.or(self.delay).unwrap_or_default()
    }

    /// The trace's rows, if it has rows.
    pub(crate) fn rows(&self) -> Option<&Arc<Rows>> {
        self.trace.as_ref().and_then(Trace::rows)
    }
}

/// Where a link loses packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossPlace {
    /// Before the queue: a lost packet costs no capacity (netem).
    BeforeQueue,
    /// After the queue: a lost packet has used its share of the rate (a radio link).
    #[default]
    AfterQueue,
}

impl FromStr for LossPlace {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text.trim() {
            "before-queue" => Ok(Self::BeforeQueue),
            "after-queue" => Ok(Self::AfterQueue),
            _ => Err(ParseError::new(text, "before-queue or after-queue")),
        }
    }
}
