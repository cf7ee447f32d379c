//! Limits for frequent, silent or lingering clients, without effects on others.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use media::rtmp::{Client, Config, Intent, Url};
use nix::sys::signal::Signal;

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::http3::{self, Windows};
use crate::support::publishing::{CONFIGURATION, INTER, KEY, Publishing, picture};
use crate::support::viewer::{End, Viewer};
use crate::support::{PATIENCE, http, until};

/// How many of these places are taken.
fn taken(edge: &Edge, place: &str) -> f64 {
    edge.metric(&format!("mendcast_places_used{{place=\"{place}\"}}"))
}

/// How many connections were refused or ended for this reason.
fn limited(edge: &Edge, reason: &str) -> f64 {
    edge.metric(&format!("mendcast_connections_limited_total{{reason=\"{reason}\"}}"))
}

/// Sends this, then a byte of it again and again, until the server closes the connection; after how
/// long that was.
fn drip(address: SocketAddr, first: &[u8], again: &[u8]) -> Duration {
    let start = Instant::now();
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
    let mut is_open = socket.write_all(first).is_ok();
    let mut buffer = [0; 4_096];
    while is_open {
        assert!(start.elapsed() < PATIENCE, "still open");
        is_open = match socket.read(&mut buffer) {
            Ok(length) => length > 0,
            Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        } && socket.write_all(again).is_ok();
    }
    start.elapsed()
}

/// Output of a client up to the answer to `connect`.
fn introduction(address: SocketAddr) -> (TcpStream, Client) {
    let url = Url::parse(&format!("rtmp://{address}/live/a")).expect("a URL");
    let client = Client::new(url, Intent::Publish, Config::default(), &[7; 1_528]);
    (TcpStream::connect(address).expect("connected"), client)
}

#[test]
fn bytes_that_drip_extend_neither_the_handshake_nor_the_wait_for_a_request() {
    let edge =
        Edge::start("rtmp.handshake_timeout = \"500ms\"\nrtmp.request_timeout = \"1500ms\"\n");
    let time = drip(edge.rtmp, &[3], &[0]);
    assert!(time >= Duration::from_millis(500) && time < Duration::from_secs(5), "{time:?}");
    until("counted", || limited(&edge, "rtmp_handshake_timeout") == 1.0);
    // A whole handshake, then SET_BUFFER_LENGTH again and again.
    let (mut socket, mut client) = introduction(edge.rtmp);
    let mut handshake = Vec::new();
    let mut buffer = [0; 4_096];
    while handshake.len() < 1 + 2 * 1_536 {
        while let Some(bytes) = client.poll_output() {
            socket.write_all(&bytes).expect("sent");
            handshake.extend_from_slice(&bytes);
        }
        let length = socket.read(&mut buffer).expect("an answer");
        client.handle(&buffer[..length]).expect("RTMP");
    }
    let set_buffer = [2, 0, 0, 0, 0, 0, 10, 4, 0, 0, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 9];
    let time = drip(edge.rtmp, &handshake[..1 + 2 * 1_536], &set_buffer);
    assert!(time >= Duration::from_millis(1_500) && time < Duration::from_secs(6), "{time:?}");
    until("counted", || limited(&edge, "rtmp_request_timeout") >= 1.0);
    assert_eq!(edge.events("rtmp_error"), 0.0);
}

#[test]
fn publishers_get_in_while_others_are_at_their_limit() {
    let edge = Edge::start("rtmp.max_connections = 12\nrtmp.timeout = \"10m\"\n");
    let _first = Publisher::start(edge.rtmp, "live/a", None);
    // Half of the connections are reserved for players, which stay.
    let play = |_| {
        let player = Viewer::rtmp(edge.rtmp, "live/a");
        player.wait_for_frames(1);
        player
    };
    let players: Vec<_> = (0..6).map(play).collect();
    let seventh = Viewer::rtmp(edge.rtmp, "live/a");
    assert_eq!(seventh.end(), End::Cut("refused: too many players".into()));
    until("it has left", || taken(&edge, "rtmp_newcomer") == 0.0);
    // A quarter is reserved for silent connections.
    let connect = || TcpStream::connect(edge.rtmp).expect("connected");
    let silent = [connect(), connect(), connect()];
    until("they are in", || taken(&edge, "rtmp_newcomer") == 3.0);
    std::thread::sleep(Duration::from_millis(3_100));
    let second = Publishing::open(edge.rtmp, "live/b");
    assert!(second.is_ok(), "{:?}", second.err());
    until("one of the silent has left", || limited(&edge, "rtmp_newcomer_evicted") == 1.0);
    assert_eq!(taken(&edge, "rtmp_player"), 6.0);
    players.iter().for_each(|player| player.wait_for_more(5));
    drop(silent);
    until("places are given back", || {
        taken(&edge, "rtmp_newcomer") == 0.0 && taken(&edge, "rtmp") == 8.0
    });
}

