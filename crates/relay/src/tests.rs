//! Viewers of streams, as they come, fall behind and leave.

use core::task::{Context, Poll, Waker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Wake;

use media::{GopCache, Kind, Limits, Role, Tag};

use crate::*;

/// Frames of 40 ms in groups of a second.
const FRAMES: u32 = 25;

fn tag(kind: Kind, time: u32, payload: &[u8]) -> Tag {
    Tag::new(kind, time, payload).expect("short enough")
}

fn frame(number: u32) -> Tag {
    let first = if number.is_multiple_of(FRAMES) { 0x17 } else { 0x27 };
    tag(Kind::Video, number * 40, &[first, 1, 0, 0, 0, number as u8])
}

fn header(version: u8) -> Tag {
    tag(Kind::Video, 0, &[0x17, 0, 0, 0, 0, version])
}

fn settings() -> Settings {
    Settings { max_lag_ms: 3_000, ..Settings::default() }
}

struct Setup {
    registry: Registry,
    publisher: Publisher,
    start: Start,
    frames: u32,
}

impl Setup {
    fn new(start: Start, settings: Settings) -> Self {
        let registry = Registry::new(10);
        let publisher = registry.publish("live/demo", settings).expect("free");
        assert!(publisher.push(header(1)));
        Self { registry, publisher, start, frames: 0 }
    }

    fn publish(&mut self, frames: u32) {
        for number in self.frames..self.frames + frames {
            assert!(self.publisher.push(frame(number)));
        }
        self.frames += frames;
    }

    fn viewer(&self) -> Viewer {
        Viewer::new(self.publisher.stream().clone(), self.start).expect("room")
    }
}

/// All that the viewer gets now, as (role, time).
fn pull(viewer: &mut Viewer) -> Vec<(Role, u32)> {
    let mut context = Context::from_waker(Waker::noop());
    let mut got = Vec::new();
    while let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) {
        got.push((tag.role(), tag.timestamp()));
    }
    got
}

fn is_over(viewer: &mut Viewer) -> bool {
    viewer.poll_next(&mut Context::from_waker(Waker::noop())) == Poll::Ready(None)
}

#[test]
fn a_viewer_knows_how_long_ago_its_frame_came() {
    let mut setup = Setup::new(Start::Oldest, settings());
    setup.publish(60);
    let mut viewer = setup.viewer();
    assert_eq!(viewer.lag_ms(), 0);
    let mut context = Context::from_waker(Waker::noop());
    // A header, then the first frames of the oldest group that is kept.
    for lag in [1_360, 1_360, 1_320, 1_280] {
        assert!(viewer.poll_next(&mut context).is_ready());
        assert_eq!(viewer.lag_ms(), lag);
    }
    pull(&mut viewer);
    assert_eq!(viewer.lag_ms(), 0);
}

#[test]
fn the_latest_group_comes_at_once_and_then_what_is_live() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(60);
    let mut viewer = setup.viewer();
    let got = pull(&mut viewer);
    assert_eq!(got[..2], [(Role::SequenceHeader, 0), (Role::KeyFrame, 2_000)]);
    assert_eq!((got.len(), got.last()), (11, Some(&(Role::InterFrame, 2_360))));
    setup.publish(1);
    assert_eq!(pull(&mut viewer), [(Role::InterFrame, 2_400)]);
}

#[test]
fn a_start_at_a_key_frame_waits_for_the_next_one() {
    let mut setup = Setup::new(Start::KeyFrame, settings());
    setup.publish(60);
    let mut viewer = setup.viewer();
    assert_eq!(pull(&mut viewer), [(Role::SequenceHeader, 0)], "decoders can be set up");
    setup.publish(14);
    assert_eq!(pull(&mut viewer), []);
    setup.publish(2);
    let live = [(Role::InterFrame, 2_960), (Role::KeyFrame, 3_000)];
    assert_eq!(pull(&mut viewer), live[1..]);
}

