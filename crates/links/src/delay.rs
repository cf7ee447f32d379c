//! Bunches, propagation delay, jitter and reordering: the packets on their way to the far end.
//!
//! A packet first waits for a wake-up of the link layer, with [`Bunches`], and then propagates. By
//! default, jitter preserves the order: a packet waits for the previous one, as in a real queue.
//! Packets selected by reordering are delayed and overtaken.

use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use units::Timestamp;

use crate::bunches::{Bunches, WakeUps};
use crate::packet::Item;
use crate::random::{DrawStream, Probability};
use crate::steps::Steps;
use crate::text::{ParseError, parse_duration};
use crate::trace::Rows;

/// Variation of the delay per packet. The total delay is never negative.
///
/// As text: `5ms` or `uniform:5ms`; `gauss:5ms`. With the suffix `,reorder`, packets may overtake
/// each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// Uniform from −`spread` to +`spread`.
    Uniform {
        /// Largest deviation.
        spread: Duration,
        /// Whether packets may overtake each other.
        reorder: bool,
    },
    /// Gaussian, clamped to three standard deviations.
    Gaussian {
        /// Standard deviation.
        sd: Duration,
        /// Whether packets may overtake each other.
        reorder: bool,
    },
}

impl Jitter {
    /// Largest deviation to either side.
    fn bound(self) -> Duration {
        match self {
            Self::Uniform { spread, .. } => spread,
            Self::Gaussian { sd, .. } => sd.saturating_mul(3),
        }
    }

    fn may_reorder(self) -> bool {
        match self {
            Self::Uniform { reorder, .. } | Self::Gaussian { reorder, .. } => reorder,
        }
    }

    /// Returns the delay of packet `index`, relative to [`Self::bound`] before
    /// nominal.
    fn offset(self, draws: DrawStream, index: u64) -> Duration {
        let bound = self.bound().as_nanos();
        let nanos = match self {
            Self::Uniform { .. } => (u128::from(draws.at(index)) * (2 * bound + 1)) >> 64,
            Self::Gaussian { sd, .. } => {
                let deviation = draws.gaussian(index) + (3 << 16);
                (u128::from(deviation.unsigned_abs()) * sd.as_nanos()) >> 16
            }
        };
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl FromStr for Jitter {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (shape, reorder) = match text.trim().strip_suffix(",reorder") {
            Some(shape) => (shape, true),
            None => (text.trim(), false),
        };
        let read = |span: &str| {
            parse_duration(span).ok().filter(|d| *d <= Duration::from_secs(3_600)).ok_or_else(
                || {
                    ParseError::new(
                        text,
                        "a time like `5ms`, `uniform:5ms` or `gauss:5ms`, also with `,reorder`",
                    )
                },
            )
        };
        match shape.split_once(':') {
            Some(("gauss", sd)) => Ok(Self::Gaussian { sd: read(sd)?, reorder }),
            Some(("uniform", spread)) => Ok(Self::Uniform { spread: read(spread)?, reorder }),
            _ => Ok(Self::Uniform { spread: read(shape)?, reorder }),
        }
    }
}

/// Reordering: delays some packets. As text: `2%,30ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// Fraction of delayed packets.
    pub probability: Probability,
    /// Additional delay.
    pub extra: Duration,
}

impl FromStr for Reorder {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let read = || {
            let (probability, extra) = text.split_once(',')?;
            Some(Self {
                probability: probability.parse().ok()?,
                extra: parse_duration(extra).ok()?,
            })
        };
        read().ok_or_else(|| ParseError::new(text, "a probability and an extra delay: `2%,30ms`"))
    }
}

/// Source of the propagation delay.
#[derive(Debug)]
pub(crate) enum Propagation {
    Fixed(Duration),
    /// Half of the trace's round-trip time at departure.
    Rows {
        rows: Arc<Rows>,
        cursor: usize,
    },
}

/// Delays other than propagation.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(crate) bunches: Option<Bunches>,
    pub(crate) steps: Option<Steps>,
    pub(crate) jitter: Option<Jitter>,
    pub(crate) reorder: Option<Reorder>,
}

/// Packets between the bottleneck and the far end.
#[derive(Debug)]
pub(crate) struct DelayLine<T> {
    wake_ups: Option<WakeUps>,
    propagation: Propagation,
    steps: Option<Steps>,
    /// Number of steps before the latest departure.
    steps_done: usize,
    /// Lower bound of the delay after the wake-up.
    least: Duration,
    jitter: Option<Jitter>,
    jitter_draws: DrawStream,
    reorder: Option<Reorder>,
    reorder_draws: DrawStream,
    /// Sorted by [`Propagating::order`].
    packets: VecDeque<Propagating<T>>,
    /// Latest arrival of a packet in order.
    last_due: Timestamp,
}

