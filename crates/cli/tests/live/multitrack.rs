//! One encoder connection with three video tracks (Enhanced RTMP): as a ladder, and as a stream.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use media::{Kind, Role, Tag};

use crate::common::publisher::clip;
use crate::control::call;
use crate::ladder::{OTHER_SIZE, assert_aligned, master_of};
use crate::support::edge::Edge;
use crate::support::http;
use crate::support::publishing::Publishing;
use crate::support::until;
use crate::support::viewer::Viewer;

const LADDER: &str = "[[ladder]]\nname = \"live/show\"\nrenditions = [\"live/show_*\"]\n\
                      multitrack = true\n";
const TAKEN: &str = "another publisher has taken the stream over";

/// Sends the clip round and round as OBS does: track 0 in plain tags, each other one in tags with
/// one track. A second audio track follows the first.
struct Encoder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Option<String>>>,
}

impl Encoder {
    fn start(rtmp: SocketAddr, stream: &str, tracks: u8) -> Self {
        let mut connection = Publishing::open(rtmp, stream).expect("published");
        let stop = Arc::new(AtomicBool::new(false));
        let over = stop.clone();
        let thread = std::thread::spawn(move || {
            let (clip, start) = (clip(), Instant::now());
            let length = clip.last().map_or(0, Tag::timestamp) + 40;
            for (round, tag) in (0..).flat_map(|round| clip.iter().map(move |tag| (round, tag))) {
                if round > 0 && tag.role().is_header() {
                    continue;
                }
                let time = tag.timestamp() + round * length;
                while start.elapsed() < Duration::from_millis(time.into()) {
                    if over.load(Ordering::Relaxed) {
                        return None;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                let tag = tag.clone().with_timestamp(time);
                let others = (1..tracks).filter_map(|id| as_track(&tag, id));
                let extra = others.collect::<Vec<_>>();
                if !std::iter::once(&tag).chain(&extra).all(|tag| connection.send(tag)) {
                    return connection.closed();
                }
            }
            None
        });
        Self { stop, thread: Some(thread) }
    }

    /// Waits until the server closes the connection. Returns the reason.
    fn closed(mut self) -> Option<String> {
        let thread = self.thread.take().expect("not joined");
        until("the end of the connection", || thread.is_finished());
        thread.join().expect("no panic")
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || std::thread::panicking(), "the encoder failed");
        }
    }
}

/// A tag of H.264 or AAC as a multitrack packet of type OneTrack. The tracks have other sizes.
fn as_track(tag: &Tag, id: u8) -> Option<Tag> {
    let payload = match (tag.kind(), tag.role()) {
        (Kind::Video, Role::SequenceHeader) => OTHER_SIZE.to_vec(),
        _ => tag.payload().to_vec(),
    };
    let (first, codec, at) = match tag.kind() {
        Kind::Audio if id == 1 => (0x95, b"mp4a", 2),
        Kind::Video if tag.role() == Role::SequenceHeader => (0x96, b"avc1", 5),
        Kind::Video => (payload[0] & 0x70 | 0x86, b"avc1", 2),
        _ => return None,
    };
    let packet = [&[first, payload[1]][..], codec, &[id], &payload[at..]].concat();
    Tag::new(tag.kind(), tag.timestamp(), &packet)
}

