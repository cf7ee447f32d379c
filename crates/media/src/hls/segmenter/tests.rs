//! The segmenter with handmade tags.

mod audio;
mod parts;
mod playlists;

use m3u8_rs::{MediaPlaylist, parse_master_playlist_res, parse_media_playlist_res};

use super::super::Availability;
use super::super::fixture::*;
use super::*;
use crate::fmp4::read::Movie;

/// Number of the 2 s slot with the tests' time 0, a multiple of 2^32 ms.
const FIRST: u64 = (419 << 32) / 2_000;

/// Returns the initialisation segment of track version `number`, from 1.
fn init(segmenter: &Segmenter, number: u64) -> Option<Bytes> {
    let version = segmenter.retained.versions.iter().find(|version| version.number == number)?;
    segmenter.init(version.id)
}

/// Returns the name of the retained segment `number`, from 0.
fn name(segmenter: &Segmenter, number: usize) -> Name {
    segmenter.retained.segments[number].name
}

fn segmenter(config: SegmenterConfig) -> Segmenter {
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

/// Returns the decoding times of all retained samples, in units of each track's timescale.
fn times(segmenter: &Segmenter, version: u64) -> [Vec<i64>; 2] {
    let movie = Movie::new(&init(segmenter, version).expect("an init")).expect("readable");
    let mut times = [vec![], vec![]];
    for segment in segmenter.retained.segments.iter().filter(|segment| segment.version == version) {
        for part in &segment.parts {
            for (track, sample) in movie.samples(&part.bytes).expect("readable") {
                times[movie.tracks[track].id as usize - 1].push(sample.dts);
            }
        }
    }
    times
}

#[test]
fn segments_start_at_key_frames_after_the_target_duration() {
    for (gop, expected) in [(50, 2.0), (25, 2.0), (30, 2.4), (125, 5.0)] {
        let mut segmenter = segmenter(SegmenterConfig::default());
        push(&mut segmenter, 0..30_000, gop, true);
        let segments = segments(&segmenter);
        assert_eq!(segments.len(), if expected > 4.0 { 5 } else { 6 }, "a window of six");
        assert!(segments.iter().all(|(_, s, _)| *s == expected), "{gop}: {segments:?}");
        let target = f64::from(expected).max(2.0).round();
        assert!(text(&segmenter, false).contains(&format!("TARGETDURATION:{target}\n")));
    }
}

#[test]
fn a_segment_is_the_concatenation_of_its_parts() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    push(&mut segmenter, 0..5_000, 50, true);
    let retained = &segmenter.retained.segments[0];
    let durations: Vec<i64> = retained.parts.iter().map(|part| part.duration_ms).collect();
    assert_eq!(durations, [320, 320, 360, 320, 360, 320]);
    let independent: Vec<bool> = retained.parts.iter().map(|part| part.independent).collect();
    assert_eq!(independent, [true, false, false, false, false, false]);
    let parts = segmenter.segment(name(&segmenter, 0)).expect("complete");
    for (number, part) in parts.iter().enumerate() {
        let same = segmenter.part(name(&segmenter, 0), number).expect("a part");
        assert_eq!(same.as_ptr(), part.as_ptr(), "shared");
    }
    assert!(segmenter.segment(name(&segmenter, 2)).is_none(), "not complete");
    assert!(segmenter.part(name(&segmenter, 2), 0).is_some());
    let movie = Movie::new(&init(&segmenter, 1).expect("an init")).expect("readable");
    assert_eq!(movie.tracks.len(), 2);
}

