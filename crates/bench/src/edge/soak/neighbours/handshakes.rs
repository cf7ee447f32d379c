//! Incomplete handshakes on all protocols: silent TCP connections, half a ClientHello, or a
//! ClientHello at one byte per second; RTMP that stops within or after C1; and QUIC clients that
//! send an Initial packet, each from its own port, and then nothing.
//!
//! They arrive faster than the deadlines end them, so they reach the limits per address: 60 per
//! second on TLS (deadline 15 s, 512 places per address), and 30 on RTMP (deadline 5 s, 125
//! places). QUIC has 30 per second.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};

use super::clients::until_ended;
use super::crew::{Crew, Neighbour, Strike};
use crate::Failure;
use crate::identity::NAME;

/// Interval between single bytes.
const DRIP: Duration = Duration::from_secs(1);
/// Time for which a QUIC client's socket stays open. A closed port would tell the server that the
/// client is gone.
const SOCKET_LIFETIME: Duration = Duration::from_secs(10);
/// Maximum wait for the server to end a connection.
const WAIT: Duration = Duration::from_secs(40);
/// C0 and C1 of RTMP.
const HANDSHAKE_BYTES: usize = 1 + 1_536;

fn neighbour(name: &'static str, per_second: f64, addresses: u8) -> Neighbour {
    Neighbour { name, per_second, at_once: 1, network: 2, addresses }
}

pub(super) fn join(crew: &mut Crew) {
    crew.add(neighbour("half-open: silent TCP", 20.0, 1), |strike| async move {
        held(&strike, strike.target.web, &[], Tail::Silence).await
    });
    crew.add(neighbour("half-open: half a ClientHello", 20.0, 1), |strike| async move {
        let hello = client_hello(&strike)?;
        held(&strike, strike.target.web, &hello[..hello.len() / 2], Tail::Silence).await
    });
    crew.add(neighbour("half-open: a ClientHello byte by byte", 20.0, 1), |strike| async move {
        let hello = client_hello(&strike)?;
        held(&strike, strike.target.web, &hello[..1], Tail::Drip(&hello[1..])).await
    });
    crew.add(neighbour("half-open: RTMP within C1", 15.0, 1), |strike| async move {
        held(&strike, strike.target.rtmp, &[3; HANDSHAKE_BYTES / 2], Tail::Silence).await
    });
    crew.add(neighbour("half-open: RTMP without C2", 15.0, 1), |strike| async move {
        held(&strike, strike.target.rtmp, &[3; HANDSHAKE_BYTES], Tail::Silence).await
    });
    crew.add(neighbour("half-open: QUIC Initial packets", 30.0, 8), initial);
}

/// Data sent after the first bytes.
enum Tail<'a> {
    Silence,
    Drip(&'a [u8]),
}

/// Sends the first bytes and holds the connection until the server ends it.
async fn held(
    strike: &Strike,
    to: std::net::SocketAddr,
    first: &[u8],
    tail: Tail<'_>,
) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let mut stream = strike.tcp(to, None).await?;
    stream.write_all(first).await?;
    let (mut reader, mut writer) = stream.split();
    let drip = async {
        if let Tail::Drip(rest) = tail {
            for byte in rest {
                sleep(DRIP).await;
                if writer.write_all(&[*byte]).await.is_err() {
                    break;
                }
            }
        }
        std::future::pending::<()>().await;
    };
    let ended = timeout(WAIT, async {
        tokio::select! {
            how = until_ended(&mut reader) => how,
            () = drip => "left",
        }
    });
    match ended.await {
        Ok(how) => strike.tally.answer(how),
        Err(_) => strike.tally.breach("never ended by the server"),
    }
    Ok(())
}

fn client_hello(strike: &Strike) -> Result<Vec<u8>, Failure> {
    let name = ServerName::try_from(NAME)?;
    let mut tls = rustls::ClientConnection::new(strike.tls[0].clone(), name)?;
    let mut hello = Vec::new();
    tls.write_tls(&mut hello)?;
    Ok(hello)
}

/// Sends the first datagram of a QUIC client only.
async fn initial(strike: Strike) -> Result<(), Failure> {
    strike.tally.attempt(1);
    let tls = quinn_proto::crypto::rustls::QuicClientConfig::try_from(strike.tls[2].clone())?;
    let config = quinn_proto::ClientConfig::new(Arc::new(tls));
    let mut endpoint = quinn_proto::Endpoint::new(Arc::default(), None, false, None);
    let now = Instant::now();
    let (_, mut connection) = endpoint.connect(now, config, strike.target.web, NAME)?;
    let mut datagram = Vec::new();
    let sent = connection.poll_transmit(now, 1, &mut datagram).map(|transmit| transmit.size);
    sent.ok_or("a client without an Initial packet")?;
    let socket = UdpSocket::bind((strike.from, 0))?;
    socket.set_nonblocking(true)?;
    let socket = tokio::net::UdpSocket::from_std(socket)?;
    socket.send_to(&datagram, strike.target.web).await?;
    let mut input = [0; 1_500];
    let how = match timeout(SOCKET_LIFETIME, socket.recv(&mut input)).await {
        // The first byte of a long header contains the packet type.
        Ok(Ok(read)) if read > 0 && input[0] & 0xf0 == 0xf0 => "answered by a Retry",
        Ok(Ok(_)) => "answered by a handshake",
        Ok(Err(e)) => return Err(e.into()),
        Err(_) => {
            strike.tally.end("dropped without an answer", 1);
            return Ok(());
        }
    };
    strike.tally.answer(how);
    sleep(SOCKET_LIFETIME).await;
    Ok(())
}
