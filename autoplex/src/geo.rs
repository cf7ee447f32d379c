//! Where addresses are, from databases in MaxMind's format: the country, the state, the city and the autonomous system,
//! each from the first database that knows it. A group is called `BR/AS28573/SP/Campinas`; what is not known ends
//! the name, and each beginning of a name is a wider group.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use maxminddb::{LookupResult, Reader};
use serde::Deserialize;

use crate::ranges::Segment;
use crate::{Error, about};

/// The longest name of a group, in bytes: what a table takes.
pub const MAX_NAME: usize = 255;
/// The longest part of one.
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

/// What is read of an entry; the rest may be anything.
#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    country: Option<Named<'a>>,
    autonomous_system_number: Option<u32>,
    subdivisions: Option<Vec<Named<'a>>>,
    city: Option<Named<'a>>,
}

/// What a database says of an address: country, AS number, state and city.
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

    /// The name of the finest group that all of these say; `None` if nobody knows the country.
    pub fn name<'a>(all: impl Iterator<Item = &'a Self> + Clone) -> Option<String> {
        let part = |place: usize| all.clone().find_map(|parts| parts.0[place].as_deref());
        let known = (0..4).map_while(part).collect::<Vec<_>>();
        (!known.is_empty()).then(|| known.join("/"))
    }
}

/// A part of a name without what would end it; `None` if nothing is left.
fn part(text: &str) -> Option<String> {
    let clean = clean(text, MAX_PART).replace('/', " ");
    let clean = clean.trim();
    (!clean.is_empty()).then(|| clean.to_owned())
}

/// A name without control characters, of `most` bytes at most.
pub fn clean(text: &str, most: usize) -> String {
    let mut clean: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(most).collect();
    while clean.len() > most {
        clean.pop();
    }
    clean
}

/// The name and then those of all wider groups: `BR/AS1/SP`, `BR/AS1`, `BR`.
pub fn widening(name: &str) -> impl Iterator<Item = &str> {
    core::iter::successors(Some(name), |name| name.rsplit_once('/').map(|(wider, _)| wider))
}

/// The databases, in the order in which they are asked.
#[derive(Debug, Default)]
pub struct Geo {
    databases: Vec<(PathBuf, Reader<Vec<u8>>)>,
}

impl Geo {
    /// Reads the databases into memory.
    ///
    /// # Errors
    /// One line that names the file: it cannot be read, or is no database.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Error> {
        let open = |path: &PathBuf| {
            let reader = Reader::open_readfile(path).map_err(|e| about(path.display())(&e))?;
            Ok((path.clone(), reader))
        };
        Ok(Self { databases: paths.iter().map(open).collect::<Result<_, Error>>()? })
    }

    /// Whether there is no database.
    pub fn is_empty(&self) -> bool {
        self.databases.is_empty()
    }

    /// The finest group of an address; `None` if it is unknown, or what is said of it is damaged.
    pub fn group(&self, address: IpAddr) -> Option<String> {
        let parts: Vec<Parts> = self
            .databases
            .iter()
            .filter_map(|(_, database)| parts(&database.lookup(address).ok()?))
            .collect();
        Parts::name(parts.iter())
    }

    /// All networks of each database in order, with places in the list of what is said of them: first of IPv4
    /// by address, or of IPv6 by /64. What is damaged is left out.
    ///
    /// # Errors
    /// One line that names the file: no network of it can be read.
    pub fn segments(&self, v6: bool) -> Result<(Vec<Vec<Segment>>, Vec<Parts>), Error> {
        let mut all = Vec::new();
        let mut said = Vec::new();
        for (path, database) in &self.databases {
            let segments = if v6 && database.metadata().ip_version != 6 {
                Vec::new()
            } else {
                segments(path, database, v6, &mut said)?
            };
            all.push(segments);
        }
        Ok((all, said))
    }
}

fn parts(found: &LookupResult<'_, Vec<u8>>) -> Option<Parts> {
    found.decode::<Entry<'_>>().ok()?.map(|entry| Parts::of(&entry))
}

fn segments(
    path: &Path,
    database: &Reader<Vec<u8>>,
    v6: bool,
    said: &mut Vec<Parts>,
) -> Result<Vec<Segment>, Error> {
    let everything = if v6 { "::/0" } else { "0.0.0.0/0" };
    let failed = about(path.display());
    let everything = everything.parse().expect("a network");
    let networks = database.within(everything, Default::default()).map_err(|e| failed(&e))?;
    let mut places: HashMap<usize, Option<u32>> = HashMap::new();
    let mut segments: Vec<Segment> = Vec::new();
    for found in networks {
        // The rest of a branch that is damaged is lost, the other branches are not.
        let Ok(found) = found else { continue };
        let (Some(offset), Ok(network)) = (found.offset(), found.network()) else { continue };
        let place = places.entry(offset).or_insert_with(|| {
            said.push(parts(&found)?);
            Some(said.len() as u32 - 1)
        });
        let (Some(place), bits) = (*place, u32::from(network.prefix())) else { continue };
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
        // Of networks within one /64 the first stands for it.
        if segments.last().is_none_or(|before| before.last < first) {
            segments.push(Segment { first, last, place });
        }
    }
    Ok(segments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_where_knowledge_does() {
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
        let all: Vec<&str> = widening("BR/AS1/SP").collect();
        assert_eq!(all, ["BR/AS1/SP", "BR/AS1", "BR"]);
    }

    #[test]
    fn names_are_clean_and_short() {
        assert_eq!(clean("a\0b\u{85}c", 10), "a b c");
        assert_eq!(clean(&"é".repeat(200), MAX_NAME).len(), 254);
        assert_eq!(part(" / "), None);
    }
}
