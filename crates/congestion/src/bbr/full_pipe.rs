//! Whether Startup has filled the pipe (draft-cardwell-iccrg-bbr-congestion-control-00, section
//! 4.3.2.2): the bandwidth no longer grows.
//!
//! A sender that the application limits seldom has the three rounds that show it, and would stay in Startup for good: each
//! frame, and the backlog behind each outage, would leave at 2.9 times the bandwidth and overrun a shallow queue. For it,
//! the pipe has been full if all packets of a round met a queue, if some did and others were lost, or if four rounds in a
//! row have lost something: a queue of a few packets, or a policer, overflows at each frame and shows in no round trip.
//!
//! An outage keeps the bandwidth from growing too, in the round that it falls into and in the next one, which sends what
//! the first has left. Where Startup ends by it, ProbeBW needs seconds to find the path's rate. So these rounds do not
//! count if no packet in them met a queue. A policer drops what is too much without a queue, but in each round.

use core::time::Duration;

use units::Rate;

use crate::floor::is_queue;

/// The pipe is full after this many rounds that did not raise the bandwidth by a quarter.
const ROUNDS: u8 = 3;
const GROWTH: f64 = 1.25;
/// So many of them do not count at most.
const EXCUSED: u8 = 3;
/// Rounds in a row that have lost something, for a limited sender.
const LOSSY: u8 = 4;

/// What the packets of a round met.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// The shortest round trip.
    rtt: Option<Duration>,
    /// Whether any of them met a queue.
    met_queue: bool,
    lost: bool,
}

/// The growth of the bandwidth from round to round, until the pipe is full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    bandwidth: Rate,
    rounds: u8,
    excused: u8,
    is_filled: bool,
    round: Round,
    /// Rounds in a row before this one that have lost something.
    lossy: u8,
    /// Whether all packets of a round met a queue.
    met_queue: bool,
}

impl FullPipe {
    /// Somebody else has filled it.
    pub(super) fn filled() -> Self {
        Self { is_filled: true, ..Self::default() }
    }

    pub(super) fn is_filled(self) -> bool {
        self.is_filled
    }

    /// Whether the round before this one has lost something.
    pub(super) fn was_lossy(&self) -> bool {
        self.lossy > 0
    }

    /// Packets were lost.
    pub(super) fn on_loss(&mut self) {
        self.round.lost = true;
    }

    /// `BBRCheckFullPipe`: a round has begun with a sample that shows what the path can do; `bandwidth` is the maximum
    /// so far. `excuses` is whether an outage may be why it does not grow.
    pub(super) fn on_round(&mut self, bandwidth: Option<Rate>, excuses: bool) {
        if self.is_filled {
            return;
        }
        let bandwidth = bandwidth.unwrap_or(Rate::ZERO);
        // Lost in this round or in the one before, but not in both, as a policer does.
        let is_outage = self.round.lost != self.was_lossy() && !self.round.met_queue;
        if bandwidth >= self.bandwidth.scale(GROWTH) {
            self.bandwidth = bandwidth;
            self.rounds = 0;
            self.excused = 0;
        } else if excuses && is_outage && self.excused < EXCUSED {
            self.excused += 1;
        } else {
            self.rounds += 1;
            self.is_filled = self.rounds >= ROUNDS;
        }
    }

    /// A round trip; `starts` a round. `was_idle` is whether the sender lately had nothing to send.
    pub(super) fn on_rtt(
        &mut self,
        starts: bool,
        rtt: Duration,
        rtprop: Option<Duration>,
        was_idle: bool,
    ) {
        let is_queue = |rtt| rtprop.is_some_and(|rtprop| is_queue(rtt, rtprop));
        let mut overflows = false;
        if starts {
            let ended = core::mem::take(&mut self.round);
            overflows = ended.lost && ended.met_queue;
            self.lossy = if ended.lost { self.lossy.saturating_add(1) } else { 0 };
            self.met_queue |= ended.rtt.is_some_and(is_queue);
        }
        self.round.rtt = Some(self.round.rtt.map_or(rtt, |shortest| shortest.min(rtt)));
        self.round.met_queue |= is_queue(rtt);
        self.is_filled |= was_idle && (self.met_queue || overflows || self.lossy >= LOSSY);
    }
}
