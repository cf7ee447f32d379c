//! RTMP over TCP: accepts connections and identifies clients behind load balancers.

mod connection;
mod naming;
mod places;
mod roles;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use super::{accept, proxy};
use crate::bans::Refused;
use crate::limits::Fault;
use crate::state::Shared;
use connection::{AbnormalEnd, RtmpConnection};
use places::{Places, is_balancer};

/// Serves `listener` until the end of the drain. Connections beyond the limits are reset.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let admit = |stream: TcpStream, peer| match Places::admit(&shared, peer) {
        Some(places) => Some(run(shared.clone(), places, stream, peer)),
        None => {
            crate::io::reset(&stream);
            None
        }
    };
    accept::serve("RTMP", listener, &shared, admit).await;
}

/// Serves one connection.
async fn run(shared: Arc<Shared>, places: Places, mut stream: TcpStream, peer: SocketAddr) {
    let state = shared.state();
    let mut remote = peer;
    if is_balancer(&state.config, peer) {
        let client = tokio::select! {
            client = proxy::client(&mut stream, peer) => client,
            () = places.evicted() => return crate::io::reset(&stream),
        };
        match client {
            Ok(client) => remote = client,
            Err(e) => {
                shared.limits().count(Fault::ProxyHeader);
                tracing::debug!("RTMP {peer}: {e}");
                return crate::io::reset(&stream);
            }
        }
        let is_banned = state.bans.refuse(Refused::Rtmp, remote.ip());
        if is_banned || !places.identify(&state.config, remote) {
            return crate::io::reset(&stream);
        }
    }
    let connection = RtmpConnection::new(shared.clone(), state.clone(), remote, places);
    match connection.run(stream).await {
        Ok(()) | Err(AbnormalEnd::Evicted) => tracing::debug!("RTMP {remote}: closed"),
        Err(AbnormalEnd::Late(fault, why)) => {
            shared.limits().count(fault);
            tracing::debug!("RTMP {remote}: {why}");
        }
        Err(AbnormalEnd::Peer(why)) => {
            state.live.events.count("rtmp_error");
            tracing::info!("RTMP {remote}: {why}");
        }
    }
}
