//! Process of the viewers: unmodified `quinn` and `h3`, or `hyper` over TLS over TCP for FLV over
//! HTTP/2 or HLS over HTTP/1.1.
//!
//! It prints `ready JOINED FAILURE` once every viewer has its first bytes or has failed, counts
//! between the next two lines that it reads, and prints the counters as JSON.

use std::io::stdin;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use media::flv::{Kind, Reader};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustls::pki_types::ServerName;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::client::TlsStream;

use super::media::{GROUP, clock, published};
use super::servers::{self, ViewTransport};
use crate::Failure;
use crate::client;
use crate::identity::NAME;

/// Threads, each with a runtime; a single one would be the bottleneck.
const THREADS: usize = 2;
/// UDP sockets per thread. All viewers receive a frame at the same time, so a socket's buffer must
/// hold it for all viewers on that socket.
const SOCKETS: usize = 8;
/// Delay above which a viewer counts as late.
const LATE: Duration = Duration::from_secs(1);
/// Interval between joins.
const JOIN_INTERVAL: Duration = Duration::from_millis(10);
/// Maximum tag size in bytes.
const MAX_TAG: usize = 1 << 22;
/// Time for the last viewer to receive its first bytes.
const PATIENCE: Duration = Duration::from_secs(15);

/// Counters of the measurement.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ViewMeasurement {
    /// Viewers present from start to end that received data.
    pub stayed: usize,
    /// Reason of a failure.
    pub failure: Option<String>,
    /// Viewers with a late tag.
    pub late: usize,
    /// Bytes of the body per viewer: minimum, median, maximum.
    pub bytes: [u64; 3],
    /// Delay of pictures.
    pub pictures: Delay,
    /// Delay of sound, which waits for the next picture to share its packet (`[live] merge`).
    pub sound: Delay,
    /// Mean size of a datagram in bytes.
    pub datagram: f64,
    /// This process's share of a CPU.
    pub busy: f64,
}

/// Delay of tags from publication to complete arrival.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Delay {
    /// Number of tags.
    pub tags: usize,
    /// Median, 99th percentile and maximum, in seconds.
    pub quantiles: [f64; 3],
}

impl Delay {
    /// Returns the quantiles of delays in microseconds.
    fn of(mut delays: Vec<u32>) -> Self {
        delays.sort_unstable();
        let tags = delays.len();
        if tags == 0 {
            return Self::default();
        }
        let quantile = |share| f64::from(delays[rank(tags, share)]) / 1e6;
        Self { tags, quantiles: [0.5, 0.99, 1.0].map(quantile) }
    }

    /// Returns the quantiles in milliseconds, as text.
    pub(super) fn text(&self) -> String {
        let [median, p99, maximum] = self.quantiles.map(|seconds| seconds * 1e3);
        format!("median {median:.1} ms, p99 {p99:.1} ms, maximum {maximum:.1} ms")
    }
}

/// Returns the index of a quantile among `length` sorted values.
fn rank(length: usize, share: f64) -> usize {
    ((length as f64 * share) as usize).min(length.saturating_sub(1))
}

/// Counters of one viewer.
#[derive(Default)]
struct ViewerCounters {
    has_joined: bool,
    failure: Option<String>,
    bytes: u64,
    /// Delays of pictures and sound, in microseconds.
    delays: [Vec<u32>; 2],
    connection: Option<quinn::Connection>,
}

#[derive(Default)]
struct CountedViewer {
    tally: Mutex<ViewerCounters>,
}

impl CountedViewer {
    fn tally(&self) -> MutexGuard<'_, ViewerCounters> {
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Watch a stream `viewers` times
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Watch {
    address: SocketAddr,
    /// Directory with `chain.pem`
    dir: PathBuf,
    /// Path of the stream
    path: String,
    viewers: usize,
    /// Protocol of the viewers
    transport: ViewTransport,
}

impl Watch {
    pub(crate) fn run(self) -> Result<(), Failure> {
        // A TCP viewer needs a descriptor. If the limit is too low, some viewers fail with an
        // error.
        if let Ok((_, most)) = getrlimit(Resource::RLIMIT_NOFILE) {
            let _ = setrlimit(Resource::RLIMIT_NOFILE, most, most);
        }
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
        let end = Instant::now() + JOIN_INTERVAL * self.viewers as u32 + PATIENCE;
        let settled = |viewer: &Arc<CountedViewer>| {
            let tally = viewer.tally();
            tally.has_joined || tally.failure.is_some()
        };
        while !viewers.iter().all(settled) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(50));
        }
        let joined = viewers.iter().filter(|viewer| viewer.tally().has_joined).count();
        let failure = viewers.iter().find_map(|viewer| viewer.tally().failure.clone());
        println!("ready {joined} {}", failure.as_deref().unwrap_or("too late").replace('\n', " "));

