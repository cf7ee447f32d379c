//! Aggregation: bytes that arrive, or are acknowledged, in bunches.
//!
//! A link layer that delivers in turns (Wi-Fi power saving, slots of cable and satellite modems, a sleeping radio) or a
//! client that acknowledges rarely keeps a flight waiting for longer than `RTprop`. A window of two bandwidth-delay
//! products then ends before the next bunch is acknowledged. As in Linux's BBR and in draft-ietf-ccwg-bbr (section
//! 5.5.9, `BBR.extra_acked`), the window therefore has room for the largest excess of acknowledged bytes over the rate
//! at which packets leave.

use core::time::Duration;

use units::{Rate, Timestamp};

use crate::recent::RecentMax;

/// Longest aggregation that the window makes room for, at the estimated bandwidth. Public reports have bunches of up
/// to 307 ms (a Wi-Fi station that listens to each third beacon); peers that acknowledge later gain no more.
pub(super) const MAX_AGGREGATION: Duration = Duration::from_millis(400);
/// Time for which an excess counts, at least; twice this at most.
const MEMORY: Duration = Duration::from_secs(4);

/// Estimates by how much acknowledgements run ahead of the bandwidth.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Aggregation {
    /// Start of the epoch: the time since which more was acknowledged than the sender's rate explains.
    since: Timestamp,
    /// Bytes acknowledged in the epoch.
    acked: u64,
    excess: RecentMax<u64>,
}

impl Aggregation {
    /// Takes an acknowledgement of `acked` bytes, which come at `rate` where nothing aggregates them. `window` bounds
    /// what one bunch can hold.
    pub(super) fn on_ack(&mut self, now: Timestamp, acked: u64, rate: Rate, window: u64) {
        let mut expected = rate.bytes_in(now.since(self.since));
        if self.acked <= expected {
            (self.since, self.acked, expected) = (now, 0, 0);
        }
        self.acked = self.acked.saturating_add(acked);
        let excess = self.acked.saturating_sub(expected).min(window);
        self.excess.update(now, MEMORY, excess);
    }

    /// Bytes that a bunch had lately beyond the bandwidth, at most [`MAX_AGGREGATION`] of it.
    pub(super) fn bytes(&self, bandwidth: Rate) -> u64 {
        self.excess.get().min(bandwidth.bytes_in(MAX_AGGREGATION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BANDWIDTH: Rate = Rate::from_mbps(8);

    fn ms(millis: u64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_steady_acknowledgement_clock_has_no_more_than_one_acknowledgement_of_excess() {
        let mut aggregation = Aggregation::default();
        // A kilobyte each millisecond is the bandwidth.
        (1..5_000).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, BANDWIDTH, 1 << 20));
        assert_eq!(aggregation.bytes(BANDWIDTH), 2_000);
    }

    #[test]
    fn a_bunch_counts_whole_and_for_seconds() {
        let mut aggregation = Aggregation::default();
        for bunch in 1..10 {
            let packets = 0..160;
            packets.for_each(|_| aggregation.on_ack(ms(200 * bunch), 1_250, BANDWIDTH, 1 << 20));
        }
        assert_eq!(aggregation.bytes(BANDWIDTH), 200_000);
        (1_000..3_900).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, BANDWIDTH, 1 << 20));
        assert_eq!(aggregation.bytes(BANDWIDTH), 200_000, "for 4 s at least");
        (3_900..6_500).for_each(|n| aggregation.on_ack(ms(2 * n), 2_000, BANDWIDTH, 1 << 20));
        assert_eq!(aggregation.bytes(BANDWIDTH), 2_000, "and for 8 s at most");
    }

    #[test]
    fn the_window_and_a_limit_in_time_bound_the_estimate() {
        let mut aggregation = Aggregation::default();
        aggregation.on_ack(ms(900), 800_000, BANDWIDTH, 1 << 20);
        assert_eq!(aggregation.bytes(BANDWIDTH), 400_000, "400 ms");
        let mut aggregation = Aggregation::default();
        aggregation.on_ack(ms(900), 800_000, BANDWIDTH, 50_000);
        assert_eq!(aggregation.bytes(BANDWIDTH), 50_000);
    }
}
