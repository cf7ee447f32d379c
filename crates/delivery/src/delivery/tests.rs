//! Tests of a delivery with scripted stream progress and bodies.

use core::num::NonZeroU32;
use core::task::Waker;
use core::time::Duration;
use std::collections::VecDeque;
use std::io;

use bytes::{Buf as _, Bytes};
use media::{Kind, Tag};
use relay::{Publisher, Registry, Settings, Start, Viewer};

use super::*;

#[derive(Debug, Default)]
struct Scripted {
    next: VecDeque<Poll<io::Result<Option<Piece>>>>,
    is_over: bool,
    slack: Option<Duration>,
}

impl Body for Scripted {
    fn poll_fill(&mut self, _: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>> {
        self.next.pop_front().unwrap_or(Poll::Pending)
    }

    fn live(&self) -> Option<&FlvStream> {
        None
    }

    fn is_over(&self) -> bool {
        self.is_over
    }

    fn slack(&self) -> Option<Duration> {
        self.slack
    }

    fn on_first_frame(&mut self) {
        panic!("it has no frames");
    }
}

/// A live stream, and the number of acknowledgements of its first frame.
struct Live(FlvStream, usize);

impl Body for Live {
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>> {
        self.0.poll_next(context).map(Ok)
    }

    fn live(&self) -> Option<&FlvStream> {
        Some(&self.0)
    }

