//! Rules of our own for senders that the application limits.
//!
//! Such a sender (a live stream between frames) does not fill the path, and the packets
//! that survive an outage do not show the path's rate. Ten rounds of 25 ms are shorter than many
//! outages, after which the backlog would leave at the rate that came through. For four seconds
//! after an application-limited sample:
//!
//! - samples of the last four seconds count, as in the filter of draft-ietf-ccwg-bbr, and only
//!   rounds with a sample count;
//! - losses and persistent congestion (RFC 9002, section 7.6) do not reduce the window if round
//!   trips show no queue. After an outage all data in flight is lost, so conservation would start
//!   from nothing, and the pacing rate limits the sender anyway.
//!
//! The same holds for four seconds after each piece of data with a pace of its own, such as a live
//! stream's. While a live sender lags, it always has something to send and no sample is
//! application-limited. An outage in its first seconds, or one of four seconds, would leave it
//! below the stream's rate under the draft's rules, which cannot find more above a loss rate of a
//! fifth. It would lag for as long as outages last.
//!
//! For all senders, a loss in Startup is ignored if round trips show no queue and the round before
//! had no loss. An outage would reduce the flight to a few packets, on long paths just when a
//! viewer waits for its first seconds. A queue of a few packets loses in every round, and
//! persistent congestion is answered.
//!
//! After Startup, a sender that always has more to send at any rate follows the draft: it fills the
//! queue itself, and would overrun a shallow one for seconds where ten rounds are less.

use core::time::Duration;

use units::Timestamp;

use super::filter::{MIN_TIME, ROUNDS};
use crate::controller::{AckBatch, CongestionEvent, CongestionKind};
use crate::floor::is_queue;

/// Whether the application limits the sender.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limited {
    /// Limited until the later of both times.
    Until {
        /// After it had nothing to send.
        idle: Timestamp,
        /// After it sent data with a pace of its own.
        paced: Timestamp,
    },
    /// The rules are disabled.
    Never,
}

impl Limited {
    /// Enabled, without observations.
    pub(super) const ON: Self = Self::Until { idle: Timestamp::ZERO, paced: Timestamp::ZERO };

    /// Handles an acknowledgement in this round. Limits during the handshake are ignored.
    pub(super) fn on_ack(&mut self, batch: &AckBatch, round: u64) {
        let Self::Until { idle, paced } = self else { return };
        let is_idle = batch.rate.is_some_and(|sample| sample.is_app_limited);
        if is_idle && round > ROUNDS as u64 {
            *idle = batch.now + MIN_TIME;
        }
        if batch.source_paced {
            *paced = batch.now + MIN_TIME;
        }
    }

    /// Returns whether the sender is limited.
    pub(super) fn holds(self, now: Timestamp) -> bool {
        matches!(self, Self::Until { idle, paced } if now < idle.max(paced))
    }

    /// Returns whether the sender recently had nothing to send, so that few rounds show the path's
    /// rate. A viewer that catches up with cached data has enough of them.
    pub(super) fn was_idle(self, now: Timestamp) -> bool {
        matches!(self, Self::Until { idle, .. } if now < idle)
    }

    /// Returns whether the rules are enabled.
    pub(super) fn is_on(self) -> bool {
        matches!(self, Self::Until { .. })
    }

    /// Returns whether losses are ignored; `starts` is set in Startup after a round without loss.
    pub(super) fn excuses(
        self,
        event: &CongestionEvent,
        rtprop: Option<Duration>,
        starts: bool,
    ) -> bool {
        let starts = starts && self.is_on() && event.kind == CongestionKind::Loss;
        event.kind != CongestionKind::Ecn
            && (starts || self.holds(event.now))
            && rtprop.is_some_and(|rtprop| !is_queue(event.rtt, rtprop))
    }
}
