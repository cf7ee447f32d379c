//! What stands between a stream's tags and the transport: the server and the testbed run it alike.
//!
//! A [`FlvStream`] turns what a viewer gets of a stream into the bytes of an FLV file. A [`Delivery`] hands the
//! pieces of a body to a QUIC stream as there is room, a live one with as little ahead as [`relay::send_ahead`]
//! says, and knows when the first frame was acknowledged and where the player is ([`Playhead`]). A [`Framing`] frames the
//! pieces: HTTP/3 does, here.
//! [`start`] begins a connection in the way of `startup`, and [`learned`] is what the next one gets of it. [`Capping`]
//! holds it to what its user group may send. [`Transport`] is how the connection under a session does, and fills the session's record with it.
//!
//! There is no IO and no clock: time comes with each call, and waiting is told to a waker.

#![forbid(unsafe_code)]

mod body;
mod capping;
mod delivery;
mod flv;
mod framing;
mod playhead;
mod start;
mod transport;

pub use body::Body;
pub use capping::{Capping, Playing};
pub use delivery::{Delivery, Filled};
pub use flv::{FlvStream, Piece};
pub use framing::Framing;
pub use playhead::{Buffered, Playhead, STALE_REPORT};
pub use start::{Started, controller, guided, knows_nothing, learned, start};
pub use transport::{AfterLoss, Transport};
