//! Arrival, departure and replacement of publishers.

use media::GopCache;

use super::*;

#[test]
fn a_returning_publisher_continues_the_stream() {
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
    let second = setup.registry.publish("live/demo", Settings::default()).expect("no publisher");
    second.push(header(1));
    second.push(frame(0));
    let expected = [(Role::SequenceHeader, 40), (Role::KeyFrame, 80)];
    assert_eq!(pull(&mut viewer), expected, "time continues, and duplicates are not detected");
    assert!(!setup.registry.end_after(&stream, first), "published again");
    drop(second);
    assert!(setup.registry.end_after(&stream, 2));
    assert!(is_over(&mut viewer));
    assert!(setup.registry.get("live/demo").is_none());
}

#[test]
fn a_replaced_publisher_is_rejected_and_viewers_stay() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(2);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    let (stream, first) = (setup.publisher.stream().clone(), setup.publisher.number());
    let second = setup.registry.take_over(&stream, first).expect("current publisher");
    assert!(setup.registry.take_over(&stream, first).is_none(), "already replaced");
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
    assert!(setup.registry.take_over(&stream, number).is_none(), "no publisher");
}

#[test]
fn non_default_tracks_are_not_relayed() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    let audio = |payload: &[u8]| tag(Kind::Audio, 0, payload);
    assert!(setup.publisher.push(audio(&[0xaf, 0, 0x12, 0x10])));
    // OBS sends a second audio track like this.
    assert!(setup.publisher.push(audio(b"\x95\x00mp4a\x01\x11\x90")));
    let key = |track: u8| tag(Kind::Video, 0, &[b"\x96\x03avc1", &[track][..], b"x"].concat());
    for number in 0..50 {
        setup.publish(1);
        if number % FRAMES == 0 {
            for track in [1, 2] {
                let key = key(track).with_timestamp(number * 40);
                assert!(setup.publisher.push(key));
            }
            let sound = audio(&[0xaf, 1, b'x']).with_timestamp(number * 40);
            assert!(setup.publisher.push(sound));
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
    assert_eq!(got.len(), 2 + FRAMES as usize + 1);
    let starts = setup.publisher.stream().with_cache(|cache| cache.groups().count());
    assert_eq!((starts, setup.publisher.stream().stats().other_tracks), (2, 1 + 4 + 50));
}

#[test]
fn a_wrapped_default_track_is_relayed_unwrapped() {
    let registry = Registry::new(10);
    let publisher = registry.publish("live/demo", settings()).expect("no publisher");
    let video = |head: &[u8]| tag(Kind::Video, 0, &[head, &[0], b"data"].concat());
    publisher.push(video(b"\x96\x00hvc1"));
    publisher.push(video(b"\x96\x03avc1"));
    let mut viewer =
        Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("below the limit");
    let mut context = Context::from_waker(Waker::noop());
    for expected in [&b"\x90hvc1data"[..], b"\x17\x01\0\0\0data"] {
        let Poll::Ready(Some(tag)) = viewer.poll_next(&mut context) else { panic!("a tag") };
        assert_eq!(tag.payload()[..], *expected);
    }
}

#[test]
fn a_new_encoder_sends_its_headers_before_its_frames() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publisher.push(tag(Kind::Audio, 0, &[0xaf, 0, 0x12, 0x10]));
    setup.publish(30);
    let mut viewer = setup.viewer();
    pull(&mut viewer);
    drop(setup.publisher);
    let second = setup.registry.publish("live/demo", settings()).expect("no publisher");
    // It starts within a group, and has no audio.
    second.push(frame(3));
    second.push(header(9));
    second.push(frame(4));
    let roles: Vec<Role> = pull(&mut viewer).into_iter().map(|(role, _)| role).collect();
    assert_eq!(roles, [Role::SequenceHeader], "no frame before a key frame");
    (25..30).for_each(|number| assert!(second.push(frame(number))));
    let got = pull(&mut viewer);
    assert_eq!(got[0].0, Role::KeyFrame);
    assert_eq!(got.len(), 5);
    let mut late = Viewer::new(second.stream().clone(), Start::LatestGop).expect("below the limit");
    let got = pull(&mut late);
    assert_eq!((got[0].0, got[1].0, got.len()), (Role::SequenceHeader, Role::KeyFrame, 6));
    let headers = second.stream().with_cache(|cache| cache.headers().clone());
    assert_eq!(headers.tags().count(), 1, "the audio header is dropped");
    let mut kinds =
        Viewer::new(second.stream().clone(), Start::LatestGop).expect("below the limit");
    let mut context = Context::from_waker(Waker::noop());
    assert_eq!(kinds.poll_kinds(&mut context), Poll::Ready(Some((false, true))));
}

#[test]
fn a_pulled_stream_keeps_its_upstreams_time_despite_header_timestamps() {
    let registry = Registry::new(10);
    let publisher = registry.publish("live/demo", settings()).expect("no publisher");
    publisher.push(header(1));
    publisher.push(tag(Kind::Audio, 0, &[0xaf, 0, 0x12, 0x10]));
    publisher.push(tag(Kind::Audio, 5_000_020, &[0xaf, 1, 7]));
    publisher.push(frame(0).with_timestamp(5_000_000));
    let stream = publisher.stream();
    let mut viewer = Viewer::new(stream.clone(), Start::LatestGop).expect("below the limit");
    assert_eq!(pull(&mut viewer).last(), Some(&(Role::KeyFrame, 5_000_000)));
    let kinds = stream.with_cache(GopCache::kinds);
    assert_eq!((kinds, stream.stats().jumps), (Some((true, true)), 0));
}

