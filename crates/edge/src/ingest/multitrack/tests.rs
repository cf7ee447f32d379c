use relay::{Refusal, Settings, Status, Stream};

use super::*;
use crate::config::Config;
use crate::hooks::Grant;
use crate::ingest::publish;

const LADDER: &str = "[[ladder]]\nname = \"live/show\"\nrenditions = [\"live/show_*\"]\n\
                      multitrack = true\n";

struct Setup {
    state: Arc<State>,
    publication: LadderPublication,
}

fn state(more: &str) -> Arc<State> {
    let config = Config::parse("edge.toml", &format!("{more}{LADDER}")).expect("valid");
    Arc::new(State::new(config, None).expect("a state"))
}

fn admission(key: &str) -> Admission {
    Admission::new(Some(key), Grant::Nobody)
}

fn start(state: &Arc<State>, key: &str) -> Result<LadderPublication, Rejection> {
    LadderPublication::start(state, "live/show", admission(key), Via::default())
}

impl Setup {
    fn new(more: &str) -> Self {
        let state = state(more);
        let publication = start(&state, "key").expect("room");
        Self { state, publication }
    }

    fn send(&mut self, kind: Kind, time: u32, payload: &[u8]) -> Result<(), Dismissal> {
        self.publication.push(Tag::new(kind, time, payload).expect("short"))
    }

    /// Sends a frame of H.264 as OBS does, in a tag of its own.
    fn frame(&mut self, id: u8, time: u32, is_key: bool) {
        let packet = frame(id, is_key);
        self.send(Kind::Video, time, &packet).expect("published");
    }

    /// Sends metadata, and the headers of audio and of video tracks.
    fn headers(&mut self, ids: &[u8]) {
        self.send(Kind::Audio, 0, &[0xaf, 0, 0x12, 0x10]).expect("published");
        for id in ids {
            let header = [&b"\x96\x00avc1"[..], &[*id, 1, *id]].concat();
            self.send(Kind::Video, 0, &header).expect("published");
        }
    }

    fn stream(&self, id: u8) -> Option<Arc<Stream>> {
        self.state.live.streams.get(&format!("live/show_{id}"))
    }

    fn events(&self, name: &str) -> u64 {
        let all = self.state.live.events.all();
        all.into_iter().find(|(event, _)| *event == name).map_or(0, |(_, count)| count)
    }
}

fn frame(id: u8, is_key: bool) -> Vec<u8> {
    let start = if is_key { b"\x96\x01avc1" } else { b"\xa6\x01avc1" };
    [&start[..], &[id, 0, 0, 80, id]].concat()
}

/// Kind, time and first bytes of the cached tags of a stream.
fn tags(stream: &Stream) -> Vec<(Kind, u32, Vec<u8>)> {
    stream.with_cache(|cache| {
        let all = (cache.base()..cache.head()).filter_map(|number| cache.get(number));
        let start = |tag: &Tag| tag.payload().iter().take(6).copied().collect();
        all.map(|tag| (tag.kind(), tag.timestamp(), start(tag))).collect()
    })
}

fn times(stream: &Stream, kind: Kind) -> Vec<u32> {
    tags(stream).into_iter().filter(|(k, ..)| *k == kind).map(|(_, time, _)| time).collect()
}

#[tokio::test]
async fn tracks_are_streams_with_one_clock_and_the_same_audio() {
    let mut setup = Setup::new("");
    setup.headers(&[0, 1, 2]);
    for time in (5_000..6_000).step_by(40) {
        setup.send(Kind::Audio, time, &[0xaf, 1, 7]).expect("published");
        for id in [0, 1, 2] {
            setup.frame(id, time, time == 5_000);
        }
    }
    let streams = [0, 1, 2].map(|id| setup.stream(id).expect("published"));
    let [first, ..] = &streams;
    assert_eq!(times(first, Kind::Audio).len(), 26, "{:?}", tags(first));
    for (id, stream) in (0..).zip(&streams) {
        for kind in [Kind::Audio, Kind::Video] {
            let media = |stream| times(stream, kind).split_off(1);
            assert_eq!(media(stream), media(first), "{id}");
        }
        let pictures = tags(stream).into_iter().filter(|(kind, ..)| *kind == Kind::Video);
        let pictures: Vec<_> = pictures.map(|(_, _, start)| start).collect();
        assert_eq!(pictures[..2], [[0x17, 0, 0, 0, 0, 1], [0x17, 1, 0, 0, 80, id]], "unwrapped");
        assert!(pictures[2..].iter().all(|start| *start == [0x27, 1, 0, 0, 80, id]), "{id}");
        assert_eq!(stream.stats().other_tracks, 0);
    }
    assert_eq!((setup.events("track_started"), setup.events("track_refused")), (3, 0));
    setup.publication.end();
    assert!(streams.iter().all(|stream| stream.status() == Status::Ended));
}

