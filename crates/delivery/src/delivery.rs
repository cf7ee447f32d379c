//! Bodies on their way: each stream is given more of its own when it has little unsent.

use core::task::{Context, Poll};

use http3::OverQuic;
use quic::Connection;
use quic::streams::SendProgress;
use units::{Mark, StreamId, Timestamp};

use crate::{Body, FlvStream, Framing, Piece, Playhead};

/// Bytes of a stream that may be unsent before its body has to wait; a live one waits earlier.
const HIGH_WATER: u64 = 128 * 1024;

/// A body under way.
#[derive(Debug)]
pub struct Delivery<B> {
    id: StreamId,
    body: B,
    first_frame: FirstFrame,
    playhead: Playhead,
    /// When the body was first asked for more.
    began: Option<Timestamp>,
    /// The viewer did not get all yet that was kept for those who come.
    catches_up: bool,
}

/// The first frame of a live stream on its way.
#[derive(Clone, Copy, Debug)]
enum FirstFrame {
    /// Not handed to the transport yet.
    Ahead,
    /// Ends at this offset of the stream.
    Sent(u64),
    Acked,
}

/// Why no more was handed over to a stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// As much as the stream may hold unsent is there.
    Enough,
    /// The body has to wait.
    Waits,
    /// The response is over.
    Over,
}

/// What comes next.
#[derive(Debug)]
enum Step {
    Send(Piece),
    Finish,
    /// The body cannot be completed.
    Abort,
    Stop(Filled),
}

impl<B: Body> Delivery<B> {
    /// The body of the response on this stream, behind the head that was sent.
    pub fn new(id: StreamId, body: B) -> Self {
        let (first_frame, playhead) = (FirstFrame::Ahead, Playhead::default());
        Self { id, body, first_frame, playhead, began: None, catches_up: true }
    }

    /// The stream.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// What is delivered.
    pub fn body(&self) -> &B {
        &self.body
    }

    /// The same, to change it.
    pub fn body_mut(&mut self) -> &mut B {
        &mut self.body
    }

    /// The player, as far as it is known.
    pub fn playhead(&self) -> &Playhead {
        &self.playhead
    }

    /// Whether the acknowledgement of the first frame is still to come.
    pub fn expects_first_frame(&self) -> bool {
        self.body.live().is_some() && !matches!(self.first_frame, FirstFrame::Acked)
    }

    /// Hands over what the stream has room for. To be called when something was sent or acknowledged, and when
    /// the body's waker was woken.
    pub fn fill(
        &mut self,
        framing: &mut (impl Framing + ?Sized),
        now: Timestamp,
        connection: &mut Connection,
        context: &mut Context<'_>,
    ) -> Filled {
        let id = self.id;
        let enough = match (connection.pacing_rate(), self.body.live()) {
            (Some(rate), Some(_)) => relay::send_ahead(rate).min(HIGH_WATER),
            _ => HIGH_WATER,
        };
        let began = *self.began.get_or_insert(now);
        loop {
            let Some(progress) = connection.send_progress(id) else { return Filled::Over };
            self.look(now, connection, progress);
            let step = self.step(progress, enough, context);
            let mut t = OverQuic::new(connection, now);
            match step {
                Step::Stop(filled) => return filled,
                Step::Send(piece) => {
                    if framing.send(&mut t.marked(self.mark(began, now)), id, piece) {
                        continue;
                    }
                }
                Step::Finish => framing.finish(&mut t, id),
                Step::Abort => framing.abort(&mut t, id),
            }
            return Filled::Over;
        }
    }

    /// Notes what the viewer has and what its player said.
    fn look(&mut self, now: Timestamp, connection: &Connection, progress: SendProgress) {
        let Some(media) = self.body.live().and_then(FlvStream::media_time) else { return };
        self.playhead.handed(progress.written, media);
        self.playhead.acked(progress.acked);
        if let Some(buffered) = self.body.buffered() {
            // What was said and what was acknowledged both left half a round trip ago.
            self.playhead.heard(now - connection.rtt().smoothed() / 2, buffered);
        }
    }

    /// What loss recovery gets to know of the piece that was handed out last: its place on the time line, and when the
    /// player comes to it.
    fn mark(&self, began: Timestamp, now: Timestamp) -> Option<Mark> {
        let Some(live) = self.body.live() else {
            let deadline = Some(began + self.body.slack()?);
            return Some(Mark { media_time: None, deadline, catching_up: None });
        };
        let media_time = live.media_time()?;
        let deadline = self.playhead.deadline(now, media_time);
        let catching_up = self.catches_up.then(|| live.playing().bitrate).flatten();
        Some(Mark { media_time: Some(media_time), deadline, catching_up })
    }

    /// What comes next for a stream that has come so far, and may hold less than `enough` unsent.
    fn step(&mut self, progress: SendProgress, enough: u64, context: &mut Context<'_>) -> Step {
        if let Some(live) = self.body.live() {
            match self.first_frame {
                FirstFrame::Ahead if live.has_frame() => {
                    self.first_frame = FirstFrame::Sent(progress.written);
                }
                FirstFrame::Sent(end) if progress.acked >= end => {
                    self.first_frame = FirstFrame::Acked;
                    self.body.on_first_frame();
                }
                _ => {}
            }
        }
        // Who gets no more is not waited for.
        if progress.written - progress.sent >= enough && !self.body.is_over() {
            return Step::Stop(Filled::Enough);
        }
        match self.body.poll_fill(context) {
            Poll::Pending => {
                self.catches_up &= self.body.live().is_some_and(|live| !live.has_frame());
                Step::Stop(Filled::Waits)
            }
            Poll::Ready(Ok(Some(piece))) => Step::Send(piece),
            Poll::Ready(Ok(None)) => Step::Finish,
            Poll::Ready(Err(_)) => Step::Abort,
        }
    }
}

#[cfg(test)]
mod tests;
