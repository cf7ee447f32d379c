//! RTMP over TLS: encoders, pushes between edges, names and times of certificates, and peers that
//! stop in the middle of the handshake.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use tempfile::TempDir;

use crate::certificates::over_tcp;
use crate::common::mendcast;
use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::programs::{ffmpeg_plays, ffmpeg_sends, has};
use crate::support::publishing::Publishing;
use crate::support::viewer::Viewer;
use crate::support::{PATIENCE, assert_is_clip, assert_tracks_are_of_clip, until};

const LISTEN: &str = "rtmp.tls_listen = \"127.0.0.1:0\"\n";

/// The address of the RTMPS listener.
fn rtmps(edge: &Edge) -> SocketAddr {
    let line = edge.says("for RTMPS");
    let (_, rest) = line.split_once("listening on ").expect("an address");
    rest.split(' ').next().expect("a word").parse().expect("an address")
}

/// Writes a certificate for these names that is valid from 2020 to this year, and returns it.
fn write(directory: &Path, stem: &str, names: &[&str], until: i32) -> Vec<u8> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
    let mut params = rcgen::CertificateParams::new(names).expect("names");
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(until, 1, 1);
    let certificate = params.self_signed(&key).expect("signed");
    for (end, text) in [("pem", certificate.pem()), ("key", key.serialize_pem())] {
        std::fs::write(directory.join(format!("{stem}.{end}")), text).expect("written");
    }
    certificate.der().to_vec()
}

/// An edge with RTMPS and a certificate for these names.
fn start(names: &[&str], until: i32, more: &str) -> Edge {
    let directory = tempfile::tempdir().expect("a temporary directory");
    write(directory.path(), "chain", names, until);
    start_in(directory, more)
}

fn start_in(directory: TempDir, more: &str) -> Edge {
    let keys = "server.certificate = \"chain.pem\"\nserver.key = \"chain.key\"\n";
    Edge::start_in(directory, &format!("{keys}{LISTEN}{more}"), None)
}

/// A rule that pushes everything to this address, and trusts the certificate of `edge` alone.
fn push(edge: &Edge, to: SocketAddr) -> String {
    let file = edge.directory().join("chain.pem");
    format!(
        "[[push]]\nstream = \"live/*\"\nurl = \"rtmps://{to}/{{name}}\"\nca_file = {file:?}\n\
         retry = \"500ms\"\n"
    )
}

fn limited(edge: &Edge, reason: &str) -> f64 {
    edge.metric(&format!("mendcast_connections_limited_total{{reason=\"{reason}\"}}"))
}

#[test]
fn a_push_over_rtmps_plays_and_ends_with_its_stream() {
    let second = start(&["127.0.0.1", "localhost"], 2100, "");
    let first = Edge::start(&push(&second, rtmps(&second)));
    let publisher = Publisher::start(first.rtmp, "live/demo", None);
    until("the push", || second.events("published") > 0.0);
    let viewer = Viewer::h1(second.address, "/live/demo.flv");
    viewer.wait_for_frames(150);
    assert_is_clip(&viewer.frames());
    drop(publisher);
    second.says("live/demo: publishing stopped");
    first.says("live/demo: push ended with the stream");
    assert_eq!(second.events("rtmp_error"), 0.0, "{:?}", second.log());
}

#[test]
fn a_push_stops_at_a_certificate_of_another_name_or_time() {
    for (names, until_year, part) in
        [(&["other.test"][..], 2100, "not valid for name"), (&["127.0.0.1"], 2024, "expired")]
    {
        let second = start(names, until_year, "");
        let first = Edge::start(&push(&second, rtmps(&second)));
        let _publisher = Publisher::start(first.rtmp, "live/demo", None);
        let line = first.says("reason=unreachable");
        assert!(line.contains(part), "{line}");
        let line = second.says("TLS handshake failed");
        assert!(line.contains("RTMPS 127.0.0.1:") && line.contains("alert"), "{line}");
        assert_eq!(second.events("published"), 0.0);
        let checked = mendcast(&["edge", "--config", "edge.toml", "--check"])
            .current_dir(second.directory())
            .output()
            .expect("run");
        let text = String::from_utf8_lossy(&checked.stdout).into_owned()
            + &String::from_utf8_lossy(&checked.stderr);
        assert_eq!(text.contains("expired"), part == "expired", "{text}");
    }
}