#[test]
fn a_start_with_low_delay_takes_what_is_nearer() {
    let mut setup = Setup::new(Start::LowDelay, settings());
    setup.publish(60);
    assert_eq!(pull(&mut setup.viewer()).len(), 11, "the group is young");
    setup.publish(10);
    assert_eq!(pull(&mut setup.viewer()).len(), 1, "the next one is near");
}

#[test]
fn a_packager_gets_all_that_is_kept() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(60);
    let stream = setup.publisher.stream().clone();
    let mut viewer = Viewer::packager(stream).expect("room");
    assert_eq!(pull(&mut viewer).len(), 1 + 35);
}

#[test]
fn a_packager_leaves_nothing_out_that_is_kept_however_long_groups_are() {
    let registry = Registry::new(10);
    let publisher = registry.publish("live/demo", settings()).expect("free");
    publisher.push(header(1));
    // Groups of 10 s, and a lag of 3 s at most for those who watch.
    for number in 0..450_u32 {
        let first = if number.is_multiple_of(250) { 0x17 } else { 0x27 };
        publisher.push(tag(Kind::Video, number * 40, &[first, 1, 0, 0, 0, 9]));
    }
    let mut packager = Viewer::packager(publisher.stream().clone()).expect("room");
    let got = pull(&mut packager);
    assert_eq!((got.len(), got[1]), (1 + 450, (Role::KeyFrame, 0)));
    assert_eq!(publisher.stream().stats().skips, 0);
}

#[test]
fn viewers_may_come_before_the_publisher() {
    let registry = Registry::new(10);
    let stream = registry.open("live/demo", settings());
    let mut viewer = Viewer::new(stream, Start::LatestGop).expect("room");
    assert_eq!(pull(&mut viewer), []);
    let publisher = registry.publish("live/demo", settings()).expect("free");
    publisher.push(header(1));
    publisher.push(frame(0));
    assert_eq!(pull(&mut viewer), [(Role::SequenceHeader, 0), (Role::KeyFrame, 0)]);
}

#[test]
fn a_viewer_that_falls_behind_skips_to_the_newest_key_frame() {
    let cache = Limits { groups: 10, bytes: 1 << 20 };
    let mut setup = Setup::new(Start::LatestGop, Settings { cache, ..settings() });
    setup.publish(5);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    // Three seconds are borne.
    setup.publish(75);
    let got = pull(&mut viewer);
    assert_eq!((got.len(), got[0]), (75, (Role::InterFrame, 200)));
    assert_eq!(viewer.progress().skips, 0);
    setup.publish(100);
    assert_eq!(pull(&mut viewer)[0], (Role::KeyFrame, 7_000));
    let progress = viewer.progress();
    assert_eq!((progress.skips, progress.skipped_ms), (1, 7_000 - 3_160));
    assert_eq!(setup.publisher.stream().stats().skips, 1);
}

#[test]
fn what_is_no_longer_kept_is_skipped() {
    let cache = Limits { groups: 1, bytes: 1 << 20 };
    let mut setup = Setup::new(Start::LatestGop, Settings { cache, ..settings() });
    setup.publish(5);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    setup.publish(22);
    let got = pull(&mut viewer);
    assert_eq!(got, [(Role::KeyFrame, 1_000), (Role::InterFrame, 1_040)]);
    assert_eq!((viewer.progress().skips, viewer.progress().skipped_ms), (1, 1_000 - 160));
}

#[test]
fn without_a_key_frame_that_is_kept_the_next_one_is_waited_for() {
    // Room for three frames.
    let size = frame(0).bytes().len();
    let cache = Limits { groups: 2, bytes: 3 * size };
    let mut setup = Setup::new(Start::LatestGop, Settings { cache, ..settings() });
    setup.publish(1);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    setup.publish(10);
    assert_eq!(pull(&mut viewer), []);
    setup.publish(16);
    assert_eq!(pull(&mut viewer), [(Role::KeyFrame, 1_000), (Role::InterFrame, 1_040)]);
    assert_eq!((viewer.progress().skips, viewer.progress().skipped_ms), (1, 1_000));
}