#[test]
fn the_playlist_lists_existing_parts() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    assert!(segmenter.playlist(false).is_none() && segmenter.master().is_none());
    push(&mut segmenter, 0..2_401, 50, true);
    let (id, one, two) =
        (segmenter.inits().next().expect("one"), name(&segmenter, 0), name(&segmenter, 1));
    assert_eq!([one.msn, two.msn], [FIRST, FIRST + 1]);
    let expected = format!(
        "#EXTM3U\n#EXT-X-VERSION:6\n#EXT-X-TARGETDURATION:2\n\
        #EXT-X-SERVER-CONTROL:CAN-BLOCK-RELOAD=YES,PART-HOLD-BACK=1.095,CAN-SKIP-UNTIL=12.000\n\
        #EXT-X-PART-INF:PART-TARGET=0.365\n#EXT-X-MEDIA-SEQUENCE:{FIRST}\n\
        #EXT-X-INDEPENDENT-SEGMENTS\n\
        #EXT-X-MAP:URI=\"init-{id:016x}.mp4\"\n\
        #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:00.000Z\n\
        #EXT-X-PART:DURATION=0.320,URI=\"{one}.0.m4s\",INDEPENDENT=YES\n\
        #EXT-X-PART:DURATION=0.320,URI=\"{one}.1.m4s\"\n\
        #EXT-X-PART:DURATION=0.360,URI=\"{one}.2.m4s\"\n\
        #EXT-X-PART:DURATION=0.320,URI=\"{one}.3.m4s\"\n\
        #EXT-X-PART:DURATION=0.360,URI=\"{one}.4.m4s\"\n\
        #EXT-X-PART:DURATION=0.320,URI=\"{one}.5.m4s\"\n\
        #EXTINF:2.000,\n{one}.m4s\n\
        #EXT-X-PROGRAM-DATE-TIME:2027-01-15T08:00:02.000Z\n\
        #EXT-X-PART:DURATION=0.320,URI=\"{two}.0.m4s\",INDEPENDENT=YES\n\
        #EXT-X-PRELOAD-HINT:TYPE=PART,URI=\"{two}.1.m4s\"\n"
    );
    assert_eq!(text(&segmenter, false), expected);
    let master = segmenter.master().expect("a master playlist");
    let master = parse_master_playlist_res(&master).expect("m3u8-rs parses it");
    let variant = &master.variants[0];
    assert_eq!(variant.codecs.as_deref(), Some("avc1.64000c,mp4a.40.2"));
    let size = variant.resolution.expect("a resolution");
    assert_eq!((size.width, size.height, &variant.uri[..]), (318, 178, MEDIA_PLAYLIST));
    segmenter.end();
    let end = format!("#EXTINF:0.440,\n{two}.m4s\n#EXT-X-ENDLIST\n");
    assert!(text(&segmenter, false).ends_with(&end));
    assert!(!segmenter.push(&frame(9_000, true), WALL));
}

#[test]
fn a_delta_update_completes_the_previous_playlist() {
    let mut segmenter = segmenter(SegmenterConfig { window: 20, ..SegmenterConfig::default() });
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
fn requests_are_past_present_soon_or_too_far() {
    let mut segmenter = segmenter(SegmenterConfig { window: 2, ..SegmenterConfig::default() });
    push(&mut segmenter, 0..20_401, 50, true);
    assert_eq!(segmenter.position(), (FIRST + 10, 1));
    for (msn, part, expected) in [
        (0, None, Availability::Past),
        (5, Some(3), Availability::Past),
        (6, None, Availability::Present),
        (9, Some(6), Availability::Present),
        // A part past the end of a segment is the first of the next.
        (9, Some(7), Availability::Present),
        (10, Some(0), Availability::Present),
        (10, Some(1), Availability::Pending),
        (10, Some(11), Availability::Pending),
        (10, Some(12), Availability::TooFar),
        (10, None, Availability::Pending),
        (11, Some(0), Availability::Pending),
        (12, None, Availability::Pending),
        (13, None, Availability::TooFar),
        (u64::MAX - FIRST, Some(usize::MAX), Availability::TooFar),
    ] {
        let msn = FIRST.saturating_add(msn);
        assert_eq!(segmenter.availability(msn, part), expected, "{msn} {part:?}");
    }
    segmenter.end();
    assert_eq!(segmenter.availability(FIRST + 11, Some(0)), Availability::Past, "never");
    assert_eq!(segmenter.availability(FIRST + 10, None), Availability::Present);
    assert_eq!(
        Segmenter::new(SegmenterConfig::default()).availability(0, Some(0)),
        Availability::Pending
    );
}

#[test]
fn segments_near_the_end_have_slack() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    push(&mut segmenter, 0..20_401, 50, true);
    let name = |back: usize| {
        let segments = &segmenter.retained.segments;
        segments[segments.len() - 1 - back].name
    };
    let lengths = |number: usize| -> Vec<u128> {
        let segment = segmenter.retained.find(name(number).msn).expect("retained");
        segment.parts.iter().map(|part| part.duration_ms as u128).collect()
    };
    let slack = |number, part| segmenter.slack(name(number), part).map(|slack| slack.as_millis());
    let list = text(&segmenter, false);
    assert!(list.contains("PART-HOLD-BACK=1.095") && list.contains("TARGETDURATION:2"), "{list}");
    let (growing, last) = (lengths(0), lengths(1));
    assert_eq!((growing.len(), last.iter().sum::<u128>()), (1, 2_000));
    assert_eq!(slack(0, Some(0)), Some(1_095 - growing[0]));
    assert_eq!(slack(1, Some(5)), Some(1_095 - growing[0] - last[5]));
    assert_eq!(slack(1, Some(2)), None, "it begins there, or is behind");
    let whole = [1, 2, 3].map(|number| slack(number, None));
    assert_eq!(whole, [Some(4_000 - growing[0]), Some(2_000 - growing[0]), None]);
    let other = Name { id: 1, ..name(1) };
    assert_eq!(segmenter.slack(other, None), None);
    assert_eq!(Segmenter::new(SegmenterConfig::default()).slack(other, None), None);
}

