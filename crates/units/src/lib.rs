//! The quantities that every room shares: points in time, rates, packet numbers, stream
//! identifiers, ECN codepoints and marks of media data, as newtypes that cannot be confused with one another.
//!
//! Time is integer nanoseconds and never comes from a clock in here: the caller (a socket loop or
//! the virtual-time testbed) says what time it is.

#![forbid(unsafe_code)]

mod ids;
mod mark;
mod rate;
mod time;

pub use ids::{Direction, Ecn, PacketNumber, Side, StreamId};
pub use mark::Mark;
pub use rate::{ParseRateError, Rate};
pub use time::Timestamp;
