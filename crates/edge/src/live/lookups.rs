//! Rate limits for look-ups of unknown stream names at the hook and at upstreams.
//!
//! Each name costs its network a token, once for all simultaneous requests. Half of the tokens are
//! reserved for clients without recent look-ups: half of a network's bucket for its other
//! addresses, half of the total bucket for other networks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::Missing;
use crate::config::Network;
use crate::limits::Origin;
use crate::sync::lock;

/// Look-up rate of one network (/24 of IPv4, /48 of IPv6).
const NETWORK_RATE: BucketRate = BucketRate { burst: 40.0, per_second: 10.0 };
/// Look-up rate of all networks together.
const TOTAL_RATE: BucketRate = BucketRate { burst: 400.0, per_second: 200.0 };
/// Time after a look-up before an address may use the reserved half of its network again.
const RECENT_LOOKUP: Duration = Duration::from_secs(2);
/// Table size at which full buckets and old addresses are dropped. [`TOTAL_RATE`] bounds recent
/// entries to about 1,200 networks and 800 addresses.
const MAX_ENTRIES: usize = 4_096;

/// Capacity and refill rate of a bucket, in tokens.
#[derive(Clone, Copy, Debug)]
struct BucketRate {
    burst: f64,
    per_second: f64,
}

/// A token bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    level: f64,
    at: Instant,
}

impl Bucket {
    fn full(rate: BucketRate) -> Self {
        Self { level: rate.burst, at: Instant::now() }
    }

    fn filled(self, rate: BucketRate, now: Instant) -> Self {
        let gain = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second;
        Self { level: (self.level + gain).min(rate.burst), at: now }
    }
}

#[derive(Debug)]
struct LookupTable {
    all: Bucket,
    networks: HashMap<Network, Bucket>,
    /// Time of each address's last look-up.
    addresses: HashMap<Network, Instant>,
    /// Pending requests by name.
    names: HashMap<Arc<str>, usize>,
    rejected: [(&'static str, u64); 2],
}

/// Pending look-ups and their rate limits.
#[derive(Clone, Debug)]
pub struct NameLookups(Arc<Mutex<LookupTable>>);

/// A pending request. Further requests for the same name are free until it is dropped.
#[derive(Debug)]
pub struct NameLookup {
    names: NameLookups,
    name: Arc<str>,
}

impl Default for NameLookups {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(LookupTable {
            all: Bucket::full(TOTAL_RATE),
            networks: HashMap::new(),
            addresses: HashMap::new(),
            names: HashMap::new(),
            rejected: [("name_network", 0), ("name_all", 0)],
        })))
    }
}

impl NameLookups {
    /// Begins or joins the look-up of `name`. A `client` of `None` is trusted: only the total rate
    /// applies to it.
    ///
    /// # Errors
    /// The rate of the address, its network or all networks is exceeded.
    pub(crate) fn enter(&self, name: &str, client: Option<Origin>) -> Result<NameLookup, Missing> {
        let mut table = lock(&self.0);
        let name = match table.names.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => {
                table.spend(client, Instant::now())?;
                name.into()
            }
        };
        *table.names.entry(name.clone()).or_default() += 1;
        Ok(NameLookup { names: self.clone(), name })
    }

    /// Returns the rejected requests, by reason.
    pub fn rejected(&self) -> [(&'static str, u64); 2] {
        lock(&self.0).rejected
    }
}

impl Drop for NameLookup {
    fn drop(&mut self) {
        let mut table = lock(&self.names.0);
        if let Some(count) = table.names.get_mut(&self.name) {
            *count -= 1;
            if *count == 0 {
                table.names.remove(&self.name);
            }
        }
    }
}

impl LookupTable {
    fn spend(&mut self, client: Option<Origin>, now: Instant) -> Result<(), Missing> {
        self.all = self.all.filled(TOTAL_RATE, now);
        let Some(Origin { address, network }) = client else { return self.spend_total(true) };
        let own = self.networks.get(&network).copied();
        let own = own.map_or(Bucket { level: NETWORK_RATE.burst, at: now }, |bucket| {
            bucket.filled(NETWORK_RATE, now)
        });
        if own.level < needed(NETWORK_RATE, !self.is_recent(address, now)) {
            self.rejected[0].1 += 1;
            return Err(Missing::RateLimited);
        }
        self.spend_total(own.level >= NETWORK_RATE.burst)?;
        if self.networks.len() >= MAX_ENTRIES {
            let is_full =
                |bucket: &Bucket| bucket.filled(NETWORK_RATE, now).level >= NETWORK_RATE.burst;
            self.networks.retain(|_, bucket| !is_full(bucket));
        }
        self.networks.insert(network, Bucket { level: own.level - 1.0, at: now });
        if self.addresses.len() >= MAX_ENTRIES {
            self.addresses.retain(|_, last| now.saturating_duration_since(*last) < RECENT_LOOKUP);
        }
        self.addresses.insert(address, now);
        Ok(())
    }

