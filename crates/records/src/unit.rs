//! Units of assignment in experiments, and their deterministic assignment to cohorts, shared by the
//! server and the testbed.

use core::fmt;
use std::net::IpAddr;

use aws_lc_rs::hmac;

/// Unit of assignment: a viewer, or a network for viewers without a token.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unit(pub u64);

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Unit {
    /// Returns the unit for viewers without a token: their network.
    pub fn of_network(address: IpAddr) -> Self {
        Self(hash(b"mendcast network", prefix(address).as_bytes()))
    }

    /// Returns unit number `n` of the units drawn from `seed`.
    pub fn numbered(seed: u64, n: u64) -> Self {
        Self(hash(&seed.to_be_bytes(), &n.to_be_bytes()))
    }

    /// Returns the index of this unit's cohort, with probabilities proportional to `weights`. The
    /// result is constant for one `salt` and independent for another. 0 if all weights are 0.
    pub fn cohort(self, salt: &str, weights: impl IntoIterator<Item = u32> + Clone) -> usize {
        let total: u64 = weights.clone().into_iter().map(u64::from).sum();
        let hash = hash(salt.as_bytes(), &self.0.to_be_bytes());
        // Uniform in 0..total, without modulo bias.
        let mut point = ((u128::from(hash) * u128::from(total)) >> 64) as u64;
        for (index, weight) in weights.into_iter().map(u64::from).enumerate() {
            if point < weight {
                return index;
            }
            point -= weight;
        }
        0
    }
}

/// Returns the network of an address: its first 24 (IPv4) or 48 bits (IPv6), which do not identify
/// a person.
pub fn prefix(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            format!("{a}.{b}.{c}.0/24")
        }
        IpAddr::V6(v6) => {
            let [a, b, c, ..] = v6.segments();
            format!("{}/48", std::net::Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0))
        }
    }
}

/// HMAC-SHA256, truncated to 64 bits.
fn hash(key: &[u8], data: &[u8]) -> u64 {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
    tag.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_assigned_by_weight_and_stay() {
        let units = (0..10_000).map(|n| Unit::numbered(1, n));
        let second = units.filter(|unit| unit.cohort("salt", [30, 10]) == 1).count();
        assert!((2_350..2_650).contains(&second), "{second}");
        let unit = Unit(7);
        assert_eq!(unit.cohort("a", [1, 1]), unit.cohort("a", [1, 1]));
        assert_eq!(unit.cohort("a", [0, 0]), 0);
    }
}