    fn on_first_frame(&mut self) {
        self.1 += 1;
    }
}

fn piece(text: &'static str) -> Poll<io::Result<Option<Piece>>> {
    let shared = Bytes::from_static(text.as_bytes());
    Poll::Ready(Ok(Some(Bytes::new().chain(shared))))
}

fn scripted(next: impl IntoIterator<Item = Poll<io::Result<Option<Piece>>>>) -> Delivery<Scripted> {
    let body = Scripted { next: next.into_iter().collect(), ..Scripted::default() };
    Delivery::new(StreamId(0), body)
}

fn step<B: Body>(delivery: &mut Delivery<B>, written: u64, sent: u64, acked: u64) -> DeliveryStep {
    let context = &mut Context::from_waker(Waker::noop());
    delivery.step(SendProgress { written, sent, acked }, HIGH_WATER, context)
}

#[test]
fn a_body_is_sent_while_there_is_room_and_data() {
    let mut delivery = scripted([piece("a"), Poll::Pending, piece("b"), Poll::Ready(Ok(None))]);
    let full = HIGH_WATER + 5;
    assert!(matches!(step(&mut delivery, full, 5, 5), DeliveryStep::Stop(Filled::Enough)));
    assert!(matches!(step(&mut delivery, full, 6, 5), DeliveryStep::Send(_)), "one byte was sent");
    assert!(matches!(step(&mut delivery, 0, 0, 0), DeliveryStep::Stop(Filled::Waiting)));
    assert!(matches!(step(&mut delivery, 0, 0, 0), DeliveryStep::Send(_)));
    assert!(matches!(step(&mut delivery, 0, 0, 0), DeliveryStep::Finish));
    assert!(!delivery.expects_first_frame());
}

#[test]
fn a_finished_body_does_not_wait_for_room() {
    let broken = || Poll::Ready(Err(io::ErrorKind::Other.into()));
    let mut delivery = scripted([Poll::Ready(Ok(None)), broken()]);
    assert!(matches!(step(&mut delivery, HIGH_WATER, 0, 0), DeliveryStep::Stop(Filled::Enough)));
    delivery.body.is_over = true;
    assert!(matches!(step(&mut delivery, HIGH_WATER, 0, 0), DeliveryStep::Finish));
    assert!(matches!(step(&mut delivery, HIGH_WATER, 0, 0), DeliveryStep::Abort));
}

#[test]
fn a_body_that_cannot_be_completed_is_aborted() {
    let mut delivery = scripted([piece("a"), Poll::Ready(Err(io::ErrorKind::Other.into()))]);
    assert!(matches!(step(&mut delivery, 0, 0, 0), DeliveryStep::Send(_)));
    assert!(matches!(step(&mut delivery, 1, 1, 1), DeliveryStep::Abort));
}

/// A stream with sequence headers only, and one viewer.
fn live() -> (Publisher, Delivery<Live>) {
    let publisher = Registry::new(1).publish("live/a", Settings::default()).expect("room");
    publish(&publisher, 0, &[0x17, 0, 0, 0, 0, 1]);
    let viewer = Viewer::new(publisher.stream().clone(), Start::LatestGop).expect("room");
    (publisher, Delivery::new(StreamId(0), Live(FlvStream::new(viewer, NonZeroU32::MIN), 0)))
}

#[test]
fn a_viewer_catches_up_until_cached_data_is_delivered() {
    let (publisher, mut delivery) = live();
    let mark = |delivery: &Delivery<Live>| {
        delivery.mark(Timestamp::ZERO, Timestamp::ZERO).map(|m| m.catching_up)
    };
    // Waiting for the first frame does not end catching up.
    while let DeliveryStep::Send(_) = step(&mut delivery, 0, 0, 0) {}
    for frame in 0..50 {
        let kind = if frame == 0 { 0x17 } else { 0x27 };
        publish(&publisher, 40 * frame, &[kind, 1, 0, 0, 0, 7, 7, 7]);
    }
    let rate = publisher.stream().bitrate();
    assert!(rate.is_some());
    let mut marks = Vec::new();
    while let DeliveryStep::Send(_) = step(&mut delivery, 0, 0, 0) {
        marks.extend(mark(&delivery));
    }
    assert!(marks.len() >= 50 && marks.iter().all(|mark| *mark == rate), "{marks:?}");
    publish(&publisher, 2_000, &[0x27, 1, 0, 0, 0, 7, 7, 7]);
    assert!(matches!(step(&mut delivery, 0, 0, 0), DeliveryStep::Send(_)));
    assert_eq!(mark(&delivery), Some(None));
}

#[test]
fn fetched_data_has_the_slack_of_its_body_from_the_first_byte() {
    let mut delivery = scripted([]);
    let at = Timestamp::from_millis;
    let mark = |delivery: &Delivery<Scripted>| delivery.mark(at(5_000), at(5_200));
    assert_eq!(mark(&delivery), None);
    delivery.body.slack = Some(Duration::from_millis(700));
    let (deadline, catching_up) = (Some(at(5_700)), None);
    assert_eq!(mark(&delivery), Some(Mark { media_time: None, deadline, catching_up }));
}

fn publish(publisher: &Publisher, time: u32, payload: &[u8]) {
    publisher.push(Tag::new(Kind::Video, time, payload).expect("short"));
}

#[test]
fn the_first_frame_is_acknowledged_once_with_its_last_byte() {
    let (publisher, mut delivery) = live();
    publish(&publisher, 0, &[0x17, 1, 0, 0, 0, 7, 7, 7]);
    let mut written = 0;
    while let DeliveryStep::Send(piece) = step(&mut delivery, written, written, 0) {
        written += piece.remaining() as u64;
    }
    let end = written;
    assert!(delivery.body.0.has_frame() && delivery.expects_first_frame());
    // Later data need not arrive.
    publish(&publisher, 40, &[0x27, 1, 0, 0, 0, 7]);
    let DeliveryStep::Send(piece) = step(&mut delivery, end, end, 0) else { panic!("a frame") };
    written += piece.remaining() as u64;
    for (acked, count) in [(end - 1, 0), (end, 1), (written, 1)] {
        assert!(matches!(
            step(&mut delivery, written, written, acked),
            DeliveryStep::Stop(Filled::Waiting)
        ));
        assert_eq!((delivery.body.1, delivery.expects_first_frame()), (count, count == 0));
    }
}