#[test]
fn a_skip_brings_the_headers_that_changed_and_no_others() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(1);
    let mut viewer = setup.viewer();
    assert_eq!(pull(&mut viewer).len(), 2);
    setup.publish(24);
    setup.publisher.push(header(2));
    setup.publish(200);
    let got = pull(&mut viewer);
    assert_eq!(got[0].0, Role::SequenceHeader);
    assert_eq!(got[1].0, Role::KeyFrame);
    setup.publish(200);
    assert_eq!(pull(&mut viewer)[0].0, Role::KeyFrame, "has the header");
}

#[test]
fn a_publisher_that_comes_back_continues_the_stream() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(2);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    let refusal = setup.registry.publish("live/demo", Settings::default()).err();
    assert_eq!(refusal, Some(Refusal::Busy));
    let (stream, first) = (setup.publisher.stream().clone(), setup.publisher.number());
    drop(setup.publisher);
    assert_eq!(stream.status(), Status::Interrupted);
    assert!(!is_over(&mut viewer));
    let second = setup.registry.publish("live/demo", Settings::default()).expect("free again");
    second.push(header(1));
    second.push(frame(0));
    let expected = [(Role::SequenceHeader, 40), (Role::KeyFrame, 80)];
    assert_eq!(pull(&mut viewer), expected, "time goes on, and nobody knows what is the same");
    assert!(!setup.registry.end_after(&stream, first), "somebody publishes");
    drop(second);
    assert!(setup.registry.end_after(&stream, 2));
    assert!(is_over(&mut viewer));
    assert!(setup.registry.get("live/demo").is_none());
}

#[test]
fn a_publisher_that_is_replaced_has_no_say_and_viewers_stay() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(2);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    let (stream, first) = (setup.publisher.stream().clone(), setup.publisher.number());
    let second = setup.registry.take_over(&stream, first).expect("it publishes");
    assert!(setup.registry.take_over(&stream, first).is_none(), "once only");
    assert!(!setup.publisher.push(frame(2)));
    second.push(header(1));
    second.push(frame(0));
    let expected = [(Role::SequenceHeader, 40), (Role::KeyFrame, 80)];
    assert_eq!(pull(&mut viewer), expected);
    drop(setup.publisher);
    assert_eq!(stream.status(), Status::Live);
    assert!(!setup.registry.end_after(&stream, first));
    assert!(second.push(frame(1)));
    assert_eq!(pull(&mut viewer), [(Role::InterFrame, 120)]);
    let number = second.number();
    drop(second);
    assert!(setup.registry.take_over(&stream, number).is_none(), "nobody publishes");
}

#[test]
fn the_end_comes_after_what_is_left() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(3);
    let mut viewer = setup.viewer();
    setup.registry.end(setup.publisher.stream());
    assert!(!setup.publisher.push(frame(3)), "the stream is over");
    assert_eq!(pull(&mut viewer).len(), 4);
    assert!(is_over(&mut viewer));
}

#[test]
fn streams_and_viewers_are_limited() {
    let registry = Registry::new(1);
    let settings = Settings { max_viewers: 2, ..Settings::default() };
    let stream = registry.open("a", settings);
    // Those that viewers wait for are the caller's to bound.
    registry.open("b", settings);
    let publisher = registry.publish("a", settings).expect("room");
    assert_eq!(registry.publish("b", settings).err(), Some(Refusal::TooMany));
    assert_eq!(registry.publish("c", settings).err(), Some(Refusal::TooMany));
    assert_eq!(registry.publish("a", settings).err(), Some(Refusal::Busy));
    drop(publisher);
    let publisher = registry.publish("a", settings).expect("it counts already");
    let viewer = || Viewer::new(stream.clone(), Start::LatestGop);
    let (one, two) = (viewer(), viewer());
    assert!(one.is_some() && two.is_some() && viewer().is_none());
    drop(one);
    assert!(viewer().is_some());
    assert_eq!((stream.stats().viewers, stream.stats().refused), (1, 1));
    drop(publisher);
    registry.end(&stream);
    assert!(registry.publish("b", settings).is_ok(), "there is room again");
}

