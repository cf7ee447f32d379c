//! The segmenter with tags made by hand.

use m3u8_rs::{MediaPlaylist, parse_master_playlist_res, parse_media_playlist_res};
use proptest::prelude::*;

use super::super::When;
use super::super::fixture::*;
use super::*;
use crate::fmp4::read::Movie;

fn segmenter(config: Config) -> Segmenter {
    let mut segmenter = Segmenter::new(config);
    segmenter.push(&video_header(12), WALL);
    segmenter.push(&audio_header(), WALL);
    segmenter
}

fn text(segmenter: &Segmenter, skip: bool) -> String {
    String::from_utf8(segmenter.playlist(skip).expect("a playlist").to_vec()).expect("text")
}

fn parse(text: &str) -> MediaPlaylist {
    parse_media_playlist_res(text.as_bytes()).expect("m3u8-rs parses it")
}

fn segments(segmenter: &Segmenter) -> Vec<(u64, f32, bool)> {
    let playlist = parse(&text(segmenter, false));
    let numbers = playlist.media_sequence..;
    let segments = numbers.zip(&playlist.segments);
    segments.map(|(msn, s)| (msn, s.duration, s.discontinuity)).collect()
}

/// Decoding times, in units of each track's timescale, of all that is kept.
fn times(segmenter: &Segmenter, version: u64) -> [Vec<i64>; 2] {
    let movie = Movie::new(&segmenter.init(version).expect("an init")).expect("readable");
    let mut times = [vec![], vec![]];
    for segment in segmenter.kept.segments.iter().filter(|segment| segment.version == version) {
        for part in &segment.parts {
            for (track, sample) in movie.samples(&part.bytes).expect("readable") {
                times[movie.tracks[track].id as usize - 1].push(sample.dts);
            }
        }
    }
    times
}

#[test]
fn segments_start_at_key_frames_after_the_wanted_time() {
    for (gop, expected) in [(50, 2.0), (25, 2.0), (30, 2.4), (125, 5.0)] {
        let mut segmenter = segmenter(Config::default());
        push(&mut segmenter, 0..30_000, gop, true);
        let segments = segments(&segmenter);
        assert_eq!(segments.len(), if expected > 4.0 { 5 } else { 6 }, "a window of six");
        assert!(segments.iter().all(|(_, s, _)| *s == expected), "{gop}: {segments:?}");
        let target = f64::from(expected).max(2.0).round();
        assert!(text(&segmenter, false).contains(&format!("TARGETDURATION:{target}\n")));
    }
}

#[test]
fn a_segment_is_its_parts_and_every_part_is_short() {
    let mut segmenter = segmenter(Config::default());
    push(&mut segmenter, 0..5_000, 50, true);
    let kept = &segmenter.kept.segments[0];
    let durations: Vec<i64> = kept.parts.iter().map(|part| part.duration_ms).collect();
    assert_eq!(durations, [320, 320, 320, 320, 320, 320, 80]);
    let independent: Vec<bool> = kept.parts.iter().map(|part| part.independent).collect();
    assert_eq!(independent, [true, false, false, false, false, false, false]);
    let parts = segmenter.segment(0).expect("complete");
    for (number, part) in parts.iter().enumerate() {
        let same = segmenter.part(0, number).expect("a part");
        assert_eq!(same.as_ptr(), part.as_ptr(), "shared");
    }
    assert!(segmenter.segment(2).is_none(), "not complete");
    assert!(segmenter.part(2, 0).is_some());
    let movie = Movie::new(&segmenter.init(1).expect("an init")).expect("readable");
    assert_eq!(movie.tracks.len(), 2);
}

