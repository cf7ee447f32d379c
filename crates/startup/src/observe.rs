//! Measurements for a connection's next cookie: delivery rates of the path rather than the encoder,
//! and the schedule of cookies (RFC 9959, section 3.1, "Observing"; Wira, section IV-B, "Periodic
//! synchronization").

use core::time::Duration;

use congestion::RateSample;
use units::{Rate, Timestamp};

use crate::compact;
use crate::cookie::Cookie;

/// Number of recorded rounds.
const ROUNDS: usize = 16;
/// Unit of recorded rates, in bit/s.
const UNIT: u64 = 100;
/// Initial window in bytes, for ten datagrams of 1,200 (RFC 9002, section 7.2).
const FIRST_FLIGHT: u64 = 12_000;

/// Delivery rates of one path, in 64 bytes.
///
/// A live stream sends at the encoder's rate, so most samples are application-limited. These are
/// lower bounds and update only the maximum, as in BBR. A first flight below the initial window, as
/// in a handshake, is ignored. Of the other samples, the highest per round counts, as samples of
/// one round overlap.
#[derive(Clone, Debug, Default)]
pub struct DeliveryRates {
    max: u16,
    /// Compact rates of the latest rounds.
    rounds: [u16; ROUNDS],
    count: u32,
    /// The round ends with the acknowledgement of a packet sent after this many delivered bytes.
    round_end: u64,
}

impl DeliveryRates {
    /// Records the rate sample of an acknowledgement.
    pub fn on_sample(&mut self, sample: &RateSample) {
        let is_handshake = sample.prior_delivered == 0 && sample.delivered < FIRST_FLIGHT;
        if is_handshake {
            return;
        }
        let rate = compact::from_number(sample.delivery_rate.as_bps() / UNIT);
        // A lower bound, even if application-limited.
        self.max = self.max.max(rate);
        if sample.is_app_limited {
            return;
        }
        if self.count == 0 || sample.prior_delivered >= self.round_end {
            self.round_end = sample.prior_delivered.saturating_add(sample.delivered);
            self.rounds[self.count as usize % ROUNDS] = rate;
            self.count = self.count.saturating_add(1);
        } else {
            let round = &mut self.rounds[(self.count - 1) as usize % ROUNDS];
            *round = rate.max(*round);
        }
    }

    /// Number of rounds with a sample.
    pub fn count(&self) -> u64 {
        self.count.into()
    }

    /// Highest rate of all samples; 0 without samples.
    pub fn max(&self) -> Rate {
        rate(self.max)
    }

    /// Upper quartile of the latest 16 rounds; 0 without rounds.
    pub fn usual(&self) -> Rate {
        let mut known = self.rounds;
        let known = &mut known[..ROUNDS.min(self.count as usize)];
        known.sort_unstable();
        known.get((3 * known.len()).div_ceil(4).saturating_sub(1)).map_or(Rate::ZERO, |&r| rate(r))
    }
}

fn rate(code: u16) -> Rate {
    Rate::from_bps(compact::number(code).saturating_mul(UNIT))
}

/// Schedule of a connection's cookies.
#[derive(Clone, Copy, Debug, Default)]
pub struct Refresh {
    last: Option<(Timestamp, Cookie)>,
}

impl Refresh {
    /// Minimum time between two cookies: the paper's synchronization period.
    pub const PERIOD: Duration = Duration::from_secs(3);
    /// Maximum time between two cookies. Without it, the cookie of a viewer that watches for an
    /// hour would expire.
    pub const RENEWAL: Duration = Duration::from_secs(60);

    /// Returns true if `cookie` should be sent at `now`, and then counts it as sent. This applies
    /// to the first cookie, the first one with samples, those that differ from the last one, and at
    /// least one per [`Self::RENEWAL`].
    pub fn is_due(&mut self, now: Timestamp, cookie: &Cookie) -> bool {
        let is_due = self.last.is_none_or(|(at, last)| match now.since(at) {
            _ if last.samples == 0 && cookie.samples > 0 => true,
            early if early < Self::PERIOD => false,
            late if late >= Self::RENEWAL => true,
            _ => differs(&last, cookie),
        });
        if is_due {
            self.last = Some((now, *cookie));
        }
        is_due
    }
}

