//! Connections and requests over HTTP/3, as a browser makes them: with one store of sessions and
//! tokens for all connections, and the first request in 0-RTT data where a ticket allows it.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::trust::{self, Checked, Trust};
use crate::error::Error;

/// Silence after which the server counts as gone.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest handshake with one address.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest wait for the last packets of a connection that was closed.
const CLOSE: Duration = Duration::from_millis(500);

/// The body of a response that is under way.
pub(super) type Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;

/// What connections have in common: trust, sessions to resume, address tokens.
#[derive(Debug)]
pub(super) struct WatchClient {
    config: quinn::ClientConfig,
    checked: Checked,
}

/// How far an attempt to connect is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectStage {
    /// The first request was handed to the transport.
    Requested,
    /// The handshake is complete.
    Connected {
        /// By resuming a TLS session.
        resumed: bool,
        /// The first request was taken from 0-RTT data.
        early_data: bool,
    },
}

impl WatchClient {
    /// # Errors
    /// One line: there is nobody to trust.
    pub(super) fn new(trust: &Trust) -> Result<Self, Error> {
        let checked = Checked::default();
        let tls = trust::client(trust, checked.clone())?;
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).map_err(Error::new)?;
        let mut transport = quinn::TransportConfig::default();
        transport.max_idle_timeout(Some(SILENCE.try_into().map_err(|_| "a time-out too long")?));
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(transport));
        Ok(Self { config, checked })
    }

    /// Tries the addresses one after the other; sends the first request as early as may be.
    /// `reached` is told how far it is.
    ///
    /// # Errors
    /// One line: nobody answers, the certificate is not trusted, the server does not speak HTTP/3.
    pub(super) async fn connect(
        &self,
        host: &str,
        addresses: &[SocketAddr],
        first: &http::Uri,
        reached: &(dyn Fn(ConnectStage) + Sync),
    ) -> Result<(Http, Stream), Error> {
        let mut error = Error::new("no address");
        for &address in addresses {
            let attempt =
                |early| timeout(CONNECT, self.attempt(host, address, first, early, reached));
            let mut outcome = attempt(true).await;
            if let Ok(Ok(None)) = outcome {
                // The server has forgotten the session.
                outcome = attempt(false).await;
            }
            error = match outcome {
                Ok(Ok(Some(connected))) => return Ok(connected),
                Ok(Ok(None)) => Error::at(address)("0-RTT data was rejected"),
                Ok(Err(e)) => Error::at(address)(e),
                Err(_) => {
                    Error::new(format_args!("{address}: no answer within {} s", CONNECT.as_secs()))
                }
            };
        }
        Err(error)
    }

    /// `None` if the server rejected 0-RTT data. All streams of the connection are then lost (RFC
    /// 9001, section 4.6.2), including HTTP/3's own, which its client cannot reopen: the caller
    /// makes another connection.
    async fn attempt(
        &self,
        host: &str,
        address: SocketAddr,
        first: &http::Uri,
        early: bool,
        reached: &(dyn Fn(ConnectStage) + Sync),
    ) -> Result<Option<(Http, Stream)>, Error> {
        let local = match address {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let endpoint = quinn::Endpoint::client(SocketAddr::new(local, 0)).map_err(Error::new)?;
        self.checked.take();
        let connecting =
            endpoint.connect_with(self.config.clone(), address, host).map_err(Error::at(host))?;
        let connecting = if early { connecting.into_0rtt() } else { Err(connecting) };
        let (connection, accepted) = match connecting {
            Ok((connection, accepted)) => (connection, Some(accepted)),
            Err(connecting) => (connecting.await.map_err(|e| explained(&e))?, None),
        };
        let connected = |early_data| {
            reached(ConnectStage::Connected { resumed: !self.checked.take(), early_data });
        };
        if accepted.is_none() {
            connected(false);
        }
        let broken = |connection: &quinn::Connection, e: Error| {
            connection.close_reason().map_or(e, |reason| explained(&reason))
        };
        let http =
            Http::new(endpoint, connection.clone()).await.map_err(|e| broken(&connection, e))?;
        let request = http::Request::get(first.clone());
        let stream = http.send(request, None).await.map_err(|e| broken(&connection, e))?;
        reached(ConnectStage::Requested);
        if let Some(accepted) = accepted {
            if !accepted.await {
                let reason = connection.close_reason();
                return reason.map_or(Ok(None), |reason| Err(explained(&reason)));
            }
            connected(true);
        }
        Ok(Some((http, stream)))
    }
}

fn explained(error: &quinn::ConnectionError) -> Error {
    let text = error.to_string();
    if text.contains("certificate") {
        Error::new(format_args!("{text}; trust it with --ca FILE, or anything with --insecure"))
    } else {
        Error::new(text)
    }
}

/// A connection.
pub(super) struct Http {
    endpoint: quinn::Endpoint,
    connection: quinn::Connection,
    requests: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    driver: JoinHandle<h3::error::ConnectionError>,
}

impl Http {
    async fn new(endpoint: quinn::Endpoint, connection: quinn::Connection) -> Result<Self, Error> {
        let (mut driver, requests) = h3::client::new(h3_quinn::Connection::new(connection.clone()))
            .await
            .map_err(Error::new)?;
        let driver = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
        Ok(Self { endpoint, connection, requests, driver })
    }

    /// Sends a request, with a body or without one.
    ///
    /// # Errors
    /// One line: the connection is of no use any more.
    pub(super) async fn send(
        &self,
        request: http::request::Builder,
        body: Option<Bytes>,
    ) -> Result<Stream, Error> {
        let request = request.body(()).map_err(Error::new)?;
        let mut stream = self.requests.clone().send_request(request).await.map_err(Error::new)?;
        if let Some(body) = body {
            stream.send_data(body).await.map_err(Error::new)?;
        }
        stream.finish().await.map_err(Error::new)?;
        Ok(stream)
    }

    /// Whether requests can still be sent.
    pub(super) fn is_open(&self) -> bool {
        self.connection.close_reason().is_none()
    }

    /// The transport's counters.
    pub(super) fn stats(&self) -> quinn::ConnectionStats {
        self.connection.stats()
    }

    /// The server learns that the viewer has gone, if it still listens.
    pub(super) async fn close(self) {
        self.connection.close(0x100u32.into(), b"");
        let _ = timeout(CLOSE, self.endpoint.wait_idle()).await;
    }
}

impl Drop for Http {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The next bytes of a body; `None` at its end.
///
/// # Errors
/// One line: it was cut off.
pub(super) async fn next_data(stream: &mut Stream) -> Result<Option<Bytes>, Error> {
    let data = stream.recv_data().await.map_err(Error::at("cut off"))?;
    Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
}
