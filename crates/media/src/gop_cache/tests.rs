//! Retention and eviction of the cache.

use super::*;

const VIDEO_HEADER: [u8; 6] = [0x17, 0, 0, 0, 0, 1];
const AUDIO_HEADER: [u8; 4] = [0xaf, 0, 0x12, 0x10];

fn tag(kind: Kind, timestamp: u32, payload: &[u8]) -> Tag {
    Tag::new(kind, timestamp, payload).expect("short enough")
}

fn key(timestamp: u32) -> Tag {
    tag(Kind::Video, timestamp, &[0x17, 1, 0, 0, 0, 9])
}

fn inter(timestamp: u32) -> Tag {
    tag(Kind::Video, timestamp, &[0x27, 1, 0, 0, 0, 9])
}

fn cache(groups: usize, bytes: usize) -> GopCache {
    let mut cache = GopCache::new(CacheLimits { groups, bytes });
    cache.push(tag(Kind::Video, 0, &VIDEO_HEADER));
    cache.push(tag(Kind::Audio, 0, &AUDIO_HEADER));
    cache
}

fn starts(cache: &GopCache) -> Vec<u64> {
    cache.groups().map(|group| group.start).collect()
}

#[test]
fn the_newest_groups_are_kept() {
    let mut cache = cache(2, 1 << 20);
    for gop in 0..5 {
        cache.push(key(gop * 100));
        (1..10).for_each(|frame| assert!(cache.push(inter(gop * 100 + frame))));
    }
    assert_eq!(starts(&cache), [32, 42]);
    assert_eq!((cache.base(), cache.head()), (32, 52));
    assert_eq!(cache.get(31), None);
    assert_eq!(cache.get(42).map(Tag::timestamp), Some(400));
    assert_eq!(cache.newest().map(Tag::timestamp), Some(409));
    let headers = cache.groups().next().expect("a group").headers.clone();
    assert_eq!(headers.tags().count(), 2);
}

#[test]
fn publishers_without_frames_leave_no_tags() {
    let mut cache = cache(2, 1 << 20);
    cache.push(key(0));
    cache.push(inter(40));
    for n in 1..1_000 {
        cache.on_publisher();
        assert_eq!(starts(&cache) == [2], n < 2, "the last pictures stay until one has failed");
        cache.push(tag(Kind::Video, 0, &VIDEO_HEADER));
        cache.push(tag(Kind::Audio, 0, &AUDIO_HEADER));
        assert!(cache.head() - cache.base() <= 8, "{n}: {} to {}", cache.base(), cache.head());
    }
    assert!(cache.push(key(80)));
    assert_eq!(starts(&cache).len(), 1);
}

#[test]
fn the_byte_limit_is_hard() {
    let size = key(0).bytes().len();
    let mut cache = cache(2, 10 * size);
    cache.push(key(0));
    (1..100).for_each(|time| assert!(cache.push(inter(time))));
    assert_eq!((cache.bytes(), starts(&cache)), (10 * size, vec![]));
    assert_eq!(cache.overflows(), 1);
    cache.push(key(100));
    assert_eq!(starts(&cache), [cache.head() - 1], "the next key frame is a start again");
    // A single tag may exceed the limit.
    cache.push(tag(Kind::Video, 101, &vec![0x27; 20 * size]));
    assert_eq!(cache.head() - cache.base(), 1);
}

#[test]
fn eviction_stops_before_the_newest_group() {
    let mut cache = cache(4, 1 << 20);
    for gop in 0..4 {
        cache.push(key(gop * 100));
        (1..10).for_each(|frame| assert!(cache.push(inter(gop * 100 + frame))));
    }
    let held = cache.memory();
    assert!(held > cache.bytes());
    cache.shed(0);
    assert_eq!((cache.memory(), starts(&cache).len()), (held, 4));
    cache.shed(1);
    assert_eq!((starts(&cache).len(), cache.base()), (4, 2), "headers stand before them");
    cache.shed(1);
    assert_eq!(starts(&cache).len(), 3, "whole groups");
    cache.shed(usize::MAX);
    assert_eq!(starts(&cache), [cache.base()], "the newest one stays");
    assert_eq!(cache.head() - cache.base(), 10);
    // Tags before the only start are useless to joining viewers.
    let size = key(0).bytes().len();
    let mut cache = self::cache(2, 10 * size);
    cache.push(key(0));
    (1..20).for_each(|time| assert!(cache.push(inter(time))));
    cache.push(key(100));
    cache.shed(1);
    assert_eq!((starts(&cache), cache.head() - cache.base()), (vec![cache.base()], 1));
    assert_eq!(cache.overflows(), 1, "nothing that was shed counts as one");
}

