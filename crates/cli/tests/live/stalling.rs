//! QUIC clients that start and stall lose their resources.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ApplicationClose, ConnectionError, ReadError, VarInt};
use tokio::net::UdpSocket;
use tokio::time::{sleep, timeout};

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::http3::runtime;
use crate::support::viewer::Viewer;
use crate::support::{PATIENCE, assert_is_clip, tls, until};

/// Error codes (RFC 9114, section 8.1).
const H3_NO_ERROR: VarInt = VarInt::from_u32(0x100);
const H3_REQUEST_INCOMPLETE: VarInt = VarInt::from_u32(0x10d);

/// A HEADERS frame by the static table (RFC 9204, appendix A): POST https://a/beacon.
const POST_BEACON: &[u8; 18] = b"\x01\x10\0\0\xd4\xd7\x50\x01a\x51\x07/beacon";

/// The same: GET https://a/live/demo.flv.
const GET_LIVE: &[u8; 25] = b"\x01\x17\0\0\xd1\xd7\x50\x01a\x51\x0e/live/demo.flv";

const TIMES: &str = "quic.request_timeout = \"1s\"\nquic.unused_timeout = \"2s\"\n";

/// A client that keeps its connection alive.
async fn connect(edge: &Edge, protocol: &str) -> (quinn::Endpoint, quinn::Connection) {
    let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
    let tls = QuicClientConfig::try_from(tls::client(protocol)).expect("TLS 1.3");
    let mut config = quinn::ClientConfig::new(Arc::new(tls));
    let mut transport = quinn::TransportConfig::default();
    transport.keep_alive_interval(Some(Duration::from_millis(100)));
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    let connecting = endpoint.connect(edge.address, "localhost").expect("an address");
    let connection = timeout(PATIENCE, connecting).await.expect("in time").expect("connected");
    (endpoint, connection)
}

/// The code that the server closes the connection with.
async fn close_code(connection: &quinn::Connection) -> VarInt {
    match timeout(PATIENCE, connection.closed()).await.expect("closed in time") {
        ConnectionError::ApplicationClosed(ApplicationClose { error_code, .. }) => error_code,
        other => panic!("{other}"),
    }
}

#[test]
fn half_a_head_is_reset_and_a_connection_without_a_request_ends() {
    let edge = Edge::start(TIMES);
    runtime().block_on(async {
        let start = Instant::now();
        let (_endpoint, connection) = connect(&edge, "h3").await;
        let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
        send.write_all(&[0x01]).await.expect("open");
        let error = timeout(PATIENCE, receive.read_to_end(100)).await.expect("in time");
        let Err(quinn::ReadToEndError::Read(ReadError::Reset(code))) = error else {
            panic!("{error:?}")
        };
        assert_eq!(code, H3_REQUEST_INCOMPLETE);
        assert!(start.elapsed() >= Duration::from_secs(1));
        assert_eq!(close_code(&connection).await, H3_NO_ERROR);
        assert!(start.elapsed() >= Duration::from_secs(4), "the rest, and the GOAWAY's");
    });
}

#[test]
fn a_report_that_is_too_large_is_answered_before_its_end() {
    let edge = Edge::start(TIMES);
    runtime().block_on(async {
        let (_endpoint, connection) = connect(&edge, "h3").await;
        let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
        // Content of 64 KiB is announced, and some of it sent.
        let content = [&[0x00, 0x80, 0x01, 0x00, 0x00][..], &[b'x'; 10_000]].concat();
        send.write_all(&[&POST_BEACON[..], &content].concat()).await.expect("open");
        let answer = timeout(PATIENCE, receive.read_to_end(10_000)).await.expect("in time");
        let answer = answer.expect("an answer");
        assert!(answer.windows(3).any(|part| part == b"413"), "{answer:?}");
        let stopped = timeout(PATIENCE, send.stopped()).await.expect("in time");
        assert_eq!(stopped.expect("stopped"), Some(H3_NO_ERROR));
    });
}

#[test]
fn a_report_in_early_data_waits_for_the_handshake_and_is_answered() {
    let edge = Edge::start("");
    runtime().block_on(async {
        let mut tls = tls::client("h3");
        tls.enable_early_data = true;
        let tls = QuicClientConfig::try_from(tls).expect("TLS 1.3");
        let mut endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
        endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
        let report = [&POST_BEACON[..], &[0x00, 2], b"{}"].concat();
        // The first connection brings the ticket, the second one uses it.
        for is_early in [false, true] {
            let connecting = endpoint.connect(edge.address, "localhost").expect("an address");
            let (connection, accepted) = match connecting.into_0rtt() {
                Ok((connection, accepted)) => (connection, Some(accepted)),
                Err(connecting) => (connecting.await.expect("connected"), None),
            };
            assert_eq!(accepted.is_some(), is_early);
            let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
            send.write_all(&report).await.expect("open");
            send.finish().expect("open");
            let answer = timeout(PATIENCE, receive.read_to_end(10_000)).await.expect("in time");
            let answer = String::from_utf8_lossy(&answer.expect("an answer")).into_owned();
            assert!(answer.ends_with("400 Bad Request\n"), "{answer:?}");
            if let Some(accepted) = accepted {
                assert!(accepted.await, "0-RTT was refused");
            }
            connection.close(H3_NO_ERROR, b"");
            endpoint.wait_idle().await;
        }
    });
}

