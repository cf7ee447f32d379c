//! Several servers of one stream, and several encoders of one: players get the same bytes from
//! each, and can decode them.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::programs::{Program, ffmpeg_plays, has};
use crate::support::viewer::Viewer;
use crate::support::{eventually, http, until};

/// Fetches a file of the stream's HLS as a new viewer.
fn file(edge: &Edge, name: &str) -> Option<Vec<u8>> {
    let master = http::get(edge.address, "/live/demo/index.m3u8");
    if master.status != 200 {
        return None;
    }
    let master = master.text();
    let media = master.lines().find_map(|line| line.strip_suffix("media.m3u8"));
    let folder = media.expect("a media playlist");
    let mut answer = http::get(edge.address, &format!("/live/demo/{folder}{name}"));
    let is_media = !name.ends_with(".m3u8");
    let kept = answer.field("cache-control").is_some_and(|value| value.contains("immutable"));
    let found = answer.status == 200;
    assert!(!found || kept == is_media, "{name}");
    let pieces = std::iter::from_fn(|| answer.next().expect("a body"));
    found.then(|| pieces.flatten().collect())
}

fn playlist(edge: &Edge) -> String {
    let body = eventually("a playlist", || file(edge, "media.m3u8"));
    String::from_utf8(body).expect("text")
}

/// The names that a playlist has of segments, parts and initialisation segments.
fn names(playlist: &str) -> Vec<String> {
    let segments = playlist.lines().filter(|line| line.ends_with(".m4s")).map(str::to_owned);
    let tags = playlist
        .lines()
        .filter(|line| line.starts_with("#EXT-X-PART:") || line.starts_with("#EXT-X-MAP:"));
    let quoted = tags.filter_map(|line| line.split('"').nth(1).map(str::to_owned));
    segments.chain(quoted).collect()
}

#[test]
fn servers_that_pull_one_stream_give_the_same_hls() {
    let origin = Edge::start("");
    let _publisher = Publisher::start(origin.rtmp, "live/demo", None);
    let rule = format!(
        "[[pull]]\nstream = \"live/*\"\nupstream = [\"rtmp://{}/{{name}}\"]\n",
        origin.rtmp
    );
    let first = Edge::start(&rule);
    playlist(&first);
    std::thread::sleep(Duration::from_secs(2));
    let second = Edge::start(&rule);
    playlist(&second);
    // The origin packs it too, and is the last to begin.
    let edges = [first, second, origin];
    let mut files: [HashMap<String, Vec<u8>>; 3] = Default::default();
    until("all have three segments in common", || {
        for (edge, files) in edges.iter().zip(&mut files) {
            for name in names(&playlist(edge)) {
                if !files.contains_key(&name) {
                    files.extend(file(edge, &name).map(|body| (name, body)));
                }
            }
        }
        let [one, two, three] = &files;
        let both = |name: &&String| two.contains_key(*name) && three.contains_key(*name);
        let common: Vec<&String> = one.keys().filter(both).collect();
        for name in &common {
            assert!(one[*name] == two[*name] && one[*name] == three[*name], "{name}");
        }
        let whole = common.iter().filter(|name| name.matches('.').count() == 1);
        whole.filter(|name| name.ends_with(".m4s")).count() >= 3
    });
    // What any of them names can be had of the others as well.
    let newest = |edge: &Edge| {
        let playlist = playlist(edge);
        let mut segments = playlist.lines().filter(|line| line.ends_with(".m4s"));
        segments.next_back().expect("a segment").to_owned()
    };
    for (from, at) in [(0, 1), (1, 2), (2, 0)] {
        let name = newest(&edges[from]);
        eventually("it is there too", || file(&edges[at], &name));
    }
}

#[test]
fn shared_media_has_the_same_urls_for_all_viewers_and_stays_closed_where_play_has_rules() {
    let edge = Edge::start("hls.shared = true\n[[play]]\nstream = \"paid/*\"\nkey = \"secret\"\n");
    let _free = Publisher::start(edge.rtmp, "live/demo", None);
    let _paid = Publisher::start(edge.rtmp, "paid/demo", None);
    let text = playlist(&edge);
    let shared = names(&text);
    assert!(!shared.is_empty() && shared.iter().all(|name| name.starts_with("../")), "{text}");
    let name = shared[0].trim_start_matches("../");
    let answer = http::get(edge.address, &format!("/live/demo/{name}"));
    assert_eq!(answer.status, 200);
    assert!(answer.field("cache-control").is_some_and(|value| value.contains("immutable")));
    // Viewers of playlists count too.
    until("they are seen", || {
        edge.state()["sessions"].as_array().is_some_and(|all| !all.is_empty())
    });
    let soon = std::time::SystemTime::now() + Duration::from_secs(3_600);
    let soon = soon.duration_since(std::time::UNIX_EPOCH).expect("later").as_secs();
    let query = edge::signing::sign("secret", "paid/demo", soon);
    let paid = |file: &str| http::get(edge.address, &format!("/paid/demo/{file}"));
    let master = eventually("a playlist", || {
        Some(paid(&format!("index.m3u8?{query}"))).filter(|answer| answer.status == 200)
    });
    let master = master.text();
    let media = master.lines().find(|line| line.ends_with("media.m3u8")).expect("a playlist");
    let closed = names(&paid(media).text());
    assert!(closed.iter().all(|name| !name.starts_with("../")), "{closed:?}");
    assert_eq!(paid(&closed[0]).status, 403);
}

