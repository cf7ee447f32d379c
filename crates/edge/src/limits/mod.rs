//! Limits per address and in total, with counters of rejected clients.
//!
//! Counters survive reloads; limits come from the current configuration.
//! docs/operate/limits-table.md lists them.

mod gate;
pub(crate) mod machine;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::{Config, any_contains};
use gate::Gate;
pub(crate) use gate::{Bounds, Full, GateCounts, Origin, Permit};

/// One in this many QUIC connections is reserved for handshakes with unvalidated addresses.
const HANDSHAKE_SHARE: u32 = 16;

/// A limited resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// An HTTP/1.1 or HTTP/2 connection.
    Tcp,
    /// A TLS handshake in progress.
    Handshake,
    /// An RTMP connection.
    Rtmp,
    /// An RTMP connection before `publish` or `play`.
    RtmpNewcomer,
    /// An RTMP player.
    RtmpPlayer,
    /// A QUIC connection with a validated address.
    Quic,
    /// A viewer's session, over any protocol.
    Session,
    /// An HLS session, which needs no connection of its own.
    HlsSession,
}

impl Place {
    /// All places, in order of declaration.
    pub(crate) const ALL: [Self; 8] = [
        Self::Tcp,
        Self::Handshake,
        Self::Rtmp,
        Self::RtmpNewcomer,
        Self::RtmpPlayer,
        Self::Quic,
        Self::Session,
        Self::HlsSession,
    ];

    /// Returns the name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Handshake => "tls_handshake",
            Self::Rtmp => "rtmp",
            Self::RtmpNewcomer => "rtmp_newcomer",
            Self::RtmpPlayer => "rtmp_player",
            Self::Quic => "quic",
            Self::Session => "session",
            Self::HlsSession => "hls_session",
        }
    }

    /// Returns the reasons in metrics: all places taken, address limit reached, evicted.
    const fn reasons(self) -> [&'static str; 3] {
        match self {
            Self::Tcp => ["tcp_full", "tcp_address", "tcp_evicted"],
            Self::Handshake => {
                ["tls_handshake_full", "tls_handshake_address", "tls_handshake_evicted"]
            }
            Self::Rtmp => ["rtmp_full", "rtmp_address", "rtmp_evicted"],
            Self::RtmpNewcomer => {
                ["rtmp_newcomer_full", "rtmp_newcomer_address", "rtmp_newcomer_evicted"]
            }
            Self::RtmpPlayer => ["rtmp_player_full", "rtmp_player_address", "rtmp_player_evicted"],
            Self::Quic => ["quic_full", "quic_address", "quic_evicted"],
            Self::Session => ["session_full", "session_address", "session_evicted"],
            Self::HlsSession => ["hls_session_full", "hls_session_address", "hls_session_evicted"],
        }
    }

    /// Whether holders report when they are idle. The others have other deadlines.
    pub(super) const fn has_idle(self) -> bool {
        matches!(self, Self::Tcp | Self::Handshake | Self::RtmpNewcomer | Self::HlsSession)
    }

    fn bounds(self, config: &Config) -> Bounds {
        let Config { tcp, rtmp, quic, limits, .. } = config;
        let rtmp_of_one = rtmp.max_connections_per_address;
        // At least one place.
        let part = |of: u32, parts: u32| (of / parts).max(1);
        let newcomers = part(rtmp.max_connections, 4);
        // Half, but enough for the encoders of a studio.
        let newcomers_of_one = rtmp_of_one.min(part(newcomers, 2).max(4)).min(newcomers);
        let (all, per_address) = match self {
            Self::Tcp => (tcp.max_connections, tcp.max_connections_per_address),
            Self::Handshake => (tcp.max_handshakes, tcp.max_handshakes_per_address),
            Self::Rtmp => (rtmp.max_connections, rtmp_of_one),
            Self::RtmpNewcomer => (newcomers, newcomers_of_one),
            Self::RtmpPlayer => (part(rtmp.max_connections, 2), rtmp_of_one),
            // The rest is for handshakes.
            Self::Quic => (
                quic.max_connections - quic.max_connections / HANDSHAKE_SHARE,
                quic.max_connections_per_address,
            ),
            // One per viewer connection: a single HTTP connection can carry many requests.
            Self::Session => {
                let connections = quic.max_connections.saturating_add(tcp.max_connections);
                let players = part(rtmp.max_connections, 2);
                (connections.saturating_add(players), limits.max_sessions_per_address)
            }
            Self::HlsSession => (quic.max_connections, limits.max_hls_sessions_per_address),
        };
        // Publishers are never evicted.
        let evicts_busy = !matches!(self, Self::Rtmp);
        Bounds { all, per_address, evicts_busy }
    }
}

