//! Process of the viewers: unmodified `quinn` and `h3`, `hyper` over TLS over TCP for FLV over
//! HTTP/2 or HLS over HTTP/1.1, or our own RTMP client over TCP. It reports as in [`report`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use media::Tag;
use media::flv::Reader;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;

use super::media::{GROUP, clock, published};
use super::rtmp_view;
use super::servers::ViewTransport;
use super::tally::{CountedViewer, JOIN_INTERVAL, raise_file_limit, report};
use crate::Failure;
use crate::client;
use crate::identity::NAME;

/// Threads, each with a runtime; a single one would be the bottleneck.
const THREADS: usize = 2;
/// UDP sockets per thread. All viewers receive a frame at the same time, so a socket's buffer must
/// hold it for all viewers on that socket.
const SOCKETS: usize = 8;
/// Maximum tag size in bytes.
const MAX_TAG: usize = 1 << 22;

/// Watch streams, each with an equal share of the viewers
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Watch {
    address: SocketAddr,
    /// Directory with `chain.pem`
    dir: PathBuf,
    /// Path of the stream; `{}` stands for its number
    path: String,
    viewers: usize,
    /// Protocol of the viewers
    transport: ViewTransport,
    /// Number of streams
    #[arg(long, default_value_t = 1)]
    streams: usize,
}

impl Watch {
    pub(crate) fn run(self) -> Result<(), Failure> {
        raise_file_limit();
        let counts = Arc::new(AtomicBool::new(false));
        let viewers: Vec<Arc<CountedViewer>> = (0..self.viewers).map(|_| Arc::default()).collect();
        for thread in 0..THREADS {
            let (watch, viewers, counts) = (self.clone(), viewers.clone(), counts.clone());
            std::thread::spawn(move || {
                if let Err(error) = watch.clone().thread(thread, &viewers, &counts) {
                    let own = viewers.iter().skip(thread).step_by(THREADS);
                    own.for_each(|viewer| viewer.tally().failure = Some(error.to_string()));
                }
            });
        }
        report(&viewers, &counts)
    }

    /// Runs every `THREADS`th viewer, from number `thread` on.
    fn thread(
        self,
        thread: usize,
        viewers: &[Arc<CountedViewer>],
        counts: &Arc<AtomicBool>,
    ) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (protocol, is_quic) = match self.transport {
            ViewTransport::H3 => ("h3", true),
            ViewTransport::H2 => ("h2", false),
            ViewTransport::Hls => ("http/1.1", false),
            ViewTransport::Rtmp | ViewTransport::Rtmps => ("", false),
            ViewTransport::Moq => return Err("peers/moq has the viewers of MoQ".into()),
        };
        let mut tls = client::tls(&self.dir, protocol)?;
        // RTMP has no ALPN identifier.
        tls.alpn_protocols.retain(|protocol| !protocol.is_empty());
        runtime.block_on(async {
            let endpoints = if is_quic { endpoints(&tls)? } else { Vec::new() };
            let tls = Arc::new(tls);
            for (index, viewer) in viewers.iter().enumerate().skip(thread).step_by(THREADS) {
                let viewer = viewer.clone();
                let number = index % self.streams.max(1);
                let mut watch = self.clone();
                watch.path = watch.path.replace("{}", &number.to_string());
                let stream = ViewStream { watch, viewer, counts: counts.clone() };
                let after = JOIN_INTERVAL * index as u32;
                let endpoint = endpoints.get(index / THREADS % SOCKETS).cloned();
                let tls = tls.clone();
                tokio::spawn(async move {
                    sleep(after).await;
                    let result = match (stream.watch.transport, endpoint) {
                        (ViewTransport::H3, Some(endpoint)) => stream.read_h3(endpoint).await,
                        (ViewTransport::H3 | ViewTransport::Moq, _) => {
                            Err("a viewer has no endpoint".into())
                        }
                        (ViewTransport::H2, _) => stream.read_h2(tls).await,
                        (ViewTransport::Hls, _) => stream.read_hls(tls).await,
                        (ViewTransport::Rtmp, _) => stream.read_rtmp(None).await,
                        (ViewTransport::Rtmps, _) => stream.read_rtmp(Some(tls)).await,
                    };
                    let failure =
                        result.map_or_else(|e| e.to_string(), |()| "the stream ended".into());
                    stream.viewer.tally().failure = Some(failure);
                });
            }
            // The process ends with its main thread.
            std::future::pending().await
        })
    }
}

/// Creates [`SOCKETS`] endpoints.
pub(super) fn endpoints(tls: &rustls::ClientConfig) -> Result<Vec<quinn::Endpoint>, Failure> {
    (0..SOCKETS).map(|_| client::endpoint(tls.clone())).collect()
}

/// A view.
struct ViewStream {
    watch: Watch,
    viewer: Arc<CountedViewer>,
    counts: Arc<AtomicBool>,
}

impl ViewStream {
    async fn read_h3(&self, endpoint: quinn::Endpoint) -> Result<(), Failure> {
        let connection = endpoint.connect(self.watch.address, NAME)?.await?;
        let measured = connection.clone();
        self.viewer.tally().udp = Some(Box::new(move || {
            let udp = measured.stats().udp_rx;
            (udp.bytes, udp.datagrams)
        }));
        let (mut driver, mut requests) =
            h3::client::new(h3_quinn::Connection::new(connection)).await?;
        tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        let mut stream = requests.send_request(http::Request::get(self.uri()).body(())?).await?;
        stream.finish().await?;
        let response = stream.recv_response().await?;
        if response.status() != 200 {
            return Err(format!("status {}", response.status()).into());
        }
        let mut reader = Reader::new(MAX_TAG);
        while let Some(mut data) = stream.recv_data().await? {
            self.take(&mut reader, &mut data)?;
        }
        Ok(())
    }