#[test]
fn changed_headers_and_jumps_are_discontinuities() {
    let mut segmenter = segmenter(SegmenterConfig { window: 20, ..SegmenterConfig::default() });
    push(&mut segmenter, 0..4_000, 50, true);
    // A repeated header changes nothing.
    segmenter.push(&video_header(12), WALL);
    push(&mut segmenter, 4_000..6_000, 50, true);
    segmenter.push(&video_header(13), WALL);
    push(&mut segmenter, 6_000..10_000, 50, true);
    push(&mut segmenter, 22_000..28_100, 50, true);
    let got = segments(&segmenter).into_iter().enumerate().filter(|(_, segment)| segment.2);
    assert_eq!(got.map(|(number, _)| number).collect::<Vec<_>>(), [3, 5]);
    let text = text(&segmenter, false);
    let second = segmenter.inits().nth(1).expect("two");
    let map = format!("#EXT-X-DISCONTINUITY\n#EXT-X-MAP:URI=\"init-{second:016x}.mp4\"\n");
    assert!(text.contains(&map), "{text}");
    assert!(init(&segmenter, 1).is_some() && init(&segmenter, 2).is_some());
    assert!(init(&segmenter, 3).is_none());
    push(&mut segmenter, 72_100..90_000, 50, true);
    assert!(init(&segmenter, 1).is_none(), "gone with its segments");
    let text = self::text(&segmenter, false);
    assert!(text.contains("#EXT-X-DISCONTINUITY-SEQUENCE:2\n"), "{text}");
    // After this long without media, the window restarts at the current time.
    let first = segments(&segmenter)[0];
    assert_eq!((first.0, first.2), (FIRST + 36, true));
}

#[test]
fn a_discontinuity_is_announced_before_the_first_part_after_it() {
    let count = |text: &str| text.matches("#EXT-X-DISCONTINUITY\n").count();
    let mut segmenter = segmenter(SegmenterConfig { window: 20, ..SegmenterConfig::default() });
    push(&mut segmenter, 0..4_600, 50, true);
    assert_eq!(count(&text(&segmenter, false)), 0);
    segmenter.push(&video_header(13), WALL);
    let declared = text(&segmenter, false);
    assert!(declared.ends_with(".m4s\n#EXT-X-DISCONTINUITY\n"), "{declared}");
    push(&mut segmenter, 6_000..7_000, 50, true);
    let retained = text(&segmenter, false);
    let (_, behind) = retained.split_once("#EXT-X-DISCONTINUITY\n").expect("repeated");
    assert!(behind.starts_with("#EXT-X-MAP:") && count(&retained) == 1, "{retained}");
    // A new audio track takes effect at the next key frame; until then the segment continues.
    segmenter.push(&tag(Kind::Audio, 0, &[&[0xaf, 0, 0x12, 0x10]]), WALL);
    assert_eq!(count(&text(&segmenter, false)), 1);
    segmenter.push(&video_header(14), WALL);
    assert_eq!(count(&text(&segmenter, false)), 2);
    segmenter.end();
    assert_eq!(count(&text(&segmenter, false)), 1, "nothing comes behind it");
}

