//! Source ports that no client of ours should have.
//!
//! An attacker who can spoof a source address can have a server answer to a service that answers in turn, so
//! that both talk to each other, or the service's longer answers hit a third (RFC 9000, sections
//! 21.5 and 8). Clients' ports are ephemeral ones, mostly from 1024 up. A NAT may choose a port of the
//! list from 1024 up, with a chance below one in ten thousand; a client to whom that happens gets no
//! connection and comes again from another port, or over TCP.

/// Whether a datagram can have no answer: its port is 0, which nobody can be reached at.
pub fn is_unanswerable(port: u16) -> bool {
    port == 0
}

/// Whether the port belongs to a UDP service that answers whatever it gets, often with more. What
/// comes from there opens no connection and gets no answer without state; a connection that exists
/// may move there.
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
    fn few_ports_are_refused_and_almost_none_that_clients_get() {
        assert!(is_unanswerable(0) && !is_unanswerable(1));
        let refused =
            |ports: core::ops::RangeInclusive<u16>| ports.filter(|p| may_reflect(*p)).count();
        assert!(may_reflect(0) && may_reflect(53) && may_reflect(11211));
        assert!(!may_reflect(443) && !may_reflect(4433));
        assert!(refused(1_024..=65_535) < 12);
        // What Linux, Windows and macOS choose from (RFC 6335, section 6, and Linux' own range).
        assert_eq!(refused(49_152..=65_535), 0);
        assert!(refused(32_768..=60_999) <= 1);
    }
}