#[test]
fn rtmp_connections_per_address_are_limited_and_logged_once() {
    let edge = Edge::start("rtmp.max_connections_per_address = 2\n");
    let _held = [
        Publishing::open(edge.rtmp, "live/a").expect("granted"),
        Publishing::open(edge.rtmp, "live/b").expect("granted"),
    ];
    for _ in 0..20 {
        assert!(Publishing::open(edge.rtmp, "live/c").is_err());
    }
    assert_eq!(limited(&edge, "rtmp_address"), 20.0);
    edge.says("connections limited: rtmp_address ");
    assert_eq!(edge.said("rtmp_address").len(), 1);
}

#[test]
fn a_player_waiting_for_a_publisher_can_leave() {
    let edge = Edge::start("");
    let _publishing = Publishing::open(edge.rtmp, "live/silent").expect("granted");
    let player = Viewer::rtmp(edge.rtmp, "live/silent");
    until("it waits", || taken(&edge, "rtmp_player") == 1.0);
    drop(player);
    until("its place is given back", || taken(&edge, "rtmp_player") == 0.0);
}

#[test]
fn a_player_that_stops_reading_is_disconnected() {
    // The default would be a test of half a minute.
    let edge = Edge::start("rtmp.timeout = \"2s\"\nlive.linger = \"0s\"\n");
    let mut publishing = Publishing::open(edge.rtmp, "live/a").expect("granted");
    assert!(publishing.send(&picture(CONFIGURATION, 0, 40)));
    assert!(publishing.send(&picture(KEY, 0, 100)));
    let good = Viewer::rtmp(edge.rtmp, "live/a");
    good.wait_for_frames(1);
    // A player that never reads after its request.
    let url = Url::parse(&format!("rtmp://{}/live/a", edge.rtmp)).expect("a URL");
    let mut client = Client::new(url, Intent::Play, Config::default(), &[7; 1_528]);
    let mut socket = TcpStream::connect(edge.rtmp).expect("connected");
    let mut buffer = [0; 4_096];
    while taken(&edge, "rtmp_player") < 2.0 {
        while let Some(bytes) = client.poll_output() {
            socket.write_all(&bytes).expect("sent");
        }
        socket.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
        if let Ok(length) = socket.read(&mut buffer) {
            client.handle(&buffer[..length]).expect("RTMP");
        }
    }
    let start = Instant::now();
    // So little that no buffer on the way is ever full.
    let mut time = 40;
    until("it is gone", || {
        assert!(publishing.send(&picture(INTER, time, 100)));
        time += 40;
        std::thread::sleep(Duration::from_millis(40));
        taken(&edge, "rtmp_player") == 1.0
    });
    assert!(start.elapsed() < Duration::from_secs(6), "{:?}", start.elapsed());
    assert_eq!(limited(&edge, "rtmp_silent"), 1.0);
    assert_eq!(good.has_ended(), None);
    good.wait_for_frames(10);
}

#[test]
fn behind_a_balancer_a_publisher_is_judged_by_its_own_address() {
    let edge = Edge::start("rtmp.proxy_protocol = \"127.0.0.0/8\"\n");
    let open = |header: &'static [u8]| {
        let mut is_first = true;
        Publishing::open_as(edge.rtmp, "live/a", move |bytes| {
            let header = if core::mem::take(&mut is_first) { header } else { &[] };
            [header, &bytes].concat()
        })
        .map(drop)
    };
    let outside = Err("publishing from other hosts needs a [[publish]] rule".to_owned());
    assert_eq!(open(b"PROXY TCP4 192.0.2.7 127.0.0.1 1000 1935\r\n"), outside);
    edge.says("live/a: publisher 192.0.2.7:1000 refused");
    assert_eq!(open(b"PROXY UNKNOWN\r\n"), outside, "nobody knows who that is");
    assert!(open(b"").is_err(), "a header is required");
    until("counted", || limited(&edge, "proxy_header") == 1.0);
    assert_eq!(open(b"PROXY TCP4 127.0.0.1 127.0.0.1 1000 1935\r\n"), Ok(()));
}

#[test]
fn no_name_that_a_peer_chooses_begins_a_line_of_the_log() {
    let edge = Edge::start("");
    let forged = "live/a\n2026-01-01T00:00:00Z ERROR all is lost";
    let refused = Publishing::open(edge.rtmp, forged).map(drop);
    assert_eq!(refused, Err("invalid stream name".into()));
    let line = edge.says("invalid stream name");
    assert!(line.contains(r"live/a\n2026"), "{line}");
    assert!(edge.log().iter().all(|line| !line.starts_with("2026-01-01")), "{:?}", edge.log());
}