#[test]
fn a_slightly_late_header_is_no_discontinuity() {
    let mut segmenter = Segmenter::new(SegmenterConfig::default());
    segmenter.push(&audio_header(), WALL);
    segmenter.push(&audio_frame(0), WALL);
    segmenter.push(&audio_frame(21), WALL);
    segmenter.push(&video_header(12), WALL);
    push(&mut segmenter, 40..4_200, 50, true);
    assert_eq!(init(&segmenter, 2), None);
    assert!(segments(&segmenter).iter().all(|segment| !segment.2));
    let mut late_audio = Segmenter::new(SegmenterConfig::default());
    late_audio.push(&video_header(12), WALL);
    push(&mut late_audio, 0..200, 50, false);
    late_audio.push(&audio_header(), WALL);
    for at in 200..4_200 {
        if at % 40 == 0 {
            late_audio.push(&frame(at, at % 2_000 == 0), WALL);
        }
        if (at * 48) % 1_024 < 48 {
            late_audio.push(&audio_frame(at), WALL);
        }
    }
    let movie = Movie::new(&init(&late_audio, 1).expect("an init")).expect("readable");
    assert_eq!(movie.tracks.len(), 2);
    assert_eq!(init(&late_audio, 2), None);
}

#[test]
fn audio_only_streams_are_cut_by_time_and_video_may_pause() {
    let mut segmenter = Segmenter::new(SegmenterConfig::default());
    segmenter.push(&audio_header(), WALL);
    let audio = |segmenter: &mut Segmenter, range: core::ops::Range<u32>| {
        for at in range.filter(|at| (at * 48) % 1_024 < 48) {
            segmenter.push(&audio_frame(at), WALL);
        }
    };
    audio(&mut segmenter, 0..9_000);
    let listed = segments(&segmenter);
    assert_eq!(listed.len(), 5);
    assert!((0.95..1.0).contains(&listed[0].1), "up to the next slot: {listed:?}");
    let whole = &listed[1..];
    assert!(whole.iter().all(|(_, duration, _)| (1.98..2.03).contains(duration)), "{listed:?}");
    let all_independent =
        |s: &Segmenter| s.retained.segments.iter().flat_map(|s| &s.parts).all(|p| p.independent);
    assert!(all_independent(&segmenter));
    segmenter.push(&video_header(12), WALL);
    push(&mut segmenter, 9_000..13_000, 50, true);
    // Video pauses, and resumes without a new header.
    audio(&mut segmenter, 13_000..22_000);
    push(&mut segmenter, 22_000..26_100, 50, true);
    segmenter.end();
    let versions: Vec<u64> =
        segmenter.retained.segments.iter().map(|segment| segment.version).collect();
    assert_eq!(versions.last(), Some(&4), "{versions:?}");
    let tracks = |version| {
        let init = init(&segmenter, version).expect("retained");
        Movie::new(&init).expect("readable").tracks.len()
    };
    assert_eq!([tracks(3), tracks(4)], [1, 2], "{versions:?}");
}

#[test]
fn audio_is_aligned_to_the_sample_grid_and_follows_drift() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    // Timestamps have errors of up to 9 ms.
    let mut audio_frames = 0;
    for at in 0..4_100u32 {
        if at % 40 == 0 {
            segmenter.push(&frame(at, at % 2_000 == 0), WALL);
        }
        if (at * 48) % 1_024 < 48 {
            let jitter = [0, 9, 3, 7][audio_frames % 4];
            audio_frames += 1;
            segmenter.push(&audio_frame(at + jitter), WALL);
        }
    }
    let [_, audio] = times(&segmenter, 1);
    // Each segment has its own grid; the two grids differ by less than a millisecond.
    let odd: Vec<i64> =
        audio.windows(2).map(|two| two[1] - two[0] - 1_024).filter(|d| *d != 0).collect();
    assert!(odd.len() <= 1 && odd.iter().all(|step| step.abs() < 48), "{odd:?}");
    // A gap of half a second stays a gap; of frames that are 1 % too fast, every hundredth is
    // dropped.
    let mut segmenter = self::segmenter(SegmenterConfig::default());
    for at in 0..8_100u32 {
        if at % 40 == 0 {
            segmenter.push(&frame(at, at % 2_000 == 0), WALL);
        }
        if !(1_000..1_500).contains(&at) && (at * 485) % 10_240 < 485 {
            segmenter.push(&audio_frame(at), WALL);
        }
    }
    let [_, audio] = times(&segmenter, 1);
    let steps: Vec<i64> = audio.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps.iter().filter(|step| **step > 20_000).count(), 1, "{steps:?}");
    assert!(steps.iter().all(|step| (0..1_150).contains(step) || *step > 20_000), "{steps:?}");
    let late = audio.last().expect("audio") / 48;
    assert!((7_850..8_150).contains(&late), "{late}");
}

