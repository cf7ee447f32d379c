//! Variants with an audio playlist of their own.

use TrackSelection::{All, Audio, Video};

use super::*;

/// An origin with a variant, an audio rendition, and the bodies of their segments.
struct Origin {
    bodies: HashMap<String, Bytes>,
    /// Names that the origin does not answer.
    failing: Vec<&'static str>,
    /// Requested names.
    requests: Vec<String>,
    /// Errors of responses.
    errors: Vec<Error>,
}

const MASTER: &str = "#EXTM3U\n#EXT-X-MEDIA:TYPE=AUDIO,GROUP-ID=\"a\",NAME=\"English\",\
                      URI=\"audio\"\n\
                      #EXT-X-STREAM-INF:BANDWIDTH=900,AUDIO=\"a\"\nvideo\n";

impl Origin {
    /// Creates an origin of both playlists, which end with `end`.
    fn new(video: &[Whole], audio: &[Whole], end: &str) -> Self {
        let mut bodies = HashMap::from([("media.m3u8".to_owned(), Bytes::from(MASTER))]);
        for (name, parts) in [("video", video), ("audio", audio)] {
            let mut list = String::from("#EXTM3U\n#EXT-X-TARGETDURATION:2\n");
            for (part, (init, segments)) in parts.iter().enumerate() {
                if part > 0 {
                    list += "#EXT-X-DISCONTINUITY\n";
                }
                if let Some(init) = init {
                    list += &format!("#EXT-X-MAP:URI=\"{name}-{part}-init\"\n");
                    bodies.insert(format!("{name}-{part}-init"), init.clone());
                }
                for (number, body) in segments.iter().enumerate() {
                    list += &format!("#EXTINF:2,\n{name}-{part}-{number}\n");
                    bodies.insert(format!("{name}-{part}-{number}"), Bytes::from(body.clone()));
                }
            }
            bodies.insert(name.to_owned(), Bytes::from(list + end));
        }
        Self { bodies, failing: Vec::new(), requests: Vec::new(), errors: Vec::new() }
    }

    /// Answers requests until the pull ends or has waited for `limit`.
    fn pull(&mut self, pull: &mut Pull, limit: Timestamp) -> Vec<Tag> {
        let (mut now, mut tags) = (seconds(0), Vec::new());
        while now < limit {
            match pull.next(now) {
                Action::Fetch(request) => {
                    let (_, name) = request.url.as_str().rsplit_once('/').expect("a path");
                    self.requests.push(name.to_owned());
                    match self.bodies.get(name).filter(|_| !self.failing.contains(&name)) {
                        Some(body) => match pull.on_response(body) {
                            Ok(more) => tags.extend(more),
                            Err(error) => self.errors.push(error),
                        },
                        None => drop(pull.on_failure(now)),
                    }
                }
                Action::Wait(time) => now += time,
                Action::End => {
                    tags.extend(pull.finish());
                    break;
                }
            }
        }
        tags
    }
}

fn count(tags: &[Tag], kind: Kind) -> usize {
    let frames = tags.iter().filter(|tag| !tag.role().is_header());
    frames.filter(|tag| tag.kind() == kind).count()
}

#[test]
fn a_separate_audio_playlist_gives_the_same_tags_as_one_within_the_variant() {
    for container in [Container::Ts, Container::Fmp4] {
        let whole = |kinds| [whole_of(kinds, container, 0..6_000)];
        let (video, audio) = (whole(Video), whole(Audio));
        let mut origin = Origin::new(&video, &audio, "#EXT-X-ENDLIST\n");
        let tags = origin.pull(&mut pull(), seconds(1));
        let mut both = Origin::new(&whole(All), &audio, "#EXT-X-ENDLIST\n");
        both.bodies.insert("media.m3u8".to_owned(), both.bodies["video"].clone());
        let expected = both.pull(&mut pull(), seconds(1));
        assert!(expected.len() > 400, "{}", expected.len());
        let content = |tags: &[Tag]| -> Vec<_> {
            tags.iter().map(|tag| (tag.timestamp(), tag.kind(), tag.payload().to_vec())).collect()
        };
        // Audio may precede video of the same millisecond.
        let sorted = |tags: &[Tag]| {
            let mut all = content(tags);
            all.sort_by_key(|(at, kind, _)| (*at, *kind as u8));
            all
        };
        assert_eq!(sorted(&tags), sorted(&expected), "{container:?}");
        assert_eq!(origin.errors, [], "{container:?}");
        assert!(tags.is_sorted_by_key(Tag::timestamp), "{container:?}");
        assert!(tags[..2].iter().all(|tag| tag.role() == Role::SequenceHeader));
        // The playlists, and then the segments in turn.
        let names: Vec<&str> = origin.requests.iter().map(String::as_str).collect();
        assert_eq!(names[..3], ["media.m3u8", "video", "audio"]);
        let at = |name: &str| names.iter().position(|other| *other == name).expect("requested");
        assert!(
            at("audio-0-0") < at("video-0-1") && at("video-0-1") < at("audio-0-2"),
            "{names:?}"
        );
    }
}

