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

/// Disjoint ranges in order, by columns: a search touches the first ones only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ranges<A> {
    firsts: Vec<A>,
    lasts: Vec<A>,
    groups: Vec<u32>,
}

impl<A> Default for Ranges<A> {
    fn default() -> Self {
        Self { firsts: Vec::new(), lasts: Vec::new(), groups: Vec::new() }
    }
}

impl<A: Copy + Ord> Ranges<A> {
    pub(crate) fn new(ranges: impl IntoIterator<Item = Range<A>>) -> Result<Self, Overlap> {
        let mut all = Self::default();
        for Range { first, last, group } in ranges {
            if last < first || all.lasts.last().is_some_and(|before| *before >= first) {
                return Err(Overlap { place: all.firsts.len() });
            }
            all.firsts.push(first);
            all.lasts.push(last);
            all.groups.push(group);
        }
        Ok(all)
    }

    pub(crate) fn find(&self, address: A) -> Option<u32> {
        let place = self.firsts.partition_point(|first| *first <= address).checked_sub(1)?;
        (address <= self.lasts[place]).then(|| self.groups[place])
    }

    pub(crate) fn len(&self) -> usize {
        self.firsts.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<A>> {
        let columns = self.firsts.iter().zip(&self.lasts).zip(&self.groups);
        columns.map(|((&first, &last), &group)| Range { first, last, group })
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
