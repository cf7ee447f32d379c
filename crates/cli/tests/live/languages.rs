//! Audio renditions of a ladder, and of an HLS upstream.

use std::path::Path;

use media::Kind;

use crate::ladder::{Encoder, Segment, assert_aligned, bytes, decode_time, master_of, segments};
use crate::support::edge::Edge;
use crate::support::viewer::Viewer;
use crate::support::{eventually, http, tls, until};

const LADDER: &str = "[[ladder]]\nname = \"live/show\"\n\
                      renditions = [\"live/show_1\", \"live/show_2\"]\n\
                      audio = [\"en English: live/show_1\", \"fr Français: live/show_fr\"]\n";

/// Sampling rate of the clip.
const SAMPLES_PER_MS: f64 = 48.0;

/// Waits until the master playlist has an audio rendition, and returns its media playlist.
fn french(edge: &Edge) -> String {
    eventually("French audio", || {
        let text = http::get(edge.address, "/live/show/index.m3u8").text();
        let media = |line: &&str| line.starts_with("#EXT-X-MEDIA:") && line.contains("\"fr\"");
        let line = text.lines().find(media)?;
        assert!(line.contains("NAME=\"Français\"") && line.contains("DEFAULT=NO"), "{text}");
        assert!(text.contains("NAME=\"English\",LANGUAGE=\"en\",DEFAULT=YES"), "{text}");
        let (_, uri) = line.split_once("URI=\"").expect("a URI");
        Some(format!("/live/show/{}", uri.trim_end_matches('"')))
    })
}

/// Fails unless media times stand for equal dates in both playlists. Waits for three segments.
fn assert_in_step(edge: &Edge, video: &str, audio: &str) {
    let second = |segment: &Segment| -> f64 {
        segment.date[17..].trim_end_matches('Z').parse().expect("seconds")
    };
    // Date of the media time 0, in milliseconds of its minute.
    let zero = |(segment, per_ms): (&Segment, f64)| -> f64 {
        (second(segment) * 1e3 - decode_time(edge, &segment.path) as f64 / per_ms).rem_euclid(60e3)
    };
    let wait = |playlist: &str| {
        eventually("three segments", || {
            Some(segments(edge, playlist)).filter(|segments| segments.len() >= 3)
        })
    };
    let audio = wait(audio);
    let video = wait(video);
    // The timescale of video is 1,000, that of audio its sampling rate.
    let all = video.values().map(|segment| (segment, 1.0));
    let all: Vec<_> = all.chain(audio.values().map(|segment| (segment, SAMPLES_PER_MS))).collect();
    let first = zero(all[0]);
    for segment in all {
        let apart = (zero(segment) - first).abs();
        assert!(apart.min(60e3 - apart) < 30.0, "{first} and {}: {segment:?}", zero(segment));
    }
    // Equal numbers stand for equal slots of 2 s, in which both start somewhere.
    let mut common = audio.iter().filter_map(|(msn, segment)| Some((segment, video.get(msn)?)));
    let (a, b) = common.next().expect("a common segment");
    let apart = (second(a) - second(b)).abs();
    assert!(apart.min(60.0 - apart) < 2.0, "{a:?} {b:?}");
}

/// An edge with a ladder and a certificate, in `directory`.
fn origin(authorities: &Path) -> (Edge, Encoder) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    tls::write_certificate(directory.path());
    std::fs::copy(directory.path().join("chain.pem"), authorities).expect("copied");
    let keys = "server.certificate = \"chain.pem\"\nserver.key = \"key.pem\"\n";
    let edge = Edge::start_in(directory, &format!("{keys}{LADDER}"), None);
    let encoder = Encoder::start();
    encoder.connect(edge.rtmp, "live/show_1", 0);
    encoder.connect(edge.rtmp, "live/show_2", 3_600_000);
    encoder.connect(edge.rtmp, "live/show_fr", 77);
    (edge, encoder)
}

