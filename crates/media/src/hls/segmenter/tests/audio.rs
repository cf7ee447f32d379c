//! Audio that stops or starts late, and codecs that HLS cannot carry.

use super::*;
use crate::Assembler;

#[test]
fn a_stream_of_unsupported_codecs_is_reported_with_its_codec() {
    for (kind, payload) in [
        (Kind::Video, &b"\x91vp09\0\0\0\0"[..]),
        (Kind::Audio, b"\x91fLaC\xff\xf8"),
        (Kind::Video, &[0x12, 0, 0]),
    ] {
        let mut segmenter = Segmenter::new(SegmenterConfig::default());
        for n in 0..25 {
            segmenter.push(&tag(kind, n * 40, &[payload]), WALL);
        }
        assert_eq!(segmenter.unsupported_stream(), None, "others may come");
        segmenter.push(&tag(kind, 1_000, &[payload]), WALL);
        assert!(
            segmenter.unsupported_stream().is_some()
                && segmenter.unsupported_codec() == segmenter.unsupported_stream()
        );
        segmenter.push(&audio_header(), WALL);
        assert_eq!(segmenter.unsupported_stream(), None);
    }
    let mut segmenter =
        segmenter(SegmenterConfig { container: Container::Ts, ..SegmenterConfig::default() });
    for n in 0..50 {
        segmenter.push(&tag(Kind::Audio, n * 40, &[b"\x91Opus\x01"]), WALL);
    }
    assert_eq!(
        (segmenter.unsupported_codec(), segmenter.unsupported_stream()),
        (Some(Codec::Opus), None)
    );
}

#[test]
fn inserted_silence_keeps_the_tracks_when_audio_stops() {
    let (mut assembler, mut tags) = (Assembler::default(), vec![]);
    assembler.push(video_header(12), &mut tags);
    assembler.push(audio_header(), &mut tags);
    for at in (0..20_000).step_by(20) {
        let is_muted = (4_000..14_000).contains(&at);
        if at % 40 == 0 {
            assembler.push(frame(at, at % 1_000 == 0), &mut tags);
        }
        (at..at + 20).filter(|at| !is_muted && at * 48 % 1_024 < 48).for_each(|at| {
            assembler.push(audio_frame(at), &mut tags);
        });
    }
    let mut segmenter =
        Segmenter::new(SegmenterConfig { window: 20, ..SegmenterConfig::default() });
    for tag in &tags {
        segmenter.push(tag, WALL + u64::from(tag.timestamp()));
    }
    let complete = segmenter.retained.segments.iter().filter(|segment| segment.complete);
    assert!(complete.clone().all(|segment| !segment.discontinuity));
    let [version] = &segmenter.retained.versions.iter().collect::<Vec<_>>()[..] else {
        panic!("the tracks have changed")
    };
    let [_, audio] = times(&segmenter, version.number);
    assert!(audio.len() > 850, "{}", audio.len());
    assert!(audio.windows(2).all(|pair| (1_000..2_200).contains(&(pair[1] - pair[0]))));
}

#[test]
fn a_track_without_silence_is_omitted_while_its_audio_is_missing() {
    let mut segmenter = segmenter(SegmenterConfig { window: 20, ..SegmenterConfig::default() });
    push(&mut segmenter, 0..4_000, 25, true);
    push(&mut segmenter, 4_000..14_000, 25, false);
    push(&mut segmenter, 14_000..20_000, 25, true);
    let versions: Vec<_> = segmenter.retained.versions.iter().collect();
    let has_audio: Vec<_> = versions.iter().map(|v| v.tracks.audio.is_some()).collect();
    assert_eq!(has_audio, [true, false, true]);
}
