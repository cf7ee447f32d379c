//! Bodies on their way: each stream is given more of its own when it has little unsent.

use std::task::{Context, Poll};

use ::quic::Connection;
use units::{StreamId, Timestamp};

use super::application::Application;
use crate::http::Responder;

/// Bytes of a stream that may be unsent before its responder has to wait; a live one waits earlier.
const HIGH_WATER: u64 = 128 * 1024;

/// A response under way.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) id: StreamId,
    body: Responder,
    first_frame: FirstFrame,
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

impl Response {
    /// A response whose head alone was handed over.
    pub(super) fn new(id: StreamId, body: Responder) -> Self {
        Self { id, body, first_frame: FirstFrame::Ahead }
    }

    /// Whether the acknowledgement of the first frame is still to come.
    pub(super) fn expects_first_frame(&self) -> bool {
        self.body.live().is_some() && !matches!(self.first_frame, FirstFrame::Acked)
    }
}

/// Why no more was handed over to a stream.
#[derive(PartialEq, Eq)]
pub(super) enum Filled {
    /// As much as the stream may hold unsent is there.
    Enough,
    /// The body has to wait.
    Waits,
    /// The response is over.
    Over,
}

/// Fills one stream.
pub(super) fn fill(
    application: &mut dyn Application,
    response: &mut Response,
    now: Timestamp,
    connection: &mut Connection,
    context: &mut Context<'_>,
) -> Filled {
    let id = response.id;
    let enough = match (connection.pacing_rate(), response.body.live()) {
        (Some(rate), Some(_)) => relay::send_ahead(rate).min(HIGH_WATER),
        _ => HIGH_WATER,
    };
    loop {
        let Some(progress) = connection.send_progress(id) else { return Filled::Over };
        if let Some(live) = response.body.live() {
            match response.first_frame {
                FirstFrame::Ahead if live.has_frame() => {
                    response.first_frame = FirstFrame::Sent(progress.written);
                }
                FirstFrame::Sent(end) if progress.acked >= end => {
                    response.first_frame = FirstFrame::Acked;
                    live.session().on_first_frame();
                }
                _ => {}
            }
        }
        // Who gets no more is not waited for.
        let is_over = response.body.live().is_some_and(|live| live.session().stay().is_over());
        if progress.written - progress.sent >= enough && !is_over {
            return Filled::Enough;
        }
        let Poll::Ready(next) = response.body.poll_fill(context) else { return Filled::Waits };
        let mark = response.body.live().and_then(|live| live.mark(now));
        let goes_on = match next {
            Ok(Some(piece)) => application.send(now, connection, id, piece, mark),
            Ok(None) => {
                application.finish(now, connection, id);
                false
            }
            Err(_) => {
                application.abort(now, connection, id);
                false
            }
        };
        if !goes_on {
            return Filled::Over;
        }
    }
}
