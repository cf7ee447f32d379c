//! Pushes to targets on loopback that behave, and to those that do not.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use media::rtmp::{self, Event, Server};
use media::{Kind, Role, Tag};
use relay::{Publisher, Settings};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{sleep, timeout};

use super::*;
use crate::config::Config;
use crate::entropy::noise;
use crate::state::State;

const LIMIT: Duration = Duration::from_secs(20);

/// Behaviour of a target.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Behaviour {
    Accept,
    /// Accepts the connection and never answers.
    Hang,
    /// Accepts the stream and takes nothing more.
    Stall,
    /// Accepts the stream, and reads 16 KiB each 5 ms.
    Slow,
    /// Closes after the first key frame.
    Close,
    /// Rejects the stream, and repeats its key in the reason.
    Reject,
    /// Answers with other bytes.
    Garbage,
}

/// Observation of a target.
#[derive(Debug)]
enum Seen {
    Publish(Box<rtmp::Request>),
    Tag(Tag),
    Unpublish,
}

async fn target(behaviour: Behaviour) -> (SocketAddr, UnboundedReceiver<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
    let address = listener.local_addr().expect("bound");
    let (sender, receiver) = unbounded_channel();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket, behaviour, sender.clone()));
        }
    });
    (address, receiver)
}

async fn serve(mut socket: TcpStream, behaviour: Behaviour, seen: UnboundedSender<Seen>) {
    let mut server = Server::new(rtmp::Config::default(), &noise());
    let mut input = BytesMut::with_capacity(16 << 10);
    if behaviour == Behaviour::Garbage {
        let _ = socket.write_all(&[0x55; 8_000]).await;
    }
    let mut is_stalled = behaviour == Behaviour::Hang;
    loop {
        if is_stalled {
            sleep(LIMIT).await;
        }
        if behaviour == Behaviour::Slow {
            sleep(Duration::from_millis(5)).await;
        }
        input.reserve(16 << 10);
        if socket.read_buf(&mut input).await.unwrap_or(0) == 0 {
            return;
        }
        let handled = server.handle(&input);
        input.clear();
        while let Some(event) = server.poll_event() {
            match event {
                Event::Publish(request) => {
                    match behaviour {
                        Behaviour::Reject => server.refuse(&format!("bad {}", request.stream)),
                        _ => server.accept(),
                    }
                    is_stalled = behaviour == Behaviour::Stall;
                    let _ = seen.send(Seen::Publish(Box::new(request)));
                }
                Event::Tag(tag) => {
                    let is_key = tag.role() == Role::KeyFrame;
                    let _ = seen.send(Seen::Tag(tag));
                    if behaviour == Behaviour::Close && is_key {
                        return;
                    }
                }
                Event::Unpublish => drop(seen.send(Seen::Unpublish)),
                _ => {}
            }
        }
        while let Some(bytes) = server.poll_output() {
            if socket.write_all(&bytes).await.is_err() {
                return;
            }
        }
        if handled.is_err() {
            return;
        }
    }
}

fn tend(state: &State) {
    state.live.tend_outputs(&state.config, &state.clients, &Handle::current());
}

/// A state with these rules, and a published stream.
struct Setup {
    state: Arc<State>,
    publisher: Publisher,
    time: u32,
}

fn rule(stream: &str, address: SocketAddr, more: &str) -> String {
    format!(
        "[[push]]\nstream = \"{stream}\"\nurl = \"rtmp://{address}/live/{{tail}}\"\n\
         timeout = \"300ms\"\nretry = \"100ms\"\n{more}\n"
    )
}

fn state(rules: &str, previous: Option<&State>) -> Arc<State> {
    let config = Config::parse("edge.toml", rules).expect("valid");
    Arc::new(State::new(config, previous).expect("a state"))
}

impl Setup {
    fn new(rules: &str) -> Self {
        let state = state(rules, None);
        let publisher =
            state.live.streams.publish("live/a", Settings::default()).expect("published");
        let mut setup = Self { state, publisher, time: 0 };
        setup.push(true, 1_000);
        setup.tend();
        setup
    }

    fn tend(&self) {
        tend(&self.state);
    }

