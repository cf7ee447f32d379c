//! The accept loop of the TCP fronts.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::io::{descriptors, reset};
use crate::limits::Fault;
use crate::state::Shared;

/// Pause after a failed accept, usually for lack of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves `listener` until the end of the drain. `admit` returns the task that serves a
/// connection, or resets the connection and returns `None`. Log lines begin with `name`.
pub(super) async fn serve<T>(
    name: &str,
    listener: TcpListener,
    shared: &Shared,
    admit: impl Fn(TcpStream, SocketAddr) -> Option<T>,
) where
    T: Future<Output = ()> + Send + 'static,
{
    let mut connections = JoinSet::new();
    let mut drained = pin!(shared.drained());
    loop {
        let accepted = tokio::select! {
            () = &mut drained => break,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) if descriptors::is_reserved(&stream) => {
                reset(&stream);
                shared.limits().count(Fault::Accept);
                shared.limits().make_room();
            }
            Ok((stream, peer)) => {
                if let Some(connection) = admit(stream, peer) {
                    connections.spawn(connection);
                }
            }
            // The peer aborted while in the accept queue.
            Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
            Err(e) => {
                // Usually out of descriptors: an immediate retry would spin.
                tracing::debug!("{name} accept: {e}");
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
        let open = connections.len();
        tracing::warn!("{open} {name} connections closed by the drain timeout of {limit:?}");
    }
}
