//! Effects of the control API on viewers, publishers and upstreams.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::http3::{self, Windows};
use crate::support::origin::Origin;
use crate::support::publishing::Publishing;
use crate::support::viewer::{End, Viewer};
use crate::support::{PATIENCE, eventually, http, until};

/// Status and content of the answer to a call with the header that web pages cannot send.
pub(crate) fn call(admin: SocketAddr, method: &str, path: &str, body: &str) -> (u16, Value) {
    let mut socket = TcpStream::connect(admin).expect("connected");
    socket.set_read_timeout(Some(PATIENCE)).expect("set");
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\nmendcast-control: 1\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    socket.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let (head, content) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    (status, serde_json::from_str(content).unwrap_or_else(|e| panic!("{e}: {answer}")))
}

/// The open sessions of the stream, by their protocol and format.
pub(crate) fn viewers(edge: &Edge, stream: &str) -> Vec<(String, Value)> {
    let (status, list) = call(edge.admin(), "GET", &format!("/api/viewers?stream={stream}"), "");
    assert_eq!((status, &list["left_out"]), (200, &0.into()), "{list}");
    let entries = list["viewers"].as_array().expect("a list").clone();
    let text = |entry: &Value, key: &str| entry[key].as_str().expect(key).to_owned();
    let kind = |entry: &Value| format!("{} {}", text(entry, "protocol"), text(entry, "format"));
    entries.into_iter().map(|entry| (kind(&entry), entry)).collect()
}

/// The number of the one viewer who plays the stream in this way.
fn viewer(edge: &Edge, stream: &str, kind: &str) -> String {
    eventually(&format!("a viewer of {stream} by {kind}"), || {
        let found = viewers(edge, stream).into_iter().find(|(k, _)| k == kind)?.1;
        Some(found["viewer"].as_str().expect("a number").to_owned())
    })
}

/// The first URI of a playlist that ends so.
fn uri_of(playlist: &str, end: &str) -> String {
    let line = playlist.lines().find(|line| line.ends_with(end));
    line.unwrap_or_else(|| panic!("{playlist}")).to_owned()
}

/// An HLS viewer that has loaded a segment: the paths of its playlist and its segment, and its
/// page pass.
fn watch_hls(edge: &Edge, stream: &str, query: &str) -> (String, String, String) {
    let master = http::get(edge.address, &format!("/{stream}/index.m3u8?{query}"));
    assert_eq!(master.status, 200);
    let page = master.field("mendcast-viewer").expect("a pass").to_owned();
    let media = format!("/{stream}/{}", uri_of(&master.text(), "/media.m3u8"));
    let playlist = http::get(edge.address, &media).text();
    let folder = media.strip_suffix("media.m3u8").expect("a folder");
    let segment = format!("{folder}{}", uri_of(&playlist, ".m4s"));
    assert_eq!(http::get(edge.address, &segment).status, 200);
    (media, segment, page)
}

#[test]
fn a_kicked_viewer_is_disconnected_on_every_front_and_may_return() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let path = "/live/demo.flv";
    let watching = [
        ("h1 flv", Viewer::h1(edge.address, path)),
        ("h2 flv", Viewer::h2(edge.address, path)),
        ("h3 flv", Viewer::h3(edge.address, path)),
        ("rtmp rtmp", Viewer::rtmp(edge.rtmp, "live/demo")),
    ];
    let other = Viewer::h3(edge.address, "/live/demo.flv?other");
    other.wait_for_frames(10);
    watching.iter().for_each(|(_, viewer)| viewer.wait_for_frames(10));
    for (kind, entry) in viewers(&edge, "live/demo") {
        assert_eq!(entry["address"], "127.0.0.1", "{kind}");
    }
    let (media, segment, page) = watch_hls(&edge, "live/demo", "");
    for kind in ["h1 flv", "h2 flv", "rtmp rtmp"] {
        let id = viewer(&edge, "live/demo", kind);
        let path = format!("/api/viewers/{id}");
        let (status, answer) = call(edge.admin(), "DELETE", &path, "");
        assert_eq!((status, &answer["ended"]), (200, &1.into()), "{answer}");
        edge.says(&format!("viewer {id} is kicked, 1 sessions ended"));
    }
    // One of the two of HTTP/3 goes, the other one stays.
    let id = viewer(&edge, "live/demo", "h3 flv");
    let (status, _) = call(edge.admin(), "POST", &format!("/api/viewers/{id}/kick"), "{}");
    assert_eq!(status, 200);
    for (kind, viewer) in &watching {
        if *kind != "h3 flv" {
            assert_eq!(viewer.end(), End::Clean, "{kind}");
        }
    }
    let h3 = [&watching[2].1, &other];
    until("one of HTTP/3 has ended", || h3.iter().any(|viewer| viewer.has_ended().is_some()));
    let (ended, going): (Vec<&Viewer>, Vec<&Viewer>) =
        h3.into_iter().partition(|viewer| viewer.has_ended().is_some());
    assert_eq!((ended.len(), going.len()), (1, 1));
    assert_eq!(ended[0].end(), End::Clean);
    going[0].wait_for_more(10);

    // HLS goes by passes: the old one holds no more, and the viewer may ask for another.
    let id = viewer(&edge, "live/demo", "h1 hls");
    assert_eq!(call(edge.admin(), "DELETE", &format!("/api/viewers/{id}"), "").0, 200);
    for path in [&media, &segment] {
        assert_eq!(http::get(edge.address, path).status, 403, "{path}");
    }
    until("its session is over", || viewers(&edge, "live/demo").len() == 1);
    assert_eq!(call(edge.admin(), "DELETE", &format!("/api/viewers/{id}"), "").0, 404);
    // Passes carry their issue time in seconds: a valid one exists from the next second on.
    let master = format!("/live/demo/index.m3u8?viewer={page}");
    until("it may come back", || match http::get(edge.address, &master) {
        answer if answer.status == 200 => true,
        answer => {
            assert_eq!((answer.status, answer.field("retry-after")), (503, Some("1")));
            false
        }
    });
    let again = watch_hls(&edge, "live/demo", &format!("viewer={page}"));
    assert_ne!(again.0, media);
    assert_eq!(viewer(&edge, "live/demo", "h1 hls"), id, "it is the same viewer");
    assert_eq!(edge.metric("mendcast_banned_total{what=\"play\"}"), 2.0);
    let kicks = edge.metric("mendcast_control_calls_total{action=\"kick\",result=\"ok\"}");
    assert_eq!(kicks, 5.0);
}

