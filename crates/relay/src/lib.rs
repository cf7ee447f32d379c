//! Relay from one publisher to any number of viewers.
//!
//! A [`Stream`] stores the newest tags once. Each [`Viewer`] is a cursor into it that pulls the
//! next tag when its transport has room. Nothing is queued per viewer, so slow viewers cost no
//! memory. A viewer that falls too far behind skips to the newest key frame at a tag boundary,
//! which is counted. [`Start`] selects where a new viewer joins.
//!
//! This crate performs no IO and reads no clock: lag is media time, and blocked viewers register a
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
pub use viewer::{Viewer, ViewerProgress};

#[cfg(test)]
mod tests;
