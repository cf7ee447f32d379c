//! Ladders: renditions of one encoder on connections of their own, with clocks of their own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use media::{Kind, Role, Tag};

use crate::common::publisher::clip;
use crate::support::edge::Edge;
use crate::support::http::{self, Answer};
use crate::support::publishing::Publishing;
use crate::support::{eventually, until};

const LADDER: &str = "[[ladder]]\nname = \"live/show\"\n\
                      renditions = [\"live/show_1\", \"live/show_2\", \"live/show_3\"]\n";

/// AVCDecoderConfigurationRecord of 318 x 178 pixels, High profile; the clip has 320 x 180.
pub(crate) const OTHER_SIZE: &[u8] = &[
    0x17, 0, 0, 0, 0, 0x01, 0x64, 0x00, 0x0c, 0xff, 0xe1, 0x00, 0x1a, 0x67, 0x64, 0x00, 0x0c, 0xac,
    0xd9, 0x41, 0x41, 0x9e, 0xa2, 0x30, 0x11, 0x00, 0x00, 0x03, 0x00, 0x01, 0x00, 0x00, 0x03, 0x00,
    0x32, 0x0f, 0x14, 0x29, 0x96, 0x01, 0x00, 0x06, 0x68, 0xeb, 0xe3, 0xcb, 0x22, 0xc0, 0xfd, 0xf8,
    0xf8, 0x00,
];

/// A connection of the encoder, whose clock is ahead of the clip by `clock` milliseconds.
struct Output {
    connection: Publishing,
    clock: u32,
    /// Whether it has sent headers and a key frame.
    started: bool,
}

/// An encoder with several renditions: sends the clip round and round, to all outputs alike.
pub(crate) struct Encoder {
    outputs: Arc<Mutex<BTreeMap<&'static str, Output>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Encoder {
    pub(crate) fn start() -> Self {
        let outputs: Arc<Mutex<BTreeMap<&'static str, Output>>> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let (to, over) = (outputs.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            let (clip, start) = (clip(), Instant::now());
            let length = clip.last().map_or(0, Tag::timestamp) + 40;
            for (round, tag) in (0..).flat_map(|round| clip.iter().map(move |tag| (round, tag))) {
                let time = tag.timestamp() + round * length;
                while start.elapsed() < Duration::from_millis(time.into()) {
                    if over.load(Ordering::Relaxed) {
                        return;
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
                let mut outputs = to.lock().unwrap_or_else(PoisonError::into_inner);
                outputs.iter_mut().for_each(|(name, output)| output.send(name, &clip, tag, time));
            }
        });
        Self { outputs, stop, thread: Some(thread) }
    }

    pub(crate) fn connect(&self, rtmp: SocketAddr, name: &'static str, clock: u32) {
        let connection = Publishing::open(rtmp, name).expect("published");
        let output = Output { connection, clock, started: false };
        self.outputs().insert(name, output);
    }

    pub(crate) fn disconnect(&self, name: &str) {
        self.outputs().remove(name);
    }

