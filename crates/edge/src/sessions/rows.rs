//! Limits the records of fleeting sessions by network. Otherwise a client that opens and cancels
//! streams in a loop would fill the disk, and `[records] max_size` would evict the records of
//! honest viewers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::sync::lock;

/// Duration below which a session without a player report is fleeting.
pub(super) const FLEETING: Duration = Duration::from_secs(2);
/// Burst of records of fleeting sessions per network (/24 or /48).
const BURST: f64 = 200.0;
/// Further records of fleeting sessions per second and network.
const PER_SECOND: f64 = 20.0;
/// Maximum networks with an allowance of their own. All others share one.
const MAX_NETWORKS: usize = 4_096;

/// The allowances of all networks, and the number of withheld records.
#[derive(Debug, Default)]
pub(super) struct RecordAllowances {
    allowances: Mutex<Allowances>,
    withheld: AtomicU64,
}

impl RecordAllowances {
    /// Returns true if a session without a report gets a record, by its address and age. Counts the
    /// others.
    pub(super) fn admit(&self, address: IpAddr, age: Duration) -> bool {
        let is_admitted = age >= FLEETING || lock(&self.allowances).admit(address, Instant::now());
        self.withheld.fetch_add(u64::from(!is_admitted), Ordering::Relaxed);
        is_admitted
    }

    /// Returns the number of sessions without a record.
    pub(super) fn withheld(&self) -> u64 {
        self.withheld.load(Ordering::Relaxed)
    }
}

/// Allowances by network.
#[derive(Debug, Default)]
struct Allowances {
    networks: HashMap<[u8; 6], RecordAllowance>,
    others: Option<RecordAllowance>,
}

#[derive(Clone, Copy, Debug)]
struct RecordAllowance {
    rows: f64,
    at: Instant,
}

impl RecordAllowance {
    fn new(now: Instant) -> Self {
        Self { rows: BURST, at: now }
    }

    fn now(&self, now: Instant) -> f64 {
        let earned = now.saturating_duration_since(self.at).as_secs_f64() * PER_SECOND;
        (self.rows + earned).min(BURST)
    }

    fn take(&mut self, now: Instant) -> bool {
        (self.rows, self.at) = (self.now(now), now);
        let has_one = self.rows >= 1.0;
        self.rows -= f64::from(u8::from(has_one));
        has_one
    }
}

impl Allowances {
    /// Returns true if a fleeting session of this address gets a record.
    fn admit(&mut self, address: IpAddr, now: Instant) -> bool {
        let network = network(address);
        if self.networks.len() >= MAX_NETWORKS && !self.networks.contains_key(&network) {
            // A full allowance equals a new one, so it can be dropped.
            self.networks.retain(|_, allowance| allowance.now(now) < BURST);
            if self.networks.len() >= MAX_NETWORKS {
                return self.others.get_or_insert_with(|| RecordAllowance::new(now)).take(now);
            }
        }
        self.networks.entry(network).or_insert_with(|| RecordAllowance::new(now)).take(now)
    }
}

/// Returns the /24 as `0:0:0:a:b:c`, or the /48.
fn network(address: IpAddr) -> [u8; 6] {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            [0, 0, 0, a, b, c]
        }
        IpAddr::V6(v6) => {
            let [a, b, c, d, e, f, ..] = v6.octets();
            [a, b, c, d, e, f]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_network_has_its_own_allowance() {
        let (mut rows, now) = (Allowances::default(), Instant::now());
        let mut admitted = |address: [u8; 4], after: u64| {
            let now = now + Duration::from_secs(after);
            (0..9_000).filter(|_| rows.admit(address.into(), now)).count()
        };
        assert_eq!(admitted([192, 0, 2, 1], 0), 200);
        assert_eq!(admitted([192, 0, 2, 99], 0), 0, "the same network");
        assert_eq!(admitted([192, 0, 3, 1], 0), 200);
        assert_eq!(admitted([192, 0, 2, 1], 1), 20);
        assert_eq!(admitted([192, 0, 2, 1], 3_600), 200);
    }

    #[test]
    fn networks_beyond_the_maximum_share_one_allowance() {
        let (mut rows, now) = (Allowances::default(), Instant::now());
        let mut admit = |n: u32, after: u64| {
            let [_, a, b, c] = n.to_be_bytes();
            rows.admit([a, b, c, 1].into(), now + Duration::from_secs(after))
        };
        let admitted = (0..20_000).filter(|n| admit(*n, 0)).count();
        assert_eq!(admitted, MAX_NETWORKS + BURST as usize);
        assert!(admit(50_000, 60), "full allowances are dropped");
        assert_eq!(rows.networks.len(), 1);
    }
}