    async fn read_h2(&self, tls: Arc<rustls::ClientConfig>) -> Result<(), Failure> {
        let stream = self.connect(tls).await?;
        let executor = TokioExecutor::new();
        let (mut requests, connection) = http2::handshake(executor, TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = http::Request::get(self.uri()).body(Empty::<Bytes>::new())?;
        let mut response = requests.send_request(request).await?;
        if response.status() != 200 {
            return Err(format!("status {}", response.status()).into());
        }
        let mut reader = Reader::new(MAX_TAG);
        while let Some(frame) = response.frame().await {
            if let Ok(mut data) = frame?.into_data() {
                self.take(&mut reader, &mut data)?;
            }
        }
        Ok(())
    }

    fn uri(&self) -> String {
        format!("https://{NAME}{}", self.watch.path)
    }

    /// Parses the next bytes of an FLV file.
    fn take(&self, reader: &mut Reader, data: &mut impl Buf) -> Result<(), Failure> {
        let mut length = 0;
        while data.has_remaining() {
            let chunk = data.chunk();
            reader.read(chunk)?;
            let read = chunk.len();
            length += read;
            data.advance(read);
        }
        let counts = self.counts.load(Ordering::Relaxed);
        self.viewer.tally().bytes += if counts { length as u64 } else { 0 };
        while let Some(tag) = reader.next_tag() {
            self.arrived(&tag, counts);
        }
        Ok(())
    }

    /// Counts a complete tag.
    fn arrived(&self, tag: &Tag, counts: bool) {
        let mut tally = self.viewer.tally();
        tally.has_joined = true;
        if let Some(then) = published(tag).filter(|_| counts) {
            tally.arrived(tag.kind(), then, clock());
        }
    }

    /// Plays over RTMP, or RTMPS if there is a TLS configuration.
    async fn read_rtmp(&self, tls: Option<Arc<rustls::ClientConfig>>) -> Result<(), Failure> {
        let url = format!("rtmp://{NAME}{}", self.watch.path);
        let take = |tag: &Tag| {
            let counts = self.counts.load(Ordering::Relaxed);
            self.viewer.tally().bytes += if counts { tag.bytes().len() as u64 } else { 0 };
            self.arrived(tag, counts);
        };
        match tls {
            Some(tls) => rtmp_view::play(self.connect(tls).await?, &url, take).await,
            None => {
                let socket = TcpStream::connect(self.watch.address).await?;
                socket.set_nodelay(true)?;
                rtmp_view::play(socket, &url, take).await
            }
        }
    }

    /// Opens a TLS connection over TCP.
    async fn connect(
        &self,
        tls: Arc<rustls::ClientConfig>,
    ) -> Result<TlsStream<TcpStream>, Failure> {
        let socket = TcpStream::connect(self.watch.address).await?;
        socket.set_nodelay(true)?;
        let name = ServerName::try_from(NAME)?;
        Ok(tokio_rustls::TlsConnector::from(tls).connect(name, socket).await?)
    }

    /// Requests the playlist once per segment duration, twice as often if it is unchanged (RFC
    /// 8216, section 6.3.4), and fetches each new segment once.
    async fn read_hls(&self, tls: Arc<rustls::ClientConfig>) -> Result<(), Failure> {
        let stream = self.connect(tls).await?;
        let (mut requests, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let mut path = self.watch.path.clone();
        let mut last = String::new();
        loop {
            let list = self.get(&mut requests, &path).await?;
            let list = String::from_utf8(list)?;
            let uris = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
            let uris: Vec<&str> = uris.collect();
            if list.contains("#EXT-X-STREAM-INF") {
                path = resolve(&path, uris.first().ok_or("an empty playlist")?);
                continue;
            }
            // Joining viewers start with the newest segment; viewers that fell behind continue with
            // it.
            let new = match uris.iter().position(|uri| *uri == last) {
                Some(place) => &uris[place + 1..],
                None => &uris[uris.len().saturating_sub(1)..],
            };
            for uri in new {
                self.get(&mut requests, &resolve(&path, uri)).await?;
                self.viewer.tally().has_joined = true;
                last = (*uri).to_owned();
            }
            sleep(if new.is_empty() { GROUP / 2 } else { GROUP }).await;
        }
    }

    async fn get(
        &self,
        requests: &mut SendRequest<Empty<Bytes>>,
        path: &str,
    ) -> Result<Vec<u8>, Failure> {
        let request = http::Request::get(path).header("host", NAME).body(Empty::new())?;
        let mut response = requests.send_request(request).await?;
        if response.status() != 200 {
            return Err(format!("{path}: status {}", response.status()).into());
        }
        let mut body = Vec::new();
        while let Some(frame) = response.frame().await {
            if let Ok(data) = frame?.into_data() {
                if self.counts.load(Ordering::Relaxed) {
                    self.viewer.tally().bytes += data.len() as u64;
                }
                body.extend_from_slice(&data);
            }
        }
        Ok(body)
    }
}

/// Resolves `uri` in the playlist at `base`.
fn resolve(base: &str, uri: &str) -> String {
    match base.rfind('/') {
        Some(slash) if !uri.starts_with('/') => format!("{}{uri}", &base[..=slash]),
        _ => uri.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_relative_to_the_playlist() {
        assert_eq!(resolve("/live/bench/index.m3u8", "7.ts"), "/live/bench/7.ts");
        assert_eq!(resolve("/live/bench/index.m3u8", "/x/7.ts"), "/x/7.ts");
    }
}
