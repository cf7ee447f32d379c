//! Detection of a full pipe in Startup: the bandwidth no longer grows
//! (draft-cardwell-iccrg-bbr-congestion-control-00, section 4.3.2.2).
//!
//! An application-limited sender seldom has the three rounds that show this, and would stay in
//! Startup. Each frame, and the backlog after each outage, would leave at 2.9 times the bandwidth
//! and overrun a shallow queue. For such a sender the pipe is also full if all packets of a round
//! met a queue, if some did and others were lost, or if four consecutive rounds had losses: a queue
//! of a few packets, or a policer, overflows at every frame without raising round trips.
//!
//! An outage also stops the growth of the bandwidth, in its own round and in the next one, which
//! sends only the remaining flight. If it ended Startup, ProbeBW would need seconds to find the
//! path's rate. So such rounds do not count if none of their packets met a queue. A policer drops
//! excess packets without a queue, but in every round.

use core::time::Duration;

use units::Rate;

use crate::floor::is_queue;

/// Rounds without growth by a quarter after which the pipe is full.
const ROUNDS: u8 = 3;
const GROWTH: f64 = 1.25;
/// Maximum number of excused rounds.
const MAX_EXCUSED: u8 = 3;
/// Consecutive rounds with losses after which the pipe is full for a limited sender.
const LOSSY_ROUNDS: u8 = 4;

/// Observations of a round.
#[derive(Clone, Copy, Debug, Default)]
struct Round {
    /// Minimum round trip.
    rtt: Option<Duration>,
    /// Whether any packet met a queue.
    met_queue: bool,
    lost: bool,
}

/// Growth of the bandwidth per round until the pipe is full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    bandwidth: Rate,
    rounds: u8,
    excused: u8,
    is_filled: bool,
    round: Round,
    /// Consecutive earlier rounds with losses.
    lossy: u8,
    /// Whether all packets of a round met a queue.
    met_queue: bool,
}

impl FullPipe {
    /// Creates the state of a pipe that was filled otherwise.
    pub(super) fn filled() -> Self {
        Self { is_filled: true, ..Self::default() }
    }

    pub(super) fn is_filled(self) -> bool {
        self.is_filled
    }

    /// Returns whether the previous round had losses.
    pub(super) fn was_lossy(&self) -> bool {
        self.lossy > 0
    }

    /// Notes a loss.
    pub(super) fn on_loss(&mut self) {
        self.round.lost = true;
    }

    /// `BBRCheckFullPipe`: handles the start of a round with an unlimited sample; `bandwidth` is
    /// the maximum, and `excuses` allows an outage to excuse the lack of growth.
    pub(super) fn on_round(&mut self, bandwidth: Option<Rate>, excuses: bool) {
        if self.is_filled {
            return;
        }
        let bandwidth = bandwidth.unwrap_or(Rate::ZERO);
        // Losses in this round or in the previous one, but not in both, as a policer causes.
        let is_outage = self.round.lost != self.was_lossy() && !self.round.met_queue;
        if bandwidth >= self.bandwidth.scale(GROWTH) {
            self.bandwidth = bandwidth;
            self.rounds = 0;
            self.excused = 0;
        } else if excuses && is_outage && self.excused < MAX_EXCUSED {
            self.excused += 1;
        } else {
            self.rounds += 1;
            self.is_filled = self.rounds >= ROUNDS;
        }
    }

    /// Handles a round trip; `starts` a round. `was_idle` is whether the sender recently had
    /// nothing to send.
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
        self.is_filled |= was_idle && (self.met_queue || overflows || self.lossy >= LOSSY_ROUNDS);
    }
}
