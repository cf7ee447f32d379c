//! The wall clock as passes, tickets, tokens and keys write it.

use std::time::SystemTime;

/// Whole seconds since 1970; 0 before that.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The same of this moment.
pub(crate) fn unix_now() -> u64 {
    unix(SystemTime::now())
}