#[tokio::test]
async fn a_late_track_has_its_headers_and_the_time_of_the_others() {
    let mut setup = Setup::new("");
    setup.headers(&[0]);
    let metadata = b"\x02\0\x0aonMetaData\x08\0\0\0\x01\0\x05width\0\x40\x94\0\0\0\0\0\0\0\0\x09";
    setup.send(Kind::Script, 0, metadata).expect("published");
    for time in (0..4_000).step_by(40) {
        setup.frame(0, time, time % 2_000 == 0);
        if time > 1_000 {
            // A track without a sequence header until 3 s, and inter frames before.
            setup.frame(1, time, time % 2_000 == 0);
        }
        if time == 3_000 {
            assert!(setup.stream(1).is_some_and(|s| times(&s, Kind::Video).is_empty()));
            setup.send(Kind::Video, time, b"\x96\x00avc1\x01\x01").expect("published");
            setup.frame(1, time, true);
        }
        setup.send(Kind::Audio, time, &[0xaf, 1, 7]).expect("published");
    }
    let [first, late] = [0, 1].map(|id| setup.stream(id).expect("published"));
    let found = tags(&late);
    let is_start = |start: &[u8]| found.iter().any(|(_, _, tag)| tag.starts_with(start));
    assert!(is_start(&[0xaf, 0, 0x12, 0x10]) && is_start(b"\x02\0\x0aonM"), "{found:?}");
    let seen = times(&late, Kind::Video);
    let expected = times(&first, Kind::Video);
    assert!(seen.len() > 20 && seen[1..].iter().all(|time| expected.contains(time)), "{found:?}");
    assert_eq!(seen.last(), expected.last());
    // Frames before the first key frame.
    assert!(first.stats().other_tracks > 0);
}

