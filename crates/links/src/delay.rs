//! Bunches, propagation delay, jitter and reordering: the packets on their way to the far end.
//!
//! A packet first waits for the link layer's wake-up, if it has [`Bunches`], and then propagates.
//! Jitter keeps the order unless told otherwise (a packet waits for the one before it, as behind a
//! real queue); a packet that reordering picks is held back and overtaken by those behind it.

use core::str::FromStr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use units::Timestamp;

use crate::bunches::{Bunches, WakeUps};
use crate::packet::Item;
use crate::random::{Probability, Stream};
use crate::steps::Steps;
use crate::text::{ParseError, parse_duration};
use crate::trace::Rows;

/// Variation of the delay from packet to packet; the sum with the propagation delay is never below
/// zero.
///
/// As text: `5ms` or `uniform:5ms`; `gauss:5ms`; with `,reorder` behind it packets may overtake
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

    /// How much later than [`Self::bound`] before its nominal time the packet at `place` arrives.
    fn offset(self, draws: Stream, place: u64) -> Duration {
        let bound = self.bound().as_nanos();
        let nanos = match self {
            Self::Uniform { .. } => (u128::from(draws.at(place)) * (2 * bound + 1)) >> 64,
            Self::Gaussian { sd, .. } => {
                let deviation = draws.gaussian(place) + (3 << 16);
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

/// Reordering: some packets are held back for a while. As text: `2%,30ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reorder {
    /// Share of packets that are held back.
    pub probability: Probability,
    /// How much longer they take.
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

/// Where the propagation delay comes from.
#[derive(Debug)]
pub(crate) enum Propagation {
    Fixed(Duration),
    /// Half of the round-trip time in force when the packet sets out.
    Rows {
        rows: Arc<Rows>,
        cursor: usize,
    },
}

/// What delays packets beside propagation.
#[derive(Debug)]
pub(crate) struct Waits {
    pub(crate) bunches: Option<Bunches>,
    pub(crate) steps: Option<Steps>,
    pub(crate) jitter: Option<Jitter>,
    pub(crate) reorder: Option<Reorder>,
}

/// The packets that have left the bottleneck and have not arrived.
#[derive(Debug)]
pub(crate) struct DelayLine<T> {
    wake_ups: Option<WakeUps>,
    propagation: Propagation,
    steps: Option<Steps>,
    /// Steps that have happened, by the packets that have set out.
    steps_done: usize,
    /// A delay below which no packet arrives after its wake-up.
    least: Duration,
    jitter: Option<Jitter>,
    jitter_draws: Stream,
    reorder: Option<Reorder>,
    reorder_draws: Stream,
    /// By [`OnTheWay::turn`].
    packets: VecDeque<OnTheWay<T>>,
    /// The latest arrival time ever given to a packet that was not displaced.
    last_due: Timestamp,
}

/// A packet whose `at` is its time of arrival.
#[derive(Debug)]
struct OnTheWay<T> {
    item: Item<T>,
    /// Whether it arrives in another order than that in which it came.
    is_displaced: bool,
}

impl<T> OnTheWay<T> {
    /// At the same time those that keep their order come first, then the others in theirs of sending.
    fn turn(&self) -> (Timestamp, bool, u64) {
        (self.item.at, self.is_displaced, self.item.place)
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
            jitter_draws: Stream::new(seed, link, "jitter"),
            reorder,
            reorder_draws: Stream::new(seed, link, "reorder"),
            packets: VecDeque::new(),
            last_due: Timestamp::ZERO,
        }
    }

    /// Returns a time before which no packet arrives that leaves the bottleneck at `leaving` or
    /// later.
    #[inline]
    pub(crate) fn earliest(&self, leaving: Timestamp) -> Timestamp {
        self.wake_ups.map_or(leaving, |wake_ups| wake_ups.release(leaving)) + self.least
    }

    /// Packets on the way.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Item<T>> {
        self.packets.iter().map(|packet| &packet.item)
    }

    /// Takes in a packet whose `at` is the time at which it left the bottleneck. It sets out then, or later if it
    /// may not before; those behind it do not wait for it.
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
                let offset = jitter.offset(self.jitter_draws, item.place);
                (nominal + offset - jitter.bound()).max(item.at)
            }
        };
        let held = self.reorder.filter(|r| r.probability.hit(self.reorder_draws.at(item.place)));
        if !has_waited && !self.jitter.is_some_and(Jitter::may_reorder) {
            due = due.max(self.last_due);
        }
        item.at = due + held.map_or(Duration::ZERO, |r| r.extra);
        let is_displaced = has_waited || held.is_some() || due < self.last_due;
        if !is_displaced {
            self.last_due = due;
        }
        let packet = OnTheWay { item, is_displaced };
        // Nearly all arrive behind those that are on the way.
        if self.packets.back().is_none_or(|last| last.turn() <= packet.turn()) {
            return self.packets.push_back(packet);
        }
        let place = self.packets.partition_point(|other| other.turn() <= packet.turn());
        self.packets.insert(place, packet);
    }

    /// Returns the propagation delay of a packet that sets out at `at`. Packets behind a step do
    /// not wait for those before it.
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

    /// When the next packet arrives.
    #[inline]
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.packets.front().map(|packet| packet.item.at)
    }

    /// The next packet that arrives at or before `now`; its `at` is the time of arrival.
    #[inline]
    pub(crate) fn pop(&mut self, now: Timestamp) -> Option<Item<T>> {
        self.next_due().filter(|due| *due <= now)?;
        self.packets.pop_front().map(|packet| packet.item)
    }
}
