//! Networks with a costly ECN fault. The next connection from such a network starts unmarked. Only
//! validated addresses make entries, so an attacker can switch ECN off for its own network at most.

use core::time::Duration;
use std::collections::VecDeque;
use std::net::IpAddr;
use units::Timestamp;

/// Maximum number of networks. The oldest entry leaves. A look-up reads all of them.
const CAPACITY: usize = 1_024;
/// Lifetime of an entry. Later connections test the network again.
const LIFETIME: Duration = Duration::from_secs(3_600);
/// Prefix length of a network, in bits: IPv4, and IPv6 (a site's usual prefix).
const V4_BITS: u32 = 24;
const V6_BITS: u32 = 48;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NetworkKey {
    V4(u32),
    V6(u128),
}

impl NetworkKey {
    fn of(ip: IpAddr) -> Self {
        match ip.to_canonical() {
            IpAddr::V4(ip) => Self::V4(u32::from(ip) >> (32 - V4_BITS)),
            IpAddr::V6(ip) => Self::V6(u128::from(ip) >> (128 - V6_BITS)),
        }
    }
}

/// The table, the oldest entry first.
#[derive(Debug, Default)]
pub(crate) struct Networks(VecDeque<(NetworkKey, Timestamp)>);

impl Networks {
    /// Adds the network of `ip`, or renews its entry.
    pub(crate) fn remember(&mut self, now: Timestamp, ip: IpAddr) {
        let network = NetworkKey::of(ip);
        self.0.retain(|&(known, since)| known != network && now.since(since) < LIFETIME);
        if self.0.len() == CAPACITY {
            self.0.pop_front();
        }
        self.0.push_back((network, now));
    }

    /// Returns true if the network of `ip` has an entry.
    pub(crate) fn has_failed(&self, now: Timestamp, ip: IpAddr) -> bool {
        let network = NetworkKey::of(ip);
        self.0.iter().any(|&(known, since)| known == network && now.since(since) < LIFETIME)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_network_is_remembered_for_an_hour_and_its_neighbours_are_not() {
        let mut networks = Networks::default();
        let now = Timestamp::from_secs(10);
        networks.remember(now, ip("192.0.2.7"));
        networks.remember(now, ip("2001:db8:5:1::1"));
        for (address, failed) in [
            ("192.0.2.250", true),
            ("::ffff:192.0.2.1", true),
            ("192.0.3.7", false),
            ("2001:db8:5:ffff::9", true),
            ("2001:db8:6::1", false),
        ] {
            assert_eq!(networks.has_failed(now, ip(address)), failed, "{address}");
        }
        assert!(networks.has_failed(now + LIFETIME - Duration::from_secs(1), ip("192.0.2.7")));
        assert!(!networks.has_failed(now + LIFETIME, ip("192.0.2.7")));
    }

    #[test]
    fn the_table_is_bounded_and_the_oldest_network_leaves() {
        let mut networks = Networks::default();
        let nth = |n: u32| IpAddr::from((0x0a00_0000 + (n << 8)).to_be_bytes());
        let now = Timestamp::from_secs(10);
        (0..CAPACITY as u32).for_each(|n| networks.remember(now, nth(n)));
        // Told again it is the newest, and takes no second place.
        networks.remember(now, nth(0));
        assert!((0..CAPACITY as u32).all(|n| networks.has_failed(now, nth(n))));
        networks.remember(now, nth(CAPACITY as u32));
        assert_eq!(networks.0.len(), CAPACITY);
        assert!(networks.has_failed(now, nth(0)) && !networks.has_failed(now, nth(1)));
    }
}
