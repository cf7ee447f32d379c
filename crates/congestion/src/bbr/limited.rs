//! Our rules for what is not the path's rate, and not its window.
//!
//! A sender that the application limits, as it does that of a live stream between frames, is not what fills the path, and
//! what losses leave of its packets in a bad time is not the path's rate. Ten rounds of 25 ms are shorter than many bad
//! times, behind each of which the backlog would leave at what came through in it. For four seconds behind an
//! application-limited sample, therefore, samples of the last four seconds count too, as in the filter of
//! draft-ietf-ccwg-bbr, and rounds without a sample do not count; and losses, persistent congestion (RFC 9002, section
//! 7.6) among them, do not cut the window where the round trip shows no queue: behind an outage all that was in flight is
//! lost, conservation would begin with nothing, and the pacing rate bounds what leaves anyway.
//!
//! The same holds for four seconds behind each piece of data that comes at a rate of its own, as a live stream's does.
//! While it is behind there is always something to send, so that no sample is application-limited: one bad time among its
//! first seconds, or one that lasts for four, would leave it to the draft's rules at less than its rate, and above a fifth
//! of loss these do not find more. It would stay behind for as long as the bad times last.
//!
//! Nor does a loss in Startup where the round trip shows no queue and the round before lost nothing, whoever sends. An
//! outage would take the flight back to a few packets, on long paths just when a viewer waits for its first seconds. A
//! queue of a few packets loses in each round, and persistent congestion is answered.
//!
//! Behind Startup a sender that always has more to send, at whatever rate, goes by the draft: it fills the queue itself,
//! and would overrun a shallow one for seconds where ten rounds are less.

use core::time::Duration;

use units::Timestamp;

use super::filter::{ROUNDS, TIME};
use crate::controller::{AckBatch, CongestionEvent, CongestionKind};
use crate::floor::is_queue;

/// Whether the application limits the sender.
#[derive(Clone, Copy, Debug)]
pub(super) enum Limited {
    /// It does until the later of both.
    Until {
        /// It had nothing to send.
        idle: Timestamp,
        /// It sent data that comes at a rate of its own.
        paced: Timestamp,
    },
    /// There are no such rules.
    Never,
}

impl Limited {
    /// The rules, and nothing known.
    pub(super) const ON: Self = Self::Until { idle: Timestamp::ZERO, paced: Timestamp::ZERO };

    /// An acknowledgement in this round. That the handshake is limited is no sign of what is to come.
    pub(super) fn on_ack(&mut self, batch: &AckBatch, round: u64) {
        let Self::Until { idle, paced } = self else { return };
        let is_idle = batch.rate.is_some_and(|sample| sample.is_app_limited);
        if is_idle && round > ROUNDS as u64 {
            *idle = batch.now + TIME;
        }
        if batch.source_paced {
            *paced = batch.now + TIME;
        }
    }

    /// Whether it does.
    pub(super) fn holds(self, now: Timestamp) -> bool {
        matches!(self, Self::Until { idle, paced } if now < idle.max(paced))
    }

    /// Whether it had nothing to send lately, so that rounds which show what the path can do are few. Who catches up
    /// with what was kept for it has enough of them.
    pub(super) fn was_idle(self, now: Timestamp) -> bool {
        matches!(self, Self::Until { idle, .. } if now < idle)
    }

    /// Whether there are such rules.
    pub(super) fn is_on(self) -> bool {
        matches!(self, Self::Until { .. })
    }

    /// Whether what was lost says nothing about the window; `starts` in Startup, behind a round without loss.
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