#[test]
fn three_tracks_are_a_ladder_of_three_renditions() {
    let edge = Edge::start(LADDER);
    let encoder = Encoder::start(edge.rtmp, "live/show", 3);
    let variants = master_of(&edge, "", 3);
    for (attributes, _) in &variants {
        let expected = ["CODECS=\"avc1.", "mp4a.40.2\"", ",FRAME-RATE=25.000"];
        assert!(expected.iter().all(|part| attributes.contains(part)), "{variants:?}");
    }
    assert!(variants[0].0.contains("RESOLUTION=1280x720"), "{variants:?}");
    assert!(variants[1].0.contains("RESOLUTION=318x178"), "{variants:?}");
    let media: Vec<String> = variants.into_iter().map(|(_, path)| path).collect();
    assert_aligned(&edge, &media, 3);
    for path in ["/live/show.flv", "/live/show_0.flv", "/live/show_2.flv"] {
        let viewer = Viewer::h1(edge.address, path);
        viewer.wait_for_frames(50);
        let seen = [Kind::Audio, Kind::Video]
            .map(|kind| viewer.frames().iter().filter(|tag| tag.kind() == kind).count());
        assert!(seen.iter().all(|count| *count > 10), "{path}: {seen:?}");
    }
    assert_eq!((edge.events("published"), edge.events("track_started")), (1.0, 3.0));
    edge.says("live/show_2: published as track 2 of live/show");
    edge.says("live/show: audio track 1 dropped");
    assert!(edge.metric("mendcast_ingest_other_tracks_total") > 0.0);
    assert!(edge.said("key frames at these times").is_empty(), "{:?}", edge.log());
    drop(encoder);
    edge.says("live/show: publisher 127.0.0.1:");
    until("the end", || http::get(edge.address, "/live/show/index.m3u8").status == 404);
}

#[test]
fn the_name_of_the_ladder_decides_about_its_tracks() {
    let rules = "live.take_over = \"same-key\"\n[[publish]]\nstream = \"live/show\"\n\
                 key = \"secret\"\n";
    let edge = Edge::start(&format!("{rules}{LADDER}"));
    let open = |stream| Publishing::open(edge.rtmp, stream).map(drop);
    assert_eq!(open("live/show?key=other"), Err("wrong key".into()));
    assert_eq!(open("live/show_1?key=secret"), Err("no [[publish]] rule for this stream".into()));
    let first = Encoder::start(edge.rtmp, "live/show?key=secret", 3);
    master_of(&edge, "", 3);
    // The encoder returns on another connection, with fewer tracks.
    let second = Encoder::start(edge.rtmp, "live/show?key=secret", 2);
    assert_eq!(first.closed().as_deref(), Some(TAKEN));
    let viewer = Viewer::h1(edge.address, "/live/show_1.flv");
    viewer.wait_for_frames(30);
    assert_eq!(edge.events("taken_over"), 1.0);
    until("the third track ends", || {
        let (_, list) = call(edge.admin(), "GET", "/api/streams", "");
        let streams = list["streams"].as_array().expect("a list");
        streams.iter().filter(|stream| stream["status"] == "live").count() == 2
    });
    let path = "/api/streams/live/show/end";
    assert_eq!(call(edge.admin(), "POST", path, r#"{"for":"10m"}"#).0, 200);
    assert_eq!(second.closed().as_deref(), Some("the operator ended this stream"));
    viewer.end();
    until("all tracks end", || http::get(edge.address, "/live/show/index.m3u8").status == 404);
    assert_eq!(open("live/show?key=secret"), Err("the operator ended this stream".into()));
    assert_eq!(call(edge.admin(), "POST", path, "").0, 404);
}

#[test]
fn a_stream_keeps_the_default_track_and_says_so_once() {
    let edge = Edge::start(&LADDER.replace("true", "false"));
    let refused = Publishing::open(edge.rtmp, "live/show").map(drop);
    assert_eq!(refused, Err("a [[ladder]] without multitrack has this name".into()));
    let _encoder = Encoder::start(edge.rtmp, "live/demo", 3);
    let viewer = Viewer::h1(edge.address, "/live/demo.flv");
    viewer.wait_for_frames(100);
    crate::support::assert_is_clip(&viewer.frames());
    let said = edge.says("live/demo: video track 1 dropped");
    assert!(said.contains("[[ladder]] with multitrack = true"), "{said}");
    for part in ["video track", "audio track"] {
        assert_eq!(edge.said(part).len(), 1, "{:?}", edge.log());
    }
}
