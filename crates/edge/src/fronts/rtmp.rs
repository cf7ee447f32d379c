//! RTMP over TCP, and over TLS (RTMPS): accepts connections and identifies clients behind load
//! balancers.

mod connection;
mod naming;
mod places;
mod roles;
mod transport;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};

use super::{Turns, accept, proxy};
use crate::bans::Refused;
use crate::limits::Fault;
use crate::state::Shared;
use connection::RtmpConnection;
use places::{Places, is_balancer};
use transport::{AbnormalEnd, secure};

/// Serves `listener` until the end of the drain, with TLS if there are `turns` for its handshakes.
/// Connections beyond the limits are reset.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>, turns: Option<Arc<Turns>>) {
    let name = if turns.is_some() { "RTMPS" } else { "RTMP" };
    let admit = |stream: TcpStream, peer| match Places::admit(&shared, peer) {
        Some(places) => Some(run(shared.clone(), turns.clone(), places, stream, peer)),
        None => {
            crate::io::reset(&stream);
            None
        }
    };
    accept::serve(name, listener, &shared, admit).await;
}

/// Serves one connection.
async fn run(
    shared: Arc<Shared>,
    turns: Option<Arc<Turns>>,
    places: Places,
    mut stream: TcpStream,
    peer: SocketAddr,
) {
    let state = shared.state();
    crate::io::prepare(&stream, state.config.rtmp.timeout);
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
    let connection = |places| RtmpConnection::new(shared.clone(), state.clone(), remote, places);
    let (name, ended) = match turns {
        None => ("RTMP", connection(places).run(stream).await),
        Some(turns) => match secure(&turns, &state, stream, &places).await {
            Ok(stream) => ("RTMPS", connection(places).run(stream).await),
            Err(why) => ("RTMPS", Err(why)),
        },
    };
    match ended {
        Ok(()) | Err(AbnormalEnd::Evicted) => tracing::debug!("{name} {remote}: closed"),
        Err(AbnormalEnd::Late(fault, why)) => {
            shared.limits().count(fault);
            tracing::debug!("{name} {remote}: {why}");
        }
        Err(AbnormalEnd::Peer(why)) => {
            state.live.events.count("rtmp_error");
            tracing::info!("{name} {remote}: {why}");
        }
    }
}