#[test]
fn another_audio_header_cuts_at_the_next_key_frame() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    push(&mut segmenter, 0..2_500, 25, true);
    // 44.1 kHz from now on.
    segmenter.push(&tag(Kind::Audio, 2_500, &[&[0xaf, 0, 0x12, 0x10]]), WALL);
    push(&mut segmenter, 2_520..5_000, 25, true);
    segmenter.end();
    let cuts: Vec<_> =
        segmenter.retained.segments.iter().map(|s| (s.duration_ms(), s.version)).collect();
    assert_eq!(cuts, [(2_000, 1), (520, 1), (2_000, 2), (480, 2)]);
    let [_, audio] = times(&segmenter, 1);
    assert!(audio.last().is_some_and(|last| last / 48 < 2_500), "none of the new frames");
}

#[test]
fn audio_waits_for_a_key_frame_only_for_a_limited_time() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    for at in 0..20_000 {
        if at % 40 == 0 {
            segmenter.push(&frame(at, false), WALL);
        }
        if (at * 48) % 1_024 < 48 {
            segmenter.push(&audio_frame(at), WALL);
        }
    }
    assert!(segmenter.bytes() <= 48 * (20 + SAMPLE_COST), "a second: {}", segmenter.bytes());
    push(&mut segmenter, 20_000..24_000, 50, true);
    let [video, audio] = times(&segmenter, 1);
    assert_eq!(video[0], 20_000);
    assert!((20_000..20_022).contains(&(audio[0] / 48)), "{}", audio[0] / 48);
}

#[test]
fn dates_follow_media_time_and_drift_slowly_to_wall_time() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    for (number, late) in [0, 700, 300, 0, 3_000, 3_000].into_iter().enumerate() {
        let at = number as u32 * 2_000;
        segmenter.push(&frame(at, true), WALL + u64::from(at) + late);
    }
    segmenter.end();
    let dates: Vec<i64> =
        segmenter.retained.segments.iter().map(|s| s.wall_ms - WALL as i64).collect();
    assert_eq!(dates, [0, 2_000, 4_000, 6_000, 8_010, 10_020]);
}

#[test]
fn memory_is_bounded_for_any_input() {
    let bytes = 40_000;
    let mut flood = segmenter(SegmenterConfig { bytes, ..SegmenterConfig::default() });
    for number in 0..5_000 {
        // All frames have the same time, so that no part ever ends.
        flood.push(&frame(7, number == 0), WALL);
        assert!(flood.bytes() <= bytes);
    }
    assert!(flood.overflows() > 0);
    let bytes = 25_000;
    let mut endless = segmenter(SegmenterConfig { bytes, ..SegmenterConfig::default() });
    for number in 0..5_000 {
        endless.push(&frame(number * 40, number % 2_000 == 0), WALL);
        assert!(endless.bytes() <= bytes);
    }
    assert!(endless.overflows() > 0);
    // It recovers with the next key frames.
    push(&mut endless, 200_000..206_000, 50, false);
    let playlist = parse(&text(&endless, false));
    assert_eq!(playlist.segments.len(), 2);
}

/// Returns a range of a stream that started at 0, with a key frame every `gop` frames: the input of
/// a server that starts at any frame.
fn stream(range: core::ops::Range<u32>, frame_us: u64, gop: u64) -> Vec<Tag> {
    let mut tags = vec![video_header(12), audio_header()];
    let (mut number, mut audio_frames) = (0_u64, 0_u64);
    loop {
        let at = (number * frame_us / 1_000) as u32;
        let audio_at = (audio_frames * 1_024 / 48) as u32;
        let (time, tag) = if at <= audio_at {
            let head: &[u8] =
                if number.is_multiple_of(gop) { &[0x17, 1, 0, 0, 0] } else { &[0x27, 1, 0, 0, 0] };
            let nal = [0, 0, 0, 3, 0x65, number as u8, (number >> 8) as u8];
            number += 1;
            (at, tag(Kind::Video, at, &[head, &nal]))
        } else {
            audio_frames += 1;
            (
                audio_at,
                tag(
                    Kind::Audio,
                    audio_at,
                    &[&[0xaf, 1], &[0x21, audio_frames as u8, (audio_frames >> 8) as u8]],
                ),
            )
        };
        if time >= range.end {
            return tags;
        }
        if time >= range.start {
            tags.push(tag);
        }
    }
}