#[test]
fn the_playlist_names_what_is_there() {
    let mut segmenter = segmenter(Config::default());
    assert!(segmenter.playlist(false).is_none() && segmenter.master().is_none());
    push(&mut segmenter, 0..2_401, 50, true);
    let expected = "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:2\n\
        #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=0.999,CAN-SKIP-UNTIL=12.000\n\
        #EXT-X-PART-INF:PART-TARGET=0.333\n#EXT-X-MEDIA-SEQUENCE:0\n#EXT-X-INDEPENDENT-SEGMENTS\n\
        #EXT-X-MAP:URI=\"init-1.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:00.000Z\n\
        #EXT-X-PART:DURATION=0.320,URI=\"0.0.m4s\",INDEPENDENT=YES\n\
        #EXT-X-PART:DURATION=0.320,URI=\"0.1.m4s\"\n#EXT-X-PART:DURATION=0.320,URI=\"0.2.m4s\"\n\
        #EXT-X-PART:DURATION=0.320,URI=\"0.3.m4s\"\n#EXT-X-PART:DURATION=0.320,URI=\"0.4.m4s\"\n\
        #EXT-X-PART:DURATION=0.320,URI=\"0.5.m4s\"\n#EXT-X-PART:DURATION=0.080,URI=\"0.6.m4s\"\n\
        #EXTINF:2.000,\n0.m4s\n\
        #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:02.000Z\n\
        #EXT-X-PART:DURATION=0.320,URI=\"1.0.m4s\",INDEPENDENT=YES\n\
        #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"1.1.m4s\"\n";
    assert_eq!(text(&segmenter, false), expected);
    let master = segmenter.master().expect("a master playlist");
    let master = parse_master_playlist_res(&master).expect("m3u8-rs parses it");
    let variant = &master.variants[0];
    assert_eq!(variant.codecs.as_deref(), Some("avc1.64000c,mp4a.40.2"));
    let size = variant.resolution.expect("a resolution");
    assert_eq!((size.width, size.height, &variant.uri[..]), (318, 178, MEDIA_PLAYLIST));
    segmenter.end();
    assert!(text(&segmenter, false).ends_with("#EXTINF:0.440,\n1.m4s\n#EXT-X-ENDLIST\n"));
    assert!(!segmenter.push(&frame(9_000, true), WALL));
}

#[test]
fn a_delta_update_and_what_was_known_make_the_full_playlist() {
    let mut segmenter = segmenter(Config { window: 20, ..Config::default() });
    push(&mut segmenter, 0..50_000, 50, false);
    let (full, delta) = (text(&segmenter, false), text(&segmenter, true));
    assert!(delta.contains("#EXT-X-VERSION:9\n"), "{delta}");
    let (_, rest) = delta.split_once("#EXT-X-SKIP:SKIPPED-SEGMENTS=").expect("a skip");
    let (skipped, rest) = rest.split_once('\n').expect("a line");
    let skipped: usize = skipped.parse().expect("a number");
    // 6 s of parts and 12 s of segments are never skipped.
    assert_eq!(skipped, 20 - 6);
    let listed = |text: &str| text.lines().filter(|l| l.starts_with("#EXTINF")).count();
    assert_eq!(listed(&full), listed(rest) + skipped);
    let (_, tail) = rest.split_once("#EXT-X-PROGRAM").expect("segments");
    assert!(full.ends_with(tail));
}

#[test]
fn requests_are_told_from_the_past_to_the_too_far() {
    let mut segmenter = segmenter(Config { window: 2, ..Config::default() });
    push(&mut segmenter, 0..20_401, 50, true);
    assert_eq!(segmenter.position(), (10, 1));
    for (msn, part, expected) in [
        (0, None, When::Past),
        (5, Some(3), When::Past),
        (6, None, When::Present),
        (9, Some(6), When::Present),
        // Behind the last part of a segment is the first of the next.
        (9, Some(7), When::Present),
        (10, Some(0), When::Present),
        (10, Some(1), When::Next),
        (10, Some(11), When::Next),
        (10, Some(12), When::TooFar),
        (10, None, When::Next),
        (11, Some(0), When::Next),
        (12, None, When::Next),
        (13, None, When::TooFar),
        (u64::MAX, Some(usize::MAX), When::TooFar),
    ] {
        assert_eq!(segmenter.when(msn, part), expected, "{msn} {part:?}");
    }
    segmenter.end();
    assert_eq!(segmenter.when(11, Some(0)), When::Past, "never");
    assert_eq!(segmenter.when(10, None), When::Present);
    assert_eq!(Segmenter::new(Config::default()).when(0, Some(0)), When::Next);
}

#[test]
fn other_headers_and_jumps_are_discontinuities() {
    let mut segmenter = segmenter(Config::default());
    push(&mut segmenter, 0..4_000, 50, true);
    // The same header again changes nothing.
    segmenter.push(&video_header(12), WALL);
    push(&mut segmenter, 4_000..6_000, 50, true);
    segmenter.push(&video_header(13), WALL);
    push(&mut segmenter, 6_000..10_000, 50, true);
    push(&mut segmenter, 70_000..72_100, 50, true);
    let got: Vec<bool> = segments(&segmenter).iter().map(|segment| segment.2).collect();
    assert_eq!(got, [false, false, false, true, false, true]);
    let text = text(&segmenter, false);
    assert!(text.contains("#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"init-2.mp4\"\n"), "{text}");
    assert!(segmenter.init(1).is_some() && segmenter.init(2).is_some());
    assert!(segmenter.init(3).is_none());
    push(&mut segmenter, 72_100..90_000, 50, true);
    assert!(segmenter.init(1).is_none(), "gone with its segments");
    let text = self::text(&segmenter, false);
    assert!(text.contains("#EXT-X-DISCONTINUITY-SEQUENCE:2\n"), "{text}");
}