    fn outputs(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Output>> {
        self.outputs.lock().unwrap_or_else(PoisonError::into_inner)
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

impl Output {
    /// Sends a tag, from the first key frame on. A stream whose name ends with `fr` has no video.
    fn send(&mut self, name: &str, clip: &[Tag], tag: &Tag, time: u32) {
        if tag.role().is_header() || !self.started && tag.role() != Role::KeyFrame {
            return;
        }
        let is_sent = |tag: &&Tag| tag.kind() == Kind::Audio || !name.ends_with("fr");
        if !self.started {
            self.started = true;
            for header in clip.iter().filter(|tag| tag.role().is_header()).filter(is_sent) {
                let is_video = header.kind() == Kind::Video;
                let header = match is_video && name.ends_with('2') {
                    true => Tag::new(Kind::Video, 0, OTHER_SIZE).expect("short"),
                    false => header.clone().with_timestamp(0),
                };
                self.connection.send(&header);
            }
        }
        if !is_sent(&tag) {
            return;
        }
        // The server may have closed the connection.
        self.connection.send(&tag.clone().with_timestamp(time.wrapping_add(self.clock)));
    }
}

pub(crate) fn bytes(mut answer: Answer) -> Vec<u8> {
    assert_eq!(answer.status, 200);
    let mut all = Vec::new();
    while let Some(piece) = answer.next().expect("a whole body") {
        all.extend(piece);
    }
    all
}

/// The lines of EXT-X-STREAM-INF with their absolute paths.
fn variants(master: &str) -> Vec<(String, String)> {
    let mut lines = master.lines();
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        if let Some(attributes) = line.strip_prefix("#EXT-X-STREAM-INF:") {
            let uri = lines.next().expect("a URI");
            found.push((attributes.to_owned(), format!("/live/show/{uri}")));
        }
    }
    found
}

/// Waits until the master playlist has `count` renditions.
pub(crate) fn master_of(edge: &Edge, query: &str, count: usize) -> Vec<(String, String)> {
    eventually(&format!("{count} renditions"), || {
        let answer = http::get(edge.address, &format!("/live/show/index.m3u8{query}"));
        if answer.status != 200 {
            return None;
        }
        assert_eq!(answer.field("cache-control"), Some("no-cache"));
        Some(variants(&answer.text())).filter(|variants| variants.len() == count)
    })
}

/// A complete segment of a media playlist.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) date: String,
    pub(crate) path: String,
}

/// The complete segments by media sequence number.
pub(crate) fn segments(edge: &Edge, media: &str) -> BTreeMap<u64, Segment> {
    let text = http::get(edge.address, media).text();
    let (folder, _) = media.rsplit_once('/').expect("a folder");
    let mut date = String::new();
    let mut found = BTreeMap::new();
    for line in text.lines() {
        if let Some(seen) = line.strip_prefix("#EXT-X-PROGRAM-DATE-TIME:") {
            seen.clone_into(&mut date);
        } else if !line.starts_with('#') {
            let (msn, _) = line.split_once('-').expect("a number");
            let path = format!("{folder}/{line}");
            found.insert(msn.parse().expect("a number"), Segment { date: date.clone(), path });
        }
    }
    let first = text.lines().find_map(|line| line.strip_prefix("#EXT-X-MEDIA-SEQUENCE:"));
    let first = first.expect("a first number").parse().expect("a number");
    assert_eq!(found.keys().next(), Some(&first), "{text}");
    found
}

/// Decode time of a segment's first picture, in milliseconds: the first `tfdt` box, version 1.
pub(crate) fn decode_time(edge: &Edge, path: &str) -> u64 {
    let segment = bytes(http::get(edge.address, path));
    let at = segment.windows(4).position(|four| four == b"tfdt").expect("a time");
    assert_eq!(segment[at + 4], 1, "version");
    let time: [u8; 8] = segment[at + 8..at + 16].try_into().expect("eight bytes");
    u64::from_be_bytes(time)
}

/// Fails unless segments with equal numbers have equal times and dates. Waits for `count` common
/// ones.
pub(crate) fn assert_aligned(edge: &Edge, media: &[String], count: usize) {
    let all = eventually("common segments", || {
        let all: Vec<_> = media.iter().map(|path| segments(edge, path)).collect();
        let is_common = |msn: &&u64| all.iter().all(|segments| segments.contains_key(msn));
        (all[0].keys().filter(is_common).count() >= count).then_some(all)
    });
    for (msn, first) in &all[0] {
        let time = decode_time(edge, &first.path);
        for other in all[1..].iter().filter_map(|segments| segments.get(msn)) {
            assert_eq!(decode_time(edge, &other.path), time, "{msn}: {all:?}");
            let second =
                |date: &str| -> f64 { date[17..].trim_end_matches('Z').parse().expect("seconds") };
            let apart = (second(&other.date) - second(&first.date)).abs();
            // Across the end of a minute, too.
            assert!(apart.min(60.0 - apart) < 0.05, "{msn}: {all:?}");
        }
    }
}

#[test]
fn renditions_with_different_clocks_have_equal_numbers_at_equal_times() {
    let edge = Edge::start(LADDER);
    let encoder = Encoder::start();
    encoder.connect(edge.rtmp, "live/show_1", 0);
    encoder.connect(edge.rtmp, "live/show_2", 3_600_000);
    let two = master_of(&edge, "", 2);
    // Joins an hour "earlier", at a later key frame.
    encoder.connect(edge.rtmp, "live/show_3", u32::MAX - 500);
    let three = master_of(&edge, "", 3);
    assert!(two[0].1.contains("/live/show_1/~"), "{two:?}");
    for (attributes, _) in &three {
        for expected in
            ["CODECS=\"avc1.", "mp4a.40.2\"", ",FRAME-RATE=25.000", "AVERAGE-BANDWIDTH="]
        {
            assert!(attributes.contains(expected), "{attributes}");
        }
        let number = |name: &str| -> u64 {
            let (_, rest) = attributes.split_once(name).expect("given");
            rest.split(',').next().expect("a value").parse().expect("a number")
        };
        let (peak, average) = (number("BANDWIDTH="), number("AVERAGE-BANDWIDTH="));
        assert!(average > 50_000 && peak >= average && peak < 10_000_000, "{attributes}");
    }
    assert!(three[0].0.contains("RESOLUTION=1280x720"), "{three:?}");
    assert!(three[1].0.contains("RESOLUTION=318x178"), "{three:?}");
    let media: Vec<String> = three.into_iter().map(|(_, path)| path).collect();
    assert_aligned(&edge, &media, 3);

    // One rendition is lost, and returns with another clock.
    encoder.disconnect("live/show_2");
    assert_eq!(master_of(&edge, "", 2).len(), 2);
    let lost = http::get(edge.address, &media[1]);
    assert_eq!(lost.status, 404, "players switch");
    assert!(lost.text().contains("live/show_2 is not live: play another rendition of live/show"));
    encoder.connect(edge.rtmp, "live/show_2", 77);
    assert_eq!(master_of(&edge, "", 3).len(), 3);
    assert_aligned(&edge, &media, 2);
    assert!(edge.said("key frames at these times").is_empty(), "{:?}", edge.log());
}

#[test]
fn the_permission_for_a_ladder_covers_its_renditions_and_nothing_else() {
    let rules = "[[play]]\nstream = \"live/show*\"\nkey = \"secret\"\n";
    let edge = Edge::start(&format!("{LADDER}{rules}"));
    let encoder = Encoder::start();
    encoder.connect(edge.rtmp, "live/show_1", 0);
    encoder.connect(edge.rtmp, "live/show_2", 0);
    encoder.connect(edge.rtmp, "live/show_9", 0);
    assert_eq!(http::get(edge.address, "/live/show/index.m3u8").status, 403);
    let soon = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("now");
    let of = |name: &str| format!("?{}", edge::signing::sign("secret", name, soon.as_secs() + 600));
    let other = format!("/live/show/index.m3u8{}", of("live/show_1"));
    assert_eq!(http::get(edge.address, &other).status, 403, "for a rendition only");
    let media = master_of(&edge, &of("live/show"), 2);
    let [first, second] = [0, 1].map(|index| media[index].1.clone());
    // One viewer of the ladder, who switches.
    for path in [&first, &second] {
        let segments = segments(&edge, path);
        let (_, segment) = segments.first_key_value().expect("segments");
        decode_time(&edge, &segment.path);
    }
    let viewers = crate::control::viewers(&edge, "live/show");
    assert!(viewers.len() == 1 && viewers[0].0.ends_with(" hls"), "{viewers:?}");
    assert_eq!(edge.metric("mendcast_places_used{place=\"session\"}"), 1.0);
    // The pass opens no other stream, and the renditions not outside of the ladder.
    let pass = first.split('/').find(|part| part.starts_with('~')).expect("a pass");
    for path in [
        format!("/live/show/live/show_9/{pass}/media.m3u8"),
        format!("/live/show_1/{pass}/media.m3u8"),
        "/live/show/live/show_1/media.m3u8".to_owned(),
        "/live/show/live/show_1/~AAAA/media.m3u8".to_owned(),
        "/live/show_1/index.m3u8".to_owned(),
        first.replace("media.m3u8", "index.m3u8"),
    ] {
        let status = http::get(edge.address, &path).status;
        assert!(matches!(status, 403 | 404), "{path}: {status}");
    }
    // The key is replaced.
    edge.reload(&format!("{LADDER}{}", rules.replace("secret", "another")));
    until("the pass is void", || http::get(edge.address, &first).status == 403);
    // The ladder is free, but not its renditions.
    edge.reload(&format!("{LADDER}{}", rules.replace("show*", "show_1")));
    assert_eq!(http::get(edge.address, &first).status, 404, "left out");
    let free = master_of(&edge, "", 1);
    assert!(free[0].1.contains("/live/show_2/"), "{free:?}");
}

#[test]
fn a_ladder_without_renditions_says_why_and_its_name_is_no_stream() {
    let edge = Edge::start(LADDER);
    let answer = http::get(edge.address, "/live/show/index.m3u8");
    assert_eq!(
        (answer.status, &answer.text()[..]),
        (404, "404 no rendition of live/show is live\n")
    );
    let answer = http::get(edge.address, "/live/show.flv");
    assert_eq!(answer.status, 404);
    assert_eq!(answer.text(), "404 no rendition of live/show is live\n");
    let refused = Publishing::open(edge.rtmp, "live/show").map(drop);
    assert_eq!(refused, Err("a [[ladder]] without multitrack has this name".into()));
    for path in ["/live/show/media.m3u8", "/live/show/~x/media.m3u8", "/live/show/~x/index.m3u8"] {
        assert_eq!(http::get(edge.address, path).status, 404, "{path}");
    }
    for path in ["live/show_1/~x/media.m3u8", "live/show_1/~x/1-0000000000000000.m4s"] {
        let path = format!("/live/show/{path}");
        assert_eq!(http::get(edge.address, &path).status, 403, "{path}");
    }
    assert_eq!(http::request(edge.address, "POST", "/live/show/index.m3u8").status, 405);
}
