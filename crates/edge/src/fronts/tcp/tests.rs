//! The TCP front from a client's side, over loopback.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;

use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::{http1 as client1, http2 as client2};
use hyper::{Response as Reply, StatusCode};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpSocket;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream as ClientStream;

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
    config.server.cores = 2;
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
    /// A TCP connection from this address of loopback.
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

    /// What a client needs who trusts the server's certificate.
    fn client_tls(&self, alpn: &[u8]) -> rustls::ClientConfig {
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
        tls
    }

    async fn tls_on(&self, stream: TcpStream, alpn: &[u8]) -> io::Result<ClientStream<TcpStream>> {
        let tls = self.client_tls(alpn);
        let name = ServerName::try_from("mendcast.test").expect("a name");
        let connecting = TlsConnector::from(Arc::new(tls)).connect(name, stream);
        timeout(LIMIT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }

    /// Waits until this number of these places are taken.
    async fn holds(&self, place: Place, count: usize) {
        let is_so = async {
            while self.shared.limits().counts(place).used != count {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(LIMIT, is_so).await.expect("taken in time");
    }

    /// How often something was limited for this reason.
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
async fn both_versions_serve_whole_files_parts_and_heads_with_alt_svc() {
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

/// Connections between these two ports that the kernel has at the server's end, whatever is left of them.
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
async fn the_kernel_keeps_nothing_for_a_client_that_reads_nothing() {
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

/// A new connection that the server closes, perhaps before it is known here that there was one.
async fn assert_refused(server: &Server, from: &str) {
    let connected = timeout(LIMIT, server.try_connect(from)).await.expect("in time");
    if let Ok(mut stream) = connected {
        closed(&mut stream).await;
    }
}

/// Waits until the server has closed the connection.
async fn closed(stream: &mut TcpStream) {
    let mut byte = [0];
    let ended = timeout(LIMIT, stream.read(&mut byte)).await.expect("closed in time");
    assert!(matches!(ended, Ok(0) | Err(_)), "{ended:?}");
}

#[tokio::test]
async fn a_full_front_goes_on_accepting_and_an_idle_connection_makes_room() {
    let server = start(|config| config.tcp.max_connections = 1);
    let mut first = server.client(false).await;
    first.ask("GET", "/small.txt", &[]).await.expect("a reply");
    // It was served a moment ago: the newcomer has to go.
    assert_refused(&server, "127.0.0.2").await;
    assert_eq!((server.limited("tcp_full"), server.limited("tcp_evicted")), (1, 0));
    drop(first);
    let silent = async {
        loop {
            // The place of the one before is given back soon.
            let Ok(mut stream) = server.try_connect("127.0.0.1").await else { continue };
            if timeout(Duration::from_millis(100), stream.read(&mut [0])).await.is_err() {
                return stream;
            }
        }
    };
    let mut silent = timeout(LIMIT, silent).await.expect("a place");
    sleep(Duration::from_millis(3_100)).await;
    let newcomer = server.connect("127.0.0.2").await;
    let mut newcomer = server.tls_on(newcomer, b"http/1.1").await.expect("room is made");
    closed(&mut silent).await;
    assert_eq!(server.limited("tcp_evicted"), 1);
    newcomer.write_all(b"GET /small.txt HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    let mut reply = [0; 12];
    newcomer.read_exact(&mut reply).await.expect("a reply");
    assert_eq!(&reply, b"HTTP/1.1 200");
}

#[tokio::test]
async fn one_address_cannot_take_the_places_of_others() {
    let server = start(|config| {
        config.tcp.max_connections = 4;
        config.tcp.max_connections_per_address = 2;
    });
    let _held = [server.connect("127.0.0.1").await, server.connect("127.0.0.1").await];
    server.holds(Place::Tcp, 2).await;
    assert_refused(&server, "127.0.0.1").await;
    assert_eq!(server.limited("tcp_address"), 1);
    let other = server.connect("127.0.0.2").await;
    assert!(server.tls_on(other, b"h2").await.is_ok());
}

#[tokio::test]
async fn handshakes_that_do_not_go_on_are_few_for_each_address_and_all() {
    let server = start(|config| {
        config.tcp.max_handshakes = 3;
        config.tcp.max_handshakes_per_address = 2;
    });
    let _held = [server.connect("127.0.0.1").await, server.connect("127.0.0.1").await];
    server.holds(Place::Handshake, 2).await;
    assert_refused(&server, "127.0.0.1").await;
    assert_eq!(server.limited("tls_handshake_address"), 1);
    let other = server.connect("127.0.0.2").await;
    let established = server.tls_on(other, b"h2").await;
    assert!(established.is_ok(), "a place is given back with the end of the handshake");
    server.holds(Place::Handshake, 2).await;
    let _held = server.connect("127.0.0.2").await;
    server.holds(Place::Handshake, 3).await;
    assert_refused(&server, "127.0.0.3").await;
    assert_eq!(server.limited("tls_handshake_full"), 1);
    sleep(Duration::from_millis(3_100)).await;
    let late = server.connect("127.0.0.3").await;
    assert!(server.tls_on(late, b"h2").await.is_ok(), "the oldest makes room");
    assert_eq!(server.limited("tls_handshake_evicted"), 1);
}

/// CPU time of this thread so far.
fn cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_THREAD).expect("known");
    let times = [usage.user_time(), usage.system_time()];
    times.iter().map(|time| Duration::from_micros(time.num_microseconds() as u64)).sum()
}

#[tokio::test]
async fn handshakes_leave_half_of_a_threads_time_to_others() {
    // All of them have said hello; nothing but the server's work is left.
    const CLIENTS: usize = 200;
    let server = start(|_| ());
    let (config, turns) = (server.shared.state().tcp_tls.clone(), Arc::new(Turns::new()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let mut accepting = Vec::new();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let mut client = TcpStream::connect(address).await.expect("connected");
        let name = ServerName::try_from("mendcast.test").expect("a name");
        let mut said = Vec::new();
        let tls = Arc::new(server.client_tls(b"h2"));
        let mut hello = rustls::ClientConnection::new(tls, name).expect("a client");
        hello.write_tls(&mut said).expect("a ClientHello");
        client.write_all(&said).await.expect("sent");
        clients.push(client);
        accepting.push(listener.accept().await.expect("accepted").0);
    }
    let (began, cpu_before) = (Instant::now(), cpu());
    let mut handshakes = JoinSet::new();
    for stream in accepting {
        let (turns, config) = (turns.clone(), config.clone());
        // Nobody goes on with it: it ends when the client leaves.
        handshakes.spawn(async move { turns.accept(Measured::new(stream), config).await.is_err() });
    }
    for client in &mut clients {
        timeout(4 * LIMIT, client.read_exact(&mut [0])).await.expect("in time").expect("answered");
    }
    let (wall, busy) = (began.elapsed(), cpu() - cpu_before);
    assert!(busy > Duration::from_millis(10), "{busy:?}: too little to judge by");
    // They make up for 4 ms without any.
    let credit = Duration::from_millis(5);
    assert!(wall + credit > busy * 8 / 5, "{wall:?} for {busy:?} of work");
    drop(clients);
    while let Some(failed) = handshakes.join_next().await {
        assert!(failed.expect("no panic"));
    }
}

/// An HTTP/2 frame (RFC 9113, section 4.1).
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// What an HTTP/2 client says first: the preface and empty SETTINGS.
fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(4, 0, 0, &[])].concat()
}

const PING: u8 = 6;
const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;

#[tokio::test]
async fn an_http_2_connection_without_a_whole_request_ends_whatever_it_says() {
    let ping = frame(PING, 0, 0, &[7; 8]);
    // A request whose fields never end: HEADERS, then CONTINUATION for ever.
    let start_of_head = [preface(), frame(HEADERS, 0, 1, &[0x82])].concat();
    let more_of_head = frame(CONTINUATION, 0, 1, b"\x40\x01a\x01b");
    for (first, next, is_late) in [(preface(), ping, true), (start_of_head, more_of_head, false)] {
        let server = start(|config| config.tcp.header_timeout = Duration::from_millis(500));
        let (mut reader, mut writer) = tokio::io::split(server.tls(b"h2").await);
        let drip = tokio::spawn(async move {
            let mut text = &first;
            while writer.write_all(text).await.is_ok() {
                text = &next;
                sleep(Duration::from_millis(50)).await;
            }
        });
        let mut said = Vec::new();
        // The end may be a reset: something is always on its way.
        let ended = timeout(LIMIT, reader.read_to_end(&mut said)).await;
        assert!(ended.is_ok(), "still open after {LIMIT:?}");
        // After some CONTINUATIONs the library itself has had enough.
        assert!(!is_late || server.limited("tcp_no_request") == 1);
        drip.abort();
    }
}

const RST_STREAM: u8 = 3;
/// END_STREAM and END_HEADERS.
const WHOLE: u8 = 5;

/// A GET of this path of up to 127 bytes (RFC 7541: static fields, and literals).
fn get(stream: u32, path: &str) -> Vec<u8> {
    let fields = [&[0x82, 0x87, 0x41, 1, b'a', 0x44, path.len() as u8], path.as_bytes()].concat();
    frame(HEADERS, WHOLE, stream, &fields)
}

/// The server's frames until it closes the connection: types and payloads.
fn frames(mut said: &[u8]) -> Vec<(u8, &[u8])> {
    let mut frames = Vec::new();
    while let Some((head, rest)) = said.split_first_chunk::<9>() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(length) else { break };
        frames.push((head[3], payload));
        said = rest;
    }
    frames
}

#[tokio::test]
async fn the_library_ends_a_connection_whose_requests_are_reset_before_they_are_looked_at() {
    let server = start(|_| ());
    let (mut reader, mut writer) = tokio::io::split(server.tls(b"h2").await);
    let reset = |stream| [get(stream, "/small.txt"), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])];
    let all = (0..1_000).flat_map(|n| reset(2 * n + 1)).flatten();
    let flood: Vec<u8> = preface().into_iter().chain(all).collect();
    let sent = tokio::spawn(async move {
        let _ = writer.write_all(&flood).await;
        writer
    });
    let mut said = Vec::new();
    let ended = timeout(LIMIT, reader.read_to_end(&mut said)).await;
    assert!(ended.is_ok(), "still open after {LIMIT:?}");
    // RFC 9113, section 7: GOAWAY with ENHANCE_YOUR_CALM.
    const GOAWAY: u8 = 7;
    let calm = |(kind, payload): &(u8, &[u8])| *kind == GOAWAY && payload[4..8] == [0, 0, 0, 11];
    assert!(frames(&said).iter().any(calm));
    assert_eq!(server.limited("http2_cancels"), 0, "they never were requests here");
    sent.abort();
}

