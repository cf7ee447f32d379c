//! Tests of the TCP front with real clients over loopback.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1 as client1, http2 as client2};
use hyper::{Response as Reply, StatusCode};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio::task::JoinSet;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as ClientStream;

use super::*;
use crate::config::Config;
use crate::server::Edge;

mod http2;
mod limits;

const LIMIT: Duration = Duration::from_secs(5);

struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    served: tokio::task::JoinHandle<Result<(), crate::Error>>,
    // Removed at the end of the test.
    _root: tempfile::TempDir,
}

fn content() -> Vec<u8> {
    (0..1_000_000u32).map(|i| (i % 251) as u8).collect()
}

fn config(root: &Path) -> Config {
    let mut config = Config::default();
    config.server.listen = vec![([127, 0, 0, 1], 0).into()];
    config.server.cores = 2;
    config.server.root = Some(root.to_owned());
    config
}

fn start(adapt: impl FnOnce(&mut Config)) -> Server {
    let root = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(root.path().join("small.txt"), "0123456789").expect("written");
    std::fs::write(root.path().join("large.bin"), content()).expect("written");
    let mut config = config(root.path());
    // Large files are read from disk, small ones from memory.
    config.files.memory = config::Size(10_000);
    adapt(&mut config);
    let edge = Edge::open(config).expect("opened");
    let (address, shared) = (edge.listeners()[0].address, edge.shared().clone());
    Server { address, shared, served: tokio::spawn(edge.serve()), _root: root }
}

impl Server {
    /// Connects from this loopback address.
    async fn connect(&self, from: &str) -> TcpStream {
        self.try_connect(from).await.expect("connected")
    }

    async fn try_connect(&self, from: &str) -> io::Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(format!("{from}:0").parse().expect("an address"))?;
        socket.connect(self.address).await
    }

    async fn tls(&self, alpn: &[u8]) -> ClientStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.expect("connected");
        self.tls_on(stream, alpn).await.expect("a TLS connection")
    }

    /// Returns the configuration of a client that trusts the server's certificate.
    fn client_tls(&self, alpn: &[u8]) -> rustls::ClientConfig {
        let certificate: CertificateDer<'static> = self.shared.state().identity().chain[0].clone();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![alpn.to_vec()];
        tls
    }

    async fn tls_on(&self, stream: TcpStream, alpn: &[u8]) -> io::Result<ClientStream<TcpStream>> {
        let tls = self.client_tls(alpn);
        let name = ServerName::try_from("mendcast.test").expect("a name");
        let connecting = TlsConnector::from(Arc::new(tls)).connect(name, stream);
        timeout(LIMIT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Waits until this number of places is taken.
    async fn holds(&self, place: Place, count: usize) {
        let is_so = async {
            while self.shared.limits().counts(place).used != count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, is_so).await.expect("taken in time");
    }

    /// Returns how often this limit applied.
    fn limited(&self, reason: &str) -> u64 {
        let losses = self.shared.limits().losses();
        losses.into_iter().find(|(name, _)| *name == reason).expect("a reason").1
    }

    async fn client(&self, h2: bool) -> Client {
        if h2 {
            let io = TokioIo::new(self.tls(b"h2").await);
            let (sender, connection) =
                client2::handshake(TokioExecutor::new(), io).await.expect("HTTP/2");
            tokio::spawn(connection);
            Client::H2(sender)
        } else {
            let io = TokioIo::new(self.tls(b"http/1.1").await);
            let (sender, connection) = client1::handshake(io).await.expect("HTTP/1.1");
            tokio::spawn(connection);
            Client::H1(sender)
        }
    }

    async fn ended(self) {
        let served = timeout(LIMIT, self.served).await.expect("in time");
        served.expect("no panic").expect("served");
    }
}

enum Client {
    H1(client1::SendRequest<Empty<Bytes>>),
    H2(client2::SendRequest<Empty<Bytes>>),
}

impl Client {
    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
    ) -> hyper::Result<Reply<Incoming>> {
        let mut request = Request::builder().method(method);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        match self {
            Self::H1(sender) => {
                let request = request.uri(path).header("host", "mendcast.test");
                sender.ready().await?;
                sender.send_request(request.body(Empty::new()).expect("a request")).await
            }
            Self::H2(sender) => {
                let request = request.uri(format!("https://mendcast.test{path}"));
                sender.ready().await?;
                sender.send_request(request.body(Empty::new()).expect("a request")).await
            }
        }
    }
}

