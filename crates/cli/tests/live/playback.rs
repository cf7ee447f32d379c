//! From a publisher to players: output equals input.

use crate::common::publisher::Publisher;
use crate::support::edge::Edge;
use crate::support::programs::{ffmpeg_plays, ffmpeg_sends, has};
use crate::support::viewer::Viewer;
use crate::support::{assert_is_clip, assert_time_goes_on};

/// Seconds that ffmpeg plays, at 25 pictures each.
const SECONDS: u32 = 3;

#[test]
fn ffmpeg_publishes_and_decodes_over_http_1_1_and_rtmp_without_an_error() {
    if !has("ffmpeg") {
        return;
    }
    let edge = Edge::start("");
    let stream = format!("rtmp://{}/live/demo", edge.rtmp);
    let _publisher = ffmpeg_sends(&["-f", "flv"], &stream);
    edge.says("live/demo: published by");
    let flv = format!("https://{}/live/demo.flv", edge.address);
    let players = [flv, stream].map(|url| {
        std::thread::spawn(move || {
            let output = ffmpeg_plays(&url, SECONDS);
            (url, output)
        })
    });
    for player in players {
        let (url, output) = player.join().expect("run");
        let (errors, progress) =
            (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert!(output.status.success() && errors.is_empty(), "{url}: {errors}");
        let value = |name: &str| {
            let mut values = progress.lines().filter_map(|line| line.strip_prefix(name));
            values.next_back().and_then(|value| value.trim().parse::<u32>().ok())
        };
        let frames = value("frame=").expect("a number of frames");
        assert!(frames.abs_diff(25 * SECONDS) <= 1, "{url}: {frames} frames");
        assert_eq!((value("drop_frames="), value("dup_frames=")), (Some(0), Some(0)), "{url}");
    }
}

#[test]
fn tags_arrive_bit_identical_over_http_3_http_2_and_rtmp() {
    if !has("curl") {
        return;
    }
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let viewers = [
        Viewer::h3(edge.address, "/live/demo.flv"),
        Viewer::h2(edge.address, "/live/demo.flv"),
        Viewer::rtmp(edge.rtmp, "live/demo"),
    ];
    // Four seconds: two groups of pictures.
    viewers.iter().for_each(|viewer| viewer.wait_for_frames(290));
    let seen = viewers.each_ref().map(Viewer::tags);
    for tags in &seen {
        let headers: Vec<_> = tags.iter().take_while(|tag| tag.role().is_header()).collect();
        assert_eq!(headers.len(), 1 + 3, "the base of its times, and the clip's: {headers:?}");
        let frames: Vec<_> = tags.iter().filter(|tag| !tag.role().is_header()).cloned().collect();
        assert_is_clip(&frames);
        assert_time_goes_on(&frames);
    }
    // Each viewer has its own times, starting near 0; in the stream's time all have the same tags.
    for viewer in &viewers {
        let first = viewer.frames()[0].timestamp();
        assert!(first < 100, "{first}");
    }
    let frames = viewers.each_ref().map(Viewer::stream_frames);
    for other in &frames[1..] {
        let behind = |a: u32, b: u32| a.wrapping_sub(b) < 1 << 31;
        let (one, two) = (frames[0][0].timestamp(), other[0].timestamp());
        let from = if behind(one, two) { one } else { two };
        let one = frames[0].iter().skip_while(|tag| !behind(tag.timestamp(), from));
        let two = other.iter().skip_while(|tag| !behind(tag.timestamp(), from));
        let same = one.zip(two).inspect(|(a, b)| assert_eq!(a.bytes(), b.bytes())).count();
        assert!(same > 100, "{same} tags in common");
    }
    for viewer in &viewers[..2] {
        assert_eq!(viewer.kinds(), Some((true, true)));
    }
}
