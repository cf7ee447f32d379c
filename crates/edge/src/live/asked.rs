//! Rate limits for look-ups of unknown stream names at the hook and at upstreams.
//!
//! Each name costs its network a token, once for all simultaneous requests. Half of the tokens are
//! reserved for clients without recent look-ups: a network's half for its other addresses, the half of
//! all networks for other networks.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::Missing;
use crate::config::Network;
use crate::limits::Origin;
use crate::sync::lock;

/// Look-ups of one network (/24 of IPv4, /48 of IPv6).
const OF_NETWORK: Rate = Rate { burst: 40.0, per_second: 10.0 };
/// Look-ups of all networks.
const OF_ALL: Rate = Rate { burst: 400.0, per_second: 200.0 };
/// Time after a look-up during which an address may not use its network's reserved half.
const RECENT: Duration = Duration::from_secs(2);
/// Table size above which full buckets and old addresses are dropped. About 1,200 networks and 800
/// addresses can be recent, because [`OF_ALL`] bounds the look-ups.
const MAX_ENTRIES: usize = 4_096;

/// Tokens of a bucket.
#[derive(Clone, Copy, Debug)]
struct Rate {
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
    fn full(rate: Rate) -> Self {
        Self { level: rate.burst, at: Instant::now() }
    }

    fn filled(self, rate: Rate, now: Instant) -> Self {
        let gain = now.saturating_duration_since(self.at).as_secs_f64() * rate.per_second;
        Self { level: (self.level + gain).min(rate.burst), at: now }
    }
}

#[derive(Debug)]
struct Table {
    all: Bucket,
    networks: HashMap<Network, Bucket>,
    /// Time of each address's last look-up.
    addresses: HashMap<Network, Instant>,
    /// Names in look-up, with their number of requests.
    names: HashMap<Arc<str>, usize>,
    refused: [(&'static str, u64); 2],
}

/// The names in look-up, and the limits of further ones.
#[derive(Clone, Debug)]
pub struct AskedNames(Arc<Mutex<Table>>);

/// A request that waits for a look-up. Further requests for the same name cost nothing until it is dropped.
#[derive(Debug)]
pub struct AskedName {
    names: AskedNames,
    name: Arc<str>,
}

impl Default for AskedNames {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Table {
            all: Bucket::full(OF_ALL),
            networks: HashMap::new(),
            addresses: HashMap::new(),
            names: HashMap::new(),
            refused: [("name_network", 0), ("name_all", 0)],
        })))
    }
}

impl AskedNames {
    /// Begins or joins the look-up of a name for this client; `None` for a trusted client, which only the
    /// limit of all networks binds.
    ///
    /// # Errors
    /// The address, its network or all networks look names up too often.
    pub(crate) fn enter(&self, name: &str, client: Option<Origin>) -> Result<AskedName, Missing> {
        let mut table = lock(&self.0);
        let name = match table.names.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => {
                table.spend(client, Instant::now())?;
                name.into()
            }
        };
        *table.names.entry(name.clone()).or_default() += 1;
        Ok(AskedName { names: self.clone(), name })
    }

    /// Refused requests, by reason.
    pub fn refused(&self) -> [(&'static str, u64); 2] {
        lock(&self.0).refused
    }
}

impl Drop for AskedName {
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

impl Table {
    fn spend(&mut self, client: Option<Origin>, now: Instant) -> Result<(), Missing> {
        self.all = self.all.filled(OF_ALL, now);
        let Some(Origin { address, network }) = client else { return self.spend_of_all(true) };
        let own = self.networks.get(&network).copied();
        let own = own.map_or(Bucket { level: OF_NETWORK.burst, at: now }, |bucket| {
            bucket.filled(OF_NETWORK, now)
        });
        if own.level < needed(OF_NETWORK, !self.is_recent(address, now)) {
            self.refused[0].1 += 1;
            return Err(Missing::Often);
        }
        self.spend_of_all(own.level >= OF_NETWORK.burst)?;
        if self.networks.len() >= MAX_ENTRIES {
            let is_full =
                |bucket: &Bucket| bucket.filled(OF_NETWORK, now).level >= OF_NETWORK.burst;
            self.networks.retain(|_, bucket| !is_full(bucket));
        }
        self.networks.insert(network, Bucket { level: own.level - 1.0, at: now });
        if self.addresses.len() >= MAX_ENTRIES {
            self.addresses.retain(|_, last| now.saturating_duration_since(*last) < RECENT);
        }
        self.addresses.insert(address, now);
        Ok(())
    }

