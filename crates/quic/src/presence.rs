//! Delivery-rate samples of clients that alternate between addresses.
//!
//! Packets leave on a path only while the client uses its address. If visits are shorter than a
//! round trip, a sample spans absences and is too low. The sender then paces too slowly, and the
//! next sample is lower still. Absences are therefore subtracted. The delivery rate of all paths
//! together caps the result, since paths may share a bottleneck whose queue merges their visits.

use congestion::RateSample;
use core::time::Duration;
use std::collections::VecDeque;
use units::{Rate, Timestamp};

/// Maximum number of absences, the newest ones: enough for a round trip of 2 s at 20 ms per visit.
const MAX_ABSENCES: usize = 64;
/// Least share of a sample's interval that counts as visits. Below it the rate stays an
/// underestimate.
const MIN_SHARE: f64 = 0.2;

/// Least span of [`Throughput`], since acknowledgements come in bunches.
const MIN_SPAN: Duration = Duration::from_millis(50);

/// The client's last absences from a path.
#[derive(Debug, Default)]
pub(crate) struct Presence {
    left: Option<Timestamp>,
    absences: VecDeque<(Timestamp, Timestamp)>,
}

impl Presence {
    pub(crate) fn on_left(&mut self, now: Timestamp) {
        self.left = Some(now);
    }

    pub(crate) fn on_return(&mut self, now: Timestamp) {
        if let Some(left) = self.left.take() {
            if self.absences.len() == MAX_ABSENCES {
                self.absences.pop_front();
            }
            self.absences.push_back((left, now));
        }
    }

    /// Returns the sample without absences. Its newest packet was sent at `to`. `most` is the
    /// delivery rate of all paths together.
    pub(crate) fn correct(&self, sample: RateSample, to: Timestamp, most: Rate) -> RateSample {
        let from = Timestamp::ZERO + to.since(Timestamp::ZERO).saturating_sub(sample.interval);
        let away = self.absences.iter().map(|&(left, back)| back.min(to).since(left.max(from)));
        let away: Duration = away.sum();
        if away.is_zero() {
            return sample;
        }
        let share = 1.0 - away.as_secs_f64() / sample.interval.as_secs_f64();
        let corrected = sample.delivery_rate.scale(1.0 / share.max(MIN_SHARE));
        let delivery_rate = corrected.min(most).max(sample.delivery_rate);
        RateSample { delivery_rate, ..sample }
    }
}

/// Delivery rate of all paths of a connection together, over about a round trip.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Throughput {
    since: Timestamp,
    bytes: u64,
    rate: Rate,
}

impl Throughput {
    /// Counts acknowledged bytes.
    pub(crate) fn on_acked(&mut self, now: Timestamp, bytes: u64, rtt: Duration) {
        self.bytes += bytes;
        let span = now.since(self.since);
        if span >= rtt.max(MIN_SPAN) {
            self.rate = Rate::from_bytes_in(self.bytes, span);
            (self.since, self.bytes) = (now, 0);
        }
    }

    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_away_does_not_count_in_a_rate() {
        let ms = Timestamp::from_millis;
        let sample = |interval| RateSample {
            delivery_rate: Rate::from_mbps(4),
            interval: Duration::from_millis(interval),
            delivered: 1,
            prior_delivered: 1,
            is_app_limited: false,
        };
        let (mut presence, most) = (Presence::default(), Rate::from_mbps(100));
        let rate = |presence: &Presence, interval, to| {
            presence.correct(sample(interval), ms(to), most).delivery_rate.as_mbps_f64().round()
        };
        assert_eq!(rate(&presence, 40, 1_000), 4.0);
        for n in 0..100 {
            presence.on_left(ms(1_020 + 40 * n));
            presence.on_return(ms(1_040 + 40 * n));
        }
        assert_eq!(presence.absences.len(), MAX_ABSENCES);
        // Half of the time, and none of a sample within a visit.
        assert_eq!(rate(&presence, 40, 4_975), 8.0);
        assert_eq!(rate(&presence, 10, 4_970), 4.0);
        // After the last absence.
        assert_eq!(rate(&presence, 40, 5_100), 4.0);
        presence.on_left(ms(6_000));
        presence.on_return(ms(9_000));
        assert_eq!(rate(&presence, 3_010, 9_005), 20.0, "no less than a fifth of the time");
        for (most, expected) in [(6, 6), (3, 4)] {
            let corrected = presence.correct(sample(3_010), ms(9_005), Rate::from_mbps(most));
            assert_eq!(corrected.delivery_rate, Rate::from_mbps(expected));
        }
    }
}