#[derive(Default)]
struct Bell(AtomicU64);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn sound_waits_for_the_picture_and_not_long() {
    let sound = |time| tag(Kind::Audio, time, &[0xaf, 1, 7]);
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(2);
    let mut viewer = setup.viewer();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    let mut rung = |after: &dyn Fn(&Publisher)| {
        while viewer.poll_next(&mut context).is_ready() {}
        let before = bell.0.load(Ordering::Relaxed);
        after(&setup.publisher);
        bell.0.load(Ordering::Relaxed) - before
    };
    assert_eq!(rung(&|p| assert!(p.push(sound(60)))), 0);
    assert_eq!(rung(&|p| assert!(p.push(frame(2)))), 1, "both");
    assert_eq!(rung(&|p| assert!(p.push(sound(100)))), 0);
    assert_eq!(rung(&|p| assert!(p.push(sound(121)))), 1, "no picture for 40 ms");
}

#[test]
fn sums_over_streams_never_go_down() {
    let mut setup = Setup::new(Start::LatestGop, Settings { max_viewers: 1, ..settings() });
    setup.publish(30);
    let viewer = setup.viewer();
    assert!(Viewer::new(viewer.stream().clone(), Start::LatestGop).is_none());
    let before = setup.registry.totals();
    assert_eq!((before.tags, before.refused, before.viewers), (31, 1, 1));
    setup.registry.end(setup.publisher.stream());
    assert!(setup.registry.is_empty());
    assert_eq!(setup.registry.totals(), Stats { viewers: 0, ..before });
    let _again = setup.registry.publish("live/demo", settings()).expect("free");
    assert_eq!(setup.registry.totals().publishers, 2);
}

#[test]
fn who_waits_is_woken_once_by_the_next_tag() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(1);
    let mut viewer = setup.viewer();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    let mut wait = || while viewer.poll_next(&mut context).is_ready() {};
    // However often it asks.
    (0..3).for_each(|_| wait());
    setup.publish(2);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    wait();
    setup.registry.end(setup.publisher.stream());
    assert_eq!(bell.0.load(Ordering::Relaxed), 2);
}

#[test]
fn a_viewers_own_time_begins_at_0_whatever_the_streams_is() {
    let registry = Registry::new(10);
    let publisher = registry.publish("live/demo", settings()).expect("free");
    // The stream's time is about to pass 2^31 ms, and its clock the end of 32 bits.
    publisher.begin_at((1 << 31) - 1_500);
    publisher.push(header(1));
    let start = u32::MAX - 2_000;
    let sound = |time| tag(Kind::Audio, time, &[0xaf, 1, 7]);
    for number in 0..100 {
        let at = start.wrapping_add(number * 40);
        assert!(publisher.push(frame(number).with_timestamp(at)));
        // Sound that is a little late in its order.
        assert!(publisher.push(sound(at.wrapping_sub(15))));
    }
    let mut viewer = Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("room");
    let mut context = Context::from_waker(Waker::noop());
    let mut times = Vec::new();
    while let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) {
        times.push((tag.role(), viewer.own_time(&tag)));
    }
    assert_eq!(viewer.origin(), Some((1 << 31) - 1_500 + 3_000 - 15));
    assert_eq!(
        times[..3],
        [(Role::SequenceHeader, 0), (Role::KeyFrame, 15), (Role::AudioFrame, 0)]
    );
    assert_eq!(times.last(), Some(&(Role::AudioFrame, 24 * 40)));
    // A header in between has the time that was reached, and a year later time still goes on.
    publisher.push(header(2));
    let mut late = Vec::new();
    for day in 0..365 {
        publisher.push(frame(100 + day).with_timestamp(start.wrapping_add(5_000 + day * 20_000)));
        while let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) {
            late.push((tag.role(), viewer.own_time(&tag)));
        }
    }
    assert_eq!(late[0], (Role::SequenceHeader, 24 * 40 + 15));
    assert_eq!(late.last().map(|last| last.1), Some(5_000 - 3_000 + 15 + 364 * 20_000));
}

