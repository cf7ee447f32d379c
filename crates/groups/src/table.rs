//! The lookup table of group parameters, and its builder.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;

use units::Rate;

use crate::ranges::{Key, Overlap, Range, Ranges};

/// Index of a group, valid only within its table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct GroupId(pub(crate) u32);

/// Send limits decided for the sessions of a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameters {
    /// Pacing rate, 8 kbit/s to 100 Gbit/s.
    pub rate: Rate,
    /// Bytes in flight, 2,400 B to 1 GiB.
    pub in_flight: u64,
    /// Number of sessions observed.
    pub sessions: u64,
    /// End of the observed period, in Unix seconds.
    pub decided: u64,
}

impl Parameters {
    /// Returns true if all values are within their ranges.
    pub(crate) fn is_sane(&self) -> bool {
        (Rate::from_kbps(8)..=Rate::from_mbps(100_000)).contains(&self.rate)
            && (2_400..=1 << 30).contains(&self.in_flight)
    }
}

/// A user group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// Path of names, such as `BR/SP/Campinas/AS28573`. Up to 255 bytes.
    pub name: Box<str>,
    /// Wider group, which precedes this one in the table.
    pub parent: Option<GroupId>,
    /// Decided limits. Without enough data, `None`: sessions are served without AutoPlex.
    pub parameters: Option<Parameters>,
    /// Whether the guard disabled the group because its viewers did worse than the hold-out.
    pub is_off: bool,
}

/// Validity period of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Time of the decision, in Unix seconds.
    pub issued: u64,
    /// Validity after `issued`.
    pub lifetime: Duration,
}

/// Reason why an address has no parameters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Absent {
    /// The table has expired.
    Expired,
    /// The table was issued more than [`Table::SKEW`] in the future: one of the clocks is wrong.
    Future,
    /// The address is in no range.
    Unknown,
    /// The group has too little data.
    Undecided,
    /// The guard disabled the group.
    Off,
}

impl Absent {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 5] =
        [Self::Expired, Self::Future, Self::Unknown, Self::Undecided, Self::Off];

    /// Label in metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Future => "future",
            Self::Unknown => "unknown",
            Self::Undecided => "undecided",
            Self::Off => "off",
        }
    }
}

/// The tables `<address, group>` and `<group, parameters>`.
///
/// ```
/// use core::time::Duration;
/// use mendcast_groups::{Group, Parameters, Table, TableBuilder, Times};
/// use units::Rate;
///
/// let times = Times { issued: 1_700_000_000, lifetime: Duration::from_secs(3_600) };
/// let mut builder = TableBuilder::new(times);
/// let group = builder.group(Group {
///     name: "as64500/lyon".into(),
///     parent: None,
///     parameters: Some(Parameters {
///         rate: Rate::from_mbps(6),
///         in_flight: 60_000,
///         sessions: 512,
///         decided: 1_700_000_000,
///     }),
///     is_off: false,
/// });
/// builder.v4([192, 0, 2, 0].into(), [192, 0, 2, 255].into(), group);
/// let table = builder.finish().unwrap();
///
/// let table = Table::decode(&table.encode()).unwrap();
/// let address = "192.0.2.7".parse().unwrap();
/// let (_, parameters) = table.parameters(address, 1_700_000_600).unwrap();
/// assert_eq!(parameters.rate, Rate::from_mbps(6));
/// // After its lifetime, the table caps nobody.
/// assert!(table.parameters(address, 1_700_009_000).is_err());
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    pub(crate) times: Times,
    pub(crate) v4: Ranges<u32>,
    pub(crate) v6: Ranges<u64>,
    pub(crate) groups: Vec<Group>,
}

impl Table {
    /// Tolerated difference between the clocks of the deciding and the serving machine.
    pub const SKEW: Duration = Duration::from_secs(60);

    /// Returns the send limits of an address at `now` (Unix seconds).
    ///
    /// # Errors
    /// The reason if it has none.
    pub fn parameters(&self, address: IpAddr, now: u64) -> Result<(GroupId, &Parameters), Absent> {
        let Times { issued, lifetime } = self.times;
        if issued > now.saturating_add(Self::SKEW.as_secs()) {
            return Err(Absent::Future);
        }
        if now.saturating_sub(issued) > lifetime.as_secs() {
            return Err(Absent::Expired);
        }
        let id = self.group_of(address).ok_or(Absent::Unknown)?;
        let group = self.group(id).ok_or(Absent::Unknown)?;
        match &group.parameters {
            _ if group.is_off => Err(Absent::Off),
            None => Err(Absent::Undecided),
            Some(parameters) => Ok((id, parameters)),
        }
    }

    /// Returns the group of an address.
    pub fn group_of(&self, address: IpAddr) -> Option<GroupId> {
        let index = match Key::of(address) {
            Key::V4(address) => self.v4.find(address),
            Key::V6(network) => self.v6.find(network),
        };
        index.map(GroupId)
    }

    /// Returns a group by its index.
    pub fn group(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.0 as usize)
    }

    /// All groups, parents before their children.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Validity period of the table.
    pub fn times(&self) -> Times {
        self.times
    }

    /// Number of address ranges.
    pub fn ranges(&self) -> usize {
        self.v4.len() + self.v6.len()
    }
}

/// Builder of a [`Table`].
#[derive(Clone, Debug)]
pub struct TableBuilder {
    times: Times,
    v4: Vec<Range<u32>>,
    v6: Vec<Range<u64>>,
    groups: Vec<Group>,
}

impl TableBuilder {
    /// Creates a builder without groups and ranges.
    pub fn new(times: Times) -> Self {
        Self { times, v4: Vec::new(), v6: Vec::new(), groups: Vec::new() }
    }

    /// Adds a group. Its parent must already have been added.
    pub fn group(&mut self, group: Group) -> GroupId {
        self.groups.push(group);
        GroupId((self.groups.len() - 1) as u32)
    }

    /// Assigns the addresses from `first` to `last`, inclusive, to a group.
    pub fn v4(&mut self, first: Ipv4Addr, last: Ipv4Addr, group: GroupId) {
        self.v4.push(Range { first: first.to_bits(), last: last.to_bits(), group: group.0 });
    }

    /// Assigns the /64 networks of `first` to `last`, inclusive, to a group.
    pub fn v6(&mut self, first: Ipv6Addr, last: Ipv6Addr, group: GroupId) {
        let [first, last] = [first, last].map(|address| (address.to_bits() >> 64) as u64);
        self.v6.push(Range { first, last, group: group.0 });
    }

    /// Builds the table. Ranges may have been added in any order.
    ///
    /// # Errors
    /// If ranges overlap or one ends before it starts.
    pub fn finish(mut self) -> Result<Table, Overlap> {
        self.v4.sort_unstable_by_key(|range| range.first);
        self.v6.sort_unstable_by_key(|range| range.first);
        let (v4, v6) = (Ranges::new(self.v4)?, Ranges::new(self.v6)?);
        Ok(Table { times: self.times, v4, v6, groups: self.groups })
    }
}
