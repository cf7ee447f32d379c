//! Pacing: spreads packets over time, so that a window does not leave as one burst (RFC 9002,
//! section 7.7). A token bucket in exact integers: its unit is the bit-nanosecond (bit/s times ns),
//! and 8·10⁹ of them make a byte, so nothing is rounded.

use core::time::Duration;

use units::{Rate, Timestamp};

/// Bit-nanoseconds per byte.
const UNITS_PER_BYTE: u64 = 8_000_000_000;

/// Maximum bytes of datagrams per system call (UDP GSO).
const MAX_BATCH: u64 = 65_536;

/// Returns the burst in bytes at `rate` with datagrams of `mtu` bytes: 2 ms at the rate, but 2 to
/// 10 datagrams; or 1 ms at the rate (at most 64 KiB) if that is more. Without a rate: 10
/// datagrams.
///
/// RFC 9002, section 7.7: "Senders SHOULD limit bursts to the initial congestion window". Bursts
/// above 10 datagrams let a timer with 1 ms resolution keep up with the rate, as in BBR's send
/// quantum (draft-cardwell-iccrg-bbr-congestion-control-00, section 4.2.2).
pub fn burst(rate: Option<Rate>, mtu: u16) -> u64 {
    let mtu = u64::from(mtu);
    let Some(rate) = rate else { return 10 * mtu };
    rate.bytes_in(Duration::from_millis(2))
        .clamp(2 * mtu, 10 * mtu)
        .max(rate.bytes_in(Duration::from_millis(1)).min(MAX_BATCH))
}

/// A pacer. Its credit is at most one burst. Over any time `t`, at most `rate × t + burst` leaves
/// if the caller respects [`budget`](Self::budget).
#[derive(Clone, Debug, Default)]
pub struct Pacer {
    /// Credit in bit-nanoseconds; negative after sending more than the budget.
    credit: i64,
    /// Time of `credit`; `None` before the first use, which finds a full bucket.
    updated: Option<Timestamp>,
}

impl Pacer {
    /// Creates a pacer with a full bucket.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the bytes that may leave at `now`, at most `burst`. Credit accrues at `rate` since
    /// the last call. [`Rate::MAX`] means unpaced: always `burst`.
    pub fn budget(&mut self, now: Timestamp, rate: Rate, burst: u64) -> u64 {
        let full = i64::try_from(burst.saturating_mul(UNITS_PER_BYTE)).unwrap_or(i64::MAX);
        self.credit = match self.updated {
            Some(updated) if rate != Rate::MAX => {
                let earned = now.since(updated).as_nanos().saturating_mul(rate.as_bps().into());
                let earned = i64::try_from(earned).unwrap_or(i64::MAX);
                self.credit.saturating_add(earned).min(full)
            }
            _ => full,
        };
        // If time runs backwards, nothing accrues, nor twice when it catches up.
        self.updated = self.updated.max(Some(now));
        u64::try_from(self.credit).map_or(0, |credit| credit / UNITS_PER_BYTE)
    }

    /// Notes that `bytes` bytes left. Bytes beyond the budget (a probe that must not wait) become
    /// debt that later packets pay.
    pub fn consumed(&mut self, bytes: u64) {
        let units = i64::try_from(bytes.saturating_mul(UNITS_PER_BYTE)).unwrap_or(i64::MAX);
        self.credit = self.credit.saturating_sub(units);
    }