#[test]
fn a_viewer_that_waits_has_its_origin_with_its_first_frame() {
    let mut setup = Setup::new(Start::KeyFrame, settings());
    setup.publish(60);
    let mut viewer = setup.viewer();
    let mut context = Context::from_waker(Waker::noop());
    let Poll::Ready(Some(first)) = viewer.poll_next(&mut context) else { panic!("a header") };
    assert_eq!((viewer.origin(), viewer.own_time(&first)), (None, 0));
    setup.publish(20);
    let Poll::Ready(Some(first)) = viewer.poll_next(&mut context) else { panic!("a frame") };
    assert_eq!((viewer.origin(), viewer.own_time(&first)), (Some(3_000), 0));
}

#[test]
fn viewers_of_video_that_stopped_have_its_last_key_frame_and_new_sound() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(60);
    let mut early = setup.viewer();
    pull(&mut early);
    let sound = |time| tag(Kind::Audio, time, &[0xaf, 1, 7]);
    (0..600).for_each(|n| assert!(setup.publisher.push(sound(2_400 + n * 20))));
    let mut late = setup.viewer();
    let got = pull(&mut late);
    let (first, last) = (got[1], got[got.len() - 1]);
    assert_eq!((got[0].0, first.0), (Role::SequenceHeader, Role::KeyFrame));
    assert!(last.1 - first.1 <= 1_500, "{first:?} to {last:?}");
    // One that was there and lags moves to new sound as well.
    assert!(pull(&mut early)[0].1 >= 12_000);
    // Video comes back, for both.
    setup.frames = 375;
    setup.publish(2);
    for viewer in [&mut early, &mut late] {
        let got = pull(viewer);
        assert_eq!(got, [(Role::KeyFrame, 15_000), (Role::InterFrame, 15_040)]);
    }
    assert_eq!(
        pull(&mut setup.viewer())[..2],
        [(Role::SequenceHeader, 0), (Role::KeyFrame, 15_000)]
    );
}

#[test]
fn other_tracks_than_the_default_ones_change_nothing_for_anybody() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    let audio = |payload: &[u8]| tag(Kind::Audio, 0, payload);
    assert!(setup.publisher.push(audio(&[0xaf, 0, 0x12, 0x10])));
    // As OBS sends a second audio track.
    assert!(setup.publisher.push(audio(b"\x95\x00mp4a\x01\x11\x90")));
    let key = |track: u8| tag(Kind::Video, 0, &[b"\x96\x03avc1", &[track][..], b"x"].concat());
    for number in 0..50 {
        setup.publish(1);
        if number % FRAMES == 0 {
            for track in [1, 2] {
                let key = key(track).with_timestamp(number * 40);
                assert!(setup.publisher.push(key));
            }
        }
        assert!(setup.publisher.push(audio(b"\x95\x01mp4a\x01x").with_timestamp(number * 40)));
    }
    let mut viewer = setup.viewer();
    let mut context = Context::from_waker(Waker::noop());
    let mut got = Vec::new();
    while let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) {
        got.push(tag);
    }
    let headers: Vec<_> = got.iter().take_while(|tag| tag.role().is_header()).collect();
    assert_eq!(headers.len(), 2);
    assert_eq!(headers[1].payload()[..], [0xaf, 0, 0x12, 0x10]);
    assert_eq!((got[2].role(), got[2].timestamp()), (Role::KeyFrame, 1_000));
    assert_eq!(got.len(), 2 + FRAMES as usize);
    let starts = setup.publisher.stream().with_cache(|cache| cache.groups().count());
    assert_eq!((starts, setup.publisher.stream().stats().other_tracks), (2, 1 + 4 + 50));
}

