//! A window floor for live streams, from the rate delivered before and the present round trip.
//!
//! A sender that the application limits sends no more than its stream whatever its window, so that a window below the
//! stream's rate gains the network nothing and freezes the viewer. The floor is bounded by data that was delivered, and
//! in time.

use core::cmp::Reverse;
use core::time::Duration;

use units::{Rate, Timestamp};

use crate::recent::RecentMax;

/// Round trips that are longer than the shortest one by less than this, or by less than a quarter, show no queue: packets
/// wait as long for the turns of a radio network.
const NO_QUEUE: Duration = Duration::from_millis(10);

/// Whether a round trip shows a queue, on a path whose shortest is `shortest`.
pub(crate) fn is_queue(rtt: Duration, shortest: Duration) -> bool {
    rtt > shortest + tolerance(shortest)
}

/// Longest wait that shows no queue, on a path whose shortest round trip is `shortest`.
pub(crate) fn tolerance(shortest: Duration) -> Duration {
    (shortest / 4).max(NO_QUEUE)
}
/// Time over which the delivered rate is averaged, and for which its maximum counts at least.
const AVERAGING: Duration = Duration::from_secs(1);
const RATE_MEMORY: Duration = Duration::from_secs(5);
/// Time for which a short round trip is the present one, at least.
const RTT_MEMORY: Duration = Duration::from_millis(250);

/// Delivered rate and present round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floor {
    /// Start of the present average, when the newest packet acknowledged until then left, and bytes delivered since.
    since: Timestamp,
    sent: Timestamp,
    bytes: u64,
    rate: RecentMax<Rate>,
    rtt: RecentMax<Option<Reverse<Duration>>>,
}

impl Floor {
    /// Takes an acknowledgement of `acked` bytes whose newest packet took `rtt`.
    pub(crate) fn on_ack(&mut self, now: Timestamp, acked: u64, rtt: Duration) {
        self.bytes = self.bytes.saturating_add(acked);
        let (span, sent) = (now.since(self.since), now - rtt);
        if span >= AVERAGING {
            // Acknowledgements that were held back bring what left in a longer time.
            let span = span.max(sent.since(self.sent));
            self.rate.update(now, RATE_MEMORY, Rate::from_bytes_in(self.bytes, span));
            (self.since, self.sent, self.bytes) = (now, sent, 0);
        }
        self.rtt.update(now, RTT_MEMORY, Some(Reverse(rtt)));
    }

    /// Highest delivered rate of a second in the last five to ten.
    pub(crate) fn rate(&self) -> Rate {
        self.rate.get()
    }

    /// Shortest round trip of the last quarter to half of a second; `None` before the first.
    pub(crate) fn present_rtt(&self) -> Option<Duration> {
        self.rtt.get().map(|Reverse(rtt)| rtt)
    }

    /// Least window in bytes: what the delivered rate carries in this time.
    pub(crate) fn window(&self, time: Duration) -> u64 {
        self.rate().bytes_in(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A floor behind `seconds` of 1 Mbps, acknowledged each 10 ms after `rtt`.
    fn after(seconds: u64, rtt: Duration) -> Floor {
        let mut floor = Floor::default();
        let acks = 1..=100 * seconds;
        acks.for_each(|n| floor.on_ack(Timestamp::from_millis(10 * n), 1_250, rtt));
        floor
    }

    #[test]
    fn the_floor_is_what_the_delivered_rate_carries() {
        let ms = Duration::from_millis;
        assert_eq!(after(0, ms(20)).window(ms(100)), 0, "nothing was delivered");
        assert!(after(5, ms(20)).window(ms(100)).abs_diff(12_500) < 150);
        assert_eq!(after(5, ms(20)).present_rtt(), Some(ms(20)));
    }

    #[test]
    fn what_was_held_back_counts_over_the_time_in_which_it_left() {
        let mut floor = Floor::default();
        // A megabit a second: a little is acknowledged at 5 s, and the rest of five seconds a second later.
        floor.on_ack(Timestamp::from_millis(1_000), 1_250, Duration::from_millis(20));
        floor.on_ack(Timestamp::from_millis(5_000), 1_250, Duration::from_millis(3_990));
        floor.on_ack(Timestamp::from_millis(6_000), 621_250, Duration::from_millis(20));
        assert!(floor.rate() <= Rate::from_kbps(1_010), "{}", floor.rate());
    }

    #[test]
    fn the_fastest_second_of_the_last_five_to_ten_counts() {
        let mut floor = after(5, Duration::from_millis(20));
        let mut slow = |from: u64, to: u64| {
            let acks = 100 * from..100 * to;
            acks.for_each(|n| {
                floor.on_ack(Timestamp::from_millis(10 * n), 125, Duration::from_millis(20));
            });
            floor.window(Duration::from_millis(100))
        };
        assert!(slow(5, 9) > 12_000);
        assert!(slow(9, 16) < 1_500);
    }
}
