//! Clients of the neighbours: unmodified libraries, bound to the neighbour's address.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use media::rtmp::{Client, ClientEvent, Intent, Url};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::crew::Strike;
use crate::Failure;
use crate::identity::NAME;

/// Maximum wait for the last packets of a closed QUIC connection.
const CLOSE_WAIT: Duration = Duration::from_millis(200);
/// Interval of PINGs on a held connection.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// ALPN protocol of a TLS handshake.
#[derive(Clone, Copy)]
pub(super) enum Http {
    V1 = 0,
    V2 = 1,
}

/// An HTTP/1.1 client.
pub(super) struct H1(http1::SendRequest<Full<Bytes>>);

/// An HTTP/3 client.
pub(super) struct H3 {
    pub requests: h3::client::SendRequest<h3_quinn::OpenStreams, Bytes>,
    pub connection: quinn::Connection,
    endpoint: quinn::Endpoint,
}

/// An RTMP client.
pub(super) struct Rtmp {
    pub stream: TcpStream,
    pub client: Client,
}

impl Strike {
    /// Opens a TCP connection to `to`, with a receive buffer of `buffer` bytes if given.
    pub(super) async fn tcp(
        &self,
        to: SocketAddr,
        buffer: Option<u32>,
    ) -> Result<TcpStream, Failure> {
        let socket = TcpSocket::new_v4()?;
        if let Some(bytes) = buffer {
            socket.set_recv_buffer_size(bytes)?;
        }
        socket.bind(SocketAddr::new(self.from.into(), 0))?;
        let stream = socket.connect(to).await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    /// Opens a TLS connection.
    pub(super) async fn tls(
        &self,
        http: Http,
        buffer: Option<u32>,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let stream = self.tcp(self.target.web, buffer).await?;
        let connector = TlsConnector::from(self.tls[http as usize].clone());
        Ok(connector.connect(ServerName::try_from(NAME)?, stream).await?)
    }

    pub(super) async fn h1(&self) -> Result<H1, Failure> {
        let stream = self.tls(Http::V1, None).await?;
        let (requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with the requests.
        tokio::spawn(connection);
        Ok(H1(requests))
    }

    /// Opens an HTTP/3 connection. With `windows` (of streams and of the connection) it is held
    /// open with PINGs.
    pub(super) async fn h3(&self, windows: Option<(u32, u32)>) -> Result<H3, Failure> {
        let tls = quinn::crypto::rustls::QuicClientConfig::try_from(self.tls[2].clone())?;
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        if let Some((stream, all)) = windows {
            let mut transport = quinn::TransportConfig::default();
            transport.stream_receive_window(stream.into()).receive_window(all.into());
            transport.keep_alive_interval(Some(KEEP_ALIVE));
            config.transport_config(Arc::new(transport));
        }
        let socket = UdpSocket::bind((self.from, 0))?;
        let runtime = Arc::new(quinn::TokioRuntime);
        let endpoint = quinn::Endpoint::new(Default::default(), None, socket, runtime)?;
        let connection = endpoint.connect_with(config, self.target.web, NAME)?.await?;
        let transport = h3_quinn::Connection::new(connection.clone());
        let (mut driver, requests) = h3::client::new(transport).await?;
        // The task ends with the connection.
        tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        Ok(H3 { requests, connection, endpoint })
    }

    /// Requests the stream `name` over RTMP until the server accepts, rejects or closes. Returns
    /// the client and the answer.
    pub(super) async fn rtmp(
        &self,
        name: &str,
        intent: Intent,
    ) -> Result<(Rtmp, Option<ClientEvent>), Failure> {
        let url = Url::parse(&format!("rtmp://{}/{name}", self.target.rtmp))?;
        self.rtmp_of(url, intent).await
    }

    /// Like `rtmp`, for an arbitrary and possibly invalid URL.
    pub(super) async fn rtmp_of(
        &self,
        url: Url,
        intent: Intent,
    ) -> Result<(Rtmp, Option<ClientEvent>), Failure> {
        let stream = self.tcp(self.target.rtmp, None).await?;
        let client = Client::new(url, intent, Default::default(), &[7; 1_528]);
        let mut rtmp = Rtmp { stream, client };
        let event = rtmp.next().await?;
        Ok((rtmp, event))
    }
}

/// Reads until the server ends the connection. Returns how it ended.
pub(super) async fn until_ended(from: &mut (impl AsyncRead + Unpin)) -> &'static str {
    let mut input = [0; 4_096];
    loop {
        match from.read(&mut input).await {
            // Further data is ignored.
            Ok(1..) => {}
            Ok(0) => return "closed by the server",
            Err(_) => return "reset by the server",
        }
    }
}

/// Runs a flood until the server ends the connection, and returns how it did.
///
/// # Errors
/// The server did not within `limit`.
pub(super) async fn flood_until_ended(
    flood: impl Future<Output = ()>,
    from: &mut (impl AsyncRead + Unpin),
    limit: Duration,
) -> Result<&'static str, Elapsed> {
    // A flood that cannot write any more leaves the answer to the reader.
    let flood = async {
        flood.await;
        std::future::pending().await
    };
    timeout(limit, async {
        tokio::select! {
            how = until_ended(from) => how,
            how = flood => how,
        }
    })
    .await
}

impl H1 {
    /// Returns the status and the content of the response to a request.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        content: Bytes,
    ) -> Result<(u16, Bytes), Failure> {
        let request = http::Request::builder().method(method).uri(path).header("host", NAME);
        self.0.ready().await?;
        let response = self.0.send_request(request.body(Full::new(content))?).await?;
        let status = response.status().as_u16();
        Ok((status, response.into_body().collect().await?.to_bytes()))
    }
}

impl H3 {
    /// Returns the status of the response to a request, after reading its content.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        path: &str,
        content: Bytes,
    ) -> Result<u16, Failure> {
        let request = http::Request::builder().method(method).uri(format!("https://{NAME}{path}"));
        let mut stream = self.requests.send_request(request.body(())?).await?;
        if !content.is_empty() {
            stream.send_data(content).await?;
        }
        stream.finish().await?;
        let status = stream.recv_response().await?.status().as_u16();
        while stream.recv_data().await?.is_some() {}
        Ok(status)
    }

    /// Closes the connection and informs the server.
    pub(super) async fn close(self) {
        self.connection.close(0x100u16.into(), b"");
        // If the last packet is lost, the server times out.
        let _ = timeout(CLOSE_WAIT, self.endpoint.wait_idle()).await;
    }
}

impl Rtmp {
    /// Sends pending data and reads until the next event; `None` if the server has closed the
    /// connection.
    pub(super) async fn next(&mut self) -> Result<Option<ClientEvent>, Failure> {
        let mut input = [0; 4_096];
        loop {
            self.flush().await?;
            if let Some(event) = self.client.poll_event() {
                return Ok(Some(event));
            }
            match self.stream.read(&mut input).await? {
                0 => return Ok(None),
                read => self.client.handle(&input[..read])?,
            }
        }
    }

    /// Sends pending data.
    pub(super) async fn flush(&mut self) -> Result<(), Failure> {
        while let Some(output) = self.client.poll_output() {
            self.stream.write_all(&output).await?;
        }
        Ok(())
    }
}
