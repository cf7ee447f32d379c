//! Round-trip time estimation (RFC 9002, section 5) and the probe time-out derived from it
//! (section 6.2.1).

use core::time::Duration;
use units::Timestamp;

/// Timer granularity (RFC 9002, section 6.1.2: kGranularity).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);

/// Time in which the peak decays to a third of its height above the samples.
const PEAK_DECAY: Duration = Duration::from_secs(4);
/// Time in which the trough rises by two thirds towards the samples. Until then a longer path looks
/// like a queue; a queue that never drains in this time looks like the path.
const TROUGH_RISE: Duration = Duration::from_secs(60);

/// Lateness of overdue data, in variances of the round-trip time. Below the four of the probe
/// time-out, whose effects cost more.
const OVERDUE_VARIANCES: u32 = 3;

/// Returns the time after which data is overdue.
fn overdue(smoothed: Duration, variance: Duration) -> Duration {
    smoothed + (variance * OVERDUE_VARIANCES).max(GRANULARITY)
}

/// Estimates of one path.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    latest: Duration,
    /// The newest sample without the peer's delay.
    adjusted: Duration,
    /// The longest of these lately.
    peak: Duration,
    /// Recent minimum of the adjusted samples.
    trough: Duration,
    smoothed: Duration,
    variance: Duration,
    /// See [`Rtt::overdue`]. The timer of each packet needs it.
    overdue: Duration,
    min: Duration,
    first_sample: Option<Timestamp>,
    last_sample: Timestamp,
}

impl Rtt {
    /// No sample yet; `initial` stands in until the first one.
    pub(crate) fn new(initial: Duration) -> Self {
        let min = Duration::MAX;
        Self {
            latest: initial,
            adjusted: initial,
            peak: initial,
            trough: initial,
            smoothed: initial,
            variance: initial / 2,
            overdue: overdue(initial, initial / 2),
            min,
            first_sample: None,
            last_sample: Timestamp::ZERO,
        }
    }

    /// Takes the duration of path validation as the initial round-trip time (RFC 9002, section
    /// 6.2.2).
    pub(crate) fn suppose(&mut self, delay: Duration) {
        if self.first_sample.is_none() && delay < self.smoothed {
            *self = Self::new(delay.max(GRANULARITY));
        }
    }

    /// Takes a sample. `ack_delay` is the delay that the peer reports, capped to its
    /// `max_ack_delay` as RFC 9002, section 5.3, requires.
    pub(crate) fn update(&mut self, now: Timestamp, latest: Duration, ack_delay: Duration) {
        self.latest = latest;
        let since = now.since(core::mem::replace(&mut self.last_sample, now));
        if self.first_sample.is_none() {
            self.first_sample = Some(now);
            self.min = latest;
            self.adjusted = latest;
            self.peak = latest;
            self.trough = latest;
            self.smoothed = latest;
            self.variance = latest / 2;
            self.overdue = overdue(self.smoothed, self.variance);
            return;
        }
        // RFC 9002, section 5.2: "min_rtt MUST be set to the lesser of min_rtt and latest_rtt";
        // the peer's ack delay plays no part.
        self.min = self.min.min(latest);
        // Section 5.3: "MUST NOT subtract the acknowledgment delay from the RTT sample if the
        // resulting value is smaller than the min_rtt".
        let adjusted = if latest >= self.min + ack_delay { latest - ack_delay } else { latest };
        self.adjusted = adjusted;
        let part = |of: Duration, time: Duration| {
            of.mul_f64((since.as_secs_f64() / time.as_secs_f64()).min(1.0))
        };
        self.peak = adjusted.max(self.peak - part(self.peak.saturating_sub(adjusted), PEAK_DECAY));
        self.trough =
            adjusted.min(self.trough + part(adjusted.saturating_sub(self.trough), TROUGH_RISE));
        let difference = self.smoothed.abs_diff(adjusted);
        self.variance = (self.variance * 3 + difference) / 4;
        self.smoothed = (self.smoothed * 7 + adjusted) / 8;
        self.overdue = overdue(self.smoothed, self.variance);
    }