#[test]
fn head_over_http_3_has_no_content_whatever_the_answer() {
    let edge = Edge::start("[[play]]\nstream = \"paid/*\"\nkey = \"k\"\n");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let _paid = Publisher::start(edge.rtmp, "paid/a", None);
    http3::runtime().block_on(async {
        for (path, status) in [
            ("/missing", 404),
            ("/beacon", 405),
            ("/live/demo.flv", 200),
            ("/live/demo/index.m3u8", 200),
            ("/live/demo/media.m3u8", 403),
            ("/live/demo/~pass/9-0000000000000000.m4s", 403),
            ("/live/none.flv", 404),
            ("/paid/a.flv", 403),
            ("/paid/a/index.m3u8", 403),
            ("/player.html", 0),
        ] {
            let request = http3::Request::send(edge.address, "HEAD", path, Windows::Usual);
            let mut request = request.await.unwrap_or_else(|e| panic!("{path}: {e}"));
            assert!(request.status == status || status == 0, "{path}: {}", request.status);
            assert_eq!(request.next().await, Ok(None), "{path}");
            request.close().await;
        }
    });
}

#[test]
fn one_address_has_its_share_of_quic_connections() {
    let edge = Edge::start("quic.max_connections_per_address = 2\n");
    http3::runtime().block_on(async {
        let ask =
            async || http3::Request::send(edge.address, "GET", "/missing", Windows::Usual).await;
        let first = ask().await.expect("taken");
        let _second = ask().await.expect("taken");
        let refused = ask().await.map(|request| request.status);
        assert!(refused.is_err(), "{refused:?}");
        assert_eq!(limited(&edge, "quic_address"), 1.0);
        first.close().await;
        until("its place is given back", || taken(&edge, "quic") == 1.0);
        assert_eq!(ask().await.expect("taken").status, 404);
    });
}

#[test]
fn metrics_and_health_answer_to_any_name_and_the_rest_to_its_own() {
    let edge = Edge::start("admin.hosts = [\"edge-1.example\"]\n");
    let status = |path: &str, host: &str| {
        let mut socket = TcpStream::connect(edge.admin()).expect("connected");
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).expect("sent");
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).expect("an answer");
        String::from_utf8_lossy(&answer[9..12]).parse::<u16>().expect("a status")
    };
    for path in ["/metrics", "/healthz", "/readyz"] {
        assert_eq!(status(path, "mendcast:9433"), 200, "{path}");
    }
    assert_eq!(status("/api/state", "mendcast:9433"), 403);
    assert_eq!(status("/api/state", "edge-1.example:9433"), 200);
}

#[test]
fn the_soft_limit_of_descriptors_is_raised_and_a_low_one_told() {
    // The shell lowers the limits of the server that it becomes.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let config = directory.path().join("edge.toml");
    let text = "server.listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n";
    std::fs::write(&config, text).expect("written");
    let mut command = Command::new("sh");
    command.arg("-c").arg("ulimit -Sn 300 && ulimit -Hn 700 && exec \"$0\" edge --config \"$1\"");
    command.arg(env!("CARGO_BIN_EXE_mendcast")).arg(&config);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("started");
    let log = std::io::BufReader::new(child.stderr.take().expect("piped"));
    let mut lines = std::io::BufRead::lines(log).map_while(Result::ok);
    let warning = lines.find(|line| line.contains("file descriptors")).expect("a warning");
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", child.id())).expect("Linux");
    let _ = child.kill();
    let _ = child.wait();
    assert!(warning.contains(" 700 file descriptors are too few"), "{warning}");
    let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("a limit");
    let soft = line.split_whitespace().nth(3);
    assert_eq!(soft, Some("700"), "{limits}");
}

#[test]
fn many_connections_of_one_address_do_not_block_others() {
    let mut edge = Edge::start("tcp.max_connections = 100\ntcp.max_connections_per_address = 60\n");
    let stop = Arc::new(AtomicBool::new(false));
    let flood = {
        let (address, stop) = (edge.address, stop.clone());
        std::thread::spawn(move || {
            let mut held = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                held.extend(TcpStream::connect(address));
                if held.len() > 300 {
                    held.drain(..100);
                }
            }
        })
    };
    until("the address has its share", || limited(&edge, "tcp_address") > 100.0);
    for _ in 0..10 {
        // From 127.0.0.2: another address.
        let answer = http::get_from([127, 0, 0, 2].into(), edge.address, "/missing");
        assert_eq!(answer.status, 404);
    }
    assert!(taken(&edge, "tcp") <= 100.0);
    stop.store(true, Ordering::Relaxed);
    flood.join().expect("no panic");
    until("places are given back", || taken(&edge, "tcp") == 0.0);
    edge.signal(Signal::SIGTERM);
    assert_eq!(edge.exit_code(), Some(0));
}
