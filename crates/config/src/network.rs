//! Networks: an address and a prefix length (CIDR, RFC 4632, section 3.1; RFC 4291, section 2.3).

use core::fmt;
use std::net::IpAddr;

use toml::de::DeValue;

use super::value::{Value, quoted};

/// A network such as `10.0.0.0/8` or `2001:db8::/32`. An address alone is a network too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl Network {
    /// Returns the canonical network of this address with a prefix of `bits`, at most 32 or 128.
    /// Host bits are cleared, and IPv4-mapped networks become IPv4.
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

    /// Returns the smallest network of a subscriber: an IPv4 address, or a /64 of IPv6.
    pub fn of_subscriber(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self::around(address, if address.is_ipv4() { 32 } else { 64 })
    }

    /// Returns the network with cleared host bits.
    pub fn canonical(self) -> Self {
        Self::around(self.address, self.bits)
    }

    /// Returns the prefix length.
    pub fn bits(self) -> u8 {
        self.bits
    }

    /// Whether it is an IPv4 network.
    pub fn is_ipv4(self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether the network contains the address. An IPv4-mapped address (RFC 4291, section
    /// 2.5.5.2) counts as IPv4.
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

    /// Parses `ADDRESS` or `ADDRESS/BITS`.
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let max_bits = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            Some(bits) => bits.parse().ok().filter(|bits| *bits <= max_bits)?,
            None => max_bits,
        };
        Some(Self { address, bits })
    }
}

/// Whether any of the networks contains the address.
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
    fn contains_addresses_with_its_prefix() {
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
    fn has_a_canonical_form() {
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
    fn rejects_invalid_networks() {
        for text in ["", "10.0.0.0/33", "::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "a/8"] {
            assert_eq!(Network::parse(text), None, "{text}");
        }
    }
}