fn header<'a>(reply: &'a Reply<Incoming>, name: &str) -> &'a str {
    reply.headers().get(name).map_or("", |v| v.to_str().expect("text"))
}

async fn body(reply: Reply<Incoming>) -> Vec<u8> {
    reply.into_body().collect().await.expect("a whole body").to_bytes().to_vec()
}

#[tokio::test]
async fn both_versions_serve_files_ranges_and_head_with_alt_svc() {
    let server = start(|_| ());
    let alt_svc = format!("h3=\":{}\"; ma=2592000; persist=1", server.address.port());
    for h2 in [false, true] {
        let mut client = server.client(h2).await;
        for (path, expected) in [("/small.txt", b"0123456789".to_vec()), ("/large.bin", content())]
        {
            let reply = client.ask("GET", path, &[]).await.expect("a reply");
            assert_eq!(reply.status(), StatusCode::OK);
            assert_eq!(header(&reply, "alt-svc"), alt_svc);
            assert_eq!(header(&reply, "content-length"), expected.len().to_string());
            assert_eq!(header(&reply, "cache-control"), "no-cache");
            let etag = header(&reply, "etag").to_owned();
            assert!(body(reply).await == expected, "{path}");

            let reply = client.ask("HEAD", path, &[]).await.expect("a reply");
            assert_eq!(header(&reply, "content-length"), expected.len().to_string());
            assert_eq!(header(&reply, "alt-svc"), alt_svc);
            assert!(body(reply).await.is_empty());

            let range = [("range", "bytes=-5")];
            let reply = client.ask("GET", path, &range).await.expect("a reply");
            assert_eq!(reply.status(), StatusCode::PARTIAL_CONTENT);
            assert_eq!(body(reply).await, expected[expected.len() - 5..]);

            let reply = client.ask("GET", path, &[("if-none-match", &etag)]).await;
            let reply = reply.expect("a reply");
            assert_eq!(reply.status(), StatusCode::NOT_MODIFIED);
            assert_eq!((header(&reply, "etag"), header(&reply, "alt-svc")), (&*etag, &*alt_svc));
            assert!(body(reply).await.is_empty());
        }
        for (method, path, status) in [("GET", "/missing", 404), ("POST", "/", 405)] {
            let reply = client.ask(method, path, &[]).await.expect("a reply");
            assert_eq!((reply.status().as_u16(), header(&reply, "alt-svc")), (status, &*alt_svc));
        }
    }
}

#[tokio::test]
async fn http_1_1_without_host_is_400() {
    let server = start(|_| ());
    let mut stream = server.tls(b"http/1.1").await;
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.expect("sent");
    let mut reply = [0; 12];
    stream.read_exact(&mut reply).await.expect("a reply");
    assert_eq!(&reply, b"HTTP/1.1 400");
}