#[test]
fn a_viewer_that_reads_nothing_is_disconnected_too() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let client = http3::runtime();
    let request = http3::Request::send(edge.address, "GET", "/live/demo.flv", Windows::Tiny);
    let request = client.block_on(request).expect("an answer");
    let id = viewer(&edge, "live/demo", "h3 flv");
    // Its window is full, so that nothing is handed over any more.
    until("it is stuck", || {
        let bytes = |()| viewers(&edge, "live/demo")[0].1["bytes"].as_u64();
        let before = bytes(());
        client.block_on(async { tokio::time::sleep(Duration::from_millis(1_500)).await });
        bytes(()) == before && before > Some(30_000)
    });
    assert_eq!(call(edge.admin(), "DELETE", &format!("/api/viewers/{id}"), "").0, 200);
    until("its session is over", || {
        client.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
        viewers(&edge, "live/demo").is_empty()
    });
    drop(request);
}

#[test]
fn a_segment_that_a_viewer_does_not_read_is_cut_off_as_well() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let (_, segment, _) = watch_hls(&edge, "live/demo", "");
    let client = http3::runtime();
    let pause = || client.block_on(async { tokio::time::sleep(Duration::from_millis(10)).await });
    let request = http3::Request::send(edge.address, "GET", &segment, Windows::Tiny);
    let mut request = client.block_on(request).expect("an answer");
    assert_eq!(request.status, 200);
    let length: usize = request.field("content-length").expect("a length").parse().expect("digits");
    assert!(length > 200_000, "{length}: more than its windows and send buffer");
    let id = viewer(&edge, "live/demo", "h1 hls");
    assert_eq!(call(edge.admin(), "DELETE", &format!("/api/viewers/{id}"), "").0, 200);
    until("its session is over", || {
        pause();
        viewers(&edge, "live/demo").is_empty()
    });
    let cut = client.block_on(async {
        let mut read = 0;
        while let Some(data) = request.next().await? {
            read += data.len();
        }
        Ok::<_, String>(read)
    });
    assert!(cut.is_err(), "{cut:?} of {length}");
}

#[test]
fn a_ban_covers_the_pass_and_all_streams() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let (media, _, page) = watch_hls(&edge, "live/demo", "");
    let path = format!("/live/demo.flv?viewer={page}");
    let watching = Viewer::h1(edge.address, &path);
    watching.wait_for_frames(10);
    let id = viewer(&edge, "live/demo", "h1 flv");
    let body = format!("{{\"viewer\":\"{id}\",\"for\":\"10m\"}}");
    let (status, ban) = call(edge.admin(), "POST", "/api/bans", &body);
    assert_eq!((status, &ban["viewer"], &ban["ended"]), (201, &id.as_str().into(), &2.into()));
    assert_eq!(watching.end(), End::Clean);
    for path in [&path, &media, &format!("/live/demo/index.m3u8?viewer={page}")] {
        assert_eq!(http::get(edge.address, path).status, 403, "{path}");
        assert_eq!(http3::status(edge.address, "GET", path), Ok(403), "{path}");
    }
    Viewer::h3(edge.address, "/live/demo.flv").wait_for_frames(1);
    let (status, list) = call(edge.admin(), "GET", "/api/bans", "");
    assert_eq!((status, list["bans"].as_array().map(Vec::len)), (200, Some(1)), "{list}");
    let number = &list["bans"][0]["id"];
    assert_eq!(call(edge.admin(), "DELETE", &format!("/api/bans/{number}"), "").0, 200);
    assert_eq!(call(edge.admin(), "DELETE", &format!("/api/bans/{number}"), "").0, 404);
    Viewer::h1(edge.address, &path).wait_for_frames(1);
}

