//! Types of keys: reading from TOML, writing, and descriptions for errors.

use core::fmt;
use core::net::SocketAddr;
use core::ops::RangeInclusive;
use core::time::Duration;
use std::path::{Path, PathBuf};

use recovery::catalog::{self, Choice};
use toml::de::DeValue;
use units::Rate;

/// Value of a key.
#[derive(Clone, PartialEq, Debug)]
pub struct Shown {
    /// As TOML; `None` for a key that is left out.
    pub toml: Option<String>,
    /// As a number: milliseconds, bytes, Mbps, or the number itself. `None` for other types.
    pub number: Option<f64>,
}

/// Type of a key.
pub trait Value: Sized {
    /// Describes valid values, to follow the word "expected".
    fn expected() -> String;
    /// Parses a value. Returns `None` if it is invalid.
    fn read(value: &DeValue<'_>) -> Option<Self>;
    /// Returns the value as TOML, or `None` if the key should be left out.
    fn toml(&self) -> Option<String>;
    /// Returns the value as a number: milliseconds, bytes, Mbps, or the number itself. Other types
    /// have none.
    fn number(&self) -> Option<f64> {
        None
    }
    /// Returns the value as TOML and as a number.
    fn shown(&self) -> Shown {
        Shown { toml: self.toml(), number: self.number() }
    }
    /// Whether errors, which are logged, may quote a wrong value.
    fn may_be_quoted() -> bool {
        true
    }
    /// Makes a relative path start at `base`. Other types contain none.
    fn resolve(&mut self, _base: &Path) {}
}

/// Describes a range, to follow the word "expected".
pub(crate) fn range_text<T: Value>(range: &RangeInclusive<T>) -> String {
    let end = |value: &T| value.toml().unwrap_or_default();
    format!("{} to {}", end(range.start()), end(range.end()))
}

/// A number of bytes, written `64kB` (thousands) or `1MiB` (powers of 1,024).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Size(pub u64);

impl Size {
    /// Returns `kib` × 1,024 bytes.
    pub const fn from_kib(kib: u64) -> Self {
        Self(kib * 1024)
    }

    /// Returns `mib` × 1,048,576 bytes.
    pub const fn from_mib(mib: u64) -> Self {
        Self(mib * 1024 * 1024)
    }

    /// Returns the number of bytes, saturated, for lengths in memory.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

const SIZE_UNITS: [(&str, u64); 7] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
    ("B", 1),
];

const DURATION_UNITS: [(&str, u64); 7] = [
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
];

/// Parses a number with a unit. Returns the amount in the smallest unit, or `None` if the unit is
/// unknown, or the number negative or too large.
fn with_unit(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let (number, unit) =
        units.iter().find_map(|(suffix, unit)| Some((text.strip_suffix(suffix)?, *unit)))?;
    let number = number.trim_end();
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(unit);
    }
    let (whole, fraction) = number.split_once('.')?;
    let digits = u32::try_from(fraction.len()).ok().filter(|&n| n > 0)?;
    let fraction = fraction.parse::<u128>().ok()?.checked_mul(unit.into())?;
    let fraction = u64::try_from(fraction / 10u128.checked_pow(digits)?).ok()?;
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(fraction)
}

/// Formats `amount` in the largest unit that divides it.
fn in_largest_unit(amount: u64, units: &[(&str, u64)]) -> Option<String> {
    let (suffix, unit) =
        units.iter().filter(|(_, unit)| amount.is_multiple_of(*unit)).max_by_key(|(_, u)| *u)?;
    Some(format!("{}{suffix}", amount / unit))
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (text, zero) = (in_largest_unit(self.0, &SIZE_UNITS), "0B".to_owned());
        f.write_str(&text.filter(|_| self.0 > 0).unwrap_or(zero))
    }
}

/// Returns a text as TOML.
pub fn quoted(text: &str) -> Option<String> {
    Some(toml::Value::String(text.to_owned()).to_string())
}

