//! Live streams: published over RTMP, served by the edge, watched over HTTP/3 and judged by the
//! players of `mendcast watch`.

use std::path::Path;
use std::time::{Duration, Instant};

use media::hls::Segmenter;
use media::hls::segmenter::{Container, SegmenterConfig};
use serde_json::Value;

use crate::common::mendcast;
use crate::common::publisher::{Pause, Publisher, clip};
use crate::{Edge, Relay, edge, edge_at, stderr, watch};

const RTMP: &str = "[rtmp]\nlisten = [\"127.0.0.1:0\"]\n";

/// An edge without files that takes publishers.
fn live_edge(dir: &Path, more: &str) -> Edge {
    std::fs::create_dir_all(dir.join("www")).expect("made");
    edge(dir, &format!("{RTMP}{more}"))
}

fn seen(url: &str, more: &[&str]) -> Value {
    let output = watch(url, &[&["--insecure", "--json"], more].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(output.stderr.is_empty(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("one object")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// The reports of low-latency, mobile and cautious players.
fn players(seen: &Value) -> [&Value; 3] {
    let all = seen["players"].as_array().expect("players");
    let names: Vec<&str> = all.iter().filter_map(|player| player["preset"].as_str()).collect();
    assert_eq!(names, ["low-latency", "mobile", "cautious"]);
    [&all[0], &all[1], &all[2]]
}

#[test]
fn a_live_stream_is_played_by_three_players() {
    let dir = tempfile::tempdir().expect("a directory");
    let edge = live_edge(dir.path(), "");
    let _publisher = Publisher::start(edge.rtmp(), "live/demo", None);
    let url = format!("https://{}/live/demo.flv", edge.address);
    let seen = seen(&url, &["--seconds", "5"]);
    assert_eq!((&seen["complete"], &seen["error"]), (&false.into(), &Value::Null), "{seen}");
    assert_eq!((&seen["resumed"], &seen["early_data"]), (&false.into(), &false.into()), "{seen}");
    // 5 s at 25 pictures and 47 audio frames a second; two or three pictures are key frames.
    let (tags, keys) = (number(&seen["tags"]), number(&seen["key_frames"]));
    assert!((300.0..600.0).contains(&tags) && (2.0..=4.0).contains(&keys), "{seen}");
    let mut startups = Vec::new();
    for player in players(&seen) {
        let first = number(&player["first_frame_ms"]);
        assert!(first >= number(&seen["connect_ms"]) && first < 3_000.0, "{seen}");
        let from_request = number(&player["first_frame_from_request_ms"]);
        assert!((first - from_request - number(&seen["request_ms"])).abs() < 0.01, "{seen}");
        startups.push(number(&player["startup_ms"]));
        assert_eq!(player["freezes_from_ms"]["1250"], 0, "{seen}");
        // The rest is startup.
        let played = number(&player["played_s"]) + number(&player["freeze_s"]);
        let until = number(&player["startup_ms"]) / 1e3 + played;
        assert!((until - number(&seen["duration_ms"]) / 1e3).abs() < 0.1, "{seen}");
        assert!(number(&player["live_latency_ms"]) < 4_000.0, "{seen}");
    }
    assert!(startups.is_sorted() && startups[2] - startups[0] > 500.0, "{seen}");
    assert!(number(&seen["transport"]["datagrams_received"]) > 100.0, "{seen}");
}

#[test]
fn a_pause_of_the_publisher_freezes_the_players_that_buffer_less() {
    let dir = tempfile::tempdir().expect("a directory");
    // Viewers start at the next key frame, so that their buffers do not exceed the target.
    let edge = live_edge(dir.path(), "[live]\nstart = \"keyframe\"\n");
    let pause = Pause { at: Duration::from_secs(7), length: Duration::from_millis(1_500) };
    let publisher = Publisher::start(edge.rtmp(), "live/demo", Some(pause));
    let url = format!("https://{}/live/demo.flv", edge.address);
    let seen = seen(&url, &["--seconds", "10", "--report", "--player", "mobile"]);
    drop(publisher);
    assert_eq!(seen["beacons"], 2, "after 5 s and at the end: {seen}");
    let [low_latency, mobile, cautious] = players(&seen);
    // The first player buffers 0.2 s; after the pause 0.5 s arrive at once.
    assert_eq!(low_latency["freezes_from_ms"]["1250"], 1, "{seen}");
    let frozen = number(&low_latency["freeze_s"]);
    assert!((1.25..1.7).contains(&frozen), "{seen}");
    let rate = number(&low_latency["freeze_s_per_100s"]);
    let watched = number(&low_latency["played_s"]) + frozen;
    assert!((rate - 100.0 * frozen / watched).abs() < 0.1, "{seen}");
    // The next has 1 s, and waits for 0.5 s more after the pause to have 2 s.
    assert_eq!(mobile["freezes"], 1, "{seen}");
    assert!((0.8..1.3).contains(&number(&mobile["freeze_s"])), "{seen}");
    assert_eq!((&cautious["freezes"], &cautious["freeze_s"]), (&0.into(), &0.0.into()), "{seen}");
}

#[test]
fn a_viewer_comes_back_through_a_lossy_link_by_0_rtt_and_reports_each_view() {
    let dir = tempfile::tempdir().expect("a directory");
    let edge = live_edge(dir.path(), "[records]\ndirectory = \"records\"\nperiod = \"1s\"\n");
    let _publisher = Publisher::start(edge.rtmp(), "live/demo", None);
    let link = ["link", "--listen", "127.0.0.1:0", "--rtt", "40ms", "--loss", "3%", "--seed", "3"];
    let link = Relay::start(mendcast(&link).arg("--to").arg(edge.address.to_string()));
    // The name does not lead anywhere: packets go to the link.
    let url = format!("https://mendcast.test:{}/live/demo.flv", edge.address.port());
    let more = ["--seconds", "3", "--repeat", "3", "--report", "--connect", &link.address];
    let seen = seen(&url, &more);
    let runs = seen["runs"].as_array().expect("runs");
    assert_eq!(runs.len(), 3);
    for (number_of_run, run) in runs.iter().enumerate() {
        let again = Value::from(number_of_run > 0);
        assert_eq!((&run["resumed"], &run["early_data"]), (&again, &again), "{run}");
        assert_eq!(run["beacons"], 1, "{run}");
        assert!(number(&run["transport"]["rtt_min_ms"]) >= 39.0, "{run}");
        let [player, ..] = players(run);
        assert!(number(&player["played_s"]) > 0.5, "{run}");
        // Two round trips, or one and no wait for the handshake.
        let least = if number_of_run > 0 { 40.0 } else { 80.0 };
        assert!(number(&player["first_frame_ms"]) >= least, "{run}");
    }
    let records = records(&dir.path().join("records"), 3);
    for (record, run) in records.iter().zip(runs) {
        assert_eq!(
            (&record["viewer"], &record["stream"], &record["protocol"]),
            (&records[0]["viewer"], &"live/demo".into(), &"h3".into())
        );
        // The server subtracts sums, where short freezes count as playback.
        let [player, ..] = players(run);
        let watched = number(&player["played_s"]) + number(&player["freeze_s"]);
        let reported = number(&record["player_played_s"]) + number(&record["player_freeze_s"]);
        assert!((watched - reported).abs() < 0.1, "{record} {run}");
    }
    assert!(!records[0]["player_first_frame_ms"].is_null(), "{}", records[0]);
}

#[test]
fn hls_viewers_get_fewer_copies_than_flv_viewers() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut edge = live_edge(dir.path(), "[records]\ndirectory = \"records\"\n");
    let _publisher = Publisher::start(edge.rtmp(), "live/demo", None);
    let link = ["link", "--listen", "127.0.0.1:0", "--rtt", "100ms", "--loss", "4%", "--seed", "3"];
    let link = Relay::start(mendcast(&link).arg("--to").arg(edge.address.to_string()));
    let port = edge.address.port();
    let watched = |path: &str| {
        let url = format!("https://mendcast.test:{port}/live/{path}");
        seen(&url, &["--seconds", "12", "--connect", &link.address]);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| watched("demo/index.m3u8"));
        scope.spawn(|| watched("demo.flv"));
    });
    // The sessions of HLS viewers stay open for a while.
    edge.terminate();
    let records = records(&dir.path().join("records"), 2);
    let copies = |format: &str| {
        let record = records.iter().find(|record| record["format"] == format).expect("watched");
        let lost = number(&record["retransmissions"]);
        assert!(lost >= 10.0, "{record}");
        number(&record["replicas"]) / lost
    };
    let (hls, flv) = (copies("hls"), copies("flv"));
    assert!(hls < 0.25 && flv > 0.4, "of retransmissions: HLS {hls}, FLV {flv}");
}

#[test]
fn a_returning_viewer_resumes_its_path_state() {
    let dir = tempfile::tempdir().expect("a directory");
    let more = "[startup]\nmode = \"wira\"\nnetworks = 0\n[records]\ndirectory = \"records\"\n";
    let edge = live_edge(dir.path(), more);
    let _publisher = Publisher::start(edge.rtmp(), "live/demo", None);
    let link = ["link", "--listen", "127.0.0.1:0", "--rtt", "80ms", "--rate", "8mbps"];
    let link = Relay::start(mendcast(&link).arg("--to").arg(edge.address.to_string()));
    let url = format!("https://mendcast.test:{}/live/demo.flv", edge.address.port());
    // quinn uses the oldest tokens first, and the first visit's tokens pay for one jump.
    let seen = seen(&url, &["--seconds", "3", "--repeat", "2", "--connect", &link.address]);
    let runs = seen["runs"].as_array().expect("runs");
    let records = records(&dir.path().join("records"), 2);
    let first = &records[0];
    assert_eq!(
        (&first["start"], &first["start_cookie"]),
        (&"wira".into(), &Value::Null),
        "{first}"
    );
    // The window is counted in packets, with their headers.
    let is_first_frame = |record: &Value| {
        let share = number(&record["start_window"]) / number(&record["first_frame_bytes"]);
        (1.0..1.3).contains(&share)
    };
    assert!(is_first_frame(first), "within a round trip: {first}");
    for (record, run) in records.iter().zip(runs).skip(1) {
        assert_eq!((&run["resumed"], &run["early_data"]), (&true.into(), &true.into()), "{run}");
        assert_eq!(record["start_cookie"], "token", "{record}");
        // 8 Mbit/s in 80 ms are 80 kB, more than the first frame: the measured rate is a lower
        // bound.
        assert!(is_first_frame(record), "{record}");
        assert!((3.0..9.0).contains(&number(&record["start_rate_mbps"])), "{record}");
        assert_eq!(record["jump"], "passed", "{record}");
    }
}

/// The records of that many sessions, oldest first.
fn records(dir: &Path, count: usize) -> Vec<Value> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let files = std::fs::read_dir(dir).expect("made").flatten().map(|entry| entry.path());
        let texts = files.filter(|path| path.extension().is_some_and(|e| e == "jsonl"));
        let mut records: Vec<Value> = texts
            .flat_map(|path| {
                let text = std::fs::read_to_string(path).expect("readable");
                text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect::<Vec<_>>()
            })
            .collect();
        if records.len() == count {
            records.sort_by_key(|record: &Value| record["session"].as_i64());
            return records;
        }
        assert!(Instant::now() < end, "{} records, not {count}: {records:?}", records.len());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_server_that_has_forgotten_the_session_gets_the_request_again() {
    let dir = tempfile::tempdir().expect("a directory");
    let (first, second) = (dir.path().join("1"), dir.path().join("2"));
    let quick = "[drain]\ntimeout = \"0s\"\n";
    let mut before = live_edge(&first, quick);
    std::fs::write(first.join("www/a.bin"), vec![1; 30_000_000]).expect("written");
    let link = ["link", "--listen", "127.0.0.1:0", "--rate", "8mbps", "--to"];
    let link = Relay::start(mendcast(&link).arg(before.address.to_string()));
    let url = format!("https://{}/a.bin", link.address);
    let viewer = mendcast(&["watch", &url, "--insecure", "--json", "--repeat", "2"])
        .args(["--seconds", "2"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    std::thread::sleep(Duration::from_millis(1_200));
    before.terminate();
    std::fs::create_dir_all(second.join("www")).expect("made");
    std::fs::write(second.join("www/a.bin"), "short").expect("written");
    let _after = edge_at(&second, before.address, quick);
    let output = viewer.wait_with_output().expect("ended");
    assert_eq!(output.status.code(), Some(1), "the first view was cut off: {}", stderr(&output));
    let seen: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert!(seen["runs"][0]["error"].is_string(), "{seen}");
    let again = &seen["runs"][1];
    assert_eq!((&again["bytes"], &again["complete"]), (&5.into(), &true.into()), "{seen}");
    assert_eq!((&again["resumed"], &again["early_data"]), (&false.into(), &false.into()), "{seen}");
}

#[test]
fn the_end_of_a_stream_is_a_good_end_and_no_stream_is_an_error() {
    let dir = tempfile::tempdir().expect("a directory");
    let edge = live_edge(dir.path(), "[live]\nlinger = \"0s\"\nmax_viewers = 1\n");
    let url = format!("https://{}/live/demo.flv", edge.address);
    let none = watch(&url, &["--insecure"]);
    assert_eq!(none.status.code(), Some(1));
    let text = stderr(&none);
    assert!(text.contains("HTTP status 404 Not Found") && text.lines().count() == 1, "{text}");

    let publisher = Publisher::start(edge.rtmp(), "live/demo", None);
    let first = mendcast(&["watch", &url, "--insecure", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    std::thread::sleep(Duration::from_millis(1_500));
    let second = watch(&url, &["--insecure"]);
    assert_eq!(second.status.code(), Some(1));
    assert!(stderr(&second).contains("HTTP status 503"), "{}", stderr(&second));
    drop(publisher);
    let first = first.wait_with_output().expect("ended");
    assert!(first.status.success());
    let seen: Value = serde_json::from_slice(&first.stdout).expect("one object");
    assert_eq!(seen["complete"], true, "{seen}");
    assert!(number(&players(&seen)[0]["played_s"]) > 1.0, "{seen}");
}

#[test]
fn a_lost_server_gives_one_line_and_the_report() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut edge = live_edge(dir.path(), "[drain]\ntimeout = \"0s\"\n");
    let _publisher = Publisher::start(edge.rtmp(), "live/demo", None);
    let url = format!("https://{}/live/demo.flv", edge.address);
    let viewer = mendcast(&["watch", &url, "--insecure", "--json", "--report"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("started");
    std::thread::sleep(Duration::from_millis(1_500));
    edge.terminate();
    let output = viewer.wait_with_output().expect("ended");
    let text = stderr(&output);
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("live/demo.flv: cut off: "), "{text}");
    let seen: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(seen["complete"], false, "{seen}");
    assert!(number(&players(&seen)[0]["played_s"]) > 0.5, "{seen}");
}

/// The clip as an HLS presentation of this form in files.
fn hls(dir: &Path, container: Container) {
    let mut segmenter =
        Segmenter::new(SegmenterConfig { container, window: 100, ..SegmenterConfig::default() });
    for tag in clip() {
        segmenter.push(&tag, 1_700_000_000_000);
    }
    segmenter.end();
    std::fs::create_dir_all(dir).expect("made");
    let write = |name: &str, body: &[u8]| std::fs::write(dir.join(name), body).expect("written");
    write("index.m3u8", &segmenter.master().expect("segments"));
    let playlist = segmenter.playlist(false).expect("segments");
    write(media::hls::segmenter::MEDIA_PLAYLIST, &playlist);
    let extension = if container == Container::Ts { "ts" } else { "m4s" };
    for name in segmenter.segments() {
        let body = segmenter.segment(name).expect("complete").concat();
        write(&format!("{name}.{extension}"), &body);
    }
    for id in segmenter.inits() {
        write(&format!("init-{id:016x}.mp4"), &segmenter.init(id).expect("an init"));
    }
}

#[test]
fn hls_is_followed_from_the_master_playlist_to_the_end() {
    let dir = tempfile::tempdir().expect("a directory");
    let edge = live_edge(dir.path(), "");
    let frames = clip().iter().filter(|tag| !tag.role().is_header()).count() as f64;
    for (name, container) in [("mp4", Container::Fmp4), ("ts", Container::Ts)] {
        hls(&dir.path().join("www/vod").join(name), container);
        let url = format!("https://{}/vod/{name}/index.m3u8", edge.address);
        let seen = seen(&url, &[]);
        assert_eq!((&seen["complete"], &seen["key_frames"]), (&true.into(), &5.into()), "{seen}");
        // The frames, and a header of each kind.
        assert!((number(&seen["tags"]) - frames).abs() <= 4.0, "{frames} {seen}");
        let [_, mobile, cautious] = players(&seen);
        for player in [mobile, cautious] {
            assert!((9.8..10.1).contains(&number(&player["played_s"])), "{seen}");
            assert_eq!(player["freezes"], 0, "{seen}");
        }
    }
    let url = format!("https://{}/vod/none/index.m3u8", edge.address);
    let output = watch(&url, &["--insecure"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("HTTP status 404"), "{}", stderr(&output));
    std::fs::write(dir.path().join("www/a.m3u8"), "<html>").expect("written");
    let output = watch(&format!("https://{}/a.m3u8", edge.address), &["--insecure"]);
    assert!(stderr(&output).contains("no HLS playlist"), "{}", stderr(&output));
}
