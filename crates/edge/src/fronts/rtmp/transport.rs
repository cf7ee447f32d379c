//! The connection below RTMP: TCP, or TLS on TCP (RTMPS).
//!
//! The handshake of TLS holds the places of a newcomer, like RTMP's own handshake after it. So
//! clients that stop during it take nothing from publishers, and their network competes with
//! others for the places of newcomers.

use std::io::{self, ErrorKind, IoSlice};
use std::sync::Arc;

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::places::Places;
use crate::fronts::handshakes::Turns;
use crate::limits::Fault;
use crate::state::State;

/// First byte of a plain RTMP connection: C0, the version (specification 1.0, section 5.2.2).
const PLAIN_RTMP: u8 = 3;

/// Reason for an abnormal end.
pub(super) enum AbnormalEnd {
    /// A protocol violation or network error.
    Peer(String),
    /// The peer missed a deadline.
    Late(Fault, String),
    /// The connection was evicted.
    Evicted,
}

/// A connection that carries RTMP.
pub(super) trait Transport: AsyncRead + AsyncWrite + Unpin {
    /// Whether written data may wait for a flush.
    const IS_BUFFERED: bool;

    /// Returns the TCP connection.
    fn tcp(&self) -> &TcpStream;
}

impl Transport for TcpStream {
    const IS_BUFFERED: bool = false;

    fn tcp(&self) -> &TcpStream {
        self
    }
}

impl Transport for TlsStream<TcpStream> {
    const IS_BUFFERED: bool = true;

    fn tcp(&self) -> &TcpStream {
        self.get_ref().0
    }
}

/// Performs the TLS handshake of a newcomer, with the certificate that its server name chooses.
///
/// # Errors
/// The handshake failed, took longer than `[rtmp] handshake_timeout`, or the newcomer was evicted.
pub(super) async fn secure(
    turns: &Turns,
    state: &State,
    stream: TcpStream,
    places: &Places,
) -> Result<TlsStream<TcpStream>, AbnormalEnd> {
    let limit = state.config.rtmp.handshake_timeout;
    let accepted = tokio::select! {
        accepted = timeout(limit, accept(turns, config(state), stream)) => accepted,
        () = places.evicted() => return Err(AbnormalEnd::Evicted),
    };
    accepted.unwrap_or_else(|_| {
        let why = format!("no TLS handshake within {limit:?}");
        Err(AbnormalEnd::Late(Fault::TlsTimeout, why))
    })
}

/// Returns the TLS configuration of RTMPS. Encoders negotiate no application protocol.
fn config(state: &State) -> Arc<ServerConfig> {
    let mut config = ServerConfig::clone(&state.tcp_tls);
    config.alpn_protocols.clear();
    Arc::new(config)
}

async fn accept(
    turns: &Turns,
    config: Arc<ServerConfig>,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, AbnormalEnd> {
    let mut first = [0];
    let peeked = stream.peek(&mut first).await;
    match peeked.map_err(|e| AbnormalEnd::Peer(e.to_string()))? {
        0 => return Err(AbnormalEnd::Peer("closed before the TLS handshake".into())),
        _ if first == [PLAIN_RTMP] => {
            let why = "plain RTMP on a port of RTMPS; expected a URL with rtmps://, or a port of \
                       [rtmp] listen";
            return Err(AbnormalEnd::Peer(why.into()));
        }
        _ => {}
    }
    let accepted = turns.accept(stream, config).await;
    accepted.map_err(|e| AbnormalEnd::Peer(format!("TLS handshake failed: {e}")))
}

/// Writes these parts, or without any flushes what TLS holds back. Returns the bytes written.
///
/// # Errors
/// The connection failed.
pub(super) async fn send<W: AsyncWrite + Unpin>(
    writer: &mut W,
    parts: &[IoSlice<'_>],
) -> Result<usize, AbnormalEnd> {
    let sent = match parts {
        [] => writer.flush().await.map(|()| 0),
        parts => writer.write_vectored(parts).await,
    };
    sent.map_err(|e| AbnormalEnd::Peer(e.to_string()))
}

/// Returns the number of bytes read. Many encoders close the connection without an alert of TLS;
/// the stream's own messages tell whether it ended.
///
/// # Errors
/// The connection failed.
pub(super) fn received(read: io::Result<usize>) -> Result<usize, AbnormalEnd> {
    match read {
        Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(0),
        read => read.map_err(|e| AbnormalEnd::Peer(e.to_string())),
    }
}