#[test]
fn a_banned_address_is_refused_in_each_protocols_own_way_until_the_ban_ends() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let watching =
        [Viewer::h3(edge.address, "/live/demo.flv"), Viewer::rtmp(edge.rtmp, "live/demo")];
    watching.iter().for_each(|viewer| viewer.wait_for_frames(10));
    // A connection that is open does not help.
    let client = http3::runtime();
    let request = http3::Request::send(edge.address, "GET", "/none", Windows::Usual);
    let mut open = client.block_on(request).expect("an answer");
    let body = r#"{"prefix":"127.0.0.1/32","for":"10m"}"#;
    let (status, ban) = call(edge.admin(), "POST", "/api/bans", body);
    assert_eq!((status, &ban["prefix"]), (201, &"127.0.0.1/32".into()), "{ban}");
    watching.iter().for_each(|viewer| assert_eq!(viewer.end(), End::Clean));
    assert_eq!(client.block_on(open.another("/live/demo.flv")), Ok(403));
    let End::Cut(why) = Viewer::h1(edge.address, "/live/demo.flv").end() else { panic!("let in") };
    assert!(!why.contains("status"), "{why}");
    let refused = http3::status(edge.address, "GET", "/live/demo.flv").expect_err("refused");
    assert!(refused.contains("REQUEST_REJECTED") || refused.contains("banned"), "{refused}");
    assert!(Publishing::open(edge.rtmp, "live/other").is_err());
    for what in ["tcp", "quic", "rtmp", "play"] {
        let count = edge.metric(&format!("mendcast_banned_total{{what=\"{what}\"}}"));
        assert!(count >= 1.0, "{what}");
    }
    let elsewhere = http::get_from([127, 0, 0, 2].into(), edge.address, "/live/demo.flv");
    assert_eq!(elsewhere.status, 200);
    let number = &ban["id"];
    assert_eq!(call(edge.admin(), "DELETE", &format!("/api/bans/{number}"), "").0, 200);
    Viewer::h3(edge.address, "/live/demo.flv").wait_for_frames(1);
    // A short one ends by itself.
    let body = r#"{"address":"127.0.0.1","for":"1s"}"#;
    assert_eq!(call(edge.admin(), "POST", "/api/bans", body).0, 201);
    until("the ban is over", || http3::status(edge.address, "GET", "/none") == Ok(404));
}