#[test]
fn a_header_that_comes_a_little_late_is_no_discontinuity() {
    let mut segmenter = Segmenter::new(Config::default());
    segmenter.push(&audio_header(), WALL);
    segmenter.push(&sound(0), WALL);
    segmenter.push(&sound(21), WALL);
    segmenter.push(&video_header(12), WALL);
    push(&mut segmenter, 40..4_200, 50, true);
    assert_eq!(segmenter.init(2), None);
    assert!(segments(&segmenter).iter().all(|segment| !segment.2));
    let mut late_audio = Segmenter::new(Config::default());
    late_audio.push(&video_header(12), WALL);
    push(&mut late_audio, 0..200, 50, false);
    late_audio.push(&audio_header(), WALL);
    for at in 200..4_200 {
        if at % 40 == 0 {
            late_audio.push(&frame(at, at % 2_000 == 0), WALL);
        }
        if (at * 48) % 1_024 < 48 {
            late_audio.push(&sound(at), WALL);
        }
    }
    let movie = Movie::new(&late_audio.init(1).expect("an init")).expect("readable");
    assert_eq!(movie.tracks.len(), 2);
    assert_eq!(late_audio.init(2), None);
}

#[test]
fn audio_alone_is_cut_by_time_and_video_may_go_and_come() {
    let mut segmenter = Segmenter::new(Config::default());
    segmenter.push(&audio_header(), WALL);
    let audio = |segmenter: &mut Segmenter, range: core::ops::Range<u32>| {
        for at in range.filter(|at| (at * 48) % 1_024 < 48) {
            segmenter.push(&sound(at), WALL);
        }
    };
    audio(&mut segmenter, 0..9_000);
    let listed = segments(&segmenter);
    assert_eq!(listed.len(), 4);
    assert!(listed.iter().all(|(_, duration, _)| (1.98..2.03).contains(duration)), "{listed:?}");
    let all_independent =
        |s: &Segmenter| s.kept.segments.iter().flat_map(|s| &s.parts).all(|p| p.independent);
    assert!(all_independent(&segmenter));
    segmenter.push(&video_header(12), WALL);
    push(&mut segmenter, 9_000..13_000, 50, true);
    // Video pauses, and comes back without a new header.
    audio(&mut segmenter, 13_000..22_000);
    push(&mut segmenter, 22_000..26_100, 50, true);
    segmenter.end();
    let versions: Vec<u64> =
        segmenter.kept.segments.iter().map(|segment| segment.version).collect();
    assert_eq!(versions.last(), Some(&4), "{versions:?}");
    let tracks = |version| {
        let init = segmenter.init(version).expect("kept");
        Movie::new(&init).expect("readable").tracks.len()
    };
    assert_eq!([tracks(3), tracks(4)], [1, 2], "{versions:?}");
}

#[test]
fn audio_stands_on_its_grid_and_follows_a_drift() {
    let mut segmenter = segmenter(Config::default());
    // Times off by up to 9 ms this way and that.
    let mut sounds = 0;
    for at in 0..4_100u32 {
        if at % 40 == 0 {
            segmenter.push(&frame(at, at % 2_000 == 0), WALL);
        }
        if (at * 48) % 1_024 < 48 {
            let jitter = [0, 9, 3, 7][sounds % 4];
            sounds += 1;
            segmenter.push(&sound(at + jitter), WALL);
        }
    }
    let [_, audio] = times(&segmenter, 1);
    assert!(audio.windows(2).all(|pair| pair[1] - pair[0] == 1_024), "{audio:?}");
    // A gap of half a second is one, and frames that come 1 % too fast lose one in a hundred.
    let mut segmenter = self::segmenter(Config::default());
    for at in 0..8_100u32 {
        if at % 40 == 0 {
            segmenter.push(&frame(at, at % 2_000 == 0), WALL);
        }
        if !(1_000..1_500).contains(&at) && (at * 485) % 10_240 < 485 {
            segmenter.push(&sound(at), WALL);
        }
    }
    let [_, audio] = times(&segmenter, 1);
    let steps: Vec<i64> = audio.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps.iter().filter(|step| **step != 1_024).count(), 1, "{steps:?}");
    let late = audio.last().expect("audio") / 48;
    assert!((7_850..8_150).contains(&late), "{late}");
}

