//! Requests for streams that are neither live nor pulled: how fast clients may have such names looked
//! for at the hook and at upstreams.
//!
//! Each name costs its network a token, once for all requests that ask for it at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::time::Instant;

use super::Missing;
use crate::config::Network;
use crate::sync::lock;

/// Names that one network (/24 of IPv4, /48 of IPv6) may have looked for at once, and per second.
const OF_NETWORK: Rate = Rate { burst: 20.0, per_second: 10.0 };
/// The same of all networks.
const OF_ALL: Rate = Rate { burst: 400.0, per_second: 200.0 };
/// Networks with a bucket of their own, above which full buckets are dropped. At most about 800 buckets
/// can be less than full: [`OF_ALL`] bounds what is spent while a bucket fills up.
const MAX_BUCKETS: usize = 4_096;

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
    /// Names that are being looked for, by the requests that ask for them.
    names: HashMap<Arc<str>, usize>,
    refused: [(&'static str, u64); 2],
}

/// The names that clients have looked for.
#[derive(Clone, Debug)]
pub struct AskedNames(Arc<Mutex<Table>>);

/// A request for a name that is looked for. Others for the same name cost nothing until it is dropped.
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
            names: HashMap::new(),
            refused: [("name_network", 0), ("name_all", 0)],
        })))
    }
}

impl AskedNames {
    /// Has the name looked for, at the cost of this network; `None` for a trusted client, whose network
    /// has no limit of its own.
    ///
    /// # Errors
    /// The network, or all networks together, ask for unknown names too often.
    pub fn enter(&self, name: &str, network: Option<Network>) -> Result<AskedName, Missing> {
        let mut table = lock(&self.0);
        let name = match table.names.get_key_value(name) {
            Some((name, _)) => name.clone(),
            None => {
                table.spend(network, Instant::now())?;
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
    fn spend(&mut self, network: Option<Network>, now: Instant) -> Result<(), Missing> {
        self.all = self.all.filled(OF_ALL, now);
        let known = network.and_then(|network| self.networks.get(&network));
        let own = known.copied().map_or_else(
            || Bucket { level: OF_NETWORK.burst, at: now },
            |bucket| bucket.filled(OF_NETWORK, now),
        );
        if own.level < 1.0 {
            self.refused[0].1 += 1;
            return Err(Missing::Often);
        }
        // The last half is for networks that have not asked for a while.
        let is_fresh = own.level >= OF_NETWORK.burst;
        if self.all.level < if is_fresh { 1.0 } else { OF_ALL.burst / 2.0 } {
            self.refused[1].1 += 1;
            return Err(Missing::Full);
        }
        self.all.level -= 1.0;
        if let Some(network) = network {
            if self.networks.len() >= MAX_BUCKETS {
                let is_full =
                    |bucket: &Bucket| bucket.filled(OF_NETWORK, now).level >= OF_NETWORK.burst;
                self.networks.retain(|_, bucket| !is_full(bucket));
            }
            self.networks.insert(network, Bucket { level: own.level - 1.0, at: now });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;
    use std::time::Duration;

    use super::*;

    fn site(n: u32) -> Network {
        Network::of_site(Ipv6Addr::from(u128::from(n) << 80).into())
    }

    /// How many of these new names may be looked for.
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
        assert!(lock(&names.0).networks.len() <= MAX_BUCKETS);
    }
}
