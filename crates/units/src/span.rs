//! Durations as text, as in configuration files, options and experiments.

use core::fmt;
use core::time::Duration;

/// Nanoseconds of each unit. A unit that ends with another one stands before it.
const UNITS: [(&str, u64); 9] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", 1_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
    ("d", 86_400_000_000_000),
];

/// Digits read of a fraction: enough for a nanosecond of a day, and few enough for 64 bits.
const MAX_DIGITS: usize = 18;

/// The text is no duration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseDurationError;

impl fmt::Display for ParseDurationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a duration such as 200ms, 1.5s, 30m or 2h")
    }
}

impl core::error::Error for ParseDurationError {}

/// Parses a decimal number and its unit: ns, us, ms, s, m (or min), h or d. Zero needs no unit.
/// Rounded to a nanosecond.
///
/// # Errors
/// There is no unit, or the number is negative, no decimal, or above 584 years.
pub fn parse_duration(text: &str) -> Result<Duration, ParseDurationError> {
    nanos(text.trim()).map(Duration::from_nanos).ok_or(ParseDurationError)
}

fn nanos(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (number, unit) =
        UNITS.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    let number = number.trim_end();
    let (whole, fraction) = number.split_once('.').unwrap_or((number, "0"));
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let kept = &fraction[..fraction.len().min(MAX_DIGITS)];
    let scale = 10u128.pow(kept.len() as u32);
    let part = (u128::from(decimal(kept)?) * u128::from(unit) + scale / 2) / scale;
    decimal(whole)?.checked_mul(unit)?.checked_add(u64::try_from(part).ok()?)
}

/// A number of digits only, unlike `parse`, which takes a sign.
fn decimal(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_a_number_and_its_unit() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("7ns", 7),
            ("250us", 250_000),
            ("250µs", 250_000),
            ("60ms", 60_000_000),
            (" 1.5 s ", 1_500_000_000),
            ("0.1ms", 100_000),
            ("0.0000000009s", 1),
            ("4.0053644067899885s", 4_005_364_407),
            ("1.99999999999999999999s", 2_000_000_000),
            ("2m", 120_000_000_000),
            ("2min", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("30d", 2_592_000_000_000_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        for text in [
            "",
            "5",
            "s",
            ".5s",
            "1.s",
            "-1s",
            "+1s",
            "1e3ms",
            "1.-5s",
            "1 h x",
            "infs",
            "99999999999h",
            "1.9999999999999999999xs",
        ] {
            assert_eq!(parse_duration(text), Err(ParseDurationError), "{text}");
        }
    }
}