/// ffmpeg, which encodes and sends pictures of this size, and sound unless it is told not to.
fn encoder(size: &str, more: &[&str], place: &str) -> Program {
    let source = format!("testsrc2=size={size}:rate=25");
    let mut command = std::process::Command::new("ffmpeg");
    command.args(["-v", "error", "-re", "-f", "lavfi", "-i", &source]);
    command.args(["-f", "lavfi", "-i", "sine=frequency=500:sample_rate=48000"]);
    command.args(["-c:v", "libx264", "-preset", "ultrafast", "-g", "25", "-bf", "0"]);
    command.args(["-c:a", "aac"]).args(more).args(["-f", "flv", place]);
    Program::start(&mut command)
}

#[test]
fn another_encoder_takes_over_and_ffmpeg_decodes_both_without_an_error() {
    if !has("ffmpeg") {
        return;
    }
    let edge = Edge::start("live.linger = \"20s\"\n");
    let place = format!("rtmp://{}/live/demo", edge.rtmp);
    let mut first = encoder("320x180", &[], &place);
    edge.says("live/demo: published by");
    let plays = |path: &str, seconds: u32| {
        let url = format!("https://{}/live/{path}", edge.address);
        std::thread::spawn(move || ffmpeg_plays(&url, seconds))
    };
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(100);
    // A present viewer sees both.
    let player = plays("demo.flv", 8);
    playlist(&edge);
    viewer.wait_for_more(200);
    first.kill();
    edge.says("disconnected");
    let _second = encoder("640x360", &[], &place);
    viewer.wait_for_more(300);
    let output = player.join().expect("run");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
    // Headers come before the frames that need them.
    let tags = viewer.tags();
    let header = |tag: &&media::Tag| {
        tag.kind() == media::Kind::Video && tag.role() == media::Role::SequenceHeader
    };
    let headers: Vec<&media::Tag> = tags.iter().filter(header).collect();
    assert_eq!(headers.len(), 2);
    let behind = tags.iter().skip_while(|tag| *tag != headers[1]).skip(1);
    let mut videos = behind.filter(|tag| tag.kind() == media::Kind::Video);
    assert_eq!(videos.next().map(media::Tag::role), Some(media::Role::KeyFrame));
    // HLS has a discontinuity there, and decodes as well.
    let text = eventually("two initialisation segments", || {
        Some(playlist(&edge)).filter(|text| text.matches("#EXT-X-MAP:").count() == 2)
    });
    let (_, behind) = text.split_once("#EXT-X-DISCONTINUITY\n").expect("a discontinuity");
    assert!(behind.starts_with("#EXT-X-MAP:"), "{text}");
    for path in ["demo.flv", "demo/index.m3u8"] {
        let output = plays(path, 3).join().expect("run");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let errors: Vec<&str> = errors.lines().filter(|line| !is_hls_chatter(line)).collect();
        assert!(output.status.success() && errors.is_empty(), "{path}: {errors:?}");
    }
}

/// What ffmpeg warns of where nothing is wrong: it opens playlists by their extension, and skips
/// none.
fn is_hls_chatter(line: &str) -> bool {
    line.contains("[hls @") && line.contains("Skip (")
}

#[test]
fn a_stream_without_new_video_continues_with_audio_and_a_still() {
    if !has("ffmpeg") {
        return;
    }
    let edge = Edge::start("live.linger = \"20s\"\n");
    let place = format!("rtmp://{}/live/demo", edge.rtmp);
    // Two seconds of video, endless audio.
    let _encoder = encoder("320x180", &["-filter:v", "trim=duration=2"], &place);
    edge.says("live/demo: published by");
    let early = Viewer::h1(edge.address, "/live/demo.flv");
    let last = |viewer: &Viewer| viewer.tags().last().map_or(0, media::Tag::timestamp);
    until("nine seconds", || last(&early) > 9_000);
    let late = Viewer::h1(edge.address, "/live/demo.flv");
    late.wait_for_frames(20);
    assert_eq!(late.kinds(), Some((true, true)));
    let base = |viewer: &Viewer| {
        let tags = viewer.tags();
        tags.iter().find_map(media::flv::time_base).expect("a base")
    };
    assert!(base(&late).wrapping_sub(base(&early)) > 7_000, "nobody begins with old sound");
    let picture = |viewer: &Viewer| {
        let tags = viewer.tags();
        let mut keys = tags.iter().rev().filter(|tag| tag.role() == media::Role::KeyFrame);
        keys.next().map(media::Tag::payload)
    };
    assert!(picture(&late).is_some() && picture(&late) == picture(&early));
    let url = format!("https://{}/live/demo.flv", edge.address);
    let output = ffmpeg_plays(&url, 2);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && errors.is_empty(), "{errors}");
}

#[test]
fn a_long_group_of_pictures_that_is_there_is_a_playlist_at_once() {
    if !has("ffmpeg") {
        return;
    }
    let edge = Edge::start("");
    let place = format!("rtmp://{}/live/demo", edge.rtmp);
    let _encoder = encoder("320x180", &["-g", "125", "-keyint_min", "125"], &place);
    edge.says("live/demo: published by");
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    until("a complete group", || {
        let tags = viewer.tags();
        tags.iter().filter(|tag| tag.role() == media::Role::KeyFrame).count() >= 2
    });
    until("more than the greatest lag", || {
        viewer.tags().last().is_some_and(|tag| tag.timestamp() > 8_000)
    });
    let start = std::time::Instant::now();
    let text = playlist(&edge);
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    assert!(text.contains("#EXTINF:5.000,"), "{text}");
    assert_eq!(edge.state()["streams"][0]["skips"], 0, "{}", edge.state());
}
