//! Bodies of responses.

use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

use units::Rate;

use crate::flv::{FlvStream, Piece};
use crate::playhead::Buffered;

/// A response body that is produced as the transport has room.
pub trait Body {
    /// Polls for the next piece; `None` at the end. If pending, the context is woken on progress.
    ///
    /// # Errors
    /// If the body cannot be completed. The response must then be aborted.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>>;

    /// Returns the live stream, if this is one. Little of it should be queued unsent.
    fn live(&self) -> Option<&FlvStream>;

    /// Returns true once the body is finished, even if the transport is blocked.
    fn is_over(&self) -> bool {
        false
    }

    /// Returns the slack of fetched data from its first byte, if known.
    fn slack(&self) -> Option<Duration> {
        None
    }

    /// Returns the last buffer report of a live stream's player, if any.
    fn buffered(&self) -> Option<Buffered> {
        None
    }

    /// Handles a measurement of the path: the rate at which the transport sends.
    fn on_path_rate(&mut self, _rate: Rate) {}

    /// Handles the acknowledgement of a live stream's whole first frame.
    fn on_first_frame(&mut self);
}
