//! A straightforward relay on `quinn` and `h3`: one thread, a broadcast channel of shared tags per
//! stream, the newest group of pictures for joining viewers, and one DATA frame per tag. Its ingest
//! is a line with the stream's name and FLV, over TCP.
//!
//! It serves with the certificate in a directory and prints `listening QUIC TCP`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use media::flv::{self, Reader};
use media::{Role, Tag};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::{self, Receiver, Sender, error::RecvError};

use crate::Failure;

/// UDP payload of full datagrams.
const MTU: u16 = 1_200;
/// Maximum lag of a slow viewer in tags, about five seconds.
const BACKLOG: usize = 360;

/// Tags for joining viewers.
#[derive(Default)]
struct Kept {
    headers: Vec<Tag>,
    group: Vec<Tag>,
}

struct RelayedStream {
    kept: Mutex<Kept>,
    tags: Sender<Bytes>,
}

/// Streams by name.
type StreamMap = Arc<Mutex<HashMap<String, Arc<RelayedStream>>>>;

impl RelayedStream {
    fn new() -> Self {
        Self { kept: Mutex::default(), tags: broadcast::channel(BACKLOG).0 }
    }

    fn push(&self, tag: Tag) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if tag.role().is_header() {
            kept.headers.push(tag.clone());
        } else {
            if tag.role() == Role::KeyFrame {
                kept.group.clear();
            }
            kept.group.push(tag.clone());
        }
        // An error means that there are no viewers.
        let _ = self.tags.send(tag.bytes().clone());
    }

    /// Returns the initial tags and a receiver of later ones.
    fn join(&self) -> (Vec<Bytes>, Receiver<Bytes>) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let tags = kept.headers.iter().chain(&kept.group).map(|tag| tag.bytes().clone());
        let start = std::iter::once(flv::file_header(true, true)).chain(tags);
        (start.collect(), self.tags.subscribe())
    }
}

/// Serves until the process is killed.
pub(crate) fn run(dir: &Path) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(dir))
}

fn tls(dir: &Path) -> Result<rustls::ServerConfig, Failure> {
    let certificate = CertificateDer::from_pem_file(dir.join("chain.pem"))?;
    let key = PrivatePkcs8KeyDer::from_pem_file(dir.join("key.pem"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())?;
    tls.alpn_protocols = vec![b"h3".to_vec()];
    tls.max_early_data_size = u32::MAX;
    Ok(tls)
}

async fn serve(dir: &Path) -> Result<(), Failure> {
    let tls = quinn::crypto::rustls::QuicServerConfig::try_from(tls(dir)?)?;
    let mut transport = quinn::TransportConfig::default();
    transport.initial_mtu(MTU).mtu_discovery_config(None);
    let mut config = quinn::ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(Arc::new(transport));
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let socket = std::net::UdpSocket::bind(any)?;
    // As large as the edge's.
    let buffers = socket2::SockRef::from(&socket);
    buffers.set_recv_buffer_size(4 << 20).and_then(|()| buffers.set_send_buffer_size(4 << 20))?;
    let runtime = Arc::new(quinn::TokioRuntime);
    let endpoint = quinn::Endpoint::new(Default::default(), Some(config), socket, runtime)?;
    let ingest = TcpListener::bind(any).await?;
    let addresses = endpoint.local_addr().and_then(|quic| Ok((quic, ingest.local_addr()?)));
    let (quic, tcp) = addresses?;
    println!("listening {quic} {tcp}");

    let streams = StreamMap::default();
    tokio::spawn(accept(ingest, streams.clone()));
    while let Some(incoming) = endpoint.accept().await {
        let streams = streams.clone();
        // A viewer that leaves causes an error that affects no other.
        tokio::spawn(async move {
            let _ = connection(incoming, streams).await;
        });
    }
    Ok(())
}

/// Accepts publishers.
async fn accept(ingest: TcpListener, streams: StreamMap) -> Result<(), Failure> {
    loop {
        let (socket, _) = ingest.accept().await?;
        let streams = streams.clone();
        // A publisher that leaves causes an error that affects no other stream.
        tokio::spawn(async move {
            let _ = take(socket, streams).await;
        });
    }
}

/// Reads a publisher's stream.
async fn take(socket: TcpStream, streams: StreamMap) -> Result<(), Failure> {
    let mut socket = BufReader::with_capacity(1 << 16, socket);
    let mut name = String::new();
    socket.read_line(&mut name).await?;
    let stream = Arc::new(RelayedStream::new());
    let name = name.trim_end().to_owned();
    streams.lock().unwrap_or_else(PoisonError::into_inner).insert(name, stream.clone());
    let mut reader = Reader::new(1 << 22);
    let mut input = vec![0; 1 << 16];
    loop {
        let read = socket.read(&mut input).await?;
        if read == 0 {
            return Ok(());
        }
        reader.read(&input[..read])?;
        while let Some(tag) = reader.next_tag() {
            stream.push(tag);
        }
    }
}

/// Returns the stream of a path such as `/live/NAME.flv`.
fn stream_at(path: &str, streams: &StreamMap) -> Option<Arc<RelayedStream>> {
    let name = path.strip_prefix("/live/")?.strip_suffix(".flv")?;
    streams.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
}

async fn connection(incoming: quinn::Incoming, streams: StreamMap) -> Result<(), Failure> {
    let connection = h3_quinn::Connection::new(incoming.await?);
    let mut requests = h3::server::Connection::<_, Bytes>::new(connection).await?;
    while let Some(request) = requests.accept().await? {
        let streams = streams.clone();
        tokio::spawn(async move {
            let (request, mut answer) = request.resolve_request().await?;
            let Some(stream) = stream_at(request.uri().path(), &streams) else {
                answer.send_response(http::Response::builder().status(404).body(())?).await?;
                return Ok(answer.finish().await?);
            };
            let head = http::Response::builder()
                .header("content-type", "video/x-flv")
                .header("cache-control", "no-store")
                .body(())?;
            answer.send_response(head).await?;
            let (start, mut tags) = stream.join();
            for tag in start {
                answer.send_data(tag).await?;
            }
            loop {
                match tags.recv().await {
                    Ok(tag) => answer.send_data(tag).await?,
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => break,
                }
            }
            answer.finish().await?;
            Ok::<_, Failure>(())
        });
    }
    Ok(())
}