    /// The newest sample.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// The newest sample without the peer's delay: network time.
    pub(crate) fn adjusted(&self) -> Duration {
        self.adjusted
    }

    /// Recent maximum of the network time.
    pub(crate) fn peak(&self) -> Duration {
        self.peak
    }

    /// Recent minimum of the network time.
    pub(crate) fn trough(&self) -> Duration {
        self.trough
    }

    /// Exponentially weighted mean.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Mean deviation.
    pub fn variance(&self) -> Duration {
        self.variance
    }

    /// Time after which unacknowledged data is overdue, without the peer's `max_ack_delay`.
    pub(crate) fn overdue(&self) -> Duration {
        self.overdue
    }

    /// Lowest sample; the stand-in before the first one.
    pub fn min(&self) -> Duration {
        if self.first_sample.is_some() { self.min } else { self.smoothed }
    }

    /// Time of the first sample.
    pub fn first_sample(&self) -> Option<Timestamp> {
        self.first_sample
    }

    /// The larger of the newest and the smoothed sample.
    pub(crate) fn conservative(&self) -> Duration {
        self.smoothed.max(self.latest)
    }

    /// Probe time-out without the peer's `max_ack_delay` and without back-off.
    pub(crate) fn pto_base(&self) -> Duration {
        self.smoothed + (self.variance * 4).max(GRANULARITY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_first_sample_replaces_the_stand_in() {
        let mut rtt = Rtt::new(MS * 333);
        assert_eq!(rtt.pto_base(), MS * 999);
        rtt.update(Timestamp::ZERO, MS * 100, MS * 25);
        assert_eq!((rtt.smoothed(), rtt.variance(), rtt.min()), (MS * 100, MS * 50, MS * 100));
    }

    #[test]
    fn a_longer_path_is_the_path_after_a_while_and_a_queue_is_not() {
        // With a sample each millisecond, or one each quarter of a second.
        for gap in [1, 250] {
            let (mut rtt, mut now) = (Rtt::new(MS * 333), Timestamp::ZERO);
            let mut update = |millis: u32, ms| {
                for _ in 0..(millis / gap).max(1) {
                    now += MS * gap;
                    rtt.update(now, MS * ms, Duration::ZERO);
                }
                (rtt.trough(), rtt.peak())
            };
            assert_eq!(update(1_000, 50).0, MS * 50);
            // Half of the time in a queue of 60 ms, for long.
            assert!((0..100).all(|_| {
                let (queue, path) = (update(1_000, 110), update(1_000, 50));
                queue.0 < MS * 52 && path.0 == MS * 50 && path.1 > MS * 90
            }));
            let (trough, _) = update(60_000, 150);
            assert!((MS * 110..MS * 115).contains(&trough), "{gap} ms: {trough:?}");
            assert_eq!(update(1, 40).0, MS * 40);
            // A second later most of the peak is left, and half a minute later nothing.
            let (_, peak) = update(1_000, 40);
            assert!((MS * 115..MS * 130).contains(&peak), "{gap} ms: {peak:?}");
            assert!(update(30_000, 40).1 < MS * 41);
        }
    }

    #[test]
    fn ack_delay_is_ignored_where_it_would_go_below_the_minimum() {
        let mut rtt = Rtt::new(MS * 333);
        rtt.update(Timestamp::ZERO, MS * 100, Duration::ZERO);
        rtt.update(Timestamp::ZERO, MS * 110, MS * 20);
        assert_eq!(rtt.smoothed(), Duration::from_micros(101_250));
        rtt.update(Timestamp::ZERO, MS * 140, MS * 20);
        assert_eq!(rtt.min(), MS * 100);
        assert_eq!(rtt.smoothed(), (Duration::from_micros(101_250) * 7 + MS * 120) / 8);
    }
}
