//! Address databases: two that complement each other, and damaged ones.

use std::fs;
use std::net::IpAddr;

use ipnet::IpNet;
use mendcast_autoplex::measure::DropReason;
use mmdb_writer::Writer;
use serde::Serialize;
use serde_json::json;

use super::*;

/// Entry of an AS database. The number must be serialized with 32 bits.
#[derive(Serialize)]
struct System {
    autonomous_system_number: u32,
}

pub fn database(path: &Path, networks: &[(&str, impl Serialize)]) -> PathBuf {
    let mut writer = Writer::new("test");
    for (network, value) in networks {
        writer.insert(network.parse::<IpNet>().expect("a network"), value).expect("inserted");
    }
    fs::write(path, writer.to_bytes().expect("a database")).expect("written");
    path.to_owned()
}

/// Writes a city and an AS database with overlapping networks.
pub fn databases(folder: &Path) -> [PathBuf; 2] {
    let city = |city: &str, state: &str| {
        json!({
            "country": {"iso_code": "BR", "names": {"en": "Brazil"}},
            "subdivisions": [{"iso_code": state, "names": {"en": "x"}}],
            "city": {"names": {"en": city, "de": "x"}},
            "location": {"latitude": 1.5},
        })
    };
    let asn = |autonomous_system_number| System { autonomous_system_number };
    let cities = [
        ("10.0.0.0/17", city("Campinas", "SP")),
        ("10.0.128.0/17", city("a/b\u{7}c", "SP")),
        ("10.1.0.0/16", json!({"country": {"iso_code": "TR"}})),
        ("10.2.0.0/16", json!({"continent": {"code": "EU"}})),
        ("10.3.0.0/16", json!({"country": 7, "city": "x"})),
        ("2001:db8::/32", city("Rio", "RJ")),
    ];
    let systems = [
        ("10.0.0.0/18", asn(1)),
        ("10.0.64.0/18", asn(2)),
        ("10.0.128.0/17", asn(1)),
        ("10.2.0.0/16", asn(3)),
        ("2001:db8::/33", asn(1)),
    ];
    [database(&folder.join("city.mmdb"), &cities), database(&folder.join("asn.mmdb"), &systems)]
}

#[test]
fn groups_combine_all_databases() {
    let folder = tempfile::tempdir().expect("a folder");
    let geo = Geo::open(&databases(folder.path())).expect("opened");
    let group = |address: &str| geo.group(address.parse::<IpAddr>().expect("an address"));
    assert_eq!(group("10.0.0.1").as_deref(), Some("BR/AS1/SP/Campinas"));
    assert_eq!(group("10.0.64.1").as_deref(), Some("BR/AS2/SP/Campinas"));
    assert_eq!(group("10.0.200.1").as_deref(), Some("BR/AS1/SP/a b c"));
    assert_eq!(group("10.1.0.1").as_deref(), Some("TR"));
    assert_eq!(group("2001:db8::1").as_deref(), Some("BR/AS1/RJ/Rio"));
    assert_eq!(group("2001:db8:8000::1").as_deref(), Some("BR"));
    // Without a country, malformed, and missing.
    for unknown in ["10.2.0.1", "10.3.0.1", "11.0.0.1", "2001:db9::1"] {
        assert_eq!(group(unknown), None, "{unknown}");
    }
}

#[test]
fn sessions_belong_to_the_groups_of_their_networks() {
    let folder = tempfile::tempdir().expect("a folder");
    let geo = Geo::open(&databases(folder.path())).expect("opened");
    let at = |n: i64, prefix: Option<&str>| {
        let mut record = record(n);
        record.session.prefix = prefix.map(str::to_owned);
        record
    };
    let prefixes = ["10.0.1.0/24", "10.0.65.0/24", "2001:db8::/48", "10.2.0.0/24", "nonsense"];
    let located = prefixes.iter().zip(0..).map(|(prefix, n)| at(n, Some(prefix)));
    let records = located.chain([at(9, None)]);
    let path = write(folder.path(), "sessions-1", records);
    let store = Store::new(&folder.path().join("out"));
    let summary = measured(&[path], &store, &geo).expect("measured");
    assert_eq!((summary.sessions, summary.dropped.get(&DropReason::NoGroup)), (3, Some(&3)));
    let mut names: Vec<String> =
        store.read_pairs("groups.csv").expect("read").into_values().collect();
    names.sort();
    assert_eq!(names, ["BR/AS1/RJ/Rio", "BR/AS1/SP/Campinas", "BR/AS2/SP/Campinas"]);
    assert!(store.read_pairs("prefixes.csv").expect("read").is_empty());
}

#[test]
fn damaged_databases_are_named_or_harmless() {
    let folder = tempfile::tempdir().expect("a folder");
    let [city, _] = databases(folder.path());
    let whole = fs::read(&city).expect("there");
    let bad = folder.path().join("bad.mmdb");
    for bytes in [&b""[..], b"text", &whole[..whole.len() / 2], &[0; 1_000]] {
        fs::write(&bad, bytes).expect("written");
        let e = Geo::open(&[city.clone(), bad.clone()]).expect_err("damaged").to_string();
        assert!(e.contains("bad.mmdb") && e.lines().count() == 1, "{e}");
    }
    let e = Geo::open(&[folder.path().join("none.mmdb")]).expect_err("not there").to_string();
    assert!(e.contains("none.mmdb"), "{e}");
    let mut rng = synthetic::Rng(1);
    let (mut opened, mut known) = (0, 0);
    for _ in 0..2_000 {
        let mut bytes = whole.clone();
        for _ in 0..1 + rng.below(4) {
            let at = rng.below(bytes.len() as i64) as usize;
            bytes[at] = rng.next() as u8;
        }
        fs::write(&bad, bytes).expect("written");
        let Ok(geo) = Geo::open(std::slice::from_ref(&bad)) else { continue };
        opened += 1;
        for address in ["10.0.0.1", "10.1.0.1", "2001:db8::1", "::"] {
            known += usize::from(geo.group(address.parse().expect("an address")).is_some());
        }
        for v6 in [false, true] {
            if let Ok((lists, locations)) = geo.segments(v6) {
                let mut next = 0;
                for segment in &lists[0] {
                    assert!(segment.first >= next && segment.last >= segment.first);
                    assert!((segment.location as usize) < locations.len());
                    next = segment.last;
                }
            }
        }
    }
    assert!(opened > 500 && known > 500, "{opened} {known}");
}
