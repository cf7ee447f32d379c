//! Address ranges of a decision's groups, from address databases or from the records' networks.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use groups::{GroupId, TableBuilder};

use crate::Error;
use crate::geo::{Geo, Parts, Segment, with_ancestors};

/// Groups of a decision by name.
pub type Groups<'a> = HashMap<&'a str, GroupId>;

/// Returns the group called `name`, or its nearest ancestor in the decision.
fn nearest(name: &str, groups: &Groups<'_>) -> Option<GroupId> {
    with_ancestors(name).find_map(|name| groups.get(name).copied())
}

/// Adds the ranges of the address databases to the table.
///
/// # Errors
/// If a database cannot be read.
pub fn add_from_databases(
    geo: &Geo,
    groups: &Groups<'_>,
    table: &mut TableBuilder,
) -> Result<(), Error> {
    for v6 in [false, true] {
        let (lists, all) = geo.segments(v6)?;
        let mut found: HashMap<Vec<Option<u32>>, Option<GroupId>> = HashMap::new();
        let mut merged = Merged::new(table, v6);
        sweep(&lists, |first, last, locations| {
            let group = *found.entry(locations.to_vec()).or_insert_with(|| {
                let parts = locations.iter().flatten().map(|location| &all[*location as usize]);
                nearest(&Parts::name(parts)?, groups)
            });
            if let Some(group) = group {
                merged.add(first, last, group);
            }
        });
        merged.finish();
    }
    Ok(())
}

/// Adds the records' networks (`192.0.2.0/24`) and their groups to the table. Invalid networks are
/// skipped.
pub fn add_from_prefixes(
    prefixes: &BTreeMap<String, String>,
    groups: &Groups<'_>,
    table: &mut TableBuilder,
) {
    for v6 in [false, true] {
        let mut all: Vec<(u64, u64, GroupId)> = prefixes
            .iter()
            .filter_map(|(prefix, name)| {
                let (first, last) = span(prefix, v6)?;
                Some((first, last, nearest(name, groups)?))
            })
            .collect();
        all.sort_unstable_by_key(|(first, last, _)| (*first, *last));
        let mut merged = Merged::new(table, v6);
        let mut next = 0;
        for (first, last, group) in all {
            // Edges write disjoint networks. If networks overlap, the first one wins.
            if first >= next {
                merged.add(first, last, group);
                next = last.saturating_add(1);
            }
        }
        merged.finish();
    }
}

/// Returns the first and last address of a network; `None` if it is invalid or of the other family.
fn span(prefix: &str, v6: bool) -> Option<(u64, u64)> {
    let (address, bits) = prefix.split_once('/')?;
    let bits: u32 = bits.parse().ok()?;
    let (key, rest) = match (address.parse().ok()?, v6) {
        (IpAddr::V4(v4), false) => {
            (u64::from(v4.to_bits()), u64::from(u32::MAX).checked_shr(bits).filter(|_| bits <= 32)?)
        }
        (IpAddr::V6(v6), true) if bits <= 64 => {
            ((v6.to_bits() >> 64) as u64, u64::MAX.checked_shr(bits).unwrap_or(0))
        }
        _ => return None,
    };
    Some((key & !rest, key | rest))
}

/// Merges several ascending lists of disjoint segments. Calls `visit` for each range of addresses
/// with one location, or none, in every list.
fn sweep(lists: &[Vec<Segment>], mut visit: impl FnMut(u64, u64, &[Option<u32>])) {
    let mut heads = vec![0; lists.len()];
    let mut locations = vec![None; lists.len()];
    let mut at = 0;
    loop {
        let mut end = u64::MAX;
        let mut is_over = true;
        for ((list, head), location) in lists.iter().zip(&mut heads).zip(&mut locations) {
            while list.get(*head).is_some_and(|segment| segment.last < at) {
                *head += 1;
            }
            *location = None;
            let Some(segment) = list.get(*head) else { continue };
            is_over = false;
            if segment.first <= at {
                *location = Some(segment.location);
                end = end.min(segment.last);
            } else {
                end = end.min(segment.first - 1);
            }
        }
        if is_over {
            return;
        }
        if locations.iter().any(Option::is_some) {
            visit(at, end, &locations);
        }
        match end.checked_add(1) {
            Some(next) => at = next,
            None => return,
        }
    }
}

/// Table builder that joins adjacent ranges of the same group.
struct Merged<'a> {
    table: &'a mut TableBuilder,
    v6: bool,
    last: Option<(u64, u64, GroupId)>,
}

impl<'a> Merged<'a> {
    fn new(table: &'a mut TableBuilder, v6: bool) -> Self {
        Self { table, v6, last: None }
    }

    fn add(&mut self, first: u64, last: u64, group: GroupId) {
        match &mut self.last {
            Some((_, end, same)) if *same == group && *end + 1 == first => *end = last,
            _ => {
                self.flush();
                self.last = Some((first, last, group));
            }
        }
    }

    fn flush(&mut self) {
        let Some((first, last, group)) = self.last else { return };
        if self.v6 {
            let [first, last] = [first, last].map(|n| Ipv6Addr::from_bits(u128::from(n) << 64));
            self.table.v6(first, last, group);
        } else {
            let [first, last] = [first, last].map(|n| Ipv4Addr::from_bits(n as u32));
            self.table.v4(first, last, group);
        }
    }

    fn finish(mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_splits_at_the_boundaries_of_all_lists() {
        let list = |all: &[(u64, u64, u32)]| {
            let segment = |&(first, last, location): &_| Segment { first, last, location };
            all.iter().map(segment).collect()
        };
        let lists = [list(&[(0, 9, 0), (20, u64::MAX, 1)]), list(&[(5, 24, 2)]), list(&[])];
        let mut seen = Vec::new();
        sweep(&lists, |first, last, locations| seen.push((first, last, locations.to_vec())));
        let wanted = [
            (0, 4, vec![Some(0), None, None]),
            (5, 9, vec![Some(0), Some(2), None]),
            (10, 19, vec![None, Some(2), None]),
            (20, 24, vec![Some(1), Some(2), None]),
            (25, u64::MAX, vec![Some(1), None, None]),
        ];
        assert_eq!(seen, wanted);
    }

    #[test]
    fn networks_parse_to_their_first_and_last_address() {
        let v4 = |text| span(text, false);
        assert_eq!(v4("192.0.2.0/24"), Some((0xc000_0200, 0xc000_02ff)));
        assert_eq!(v4("0.0.0.0/0"), Some((0, 0xffff_ffff)));
        assert_eq!(v4("192.0.2.7/32"), Some((0xc000_0207, 0xc000_0207)));
        for bad in ["", "192.0.2.0", "192.0.2.0/33", "192.0.2.0/x", "2001:db8::/48", "x/24"] {
            assert_eq!(v4(bad), None, "{bad}");
        }
        let first = 0x2001_0db8_0001_0000;
        assert_eq!(span("2001:db8:1::/48", true), Some((first, first | 0xffff)));
        assert_eq!(span("2001:db8:1::/65", true), None);
    }
}