#[test]
fn a_publisher_that_wraps_its_default_track_is_played_by_everybody() {
    let registry = Registry::new(10);
    let publisher = registry.publish("live/demo", settings()).expect("free");
    let video = |head: &[u8]| tag(Kind::Video, 0, &[head, &[0], b"data"].concat());
    publisher.push(video(b"\x96\x00hvc1"));
    publisher.push(video(b"\x96\x03avc1"));
    let mut viewer = Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("room");
    let mut context = Context::from_waker(Waker::noop());
    for expected in [&b"\x90hvc1data"[..], b"\x17\x01\0\0\0data"] {
        let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) else { panic!("a tag") };
        assert_eq!(tag.payload()[..], *expected);
    }
}

#[test]
fn another_encoder_on_a_living_stream_brings_its_headers_before_its_pictures() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publisher.push(tag(Kind::Audio, 0, &[0xaf, 0, 0x12, 0x10]));
    setup.publish(30);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    drop(setup.publisher);
    let second = setup.registry.publish("live/demo", settings()).expect("free again");
    // It begins within a group, and it has no sound.
    second.push(frame(3));
    second.push(header(9));
    second.push(frame(4));
    let roles: Vec<Role> = pull(&mut viewer).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, [Role::SequenceHeader], "no picture before a key frame");
    (25..30).for_each(|number| assert!(second.push(frame(number))));
    let got = pull(&mut viewer);
    assert_eq!(got[0].0, Role::KeyFrame);
    assert_eq!(got.len(), 5);
    let mut late = Viewer::new(second.stream().clone(), Start::LatestGop).expect("room");
    let got = pull(&mut late);
    assert_eq!((got[0].0, got[1].0, got.len()), (Role::SequenceHeader, Role::KeyFrame, 6));
    let headers = second.stream().with_cache(|cache| cache.headers().clone());
    assert_eq!(headers.tags().count(), 1, "sound is forgotten");
    let mut kinds = Viewer::new(second.stream().clone(), Start::LatestGop).expect("room");
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(kinds.poll_kinds(&mut context), Poll::Ready(Some((false, true))));
}

#[test]
fn a_pulled_stream_has_its_upstreams_time_whatever_that_gives_its_headers() {
    let registry = Registry::new(10);
    let publisher = registry.publish("live/demo", settings()).expect("free");
    publisher.push(header(1));
    publisher.push(tag(Kind::Audio, 0, &[0xaf, 0, 0x12, 0x10]));
    publisher.push(tag(Kind::Audio, 5_000_020, &[0xaf, 1, 7]));
    publisher.push(frame(0).with_timestamp(5_000_000));
    let stream = publisher.stream();
    let mut viewer = Viewer::new(stream.clone(), Start::LatestGop).expect("room");
    assert_eq!(pull(&mut viewer).last(), Some(&(Role::KeyFrame, 5_000_000)));
    let kinds = stream.with_cache(GopCache::kinds);
    assert_eq!((kinds, stream.stats().jumps), (Some((true, true)), 0));
}

#[test]
fn a_pull_that_is_lost_and_begins_again_repeats_nothing_and_keeps_the_streams_time() {
    let registry = Registry::new(10);
    let pull_from = |base: u32, frames: core::ops::Range<u32>| {
        let publisher = registry.publish("live/demo", settings()).expect("free");
        publisher.push(media::flv::time_base_tag(base));
        publisher.push(header(1));
        let first = frames.start;
        for number in frames {
            publisher.push(frame(number).with_timestamp((number - first) * 40));
        }
        publisher
    };
    let publisher = pull_from(7_000_000, 0..40);
    let mut viewer = Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("room");
    let got = pull(&mut viewer);
    assert_eq!(got.last(), Some(&(Role::InterFrame, 7_000_000 + 39 * 40)));
    drop(publisher);
    // It begins with the newest key frame, which is the 26th.
    let publisher = pull_from(7_001_000, 25..45);
    let got = pull(&mut viewer);
    let frames: Vec<_> = got.iter().filter(|(role, _)| *role != Role::SequenceHeader).collect();
    let expected: Vec<_> = (40..45).map(|n| (Role::InterFrame, 7_000_000 + n * 40)).collect();
    assert_eq!(frames, expected.iter().collect::<Vec<_>>());
    assert_eq!(publisher.stream().stats().jumps, 0);
}

