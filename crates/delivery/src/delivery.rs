//! Bodies in transfer. Each stream is refilled when it has little unsent.

use core::task::{Context, Poll};

use http3::OverQuic;
use quic::Connection;
use quic::streams::SendProgress;
use units::{Mark, StreamId, Timestamp};

use crate::start::is_unmeasured;
use crate::{Body, FlvStream, Framing, Piece, Playhead};

/// Maximum of unsent bytes per stream; live streams have a lower limit.
const HIGH_WATER: u64 = 128 * 1024;

/// A body in transfer.
#[derive(Debug)]
pub struct Delivery<B> {
    id: StreamId,
    body: B,
    first_frame: FirstFrame,
    playhead: Playhead,
    began: Option<Timestamp>,
    /// Whether the viewer is still receiving cached data of the stream.
    catches_up: bool,
}

/// Progress of a live stream's first frame.
#[derive(Clone, Copy, Debug)]
enum FirstFrame {
    /// Not written to the transport yet.
    Unsent,
    /// Written up to this offset of the stream.
    Sent(u64),
    Acked,
}

/// Why a refill stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filled {
    /// The stream has enough unsent data.
    Enough,
    /// The body has no data yet.
    Waiting,
    /// The response is finished.
    Finished,
}

/// The next action on a stream.
#[derive(Debug)]
enum DeliveryStep {
    Send(Piece),
    Finish,
    /// The body cannot be completed.
    Abort,
    Stop(Filled),
}

impl<B: Body> Delivery<B> {
    /// Creates the delivery of a response body; its head must be sent already.
    pub fn new(id: StreamId, body: B) -> Self {
        let (first_frame, playhead) = (FirstFrame::Unsent, Playhead::default());
        Self { id, body, first_frame, playhead, began: None, catches_up: true }
    }

    /// Returns the stream's identifier.
    pub fn id(&self) -> StreamId {
        self.id
    }

    /// Returns the body.
    pub fn body(&self) -> &B {
        &self.body
    }

    /// Returns the body for modification.
    pub fn body_mut(&mut self) -> &mut B {
        &mut self.body
    }

    /// Returns the player's position.
    pub fn playhead(&self) -> &Playhead {
        &self.playhead
    }

    /// Returns whether the acknowledgement of a first frame is outstanding.
    pub fn expects_first_frame(&self) -> bool {
        self.body.live().is_some() && !matches!(self.first_frame, FirstFrame::Acked)
    }

    /// Writes as much as the stream has room for. To be called after sending, after
    /// acknowledgements, and when the body's waker fires.
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
        if let Some(rate) = connection.pacing_rate().filter(|_| !is_unmeasured(connection)) {
            self.body.on_path_rate(rate);
        }
        let began = *self.began.get_or_insert(now);
        loop {
            let Some(progress) = connection.send_progress(id) else { return Filled::Finished };
            self.update_playhead(now, connection, progress);
            let step = self.step(progress, enough, context);
            let mut t = OverQuic::new(connection, now);
            match step {
                DeliveryStep::Stop(filled) => return filled,
                DeliveryStep::Send(piece) => {
                    if framing.send(&mut t.marked(self.mark(began, now)), id, piece) {
                        continue;
                    }
                }
                DeliveryStep::Finish => framing.finish(&mut t, id),
                DeliveryStep::Abort => framing.abort(&mut t, id),
            }
            return Filled::Finished;
        }
    }

    fn update_playhead(&mut self, now: Timestamp, connection: &Connection, progress: SendProgress) {
        let Some(media) = self.body.live().and_then(FlvStream::media_time) else { return };
        self.playhead.on_written(progress.written, media);
        self.playhead.on_acked(progress.acked);
        if let Some(buffered) = self.body.buffered() {
            // Report and acknowledgements both left half a round trip ago.
            self.playhead.on_report(now - connection.rtt().smoothed() / 2, buffered);
        }
    }

    /// Returns the mark for loss recovery of the last piece: its media time and its deadline.
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

    /// Returns the next action for a stream at this progress, with less than `enough` to be unsent.
    fn step(
        &mut self,
        progress: SendProgress,
        enough: u64,
        context: &mut Context<'_>,
    ) -> DeliveryStep {
        if let Some(live) = self.body.live() {
            match self.first_frame {
                FirstFrame::Unsent if live.has_frame() => {
                    self.first_frame = FirstFrame::Sent(progress.written);
                }
                FirstFrame::Sent(end) if progress.acked >= end => {
                    self.first_frame = FirstFrame::Acked;
                    self.body.on_first_frame();
                }
                _ => {}
            }
        }
        // A finished body needs no room.
        if progress.written - progress.sent >= enough && !self.body.is_over() {
            return DeliveryStep::Stop(Filled::Enough);
        }
        match self.body.poll_fill(context) {
            Poll::Pending => {
                self.catches_up &= self.body.live().is_some_and(|live| !live.has_frame());
                DeliveryStep::Stop(Filled::Waiting)
            }
            Poll::Ready(Ok(Some(piece))) => DeliveryStep::Send(piece),
            Poll::Ready(Ok(None)) => DeliveryStep::Finish,
            Poll::Ready(Err(_)) => DeliveryStep::Abort,
        }
    }
}

#[cfg(test)]
mod tests;
