//! Points in time as integer nanoseconds since an origin that the caller chooses.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::time::Duration;

/// A point in time: nanoseconds since the origin of the caller's clock.
///
/// Spans between two points are [`Duration`]s. Arithmetic saturates: a time before the origin is
/// the origin, a time beyond 584 years is [`Timestamp::MAX`].
///
/// ```
/// use core::time::Duration;
/// use mendcast_units::Timestamp;
///
/// let start = Timestamp::from_millis(100);
/// let end = start + Duration::from_millis(20);
/// assert_eq!(end - start, Duration::from_millis(20));
/// // `since` saturates, so a reordered event has age zero.
/// assert_eq!(start.since(end), Duration::ZERO);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);
    /// The last representable point; stands for "never" in deadlines that must be ordered.
    pub const MAX: Self = Self(u64::MAX);

    /// The point `nanos` nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The point `micros` microseconds after the origin.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000))
    }

    /// The point `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis.saturating_mul(1_000_000))
    }

    /// The point `secs` seconds after the origin.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs.saturating_mul(1_000_000_000))
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Seconds since the origin, for plots and logs.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[inline]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Whole nanoseconds of a span, saturating at `u64::MAX` (584 years).
#[inline]
pub(crate) const fn nanos(span: Duration) -> u64 {
    match span.as_secs().checked_mul(1_000_000_000) {
        Some(n) => n.saturating_add(span.subsec_nanos() as u64),
        None => u64::MAX,
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    #[inline]
    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }
}

impl AddAssign<Duration> for Timestamp {
    #[inline]
    fn add_assign(&mut self, span: Duration) {
        *self = *self + span;
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    #[inline]
    fn sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(span)))
    }
}

impl Sub for Timestamp {
    type Output = Duration;
    /// Same as [`Timestamp::since`].
    #[inline]
    fn sub(self, earlier: Self) -> Duration {
        self.since(earlier)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:09}s", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates_at_both_ends() {
        let t = Timestamp::from_millis(5);
        assert_eq!(t - Duration::from_secs(1), Timestamp::ZERO);
        assert_eq!(Timestamp::MAX + Duration::from_secs(1), Timestamp::MAX);
        assert_eq!(t + Duration::MAX, Timestamp::MAX);
        assert_eq!(Timestamp::ZERO - t, Duration::ZERO);
    }

    #[test]
    fn a_span_between_two_points_is_exact() {
        let a = Timestamp::from_nanos(1_234_567_891);
        let b = a + Duration::from_nanos(987_654_321);
        assert_eq!(b - a, Duration::from_nanos(987_654_321));
    }
}