/// The newest address token; a client that forgets them has no room for one.
#[derive(Debug)]
struct Tokens {
    newest: Mutex<Option<Bytes>>,
    keeps: bool,
}

impl quinn::TokenStore for Tokens {
    fn insert(&self, _: &str, token: Bytes) {
        *self.newest.lock().expect("no panic") = Some(token);
    }

    fn take(&self, _: &str) -> Option<Bytes> {
        self.newest.lock().expect("no panic").take().filter(|_| self.keeps)
    }
}

/// A path to `server` that returns nothing before `is_open`, as for clients with spoofed
/// addresses.
async fn one_way(server: SocketAddr, is_open: Arc<AtomicBool>) -> SocketAddr {
    let bind = || UdpSocket::bind("127.0.0.1:0");
    let (near, far) = (bind().await.expect("bound"), bind().await.expect("bound"));
    let address = near.local_addr().expect("bound");
    tokio::spawn(async move {
        let (mut there, mut back) = ([0; 2_000], [0; 2_000]);
        let mut client = address;
        loop {
            tokio::select! {
                Ok((length, from)) = near.recv_from(&mut there) => {
                    client = from;
                    far.send_to(&there[..length], server).await.expect("sent");
                }
                Ok((length, _)) = far.recv_from(&mut back) => {
                    if is_open.load(Ordering::Relaxed) {
                        near.send_to(&back[..length], client).await.expect("sent");
                    }
                }
            }
        }
    });
    address
}

#[test]
fn a_request_in_early_data_has_no_place_of_an_address_that_is_not_proven() {
    for keeps in [true, false] {
        let edge = Edge::start("");
        let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
        let sessions = || edge.metric("mendcast_places_used{place=\"session\"}");
        let tokens = Arc::new(Tokens { newest: Mutex::default(), keeps });
        let mut tls = tls::client("h3");
        tls.enable_early_data = true;
        let mut config =
            quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("TLS 1.3")));
        config.token_store(tokens.clone());
        runtime().block_on(async {
            let until = async |what: &str, is_so: &dyn Fn() -> bool| {
                let wait = async {
                    while !is_so() {
                        sleep(Duration::from_millis(10)).await;
                    }
                };
                timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("{what}, token: {keeps}"));
            };
            let mut endpoint =
                quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).expect("a socket");
            endpoint.set_default_client_config(config);
            // The first connection brings the ticket and the token.
            let connecting = endpoint.connect(edge.address, "localhost").expect("an address");
            let first = timeout(PATIENCE, connecting).await.expect("in time").expect("connected");
            until("a token", &|| tokens.newest.lock().expect("no panic").is_some()).await;
            first.close(H3_NO_ERROR, b"");
            let is_open = Arc::new(AtomicBool::new(false));
            let relay = one_way(edge.address, is_open.clone()).await;
            let connecting = endpoint.connect(relay, "localhost").expect("an address");
            let Ok((connection, _)) = connecting.into_0rtt() else { panic!("no ticket") };
            let (mut send, mut receive) = connection.open_bi().await.expect("a stream");
            send.write_all(GET_LIVE).await.expect("open");
            send.finish().expect("open");
            if keeps {
                until("the token proves the address", &|| sessions() == 1.0).await;
                return;
            }
            until("the request arrives", &|| edge.metric("mendcast_quic_accepted_total") == 2.0)
                .await;
            sleep(Duration::from_millis(500)).await;
            assert_eq!(sessions(), 0.0, "anybody could have asked in the name of this address");
            is_open.store(true, Ordering::Relaxed);
            let answer = timeout(PATIENCE, receive.read_chunk(100, true)).await.expect("in time");
            assert!(answer.expect("an answer").is_some());
            assert_eq!(sessions(), 1.0);
        });
    }
}

#[test]
fn half_a_line_of_http_0_9_and_no_line_end_the_connection() {
    let edge = Edge::start(&format!("{TIMES}quic.hq_interop = true\n"));
    runtime().block_on(async {
        for line in [Some(b"GET /"), None] {
            let (_endpoint, connection) = connect(&edge, "hq-interop").await;
            let mut stream = connection.open_bi().await.expect("a stream");
            if let Some(line) = line {
                stream.0.write_all(line).await.expect("open");
            }
            assert_eq!(close_code(&connection).await, H3_NO_ERROR);
        }
    });
}

#[test]
fn a_viewer_of_a_live_stream_outlasts_all_times() {
    let edge = Edge::start(TIMES);
    let _publisher = Publisher::start(edge.rtmp, "live/a", None);
    let viewer = Viewer::h3(edge.address, "/live/a.flv");
    until("the first frame", || !viewer.frames().is_empty());
    let first = viewer.frames()[0].timestamp();
    let is_late = |last: &media::Tag| last.timestamp() > first + 5_000;
    until("five seconds of the stream", || viewer.frames().last().is_some_and(is_late));
    assert_is_clip(&viewer.frames());
}
