//! Arrival, lag and departure of viewers.

use media::CacheLimits;

use super::*;

#[test]
fn lag_is_the_age_of_the_last_delivered_frame() {
    let mut setup = Setup::new(Start::Oldest, settings());
    setup.publish(60);
    let mut viewer = setup.viewer();
    assert_eq!(viewer.lag_ms(), 0);
    let mut context = Context::from_waker(Waker::noop());
    // A header, then the first frames of the oldest cached group.
    for lag in [1_360, 1_360, 1_320, 1_280] {
        assert!(viewer.poll_next(&mut context).is_ready());
        assert_eq!(viewer.lag_ms(), lag);
    }
    pull(&mut viewer);
    assert_eq!(viewer.lag_ms(), 0);
}

#[test]
fn latest_gop_start_delivers_the_group_then_live_frames() {
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
fn key_frame_start_waits_for_the_next_key_frame() {
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
fn low_delay_start_takes_the_nearer_key_frame() {
    let mut setup = Setup::new(Start::LowDelay, settings());
    setup.publish(60);
    assert_eq!(pull(&mut setup.viewer()).len(), 11, "early in the group");
    setup.publish(10);
    assert_eq!(pull(&mut setup.viewer()).len(), 1, "the next group is nearer");
}

#[test]
fn a_packager_starts_at_the_oldest_group() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(60);
    let stream = setup.publisher.stream().clone();
    let mut viewer = Viewer::packager(stream).expect("below the limit");
    assert_eq!(pull(&mut viewer).len(), 1 + 35);
}

#[test]
fn a_packager_never_skips_cached_media() {
    let registry = Registry::new(10);
    let publisher = registry.publish("live/demo", settings()).expect("no publisher");
    publisher.push(header(1));
    // Groups of 10 s; other viewers may lag by 3 s.
    for number in 0..450_u32 {
        let first = if number.is_multiple_of(250) { 0x17 } else { 0x27 };
        publisher.push(tag(Kind::Video, number * 40, &[first, 1, 0, 0, 0, 9]));
    }
    let mut packager = Viewer::packager(publisher.stream().clone()).expect("below the limit");
    let got = pull(&mut packager);
    assert_eq!((got.len(), got[1]), (1 + 450, (Role::KeyFrame, 0)));
    assert_eq!(publisher.stream().stats().skips, 0);
}

#[test]
fn viewers_can_wait_for_the_publisher() {
    let registry = Registry::new(10);
    let stream = registry.open("live/demo", settings());
    let mut viewer = Viewer::new(stream, Start::LatestGop).expect("below the limit");
    assert_eq!(pull(&mut viewer), []);
    let publisher = registry.publish("live/demo", settings()).expect("no publisher");
    publisher.push(header(1));
    publisher.push(frame(0));
    assert_eq!(pull(&mut viewer), [(Role::SequenceHeader, 0), (Role::KeyFrame, 0)]);
}

#[test]
fn a_lagging_viewer_skips_to_the_newest_key_frame() {
    let cache = CacheLimits { groups: 10, bytes: 1 << 20 };
    let mut setup = Setup::new(Start::LatestGop, Settings { cache, ..settings() });
    setup.publish(5);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    // A lag of 3 s is tolerated.
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

/// Frames of 40 ms in groups of 1 s. Every other frame is disposable.
struct Marked {
    publisher: Publisher,
    frames: u32,
    _registry: Registry,
}

impl Marked {
    fn new(codec_is_known: bool) -> Self {
        let registry = Registry::new(10);
        let lags = Lags { thin: 1_000, skip: 20_000 };
        let settings = Settings {
            lags,
            cache: CacheLimits { groups: 64, ..CacheLimits::default() },
            ..settings()
        };
        let publisher = registry.publish("live/demo", settings).expect("no publisher");
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
        Viewer::new(self.publisher.stream().clone(), Start::LatestGop).expect("below the limit")
    }
}

/// Publishes `tens` times 10 frames. After each 10, the viewer takes `taken` tags.
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
fn a_lagging_viewer_keeps_up_without_disposable_frames() {
    let mut stream = Marked::new(true);
    stream.publish(1);
    let mut viewer = stream.viewer();
    // It loses 80 ms per 400 ms.
    takes(&mut stream, &mut viewer, 12, 8);
    assert_eq!(viewer.progress().thinned, 0);
    let got = takes(&mut stream, &mut viewer, 200, 8);
    let progress = viewer.progress();
    assert_eq!(progress.skips, 0);
    assert!(viewer.lag_ms() < 2_500, "{}", viewer.lag_ms());
    // The surplus frames, and some more to reduce the lag.
    assert!((350..500).contains(&progress.thinned), "{}", progress.thinned);
    assert_eq!(stream.publisher.stream().stats().thinned, progress.thinned);
    // All key frames and reference frames are delivered.
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
fn a_viewer_that_catches_up_gets_all_frames() {
    let mut stream = Marked::new(true);
    // After an interruption, the publisher sends 8 s at once.
    stream.publish(1);
    let mut viewer = stream.viewer();
    pull(&mut viewer);
    stream.publish(200);
    let got = takes(&mut stream, &mut viewer, 100, 13);
    assert_eq!((viewer.progress().thinned, viewer.lag_ms()), (0, 0));
    assert_eq!(got.len(), 1_200);
}

#[test]
fn waiting_for_a_frame_at_a_low_frame_rate_is_no_lag() {
    // One frame every 2 s, which the viewer takes at once.
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
fn evicted_media_is_skipped() {
    let cache = CacheLimits { groups: 1, bytes: 1 << 20 };
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
fn without_a_cached_key_frame_the_viewer_waits_for_the_next() {
    // The cache holds three frames.
    let size = frame(0).bytes().len();
    let cache = CacheLimits { groups: 2, bytes: 3 * size };
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
fn a_skip_sends_only_changed_headers() {
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
    assert_eq!(pull(&mut viewer)[0].0, Role::KeyFrame, "the header is known");
}

#[test]
fn the_remaining_tags_precede_the_end() {
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
    // Streams that are only waited for do not count.
    registry.open("b", settings);
    let publisher = registry.publish("a", settings).expect("below the limit");
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
fn audio_waits_briefly_for_video() {
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
fn a_waiting_viewer_is_woken_once_by_the_next_tag() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(1);
    let mut viewer = setup.viewer();
    let bell = Arc::new(Bell::default());
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    let mut wait = || while viewer.poll_next(&mut context).is_ready() {};
    // Also if it polls repeatedly.
    (0..3).for_each(|_| wait());
    setup.publish(2);
    assert_eq!(bell.0.load(Ordering::Relaxed), 1);
    wait();
    setup.registry.end(setup.publisher.stream());
    assert_eq!(bell.0.load(Ordering::Relaxed), 2);
}

#[test]
fn a_viewers_own_time_starts_at_zero() {
    let registry = Registry::new(10);
    let publisher = registry.publish("live/demo", settings()).expect("no publisher");
    // The stream's time is about to pass 2^31 ms, and the publisher's clock 2^32 ms.
    publisher.begin_at((1 << 31) - 1_500);
    publisher.push(header(1));
    let start = u32::MAX - 2_000;
    let sound = |time| tag(Kind::Audio, time, &[0xaf, 1, 7]);
    for number in 0..100 {
        let at = start.wrapping_add(number * 40);
        assert!(publisher.push(frame(number).with_timestamp(at)));
        // Audio slightly out of order.
        assert!(publisher.push(sound(at.wrapping_sub(15))));
    }
    let mut viewer =
        Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("below the limit");
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
    // A header gets the latest time. After a year, time still advances.
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
fn a_waiting_viewer_gets_its_origin_with_the_first_frame() {
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
fn when_video_stops_viewers_get_the_last_key_frame_and_new_audio() {
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
    // A lagging viewer also skips to new audio.
    assert!(pull(&mut early)[0].1 >= 12_000);
    // Video returns for both.
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