    /// Publishes a picture of this size, 40 ms after the previous one.
    fn push(&mut self, is_key: bool, size: usize) {
        let mut frame = vec![7; size];
        frame[..5].copy_from_slice(&[if is_key { 0x17 } else { 0x27 }, 1, 0, 0, 0]);
        assert!(self.publisher.push(Tag::new(Kind::Video, self.time, &frame).expect("short")));
        self.time += 40;
    }

    fn counts(&self, place: usize) -> Arc<TargetCounts> {
        self.state.live.pushes.counts()[place].1.clone()
    }

    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + LIMIT;
        while !is_so(self) {
            assert!(Instant::now() < end, "{what}: {:?}", self.state.live.pushes.counts());
            sleep(Duration::from_millis(10)).await;
            self.tend();
        }
    }
}

async fn next(seen: &mut UnboundedReceiver<Seen>) -> Seen {
    timeout(LIMIT, seen.recv()).await.expect("in time").expect("a target")
}

/// Returns the next tag of a picture.
async fn picture(seen: &mut UnboundedReceiver<Seen>) -> Tag {
    loop {
        if let Seen::Tag(tag) = next(seen).await
            && tag.kind() == Kind::Video
        {
            return tag;
        }
    }
}

#[tokio::test]
async fn a_stream_reaches_its_target_and_ends_with_it() {
    let (address, mut seen) = target(Behaviour::Accept).await;
    let mut setup = Setup::new(&rule("live/*", address, ""));
    let Seen::Publish(request) = next(&mut seen).await else { panic!("no request") };
    assert_eq!((&*request.app, &*request.stream), ("live", "a"));
    assert!(request.cdn_loop.starts_with("mendcast-"), "{request:?}");
    let first = picture(&mut seen).await;
    assert_eq!((first.role(), first.timestamp()), (Role::KeyFrame, 0));
    setup.push(false, 500);
    assert_eq!(picture(&mut seen).await.timestamp(), 40);
    let counts = setup.counts(0);
    assert_eq!(counts.connected.load(Ordering::Relaxed), 1);
    assert!(counts.bytes.load(Ordering::Relaxed) > 1_500);
    // No viewer: pulls of unwatched streams end.
    assert_eq!(setup.publisher.stream().stats().viewers, 0);
    // A new publisher continues on the same connection.
    let stream = setup.publisher.stream().clone();
    let streams = &setup.state.live.streams;
    let number = setup.publisher.number();
    setup.publisher = streams.take_over(&stream, number).expect("taken over");
    setup.push(true, 500);
    assert_eq!(picture(&mut seen).await.role(), Role::KeyFrame);
    assert_eq!(counts.of(PushEvent::Connected), 1);
    setup.state.live.streams.end(&stream);
    while !matches!(next(&mut seen).await, Seen::Unpublish) {}
    setup.until("ended", |_| counts.of(PushEvent::Ended) == 1).await;
    assert_eq!(counts.connected.load(Ordering::Relaxed), 0);
    // The stream returns, and with it the push.
    let publisher = setup.state.live.streams.publish("live/a", Settings::default());
    setup.publisher = publisher.expect("published again");
    setup.push(true, 500);
    setup.until("resumed", |_| counts.of(PushEvent::Connected) == 2).await;
}

#[tokio::test]
async fn targets_that_fail_are_tried_again_and_counted() {
    for (behaviour, event) in [
        (Behaviour::Hang, PushEvent::Late),
        (Behaviour::Close, PushEvent::Closed),
        (Behaviour::Reject, PushEvent::Refused),
        (Behaviour::Garbage, PushEvent::Invalid),
    ] {
        let (address, _seen) = target(behaviour).await;
        let mut setup = Setup::new(&rule("live/*", address, ""));
        let counts = setup.counts(0);
        setup.until(&format!("{behaviour:?}"), |_| counts.of(event) >= 3).await;
        assert_eq!(counts.connected.load(Ordering::Relaxed), 0);
        let others = PushEvent::ALL.into_iter().filter(|other| {
            ![event, PushEvent::Connected].contains(other) && counts.of(*other) > 0
        });
        assert_eq!(others.collect::<Vec<_>>(), [], "{behaviour:?}");
    }
}

