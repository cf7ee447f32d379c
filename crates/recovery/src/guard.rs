//! A limit on redundancy, independent of schemes: token buckets per connection and per process.
//!
//! First transmissions fill a bucket by their share, and replicas drain it. Over any period,
//! replicas are limited to that share of first transmissions plus one burst, whatever a scheme
//! wants and whatever losses a peer feigns.
//!
//! Losses come in outages, which hit more packets of faster streams, and all viewers behind the
//! same failure. The burst is therefore the filling of about one second.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use units::Timestamp;

/// Minimum burst in packets: one second of a 1.5 Mbps stream at a share of 0.2.
const MIN_BURST: u32 = 32;
/// Period of first transmissions that determines the burst.
const BURST_PERIOD: Duration = Duration::from_secs(1);

/// Returns the part of `bytes` that still counts after `gap`.
fn after(gap: Duration, bytes: f64) -> f64 {
    bytes * (1.0 - gap.as_secs_f64() / BURST_PERIOD.as_secs_f64()).max(0.0)
}

/// Token bucket shared by all connections of a process.
#[derive(Debug)]
pub struct SharedBudget {
    /// In thousandths of the bytes of first transmissions.
    share: u32,
    min_burst: i64,
    /// In thousandths of a byte.
    tokens: AtomicI64,
    /// First transmissions of the last [`BURST_PERIOD`] or so before `at`, in bytes.
    recent: AtomicU64,
    /// Time of the last update, in nanoseconds.
    at: AtomicU64,
}

impl SharedBudget {
    /// Creates a bucket that limits replicas to `share` (0 and above) of the first transmissions of
    /// all connections, plus a burst of about one second's filling, at least `min_burst` bytes.
    pub fn new(share: f64, min_burst: u64) -> Self {
        let min_burst = i64::try_from(min_burst.saturating_mul(1_000)).unwrap_or(i64::MAX);
        Self {
            share: thousandths(share),
            min_burst,
            tokens: AtomicI64::new(min_burst),
            recent: AtomicU64::new(0),
            at: AtomicU64::new(0),
        }
    }

    /// Returns the share, rounded to three decimals.
    pub fn share(&self) -> f64 {
        f64::from(self.share) / 1_000.0
    }

    fn fill(&self, now: Timestamp, bytes: u64) {
        // Each sending thread has a clock with its own start; the latest counts.
        let at = self.at.fetch_max(now.as_nanos(), Ordering::Relaxed);
        let gap = now.since(Timestamp::from_nanos(at));
        let recent = |recent: u64| after(gap, recent as f64) as u64 + bytes;
        let before =
            self.recent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |l| Some(recent(l)));
        let recent = recent(before.unwrap_or_else(|recent| recent));
        let burst = self.min_burst.max((recent as f64 * f64::from(self.share)) as i64);
        let more = bytes as i64 * i64::from(self.share);
        let filled = |tokens: i64| Some(tokens.saturating_add(more).min(burst));
        // The closure never returns `None`.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, filled);
    }
}

fn thousandths(share: f64) -> u32 {
    if share.is_finite() { (share.max(0.0) * 1_000.0).round().min(1e6) as u32 } else { 0 }
}

/// Limit on the replicas of one connection.
#[derive(Clone, Debug)]
pub struct Guard {
    share: u32,
    shared: Option<Arc<SharedBudget>>,
    burst: Burst,
    /// In thousandths of a byte.
    tokens: i64,
    /// First transmissions not yet reported to the shared bucket, in bytes.
    unreported: u64,
    /// Whether the last wanted replica was refused.
    refusing: bool,
    refusals: u64,
}

/// Capacity of a connection's bucket.
#[derive(Clone, Copy, Debug)]
enum Burst {
    Packets(u32),
    /// The share of recent first transmissions, sent in the last [`BURST_PERIOD`] or so before
    /// this time, in bytes.
    Recent(f64, Timestamp),
}

/// First transmissions are reported to the shared bucket in steps of this many bytes.
const STEP: u64 = 16_384;

impl Guard {
    /// Creates a guard that limits replicas to `share` (0 and above) of this connection's first
    /// transmissions, plus a burst of about one second's filling, at least 32 packets. The shared
    /// bucket limits them too.
    pub fn new(share: f64, shared: Option<Arc<SharedBudget>>) -> Self {
        let share = thousandths(share);
        let burst = Burst::Recent(0.0, Timestamp::ZERO);
        Self { share, shared, burst, tokens: i64::MAX, unreported: 0, refusing: false, refusals: 0 }
    }

