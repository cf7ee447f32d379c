//! From one publisher to any number of viewers.
//!
//! A [`Stream`] holds the newest tags once. Every viewer is a cursor into it ([`Viewer`]) that pulls
//! the next tag when its transport has room; nothing is queued per viewer, so a slow one costs no
//! memory. It falls behind, and when it is too far behind it moves to the newest key frame at a
//! tag boundary, which is counted. Where a new viewer starts is a policy ([`Start`]).
//!
//! There is no IO and no clock here: "too far" is media time, and waiting is told to a
//! [`Waker`](core::task::Waker). Sockets, runtimes and the testbed drive it alike.

#![forbid(unsafe_code)]

mod cursor;
pub mod memory;
mod registry;
mod send_ahead;
mod stream;
mod viewer;

pub use cursor::{Cursor, Lags, Next, Start};
pub use memory::Memory;
pub use registry::{Publisher, Refusal, Registry};
pub use send_ahead::send_ahead;
pub use stream::{Settings, Stats, Status, Stream};
pub use viewer::{Progress, Viewer};

#[cfg(test)]
mod tests;