/// A packet with its time of arrival in `at`.
#[derive(Debug)]
struct Propagating<T> {
    item: Item<T>,
    /// Whether it arrives out of order.
    is_displaced: bool,
}

impl<T> Propagating<T> {
    /// Sort key. At equal times, packets in order come first, then the others by index.
    fn order(&self) -> (Timestamp, bool, u64) {
        (self.item.at, self.is_displaced, self.item.index)
    }
}

impl<T> DelayLine<T> {
    pub(crate) fn new(propagation: Propagation, waits: Waits, seed: u64, link: &str) -> Self {
        let Waits { bunches, steps, jitter, reorder } = waits;
        let shortest = match &propagation {
            Propagation::Fixed(delay) => *delay,
            Propagation::Rows { rows, .. } => {
                rows.rows().iter().map(|row| row.rtt / 2).min().unwrap_or_default()
            }
        };
        let shortest = steps.as_ref().map_or(shortest, |steps| shortest.min(steps.least()));
        Self {
            wake_ups: bunches.map(|bunches| WakeUps::new(bunches, seed, link)),
            propagation,
            steps,
            steps_done: 0,
            least: shortest.saturating_sub(jitter.map_or(Duration::ZERO, Jitter::bound)),
            jitter,
            jitter_draws: DrawStream::new(seed, link, "jitter"),
            reorder,
            reorder_draws: DrawStream::new(seed, link, "reorder"),
            packets: VecDeque::new(),
            last_due: Timestamp::ZERO,
        }
    }

    /// Returns a lower bound of the arrival of packets that leave the bottleneck from `leaving` on.
    #[inline]
    pub(crate) fn earliest(&self, leaving: Timestamp) -> Timestamp {
        self.wake_ups.map_or(leaving, |wake_ups| wake_ups.release(leaving)) + self.least
    }

    /// Propagating packets.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Item<T>> {
        self.packets.iter().map(|packet| &packet.item)
    }

    /// Adds a packet that left the bottleneck at `at`. It departs then, or at `not_before` without
    /// delaying later packets.
    #[inline]
    pub(crate) fn push(&mut self, mut item: Item<T>) {
        let has_waited = item.not_before > item.at;
        item.at = item.at.max(item.not_before);
        if let Some(wake_ups) = &self.wake_ups {
            item.at = wake_ups.release(item.at);
        }
        let nominal = item.at + self.delay(item.at);
        let mut due = match self.jitter {
            None => nominal,
            Some(jitter) => {
                let offset = jitter.offset(self.jitter_draws, item.index);
                (nominal + offset - jitter.bound()).max(item.at)
            }
        };
        let held = self.reorder.filter(|r| r.probability.hit(self.reorder_draws.at(item.index)));
        if !has_waited && !self.jitter.is_some_and(Jitter::may_reorder) {
            due = due.max(self.last_due);
        }
        item.at = due + held.map_or(Duration::ZERO, |r| r.extra);
        let is_displaced = has_waited || held.is_some() || due < self.last_due;
        if !is_displaced {
            self.last_due = due;
        }
        let packet = Propagating { item, is_displaced };
        // Nearly all packets arrive last.
        if self.packets.back().is_none_or(|last| last.order() <= packet.order()) {
            return self.packets.push_back(packet);
        }
        let index = self.packets.partition_point(|other| other.order() <= packet.order());
        self.packets.insert(index, packet);
    }

    /// Returns the propagation delay of a packet that departs at `at`. Packets after a step do not
    /// wait for those before it.
    #[inline]
    fn delay(&mut self, at: Timestamp) -> Duration {
        if let Some(steps) = &self.steps {
            let done = steps.count(at);
            if done > self.steps_done {
                self.steps_done = done;
                self.last_due = Timestamp::ZERO;
            }
            if let Some(delay) = steps.delay(done) {
                return delay;
            }
        }
        match &mut self.propagation {
            Propagation::Fixed(delay) => *delay,
            Propagation::Rows { rows, cursor } => rows.at(at, cursor).0.rtt / 2,
        }
    }

    /// Returns the arrival of the next packet.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.packets.front().map(|packet| packet.item.at)
    }

    /// Returns the next packet that arrives up to `now`, with its arrival in `at`.
    #[inline]
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Item<T>> {
        self.next_due().filter(|due| *due <= now)?;
        self.packets.pop_front().map(|packet| packet.item)
    }
}