#[test]
fn audio_within_the_variant_is_replaced_by_the_rendition() {
    let whole = |kinds| [whole_of(kinds, Container::Ts, 0..4_000)];
    let (video, audio) = (whole(All), whole(Audio));
    let tags = Origin::new(&video, &audio, "#EXT-X-ENDLIST\n").pull(&mut pull(), seconds(1));
    let alone =
        Origin::new(&whole(Video), &audio, "#EXT-X-ENDLIST\n").pull(&mut pull(), seconds(1));
    assert_eq!(count(&tags, Kind::Audio), count(&alone, Kind::Audio));
    assert_eq!(count(&tags, Kind::Video), 100);
}

#[test]
fn video_continues_without_audio_that_cannot_be_fetched() {
    let whole = |kinds, end| [whole_of(kinds, Container::Ts, 0..end)];
    let (video, audio) = (whole(Video, 8_000), whole(Audio, 8_000));
    // The playlist is unreachable, or all of its segments.
    let names = ["audio-0-0", "audio-0-1", "audio-0-2", "audio-0-3", "audio-0-4"];
    assert_eq!(audio[0].1.len(), names.len());
    for failing in [&["audio"][..], &names] {
        let mut origin = Origin::new(&video, &audio, "");
        origin.failing = failing.to_vec();
        let mut pull = pull();
        let tags = origin.pull(&mut pull, seconds(30));
        let mut alone = Origin::new(&video, &audio, "");
        alone.bodies.insert("media.m3u8".to_owned(), alone.bodies["video"].clone());
        let expected = count(&alone.pull(&mut super::pull(), seconds(1)), Kind::Video);
        assert!(expected > 100, "{expected}");
        let counts = (count(&tags, Kind::Video), count(&tags, Kind::Audio));
        assert_eq!(counts, (expected, 0), "{failing:?}");
        // The audio returns.
        origin.failing.clear();
        let more = whole(Audio, 14_000);
        let list = String::from_utf8_lossy(&origin.bodies["audio"]).into_owned();
        for number in 5..7 {
            origin
                .bodies
                .insert(format!("audio-0-{number}"), Bytes::from(more[0].1[number].clone()));
        }
        let list = list + "#EXTINF:2,\naudio-0-5\n#EXTINF:2,\naudio-0-6\n";
        origin.bodies.insert("audio".to_owned(), Bytes::from(list));
        let mut tags = origin.pull(&mut pull, seconds(60));
        // Audio later than the video waits for more video.
        tags.extend(pull.finish());
        assert!(count(&tags, Kind::Audio) > 80, "{failing:?}: {tags:?}");
    }
}

#[test]
fn video_continues_without_audio_of_an_unsupported_codec() {
    let whole = |kinds| whole_of(kinds, Container::Fmp4, 0..6_000);
    let (video, mut audio) = (whole(Video), whole(Audio));
    let mut init = audio.0.as_ref().expect("an initialisation segment").to_vec();
    let at = init.windows(4).position(|four| four == b"mp4a").expect("a sample entry");
    init[at..at + 4].copy_from_slice(b"ec-3");
    audio.0 = Some(Bytes::from(init));
    let mut origin = Origin::new(&[video], &[audio], "#EXT-X-ENDLIST\n");
    let tags = origin.pull(&mut pull(), seconds(1));
    assert_eq!((count(&tags, Kind::Video), count(&tags, Kind::Audio)), (150, 0));
    assert!(origin.errors.iter().all(|error| *error == Error::AudioCodec && !error.is_final()));
    assert!(!origin.errors.is_empty());
}