#[test]
fn ffmpeg_publishes_and_plays_over_rtmps() {
    if !has("ffmpeg") {
        return;
    }
    let edge = start(&["127.0.0.1"], 2100, "");
    let address = rtmps(&edge);
    let mut encoder = ffmpeg_sends(&["-f", "flv"], &format!("rtmps://{address}/live/demo"));
    until("the stream", || edge.events("published") > 0.0);
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(100);
    assert_tracks_are_of_clip(&viewer.frames());
    let played = ffmpeg_plays(&format!("rtmps://{address}/live/demo"), 2);
    assert!(played.status.success(), "{}", String::from_utf8_lossy(&played.stderr));
    // Killed without an alert of TLS or an end of the stream.
    encoder.kill();
    edge.says("live/demo: publisher 127.0.0.1:");
}

#[test]
fn certificates_of_rtmps_follow_the_server_name_and_renewals() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let default = write(directory.path(), "chain", &["localhost"], 2100);
    let other = write(directory.path(), "other", &["other.test"], 2100);
    let more = "[[certificate]]\ncertificate = \"other.pem\"\nkey = \"other.key\"\n";
    let edge = start_in(directory, more);
    let address = rtmps(&edge);
    assert_eq!(over_tcp(address, "other.test"), other);
    assert_eq!(over_tcp(address, "unknown.test"), default);
    let renewed = write(edge.directory(), "other", &["other.test"], 2101);
    until("the renewed certificate", || over_tcp(address, "other.test") == renewed);
    assert_eq!(over_tcp(address, "localhost"), default);
}

/// Waits until the server closes the connection. Returns how long that took.
fn closed(mut socket: TcpStream) -> Duration {
    let start = Instant::now();
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let ended = socket.read(&mut [0; 100]);
    let is_closed = match &ended {
        Ok(length) => *length == 0,
        Err(e) => e.kind() == ErrorKind::ConnectionReset,
    };
    assert!(is_closed, "{ended:?}");
    start.elapsed()
}

/// Begin of a ClientHello, cut off.
const HALF_HELLO: [u8; 9] = [0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc];

#[test]
fn silent_peers_are_closed_and_lock_out_no_encoder() {
    let edge =
        start(&["127.0.0.1"], 2100, "rtmp.handshake_timeout = \"6s\"\nrtmp.max_connections = 64\n");
    let address = rtmps(&edge);
    let first = Edge::start(&push(&edge, address));
    // One network fills its share of the newcomers with half-open handshakes and silence.
    let mut flood = Vec::new();
    for index in 0..40u8 {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into()).expect("bound");
        socket.connect(&address.into()).expect("connected");
        let mut socket = TcpStream::from(socket);
        if index % 2 == 0 {
            // Beyond the limit the connection is reset.
            let _ = socket.write_all(&HALF_HELLO);
        }
        flood.push(socket);
    }
    until("the limit", || limited(&edge, "rtmp_newcomer_address") >= 20.0);
    // The encoder of another network connects meanwhile, over TLS.
    let _publisher = Publisher::start(first.rtmp, "live/demo", None);
    until("the push", || edge.events("published") > 0.0);
    let held = edge.metric("mendcast_places_used{place=\"rtmp_newcomer\"}");
    assert!(held > 0.0, "the flood has ended before: {:?}", edge.log());
    for socket in flood {
        closed(socket);
    }
    until("the time limit", || limited(&edge, "tls_handshake_timeout") >= 8.0);
    let silent = closed(TcpStream::connect(address).expect("connected"));
    assert!(silent >= Duration::from_millis(5_900) && silent < PATIENCE, "{silent:?}");
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(50);
    assert_is_clip(&viewer.frames());
}

#[test]
fn the_wrong_port_is_named_in_the_log() {
    let edge = start(&["127.0.0.1"], 2100, "");
    let address = rtmps(&edge);
    assert!(Publishing::open(address, "live/demo").is_err());
    edge.says("plain RTMP on a port of RTMPS; expected a URL with rtmps://");
    let mut socket = TcpStream::connect(edge.rtmp).expect("connected");
    socket.write_all(&HALF_HELLO).expect("sent");
    closed(socket);
    edge.says("RTMP version 22 is not supported (a TLS handshake)");
    // Requests of HTTP are no TLS either.
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("sent");
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    edge.says("TLS handshake failed");
}