#[test]
fn a_cut_drops_the_start_of_a_group_and_keeps_the_newest_tag() {
    let mut cache = cache(2, 1 << 20);
    cache.push(key(0));
    (1..100).for_each(|time| assert!(cache.push(inter(time))));
    let half = cache.memory() / 2;
    cache.cut(half);
    assert!(cache.memory() <= half && cache.memory() > half - 200);
    assert_eq!((starts(&cache), cache.overflows()), (vec![], 1));
    cache.cut(0);
    assert_eq!(cache.newest().map(Tag::timestamp), Some(99));
    assert_eq!(cache.head() - cache.base(), 1);
}

#[test]
fn memory_includes_headers_and_the_overhead_of_tags() {
    let mut cache = cache(2, 1 << 20);
    cache.push(tag(Kind::Script, 0, &[&b"\x02\x00\x0aonMetaData"[..], &[0; 4_000]].concat()));
    assert!(cache.headers().metadata.is_some());
    (0..3).for_each(|time| assert!(cache.push(key(time))));
    assert!(cache.bytes() < 1_000, "its tag is gone");
    assert!(cache.memory() > 4_000, "and it is kept as a header");
    let small = |number| tag(Kind::Audio, number, &[0xaf, 1]);
    let before = cache.memory();
    (0..1_000).for_each(|number| assert!(cache.push(small(number))));
    assert!(cache.memory() - before > 1_000 * size_of::<Tag>());
}

#[test]
fn a_group_keeps_the_headers_of_its_start() {
    let mut cache = cache(3, 1 << 20);
    cache.push(key(0));
    let new = tag(Kind::Video, 10, &[0x17, 0, 0, 0, 0, 2]);
    cache.push(new.clone());
    cache.push(key(20));
    let videos: Vec<_> = cache.groups().filter_map(|group| group.headers.video.clone()).collect();
    assert_eq!(videos, [tag(Kind::Video, 0, &VIDEO_HEADER), new]);
}

#[test]
fn repeated_headers_are_dropped() {
    let mut cache = cache(2, 1 << 20);
    assert!(!cache.push(tag(Kind::Video, 50, &VIDEO_HEADER)));
    assert_eq!(cache.head(), 2);
}

#[test]
fn an_audio_only_stream_has_groups() {
    let mut cache = GopCache::new(CacheLimits { groups: 2, bytes: 1 << 20 });
    cache.push(tag(Kind::Audio, 0, &AUDIO_HEADER));
    assert_eq!(cache.kinds(), None);
    for frame in 0..200 {
        cache.push(tag(Kind::Audio, frame * 20, &[0xaf, 1, 7]));
    }
    let times: Vec<_> = cache.groups().map(|group| group.timestamp).collect();
    assert_eq!(times, [2_000, 3_000]);
    assert_eq!(cache.kinds(), Some((true, false)));
}

fn audio_frame(timestamp: u32) -> Tag {
    tag(Kind::Audio, timestamp, &[0xaf, 1, 7])
}

/// Returns the tags from this number on.
fn since(cache: &GopCache, number: u64) -> Vec<&Tag> {
    (number..cache.head()).map_while(|number| cache.get(number)).collect()
}

#[test]
fn the_last_key_frame_of_stopped_video_is_repeated_until_the_next_one() {
    let mut cache = cache(2, 1 << 20);
    cache.push(key(0));
    (1..50).for_each(|frame| assert!(cache.push(inter(frame * 40))));
    // Half a second ahead of its video.
    let audio_frame = |frame: u32| audio_frame(2_460 + frame * 20);
    (0..250).for_each(|frame| assert!(cache.push(audio_frame(frame))));
    assert_eq!(starts(&cache), [2]);
    let head = cache.head();
    (250..600).for_each(|frame| assert!(cache.push(audio_frame(frame))));
    assert_eq!(cache.kinds(), Some((true, true)));
    let video = |tag: &&&Tag| tag.kind() == Kind::Video;
    let tags = since(&cache, head);
    let repeated: Vec<_> = tags.iter().filter(video).collect();
    assert!(repeated.iter().all(|still| still.payload() == key(0).payload()));
    let times: Vec<_> = repeated.iter().map(|still| still.timestamp()).collect();
    let expected: Vec<_> = (0..24).map(|number| 6_960 + number * KEY_FRAME_REPEAT_MS).collect();
    assert_eq!(times[..], expected[expected.len() - times.len()..], "in the video's time");
    let groups: Vec<_> = cache.groups().map(|group| group.timestamp).collect();
    assert_eq!(groups, [11_760, 12_960], "joining viewers start at recent audio");
    // Video that resumes in the middle of a group cannot be decoded.
    assert!(!cache.push(inter(13_700)));
    let head = cache.head();
    assert!(cache.push(key(13_840)) && cache.push(inter(13_880)));
    let times: Vec<_> = since(&cache, head).iter().map(|tag| tag.timestamp()).collect();
    assert_eq!(times, [13_860, 13_880], "not before the last still");
    let at = cache.groups().count();
    (600..640).for_each(|frame| assert!(cache.push(audio_frame(frame))));
    assert_eq!(cache.groups().count(), at, "audio starts no group");
    assert!(since(&cache, head + 2).iter().all(|tag| tag.kind() == Kind::Audio));
}

