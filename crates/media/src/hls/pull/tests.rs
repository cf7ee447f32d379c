//! The pull client with an origin, in virtual time.

mod audio;

use std::collections::HashMap;

use proptest::prelude::*;

use super::super::fixture;
use super::super::segmenter::{Container, Segmenter, SegmenterConfig, TrackSelection};
use super::feed::{PLAYLIST_TRIES, RETRY, SEGMENT_TRIES};
use super::*;
use crate::{Role, ts};

const URL: &str = "http://origin.test/live/media.m3u8";

fn url(text: &str) -> Url {
    Url::parse(text).expect("a URL")
}

fn pull() -> Pull {
    Pull::new(url(URL), Selection::default())
}

fn seconds(seconds: u64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

fn fetched(action: Action) -> String {
    match action {
        Action::Fetch(request) => request.url.into(),
        other => panic!("no fetch: {other:?}"),
    }
}

fn playlist(sequence: u64, count: u64, end: &str) -> Bytes {
    let mut text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:{sequence}\n");
    for msn in sequence..sequence + count {
        text += &format!("#EXTINF:4,\n{msn}.ts\n");
    }
    Bytes::from(text + end)
}

/// Answers requests until the pull waits or ends. Returns the names of the fetched resources.
fn answer(pull: &mut Pull, now: Timestamp, list: &Bytes) -> Vec<String> {
    let mut names = Vec::new();
    while let Action::Fetch(request) = pull.next(now) {
        let (_, name) = request.url.as_str().rsplit_once('/').expect("a path");
        names.push(name.to_owned());
        let body = if name.ends_with("m3u8") { list.clone() } else { segment() };
        pull.on_response(&body).expect("a good response");
        assert!(names.len() < 100, "no end: {names:?}");
    }
    names
}

/// Returns a transport stream segment of some frames.
fn segment() -> Bytes {
    Bytes::from(whole(Container::Ts, 0..1_000).1.concat())
}

/// Initialisation segment and segments.
type Whole = (Option<Bytes>, Vec<Vec<u8>>);

/// Returns the segments of a stream.
fn whole(container: Container, range: core::ops::Range<u32>) -> Whole {
    whole_of(TrackSelection::All, container, range)
}

/// Returns the segments of these tracks of a stream.
fn whole_of(tracks: TrackSelection, container: Container, range: core::ops::Range<u32>) -> Whole {
    let config = SegmenterConfig { container, tracks, window: 100, ..SegmenterConfig::default() };
    let mut segmenter = Segmenter::new(config);
    segmenter.push(&fixture::video_header(12), fixture::WALL);
    segmenter.push(&fixture::audio_header(), fixture::WALL);
    fixture::push(&mut segmenter, range, 25, true);
    segmenter.end();
    let body = |name| segmenter.segment(name).expect("complete").concat();
    let init = segmenter.inits().next().and_then(|id| segmenter.init(id));
    (init, segmenter.segments().map(body).collect())
}

#[test]
fn a_live_stream_starts_three_segments_from_the_end_and_reloads_by_target_duration() {
    let mut pull = pull();
    let now = seconds(10);
    assert_eq!(
        answer(&mut pull, now, &playlist(5, 6, "")),
        ["media.m3u8", "8.ts", "9.ts", "10.ts"]
    );
    assert_eq!(pull.next(now), Action::Wait(Duration::from_secs(4)));
    assert_eq!(answer(&mut pull, seconds(14), &playlist(6, 6, "")), ["media.m3u8", "11.ts"]);
    // Half the target duration without a new segment.
    assert_eq!(answer(&mut pull, seconds(18), &playlist(6, 6, "")), ["media.m3u8"]);
    assert_eq!(pull.next(seconds(18)), Action::Wait(Duration::from_secs(2)));
    // Missed segments have left the playlist.
    let names = answer(&mut pull, seconds(40), &playlist(20, 6, ""));
    assert_eq!(names, ["media.m3u8", "23.ts", "24.ts", "25.ts"]);
    // The origin restarts.
    let names = answer(&mut pull, seconds(50), &playlist(0, 2, ""));
    assert_eq!(names, ["media.m3u8", "0.ts", "1.ts"]);
    assert_eq!(answer(&mut pull, seconds(60), &playlist(0, 3, "#EXT-X-ENDLIST\n")).len(), 2);
    assert_eq!(pull.next(seconds(60)), Action::End);
}

#[test]
fn a_finished_stream_is_pulled_from_its_start() {
    let mut pull = pull();
    let list = playlist(0, 6, "#EXT-X-ENDLIST\n");
    assert_eq!(answer(&mut pull, seconds(0), &list).len(), 7);
    assert_eq!(pull.next(seconds(0)), Action::End);
}

#[test]
fn the_selected_variant_is_pulled() {
    let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1\nlo/a.m3u8\n\
                  #EXT-X-STREAM-INF:BANDWIDTH=3\n/hi.m3u8?x=1\n\
                  #EXT-X-STREAM-INF:BANDWIDTH=2\nmid\n";
    for (choice, expected) in [
        (Choice::Highest, "http://origin.test/hi.m3u8?x=1"),
        (Choice::First, "http://origin.test/live/lo/a.m3u8"),
    ] {
        let mut pull = Pull::new(url(URL), Selection { variant: choice, audio: None });
        assert_eq!(fetched(pull.next(seconds(0))), URL);
        assert_eq!(pull.on_response(&Bytes::from(master)), Ok(vec![]));
        assert_eq!(fetched(pull.next(seconds(0))), expected);
        // A master playlist as variant would be a loop.
        assert_eq!(pull.on_response(&Bytes::from(master)), Err(Error::Playlist));
        assert!(matches!(pull.next(seconds(0)), Action::Wait(_)));
    }
}

#[test]
fn a_redirect_applies_to_relative_urls_but_not_to_reloads() {
    let mut pull = pull();
    pull.next(seconds(0));
    pull.on_redirect(url("https://edge.test/token/x.m3u8?k=1"));
    pull.on_response(&playlist(0, 1, "")).expect("a good response");
    assert_eq!(fetched(pull.next(seconds(0))), "https://edge.test/token/0.ts");
    pull.on_response(&segment()).expect("a good response");
    assert_eq!(fetched(pull.next(seconds(4))), URL);
    // Without a redirect this time.
    pull.on_response(&playlist(0, 2, "")).expect("a good response");
    assert_eq!(fetched(pull.next(seconds(4))), "http://origin.test/live/1.ts");
}

#[test]
fn a_playlist_that_downgrades_to_http_ends_the_pull() {
    let mut pull = Pull::new(url("https://origin.test/x.m3u8"), Selection::default());
    pull.next(seconds(0));
    let list = "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXTINF:4,\nhttp://origin.test/0.ts\n";
    let error = pull.on_response(&Bytes::from(list)).expect_err("rejected");
    assert_eq!((error, error.is_final()), (Error::Reference, true));
}

#[test]
fn a_failing_segment_is_retried_and_then_skipped() {
    let mut pull = pull();
    let mut now = seconds(0);
    pull.next(now);
    pull.on_response(&playlist(0, 3, "#EXT-X-ENDLIST\n")).expect("a good response");
    for failure in 1..=SEGMENT_TRIES {
        assert_eq!(fetched(pull.next(now)), "http://origin.test/live/0.ts");
        if failure == SEGMENT_TRIES {
            assert_eq!(pull.on_failure(now), Ok(FailureOutcome::Skipped));
        } else {
            assert_eq!(pull.on_failure(now), Ok(FailureOutcome::Retry));
            let Action::Wait(time) = pull.next(now) else { panic!("no wait") };
            now += time;
        }
    }
    assert!(now < seconds(1), "soon enough for viewers: {now:?}");
    // An invalid segment is skipped at once.
    assert_eq!(fetched(pull.next(now)), "http://origin.test/live/1.ts");
    assert_eq!(pull.on_response(&Bytes::from("no media")), Err(Error::Ts(ts::read::Error::Sync)));
    assert_eq!(fetched(pull.next(now)), "http://origin.test/live/2.ts");
    assert!(!pull.on_response(&segment()).expect("a good response").is_empty());
    assert_eq!(pull.next(now), Action::End);
    assert_eq!(pull.on_response(&Bytes::new()), Err(Error::Unsolicited));
}

#[test]
fn a_failing_playlist_is_retried_with_growing_waits() {
    let mut pull = pull();
    let mut now = seconds(0);
    let mut waits = Vec::new();
    for failure in 1..=10 {
        assert_eq!(fetched(pull.next(now)), URL);
        assert_eq!(pull.on_failure(now).is_err(), failure >= PLAYLIST_TRIES, "{failure}");
        let Action::Wait(time) = pull.next(now) else { panic!("no wait") };
        waits.push(time);
        now += time;
    }
    assert!(waits.is_sorted() && waits[0] < waits[3], "{waits:?}");
    assert_eq!(waits.last(), Some(&(RETRY * 16)), "with a limit");
    pull.next(now);
    pull.on_response(&playlist(0, 1, "")).expect("a good response");
    assert_eq!(fetched(pull.next(now)), "http://origin.test/live/0.ts");
}

#[test]
fn unsupported_codecs_are_reported_once_each() {
    let mut pull = pull();
    pull.next(seconds(0));
    let master = "#EXTM3U\n#EXT-X-STREAM-INF:BANDWIDTH=1,CODECS=\"avc1.64001f,ec-3\"\nlo\n";
    pull.on_response(&Bytes::from(master)).expect("a good response");
    assert_eq!(pull.poll_unsupported(), Some("ec-3"));
    assert_eq!(pull.poll_unsupported(), None);
}

#[test]
fn a_discontinuity_before_a_gap_is_kept() {
    let (first, second) =
        (whole(Container::Ts, 0..2_000).1, whole(Container::Ts, 12_000..14_000).1);
    let bodies = [("a.ts", &first[0]), ("b.ts", &second[0])]
        .map(|(name, body)| (name.to_owned(), Bytes::from(body.clone())));
    let list = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\na.ts\n#EXT-X-DISCONTINUITY\n\
                #EXT-X-GAP\n#EXTINF:2,\nx.ts\n#EXTINF:2,\nb.ts\n#EXT-X-ENDLIST\n";
    let tags = tags_of(list, &HashMap::from(bodies));
    let length = tags[tags.len() - 1].timestamp() - tags[0].timestamp();
    assert!(length < 4_100, "{length} ms");
}

/// Pulls the segments of a playlist.
fn tags_of(list: &str, bodies: &HashMap<String, Bytes>) -> Vec<Tag> {
    let mut pull = pull();
    let mut tags = Vec::new();
    while let Action::Fetch(request) = pull.next(seconds(0)) {
        let (_, name) = request.url.as_str().rsplit_once('/').expect("a path");
        let body = bodies.get(name).cloned().unwrap_or_else(|| Bytes::from(list.to_owned()));
        tags.extend(pull.on_response(&body).expect("a good response"));
    }
    tags
}

#[test]
fn a_discontinuity_continues_the_timeline() {
    let (first, second) =
        (whole(Container::Ts, 0..2_000).1, whole(Container::Ts, 12_000..14_000).1);
    let bodies = [("a.ts", &first[0]), ("b.ts", &second[0])]
        .map(|(name, body)| (name.to_owned(), Bytes::from(body.clone())));
    let list = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\na.ts\n#EXT-X-DISCONTINUITY\n\
                #EXTINF:2,\nb.ts\n#EXT-X-ENDLIST\n";
    let tags = tags_of(list, &HashMap::from(bodies));
    let frames: Vec<u32> = tags
        .iter()
        .filter(|tag| matches!(tag.role(), Role::KeyFrame | Role::InterFrame))
        .map(Tag::timestamp)
        .collect();
    assert_eq!(frames.len(), 100);
    let steps = frames.windows(2).map(|pair| pair[1] - pair[0]);
    assert!(steps.clone().all(|step| (40..=70).contains(&step)), "{frames:?}");
    let headers = tags.iter().filter(|tag| tag.role() == Role::SequenceHeader).count();
    assert_eq!(headers, 2, "the same headers once each");
}

#[test]
fn a_pulled_stream_equals_the_segmented_one() {
    for container in [Container::Ts, Container::Fmp4] {
        let (init, segments) = whole(container, 0..6_000);
        let mut list = String::from("#EXTM3U\n#EXT-X-TARGETDURATION:2\n");
        let mut bodies = HashMap::new();
        if let Some(init) = init {
            list += "#EXT-X-MAP:URI=\"i\"\n";
            bodies.insert("i".to_owned(), init);
        }
        for (number, body) in segments.into_iter().enumerate() {
            list += &format!("#EXTINF:2,\n{number}\n");
            bodies.insert(number.to_string(), Bytes::from(body));
        }
        let tags = tags_of(&(list + "#EXT-X-ENDLIST\n"), &bodies);
        let frames = |key| tags.iter().filter(|tag| tag.role() == key).count();
        assert_eq!((frames(Role::KeyFrame), frames(Role::InterFrame)), (6, 144), "{container:?}");
        assert_eq!(tags[0].role(), Role::SequenceHeader);
        let header = tags.iter().find(|tag| tag.role() == Role::SequenceHeader);
        assert_eq!(header.map(Tag::payload), Some(fixture::video_header(12).payload()));
        let first = tags.iter().find(|tag| tag.role() == Role::KeyFrame);
        assert_eq!(first.map(Tag::payload), Some(fixture::frame(0, true).payload()));
        assert!(tags.is_sorted_by_key(Tag::timestamp), "{container:?}");
    }
}

#[test]
fn oversized_responses_are_rejected() {
    let mut pull = pull();
    let Action::Fetch(request) = pull.next(seconds(0)) else { panic!("no fetch") };
    let body = Bytes::from(vec![b'#'; request.max_bytes + 1]);
    assert_eq!(pull.on_response(&body), Err(Error::TooLarge));
}

proptest! {
    #[test]
    fn damaged_segments_never_panic(
        ts in any::<bool>(),
        damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..12),
        cut in any::<proptest::sample::Index>(),
        in_init in any::<bool>(),
    ) {
        let container = if ts { Container::Ts } else { Container::Fmp4 };
        let (init, segments) = whole(container, 0..1_200);
        let mut init = init.map_or(Vec::new(), |init| init.to_vec());
        let mut body = segments[0].clone();
        let harmed = if in_init && !init.is_empty() { &mut init } else { &mut body };
        for (at, byte) in &damage {
            let at = at.index(harmed.len());
            harmed[at] = *byte;
        }
        if damage.len() > 8 {
            harmed.truncate(cut.index(harmed.len()));
        }
        let mut pull = pull();
        let map = if ts { "" } else { "#EXT-X-MAP:URI=\"i\"\n" };
        let list = format!(
            "#EXTM3U\n#EXT-X-TARGETDURATION:2\n{map}#EXTINF:2,\na\n#EXTINF:2,\nb\n#EXT-X-ENDLIST\n"
        );
        let (init, body) = (Bytes::from(init), Bytes::from(body));
        let mut bytes = 0;
        while let Action::Fetch(request) = pull.next(seconds(0)) {
            let response = match request.url.as_str().rsplit_once('/') {
                Some((_, "i")) => init.clone(),
                Some((_, "a" | "b")) => body.clone(),
                _ => Bytes::from(list.clone()),
            };
            let tags = pull.on_response(&response).unwrap_or_default();
            bytes += tags.iter().map(|tag| tag.bytes().len()).sum::<usize>();
        }
        // Two segments, with the overhead of a tag per sample.
        prop_assert!(bytes < 8 * body.len() + 4_000, "{bytes} of {}", body.len());
    }

    #[test]
    fn damaged_playlists_never_panic(
        damage in proptest::collection::vec(
            (any::<proptest::sample::Index>(), any::<char>()), 1..8),
    ) {
        let text = "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXT-X-MEDIA-SEQUENCE:7\n\
            #EXT-X-MAP:URI=\"i\",BYTERANGE=\"5@6\"\n#EXT-X-BYTERANGE:5@6\n#EXTINF:2,\na\n\
            #EXT-X-DISCONTINUITY\n#EXT-X-BYTERANGE:5\n#EXTINF:2,\na\n#EXT-X-STREAM-INF:BANDWIDTH=5,\
            CODECS=\"a\"\nv\n";
        let mut text: Vec<char> = text.chars().collect();
        for (at, character) in damage {
            let at = at.index(text.len());
            text[at] = character;
        }
        let text = Bytes::from(text.into_iter().collect::<String>());
        let mut pull = pull();
        for now in 0..20 {
            if let Action::Fetch(_) = pull.next(seconds(now)) {
                let _ = pull.on_response(&text);
            }
        }
    }
}

