//! Random streams: each playlist must conform to RFC 8216, also in relation to the previous one.

use m3u8_rs::MediaPlaylist;
use proptest::prelude::*;

use super::*;

/// Input of a segmenter in a random test.
#[derive(Clone, Copy, Debug)]
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

/// Returns segment and part number of a URI.
fn place(uri: &str) -> (Name, usize) {
    let mut fields = uri.split('.');
    let name = fields.next().and_then(|field| field.parse().ok());
    let part = fields.next().and_then(|field| field.parse().ok());
    (name.expect("a name"), part.expect("a number"))
}

/// Counts the video samples of a part.
fn pictures(segmenter: &Segmenter, name: Name, part: usize) -> usize {
    let segment = segmenter.retained.find(name.msn).expect("retained");
    let init = init(segmenter, segment.version).expect("an init");
    let movie = Movie::new(&init).expect("readable");
    let samples = movie.samples(&segment.parts[part].bytes).expect("readable");
    samples.iter().filter(|(track, _)| movie.tracks[*track].id == 1).count()
}

/// Checks a playlist according to RFC 8216, also in relation to the previous one.
fn check(segmenter: &Segmenter, before: Option<&MediaPlaylist>) -> MediaPlaylist {
    let text = text(segmenter, false);
    let now = parse(&text);
    let target = now.target_duration as f32;
    for (msn, segment) in (now.media_sequence..).zip(&now.segments) {
        // Section 4.3.3.1: "when rounded to the nearest integer, MUST be less than or equal".
        assert!((segment.duration + 0.499_9).floor() <= target, "{text}");
        if segment.uri.ends_with(".m4s") {
            let name: Name = segment.uri.trim_end_matches(".m4s").parse().expect("a name");
            assert_eq!(name.msn, msn, "{text}");
            assert!(segmenter.segment(name).is_some());
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
            let (name, part) = place(&attribute(line, "URI="));
            let pictures = pictures(segmenter, name, part);
            assert!(duration <= part_target || pictures == 1, "{pictures} {text}");
            assert!(segmenter.part(name, part).is_some(), "{line}");
        }
        if line.starts_with("#EXT-X-PRELOAD-HINT:") {
            let hint = place(&attribute(line, "URI="));
            assert_eq!((hint.0.msn, hint.1), segmenter.position());
            assert_eq!(segmenter.availability_of(hint.0, Some(hint.1)), Availability::Pending);
        }
    }
    if let Some(before) = before {
        assert!(now.media_sequence >= before.media_sequence, "{text}");
        assert_eq!(now.target_duration, before.target_duration, "{text}");
        assert!(now.discontinuity_sequence >= before.discontinuity_sequence, "{text}");
        let removed = (now.media_sequence - before.media_sequence) as usize;
        // Sections 4.3.3.3 and 6.2.2: discontinuities of removed segments are counted.
        let complete = |p: &MediaPlaylist| -> Vec<_> {
            let segments = p.segments.iter().filter(|segment| segment.uri.ends_with(".m4s"));
            segments.map(|s| (s.uri.clone(), s.duration, s.discontinuity)).collect()
        };
        let (old, new) = (complete(before), complete(&now));
        let left = old.iter().take(removed).filter(|segment| segment.2).count() as u64;
        let counted = now.discontinuity_sequence - before.discontinuity_sequence;
        // Evicted segments may never have been listed as complete.
        let unseen = removed.saturating_sub(old.len()) as u64;
        assert!((left..=left + unseen).contains(&counted), "{counted} {left} {unseen} {text}");
        for (old, new) in old.iter().skip(removed).zip(&new) {
            assert_eq!(old, new, "{text}");
        }
    }
    now
}

/// Returns the playlist after a tag, or the previous one if unchanged. The hinted part exists now,
/// unless it replaced a slot without a segment.
fn push_and_check(
    segmenter: &mut Segmenter,
    tag: &Tag,
    before: Option<MediaPlaylist>,
) -> Option<MediaPlaylist> {
    let hint = segmenter.growing().map(|name| (name, segmenter.position().1));
    let new = segmenter.push(tag, WALL + u64::from(tag.timestamp()));
    if !new || !segmenter.has_complete() {
        return before;
    }
    if let Some((name, part)) = hint.filter(|(name, _)| segmenter.retained.find(name.msn).is_some())
    {
        let renamed =
            segmenter.retained.find(name.msn + 1).is_some_and(|next| next.parts.len() == 1);
        assert!(segmenter.part(name, part).is_some() || renamed, "{name}.{part} was hinted at");
    }
    Some(check(segmenter, before.as_ref()))
}

/// Packages the result of these steps, and checks each playlist.
fn pack_and_check(steps: &[Step], window: usize) {
    let mut segmenter = segmenter(SegmenterConfig { window, ..SegmenterConfig::default() });
    let (mut at, mut before) = (0u32, None);
    for step in steps {
        match *step {
            Step::Header(level) => {
                before = push_and_check(&mut segmenter, &video_header(level), before);
            }
            Step::Jump(by) => at = at.wrapping_add(by),
            Step::Gop { frames, frame_ms, audio } => {
                for number in 0..frames {
                    before = push_and_check(&mut segmenter, &frame(at, number == 0), before);
                    if audio {
                        before = push_and_check(&mut segmenter, &audio_frame(at), before);
                    }
                    at = at.wrapping_add(frame_ms);
                }
            }
        }
    }
}

#[test]
fn discontinuities_of_unlisted_segments_are_counted() {
    let gop = |frames, frame_ms, audio| Step::Gop { frames, frame_ms, audio };
    let (first, second) = (gop(12, 150, false), gop(1, 16, true));
    let jumps = [Step::Jump(16_560), gop(1, 16, false), Step::Jump(17_984), gop(23, 109, false)];
    pack_and_check(&[&[first, second][..], &jumps].concat(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(80))]

    #[test]
    fn playlists_obey_rfc_8216_over_time(steps in steps(), window in 1..8usize) {
        pack_and_check(&steps, window);
    }

    #[test]
    fn random_tags_never_panic(
        tags in proptest::collection::vec((any::<bool>(), any::<u32>(), any::<u8>(),
            prop_oneof![Just(0u8), Just(1), any::<u8>()],
            proptest::collection::vec(any::<u8>(), 0..60)), 0..80),
        ts in any::<bool>(),
    ) {
        let container = if ts { Container::Ts } else { Container::Fmp4 };
        let config = SegmenterConfig { container, bytes: 10_000, ..SegmenterConfig::default() };
        let mut segmenter = segmenter(config);
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
