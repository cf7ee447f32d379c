//! A bound on redundancy outside the schemes: token buckets for a connection and for the process.
//! Tokens are bytes. First transmissions fill a bucket by their share, replicas drain it, so that on
//! any horizon replicas are at most that share of the first transmissions, plus one burst, whatever
//! a scheme wants and whatever losses a peer pretends.
//!
//! Losses come in outages, and an outage takes more packets the faster the stream is, and from more viewers the more
//! share what fails: what a second has filled may leave at once.

use core::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::Arc;

use units::Timestamp;

/// Replicas that may always leave at once, in packets: those of a second at 1.5 Mbps and a share of a fifth.
const LEAST_BURST: u32 = 32;
/// A bucket holds what the first transmissions of about this time have filled.
const HELD: Duration = Duration::from_secs(1);

/// What remains after `gap` of the bytes of about [`HELD`].
fn after(gap: Duration, bytes: f64) -> f64 {
    bytes * (1.0 - gap.as_secs_f64() / HELD.as_secs_f64()).max(0.0)
}

/// The bucket that all connections of a process share.
#[derive(Debug)]
pub struct SharedBudget {
    /// Thousandths of the first transmissions' bytes.
    share: u32,
    least_burst: i64,
    /// Thousandths of bytes.
    tokens: AtomicI64,
    /// First transmissions of about [`HELD`] until `at`, in bytes.
    lately: AtomicU64,
    /// In nanoseconds.
    at: AtomicU64,
}

impl SharedBudget {
    /// Replicas may be `share` (0 and above) of the bytes that all connections send first, plus `least_burst` bytes;
    /// what they leave of it is kept for about a second, or `least_burst` of it for ever.
    pub fn new(share: f64, least_burst: u64) -> Self {
        let least_burst = i64::try_from(least_burst.saturating_mul(1_000)).unwrap_or(i64::MAX);
        Self {
            share: thousandths(share),
            least_burst,
            tokens: AtomicI64::new(least_burst),
            lately: AtomicU64::new(0),
            at: AtomicU64::new(0),
        }
    }

    /// The share, to three digits after the point.
    pub fn share(&self) -> f64 {
        f64::from(self.share) / 1_000.0
    }

    fn fill(&self, now: Timestamp, bytes: u64) {
        // Loops send on threads of their own, and their clocks began one after the other: the one that is ahead counts.
        let at = self.at.fetch_max(now.as_nanos(), Ordering::Relaxed);
        let gap = now.since(Timestamp::from_nanos(at));
        let lately = |lately: u64| after(gap, lately as f64) as u64 + bytes;
        let before =
            self.lately.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |l| Some(lately(l)));
        let lately = lately(before.unwrap_or_else(|lately| lately));
        let burst = self.least_burst.max((lately as f64 * f64::from(self.share)) as i64);
        let more = bytes as i64 * i64::from(self.share);
        let filled = |tokens: i64| Some(tokens.saturating_add(more).min(burst));
        // The closure never refuses.
        let _ = self.tokens.fetch_update(Ordering::Relaxed, Ordering::Relaxed, filled);
    }
}

fn thousandths(share: f64) -> u32 {
    if share.is_finite() { (share.max(0.0) * 1_000.0).round().min(1e6) as u32 } else { 0 }
}

/// A bound on the replicas of one connection.
#[derive(Clone, Debug)]
pub struct Guard {
    share: u32,
    shared: Option<Arc<SharedBudget>>,
    burst: Burst,
    /// Thousandths of bytes.
    tokens: i64,
    /// First transmissions that the shared bucket has not been told of yet, in bytes.
    untold: u64,
    /// Whether the last replica that was wanted was refused.
    refusing: bool,
    refusals: u64,
}

/// What a connection's bucket holds.
#[derive(Clone, Copy, Debug)]
enum Burst {
    Packets(u32),
    /// The share of these bytes, the first transmissions of about [`HELD`] until then.
    Lately(f64, Timestamp),
}

/// First transmissions are told to the shared bucket in steps of this many bytes.
const STEP: u64 = 16_384;

impl Guard {
    /// Replicas may be `share` (0 and above) of the bytes that this connection sends first, plus 32 packets; what they
    /// leave of it is kept for about a second, or 32 packets of it for ever; and no more than the shared bucket has.
    pub fn new(share: f64, shared: Option<Arc<SharedBudget>>) -> Self {
        let share = thousandths(share);
        let burst = Burst::Lately(0.0, Timestamp::ZERO);
        Self { share, shared, burst, tokens: i64::MAX, untold: 0, refusing: false, refusals: 0 }
    }

    /// The same with a burst of so many packets at any rate.
    #[must_use]
    pub fn with_burst(self, packets: u32) -> Self {
        Self { burst: Burst::Packets(packets), ..self }
    }

    /// Bytes left for the first time.
    #[inline]
    pub(crate) fn on_first_transmission(&mut self, now: Timestamp, bytes: u64, packet: u16) {
        if let Burst::Lately(lately, at) = &mut self.burst {
            *lately = after(now.since(*at), *lately) + bytes as f64;
            *at = now;
        }
        let burst = self.burst_of(packet);
        self.tokens = self.tokens.saturating_add(bytes as i64 * i64::from(self.share)).min(burst);
        if let Some(shared) = &self.shared {
            self.untold += bytes;
            if self.untold >= STEP {
                shared.fill(now, core::mem::take(&mut self.untold));
            }
        }
    }

