//! Viewers of streams, as they come, fall behind and leave.

use media::Limits;

use super::*;

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

/// A stream of frames of 40 ms in groups of a second, every other of which no other needs.
struct Marked {
    publisher: Publisher,
    frames: u32,
    _registry: Registry,
}

impl Marked {
    fn new(codec_is_known: bool) -> Self {
        let registry = Registry::new(10);
        let lags = Lags { thin: 1_000, most: 20_000 };
        let settings =
            Settings { lags, cache: Limits { groups: 64, ..Limits::default() }, ..settings() };
        let publisher = registry.publish("live/demo", settings).expect("free");
        let config = &[0x17, 0, 0, 0, 0, 1, 100, 0, 31, 0xff, 0xe0, 0];
        publisher.push(tag(Kind::Video, 0, if codec_is_known { config } else { &config[..6] }));
        Self { publisher, frames: 0, _registry: registry }
    }

    fn publish(&mut self, frames: u32) {
        for number in self.frames..self.frames + frames {
            let [kind, slice] = match number % FRAMES {
                0 => [0x17, 0x65],
                place if place % 2 == 1 => [0x27, 0x41],
                _ => [0x27, 0x01],
            };
            self.publisher.push(tag(
                Kind::Video,
                number * 40,
                &[kind, 1, 0, 0, 0, 0, 0, 0, 2, slice, 9],
            ));
        }
        self.frames += frames;
    }

    fn viewer(&self) -> Viewer {
        Viewer::new(self.publisher.stream().clone(), Start::LatestGop).expect("room")
    }
}

/// What a viewer gets who takes so many tags of ten that are published, ten times a second more or less.
fn takes(stream: &mut Marked, viewer: &mut Viewer, tens: u32, taken: usize) -> Vec<u32> {
    let mut context = Context::from_waker(Waker::noop());
    let mut got = Vec::new();
    for _ in 0..tens {
        stream.publish(10);
        for _ in 0..taken {
            if let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) {
                got.push(tag.timestamp());
            }
        }
    }
    got
}

#[test]
fn who_falls_behind_gets_what_others_need_and_keeps_up_by_that() {
    let mut stream = Marked::new(true);
    stream.publish(1);
    let mut viewer = stream.viewer();
    // It falls behind by 80 ms in 400.
    takes(&mut stream, &mut viewer, 12, 8);
    assert_eq!(viewer.progress().thinned, 0);
    let got = takes(&mut stream, &mut viewer, 200, 8);
    let progress = viewer.progress();
    assert_eq!(progress.skips, 0);
    assert!(viewer.lag_ms() < 2_500, "{}", viewer.lag_ms());
    // As many as it could not take, and some more for what it was behind.
    assert!((350..500).contains(&progress.thinned), "{}", progress.thinned);
    assert_eq!(stream.publisher.stream().stats().thinned, progress.thinned);
    // Key frames and those that others need are all there.
    let needed = |time: u32| {
        let place = time / 40 % FRAMES;
        place == 0 || place % 2 == 1
    };
    let all = (got[0]..got[got.len() - 1]).step_by(40).filter(|&time| needed(time));
    assert!(all.clone().count() > 900 && all.clone().all(|time| got.contains(&time)));

    let mut unknown = Marked::new(false);
    unknown.publish(1);
    let mut viewer = unknown.viewer();
    takes(&mut unknown, &mut viewer, 200, 8);
    let progress = viewer.progress();
    assert!(
        (progress.thinned, progress.skips) == (0, 0) && viewer.lag_ms() > 15_000,
        "{progress:?}"
    );
}

#[test]
fn who_catches_up_gets_all_pictures_however_far_behind_it_is() {
    let mut stream = Marked::new(true);
    // The publisher was away, and sends eight seconds at once.
    stream.publish(1);
    let mut viewer = stream.viewer();
    pull(&mut viewer);
    stream.publish(200);
    let got = takes(&mut stream, &mut viewer, 100, 13);
    assert_eq!((viewer.progress().thinned, viewer.lag_ms()), (0, 0));
    assert_eq!(got.len(), 1_200);
}

#[test]
fn who_waits_for_the_next_picture_is_not_behind_however_few_there_are() {
    // A picture each two seconds, and the viewer takes each at once.
    let stream = Marked::new(true);
    let mut viewer = stream.viewer();
    let mut got = 0;
    for number in 0..100 {
        let [kind, slice] = if number == 0 { [0x17, 0x65] } else { [0x27, 0x01] };
        let payload = [kind, 1, 0, 0, 0, 0, 0, 0, 2, slice, 9];
        stream.publisher.push(tag(Kind::Video, number * 2_000, &payload));
        got += pull(&mut viewer).len();
    }
    assert_eq!((got, viewer.progress().thinned), (101, 0));
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
