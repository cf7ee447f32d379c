//! Locations of addresses from databases in MaxMind's format.
//!
//! Country, state, city and autonomous system each come from the first database that knows them. A
//! group's name is `BR/AS28573/SP/Campinas`; it ends before the first unknown part, and each of its
//! ancestors is a wider group.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{LookupResult, Reader};
use serde::Deserialize;

use crate::Error;

/// Maximum length of a group's name in a table, in bytes.
pub const MAX_NAME: usize = 255;
/// Maximum length of a part of a name, in bytes.
const MAX_PART: usize = 80;

#[derive(Deserialize)]
struct Names<'a> {
    en: Option<&'a str>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow)]
    iso_code: Option<&'a str>,
    names: Option<Names<'a>>,
}

impl Named<'_> {
    fn name(&self) -> Option<&str> {
        self.iso_code.or_else(|| self.names.as_ref()?.en)
    }
}

/// Fields of a database entry that are read. Other fields are ignored.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    country: Option<Named<'a>>,
    autonomous_system_number: Option<u32>,
    subdivisions: Option<Vec<Named<'a>>>,
    city: Option<Named<'a>>,
}

/// Location of an address in one database: country, AS number, state and city.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Parts([Option<String>; 4]);

impl Parts {
    fn of(entry: &Entry<'_>) -> Self {
        let named = |named: Option<&Named<'_>>| named.and_then(Named::name).and_then(part);
        let state = entry.subdivisions.as_ref().and_then(|all| all.first());
        let number = entry.autonomous_system_number.filter(|number| *number > 0);
        Self([
            named(entry.country.as_ref()),
            number.map(|number| format!("AS{number}")),
            named(state),
            named(entry.city.as_ref()),
        ])
    }

    /// Returns the name of the narrowest group; `None` if no database knows the country.
    pub fn name<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Option<String> {
        let part = |index: usize| all.clone().find_map(|parts| parts.0[index].as_deref());
        let known = (0..4).map_while(part).collect::<Vec<_>>();
        (!known.is_empty()).then(|| known.join("/"))
    }
}

/// Returns a part of a name without separators; `None` if it is empty.
fn part(text: &str) -> Option<String> {
    let clean = sanitized(text, MAX_PART).replace('/', " ");
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

/// Replaces control characters by spaces, and truncates to `max_len` bytes.
pub fn sanitized(text: &str, max_len: usize) -> String {
    let mut clean: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(max_len).collect();
    while clean.len() > max_len {
        clean.pop();
    }
    clean
}

/// Iterates over the name of a group and its ancestors: `BR/AS1/SP`, `BR/AS1`, `BR`.
pub fn with_ancestors(name: &str) -> impl Iterator<Item = &str> {
    core::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(parent, _)| parent))
}

/// Addresses with the same location in a database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First address: an IPv4 address, or the upper 64 bits of an IPv6 address.
    pub first: u64,
    /// Last address.
    pub last: u64,
    /// Index of the location.
    pub location: u32,
}

/// Address databases in order of precedence.
#[derive(Debug, Default)]
pub struct Geo {
    databases: Vec<(PathBuf, Reader<Vec<u8>>)>,
}

impl Geo {
    /// Reads the databases into memory.
    ///
    /// # Errors
    /// If a file cannot be read, or is not a database.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let open = |path: &PathBuf| {
            let reader = Reader::open_readfile(path).map_err(failed(path))?;
            Ok((path.clone(), reader))
        };
        Ok(Self { databases: paths.iter().map(open).collect::<Result<_, Error>>()? })
    }

    /// Returns true without any database.
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty()
    }

    /// Returns the narrowest group of an address; `None` if the address is unknown or its entry
    /// damaged.
    pub fn group(&self, address: IpAddr) -> Option<String> {
        let parts: Vec<Parts> = self
            .databases
            .iter()
            .filter_map(|(_, database)| parts(&database.lookup(address).ok()?))
            .collect();
        Parts::name(parts.iter())
    }

    /// Returns all networks of each database in ascending order, and the locations that they refer
    /// to. IPv6 networks are at least a /64. Damaged entries are omitted.
    ///
    /// # Errors
    /// If no network of a database can be read.
    pub fn segments(&self, v6: bool) -> Result<(Vec<Vec<Segment>>, Vec<Parts>), Error> {
        let mut all = Vec::new();
        let mut locations = Vec::new();
        for (path, database) in &self.databases {
            let segments = if v6 && database.metadata().ip_version != 6 {
                Vec::new()
            } else {
                segments(path, database, v6, &mut locations)?
            };
            all.push(segments);
        }
        Ok((all, locations))
    }
}

fn failed(path: &Path) -> impl Fn(maxminddb::MaxMindDbError) -> Error {
    move |source| Error::Database { path: path.to_owned(), source }
}

fn parts(found: &LookupResult<'_, Vec<u8>>) -> Option<Parts> {
    found.decode::<Entry<'_>>().ok()?.map(|entry| Parts::of(&entry))
}

fn segments(
    path: &Path,
    database: &Reader<Vec<u8>>,
    v6: bool,
    locations: &mut Vec<Parts>,
) -> Result<Vec<Segment>, Error> {
    let everything = if v6 { "::/0" } else { "0.0.0.0/0" };
    let everything = everything.parse().expect("a network");
    let networks = database.within(everything, Default::default()).map_err(failed(path))?;
    let mut known: HashMap<usize, Option<u32>> = HashMap::new();
    let mut segments: Vec<Segment> = Vec::new();
    for found in networks {
        // A damaged branch of the tree is skipped; other branches remain readable.
        let Ok(found) = found else { continue };
        let (Some(offset), Ok(network)) = (found.offset(), found.network()) else { continue };
        let location = known.entry(offset).or_insert_with(|| {
            locations.push(parts(&found)?);
            Some(locations.len() as u32 - 1)
        });
        let (Some(location), bits) = (*location, u32::from(network.prefix())) else { continue };
        let (first, last) = match (network.network(), v6) {
            (IpAddr::V4(v4), false) => {
                let first = u64::from(v4.to_bits());
                (first, first | (u64::from(u32::MAX) >> bits))
            }
            (IpAddr::V6(v6), true) => {
                let first = (v6.to_bits() >> 64) as u64;
                (first, first | u64::MAX.checked_shr(bits).unwrap_or(0))
            }
            _ => continue,
        };
        // The first of several networks within a /64 represents it.
        if segments.last().is_none_or(|before| before.last < first) {
            segments.push(Segment { first, last, location });
        }
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_ends_before_the_first_unknown_part() {
        let parts = |all: [&str; 4]| Parts(all.map(part));
        let city = parts(["BR", "", "SP", "Campi\nnas/Sul"]);
        let asn = parts(["", "AS28573", "", ""]);
        let name = |all: &[Parts]| Parts::name(all.iter());
        assert_eq!(
            name(&[city.clone(), asn.clone()]).as_deref(),
            Some("BR/AS28573/SP/Campi nas Sul")
        );
        assert_eq!(name(&[city]).as_deref(), Some("BR"));
        assert_eq!(name(&[asn]), None);
        assert_eq!(name(&[]), None);
        let all: Vec<&str> = with_ancestors("BR/AS1/SP").collect();
        assert_eq!(all, ["BR/AS1/SP", "BR/AS1", "BR"]);
    }

    #[test]
    fn names_are_sanitized_and_truncated() {
        assert_eq!(sanitized("a\0b\u{85}c", 10), "a b c");
        assert_eq!(sanitized(&"é".repeat(200), MAX_NAME).len(), 254);
        assert_eq!(part(" / "), None);
    }
}
