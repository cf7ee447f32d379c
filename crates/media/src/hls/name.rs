//! The names of segments, parts and initialisation segments: `MSN-ID.m4s`, `MSN-ID.PART.m4s` and
//! `init-ID.mp4`, with `ts` for transport streams.
//!
//! A name always means the same bytes, so that caches can keep them indefinitely, and servers that
//! pack the same stream use the same names. The name of an initialisation segment is a hash of its
//! bytes. The bytes of a segment follow from its start, so its ID hashes the stream's time, the
//! tracks, the first sample, and the cuts. The time of a stream published here never repeats. The
//! time of a pulled stream repeats if its encoder restarts, but then the first sample differs.

use core::fmt;
use core::str::FromStr;

/// Which segment: its media sequence number, and what makes its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Name {
    /// The media sequence number.
    pub msn: u64,
    /// What distinguishes it from others of that number.
    pub id: u64,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.msn, self.id)
    }
}

/// Not the name of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoName;

impl FromStr for Name {
    type Err = NoName;

    /// Reads what [`fmt::Display`] writes, and nothing else: one segment has one name.
    fn from_str(text: &str) -> Result<Self, NoName> {
        let (msn, id) = text.split_once('-').ok_or(NoName)?;
        let msn = msn.parse().map_err(|_| NoName)?;
        let id = u64::from_str_radix(id, 16).map_err(|_| NoName)?;
        let name = Self { msn, id };
        if name.to_string() == text { Ok(name) } else { Err(NoName) }
    }
}

/// FNV-1a, which is the same in every build.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// With these bytes, and where they end.
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
            assert_eq!(text.parse::<Name>(), Err(NoName), "{text}");
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