#[test]
fn viewers_choose_among_audio_renditions_that_are_live() {
    let edge = Edge::start(LADDER);
    let encoder = Encoder::start();
    encoder.connect(edge.rtmp, "live/show_1", 0);
    encoder.connect(edge.rtmp, "live/show_2", 3_600_000);
    // Without the French stream, English is the only language.
    master_of(&edge, "", 2);
    let text = http::get(edge.address, "/live/show/index.m3u8").text();
    assert_eq!(text.matches("#EXT-X-MEDIA:").count(), 1, "{text}");
    encoder.connect(edge.rtmp, "live/show_fr", 77);
    let french = french(&edge);
    let two = master_of(&edge, "", 2);
    assert!(two.iter().all(|(attributes, _)| attributes.ends_with(",AUDIO=\"audio\"")), "{two:?}");
    assert_in_step(&edge, &two[0].1, &french);
    let english = french.replace("show_fr@", "show_1@");
    assert_in_step(&edge, &two[1].1, &english);
    // The pass opens no other audio, and no rendition has audio of its own.
    for path in [french.replace("show_fr@", "show_2@"), french.replace("@audio", "")] {
        assert_eq!(http::get(edge.address, &path).status, 404, "{path}");
    }
    for (path, handlers) in [(&two[0].1, [true, false]), (&french, [false, true])] {
        let text = http::get(edge.address, path).text();
        let (_, init) = text.split_once("#EXT-X-MAP:URI=\"").expect("an initialisation segment");
        let (init, _) = init.split_once('"').expect("a URI");
        let (folder, _) = path.rsplit_once('/').expect("a folder");
        let init = bytes(http::get(edge.address, &format!("{folder}/{init}")));
        let has = |kind: &[u8; 4]| init.windows(4).any(|four| four == kind);
        assert_eq!([has(b"vide"), has(b"soun")], handlers, "{path}");
    }
    // Viewers of HTTP-FLV have the audio of the rendition.
    let viewer = Viewer::h1(edge.address, "/live/show.flv");
    viewer.wait_for_frames(100);
    assert_eq!(viewer.kinds(), Some((true, true)));
    encoder.disconnect("live/show_fr");
    until("the playlist without it", || {
        let text = http::get(edge.address, "/live/show/index.m3u8").text();
        text.matches("#EXT-X-MEDIA:").count() == 1
    });
}

#[test]
fn an_hls_upstream_is_pulled_with_all_variants_and_audio_renditions() {
    let authorities = tempfile::NamedTempFile::new().expect("a file");
    let (origin, _encoder) = origin(authorities.path());
    french(&origin);
    let port = origin.address.port();
    let rules = format!(
        "[[pull]]\nstream = \"live/*\"\n\
         upstream = [\"https://localhost:{port}/live/{{tail}}/index.m3u8\"]\n\
         variant = \"all\"\n[[ladder]]\nname = \"live/show\"\n\
         renditions = [\"live/show_0\", \"live/show_1\"]\n\
         audio = [\"en English: live/show_0\", \"fr Français: live/show_audio-fr\"]\n"
    );
    let directory = tempfile::tempdir().expect("a temporary directory");
    let edge = Edge::start_in(directory, &rules, Some(authorities.path()));
    // Players load the playlist once: the first one must have everything.
    let text = http::get(edge.address, "/live/show/index.m3u8").text();
    let count = |tag| text.matches(tag).count();
    assert_eq!((count("#EXT-X-STREAM-INF:"), count("#EXT-X-MEDIA:")), (2, 2), "{text}");
    let media: Vec<String> = master_of(&edge, "", 2).into_iter().map(|(_, path)| path).collect();
    let french = french(&edge);
    assert_aligned(&edge, &media, 3);
    assert_in_step(&edge, &media[0], &french);
    // The variant differs by its size, the audio rendition has no video.
    let sizes = master_of(&edge, "", 2).into_iter().map(|(attributes, _)| {
        let (_, size) = attributes.split_once("RESOLUTION=").expect("a size");
        size.split(',').next().expect("a value").to_owned()
    });
    let mut sizes: Vec<String> = sizes.collect();
    sizes.sort();
    assert_eq!(sizes, ["1280x720", "318x178"]);
    let viewer = Viewer::h1(edge.address, "/live/show_audio-fr.flv");
    viewer.wait_for_frames(50);
    assert!(viewer.frames().iter().all(|tag| tag.kind() == Kind::Audio));
    // There is no third variant.
    assert_eq!(http::get(edge.address, "/live/show_2.flv").status, 502);
    edge.says("no such variant or audio rendition");
}