    fn is_recent(&self, address: Network, now: Instant) -> bool {
        let last = self.addresses.get(&address);
        last.is_some_and(|last| now.saturating_duration_since(*last) < RECENT)
    }

    fn spend_of_all(&mut self, may_use_reserve: bool) -> Result<(), Missing> {
        if self.all.level < needed(OF_ALL, may_use_reserve) {
            self.refused[1].1 += 1;
            return Err(Missing::Full);
        }
        self.all.level -= 1.0;
        Ok(())
    }
}

/// The least level at which a client may take a token.
fn needed(rate: Rate, may_use_reserve: bool) -> f64 {
    if may_use_reserve { 1.0 } else { rate.burst / 2.0 + 1.0 }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    /// An address of the network `n`.
    fn client(n: u32, address: u32) -> Origin {
        Origin::of(Ipv6Addr::from(u128::from(n) << 80 | u128::from(address) << 72).into())
    }

    fn site(n: u32) -> Origin {
        client(n, 0)
    }

    /// The number of these new names that one address of the network may look up.
    fn try_names(names: &AskedNames, from: u32, count: usize) -> usize {
        (0..count).filter(|n| names.enter(&format!("{from}/{n}"), Some(site(from))).is_ok()).count()
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_has_a_burst_of_names_and_then_a_rate() {
        let names = AskedNames::default();
        assert_eq!(try_names(&names, 1, 500), 20);
        assert_eq!(names.enter("a", Some(site(1))).expect_err("too often"), Missing::Often);
        assert_eq!(try_names(&names, 2, 5), 5, "another network");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(try_names(&names, 1, 500), 10);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(try_names(&names, 1, 500), 20);
        assert_eq!(names.refused(), [("name_network", 480 + 1 + 490 + 480), ("name_all", 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_for_one_name_at_the_same_time_cost_one_token() {
        let names = AskedNames::default();
        let ask = || names.enter("live/popular", Some(site(1)));
        let held: Vec<_> = (0..500).map(|_| ask().expect("free")).collect();
        assert_eq!(try_names(&names, 1, 500), 19);
        assert!(ask().is_ok(), "also without tokens");
        drop(held);
        assert_eq!(ask().expect_err("it is looked for anew"), Missing::Often);
        assert!(lock(&names.0).names.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_leaves_half_of_the_tokens_to_its_neighbours() {
        let names = AskedNames::default();
        for second in 0..60_u32 {
            let flood = try_names(&names, 1, 500);
            assert!(flood <= if second == 0 { 20 } else { 10 }, "{flood} in second {second}");
            let neighbour = names.enter("a", Some(client(1, 1 + second % 4)));
            assert!(neighbour.is_ok(), "{second}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn many_networks_leave_room_for_one_that_asks_seldom() {
        let names = AskedNames::default();
        let asked: usize = (0..100).map(|network| try_names(&names, network, 20)).sum();
        assert!(asked <= 400, "{asked}");
        let let_in = (0..20_u32).filter(|second| {
            let mut flood = 0;
            for _ in 0..100 {
                (0..100).for_each(|network| flood += try_names(&names, network, 1));
            }
            assert!(flood <= 400, "{flood}");
            try_names(&names, 1_000 + second, 1) == 1
        });
        assert!(let_in.count() >= 19);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_thousand_networks_are_not_all_remembered() {
        let names = AskedNames::default();
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