/// Reason for closing an admitted connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A load balancer's connection without a valid PROXY protocol header.
    ProxyHeader,
    /// TLS handshake timeout.
    TlsTimeout,
    /// No request on a new connection.
    NoRequest,
    /// RTMP handshake timeout.
    RtmpHandshake,
    /// No `publish` or `play` in time.
    RtmpRequest,
    /// A silent RTMP peer, or a player that stopped reading.
    RtmpSilent,
    /// `accept` failed, usually for lack of file descriptors.
    Accept,
    /// HTTP/3 requests cancelled at an abusive rate.
    QuicCancels,
    /// HTTP/2 requests cancelled at an abusive rate.
    Http2Cancels,
}

impl Fault {
    const ALL: [Self; 9] = [
        Self::ProxyHeader,
        Self::TlsTimeout,
        Self::NoRequest,
        Self::RtmpHandshake,
        Self::RtmpRequest,
        Self::RtmpSilent,
        Self::Accept,
        Self::QuicCancels,
        Self::Http2Cancels,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::ProxyHeader => "proxy_header",
            Self::TlsTimeout => "tls_handshake_timeout",
            Self::NoRequest => "tcp_no_request",
            Self::RtmpHandshake => "rtmp_handshake_timeout",
            Self::RtmpRequest => "rtmp_request_timeout",
            Self::RtmpSilent => "rtmp_silent",
            Self::Accept => "accept_failed",
            Self::QuicCancels => "quic_cancels",
            Self::Http2Cancels => "http2_cancels",
        }
    }
}

/// The limits of a process.
#[derive(Debug, Default)]
pub(crate) struct ProcessLimits {
    gates: [Arc<Gate>; Place::ALL.len()],
    faults: [AtomicU64; Fault::ALL.len()],
}

impl ProcessLimits {
    /// Admits a client at `address`, which is `None` while unknown.
    ///
    /// # Errors
    /// All places are taken and no holder can be evicted.
    pub(crate) fn enter(
        &self,
        place: Place,
        config: &Config,
        address: Option<IpAddr>,
    ) -> Result<Permit, Full> {
        let origin = address.and_then(|address| origin(config, address));
        let permit = self.gate(place).enter(origin, place.bounds(config))?;
        if !place.has_idle() {
            permit.busy();
        }
        Ok(permit)
    }

    /// Assigns a holder to `address`, which was unknown on entry.
    ///
    /// # Errors
    /// The address has reached its limit.
    pub(crate) fn identify(
        permit: &Permit,
        place: Place,
        config: &Config,
        address: IpAddr,
    ) -> Result<(), Full> {
        permit.is_from(origin(config, address), place.bounds(config))
    }

    /// Evicts the longest idle HTTP connection.
    pub(crate) fn make_room(&self) {
        self.gate(Place::Tcp).make_room();
    }