    /// Returns the guard with a constant burst.
    #[must_use]
    pub fn with_burst(self, packets: u32) -> Self {
        Self { burst: Burst::Packets(packets), ..self }
    }

    /// Fills the bucket for a first transmission.
    #[inline]
    pub(crate) fn on_first_transmission(&mut self, now: Timestamp, bytes: u64, packet: u16) {
        if let Burst::Recent(recent, at) = &mut self.burst {
            *recent = after(now.since(*at), *recent) + bytes as f64;
            *at = now;
        }
        let burst = self.burst_of(packet);
        self.tokens = self.tokens.saturating_add(bytes as i64 * i64::from(self.share)).min(burst);
        if let Some(shared) = &self.shared {
            self.unreported += bytes;
            if self.unreported >= STEP {
                shared.fill(now, core::mem::take(&mut self.unreported));
            }
        }
    }

    /// Returns the burst in thousandths of a byte.
    fn burst_of(&self, packet: u16) -> i64 {
        let of = |packets: u32| i64::from(packets) * i64::from(packet) * 1_000;
        match self.burst {
            Burst::Packets(packets) => of(packets),
            Burst::Recent(bytes, _) => of(MIN_BURST).max((bytes * f64::from(self.share)) as i64),
        }
    }

    /// Returns whether a replica may leave.
    pub(crate) fn allows(&mut self, packet: u16) -> bool {
        let cost = i64::from(packet) * 1_000;
        self.tokens = self.tokens.min(self.burst_of(packet));
        let shared = self.shared.as_ref().map_or(i64::MAX, |s| s.tokens.load(Ordering::Relaxed));
        let allowed = self.tokens >= cost && shared >= cost;
        self.refusals += u64::from(!allowed && !self.refusing);
        self.refusing = !allowed;
        allowed
    }

    pub(crate) fn on_replica(&mut self, bytes: u64) {
        let cost = bytes as i64 * 1_000;
        self.tokens -= cost;
        if let Some(shared) = &self.shared {
            shared.tokens.fetch_sub(cost, Ordering::Relaxed);
        }
    }

