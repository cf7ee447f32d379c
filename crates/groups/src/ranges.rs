//! Which group an address belongs to: disjoint ranges in order, IPv4 by the whole address and IPv6 by its
//! network (the upper 64 bits, which a site gives to one customer at most).

use core::net::IpAddr;

/// The addresses from `first` to `last`, both included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range<A> {
    /// The first address.
    pub first: A,
    /// The last address.
    pub last: A,
    /// The place of its group in the table.
    pub group: u32,
}

/// Ranges overlap, are out of order, or end before they begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("range {place} does not begin behind the one before, or ends before it begins")]
pub struct Overlap {
    /// Its place among the ranges of its kind, from 0.
    pub place: usize,
}

/// What ranges are made of: numbers whose upper 16 bits an index goes by.
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

/// Disjoint ranges in order, and where those begin that begin in each 2^16th of the space. The index stays in the
/// cache; of a million ranges of IPv4, a search then reads one or two cache lines.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ranges<A> {
    all: Vec<Range<A>>,
    /// How many ranges begin below these upper bits; one more entry says how many there are. Empty if there are none.
    begun: Vec<u32>,
}

impl<A> Default for Ranges<A> {
    fn default() -> Self {
        Self { all: Vec::new(), begun: Vec::new() }
    }
}

impl<A: Address> Ranges<A> {
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<A>>) -> Result<Self, Overlap> {
        let all: Vec<Range<A>> = ranges.into_iter().collect();
        for (place, range) in all.iter().enumerate() {
            let is_behind = place == 0 || all[place - 1].last < range.first;
            if range.last < range.first || !is_behind {
                return Err(Overlap { place });
            }
        }
        let mut begun = Vec::new();
        if !all.is_empty() {
            begun.reserve_exact(usize::from(u16::MAX) + 2);
            for (place, range) in all.iter().enumerate() {
                begun.resize((usize::from(range.first.upper()) + 1).max(begun.len()), place as u32);
            }
            begun.resize(usize::from(u16::MAX) + 2, all.len() as u32);
        }
        Ok(Self { all, begun })
    }

    pub(crate) fn find(&self, address: A) -> Option<u32> {
        let upper = usize::from(address.upper());
        let (from, to) = (*self.begun.get(upper)? as usize, *self.begun.get(upper + 1)? as usize);
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

/// What addresses are looked up by.
pub(crate) enum Key {
    V4(u32),
    V6(u64),
}

impl Key {
    /// An IPv4-mapped address counts as what it maps.
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

    /// Against a walk over all of them: at both ends, within, beside, and across what the index goes by.
    #[test]
    fn finds_what_a_walk_finds() {
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
                assert_eq!(found.find(address), walk.map(|place| place as u32 + 1), "{address:x}");
            }
        }
        assert_eq!(found.iter().count(), all.len());
    }

    #[test]
    fn none_and_overlapping_ranges() {
        assert_eq!(ranges(&[]).expect("in order").find(7), None);
        assert_eq!(ranges(&[(1, 5), (5, 6)]), Err(Overlap { place: 1 }));
        assert_eq!(ranges(&[(1, 5), (9, 8)]), Err(Overlap { place: 1 }));
        assert_eq!(ranges(&[(7, 8), (1, 2)]), Err(Overlap { place: 1 }));
    }
}
