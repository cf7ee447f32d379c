//! File format of a table: one process decides, many serve. All numbers are little-endian.
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `MCGROUPS` |
//! | 4 | version, 1 |
//! | 4 | CRC-32 (ISO-HDLC) of the rest of the file |
//! | 8, 8 | issue time, in Unix seconds; lifetime, in seconds |
//! | 4, 4, 4 | numbers of groups, IPv4 ranges, IPv6 ranges |
//! | variable, per group | see below |
//! | 12, per IPv4 range | first (4), last (4), group (4) |
//! | 20, per IPv6 range | first (8), last (8), group (4) |
//!
//! A group consists of the length of its name (1), its name, flags (1; off = 1, with parameters =
//! 2), and its parent's index (4; `ffffffff` for none). Parameters are the rate in bit/s (8), bytes
//! in flight (8), sessions (8), and the decision time in Unix seconds (8).
//!
//! The checksum detects damage, not forgery: write access to the file is authority to decide.

use core::time::Duration;

use units::Rate;

use crate::ranges::{Overlap, Range, Ranges};
use crate::table::{Group, GroupId, Parameters, Table, Times};

const MAGIC: &[u8; 8] = b"MCGROUPS";
const VERSION: u32 = 1;
/// Magic, version and checksum.
const HEAD: usize = 16;
/// Largest accepted file, in bytes: about ten million ranges.
pub const MAX_FILE: usize = 256 << 20;
const NO_PARENT: u32 = u32::MAX;
const OFF: u8 = 1;
const WITH_PARAMETERS: u8 = 2;

/// Reason why bytes are not a valid table.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FileError {
    /// Wrong magic number.
    #[error("not a table of user groups")]
    Kind,
    /// Version of another release.
    #[error("the table has version {0}; this release reads version {VERSION}")]
    Version(u32),
    /// Larger than [`MAX_FILE`].
    #[error("the table is larger than {MAX_FILE} bytes")]
    TooLarge,
    /// Truncated or damaged.
    #[error("the table is truncated or damaged")]
    Damaged,
    /// A group with invalid values.
    #[error("group {index} of the table is invalid: {what}")]
    Invalid {
        /// Index of the group.
        index: usize,
        /// The fault.
        what: &'static str,
    },
    /// Overlapping ranges.
    #[error("{0}")]
    Overlap(#[from] Overlap),
    /// A range that refers to a missing group.
    #[error("an address range refers to group {0}, which does not exist")]
    NoGroup(u32),
}

impl Table {
    /// Encodes the table.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + 28 + 64 * self.groups.len() + 20 * self.ranges());
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.times.issued.to_le_bytes());
        out.extend_from_slice(&self.times.lifetime.as_secs().to_le_bytes());
        for count in [self.groups.len(), self.v4.len(), self.v6.len()] {
            out.extend_from_slice(&(count as u32).to_le_bytes());
        }
        for group in &self.groups {
            put_group(&mut out, group);
        }
        for Range { first, last, group } in self.v4.iter() {
            [first, last, group].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
        }
        for Range { first, last, group } in self.v6.iter() {
            [first, last].iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            out.extend_from_slice(&group.to_le_bytes());
        }
        let sum = crc32fast::hash(&out[HEAD..]);
        out[HEAD - 4..HEAD].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// Decodes a table.
    ///
    /// # Errors
    /// If the bytes are not a valid table.
    pub fn decode(bytes: &[u8]) -> Result<Self, FileError> {
        if bytes.len() > MAX_FILE {
            return Err(FileError::TooLarge);
        }
        let mut head = FileReader(bytes);
        if head.take(8)? != MAGIC {
            return Err(FileError::Kind);
        }
        let version = head.u32()?;
        if version != VERSION {
            return Err(FileError::Version(version));
        }
        let sum = head.u32()?;
        if crc32fast::hash(head.0) != sum {
            return Err(FileError::Damaged);
        }
        let mut r = head;
        let times = Times { issued: r.u64()?, lifetime: Duration::from_secs(r.u64()?) };
        let [groups, v4, v6] = [r.u32()?, r.u32()?, r.u32()?];
        let groups: Vec<Group> =
            (0..groups as usize).map(|index| r.group(index)).collect::<Result<_, _>>()?;
        // Counts are unverified: allocate as elements are read, not in advance.
        let v4 = (0..v4).map(|_| Ok(Range { first: r.u32()?, last: r.u32()?, group: r.u32()? }));
        let v4: Vec<Range<u32>> = v4.collect::<Result<_, FileError>>()?;
        let v6 = (0..v6).map(|_| Ok(Range { first: r.u64()?, last: r.u64()?, group: r.u32()? }));
        let v6: Vec<Range<u64>> = v6.collect::<Result<_, FileError>>()?;
        let used = v4.iter().map(|range| range.group).chain(v6.iter().map(|range| range.group));
        if let Some(missing) = used.into_iter().find(|group| *group as usize >= groups.len()) {
            return Err(FileError::NoGroup(missing));
        }
        if !r.0.is_empty() {
            return Err(FileError::Damaged);
        }
        Ok(Self { times, v4: Ranges::new(v4)?, v6: Ranges::new(v6)?, groups })
    }
}

fn put_group(out: &mut Vec<u8>, group: &Group) {
    let mut end = group.name.len().min(usize::from(u8::MAX));
    while !group.name.is_char_boundary(end) {
        end -= 1;
    }
    out.push(end as u8);
    out.extend_from_slice(&group.name.as_bytes()[..end]);
    let off = if group.is_off { OFF } else { 0 };
    out.push(off | if group.parameters.is_some() { WITH_PARAMETERS } else { 0 });
    let parent = group.parent.map_or(NO_PARENT, |parent| parent.0);
    out.extend_from_slice(&parent.to_le_bytes());
    if let Some(Parameters { rate, in_flight, sessions, decided }) = group.parameters {
        let numbers = [rate.as_bps(), in_flight, sessions, decided];
        numbers.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    }
}

/// The unread rest of a file.
struct FileReader<'a>(&'a [u8]);

impl<'a> FileReader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], FileError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(FileError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], FileError> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(FileError::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u32(&mut self) -> Result<u32, FileError> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, FileError> {
        self.array().map(u64::from_le_bytes)
    }

    fn group(&mut self, index: usize) -> Result<Group, FileError> {
        let invalid = |what| FileError::Invalid { index, what };
        let [len] = self.array()?;
        let name = core::str::from_utf8(self.take(len.into())?);
        let name = name.map_err(|_| invalid("its name is not UTF-8"))?;
        let [flags] = self.array()?;
        if flags & !(OFF | WITH_PARAMETERS) != 0 {
            return Err(invalid("it has flags that this release does not know"));
        }
        let parent = Some(self.u32()?).filter(|parent| *parent != NO_PARENT);
        // Rules out cycles of parents.
        if parent.is_some_and(|parent| parent as usize >= index) {
            return Err(invalid("its parent does not precede it"));
        }
        let mut group = Group {
            name: name.into(),
            parent: parent.map(GroupId),
            parameters: None,
            is_off: flags & OFF != 0,
        };
        if flags & WITH_PARAMETERS != 0 {
            let (rate, in_flight) = (Rate::from_bps(self.u64()?), self.u64()?);
            let parameters =
                Parameters { rate, in_flight, sessions: self.u64()?, decided: self.u64()? };
            if !parameters.is_sane() {
                return Err(invalid("its parameters are out of range"));
            }
            group.parameters = Some(parameters);
        }
        Ok(group)
    }
}

#[cfg(test)]
mod tests;
