use super::*;
use crate::{Absent, TableBuilder};
use core::net::IpAddr;
use proptest::prelude::*;

const NOW: u64 = 1_800_000_000;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// A group with two children, one of them off, and one without parameters.
fn table() -> Table {
    let times = Times { issued: NOW, lifetime: Duration::from_secs(7_200) };
    let mut building = TableBuilder::new(times);
    let mut group = |name: &str, parent, mbps: u64, is_off| {
        let parameters = (mbps > 0).then(|| Parameters {
            rate: Rate::from_mbps(mbps),
            in_flight: 100_000 * mbps,
            sessions: 300,
            decided: NOW - 60,
        });
        building.group(Group { name: name.into(), parent, parameters, is_off })
    };
    let country = group("BR", None, 4, false);
    let city = group("BR/SP/São Paulo/AS1", Some(country), 6, false);
    let off = group("BR/RJ", Some(country), 2, true);
    let unknown = group("BR/AM", Some(country), 0, false);
    let v4 = |text: &str| text.parse().expect("an address");
    building.v4(v4("198.51.100.0"), v4("198.51.100.255"), off);
    building.v4(v4("192.0.2.0"), v4("192.0.2.127"), city);
    building.v4(v4("192.0.2.128"), v4("192.0.2.128"), unknown);
    let v6 = |text: &str| text.parse().expect("an address");
    building.v6(v6("2001:db8::"), v6("2001:db8:0:ffff::"), country);
    building.finish().expect("disjoint")
}

#[test]
fn an_address_has_the_parameters_of_its_group() {
    let table = table();
    let rate = |address: &str, now| {
        table.parameters(ip(address), now).map(|(id, found)| {
            (table.group(id).expect("there").name.to_string(), found.rate.as_mbps_f64())
        })
    };
    let city = Ok(("BR/SP/São Paulo/AS1".to_owned(), 6.0));
    for address in ["192.0.2.0", "192.0.2.127", "::ffff:192.0.2.7"] {
        assert_eq!(rate(address, NOW), city, "{address}");
    }
    assert_eq!(rate("2001:db8:0:ffff::7", NOW), Ok(("BR".to_owned(), 4.0)));
    assert_eq!(rate("192.0.2.128", NOW), Err(Absent::Undecided));
    assert_eq!(rate("198.51.100.9", NOW), Err(Absent::Off));
    for address in ["192.0.2.129", "0.0.0.0", "255.255.255.255", "::", "2001:db8:1::"] {
        assert_eq!(rate(address, NOW), Err(Absent::Unknown), "{address}");
    }
    assert_eq!(rate("192.0.2.0", NOW + 7_200), city);
    assert_eq!(rate("192.0.2.0", NOW + 7_201), Err(Absent::Expired));
    assert_eq!(rate("192.0.2.0", u64::MAX), Err(Absent::Expired));
    assert_eq!(rate("192.0.2.0", NOW - 60), city, "clocks differ");
    assert_eq!(rate("192.0.2.0", NOW - 61), Err(Absent::Future));
    assert_eq!(rate("192.0.2.0", 0), Err(Absent::Future));
}

#[test]
fn encoding_and_decoding_preserve_the_table() {
    let table = table();
    assert_eq!(Table::decode(&table.encode()), Ok(table));
}

#[test]
fn truncated_and_damaged_files_are_rejected() {
    let bytes = table().encode();
    for len in 0..bytes.len() {
        assert!(Table::decode(&bytes[..len]).is_err(), "{len} bytes");
    }
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert!(Table::decode(&flipped).is_err(), "bit {bit}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Table::decode(&longer), Err(FileError::Damaged));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert_eq!(Table::decode(&newer), Err(FileError::Version(2)));
    assert_eq!(Table::decode(&vec![0; MAX_FILE + 1]), Err(FileError::TooLarge));
}

/// Fixes the checksum of modified bytes.
fn signed(mut bytes: Vec<u8>) -> Vec<u8> {
    let sum = crc32fast::hash(&bytes[HEAD..]);
    bytes[HEAD - 4..HEAD].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn invalid_groups_are_named_in_the_error() {
    let refused = |change: fn(&mut Table)| {
        let mut table = table();
        change(&mut table);
        Table::decode(&table.encode()).expect_err("invalid").to_string()
    };
    fn parameters(table: &mut Table) -> &mut Parameters {
        table.groups[1].parameters.as_mut().expect("it has some")
    }
    for change in [
        (|t| parameters(t).rate = Rate::ZERO) as fn(&mut Table),
        |t| parameters(t).rate = Rate::from_mbps(200_000),
        |t| parameters(t).in_flight = 0,
        |t| parameters(t).in_flight = u64::MAX,
    ] {
        assert!(refused(change).starts_with("group 1 of the table is invalid: its parameters"));
    }
    assert!(refused(|t| t.groups[1].parent = Some(GroupId(1))).contains("its parent"));
    assert!(refused(|t| t.groups.truncate(3)).contains("group 3, which does not exist"));
    let counts = HEAD + 16;
    let mut claims = table().encode();
    claims[counts + 4..counts + 8].copy_from_slice(&u32::MAX.to_le_bytes());
    assert_eq!(Table::decode(&signed(claims)), Err(FileError::Damaged), "no large allocation");
}

#[test]
fn overlapping_ranges_are_rejected() {
    let building = |ranges: &[(u8, u8)]| {
        let times = Times { issued: NOW, lifetime: Duration::ZERO };
        let mut building = TableBuilder::new(times);
        let group = Group { name: "x".into(), parent: None, parameters: None, is_off: false };
        let group = building.group(group);
        for (first, last) in ranges {
            building.v4([10, 0, 0, *first].into(), [10, 0, 0, *last].into(), group);
        }
        building.finish().map(|table| table.ranges())
    };
    assert_eq!(building(&[(8, 9), (0, 7)]), Ok(2));
    assert_eq!(building(&[(8, 9), (0, 8)]), Err(Overlap { index: 1 }));
    assert_eq!(building(&[(9, 8)]), Err(Overlap { index: 0 }));
}

proptest! {
    #[test]
    fn arbitrary_bytes_are_rejected(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        let table = table().encode();
        prop_assert!(Table::decode(&bytes).is_err());
        // With a valid header and checksum.
        bytes.splice(0..0, table[..HEAD + 28].iter().copied());
        let _ = Table::decode(&signed(bytes));
    }

    #[test]
    fn search_agrees_with_a_linear_scan(
        ends in proptest::collection::btree_set(any::<u32>(), 0..60), address: u32,
    ) {
        let ends: Vec<u32> = ends.into_iter().collect();
        let ranges = ends.chunks_exact(2).enumerate();
        let ranges: Vec<_> = ranges
            .map(|(group, ends)| Range { first: ends[0], last: ends[1], group: group as u32 })
            .collect();
        let all = Ranges::new(ranges.iter().copied()).expect("disjoint");
        for address in ends.iter().copied().chain([address, 0, u32::MAX]) {
            let through = ranges.iter().find(|r| (r.first..=r.last).contains(&address));
            prop_assert_eq!(all.find(address), through.map(|range| range.group));
        }
    }
}
