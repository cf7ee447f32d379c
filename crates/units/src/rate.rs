//! Data rates in bits per second, with conversions for schedules.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::time::nanos;

/// A data rate in bits per second.
///
/// ```
/// use core::time::Duration;
/// use mendcast_units::Rate;
///
/// let rate: Rate = "12mbps".parse().unwrap();
/// assert_eq!(rate.bytes_in(Duration::from_millis(10)), 15_000);
/// assert_eq!(rate.time_for(1_500), Duration::from_millis(1));
/// assert_eq!(rate.scale(1.5).to_string(), "18mbps");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Rate(u64);

impl Rate {
    /// Zero rate.
    pub const ZERO: Self = Self(0);
    /// The largest representable rate; stands for "unlimited".
    pub const MAX: Self = Self(u64::MAX);

    /// `bits` bits per second.
    pub const fn from_bps(bits: u64) -> Self {
        Self(bits)
    }

    /// `kbits` thousand bits per second.
    pub const fn from_kbps(kbits: u64) -> Self {
        Self(kbits.saturating_mul(1_000))
    }

    /// `mbits` million bits per second.
    pub const fn from_mbps(mbits: u64) -> Self {
        Self(mbits.saturating_mul(1_000_000))
    }

    /// `bytes` bytes per second.
    pub const fn from_bytes_per_second(bytes: u64) -> Self {
        Self(bytes.saturating_mul(8))
    }

    /// The mean rate of `bytes` bytes in `span`; [`Rate::MAX`] for an empty span.
    pub fn from_bytes_in(bytes: u64, span: Duration) -> Self {
        let nanos = span.as_nanos();
        if nanos == 0 {
            return Self::MAX;
        }
        Self(u64::try_from(u128::from(bytes) * 8_000_000_000 / nanos).unwrap_or(u64::MAX))
    }

    /// Bits per second.
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Million bits per second, for plots and logs.
    pub fn as_mbps_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// Whole bytes that this rate carries in `span`, saturating.
    pub fn bytes_in(self, span: Duration) -> u64 {
        u64::try_from(u128::from(self.0) * u128::from(nanos(span)) / 8_000_000_000)
            .unwrap_or(u64::MAX)
    }

    /// Time to carry `bytes` at this rate, rounded up to a nanosecond; [`Duration::MAX`] at rate
    /// zero.
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (u128::from(bytes) * 8_000_000_000).div_ceil(u128::from(self.0));
        u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// This rate times `factor` (at least 0), saturating.
    pub fn scale(self, factor: f64) -> Self {
        Self((self.0 as f64 * factor) as u64)
    }
}

impl fmt::Debug for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            b if b >= 1_000_000 => write!(f, "{}mbps", b as f64 / 1e6),
            b if b >= 1_000 => write!(f, "{}kbps", b as f64 / 1e3),
            b => write!(f, "{b}bps"),
        }
    }
}

/// The text that is not a rate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRateError(String);

impl fmt::Display for ParseRateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invalid rate `{}`: expected a number with bps, kbps, mbps or gbps", self.0)
    }
}

impl core::error::Error for ParseRateError {}

impl FromStr for Rate {
    type Err = ParseRateError;

    /// Parses rates such as `12mbps`, `800kbps`, `1.5Mbps`, `1gbps` or `9600bps`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || ParseRateError(text.to_owned());
        let lower = text.trim().to_ascii_lowercase();
        let (number, unit) = [("gbps", 1e9), ("mbps", 1e6), ("kbps", 1e3), ("bps", 1.0)]
            .into_iter()
            .find_map(|(suffix, unit)| lower.strip_suffix(suffix).map(|n| (n, unit)))
            .ok_or_else(error)?;
        let number: f64 = number.trim().parse().map_err(|_| error())?;
        if !(number.is_finite() && number >= 0.0) {
            return Err(error());
        }
        Ok(Self((number * unit).round() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_never_run_ahead_of_a_schedule() {
        let rate = Rate::from_mbps(12);
        assert_eq!(rate.time_for(1_500), Duration::from_millis(1));
        assert_eq!(rate.bytes_in(Duration::from_millis(1)), 1_500);
        assert_eq!(Rate::from_bps(3).time_for(1), Duration::from_nanos(2_666_666_667));
        assert_eq!(Rate::from_bytes_in(1_500, Duration::from_millis(1)), rate);
    }

    #[test]
    fn rates_parse_only_with_a_unit() {
        assert_eq!("12mbps".parse(), Ok(Rate::from_mbps(12)));
        assert_eq!("1.5 Mbps".parse(), Ok(Rate::from_kbps(1_500)));
        assert_eq!("9600bps".parse(), Ok(Rate::from_bps(9_600)));
        assert!("12".parse::<Rate>().is_err());
        assert!("-1mbps".parse::<Rate>().is_err());
        assert!("nanmbps".parse::<Rate>().is_err());
    }

    #[test]
    fn the_extremes_do_not_overflow() {
        assert_eq!(Rate::MAX.bytes_in(Duration::MAX), u64::MAX);
        assert_eq!(Rate::ZERO.time_for(1), Duration::MAX);
        assert_eq!(Rate::from_bytes_in(1, Duration::ZERO), Rate::MAX);
    }
}