    /// Counts a closed connection.
    pub(crate) fn count(&self, fault: Fault) {
        self.faults[fault as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters of a place.
    pub(crate) fn counts(&self, place: Place) -> GateCounts {
        self.gate(place).counts()
    }

    /// Returns the number of rejected, evicted and closed connections by reason.
    pub(crate) fn losses(&self) -> Vec<(&'static str, u64)> {
        let gates = Place::ALL.into_iter().flat_map(|place| {
            let GateCounts { full, address, evicted, .. } = self.counts(place);
            place.reasons().into_iter().zip([full, address, evicted])
        });
        let faults = Fault::ALL
            .into_iter()
            .map(|fault| (fault.name(), self.faults[fault as usize].load(Ordering::Relaxed)));
        gates.chain(faults).collect()
    }

    fn gate(&self, place: Place) -> &Arc<Gate> {
        &self.gates[place as usize]
    }
}

/// Returns the origin for the limits per address; `None` for trusted addresses.
fn origin(config: &Config, address: IpAddr) -> Option<Origin> {
    let is_trusted = any_contains(config.limits.trusted.as_ref(), address);
    (!is_trusted).then(|| Origin::of(address))
}

/// Summarizes in one log line the drops since the last report.
#[derive(Debug, Default)]
pub(crate) struct LossReport(BTreeMap<&'static str, u64>);

impl LossReport {
    /// Returns the line, if anything was dropped.
    pub(crate) fn line(&mut self, limits: &ProcessLimits) -> Option<String> {
        let mut parts = Vec::new();
        for (reason, count) in limits.losses() {
            let before = self.0.insert(reason, count).unwrap_or(0);
            if count > before {
                parts.push(format!("{reason} {}", count - before));
            }
        }
        (!parts.is_empty()).then(|| format!("connections limited: {}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_of_names_follow_the_declarations() {
        for (index, place) in Place::ALL.into_iter().enumerate() {
            assert_eq!(place as usize, index);
            assert!(place.reasons().iter().all(|reason| reason.starts_with(place.name())));
        }
        for (index, fault) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, index);
        }
    }

    #[test]
    fn a_quarter_of_the_rtmp_places_is_left_to_publishers() {
        for all in [1, 2, 3, 4, 12, 1_000] {
            let mut config = Config::default();
            config.rtmp.max_connections = all;
            let of = |place: Place| place.bounds(&config).all;
            let others = of(Place::RtmpNewcomer) + of(Place::RtmpPlayer);
            assert!(of(Place::RtmpNewcomer) >= 1 && of(Place::RtmpPlayer) >= 1);
            assert!(all < 4 || others <= all - all / 4, "{all}: {others}");
            let of_one = Place::RtmpNewcomer.bounds(&config).per_address;
            assert!(of_one >= 1 && of_one <= of(Place::RtmpNewcomer), "{all}");
            assert!(all < 1_000 || of_one * 2 <= of(Place::RtmpNewcomer), "{all}");
        }
    }

    #[test]
    fn sessions_are_bounded_in_total_and_evict_from_the_largest_network() {
        let text = "[limits]\nmax_sessions_per_address = 50\n[quic]\nmax_connections = 30\n\
                    [tcp]\nmax_connections = 20\n[rtmp]\nmax_connections = 20";
        let config = Config::parse("edge.toml", text).expect("valid");
        let limits = ProcessLimits::default();
        let enter = |address: [u8; 4]| limits.enter(Place::Session, &config, Some(address.into()));
        let held: Vec<_> = (0..60).map(|n| enter([192, 0, 2, n / 30]).expect("free")).collect();
        let other = enter([198, 51, 100, 1]).expect("room is made");
        assert_eq!(held.iter().filter(|session| session.is_evicted()).count(), 1);
        let neighbour = enter([192, 0, 2, 9]).expect("an address with far more makes room");
        assert_eq!(enter([192, 0, 2, 0]).err(), Some(Full::All));
        assert!(!other.is_evicted() && !neighbour.is_evicted());
    }

    #[test]
    fn trusted_addresses_have_only_the_total_limit() {
        let text = "[limits]\ntrusted = \"10.0.0.0/8\"\n[tcp]\nmax_connections = 3\n\
                    max_connections_per_address = 1";
        let config = Config::parse("edge.toml", text).expect("valid");
        let limits = ProcessLimits::default();
        let enter = |address: [u8; 4]| limits.enter(Place::Tcp, &config, Some(address.into()));
        let held = [enter([10, 0, 0, 1]), enter([10, 0, 0, 1]), enter([192, 0, 2, 1])];
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(enter([192, 0, 2, 1]).err(), Some(Full::Address));
        assert_eq!(enter([10, 0, 0, 1]).err(), Some(Full::All));
    }

    #[test]
    fn losses_are_reported_once() {
        let (limits, mut report) = (ProcessLimits::default(), LossReport::default());
        assert_eq!(report.line(&limits), None);
        limits.count(Fault::NoRequest);
        limits.count(Fault::NoRequest);
        limits.count(Fault::ProxyHeader);
        let line = "connections limited: proxy_header 1, tcp_no_request 2";
        assert_eq!(report.line(&limits).as_deref(), Some(line));
        assert_eq!(report.line(&limits), None);
    }
}
