//! Metrics of recovery.
//!
//! *Recovery latency* is the time from the first detection of a loss to the transmission of the
//! copy that arrived, for data that the first retransmission did not deliver (AutoRec, journal
//! version, section V). *Off-mode* is the time when a sender has nothing to send but replicas
//! (section IV-B).

use core::time::Duration;

use units::Timestamp;

/// Start of the first bucket, in nanoseconds. Shorter latencies count in it as well.
const FIRST_BUCKET: f64 = 100_000.0;
/// Ratio of successive bucket ends. Quantiles are accurate to 4 %.
const GROWTH: f64 = 13.0 / 12.0;
/// Number of buckets; the last ends at about four minutes.
const BUCKETS: usize = 184;

/// Histogram of latencies. Allocates on the first one.
#[derive(Clone, Debug, Default)]
pub struct Latencies {
    count: u64,
    sum: Duration,
    max: Duration,
    buckets: Option<Box<[u32; BUCKETS]>>,
}

impl Latencies {
    pub(crate) const EMPTY: Self =
        Self { count: 0, sum: Duration::ZERO, max: Duration::ZERO, buckets: None };

    /// Adds a latency.
    pub fn add(&mut self, latency: Duration) {
        self.count += 1;
        self.sum += latency;
        self.max = self.max.max(latency);
        let place = (latency.as_nanos() as f64 / FIRST_BUCKET).max(1.0).log(GROWTH) as usize;
        let buckets = self.buckets.get_or_insert_with(|| Box::new([0; BUCKETS]));
        let bucket = &mut buckets[place.min(BUCKETS - 1)];
        *bucket = bucket.saturating_add(1);
    }

    /// Adds the latencies of another histogram.
    pub fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
        if let Some(more) = &other.buckets {
            let buckets = self.buckets.get_or_insert_with(|| Box::new([0; BUCKETS]));
            for (bucket, more) in buckets.iter_mut().zip(more.iter()) {
                *bucket = bucket.saturating_add(*more);
            }
        }
    }

    /// Returns the latencies added since `earlier`, a former state of this histogram. Their maximum
    /// is accurate to 8 %, unless it is the overall maximum.
    pub fn since(&self, earlier: &Self) -> Self {
        let mut buckets = self.buckets.clone();
        if let (Some(buckets), Some(before)) = (&mut buckets, &earlier.buckets) {
            buckets.iter_mut().zip(before.iter()).for_each(|(now, then)| *now -= *then.min(now));
        }
        let last = buckets.as_ref().and_then(|all| all.iter().rposition(|&bucket| bucket > 0));
        let end = last.map_or(0.0, |last| FIRST_BUCKET * GROWTH.powf(last as f64 + 1.0));
        Self {
            count: self.count.saturating_sub(earlier.count),
            sum: self.sum.saturating_sub(earlier.sum),
            max: Duration::from_nanos(end as u64).min(self.max),
            buckets,
        }
    }

    /// Returns the number of latencies up to `limit`, which is accurate to 4 %.
    pub fn count_up_to(&self, limit: Duration) -> u64 {
        let Some(buckets) = &self.buckets else { return 0 };
        let last = (limit.as_nanos() as f64 / FIRST_BUCKET).max(1.0).log(GROWTH) as usize;
        buckets.iter().take(last + 1).map(|&bucket| u64::from(bucket)).sum()
    }

    /// Returns the sum.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the mean.
    pub fn mean(&self) -> Option<Duration> {
        (self.count > 0).then(|| self.sum.div_f64(self.count as f64))
    }

    /// Returns the maximum.
    pub fn max(&self) -> Option<Duration> {
        (self.count > 0).then_some(self.max)
    }

    /// Returns the quantile `q`, 0 to 1, accurate to 4 %.
    pub fn quantile(&self, q: f64) -> Option<Duration> {
        let buckets = self.buckets.as_ref()?;
        let rank = (q.clamp(0.0, 1.0) * self.count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let place = buckets.iter().position(|&bucket| {
            seen += u64::from(bucket);
            seen >= rank
        })?;
        let middle = FIRST_BUCKET * GROWTH.powf(place as f64 + 0.5);
        Some(Duration::from_nanos(middle as u64).min(self.max))
    }
}