#[tokio::test]
async fn a_target_that_takes_nothing_is_late() {
    let (address, _seen) = target(Behaviour::Stall).await;
    let mut setup = Setup::new(&rule("live/*", address, ""));
    let counts = setup.counts(0);
    setup.until("connected", |_| counts.of(PushEvent::Connected) == 1).await;
    // A publisher that pauses is no reason to disconnect.
    sleep(Duration::from_millis(600)).await;
    assert_eq!(counts.of(PushEvent::Late), 0);
    let end = Instant::now() + LIMIT;
    while counts.of(PushEvent::Late) == 0 {
        assert!(Instant::now() < end, "{counts:?}");
        setup.push(true, 200_000);
        sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test]
async fn a_slow_target_skips_to_a_key_frame() {
    let (address, mut seen) = target(Behaviour::Slow).await;
    let mut setup = Setup::new(&rule("live/*", address, "max_lag = \"1s\"").replace("300ms", "5s"));
    let counts = setup.counts(0);
    setup.until("connected", |_| counts.of(PushEvent::Connected) == 1).await;
    let end = Instant::now() + LIMIT;
    while counts.skips.load(Ordering::Relaxed) == 0 {
        assert!(Instant::now() < end, "{counts:?}");
        for picture in 0..25 {
            setup.push(picture == 0, 100_000);
        }
        sleep(Duration::from_millis(5)).await;
    }
    // It gets pictures after the gap, on the same connection.
    let (mut last, mut widest) = (0, 0);
    while widest < 1_000 {
        let time = picture(&mut seen).await.timestamp();
        (widest, last) = (widest.max(time.saturating_sub(last)), time);
    }
    assert_eq!((counts.of(PushEvent::Connected), counts.of(PushEvent::Late)), (1, 0));
}

#[tokio::test]
async fn a_dead_target_does_not_disturb_another() {
    let (address, mut seen) = target(Behaviour::Accept).await;
    // A port without a listener.
    let dead = TcpListener::bind("127.0.0.1:0").await.expect("bound").local_addr();
    let rules = rule("live/*", dead.expect("bound"), "") + &rule("live/a", address, "");
    let mut setup = Setup::new(&rules);
    for number in 0..20 {
        setup.push(number % 10 == 0, 1_000);
        assert_eq!(picture(&mut seen).await.timestamp(), number * 40);
    }
    let all = setup.state.live.pushes.counts();
    let of = |pattern: &str| {
        all.iter().find(|((stream, _), _)| stream == pattern).expect("a target").1.clone()
    };
    let dead = of("live/*");
    setup.until("failures", |_| dead.of(PushEvent::Unreachable) >= 2).await;
    assert_eq!(of("live/a").of(PushEvent::Connected), 1);
    assert_eq!(dead.of(PushEvent::Connected), 0);
}

#[tokio::test]
async fn a_removed_rule_ends_its_push() {
    let (address, mut seen) = target(Behaviour::Accept).await;
    let mut setup = Setup::new(&rule("live/*", address, ""));
    picture(&mut seen).await;
    let counts = setup.counts(0);
    setup.state = state("", Some(&setup.state));
    setup.until("disconnected", |_| counts.connected.load(Ordering::Relaxed) == 0).await;
    setup.push(false, 1_000);
    sleep(Duration::from_millis(50)).await;
    assert!(lock(&setup.state.live.pushes.running).is_empty());
    assert_eq!(counts.of(PushEvent::Connected), 1);
}

#[tokio::test]
async fn a_stream_names_the_servers_that_it_passed() {
    let (address, mut seen) = target(Behaviour::Accept).await;
    let state = state(&rule("live/*", address, ""), None);
    let via = Via::of([&b"other-server"[..]].into_iter()).expect("no loop");
    state.live.pushes.set_passed("live/a", via);
    let publisher = state.live.streams.publish("live/a", Settings::default()).expect("published");
    tend(&state);
    let Seen::Publish(request) = next(&mut seen).await else { panic!("no request") };
    assert!(request.cdn_loop.starts_with("other-server, mendcast-"), "{request:?}");
    // If it comes back, this server rejects it.
    assert!(Via::of([request.cdn_loop.as_bytes()].into_iter()).is_none());
    drop(publisher);
}