#[test]
fn an_ended_stream_has_no_publisher_and_no_viewer_and_may_be_kept_out() {
    let edge = Edge::start("live.linger = \"1h\"\n");
    let publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let watching = [
        Viewer::h1(edge.address, "/live/demo.flv"),
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ];
    watching.iter().for_each(|viewer| viewer.wait_for_frames(10));
    let (_, list) = call(edge.admin(), "GET", "/api/streams", "");
    let stream = &list["streams"][0];
    assert_eq!((&stream["name"], &stream["viewers"]), (&"live/demo".into(), &3.into()), "{list}");
    let silent = Publishing::open(edge.rtmp, "live/silent").expect("granted");
    let path = "/api/streams/live/silent/end";
    assert_eq!(call(edge.admin(), "POST", path, "").0, 200);
    assert_eq!(silent.closed().as_deref(), Some("the operator ended this stream"));
    assert_eq!(call(edge.admin(), "POST", path, "").0, 404);

    let path = "/api/streams/live/demo/end";
    let (status, answer) = call(edge.admin(), "POST", path, r#"{"for":"10m"}"#);
    assert_eq!((status, &answer["banned_s"]), (200, &600.0.into()), "{answer}");
    watching.iter().for_each(|viewer| assert_eq!(viewer.end(), End::Clean));
    drop(publisher);
    let again = Publishing::open(edge.rtmp, "live/demo").map(drop);
    assert_eq!(again, Err("the operator ended this stream".into()));
    assert_eq!(http::get(edge.address, "/live/demo.flv").status, 404);
    let (_, list) = call(edge.admin(), "GET", "/api/bans", "");
    assert_eq!(list["bans"][0]["stream"], "live/demo", "{list}");
    let number = &list["bans"][0]["id"];
    assert_eq!(call(edge.admin(), "DELETE", &format!("/api/bans/{number}"), "").0, 200);
    let _again = Publisher::start(edge.rtmp, "live/demo", None);
    Viewer::h1(edge.address, "/live/demo.flv").wait_for_frames(10);
}

#[test]
fn an_ended_pull_restarts_with_the_next_viewer_unless_blocked() {
    let origin = Origin::of_clip();
    let url = origin.url("/live/demo.flv");
    let edge = Edge::start(&format!("[[pull]]\nstream = \"live/*\"\nupstream = \"{url}\"\n"));
    let first = Viewer::h3(edge.address, "/live/demo.flv");
    first.wait_for_frames(10);
    assert_eq!(call(edge.admin(), "POST", "/api/streams/live/demo/end", "").0, 200);
    assert_eq!(first.end(), End::Clean);
    let second = Viewer::h1(edge.address, "/live/demo.flv");
    second.wait_for_frames(10);
    let body = r#"{"stream":"live/demo","for":"10m"}"#;
    assert_eq!(call(edge.admin(), "POST", "/api/bans", body).0, 201);
    assert_eq!(second.end(), End::Clean);
    assert_eq!(http::get(edge.address, "/live/demo.flv").status, 404);
    assert_eq!(origin.requests().len(), 2);
    Viewer::h3(edge.address, "/live/other.flv").wait_for_frames(1);
}

#[test]
fn lists_come_in_parts() {
    let edge = Edge::start("");
    let names = ["live/a", "live/b", "live/c"];
    let _publishers = names.map(|name| Publishing::open(edge.rtmp, name).expect("granted"));
    let mut cursor = String::new();
    for (index, name) in names.iter().enumerate() {
        let path = format!("/api/streams?limit=1&cursor={cursor}");
        let (_, list) = call(edge.admin(), "GET", &path, "");
        assert_eq!(list["streams"][0]["name"], *name, "{list}");
        assert_eq!(list["left_out"], 2 - index, "{list}");
        cursor = list["next"].as_str().unwrap_or_default().to_owned();
    }
    assert_eq!(cursor, "");
}

#[test]
fn a_reload_returns_its_log_and_a_drain_survives_the_first_signal() {
    let mut edge = Edge::start("live.linger = \"0s\"\ndrain.timeout = \"1h\"\n");
    let publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewer = Viewer::h3(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(10);
    let text = std::fs::read_to_string(edge.config()).expect("readable");
    let more = "live.groups = 3\nadmin.hosts = [\"a\"]\nlive.max_streams = 3\n";
    std::fs::write(edge.config(), format!("{text}{more}")).expect("written");
    let (status, changes) = call(edge.admin(), "POST", "/api/reload", "");
    assert_eq!(status, 200);
    assert_eq!(changes["for_new"][0], "[live] groups", "{changes}");
    assert_eq!(changes["at_once"][0], "[admin] hosts", "{changes}");
    assert_eq!(changes["at_start"][0], "[live] max_streams", "{changes}");
    edge.says("edge.toml reloaded");
    std::fs::write(edge.config(), "live.groups = 0").expect("written");
    let (status, answer) = call(edge.admin(), "POST", "/api/reload", "");
    let why = answer["error"].as_str().expect("words");
    assert!(status == 409 && why.contains("[live] groups"), "{answer}");

    assert_eq!((edge.health().0, edge.readiness()), (200, (200, "ready\n".into())));
    assert_eq!(call(edge.admin(), "POST", "/api/drain", "").0, 202);
    assert_eq!((edge.health().0, edge.readiness()), (200, (503, "draining\n".into())));
    assert_eq!(call(edge.admin(), "POST", "/api/drain", "").0, 409);
    // The service manager's signal comes after the hook that drains.
    edge.signal(Signal::SIGTERM);
    until("the signal is taken", || edge.said("draining").len() == 2);
    viewer.wait_for_more(10);
    assert!(edge.is_running());
    drop(publisher);
    assert_eq!(viewer.end(), End::Clean);
    assert_eq!(edge.exit_code(), Some(0));
}

#[test]
fn rates_of_the_state_are_since_it_was_last_asked_for() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(25);
    edge.state();
    viewer.wait_for_more(50);
    let state = edge.state();
    let rate = |value: &Value| value.as_f64().expect("a number");
    let (taken_in, sent) = (rate(&state["streams"][0]["in_mbps"]), rate(&state["egress_mbps"]));
    assert!(taken_in > 0.01 && sent > 0.01, "{taken_in} {sent}");
    assert!((0.3..3.0).contains(&(sent / taken_in)), "one viewer receives the input rate: {state}");
}
