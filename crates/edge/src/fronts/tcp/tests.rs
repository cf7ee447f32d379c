//! The TCP front from a client's side, over loopback.

use std::net::SocketAddr;
use std::path::Path;

use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1 as client1, http2 as client2};
use hyper::{Response as Reply, StatusCode};
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::config::Config;
use crate::server::Edge;

const LIMIT: Duration = Duration::from_secs(5);

struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    served: tokio::task::JoinHandle<Result<(), crate::Error>>,
    // Removed with its content when the test ends.
    _root: tempfile::TempDir,
}

fn content() -> Vec<u8> {
    (0..1_000_000u32).map(|i| (i % 251) as u8).collect()
}

fn config(root: &Path) -> Config {
    let mut config = Config::default();
    config.server.listen = vec![([127, 0, 0, 1], 0).into()];
    config.server.root = Some(root.to_owned());
    config
}

fn start(adapt: impl FnOnce(&mut Config)) -> Server {
    let root = tempfile::tempdir().expect("a temporary directory");
    std::fs::write(root.path().join("small.txt"), "0123456789").expect("written");
    std::fs::write(root.path().join("large.bin"), content()).expect("written");
    let mut config = config(root.path());
    // So that the large file comes from the file and the small one from memory.
    config.files.memory = crate::config::Size(10_000);
    adapt(&mut config);
    let edge = Edge::open(config).expect("opened");
    let (address, shared) = (edge.listeners()[0].address, edge.shared().clone());
    Server { address, shared, served: tokio::spawn(edge.serve()), _root: root }
}

impl Server {
    async fn tls(&self, alpn: &[u8]) -> TlsStream<TcpStream> {
        let certificate: CertificateDer<'static> = self.shared.state().identity.chain[0].clone();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![alpn.to_vec()];
        let stream = TcpStream::connect(self.address).await.expect("connected");
        let name = ServerName::try_from("mendcast.test").expect("a name");
        TlsConnector::from(Arc::new(tls)).connect(name, stream).await.expect("a TLS connection")
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
async fn both_versions_serve_whole_files_parts_and_heads_with_alt_svc() {
    let server = start(|_| ());
    let alt_svc = format!("h3=\":{}\"; ma=86400", server.address.port());
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
async fn a_reload_swaps_the_certificate_for_new_connections() {
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
    // `tls` trusts only the certificate of the moment.
    let stream = server.tls(b"http/1.1").await;
    let shown = stream.get_ref().1.peer_certificates().expect("certificates")[0].clone();
    assert_eq!(&shown, certificate.der());
    assert!(old.ask("GET", "/small.txt", &[]).await.is_ok(), "the old connection goes on");
}

#[tokio::test]
async fn a_drain_lets_open_responses_finish_and_takes_nothing_new() {
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
async fn a_drain_cuts_off_what_does_not_finish_in_time() {
    let server = start(|config| config.drain.timeout = Duration::from_millis(50));
    // A client that never says what it wants.
    let _silent = TcpStream::connect(server.address).await.expect("connected");
    let mut client = server.client(false).await;
    client.ask("GET", "/small.txt", &[]).await.expect("a reply");
    server.shared.drain();
    server.ended().await;
}

#[tokio::test]
async fn an_idle_connection_ends() {
    for h2 in [false, true] {
        let server = start(|config| config.tcp.idle_timeout = Duration::from_millis(100));
        let mut client = server.client(h2).await;
        client.ask("GET", "/small.txt", &[]).await.expect("a reply");
        sleep(Duration::from_millis(600)).await;
        assert!(client.ask("GET", "/small.txt", &[]).await.is_err());
    }
}

#[tokio::test]
async fn a_client_that_says_nothing_is_dropped_before_and_after_the_handshake() {
    let server = start(|config| config.tcp.header_timeout = Duration::from_millis(100));
    let mut plain = TcpStream::connect(server.address).await.expect("connected");
    let mut tls = server.tls(b"http/1.1").await;
    let mut byte = [0];
    let ended = timeout(LIMIT, plain.read(&mut byte)).await.expect("in time");
    assert!(matches!(ended, Ok(0) | Err(_)));
    let mut rest = Vec::new();
    timeout(LIMIT, tls.read_to_end(&mut rest)).await.expect("in time").ok();
}

#[tokio::test]
async fn a_connection_beyond_the_limit_waits_for_a_place() {
    let server = start(|config| config.tcp.max_connections = 1);
    let first = server.client(false).await;
    let second = server.client(false);
    let mut second = pin!(second);
    assert!(timeout(Duration::from_millis(200), second.as_mut()).await.is_err());
    drop(first);
    let mut second = timeout(LIMIT, second).await.expect("a place");
    second.ask("GET", "/small.txt", &[]).await.expect("a reply");
}
