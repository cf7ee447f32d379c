//! Names of segments, parts and initialisation segments: `MSN-ID.m4s`, `MSN-ID.PART.m4s` and
//! `init-ID.mp4`, with the extension `ts` for transport streams.
//!
//! A name always refers to the same bytes, so that caches can keep them indefinitely, and servers
//! that package the same stream use the same names. The ID of an initialisation segment is a hash
//! of its bytes. The ID of a segment hashes everything that determines its bytes: the stream time,
//! the tracks, the first sample and the cuts. The time of a locally published stream never repeats.
//! The time of a pulled stream repeats if its encoder restarts, but then the first sample differs.

use core::fmt;
use core::str::FromStr;

/// Name of a segment, without its extension.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The media sequence number.
    pub msn: u64,
    /// Hash that tells apart segments with the same sequence number.
    pub id: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.msn, self.id)
    }
}

/// Error of parsing a segment name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParseNameError;

impl FromStr for Name {
    type Err = ParseNameError;

    /// Parses the output of [`fmt::Display`]. Other spellings of the numbers are errors, so that a
    /// segment has one name.
    fn from_str(text: &str) -> Result<Self, ParseNameError> {
        let (msn, id) = text.split_once('-').ok_or(ParseNameError)?;
        let msn = msn.parse().map_err(|_| ParseNameError)?;
        let id = u64::from_str_radix(id, 16).map_err(|_| ParseNameError)?;
        let name = Self { msn, id };
        if name.to_string() == text { Ok(name) } else { Err(ParseNameError) }
    }
}

/// FNV-1a, which has the same values in every build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Hashes `bytes` and their length.
    pub(super) fn with(self, bytes: &[u8]) -> Self {
        let length = (bytes.len() as u64).to_be_bytes();
        let all = bytes.iter().chain(&length);
        Self(all.fold(self.0, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)))
    }

    pub(super) fn value(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for name in [Name { msn: 0, id: 0 }, Name { msn: u64::MAX, id: u64::MAX }] {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert_eq!(Name { msn: 12, id: 0xab }.to_string(), "12-00000000000000ab");
        for text in [
            "",
            "1",
            "1-",
            "-1",
            "1-ab",
            "01-00000000000000ab",
            "+1-00000000000000ab",
            "1-00000000000000AB",
            "1-+0000000000000ab",
            "1-000000000000000ab",
        ] {
            assert_eq!(text.parse::<Name>(), Err(ParseNameError), "{text}");
        }
    }

    #[test]
    fn hashes_are_stable_and_delimit_their_parts() {
        assert_eq!(Hash::default().value(), 0xcbf2_9ce4_8422_2325);
        let [one, two] = [[&b"ab"[..], b"c"], [b"a", b"bc"]]
            .map(|parts| parts.iter().fold(Hash::default(), |hash, part| hash.with(part)).value());
        assert_ne!(one, two);
    }
}
