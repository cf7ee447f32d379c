//! Whether Startup has filled the pipe (draft-cardwell-iccrg-bbr-congestion-control-00, section
//! 4.3.2.2): the bandwidth no longer grows.
//!
//! A sender that the application limits seldom has the three rounds that show it, and would stay in Startup for good: each
//! frame, and the backlog behind each outage, would leave at 2.9 times the bandwidth and overrun a shallow queue. For it,
//! the pipe has been full if all packets of a round met a queue.

use core::time::Duration;

use units::Rate;

use super::limited::is_queue;

/// The pipe is full after this many rounds that did not raise the bandwidth by a quarter.
const ROUNDS: u8 = 3;
const GROWTH: f64 = 1.25;

/// The growth of the bandwidth from round to round, until the pipe is full.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FullPipe {
    bandwidth: Rate,
    rounds: u8,
    is_filled: bool,
    /// The shortest round trip of this round.
    rtt: Option<Duration>,
    /// Whether all packets of a round met a queue.
    met_queue: bool,
}

impl FullPipe {
    /// Somebody else has filled it.
    pub(super) const FILLED: Self =
        Self { bandwidth: Rate::ZERO, rounds: 0, is_filled: true, rtt: None, met_queue: false };

    pub(super) fn is_filled(self) -> bool {
        self.is_filled
    }

    /// `BBRCheckFullPipe`: a round has begun with a sample that shows what the path can do;
    /// `bandwidth` is the maximum so far.
    pub(super) fn on_round(&mut self, bandwidth: Option<Rate>) {
        if self.is_filled {
            return;
        }
        let bandwidth = bandwidth.unwrap_or(Rate::ZERO);
        if bandwidth >= self.bandwidth.scale(GROWTH) {
            self.bandwidth = bandwidth;
            self.rounds = 0;
        } else {
            self.rounds += 1;
            self.is_filled = self.rounds >= ROUNDS;
        }
    }

    /// A round trip of a sender that the application `is_limited` by now and then, or not; `starts` a round.
    pub(super) fn on_rtt(
        &mut self,
        starts: bool,
        rtt: Duration,
        rtprop: Option<Duration>,
        is_limited: bool,
    ) {
        if starts && let (Some(shortest), Some(rtprop)) = (self.rtt.take(), rtprop) {
            self.met_queue |= is_queue(shortest, rtprop);
        }
        self.rtt = Some(self.rtt.map_or(rtt, |shortest| shortest.min(rtt)));
        self.is_filled |= self.met_queue && is_limited;
    }
}
