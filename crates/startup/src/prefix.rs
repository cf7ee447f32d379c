//! Network of a client: /24 of an IPv4 address, /48 of an IPv6 address.

use core::net::IpAddr;

/// A network: the first 24 bits of an IPv4 address or the first 48 of an IPv6 address. IPv4-mapped
/// addresses (`::ffff:192.0.2.1`) count as IPv4.
///
/// ```
/// use mendcast_startup::Prefix;
///
/// let of = |address: &str| Prefix::of(address.parse().unwrap());
/// assert_eq!(of("192.0.2.1"), of("192.0.2.254"));
/// assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    is_v6: bool,
    bytes: [u8; 6],
}

impl Prefix {
    /// Returns the network of an address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => {
                let [a, b, c, _] = v4.octets();
                Self { is_v6: false, bytes: [a, b, c, 0, 0, 0] }
            }
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, ..] = v6.octets();
                Self { is_v6: true, bytes: [a, b, c, d, e, f] }
            }
        }
    }

    pub(crate) fn from_bytes(is_v6: bool, bytes: [u8; 6]) -> Self {
        Self { is_v6, bytes }
    }

    pub(crate) fn is_v6(self) -> bool {
        self.is_v6
    }

    pub(crate) fn bytes(self) -> [u8; 6] {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_is_24_bits_of_ipv4_and_48_of_ipv6() {
        let of = |text: &str| Prefix::of(text.parse().expect("an address"));
        assert_eq!(of("192.0.2.1"), of("192.0.2.254"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.9"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:ffff::2"));
        assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
        assert_ne!(of("32.1.13.0"), of("2001:d00::"), "different families");
    }
}
