//! RTMP over TCP: accepts connections and identifies clients behind load balancers.

mod connection;
mod naming;
mod places;
mod roles;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::proxy;
use crate::bans::Refused;
use crate::limits::Fault;
use crate::state::Shared;
use connection::{Connection, End};
use places::{Places, is_balancer};

/// Pause after a failed accept, usually for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `listener` until the end of the drain. Connections beyond the limits are reset.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut drained = std::pin::pin!(shared.drained());
    loop {
        let accepted = tokio::select! {
            () = &mut drained => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) if crate::io::descriptors::is_reserved(&stream) => {
                crate::io::reset(&stream);
                shared.limits().count(Fault::Accept);
                shared.limits().make_room();
            }
            Ok((stream, peer)) => match Places::admit(&shared, peer) {
                Some(places) => drop(connections.spawn(run(shared.clone(), places, stream, peer))),
                None => crate::io::reset(&stream),
            },
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) => {
                // Usually out of descriptors: an immediate retry would spin.
                tracing::debug!("RTMP accept: {e}");
                shared.limits().count(Fault::Accept);
                shared.limits().make_room();
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    let limit = shared.state().config.drain.timeout;
    let finished = timeout(limit, async { while connections.join_next().await.is_some() {} }).await;
    if finished.is_err() {
        tracing::warn!(
            "{} RTMP connections closed by the drain timeout of {limit:?}",
            connections.len()
        );
    }
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
    let connection = Connection::new(shared.clone(), state.clone(), remote, places);
    match connection.run(stream).await {
        Ok(()) | Err(End::Evicted) => tracing::debug!("RTMP {remote}: closed"),
        Err(End::Late(fault, why)) => {
            shared.limits().count(fault);
            tracing::debug!("RTMP {remote}: {why}");
        }
        Err(End::Peer(why)) => {
            state.live.events.count("rtmp_error");
            tracing::info!("RTMP {remote}: {why}");
        }
    }
}