        let line = || stdin().read_line(&mut String::new());
        line()?;
        let (cpu, start) = (servers::cpu(std::process::id())?, Instant::now());
        counts.store(true, Ordering::Relaxed);
        line()?;
        counts.store(false, Ordering::Relaxed);
        let cpu = servers::cpu(std::process::id())? - cpu;
        let mut seen = summary(&viewers);
        seen.busy = cpu.as_secs_f64() / start.elapsed().as_secs_f64();
        println!("{}", serde_json::to_string(&seen)?);
        Ok(())
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
        };
        let tls = client::tls(&self.dir, protocol)?;
        runtime.block_on(async {
            let endpoints = if is_quic { endpoints(&tls)? } else { Vec::new() };
            let tls = Arc::new(tls);
            for (index, viewer) in viewers.iter().enumerate().skip(thread).step_by(THREADS) {
                let viewer = viewer.clone();
                let stream = ViewStream { watch: self.clone(), viewer, counts: counts.clone() };
                let after = JOIN_INTERVAL * index as u32;
                let endpoint = endpoints.get(index / THREADS % SOCKETS).cloned();
                let tls = tls.clone();
                tokio::spawn(async move {
                    sleep(after).await;
                    let result = match endpoint {
                        Some(endpoint) => stream.read_h3(endpoint).await,
                        None if stream.watch.transport == ViewTransport::H2 => {
                            stream.read_h2(tls).await
                        }
                        None => stream.read_hls(tls).await,
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
        self.viewer.tally().connection = Some(connection.clone());
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
        let now = clock();
        let mut tally = self.viewer.tally();
        let counts = self.counts.load(Ordering::Relaxed);
        tally.bytes += if counts { length as u64 } else { 0 };
        while let Some(tag) = reader.next_tag() {
            tally.has_joined = true;
            if let Some(then) = published(&tag).filter(|_| counts) {
                let delay = (now.saturating_sub(then) / 1_000) as u32;
                tally.delays[usize::from(tag.kind() == Kind::Audio)].push(delay);
            }
        }
        Ok(())
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

fn summary(viewers: &[Arc<CountedViewer>]) -> ViewMeasurement {
    let mut seen = ViewMeasurement::default();
    let (mut bytes, mut delays) = (Vec::new(), [Vec::new(), Vec::new()]);
    let (mut received, mut datagrams) = (0, 0);
    for viewer in viewers {
        let tally = viewer.tally();
        bytes.push(tally.bytes);
        if tally.failure.is_none() && tally.bytes > 0 {
            seen.stayed += 1;
        }
        seen.failure = seen.failure.or_else(|| tally.failure.clone());
        let late = |&delay: &u32| u128::from(delay) > LATE.as_micros();
        seen.late += usize::from(tally.delays.iter().flatten().any(late));
        for (all, own) in delays.iter_mut().zip(&tally.delays) {
            all.extend_from_slice(own);
        }
        if let Some(connection) = &tally.connection {
            let udp = connection.stats().udp_rx;
            received += udp.bytes;
            datagrams += udp.datagrams;
        }
    }
    bytes.sort_unstable();
    seen.bytes = [0.0, 0.5, 1.0].map(|share| bytes.get(rank(bytes.len(), share)).map_or(0, |b| *b));
    [seen.pictures, seen.sound] = delays.map(Delay::of);
    seen.datagram = if datagrams > 0 { received as f64 / datagrams as f64 } else { 0.0 };
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_relative_to_the_playlist() {
        assert_eq!(resolve("/live/bench/index.m3u8", "7.ts"), "/live/bench/7.ts");
        assert_eq!(resolve("/live/bench/index.m3u8", "/x/7.ts"), "/x/7.ts");
    }

    #[test]
    fn quantiles_late_and_lost_viewers() {
        let viewers: Vec<Arc<CountedViewer>> = (0..10).map(|_| Arc::default()).collect();
        for (index, viewer) in viewers.iter().enumerate() {
            let mut tally = viewer.tally();
            tally.bytes = 1_000 + index as u64;
            tally.delays = [(1..=100).map(|n| n * 1_000).collect(), vec![7_000]];
        }
        viewers[3].tally().delays[0].push(1_500_000);
        viewers[4].tally().failure = Some("gone".to_owned());
        let seen = summary(&viewers);
        assert_eq!((seen.stayed, seen.late, seen.pictures.tags), (9, 1, 1_001));
        assert_eq!((seen.sound.tags, seen.sound.quantiles), (10, [0.007; 3]));
        assert_eq!(seen.bytes, [1_000, 1_005, 1_009]);
        let [_, p99, maximum] = seen.pictures.quantiles;
        assert_eq!(maximum, 1.5);
        assert!((0.098..=0.1).contains(&p99), "{p99}");
        assert_eq!(seen.failure.as_deref(), Some("gone"));
    }
}