    /// Returns when `bytes` bytes (at most the burst) may leave at `rate`; `None` if they may at
    /// `now`. [`Timestamp::MAX`] at rate zero.
    pub fn time_until(&self, bytes: u64, now: Timestamp, rate: Rate) -> Option<Timestamp> {
        if rate == Rate::MAX {
            return None;
        }
        let updated = self.updated?;
        let need = i128::from(bytes) * i128::from(UNITS_PER_BYTE) - i128::from(self.credit);
        let need = u128::try_from(need).ok().filter(|need| *need > 0)?;
        let at = match rate.as_bps() {
            0 => Timestamp::MAX,
            bps => {
                let wait = need.div_ceil(bps.into());
                updated + Duration::from_nanos(u64::try_from(wait).unwrap_or(u64::MAX))
            }
        };
        (at > now).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MTU: u16 = 1_200;

    #[test]
    fn bursts_follow_the_rate_within_their_limits() {
        assert_eq!(burst(None, MTU), 12_000);
        assert_eq!(burst(Some(Rate::ZERO), MTU), 2_400);
        assert_eq!(burst(Some(Rate::from_mbps(12)), MTU), 3_000);
        assert_eq!(burst(Some(Rate::from_mbps(80)), MTU), 12_000);
        assert_eq!(burst(Some(Rate::from_mbps(400)), MTU), 50_000);
        assert_eq!(burst(Some(Rate::MAX), MTU), 65_536);
    }

    #[test]
    fn credit_after_idle_is_one_burst() {
        let mut p = Pacer::new();
        let rate = Rate::from_mbps(12);
        assert_eq!(p.budget(Timestamp::ZERO, rate, 3_000), 3_000);
        p.consumed(3_000);
        assert_eq!(p.budget(Timestamp::ZERO, rate, 3_000), 0);
        assert_eq!(p.budget(Timestamp::from_secs(3_600), rate, 3_000), 3_000);
    }

    #[test]
    fn the_wake_up_time_is_exact_to_the_nanosecond() {
        let mut p = Pacer::new();
        let rate = Rate::from_bps(7_777_777);
        p.budget(Timestamp::ZERO, rate, 2_400);
        p.consumed(2_400);
        let at = p.time_until(1_200, Timestamp::ZERO, rate).expect("the bucket is empty");
        let mut early = p.clone();
        assert!(early.budget(at - Duration::from_nanos(1), rate, 2_400) < 1_200);
        assert_eq!(p.budget(at, rate, 2_400), 1_200);
        assert_eq!(p.time_until(1_200, at, rate), None);
    }

    #[test]
    fn an_unknown_rate_is_unpaced_and_a_zero_rate_never_sends() {
        let mut p = Pacer::new();
        for _ in 0..3 {
            assert_eq!(p.budget(Timestamp::ZERO, Rate::MAX, 12_000), 12_000);
            p.consumed(12_000);
        }
        assert_eq!(p.time_until(1_200, Timestamp::ZERO, Rate::MAX), None);
        assert_eq!(p.time_until(1_200, Timestamp::ZERO, Rate::ZERO), Some(Timestamp::MAX));
    }

    #[test]
    fn bytes_beyond_the_budget_become_debt() {
        let mut p = Pacer::new();
        let rate = Rate::from_mbps(8);
        p.budget(Timestamp::ZERO, rate, 2_400);
        p.consumed(4_800);
        assert_eq!(
            p.time_until(1_000, Timestamp::ZERO, rate),
            Some(Timestamp::from_micros(3_400)),
            "2400 bytes of debt and 1000 bytes at a byte per microsecond"
        );
    }

    proptest! {
        #![proptest_config(crate::properties(128))]

        #[test]
        fn no_period_carries_more_than_its_rate_and_one_burst(
            steps in prop::collection::vec((0u64..3_000_000, 1u64..50_000_000, 1u64..1_500), 1..60),
        ) {
            let burst = 3_000;
            let mut p = Pacer::new();
            let mut now = Timestamp::ZERO;
            // After each step: bits·ns allowed since the start, bytes sent since the start.
            let mut log = vec![(0u128, 0u128)];
            let (mut allowed, mut sent) = (0u128, 0u128);
            for (wait, bps, size) in steps {
                now += Duration::from_nanos(wait);
                let rate = Rate::from_bps(bps);
                allowed += u128::from(wait) * u128::from(bps);
                log.push((allowed, sent));
                while p.budget(now, rate, burst) >= size {
                    p.consumed(size);
                    sent += u128::from(size);
                }
                log.push((allowed, sent));
            }
            for (i, a) in log.iter().enumerate() {
                for b in &log[i..] {
                    let bound = b.0 - a.0 + u128::from(burst * UNITS_PER_BYTE);
                    prop_assert!((b.1 - a.1) * u128::from(UNITS_PER_BYTE) <= bound);
                }
            }
        }

        #[test]
        fn a_sender_that_wakes_on_time_uses_the_whole_rate(bps in 100_000u64..1_000_000_000) {
            let rate = Rate::from_bps(bps);
            let burst = burst(Some(rate), MTU);
            let mut p = Pacer::new();
            let (mut now, mut sent) = (Timestamp::ZERO, 0);
            for _ in 0..500 {
                while p.budget(now, rate, burst) >= u64::from(MTU) {
                    p.consumed(MTU.into());
                    sent += u64::from(MTU);
                }
                now = p.time_until(MTU.into(), now, rate).expect("the budget is used up");
            }
            let ideal = rate.bytes_in(now.since(Timestamp::ZERO)) + burst;
            prop_assert!(sent + 2 * u64::from(MTU) >= ideal, "{sent} of {ideal}");
        }
    }
}