#[tokio::test]
async fn an_http_2_client_that_gives_up_all_it_asks_for_is_closed() {
    // The hook never answers, so that each request waits until it is given up.
    let hook = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let url = format!("http://{}/", hook.local_addr().expect("bound"));
    let server = start(|config| {
        let text = format!(
            "[hooks]\non_play = \"{url}\"\n[[pull]]\nstream = \"live/*\"\n\
             upstream = [\"rtmp://127.0.0.1:1/live/a\"]"
        );
        let parsed = Config::parse("edge.toml", &text).expect("valid");
        (config.hooks, config.pull) = (parsed.hooks, parsed.pull);
    });
    let (mut reader, mut writer) = tokio::io::split(server.tls(b"h2").await);
    let drain = tokio::spawn(async move {
        let mut said = Vec::new();
        let _ = reader.read_to_end(&mut said).await;
    });
    writer.write_all(&preface()).await.expect("sent");
    let (mut given_up, mut asked) = (0, VecDeque::new());
    let flood = async {
        for number in 0..2_000u32 {
            let stream = 2 * number + 1;
            let reset = frame(RST_STREAM, 0, stream, &[0, 0, 0, 8]);
            if writer.write_all(&get(stream, "/live/a.flv")).await.is_err() {
                return;
            }
            let _ = writer.flush().await;
            // Only what was begun is given up: to anything else the library objects.
            let Ok(question) = timeout(LIMIT, hook.accept()).await else { return };
            let (mut question, _) = question.expect("accepted");
            let read = timeout(LIMIT, question.read(&mut [0; 4_096])).await.expect("in time");
            assert!(read.expect("readable") > 0, "it is asked");
            asked.push_back(question);
            asked.drain(..asked.len().saturating_sub(20));
            if writer.write_all(&reset).await.is_err() {
                return;
            }
            let _ = writer.flush().await;
            given_up += 1;
        }
    };
    assert!(timeout(4 * LIMIT, flood).await.is_ok(), "still open after {given_up} requests");
    assert!((256..400).contains(&given_up), "{given_up}");
    assert_eq!(server.limited("http2_cancels"), 1);
    drain.abort();
}

