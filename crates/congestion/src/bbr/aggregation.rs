//! Aggregation: data that arrives, or is acknowledged, in bunches.
//!
//! A link layer that delivers in turns (Wi-Fi power saving, slots of cable and satellite modems, a
//! sleeping radio) or a client that acknowledges rarely delays a flight for longer than `RTprop`. A
//! window of two bandwidth-delay products is then exhausted before the next bunch is acknowledged.
//! As in Linux's BBR and draft-ietf-ccwg-bbr (section 5.5.9, `BBR.extra_acked`), the window is
//! extended by the maximum excess of acknowledged bytes over the sending rate.
//!
//! Unlike there, an excess counts only if silence explains it: a bunch follows a time
//! without acknowledgements and holds at most the bytes sent in that time. If another sender fills
//! the queue less, acknowledgements also exceed the rate, but without silence.

use core::time::Duration;

use units::{Rate, Timestamp};

use crate::recent::RecentMax;

/// Minimum silence before a bunch: clients may delay an acknowledgement by 25 ms (`max_ack_delay`,
/// RFC 9000, section 18.2), and senders share bottlenecks.
const MIN_SILENCE: Duration = Duration::from_millis(30);
/// Maximum silence that extends the window, which limits peers that acknowledge late. Published
/// bunches last up to 307 ms (a Wi-Fi station that listens to every third beacon).
pub(super) const MAX_SILENCE: Duration = Duration::from_millis(400);
/// Minimum time for which a bunch counts; the maximum is twice this.
const MEMORY: Duration = Duration::from_secs(4);

/// Estimate of the excess of acknowledged bytes over the sending rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    /// Start of the epoch: the time since which acknowledged bytes exceed the sending rate.
    since: Timestamp,
    /// Bytes acknowledged in the epoch.
    acked: u64,
    /// Silence before the epoch.
    silence: Duration,
    /// Time when an acknowledgement was last due: on its arrival, or a round trip after the first
    /// packet after a pause. `None` before the first.
    due: Option<Timestamp>,
    excess: RecentMax<u64>,
}

impl Aggregation {
    /// Notes that a packet leaves with nothing in flight; its acknowledgement is due after
    /// `rtprop`.
    pub(super) fn on_restart(&mut self, now: Timestamp, rtprop: Duration) {
        self.due = self.due.max(Some(now + rtprop));
    }

    /// Handles an acknowledgement of `acked` bytes; `rate` is the rate without aggregation, and
    /// `window` the maximum size of a bunch.
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

    /// Returns the bytes of the largest recent bunch.
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
    fn steady_acknowledgements_have_no_bunches() {
        let mut aggregation = Aggregation::default();
        // 1 kB per millisecond, at the rate.
        (1..5_000).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 0);
    }

    #[test]
    fn a_bunch_counts_in_full_for_seconds() {
        let mut aggregation = Aggregation::default();
        for bunch in 1..10 {
            let packets = 0..160;
            packets.for_each(|_| aggregation.on_ack(ms(200 * bunch), 1_250, RATE, 1 << 20));
        }
        assert_eq!(aggregation.bytes(), 200_000);
        (1_000..3_900).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 200_000, "for at least 4 s");
        (3_900..6_500).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 0, "for at most 8 s");
    }

    #[test]
    fn a_queue_that_drains_faster_for_a_while_is_not_a_bunch() {
        let mut aggregation = Aggregation::default();
        // Twice the rate for 200 ms.
        (1..100).for_each(|n| aggregation.on_ack(ms(2 * n), 4_000, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 0);
    }

    #[test]
    fn the_first_round_trip_after_a_pause_is_not_a_silence() {
        let mut aggregation = Aggregation::default();
        aggregation.on_ack(ms(50), 1_250, RATE, 1 << 20);
        aggregation.on_restart(ms(5_000), Duration::from_millis(50));
        (0..40).for_each(|_| aggregation.on_ack(ms(5_051), 1_250, RATE, 1 << 20));
        assert_eq!(aggregation.bytes(), 0);
    }

    #[test]
    fn window_and_time_limit_the_estimate() {
        for (window, bytes) in [(1 << 20, 400_000), (50_000, 50_000)] {
            let mut aggregation = Aggregation::default();
            aggregation.on_ack(ms(0), 1_250, RATE, window);
            aggregation.on_ack(ms(900), 800_000, RATE, window);
            assert_eq!(aggregation.bytes(), bytes);
        }
    }
}