#[test]
fn the_end_of_the_variant_ends_the_stream() {
    let whole = |kinds| [whole_of(kinds, Container::Ts, 0..6_000)];
    let mut origin = Origin::new(&whole(Video), &whole(Audio), "");
    let ended = [&origin.bodies["video"][..], b"#EXT-X-ENDLIST\n"].concat();
    origin.bodies.insert("video".to_owned(), Bytes::from(ended));
    let mut pull = pull();
    let tags = origin.pull(&mut pull, seconds(60));
    assert_eq!(pull.next(seconds(60)), Action::End);
    assert_eq!(count(&tags, Kind::Video), 150);
    // The audio starts three segments from its end.
    assert!(count(&tags, Kind::Audio) > 200, "{}", count(&tags, Kind::Audio));
}

#[test]
fn a_discontinuity_of_both_playlists_keeps_them_in_step() {
    let part = |range: core::ops::Range<u32>, kinds| whole_of(kinds, Container::Ts, range);
    let parts = |kinds| [part(500_000..504_000, kinds), part(0..4_000, kinds)];
    let (video, audio) = (parts(Video), parts(Audio));
    let tags = Origin::new(&video, &audio, "#EXT-X-ENDLIST\n").pull(&mut pull(), seconds(1));
    let times = |kind: Kind| -> Vec<u32> {
        let frames = tags.iter().filter(|tag| tag.kind() == kind && !tag.role().is_header());
        frames.map(Tag::timestamp).collect()
    };
    let (video, audio) = (times(Kind::Video), times(Kind::Audio));
    assert_eq!(video.len(), 200);
    for (step, times) in [(90, &video), (90, &audio)] {
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= step), "{times:?}");
    }
    let apart = |at: usize, of: usize| i64::from(video[at]) - i64::from(audio[of]);
    let last = apart(199, audio.len() - 1);
    assert!((apart(0, 0) - last).abs() < 60, "{} and {last}", apart(0, 0));
}

#[test]
fn a_wanted_language_that_is_missing_ends_the_pull() {
    let whole = |kinds| [whole_of(kinds, Container::Ts, 0..4_000)];
    let selection = Selection { variant: Choice::Highest, audio: Some("de".to_owned()) };
    let origin = Origin::new(&whole(Video), &whole(Audio), "");
    let mut pull = Pull::new(url(URL), selection);
    pull.next(seconds(0));
    let error = pull.on_response(&origin.bodies["media.m3u8"]).expect_err("no such rendition");
    assert_eq!((error, error.is_final()), (Error::Rendition, true));
}

#[test]
fn the_audio_rendition_alone_is_a_stream() {
    let whole = |kinds| [whole_of(kinds, Container::Fmp4, 0..4_000)];
    let selection = Selection { variant: Choice::AudioOnly, audio: Some("English".to_owned()) };
    let mut origin = Origin::new(&whole(Video), &whole(Audio), "#EXT-X-ENDLIST\n");
    let tags = origin.pull(&mut Pull::new(url(URL), selection), seconds(1));
    assert_eq!(count(&tags, Kind::Video), 0);
    assert!(count(&tags, Kind::Audio) > 180, "{}", count(&tags, Kind::Audio));
    assert!(!origin.requests.contains(&"video".to_owned()));
}

proptest! {
    #[test]
    fn requests_are_bounded_whatever_both_playlists_say(
        lists in proptest::collection::vec(
            (0..4_u64, 0..6_u64, any::<bool>(), any::<bool>()), 1..30),
    ) {
        let mut pull = pull();
        let (mut requests, mut tags) = (0, 0);
        for (now, (sequence, entries, ended, fails)) in lists.into_iter().enumerate() {
            let list = playlist(sequence, entries, if ended { "#EXT-X-ENDLIST\n" } else { "" });
            for _ in 0..40 {
                let Action::Fetch(request) = pull.next(seconds(now as u64 * 4)) else { break };
                let name = request.url.path().to_owned();
                requests += 1;
                if fails && requests % 3 == 0 {
                    let _ = pull.on_failure(seconds(now as u64 * 4));
                } else if name.ends_with("media.m3u8") {
                    pull.on_response(&Bytes::from(MASTER)).expect("a master");
                } else {
                    let body = if name.ends_with(".ts") { segment() } else { list.clone() };
                    tags += pull.on_response(&body).map_or(0, |tags| tags.len());
                }
            }
        }
        tags += pull.finish().len();
        prop_assert!(requests <= 30 * 40 && tags <= requests * 200, "{requests} {tags}");
    }
}
