//! Source ports that legitimate clients do not use.
//!
//! An attacker who spoofs source addresses can make the server reply to another UDP service. The
//! two may then answer each other endlessly, or the service may send larger responses to a victim
//! (RFC 9000, sections 8 and 21.5). Clients use ephemeral ports, mostly from 1024 up. The chance
//! that a NAT chooses a listed port is below 1 in 10,000; such a client has to retry from another
//! port or use TCP.

/// Returns true for port 0, which cannot receive a response.
pub fn is_unanswerable(port: u16) -> bool {
    port == 0
}

/// Returns true for ports of UDP services that answer any datagram, often with amplification.
///
/// Datagrams from these ports open no connection and get no stateless response. An existing
/// connection may migrate to them.
pub fn may_reflect(port: u16) -> bool {
    matches!(
        port,
        0 | 1 // tcpmux
        | 7 // echo
        | 11 // systat
        | 13 // daytime
        | 17 // quote of the day
        | 19 // character generator
        | 37 // time
        | 53 // DNS
        | 69 // TFTP
        | 111 // port mapper
        | 123 // NTP
        | 137 | 138 // NetBIOS
        | 161 | 162 // SNMP
        | 389 // CLDAP
        | 500 // IKE
        | 520 // RIP
        | 623 // IPMI
        | 1900 // SSDP
        | 3283 // Apple remote desktop
        | 3702 // WS-Discovery
        | 5353 // multicast DNS
        | 5355 // LLMNR
        | 5683 // CoAP
        | 10001 // device discovery
        | 11211 // memcached
        | 27960 // game servers' status
        | 37810 // video recorders' discovery
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_few_ports_are_blocked_and_hardly_any_ephemeral_ones() {
        assert!(is_unanswerable(0) && !is_unanswerable(1));
        let refused =
            |ports: core::ops::RangeInclusive<u16>| ports.filter(|p| may_reflect(*p)).count();
        assert!(may_reflect(0) && may_reflect(53) && may_reflect(11211));
        assert!(!may_reflect(443) && !may_reflect(4433));
        assert!(refused(1_024..=65_535) < 12);
        // Ephemeral ranges of Windows and macOS (RFC 6335, section 6), then of Linux.
        assert_eq!(refused(49_152..=65_535), 0);
        assert!(refused(32_768..=60_999) <= 1);
    }
}