#[tokio::test]
async fn an_http_2_client_is_asked_whether_it_is_there() {
    let server = start(|config| config.tcp.keep_alive = Duration::from_millis(100));
    let mut stream = server.tls(b"h2").await;
    stream.write_all(&preface()).await.expect("sent");
    let mut frames = async || loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.expect("a frame");
        let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
        stream.read_exact(&mut payload).await.expect("all of it");
        if head[3] == PING && head[4] == 0 {
            return;
        }
    };
    timeout(LIMIT, frames()).await.expect("a ping");
}

#[tokio::test]
async fn content_that_drips_is_not_waited_for() {
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
async fn a_balancers_header_says_who_the_client_is() {
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
    assert!(through("127.0.0.2", &header("192.0.2.3")).await.is_err(), "nobody else may say so");
    // From another address: the one that was refused may still count for a moment.
    assert!(through("127.0.0.3", "").await.is_ok());
    drop((first, second));
}

#[tokio::test]
async fn another_port_may_be_announced() {
    let server = start(|config| config.quic.advertised_port = 443);
    let reply = server.client(true).await.ask("GET", "/small.txt", &[]).await.expect("a reply");
    assert_eq!(header(&reply, "alt-svc"), "h3=\":443\"; ma=2592000; persist=1");
}

#[tokio::test]
async fn head_has_no_content_whatever_the_answer() {
    let server = start(|config| {
        let text = "[[play]]\nstream = \"paid/*\"\nkey = \"k\"\n[[pull]]\nstream = \"*\"\n\
                    upstream = \"http://127.0.0.1:1/\"";
        let rules = Config::parse("a", text).expect("valid");
        (config.play, config.pull) = (rules.play, rules.pull);
    });
    for (path, fields, status) in [
        ("/small.txt", &[][..], 200),
        ("/large.bin", &[], 200),
        // RFC 9110, section 14.2: ranges are for GET alone.
        ("/large.bin", &[("range", "bytes=5-6")], 200),
        ("/missing", &[], 404),
        ("/beacon", &[], 405),
        ("/paid/a.flv", &[], 403),
        ("/paid/a/index.m3u8", &[], 403),
        ("/paid/a/media.m3u8", &[], 403),
        ("/paid/a/1-0000000000000000.m4s", &[], 403),
        ("/live/x/1-0000000000000000.m4s", &[], 403),
        // As the upstream fails: 502, or 503 if it takes its time.
        ("/live/x/index.m3u8", &[], 0),
        ("/player.html", &[], 0),
    ] {
        let mut answers = Vec::new();
        for h2 in [false, true] {
            // A client of its own, so that nothing of one answer can be taken for the next.
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

#[tokio::test]
async fn newcomers_do_not_wait_for_a_thread_that_is_busy() {
    let server = start(|config| config.server.cores = 1);
    let shared = server.shared.clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    listener.set_nonblocking(true).expect("set");
    let address = listener.local_addr().expect("bound");
    let (busy, is_busy) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let mut released = Some(released);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let (own, shared) = (listener.try_clone().expect("cloned"), shared.clone());
            let (busy, released) = (busy.clone(), released.take());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("made").block_on(async {
                    let own = TcpListener::from_std(own).expect("a listener");
                    let serving = tokio::spawn(serve(own, shared));
                    if let Some(released) = released {
                        sleep(Duration::from_millis(50)).await;
                        busy.send(()).expect("received");
                        // Until the test is over, or has failed.
                        let _ = released.recv();
                    }
                    serving.await.expect("no panic");
                });
            })
        })
        .collect();
    is_busy.recv_timeout(LIMIT).expect("busy");
    for _ in 0..20 {
        let stream = TcpStream::connect(address).await.expect("connected");
        server.tls_on(stream, b"h2").await.expect("the other thread serves");
    }
    drop(release);
    shared.drain();
    for thread in threads {
        tokio::task::spawn_blocking(|| thread.join()).await.expect("run").expect("no panic");
    }
}