#[test]
fn a_restarted_pull_repeats_no_tags_and_keeps_the_streams_time() {
    let registry = Registry::new(10);
    let pull_from = |base: u32, frames: core::ops::Range<u32>| {
        let publisher = registry.publish("live/demo", settings()).expect("no publisher");
        publisher.push(media::flv::time_base_tag(base));
        publisher.push(header(1));
        let first = frames.start;
        for number in frames {
            publisher.push(frame(number).with_timestamp((number - first) * 40));
        }
        publisher
    };
    let publisher = pull_from(7_000_000, 0..40);
    let mut viewer =
        Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("below the limit");
    let got = pull(&mut viewer);
    assert_eq!(got.last(), Some(&(Role::InterFrame, 7_000_000 + 39 * 40)));
    drop(publisher);
    // It starts with the newest key frame, frame 26.
    let publisher = pull_from(7_001_000, 25..45);
    let got = pull(&mut viewer);
    let frames: Vec<_> = got.iter().filter(|(role, _)| *role != Role::SequenceHeader).collect();
    let expected: Vec<_> = (40..45).map(|n| (Role::InterFrame, 7_000_000 + n * 40)).collect();
    assert_eq!(frames, expected.iter().collect::<Vec<_>>());
    assert_eq!(publisher.stream().stats().jumps, 0);
}

#[test]
fn totals_never_decrease() {
    let mut setup = Setup::new(Start::LatestGop, Settings { max_viewers: 1, ..settings() });
    setup.publish(30);
    let viewer = setup.viewer();
    assert!(Viewer::new(viewer.stream().clone(), Start::LatestGop).is_none());
    let before = setup.registry.totals();
    assert_eq!((before.tags, before.refused, before.viewers), (31, 1, 1));
    setup.registry.end(setup.publisher.stream());
    assert!(setup.registry.is_empty());
    assert_eq!(setup.registry.totals(), Stats { viewers: 0, ..before });
    let _again = setup.registry.publish("live/demo", settings()).expect("no publisher");
    assert_eq!(setup.registry.totals().publishers, 2);
}

#[test]
fn the_bit_rate_is_known_after_one_second() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(FRAMES);
    let stream = setup.publisher.stream().clone();
    assert_eq!(stream.bitrate(), None, "960 ms");
    setup.publish(FRAMES);
    let (bytes, span) = stream.with_cache(|cache| (cache.bytes() as f64, cache.span()));
    assert_eq!(span.as_millis(), 1_960);
    let rate = stream.bitrate().expect("known").as_mbps_f64();
    assert!((rate - bytes * 8e-6 / 1.96).abs() < 1e-3, "{rate}");
    // After a clock jump, the span is invalid.
    setup.publisher.push(frame(50).with_timestamp(u32::MAX - 5));
    assert!(stream.bitrate().is_none_or(|rate| rate.as_mbps_f64() < 1.0));
}

#[test]
fn aligned_publishers_have_the_given_times() {
    let registry = Registry::new(10);
    // Encoders of one ladder, with clocks that start at different times.
    for (base, first) in [(500_000_u32, 0), (400_000, 100_000), (u32::MAX - 499_999, 1_000_000)] {
        let name = format!("live/{first}");
        let publisher = registry.publish(&name, settings()).expect("no publisher");
        publisher.align(base);
        let key = tag(Kind::Video, first, &[0x17, 1, 0, 0, 0, 1]);
        assert!(publisher.push(tag(Kind::Video, first, &[0x17, 0, 0, 0, 0, 1])));
        assert!(publisher.push(key.clone()));
        let stream = publisher.stream().clone();
        let newest = || stream.with_cache(|cache| cache.newest().map(Tag::timestamp));
        assert_eq!(newest(), Some(500_000), "{first}");
        // Returns 3 s later with another clock.
        drop(publisher);
        let publisher = registry.publish(&name, settings()).expect("no publisher");
        publisher.align(503_000);
        assert!(publisher.push(key.with_timestamp(0)));
        assert_eq!(newest(), Some(503_000), "{first}");
    }
}

#[test]
fn a_packager_of_the_publisher_leaves_out_earlier_ones() {
    let mut setup = Setup::new(Start::LatestGop, settings());
    setup.publish(2);
    let stream = setup.publisher.stream().clone();
    let mut packager = Viewer::packager_of_publisher(stream.clone()).expect("room");
    let expected = [(Role::SequenceHeader, 0), (Role::KeyFrame, 0), (Role::InterFrame, 40)];
    assert_eq!(pull(&mut packager), expected);
    drop(setup.publisher);
    let second = setup.registry.publish("live/demo", settings()).expect("no publisher");
    let mut early = Viewer::packager_of_publisher(stream.clone()).expect("room");
    assert!(pull(&mut early).is_empty(), "waits");
    second.align(5_000);
    second.push(header(2));
    second.push(frame(0));
    second.push(frame(1));
    let late = Viewer::packager_of_publisher(stream).expect("room");
    for mut packager in [early, late] {
        let got: Vec<_> = pull(&mut packager).into_iter().map(|(role, _)| role).collect();
        assert_eq!(got, [Role::SequenceHeader, Role::KeyFrame, Role::InterFrame]);
    }
}
