//! HTTP/3 by unmodified clients: quinn and h3.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use quinn::crypto::rustls::QuicClientConfig;
use tokio::time::timeout;

use super::{PATIENCE, tls};

/// Flow-control windows of quinn's own, or tiny ones.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Windows {
    Usual,
    Tiny,
}

/// Bytes of a tiny window.
const TINY: u32 = 32 * 1024;

/// A connection with a request.
pub struct Request {
    pub status: u16,
    fields: http::HeaderMap,
    endpoint: quinn::Endpoint,
    connection: quinn::Connection,
    stream: Stream,
    requests: Requests,
}

type Stream = h3::client::RequestStream<h3_quinn::BidiStream<Bytes>, Bytes>;
type Requests = h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>;

/// Sends a request for a path, or for a URL of any host, and receives the head of its answer.
async fn exchange(
    requests: &mut Requests,
    method: &str,
    path: &str,
) -> Result<(http::response::Parts, Stream), String> {
    let url = format!("https://localhost{path}");
    let url = if path.starts_with('/') { &url } else { path };
    let request = http::Request::builder().method(method).uri(url);
    let request = request.body(()).map_err(|e| e.to_string())?;
    let mut stream = requests.send_request(request).await.map_err(|e| e.to_string())?;
    stream.finish().await.map_err(|e| e.to_string())?;
    let response = timeout(PATIENCE, stream.recv_response()).await.map_err(|e| e.to_string())?;
    Ok((response.map_err(|e| e.to_string())?.into_parts().0, stream))
}

impl Request {
    /// # Errors
    /// One line: no connection, or no answer.
    pub async fn send(
        address: SocketAddr,
        method: &str,
        path: &str,
        windows: Windows,
    ) -> Result<Self, String> {
        let error = |e: &dyn std::fmt::Display| e.to_string();
        let mut endpoint =
            quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).map_err(|e| error(&e))?;
        let tls = QuicClientConfig::try_from(tls::client("h3")).map_err(|e| error(&e))?;
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        if windows == Windows::Tiny {
            let mut transport = quinn::TransportConfig::default();
            transport.stream_receive_window(TINY.into()).receive_window((2 * TINY).into());
            config.transport_config(Arc::new(transport));
        }
        endpoint.set_default_client_config(config);
        let connecting = endpoint.connect(address, "localhost").map_err(|e| error(&e))?;
        let connection = timeout(PATIENCE, connecting).await.map_err(|e| error(&e))?;
        let connection = connection.map_err(|e| error(&e))?;
        let made = h3::client::new(h3_quinn::Connection::new(connection.clone())).await;
        let (mut driver, mut requests) = made.map_err(|e| error(&e))?;
        tokio::spawn(async move { poll_fn(|context| driver.poll_close(context)).await });
        let (head, stream) = exchange(&mut requests, method, path).await?;
        let (status, fields) = (head.status.as_u16(), head.headers);
        Ok(Self { status, fields, endpoint, connection, stream, requests })
    }

    /// The value of a field of the answer.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.to_str().ok()
    }

    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// One line: it was cut off.
    pub async fn next(&mut self) -> Result<Option<Bytes>, String> {
        let data = timeout(PATIENCE, self.stream.recv_data()).await.map_err(|e| e.to_string())?;
        let data = data.map_err(|e| e.to_string())?;
        Ok(data.map(|mut data| data.copy_to_bytes(data.remaining())))
    }

    /// The status of another GET on the same connection.
    ///
    /// # Errors
    /// One line: there is none.
    pub async fn another(&mut self, path: &str) -> Result<u16, String> {
        Ok(exchange(&mut self.requests, "GET", path).await?.0.status.as_u16())
    }

    /// Leaves.
    pub async fn close(self) {
        self.connection.close(0x100u32.into(), b"");
        // The server learns of it by a packet, or later.
        let _ = timeout(std::time::Duration::from_millis(500), self.endpoint.wait_idle()).await;
    }

    /// The server's certificate.
    pub fn certificate(&self) -> Vec<u8> {
        let identity = self.connection.peer_identity().expect("the server has one");
        let chain = identity.downcast::<Vec<rustls::pki_types::CertificateDer<'static>>>();
        chain.expect("certificates")[0].to_vec()
    }
}

/// A runtime for one client.
pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// The status of an answer.
///
/// # Errors
/// One line: there is none.
pub fn status(address: SocketAddr, method: &str, path: &str) -> Result<u16, String> {
    runtime().block_on(async {
        let request = Request::send(address, method, path, Windows::Usual).await?;
        let status = request.status;
        request.close().await;
        Ok(status)
    })
}
