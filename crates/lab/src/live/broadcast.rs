//! Server side of a view: the publisher, the product's relay, and the viewer's subscription.

use core::task::{Context, Poll, Waker, ready};
use core::time::Duration;
use std::io;

use delivery::{Body, Buffered, Delivery, Filled, FlvStream, Piece, Playing};
use quic::Connection;
use relay::{Publisher, Registry, Viewer};
use units::{StreamId, Timestamp};

use super::view::{Live, LiveOutcome, PICTURES, Skips};

/// Body of the viewer's response, as in the edge but without a session.
struct LiveBody {
    stream: FlvStream,
    /// Bytes of media up to the end of each of the first pictures.
    picture_ends: Vec<u64>,
    /// Whether the viewer has acknowledged the whole first frame.
    is_first_frame_there: bool,
    /// The player's latest report.
    buffered: Option<Buffered>,
}

impl Body for LiveBody {
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>> {
        let piece = ready!(self.stream.poll_next(context));
        let number = self.picture_ends.len();
        if number < PICTURES && self.stream.frames() > number as u64 {
            self.picture_ends.push(self.stream.progress().bytes);
        }
        Poll::Ready(Ok(piece))
    }

    fn live(&self) -> Option<&FlvStream> {
        Some(&self.stream)
    }

    fn buffered(&self) -> Option<Buffered> {
        self.buffered
    }

    fn on_first_frame(&mut self) {
        self.is_first_frame_there = true;
    }
}

/// A published stream and its viewer.
pub(crate) struct Broadcast {
    live: Live,
    registry: Registry,
    publisher: Publisher,
    next: u32,
    viewer: Option<Delivery<LiveBody>>,
    /// Time and media time of the viewer's first media.
    first: Option<(Timestamp, Duration)>,
    /// Server-side statistics; arrivals are empty.
    pub served: LiveOutcome,
}

impl Broadcast {
    pub(crate) fn new(live: Live) -> Self {
        let registry = Registry::new(1);
        let publisher = registry.publish("live/lab", live.settings).expect("the first stream");
        for header in live.source.opening() {
            publisher.push(header.clone());
        }
        Self {
            live,
            registry,
            publisher,
            next: 0,
            viewer: None,
            first: None,
            served: LiveOutcome::default(),
        }
    }

    /// Time of the next tag; `None` at the end.
    pub(crate) fn deadline(&self) -> Option<Timestamp> {
        (self.next <= self.live.source.len()).then(|| self.live.published(self.next))
    }

    /// Publishes all tags due.
    pub(crate) fn publish(&mut self, now: Timestamp) {
        while self.deadline().is_some_and(|due| due <= now) {
            if self.next == self.live.source.len() {
                self.registry.end(self.publisher.stream());
            } else {
                self.publisher.push(self.live.source.tag(self.next));
            }
            self.next += 1;
        }
    }

    /// Handles the viewer's request on this stream.
    pub(crate) fn join(&mut self, now: Timestamp, id: StreamId) {
        self.served.asked_at = Some(now);
        let viewer = Viewer::new(self.publisher.stream().clone(), self.live.start)
            .expect("the first viewer");
        let body = LiveBody {
            stream: FlvStream::new(viewer, self.live.video_frames),
            picture_ends: Vec::new(),
            is_first_frame_there: false,
            buffered: None,
        };
        self.viewer = Some(Delivery::new(id, body));
    }

    /// Handles a report of the player's buffer level at `at`, sent with the data that the server
    /// receives now.
    pub(crate) fn heard(&mut self, at: Timestamp, media: Duration) {
        let Some(delivery) = &mut self.viewer else { return };
        let playhead = delivery.playhead();
        if let Some(has) = playhead.has() {
            let ms = |time: Duration| time.as_secs_f64() * 1e3;
            let shown = ms(has.saturating_sub(media));
            let off = |foreseen: Option<Duration>| Some(ms(foreseen?) - shown);
            self.served.playhead_off_ms.extend(off(playhead.shown_at(at)));
            let first = self.first.map(|(since, media)| media + at.since(since));
            self.served.playhead_off_unheard_ms.extend(off(first));
        }
        let body = delivery.body_mut();
        let report = body.buffered.map_or(1, |last| last.report + 1);
        body.buffered = Some(Buffered { report, media });
    }

    /// During a view: bytes up to the end of the first frame, if known.
    pub(crate) fn first_frame_ahead(&self) -> Option<Option<u64>> {
        self.viewer.as_ref().map(|delivery| delivery.body().stream.first_frame_ahead())
    }

    /// During a view: playback state of the stream.
    pub(crate) fn playing(&self) -> Option<Playing> {
        self.viewer.as_ref().map(|delivery| delivery.body().stream.playing())
    }

    /// Writes as much as the stream accepts.
    pub(crate) fn fill(
        &mut self,
        http: &mut http3::Server,
        now: Timestamp,
        connection: &mut Connection,
    ) {
        let Some(delivery) = &mut self.viewer else { return };
        let context = &mut Context::from_waker(Waker::noop());
        let filled = delivery.fill(http, now, connection, context);
        if let (None, Some(has)) = (self.first, delivery.playhead().has()) {
            self.first = Some((now - connection.rtt().smoothed() / 2, has));
        }
        let unsent = connection.unsent(delivery.id()).unwrap_or(0);
        let LiveBody { stream, picture_ends, is_first_frame_there, .. } = delivery.body();
        let (progress, served) = (stream.progress(), &mut self.served);
        if let Some(sent) = connection.send_progress(delivery.id()) {
            // Framing takes a few bytes per tag, counted as if all preceded the picture.
            let framing = sent.written.saturating_sub(progress.bytes);
            let totals = &connection.recovery().totals;
            let known = served.picture_losses.len();
            let is_acked = |end: &&u64| sent.acked >= **end + framing;
            for _ in picture_ends[known..].iter().take_while(is_acked) {
                served.picture_losses.push((totals.lost, totals.settled()));
            }
        }
        served.most_unsent = served.most_unsent.max(unsent);
        served.bytes = progress.bytes;
        served.skips =
            Skips { count: progress.skips, ms: progress.skipped_ms, thinned: progress.thinned };
        served.first_frame_bytes = stream.first_frame_bytes();
        if *is_first_frame_there && served.first_frame_at.is_none() {
            served.first_frame_at = Some(now);
        }
        if filled == Filled::Finished {
            self.viewer = None;
        }
    }
}