/// Time when there was nothing to send but replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OffTime {
    /// Total time.
    pub total: Duration,
    /// Time when new bytes were blocked by flow control.
    pub blocked: Duration,
    /// Number of periods.
    pub entries: u64,
}

impl OffTime {
    /// Adds another connection's time.
    pub fn add(&mut self, other: &Self) {
        self.total += other.total;
        self.blocked += other.blocked;
        self.entries += other.entries;
    }

    /// Returns the time since `earlier`, a former state.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            total: self.total.saturating_sub(earlier.total),
            blocked: self.blocked.saturating_sub(earlier.blocked),
            entries: self.entries.saturating_sub(earlier.entries),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OffMode {
    past: OffTime,
    since: Option<Timestamp>,
    blocked_since: Option<Timestamp>,
}

impl OffMode {
    #[inline]
    pub(crate) fn set(&mut self, now: Timestamp, off: bool, blocked: bool) {
        match self.blocked_since {
            None if blocked => self.blocked_since = Some(now),
            Some(since) if !blocked => {
                self.past.blocked += now.since(since);
                self.blocked_since = None;
            }
            _ => {}
        }
        match self.since {
            None if off => {
                self.since = Some(now);
                self.past.entries += 1;
            }
            Some(since) if !off => {
                self.past.total += now.since(since);
                self.since = None;
            }
            _ => {}
        }
    }

    /// Returns the total time, including a period in progress.
    pub(crate) fn until(&self, now: Timestamp) -> OffTime {
        let open = |since: Option<Timestamp>| since.map_or(Duration::ZERO, |at| now.since(at));
        OffTime {
            total: self.past.total + open(self.since),
            blocked: self.past.blocked + open(self.blocked_since),
            entries: self.past.entries,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_close_and_the_maximum_is_exact() {
        let mut latencies = Latencies::default();
        assert_eq!(
            (latencies.mean(), latencies.quantile(0.5), latencies.max()),
            (None, None, None)
        );
        (1..=1_000).for_each(|ms| latencies.add(Duration::from_millis(ms)));
        for (q, ms) in [(0.0, 1.0), (0.5, 500.0), (0.95, 950.0), (1.0, 1_000.0)] {
            let found = latencies.quantile(q).expect("some").as_secs_f64() * 1e3;
            assert!((found / ms - 1.0).abs() < 0.05, "{q}: {found}");
        }
        assert_eq!(latencies.max(), Some(Duration::from_secs(1)));
        let half = latencies.count_up_to(Duration::from_millis(500));
        assert!((480..=540).contains(&half), "{half}");
        let mut twice = latencies.clone();
        twice.merge(&latencies);
        assert_eq!((twice.count(), twice.quantile(0.5)), (2_000, latencies.quantile(0.5)));
        assert_eq!(latencies.mean(), Some(Duration::from_micros(500_500)));
    }

    #[test]
    fn since_returns_later_latencies_only() {
        let ms = Duration::from_millis;
        let mut latencies = Latencies::default();
        assert_eq!(latencies.since(&Latencies::default()).max(), None);
        [500, 20].into_iter().for_each(|n| latencies.add(ms(n)));
        let earlier = latencies.clone();
        assert_eq!(latencies.since(&earlier).quantile(1.0), None);
        [40, 60].into_iter().for_each(|n| latencies.add(ms(n)));
        let later = latencies.since(&earlier);
        assert_eq!((later.count(), later.sum()), (2, ms(100)));
        assert!((ms(60)..ms(65)).contains(&later.max().expect("some")), "{later:?}");
        latencies.add(ms(700));
        assert_eq!(latencies.since(&earlier).max(), Some(ms(700)));
    }

    #[test]
    fn off_mode_includes_the_period_in_progress() {
        let at = Timestamp::from_millis;
        let mut mode = OffMode::default();
        mode.set(at(10), true, false);
        mode.set(at(15), true, true);
        mode.set(at(30), false, false);
        mode.set(at(40), true, false);
        let ms = Duration::from_millis;
        assert_eq!(mode.until(at(45)), OffTime { total: ms(25), blocked: ms(15), entries: 2 });
    }
}
