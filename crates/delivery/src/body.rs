//! What is delivered.

use core::task::{Context, Poll};
use core::time::Duration;
use std::io;

use crate::flv::{FlvStream, Piece};
use crate::playhead::Buffered;

/// A body that is handed out as the transport has room for it.
pub trait Body {
    /// The next piece, `None` at the end. Where it is pending, the context is woken when there is more.
    ///
    /// # Errors
    /// The body cannot be completed; its response has to be cut off.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Option<Piece>>>;

    /// The live stream that this is, if it is one: little of it should wait unsent.
    fn live(&self) -> Option<&FlvStream>;

    /// Whether nothing more of it is to be sent, also where the transport has no room: its next piece is the end.
    fn is_over(&self) -> bool {
        false
    }

    /// How long from its first byte on the player can do without what is fetched; `None` if that is not known.
    fn slack(&self) -> Option<Duration> {
        None
    }

    /// What the player of a live stream said last that it has buffered; `None` if it says nothing.
    fn buffered(&self) -> Option<Buffered> {
        None
    }

    /// The viewer has acknowledged all of a live stream's first frame.
    fn on_first_frame(&mut self);
}
