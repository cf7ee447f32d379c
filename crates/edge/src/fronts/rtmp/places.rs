//! Places of an RTMP connection: as a connection, as a newcomer until it publishes or plays, and as
//! a player. So neither silent connections nor players can take the places that publishers need.

use std::future::pending;
use std::net::SocketAddr;

use crate::bans::Refused;
use crate::config::{Config, any_contains};
use crate::limits::{Permit, Place, ProcessLimits};
use crate::state::Shared;

/// The places of a connection.
pub(super) struct Places {
    connection: Permit,
    /// Until it publishes or plays.
    pub(super) newcomer: Option<Permit>,
    /// Set for players.
    pub(super) player: Option<Permit>,
}

impl Places {
    /// Admits a connection, if places are free.
    pub(super) fn admit(shared: &Shared, peer: SocketAddr) -> Option<Self> {
        let state = shared.state();
        let config = &state.config;
        // Behind a balancer the client is not known yet.
        let address = (!is_balancer(config, peer)).then(|| peer.ip());
        if address.is_some_and(|address| state.bans.refuse(Refused::Rtmp, address)) {
            return None;
        }
        let enter = |place| shared.limits().enter(place, config, address).ok();
        let connection = enter(Place::Rtmp)?;
        Some(Self { connection, newcomer: Some(enter(Place::RtmpNewcomer)?), player: None })
    }

    /// Assigns the places to the client's address. Returns false if that has reached its limit.
    pub(super) fn identify(&self, config: &Config, client: SocketAddr) -> bool {
        let is_let_in = |place: &Permit, kind| {
            ProcessLimits::identify(place, kind, config, client.ip()).is_ok()
        };
        is_let_in(&self.connection, Place::Rtmp)
            && self.newcomer.iter().all(|newcomer| is_let_in(newcomer, Place::RtmpNewcomer))
    }

    /// Waits for the eviction of the newcomer or player. Publishers are never evicted.
    pub(super) async fn evicted(&self) {
        match self.newcomer.as_ref().or(self.player.as_ref()) {
            Some(place) => place.evicted().await,
            None => pending().await,
        }
    }
}

/// Whether the peer is a load balancer. Its connections start with a PROXY header.
pub(super) fn is_balancer(config: &Config, peer: SocketAddr) -> bool {
    any_contains(config.rtmp.proxy_protocol.as_ref(), peer.ip())
}
