//! Which group of a decision each address belongs to: the deepest one that the databases name, or the one that records
//! of its network named.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use groups::{GroupId, TableBuilder};

use crate::Error;
use crate::geo::{Geo, Parts, widening};

/// Addresses of which a database says the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The first one: of IPv4 the address, of IPv6 its upper 64 bits.
    pub first: u64,
    /// The last one.
    pub last: u64,
    /// The place of what is said.
    pub place: u32,
}

/// The groups of a decision by their names.
pub type Known<'a> = HashMap<&'a str, GroupId>;

/// The narrowest group of these that an address belongs to whose finest group is called `name`.
fn deepest(name: &str, known: &Known<'_>) -> Option<GroupId> {
    widening(name).find_map(|name| known.get(name).copied())
}

/// Gives the table the addresses of its groups as the databases have them.
///
/// # Errors
/// One line: a database cannot be read.
pub fn of_databases(
    geo: &Geo,
    known: &Known<'_>,
    building: &mut TableBuilder,
) -> Result<(), Error> {
    for v6 in [false, true] {
        let (lists, said) = geo.segments(v6)?;
        let mut groups: HashMap<Vec<Option<u32>>, Option<GroupId>> = HashMap::new();
        let mut merged = Merged::new(building, v6);
        sweep(&lists, |first, last, places| {
            let group = *groups.entry(places.to_vec()).or_insert_with(|| {
                let said = places.iter().flatten().map(|place| &said[*place as usize]);
                deepest(&Parts::name(said)?, known)
            });
            if let Some(group) = group {
                merged.add(first, last, group);
            }
        });
        merged.finish();
    }
    Ok(())
}

/// Gives the table networks ("192.0.2.0/24") and their groups as records name them. What is no network is passed over.
pub fn of_prefixes(
    prefixes: &BTreeMap<String, String>,
    known: &Known<'_>,
    building: &mut TableBuilder,
) {
    for v6 in [false, true] {
        let mut all: Vec<(u64, u64, GroupId)> = prefixes
            .iter()
            .filter_map(|(prefix, name)| {
                let (first, last) = span(prefix, v6)?;
                Some((first, last, deepest(name, known)?))
            })
            .collect();
        all.sort_unstable_by_key(|(first, last, _)| (*first, *last));
        let mut merged = Merged::new(building, v6);
        let mut next = 0;
        for (first, last, group) in all {
            // Edges write disjoint networks; of others the first counts.
            if first >= next {
                merged.add(first, last, group);
                next = last.saturating_add(1);
            }
        }
        merged.finish();
    }
}

/// The first and last address of a network; `None` if it is none of this kind.
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

/// Walks over several lists of disjoint segments at once: calls `visit` for each stretch of addresses on which none of
/// them changes, with what each says there.
fn sweep(lists: &[Vec<Segment>], mut visit: impl FnMut(u64, u64, &[Option<u32>])) {
    let mut heads = vec![0; lists.len()];
    let mut places = vec![None; lists.len()];
    let mut at = 0;
    loop {
        let mut end = u64::MAX;
        let mut is_over = true;
        for ((list, head), place) in lists.iter().zip(&mut heads).zip(&mut places) {
            while list.get(*head).is_some_and(|segment| segment.last < at) {
                *head += 1;
            }
            *place = None;
            let Some(segment) = list.get(*head) else { continue };
            is_over = false;
            if segment.first <= at {
                *place = Some(segment.place);
                end = end.min(segment.last);
            } else {
                end = end.min(segment.first - 1);
            }
        }
        if is_over {
            return;
        }
        if places.iter().any(Option::is_some) {
            visit(at, end, &places);
        }
        match end.checked_add(1) {
            Some(next) => at = next,
            None => return,
        }
    }
}

/// Ranges that touch and are of the same group become one.
struct Merged<'a> {
    building: &'a mut TableBuilder,
    v6: bool,
    last: Option<(u64, u64, GroupId)>,
}

impl<'a> Merged<'a> {
    fn new(building: &'a mut TableBuilder, v6: bool) -> Self {
        Self { building, v6, last: None }
    }

    fn add(&mut self, first: u64, last: u64, group: GroupId) {
        match &mut self.last {
            Some((_, end, same)) if *same == group && *end + 1 == first => *end = last,
            _ => {
                self.put();
                self.last = Some((first, last, group));
            }
        }
    }

    fn put(&mut self) {
        let Some((first, last, group)) = self.last else { return };
        if self.v6 {
            let [first, last] = [first, last].map(|n| Ipv6Addr::from_bits(u128::from(n) << 64));
            self.building.v6(first, last, group);
        } else {
            let [first, last] = [first, last].map(|n| Ipv4Addr::from_bits(n as u32));
            self.building.v4(first, last, group);
        }
    }

    fn finish(mut self) {
        self.put();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_cuts_where_any_list_does() {
        let list = |all: &[(u64, u64, u32)]| {
            all.iter().map(|&(first, last, place)| Segment { first, last, place }).collect()
        };
        let lists = [list(&[(0, 9, 0), (20, u64::MAX, 1)]), list(&[(5, 24, 2)]), list(&[])];
        let mut seen = Vec::new();
        sweep(&lists, |first, last, places| seen.push((first, last, places.to_vec())));
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
    fn networks_are_spans_of_addresses() {
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
