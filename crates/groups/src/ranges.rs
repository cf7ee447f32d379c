//! Maps addresses to groups by sorted, disjoint ranges. IPv4 uses the full address, IPv6 the upper
//! 64 bits: a site assigns a /64 to one customer at most.

use core::net::IpAddr;

/// An inclusive range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range<A> {
    /// The first address.
    pub first: A,
    /// The last address.
    pub last: A,
    /// Index of the group in the table.
    pub group: u32,
}

/// Ranges that overlap, are unsorted, or end before they start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("address range {index} does not start after the previous one, or ends before it starts")]
pub struct Overlap {
    /// Index of the range within its address family.
    pub index: usize,
}

/// Address type, indexed by its upper 16 bits.
pub(crate) trait Address: Copy + Ord {
    fn upper(self) -> u16;
}

impl Address for u32 {
    fn upper(self) -> u16 {
        (self >> 16) as u16
    }
}

impl Address for u64 {
    fn upper(self) -> u16 {
        (self >> 48) as u16
    }
}

/// Sorted, disjoint ranges, indexed by the upper 16 bits of their first address.
///
/// The index stays in the CPU cache. With a million IPv4 ranges, a search then reads one or two
/// cache lines of the ranges.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ranges<A> {
    all: Vec<Range<A>>,
    /// Number of ranges that start below these upper bits, plus a final entry with the total.
    /// Empty without ranges.
    starts: Vec<u32>,
}

impl<A> Default for Ranges<A> {
    fn default() -> Self {
        Self { all: Vec::new(), starts: Vec::new() }
    }
}

impl<A: Address> Ranges<A> {
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<A>>) -> Result<Self, Overlap> {
        let all: Vec<Range<A>> = ranges.into_iter().collect();
        for (index, range) in all.iter().enumerate() {
            let is_behind = index == 0 || all[index - 1].last < range.first;
            if range.last < range.first || !is_behind {
                return Err(Overlap { index });
            }
        }
        let mut starts = Vec::new();
        if !all.is_empty() {
            starts.reserve_exact(usize::from(u16::MAX) + 2);
            for (index, range) in all.iter().enumerate() {
                let upper = usize::from(range.first.upper());
                starts.resize((upper + 1).max(starts.len()), index as u32);
            }
            starts.resize(usize::from(u16::MAX) + 2, all.len() as u32);
        }
        Ok(Self { all, starts })
    }

    pub(crate) fn find(&self, address: A) -> Option<u32> {
        let upper = usize::from(address.upper());
        let (from, to) = (*self.starts.get(upper)? as usize, *self.starts.get(upper + 1)? as usize);
        let here = self.all[from..to].partition_point(|range| range.first <= address);
        let range = &self.all[(from + here).checked_sub(1)?];
        (address <= range.last).then_some(range.group)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<A>> {
        self.all.iter().copied()
    }
}

/// Lookup key of an address.
pub(crate) enum Key {
    V4(u32),
    V6(u64),
}

impl Key {
    /// Treats an IPv4-mapped IPv6 address as IPv4.
    pub(crate) fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self::V4(v4.to_bits()),
            IpAddr::V6(v6) => Self::V6((v6.to_bits() >> 64) as u64),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranges(all: &[(u32, u32)]) -> Result<Ranges<u32>, Overlap> {
        let all = all.iter().zip(1..);
        Ranges::new(all.map(|(&(first, last), group)| Range { first, last, group }))
    }

    /// Probes both ends, the inside, and the surroundings of ranges, also across index slots.
    #[test]
    fn search_agrees_with_a_linear_scan() {
        let all = [
            (0, 0),
            (2, 9),
            (0xffff, 0x1_0000),
            (0x1_0001, 0x1_0001),
            (0x2_fff0, 0x7_0005),
            (0x7_0006, 0x7_0006),
            (0xffff_0000, u32::MAX),
        ];
        let found = ranges(&all).expect("in order");
        for at in all.iter().flat_map(|&(first, last)| [first, last, first / 2 + last / 2]) {
            for address in [at.saturating_sub(1), at, at.saturating_add(1)] {
                let walk = all.iter().position(|(first, last)| (*first..=*last).contains(&address));
                assert_eq!(found.find(address), walk.map(|index| index as u32 + 1), "{address:x}");
            }
        }
        assert_eq!(found.iter().count(), all.len());
    }

    #[test]
    fn overlapping_and_unsorted_ranges_are_rejected() {
        assert_eq!(ranges(&[]).expect("in order").find(7), None);
        assert_eq!(ranges(&[(1, 5), (5, 6)]), Err(Overlap { index: 1 }));
        assert_eq!(ranges(&[(1, 5), (9, 8)]), Err(Overlap { index: 1 }));
        assert_eq!(ranges(&[(7, 8), (1, 2)]), Err(Overlap { index: 1 }));
    }
}
