//! Time windows of blackholes and loss scripts.

use core::str::FromStr;
use core::time::Duration;

use units::Timestamp;

use crate::text::{ParseError, parse_duration};

/// A time window from `at` to before `at + length`. As text: `2s,500ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Start.
    pub at: Timestamp,
    /// Length.
    pub length: Duration,
}

impl Window {
    /// Returns true if `now` is in the window.
    #[inline]
    pub fn contains(&self, now: Timestamp) -> bool {
        now >= self.at && now.since(self.at) < self.length
    }
}

impl FromStr for Window {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let read = || {
            let (at, length) = text.split_once(',')?;
            let at = Timestamp::ZERO + parse_duration(at).ok()?;
            Some(Self { at, length: parse_duration(length).ok()? })
        };
        read().ok_or_else(|| ParseError::new(text, "start and length: `2s,500ms`"))
    }
}