#[test]
fn a_sliding_playlist_without_numbers_continues_after_the_known_segments() {
    let body = Bytes::from(whole(Container::Ts, 0..2_000).1[0].clone());
    let mut pull = pull();
    let list = |first: u32| {
        let segments = (first..first + 6).map(|n| format!("#EXTINF:2,\n{n}.ts\n"));
        let text = format!("#EXTM3U\n#EXT-X-TARGETDURATION:2\n{}", segments.collect::<String>());
        Bytes::from(text)
    };
    let mut fetched = Vec::new();
    for (reload, first) in [(0, 0), (1, 1), (2, 3), (3, 3), (4, 20)] {
        let mut answered = false;
        while let Action::Fetch(request) = pull.next(seconds(10 * reload)) {
            let is_list = request.kind == Subject::Playlist;
            if is_list && core::mem::replace(&mut answered, true) {
                break;
            }
            let (_, name) = request.url.as_str().rsplit_once('/').expect("a path");
            fetched.extend((!is_list).then(|| name.to_owned()));
            pull.on_response(&if is_list { list(first) } else { body.clone() }).expect("of use");
        }
    }
    let names = [3, 4, 5, 6, 7, 8, 23, 24, 25].map(|n| format!("{n}.ts"));
    assert_eq!(fetched[..6], names[..6]);
    assert_eq!(fetched.last(), names.last());
}
