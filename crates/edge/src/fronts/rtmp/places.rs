//! What an RTMP connection holds of the places that there are: one as a connection, one as a newcomer until
//! it publishes or plays, one as a player. So neither those who say nothing nor players can take what
//! publishers need.

use std::future::pending;
use std::net::SocketAddr;

use crate::bans::Refused;
use crate::config::{Config, any_contains};
use crate::limits::{Limits, Permit, Place};
use crate::state::Shared;

/// What a connection holds.
pub(super) struct Places {
    connection: Permit,
    /// Until it publishes or plays.
    pub(super) newcomer: Option<Permit>,
    /// From then on, if it plays.
    pub(super) player: Option<Permit>,
}

impl Places {
    /// Takes a connection in, if there is a place for it.
    pub(super) fn admit(shared: &Shared, peer: SocketAddr) -> Option<Self> {
        let state = shared.state();
        let config = &state.config;
        // Where a balancer is the peer, the client is not known yet.
        let address = (!is_balancer(config, peer)).then(|| peer.ip());
        if address.is_some_and(|address| state.bans.refuse(Refused::Rtmp, address)) {
            return None;
        }
        let enter = |place| shared.limits().enter(place, config, address).ok();
        let connection = enter(Place::Rtmp)?;
        Some(Self { connection, newcomer: Some(enter(Place::RtmpNewcomer)?), player: None })
    }

    /// The client turns out to be at this address. Returns whether that has places left.
    pub(super) fn identify(&self, config: &Config, client: SocketAddr) -> bool {
        let is_let_in =
            |place: &Permit, kind| Limits::identify(place, kind, config, client.ip()).is_ok();
        is_let_in(&self.connection, Place::Rtmp)
            && self.newcomer.iter().all(|newcomer| is_let_in(newcomer, Place::RtmpNewcomer))
    }

    /// Returns when the newcomer's or the player's place is somebody else's; never for a publisher.
    pub(super) async fn evicted(&self) {
        match self.newcomer.as_ref().or(self.player.as_ref()) {
            Some(place) => place.evicted().await,
            None => pending().await,
        }
    }
}

/// Whether connections from there begin with a header that says who the client is.
pub(super) fn is_balancer(config: &Config, peer: SocketAddr) -> bool {
    any_contains(config.rtmp.proxy_protocol.as_ref(), peer.ip())
}