#[test]
fn another_audio_header_cuts_at_the_next_key_frame() {
    let mut segmenter = segmenter(Config::default());
    push(&mut segmenter, 0..2_500, 25, true);
    // 44.1 kHz from now on.
    segmenter.push(&tag(Kind::Audio, 2_500, &[&[0xaf, 0, 0x12, 0x10]]), WALL);
    push(&mut segmenter, 2_520..5_000, 25, true);
    segmenter.end();
    let cuts: Vec<_> =
        segmenter.kept.segments.iter().map(|s| (s.duration_ms(), s.version)).collect();
    assert_eq!(cuts, [(2_000, 1), (520, 1), (2_000, 2), (480, 2)]);
    let [_, audio] = times(&segmenter, 1);
    assert!(audio.last().is_some_and(|last| last / 48 < 2_500), "none of the new frames");
}

#[test]
fn audio_waits_for_a_key_frame_but_not_for_ever() {
    let mut segmenter = segmenter(Config::default());
    for at in 0..20_000 {
        if at % 40 == 0 {
            segmenter.push(&frame(at, false), WALL);
        }
        if (at * 48) % 1_024 < 48 {
            segmenter.push(&sound(at), WALL);
        }
    }
    assert!(segmenter.bytes() <= 48 * (20 + SAMPLE_COST), "a second: {}", segmenter.bytes());
    push(&mut segmenter, 20_000..24_000, 50, true);
    let [video, audio] = times(&segmenter, 1);
    assert_eq!(video[0], 20_000);
    assert!((20_000..20_022).contains(&(audio[0] / 48)), "{}", audio[0] / 48);
}

#[test]
fn dates_follow_media_time_and_wall_time_that_is_far_from_it_slowly() {
    let mut segmenter = segmenter(Config::default());
    for (number, late) in [0, 700, 300, 0, 3_000, 3_000].into_iter().enumerate() {
        let at = number as u32 * 2_000;
        segmenter.push(&frame(at, true), WALL + u64::from(at) + late);
    }
    segmenter.end();
    let dates: Vec<i64> = segmenter.kept.segments.iter().map(|s| s.wall_ms - WALL as i64).collect();
    assert_eq!(dates, [0, 2_000, 4_000, 6_000, 8_010, 10_020]);
}

#[test]
fn memory_is_bounded_whatever_is_sent() {
    let bytes = 40_000;
    let mut flood = segmenter(Config { bytes, ..Config::default() });
    for number in 0..5_000 {
        // No time passes, so that no part ever ends.
        flood.push(&frame(7, number == 0), WALL);
        assert!(flood.bytes() <= bytes);
    }
    assert!(flood.overflows() > 0);
    let mut endless = segmenter(Config { bytes, ..Config::default() });
    for number in 0..5_000 {
        endless.push(&frame(number * 40, number % 2_000 == 0), WALL);
        assert!(endless.bytes() <= bytes);
    }
    assert!(endless.overflows() > 0);
    // It recovers with the next key frames.
    push(&mut endless, 200_000..206_000, 50, true);
    let playlist = parse(&text(&endless, false));
    assert_eq!(playlist.segments.len(), 2);
    assert!(playlist.segments[0].discontinuity);
}

/// What a segmenter is sent in a random test.
#[derive(Clone, Debug)]
enum Step {
    Gop { frames: u32, frame_ms: u32, audio: bool },
    Header(u8),
    Jump(u32),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (1..120u32, 16..200u32, any::<bool>())
            .prop_map(|(frames, frame_ms, audio)| Step::Gop { frames, frame_ms, audio }),
        1 => (10..20u8).prop_map(Step::Header),
        1 => any::<u32>().prop_map(Step::Jump),
    ];
    proptest::collection::vec(step, 1..20)
}

/// The number of a segment, with that of a part, of a URI.
fn place(uri: &str) -> (u64, usize) {
    let mut fields = uri.split('.');
    let mut number = || fields.next().and_then(|field| field.parse().ok());
    (number().expect("a number"), number().expect("a number") as usize)
}

