//! Who a record is of, as far as experiments are concerned: the unit that chance divides into cohorts, the network it
//! stands for until it has a number of its own, and the division itself. The server and the testbed divide alike.

use core::fmt;
use std::net::IpAddr;

use aws_lc_rs::hmac;

/// A viewer, as far as cohorts are concerned.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unit(pub u64);

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl Unit {
    /// The unit of a viewer who brings no token.
    pub fn of_network(address: IpAddr) -> Self {
        Self(hash(b"mendcast network", prefix(address).as_bytes()))
    }

    /// The unit with the number `n` of those that `seed` stands for.
    pub fn numbered(seed: u64, n: u64) -> Self {
        Self(hash(&seed.to_be_bytes(), &n.to_be_bytes()))
    }

    /// The place of this unit's cohort among cohorts with these weights: always the same for one `salt`, and divided
    /// anew by another. 0 if all weights are 0.
    pub fn cohort(self, salt: &str, weights: impl IntoIterator<Item = u32> + Clone) -> usize {
        let total: u64 = weights.clone().into_iter().map(u64::from).sum();
        let hash = hash(salt.as_bytes(), &self.0.to_be_bytes());
        // From 0 to the sum of weights, without the bias of a remainder.
        let mut point = ((u128::from(hash) * u128::from(total)) >> 64) as u64;
        for (place, weight) in weights.into_iter().map(u64::from).enumerate() {
            if point < weight {
                return place;
            }
            point -= weight;
        }
        0
    }
}

/// The network of an address: its first 24 or 48 bits, which say where somebody is and not who.
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

/// A keyed hash.
fn hash(key: &[u8], data: &[u8]) -> u64 {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data);
    tag.as_ref().iter().take(8).fold(0, |hash, byte| hash << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_divided_by_weight_and_stay() {
        let units = (0..10_000).map(|n| Unit::numbered(1, n));
        let second = units.filter(|unit| unit.cohort("salt", [30, 10]) == 1).count();
        assert!((2_350..2_650).contains(&second), "{second}");
        let unit = Unit(7);
        assert_eq!(unit.cohort("a", [1, 1]), unit.cohort("a", [1, 1]));
        assert_eq!(unit.cohort("a", [0, 0]), 0);
    }
}