impl Value for Size {
    fn expected() -> String {
        r#"a size such as "64kB" or "1MiB""#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        with_unit(value.as_str()?, &SIZE_UNITS).map(Self)
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.to_string())
    }
    fn number(&self) -> Option<f64> {
        Some(self.0 as f64)
    }
}

impl Value for Duration {
    fn expected() -> String {
        r#"a duration such as "30s" or "200ms""#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        units::parse_duration(value.as_str()?).ok()
    }
    fn toml(&self) -> Option<String> {
        let nanos = u64::try_from(self.as_nanos()).ok()?;
        let text = if nanos == 0 { "0s".into() } else { in_largest_unit(nanos, &DURATION_UNITS)? };
        quoted(&text)
    }
    fn number(&self) -> Option<f64> {
        Some(self.as_nanos() as f64 / 1e6)
    }
}

impl Value for bool {
    fn expected() -> String {
        "true or false".into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_bool()
    }
    fn toml(&self) -> Option<String> {
        Some(self.to_string())
    }
}

macro_rules! integers {
    ($($type:ty),+) => { $(
        impl Value for $type {
            fn expected() -> String {
                format!("a whole number from {} to {}", <$type>::MIN, <$type>::MAX)
            }
            fn read(value: &DeValue<'_>) -> Option<Self> {
                let integer = value.as_integer()?;
                <$type>::from_str_radix(integer.as_str(), integer.radix()).ok()
            }
            fn toml(&self) -> Option<String> {
                Some(self.to_string())
            }
            fn number(&self) -> Option<f64> {
                Some(*self as f64)
            }
        }
    )+ };
}

integers!(u16, u32, u64);

impl Value for f64 {
    fn expected() -> String {
        "a number, or a percentage such as \"20%\"".into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        if let Some(text) = value.as_str() {
            return Some(text.strip_suffix('%')?.trim().parse::<Self>().ok()? / 100.0);
        }
        let text = value.as_float().map(|f| f.as_str().to_owned());
        text.or_else(|| Some(value.as_integer()?.as_str().to_owned()))?.parse().ok()
    }
    fn toml(&self) -> Option<String> {
        Some(format!("{self:?}"))
    }
    fn number(&self) -> Option<f64> {
        Some(*self)
    }
}

impl Value for Rate {
    fn expected() -> String {
        r#"a rate such as "12mbps" or "800kbps""#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.to_string())
    }
    fn number(&self) -> Option<f64> {
        Some(self.as_mbps_f64())
    }
}

impl Value for String {
    fn expected() -> String {
        "a string".into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }
    fn toml(&self) -> Option<String> {
        quoted(self)
    }
}

impl Value for PathBuf {
    fn expected() -> String {
        "a path".into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_str().filter(|path| !path.is_empty()).map(Self::from)
    }
    fn toml(&self) -> Option<String> {
        quoted(self.to_str()?)
    }
    fn resolve(&mut self, base: &Path) {
        *self = base.join(&*self);
    }
}

impl Value for SocketAddr {
    fn expected() -> String {
        r#"an address such as "[::]:4433" or "192.0.2.1:443""#.into()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        value.as_str()?.parse().ok()
    }
    fn toml(&self) -> Option<String> {
        quoted(&self.to_string())
    }
}

impl<T: Value> Value for Vec<T> {
    fn expected() -> String {
        format!("{}, or a list of them", T::expected())
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        let Some(list) = value.as_array() else { return T::read(value).map(|one| vec![one]) };
        let all: Option<Self> = list.iter().map(|item| T::read(item.get_ref())).collect();
        all.filter(|items| !items.is_empty())
    }
    fn toml(&self) -> Option<String> {
        let items: Option<Vec<_>> = self.iter().map(Value::toml).collect();
        Some(format!("[{}]", items?.join(", ")))
    }
    fn may_be_quoted() -> bool {
        T::may_be_quoted()
    }
    fn resolve(&mut self, base: &Path) {
        self.iter_mut().for_each(|item| item.resolve(base));
    }
}

