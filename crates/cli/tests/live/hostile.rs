//! Misbehaving publishers and viewers do not affect others.

use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::common::publisher::{Publisher, clip};
use crate::support::edge::Edge;
use crate::support::publishing::{CONFIGURATION, INTER, KEY, Publishing, picture};
use crate::support::viewer::{End, Viewer};
use crate::support::{assert_is_clip, http, http3, until};

/// Numbers without any meaning, the same for the same seed (Marsaglia's xorshift64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// Changes, cuts, doubles or inserts some bytes.
    fn mutate(&mut self, mut bytes: Vec<u8>) -> Vec<u8> {
        if bytes.is_empty() {
            return bytes;
        }
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] = self.below(256) as u8,
                1 => bytes[at] ^= 1 << self.below(8),
                2 => bytes.truncate(at + 1),
                3 => bytes.insert(at, self.below(256) as u8),
                _ => {
                    let end = bytes.len().min(at + self.below(200));
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }
}

#[test]
fn broken_publishers_harm_no_viewer_of_another_stream() {
    let mut edge = Edge::start("live.linger = \"0s\"\n");
    let _publisher = Publisher::start(edge.rtmp, "live/good", None);
    let viewers = [
        Viewer::h1(edge.address, "/live/good.flv"),
        Viewer::h3(edge.address, "/live/good.flv"),
        Viewer::rtmp(edge.rtmp, "live/good"),
    ];
    let clip = clip();
    for seed in 1..=60 {
        let mut random = Random(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let stream = format!("live/bad{seed}");
        match seed % 3 {
            // Noise from the first byte on.
            0 => {
                let mut socket = TcpStream::connect(edge.rtmp).expect("connected");
                let length = random.below(10_000);
                let mut noise: Vec<u8> = (0..length).map(|_| random.below(256) as u8).collect();
                if random.below(2) == 0 && !noise.is_empty() {
                    noise[0] = 3;
                }
                // The server may have had enough before the end.
                let _ = socket.write_all(&noise);
            }
            // Commands that went wrong. A cut one leaves both sides waiting: it is not awaited.
            1 => {
                let (address, late) = (edge.rtmp, random.below(4));
                std::thread::spawn(move || {
                    let mut pieces = 0;
                    // It may even be granted.
                    let _ = Publishing::open_as(address, &stream, |bytes| {
                        pieces += 1;
                        if pieces > late { random.mutate(bytes) } else { bytes }
                    });
                });
            }
            // Media that went wrong.
            _ => {
                let mut publishing = Publishing::open(edge.rtmp, &stream)
                    .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
                for tag in &clip[..100] {
                    let message = publishing.message(tag);
                    let message = match random.below(10) {
                        0 => random.mutate(message),
                        _ => message,
                    };
                    if !publishing.send_bytes(&message) {
                        break;
                    }
                }
            }
        }
    }
    until("broken publishers are counted", || edge.events("rtmp_error") >= 15.0);
    for viewer in &viewers {
        viewer.wait_for_frames(200);
        assert_is_clip(&viewer.frames());
        assert_eq!(viewer.has_ended(), None);
    }
    assert!(edge.is_running());
    assert!(edge.said("panicked").is_empty(), "{:?}", edge.log());
    assert!(edge.metric("mendcast_resident_memory_bytes") < 200e6);
}

#[test]
fn a_broken_message_ends_its_publisher_with_one_line_and_a_count() {
    let edge = Edge::start("live.max_tag = \"64KiB\"\nlive.linger = \"0s\"\n");
    // A chunk of a stream that never began; a message above the limit; a broken command.
    let unknown = vec![0xc0 | 40];
    let mut large = vec![6, 0, 0, 0, 0xff, 0xff, 0xff, 9, 1, 0, 0, 0];
    large.resize(1_000, 0);
    let mut command = vec![3, 0, 0, 0, 0, 0, 4, 20, 0, 0, 0, 0];
    command.extend([2, 0xff, 0xff, b'x']);
    for (count, (bytes, why)) in
        [(unknown, "chunk"), (large, "over the limit"), (command, "")].into_iter().enumerate()
    {
        let mut publishing = Publishing::open(edge.rtmp, "live/bad").expect("granted");
        assert!(publishing.send(&picture(CONFIGURATION, 0, 40)));
        assert!(publishing.send(&picture(KEY, 0, 10_000)));
        let viewer = Viewer::h1(edge.address, "/live/bad.flv");
        viewer.wait_for_frames(1);
        let address = publishing.address();
        assert!(publishing.send_bytes(&bytes));
        publishing.closed();
        assert_eq!(viewer.end(), End::Clean);
        let what = format!("RTMP {address}: ");
        edge.says(&what);
        let lines = edge.said(&what);
        assert!(lines.len() == 1 && lines[0].contains(why), "{why}: {lines:?}");
        assert_eq!(edge.events("rtmp_error"), count as f64 + 1.0);
        until("the stream is over", || edge.metric("mendcast_streams") == 0.0);
    }
}

#[test]
fn a_picture_above_the_limit_of_tags_ends_its_publisher() {
    let edge = Edge::start("live.max_tag = \"64KiB\"\n");
    let mut publishing = Publishing::open(edge.rtmp, "live/demo").expect("granted");
    assert!(publishing.send(&picture(CONFIGURATION, 0, 40)));
    assert!(publishing.send(&picture(KEY, 0, 60_000)));
    let address = publishing.address();
    assert!(publishing.send(&picture(INTER, 40, 70_000)));
    publishing.closed();
    edge.says(&format!("RTMP {address}: RTMP message of 70000 bytes is over the limit"));
    assert_eq!(edge.events("rtmp_error"), 1.0);
}

#[test]
fn publishers_are_refused_with_the_reason() {
    let edge =
        Edge::start("live.max_streams = 2\n[[publish]]\nstream = \"live/*\"\nkey = \"secret\"\n");
    let open = |stream: &str| Publishing::open(edge.rtmp, stream).map(drop);
    let refusals = [
        ("live/a?key=another-word", "wrong key"),
        ("live/a", "missing key: STREAM?key=KEY or STREAM?token=TOKEN"),
        ("other/a?key=secret", "no [[publish]] rule for this stream"),
        ("live/.a?key=secret", "invalid stream name"),
    ];
    for (count, (stream, why)) in refusals.into_iter().enumerate() {
        assert_eq!(open(stream), Err(why.to_owned()), "{stream}");
        assert_eq!(edge.events("publish_refused"), count as f64 + 1.0);
        let name = stream.split('?').next().expect("a name");
        let line = edge.says(&format!(" refused: {why}"));
        assert!(line.contains(&format!(" WARN {name}: publisher 127.0.0.1:")), "{line}");
    }
    assert!(edge.said("another-word").is_empty(), "the log keeps no keys: {:?}", edge.log());
    let mut first = Publishing::open(edge.rtmp, "live/a?key=secret").expect("granted");
    assert_eq!(open("live/a?key=secret"), Err("the stream already has a publisher".into()));
    let _second = Publishing::open(edge.rtmp, "live/b?key=secret").expect("granted");
    assert_eq!(open("live/c?key=secret"), Err("too many streams".into()));
    assert!(first.send(&picture(KEY, 0, 100)), "the first one goes on");
}

#[test]
fn an_unknown_stream_is_404_at_once_and_a_wrong_method_405() {
    let edge = Edge::start("");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let statuses = |method: &'static str, path: &str| {
        let start = Instant::now();
        let h1 = http::request(edge.address, method, path).status;
        let h3 = http3::status(edge.address, method, path).expect("an answer");
        let time = start.elapsed();
        assert!(time < Duration::from_secs(2), "{method} {path}: {time:?}");
        (h1, h3)
    };
    for path in [
        "/live/none.flv",
        "/live/none/index.m3u8",
        "/live/none/~pass/media.m3u8",
        "/live/none/~pass/1-0000000000000000.m4s",
        "/.flv",
        "/index.m3u8",
        "/live/../live/demo.flv",
    ] {
        assert_eq!(statuses("GET", path), (404, 404), "{path}");
    }
    for path in ["/live/demo.flv", "/live/demo/index.m3u8"] {
        for method in ["POST", "PUT", "DELETE"] {
            assert_eq!(statuses(method, path), (405, 405), "{method} {path}");
        }
        assert_eq!(http::request(edge.address, "PUT", path).field("allow"), Some("GET, HEAD"));
        assert_eq!(statuses("HEAD", "/live/demo.flv"), (200, 200));
    }
    let player = Viewer::rtmp(edge.rtmp, "live/none");
    assert_eq!(player.end(), End::Cut("refused: no such stream".into()));
    until("no viewer is left", || edge.state()["streams"][0]["viewers"] == 0);
}

#[test]
fn viewers_above_the_limit_are_turned_away() {
    let edge = Edge::start("live.max_viewers = 2\n");
    let _publisher = Publisher::start(edge.rtmp, "live/demo", None);
    let first = Viewer::h1(edge.address, "/live/demo.flv");
    let second = Viewer::h3(edge.address, "/live/demo.flv");
    first.wait_for_frames(1);
    second.wait_for_frames(1);
    let refused = http::get(edge.address, "/live/demo.flv");
    assert_eq!((refused.status, refused.field("retry-after")), (503, Some("5")));
    assert_eq!(http3::status(edge.address, "GET", "/live/demo.flv"), Ok(503));
    let player = Viewer::rtmp(edge.rtmp, "live/demo");
    assert_eq!(player.end(), End::Cut("refused: too many viewers".into()));
    drop(second);
    until("there is room again", || http::get(edge.address, "/live/demo.flv").status == 200);
    first.wait_for_more(10);
}