    /// In thousandths of bytes.
    fn burst_of(&self, packet: u16) -> i64 {
        let of = |packets: u32| i64::from(packets) * i64::from(packet) * 1_000;
        match self.burst {
            Burst::Packets(packets) => of(packets),
            Burst::Lately(bytes, _) => of(LEAST_BURST).max((bytes * f64::from(self.share)) as i64),
        }
    }

    /// Whether a replica may leave.
    pub(crate) fn allows(&mut self, packet: u16) -> bool {
        let cost = i64::from(packet) * 1_000;
        self.tokens = self.tokens.min(self.burst_of(packet));
        let shared = self.shared.as_ref().map_or(i64::MAX, |s| s.tokens.load(Ordering::Relaxed));
        let allowed = self.tokens >= cost && shared >= cost;
        self.refusals += u64::from(!allowed && !self.refusing);
        self.refusing = !allowed;
        allowed
    }

    /// A replica left.
    pub(crate) fn on_replica(&mut self, bytes: u64) {
        let cost = bytes as i64 * 1_000;
        self.tokens -= cost;
        if let Some(shared) = &self.shared {
            shared.tokens.fetch_sub(cost, Ordering::Relaxed);
        }
    }

    /// What was counted as a replica was none.
    pub(crate) fn give_back(&mut self, bytes: u64) {
        let cost = bytes as i64 * 1_000;
        self.tokens += cost;
        if let Some(shared) = &self.shared {
            shared.tokens.fetch_add(cost, Ordering::Relaxed);
        }
    }

    /// Times that replicas began to be refused.
    pub fn refusals(&self) -> u64 {
        self.refusals
    }

    /// Bytes of replicas that may leave now.
    pub fn budget(&self) -> u64 {
        self.tokens.max(0) as u64 / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: u16 = 1_200;

    /// Replicas that leave while `first` packets are sent first, one each 8 ms, as many as the guards let go.
    fn replicas(guards: &mut [Guard], first: u64) -> u32 {
        replicas_each(8, guards, first)
    }

    /// The same with one each `gap` milliseconds.
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
        // The first one finds the bucket full.
        assert_eq!(replicas(&mut [Guard::new(0.2, None)], 1_000), 231);
        // Nor are they more on a faster stream, with or without a second in which none was wanted.
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
    fn what_a_second_has_filled_is_kept_at_any_rate() {
        // By the second of this stream: packets, and replicas of a fifth of them that may leave at its end.
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
            // Behind a pause of a second the next packet finds the least.
            let later = Timestamp::from_nanos((seconds + 1) * 1_000_000_000);
            guard.on_first_transmission(later, PACKET.into(), PACKET);
            assert_eq!(guard.budget() / u64::from(PACKET), 32);
        }
    }

    #[test]
    fn all_connections_together_stay_below_the_shared_bound() {
        let shared = Arc::new(SharedBudget::new(0.05, 20 * u64::from(PACKET)));
        let mut guards = vec![Guard::new(0.5, Some(shared)); 10];
        let sent = replicas(&mut guards, 1_000);
        assert!((500..=520).contains(&sent), "5 % of 10,000 and 20: {sent}");
        assert!(guards.iter().all(|guard| guard.refusals() > 0));
    }

    /// Takes all replicas that a guard allows.
    fn take_all(guard: &mut Guard) -> u32 {
        let mut sent = 0;
        while guard.allows(PACKET) {
            guard.on_replica(PACKET.into());
            sent += 1;
        }
        sent
    }

    #[test]
    fn replicas_stay_below_the_bound_on_any_horizon() {
        let mut guard = Guard::new(0.2, None);
        let (mut first, mut sent) = (0, 0);
        for number in 0..10_000 {
            let now = Timestamp::from_millis(number);
            guard.on_first_transmission(now, PACKET.into(), PACKET);
            first += 1;
            sent += take_all(&mut guard);
            assert!(sent <= first / 5 + LEAST_BURST, "{first}: {sent}");
        }
        assert!(sent >= first / 5 + LEAST_BURST - 1, "all of it is used: {sent}");
    }

    #[test]
    fn a_thousand_short_connections_share_what_all_connections_may_send() {
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
            assert!(all <= 4 + LEAST_BURST, "{all}");
            sent += all;
        }
        assert!(sent <= first / 10 + 200, "{sent} of {first}");
        assert!(sent >= 1_200, "the shared bucket is used up: {sent}");
    }

    #[test]
    fn an_outage_of_many_viewers_may_take_what_a_second_of_all_has_filled() {
        let least = 20 * u64::from(PACKET);
        // By viewers of 125 packets a second: a tenth of what all send in one.
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
            // Behind a pause of a second nothing is kept but the least; one step of 16 KiB shows it.
            shared.fill(Timestamp::from_millis(8 * 1_250 + 1_000), STEP);
            assert_eq!(kept(), 20, "{viewers}");
        }
    }

    #[test]
    fn clocks_that_are_milliseconds_apart_keep_a_second() {
        // Two loops tell of 16 KiB a millisecond each: 2,000 of it in a second.
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