/// A key frame, or another, of this many bytes.
fn large(key: bool, time: u32, size: usize) -> Tag {
    let mut payload = vec![0; size];
    payload[..5].copy_from_slice(&[if key { 0x17 } else { 0x27 }, 1, 0, 0, 0]);
    tag(Kind::Video, time, &payload)
}

/// Publishes groups of `frames` frames of 10 kB from `time` on.
fn fill(publisher: &Publisher, groups: u32, frames: u32, time: u32) {
    for number in 0..groups * frames {
        let key = number.is_multiple_of(frames);
        assert!(publisher.push(large(key, time + number * 40, 10_000)));
    }
}

fn within(bytes: u64) -> Registry {
    let registry = Registry::new(100);
    registry.memory().set_limit(bytes);
    registry
}

fn groups(publisher: &Publisher) -> usize {
    publisher.stream().with_cache(|cache| cache.groups().count())
}

fn held(publisher: &Publisher) -> u64 {
    publisher.stream().memory().held()
}

fn keep(registry: &Registry) {
    registry.keep_within_memory(|| {});
}

fn many_groups() -> Settings {
    Settings { cache: Limits { groups: 20, bytes: 1 << 30 }, ..settings() }
}

#[test]
fn what_streams_keep_is_counted_while_somebody_holds_it() {
    let registry = within(1 << 30);
    let a = registry.publish("live/a", settings()).expect("free");
    let b = registry.publish("live/b", settings()).expect("free");
    fill(&a, 1, 10, 0);
    fill(&b, 1, 20, 0);
    assert!((100_000..110_000).contains(&held(&a)) && (200_000..220_000).contains(&held(&b)));
    assert_eq!(registry.memory().held(), held(&a) + held(&b));
    let viewer = Viewer::new(a.stream().clone(), Start::LatestGop).expect("room");
    let stream = a.stream().clone();
    drop(a);
    registry.end(&stream);
    drop(stream);
    assert!(registry.memory().held() > held(&b), "its viewer may still read it");
    drop(viewer);
    assert_eq!(registry.memory().held(), held(&b));
    registry.end(b.stream());
    drop(b);
    assert_eq!(registry.memory().held(), 0);
}

#[test]
fn a_large_stream_shrinks_to_its_newest_group_and_a_small_one_keeps_its_own() {
    let registry = within(1_000_000);
    let small = registry.publish("live/small", many_groups()).expect("free");
    let large = registry.publish("live/large", many_groups()).expect("free");
    fill(&small, 3, 10, 0);
    let before = held(&small);
    assert!(before > 300_000 && before < 375_000, "below half of three quarters");
    // Whenever there is too much: the publishers' threads do not wait for anybody.
    for round in 0..20 {
        fill(&large, 1, 15, round * 600);
        keep(&registry);
        let memory = registry.memory();
        assert!(memory.held() <= memory.limit(), "{}", memory.held());
        assert!(!memory.is_full(), "there is room by what the large one gave up");
    }
    assert_eq!((held(&small), groups(&small)), (before, 3));
    assert!((1..=4).contains(&groups(&large)), "{}", groups(&large));
    assert!(registry.memory().count_of(memory::Event::Shrunk) > 0);
    let start = large.stream().with_cache(|cache| cache.groups().next().expect("one").start);
    assert_eq!(large.stream().with_cache(GopCache::base), start, "nothing useless is kept");
}

