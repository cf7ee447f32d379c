//! Units of a population's numbers, as in the configuration.

use core::time::Duration;

use config::{DeValue, Size, Value as _};
use units::Rate;

/// Unit of a number in the platform's calculations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NumberUnit {
    /// A plain number.
    One,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Mbps.
    Mbps,
    /// kbps.
    Kbps,
    /// Thousand bytes.
    Kilobytes,
}

impl NumberUnit {
    /// Parses a number with a unit of the configuration, such as `60ms`, and converts it.
    pub(super) fn parse(self, text: &str) -> Option<f64> {
        let value = DeValue::String(text.trim().into());
        let nanos = || Some(Duration::read(&value)?.as_nanos() as f64);
        Some(match self {
            Self::One => text.trim().parse().ok()?,
            Self::Milliseconds => nanos()? / 1e6,
            Self::Seconds => nanos()? / 1e9,
            Self::Minutes => nanos()? / 6e10,
            Self::Mbps => Rate::read(&value)?.as_mbps_f64(),
            Self::Kbps => Rate::read(&value)?.as_mbps_f64() * 1e3,
            Self::Kilobytes => Size::read(&value)?.0 as f64 / 1e3,
        })
    }

    /// Returns the unit as the configuration writes it.
    pub(super) fn suffix(self) -> &'static str {
        match self {
            Self::One => "",
            Self::Milliseconds => "ms",
            Self::Seconds => "s",
            Self::Minutes => "m",
            Self::Mbps => "mbps",
            Self::Kbps => "kbps",
            Self::Kilobytes => "kB",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_any_unit_of_their_kind() {
        for (unit, text, expected) in [
            (NumberUnit::One, "0.35", Some(0.35)),
            (NumberUnit::One, "1s", None),
            (NumberUnit::Milliseconds, "102.4ms", Some(102.4)),
            (NumberUnit::Milliseconds, "2s", Some(2_000.0)),
            (NumberUnit::Milliseconds, "2", None),
            (NumberUnit::Seconds, "1m", Some(60.0)),
            (NumberUnit::Minutes, "1h", Some(60.0)),
            (NumberUnit::Mbps, "350kbps", Some(0.35)),
            (NumberUnit::Kbps, "64kbps", Some(64.0)),
            (NumberUnit::Kilobytes, "64kB", Some(64.0)),
            (NumberUnit::Kilobytes, "64ms", None),
        ] {
            assert_eq!(unit.parse(text), expected, "{unit:?} {text}");
        }
    }
}