    fn is_recent(&self, address: Network, now: Instant) -> bool {
        let last = self.addresses.get(&address);
        last.is_some_and(|last| now.saturating_duration_since(*last) < RECENT_LOOKUP)
    }

    fn spend_total(&mut self, may_use_reserve: bool) -> Result<(), Missing> {
        if self.all.level < needed(TOTAL_RATE, may_use_reserve) {
            self.rejected[1].1 += 1;
            return Err(Missing::Full);
        }
        self.all.level -= 1.0;
        Ok(())
    }
}

/// Returns the minimum level at which a client may take a token.
fn needed(rate: BucketRate, may_use_reserve: bool) -> f64 {
    if may_use_reserve { 1.0 } else { rate.burst / 2.0 + 1.0 }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// Returns an address of network `n`.
    fn client(n: u32, address: u32) -> Origin {
        Origin::of(Ipv6Addr::from(u128::from(n) << 80 | u128::from(address) << 72).into())
    }

    fn site(n: u32) -> Origin {
        client(n, 0)
    }

    /// Looks up `count` new names from one address of the network. Returns how many were accepted.
    fn try_names(names: &NameLookups, from: u32, count: usize) -> usize {
        (0..count).filter(|n| names.enter(&format!("{from}/{n}"), Some(site(from))).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_may_look_up_a_burst_and_then_a_rate() {
        let names = NameLookups::default();
        assert_eq!(try_names(&names, 1, 500), 20);
        let error = names.enter("a", Some(site(1))).expect_err("too often");
        assert_eq!(error, Missing::RateLimited);
        assert_eq!(try_names(&names, 2, 5), 5, "another network");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(try_names(&names, 1, 500), 10);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(try_names(&names, 1, 500), 20);
        assert_eq!(names.rejected(), [("name_network", 480 + 1 + 490 + 480), ("name_all", 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_for_one_name_cost_one_token() {
        let names = NameLookups::default();
        let ask = || names.enter("live/popular", Some(site(1)));
        let held: Vec<_> = (0..500).map(|_| ask().expect("free")).collect();
        assert_eq!(try_names(&names, 1, 500), 19);
        assert!(ask().is_ok(), "joining needs no token");
        drop(held);
        assert_eq!(ask().expect_err("a new look-up"), Missing::RateLimited);
        assert!(lock(&names.0).names.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_leaves_half_of_the_tokens_to_its_neighbours() {
        let names = NameLookups::default();
        for second in 0..60_u32 {
            let flood = try_names(&names, 1, 500);
            assert!(flood <= if second == 0 { 20 } else { 10 }, "{flood} in second {second}");
            let neighbour = names.enter("a", Some(client(1, 1 + second % 4)));
            assert!(neighbour.is_ok(), "{second}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_busy_networks_leave_tokens_for_a_quiet_one() {
        let names = NameLookups::default();
        let asked: usize = (0..100).map(|network| try_names(&names, network, 20)).sum();
        assert!(asked <= 400, "{asked}");
        let accepted = (0..20_u32).filter(|second| {
            let mut flood = 0;
            for _ in 0..100 {
                (0..100).for_each(|network| flood += try_names(&names, network, 1));
            }
            assert!(flood <= 400, "{flood}");
            try_names(&names, 1_000 + second, 1) == 1
        });
        assert!(accepted.count() >= 19);
    }

    #[tokio::test(start_paused = true)]
    async fn tables_stay_bounded_with_a_hundred_thousand_networks() {
        let names = NameLookups::default();
        for network in 0..100_000 {
            try_names(&names, network, 1);
            if network % 10 == 0 {
                tokio::time::advance(Duration::from_millis(60)).await;
            }
        }
        assert!(lock(&names.0).networks.len() <= MAX_ENTRIES);
        assert!(lock(&names.0).addresses.len() <= MAX_ENTRIES);
    }
}