/// Returns the names and bytes of all retained segments and parts.
fn files(segmenter: &Segmenter) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for segment in segmenter.segments() {
        let parts = segmenter.segment(segment).expect("complete");
        files.push((format!("{segment}"), parts.concat()));
        let parts = parts.iter().enumerate();
        files.extend(parts.map(|(number, part)| (format!("{segment}.{number}"), part.to_vec())));
    }
    let init = |id| (format!("init-{id:016x}"), segmenter.init(id).expect("retained").to_vec());
    files.extend(segmenter.inits().map(init));
    files
}

#[test]
fn servers_that_start_at_different_times_use_the_same_names_for_the_same_bytes() {
    for container in [Container::Fmp4, Container::Ts] {
        // 25, 29.97, 30 and 24 frames per second; groups of 1 s, 1.92 s, 2 s, 2.002 s, 2.4 s, 4 s
        // and 10 s. Groups of 1.92 s occasionally skip a slot of 1.9 s.
        for (frame_us, gop) in [
            (40_000, 25),
            (40_000, 48),
            (40_000, 50),
            (33_367, 60),
            (40_000, 60),
            (33_333, 120),
            (41_667, 240),
        ] {
            let config = SegmenterConfig {
                container,
                window: 1_000,
                bytes: 1 << 30,
                ..SegmenterConfig::default()
            };
            let pack = |tags: &[Tag], late: u64| {
                let mut segmenter = Segmenter::new(config);
                for tag in tags {
                    segmenter.push(tag, WALL + u64::from(tag.timestamp()) + late);
                }
                segmenter
            };
            let whole = pack(&stream(0..300_000, frame_us, gop), 0);
            let known: std::collections::HashMap<_, _> = files(&whole).into_iter().collect();
            for from in [10_000, 61_234, 117_500, 250_000] {
                // The server that starts later also receives later.
                let part = pack(&stream(from..300_000, frame_us, gop), 2_500);
                let (got, what) = (files(&part), format!("{container:?} {frame_us} {gop} {from}"));
                let same = got.iter().filter(|(name, body)| known.get(name) == Some(body)).count();
                let clash =
                    got.iter().find(|(name, body)| known.get(name).is_some_and(|b| b != body));
                assert_eq!(clash.map(|(name, _)| name), None, "{what}");
                // All segments except the first, which starts within a slot.
                let parts = part.retained.segments.iter().take(2).map(|s| s.parts.len() + 1);
                assert!(got.len() - same <= parts.sum(), "{what}: {same} of {}", got.len());
                let last = |segmenter: &Segmenter| segmenter.segments().last().expect("one");
                assert_eq!(last(&part), last(&whole), "{what}");
                let pace = |segmenter: &Segmenter| segmenter.pace.expect("settled").target_s;
                assert_eq!(pace(&part), pace(&whole), "{what}");
            }
        }
    }
}

#[test]
fn a_restarted_packager_continues_the_numbers() {
    let tags = stream(0..200_000, 33_367, 60);
    let mut first = Segmenter::new(SegmenterConfig::default());
    let half = tags.iter().position(|tag| tag.timestamp() > 90_000).expect("half");
    for tag in &tags[..half] {
        first.push(tag, WALL + u64::from(tag.timestamp()));
    }
    let mut second = Segmenter::new(SegmenterConfig::default());
    for tag in tags[..2].iter().chain(&tags[half + 1_500..]) {
        second.push(tag, WALL + u64::from(tag.timestamp()));
    }
    let before = first.segments().last().expect("one").msn;
    let after = second.segments().next().expect("one").msn;
    assert!(after > before + 5, "{before} {after}");
}