/// Returns true if decisions may differ by more than one eighth.
fn differs(a: &Cookie, b: &Cookie) -> bool {
    let moved = |a: u64, b: u64| a.abs_diff(b) > a.max(b) / 8;
    let micros = |cookie: &Cookie| u64::try_from(cookie.min_rtt.as_micros()).unwrap_or(u64::MAX);
    a.verdict != b.verdict
        || (a.samples == 0) != (b.samples == 0)
        || moved(micros(a), micros(b))
        || moved(a.max_rate.as_bps(), b.max_rate.as_bps())
        || moved(a.usual_rate.as_bps(), b.usual_rate.as_bps())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cookie::Verdict;
    use crate::fixture::cookie;

    /// Sample after the first flight.
    fn sample(kbps: u64, after: u64, is_app_limited: bool) -> RateSample {
        RateSample {
            delivery_rate: Rate::from_kbps(kbps),
            interval: Duration::from_millis(50),
            delivered: 10_000,
            prior_delivered: FIRST_FLIGHT + after,
            is_app_limited,
        }
    }

    #[test]
    fn application_limited_samples_only_raise_the_maximum() {
        let mut rates = DeliveryRates::default();
        assert_eq!((rates.max(), rates.usual(), rates.count()), (Rate::ZERO, Rate::ZERO, 0));
        rates.on_sample(&sample(16_000, 0, true));
        assert_eq!(
            (rates.max(), rates.usual(), rates.count()),
            (Rate::from_kbps(16_000), Rate::ZERO, 0)
        );
        rates.on_sample(&sample(8_000, 0, false));
        assert_eq!((rates.max(), rates.count()), (Rate::from_kbps(16_000), 1));
        assert_eq!(rates.usual(), Rate::from_kbps(8_000));
    }

    #[test]
    fn handshakes_are_ignored_and_full_first_flights_count() {
        let mut rates = DeliveryRates::default();
        let first =
            |delivered| RateSample { delivered, prior_delivered: 0, ..sample(500, 0, false) };
        rates.on_sample(&first(3_600));
        assert_eq!(rates.count(), 0);
        rates.on_sample(&first(12_000));
        assert_eq!((rates.count(), rates.max()), (1, Rate::from_kbps(500)));
    }

    #[test]
    fn the_best_sample_per_round_counts_and_old_rounds_expire() {
        let mut rates = DeliveryRates::default();
        for (kbps, prior) in [(100, 0), (300, 5_000), (200, 9_999), (50, 10_000)] {
            rates.on_sample(&sample(kbps, prior, false));
        }
        assert_eq!((rates.count(), rates.max()), (2, Rate::from_kbps(300)));
        assert_eq!(rates.usual(), Rate::from_kbps(300), "the higher of two");
        // 16 rounds of 1 to 16 Mbit/s replace them; the maximum stays.
        let mut rates = DeliveryRates::default();
        rates.on_sample(&sample(40_000, 0, false));
        for round in 1..=16 {
            rates.on_sample(&sample(round * 1_000, round * 10_000, false));
        }
        assert_eq!(rates.usual(), Rate::from_kbps(12_000), "rank 12 of 16");
        let max = rates.max().as_mbps_f64();
        assert!((39.98..=40.0).contains(&max), "{max}");
        assert!(size_of::<DeliveryRates>() <= 64);
    }

    #[test]
    fn cookies_are_due_on_change_and_once_per_minute() {
        let mut refresh = Refresh::default();
        let mut due =
            |seconds, cookie: &Cookie| refresh.is_due(Timestamp::from_secs(seconds), cookie);
        let first = cookie();
        let faster = Cookie { max_rate: first.max_rate.scale(1.2), ..first };
        assert!(due(9, &Cookie { samples: 0, ..first }));
        assert!(due(10, &first), "first with samples");
        assert!(!due(12, &faster), "3 s have not passed");
        assert!(!due(14, &Cookie { issued: first.issued + 4, ..first }), "unchanged");
        assert!(!due(14, &Cookie { max_rate: first.max_rate.scale(1.1), ..first }));
        assert!(due(14, &faster));
        assert!(due(20, &Cookie { verdict: Verdict::Failed, ..faster }));
        assert!(!due(79, &Cookie { verdict: Verdict::Failed, ..faster }));
        assert!(due(80, &Cookie { verdict: Verdict::Failed, ..faster }), "after one minute");
    }
}