#[tokio::test]
async fn tracks_are_bounded_and_rejected_ones_leave_the_others_alone() {
    let mut setup = Setup::new("");
    for id in 0..=255 {
        for _ in 0..3 {
            setup.headers(&[id]);
        }
    }
    let streams = &setup.state.live.streams;
    assert_eq!((streams.len(), setup.publication.tracks.len()), (MAX_RENDITIONS, MAX_RENDITIONS));
    assert_eq!(setup.events("track_refused"), 256 - 16);
    assert!(setup.stream(15).is_some() && setup.stream(16).is_none());
    // As many tracks as there are streams.
    let mut setup = Setup::new("[live]\nmax_streams = 2\n");
    setup.headers(&[0, 1, 2]);
    assert!(setup.stream(1).is_some() && setup.stream(2).is_none());
    let refused = start(&state("[live]\nmax_streams = 1\n"), "key")
        .map(|held| held.state.live.streams.publish("live/other", Settings::default()).map(drop));
    assert_eq!(refused.map_err(|why| why.to_string()), Ok(Err(Refusal::TooMany)));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_track_is_tried_again() {
    let mut setup = Setup::new("[live]\nmax_streams = 2\n");
    let streams = &setup.state.live.streams;
    let other = streams.publish("live/other", Settings::default()).expect("room");
    setup.headers(&[0, 1]);
    assert!(setup.stream(1).is_none());
    setup.state.live.streams.end(other.stream());
    setup.headers(&[1]);
    assert!(setup.stream(1).is_none(), "not at once");
    tokio::time::advance(RETRY).await;
    setup.headers(&[1]);
    assert!(setup.stream(1).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_silent_track_ends_and_returns() {
    let mut setup = Setup::new("[live]\nlinger = \"1s\"\n[rtmp]\ntimeout = \"2s\"\n");
    setup.headers(&[0, 1, 2]);
    for time in (0..4_000).step_by(40) {
        tokio::time::advance(Duration::from_millis(40)).await;
        setup.frame(0, time, time == 0);
        setup.send(Kind::Audio, time, &[0xaf, 1, 7]).expect("published");
    }
    // The default track has no privilege.
    let status = |setup: &Setup, id| setup.stream(id).map(|stream| stream.status());
    assert_eq!(status(&setup, 0), Some(Status::Live));
    assert_eq!((status(&setup, 1), status(&setup, 2)), (None, None), "after the linger");
    assert_eq!(setup.events("track_ended"), 2);
    for time in (4_000..9_000).step_by(40) {
        tokio::time::advance(Duration::from_millis(40)).await;
        if time == 4_000 {
            setup.headers(&[1]);
        }
        setup.frame(1, time, time == 4_000);
    }
    assert_eq!((status(&setup, 0), status(&setup, 1)), (None, Some(Status::Live)));
    // All tracks pause.
    tokio::time::advance(Duration::from_secs(5)).await;
    setup.frame(1, 14_000, true);
    assert_eq!(status(&setup, 1), Some(Status::Live));
}

#[tokio::test]
async fn unknown_codecs_and_malformed_packets_leave_other_tracks_alone() {
    let mut setup = Setup::new("");
    setup.headers(&[0]);
    for packet in [
        &b"\x96\x00qqqq\x01x"[..],
        b"\x96\x01qqqq\x01x",
        // ManyTracks: a good track 2, then a size beyond the packet.
        b"\x96\x10avc1\x02\0\0\x02\x01\x02\x03\xff\xff\xffx",
        b"\x96\x06avc1\x04\x00avc1\x05x",
        b"\x96",
        b"",
    ] {
        setup.send(Kind::Video, 0, packet).expect("published");
    }
    setup.send(Kind::Audio, 0, b"\x95\x00mp4a\x01\x11\x90").expect("published");
    setup.frame(0, 0, true);
    setup.frame(2, 0, true);
    let started = [0, 1, 2].iter().all(|id| setup.stream(*id).is_some());
    assert!(started && setup.stream(3).or(setup.stream(4)).or(setup.stream(5)).is_none());
    for id in [0, 2] {
        let stream = setup.stream(id).expect("published");
        assert_eq!(times(&stream, Kind::Video).len(), 2, "{id}");
    }
    let unknown = setup.stream(1).expect("published");
    assert!(tags(&unknown).iter().any(|(_, _, start)| start == b"\x91qqqqx"));
    assert_eq!(setup.state.live.tolerated.all(), [("rtmp_tracks", 3)]);
    assert_eq!(setup.stream(0).map(|stream| stream.stats().other_tracks), Some(1), "audio 1");
}

#[tokio::test]
async fn the_loss_of_a_track_leaves_the_others_and_the_loss_of_the_name_ends_all() {
    let mut setup = Setup::new("[live]\ntake_over = \"same-key\"\n");
    setup.headers(&[0, 1, 2]);
    let state = setup.state.clone();
    // A connection of its own takes one track, with the key.
    let single = |key: &str, name: &str| {
        publish(&state.live, &state.bans, &state.config, name, &admission(key))
    };
    assert!(single("other", "live/show_1").is_err());
    let other = single("key", "live/show_1").expect("taken over");
    setup.headers(&[0, 1, 2]);
    setup.frame(0, 40, true);
    assert_eq!(setup.publication.tracks.keys().collect::<Vec<_>>(), [&0, &2]);
    assert!(other.publisher.stream().status() == Status::Live, "not taken back");
    // The operator ends one.
    let ended = setup.stream(2).expect("published");
    assert!(state.live.publishers.end("live/show_2"));
    state.live.streams.end(&ended);
    setup.headers(&[0, 2]);
    assert_eq!(setup.publication.tracks.keys().collect::<Vec<_>>(), [&0]);
    assert_eq!((setup.events("taken_over"), setup.events("ended_by_operator")), (1, 1));

    // The encoder returns on another connection.
    assert!(start(&state, "other").is_err());
    let second = start(&state, "key").expect("taken over");
    let lost = setup.send(Kind::Video, 80, &frame(0, true));
    assert_eq!(lost, Err(Dismissal::TakenOver));
    setup.publication.leave();
    assert_eq!(state.live.streams.get("live/show_0").map(|s| s.status()), Some(Status::Live));
    let mut setup = Setup { state, publication: second };
    setup.headers(&[0, 1]);
    assert!(setup.state.live.publishers.has("live/show"));
    assert!(setup.state.live.publishers.end("live/show"));
    let lost = core::future::poll_fn(|context| setup.publication.poll_lost(context)).await;
    assert_eq!(lost, Dismissal::Ended);
    let [zero, one] = [0, 1].map(|id| setup.stream(id).expect("published"));
    setup.publication.end();
    assert_eq!([zero.status(), one.status()], [Status::Ended; 2]);
}

#[tokio::test]
async fn the_loss_of_the_last_track_is_the_loss_of_the_name() {
    let mut setup = Setup::new("");
    setup.headers(&[0]);
    assert!(setup.state.live.publishers.end("live/show_0"));
    let lost = core::future::poll_fn(|context| setup.publication.poll_lost(context)).await;
    assert_eq!(lost, Dismissal::Ended);
    assert_eq!(setup.send(Kind::Video, 80, &frame(0, true)), Err(Dismissal::Ended));
}
