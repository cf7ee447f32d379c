//! Networks as the configuration names them: an address, and how many of its first bits count (CIDR,
//! RFC 4632, section 3.1; RFC 4291, section 2.3).

use core::fmt;
use std::net::IpAddr;

use toml::de::DeValue;

use super::value::{Value, quoted};

/// A network such as `10.0.0.0/8` or `2001:db8::/32`; an address alone is one of its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// The network of this address with so many bits, at most 32 or 128, in the one form that it has: without what
    /// follows these bits, and as IPv4 if it is a part of that in IPv6's form.
    pub fn around(address: IpAddr, bits: u8) -> Self {
        let (address, bits) = match (address.to_canonical(), address) {
            (IpAddr::V4(v4), IpAddr::V6(_)) if bits >= 96 => (IpAddr::V4(v4), bits - 96),
            _ => (address, bits),
        };
        let width = u32::from(bits);
        let address = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32_u32.saturating_sub(width)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128_u32.saturating_sub(width)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
        };
        Self { address, bits }
    }

    /// What one subscriber has at least: an IPv4 address, or a /64 of IPv6.
    pub fn of_subscriber(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::around(address, if address.is_ipv4() { 32 } else { 64 })
    }

    /// The same network in its one form.
    pub fn canonical(self) -> Self {
        Self::around(self.address, self.bits)
    }

    /// How many of the first bits count.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether it is one of IPv4.
    pub fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether the address is one of the network's. An IPv4 address in IPv6's form (RFC 4291,
    /// section 2.5.5.2) is the IPv4 address.
    pub fn contains(self, address: IpAddr) -> bool {
        let bits = u32::from(self.bits);
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(32 - bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).checked_shr(128 - bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }

    /// Reads `ADDRESS` or `ADDRESS/BITS`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= most)?,
            None => most,
        };
        Some(Self { address, bits })
    }
}

/// Whether one of these networks has the address; none has it if none is named.
pub fn any_contains(networks: Option<&Vec<Network>>, address: IpAddr) -> bool {
    networks.into_iter().flatten().any(|network| network.contains(address))
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl Value for Network {
    fn expected() -> String {
        r#"a network such as "10.0.0.0/8" or "2001:db8::/32""#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        Self::parse(value.as_str()?)
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_has_the_addresses_that_begin_as_it_does() {
        for (network, address, expected) in [
            ("10.0.0.0/8", "10.255.0.1", true),
            ("10.0.0.0/8", "::ffff:10.1.2.3", true),
            ("10.0.0.0/8", "11.0.0.1", false),
            ("10.1.2.3/8", "10.9.9.9", true),
            ("192.0.2.7", "192.0.2.7", true),
            ("192.0.2.7", "192.0.2.6", false),
            ("0.0.0.0/0", "203.0.113.1", true),
            ("0.0.0.0/0", "2001:db8::1", false),
            ("2001:db8::/32", "2001:db8:ffff::1", true),
            ("2001:db8::/32", "2001:db9::1", false),
            ("::/0", "2001:db8::1", true),
            ("::1", "::1", true),
        ] {
            let parsed = Network::parse(network).expect(network);
            let address: IpAddr = address.parse().expect(address);
            assert_eq!(parsed.contains(address), expected, "{network} {address}");
        }
    }

    #[test]
    fn a_network_has_one_form() {
        for (network, form) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("::ffff:10.1.2.3/120", "10.1.2.0/24"),
            ("::ffff:10.1.2.3/64", "::/64"),
            ("2001:db8::7/32", "2001:db8::/32"),
            ("2001:db8::7", "2001:db8::7/128"),
            ("2001:db8::7/0", "::/0"),
        ] {
            let parsed = Network::parse(network).expect(network);
            assert_eq!(parsed.canonical().to_string(), form, "{network}");
        }
        for (address, form) in [
            ("192.0.2.7", "192.0.2.7/32"),
            ("::ffff:192.0.2.7", "192.0.2.7/32"),
            ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ] {
            let address: IpAddr = address.parse().expect(address);
            assert_eq!(Network::of_subscriber(address).to_string(), form);
        }
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "a/8"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
