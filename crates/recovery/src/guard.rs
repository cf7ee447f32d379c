//! A bound on redundancy outside the schemes: token buckets for a connection and for the process.
//! Tokens are bytes. First transmissions fill a bucket by their share, replicas drain it, so that on
//! any horizon replicas are at most that share of the first transmissions, plus one burst, whatever
//! a scheme wants and whatever losses a peer pretends.

use core::sync::atomic::{AtomicI64, Ordering};
use std::sync::Arc;

/// Replicas that may leave before anything filled a connection's bucket, in packets. Losses come in outages, and a
/// quarter of a second of a stream is about so many.
const BURST_PACKETS: u32 = 32;

/// The bucket that all connections of a process share.
#[derive(Debug)]
pub struct SharedBudget {
    /// Thousandths of the first transmissions' bytes.
    share: u32,
    burst: i64,
    /// Thousandths of bytes.
    tokens: AtomicI64,
}

impl SharedBudget {
    /// Replicas may be `share` (0 and above) of the bytes that all connections send first, plus
    /// `burst` bytes.
    pub fn new(share: f64, burst: u64) -> Self {
        let burst = i64::try_from(burst.saturating_mul(1_000)).unwrap_or(i64::MAX);
        Self { share: thousandths(share), burst, tokens: AtomicI64::new(burst) }
    }

    /// The share, to three digits after the point.
    pub fn share(&self) -> f64 {
        f64::from(self.share) / 1_000.0
    }

    fn fill(&self, bytes: u64) {
        let more = bytes as i64 * i64::from(self.share);
        let filled = |tokens: i64| Some(tokens.saturating_add(more).min(self.burst));
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
    /// Packets.
    burst: u32,
    /// Thousandths of bytes.
    tokens: i64,
    /// First transmissions that the shared bucket has not been told of yet, in bytes.
    untold: u64,
    /// Whether the last replica that was wanted was refused.
    refusing: bool,
    refusals: u64,
}

/// First transmissions are told to the shared bucket in steps of this many bytes.
const STEP: u64 = 16_384;

impl Guard {
    /// Replicas may be `share` (0 and above) of the bytes that this connection sends first, plus 32
    /// packets; and no more than the shared bucket has.
    pub fn new(share: f64, shared: Option<Arc<SharedBudget>>) -> Self {
        let share = thousandths(share);
        let burst = BURST_PACKETS;
        Self { share, shared, burst, tokens: i64::MAX, untold: 0, refusing: false, refusals: 0 }
    }

    /// The same with another burst, in packets.
    #[must_use]
    pub fn with_burst(self, packets: u32) -> Self {
        Self { burst: packets, ..self }
    }

    /// Bytes left for the first time.
    #[inline]
    pub(crate) fn on_first_transmission(&mut self, bytes: u64, packet: u16) {
        let burst = self.burst_of(packet);
        self.tokens = self.tokens.saturating_add(bytes as i64 * i64::from(self.share)).min(burst);
        if let Some(shared) = &self.shared {
            self.untold += bytes;
            if self.untold >= STEP {
                shared.fill(core::mem::take(&mut self.untold));
            }
        }
    }

    fn burst_of(&self, packet: u16) -> i64 {
        i64::from(self.burst) * i64::from(packet) * 1_000
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

    /// Replicas that leave while `first` packets are sent first, as many as the guards let go.
    fn replicas(guards: &mut [Guard], first: u32) -> u32 {
        let mut sent = 0;
        for _ in 0..first {
            for guard in &mut *guards {
                guard.on_first_transmission(PACKET.into(), PACKET);
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
        assert_eq!(replicas(&mut [Guard::new(0.0, None)], 1_000), 32);
        assert_eq!(replicas(&mut [Guard::new(0.0, None).with_burst(8)], 1_000), 8);
        assert_eq!(replicas(&mut [Guard::new(f64::NAN, None)], 10), 32);
    }

    #[test]
    fn idleness_saves_one_burst_only() {
        let mut guard = Guard::new(1.0, None);
        (0..1_000).for_each(|_| guard.on_first_transmission(PACKET.into(), PACKET));
        assert_eq!(guard.budget(), 38_400);
        assert_eq!(replicas(&mut [guard], 1), 32);
    }

    #[test]
    fn all_connections_together_stay_below_the_shared_bound() {
        let shared = Arc::new(SharedBudget::new(0.05, 20 * u64::from(PACKET)));
        let mut guards = vec![Guard::new(0.5, Some(shared)); 10];
        let sent = replicas(&mut guards, 1_000);
        assert!((500..=520).contains(&sent), "5 % of 10,000 and 20: {sent}");
        assert!(guards.iter().all(|guard| guard.refusals() > 0));
    }
}
