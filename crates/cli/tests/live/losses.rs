//! Publishers that are killed: their viewers are kept for a while, and told of the end in good
//! form.

use std::time::Duration;

use crate::common::publisher::{Pause, Publisher, clip};
use crate::support::edge::Edge;
use crate::support::programs::{ffmpeg_sends, has};
use crate::support::publishing::Publishing;
use crate::support::viewer::{End, Viewer};
use crate::support::{assert_time_goes_on, http, until};

fn viewers(edge: &Edge) -> [Viewer; 3] {
    [
        Viewer::h1(edge.address, "/live/demo.flv"),
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ]
}

#[test]
fn viewers_stay_while_a_killed_publisher_is_replaced() {
    if !has("ffmpeg") {
        return;
    }
    let edge = Edge::start("live.linger = \"20s\"\n");
    let mut publisher = ffmpeg_sends(&["-f", "flv"], &format!("rtmp://{}/live/demo", edge.rtmp));
    edge.says("live/demo: published by");
    let viewers = viewers(&edge);
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(50));
    publisher.kill();
    edge.says("disconnected");
    let before = viewers.each_ref().map(|viewer| viewer.frames().len());
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    for (viewer, before) in viewers.iter().zip(before) {
        viewer.wait_for_frames(before + 100);
        let tags = viewer.tags();
        assert_time_goes_on(&tags);
        // No gap that a player would have to wait for.
        let frames = viewer.frames();
        let steps =
            frames.windows(2).map(|two| two[1].timestamp().saturating_sub(two[0].timestamp()));
        assert!(steps.max() < Some(500));
    }
    assert_eq!(edge.events("published"), 2.0);
    let sessions = edge.state()["streams"][0]["viewers"].clone();
    assert_eq!(sessions, 3, "{}", edge.state());
}

#[test]
fn a_stream_without_its_publisher_ends_cleanly() {
    let edge = Edge::start("live.linger = \"1s\"\n");
    let mut publisher = Publishing::open(edge.rtmp, "live/demo").expect("granted");
    // All of it at once.
    let clip = clip();
    clip.iter().for_each(|tag| assert!(publisher.send(tag)));
    let viewers = viewers(&edge);
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(1));
    let hls = |file: &str| http::get(edge.address, &format!("/live/demo/{file}"));
    let master = hls("index.m3u8").text();
    let media = master.lines().find(|line| line.ends_with("media.m3u8")).expect("a playlist");
    // The connection is closed without a word.
    drop(publisher);
    for viewer in &viewers {
        assert_eq!(viewer.end(), End::Clean);
        let last = viewer.frames().pop().map(|tag| tag.payload());
        assert_eq!(last, clip.last().map(media::Tag::payload), "everything was delivered");
    }
    edge.says("live/demo: stream ended");
    // HLS players learn of the end from the playlist.
    let playlist = hls(media);
    assert_eq!(playlist.status, 200);
    let playlist = playlist.text();
    assert!(playlist.trim_end().ends_with("#EXT-X-ENDLIST"), "{playlist}");
    assert_dates_follow_durations(&playlist);
    assert_eq!(http::get(edge.address, "/live/demo.flv").status, 404);
    until("no stream is left", || edge.metric("mendcast_streams") == 0.0);
}

#[test]
fn a_silent_publisher_is_disconnected() {
    let edge = Edge::start("rtmp.timeout = \"1s\"\nlive.linger = \"0s\"\n");
    let pause = Pause { at: Duration::from_secs(1), length: Duration::from_secs(60) };
    let _publisher = Publisher::start(edge.rtmp, "live/demo", Some(pause));
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(30);
    assert_eq!(viewer.end(), End::Clean);
    edge.says("no data for 1s");
}

/// Segment dates differ by their durations, also for segments older than packing: hls.js positions
/// segments by date.
fn assert_dates_follow_durations(playlist: &str) {
    let values = |tag: &str| -> Vec<&str> {
        playlist.lines().filter_map(|line| line.strip_prefix(tag)).collect()
    };
    let dates: Vec<f64> = values("#EXT-X-PROGRAM-DATE-TIME:").into_iter().map(seconds).collect();
    let lengths = values("#EXTINF:").into_iter().map(|text| text.trim_end_matches(','));
    let lengths: Vec<f64> = lengths.map(|text| text.parse().expect("seconds")).collect();
    assert!(dates.len() >= 2 && dates.len() == lengths.len(), "{playlist}");
    for (two, length) in dates.windows(2).zip(lengths) {
        assert!(((two[1] - two[0]).rem_euclid(86_400.0) - length).abs() < 0.05, "{playlist}");
    }
}

/// The seconds of a day in an ISO 8601 date and time.
fn seconds(date: &str) -> f64 {
    let (_, time) = date.split_once('T').expect("a time");
    let fields = time.trim_end_matches('Z').split(':');
    fields.fold(0.0, |sum, field| sum * 60.0 + field.parse::<f64>().expect("a number"))
}
