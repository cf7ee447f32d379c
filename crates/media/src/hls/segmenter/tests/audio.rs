//! Audio that ends or begins later, and codecs that HLS cannot carry.

use super::*;
use crate::amf0;

#[test]
fn a_stream_of_codecs_that_hls_cannot_carry_is_refused_by_name() {
    for (kind, payload) in [
        (Kind::Video, &b"\x91vp09\0\0\0\0"[..]),
        (Kind::Audio, b"\x91fLaC\xff\xf8"),
        (Kind::Video, &[0x12, 0, 0]),
    ] {
        let mut segmenter = Segmenter::new(Config::default());
        for n in 0..25 {
            segmenter.push(&tag(kind, n * 40, &[payload]), WALL);
        }
        assert_eq!(segmenter.refuses(), None, "others may come");
        segmenter.push(&tag(kind, 1_000, &[payload]), WALL);
        assert!(segmenter.refuses().is_some() && segmenter.left_out() == segmenter.refuses());
        segmenter.push(&audio_header(), WALL);
        assert_eq!(segmenter.refuses(), None);
    }
    let mut segmenter = segmenter(Config { container: Container::Ts, ..Config::default() });
    for n in 0..50 {
        segmenter.push(&tag(Kind::Audio, n * 40, &[b"\x91Opus\x01"]), WALL);
    }
    assert_eq!((segmenter.left_out(), segmenter.refuses()), (Some(Codec::Opus), None));
}

/// Whether each complete segment begins with a discontinuity, and has audio; and the audio's times.
fn audio_of(segmenter: &Segmenter) -> (Vec<(bool, bool)>, Vec<i64>) {
    let versions = &segmenter.kept.versions;
    let complete = segmenter.kept.segments.iter().filter(|segment| segment.complete);
    let seen = complete.map(|s| {
        let version = versions.iter().find(|version| version.number == s.version);
        (s.discontinuity, version.is_some_and(|version| version.tracks.audio.is_some()))
    });
    let last = versions.back().expect("a version").number;
    (seen.collect(), times(segmenter, last)[1].clone())
}

#[test]
fn silence_follows_audio_that_ends_until_it_is_back() {
    let mut segmenter = segmenter(Config { window: 20, ..Config::default() });
    push(&mut segmenter, 0..4_000, 25, true);
    push(&mut segmenter, 4_000..14_000, 25, false);
    push(&mut segmenter, 14_000..20_000, 25, true);
    let (seen, audio) = audio_of(&segmenter);
    assert!(seen.iter().all(|seen| *seen == (false, true)), "{seen:?}");
    let most = audio.windows(2).map(|pair| pair[1] - pair[0]).max();
    assert!(most <= Some(48_000), "no hole of more than a second: {most:?}");
    assert!(audio.len() > 800, "{}", audio.len());
}

#[test]
fn audio_that_metadata_announces_is_silence_until_it_begins() {
    let run = |name: &'static str, rate: f64| {
        let mut payload = bytes::BytesMut::from(&b"\x02\x00\x0aonMetaData"[..]);
        amf0::object([(name, 10.0.into()), ("audiosamplerate", rate.into())]).write(&mut payload);
        let mut segmenter = Segmenter::new(Config { window: 20, ..Config::default() });
        segmenter.push(&tag(Kind::Script, 0, &[&payload]), WALL);
        segmenter.push(&video_header(12), WALL);
        push(&mut segmenter, 0..8_000, 25, false);
        segmenter.push(&audio_header(), WALL);
        push(&mut segmenter, 8_000..14_000, 25, true);
        let (mut seen, audio) = audio_of(&segmenter);
        // Silence goes on from segment to segment without a hole, and so does what follows.
        let steps = audio.windows(2).map(|pair| pair[1] - pair[0]);
        assert!(steps.clone().all(|step| (1_000..2_200).contains(&step)), "{name} {rate}");
        assert!(steps.filter(|step| *step != 1_024).count() <= 12, "{name} {rate}");
        seen.dedup();
        seen
    };
    assert_eq!(run("audiocodecid", 48_000.0), [(false, true)]);
    // Its rate is another one than the metadata's.
    assert_eq!(run("audiocodecid", 44_100.0), [(false, true), (true, true), (false, true)]);
    assert_eq!(run("videocodecid", 0.0), [(false, false), (true, true), (false, true)]);
}
