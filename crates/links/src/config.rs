//! Settings of a link.

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

/// One direction of a path. Omitted settings mean no limit, no delay and no loss.
///
/// The columns of a `trace` with rows replace omitted settings: `rate`, `delay` (half of the RTT)
/// and `loss`. Explicit settings override its columns, so [`Rate::MAX`] or [`Loss::None`] disables
/// a column.
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
    /// Rate of the bottleneck. [`Rate::MAX`] (`unlimited`) also disables the queue.
    pub rate: Option<Rate>,
    /// Queue before the bottleneck. At least one packet must fit.
    pub queue: Queue,
    /// One-way propagation delay.
    pub delay: Option<Duration>,
    /// Round-trip times that replace `delay` from given times on.
    pub rtt_steps: Option<Steps>,
    /// Wake-ups of the link layer, for which packets wait after the bottleneck.
    pub bunches: Option<Bunches>,
    /// Variation of the delay.
    pub jitter: Option<Jitter>,
    /// Loss model.
    pub loss: Option<Loss>,
    /// Position of the loss model.
    pub loss_place: LossPlace,
    /// Packets that are delayed and overtaken.
    pub reorder: Option<Reorder>,
    /// Fraction of packets that are duplicated after the bottleneck.
    pub duplicate: Probability,
    /// Fraction of delivered packets that are damaged; see [`crate::Corruption`].
    pub corrupt: Probability,
    /// Token bucket before the queue.
    pub policer: Option<Policer>,
    /// Treatment of packets by their ECN field, before the queue.
    pub ecn: Option<EcnPolicy>,
    /// Maximum packet size in bytes, including the IP header.
    pub mtu: Option<u32>,
    /// Windows with complete loss of offered packets.
    pub blackhole: Vec<Window>,
    /// Recorded network conditions.
    pub trace: Option<Trace>,
}

impl LinkConfig {
    /// Returns the propagation delay at `at`, without jitter and without the delay of a trace.
    pub fn delay_at(&self, at: Timestamp) -> Duration {
        let step = self.rtt_steps.as_ref().and_then(|steps| steps.delay(steps.count(at)));
        step.or(self.delay).unwrap_or_default()
    }

    /// The trace's rows, if it has rows.
    pub(crate) fn rows(&self) -> Option<&Arc<Rows>> {
        self.trace.as_ref().and_then(Trace::rows)
    }
}

/// Position of losses in a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossPlace {
    /// Before the queue: a lost packet uses no capacity (netem).
    BeforeQueue,
    /// After the queue: a lost packet has used capacity (radio link).
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
