//! Streams that leave the edge: pushed to another edge, to nginx, and around in a circle; recorded
//! to disk.

use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::Signal;

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::programs::{free_address, has, nginx};
use crate::support::viewer::Viewer;
use crate::support::{assert_is_clip, assert_tracks_are_of_clip, until};

/// A push rule, placed last in the configuration.
fn push(stream: &str, url: &str, more: &str) -> String {
    format!("[[push]]\nstream = \"{stream}\"\nurl = \"{url}\"\nretry = \"500ms\"\n{more}\n")
}

#[test]
fn a_pushed_stream_plays_on_another_edge_and_a_circle_is_found() {
    let second = Edge::start("");
    let first = Edge::start(&push("live/*", &format!("rtmp://{}/{{name}}", second.rtmp), ""));
    second.reload(&push("live/*", &format!("rtmp://{}/{{name}}", first.rtmp), ""));
    let publisher = Publisher::start(first.rtmp, "live/demo", None);
    until("the push", || second.events("published") > 0.0);
    let viewer = Viewer::h1(second.address, "/live/demo.flv");
    viewer.wait_for_frames(150);
    assert_is_clip(&viewer.frames());
    // The second edge would send it back.
    let refused = second.says("reason=refused");
    assert!(refused.contains("passed this server already"), "{refused}");
    assert_eq!(first.events("taken_over"), 0.0);
    // The stream ends at both.
    drop(publisher);
    second.says("live/demo: publishing stopped");
    first.says("live/demo: push ended with the stream");
    let _publisher = Publisher::start(first.rtmp, "live/demo", None);
    until("the push again", || second.events("published") > 1.0);
}

#[test]
fn a_wrong_stream_key_is_refused_and_hidden() {
    const KEY: &str = "a-secret-that-no-log-shows";
    let rules = "[[publish]]\nstream = \"*\"\nkey = \"another word\"\n";
    let second = Edge::start(rules);
    let url = format!("rtmp://{}/live/demo?key={{key}}", second.rtmp);
    let dead = push("live/*", &format!("rtmp://{}/live/{{key}}", free_address()), &key_of(KEY));
    let first = Edge::start(&(push("live/*", &url, &key_of(KEY)) + &dead));
    let _publisher = Publisher::start(first.rtmp, "live/demo", None);
    let line = first.says("reason=refused");
    assert!(line.contains("wrong key") && line.contains("/live/…?…"), "{line}");
    first.says("reason=unreachable");
    assert!(first.log().iter().all(|line| !line.contains(KEY)), "{:?}", first.log());
    until("counts", || {
        let target = format!("target=\"rtmp://{}/live/…?…\"", second.rtmp);
        let refused = format!("stream=\"live/*\",{target},event=\"refused\"}}");
        first.metric(&format!("mendcast_push_events_total{{{refused}")) >= 2.0
    });
    // Viewers of the stream notice nothing.
    let viewer = Viewer::h1(first.address, "/live/demo.flv");
    viewer.wait_for_frames(50);
    assert_is_clip(&viewer.frames());
}

fn key_of(key: &str) -> String {
    format!("key = \"{key}\"")
}

#[test]
fn a_stream_is_pushed_to_nginx_and_pulled_from_there() {
    if !has("nginx") {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let address = free_address();
    let mut target = nginx(directory.path(), address);
    let first = Edge::start(&push("live/*", &format!("rtmp://{address}/{{name}}"), ""));
    let _publisher = Publisher::start(first.rtmp, "live/demo", None);
    let pushes = format!(
        "mendcast_push_connections{{stream=\"live/*\",target=\"rtmp://{address}/{{name}}\"}}"
    );
    until("the push", || first.metric(&pushes) > 0.0);
    let pull =
        format!("[[pull]]\nstream = \"live/*\"\nupstream = [\"rtmp://{address}/{{name}}\"]\n");
    let second = Edge::start(&pull);
    let viewer = Viewer::h1(second.address, "/live/demo.flv");
    viewer.wait_for_frames(100);
    assert_tracks_are_of_clip(&viewer.frames());
    // Killed and started again.
    target.kill();
    first.says("live/demo: push failed");
    let _target = nginx(directory.path(), address);
    until("the push again", || first.metric(&pushes) > 0.0);
}

/// The only recording of a stream.
fn recording(edge: &Edge, stream: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(edge.directory().join("recordings").join(stream)).ok()?;
    let all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    assert!(all.len() < 2, "{all:?}");
    all.into_iter().next()
}

fn playlist(take: &Path) -> String {
    std::fs::read_to_string(take.join("index.m3u8")).unwrap_or_default()
}

const RECORD: &str =
    "[[record]]\nstream = \"live/*\"\ndirectory = \"recordings\"\nsegment = \"2s\"\n";

#[test]
fn a_recording_plays_and_continues_after_a_restart() {
    let mut edge = Edge::start(RECORD);
    let publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let segments = |edge: &Edge| {
        let take = recording(edge, "live/demo");
        take.map_or(0, |take| playlist(&take).matches("#EXTINF").count())
    };
    until("two segments", || segments(&edge) >= 2);
    edge.signal(Signal::SIGTERM);
    drop(publisher);
    assert_eq!(edge.exit_code(), Some(0), "{:?}", edge.log());
    let take = recording(&edge, "live/demo").expect("a recording");
    let before = playlist(&take);
    assert!(!before.contains("#EXT-X-ENDLIST"), "{before}");
    // The same configuration and directory.
    let directory = tempfile::tempdir().expect("a temporary directory");
    let moved = directory.path().join("recordings");
    std::fs::rename(edge.directory().join("recordings"), &moved).expect("moved");
    let edge = Edge::start_in(directory, RECORD, None);
    let publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let count = before.matches("#EXTINF").count();
    until("more segments", || segments(&edge) >= count + 2);
    drop(publisher);
    let take = recording(&edge, "live/demo").expect("the same recording");
    until("the end", || playlist(&take).ends_with("#EXT-X-ENDLIST\n"));
    let after = playlist(&take);
    assert!(after.starts_with(&before), "{before}\n{after}");
    assert_eq!(after.matches("#EXT-X-DISCONTINUITY\n").count(), 1, "{after}");
    if !has("ffmpeg") {
        return;
    }
    let mut command = Command::new("ffmpeg");
    command.args(["-v", "warning", "-i"]).arg(take.join("index.m3u8"));
    let output = command.args(["-f", "null", "-"]).output().expect("run");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !errors.contains("rror"), "{errors}");
    let mut command = Command::new("ffprobe");
    command.args(["-v", "error", "-show_entries", "format=duration", "-of", "csv=p=0"]);
    let output = command.arg(take.join("index.m3u8")).output().expect("run");
    let seconds: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().expect("a duration");
    let listed = after.lines().filter_map(|line| line.strip_prefix("#EXTINF:")?.strip_suffix(','));
    let listed: f64 = listed.map(|duration| duration.parse::<f64>().expect("a duration")).sum();
    assert!((seconds - listed).abs() < 0.5, "{seconds}\n{after}");
}