#[test]
fn repetition_of_key_frames_is_limited_by_the_amount_of_audio() {
    let mut cache = cache(2, 8 << 20);
    let large = tag(Kind::Video, 0, &[&[0x17, 1, 0, 0, 0][..], &vec![7; 100_000]].concat());
    cache.push(large.clone());
    let (mut repeated, mut audio_frames, mut head) = (0, 0, cache.head());
    // Independent of timestamps.
    for frame in 0..10_000 {
        cache.push(audio_frame(frame * 1_000));
        audio_frames += audio_frame(0).bytes().len();
        let new = since(&cache, head).iter().filter(|tag| tag.kind() == Kind::Video).count();
        (repeated, head) = (repeated + new * large.bytes().len(), cache.head());
    }
    assert!(
        (MAX_REPEAT_RATIO / 2..=MAX_REPEAT_RATIO).contains(&(repeated / audio_frames)),
        "{repeated}"
    );
}

#[test]
fn video_without_a_key_frame_is_removed_until_it_has_one() {
    let mut cache = GopCache::new(CacheLimits { groups: 2, bytes: 1 << 20 });
    cache.push(tag(Kind::Video, 0, &VIDEO_HEADER));
    cache.push(tag(Kind::Audio, 0, &AUDIO_HEADER));
    (0..250).for_each(|frame| assert!(cache.push(audio_frame(frame * 20))));
    assert_eq!((cache.kinds(), starts(&cache)), (Some((true, true)), vec![]));
    (250..600).for_each(|frame| assert!(cache.push(audio_frame(frame * 20))));
    assert_eq!(cache.kinds(), Some((true, false)));
    let newest = cache.groups().next_back().expect("a group").headers.clone();
    assert_eq!((newest.video.is_some(), newest.audio.is_some()), (false, true));
    let head = cache.head();
    assert!(cache.push(key(12_040)) && cache.push(inter(12_080)));
    let header = cache.get(head).expect("a header for viewers who joined meanwhile");
    assert_eq!((header.role(), header.timestamp()), (Role::SequenceHeader, 12_040));
    let newest = cache.groups().next_back().expect("a group").clone();
    assert_eq!((newest.start, newest.timestamp), (head + 1, 12_040));
    assert!(newest.headers.video.is_some());
}

#[test]
fn a_repeated_header_does_not_restore_stopped_video() {
    let mut cache = GopCache::new(CacheLimits { groups: 2, bytes: 1 << 20 });
    cache.push(tag(Kind::Video, 0, &VIDEO_HEADER));
    cache.push(tag(Kind::Audio, 0, &AUDIO_HEADER));
    (0..400).for_each(|frame| assert!(cache.push(audio_frame(frame * 20))));
    assert!(!cache.push(tag(Kind::Video, 8_000, &VIDEO_HEADER)));
    assert_eq!(cache.kinds(), Some((true, false)));
    // A different header is kept, and applies to the frames after it.
    assert!(cache.push(tag(Kind::Video, 8_000, &[0x17, 0, 0, 0, 0, 3])));
    assert!(cache.push(key(8_040)));
    let headers = cache.groups().next_back().expect("a group").headers.clone();
    assert_eq!(headers.video.as_ref().map(|tag| tag.payload()[5]), Some(3));
}

#[test]
fn a_key_frame_is_not_repeated_after_a_new_header_or_publisher() {
    let mut cache = cache(2, 1 << 20);
    cache.push(key(0));
    assert!(cache.push(tag(Kind::Video, 40, &[0x17, 0, 0, 0, 0, 3])));
    (0..400).for_each(|frame| assert!(cache.push(audio_frame(frame * 20))));
    assert_eq!(cache.kinds(), Some((true, false)));
    assert!(cache.push(key(8_040)));
    cache.on_publisher();
    let head = cache.head();
    cache.push(tag(Kind::Audio, 8_080, &AUDIO_HEADER));
    (0..400).for_each(|frame| assert!(cache.push(audio_frame(8_100 + frame * 20))));
    assert_eq!(cache.kinds(), Some((true, false)));
    assert!(since(&cache, head).iter().all(|tag| tag.kind() == Kind::Audio));
}

