//! Even division of segments into parts, for any frame rate and key frame interval.

use super::*;

/// Frames per 1,001,000 ms: 24, 25, 29.97, 30, 50 and 60 per second.
const RATES: [u64; 6] = [24_024, 25_025, 30_000, 30_030, 50_050, 60_060];
/// Key frame intervals, in milliseconds.
const GROUPS: [u64; 10] = [500, 1_000, 1_920, 2_000, 2_002, 3_000, 4_000, 5_000, 7_000, 10_000];

/// Returns a video frame with the presentation time `composition_ms` after its decoding time.
fn picture(at: u64, key: bool, composition_ms: u64) -> Tag {
    let (head, nal) = if key { (0x17, 0x65) } else { (0x27, 0x41) };
    let [.., c1, c2, c3] = (composition_ms as u32).to_be_bytes();
    tag(Kind::Video, at as u32, &[&[head, 1, c1, c2, c3], &[0, 0, 0, 3, nal, 1, 2]])
}

/// Packages video at `rate` with key frames chosen by `is_key`, up to `end_ms`, and audio.
fn pack(rate: u64, b_frames: bool, end_ms: u64, is_key: impl Fn(u64) -> bool) -> Segmenter {
    let mut segmenter = segmenter(SegmenterConfig { window: 1_000, ..SegmenterConfig::default() });
    let (mut number, mut audio_frames) = (0, 0);
    loop {
        let (at, audio_at) = (number * 1_001_000 / rate, audio_frames * 1_024 / 48);
        if at >= end_ms {
            return segmenter;
        }
        if audio_at < at {
            segmenter.push(&audio_frame(audio_at as u32), WALL + audio_at);
            audio_frames += 1;
            continue;
        }
        // Reordered: I P B B, in decoding order.
        let shown = if b_frames { [2, 4, 1, 0][number as usize % 4] } else { 0 };
        let tag = picture(at, is_key(number), shown * 1_001_000 / rate);
        segmenter.push(&tag, WALL + at);
        number += 1;
    }
}

/// Returns the complete retained segments, numbered from 0.
fn complete(segmenter: &Segmenter) -> impl Iterator<Item = (usize, &RetainedSegment)> {
    segmenter.retained.segments.iter().filter(|segment| segment.complete).enumerate()
}

/// PART-TARGET of a playlist, with EXTINF and parts of each complete segment. A part has a duration
/// and its INDEPENDENT=YES flag.
struct Declared {
    part_target: i64,
    segments: Vec<(i64, Vec<(i64, bool)>)>,
}

/// Returns the seconds after `name`, in milliseconds.
fn milliseconds(line: &str, name: &str) -> i64 {
    let (_, value) = line.split_once(name).expect(name);
    let value = value.split([',', '\n']).next().expect("a value");
    (value.parse::<f64>().expect("seconds") * 1_000.0).round() as i64
}

/// Parses the playlist, and checks the parts near its end according to Apple's published rules.
fn check(segmenter: &Segmenter, what: &str) -> Declared {
    let text = text(segmenter, false);
    let line = |tag: &str| text.lines().find(|line| line.starts_with(tag)).expect(tag);
    let target = milliseconds(line("#EXT-X-TARGETDURATION"), "DURATION:");
    let part_target = milliseconds(line("#EXT-X-PART-INF"), "PART-TARGET=");
    let hold_back = milliseconds(line("#EXT-X-SERVER-CONTROL"), "PART-HOLD-BACK=");
    assert!(hold_back >= 3 * part_target, "{what}");
    for (_, segment) in complete(segmenter) {
        let durations: Vec<i64> = segment.parts.iter().map(|part| part.duration_ms).collect();
        let what = format!("{what}: {durations:?} of {part_target}");
        assert!((segment.duration_ms() + 500) / 1_000 * 1_000 <= target, "{what}");
        assert!(durations.iter().all(|part| *part <= part_target), "{what}");
        let (_, but_last) = durations.split_last().expect("parts");
        assert!(but_last.iter().all(|part| part * 100 >= part_target * 85), "{what}");
    }
    let (mut segments, mut parts) = (Vec::new(), Vec::new());
    for line in text.lines() {
        if line.starts_with("#EXT-X-PART:") {
            let is_independent = line.ends_with("INDEPENDENT=YES");
            parts.push((milliseconds(line, "DURATION="), is_independent));
        } else if line.starts_with("#EXTINF:") {
            segments.push((milliseconds(line, "#EXTINF:"), core::mem::take(&mut parts)));
        }
    }
    for (length, parts) in segments.iter().filter(|(_, parts)| !parts.is_empty()) {
        assert_eq!(parts.iter().map(|part| part.0).sum::<i64>(), *length, "{what}");
    }
    Declared { part_target, segments }
}

