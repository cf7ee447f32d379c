//! Round-trip time estimation (RFC 9002, section 5) and the probe time-out derived from it
//! (section 6.2.1).

use core::time::Duration;
use units::Timestamp;

/// Timer granularity (RFC 9002, section 6.1.2: kGranularity).
pub(crate) const GRANULARITY: Duration = Duration::from_millis(1);

/// In so many samples the peak falls to a third of what it is above the others.
const PEAK: u32 = 256;

/// Estimates of one path.
#[derive(Clone, Copy, Debug)]
pub struct Rtt {
    latest: Duration,
    /// The newest sample without the peer's delay.
    adjusted: Duration,
    /// The longest of these lately.
    peak: Duration,
    smoothed: Duration,
    variance: Duration,
    min: Duration,
    first_sample: Option<Timestamp>,
}

impl Rtt {
    /// No sample yet; `initial` stands in until the first one.
    pub(crate) fn new(initial: Duration) -> Self {
        let min = Duration::MAX;
        Self {
            latest: initial,
            adjusted: initial,
            peak: initial,
            smoothed: initial,
            variance: initial / 2,
            min,
            first_sample: None,
        }
    }

    /// Takes a sample. `ack_delay` is what the peer says it waited, already capped to its
    /// `max_ack_delay` where RFC 9002, section 5.3 says so.
    pub(crate) fn update(&mut self, now: Timestamp, latest: Duration, ack_delay: Duration) {
        self.latest = latest;
        if self.first_sample.is_none() {
            self.first_sample = Some(now);
            self.min = latest;
            self.adjusted = latest;
            self.peak = latest;
            self.smoothed = latest;
            self.variance = latest / 2;
            return;
        }
        // RFC 9002, section 5.2: "min_rtt MUST be set to the lesser of min_rtt and latest_rtt";
        // the peer's ack delay plays no part.
        self.min = self.min.min(latest);
        // Section 5.3: "MUST NOT subtract the acknowledgment delay from the RTT sample if the
        // resulting value is smaller than the min_rtt".
        let adjusted = if latest >= self.min + ack_delay { latest - ack_delay } else { latest };
        self.adjusted = adjusted;
        self.peak = adjusted.max(self.peak - self.peak.saturating_sub(adjusted) / PEAK);
        let difference = self.smoothed.abs_diff(adjusted);
        self.variance = (self.variance * 3 + difference) / 4;
        self.smoothed = (self.smoothed * 7 + adjusted) / 8;
    }

    /// The newest sample.
    pub fn latest(&self) -> Duration {
        self.latest
    }

    /// The newest sample without the peer's delay: what the network took.
    pub(crate) fn adjusted(&self) -> Duration {
        self.adjusted
    }

    /// The longest time that the network took lately.
    pub(crate) fn peak(&self) -> Duration {
        self.peak
    }

    /// Exponentially weighted mean.
    pub fn smoothed(&self) -> Duration {
        self.smoothed
    }

    /// Mean deviation.
    pub fn variance(&self) -> Duration {
        self.variance
    }

    /// Lowest sample; the stand-in before the first one.
    pub fn min(&self) -> Duration {
        if self.first_sample.is_some() { self.min } else { self.smoothed }
    }

    /// When the first sample was taken.
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
