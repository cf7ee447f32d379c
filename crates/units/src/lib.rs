//! Shared quantities as distinct newtypes: points in time, rates, packet numbers, stream
//! identifiers, ECN codepoints and marks of media data.
//!
//! Time is integer nanoseconds. This crate reads no clock: the caller (a socket loop or the
//! virtual-time testbed) provides the time.

#![forbid(unsafe_code)]

mod calendar;
mod ids;
mod mark;
mod mix;
mod queue;
mod rate;
mod span;
mod time;

pub use calendar::{date_time, parse_compact_date};
pub use ids::{Direction, Ecn, PacketNumber, Side, StreamId};
pub use mark::Mark;
pub use mix::{GOLDEN_GAMMA, mix64};
pub use queue::{release_capacity, reserve_first};
pub use rate::{ParseRateError, Rate};
pub use span::{ParseDurationError, parse_duration};
pub use time::Timestamp;
