//! A window floor for live streams, from recent delivered rate and current round trip.
//!
//! An application-limited sender sends no more than its stream at any window. A window below the
//! stream's rate would gain the network nothing and freeze the viewer. The floor is limited by
//! delivered data and in time.

use core::cmp::Reverse;
use core::time::Duration;

use units::{Rate, Timestamp};

use crate::recent::RecentMax;

/// Minimum increase of the round trip that indicates a queue, if a quarter of the minimum is less.
/// Radio networks schedule packets in turns that delay them as much.
const MIN_QUEUE: Duration = Duration::from_millis(10);

/// Returns whether a round trip indicates a queue on a path with the minimum `shortest`.
pub(crate) fn is_queue(rtt: Duration, shortest: Duration) -> bool {
    rtt > shortest + tolerance(shortest)
}

/// Returns the largest increase of the round trip that indicates no queue.
pub(crate) fn tolerance(shortest: Duration) -> Duration {
    (shortest / 4).max(MIN_QUEUE)
}
/// Period over which the delivered rate is averaged, and minimum time for which its maximum counts.
const AVERAGING: Duration = Duration::from_secs(1);
const RATE_MEMORY: Duration = Duration::from_secs(5);
/// Minimum time for which a short round trip counts as the current one.
const RTT_MEMORY: Duration = Duration::from_millis(250);

/// Recent delivered rate and current round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Floor {
    /// Start of the current average, send time of the newest packet acknowledged then, and bytes
    /// since.
    since: Timestamp,
    sent: Timestamp,
    bytes: u64,
    rate: RecentMax<Rate>,
    rtt: RecentMax<Option<Reverse<Duration>>>,
}

impl Floor {
    /// Handles an acknowledgement of `acked` bytes; the round trip of its newest packet was `rtt`.
    pub(crate) fn on_ack(&mut self, now: Timestamp, acked: u64, rtt: Duration) {
        self.bytes = self.bytes.saturating_add(acked);
        let (span, sent) = (now.since(self.since), now - rtt);
        if span >= AVERAGING {
            // Delayed acknowledgements cover the longer time of sending.
            let span = span.max(sent.since(self.sent));
            self.rate.update(now, RATE_MEMORY, Rate::from_bytes_in(self.bytes, span));
            (self.since, self.sent, self.bytes) = (now, sent, 0);
        }
        self.rtt.update(now, RTT_MEMORY, Some(Reverse(rtt)));
    }

    /// Returns the highest delivered rate of a second in the last five to ten.
    pub(crate) fn rate(&self) -> Rate {
        self.rate.get()
    }

    /// Returns the minimum round trip of the last quarter to half second; `None` before the first.
    pub(crate) fn present_rtt(&self) -> Option<Duration> {
        self.rtt.get().map(|Reverse(rtt)| rtt)
    }

    /// Returns the floor in bytes: the delivered rate times this time.
    pub(crate) fn window(&self, time: Duration) -> u64 {
        self.rate().bytes_in(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Creates a floor after `seconds` at 1 Mbps, acknowledged every 10 ms after `rtt`.
    fn after(seconds: u64, rtt: Duration) -> Floor {
        let mut floor = Floor::default();
        let acks = 1..=100 * seconds;
        acks.for_each(|n| floor.on_ack(Timestamp::from_millis(10 * n), 1_250, rtt));
        floor
    }

    #[test]
    fn the_floor_is_the_delivered_rate_times_the_time() {
        let ms = Duration::from_millis;
        assert_eq!(after(0, ms(20)).window(ms(100)), 0, "nothing was delivered");
        assert!(after(5, ms(20)).window(ms(100)).abs_diff(12_500) < 150);
        assert_eq!(after(5, ms(20)).present_rtt(), Some(ms(20)));
    }

    #[test]
    fn delayed_acknowledgements_are_averaged_over_the_time_of_sending() {
        let mut floor = Floor::default();
        // 1 Mbps: a little is acknowledged at 5 s, and the rest of five seconds a second later.
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