/// Holds a playlist to RFC 8216 and to the one before it.
fn check(segmenter: &Segmenter, before: Option<&MediaPlaylist>) -> MediaPlaylist {
    let text = text(segmenter, false);
    let now = parse(&text);
    let target = now.target_duration as f32;
    for (msn, segment) in (now.media_sequence..).zip(&now.segments) {
        // Section 4.3.3.1: "when rounded to the nearest integer, MUST be less than or equal".
        assert!((segment.duration + 0.499_9).floor() <= target, "{text}");
        if segment.uri.ends_with(".m4s") {
            assert_eq!(segment.uri, format!("{msn}.m4s"), "{text}");
            assert!(segmenter.segment(msn).is_some());
        }
    }
    let attribute = |line: &str, name: &str| -> String {
        let (_, value) = line.split_once(name).expect(name);
        value.split(',').next().expect("a value").trim_matches('"').to_owned()
    };
    let part_target: f64 =
        attribute(&text, "PART-TARGET=").lines().next().expect("a line").parse().expect("seconds");
    for line in text.lines() {
        if line.starts_with("#EXT-X-PART:") {
            let duration: f64 = attribute(line, "DURATION=").parse().expect("seconds");
            assert!(duration <= part_target, "{text}");
            let (msn, part) = place(&attribute(line, "URI="));
            assert!(segmenter.part(msn, part).is_some(), "{line}");
        }
        if line.starts_with("#EXT-X-PRELOAD-HINT:") {
            let hint = place(&attribute(line, "URI="));
            assert_eq!(hint, segmenter.position());
            assert_eq!(segmenter.when(hint.0, Some(hint.1)), When::Next);
        }
    }
    if let Some(before) = before {
        assert!(now.media_sequence >= before.media_sequence, "{text}");
        assert!(now.target_duration >= before.target_duration, "{text}");
        assert!(now.discontinuity_sequence >= before.discontinuity_sequence, "{text}");
        let removed = (now.media_sequence - before.media_sequence) as usize;
        // Sections 4.3.3.3 and 6.2.2: what leaves with a segment is counted.
        let complete = |p: &MediaPlaylist| -> Vec<_> {
            let segments = p.segments.iter().filter(|segment| segment.uri.ends_with(".m4s"));
            segments.map(|s| (s.uri.clone(), s.duration, s.discontinuity)).collect()
        };
        let (old, new) = (complete(before), complete(&now));
        let left = old.iter().take(removed).filter(|segment| segment.2).count() as u64;
        assert_eq!(now.discontinuity_sequence, before.discontinuity_sequence + left, "{text}");
        for (old, new) in old.iter().skip(removed).zip(&new) {
            assert_eq!(old, new, "{text}");
        }
    }
    now
}

/// The playlist after a tag, if it changed, else that before it. What it hinted at is there.
fn push_and_check(
    segmenter: &mut Segmenter,
    tag: &Tag,
    before: Option<MediaPlaylist>,
) -> Option<MediaPlaylist> {
    let (msn, part) = segmenter.position();
    let new = segmenter.push(tag, WALL + u64::from(tag.timestamp()));
    if !new || segmenter.playlist(false).is_none() {
        return before;
    }
    assert!(segmenter.part(msn, part).is_some(), "{msn}.{part} was hinted at");
    Some(check(segmenter, before.as_ref()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn playlists_obey_rfc_8216_over_time(steps in steps(), window in 1..8usize) {
        let mut segmenter = segmenter(Config { window, ..Config::default() });
        let (mut at, mut before) = (0u32, None);
        for step in steps {
            match step {
                Step::Header(level) => {
                    before = push_and_check(&mut segmenter, &video_header(level), before);
                }
                Step::Jump(by) => at = at.wrapping_add(by),
                Step::Gop { frames, frame_ms, audio } => for number in 0..frames {
                    before = push_and_check(&mut segmenter, &frame(at, number == 0), before);
                    if audio {
                        before = push_and_check(&mut segmenter, &sound(at), before);
                    }
                    at = at.wrapping_add(frame_ms);
                }
            }
        }
    }

    #[test]
    fn random_tags_never_panic(
        tags in proptest::collection::vec((any::<bool>(), any::<u32>(), any::<u8>(),
            prop_oneof![Just(0u8), Just(1), any::<u8>()],
            proptest::collection::vec(any::<u8>(), 0..60)), 0..80),
        ts in any::<bool>(),
    ) {
        let container = if ts { Container::Ts } else { Container::Fmp4 };
        let mut segmenter = segmenter(Config { container, bytes: 10_000, ..Config::default() });
        for (video, at, head, kind, body) in tags {
            let (kind_of, head) = if video {
                (Kind::Video, [0x17, 0x27, 0x1c, 0x90, 0x91, 0x93, head][usize::from(head) % 7])
            } else {
                (Kind::Audio, [0xaf, 0x2f, 0x90, 0x91, head][usize::from(head) % 5])
            };
            let tag = tag(kind_of, at % 100_000, &[&[head, kind], &body]);
            segmenter.push(&tag, u64::from(at));
            prop_assert!(segmenter.bytes() <= 10_000);
        }
        segmenter.end();
    }
}
