//! Steps of the round-trip time: route changes, and hand-overs between cells or satellites.

use core::str::FromStr;
use core::time::Duration;
use std::sync::Arc;

use units::Timestamp;

use crate::text::{ParseError, parse_duration};

/// Maximum round-trip time.
const MAX_RTT: Duration = Duration::from_secs(3_600);

/// Round-trip times from given points in virtual time on. Each direction takes half. Before the
/// first step, the link's own delay applies.
///
/// Packets sent after a step to a shorter time may overtake earlier ones, as after a route change.
/// As text: `8s:200ms,20s:20ms`, with ascending times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps(Arc<[(Timestamp, Duration)]>);

impl Steps {
    /// Returns the number of steps up to `at`.
    #[inline]
    pub(crate) fn count(&self, at: Timestamp) -> usize {
        self.0.partition_point(|(from, _)| *from <= at)
    }

    /// Returns the one-way delay after `count` steps; `None` before the first.
    #[inline]
    pub(crate) fn delay(&self, count: usize) -> Option<Duration> {
        count.checked_sub(1).and_then(|step| self.0.get(step)).map(|(_, rtt)| *rtt / 2)
    }

    /// Returns the minimum one-way delay of all steps.
    pub(crate) fn least(&self) -> Duration {
        self.0.iter().map(|(_, rtt)| *rtt / 2).min().unwrap_or(Duration::MAX)
    }
}

impl FromStr for Steps {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let read = || {
            let step = |step: &str| {
                let (at, rtt) = step.split_once(':')?;
                let rtt = parse_duration(rtt).ok().filter(|rtt| *rtt <= MAX_RTT)?;
                Some((Timestamp::ZERO + parse_duration(at).ok()?, rtt))
            };
            let steps: Arc<[_]> = text.split(',').map(step).collect::<Option<_>>()?;
            steps.windows(2).all(|pair| pair[0].0 < pair[1].0).then_some(Self(steps))
        };
        read().ok_or_else(|| {
            let expected = "times that ascend and the round-trip time (up to 1 h) from each on: \
                `8s:200ms,20s:20ms`";
            ParseError::new(text, expected)
        })
    }
}

#[cfg(test)]
#[path = "steps_tests.rs"]
mod tests;
