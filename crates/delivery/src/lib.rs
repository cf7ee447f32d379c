//! Delivery of a stream to a viewer: the layer between a stream's tags and the transport, shared by
//! the server and the testbed.
//!
//! An [`FlvStream`] converts a viewer's tags into an FLV file. A [`Delivery`] passes the pieces of
//! a body to a QUIC stream as it has room, for live streams with as little queued as
//! [`relay::send_ahead`] allows. It also detects the acknowledgement of the first frame and tracks
//! the player ([`Playhead`]). A [`Framing`], such as HTTP/3, frames the pieces.
//!
//! [`start()`] starts a connection by the rules of `startup`, and [`path_state`] saves its path
//! state for the next one. [`Capping`] applies the caps of the viewer's user group.
//! [`RenditionChoice`] chooses among the renditions of a ladder. [`TransportStats`] collects
//! transport statistics and writes them to the session's record.
//!
//! The crate has no IO and no clock: callers pass the time, and wakers signal progress.

#![forbid(unsafe_code)]

mod body;
mod capping;
mod delivery;
mod flv;
mod framing;
mod playhead;
mod rendition;
mod set_up;
mod start;
mod transport;

pub use body::Body;
pub use capping::{Capping, Playing};
pub use delivery::{Delivery, Filled};
pub use flv::{FlvStream, Piece};
pub use framing::Framing;
pub use playhead::{Buffered, Playhead, STALE_REPORT};
pub use rendition::RenditionChoice;
pub use set_up::{relay_settings, start_policy, video_frames};
pub use start::{Started, controller, guided, is_unmeasured, path_state, start};
pub use transport::{AfterLoss, TransportStats};