#[test]
fn without_room_new_streams_are_refused_and_old_ones_stay_playable() {
    let registry = within(1_000_000);
    let streams = ["a", "b", "c"].map(|name| registry.publish(name, settings()).expect("free"));
    streams.iter().for_each(|stream| fill(stream, 1, 31, 0));
    keep(&registry);
    assert!(registry.memory().is_full());
    let refused = registry.publish("d", settings()).expect_err("no room");
    assert_eq!(refused, Refusal::NoMemory);
    assert_eq!(refused.to_string(), "no memory is left for another stream");
    assert_eq!((registry.memory().count_of(memory::Event::Refused), registry.len()), (1, 3));
    for publisher in &streams {
        let mut viewer = Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("room");
        assert_eq!(pull(&mut viewer).len(), 31, "from the key frame on");
    }
    // A publisher who comes back is none of a new stream.
    let [a, b, c] = streams;
    let kept = a.stream().clone();
    drop(a);
    let a = registry.publish("a", settings()).expect("its own stream");
    assert!(Arc::ptr_eq(a.stream(), &kept));
    // Room that somebody leaves is there for others.
    registry.end(b.stream());
    drop(b);
    keep(&registry);
    assert!(!registry.memory().is_full());
    registry.publish("d", settings()).expect("room again");
    drop(c);
}

#[test]
fn a_stream_without_end_of_its_group_is_cut_to_its_share_and_others_are_not() {
    let registry = within(1_000_000);
    let honest = registry.publish("live/honest", settings()).expect("free");
    fill(&honest, 2, 15, 0);
    let before = held(&honest);
    assert!(before < 500_000);
    let greedy = registry.publish("live/greedy", settings()).expect("free");
    assert!(greedy.push(large(true, 0, 10_000)));
    let mut cut = false;
    for number in 1..1_000 {
        assert!(greedy.push(large(false, number * 40, 10_000)));
        if number.is_multiple_of(3) {
            keep(&registry);
        }
        let memory = registry.memory();
        assert!(memory.held() <= 1_030_000, "{number}: {}", memory.held());
        cut |= groups(&greedy) == 0;
        assert!(!cut || memory.is_full(), "{number}");
    }
    assert!(cut && held(&greedy) >= 490_000, "{}", held(&greedy));
    assert_eq!((held(&honest), groups(&honest)), (before, 2), "below its share");
    // Its next key frame is a start again.
    assert!(greedy.push(large(true, 40_000, 10_000)));
    assert_eq!(groups(&greedy), 1);
}

#[test]
fn who_waits_for_too_much_is_told_once_until_it_looks_again() {
    let registry = within(1_000_000);
    let count = Arc::new(Bell::default());
    let waker = Waker::from(count.clone());
    let context = &mut Context::from_waker(&waker);
    let memory = registry.memory().clone();
    assert!(memory.poll_pressed(context).is_pending());
    let publisher = registry.publish("live/a", many_groups()).expect("free");
    fill(&publisher, 8, 10, 0);
    assert_eq!(count.0.load(Ordering::SeqCst), 0);
    fill(&publisher, 2, 10, 4_000);
    assert_eq!(count.0.load(Ordering::SeqCst), 1, "not for each tag");
    assert!(memory.poll_pressed(context).is_ready());
    keep(&registry);
    assert!(memory.poll_pressed(context).is_pending());
    // There is room again, so that no tag holds the stream down.
    keep(&registry);
    fill(&publisher, 8, 10, 5_000);
    assert_eq!(count.0.load(Ordering::SeqCst), 2);
}

#[test]
fn the_memory_of_streams_that_are_over_is_taken_back_too() {
    let registry = within(1_000_000);
    let over = registry.publish("live/over", many_groups()).expect("free");
    fill(&over, 7, 10, 0);
    let stream = over.stream().clone();
    drop(over);
    registry.end(&stream);
    let live = registry.publish("live/a", many_groups()).expect("free");
    fill(&live, 3, 10, 0);
    keep(&registry);
    assert!(stream.memory().held() < 500_000, "{}", stream.memory().held());
    assert_eq!(groups(&live), 3);
}