/// Checks that INDEPENDENT marks exactly the parts that start with a key frame.
fn check_independence(segmenter: &Segmenter, what: &str) {
    let movie = Movie::new(&init(segmenter, 1).expect("an init")).expect("readable");
    for part in segmenter.retained.segments.iter().flat_map(|segment| &segment.parts) {
        let samples = movie.samples(&part.bytes).expect("readable");
        let first = samples.iter().find(|(track, _)| movie.tracks[*track].id == 1).expect("video");
        assert_eq!(first.1.sync, part.independent, "{what}");
    }
}

#[test]
fn parts_divide_segments_evenly_at_any_frame_rate_and_key_frame_distance() {
    for rate in RATES {
        for group_ms in GROUPS {
            let frames = (group_ms * rate + 500_500) / 1_001_000;
            let frame_ms = 1_001_000_u64.div_ceil(rate) as i64;
            for b_frames in [false, true] {
                let what = format!("{rate} {group_ms} {b_frames}");
                let segmenter = pack(rate, b_frames, 6 * group_ms.max(2_000) + 600, |n| {
                    n.is_multiple_of(frames)
                });
                let declared = check(&segmenter, &what);
                check_independence(&segmenter, &what);
                assert!(
                    (270..=370).contains(&declared.part_target),
                    "{what}: {}",
                    declared.part_target
                );
                assert!(declared.segments.len() >= 5, "{what}: {}", declared.segments.len());
                for (number, segment) in complete(&segmenter) {
                    let last = segment.parts.last().expect("a part").duration_ms;
                    assert!(2 * last > declared.part_target, "{what}: {last}");
                    assert!(segment.is_independent(), "{what}");
                    // The first segment starts within a slot, which shortens the second one.
                    if number == 1 {
                        continue;
                    }
                    let parts = || segment.parts.iter().map(|part| part.duration_ms);
                    let (shortest, longest) = (parts().min().expect("one"), parts().max());
                    let lengths: Vec<i64> = parts().collect();
                    assert!(
                        longest.expect("one") - shortest <= frame_ms + 1,
                        "{what}: {number} {lengths:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn other_part_durations_divide_segments_evenly() {
    for part_ms in [100, 200, 250, 400, 500, 667, 1_000, 2_000] {
        for rate in RATES {
            let part = Duration::from_millis(part_ms);
            let mut segmenter = segmenter(SegmenterConfig { part, ..SegmenterConfig::default() });
            for number in 0..20 * rate / 1_001 {
                let at = number * 1_001_000 / rate;
                let key = number.is_multiple_of(rate * 2 / 1_001);
                segmenter.push(&picture(at, key, 0), WALL + at);
            }
            let declared = check(&segmenter, &format!("{part_ms} {rate}"));
            let limit = part_ms as i64 * 115 / 100 + 8;
            assert!(
                (limit * 6 / 10..=limit).contains(&declared.part_target),
                "{}",
                declared.part_target
            );
        }
    }
}

#[test]
fn audio_only_streams_are_divided_evenly() {
    for (rate, config) in [(48_000, [0x11, 0x90]), (44_100, [0x12, 0x10]), (22_050, [0x13, 0x90])] {
        let mut segmenter =
            Segmenter::new(SegmenterConfig { window: 100, ..SegmenterConfig::default() });
        segmenter.push(&tag(Kind::Audio, 0, &[&[0xaf, 0], &config]), WALL);
        for number in 0..60 * rate / 1_024 {
            let at = number * 1_024_000 / rate + 777;
            segmenter.push(&audio_frame(at as u32), WALL + at);
        }
        let declared = check(&segmenter, &format!("{rate}"));
        assert!(declared.segments.len() >= 27, "{rate}: {}", declared.segments.len());
        assert!((185..=380).contains(&declared.part_target), "{rate}: {}", declared.part_target);
        let frame_ms = 1_024_000_u64.div_ceil(rate) as i64;
        for (number, segment) in complete(&segmenter) {
            let parts = || segment.parts.iter().map(|part| part.duration_ms);
            let (shortest, longest) = (parts().min().expect("one"), parts().max().expect("one"));
            let lengths: Vec<i64> = parts().collect();
            // The first segment ends with its slot, wherever it started, and is published as a
            // whole.
            assert!(number == 0 || 20 * shortest > 9 * declared.part_target, "{rate}: {lengths:?}");
            assert!(number < 2 || longest - shortest <= frame_ms + 2, "{rate}: {lengths:?}");
        }
    }
}

#[test]
fn unexpected_key_frames_keep_playlists_valid() {
    let mut short = 0;
    let mut segments = 0;
    for (seed, rate) in RATES.into_iter().enumerate() {
        // Key frames at least every 2 s, and at scene changes after 0.4 s to 8 s.
        let longest = rate * 2 / 1_001;
        let mut state = seed as u64 + 1;
        let mut keys = std::collections::HashSet::new();
        let (mut at, mut scene) = (0, 0);
        while at < 120 * rate / 1_001 {
            keys.insert(at);
            if scene <= at {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                scene = at + rate * (400 + (state >> 33) % 7_600) / 1_001_000;
            }
            at = scene.min(at + longest).max(at + 1);
        }
        let segmenter = pack(rate, false, 120_000, |number| keys.contains(&number));
        let what = format!("{rate}, seed {seed}");
        let declared = check(&segmenter, &what);
        check_independence(&segmenter, &what);
        for (_, segment) in complete(&segmenter) {
            let last = segment.parts.last().expect("a part");
            segments += 1;
            short += usize::from(2 * last.duration_ms < declared.part_target);
        }
    }
    assert!(short * 6 < segments, "{short} of {segments} segments have a short last part");
}

#[test]
fn a_change_of_frame_rate_and_groups_keeps_parts_even() {
    let mut segmenter = segmenter(SegmenterConfig { window: 1_000, ..SegmenterConfig::default() });
    let mut at = 0;
    // Frame duration, frames per group, number of groups.
    for (frame_ms, group, groups) in [(40, 50, 6), (20, 100, 6), (40, 25, 12), (20, 40, 12)] {
        let start = segmenter.retained.segments.len();
        for number in 0..group * groups {
            segmenter.push(&picture(at, number % group == 0, 0), WALL + at);
            at += frame_ms;
        }
        check(&segmenter, &format!("{frame_ms} {group}"));
        // The new groups must be among the recent ones first.
        let lasts: Vec<i64> = complete(&segmenter)
            .skip(start + 5)
            .map(|(_, segment)| segment.parts.last().expect("a part").duration_ms)
            .collect();
        assert!(lasts.iter().all(|last| *last > 200), "{frame_ms} {group}: {lasts:?}");
    }
}

#[test]
fn pauses_have_exact_durations_or_a_discontinuity() {
    // Start of a still picture, its duration, and whether a discontinuity follows.
    for (from, pause_ms, breaks) in [
        (8_400, 200, false),
        (8_400, 700, false),
        (9_900, 1_500, false),
        (8_400, 2_600, true),
        (8_400, 4_000, true),
        (800, 400, false),
        (800, 4_000, true),
    ] {
        for audio in [false, true] {
            let what = format!("{from} {pause_ms} {audio}");
            let mut segmenter =
                segmenter(SegmenterConfig { window: 1_000, ..SegmenterConfig::default() });
            for at in 0..20_000_u32 {
                let silent = (from..from + pause_ms).contains(&at);
                if at % 40 == 0 && !silent {
                    segmenter.push(&frame(at, at % 2_000 == 0), WALL + u64::from(at));
                }
                if audio && !silent && (at * 48) % 1_024 < 48 {
                    segmenter.push(&audio_frame(at), WALL + u64::from(at));
                }
            }
            segmenter.end();
            let list = text(&segmenter, false);
            let target = milliseconds(&list, "#EXT-X-TARGETDURATION:");
            let movie = Movie::new(&init(&segmenter, 1).expect("an init")).expect("readable");
            let segments: Vec<&RetainedSegment> = segmenter.retained.segments.iter().collect();
            for pair in segments.windows(2) {
                let (length, step) = (pair[0].duration_ms(), pair[1].wall_ms - pair[0].wall_ms);
                assert!(length <= target + 499, "{what}: {length}");
                assert!(pair[1].discontinuity || length == step, "{what}: {length} {step}");
                let times: Vec<i64> = pair
                    .iter()
                    .map(|segment| {
                        let samples = movie.samples(&segment.parts[0].bytes).expect("readable");
                        let video = samples.iter().find(|s| movie.tracks[s.0].id == 1);
                        video.expect("video").1.dts
                    })
                    .collect();
                assert!(pair[1].discontinuity || times[1] - times[0] == length, "{what}");
            }
            let broken = segments.iter().filter(|segment| segment.discontinuity).count();
            assert_eq!(broken, usize::from(breaks), "{what}");
        }
    }
}

#[test]
fn a_gap_in_an_audio_only_stream_is_a_discontinuity() {
    let mut segmenter =
        Segmenter::new(SegmenterConfig { window: 1_000, ..SegmenterConfig::default() });
    segmenter.push(&audio_header(), WALL);
    for at in (0..20_000_u32).filter(|at| (at * 48) % 1_024 < 48) {
        if !(8_000..11_000).contains(&at) && !(14_000..14_100).contains(&at) {
            segmenter.push(&audio_frame(at), WALL + u64::from(at));
        }
    }
    check(&segmenter, "a gap");
    let segments: Vec<&RetainedSegment> = segmenter.retained.segments.iter().collect();
    let broken = segments.iter().filter(|segment| segment.discontinuity).count();
    assert_eq!(broken, 1, "a short gap belongs to its part");
    for pair in segments.windows(2).filter(|pair| !pair[1].discontinuity && pair[1].complete) {
        assert_eq!(pair[0].duration_ms(), pair[1].wall_ms - pair[0].wall_ms);
    }
}