#[tokio::test]
async fn reload_changes_the_certificate_of_new_connections() {
    let server = start(|_| ());
    let mut old = server.client(false).await;
    let files = tempfile::tempdir().expect("a temporary directory");
    let key = rcgen::KeyPair::generate().expect("generated");
    let params = rcgen::CertificateParams::new(["mendcast.test".to_owned()]).expect("valid");
    let certificate = params.self_signed(&key).expect("signed");
    let mut config = server.shared.state().config.clone();
    for (slot, name, pem) in [
        (&mut config.server.certificate, "chain.pem", certificate.pem()),
        (&mut config.server.key, "key.pem", key.serialize_pem()),
    ] {
        let path = files.path().join(name);
        std::fs::write(&path, pem).expect("written");
        *slot = Some(path);
    }
    server.shared.reload(config).expect("reloaded");
    // `tls` trusts only the current certificate.
    let stream = server.tls(b"http/1.1").await;
    let shown = stream.get_ref().1.peer_certificates().expect("certificates")[0].clone();
    assert_eq!(&shown, certificate.der());
    assert!(old.ask("GET", "/small.txt", &[]).await.is_ok(), "the old connection goes on");
}

#[tokio::test]
async fn drain_finishes_open_responses_and_accepts_no_new_ones() {
    for h2 in [false, true] {
        let server = start(|_| ());
        let address = server.address;
        let mut client = server.client(h2).await;
        let reply = client.ask("GET", "/large.bin", &[]).await.expect("a reply");
        server.shared.drain();
        assert!(body(reply).await == content());
        server.ended().await;
        assert!(TcpStream::connect(address).await.is_err());
        assert!(client.ask("GET", "/small.txt", &[]).await.is_err());
    }
}

#[tokio::test]
async fn drain_closes_connections_after_its_timeout() {
    let server = start(|config| config.drain.timeout = Duration::from_millis(50));
    // A client that sends no request.
    let _silent = TcpStream::connect(server.address).await.expect("connected");
    let mut client = server.client(false).await;
    client.ask("GET", "/small.txt", &[]).await.expect("a reply");
    server.shared.drain();
    server.ended().await;
}

#[tokio::test]
async fn idle_connection_is_closed() {
    for h2 in [false, true] {
        let server = start(|config| config.tcp.idle_timeout = Duration::from_millis(100));
        let mut client = server.client(h2).await;
        client.ask("GET", "/small.txt", &[]).await.expect("a reply");
        sleep(Duration::from_millis(600)).await;
        assert!(client.ask("GET", "/small.txt", &[]).await.is_err());
    }
}

/// Returns the number of server-side kernel connections between these ports, in any state.
fn in_kernel(server: u16, client: u16) -> usize {
    let table = std::fs::read_to_string("/proc/net/tcp").expect("a table");
    let ends = |line: &&str| {
        let mut ports = line.split_whitespace().skip(1).map(|end| {
            end.split_once(':').and_then(|(_, port)| u16::from_str_radix(port, 16).ok())
        });
        (ports.next().flatten(), ports.next().flatten()) == (Some(server), Some(client))
    };
    table.lines().filter(ends).count()
}