#[test]
fn parts_last_nearly_the_part_target() {
    for fps in [10, 12, 15, 24, 25, 30, 50, 60] {
        let mut segmenter = Segmenter::new(SegmenterConfig::default());
        for tag in stream(0..20_000, 1_000_000 / fps, 2 * fps) {
            segmenter.push(&tag, WALL + u64::from(tag.timestamp()));
        }
        let text = text(&segmenter, false);
        let line = text.lines().find_map(|line| line.split_once("PART-TARGET="));
        let target: f64 = line.expect("a target").1.parse().expect("seconds");
        assert!((0.25..0.37).contains(&target), "{fps}: {target}");
        for segment in segmenter.retained.segments.iter().filter(|segment| segment.complete) {
            let (_, parts) = segment.parts.split_last().expect("parts");
            for part in parts {
                let seconds = part.duration_ms as f64 / 1_000.0;
                assert!(
                    (0.85 * target..=target).contains(&seconds),
                    "{fps}: {seconds} of {target}"
                );
            }
        }
        assert!(segmenter.master().is_some_and(|master| {
            let rate = format!(",FRAME-RATE={fps}.0");
            let near = format!(",FRAME-RATE={}.9", fps - 1);
            let master = String::from_utf8_lossy(&master).into_owned();
            master.contains(&rate) || master.contains(&near)
        }));
    }
}

#[test]
fn declared_durations_never_change() {
    let mut segmenter = segmenter(SegmenterConfig { window: 100, ..SegmenterConfig::default() });
    let declared = |segmenter: &Segmenter| {
        let text = text(segmenter, false);
        let line = |tag: &str| text.lines().find(|line| line.starts_with(tag)).map(str::to_owned);
        (line("#EXT-X-TARGETDURATION"), line("#EXT-X-PART-INF"))
    };
    push(&mut segmenter, 0..6_000, 50, true);
    let before = declared(&segmenter);
    // Groups of 10 s, a still picture of 4 s, ten frames per second.
    push(&mut segmenter, 6_000..36_000, 250, true);
    segmenter.push(&frame(40_000, false), WALL);
    for number in 0..200 {
        segmenter.push(&frame(40_100 + number * 100, number % 20 == 0), WALL);
    }
    assert_eq!(declared(&segmenter), before);
    let playlist = parse(&text(&segmenter, false));
    assert!(playlist.segments.iter().all(|segment| segment.duration < 2.5), "{playlist:?}");
    // Segments that start within a group are marked.
    let independent = segmenter.retained.segments.iter().filter(|s| s.is_independent()).count();
    assert!(independent < segmenter.retained.segments.len());
    assert!(!playlist.independent_segments);
}

#[test]
fn another_encoder_is_a_discontinuity_with_an_initialisation_segment_of_its_own() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    push(&mut segmenter, 0..4_200, 50, true);
    segmenter.push(&video_header(13), WALL);
    segmenter.push(&audio_header(), WALL);
    push(&mut segmenter, 4_240..8_400, 50, true);
    let text = text(&segmenter, false);
    let inits: Vec<u64> = segmenter.inits().collect();
    assert!(inits.len() == 2 && inits[0] != inits[1]);
    let behind = text.split_once("#EXT-X-DISCONTINUITY\n").expect("a discontinuity").1;
    assert!(
        behind.starts_with(&format!("#EXT-X-MAP:URI=\"init-{:016x}.mp4\"", inits[1])),
        "{text}"
    );
}

#[test]
fn eviction_leaves_three_segments_for_startup() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    push(&mut segmenter, 0..30_000, 50, true);
    let all = segments(&segmenter);
    let held = segmenter.bytes();
    segmenter.shed(0);
    assert_eq!((segmenter.bytes(), segments(&segmenter)), (held, all.clone()));
    segmenter.shed(1);
    assert!(segmenter.bytes() < held);
    segmenter.shed(usize::MAX);
    let left = segments(&segmenter);
    assert_eq!(left[..], all[all.len() - 3..], "the newest, under their numbers");
    push(&mut segmenter, 30_000..40_000, 50, true);
    assert_eq!(segments(&segmenter).len(), all.len(), "and the window fills again");
}

#[test]
fn a_limit_below_one_segment_drops_the_growing_one() {
    let mut segmenter = segmenter(SegmenterConfig::default());
    push(&mut segmenter, 0..30_000, 50, true);
    let half = segmenter.bytes() / 2;
    segmenter.shrink_to(half);
    assert!(segmenter.bytes() <= half && segmenter.overflows() == 0);
    segmenter.shrink_to(0);
    assert_eq!((segmenter.bytes(), segmenter.overflows()), (0, 1));
    push(&mut segmenter, 30_000..40_000, 50, true);
    assert!(segments(&segmenter).len() > 2, "it goes on with the next key frame");
}
