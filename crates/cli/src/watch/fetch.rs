//! One request over HTTP/3, and what its response looks like on the way.

use std::future::poll_fn;
use std::io::{IsTerminal as _, Write as _, stderr};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Buf as _;
use tokio::time::{timeout, timeout_at};

use super::measure::{Measure, Measured};
use super::{CONNECT, SILENCE, Target};

/// Asks for the target and takes its body, for at most `limit`.
///
/// # Errors
/// One line: nobody answers, the certificate is not trusted, the connection or the response ends
/// before it should.
pub(super) async fn fetch(
    target: &Target,
    tls: rustls::ClientConfig,
    limit: Option<Duration>,
) -> Result<Measured, String> {
    let tls = quinn::crypto::rustls::QuicClientConfig::try_from(tls).map_err(|e| e.to_string())?;
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(SILENCE.try_into().map_err(|_| "a time-out too long")?));
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    config.transport_config(Arc::new(transport));

    let addresses = target.addresses().await?;
    let mut measure = Measure::new();
    let (endpoint, connection) = connect(target, &config, &addresses).await?;
    measure.connected();
    let deadline = limit.map(|limit| tokio::time::Instant::now() + limit);

    let broken = |e: &dyn core::fmt::Display| format!("{}: {e}", target.uri);
    let (mut driver, mut requests) =
        h3::client::new(h3_quinn::Connection::new(connection)).await.map_err(|e| broken(&e))?;
    let driver = tokio::spawn(async move { poll_fn(|cx| driver.poll_close(cx)).await });
    let request = http::Request::get(target.uri.clone()).body(()).map_err(|e| broken(&e))?;
    let mut stream = requests.send_request(request).await.map_err(|e| broken(&e))?;
    stream.finish().await.map_err(|e| broken(&e))?;
    let response = stream.recv_response().await.map_err(|e| broken(&e))?;
    measure.status(response.status().as_u16());

    let mut progress = Progress::new();
    let complete = loop {
        let data = match deadline {
            Some(at) => match timeout_at(at, stream.recv_data()).await {
                Ok(data) => data,
                Err(_) => break false,
            },
            None => stream.recv_data().await,
        };
        match data.map_err(|e| broken(&e))? {
            Some(data) => measure.take(data.remaining() as u64),
            None => break true,
        }
        progress.show(measure.bytes());
    };
    progress.clear();
    let measured = measure.end(complete);
    // The server learns that the viewer has gone, if it still listens.
    driver.abort();
    endpoint.close(0x100u32.into(), b"");
    let _ = timeout(Duration::from_millis(500), endpoint.wait_idle()).await;
    Ok(measured)
}

/// Tries the addresses one after the other.
async fn connect(
    target: &Target,
    config: &quinn::ClientConfig,
    addresses: &[SocketAddr],
) -> Result<(quinn::Endpoint, quinn::Connection), String> {
    let mut error = String::new();
    for &address in addresses {
        let local = match address {
            SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::UNSPECIFIED),
        };
        let endpoint =
            quinn::Endpoint::client(SocketAddr::new(local, 0)).map_err(|e| e.to_string())?;
        let connecting = endpoint
            .connect_with(config.clone(), address, &target.host)
            .map_err(|e| format!("{}: {e}", target.host))?;
        match timeout(CONNECT, connecting).await {
            Ok(Ok(connection)) => return Ok((endpoint, connection)),
            Ok(Err(e)) => error = explained(address, &e),
            Err(_) => error = format!("{address}: no answer within {} s", CONNECT.as_secs()),
        }
    }
    Err(error)
}

fn explained(address: SocketAddr, error: &quinn::ConnectionError) -> String {
    let text = error.to_string();
    if text.contains("certificate") {
        format!("{address}: {text}; trust it with --ca FILE, or anything with --insecure")
    } else {
        format!("{address}: {text}")
    }
}

/// A line on the terminal that says how far the view is.
struct Progress {
    shown: Option<Instant>,
    is_terminal: bool,
}

impl Progress {
    const INTERVAL: Duration = Duration::from_millis(200);

    fn new() -> Self {
        Self { shown: None, is_terminal: stderr().is_terminal() }
    }

    fn show(&mut self, bytes: u64) {
        if self.is_terminal && self.shown.is_none_or(|at| at.elapsed() >= Self::INTERVAL) {
            self.shown = Some(Instant::now());
            // A terminal that takes nothing misses a picture.
            let _ = write!(stderr(), "\r{:.1} MB", bytes as f64 / 1e6);
        }
    }

    fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(stderr(), "\r{:20}\r", "");
        }
    }
}