#[tokio::test]
async fn kernel_state_of_a_stalled_client_is_freed() {
    let server = start(|config| config.tcp.idle_timeout = Duration::from_millis(200));
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4_096).expect("set");
    let stream = socket.connect(server.address).await.expect("connected");
    let port = stream.local_addr().expect("bound").port();
    let mut client = server.tls_on(stream, b"http/1.1").await.expect("TLS");
    client.write_all(b"GET /large.bin HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let server_port = server.address.port();
    assert_eq!(in_kernel(server_port, port), 1);
    let gone = async {
        while in_kernel(server_port, port) > 0 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(2 * LIMIT, gone).await.expect("forgotten in time");
}

#[tokio::test]
async fn slow_content_times_out() {
    let server = start(|config| config.tcp.header_timeout = Duration::from_millis(500));
    let stream = server.tls(b"http/1.1").await;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let drip = tokio::spawn(async move {
        let head = b"POST /beacon HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n";
        let mut next = head.to_vec();
        while writer.write_all(&next).await.is_ok() {
            next = b" ".to_vec();
            sleep(Duration::from_millis(50)).await;
        }
    });
    let mut reply = [0; 12];
    let answered = timeout(LIMIT, reader.read_exact(&mut reply)).await;
    answered.expect("in time").expect("a reply");
    assert_eq!(&reply, b"HTTP/1.1 408");
    drip.abort();
}

#[tokio::test]
async fn balancer_header_sets_the_client_address() {
    let server = start(|config| {
        let text = "[tcp]\nproxy_protocol = \"127.0.0.1\"";
        config.tcp.proxy_protocol = Config::parse("a", text).expect("valid").tcp.proxy_protocol;
        config.tcp.max_connections_per_address = 1;
    });
    let through = async |from: &str, header: &str| {
        let mut stream = server.connect(from).await;
        stream.write_all(header.as_bytes()).await.expect("sent");
        server.tls_on(stream, b"h2").await
    };
    let header = |client: &str| format!("PROXY TCP4 {client} 192.0.2.200 1000 443\r\n");
    let first = through("127.0.0.1", &header("192.0.2.1")).await.expect("taken");
    assert!(through("127.0.0.1", &header("192.0.2.1")).await.is_err(), "one for each address");
    assert_eq!(server.limited("tcp_address"), 1);
    let second = through("127.0.0.1", &header("192.0.2.2")).await.expect("another client");
    assert!(through("127.0.0.1", "").await.is_err(), "a header is required");
    assert_eq!(server.limited("proxy_header"), 1);
    assert!(
        through("127.0.0.2", &header("192.0.2.3")).await.is_err(),
        "only balancers may send it"
    );
    // From another address, because the rejected connection may still count for a moment.
    assert!(through("127.0.0.3", "").await.is_ok());
    drop((first, second));
}

#[tokio::test]
async fn announced_port_is_configurable() {
    let server = start(|config| config.quic.advertised_port = 443);
    let reply = server.client(true).await.ask("GET", "/small.txt", &[]).await.expect("a reply");
    assert_eq!(header(&reply, "alt-svc"), "h3=\":443\"; ma=2592000; persist=1");
}

#[tokio::test]
async fn head_responses_have_no_content() {
    let server = start(|config| {
        let text = "[[play]]\nstream = \"paid/*\"\nkey = \"k\"\n[[pull]]\nstream = \"*\"\n\
                    upstream = \"http://127.0.0.1:1/\"";
        let rules = Config::parse("a", text).expect("valid");
        (config.play, config.pull) = (rules.play, rules.pull);
    });
    for (path, fields, status) in [
        ("/small.txt", &[][..], 200),
        ("/large.bin", &[], 200),
        // RFC 9110, section 14.2: ranges apply to GET only.
        ("/large.bin", &[("range", "bytes=5-6")], 200),
        ("/missing", &[], 404),
        ("/beacon", &[], 405),
        ("/paid/a.flv", &[], 403),
        ("/paid/a/index.m3u8", &[], 403),
        ("/paid/a/media.m3u8", &[], 403),
        ("/paid/a/1-0000000000000000.m4s", &[], 403),
        ("/live/x/1-0000000000000000.m4s", &[], 403),
        // Depends on how the upstream fails: 502, or 503 on timeout.
        ("/live/x/index.m3u8", &[], 0),
        ("/player.html", &[], 0),
    ] {
        let mut answers = Vec::new();
        for h2 in [false, true] {
            // A new client each, so that responses cannot be mixed up.
            let reply = server.client(h2).await.ask("HEAD", path, fields).await;
            let reply = reply.unwrap_or_else(|e| panic!("{path}, HTTP/2 {h2}: {e}"));
            let code = reply.status().as_u16();
            assert!(code == status || status == 0, "{path}: {code}");
            let length = header(&reply, "content-length").to_owned();
            let content = reply.into_body().collect().await;
            let content = content.unwrap_or_else(|e| panic!("{path}, HTTP/2 {h2}: {e}"));
            assert!(content.to_bytes().is_empty(), "{path}, HTTP/2 {h2}");
            answers.push((code, length));
        }
        assert_eq!(answers[0], answers[1], "{path}");
    }
}