#[test]
fn distant_audio_does_not_end_video() {
    for ahead in [0, 20_000] {
        let mut cache = cache(2, 1 << 20);
        for at in (0..20_000).step_by(40) {
            cache.push(if at == 0 { key(10_000) } else { inter(10_000 + at) });
            cache.push(audio_frame(at + ahead));
        }
        assert_eq!((cache.kinds(), starts(&cache)), (Some((true, true)), vec![2]));
    }
}

#[test]
fn a_new_publisher_starts_with_its_own_headers_and_key_frame() {
    let mut cache = cache(2, 1 << 20);
    cache.push(key(0));
    cache.on_publisher();
    assert_eq!((cache.kinds(), cache.headers().tags().count()), (None, 0));
    // The same header is needed again: tags in between are unknown.
    assert!(cache.push(tag(Kind::Video, 40, &VIDEO_HEADER)));
    assert!(!cache.push(inter(40)));
    assert!(cache.push(key(80)) && cache.push(inter(120)));
    let headers = cache.groups().next_back().expect("a group").headers.clone();
    assert_eq!(headers.tags().count(), 1, "no audio so far");
    assert_eq!(cache.kinds(), Some((false, true)));
    // A publisher that continues the stream of the previous one.
    cache.on_publisher();
    cache.resume();
    assert!(cache.push(inter(160)));
}

#[test]
fn a_new_publisher_without_video_can_be_joined_at_its_audio() {
    let mut cache = cache(2, 1 << 20);
    cache.push(key(0));
    cache.on_publisher();
    cache.push(tag(Kind::Audio, 40, &AUDIO_HEADER));
    (2..200).for_each(|frame| assert!(cache.push(audio_frame(frame * 20))));
    assert_eq!(cache.kinds(), Some((true, false)));
    let times: Vec<_> = cache.groups().map(|group| group.timestamp).collect();
    assert_eq!(times, [2_000, 3_000]);
}

/// Whether the headers of the newest group include audio.
fn announces_audio(cache: &GopCache) -> bool {
    cache.groups().next_back().is_some_and(|group| group.headers.audio.is_some())
}

#[test]
fn audio_that_never_arrives_is_not_announced() {
    let mut cache = cache(2, 1 << 20);
    cache.push(key(0));
    (1..=25).for_each(|frame| assert!(cache.push(inter(frame * 40))));
    let first = cache.groups().next().expect("a group").headers.clone();
    assert_eq!((cache.kinds(), first.audio.is_some()), (Some((false, true)), false));
    assert!(!cache.push(tag(Kind::Audio, 1_040, &AUDIO_HEADER)), "it is known");
    cache.push(key(1_080));
    assert!(!announces_audio(&cache));
    // The stream starts with its header, for viewers who joined earlier.
    let head = cache.head();
    assert!(cache.push(audio_frame(1_090)));
    let roles: Vec<_> = since(&cache, head).iter().map(|tag| tag.role()).collect();
    assert_eq!(roles, [Role::SequenceHeader, Role::AudioFrame]);
    cache.push(key(1_120));
    assert_eq!((cache.kinds(), announces_audio(&cache)), (Some((true, true)), true));
}

#[test]
fn kinds_are_unknown_while_audio_is_expected() {
    let mut cache = cache(2, 1 << 20);
    cache.push(key(0));
    cache.push(inter(960));
    assert_eq!((cache.kinds(), announces_audio(&cache)), (None, true));
    let head = cache.head();
    cache.push(audio_frame(20));
    assert_eq!((cache.kinds(), since(&cache, head).len()), (Some((true, true)), 1));
}

#[test]
fn stopped_audio_is_announced_until_a_timeout() {
    let mut cache = cache(2, 1 << 20);
    cache.push(audio_frame(0));
    for at in (0..=5_000).step_by(40) {
        cache.push(if at % 1_000 == 0 { key(at) } else { inter(at) });
        assert_eq!(cache.kinds(), Some((at < 5_000, true)), "at {at}");
    }
    cache.push(key(5_040));
    assert!(!announces_audio(&cache));
    // A different header announces audio again.
    assert!(cache.push(tag(Kind::Audio, 5_050, &[0xaf, 0, 0x11, 0x90])));
    assert_eq!(cache.kinds(), None);
    (0..=25).for_each(|frame| assert!(cache.push(inter(5_080 + frame * 40))));
    assert_eq!(cache.kinds(), Some((false, true)));
}