    /// Refunds the bytes of a copy that turned out not to be a replica.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        let cost = bytes as i64 * 1_000;
        self.tokens += cost;
        if let Some(shared) = &self.shared {
            shared.tokens.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// Returns how many times the guard started to refuse replicas.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Returns the bytes of replicas that may leave now.
    pub fn budget(&self) -> u64 {
        self.tokens.max(0) as u64 / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u16 = 1_200;

    /// Sends `first` packets, one every 8 ms, and counts the replicas that the guards allow.
    fn replicas(guards: &mut [Guard], first: u64) -> u32 {
        replicas_each(8, guards, first)
    }

    /// Does the same with one packet every `gap` milliseconds.
    fn replicas_each(gap: u64, guards: &mut [Guard], first: u64) -> u32 {
        let mut sent = 0;
        for number in 0..first {
            for guard in &mut *guards {
                let now = Timestamp::from_millis(gap * number);
                guard.on_first_transmission(now, PACKET.into(), PACKET);
                while guard.allows(PACKET) {
                    guard.on_replica(PACKET.into());
                    sent += 1;
                }
            }
        }
        sent
    }

    #[test]
    fn replicas_are_a_share_of_first_transmissions_and_one_burst() {
        // The bucket is full at the start.
        assert_eq!(replicas(&mut [Guard::new(0.2, None)], 1_000), 231);
        // A faster stream gets no more, nor does one after a second without replicas.
        assert_eq!(replicas_each(1, &mut [Guard::new(0.2, None)], 1_000), 231);
        let mut guard = Guard::new(0.2, None);
        for number in 0..1_000 {
            guard.on_first_transmission(Timestamp::from_millis(number), PACKET.into(), PACKET);
        }
        let late = replicas_each(1, &mut [guard], 1_000);
        assert!((300..=2_000 / 5 + 32).contains(&late), "{late}");
        assert_eq!(replicas(&mut [Guard::new(0.0, None)], 1_000), 32);
        assert_eq!(replicas(&mut [Guard::new(0.0, None).with_burst(8)], 1_000), 8);
        assert_eq!(replicas(&mut [Guard::new(f64::NAN, None)], 10), 32);
    }

    #[test]
    fn the_burst_is_the_filling_of_one_second_at_any_rate() {
        // By packets per second of the stream: replicas, a fifth of them, that may leave at its
        // end.
        for (seconds, rate, burst) in
            [(1, 1_000, 126), (60, 1_000, 200), (60, 10_000, 2_000), (60, 10, 32)]
        {
            let mut guard = Guard::new(0.2, None);
            for number in 0..seconds * rate {
                let now = Timestamp::from_nanos(number * 1_000_000_000 / rate);
                guard.on_first_transmission(now, PACKET.into(), PACKET);
            }
            let kept = guard.budget() / u64::from(PACKET);
            assert!(kept.abs_diff(burst) <= 1, "{seconds} s, {rate} a second: {kept}");
            // After a pause of a second only the minimum burst is left.
            let later = Timestamp::from_nanos((seconds + 1) * 1_000_000_000);
            guard.on_first_transmission(later, PACKET.into(), PACKET);
            assert_eq!(guard.budget() / u64::from(PACKET), 32);
        }
    }

    #[test]
    fn all_connections_stay_within_the_shared_limit() {
        let shared = Arc::new(SharedBudget::new(0.05, 20 * u64::from(PACKET)));
        let mut guards = vec![Guard::new(0.5, Some(shared)); 10];
        let sent = replicas(&mut guards, 1_000);
        assert!((500..=520).contains(&sent), "5 % of 10,000, plus 20: {sent}");
        assert!(guards.iter().all(|guard| guard.refusals() > 0));
    }

    fn take_all(guard: &mut Guard) -> u32 {
        let mut sent = 0;
        while guard.allows(PACKET) {
            guard.on_replica(PACKET.into());
            sent += 1;
        }
        sent
    }

    #[test]
    fn replicas_stay_within_the_limit_over_any_period() {
        let mut guard = Guard::new(0.2, None);
        let (mut first, mut sent) = (0, 0);
        for number in 0..10_000 {
            let now = Timestamp::from_millis(number);
            guard.on_first_transmission(now, PACKET.into(), PACKET);
            first += 1;
            sent += take_all(&mut guard);
            assert!(sent <= first / 5 + MIN_BURST, "{first}: {sent}");
        }
        assert!(sent >= first / 5 + MIN_BURST - 1, "the budget is not used up: {sent}");
    }

    #[test]
    fn short_connections_share_the_budget_of_the_process() {
        let least = 200 * u64::from(PACKET);
        let shared = Arc::new(SharedBudget::new(0.1, least));
        let (mut first, mut sent) = (0, 0);
        for number in 0..1_000 {
            let mut guard = Guard::new(0.2, Some(shared.clone()));
            for _ in 0..20 {
                guard.on_first_transmission(Timestamp::from_millis(number), PACKET.into(), PACKET);
                first += 1;
            }
            let all = take_all(&mut guard);
            assert!(all <= 4 + MIN_BURST, "{all}");
            sent += all;
        }
        assert!(sent <= first / 10 + 200, "{sent} of {first}");
        assert!(sent >= 1_200, "the shared bucket is used up: {sent}");
    }

    #[test]
    fn an_outage_of_many_viewers_may_use_one_second_of_the_shared_budget() {
        let least = 20 * u64::from(PACKET);
        // A tenth of one second of the viewers' traffic, 125 packets per second each.
        for (viewers, least_kept) in [(1, 20), (10, 125), (1_000, 12_500)] {
            let shared = Arc::new(SharedBudget::new(0.1, least));
            let mut guards = vec![Guard::new(1.0, Some(shared.clone())); viewers];
            let mut first = |from: u64, packets: u64| {
                for number in from..from + packets {
                    let now = Timestamp::from_millis(8 * number);
                    guards
                        .iter_mut()
                        .for_each(|g| g.on_first_transmission(now, PACKET.into(), PACKET));
                }
            };
            let kept = || shared.tokens.load(Ordering::Relaxed) as u64 / 1_000 / u64::from(PACKET);
            first(0, 1_250);
            assert!(kept().abs_diff(least_kept) <= least_kept / 20, "{viewers}: {}", kept());
            // After a pause of a second only the minimum burst is left, plus one step of 16 KiB.
            shared.fill(Timestamp::from_millis(8 * 1_250 + 1_000), STEP);
            assert_eq!(kept(), 20, "{viewers}");
        }
    }

    #[test]
    fn clocks_some_milliseconds_apart_keep_one_second() {
        // Two threads report 16 KiB per millisecond each: 2,000 steps in a second.
        for apart in [0, 5] {
            let shared = SharedBudget::new(0.1, 20_000);
            for number in 0..10_000 {
                shared.fill(Timestamp::from_millis(number), STEP);
                shared.fill(Timestamp::from_millis(number + apart), STEP);
            }
            let kept = shared.tokens.load(Ordering::Relaxed) as u64 / 1_000;
            assert!(kept.abs_diff(200 * STEP) <= 10 * STEP, "{apart} ms: {kept}");
        }
    }
}