impl<T: Value> Value for Option<T> {
    fn expected() -> String {
        T::expected()
    }
    fn read(value: &DeValue<'_>) -> Option<Self> {
        T::read(value).map(Some)
    }
    fn toml(&self) -> Option<String> {
        self.as_ref()?.toml()
    }
    fn may_be_quoted() -> bool {
        T::may_be_quoted()
    }
    fn resolve(&mut self, base: &Path) {
        if let Some(value) = self {
            value.resolve(base);
        }
    }
    fn number(&self) -> Option<f64> {
        self.as_ref()?.number()
    }
}

/// Formats quoted words as alternatives.
pub fn one_of(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    match words.split_last() {
        Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
        _ => words.concat(),
    }
}

/// Types of other crates that have a list of names.
macro_rules! named {
    ($($name:ty: $names:expr),+ $(,)?) => {
        $(impl Value for $name {
            fn expected() -> String {
                one_of(&$names)
            }
            fn read(value: &DeValue<'_>) -> Option<Self> {
                value.as_str()?.parse().ok()
            }
            fn toml(&self) -> Option<String> {
                quoted(self.name())
            }
        })+
    };
}

named! {
    Choice: catalog::names(),
    startup::decision::Mode: Self::ALL.map(Self::name),
    congestion::Algorithm: Self::ALL.map(Self::name),
    groups::Mode: Self::ALL.map(Self::name),
}

/// Defines an enumeration with a word of the configuration per variant.
#[macro_export]
macro_rules! words {
    ($(#[$outer:meta])* $name:ident { $($(#[$inner:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$outer])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name { $($(#[$inner])* $variant,)+ }

        impl $name {
            /// Returns the word in the configuration file.
            pub const fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::Value for $name {
            fn expected() -> String {
                $crate::one_of(&[$($word),+])
            }
            fn read(value: &$crate::DeValue<'_>) -> Option<Self> {
                match value.as_str()? {
                    $($word => Some(Self::$variant),)+
                    _ => None,
                }
            }
            fn toml(&self) -> Option<String> {
                Some(format!("\"{}\"", self.word()))
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: Value>(text: &str) -> Option<T> {
        T::read(&DeValue::String(text.into()))
    }

    #[test]
    fn parses_durations_and_sizes_with_units() {
        assert_eq!(read("200ms"), Some(Duration::from_millis(200)));
        assert_eq!(read("1.5s"), Some(Duration::from_millis(1500)));
        assert_eq!(read("24h"), Some(Duration::from_secs(86_400)));
        assert_eq!(read("64kB"), Some(Size(64_000)));
        assert_eq!(read("1MiB"), Some(Size(1 << 20)));
        assert_eq!(read("1.5 KiB"), Some(Size(1536)));
    }

    #[test]
    fn rejects_missing_and_wrong_units_and_overflows() {
        for text in ["30", "-1s", "s", "1.s", ".5s", "1e3s", "99999999999999d", "1x"] {
            assert_eq!(read::<Duration>(text), None, "{text}");
        }
        for text in ["64", "64kb", "-1B", "99999999999999GiB"] {
            assert_eq!(read::<Size>(text), None, "{text}");
        }
    }

    #[test]
    fn written_values_parse_back() {
        for nanos in [0, 1_000, 1_500_000_000, 86_400_000_000_000, 90_000_000_000] {
            let duration = Duration::from_nanos(nanos);
            let text = duration.toml().expect("whole microseconds");
            assert_eq!(read(text.trim_matches('"')), Some(duration), "{text}");
        }
        for bytes in [0, 1, 1_452, 64_000, 65_536, 3 << 20] {
            assert_eq!(read(&Size(bytes).to_string()), Some(Size(bytes)), "{bytes}");
        }
        assert_eq!(Size::from_mib(8).to_string(), "8MiB");
    }
}
