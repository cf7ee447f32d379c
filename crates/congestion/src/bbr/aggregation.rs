//! Aggregation: bytes that arrive, or are acknowledged, in bunches.
//!
//! A link layer that delivers in turns (Wi-Fi power saving, slots of cable and satellite modems, a sleeping radio) or a
//! client that acknowledges rarely keeps a flight waiting for longer than `RTprop`. A window of two bandwidth-delay
//! products then ends before the next bunch is acknowledged. As in Linux's BBR and in draft-ietf-ccwg-bbr (section
//! 5.5.9, `BBR.extra_acked`), the window therefore has room for the largest excess of acknowledged bytes over the rate
//! at which packets leave.
//!
//! Unlike there, an excess counts only as far as silence explains it: a bunch follows a time without acknowledgements,
//! and holds no more than leaves in that time. A queue that another sender drains less brings acknowledgements ahead of
//! the rate as well, but without silence.

use core::time::Duration;

use units::{Rate, Timestamp};

use crate::recent::RecentMax;

/// Shortest silence before a bunch: clients may wait 25 ms with an acknowledgement (`max_ack_delay`, RFC 9000, section
/// 18.2), and senders share their bottlenecks.
const MIN_SILENCE: Duration = Duration::from_millis(30);
/// Longest silence that the window makes room for. Public reports have bunches of up to 307 ms (a Wi-Fi station that
/// listens to each third beacon); peers that acknowledge later gain no more.
pub(super) const MAX_SILENCE: Duration = Duration::from_millis(400);
/// Time for which a bunch counts, at least; twice this at most.
const MEMORY: Duration = Duration::from_secs(4);

/// Estimates by how much acknowledgements run ahead of the sender's rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    /// Start of the epoch: the time since which more was acknowledged than the sender's rate explains.
    since: Timestamp,
    /// Bytes acknowledged in the epoch.
    acked: u64,
    /// Silence before the epoch.
    silence: Duration,
    /// When an acknowledgement was last due: it came, or the first packet after a pause reached its round trip. `None`
    /// before the first.
    due: Option<Timestamp>,
    excess: RecentMax<u64>,
}

impl Aggregation {
    /// A packet leaves while nothing is in flight; its acknowledgement is due after `rtprop`.
    pub(super) fn on_restart(&mut self, now: Timestamp, rtprop: Duration) {
        self.due = self.due.max(Some(now + rtprop));
    }

    /// Takes an acknowledgement of `acked` bytes, which come at `rate` where nothing aggregates them. `window` bounds
    /// what one bunch can hold.
    pub(super) fn on_ack(&mut self, now: Timestamp, acked: u64, rate: Rate, window: u64) {
        let silence = self.due.map_or(Duration::ZERO, |due| now.since(due));
        self.due = Some(now);
        let mut expected = rate.bytes_in(now.since(self.since));
        if self.acked <= expected {
            (self.since, self.acked, self.silence, expected) = (now, 0, silence, 0);
        }
        self.acked = self.acked.saturating_add(acked);
        let silence = if self.silence < MIN_SILENCE { Duration::ZERO } else { self.silence };
        let bunch = rate.bytes_in(silence.min(MAX_SILENCE));
        let excess = self.acked.saturating_sub(expected).min(window).min(bunch);
        self.excess.update(now, MEMORY, excess);
    }

    /// Bytes that a bunch lately held.
    pub(super) fn bytes(&self) -> u64 {
        self.excess.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate::from_mbps(8);

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_steady_acknowledgement_clock_has_no_bunches() {
        let mut aggregation = Aggregation::default();
        // A kilobyte each millisecond is the rate.
        (1..5_000).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 0);
    }

    #[test]
    fn a_bunch_counts_whole_and_for_seconds() {
        let mut aggregation = Aggregation::default();
        for bunch in 1..10 {
            let packets = 0..160;
            packets.for_each(|_| aggregation.on_ack(ms(200 * bunch), 1_250, RATE, 1 << 20));
        }
        assert_eq!(aggregation.bytes(), 200_000);
        (1_000..3_900).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 200_000, "for 4 s at least");
        (3_900..6_500).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 0, "and for 8 s at most");
    }

    #[test]
    fn a_queue_that_drains_faster_for_a_while_is_no_bunch() {
        let mut aggregation = Aggregation::default();
        // Twice the rate for 200 ms.
        (1..100).for_each(|n| aggregation.on_ack(ms(2 * n), 4_000, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 0);
    }

    #[test]
    fn the_first_round_trip_after_a_pause_is_no_silence() {
        let mut aggregation = Aggregation::default();
        aggregation.on_ack(ms(50), 1_250, RATE, 1 << 20);
        aggregation.on_restart(ms(5_000), Duration::from_millis(50));
        (0..40).for_each(|_| aggregation.on_ack(ms(5_051), 1_250, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 0);
    }

    #[test]
    fn the_window_and_a_limit_in_time_bound_the_estimate() {
        for (window, bytes) in [(1 << 20, 400_000), (50_000, 50_000)] {
            let mut aggregation = Aggregation::default();
            aggregation.on_ack(ms(0), 1_250, RATE, window);
            aggregation.on_ack(ms(900), 800_000, RATE, window);
            assert_eq!(aggregation.bytes(), bytes);
        }
    }
}
