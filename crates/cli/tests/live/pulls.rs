//! Pulled streams: from nginx over RTMP, from another edge and others over HTTP-FLV, from HLS.
//! They are pulled once, from the first viewer to the last.

use std::io::Write as _;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::origin::{Origin, respond, respond_endless, stream_clip};
use crate::support::programs::{CLIP, ffmpeg_sends, free_address, has, nginx};
use crate::support::viewer::{End, Viewer};
use crate::support::{
    PATIENCE, assert_is_clip, assert_time_goes_on, assert_tracks_are_of_clip, http, tls, until,
};

/// A pull rule for `live/*`, placed last in the configuration so that keys can be appended.
fn rule(upstreams: &[&str], more: &str) -> String {
    format!("[[pull]]\nstream = \"live/*\"\nupstream = {upstreams:?}\n{more}\n")
}

/// One viewer per protocol; the tags of each pass `check`.
fn viewers(edge: &Edge, check: fn(&[media::Tag])) -> [Viewer; 3] {
    let viewers = [
        Viewer::h1(edge.address, "/live/demo.flv"),
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ];
    for viewer in &viewers {
        viewer.wait_for_frames(100);
        check(&viewer.frames());
    }
    viewers
}

#[test]
fn one_upstream_connection_serves_all_viewers_and_ends_after_the_last() {
    let origin = Origin::of_clip();
    let edge = Edge::start(&rule(&[&origin.url("/x/{tail}.flv")], "idle = \"1s\""));
    let viewers = viewers(&edge, assert_is_clip);
    let requests: Vec<String> = origin.requests().into_iter().map(|r| r.path).collect();
    assert_eq!(requests, ["/x/demo.flv"]);
    let [first, second, last] = viewers;
    drop((first, second));
    last.wait_for_more(150);
    assert_eq!(origin.open(), 1, "somebody still watches");
    drop(last);
    until("the pull ends", || origin.open() == 0);
    edge.says("live/demo: pull stopped: no viewers");
    assert_eq!(origin.requests().len(), 1);
    // The pull restarts for the next viewer.
    Viewer::h1(edge.address, "/live/demo.flv").wait_for_frames(10);
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn the_next_upstream_is_pulled_where_one_is_dead() {
    let origin = Origin::of_clip();
    let dead =
        [format!("rtmp://{}/{{name}}", free_address()), format!("http://{}/", free_address())];
    let edge = Edge::start(&rule(&[&dead[0], &dead[1], &origin.url("/")], ""));
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(50);
    assert_is_clip(&viewer.frames());
    assert_eq!((edge.events("pull_failed"), edge.events("pull_failover")), (2.0, 2.0));
    until("both upstreams are told of", || edge.said("Connection refused").len() >= 2);
    assert_eq!(edge.said("Connection refused").len(), 2, "{:?}", edge.log());
}

#[test]
fn viewers_of_a_stream_pulled_from_nginx_go_on_after_nginx_is_killed_and_started_again() {
    if !has("nginx") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let address = free_address();
    let mut upstream = nginx(directory.path(), address);
    let publisher = Publisher::start(address, "live/demo", None);
    let edge = Edge::start(&rule(&[&format!("rtmp://{address}/{{name}}")], ""));
    let viewers = viewers(&edge, assert_tracks_are_of_clip);
    upstream.kill();
    edge.says("live/demo: upstream rtmp://");
    drop((upstream, publisher));
    let before = viewers.each_ref().map(|viewer| viewer.frames().len());
    let _upstream = nginx(directory.path(), address);
    let _publisher = Publisher::start(address, "live/demo", None);
    for (viewer, before) in viewers.iter().zip(before) {
        viewer.wait_for_frames(before + 50);
        assert_time_goes_on(&viewer.tags());
    }
    assert_eq!(edge.events("pull_started"), 1.0);
}

#[test]
fn a_stream_is_pulled_from_another_edge() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    tls::write_certificate(directory.path());
    let authorities = directory.path().join("chain.pem");
    let keys = "server.certificate = \"chain.pem\"\nserver.key = \"key.pem\"\n";
    let trusted = tempfile::NamedTempFile::new().expect("a file");
    std::fs::copy(&authorities, trusted.path()).expect("copied");
    let upstream = Edge::start_in(directory, keys, None);
    let _publisher = Publisher::start(upstream.rtmp, "live/demo", None);
    let url = format!("https://localhost:{}/{{name}}.flv", upstream.address.port());
    let directory = tempfile::tempdir().expect("a temporary directory");
    let edge = Edge::start_in(directory, &rule(&[&url], ""), Some(trusted.path()));
    let viewer = Viewer::h3(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(100);
    assert_is_clip(&viewer.frames());
    let directory = tempfile::tempdir().expect("a temporary directory");
    std::fs::copy(trusted.path(), directory.path().join("ca.pem")).expect("copied");
    let edge = Edge::start_in(directory, &rule(&[&url], "ca_file = \"ca.pem\""), None);
    Viewer::h1(edge.address, "/live/demo.flv").wait_for_frames(50);
    // One that it does not trust.
    let edge = Edge::start(&rule(&[&url], ""));
    assert_eq!(http::get(edge.address, "/live/demo.flv").status, 502);
    edge.says("certificate");
}

#[test]
fn edges_that_pull_from_each_other_find_the_loop() {
    let keys = "server.certificate = \"chain.pem\"\nserver.key = \"key.pem\"\n";
    let certified = |more: &str| {
        let directory = tempfile::tempdir().expect("a temporary directory");
        tls::write_certificate(directory.path());
        (directory, format!("{keys}{more}"))
    };
    let (directory, text) = certified("");
    let authorities = std::fs::read(directory.path().join("chain.pem")).expect("readable");
    let first = Edge::start_in(directory, &text, None);
    let url = |edge: &Edge| format!("https://localhost:{}/{{name}}.flv", edge.address.port());
    let (directory, text) = certified(&rule(&[&url(&first)], "ca_file = \"other.pem\""));
    std::fs::write(directory.path().join("other.pem"), authorities).expect("written");
    std::fs::copy(directory.path().join("chain.pem"), first.directory().join("other.pem"))
        .expect("copied");
    let second = Edge::start_in(directory, &text, None);
    first.reload(&format!("{keys}{}", rule(&[&url(&second)], "ca_file = \"other.pem\"")));
    let start = std::time::Instant::now();
    assert_eq!(http::get(first.address, "/live/demo.flv").status, 502);
    assert!(start.elapsed() < PATIENCE / 4, "{:?}", start.elapsed());
    second.says("status 508 Loop Detected");
    first.says("status 502 Bad Gateway");
}

#[test]
fn a_live_hls_folder_is_pulled() {
    if !has("ffmpeg") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let folder = directory.path().to_owned();
    let playlist = folder.join("demo.m3u8");
    let _packager = ffmpeg_sends(
        &["-f", "hls", "-hls_time", "1", "-hls_list_size", "5", "-hls_flags", "delete_segments"],
        playlist.to_str().expect("text"),
    );
    let origin = Origin::start(move |request, socket| {
        match std::fs::read(folder.join(request.path.trim_start_matches('/'))) {
            Ok(file) => respond(socket, 200, "content-type: application/octet-stream", &file),
            Err(_) => respond(socket, 404, "content-type: text/plain", b"none"),
        }
    });
    until("a playlist", || playlist.exists());
    let edge = Edge::start(&rule(&[&origin.url("/{tail}.m3u8")], ""));
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(200);
    assert_time_goes_on(&viewer.tags());
    let frames = viewer.frames();
    let (first, last) = (frames[0].timestamp(), frames[frames.len() - 1].timestamp());
    let videos = frames.iter().filter(|tag| tag.kind() == media::Kind::Video).count() as u32;
    // No picture is missing.
    assert!(videos.abs_diff((last - first) / 40 + 1) <= 2, "{videos} in {} ms", last - first);
    assert_eq!(frames[0].role(), media::Role::KeyFrame);
    assert_eq!(viewer.kinds(), Some((true, true)));
}

#[test]
fn a_pulled_stream_that_its_upstream_ends_is_asked_for_again() {
    // The clip once, as fast as it goes.
    let clip = std::fs::read(CLIP).expect("readable");
    let origin =
        Origin::start(move |_, socket| respond(socket, 200, "content-type: video/x-flv", &clip));
    let edge = Edge::start(&rule(&[&origin.url("/")], "idle = \"1s\""));
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(1);
    until("a second request", || origin.requests().len() >= 2);
    assert_time_goes_on(&viewer.tags());
    assert_ne!(viewer.has_ended(), Some(End::Clean), "viewers are kept meanwhile");
    edge.says("the stream is over");
}

#[test]
fn a_pulled_stream_that_no_upstream_has_any_more_ends_for_its_viewers() {
    let has_ended = Arc::new(AtomicBool::new(false));
    let over = has_ended.clone();
    let origin = Origin::start(move |_, socket| match over.load(Ordering::Relaxed) {
        true => respond(socket, 404, "x: y", b""),
        false => stream_clip(socket),
    });
    let config = format!("live.linger = \"1s\"\n{}", rule(&[&origin.url("/demo.flv")], ""));
    let edge = Edge::start(&config);
    let viewers = viewers(&edge, assert_is_clip);
    let master = http::get(edge.address, "/live/demo/index.m3u8").text();
    let media = master.lines().rfind(|line| !line.starts_with('#')).expect("a playlist");
    let media = format!("/live/demo/{media}");
    assert!(!http::get(edge.address, &media).text().contains("ENDLIST"));
    has_ended.store(true, Ordering::Relaxed);
    origin.cut();
    viewers.iter().for_each(|viewer| assert_eq!(viewer.end(), End::Clean));
    until("the playlist ends", || {
        http::get(edge.address, &media).text().contains("#EXT-X-ENDLIST")
    });
    edge.says("live/demo: pull stopped: all upstreams failed for 1s");
}

#[test]
fn a_broken_upstream_ends_in_one_line_and_status_502() {
    fn endless(socket: &mut TcpStream) -> std::io::Result<()> {
        respond_endless(socket, "application/vnd.apple.mpegurl")?;
        socket.write_all(b"#EXTM3U\n#EXT-X-TARGETDURATION:2\n")?;
        loop {
            socket.write_all(&b"#EXTINF:2,\nsegment.ts\n".repeat(1_000))?;
        }
    }
    let garbage: &[u8] = &[0x5a; 100_000];
    let mut tag = b"FLV\x01\x05\x00\x00\x00\x09\x00\x00\x00\x00".to_vec();
    tag.extend([9, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0]);
    let cases = [
        ("no FLV signature", Origin::of_text(200, "content-type: video/x-flv", garbage)),
        ("over the limit", Origin::of_text(200, "content-type: video/x-flv", tag.leak())),
        ("the stream is over", Origin::of_text(200, "content-type: video/x-flv", b"FLV")),
        ("status 404", Origin::of_text(404, "content-type: text/plain", b"")),
        ("too many redirections", Origin::of_text(302, "location: /again", b"")),
        ("HLS resource over the limit", Origin::start(|_, socket| endless(socket))),
        ("no HLS playlist", Origin::of_text(200, "content-type: application/x-mpegurl", b"<html>")),
        (
            "no data for 1s",
            Origin::start(|_, socket| {
                respond_endless(socket, "video/x-flv")?;
                std::thread::sleep(PATIENCE / 4);
                Ok(())
            }),
        ),
    ];
    let mut rules = String::new();
    for (number, (why, origin)) in cases.iter().enumerate() {
        // The endless resource has a megabyte to send.
        let timeout = if why.starts_with("HLS resource") { 10 } else { 1 };
        rules += &format!(
            "[[pull]]\nstream = \"live/{number}\"\nupstream = [{:?}]\ntimeout = \"{timeout}s\"\n",
            origin.url("/")
        );
    }
    let edge = Edge::start(&rules);
    let _publisher = Publisher::start(edge.rtmp, "live/good", None);
    let good = Viewer::h3(edge.address, "/live/good.flv");
    let address = edge.address;
    let requests: Vec<_> = (0..cases.len())
        .map(|number| {
            let path = format!("/live/{number}.flv");
            std::thread::spawn(move || http::get(address, &path).status)
        })
        .collect();
    for ((why, _), request) in cases.iter().zip(requests) {
        assert_eq!(request.join().expect("an answer"), 502, "{why}");
    }
    for (number, (why, _)) in cases.iter().enumerate() {
        // The log is read beside the answers.
        let what = format!("live/{number}: upstream");
        edge.says(&what);
        let lines = edge.said(&what);
        assert!(lines.len() == 1 && lines[0].contains(why), "{why}: {lines:?}");
    }
    assert_eq!(edge.events("pull_failed"), cases.len() as f64);
    good.wait_for_frames(100);
    assert_is_clip(&good.frames());
    assert!(edge.metric("mendcast_resident_memory_bytes") < 200e6);
}

#[test]
fn a_pull_over_rtmp_is_refused_where_the_upstream_has_no_such_stream() {
    let upstream = Edge::start("");
    let edge = Edge::start(&rule(&[&format!("rtmp://{}/{{name}}", upstream.rtmp)], ""));
    assert_eq!(http::get(edge.address, "/live/none.flv").status, 502);
    edge.says("refused: no such stream");
    // For a while it is known.
    assert_eq!(http::get(edge.address, "/live/none.flv").status, 404);
}

#[test]
fn urls_of_upstreams_and_hooks_are_shown_without_their_secrets() {
    let hooks = Origin::of_text(204, "x: y", b"");
    let (dead, refusing) = (free_address(), Origin::of_text(403, "x: y", b""));
    let upstreams = [
        format!("rtmp://{dead}/{{name}}?key=word1"),
        format!("http://us3r:word2@{}/{{name}}.flv?key=word3", refusing.address),
        format!("http://us3r:word4@{}/{{name}}.m3u8?key=word5", refusing.address),
    ];
    let upstreams: Vec<&str> = upstreams.iter().map(String::as_str).collect();
    let keys = format!(
        "[hooks]\non_play = \"http://us3r:word6@{}/play?key=word7\"\n\
         on_publish = \"http://us3r:word8@{dead}/publish?key=word9\"\n",
        hooks.address
    );
    let edge = Edge::start(&(keys + &rule(&upstreams, "headers = [\"x-key: word10\"]")));
    assert_eq!(http::get(edge.address, "/live/demo.flv").status, 502);
    edge.says(&format!("upstream http://{}/live/demo.m3u8?…: status 403", refusing.address));
    assert!(crate::support::publishing::Publishing::open(edge.rtmp, "live/own").is_err());
    edge.says(&format!("on_publish: http://{dead}/publish?…: "));
    let state = edge.state().to_string();
    assert!(state.contains("/play?…"), "{state}");
    let shown = edge.log().join("\n") + &state;
    assert!(!shown.contains("word") && !shown.contains("us3r"), "{shown}");
    // They are used.
    assert_eq!(hooks.requests()[0].fields["authorization"], "Basic dXMzcjp3b3JkNg==");
    let asked = &refusing.requests()[0];
    assert_eq!(asked.path, "/live/demo.flv?key=word3");
    assert_eq!(asked.fields["authorization"], "Basic dXMzcjp3b3JkMg==");
    assert_eq!(asked.fields["x-key"], "word10");
}

#[test]
fn names_that_an_upstream_never_gives_shut_no_publisher_out() {
    let silent = Origin::start(|_, _| {
        std::thread::sleep(PATIENCE);
        Ok(())
    });
    let keys = format!("live.max_streams = 2\n{}", rule(&[&silent.url("/")], "max_pending = 5"));
    let edge = Edge::start(&keys);
    let address = edge.address;
    let asked: Vec<_> = (0..20)
        .map(|name| {
            let path = format!("/live/random{name}.flv");
            std::thread::spawn(move || http::get(address, &path).status)
        })
        .collect();
    until("five wait", || silent.requests().len() == 5);
    let _publishers = ["live/a", "other/b"].map(|stream| Publisher::start(edge.rtmp, stream, None));
    Viewer::h3(address, "/live/a.flv").wait_for_frames(10);
    let statuses: Vec<u16> =
        asked.into_iter().map(|asked| asked.join().expect("an answer")).collect();
    let count = |status| statuses.iter().filter(|&&found| found == status).count();
    assert_eq!((count(503), count(502)), (15, 5), "{statuses:?}");
    assert_eq!(silent.requests().len(), 5);
}

#[test]
fn a_pull_moves_back_to_the_first_upstream_when_that_serves_again() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    let up = Arc::new(AtomicBool::new(false));
    let seen = up.clone();
    let first = Origin::start(move |_, socket| {
        if seen.load(Ordering::Relaxed) {
            return stream_clip(socket);
        }
        respond(socket, 503, "content-type: text/plain", b"")
    });
    let second = Origin::of_clip();
    let edge = Edge::start(&rule(&[&first.url("/"), &second.url("/")], ""));
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(50);
    assert_eq!((first.requests().len(), second.open()), (1, 1));
    up.store(true, Ordering::Relaxed);
    edge.says("live/demo: pull returned to the first upstream");
    until("the second is left", || second.open() == 0);
    viewer.wait_for_more(100);
    assert_time_goes_on(&viewer.tags());
    assert_eq!((first.requests().len(), first.open()), (2, 1));
    assert_eq!((edge.events("pull_failback"), edge.events("pull_failed")), (1.0, 1.0));
}
